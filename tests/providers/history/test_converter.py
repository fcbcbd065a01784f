"""Each dialect's own messages ⇄ the common history: roles, system messages, round trips, chunks, and bad input."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Literal, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manystream as ms
from manystream.providers.anthropic.converter import AnthropicConverter
from manystream.providers.catalog.registry import dialect_of
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
    ToolOutput,
    ToolResultPart,
    UsagePart,
    messages_of,
)
from manystream.providers.history.converter import HistoryConverter
from manystream.providers.json.json_values import JSONObject
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter
from manystream.store import Row, message_from_row
from tests.providers.strategies import JSON_VALUES, NAMES

CONVERTERS = [ChatConverter, AnthropicConverter, GeminiConverter, ResponsesConverter, InteractionsConverter]
each = pytest.mark.parametrize("converter", CONVERTERS, ids=lambda kind: kind.__name__)

OSLO, ROME = ToolCallPart("c1", "weather", {"city": "Oslo"}), ToolCallPart("c2", "weather", {"city": "Rome"})
ROUND = [
    HistoryMessage("user", "What is it like?"),
    HistoryMessage("model", [TextPart("I look "), TextPart("twice."), OSLO, ROME]),
    HistoryMessage("tool", [ToolResultPart("c1", "weather", ToolCallResult.ok({"rain": 5}, "It rains.")),
        ToolResultPart("c2", "weather", ToolCallResult.error("no such city"))]),
    HistoryMessage("model", "Rain in Oslo."),
]  # fmt: skip


def written(converter: type[HistoryConverter], *items: HistoryMessage) -> list[JSONObject]:
    return converter().from_history(History(conversation=list(items)))


# --- the table ---


@each
def test_an_empty_history_is_no_messages(converter: type[HistoryConverter]) -> None:
    assert converter().from_history(History()) == []
    assert converter().to_history([]) == []
    assert converter().system_parameter(History()) is None


SYSTEM = {
    ChatConverter: ([{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}], None),
    AnthropicConverter: ([], "Be brief."), GeminiConverter: ([], {"parts": [{"text": "Be brief."}]}),
    ResponsesConverter: ([], "Be brief."), InteractionsConverter: ([], "Be brief."),
}  # fmt: skip


@each
def test_the_system_prompt_alone(converter: type[HistoryConverter]) -> None:
    history = History("Be brief.")
    assert (converter().from_history(history), converter().system_parameter(history)) == SYSTEM[converter]


def test_chats_system_message_is_read_as_one() -> None:
    wire: list[JSONObject] = [{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}]
    assert ChatConverter().to_history(wire) == [HistoryMessage("system", "a"), HistoryMessage("system", "b")]
    system: list[str] = []
    assert ChatConverter().decode_messages(wire, system) == []
    assert system == ["a", "b"]


USER = {
    ChatConverter: {"role": "user", "content": [{"type": "text", "text": "x"}]},
    AnthropicConverter: {"role": "user", "content": [{"type": "text", "text": "x"}]},
    GeminiConverter: {"role": "user", "parts": [{"text": "x"}]},
    ResponsesConverter: {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
    InteractionsConverter: {"type": "user_input", "content": [{"type": "text", "text": "x"}]},
}


@each
def test_context_and_user_are_user_messages_context_first(converter: type[HistoryConverter]) -> None:
    assert written(converter, HistoryMessage("user", "x")) == [USER[converter]]
    assert converter().from_history(History(context="x")) == [USER[converter]]
    wire = converter().from_history(History("s", "x", [HistoryMessage("user", "later")]))
    assert USER[converter] in wire[:2]
    assert converter().to_history([USER[converter]]) == [HistoryMessage("user", "x")]


MODEL = {
    ChatConverter: [
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "I look "}, {"type": "text", "text": "twice."}],
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
                {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}},
            ],
        }
    ],
    AnthropicConverter: [{"role": "assistant", "content": [{"type": "text", "text": "I look "},
        {"type": "text", "text": "twice."},
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}},
        {"type": "tool_use", "id": "c2", "name": "weather", "input": {"city": "Rome"}}]}],
    GeminiConverter: [{"role": "model",
        "parts": [{"text": "I look "}, {"text": "twice."},
        {"functionCall": {"name": "weather", "args": {"city": "Oslo"}, "id": "c1"}},
        {"functionCall": {"name": "weather", "args": {"city": "Rome"}, "id": "c2"}}]}],
    ResponsesConverter: [{"type": "message", "role": "assistant", "content": "I look "},
        {"type": "message", "role": "assistant", "content": "twice."},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Oslo"}'},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": '{"city":"Rome"}'}],
    InteractionsConverter: [{"type": "model_output", "content": [{"type": "text", "text": "I look "},
        {"type": "text", "text": "twice."}]},
        {"type": "function_call", "id": "c1", "name": "weather", "arguments": {"city": "Oslo"}},
        {"type": "function_call", "id": "c2", "name": "weather", "arguments": {"city": "Rome"}}],
}  # fmt: skip


@each
def test_the_models_texts_and_calls_keep_their_order(converter: type[HistoryConverter]) -> None:
    assert written(converter, ROUND[1]) == MODEL[converter]


RESULT_JSON = (
    '{"success":true,"output":{"type":"text","content":{"rain":5}}'
    ',"display_output":{"type":"text","content":"It rains."}}'
)
FAILED = '{"failure":true,"output":{"type":"text","content":"no such city"}}'
RESULTS = {
    ChatConverter: [{"role": "tool", "tool_call_id": "c1", "content": RESULT_JSON},
        {"role": "tool", "tool_call_id": "c2", "content": FAILED}],
    AnthropicConverter: [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1",
        "content": RESULT_JSON}, {"type": "tool_result", "tool_use_id": "c2", "content": FAILED, "is_error": True}]}],
    GeminiConverter: [{"role": "user",
        "parts": [{"functionResponse": {"name": "weather", "response": {"output": RESULT_JSON}, "id": "c1"}},
        {"functionResponse": {"name": "weather", "response": {"error": FAILED}, "id": "c2"}}]}],
    ResponsesConverter: [{"type": "function_call_output", "call_id": "c1", "output": RESULT_JSON},
        {"type": "function_call_output", "call_id": "c2", "output": FAILED}],
    InteractionsConverter: [{"type": "function_result", "call_id": "c1", "name": "weather", "result": RESULT_JSON},
        {"type": "function_result", "call_id": "c2", "name": "weather", "result": FAILED, "is_error": True}],
}  # fmt: skip


@each
def test_results_are_written_in_the_dialects_form(converter: type[HistoryConverter]) -> None:
    """Chat has one message per result. Anthropic and Gemini have one with all of them."""
    assert written(converter, ROUND[2]) == RESULTS[converter]


@each
def test_a_turn_with_text_calls_and_results_mixed_loses_nothing(converter: type[HistoryConverter]) -> None:
    mixed = HistoryMessage("model", [TextPart("a"), OSLO, ToolResultPart("c1", "weather", ToolCallResult.ok("rain"))])
    back = converter().to_history(written(converter, mixed))
    assert [part for item in back for part in item.parts] == mixed.parts


@each
def test_a_message_without_written_parts_writes_nothing(converter: type[HistoryConverter]) -> None:
    assert written(converter, HistoryMessage("user", []), HistoryMessage("model", [UsagePart(1, 2)])) == []


# --- round trips ---


@each
def test_a_history_survives_the_round_trip(converter: type[HistoryConverter]) -> None:
    assert converter().to_history(written(converter, *ROUND)) == ROUND


@each
def test_reading_reverses_writing(converter: type[HistoryConverter]) -> None:
    wire = written(converter, *ROUND)
    assert converter().from_history(History(conversation=converter().to_history(wire))) == wire


@each
@pytest.mark.parametrize("text", ['Zürich 東京 👩\u200d🚀\u2028\x00\\"', "long " * 100_000])
def test_unicode_and_very_long_text_survive(converter: type[HistoryConverter], text: str) -> None:
    items = [HistoryMessage("user", text), HistoryMessage("model", text)]
    assert converter().to_history(written(converter, *items)) == items


WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(str.strip)
OUTPUTS = st.none() | st.builds(ToolOutput, NAMES, WORDS | st.lists(JSON_VALUES, max_size=2))
RESULT_VALUES = st.builds(ToolCallResult.ok, OUTPUTS, OUTPUTS) | st.builds(ToolCallResult.error, OUTPUTS, OUTPUTS)


@st.composite
def histories(draw: st.DrawFn) -> list[HistoryMessage]:
    """Turns as agents make them: each call has its result, and no two adjacent messages have one role."""
    items: list[HistoryMessage] = []
    number = 0
    for _ in range(draw(st.integers(1, 3))):
        items.append(HistoryMessage("user", [TextPart(text) for text in draw(st.lists(WORDS, min_size=1, max_size=2))]))
        texts = [TextPart(text) for text in draw(st.lists(WORDS, max_size=2))]
        calls: list[ToolCallPart] = []
        for _ in range(draw(st.integers(0, 2))):
            number += 1
            arguments = draw(st.dictionaries(WORDS, JSON_VALUES, max_size=2))
            calls.append(ToolCallPart(f"call_{number}", draw(NAMES), arguments))
        if texts or calls:
            items.append(HistoryMessage("model", [*texts, *calls]))
        if calls:
            results = [ToolResultPart(call.id, call.name, draw(RESULT_VALUES)) for call in calls]
            items += [HistoryMessage("tool", results), HistoryMessage("model", "Done.")]
    return items


@each
@settings(max_examples=40)
@given(histories())
def test_any_history_survives_the_round_trip(converter: type[HistoryConverter], items: list[HistoryMessage]) -> None:
    assert converter().to_history(written(converter, *items)) == items


STATES: dict[type[HistoryConverter], ms.Message] = {
    AnthropicConverter: ms.Message.assistant([ms.Thinking("hm", "sig"), ms.RedactedThinking("xyz"), ms.Text("I look."),
        ms.ToolCall("c", "f", '{"a": 1}')]),
    GeminiConverter: ms.Message.assistant([ms.Thinking("hm", None, ms.ProviderState("google", {"thought": True})),
        ms.Text("I look."), ms.ToolCall("c", "f", "{}",
        state=ms.ProviderState("google", {"id": "c", "thoughtSignature": "sig"}))]),
    ResponsesConverter: ms.Message.assistant([ms.Thinking("",
        state=ms.ProviderState("openai-responses", {"summary": [], "id": "rs_1", "encrypted_content": "e"})),
        ms.Text("I look.", state=ms.ProviderState("openai-responses", {"phase": "commentary"})),
        ms.ToolCall("c", "f", "{}")]),
    InteractionsConverter: ms.Message.assistant([ms.Thinking("hm", "sig", ms.ProviderState("google-interactions", {})),
        ms.Text("I look."), ms.ToolCall("c", "f", "{}", state=ms.ProviderState("google-interactions",
        {"signature": "sig"})), ms.ProviderBlock("google-interactions", {"type": "google_search_call", "id": "s"})]),
}  # fmt: skip


@pytest.mark.parametrize("converter", STATES, ids=lambda kind: kind.__name__)
def test_signatures_and_reasoning_survive_in_their_dialect(converter: type[HistoryConverter]) -> None:
    wire = converter().encode_messages([STATES[converter]])
    assert converter().decode_messages(wire) == [STATES[converter]]
    assert isinstance(converter().to_history(wire)[0].parts[0], OtherPart)


@each
def test_another_providers_signatures_are_not_written(converter: type[HistoryConverter]) -> None:
    foreign = ms.Message.assistant(
        [
            ms.Thinking("secret thought", "foreign-signature", ms.ProviderState("elsewhere", {"x": "foreign-state"})),
            ms.Text("a", state=ms.ProviderState("elsewhere", {"x": "foreign-state"})),
            ms.ToolCall("c", "f", "{}", state=ms.ProviderState("elsewhere", {"x": "foreign-state"})),
            ms.ProviderBlock("elsewhere", {"type": "foreign-block"}),
        ]
    )
    written = repr(converter().encode_messages([foreign]))
    assert "foreign" not in written
    assert "secret thought" not in written


IMAGES = [
    ms.Message.user([ms.Text("see"), ms.Image(data=b"\x01", media_type="image/png")]),
    ms.Message.user(ms.Image(url="https://host/a.png")),
    ms.Message.user(ms.File(data=b"%PDF", media_type="application/pdf", name="a.pdf")),
]


@each
def test_images_and_files_are_read_as_they_were_written(converter: type[HistoryConverter]) -> None:
    for message in IMAGES:
        (back,) = converter().decode_messages(converter().encode_messages([message]))
        for found, given_block in zip(back.content, message.content, strict=True):
            for name in ("text", "data", "url"):
                assert getattr(found, name, None) == getattr(given_block, name, None)


# --- bad input ---


@each
def test_malformed_arguments_are_not_lost(converter: type[HistoryConverter]) -> None:
    item = HistoryMessage("model", [ToolCallPart("c", "f", {}, malformed='{"a": ')])
    wire = written(converter, item)
    assert '{"a": ' in repr(wire)
    if converter not in (GeminiConverter, InteractionsConverter):  # there, they are the text of an argument
        assert converter().to_history(wire) == [item]


UNPARSABLE = {
    ChatConverter: {"role": "tool", "tool_call_id": "c", "content": "sunny"},
    AnthropicConverter: {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "sunny"}]},
    GeminiConverter: {"role": "user", "parts": [{"functionResponse": {"id": "c", "name": "f",
        "response": {"output": "sunny"}}}]},
    ResponsesConverter: {"type": "function_call_output", "call_id": "c", "output": "sunny"},
    InteractionsConverter: {"type": "function_result", "call_id": "c", "name": "f", "result": "sunny"},
}  # fmt: skip


@each
def test_a_plain_result_is_a_success_that_holds_its_text(converter: type[HistoryConverter]) -> None:
    (item,) = converter().to_history([UNPARSABLE[converter]])
    (part,) = item.parts
    assert isinstance(part, ToolResultPart)
    assert part.result == ToolCallResult(success=True, output=ToolOutput("text", "sunny"))
    assert part.name == ("f" if converter in (GeminiConverter, InteractionsConverter) else "unknown")


@pytest.mark.parametrize(
    ("converter", "wire", "text"),
    [
        (
            AnthropicConverter,
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": "no such city", "is_error": True}
            ]},
            "no such city",
        ),
        (
            AnthropicConverter,
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": '{"success":true}', "is_error": True}
            ]},
            '{"success":true}',
        ),
        (
            GeminiConverter,
            {"role": "user", "parts": [
                {"functionResponse": {"id": "c", "name": "f", "response": {"error": "no such city"}}}
            ]},
            "no such city",
        ),
        (
            InteractionsConverter,
            {"type": "function_result", "call_id": "c", "result": "no such city", "is_error": True},
            "no such city",
        ),
    ],
)  # fmt: skip
def test_a_result_marked_an_error_is_a_failure(converter: type[HistoryConverter], wire: JSONObject, text: str) -> None:
    (item,) = converter().to_history([wire])
    (part,) = item.parts
    assert isinstance(part, ToolResultPart)
    assert part.result == ToolCallResult(failure=True, output=ToolOutput("text", text))


@pytest.mark.parametrize("text", ['{"temperature":21}', "[1,2]", "21", '{"success":false}', ""])
def test_a_result_that_is_json_of_another_form_is_a_success(text: str) -> None:
    (item,) = ChatConverter().to_history([{"role": "tool", "tool_call_id": "c", "content": text}])
    (part,) = item.parts
    assert isinstance(part, ToolResultPart)
    assert part.result == ToolCallResult(success=True, output=ToolOutput("text", text))


@each
def test_a_plain_result_is_unchanged_as_a_message(converter: type[HistoryConverter]) -> None:
    assert converter().decode_messages([UNPARSABLE[converter]]) == [ms.Message.tool_result("c", "sunny")]


@pytest.mark.parametrize(
    ("converter", "kind"), [(ChatConverter, "text"), (AnthropicConverter, "text"), (ResponsesConverter, "input_text")]
)
@pytest.mark.parametrize("absent", [{}, {"text": None}], ids=["no text", "null"])
def test_a_part_without_text_is_an_empty_one(converter: type[HistoryConverter], kind: str, absent: JSONObject) -> None:
    wire: JSONObject = {"role": "user", "content": [{"type": kind, **absent}]}
    assert converter().decode_messages([wire]) == [ms.Message.user([ms.Text("")])]


REFUSED: list[tuple[type[HistoryConverter], JSONObject, str]] = [
    (ChatConverter, {"role": "robot", "content": "x"}, r"messages\[0\].role: unknown role 'robot'"),
    (ChatConverter, {"role": "user", "content": [{"type": "smell"}]}, r"messages\[0\].content\[0\].type: unknown part"),
    (ChatConverter, {"role": "user", "content": 5}, "must be text or a list of parts"),
    (ChatConverter, {"role": "assistant", "tool_calls": "x"}, "tool_calls is no array"),
    (ChatConverter, {"role": "assistant", "tool_calls": [{"id": "c"}]}, "never got a name"),
    (AnthropicConverter, {"role": "robot", "content": "x"}, r"messages\[0\].role: unknown role 'robot'"),
    (AnthropicConverter, {"role": "system", "content": [{"type": "image"}]}, "unknown block 'image' in a system"),
    (AnthropicConverter, {"role": "system", "content": None}, "must be text or a list of blocks"),
    (AnthropicConverter, {"role": "user", "content": [{"type": "smell"}]}, r"content\[0\].type: unknown block 'smell'"),
    (AnthropicConverter, {"role": "assistant", "content": [{"type": "smell"}]}, "unknown block 'smell'"),
    (AnthropicConverter, {"role": "user", "content": 5}, "must be text or a list of blocks"),
    (AnthropicConverter, {"role": "user", "content": [{"type": "image", "source": {}}]}, "source: cannot be read"),
    (GeminiConverter, {"role": "robot", "parts": []}, r"contents\[0\].role: unknown role 'robot'"),
    (GeminiConverter, {"role": "model", "parts": [{"smell": 1}]}, r"parts\[0\]: unknown part 'smell'"),
    (ResponsesConverter, {"role": "robot", "content": "x"}, r"input\[0\].role: unknown role 'robot'"),
    (ResponsesConverter, {"type": "smell"}, r"input\[0\].type: unknown item 'smell'"),
    (ResponsesConverter, {"role": "user", "content": [{"type": "smell"}]}, "unknown part 'smell'"),
    (InteractionsConverter, {"type": "smell"}, r"input\[0\].type: unknown step 'smell'"),
    (InteractionsConverter, {"type": "user_input", "content": [{"type": "smell"}]}, "unknown content 'smell'"),
    (InteractionsConverter, {"type": "user_input", "content": 5}, r"input\[0\]: content is no array"),
    (InteractionsConverter, {"type": "model_output", "content": 5}, r"input\[0\]: content is no array"),
    (InteractionsConverter, {"type": "function_result", "result": [{"type": "image"}]}, "neither bytes nor a URL"),
]


@pytest.mark.parametrize(("converter", "wire", "complaint"), REFUSED)
def test_an_unknown_role_or_part_is_named(converter: type[HistoryConverter], wire: JSONObject, complaint: str) -> None:
    with pytest.raises(HistoryError, match=complaint):
        converter().to_history([wire])


@each
def test_a_value_that_is_no_object_is_an_error_naming_its_place(converter: type[HistoryConverter]) -> None:
    with pytest.raises(HistoryError, match=r"messages\[1\]: must be an object, not str"):
        converter().to_history([USER[converter], "x"])  # type: ignore[list-item]


# --- results ---


@each
def test_a_message_is_made_of_tool_results(converter: type[HistoryConverter]) -> None:
    results = [part for part in ROUND[2].parts if isinstance(part, ToolResultPart)]
    assert converter().message_from_tool_results(results) == ROUND[2]
    assert converter().message_from_tool_results([]) is None
    with pytest.raises(ms.InvalidRequestError, match=r"^results\[0\]: must be a ToolResultPart, not str$"):
        converter().message_from_tool_results(["x"])  # type: ignore[list-item]


def test_gemini_results_without_ids_answer_the_first_open_call() -> None:
    wire: list[JSONObject] = [
        {"role": "model", "parts": [{"functionCall": {"name": name, "args": {}}} for name in ("f", "g", "f")]},
        {"role": "user", "parts": [{"functionResponse": {"name": name, "response": {"x": n}}} for n,
        name in enumerate("gff")]},
    ]  # fmt: skip
    asked, answered = GeminiConverter().decode_messages(wire)
    ids = [call.id for call in asked.tool_calls]
    assert answered.content == [
        ms.ToolResult(ids[1], '{"x":0}'),
        ms.ToolResult(ids[0], '{"x":1}'),
        ms.ToolResult(ids[2], '{"x":2}'),
    ]


@pytest.mark.parametrize(
    ("mark", "expected"), [({}, None), ({"ttl": None}, None), ({"ttl": "5m"}, "5m"), ({"ttl": "1h"}, "1h")]
)
def test_an_anthropic_cache_mark_is_read_with_lifetime(mark: JSONObject, expected: Literal["5m", "1h"] | None) -> None:
    block: JSONObject = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", **mark}}
    (message,) = AnthropicConverter().decode_messages([{"role": "user", "content": [block]}])
    assert message.content == [ms.Text("hi", cache_control=ms.CacheControl(expected))]


def test_a_cache_mark_with_another_lifetime_is_refused() -> None:
    block: JSONObject = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "9m"}}
    with pytest.raises(HistoryError, match=r"cache_control\.ttl: must be '5m' or '1h', not '9m'"):
        AnthropicConverter().decode_messages([{"role": "user", "content": [block]}])


LATE: list[JSONObject] = [
    {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
    {"role": "system", "content": "Now be long."}, {"role": "user", "content": "Go on"},
]  # fmt: skip
SAID = [ms.Message.user("Hi"), ms.Message.system("Now be long."), ms.Message.user("Go on")]
LAST = [ms.Message.user("Hi"), ms.Message.assistant("Yes?"), ms.Message.user("Go on"), ms.Message.system("Be long.")]
PROVIDERS: dict[str, ms.Provider] = {
    "chat": ms.OpenAIChat("k"), "responses": ms.OpenAIResponses("k"), "anthropic": ms.Anthropic("k"),
    "gemini": ms.Gemini("k"),
}  # fmt: skip


def sent(request: ms.Request, provider: ms.Provider) -> tuple[dict[str, Any], list[str]]:
    """Return the body of a request, and the warnings."""
    wire = dialect_of(provider.profile).encode(request, request.model, provider, stream=False)
    return json.loads(wire.body), wire.warnings


def conversation(request: ms.Request, dialect: str) -> list[tuple[str, str]]:
    """Return role and text of each message that is sent."""
    body, _ = sent(request, PROVIDERS[dialect])
    messages: list[dict[str, Any]] = body.get("messages") or body["input"]
    return [(message["role"], text_of(message["content"])) for message in messages]


def text_of(content: Any) -> str:
    """Return the text of a message's content."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


