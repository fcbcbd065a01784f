"""The body cutter of the hot path: chunked transfer coding (RFC 9112, section 7.1) off, body bytes out.

Knows chunk sizes, extensions (skipped) and trailers (checked, then dropped). Must not know what the body is.
It agrees with h11's reader byte for byte, in what it accepts and in what it refuses, but for four things: a chunk
size has at most 16 digits and is at most `MAX_CHUNK_BYTES`; a size line or a trailer section has at most
`MAX_LINE_BYTES` (h11 has no such bound); a size line that ends in a bare LF is refused at once (h11 refuses it at the
next CR LF); and Content-Length and Transfer-Encoding among the trailers are dropped unread (RFC 9110, 6.5.1), where
h11 checks them.

Why not h11: one event per chunk costs h11 about 20 µs of Python, this about 0.5 µs (`benchmarks/decode.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MAX_LINE_BYTES = 16 * 1024
MAX_CHUNK_BYTES = 2**60 - 1
"""No server means more; who says more would be waited for in vain."""

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[^\n]*|[ \t]*)\r\n")
_TRAILER_LINE = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+:[^\x00\n\v\f\r]*")
_FOLDED_LINE = re.compile(rb"[ \t][^\x00\n\v\f\r]*")
_TRAILER_END = re.compile(rb"\n\r?\n")

SIZES_KNOWN = 4096
SIZES: Mapping[bytes, int] = {
    written % size: size for written in (b"%x\r\n", b"%X\r\n") for size in range(1, SIZES_KNOWN)
}
"""Size lines of chunks below `SIZES_KNOWN` bytes, with their CR LF → size. A look-up is a tenth of a match. Made once:
a table that learned what streams send could be filled by one of them, at the cost of all others."""

CHUNK_END = b"\r\n"
"""The bytes after a chunk's data."""


class ChunkError(ValueError):
    """The bytes are no chunked body. The message quotes them, bounded.

    body: the body bytes that the same `feed` had read before the fault; they count like any others.
    """

    body: bytes = b""


class ChunkDecoder:
    """Takes the bytes after a response head, cut anywhere.

    at_boundary: nothing is held: the next byte begins a chunk.
    done: the last chunk and its trailers have come.
    rest: the bytes that followed them: not part of this body.
    """

    __slots__ = ("_held", "_held_bytes", "_remaining", "_state", "at_boundary", "done", "rest")

    def __init__(self) -> None:
        self.at_boundary: bool = True
        self.done: bool = False
        self.rest: bytes = b""
        self._remaining = 0  # bytes of the current chunk that have not come
        self._state = _SIZE
        self._held: list[bytes] = []  # the beginning of a line, or of the trailers
        self._held_bytes = 0

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; returns the body bytes in them. Raises `ChunkError`; give no more input then."""
        if self.at_boundary:
            # The common case, one whole chunk per segment, in one step.
            start = data.find(b"\n") + 1
            size = SIZES.get(data[:start])
            if size and start + size + 2 == len(data) and data.endswith(b"\r\n"):
                return data[start:-2]
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
                    # Several whole chunks per segment are next in frequency: each in one step, too.
                    start = data.find(b"\n", position) + 1
                    size = SIZES.get(data[position:start]) if not self._held else None
                    if size and data.startswith(b"\r\n", start + size):
                        pieces.append(data[start : start + size])
                        position = start + size + 2
                    else:
                        position = self._size(data, position)
                elif self._state == _DATA_END:
                    position = self._data_end(data, position)
                else:
                    position = self._trailers(data, position)
        except ChunkError as error:
            error.body = b"".join(pieces)
            raise
        self.at_boundary = self._state == _SIZE and not self._held
        if self.done:
            self.rest += data[position:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _size(self, data: bytes, position: int) -> int:
        """Read a size line that begins, or goes on, at `position`. Returns where to go on."""
        end = data.find(b"\n", position)
        if end < 0:
            self._hold(data[position:])
            return len(data)
        line = data[position : end + 1]
        if self._held:
            line = b"".join(self._held) + line
            self._release()
        size = SIZES.get(line)
        if size is None:
            _check_length(len(line))
            match = _SIZE_LINE.fullmatch(line)
            if match is None:
                raise ChunkError(f"illegal chunk size line {line[:60]!r}")
            size = int(match[1], 16)
            if size > MAX_CHUNK_BYTES:
                raise ChunkError(f"a chunk of {size} bytes is larger than any answer")
        self._remaining = size
        self._state = _DATA if size else _TRAILERS
        return end + 1

    def _data_end(self, data: bytes, position: int) -> int:
        """Read the CRLF after a chunk's data."""
        for expected in b"\r\n"[len(self._held) :]:
            if position == len(data):
                return position
            if data[position] != expected:
                raise ChunkError(f"expected CR LF after a chunk, got {data[position : position + 20]!r}")
            self._held.append(b"\r")
            position += 1
        self._release()
        self._state = _SIZE
        return position

    def _trailers(self, data: bytes, position: int) -> int:
        """Read trailers up to the blank line that ends the body."""
        # Trailers are rare and small, so a section that comes in pieces is simply looked at again from its start;
        # the cap bounds that.
        before = b"".join(self._held)
        section = before + data[position:]
        if section[:1] == b"\n" or section[:2] == b"\r\n":
            end = 1 if section[:1] == b"\n" else 2
        else:
            match = _TRAILER_END.search(section)
            if match is None:
                self._release()
                self._hold(section)
                return len(data)
            end = match.end()
            _check_length(end)
            _check_trailers(section[: match.start()])
        self._release()
        self.done = True
        return position + end - len(before)

    def _hold(self, piece: bytes) -> None:
        self._held.append(piece)
        self._held_bytes += len(piece)
        _check_length(self._held_bytes)

    def _release(self) -> None:
        self._held.clear()
        self._held_bytes = 0


def size_line_length(data: bytes, position: int) -> int:
    """The length of the size line at `position`, if it is one of `SIZES`; else 0."""
    end = data.find(b"\n", position) + 1
    return end - position if data[position:end] in SIZES else 0


def _check_length(length: int) -> None:
    """Refuse a size line or trailer section beyond the bound, however it was cut."""
    if length > MAX_LINE_BYTES:
        raise ChunkError(f"a chunk size line or trailer section is longer than {MAX_LINE_BYTES} bytes")


def _check_trailers(section: bytes) -> None:
    pattern = _TRAILER_LINE  # a folded line needs one to continue
    for line in section.split(b"\n"):
        line = line.removesuffix(b"\r")
        if pattern.fullmatch(line) is None and _TRAILER_LINE.fullmatch(line) is None:
            raise ChunkError(f"illegal trailer line {line[:60]!r}")
        pattern = _FOLDED_LINE


_SIZE, _DATA, _DATA_END, _TRAILERS = range(4)
