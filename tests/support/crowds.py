"""Responses of very many small parts, in each dialect, streamed and unstreamed, as a hostile server could send them.

Each form is a function from a number of parts to a response body.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tests.support.dialects import ANTHROPIC, CHAT, GEMINI, RESPONSES, Wording

Payloads = Callable[[int], Iterable[object]]


@dataclass(frozen=True)
class Crowd:
    """One form of a response with many parts.

    name: the kind of the parts.
    dialect: the dialect of the response.
    payloads: the JSON value of each event, or of the one body.
    size: the approximate size of one part, in bytes.
    limit: the option that bounds the number of parts, if there is one.
    """

    name: str
    dialect: Wording
    payloads: Payloads
    size: int
    limit: str = ""
    stream: bool = True

    def __str__(self) -> str:
        return f"{self.dialect.name}, {'streamed' if self.stream else 'whole'}: {self.name}"

    def pieces(self, number: int) -> Iterator[bytes]:
        """Yield the body with `number` parts: each event as server-sent bytes, or the whole body."""
        for payload in self.payloads(number):
            text = json.dumps(payload, separators=(",", ":")).encode()
            yield b"data: %b\n\n" % text if self.stream else text


def _one(make: Callable[[int], object]) -> Payloads:
    """Put all parts into one event, or one body."""
    return lambda number: [make(number)]


def _each(make: Callable[[int], object]) -> Payloads:
    """Put each part into an event of its own."""
    return lambda number: map(make, range(number))


def _chat(**delta: object) -> object:
    return {"choices": [{"index": 0, "delta": delta}]}


def _chat_body(**message: object) -> object:
    return {"choices": [{"index": 0, "message": message}]}


def _call(number: int, **members: object) -> object:
    return {"index": number, "id": f"c{number}", "function": {"name": "f", "arguments": "{}"}, **members}


def _typed(kind: str, **members: object) -> object:
    return {"type": kind, **members}


def _gemini(*parts: object, **members: object) -> object:
    return {"candidates": [{"content": {"parts": list(parts)}}], **members}


def _function(**members: object) -> object:
    return {"functionCall": members}


def _message(content: list[object]) -> object:
    return _typed("message", content=content)


def _text_part(number: int) -> object:
    return {"type": "output_text", "text": "a"}


def _alternating(number: int) -> list[object]:
    """Return thinking parts and text parts in alternation."""
    return [{"type": "thinking", "thinking": "a"}, {"type": "text", "text": "b"}] * (number // 2)


def _waiting_items(number: int) -> Iterator[object]:
    """Yield events that announce items of one kind, and a final response with items of another kind."""
    for index in range(number // 2):
        yield _typed("response.output_item.added", output_index=index, item=_ITEM)
    other = [_typed("function_call", call_id=f"b{index}", name="f") for index in range(number // 2)]
    yield _typed("response.completed", response={"output": other, "status": "completed"})


def _after_long_text(event: object) -> Payloads:
    """Yield a long text, then the same event many times."""

    def payloads(number: int) -> Iterator[object]:
        for _ in range(number // 2):
            yield _typed("response.output_text.delta", output_index=0, content_index=0, delta="x" * 60)
        for _ in range(number // 2):
            yield event

    return payloads


def _stopped_again(number: int) -> Iterator[object]:
    """Yield a server tool's block with a long input, and its end event many times."""
    block = _typed("server_tool_use", id="a", name="f", input={})
    yield _typed("content_block_start", index=0, content_block=block)
    for part in range(number // 2):
        text = '{"a":"' if not part else "x" * 60
        delta = _typed("input_json_delta", partial_json=text)
        yield _typed("content_block_delta", index=0, delta=delta)
    for _ in range(number // 2):
        yield _typed("content_block_stop", index=0)


def _pieces_of_arguments(number: int) -> list[object]:
    return [{"jsonPath": f"$.a[{index}]", "nullValue": None} for index in range(number)]


def _far(number: int) -> object:
    """Return a piece of arguments for a distant item, at each depth."""
    piece = {"jsonPath": f"$.m{number}" + "[999999999]" * 60, "nullValue": 1}
    return _gemini(_function(willContinue=True, partialArgs=[piece]))


_ITEM = _typed("function_call", call_id="a", name="f")

CHOICES, BLOCKS, CALLS = "max_choices", "max_blocks", "max_tool_calls"

CHAT_CROWDS = [
    Crowd("choices in one event", CHAT, _one(lambda n: {"choices": [{}] * n}), 3, CHOICES),
    Crowd("choices", CHAT, _each(lambda n: {"choices": [{"index": n, "delta": {"content": "x"}}]}), 60, CHOICES),
    Crowd("text parts", CHAT, _one(lambda n: _chat(content=[{"type": "text", "text": "a"}] * n)), 26, BLOCKS),
    Crowd("text parts that are strings", CHAT, _one(lambda n: _chat(content=["a"] * n)), 4, BLOCKS),
    Crowd("unknown parts", CHAT, _one(lambda n: _chat(content=[{}] * n)), 3, BLOCKS),
    Crowd("unknown parts, an event each", CHAT, _each(lambda n: _chat(content=[{}])), 60, BLOCKS),
    Crowd("thinking and text in turn", CHAT, _one(lambda n: _chat(content=_alternating(n))), 30, BLOCKS),
    Crowd("thinking and text in turn, with details", CHAT,
        _each(lambda n: _chat(content=_alternating(20), reasoning_details=[_typed("reasoning.encrypted")] * 20)), 1300,
        BLOCKS),
    Crowd("reasoning details", CHAT, _one(lambda n: _chat(reasoning_details=[{}] * n)), 3, BLOCKS),
    Crowd("images", CHAT, _one(lambda n: _chat(images=[{"url": "u"}] * n)), 12, BLOCKS),
    Crowd("tool calls in one event", CHAT, _one(lambda n: _chat(tool_calls=[_call(i) for i in range(n)])), 70, CALLS),
    Crowd("tool calls", CHAT, _each(lambda n: _chat(tool_calls=[_call(n)])), 120, CALLS),
    Crowd("pieces of one call", CHAT, _one(lambda n: _chat(tool_calls=[{"index": 0}] * n)), 12, CALLS),
    Crowd("tool calls with one id", CHAT, _one(lambda n: {"choices": [{"message": {"tool_calls": [{"id": "a",
        "function": {"name": "f"}}] * n}}]}), 42, CALLS, stream=False),
    Crowd("calls without a name", CHAT, _each(lambda n: _chat(tool_calls=[{"index": n}])), 70, CALLS),
    Crowd("tool calls of other choices", CHAT,
        _each(lambda n: {"choices": [{"index": 1 + n % 2, "delta": {"tool_calls": [_call(n)]}}]}), 120, CALLS),
    Crowd("log probabilities", CHAT, _one(lambda n: {"choices": [{"index": 0, "delta": {},
        "logprobs": {"content": [{}] * n}}]}), 3),
    Crowd("members that nobody knows", CHAT, _one(lambda n: {"choices": [], **{f"m{i}": 1 for i in range(n)}}), 10),
    Crowd("a member that nobody knows, an event each", CHAT, _each(lambda n: {"choices": [], f"m{n}": [1]}), 35),
    Crowd("one letter at a time", CHAT, _each(lambda n: _chat(content="x")), 60),
    Crowd("one letter at a time, never alike", CHAT, _each(lambda n: {**_chat(content="x"), "id": str(n)}), 80),
]  # fmt: skip

RESPONSES_CROWDS = [
    Crowd("items in the final response", RESPONSES,
        _one(lambda n: _typed("response.completed", response={"output": [{}] * n})), 3, BLOCKS),
    Crowd("items", RESPONSES, _each(lambda n: _typed("response.output_item.added", output_index=n, item={})), 80,
        BLOCKS),
    Crowd("messages without text", RESPONSES, _each(lambda n: _typed("response.output_item.added", output_index=n,
        item=_message([]))), 100, BLOCKS),
    Crowd("calls", RESPONSES, _each(lambda n: _typed("response.output_item.added", output_index=n, item=_ITEM)), 130,
        CALLS),
    Crowd("items that are not in the final response", RESPONSES, _waiting_items, 110, CALLS),
    Crowd("parts of one message", RESPONSES, _one(lambda n: _typed("response.output_item.done", output_index=0,
        item=_message([_text_part(0)] * n))), 33, BLOCKS),
    Crowd("unknown parts of one message", RESPONSES,
        _one(lambda n: _typed("response.output_item.done", output_index=0, item=_message([{}] * n))), 3, BLOCKS),
    Crowd("a text that is over again and again", RESPONSES,
        _after_long_text(_typed("response.output_text.done", output_index=0, content_index=0, text="")), 120),
    Crowd("an item that is over again and again", RESPONSES,
        _after_long_text(_typed("response.output_item.done", output_index=0, item=_message([]))), 110, BLOCKS),
    Crowd("sources", RESPONSES, _after_long_text(_typed("response.output_text.annotation.added", output_index=0,
        content_index=0, annotation={})), 120),
    Crowd("refusals", RESPONSES, _each(lambda n: _typed("response.refusal.delta", output_index=0, content_index=n,
        delta="x")), 80),
    Crowd("one letter at a time", RESPONSES, _each(lambda n: _typed("response.output_text.delta", output_index=0,
        content_index=0, delta="x", sequence_number=n + 1)), 110),
]  # fmt: skip

ANTHROPIC_CROWDS = [
    Crowd("blocks of the message's start", ANTHROPIC,
        _one(lambda n: _typed("message_start", message={"content": [{}] * n})), 3, BLOCKS),
    Crowd("blocks", ANTHROPIC, _each(lambda n: _typed("content_block_start", index=n, content_block={})), 60, BLOCKS),
    Crowd("blocks at one index", ANTHROPIC,
        _each(lambda n: _typed("content_block_start", index=0, content_block=_typed("text", text=""))), 90, BLOCKS),
    Crowd("calls", ANTHROPIC, _each(lambda n: _typed("content_block_start", index=n,
        content_block=_typed("tool_use", name="f"))), 100, CALLS),
    Crowd("starts of the message", ANTHROPIC, _each(lambda n: _typed("message_start", message={"content": [{}]})), 60,
        BLOCKS),
    Crowd("a block that ends again and again", ANTHROPIC, _stopped_again, 90),
    Crowd("sources", ANTHROPIC, lambda n: [_typed("content_block_start", index=0,
        content_block=_typed("text", text="", citations=[{}] * n))], 3),
    Crowd("counts that nobody knows", ANTHROPIC, _each(lambda n: _typed("message_delta", usage={f"m{n}": 1})), 60),
]  # fmt: skip

GEMINI_CROWDS = [
    Crowd("candidates in one event", GEMINI, _one(lambda n: {"candidates": [{}] * n}), 3, CHOICES),
    Crowd("candidates", GEMINI, _each(lambda n: {"candidates": [{"index": n}]}), 40, CHOICES),
    Crowd("text parts", GEMINI, _one(lambda n: _gemini(*[{"text": "a"}] * n)), 13, BLOCKS),
    Crowd("empty parts", GEMINI, _one(lambda n: _gemini(*[{}] * n)), 3, BLOCKS),
    Crowd("parts of another candidate", GEMINI,
        _one(lambda n: {"candidates": [{"index": 1, "content": {"parts": [{}] * n}}]}), 3, BLOCKS),
    Crowd("unknown parts, an event each", GEMINI, _each(lambda n: _gemini({"x": 1})), 60, BLOCKS),
    Crowd("calls in one event", GEMINI, _one(lambda n: _gemini(*[_function(name="f")] * n)), 33, CALLS),
    Crowd("calls", GEMINI, _each(lambda n: _gemini(_function(name="f"))), 80, CALLS),
    Crowd("pieces of one call's arguments", GEMINI,
        _one(lambda n: _gemini(_function(name="f", partialArgs=_pieces_of_arguments(n)))), 40, BLOCKS),
    Crowd("pieces of one call's arguments, an event each", GEMINI,
        lambda n: [_gemini(_function(name="f", willContinue=True)),
        *(_gemini(_function(willContinue=True, partialArgs=[piece])) for piece in _pieces_of_arguments(n))], 130),
    Crowd("far items of one call's arguments", GEMINI,
        lambda n: [_gemini(_function(name="f", willContinue=True)), *map(_far, range(n))], 800),
    Crowd("chunks in one event", GEMINI, lambda n: [[_gemini({"text": "a"})] * n], 55),
    Crowd("counts that are never alike", GEMINI,
        _each(lambda n: _gemini({"text": "a"}, usageMetadata={"promptTokenCount": 1, f"c{n // 2}": 1})), 110),
    Crowd("many counts", GEMINI,
        _each(lambda n: _gemini({"text": "a"}, usageMetadata={f"c{i}": n for i in range(5000)})), 60_000),
    Crowd("sources", GEMINI, _each(lambda n: {"candidates": [{"citationMetadata": {"citations": [{}] * 100}}]}), 380),
    Crowd("one letter at a time", GEMINI, _each(lambda n: _gemini({"text": "x"})), 65),
]  # fmt: skip

# The answers of empty parts have an id: without any value, they would be no answers.
WHOLE_CROWDS = [
    Crowd("choices", CHAT, _one(lambda n: {"id": "c", "choices": [{}] * n}), 3, CHOICES, stream=False),
    Crowd("text parts", CHAT, _one(lambda n: _chat_body(content=["a"] * n)), 4, BLOCKS, stream=False),
    Crowd("unknown parts", CHAT, _one(lambda n: _chat_body(content=[{}] * n) | {"id": "c"}), 3, BLOCKS, stream=False),
    Crowd("tool calls", CHAT, _one(lambda n: _chat_body(tool_calls=[_call(i) for i in range(n)])), 70, CALLS,
        stream=False),
    Crowd("log probabilities", CHAT, _one(lambda n: {"choices": [{"message": {"content": "x"},
        "logprobs": {"content": [{}] * n}}]}), 3, stream=False),
    Crowd("items", RESPONSES, _one(lambda n: {"output": [{}] * n, "status": "completed"}), 3, BLOCKS, stream=False),
    Crowd("calls", RESPONSES, _one(lambda n: {"output": [_typed("function_call", call_id="a", name="f")] * n,
        "status": "completed"}), 55, CALLS, stream=False),
    Crowd("parts", RESPONSES, _one(lambda n: {"output": [_message([_text_part(0)] * n)], "status": "completed"}), 33,
        BLOCKS, stream=False),
    Crowd("unknown parts", RESPONSES, _one(lambda n: {"output": [_message([{}] * n)], "status": "completed"}), 3,
        BLOCKS, stream=False),
    Crowd("blocks", ANTHROPIC, _one(lambda n: _message([{}] * n)), 3, BLOCKS, stream=False),
    Crowd("calls", ANTHROPIC, _one(lambda n: _message([_typed("tool_use", name="f")] * n)), 32, CALLS, stream=False),
    Crowd("candidates", GEMINI, _one(lambda n: {"responseId": "r", "candidates": [{}] * n}), 3, CHOICES, stream=False),
    Crowd("text parts", GEMINI, _one(lambda n: _gemini(*[{"text": "a"}] * n)), 13, BLOCKS, stream=False),
    Crowd("empty parts", GEMINI, _one(lambda n: _gemini(*[{}] * n, responseId="r")), 3, BLOCKS, stream=False),
    Crowd("calls", GEMINI, _one(lambda n: _gemini(*[_function(name="f")] * n)), 33, CALLS, stream=False),
    Crowd("chunks", GEMINI, _one(lambda n: [_gemini({"text": "a"})] * n), 55, stream=False),
]  # fmt: skip

CROWDS = [*CHAT_CROWDS, *RESPONSES_CROWDS, *ANTHROPIC_CROWDS, *GEMINI_CROWDS, *WHOLE_CROWDS]
