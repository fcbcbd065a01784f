/* HTTP/1.1 request heads, the load that a request asks for, and the dialects' templates.
 *
 * A load is `events=250,rate=50`, in the header x-load or in the path: /load/events=250,rate=50/v1/chat/completions.
 * The path form needs no header, so a client that only takes a base URL can ask for any load.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "source.h"

static struct template templates[MAX_TEMPLATES];
static size_t template_count;

static const struct {
    const char *name;
    enum mode mode;
} MODES[] = {
    {"stream", MODE_STREAM}, {"answer", MODE_ANSWER}, {"giant", MODE_GIANT}, {"flood", MODE_FLOOD},
    {"bytes", MODE_BYTES}, {"step", MODE_STEP},
};

static void read_pair(struct load *load, const char *key, const char *value) {
    if (!strcmp(key, "events"))
        load->events = (uint32_t)strtoul(value, NULL, 10);
    else if (!strcmp(key, "rate"))
        load->rate = strtod(value, NULL);
    else if (!strcmp(key, "gate"))
        load->gate = (uint32_t)strtoul(value, NULL, 10);
    else if (!strcmp(key, "spread"))
        load->spread_ms = (uint32_t)strtoul(value, NULL, 10);
    else if (!strcmp(key, "size"))
        load->size = strtoull(value, NULL, 10);
    else if (!strcmp(key, "delay"))
        load->delay_ms = (uint32_t)strtoul(value, NULL, 10);
    else if (!strcmp(key, "mode"))
        for (size_t i = 0; i < sizeof MODES / sizeof *MODES; i++)
            if (!strcmp(value, MODES[i].name))
                load->mode = MODES[i].mode;
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
    struct request request = {.load = {.mode = MODE_STREAM, .events = 250, .rate = 50, .size = 10 << 20}};
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

static struct bytes join(const char *format_head, const struct bytes *parts, size_t count, const char *end) {
    size_t size = strlen(format_head) + strlen(end);
    for (size_t i = 0; i < count; i++)
        size += parts[i].size;
    struct bytes whole = {.data = malloc(size + 1), .size = size};
    char *at = stpcpy(whole.data, format_head);
    for (size_t i = 0; i < count; i++) {
        memcpy(at, parts[i].data, parts[i].size);
        at += parts[i].size;
    }
    strcpy(at, end);
    return whole;
}

/* From the dialect's frames to what goes on the wire: HTTP heads and chunk framing around them. */
static void frame(struct template *template, struct bytes first, struct bytes answer) {
    static const char ZERO[DIGITS + 1] = "000000000000000000";
    char head[512];
    snprintf(head, sizeof head,
             "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
             "transfer-encoding: chunked\r\n\r\n");
    if (first.size) /* a chunk of no bytes would end the body */
        snprintf(head + strlen(head), sizeof head - strlen(head), "%zx\r\n", first.size);
    template->head = join(head, &first, 1, first.size ? "\r\n" : "");
    struct bytes parts[] = {template->before, {.data = (char *)ZERO, .size = DIGITS}, template->after};
    snprintf(head, sizeof head, "%zx\r\n", template->before.size + DIGITS + template->after.size);
    template->event = join(head, parts, 3, "\r\n");
    template->hole = strlen(head) + template->before.size;
    snprintf(head, sizeof head, "%zx\r\n", template->tail_frames.size);
    template->tail = join(head, &template->tail_frames, 1, "\r\n0\r\n\r\n");
    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n",
             answer.size);
    template->answer = join(head, &answer, 1, "");
}

static struct bytes read_bytes(FILE *file, size_t size) {
    struct bytes bytes = {.data = malloc(size + 1), .size = size};
    if (fread(bytes.data, 1, size, file) != size)
        bytes.size = 0;
    return bytes;
}

/* The file: per dialect a line `name match first before after tail answer` with five sizes, then as many bytes. */
const char *load_templates(const char *name) {
    FILE *file = fopen(name, "rb");
    if (!file)
        return "the template file cannot be opened";
    size_t first, before, after, tail, answer;
    while (template_count < MAX_TEMPLATES) {
        struct template *template = &templates[template_count];
        if (fscanf(file, "%31s %63s %zu %zu %zu %zu %zu", template->name, template->match, &first, &before, &after,
                   &tail, &answer) != 7)
            break;
        fgetc(file); /* the line's end */
        struct bytes frames = read_bytes(file, first);
        template->before = read_bytes(file, before);
        template->after = read_bytes(file, after);
        template->tail_frames = read_bytes(file, tail);
        frame(template, frames, read_bytes(file, answer));
        template_count++;
    }
    fclose(file);
    return template_count ? NULL : "the template file holds no template";
}

const struct template *template_for(const char *path) {
    for (size_t i = 0; i < template_count; i++)
        if (strstr(path, templates[i].match))
            return &templates[i];
    return NULL;
}
