/* The time of day of a program that is started with this library: as many microseconds ahead as the
   file CLOCK_AHEAD says, or as the file CLOCK says. A test may change the file at any time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *clock_file, *ahead_file;

static volatile long long *mapped(const char *path) {
    if (!path)
        return NULL;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    void *memory = mmap(NULL, sizeof(long long), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return memory;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    if (!clock_file && !ahead_file) {
        clock_file = mapped(getenv("CLOCK"));
        ahead_file = mapped(getenv("CLOCK_AHEAD"));
    }
    long failed = syscall(SYS_gettimeofday, now, zone);
    long long micros = now->tv_sec * 1000000LL + now->tv_usec;
    micros = clock_file ? *clock_file : micros + *ahead_file;
    now->tv_sec = micros / 1000000;
    now->tv_usec = micros % 1000000;
    return (int)failed;
}

time_t time(time_t *copy) {
    struct timeval now;
    gettimeofday(&now, NULL);
    if (copy)
        *copy = now.tv_sec;
    return now.tv_sec;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock != CLOCK_REALTIME)
        return (int)syscall(SYS_clock_gettime, clock, now);
    struct timeval micros;
    gettimeofday(&micros, NULL);
    now->tv_sec = micros.tv_sec;
    now->tv_nsec = micros.tv_usec * 1000;
    return 0;
}
