/* A paced source of server-sent events on loopback, fast enough to outrun every client.
 *
 *     load_source TEMPLATES IDLE_SECONDS [CERTIFICATE KEY]
 *
 * One thread, one epoll. Each event's text is CLOCK_MONOTONIC at the moment of its send, one event per HTTP chunk
 * and per send, each stream paced by absolute time. Knows HTTP/1.1 as far as the benchmarks' clients speak it and
 * no dialect at all: the templates are handed in. Prints its ports as one JSON line, then serves until its standard
 * input ends (its parent is gone) or nothing was connected for IDLE_SECONDS.
 *
 * GET /stats answers with what was sent and how late; GET /reset does so and starts the counts anew; GET /starts
 * with the times from when a request's message says that it was started to its arrival; GET /step sends one event on
 * each stream that asked for mode=step.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "source.h"

#define SENDS_PER_TURN 32 /* events sent before sockets are looked at again, so that requests are not kept waiting */
static uint64_t moment = MOMENT_US * 1000u; /* ns, the newest stream's; what is sent says when: it is in no latency */

static struct connection connections[MAX_CONNECTIONS];
static int poll_fd, plain_listener, tls_listener = -1;
static uint32_t open_connections;
static uint64_t last_activity;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void fail(const char *what) {
    fprintf(stderr, "load_source: %s\n", what);
    exit(1);
}

/* --- sockets ---------------------------------------------------------------------------------------------------- */

static void watch(struct connection *connection, bool writes, int operation) {
    struct epoll_event event = {.events = EPOLLIN | (writes ? EPOLLOUT : 0u), .data.fd = connection->fd};
    epoll_ctl(poll_fd, operation, connection->fd, &event);
    connection->wants_write = writes;
}

static void drop(struct connection *connection) {
    pacing_remove(connection);
    if (connection->state >= WAITING)
        statistics.aborted++;
    if (connection->tls)
        tls_close(connection->tls);
    close(connection->fd);
    free(connection->input);
    free(connection->pending);
    memset(connection, 0, sizeof *connection);
    open_connections--;
}

static void keep_pending(struct connection *connection, const char *data, size_t size) {
    if (connection->pending_size + size > connection->pending_capacity) {
        connection->pending_capacity = (connection->pending_size + size) * 2;
        connection->pending = realloc(connection->pending, connection->pending_capacity);
        if (!connection->pending)
            fail("out of memory");
    }
    memcpy(connection->pending + connection->pending_size, data, size);
    connection->pending_size += size;
}

