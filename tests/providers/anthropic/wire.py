"""Shared by the tests of the Anthropic dialect: providers, functions that write wire text, and a runner of streams.

The runner checks on every stream what must be true of all streams.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import manystream as ms
from manystream.providers.anthropic import DIALECT
from manystream.transport.sse import SSEParser
from tests.support.event_order import OrderChecker

STRICT = ms.Anthropic(api_key="sk-secret")
LENIENT = ms.Anthropic(
    api_key="sk-secret",
    profile=ms.Profile(name="lookalike", dialect="anthropic", base_url="https://lookalike.example", quirks=ms.Quirks()),
)

MESSAGE: dict[str, object] = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
    "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1},
}  # fmt: skip

START = 'event: message_start\ndata: {"type": "message_start", "message": ' + json.dumps(MESSAGE) + "}\n\n"
STOP = 'event: message_stop\ndata: {"type": "message_stop"}\n\n'
PING = 'event: ping\ndata: {"type": "ping"}\n\n'


def sse(payload: object, name: str | None = None) -> str:
    """Return one event, with a name if one is given."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(payload, ensure_ascii=False)}\n\n"


def block(index: int, content: dict[str, object], *deltas: dict[str, object], stop: bool = True) -> str:
    """Return the events of a content block."""
    wire = sse({"type": "content_block_start", "index": index, "content_block": content}, "content_block_start")
    for delta in deltas:
        wire += sse({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")
    if stop:
        wire += sse({"type": "content_block_stop", "index": index}, "content_block_stop")
    return wire


def text(index: int, *pieces: str) -> str:
    """Return the events of a text block."""
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces))


def call(index: int, *pieces: str, id: str = "toolu_1", name: str = "look", stop: bool = True) -> str:
    """Return the events of a tool call."""
    deltas: list[dict[str, object]] = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block(index, {"type": "tool_use", "id": id, "name": name, "input": {}}, *deltas, stop=stop)


def finish(reason: str | None = "end_turn", usage: dict[str, object] | None = None, **delta: object) -> str:
    """Return the event with the stop reason, without the terminal marker."""
    payload = {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": None, **delta},
        "usage": {"output_tokens": 5} if usage is None else usage,
    }
    return sse(payload, "message_delta")


def made_ids() -> Callable[[], str]:
    """Return a maker of numbered ids."""
    numbers = iter(range(1, 1_000_000))
    return lambda: f"made_{next(numbers)}"


@dataclass
class Outcome:
    """The events and the response of one stream."""

    events: list[ms.Event]
    response: ms.Response

    @property
    def error(self) -> ms.ProviderError | None:
        last = self.events[-1] if self.events else None
        return last.error if isinstance(last, ms.ErrorEvent) else None

    @property
    def done(self) -> ms.Done:
        last = self.events[-1]
        assert isinstance(last, ms.Done), last
        return last

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, ms.TextDelta))


def run(wire: str | bytes, provider: ms.Provider = STRICT, *, chunks: Sequence[bytes] | None = None) -> Outcome:
    """Parse a body, feed the machine and end it. Checks the events' order, and that events and response are equal."""
    body = wire.encode() if isinstance(wire, str) else wire
    parser, machine, order = SSEParser(), DIALECT.machine(provider, made_ids()), OrderChecker()
    events: list[ms.Event] = []

    def take(fresh: Sequence[ms.Event]) -> None:
        for event in fresh:
            order.check(event)
            events.append(event)

    for chunk in chunks or [body]:
        for name, data in parser.feed(chunk):
            take(machine.feed(name, data))
    for name, data in parser.end():
        take(machine.feed(name, data))
    take(machine.end())
    assert machine.ended
    assert machine.end() == ()
    assert machine.feed("message_stop", b'{"type": "message_stop"}') == ()
    response = machine.response()
    assert blocks_of_events(events) == blocks_of_response(response)
    return Outcome(events, response)


def run_at_every_split(wire: str, provider: ms.Provider = STRICT) -> Outcome:
    """Run a body whole, cut in two at every byte, and byte by byte. The outcome must be the same."""
    body = wire.encode()
    whole = run(body, provider)
    for chunks in splits(body):
        assert run(body, provider, chunks=chunks) == whole
    return whole


def splits(body: bytes) -> Iterator[list[bytes]]:
    yield [body[position : position + 1] for position in range(len(body))]
    for position in range(1, len(body)):
        yield [body[:position], body[position:]]


def blocks_of_events(events: Sequence[ms.Event]) -> dict[int, tuple[object, ...]]:
    """Return the content of each block according to the events."""
    blocks: dict[int, tuple[object, ...]] = {}
    for event in events:
        if isinstance(event, ms.TextDelta | ms.ThinkingDelta):
            kind, before = blocks.get(event.index, (event.type, ""))
            blocks[event.index] = (kind, f"{before}{event.text}")
        elif isinstance(event, ms.ToolCallStart):
            blocks[event.index] = ("call", event.id, event.name, "", False)
        elif isinstance(event, ms.ToolCallDelta):
            kind, id, name, before, complete = blocks[event.index]
            blocks[event.index] = (kind, id, name, f"{before}{event.arguments}", complete)
        elif isinstance(event, ms.ToolCallDone):
            blocks[event.index] = (*blocks[event.index][:-1], event.complete)
    return blocks


def blocks_of_response(response: ms.Response) -> dict[int, tuple[object, ...]]:
    """Return the content of each block according to the response."""
    blocks: dict[int, tuple[object, ...]] = {}
    for index, content in enumerate(response.content):
        if isinstance(content, ms.Text) and content.text:
            blocks[index] = ("text_delta", content.text)
        elif isinstance(content, ms.Thinking) and content.text:
            blocks[index] = ("thinking_delta", content.text)
        elif isinstance(content, ms.ToolCall):
            blocks[index] = ("call", content.id, content.name, content.arguments, content.complete)
    return blocks


def decode(payload: object, provider: ms.Provider = STRICT) -> ms.Response:
    """Decode an unstreamed answer."""
    return DIALECT.decode(json.dumps(payload).encode(), provider, made_ids())


def message(*content: dict[str, object], stop_reason: str = "end_turn", **members: object) -> dict[str, object]:
    """Return an unstreamed answer."""
    usage = {"input_tokens": 10, "output_tokens": 5}
    return {**MESSAGE, "content": list(content), "stop_reason": stop_reason, "usage": usage, **members}