# --- converters ---


@pytest.mark.parametrize("converter", [ChatConverter, ResponsesConverter, AnthropicConverter])
def test_decoding_loses_no_system_message(converter: type[HistoryConverter]) -> None:
    system: list[str] = []
    assert converter().decode_messages(LATE, system) == SAID
    assert system == ["Be brief."]
    assert converter().decode_messages(LATE) == [ms.Message.system("Be brief."), *SAID]
    again = converter().encode_messages(SAID)
    assert [message["role"] for message in again] == ["user", "system", "user"]
    assert converter().decode_messages(again) == SAID


TURNS = [
    HistoryMessage("system", "Be brief."), HistoryMessage("user", "Hi"), HistoryMessage("system", "Now be long."),
    HistoryMessage("user", "Go on"),
]  # fmt: skip


@pytest.mark.parametrize("converter", [ChatConverter, ResponsesConverter, AnthropicConverter])
def test_a_later_system_message_keeps_its_position(converter: type[HistoryConverter]) -> None:
    history = History("Be kind.", "It is cold.", TURNS)
    back = converter().to_history(converter().from_history(history))
    assert [(item.role.value, item.text) for item in back][-4:] == [
        ("user", "It is cold."), ("user", "Hi"), ("system", "Now be long."), ("user", "Go on"),
    ]  # fmt: skip
    first = converter().system_parameter(history) or [item.text for item in back[:-4]]
    assert first in ("Be kind.\n\nBe brief.", ["Be kind.", "Be brief."])


