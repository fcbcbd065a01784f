"""Single parts of chunks: choices, candidates, messages, deltas, blocks and items of each SDK.

Other values are refused. Also tests answers and results as the provider's own messages.
"""

from typing import Any, get_args

import pytest
from anthropic import types as anthropic
from anthropic.lib.streaming import TextEvent
from anthropic.types import beta as anthropic_beta
from anthropic.types.raw_message_delta_event import Delta
from google.genai import types as gemini
from openai.types import responses
from openai.types.chat import (
    ChatCompletionMessage,
    ChatCompletionMessageCustomToolCall,
    ChatCompletionMessageFunctionToolCall,
)
from openai.types.chat.chat_completion import Choice as WholeChoice
from openai.types.chat.chat_completion_chunk import Choice, ChoiceDelta, ChoiceDeltaToolCall
from openai.types.responses.response_output_item import ResponseOutputItem

import manystream as ms
from manystream.providers.anthropic.converter import AnthropicConverter
from manystream.providers.gemini.converter import GeminiConverter
from manystream.providers.history import (
    History,
    HistoryError,
    HistoryMessage,
    ToolCallPart,
    ToolCallResult,
    ToolResultPart,
)
from manystream.providers.history.converter import HistoryConverter
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter

from .test_chunks import ANTHROPIC, CHAT, GEMINI, MESSAGE_ITEM, RESPONSES, call_item

F = {"name": "f", "arguments": '{"a":1}'}
CHAT_CALL = {"id": "c", "type": "function", "function": F}
BOTH = {"content": "hi", "tool_calls": [{"index": 0, **CHAT_CALL}]}
CALL = [ToolCallPart("c", "f", {"a": 1})]
CUSTOM_CALL = {"id": "c", "type": "custom", "custom": {"name": "f", "input": "SELECT 1"}}
CUSTOM = ToolCallPart("c", "f", {}, malformed="SELECT 1")  # its input is a text, not an object
GEMINI_CALL = gemini.FunctionCall(id="c", name="f", args={"a": 1})
GEMINI_PARTS = gemini.Content(role="model", parts=[gemini.Part(text="hi"), gemini.Part(function_call=GEMINI_CALL)])
ITEM = {"type": "function_call", "call_id": "c", **F}

