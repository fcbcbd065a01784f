/* HTTP/1.1 request heads, and the load that a request asks for.
 *
 * A load is `events=250,rate=50`, in the header x-load or in the path: /load/events=250,rate=50/v1/chat/completions.
 * The path form needs no header, so a client that only takes a base URL can ask for any load.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "source.h"

static const struct {
    const char *name;
    enum mode mode;
} MODES[] = {
    {"stream", MODE_STREAM}, {"answer", MODE_ANSWER}, {"giant", MODE_GIANT}, {"flood", MODE_FLOOD},
    {"bytes", MODE_BYTES}, {"step", MODE_STEP},
};

static const char *const FRAMINGS[FRAMING_COUNT] = {"chunk", "cut", "pair", "close"}; /* by enum framing */

static void read_pair(struct load *load, const char *key, const char *value) {
    if (!strcmp(key, "events"))
        load->events = (uint32_t)strtoul(value, NULL, 10);
    else if (!strcmp(key, "rate"))
        load->rate = strtod(value, NULL);
    else if (!strcmp(key, "phase"))
        load->at_once = !strcmp(value, "0");
    else if (!strcmp(key, "gate"))
        load->gate = (uint32_t)strtoul(value, NULL, 10);
    else if (!strcmp(key, "spread"))
        load->spread_ms = (uint32_t)strtoul(value, NULL, 10);
    else if (!strcmp(key, "size"))
        load->size = strtoull(value, NULL, 10);
    else if (!strcmp(key, "delay"))
        load->delay_ms = (uint32_t)strtoul(value, NULL, 10);
    else if (!strcmp(key, "moment"))
        load->moment_us = (uint32_t)strtoul(value, NULL, 10);
    else if (!strcmp(key, "mode"))
        for (size_t i = 0; i < sizeof MODES / sizeof *MODES; i++)
            if (!strcmp(value, MODES[i].name))
                load->mode = MODES[i].mode;
    if (!strcmp(key, "framing"))
        for (size_t i = 0; i < FRAMING_COUNT; i++)
            if (!strcmp(value, FRAMINGS[i]))
                load->framing = (enum framing)i;
}

static void read_load(struct load *load, const char *text, size_t size) {
    char copy[256];
    if (size >= sizeof copy)
        return;
    memcpy(copy, text, size);
    copy[size] = 0;
    for (char *rest = copy, *pair; (pair = strsep(&rest, ",&"));) {
        char *value = strchr(pair, '=');
        if (!value)
            continue;
        *value++ = 0;
        read_pair(load, pair, value);
    }
}

/* The value of a header line, or NULL if the line is another header. */
static const char *header(const char *line, const char *name) {
    size_t size = strlen(name);
    if (strncasecmp(line, name, size) || line[size] != ':')
        return NULL;
    line += size + 1;
    return line + strspn(line, " \t");
}

static bool read_path(struct request *request, const char *data, size_t head) {
    static char path[2048];
    const char *end_of_line = memchr(data, '\r', head);
    const char *from = memchr(data, ' ', (size_t)(end_of_line - data));
    const char *to = from ? memchr(from + 1, ' ', (size_t)(end_of_line - from - 1)) : NULL;
    if (!to || (size_t)(to - from) > sizeof path)
        return false;
    size_t size = (size_t)(to - from - 1);
    memcpy(path, from + 1, size);
    path[size] = 0;
    request->path = path;
    if (!strncmp(path, "/load/", 6))
        read_load(&request->load, path + 6, strcspn(path + 6, "/"));
    return true;
}

struct request parse_request(const char *data, size_t size) {
    struct request request = {.load = {.mode = MODE_STREAM, .events = 250, .rate = 50, .size = 10 << 20, .moment_us = MOMENT_US}};
    const char *end = memmem(data, size, "\r\n\r\n", 4);
    if (!end) {
        request.bad = size >= REQUEST_LIMIT;
        return request;
    }
    size_t head = (size_t)(end - data) + 4, body = 0;
    if (!read_path(&request, data, head)) {
        request.bad = true;
        return request;
    }
    for (const char *line = data, *next; (next = memmem(line, head - (size_t)(line - data), "\r\n", 2)); line = next + 2) {
        const char *value;
        if ((value = header(line, "content-length")))
            body = strtoul(value, NULL, 10);
        else if ((value = header(line, "x-load")))
            read_load(&request.load, value, (size_t)(next - value));
        else if ((value = header(line, "transfer-encoding")))
            request.bad = true; /* no client here sends its request chunked */
    }
    if (body > REQUEST_LIMIT)
        request.bad = true;
    if (size >= head + body) {
        const char *stamp = memmem(data + head, body, STAMP, strlen(STAMP));
        if (stamp)
            request.started = strtoull(stamp + strlen(STAMP), NULL, 10);
        request.size = head + body;
    }
    return request;
}