static long write_now(struct connection *connection, const char *data, size_t size) {
    long taken = connection->tls ? tls_write(connection->tls, data, size)
                                 : send(connection->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    return taken < 0 && errno == EAGAIN ? 0 : taken;
}

/* End a body without chunks: the client closes the connection in turn. */
static void end_if_asked(struct connection *connection) {
    if (connection->ends)
        shutdown(connection->fd, SHUT_WR);
}

/* Send, and keep what the socket does not take. False: the connection is gone. */
static bool deliver(struct connection *connection, const char *data, size_t size) {
    statistics.bytes += size;
    if (!connection->pending_size) {
        long taken = write_now(connection, data, size);
        if (taken < 0) {
            drop(connection);
            return false;
        }
        if ((size_t)taken == size) {
            end_if_asked(connection);
            return true;
        }
        data += taken;
        size -= (size_t)taken;
    }
    if (connection->pending_size + size > PENDING_LIMIT) {
        drop(connection);
        return false;
    }
    keep_pending(connection, data, size);
    if (!connection->wants_write)
        watch(connection, true, EPOLL_CTL_MOD);
    return true;
}

static bool flush_pending(struct connection *connection) {
    while (connection->pending_sent < connection->pending_size) {
        long taken = write_now(connection, connection->pending + connection->pending_sent,
                               connection->pending_size - connection->pending_sent);
        if (taken < 0) {
            drop(connection);
            return false;
        }
        if (!taken)
            return true;
        connection->pending_sent += (size_t)taken;
    }
    connection->pending_size = connection->pending_sent = 0;
    watch(connection, false, EPOLL_CTL_MOD);
    end_if_asked(connection);
    return true;
}

/* --- streams ---------------------------------------------------------------------------------------------------- */

/* Events in one send. */
static uint32_t batch(const struct connection *connection) {
    return connection->load.framing == FRAMING_PAIR ? 2 : 1;
}

static uint64_t period_of(const struct connection *connection) {
    return connection->load.rate > 0 ? (uint64_t)(1e9 * batch(connection) / connection->load.rate) : 0;
}

static void pace(struct connection *connection, uint64_t first) {
    connection->state = PACED;
    moment = connection->load.moment_us * 1000u;
    connection->due = first;
    connection->period = period_of(connection);
    pacing_add(connection);
}

static bool waits_at_gate(const struct connection *connection) {
    return connection->state == WAITING && connection->load.gate > 1;
}

/* As many streams wait as the gate asks for: begin them all, spread, so that they are live at the same time. */
static void open_gate(uint32_t gate) {
    uint32_t waiting = 0, number = 0;
    for (int fd = 0; fd < MAX_CONNECTIONS; fd++)
        waiting += waits_at_gate(&connections[fd]);
    if (waiting < gate)
        return;
    uint64_t begin = now() + 20000000u;
    for (int fd = 0; fd < MAX_CONNECTIONS; fd++) {
        struct connection *connection = &connections[fd];
        if (!waits_at_gate(connection))
            continue;
        uint64_t period = period_of(connection);
        uint64_t spread = connection->load.spread_ms ? connection->load.spread_ms * 1000000ull : period;
        /* Multiples of the golden ratio: evenly over the time, and over each stream's period, so that none are in step. */
        double share = number++ * 0.6180339887498949;
        pace(connection, begin + (uint64_t)((double)spread * (share - (double)(uint64_t)share)));
    }
}

static uint32_t waiting_streams; /* since the gate last opened; a hint that spares open_gate's walk */

static void begin_stream(struct connection *connection) {
    static uint32_t number;
    bool closes = connection->load.framing == FRAMING_CLOSE;
    const struct bytes *head = closes ? &connection->template->closing_head : &connection->template->head;
    if (!deliver(connection, head->data, head->size))
        return;
    if (connection->load.mode == MODE_STEP) {
        connection->state = WAITING;
        return;
    }
    if (connection->load.gate > 1) {
        connection->state = WAITING;
        if (++waiting_streams >= connection->load.gate) {
            open_gate(connection->load.gate);
            waiting_streams = 0;
            for (int fd = 0; fd < MAX_CONNECTIONS; fd++)
                waiting_streams += waits_at_gate(&connections[fd]);
        }
        return;
    }
    uint64_t period = period_of(connection);
    uint64_t phase = connection->load.at_once ? 0 : period * (++number * 2654435769u >> 16) >> 16; /* golden ratio */
    pace(connection, now() + phase);
}

static void end_stream(struct connection *connection) {
    statistics.completed++;
    connection->state = READING;
}

static void send_answer(struct connection *connection) {
    const struct template *template = connection->template;
    if (template->answer_hole)
        write_time(template->answer.data + template->answer_hole, now());
    if (deliver(connection, template->answer.data, template->answer.size))
        end_stream(connection);
}

/* The events of one send: one or two. */
static void send_event(struct connection *connection, uint64_t time) {
    struct event *event = &connection->template->events[connection->load.framing];
    write_event(event, time, connection->sent);
    connection->sent += batch(connection);
    statistics.events += batch(connection);
    deliver(connection, event->wire.data, event->wire.size);
}

/* The frames after the last event, and the end of the body. */
static void send_tail(struct connection *connection) {
    const struct template *template = connection->template;
    bool closes = connection->load.framing == FRAMING_CLOSE;
    const struct bytes *tail = closes ? &template->tail_frames : &template->tail;
    connection->ends = closes;
    if (deliver(connection, tail->data, tail->size))
        end_stream(connection);
}

/* One event is due, or the tail after the last one. */
static void send_due(struct connection *connection) {
    uint64_t time = now();
    if (connection->load.mode == MODE_ANSWER) {
        pacing_remove(connection);
        send_answer(connection);
        return;
    }
    if (connection->sent >= connection->load.events) {
        pacing_remove(connection);
        send_tail(connection);
        return;
    }
    if (connection->period)
        note_late(time - connection->due);
    connection->due = connection->period ? connection->due + connection->period : time;
    pacing_first_moved();
    send_event(connection, time);
}

/* One event, or the tail, on every stream in MODE_STEP: for counts that must not depend on time. */
static void step(void) {
    for (int fd = 0; fd < MAX_CONNECTIONS; fd++) {
        struct connection *connection = &connections[fd];
        if (connection->state != WAITING || connection->load.mode != MODE_STEP)
            continue;
        if (connection->sent < connection->load.events)
            send_event(connection, now());
        else
            send_tail(connection);
    }
}

/* The unpaced modes build their whole body at once: `events` events, or one of `size` bytes of text. */
static void send_whole(struct connection *connection) {
    const struct template *template = connection->template;
    bool giant = connection->load.mode == MODE_GIANT;
    uint64_t events = giant ? 1 : connection->load.events;
    size_t text = giant ? connection->load.size : DIGITS;
    size_t size = (template->before.size + text + template->after.size) * events;
    char *body = malloc(size + 32), *at = body;
    if (!body)
        fail("out of memory");
    at += connection->load.mode == MODE_BYTES ? 0 : sprintf(at, "%zx\r\n", size);
    for (uint64_t i = 0; i < events; i++) {
        at = mempcpy(at, template->before.data, template->before.size);
        if (giant)
            memset(at, 'x', text);
        else
            write_time(at, now());
        at = mempcpy(at + text, template->after.data, template->after.size);
    }
    statistics.events += events;
    bool alive = deliver(connection, template->head.data, template->head.size);
    if (connection->load.mode == MODE_BYTES) {
        char chunk[] = "1\r\n?\r\n"; /* one byte of the body per HTTP chunk and per send */
        for (char *byte = body; alive && byte < at; byte++) {
            chunk[3] = *byte;
            alive = deliver(connection, chunk, sizeof chunk - 1);
        }
    } else if (alive) {
        at = stpcpy(at, "\r\n");
        alive = deliver(connection, body, (size_t)(at - body));
    }
    free(body);
    if (alive && deliver(connection, template->tail.data, template->tail.size))
        end_stream(connection);
}

/* --- requests --------------------------------------------------------------------------------------------------- */

static void answer_json(struct connection *connection, const char *json) {
    size_t size = strlen(json);
    char head[128];
    sprintf(head, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n", size);
    if (deliver(connection, head, strlen(head)))
        deliver(connection, json, size);
}

static void answer_refusal(struct connection *connection, const char *status) {
    char head[160];
    statistics.refused++;
    sprintf(head, "HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}", status);
    deliver(connection, head, strlen(head));
}

/* The source's own endpoints. False: the path is none of them. */
static bool serve_endpoint(struct connection *connection, const char *path) {
    if (!strcmp(path, "/stats")) {
        answer_json(connection, statistics_json(open_connections, now()));
    } else if (!strcmp(path, "/reset")) {
        answer_json(connection, statistics_json(open_connections, now()));
        statistics_reset(now());
    } else if (!strcmp(path, "/starts")) {
        answer_json(connection, starts_json());
    } else if (!strcmp(path, "/step")) {
        step();
        answer_json(connection, "{}");
    } else {
        return false;
    }
    return true;
}

static void serve(struct connection *connection, const struct request *request) {
    if (serve_endpoint(connection, request->path))
        return;
    connection->template = template_for(request->path);
    if (!connection->template)
        return answer_refusal(connection, "404 Not Found");
    connection->load = request->load;
    connection->sent = 0;
    statistics.started++;
    if (request->load.mode == MODE_STREAM || request->load.mode == MODE_STEP) {
        begin_stream(connection);
    } else if (request->load.mode != MODE_ANSWER) {
        send_whole(connection);
    } else if (request->load.delay_ms) {
        pace(connection, now() + request->load.delay_ms * 1000000ull);
    } else {
        send_answer(connection);
    }
}

static void serve_input(struct connection *connection) {
    int fd = connection->fd;
    while (connection->state == READING && connection->input_size) {
        struct request request = parse_request(connection->input, connection->input_size);
        if (request.bad)
            return drop(connection);
        if (!request.size)
            return;
        if (request.started)
            note_start(now() - request.started);
        connection->input_size -= request.size;
        memmove(connection->input, connection->input + request.size, connection->input_size);
        serve(connection, &request);
        if (connections[fd].state == CLOSED)
            return;
    }
}

static void read_input(struct connection *connection) {
    for (;;) {
        if (connection->input_capacity - connection->input_size < 2048) {
            connection->input_capacity = connection->input_capacity ? connection->input_capacity * 2 : 4096;
            if (connection->input_capacity > 2 * REQUEST_LIMIT)
                return drop(connection);
            connection->input = realloc(connection->input, connection->input_capacity);
        }
        char *into = connection->input + connection->input_size;
        size_t room = connection->input_capacity - connection->input_size;
        long got = connection->tls ? tls_read(connection->tls, into, room)
                                   : recv(connection->fd, into, room, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            return drop(connection);
        if (got < 0)
            break;
        connection->input_size += (size_t)got;
        if (!connection->tls && (size_t)got < room)
            break; /* TLS may hold data that epoll does not report: read until it would block */
    }
    serve_input(connection);
}

static void ready(struct connection *connection, uint32_t events) {
    int fd = connection->fd;
    if (connection->state == HANDSHAKE) {
        int result = tls_handshake(connection->tls);
        if (result < 0)
            return drop(connection);
        if (!result)
            return;
        connection->state = READING;
    }
    if (events & EPOLLOUT && connection->wants_write && !flush_pending(connection))
        return;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR) && connections[fd].state != CLOSED)
        read_input(connection);
}

/* --- the loop --------------------------------------------------------------------------------------------------- */

static int listen_on_loopback(uint16_t *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, 65535)
        || getsockname(fd, (struct sockaddr *)&address, &size))
        fail("cannot listen on 127.0.0.1");
    *port = ntohs(address.sin_port);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event);
    return fd;
}

