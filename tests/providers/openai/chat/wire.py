"""Shared by the tests of this dialect: providers, streams written as text, and a check with OpenAI's own types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from pydantic import TypeAdapter

import manystream as ms
from manystream.providers.catalog.dialect import BARE_LINES
from manystream.providers.openai.chat import DIALECT
from tests.support.event_order import OrderChecker

OPENAI = ms.OpenAIChat("key")
SERVER = ms.OpenAIChat("key", base_url="http://127.0.0.1:9/v1")
"""A server without a row: lenient."""


def known(name: str) -> ms.OpenAIChat:
    """Return a provider with the row of this name."""
    return ms.OpenAIChat("key", base_url="http://127.0.0.1:9/v1", profile=name)


def quirky(**quirks: object) -> ms.OpenAIChat:
    """Return a provider with quirks of the test's own."""
    row = ms.Profile(name="quirky", dialect="openai-chat", base_url="http://127.0.0.1:9/v1", quirks=ms.Quirks(**quirks))  # type: ignore[arg-type]
    return ms.OpenAIChat("key", profile=row)


def id_maker() -> Callable[[], str]:
    """Return a maker of the ids `made-1`, `made-2`, …"""
    numbers = iter(range(1, 10_000))
    return lambda: f"made-{next(numbers)}"


@dataclass
class Outcome:
    """The events and the response of one stream."""

    events: list[ms.Event]
    response: ms.Response

    @property
    def done(self) -> ms.Done:
        last = self.events[-1]
        assert isinstance(last, ms.Done), last
        return last

    @property
    def error(self) -> ms.ErrorEvent:
        last = self.events[-1]
        assert isinstance(last, ms.ErrorEvent), last
        return last

    @property
    def start(self) -> ms.Start:
        first = self.events[0]
        assert isinstance(first, ms.Start), first
        return first

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        """Id, name and arguments of each call, according to the events."""
        starts = [event for event in self.events if isinstance(event, ms.ToolCallStart)]
        return [(start.id, start.name, self.pieces(start.index)) for start in starts]

    def pieces(self, index: int) -> str:
        """Return all deltas of one block, joined."""
        return "".join(
            event.arguments if isinstance(event, ms.ToolCallDelta) else event.text
            for event in self.events
            if isinstance(event, ms.TextDelta | ms.ThinkingDelta | ms.ToolCallDelta) and event.index == index
        )


def wire_events(text: str) -> Iterator[tuple[str, bytes]]:
    """Parse server-sent events written as text, with any indentation. An event's lines are adjacent."""
    name = ""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            yield name, line[5:].strip().encode()
            name = ""


def run(
    events: Iterable[tuple[str, bytes]], provider: ms.OpenAIChat = SERVER, stray: bytes = b"", *, choices: int = 0
) -> Outcome:
    """Run a stream to its end. Checks the order of events. `choices`: the number that was asked for; 0 for unknown."""
    machine = DIALECT.machine(provider, id_maker())
    machine.choices = choices
    checker = OrderChecker()
    received: list[ms.Event] = []
    for name, data in events:
        received.extend(machine.feed(name, data))
    if stray:
        received.extend(machine.feed(BARE_LINES, stray))
    received.extend(machine.end())
    for event in received:
        checker.check(event)
    assert checker.stream == "ended"
    assert machine.ended
    assert list(machine.feed("", b'{"choices": [{"delta": {"content": "late"}}]}')) == []
    assert list(machine.end()) == []
    return Outcome(received, machine.response())


def stream(text: str, provider: ms.OpenAIChat = SERVER, stray: bytes = b"") -> Outcome:
    """Run a stream written as text."""
    return run(wire_events(text), provider, stray)


def deltas(*members: ms.JSONObject, finish: str | None = "stop", provider: ms.OpenAIChat = SERVER) -> Outcome:
    """Run a stream of these deltas, then a finish reason and the end marker."""
    chunks = [chunk(choices=[{"index": 0, "delta": delta, "finish_reason": None}]) for delta in members]
    chunks.append(chunk(choices=[{"index": 0, "delta": {}, "finish_reason": finish}]))
    return run([*(("", json.dumps(value).encode()) for value in chunks), ("", b"[DONE]")], provider)


def chunk(**members: object) -> dict[str, object]:
    """Return one chunk."""
    head: dict[str, object] = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m-1"}
    return head | members


def decode(body: object, provider: ms.OpenAIChat = SERVER) -> ms.Response:
    """Decode an unstreamed answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return DIALECT.decode(data, provider, id_maker())


def answer(message: dict[str, object], finish: str | None = "stop", **members: object) -> ms.Response:
    """Decode an unstreamed answer with one choice."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return decode(chunk(choices=[choice]) | {"object": "chat.completion"} | members)


_STREAMING: TypeAdapter[CompletionCreateParamsStreaming] = TypeAdapter(CompletionCreateParamsStreaming)
_NON_STREAMING: TypeAdapter[CompletionCreateParamsNonStreaming] = TypeAdapter(CompletionCreateParamsNonStreaming)


def encode(request: ms.Request, provider: ms.OpenAIChat = OPENAI, *, stream: bool = False) -> dict[str, object]:
    """Return the wire body of a request. For OpenAI itself it is checked against OpenAI's own types."""
    model = request.model.partition("/")[2] or request.model
    body = json.loads(DIALECT.encode(request, model, provider, stream=stream).body)
    if provider is OPENAI:
        check(body, stream=stream)
    return body


def warnings(request: ms.Request, provider: ms.OpenAIChat = OPENAI) -> list[str]:
    """Return the warnings of a request."""
    return DIALECT.encode(request, request.model, provider, stream=False).warnings


def check(body: Mapping[str, object], *, stream: bool) -> None:
    """Assert that a body matches the types of OpenAI's client and has no unknown members."""
    adapter = _STREAMING if stream else _NON_STREAMING
    assert _plain(adapter.validate_python(body, strict=True)) == body


def _plain(value: object) -> object:
    # Arrays are validated when they are read. Validation removes unknown members.
    if isinstance(value, Mapping):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(member) for member in value]
    return value
