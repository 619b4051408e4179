/* What every run of rlock needs, and nothing else: connects, acquires a lock with a fresh token, runs
 * `true`, releases the lock. requests.h has PORT, TOKEN, ACQUIRE and RELEASE, as rlock sends them. */
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "requests.h"

static void replace(char *request, const char *token) {
    while ((request = strstr(request, TOKEN))) memcpy(request, token, sizeof TOKEN - 1);
}

/* Whether the server does what it is asked for. */
static int asks(int server, const char *request, size_t length) {
    char reply[4096];
    return write(server, request, length) == length && read(server, reply, sizeof reply) > 0
        && *reply != '-';
}

int main(void) {
    unsigned long long random;
    char token[sizeof TOKEN], acquire[] = ACQUIRE, release[] = RELEASE;
    if (getrandom(&random, sizeof random, 0) != sizeof random) return 70;
    snprintf(token, sizeof token, "00000000-0000-4000-8%03llx-%012llx", random >> 52, random << 16 >> 16);
    replace(acquire, token);
    replace(release, token);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(server, (struct sockaddr *)&address, sizeof address)) return 69;
    if (!asks(server, acquire, sizeof acquire - 1)) return 75;
    pid_t child = vfork();
    if (!child) {
        execl("/bin/true", "true", NULL);
        _exit(127);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status) return 70;
    return asks(server, release, sizeof release - 1) ? 0 : 77;
}
