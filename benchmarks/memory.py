"""How much memory does one live stream take?

Measured: resident memory half-way through, when every stream is open, at two numbers of streams. The figure is the
slope between them.
"""

from __future__ import annotations

from .answers import Answer, Series
from .clients import AIOHTTP, FLOOR, OPENAI, OURS, Client
from .command import run_alone
from .runs import Run, RunError, measure

LIMIT_KIB = 15.0
STREAMS: dict[Client, tuple[int, ...]] = {
    OURS: (1000, 4000, 10_000),
    FLOOR: (1000, 10_000),
    AIOHTTP: (1000, 5000),
    OPENAI: (100, 500),
}
QUICK: dict[Client, tuple[int, ...]] = {OURS: (1000, 10_000)}
EVENTS_PER_SECOND = 5000
"""Events per second of all streams together, so that no client is at its limit."""


def resident(run: Run, client: Client, streams: int) -> int:
    """Return the resident bytes when every stream is open."""
    rate = EVENTS_PER_SECOND / streams if client is not OPENAI else 500 / streams
    measured = measure(run, client, streams=streams, events=max(2, round(rate * 3)), rate=rate, spread=0)
    if not measured.complete:
        raise RunError(f"{client.label} lost streams at {streams}: {measured.result['failures']}")
    return measured.result["rss_live"]


def answer(run: Run) -> Answer:
    """Measure ours, and the peers up to the numbers that they carry."""
    result = Answer("Memory per live stream")
    for client, steps in (QUICK if run.quick else STREAMS).items():
        try:
            sizes = [(streams, resident(run, client, streams)) for streams in steps]
        except RunError as error:
            result.notes.append(str(error))
            continue
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
    return result


if __name__ == "__main__":
    run_alone(answer)