def test_a_later_system_message_is_refused_if_unsupported() -> None:
    with pytest.raises(HistoryError, match=r"turns\[1\]: a system message after the first turn"):
        GeminiConverter().from_history(History(conversation=TURNS))
    with pytest.raises(ms.InvalidRequestError, match=r"messages\[1\].role: a system message after the first turn"):
        GeminiConverter().encode_messages(SAID)
    history = History(conversation=TURNS[:2])
    assert GeminiConverter().from_history(history) == [{"role": "user", "parts": [{"text": "Hi"}]}]


def test_messages_of_a_history_have_a_later_system_message() -> None:
    assert messages_of(History(conversation=TURNS)) == SAID


@pytest.mark.parametrize("wire", [{"type": "error", "message": "No."}, {"type": "keepalive"}])
def test_events_without_content_are_chunks(wire: JSONObject) -> None:
    converter = ResponsesConverter()
    if wire["type"] == "error":
        with pytest.raises(ms.ProviderError, match=r"No\."):
            converter.wrap_chunk(wire)
    else:
        assert converter.wrap_chunk(wire).get_text() == ""


# --- requests ---


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_a_system_message_in_the_middle_is_sent(dialect: str) -> None:
    request = ms.Request("m", LAST, system="Be kind.")
    expected = [("user", "Hi"), ("assistant", "Yes?"), ("user", "Go on"), ("system", "Be long.")]
    assert conversation(request, dialect)[-4:] == expected


