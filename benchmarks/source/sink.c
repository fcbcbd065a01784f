/* A client that does nothing: opens streams, takes their bytes, throws them away. It shows what the source can do.
 *
 *     sink PORT PATH STREAMS
 *
 * Prints {"bytes":…,"ended":…} when every stream has ended (its last bytes are the last chunk's) or was closed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LAST_CHUNK "0\r\n\r\n"

static int open_stream(int poll_fd, int port, const char *path) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char request[512];
    int size = snprintf(request, sizeof request, "POST %s HTTP/1.1\r\nhost: sink\r\ncontent-length: 2\r\n\r\n{}", path);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) || write(fd, request, (size_t)size) != size) {
        fprintf(stderr, "sink: cannot connect: %s\n", strerror(errno));
        exit(1);
    }
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event);
}

int main(int argument_count, char **arguments) {
    if (argument_count != 4)
        return fprintf(stderr, "usage: sink PORT PATH STREAMS\n"), 1;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int poll_fd = epoll_create1(EPOLL_CLOEXEC), streams = atoi(arguments[3]), ended = 0;
    for (int i = 0; i < streams; i++)
        open_stream(poll_fd, atoi(arguments[1]), arguments[2]);
    static char buffer[65536];
    unsigned long long bytes = 0;
    time_t last = time(NULL);
    while (ended < streams) {
        struct epoll_event events[512];
        int count = epoll_wait(poll_fd, events, 512, getenv("SINK_SLEEPS") ? 1000 : 0); /* never asleep, as a client at its limit is: no wake-ups */
        if (count > 0)
            last = time(NULL);
        else if (time(NULL) - last > 30)
            return fprintf(stderr, "sink: nothing came for 30 seconds\n"), 1;
        for (int i = 0; i < count; i++) {
            ssize_t got = recv(events[i].data.fd, buffer, sizeof buffer, MSG_DONTWAIT);
            if (got > 0)
                bytes += (unsigned long long)got;
            if (!got || (got >= 5 && !memcmp(buffer + got - 5, LAST_CHUNK, 5))) {
                close(events[i].data.fd);
                ended++;
            }
        }
    }
    printf("{\"bytes\":%llu,\"ended\":%d}\n", bytes, ended);
    return 0;
}
