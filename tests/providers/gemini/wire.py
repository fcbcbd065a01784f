"""Shared by the Gemini tests: runs wire text, and returns checked events and responses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import manystream as ms
from manystream.providers.gemini import DIALECT
from manystream.transport.sse import SSEParser
from tests.support.event_order import OrderChecker

PROVIDER = ms.Gemini("key")


class Ids:
    """An id maker with numbered ids: `id-1`, `id-2`, …"""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> str:
        self.made += 1
        return f"id-{self.made}"


class Outcome:
    """The events and the response of one stream."""

    def __init__(self, events: list[ms.Event], response: ms.Response) -> None:
        self.events = events
        self.response = response

    @property
    def error(self) -> ms.ErrorEvent | None:
        last = self.events[-1] if self.events else None
        return last if isinstance(last, ms.ErrorEvent) else None

    def of(self, *kinds: type[ms.Event]) -> list[ms.Event]:
        return [event for event in self.events if isinstance(event, kinds)]


def run(pieces: Sequence[bytes]) -> Outcome:
    """Run a body, cut into pieces, through parser and machine. Checks the order of events."""
    machine = DIALECT.machine(PROVIDER, Ids())
    parser = SSEParser()
    checker = OrderChecker()
    events: list[ms.Event] = []

    def take(fresh: Sequence[ms.Event]) -> None:
        for event in fresh:
            checker.check(event)
            events.append(event)

    for piece in pieces:
        for name, data in parser.feed(piece):
            take(machine.feed(name, data))
    for name, data in parser.end():
        take(machine.feed_last(name, data))
    take(machine.end())
    assert checker.stream == "ended"
    assert machine.ended
    return Outcome(events, machine.response())


def stream_bytes(*chunks: Any, line_end: str = "\r\n") -> bytes:
    """Return chunks as the server frames them with `alt=sse`."""
    return b"".join(
        b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + 2 * line_end.encode() for chunk in chunks
    )


def stream(*chunks: Any) -> Outcome:
    """Run chunks as one stream."""
    return run([stream_bytes(*chunks)])


def stream_text(text: str) -> Outcome:
    """Run a stream written as text, one field per line."""
    lines = (line.strip() for line in text.strip().splitlines())
    return run(["\r\n".join((*lines, "", "")).encode()])


def decode(body: Any) -> ms.Response:
    """Decode an unstreamed answer."""
    return DIALECT.decode(json.dumps(body, ensure_ascii=False).encode(), PROVIDER, Ids())


def cuts(body: bytes) -> Iterator[list[bytes]]:
    """Return every way to cut a body in two, and byte by byte."""
    yield from ([body[:position], body[position:]] for position in range(len(body) + 1))
    yield [body[position : position + 1] for position in range(len(body))]


def text_chunk(text: str, **members: Any) -> dict[str, Any]:
    """Return a chunk with one text part."""
    return part_chunk({"text": text}, **members)


def part_chunk(*parts: Any, finish: str | int | None = None, **members: Any) -> dict[str, Any]:
    """Return a chunk with these parts in the Gemini API's form. `finish` adds a finish reason."""
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}}
    if finish is not None:
        candidate["finishReason"] = finish
    candidate["index"] = 0
    return {"candidates": [candidate], "modelVersion": "gemini-3.8-flash", "responseId": "r-1", **members}


def signed(signature: str, **members: Any) -> ms.ProviderState:
    """Return the state of a part with that signature."""
    return ms.ProviderState("google", {"thoughtSignature": signature, **members})


def joined(events: Sequence[ms.Event]) -> list[ms.Event]:
    """Return events with adjacent deltas of one block joined."""
    result: list[ms.Event] = []
    for event in events:
        last = result[-1] if result else None
        if isinstance(event, ms.TextDelta) and isinstance(last, ms.TextDelta) and last.index == event.index:
            result[-1] = ms.TextDelta(event.index, last.text + event.text)
        elif isinstance(event, ms.ThinkingDelta) and isinstance(last, ms.ThinkingDelta) and last.index == event.index:
            result[-1] = ms.ThinkingDelta(event.index, last.text + event.text)
        else:
            result.append(event)
    return result


START = ms.Start("gemini-3.8-flash", "r-1")
