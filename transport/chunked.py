"""Decode the chunked transfer coding (RFC 9112, section 7.1). Part of the hot path.

The decoder accepts and refuses the same bytes as h11's reader, with four exceptions:
- A chunk size has at most 16 digits and is at most `MAX_CHUNK_BYTES`.
- A size line or a trailer section has at most `MAX_LINE_BYTES` bytes. h11 has no such bound.
- A size line that ends in a bare LF is refused at once. h11 refuses it at the next CR LF.
- Content-Length and Transfer-Encoding among the trailers are dropped unchecked (RFC 9110, 6.5.1). h11 checks them.

Why not h11: with one event per chunk, h11 needs about 20 µs of Python per chunk, this decoder about 0.5 µs
(`benchmarks/decode.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MAX_LINE_BYTES = 16 * 1024
"""The maximum size of a chunk's size line, and of a trailer section, in bytes."""
MAX_CHUNK_BYTES = 2**60 - 1
"""The maximum size of a chunk. No real chunk is larger; the connection would wait forever for the rest of one."""

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[^\n]*|[ \t]*)\r\n")
_TRAILER_LINE = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+:[^\x00\n\v\f\r]*")
_FOLDED_LINE = re.compile(rb"[ \t][^\x00\n\v\f\r]*")
_TRAILER_END = re.compile(rb"\n\r?\n")

SIZES_KNOWN = 4096
SIZES: Mapping[bytes, int] = {
    written % size: size for written in (b"%x\r\n", b"%X\r\n") for size in range(1, SIZES_KNOWN)
}
"""Size line with its CR LF → size, for chunks below `SIZES_KNOWN` bytes. A lookup costs a tenth of a regex match.

The table is constant: if streams added entries, one stream could fill it and slow down all others."""

CHUNK_END = b"\r\n"
"""The bytes after a chunk's data."""


class ChunkError(ValueError):
    """The bytes are not a chunked body. The message quotes the first of them.

    body: the valid body bytes that the same `feed` call read before the error. Deliver them as usual.
    """

    body: bytes = b""