def test_gemini_refuses_a_system_message_in_the_middle() -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"messages\[3\].role: Gemini has no system message after"):
        sent(ms.Request("m", LAST), PROVIDERS["gemini"])


@pytest.mark.parametrize("dialect", [*PROVIDERS])
def test_leading_system_messages_are_the_system_prompt(dialect: str) -> None:
    messages = [ms.Message.system("Be kind."), ms.Message.system("Be brief."), ms.Message.user("Hi")]
    request = ms.Request("m", messages)
    assert request == ms.Request("m", messages[2:], system="Be kind.\n\nBe brief.")
    assert sent(request, PROVIDERS[dialect]) == sent(
        ms.Request("m", "Hi", system="Be kind.\n\nBe brief."), PROVIDERS[dialect]
    )
    with pytest.raises(ms.InvalidRequestError, match=r"messages\[0\]: is a system prompt"):
        ms.Request("m", messages, system="Be loud.")


ASKED = [ms.Message.user("a"), ms.Message.tool_call("c", "f", "{}")]
RESULT = ms.Message.tool_result("c", "1")
NOW = ms.Message.system("now")


@pytest.mark.parametrize(
    ("messages", "roles", "moved"),
    [
        ([*ASKED, RESULT, NOW], ["user", "assistant", "user", "system"], False),
        ([*ASKED, NOW, RESULT], ["user", "assistant", "user", "system"], False),
        ([*ASKED, RESULT, NOW, NOW, ms.Message.assistant("b")], ["user", "assistant", "user", "system", "assistant"],
            0),
        ([ms.Message.user("a"), NOW, ms.Message.user("b")], ["user", "system"], True),
        ([ms.Message.user("a"), ms.Message.assistant("b"), NOW, ms.Message.user("c")],
            ["user", "assistant", "user", "system"], True),
        ([ms.Message.user("a"), ms.Message.assistant("b"), NOW], ["user", "assistant", "system"], False),
        ([ms.Message.user("a"), ms.Message.system(" "), ms.Message.user("b")], ["user"], False),
    ],
)  # fmt: skip
def test_anthropic_gets_system_after_the_user_s(messages: list[ms.Message], roles: list[str], moved: bool) -> None:
    body, warnings = sent(ms.Request("m", messages), PROVIDERS["anthropic"])
    assert [message["role"] for message in body["messages"]] == roles
    assert any("a system message before the user's is sent after it" in warning for warning in warnings) is bool(moved)


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_a_long_conversation_writes_system_from_its_cache(dialect: str) -> None:
    growing = ms.Conversation()
    for turn in range(12):
        growing.extend([ms.Message.user(f"{turn}"), ms.Message.system(f"rule {turn}"), *ASKED[1:], RESULT])
        cached = sent(growing.request("m"), PROVIDERS[dialect])
        assert cached == sent(ms.Request("m", growing.messages), PROVIDERS[dialect])


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        (ms.ToolCall("c", "f", "{}"), "a system message cannot hold a ToolCall block"),
        (ms.Thinking("a"), "a system message cannot hold a Thinking block"),
    ],
)
def test_a_system_message_holds_no_calls(block: Any, complaint: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=complaint):
        sent(ms.Request("m", [ms.Message.user("a"), ms.Message.system(block)]), PROVIDERS["chat"])


