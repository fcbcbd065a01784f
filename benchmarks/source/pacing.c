/* Which stream is due next: a binary heap on absolute time. Knows nothing of sockets. */
#include "source.h"

/* The key stands beside the pointer: comparing must not touch the connections, which are a cache miss each. */
struct entry {
    uint64_t due;
    struct connection *connection;
};

static struct entry heap[MAX_CONNECTIONS + 1]; /* from 1, so that a child is at 2n and 2n + 1 */
static uint32_t places[MAX_CONNECTIONS];       /* by descriptor; 0: not in the heap */
static uint32_t count;

static void put(uint32_t place, struct entry entry) {
    heap[place] = entry;
    places[entry.connection->fd] = place;
}

static void rise(uint32_t place) {
    struct entry moving = heap[place];
    while (place > 1 && heap[place / 2].due > moving.due) {
        put(place, heap[place / 2]);
        place /= 2;
    }
    put(place, moving);
}

static void sink(uint32_t place) {
    struct entry moving = heap[place];
    for (;;) {
        uint32_t child = place * 2;
        if (child > count)
            break;
        if (child < count && heap[child + 1].due < heap[child].due)
            child++;
        if (heap[child].due >= moving.due)
            break;
        put(place, heap[child]);
        place = child;
    }
    put(place, moving);
}

void pacing_add(struct connection *connection) {
    put(++count, (struct entry){connection->due, connection});
    rise(count);
}

void pacing_remove(struct connection *connection) {
    uint32_t place = places[connection->fd];
    if (!place)
        return;
    places[connection->fd] = 0;
    struct entry last = heap[count--];
    if (last.connection == connection)
        return;
    put(place, last);
    rise(place);
    sink(places[last.connection->fd]);
}

struct connection *pacing_first(void) {
    return count ? heap[1].connection : NULL;
}

void pacing_first_moved(void) {
    heap[1].due = heap[1].connection->due;
    sink(1);
}