class ChunkDecoder:
    """An incremental decoder of the bytes after a response head.

    at_boundary: no byte is buffered, and the next byte begins a chunk.
    done: the last chunk and its trailers were read.
    whole_chunks: the number of chunks in the bytes of the latest `feed` if they were whole chunks; else 0.
    rest: the bytes after the trailers; they are not part of this body.
    """

    __slots__ = ("_buffered", "_buffered_bytes", "_remaining", "_state", "at_boundary", "done", "rest", "whole_chunks")

    def __init__(self) -> None:
        self.at_boundary: bool = True
        self.done: bool = False
        self.whole_chunks: int = 0
        self.rest: bytes = b""
        self._remaining = 0  # bytes of the current chunk that are still to be read
        self._state = _SIZE
        self._buffered: list[bytes] | None = None  # the beginning of a line, or of the trailers
        self._buffered_bytes = 0

    def feed(self, data: bytes) -> bytes:
        """Decode the next bytes, cut anywhere. Returns the body bytes in them.

        Raises `ChunkError`. After that, do not call `feed` again.
        """
        if self.at_boundary:
            # Decode the most common case, one whole chunk per segment, in one step.
            start = data.find(b"\n") + 1
            size = SIZES.get(data[:start])
            if size and start + size + 2 == len(data) and data.endswith(b"\r\n"):
                self.whole_chunks = 1
                return data[start:-2]
        self.whole_chunks = whole_chunks = 0
        pieces: list[bytes] = []
        position, length = 0, len(data)
        try:
            while position < length and not self.done:
                if self._state == _DATA:
                    piece = data[position : position + self._remaining]
                    pieces.append(piece)
                    position += len(piece)
                    self._remaining -= len(piece)
                    if not self._remaining:
                        self._state = _DATA_END
                elif self._state == _SIZE:
                    # The next most common case is several whole chunks per segment: decode each in one step, too.
                    start = data.find(b"\n", position) + 1
                    size = SIZES.get(data[position:start]) if not self._buffered else None
                    if size and data.startswith(b"\r\n", start + size):
                        pieces.append(data[start : start + size])
                        position = start + size + 2
                        whole_chunks += 1
                    else:
                        position = self._size(data, position)
                elif self._state == _DATA_END:
                    position = self._data_end(data, position)
                else:
                    position = self._trailers(data, position)
        except ChunkError as error:
            error.body = b"".join(pieces)
            raise
        self.at_boundary = self._state == _SIZE and not self._buffered
        if self.at_boundary and whole_chunks == len(pieces):
            self.whole_chunks = whole_chunks
        if self.done:
            self.rest += data[position:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _size(self, data: bytes, position: int) -> int:
        """Read a size line that begins or continues at `position`. Returns the position after it."""
        end = data.find(b"\n", position)
        if end < 0:
            self._buffer(data[position:])
            return len(data)
        line = data[position : end + 1]
        if self._buffered:
            line = b"".join(self._buffered) + line
            self._clear_buffer()
        size = SIZES.get(line)
        if size is None:
            _check_length(len(line))
            match = _SIZE_LINE.fullmatch(line)
            if match is None:
                raise ChunkError(f"illegal chunk size line {line[:60]!r}")
            size = int(match[1], 16)
            if size > MAX_CHUNK_BYTES:
                raise ChunkError(f"a chunk of {size} bytes is larger than any response")
        self._remaining = size
        self._state = _DATA if size else _TRAILERS
        return end + 1

    def _data_end(self, data: bytes, position: int) -> int:
        """Read the CR LF after a chunk's data. Returns the position after it."""
        for expected in b"\r\n"[1 if self._buffered else 0 :]:
            if position == len(data):
                return position
            if data[position] != expected:
                raise ChunkError(f"expected CR LF after a chunk, got {data[position : position + 20]!r}")
            self._buffered = [b"\r"]
            position += 1
        self._clear_buffer()
        self._state = _SIZE
        return position

    def _trailers(self, data: bytes, position: int) -> int:
        """Read the trailers up to the blank line that ends the body. Returns the position after it."""
        # Trailers are rare and small. A section that arrives in pieces is searched again from its start; the bound on
        # its size limits that cost.
        before = b"".join(self._buffered or ())
        section = before + data[position:]
        if section[:1] == b"\n" or section[:2] == b"\r\n":
            end = 1 if section[:1] == b"\n" else 2
        else:
            match = _TRAILER_END.search(section)
            if match is None:
                self._clear_buffer()
                self._buffer(section)
                return len(data)
            end = match.end()
            _check_length(end)
            _check_trailers(section[: match.start()])
        self._clear_buffer()
        self.done = True
        return position + end - len(before)

    def _buffer(self, piece: bytes) -> None:
        if self._buffered is None:
            self._buffered = []
        self._buffered.append(piece)
        self._buffered_bytes += len(piece)
        _check_length(self._buffered_bytes)

    def _clear_buffer(self) -> None:
        self._buffered = None
        self._buffered_bytes = 0


def size_line_length(data: bytes, position: int) -> int:
    """Return the length of the size line at `position` if `SIZES` contains it; else 0."""
    end = data.find(b"\n", position) + 1
    return end - position if data[position:end] in SIZES else 0


def _check_length(length: int) -> None:
    """Raise `ChunkError` if a size line or a trailer section is longer than `MAX_LINE_BYTES`."""
    if length > MAX_LINE_BYTES:
        raise ChunkError(f"a chunk size line or trailer section is longer than {MAX_LINE_BYTES} bytes")


def _check_trailers(section: bytes) -> None:
    pattern = _TRAILER_LINE  # the first line cannot be a folded one
    for line in section.split(b"\n"):
        line = line.removesuffix(b"\r")
        if pattern.fullmatch(line) is None and _TRAILER_LINE.fullmatch(line) is None:
            raise ChunkError(f"illegal trailer line {line[:60]!r}")
        pattern = _FOLDED_LINE


_SIZE, _DATA, _DATA_END, _TRAILERS = range(4)
