"""The cuts of a body into pieces for sending: whole, at random places, and into single bytes. Seeded."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

SINGLE_BYTES_BELOW = 20_000
"""The maximum size of a body that is sent byte by byte. Larger ones would take minutes and show nothing new."""

MOST_PIECES = 2_000
RANDOM_CUTS = 3


@dataclass(slots=True, frozen=True)
class Cut:
    """One way to cut a body.

    name: the kind of the cut.
    sizes: the sizes of the pieces in order; empty for the whole body.
    """

    name: str
    sizes: tuple[int, ...] = ()

    def pieces(self, body: bytes) -> Iterator[bytes]:
        """Yield the pieces of the body."""
        if self.name == "bytes":
            for at in range(len(body)):
                yield body[at : at + 1]
            return
        begin = 0
        for size in self.sizes:
            yield body[begin : begin + size]
            begin += size
        if begin < len(body):
            yield body[begin:]


def cuts_of(name: str, size: int, seed: int, *, single_bytes: bool = True) -> list[Cut]:
    """Return the cuts with which a body of this size is sent."""
    cuts = [Cut("whole")]
    for turn in range(RANDOM_CUTS if size > 1 else 0):
        chance = random.Random(f"{seed} {name} {turn}")
        mean = max(chance.choice((3, 17, 90, 700)), size // MOST_PIECES)
        cuts.append(Cut(f"random {turn + 1}", tuple(_sizes(chance, size, mean))))
    if single_bytes and size < SINGLE_BYTES_BELOW:
        cuts.append(Cut("bytes"))
    return cuts


def _sizes(chance: random.Random, size: int, mean: int) -> Iterator[int]:
    left = size
    while left > 0:
        piece = min(left, 1 + int(chance.expovariate(1 / mean)))
        yield piece
        left -= piece
