/* What the load source's files share: bytes, connections, templates, statistics.
 *
 * load_source.c  the loop: accept, read requests, pace events, statistics
 * statistics.c   what was sent, how late, and the answers that report it
 * request.c      HTTP/1.1 request heads and the load they ask for
 * template.c     the dialects' wire text, from a file, in every framing
 * pacing.c       which stream is due next: a binary heap on absolute time
 * tls.c          TLS by OpenSSL's shared library, loaded at run time
 */
#ifndef SOURCE_H
#define SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIGITS 18         /* an event's text: CLOCK_MONOTONIC nanoseconds, zero-padded, so every event is as long */
#define MAX_CONNECTIONS 65536
#define MAX_TEMPLATES 16
#define REQUEST_LIMIT (1 << 20)
#define STAMP "started: " /* in a request's message, before the CLOCK_MONOTONIC nanoseconds at which it was started */
#define PENDING_LIMIT (256u << 20) /* bytes that a client has not taken; beyond it the connection is dropped */

struct bytes {
    char *data;
    size_t size;
};

#define MOMENT_US 500u

enum mode { MODE_STREAM, MODE_ANSWER, MODE_GIANT, MODE_FLOOD, MODE_BYTES, MODE_STEP };

#define MAX_PLACES 8
#define COUNT "#COUNT"    /* in a template: replaced by a number of as many digits that grows with each event */
#define FIRST_COUNT 100000u

/* How events are framed: one in a chunk, one cut across two chunks, two in a chunk, or no chunks: the body ends with the
 * connection. The last is for plain connections. */
enum framing { FRAMING_CHUNK, FRAMING_CUT, FRAMING_PAIR, FRAMING_CLOSE, FRAMING_COUNT };

/* The bytes of one send, and the places in them of the time and of the count. */
struct event {
    struct bytes wire;
    size_t times[MAX_PLACES], time_count;
    size_t counts[MAX_PLACES], count_count;
};

/* One dialect's wire text. */
struct template {
    char name[32];
    char match[64];            /* found in the path: this dialect */
    struct bytes head;         /* response head and the frames before the first delta, sent together */
    struct bytes closing_head; /* the same for FRAMING_CLOSE */
    struct event events[FRAMING_COUNT];
    struct bytes before, after; /* the event without its HTTP chunk framing, for the modes that frame otherwise */
    struct bytes tail;          /* the frames after the last delta and the last chunk */
    struct bytes tail_frames;   /* the frames after the last delta, for FRAMING_CLOSE */
    struct bytes answer; /* a whole unstreamed response */
    size_t answer_hole;  /* where its text stands, DIGITS bytes; 0: nowhere */
};

/* What one request asks for. */
struct load {
    enum mode mode;
    enum framing framing;
    uint32_t events;
    double rate;        /* events per second and stream; 0: no pacing, one event per turn of the loop */
    bool at_once;       /* the first event is due at once, and not at a phase of the stream's own */
    uint32_t gate;      /* pacing begins when that many streams wait; 0: at once */
    uint32_t spread_ms; /* a gate's streams begin spread over this time; 0: over one period */
    uint64_t size;      /* bytes of text in MODE_GIANT */
    uint32_t delay_ms;  /* MODE_ANSWER: from the request to the response */
    uint32_t moment_us; /* the source gathers events for so long; 0: it never sleeps while a stream is paced */
};

enum state { CLOSED, HANDSHAKE, READING, WAITING, PACED, DRAINING };

struct connection {
    int fd;
    enum state state;
    bool wants_write; /* EPOLLOUT is asked for */
    void *tls;        /* NULL: plain */
    char *input;
    size_t input_size, input_capacity;
    char *pending; /* what the socket would not take yet */
    size_t pending_size, pending_sent, pending_capacity;
    bool ends;        /* the connection ends when nothing is pending */
    struct template *template;
    struct load load;
    uint32_t sent;   /* events of the current stream */
    uint64_t due;    /* when the next one is due, ns */
    uint64_t period; /* ns */
};

/* pacing.c */
void pacing_add(struct connection *connection);    /* by its `due` */
void pacing_remove(struct connection *connection); /* nothing if it is not there */
struct connection *pacing_first(void);             /* the one due first, or NULL */
void pacing_first_moved(void);                     /* its `due` was made later */

/* statistics.c */
struct statistics {
    uint64_t events, bytes, started, completed, aborted, refused;
};
extern struct statistics statistics;
void statistics_reset(uint64_t time);
void note_late(uint64_t nanoseconds);  /* a paced event was sent so long after it was due */
void note_start(uint64_t nanoseconds); /* from a request's stamp to its arrival */
const char *statistics_json(uint32_t open_connections, uint64_t time); /* valid until the next */
const char *starts_json(void);                                         /* and forget them; valid until the next */

/* request.c */
struct request {
    size_t size;        /* head and body, 0: incomplete */
    const char *path;   /* NUL-terminated, valid until the next parse */
    struct load load;
    uint64_t started;   /* behind STAMP in the body: ns, 0: absent */
    bool bad;
};
struct request parse_request(const char *data, size_t size);

/* template.c */
const char *load_templates(const char *file); /* NULL, or what is wrong */
struct template *template_for(const char *path);
void write_time(char *into, uint64_t time);   /* DIGITS digits */
void write_event(struct event *event, uint64_t time, uint32_t number);

/* tls.c: every function answers like the system call it stands for, with errno EAGAIN for "later". */
const char *tls_open(const char *certificate, const char *key); /* NULL, or what is wrong */
void *tls_accept(int fd);
int tls_handshake(void *tls); /* 1 done, 0 later, -1 failed */
long tls_read(void *tls, char *into, size_t size);
long tls_write(void *tls, const char *data, size_t size);
void tls_close(void *tls);

#endif
