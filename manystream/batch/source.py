"""A reader of a batch's input. It holds a few hundred lines in memory, or one long line, however long the input is.

It reads in a thread, since a pipe or a slow disk may block.
"""

from __future__ import annotations

import codecs
import errno
import gzip
import zlib
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

import trio

from .lines import LONGEST_LINE

PIECE = 64 * 1024
"""The size of a piece in bytes. A piece ends at the end of a line, so it may be larger."""


async def read_lines(
    source: Path | BinaryIO, first: Sequence[bytes] = ()
) -> AsyncGenerator[list[tuple[int, bytes]], None]:
    """Yield the lines with their numbers (from 1), some at a time, without empty lines. Raises `OSError`.

    first: the lines that were read from the source already, by `some_lines`.

    A byte order mark before the first line is skipped: programs on Windows write it.

    A line of more than `LONGEST_LINE` bytes is cut to `LONGEST_LINE` + 1 bytes. `read_line` refuses it.
    """
    file = await _open(source) if isinstance(source, Path) else source
    number = 0
    try:
        while True:
            # A cancellation abandons the thread: a read from a terminal or pipe cannot be interrupted.
            read = partial(some_lines, file)
            lines, first = first or await trio.to_thread.run_sync(read, abandon_on_cancel=True), ()
            if not lines:
                return
            if not number:
                lines = [lines[0].removeprefix(codecs.BOM_UTF8), *lines[1:]]
            yield [(number + place, line) for place, line in enumerate(lines, 1) if line.strip()]
            number += len(lines)
    finally:
        if isinstance(source, Path):
            file.close()


async def _open(path: Path) -> BinaryIO:
    """Open a file. A cancellation abandons the thread: a named pipe waits for its writer and cannot be interrupted."""
    abandoned = False
    opened: list[BinaryIO] = []

    def open_file() -> BinaryIO:
        file = path.open("rb")
        opened.append(file)
        if abandoned:
            file.close()
        return file

    try:
        return await trio.to_thread.run_sync(open_file, abandon_on_cancel=True)
    except trio.Cancelled:
        abandoned = True
        for file in opened:  # it was opened, and the cancellation came before its thread had returned
            file.close()
        raise


def some_lines(file: BinaryIO) -> Sequence[bytes]:
    """Read the next piece and return its lines, or none at the end of the input. Raises `OSError`."""
    lines: list[bytes] = []
    size = 0
    with checked_gzip():
        while size < PIECE and (line := file.readline(LONGEST_LINE + 1)):
            lines.append(line)
            size += len(line)
            while len(lines[-1]) > LONGEST_LINE and line and not line.endswith(b"\n"):
                line = file.readline(PIECE)  # the rest of a line that is too long is dropped
    return lines


@contextmanager
def checked_gzip() -> Generator[None, None, None]:
    """Raise `OSError` also where the data of a file that `gzip` decompresses is cut off or broken."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise OSError(errno.EIO, f"its gzip data is cut off or broken ({error})") from None


def count_lines(path: Path) -> int:
    """Return the number of lines in a file, for a progress bar. Empty lines are counted, too. Raises `OSError`."""
    count, last = 0, b"\n"
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            count += piece.count(b"\n")
            last = piece[-1:]
    return count + (last != b"\n")
