"""Bytes that arrive in pieces and are joined once they are whole."""

from __future__ import annotations

BLOCK_BYTES = 1024 * 1024
"""Pieces are joined up to about this size."""


def keep(pieces: list[bytes], piece: bytes) -> None:
    """Append a piece, joined with the ones before it that are not much larger: an amortised cost of linear time.

    So a body of megabytes is kept in a few blocks. Its thousands of reads would fill the heap, and the allocator often
    returns none of it to the system as long as anything lies behind it.
    """
    while pieces and len(pieces[-1]) <= 2 * len(piece) <= BLOCK_BYTES:
        piece = pieces.pop() + piece
    pieces.append(piece)