PARTS: list[tuple[type[HistoryConverter], Any, str, list[ToolCallPart], str | None]] = [
    (ChatConverter, ChoiceDelta.model_validate(BOTH), "hi", CALL, None),
    (ChatConverter, ChoiceDelta(role="assistant"), "", [], None),
    (ChatConverter, ChoiceDelta(), "", [], None),
    (ChatConverter, ChoiceDeltaToolCall.model_validate(BOTH["tool_calls"][0]), "", CALL, None),
    (ChatConverter, Choice.model_validate({"index": 0, "delta": BOTH, "finish_reason": "stop"}), "hi", CALL, "stop"),
    (ChatConverter, WholeChoice.model_validate({"index": 0, "message": {"role": "assistant", "content": "hi"},
        "finish_reason": "stop", "logprobs": None}), "hi", [], "stop"),
    (ChatConverter, ChatCompletionMessage.model_validate({"role": "assistant", "content": "hi",
        "tool_calls": [CHAT_CALL]}), "hi", CALL, None),
    (ChatConverter, ChatCompletionMessageFunctionToolCall.model_validate(CHAT_CALL), "", CALL, None),
    (ChatConverter, ChatCompletionMessageCustomToolCall.model_validate(CUSTOM_CALL), "", [CUSTOM], None),
    (AnthropicConverter, anthropic.TextDelta(type="text_delta", text="hi"), "hi", [], None),
    (AnthropicConverter, anthropic.ThinkingDelta(type="thinking_delta", thinking="hm"), "", [], None),
    (AnthropicConverter, anthropic.TextBlock(type="text", text="hi"), "hi", [], None),
    (AnthropicConverter, anthropic.ToolUseBlock.model_validate({"type": "tool_use", "id": "c", "name": "f",
        "input": {"a": 1}}), "", CALL, None),
    (AnthropicConverter, Delta(stop_reason="end_turn"), "", [], "end_turn"),
    (AnthropicConverter, Delta(), "", [], None),
    # The SDK's stream has this event after the one that it repeats.
    (AnthropicConverter, TextEvent(type="text", text="hi", snapshot="hi"), "", [], None),
    (GeminiConverter, gemini.Part(text="hi"), "hi", [], None),
    (GeminiConverter, gemini.Part(text="hm", thought=True), "", [], None),
    (GeminiConverter, gemini.Part(), "", [], None),
    (GeminiConverter, GEMINI_CALL, "", CALL, None),
    (GeminiConverter, GEMINI_PARTS, "hi", CALL, None),
    (GeminiConverter, gemini.Candidate(content=GEMINI_PARTS, finish_reason=gemini.FinishReason.STOP), "hi", CALL,
        "STOP"),
    (ResponsesConverter, responses.ResponseOutputText(type="output_text", text="hi", annotations=[]), "hi", [], None),
    (ResponsesConverter, responses.ResponseFunctionToolCall.model_validate(ITEM), "", CALL, None),
    (ResponsesConverter, responses.ResponseOutputMessage.model_validate(MESSAGE_ITEM), "I look.", [], None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("converter", "part", "text", "calls", "finish"), PARTS, ids=[f"{type(row[1]).__name__}-{row[2]}" for row in PARTS]
)
def test_a_part_of_a_chunk_is_wrapped_by_itself(
    converter: type[HistoryConverter], part: Any, text: str, calls: list[ToolCallPart], finish: str | None
) -> None:
    view = converter().wrap_chunk(part)
    assert (view.get_text(), view.get_tool_calls(), view.get_finish_message()) == (text, calls, finish)
    as_json = converter().wrap_chunk(part.model_dump(mode="json", by_alias=True))
    assert (as_json.get_text(), as_json.get_tool_calls(), as_json.get_finish_message()) == (text, calls, finish)


HELPER_EVENTS: list[ms.JSONObject] = [
    {"type": "content.delta", "delta": "hi", "snapshot": "hi"},
    {"type": "content.done", "content": "hi"},
    {"type": "refusal.delta", "delta": "no", "snapshot": "no"},
    {"type": "refusal.done", "refusal": "no"},
    {"type": "tool_calls.function.arguments.delta", "name": "f", "index": 0, "arguments": "{", "arguments_delta": "{"},
    {"type": "tool_calls.function.arguments.done", "name": "f", "index": 0, "arguments": "{}"},
    {"type": "logprobs.content.delta", "content": [{"token": "hi"}], "snapshot": [{"token": "hi"}]},
    {"type": "logprobs.content.done", "content": [{"token": "hi"}]},
    {"type": "logprobs.refusal.delta", "refusal": [{"token": "no"}], "snapshot": [{"token": "no"}]},
    {"type": "logprobs.refusal.done", "refusal": [{"token": "no"}]},
]


@pytest.mark.parametrize("event", HELPER_EVENTS, ids=lambda event: event["type"])
def test_an_sdk_event_that_repeats_a_chunk_is_empty(event: ms.JSONObject) -> None:
    assert ChatConverter().chunk_around(frozenset(event), event) == {"choices": []}


UNIONS = [
    (AnthropicConverter, anthropic.RawContentBlockDelta), (AnthropicConverter, anthropic.ContentBlock),
    (AnthropicConverter, anthropic_beta.BetaRawContentBlockDelta),
    (AnthropicConverter, anthropic_beta.BetaContentBlock), (ResponsesConverter, ResponseOutputItem),
]  # fmt: skip
KINDS = [(converter, kind) for converter, union in UNIONS for kind in get_args(get_args(union)[0])]


@pytest.mark.parametrize(("converter", "kind"), KINDS, ids=lambda value: value.__name__)
def test_every_delta_block_and_item_of_the_sdks_is_accepted(converter: type[HistoryConverter], kind: Any) -> None:
    (name,) = get_args(kind.model_fields["type"].annotation)
    assert converter().wrap_chunk({"type": name, "id": "x", "call_id": "x", "name": "f"}).get_text() == ""


FOREIGN: list[tuple[type[HistoryConverter], Any]] = [
    (ChatConverter, anthropic.TextBlock(type="text", text="hi")),
    (ChatConverter, gemini.Part(text="hi")),
    (AnthropicConverter, ChoiceDelta.model_validate(BOTH)),
    (AnthropicConverter, gemini.Part(text="hi")),
    (AnthropicConverter, {}),
    (GeminiConverter, responses.ResponseFunctionToolCall.model_validate(ITEM)),
    (GeminiConverter, {}),
    (ResponsesConverter, ChoiceDelta.model_validate(BOTH)),
    (ResponsesConverter, {}),
    *((converter, {"foo": 1}) for converter in (ChatConverter, AnthropicConverter, GeminiConverter)),
    *((converter, {"type": "smell"}) for converter in (AnthropicConverter, ResponsesConverter)),
]


@pytest.mark.parametrize(("converter", "value"), FOREIGN)
def test_anything_else_is_refused(converter: type[HistoryConverter], value: Any) -> None:
    with pytest.raises(HistoryError, match=r"chunk: an? .* is no chunk of this dialect, and no part of one"):
        converter().wrap_chunk(value)


PLACED = (ChatConverter, GeminiConverter)
"""Converters of the dialects whose parts of chunks show what they continue."""


@pytest.mark.parametrize(("converter", "part"), [(row[0], row[1]) for row in PARTS if row[2] and row[0] not in PLACED])
def test_a_part_of_a_chunk_is_not_lost_among_whole_ones(converter: type[HistoryConverter], part: Any) -> None:
    with pytest.raises(HistoryError, match=r"chunks\[0\]: .* is a part of a chunk"):
        converter().message_from_chunks([part])


@pytest.mark.parametrize(("converter", "part", "text"), [row[:3] for row in PARTS if row[0] in PLACED])
def test_a_part_with_a_place_stands_for_its_chunk(converter: type[HistoryConverter], part: Any, text: str) -> None:
    message = converter().message_from_chunks([part])
    assert (message.text if message is not None else "") == text


@pytest.mark.parametrize("wrapped", [False, True], ids=["deltas", "choices"])
def test_the_deltas_of_a_stream_make_its_message(wrapped: bool) -> None:
    arguments: list[dict[str, Any]] = [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}},
        {"function": {"arguments": '{"a"'}},
        {"function": {"arguments": ":1}"}},
    ]
    deltas = [
        ChoiceDelta(role="assistant", content=""), ChoiceDelta(content="h"), ChoiceDelta(content="i"),
        *(ChoiceDelta.model_validate({"tool_calls": [{"index": 0, **call}]}) for call in arguments), ChoiceDelta(),
    ]  # fmt: skip
    chunks: list[Any] = [*deltas]
    if wrapped:
        chunks = [Choice(index=0, delta=delta, finish_reason=None) for delta in deltas]
        chunks.append(Choice(index=0, delta=ChoiceDelta(), finish_reason="tool_calls"))
    called = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    assert ChatConverter().provider_message_from_chunks(chunks) == {
        "role": "assistant",
        "content": [{"type": "text", "text": "hi"}],
        "tool_calls": [called],
    }