def test_anthropic_takes_only_text_in_a_system_message() -> None:
    request = ms.Request("m", [ms.Message.user("a"), ms.Message.system(ms.Image(url="https://a.example/a.png"))])
    with pytest.raises(ms.InvalidRequestError, match=r"messages\[1\].content\[0\]: Anthropic takes only text"):
        sent(request, PROVIDERS["anthropic"])
    assert sent(request, PROVIDERS["responses"])[0]["input"][1]["role"] == "system"


# --- the SDKs' own forms ---

DEVELOPER: list[Any] = [*LATE[1:2], {"role": "developer", "content": "Now be long."}, *LATE[3:]]


def test_a_developer_s_message_keeps_its_role_at_its_own() -> None:
    request = ms.Request("m", DEVELOPER)
    assert [role for role, _ in conversation(request, "chat")] == ["user", "developer", "user"]
    assert [role for role, _ in conversation(request, "responses")] == ["user", "system", "user"]
    assert [role for role, _ in conversation(request, "anthropic")] == ["user", "system"]
    items = ms.Request.from_openai_responses(model="m", input=DEVELOPER)
    again = dataclasses.replace(items, messages=[*items.messages, ms.Message.user("More")])
    assert [role for role, _ in conversation(again, "responses")] == ["user", "developer", "user", "user"]


