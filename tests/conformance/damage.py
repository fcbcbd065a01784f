"""Generate damaged variants of a body: truncated, with changed bytes, with reordered events.

A budget bounds the total size of the variants.
"""

import random
from collections.abc import Iterator, Sequence

from manystream.transport.sse import ServerSentEvent

CUT_EVERY = 97
FLIP_EVERY = 101
SHUFFLES = 4


def places(size: int, step: int, budget: int) -> range:
    """Return every `step`th place of a body; for a large body fewer, so that all variants have about `budget` bytes.

    budget: 0 for no bound.
    """
    count = size // step
    if budget and count * size > budget:
        step *= -(-count * size // budget)
    return range(step, size, step)


def cut(body: bytes, budget: int) -> Iterator[tuple[str, bytes]]:
    """Yield the body truncated at different places."""
    for place in places(len(body), CUT_EVERY, budget * 2):
        yield f"cut at byte {place}", body[:place]


def flipped(body: bytes, budget: int, seed: str) -> Iterator[tuple[str, bytes]]:
    """Yield the body with one byte changed, for different places; and once with all of these bytes changed."""
    chance = random.Random(seed)
    every = bytearray(body)
    for place in range(FLIP_EVERY, len(body), FLIP_EVERY):
        every[place] ^= 1 << (place % 8)
    yield f"every {FLIP_EVERY}st byte flipped", bytes(every)
    for place in places(len(body), FLIP_EVERY, budget):
        damaged = bytearray(body)
        damaged[place] ^= 1 << chance.randrange(8)
        yield f"byte {place} flipped", bytes(damaged)


def reordered(events: Sequence[ServerSentEvent], budget: int, seed: str) -> Iterator[tuple[str, list[ServerSentEvent]]]:
    """Yield the events backwards, shuffled, with each one missing, doubled, or swapped with the next one."""
    whole = list(events)
    yield "events backwards", whole[::-1]
    chance = random.Random(seed)
    for turn in range(SHUFFLES):
        mixed = whole.copy()
        chance.shuffle(mixed)
        yield f"events shuffled, {turn + 1}", mixed
    size = sum(len(data) for _, data in whole)
    step = 1 if not budget else max(1, 3 * size * len(whole) // budget)
    for place in range(0, len(whole), step):
        before, after = whole[:place], whole[place + 1 :]
        yield f"event {place} missing", before + after
        yield f"event {place} twice", [*before, whole[place], *whole[place:]]
        if after:
            yield f"event {place} after its successor", [*before, after[0], whole[place], *after[1:]]
