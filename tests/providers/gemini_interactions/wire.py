"""Shared by the tests of the Interactions dialect: writes wire text, and returns checked events and responses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.transport.sse import SSEParser
from tests.support.event_order import OrderChecker

DIALECT = DIALECTS["gemini-interactions"]
PROVIDER = ms.GeminiInteractions("key")
MAKER = "google-interactions"
TAG = ms.ProviderState(MAKER, {})

USAGE: dict[str, Any] = {
    "total_tokens": 70,
    "total_input_tokens": 20,
    "total_cached_tokens": 5,
    "total_output_tokens": 10,
    "total_tool_use_tokens": 10,
    "total_thought_tokens": 30,
}


@dataclass
class Outcome:
    """The events and the response of one stream."""

    events: list[ms.Event]
    response: ms.Response

    def of(self, *kinds: type[ms.Event]) -> list[ms.Event]:
        return [event for event in self.events if isinstance(event, kinds)]

    @property
    def last(self) -> Any:
        return self.events[-1]


def sse(payload: dict[str, Any]) -> str:
    return f"event: {payload.get('event_type', '')}\ndata: {json.dumps(payload, ensure_ascii=False)}\n\n"


def interaction(status: str | None, **members: Any) -> dict[str, Any]:
    return {"id": "v1_1", "object": "interaction", "model": "gemini-3.8-flash", "status": status, **members}


def step(index: int, kind: str, *deltas: dict[str, Any], stop: bool = True, **members: Any) -> str:
    """Return the events of one step."""
    wire = sse({"index": index, "step": {"type": kind, **members}, "event_type": "step.start"})
    wire += "".join(delta(index, each) for each in deltas)
    return wire + (sse({"index": index, "event_type": "step.stop"}) if stop else "")


def delta(index: int, wire: dict[str, Any], **members: Any) -> str:
    return sse({"index": index, "delta": wire, "event_type": "step.delta", **members})


def text(text: Any) -> dict[str, Any]:
    return {"text": text, "type": "text"}


def arguments(text: Any) -> dict[str, Any]:
    return {"arguments": text, "type": "arguments_delta"}


def summary(text: Any) -> dict[str, Any]:
    return {"content": {"text": text, "type": "text"}, "type": "thought_summary"}


def signature(text: Any) -> dict[str, Any]:
    return {"signature": text, "type": "thought_signature"}


def completed(status: str | None = "completed", **members: Any) -> str:
    whole = interaction(status, **{"usage": USAGE, "service_tier": "standard", **members})
    return sse({"interaction": whole, "event_type": "interaction.completed"}) + END


END = "event: done\ndata: [DONE]\n\n"
CREATED = sse({"interaction": interaction("in_progress"), "event_type": "interaction.created"}) + sse(
    {"interaction_id": "v1_1", "status": "in_progress", "event_type": "interaction.status_update"}
)


def run_pieces(pieces: Sequence[bytes]) -> Outcome:
    """Run a body, cut into pieces, through parser and machine. Checks the order of events."""
    made = iter(range(1, 100))
    machine = DIALECT.machine(PROVIDER, lambda: f"id-{next(made)}")
    parser, checker = SSEParser(), OrderChecker()
    events: list[ms.Event] = []
    for piece in pieces:
        for name, data in parser.feed(piece):
            events.extend(machine.feed(name, data))
    for name, data in parser.end():
        events.extend(machine.feed_last(name, data))
    events.extend(machine.end())
    for event in events:
        checker.check(event)
    assert checker.stream == "ended"
    return Outcome(events, machine.response())


def run(wire: str) -> Outcome:
    return run_pieces([wire.encode()])


def run_at_every_split(wire: str) -> Outcome:
    """Run a body cut in two at every place, byte by byte and whole. Each gives the same outcome."""
    body, whole = wire.encode(), run(wire)
    for place in range(len(body)):
        assert run_pieces([body[:place], body[place:]]) == whole
    assert run_pieces([body[place : place + 1] for place in range(len(body))]) == whole
    return whole


def decode(body: Any) -> ms.Response:
    """Decode an unstreamed answer."""
    made = iter(range(1, 100))
    return DIALECT.decode(json.dumps(body).encode(), PROVIDER, lambda: f"id-{next(made)}")


def sent(request: ms.Request, *, stream: bool = False, provider: ms.GeminiInteractions = PROVIDER) -> Any:
    """Return the body that a request is sent with."""
    return json.loads(DIALECT.encode(request, request.model, provider, stream=stream).body)


def warned(request: ms.Request) -> list[str]:
    return DIALECT.encode(request, request.model, PROVIDER, stream=False).warnings