static void accept_all(int listener) {
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (fd >= MAX_CONNECTIONS) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4); /* the cheapest; bbr would pace by timers of its own */
        struct connection *connection = &connections[fd];
        connection->fd = fd;
        connection->tls = listener == tls_listener ? tls_accept(fd) : NULL;
        connection->state = connection->tls ? HANDSHAKE : READING;
        open_connections++;
        watch(connection, false, EPOLL_CTL_ADD);
    }
}

/* Wait until a socket is ready or the next event is due, and then for a moment more, so that several are: to wake for
 * each alone costs more than to send it, and would be taken from the client's core where the two are one. Nanoseconds
 * where the kernel has epoll_pwait2. */
static int wait_ready(struct epoll_event *events, int room) {
    struct connection *first = pacing_first();
    uint64_t time = now(), wait = 1000000000u;
    if (first)
        wait = !moment || first->due <= time ? 0 : first->due > time + moment ? first->due - time : moment;
    struct timespec until = {.tv_sec = (time_t)(wait / 1000000000u), .tv_nsec = (long)(wait % 1000000000u)};
    int count = wait ? (int)syscall(SYS_epoll_pwait2, poll_fd, events, room, &until, NULL, 0)
                     : epoll_wait(poll_fd, events, room, 0);
    if (count < 0 && errno == ENOSYS)
        count = epoll_wait(poll_fd, events, room, (int)(wait / 1000000));
    return count;
}