def test_an_error_chunk_raises_its_error() -> None:
    with pytest.raises(ms.ProviderError, match="boom"):
        GeminiConverter().wrap_chunk({"error": {"code": 503, "status": "UNAVAILABLE", "message": "boom"}})


# --- the provider's own messages ---

ANSWERS: dict[type[HistoryConverter], tuple[list[ms.JSONObject], list[ms.JSONObject]]] = {
    ChatConverter: (CHAT, [{"role": "assistant", "content": [{"type": "text", "text": "I look."}],
        "tool_calls": [{"id": "c1", "type": "function",
        "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
        {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}]}]),
    AnthropicConverter: (ANTHROPIC, [{"role": "assistant",
        "content": [{"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}},
        {"type": "tool_use", "id": "c2", "name": "weather", "input": {"city": "Rome"}}]}]),
    GeminiConverter: (GEMINI, [{"role": "model",
        "parts": [{"text": "I look."}, {"functionCall": {"id": "c1", "name": "weather", "args": {"city": "Oslo"}}},
        {"functionCall": {"id": "c2", "name": "weather", "args": {"city": "Rome"}}}]}]),
    ResponsesConverter: (RESPONSES, [{"type": "message", "role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Oslo"}'},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": '{"city":"Rome"}'}]),
}  # fmt: skip
each = pytest.mark.parametrize("converter", ANSWERS, ids=lambda kind: kind.__name__)


def subset(wire: ms.JSONObject, of: ms.JSONObject) -> bool:
    """Return whether every member of `of` is in `wire`, which may also have ids and state to send back."""
    return all(wire.get(name) == value for name, value in of.items())


@each
def test_an_answers_chunks_make_the_providers_own_message(converter: type[HistoryConverter]) -> None:
    chunks, expected = ANSWERS[converter]
    messages = converter().provider_messages_from_chunks(chunks)
    assert len(messages) == len(expected)
    assert all(map(subset, messages, expected)), messages
    assert converter().provider_messages_from_chunks([]) == []
    assert converter().provider_message_from_chunks([]) is None
    if converter is not ResponsesConverter:
        assert converter().provider_message_from_chunks(chunks) == messages[0]


def test_an_answer_of_several_items_is_not_one_message() -> None:
    with pytest.raises(HistoryError, match="make 3 of the provider's messages: use provider_messages_from_chunks"):
        ResponsesConverter().provider_message_from_chunks(RESPONSES)
    item = call_item("c1", "{}")
    done: ms.JSONObject = {"type": "response.output_item.done", "output_index": 0, "item": item}
    message = ResponsesConverter().provider_message_from_chunks([done])
    assert message["call_id"] == "c1"


@each
def test_results_make_the_providers_own_messages(converter: type[HistoryConverter]) -> None:
    results = [ToolResultPart(f"c{n}", "weather", ToolCallResult.ok("rain")) for n in (1, 2)]
    messages = converter().provider_messages_from_tool_results(results)
    assert len(messages) == (2 if converter in (ChatConverter, ResponsesConverter) else 1)
    assert repr(messages).index("c1") < repr(messages).index("c2")
    calls = HistoryMessage("model", [ToolCallPart(f"c{n}", "weather", {}) for n in (1, 2)])
    asked = converter().from_history(History(conversation=[calls]))
    assert converter().to_history([*asked, *messages]) == [calls, HistoryMessage("tool", [*results])]
    assert converter().provider_messages_from_tool_results([]) == []


def test_gemini_results_have_the_names_of_their_tools() -> None:
    result = ToolResultPart("c1", "weather", ToolCallResult.ok("rain"))
    (message,) = GeminiConverter().provider_messages_from_tool_results([result])
    assert message["parts"][0]["functionResponse"]["name"] == "weather"  # type: ignore[index, call-overload]


# --- list form ---


@each
def test_a_users_content_is_parts_unless_texts_are_asked_for(converter: type[HistoryConverter]) -> None:
    history = History(context="It is cold.", conversation=[HistoryMessage("user", "Hi")])
    context, user = converter().from_history(history)
    for message, text in ((context, "It is cold."), (user, "Hi")):
        parts = message.get("content") or message.get("parts")
        assert isinstance(parts, list)
        assert [part["text"] for part in parts if isinstance(part, dict)] == [text]
    texts = ChatConverter(content_lists=False)
    assert texts.encode_messages([ms.Message.user("Hi")]) == [{"role": "user", "content": "Hi"}]
    assert texts.from_history(History("s"))[0] == {"role": "system", "content": "s"}
