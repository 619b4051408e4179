/* The clock of a program that is started with this library: CLOCK_AHEAD seconds ahead, or as the
   file CLOCK says, in microseconds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    static volatile long long *clock;
    if (!clock && getenv("CLOCK")) {
        int file = open(getenv("CLOCK"), O_RDONLY | O_CLOEXEC);
        clock = mmap(NULL, sizeof *clock, PROT_READ, MAP_SHARED, file, 0);
        close(file);
    }
    if (clock) {
        now->tv_sec = *clock / 1000000;
        now->tv_usec = *clock % 1000000;
        return 0;
    }
    long failed = syscall(SYS_gettimeofday, now, zone);
    if (!failed)
        now->tv_sec += atol(getenv("CLOCK_AHEAD"));
    return (int)failed;
}

time_t time(time_t *copy) {
    struct timeval now;
    gettimeofday(&now, NULL);
    if (copy)
        *copy = now.tv_sec;
    return now.tv_sec;
}