ANTHROPIC_SYSTEM: list[Any] = [
    {"role": "system", "content": "now"},
    {"role": "system", "content": [{"type": "text", "text": "now", "cache_control": {"type": "ephemeral"}}]},
    {"role": "system", "content": "now", "clear_at": "next_user_message"},
    {"role": "system", "output_config": {"effort": "low"}},
    {"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}]},
    {"role": "system", "content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}}],
        "output_config": {"effort": "low"}},
]  # fmt: skip


@pytest.mark.parametrize("late", ANTHROPIC_SYSTEM)
def test_anthropic_s_own_system_message_is_sent_as_given(late: Any) -> None:
    messages: list[Any] = [{"role": "user", "content": "a"}, late]
    request = ms.Request.from_anthropic(model="claude-opus-4-8", max_tokens=9, messages=messages)
    body, warnings = sent(request, PROVIDERS["anthropic"])
    assert (body["messages"], warnings) == (messages, [])
    rewritten = dataclasses.replace(request, messages=[ms.Message.user("b"), *request.messages])
    body, warnings = sent(rewritten, PROVIDERS["anthropic"])
    assert ({"content": [], **late}, warnings) == (body["messages"][-1], [])


def test_a_leading_system_message_is_anthropic_s_parameter() -> None:
    request = ms.Request.from_anthropic(model="m", max_tokens=9, messages=LATE[:2])
    body, _ = sent(request, PROVIDERS["anthropic"])
    assert (body["system"], body["messages"]) == ("Be brief.", LATE[1:2])
    both = ms.Request.from_anthropic(model="m", max_tokens=9, system="Be kind.", messages=LATE[:2])
    assert both.system == "Be kind.\n\nBe brief."


def test_a_system_prompt_in_responses_input_survives_messages() -> None:
    request = ms.Request.from_openai_responses(model="m", input=cast("Any", LATE[:2]))
    body, _ = sent(dataclasses.replace(request, messages=[ms.Message.user("b")]), PROVIDERS["responses"])
    assert body["instructions"] == "Be brief."


SEARCH: JSONObject = {
    "type": "search_result", "source": "https://a.example", "title": "Rivers",
    "content": [{"type": "text", "text": "The Rhine is long."}], "citations": {"enabled": True},
}  # fmt: skip


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_a_turn_of_search_results_is_text_for_other_dialects(dialect: str) -> None:
    messages: list[Any] = [{"role": "user", "content": [SEARCH, SEARCH]}]
    request = ms.Request.from_anthropic(model="m", max_tokens=9, messages=messages)
    assert sent(request, PROVIDERS["anthropic"])[0]["messages"] == messages
    text = "Rivers\nhttps://a.example\n\nThe Rhine is long."
    assert conversation(request, dialect) == [("user", text + text)]
    parts = sent(request, PROVIDERS["gemini"])[0]["contents"][0]["parts"]
    assert parts == [{"text": text}, {"text": text}]


def test_a_search_result_is_written_again_in_its_own_form() -> None:
    messages: list[Any] = [{"role": "user", "content": [SEARCH]}]
    request = ms.Request.from_anthropic(model="m", max_tokens=9, messages=messages)
    rewritten = dataclasses.replace(request, messages=[*request.messages, ms.Message.assistant("b")])
    assert sent(rewritten, PROVIDERS["anthropic"])[0]["messages"][0] == messages[0]
    assert AnthropicConverter().encode_messages(list(request.messages)) == messages


# --- rows ---


def test_a_system_message_is_kept_in_rows() -> None:
    two = ms.Message.system([ms.Text("a"), ms.Text("b")])
    said = ms.Conversation([ms.Message.system("first"), ms.Message.user("Hi"), two, ms.Message.user("Go on")])
    rows = said.rows()
    assert [row.kind for row in rows] == ["system", "user", "system", "system", "user"]
    assert ms.Conversation.from_rows(rows) == said
    assert message_from_row(rows[0]) == ms.Message.system("first")


def test_a_system_row_without_a_role_is_the_prompt_when_first() -> None:
    rows = [Row(kind, text) for kind, text in (("system", "s"), ("user", "a"), ("system", "t"), ("system", None))]
    assert message_from_row(rows[0]) is None
    assert ms.Conversation.from_rows(rows).messages == [ms.Message.user("a"), ms.Message.system("t")]
