/* The parts of the image that a shell cannot do, or not fast enough.
 *
 *   odradek-image hold PROGRAM ...    blocks SIGTERM and SIGINT and runs the program, which unblocks them when it handles them
 *   odradek-image start PROGRAM ...   the same for a broker, with the name of its socket for health checks
 *   odradek-image run PROGRAM ...     unblocks the signals and runs any other program
 *   odradek-image health              asks the container's broker for its health; exit code 0 if it is healthy, else 1
 *
 * The kernel drops a signal that the first process of a container neither handles nor blocks.
 *
 * A broker responds to health checks at an abstract Unix socket. The socket has no file, so it works with a read-only root and
 * any user, and vanishes with the process. Its name contains the container's mount namespace, since containers may share a network. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define VARIABLE "ODRADEK_HEALTH_SOCKET"
#define PATIENCE_S 2 /* three checks of 2 s each, with 5 s between them, take less than 25 s */

static sigset_t stop_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    return set;
}

static const char *socket_name(char *name, size_t size) {
    const char *given = getenv(VARIABLE);
    if (given != NULL && *given != '\0')
        return given;
    char space[64];
    ssize_t length = readlink("/proc/self/ns/mnt", space, sizeof space - 1);
    space[length < 0 ? 0 : length] = '\0';
    snprintf(name, size, "odradek-%s", space);
    return name;
}

static int execute(char **arguments) {
    execvp(arguments[0], arguments);
    fprintf(stderr, "%s: %s\n", arguments[0], strerror(errno));
    return errno == ENOENT ? 127 : 126;
}

static int hold(char **arguments) {
    sigset_t set = stop_signals();
    sigprocmask(SIG_BLOCK, &set, NULL);
    return execute(arguments);
}

static int start(char **arguments) {
    char name[96];
    setenv(VARIABLE, socket_name(name, sizeof name), 1);
    return hold(arguments);
}

static int run(char **arguments) {
    sigset_t pending, set = stop_signals();
    sigpending(&pending);
    if (sigismember(&pending, SIGTERM))
        return 128 + SIGTERM;
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    return execute(arguments);
}

static int unhealthy(const char *what) {
    printf("unhealthy: %s\n", errno == EAGAIN || errno == EINPROGRESS ? "the broker has not responded for 2 s" : what);
    return 1;
}

static int health(void) {
    char name[96], answer[4096];
    const char *wanted = socket_name(name, sizeof name);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(wanted) > sizeof address.sun_path - 1)
        return unhealthy("the name of the socket is too long");
    memcpy(address.sun_path + 1, wanted, strlen(wanted));
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(wanted));
    int broker = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = PATIENCE_S};
    setsockopt(broker, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(broker, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(broker, (struct sockaddr *)&address, size) < 0)
        return unhealthy("no broker of this container serves clients");
    size_t read_bytes = 0;
    ssize_t count;
    while ((count = read(broker, answer + read_bytes, sizeof answer - 1 - read_bytes)) > 0)
        read_bytes += (size_t)count;
    if (count < 0)
        return unhealthy("the connection to the broker broke");
    answer[read_bytes] = '\0';
    fputs(answer, stdout);
    return strncmp(answer, "healthy", 7) != 0;
}

int main(int count, char **arguments) {
    if (count == 2 && strcmp(arguments[1], "health") == 0)
        return health();
    if (count > 2 && strcmp(arguments[1], "hold") == 0)
        return hold(arguments + 2);
    if (count > 2 && strcmp(arguments[1], "start") == 0)
        return start(arguments + 2);
    if (count > 2 && strcmp(arguments[1], "run") == 0)
        return run(arguments + 2);
    fputs("usage: odradek-image hold|start|run PROGRAM [ARGUMENT ...] or odradek-image health\n", stderr);
    return 2;
}
