/* The wire text of the dialects: read from a file, framed for HTTP, and written with the time and the counts of an event.
 * Knows no dialect. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "source.h"

static struct template templates[MAX_TEMPLATES];
static size_t template_count;

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

static const char ZERO[DIGITS + 1] = "000000000000000000";

static void find_places(struct event *event) {
    const char *end = event->wire.data + event->wire.size;
    for (const char *at = event->wire.data; (at = memmem(at, (size_t)(end - at), ZERO, DIGITS)); at += DIGITS)
        if (event->time_count < MAX_PLACES)
            event->times[event->time_count++] = (size_t)(at - event->wire.data);
    for (const char *at = event->wire.data; (at = memmem(at, (size_t)(end - at), COUNT, strlen(COUNT)));
         at += strlen(COUNT))
        if (event->count_count < MAX_PLACES)
            event->counts[event->count_count++] = (size_t)(at - event->wire.data);
}

/* One event in every framing. It is cut within its JSON, behind the quote that ends its text. */
static void frame_event(struct template *template) {
    struct bytes zero = {.data = (char *)ZERO, .size = DIGITS}, after = template->after;
    struct bytes parts[] = {template->before, zero, after, template->before, zero, after};
    struct bytes begin = join("", parts, 2, "\""), rest = {.data = after.data + 1, .size = after.size - 1};
    size_t size = template->before.size + DIGITS + after.size;
    char head[64], next[64];
    snprintf(head, sizeof head, "%zx\r\n", size);
    template->events[FRAMING_CHUNK].wire = join(head, parts, 3, "\r\n");
    snprintf(head, sizeof head, "%zx\r\n", size * 2);
    template->events[FRAMING_PAIR].wire = join(head, parts, 6, "\r\n");
    template->events[FRAMING_CLOSE].wire = join("", parts, 3, "");
    snprintf(head, sizeof head, "%zx\r\n", begin.size);
    snprintf(next, sizeof next, "\r\n%zx\r\n", rest.size);
    struct bytes cut[] = {begin, {.data = next, .size = strlen(next)}, rest};
    template->events[FRAMING_CUT].wire = join(head, cut, 3, "\r\n");
    for (size_t i = 0; i < FRAMING_COUNT; i++)
        find_places(&template->events[i]);
}

/* From the dialect's frames to what goes on the wire: HTTP heads and chunk framing around them. */
static void frame(struct template *template, struct bytes first, struct bytes answer) {
    static const char HEAD[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n";
    char head[512];
    snprintf(head, sizeof head, "%stransfer-encoding: chunked\r\n\r\n", HEAD);
    if (first.size) /* a chunk of no bytes would end the body */
        snprintf(head + strlen(head), sizeof head - strlen(head), "%zx\r\n", first.size);
    template->head = join(head, &first, 1, first.size ? "\r\n" : "");
    snprintf(head, sizeof head, "%zx\r\n", template->tail_frames.size);
    template->tail = join(head, &template->tail_frames, 1, "\r\n0\r\n\r\n");
    snprintf(head, sizeof head, "%sconnection: close\r\n\r\n", HEAD);
    template->closing_head = join(head, &first, 1, "");
    frame_event(template);
    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n",
             answer.size);
    template->answer = join(head, &answer, 1, "");
    const char *sent = memmem(template->answer.data, template->answer.size, ZERO, DIGITS);
    template->answer_hole = sent ? (size_t)(sent - template->answer.data) : 0;
}

static void write_digits(char *into, int digits, uint64_t value) {
    for (int place = digits - 1; place >= 0; place--, value /= 10)
        into[place] = (char)('0' + value % 10);
}

void write_time(char *into, uint64_t time) {
    write_digits(into, DIGITS, time);
}

void write_event(struct event *event, uint64_t time, uint32_t number) {
    for (size_t i = 0; i < event->time_count; i++)
        write_time(event->wire.data + event->times[i], time);
    for (size_t i = 0; i < event->count_count; i++)
        write_digits(event->wire.data + event->counts[i], (int)strlen(COUNT), FIRST_COUNT + number);
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
    bool is_whole = fgetc(file) == EOF;
    fclose(file);
    if (!is_whole)
        return "the template file holds more than MAX_TEMPLATES, or no template";
    return template_count ? NULL : "the template file holds no template";
}

struct template *template_for(const char *path) {
    for (size_t i = 0; i < template_count; i++)
        if (strstr(path, templates[i].match))
            return &templates[i];
    return NULL;
}