static void run(uint64_t idle) {
    struct epoll_event events[256];
    for (;;) {
        int count = wait_ready(events, 256);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            char ignored[64];
            if (fd == plain_listener || fd == tls_listener)
                accept_all(fd);
            else if (fd == STDIN_FILENO && read(fd, ignored, sizeof ignored) <= 0)
                return; /* the parent is gone */
            else if (fd != STDIN_FILENO && connections[fd].state != CLOSED)
                ready(&connections[fd], events[i].events);
        }
        struct connection *connection;
        uint64_t time = now();
        for (int sends = 0; sends < SENDS_PER_TURN && (connection = pacing_first()) && connection->due <= time; sends++)
            send_due(connection);
        if (count > 0 || open_connections)
            last_activity = time;
        else if (time - last_activity > idle)
            return;
    }
}

/* Where that is allowed: other work on the machine shall not stand in the way. Linux weighs sessions first. */
static void raise_priority(void) {
    setpriority(PRIO_PROCESS, 0, -15);
    FILE *group = fopen("/proc/self/autogroup", "w");
    if (group) {
        fputs("-15", group);
        fclose(group);
    }
}

int main(int argument_count, char **arguments) {
    if (argument_count != 3 && argument_count != 5)
        fail("usage: load_source TEMPLATES IDLE_SECONDS [CERTIFICATE KEY]");
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1000); /* the default of 50 µs would be most of a wait here */
    raise_priority();
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    const char *wrong = load_templates(arguments[1]);
    if (!wrong && argument_count == 5)
        wrong = tls_open(arguments[3], arguments[4]);
    if (wrong)
        fail(wrong);
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event input = {.events = EPOLLIN, .data.fd = STDIN_FILENO};
    if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &input))
        fail("standard input must be a pipe; its end reports that the parent has ended");
    uint16_t plain_port, tls_port = 0;
    plain_listener = listen_on_loopback(&plain_port);
    if (argument_count == 5)
        tls_listener = listen_on_loopback(&tls_port);
    printf("{\"port\":%u,\"tls_port\":%u}\n", plain_port, tls_port);
    fflush(stdout);
    last_activity = now();
    statistics_reset(last_activity);
    run(strtoull(arguments[2], NULL, 10) * 1000000000u);
    return 0;
}
