"""How much memory does one live stream take, and how much longer does a full collection of the garbage collector take?

Measured: resident memory half-way through, when every stream is open, at two numbers of streams. The figure is the
slope between them. Then the CPU time of a full collection, in which every stream waits; that of the same process before
the streams is subtracted.
"""

from __future__ import annotations

from .answers import Answer, Series
from .clients import AIOHTTP, FLOOR, OPENAI, OURS, Client
from .runs import Run, RunError, measure

LIMIT_KIB = 7.5
STREAMS: dict[Client, tuple[int, ...]] = {
    OURS: (1000, 4000, 10_000),
    FLOOR: (1000, 10_000),
    AIOHTTP: (1000, 5000),
    OPENAI: (100, 500),
}
QUICK: dict[Client, tuple[int, ...]] = {OURS: (1000, 10_000)}
EVENTS_PER_SECOND = 5000
"""Events per second of all streams together, so that no client is at its limit."""


def half_way(run: Run, client: Client, streams: int) -> tuple[int, float]:
    """Return the resident bytes when every stream is open, and the milliseconds that a collection takes longer then."""
    rate = EVENTS_PER_SECOND / streams if client is not OPENAI else 500 / streams
    measured = measure(run, client, streams=streams, events=max(2, round(rate * 3)), rate=rate, spread=0, collect=True)
    if not measured.complete:
        raise RunError(f"{client.label} lost streams at {streams}: {measured.result['failures']}")
    result = measured.result
    return result["rss_live"], result["collect_live_ms"] - result["collect_before_ms"]


def answer(run: Run) -> Answer:
    """Measure ours, and the peers up to the numbers that they carry."""
    result = Answer("Memory per live stream")
    pauses: dict[Client, tuple[int, float]] = {}
    for client, steps in (QUICK if run.quick else STREAMS).items():
        try:
            found = [(streams, *half_way(run, client, streams)) for streams in steps]
        except RunError as error:
            result.notes.append(str(error))
            continue
        sizes = [(streams, size) for streams, size, _ in found]
        (few, low), (many, high) = sizes[0], sizes[-1]
        each = (high - low) / (many - few) / 1024
        ours = client is OURS
        result.series.append(
            Series("memory over live streams", client.label, [(streams, size / 2**20) for streams, size in sizes])
        )
        result.add(
            f"{client.label}, {few:,} to {many:,} streams",
            each,
            "KiB/stream",
            target=f"≤ {LIMIT_KIB:g} KiB" if ours else "",
            met=each <= LIMIT_KIB if ours else None,
        )
        pauses[client] = many, found[-1][2]
    add_pauses(result, pauses)
    return result


def add_pauses(result: Answer, pauses: dict[Client, tuple[int, float]]) -> None:
    """Add by how much the streams lengthen a full collection. `pauses`: client → its streams, and milliseconds."""
    each = {client: pause / streams for client, (streams, pause) in pauses.items()}
    for client, (streams, pause) in pauses.items():
        compared = client is OURS and AIOHTTP in each
        result.add(
            f"{client.label}, a full collection at {streams:,} streams takes longer by",
            pause,
            "ms CPU",
            ratio=each[client] / each[AIOHTTP] if compared else None,
            against=f"{AIOHTTP.label}, each stream" if compared else "",
        )
