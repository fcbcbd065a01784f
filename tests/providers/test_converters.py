"""Each dialect's own messages ⇄ the common history: the table of roles, round trips, chunks, and bad input."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manystream as ms
from manystream.providers.anthropic.converter import AnthropicConverter
from manystream.providers.gemini.converter import GeminiConverter
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
)
from manystream.providers.history.converter import HistoryConverter
from manystream.providers.json.json_values import JSONObject
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter

from .strategies import JSON_VALUES, NAMES

CONVERTERS = [ChatConverter, AnthropicConverter, GeminiConverter, ResponsesConverter]
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
    AnthropicConverter: ([], "Be brief."),
    GeminiConverter: ([], {"parts": [{"text": "Be brief."}]}),
    ResponsesConverter: ([], "Be brief."),
}


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
    if converter is not GeminiConverter:  # there, they are the text of an argument
        assert converter().to_history(wire) == [item]


UNPARSABLE = {
    ChatConverter: {"role": "tool", "tool_call_id": "c", "content": "sunny"},
    AnthropicConverter: {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "sunny"}]},
    GeminiConverter: {"role": "user", "parts": [{"functionResponse": {"id": "c", "name": "f",
        "response": {"output": "sunny"}}}]},
    ResponsesConverter: {"type": "function_call_output", "call_id": "c", "output": "sunny"},
}  # fmt: skip


@each
def test_a_plain_result_is_a_success_that_holds_its_text(converter: type[HistoryConverter]) -> None:
    (item,) = converter().to_history([UNPARSABLE[converter]])
    (part,) = item.parts
    assert isinstance(part, ToolResultPart)
    assert part.result == ToolCallResult(success=True, output=ToolOutput("text", "sunny"))
    assert part.name == ("f" if converter is GeminiConverter else "unknown")


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
    ],
)  # fmt: skip
def test_a_plain_result_marked_as_an_error_is_a_failure(
    converter: type[HistoryConverter], wire: JSONObject, text: str
) -> None:
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
def test_a_part_without_a_text_is_an_empty_one(
    converter: type[HistoryConverter], kind: str, absent: JSONObject
) -> None:
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
]


@pytest.mark.parametrize(("converter", "wire", "complaint"), REFUSED)
def test_an_unknown_role_or_part_is_a_clear_error(
    converter: type[HistoryConverter], wire: JSONObject, complaint: str
) -> None:
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
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": name, "response": {"x": n}}} for n, name in enumerate("gff")],
        },
    ]
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
def test_a_cache_mark_of_anthropics_is_read_with_its_lifetime(
    mark: JSONObject, expected: Literal["5m", "1h"] | None
) -> None:
    block: JSONObject = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", **mark}}
    (message,) = AnthropicConverter().decode_messages([{"role": "user", "content": [block]}])
    assert message.content == [ms.Text("hi", cache_control=ms.CacheControl(expected))]


def test_a_cache_mark_with_another_lifetime_is_refused() -> None:
    block: JSONObject = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "9m"}}
    with pytest.raises(HistoryError, match=r"cache_control\.ttl: must be '5m' or '1h', not '9m'"):
        AnthropicConverter().decode_messages([{"role": "user", "content": [block]}])
