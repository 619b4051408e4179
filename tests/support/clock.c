/* A clock that is CLOCK_AHEAD seconds ahead, for a program that is started with this library. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
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
