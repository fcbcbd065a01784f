"""The input, a piece at a time: whatever its length, a few hundred lines are in memory, or one long line.

Reading happens in a thread, since a pipe or a slow disk may keep it waiting. Must not know what a line means.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import BinaryIO

import trio

from .lines import LONGEST_LINE

PIECE = 64 * 1024
"""Bytes read at a time, and then up to the end of the line."""


async def read_lines(source: Path | BinaryIO) -> AsyncGenerator[list[tuple[int, bytes]], None]:
    """The lines with their numbers (from 1), some at a time; empty ones are left out. Raises `OSError`.

    A line of more than `LONGEST_LINE` bytes is cut behind the first byte too many, which `read_line` refuses.
    """
    file = source.open("rb") if isinstance(source, Path) else source
    number = 0
    try:
        while True:
            # Left behind where it is cancelled: a read from a terminal or pipe ends when it ends.
            lines = await trio.to_thread.run_sync(_some_lines, file, abandon_on_cancel=True)
            if not lines:
                return
            yield [(number + place, line) for place, line in enumerate(lines, 1) if line.strip()]
            number += len(lines)
    finally:
        if isinstance(source, Path):
            file.close()


def _some_lines(file: BinaryIO) -> list[bytes]:
    """The next lines, a piece of the input or a little more; none at its end."""
    lines: list[bytes] = []
    size = 0
    while size < PIECE:
        line = file.readline(LONGEST_LINE + 1)
        if not line:
            break
        if len(line) > LONGEST_LINE:
            _skip_rest(file, line)
        lines.append(line)
        size += len(line)
    return lines


def _skip_rest(file: BinaryIO, line: bytes) -> None:
    """Read the rest of a line that is too long, and keep none of it."""
    while line and not line.endswith(b"\n"):
        line = file.readline(PIECE)


def count_lines(path: Path) -> int:
    """How many lines there are, empty ones aside where they end the file: for a progress bar. Raises `OSError`."""
    count, last = 0, b"\n"
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            count += piece.count(b"\n")
            last = piece[-1:]
    return count + (last != b"\n")
