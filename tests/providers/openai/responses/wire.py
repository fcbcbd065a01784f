"""Shared by the tests of this dialect: a provider, streams written as text, and a check with OpenAI's own types."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import TypeAdapter

import manystream as ms
from manystream.providers.catalog.dialect import BARE_LINES
from manystream.providers.openai.responses.dialect import DIALECT
from tests.support.event_order import OrderChecker

PROVIDER = ms.OpenAIResponses(api_key="key")
LENIENT = ms.OpenAIResponses(
    api_key="key", base_url="http://localhost/v1",
    profile=ms.Profile(name="somebody", dialect="openai-responses", base_url="http://localhost/v1",
    quirks=ms.Quirks(strict_end=False)),
)  # fmt: skip
MADE_ID = "made-id-of-22-symbols_"


def make_id() -> str:
    return MADE_ID


@dataclass
class Outcome:
    """The events and the response of one stream."""

    events: list[ms.Event]
    response: ms.Response

    @property
    def error(self) -> ms.ErrorEvent:
        last = self.events[-1]
        assert isinstance(last, ms.ErrorEvent)
        return last

    def text_at(self, index: int) -> str:
        """Return all deltas of one block, joined."""
        return "".join(
            event.arguments if isinstance(event, ms.ToolCallDelta) else event.text
            for event in self.events
            if isinstance(event, ms.TextDelta | ms.ThinkingDelta | ms.ToolCallDelta) and event.index == index
        )


def wire_events(text: str) -> Iterable[tuple[str, bytes]]:
    """Parse server-sent events written as text: a line of JSON alone is an event that is named by its type."""
    name = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            yield name, line[5:].strip().encode()
            name = ""
        elif line.startswith("{"):
            yield json.loads(line)["type"], line.encode()


def stream(text: str, *, stray: bytes = b"", provider: ms.OpenAIResponses = PROVIDER) -> Outcome:
    """Run a stream to its end. Checks the order of events."""
    machine = DIALECT.machine(provider, make_id)
    checker = OrderChecker()
    events: list[ms.Event] = []
    for name, data in wire_events(text):
        for event in machine.feed(name, data):
            checker.check(event)
            events.append(event)
    for event in [*(machine.feed(BARE_LINES, stray) if stray else ()), *machine.end()]:
        checker.check(event)
        events.append(event)
    assert machine.ended
    assert checker.stream == "ended"
    return Outcome(events, machine.response())


def stream_of(*values: ms.JSONObject, provider: ms.OpenAIResponses = PROVIDER) -> Outcome:
    """Run a stream of objects, with their types as event names."""
    return stream("\n".join(map(json.dumps, values)), provider=provider)


def decode(response: ms.JSONObject, provider: ms.OpenAIResponses = PROVIDER) -> ms.Response:
    """Decode an unstreamed answer."""
    return DIALECT.decode(json.dumps(response).encode(), provider, make_id)


def body_of(request: ms.Request, model: str | None = None, *, streamed: bool = False) -> ms.JSONObject:
    """Return the body of a request, checked against the types of OpenAI's own client."""
    wire = DIALECT.encode(request, model or request.model, PROVIDER, stream=streamed)
    body: ms.JSONObject = json.loads(wire.body)
    assert_fits_openai(body, streamed=streamed)
    return body


def warnings_of(request: ms.Request) -> list[str]:
    return DIALECT.encode(request, request.model, PROVIDER, stream=False).warnings


_UNSTREAMED: TypeAdapter[object] = TypeAdapter(ResponseCreateParamsNonStreaming)
_STREAMED: TypeAdapter[object] = TypeAdapter(ResponseCreateParamsStreaming)


def assert_fits_openai(body: ms.JSONObject, *, streamed: bool) -> None:
    """Assert that a body matches the types of OpenAI's client and has no unknown members."""
    validated = (_STREAMED if streamed else _UNSTREAMED).validate_python(body, strict=True)
    assert _plain(validated) == body


def _plain(value: object) -> ms.JSON:
    # Iterables are validated when they are read, so everything is read here.
    if isinstance(value, Mapping):
        return {str(key): _plain(member) for key, member in value.items()}
    if isinstance(value, str | bool | int | float) or value is None:
        return value
    assert isinstance(value, Iterable)
    return [_plain(member) for member in value]
