"""Bytes that are kept until they are whole: few pieces, each byte in them once."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable

import pytest

from manystream.transport.pieces import BLOCK_BYTES, keep
from manystream.transport.sse import SSEParser
from manystream.transport.websocket import FrameReader

SIZES: dict[str, Callable[[random.Random], int]] = {
    "one byte": lambda _: 1,
    "of one segment": lambda _: 1460,
    "of a full read": lambda _: 128 * 1024,
    "of any size": lambda dice: dice.choice((1, 7, 900, 16_384, 131_072, 2 * BLOCK_BYTES)),
    "falling by a byte": lambda dice: 4000 - dice.randrange(2),
}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_few_pieces_are_kept_and_none_is_lost(size: Callable[[random.Random], int]) -> None:
    dice, pieces, whole = random.Random(1), list[bytes](), bytearray()
    while len(whole) < 6 * BLOCK_BYTES and len(whole) < 50_000 * size(dice):
        piece = dice.randbytes(1) * size(dice)
        whole += piece
        keep(pieces, piece)
    assert b"".join(pieces) == whole
    assert len(pieces) <= 4 * len(whole) / BLOCK_BYTES + 24


READERS: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "event": (b"data: ", SSEParser().feed),
    "frame": (b"\x81\x7f" + (2**20).to_bytes(8, "big"), FrameReader(2**21, masked=False).feed),
}


@pytest.mark.parametrize("reader", READERS)
def test_small_pieces_take_little_more_than_their_bytes(reader: str) -> None:
    start, feed = READERS[reader]
    feed(start)
    tracemalloc.start()
    try:
        for _ in range(60_000):
            feed(bytes(range(97, 100)))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2 * 180_000
