/* Starts processes that leave orphans, as fast as a command can: storm CHAINS LIFE SECONDS STATUS IDLE [setsid].
 * Each chain is a process that lives for LIFE microseconds, starts the next and ends, or with setsid
 * starts it in a new session. IDLE processes only wait. All of them end after SECONDS, however the first process ends. That prints READY, and before
 * it exits with STATUS, how many orphans a second there were. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void wait_for(double seconds) {
    double whole = (long)seconds;
    struct timespec time = {whole, (seconds - whole) * 1e9};
    nanosleep(&time, NULL);
}

int main(int count, char **words) {
    if (count < 6) return 64;
    int new_sessions = count > 6;
    int chains = atoi(words[1]), life = atoi(words[2]), idle = atoi(words[5]);
    double begin = now(), end = begin + atof(words[3]);
    long *orphans = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (orphans == MAP_FAILED) return 70;
    for (int i = 0; i < idle; i++) {
        if (fork()) continue;
        if (fork() == 0) wait_for(end - now());
        _exit(0);
    }
    for (int i = 0; i < chains; i++) {
        if (fork()) continue;
        signal(SIGTERM, SIG_IGN);
        for (;;) {
            if (new_sessions) setsid();
            wait_for(life / 1e6);
            if (now() >= end) _exit(0);
            if (fork() > 0) {
                __atomic_fetch_add(orphans, 1, __ATOMIC_RELAXED);
                _exit(0);
            }
        }
    }
    puts("READY");
    fflush(stdout);
    double started = now();
    while (now() < end) wait_for(end - now());
    printf("%.0f\n", *orphans / (now() - started));
    return atoi(words[4]);
}
