"""The hot path of a stream: chunks that each hold one event which repeats the one before it, but for its text.

Knows how such an event stands on the wire: the chunk's size line, the event's framing, and, through the machine's
`RepeatedDelta`, the JSON around its text. Must not know HTTP, the rules of server-sent events, or any dialect: what it
does not recognise byte for byte it leaves to their parsers, and it is asked only where both of them hold nothing back.

Nearly all of a stream is this. Chunk decoder, parser and machine each look at such an event and hand it on; here one
look does. It takes a fifth off the instructions from socket to callback (`benchmarks/instructions.py`), and more where
one read brings several events, as under load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..providers.repeated import RepeatedDelta
from ..transport.chunked import SIZES
from ..transport.sse import ServerSentEvent

DeliverTexts: TypeAlias = "Callable[[RepeatedDelta, Sequence[str]], None]"
"""Hands on texts as deltas of the block that they repeat."""

CLOSINGS = (b"\n\n", b"\r\n\r\n")
"""What ends an event of one data line, as servers write it."""

CHUNK_END = b"\r\n"


class RepeatedEvents(RepeatedDelta):
    """Events that repeat `repeated`, framed by `opening` and `closing`, one to a chunk; `repeated` itself, so framed.

    room: bytes that may still be read before the answer is too large.
    """

    __slots__ = ("_deliver", "_line", "repeated", "room")

    def __init__(self, repeated: RepeatedDelta, opening: bytes, closing: bytes, deliver: DeliverTexts) -> None:
        self.repeated: RepeatedDelta = repeated
        self.frame(repeated, opening, closing + CHUNK_END)
        self._deliver = deliver
        self._line = 0  # length of the latest size line: the next one is seldom longer or shorter
        self.room: int = 0

    def read(self, data: bytes) -> int:
        """Read the chunks at the front of `data`, where a chunk begins, for as long as they repeat. Returns how many
        bytes that were."""
        line, room = self._line, self.room
        texts: list[str] = []
        position, length = 0, len(data)
        if length > room:
            return 0
        while position < length:
            start = position + line
            size = SIZES.get(data[position:start])
            if not size:
                start = data.find(b"\n", position) + 1
                size = SIZES.get(data[position:start])
                if not size:
                    break
                self._line = line = start - position
            end = start + size + 2  # its CR LF, which the framing holds
            text = self.text_in(data[start:end]) if end <= length else None
            if not text:
                break
            texts.append(text)
            room -= size
            position = end
        if texts:
            self.room = room
            deliver = self._deliver
            deliver(self, texts)
        return position


def repeats(
    known: RepeatedEvents | None,
    repeated: RepeatedDelta | None,
    wire_events: Sequence[ServerSentEvent],
    wire: bytes,
    deliver: DeliverTexts,
) -> RepeatedEvents | None:
    """What the chunks after `wire` may be read by, which held `wire_events`: as what is `known`, if the machine still
    looks for the same; as what it looks for now, if that was the only event; else None."""
    if known is not None and known.repeated is repeated:
        return known
    if repeated is None or len(wire_events) != 1:
        return None
    framing = framing_of(*wire_events[0], wire)
    return RepeatedEvents(repeated, *framing, deliver) if framing is not None else None


def framing_of(name: str, payload: bytes, wire: bytes) -> tuple[bytes, bytes] | None:
    """What stands on the wire before and after the data of one event; None unless `wire` is that event, whole, and
    written as most servers write theirs."""
    opening, found, closing = wire.partition(payload)
    written = b"event: %b\ndata: " % name.encode() if name else b"data: "
    return (opening, closing) if found and opening == written and closing in CLOSINGS else None
