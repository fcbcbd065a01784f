/* What was sent, how late against its own schedule, and the JSON that reports it. Must not know sockets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "source.h"

#define LATE_BUCKETS 2000 /* of 0.1 ms */
#define STARTS 65536

struct statistics statistics;
static uint64_t late[LATE_BUCKETS], most_late, since;
static double waited_before;
static uint64_t starts[STARTS];
static uint32_t start_count;

/* Seconds that this process was ready and another had its core, since it began. */
static double waited(void) {
    unsigned long long ran, waited = 0;
    FILE *file = fopen("/proc/self/schedstat", "r");
    if (!file)
        return 0;
    if (fscanf(file, "%llu %llu", &ran, &waited) != 2)
        waited = 0;
    fclose(file);
    return (double)waited / 1e9;
}

void statistics_reset(uint64_t time) {
    memset(&statistics, 0, sizeof statistics);
    memset(late, 0, sizeof late);
    most_late = 0;
    since = time;
    waited_before = waited();
}

void note_late(uint64_t nanoseconds) {
    uint64_t bucket = nanoseconds / 100000;
    late[bucket < LATE_BUCKETS ? bucket : LATE_BUCKETS - 1]++;
    if (nanoseconds > most_late)
        most_late = nanoseconds;
}

void note_start(uint64_t nanoseconds) {
    if (start_count < STARTS)
        starts[start_count++] = nanoseconds;
}

static double late_percentile(double part) {
    uint64_t total = 0, seen = 0;
    for (int i = 0; i < LATE_BUCKETS; i++)
        total += late[i];
    for (int i = 0; i < LATE_BUCKETS; i++)
        if ((seen += late[i]) >= (uint64_t)((double)total * part))
            return total ? (i + 1) / 10.0 : 0;
    return 0;
}

static double seconds(struct timeval time) {
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

const char *statistics_json(uint32_t open_connections, uint64_t time) {
    static char json[640];
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    snprintf(json, sizeof json,
             "{\"events\":%llu,\"bytes\":%llu,\"started\":%llu,\"completed\":%llu,\"aborted\":%llu,\"refused\":%llu,"
             "\"late_p50_ms\":%.1f,\"late_p99_ms\":%.1f,\"late_max_ms\":%.1f,\"open\":%u,\"cpu_seconds\":%.3f,"
             "\"seconds\":%.3f,\"waited\":%.4f}",
             (unsigned long long)statistics.events, (unsigned long long)statistics.bytes,
             (unsigned long long)statistics.started, (unsigned long long)statistics.completed,
             (unsigned long long)statistics.aborted, (unsigned long long)statistics.refused, late_percentile(0.5),
             late_percentile(0.99), (double)most_late / 1e6, open_connections,
             seconds(usage.ru_utime) + seconds(usage.ru_stime), (double)(time - since) / 1e9, waited() - waited_before);
    return json;
}

const char *starts_json(void) {
    static char json[STARTS * 21 + 3];
    char *at = json;
    *at++ = '[';
    for (uint32_t i = 0; i < start_count; i++)
        at += sprintf(at, i ? ",%llu" : "%llu", (unsigned long long)starts[i]);
    strcpy(at, "]");
    start_count = 0;
    return json;
}
