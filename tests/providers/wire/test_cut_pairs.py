"""Surrogate pairs that a gateway cuts between two deltas are joined, in every dialect.

A half without its other half becomes U+FFFD.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import manystream as ms
from manystream.providers.anthropic.converter import AnthropicConverter
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.gemini.converter import GeminiConverter
from manystream.providers.gemini_interactions.converter import InteractionsConverter
from manystream.providers.history import (
    History,
    HistoryError,
    HistoryMessage,
    OtherPart,
    TextPart,
    ToolCallPart,
    ToolCallResult,
    ToolResultPart,
)
from manystream.providers.history.converter import HistoryConverter
from manystream.providers.model.rows import messages_from_rows, rows_from_message
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.legacy import transform_message
from manystream.providers.openai.responses.converter import ResponsesConverter
from tests.support.event_order import OrderChecker

Wire = list[dict[str, Any]]
WOMAN = "\ud83d\udc69"
"""The two halves of U+1F469."""


def chat(member: str) -> Callable[[Sequence[str]], Wire]:
    def wire(pieces: Sequence[str]) -> Wire:
        return [
            *({"choices": [{"index": 0, "delta": {member: piece}}]} for piece in pieces),
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        ]

    return wire


def chat_call(pieces: Sequence[str]) -> Wire:
    def call(**members: Any) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **members}]}}]}

    return [
        call(id="c", function={"name": "f", "arguments": ""}),
        *(call(function={"arguments": piece}) for piece in pieces),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ]


def anthropic(begin: dict[str, Any], kind: str, member: str) -> Callable[[Sequence[str]], Wire]:
    def wire(pieces: Sequence[str]) -> Wire:
        return [
            {"type": "message_start", "message": {"id": "m", "model": "claude", "content": []}},
            {"type": "content_block_start", "index": 0, "content_block": begin},
            *({"type": "content_block_delta", "index": 0, "delta": {"type": kind, member: piece}} for piece in pieces),
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_stop"},
        ]

    return wire


def responses(item: dict[str, Any], kind: str) -> Callable[[Sequence[str]], Wire]:
    def wire(pieces: Sequence[str]) -> Wire:
        return [
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            *({"type": f"response.{kind}.delta", "output_index": 0, "delta": piece} for piece in pieces),
            {"type": "response.completed", "response": {"status": "completed", "output": []}},
        ]

    return wire


def gemini(make_part: Callable[[str], dict[str, Any]], *first: dict[str, Any]) -> Callable[[Sequence[str]], Wire]:
    def wire(pieces: Sequence[str]) -> Wire:
        parts = [*first, *(make_part(piece) for piece in pieces)]
        chunks: Wire = [
            {"candidates": [{"content": {"parts": [part]}, "index": 0}], "modelVersion": "g", "responseId": "r"}
            for part in parts
        ]
        return [*chunks, {"candidates": [{"finishReason": "STOP", "index": 0}]}]

    return wire


def more_argument(piece: str) -> dict[str, Any]:
    partial = [{"jsonPath": "$.x", "stringValue": piece, "willContinue": True}]
    return {"functionCall": {"partialArgs": partial, "willContinue": True}}


CALL = {"functionCall": {"name": "f", "willContinue": True}}
TOOL_USE = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
FUNCTION_CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}
CASES: dict[str, tuple[ms.Provider, Callable[[Sequence[str]], Wire]]] = {
    "chat text": (ms.OpenAIChat(base_url="http://127.0.0.1:9"), chat("content")),
    "chat thinking": (ms.OpenAIChat(base_url="http://127.0.0.1:9"), chat("reasoning_content")),
    "chat arguments": (ms.OpenAIChat(base_url="http://127.0.0.1:9"), chat_call),
    "anthropic text": (ms.Anthropic(), anthropic({"type": "text", "text": ""}, "text_delta", "text")),
    "anthropic thinking": (ms.Anthropic(), anthropic({"type": "thinking", "thinking": ""}, "thinking_delta",
        "thinking")),
    "anthropic arguments": (ms.Anthropic(), anthropic(TOOL_USE, "input_json_delta", "partial_json")),
    "responses text": (ms.OpenAIResponses(), responses({"type": "message", "content": []}, "output_text")),
    "responses thinking": (ms.OpenAIResponses(), responses({"type": "reasoning"}, "reasoning_summary_text")),
    "responses arguments": (ms.OpenAIResponses(), responses(FUNCTION_CALL, "function_call_arguments")),
    "gemini text": (ms.Gemini(), gemini(lambda piece: {"text": piece})),
    "gemini thinking": (ms.Gemini(), gemini(lambda piece: {"text": piece, "thought": True})),
    "gemini arguments": (ms.Gemini(), gemini(more_argument, CALL)),
}  # fmt: skip
each = pytest.mark.parametrize("case", CASES)


def run(case: str, pieces: Sequence[str], *, cut: bool = False) -> str:
    """Return the text of the deltas, which must equal that of the response."""
    provider, wire = CASES[case]
    machine = DIALECTS[provider.profile.dialect_name].machine(provider, lambda: "id")
    events: list[ms.Event] = []
    # As servers write it: a half as an escape, everything else as UTF-8.
    for value in wire([*pieces])[: -1 if cut else None]:
        text = json.dumps(value, ensure_ascii=False)
        data = "".join(json.dumps(c)[1:-1] if "\ud800" <= c <= "\udfff" else c for c in text).encode()
        events += machine.feed(value.get("type", ""), data)
    events += machine.end()
    checker = OrderChecker()
    for event in events:
        checker.check(event)
    assert checker.stream == "ended"
    delivered = "".join(event.text for event in events if isinstance(event, ms.TextDelta | ms.ThinkingDelta))
    delivered += "".join(event.arguments for event in events if isinstance(event, ms.ToolCallDelta))
    response = machine.response()
    (block,) = response.content
    assert delivered == (block.arguments if isinstance(block, ms.ToolCall) else getattr(block, "text", None))
    if case == "gemini arguments":
        return str(json.loads(delivered)["x"]) if not cut else delivered
    return delivered


def whole(units: str) -> str:
    """Decode text of UTF-16 units as a browser does."""
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@each
@pytest.mark.parametrize("before", [[], ["Hello ", "there ", "now ", "and "]], ids=["first", "after others"])
@pytest.mark.parametrize(
    "pieces",
    [
        [WOMAN[0], WOMAN[1]],
        ["a" + WOMAN[0], WOMAN[1] + "b", "c", "d"],
        [WOMAN[0], WOMAN[1] + WOMAN[0], WOMAN[1]],
        ["a", WOMAN[0], "b", "c"],
        ["a", WOMAN[1], "b", "c"],
        [WOMAN[0], WOMAN[0], WOMAN[1], WOMAN[1]],
        ["\U0001f469 \ufffd" + WOMAN[0], WOMAN[1] + "\ufffd", "\ufffd"],
        ["a" + WOMAN[0] + "b", "c"],
        ["a" + WOMAN[0]],
    ],
)
def test_halves_are_joined_or_replaced(case: str, before: list[str], pieces: list[str]) -> None:
    assert run(case, [*before, *pieces]) == whole("".join([*before, *pieces]))


@each
def test_a_half_at_the_end_of_a_cut_stream_is_delivered(case: str) -> None:
    delivered = run(case, ["a" + WOMAN[0]], cut=True)
    assert delivered.endswith("a\ufffd")


@given(
    st.lists(st.sampled_from(["a", "é", "\ufffd", "\U0001f469", WOMAN[0], WOMAN[1]]), min_size=1, max_size=12),
    st.sampled_from(sorted(CASES)),
    st.data(),
)
def test_any_units_cut_anywhere(units: list[str], case: str, data: st.DataObject) -> None:
    pieces: list[str] = []
    for unit in units:
        if pieces and data.draw(st.booleans()):
            pieces[-1] += unit
        else:
            pieces.append(unit)
    assert run(case, pieces) == whole("".join(pieces))


@pytest.mark.parametrize("case", ["chat arguments", "anthropic arguments", "responses arguments"])
def test_halves_in_the_json_of_arguments_can_be_read(case: str) -> None:
    assert json.loads(run(case, ['{"x":"' + WOMAN[0], WOMAN[1] + '"}'])) == {"x": "\U0001f469"}
    # Escaped twice, they are ordinary text until the arguments are parsed.
    assert json.loads(run(case, ['{"x":"\\ud83d', '\\udc69"}'])) == {"x": "\U0001f469"}


def test_halves_of_interleaved_blocks_are_not_mixed() -> None:
    machine = DIALECTS["openai-responses"].machine(ms.OpenAIResponses(), lambda: "id")
    events: list[ms.Event] = []
    for index, piece in ((0, "a\\ud83d"), (1, "b\\ud83d"), (1, "x"), (1, "y"), (0, "\\udc69c")):
        kind = "reasoning_summary_text" if index else "output_text"
        data = f'{{"type":"response.{kind}.delta","output_index":{index},"delta":"{piece}"}}'
        events += machine.feed(f"response.{kind}.delta", data.encode())
    assert machine.response().text == "a\U0001f469c"
    assert machine.response().thinking == "b\ufffdxy"


WHOLE: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "output_text": ("text", lambda text: {"type": "message", "content": [{"type": "output_text", "text": text}]}),
    "reasoning_summary_text": ("text", lambda text: {"type": "reasoning",
        "summary": [{"type": "summary_text", "text": text}]}),
    "function_call_arguments": ("arguments", lambda text: {**FUNCTION_CALL, "arguments": text}),
}  # fmt: skip


@pytest.mark.parametrize("before", [[], ["a"], ["a", "b", "c"]], ids=len)
@pytest.mark.parametrize("by", ["done", "output_item.done", "completed"])
@pytest.mark.parametrize("kind", WHOLE)
def test_a_whole_text_may_come_between_the_halves(kind: str, by: str, before: list[str]) -> None:
    member, item = WHOLE[kind]
    for text in (*WOMAN, WOMAN, "".join([*before, WOMAN[0]]), "".join([*before, WOMAN]), "x", ""):
        whole_item = {**item(text), "id": "i", "status": "completed"}
        done: dict[str, dict[str, Any]] = {
            "done": {"type": f"response.{kind}.done", member: text},
            "output_item.done": {"type": "response.output_item.done", "item": whole_item},
            "completed": {"type": "response.completed", "response": {"status": "completed", "output": [whole_item]}},
        }
        deltas = [{"type": f"response.{kind}.delta", "delta": piece} for piece in (*before, WOMAN[0], WOMAN[1])]
        begin = {"type": "response.output_item.added", "item": {**item(""), "id": "i"}}
        machine = DIALECTS["openai-responses"].machine(ms.OpenAIResponses(), lambda: "id")
        checker, delivered = OrderChecker(), ""
        for value in (begin, *deltas[:-1], done[by], deltas[-1]):
            for event in machine.feed("", json.dumps({**value, "output_index": 0}).encode()):
                checker.check(event)
                delivered += getattr(event, "text", getattr(event, "arguments", ""))
        delivered += "".join(getattr(event, "text", getattr(event, "arguments", "")) for event in machine.end())
        (block,) = machine.response().content
        kept = block.arguments if isinstance(block, ms.ToolCall) else getattr(block, "text", "")
        if text.startswith("".join(before)):  # else the final text replaces what was delivered
            assert delivered == kept, (text, by)
        assert kept.encode()


CONVERTERS: dict[str, type[HistoryConverter]] = {
    "openai-chat": ChatConverter, "openai-responses": ResponsesConverter, "anthropic": AnthropicConverter,
    "gemini": GeminiConverter, "gemini-interactions": InteractionsConverter,
}  # fmt: skip


@pytest.mark.parametrize("value", [{"a": WOMAN[0]}, {WOMAN[0]: 1}, {"output": WOMAN[0]}, {"output": {"a": WOMAN[0]}}])
def test_half_a_pair_in_a_result_is_kept(value: dict[str, Any]) -> None:
    wires: dict[type[HistoryConverter], dict[str, Any]] = {
        GeminiConverter: {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": value}}]},
        InteractionsConverter: {"type": "function_result", "call_id": "c", "name": "f", "result": value},
    }
    for converter, wire in wires.items():
        (result,) = cast("list[ms.ToolResult]", converter().decode_messages([wire])[0].content)
        half = json.loads(result.text) if result.text != WOMAN[0] else WOMAN[0]
        assert half in (value, value.get("output")), converter
        for into in CONVERTERS.values():
            message = ms.Message.tool_result("c", result.text)
            assert into().encode_messages([ms.Message.tool_call("c", "f", result.text.replace(WOMAN[0], "")), message])
        (row,) = rows_from_message(ms.Message.tool_result("c", result.text))
        (kept,) = cast("list[ms.ToolResult]", messages_from_rows([row], strict=False)[0].content)
        assert kept.text.encode()
        assert transform_message(ms.Message.tool_result("c", result.text))[0].data_json


@each
@pytest.mark.parametrize(
    "pieces",
    [["a" + WOMAN[0], WOMAN[1] + "b"], ["a" + WOMAN[0], "b"], [WOMAN[1], WOMAN[0]]],
    ids=["pair", "high", "odd"],
)
def test_a_converter_joins_the_halves_as_the_engine_does(case: str, pieces: list[str]) -> None:
    provider, wire = CASES[case]
    given = pieces
    if case.endswith("arguments") and not case.startswith("gemini"):
        given = ['{"x":"', *pieces, '"}']
    converter = CONVERTERS[provider.profile.dialect_name](provider)
    message = converter.message_from_chunks(wire(given))
    assert message is not None
    part = next(part for part in message.parts if isinstance(part, TextPart | ToolCallPart | OtherPart))
    found = part.arguments["x"] if isinstance(part, ToolCallPart) else getattr(part, "text", "")
    if isinstance(part, OtherPart):
        assert isinstance(part.block, ms.Thinking)
        found = part.block.text
    assert found == whole("".join(pieces))


@pytest.mark.parametrize("converter", CONVERTERS.values())
def test_half_a_pair_in_arguments_is_written_as_an_escape(converter: type[HistoryConverter]) -> None:
    call = ToolCallPart("c", "f", {"x": WOMAN[0]})
    result = ToolResultPart("c", "f", ToolCallResult.ok(WOMAN[0]))
    history = History(conversation=[HistoryMessage("model", [call]), HistoryMessage("tool", [result])])
    wire = converter().from_history(history)
    assert json.dumps(wire, ensure_ascii=False).encode()  # no half is left
    (read,) = converter().to_history(wire)[0].tool_calls
    assert read.arguments == {"x": "\ufffd"}


def test_a_chunk_that_is_no_json_is_an_error_of_its_place() -> None:
    with pytest.raises(HistoryError, match=r"chunks\[0\]: cannot be written as JSON"):
        ChatConverter().message_from_chunks([{"choices": cast("Any", object())}])
