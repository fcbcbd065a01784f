"""OpenAI's older flat form: one row per block, and the same bytes as the Chat dialect."""

from __future__ import annotations

import json

import pytest

import manystream as ms
from manystream.providers.convert.rows import RowError
from manystream.providers.openai.chat import DIALECT
from manystream.providers.openai.legacy import (
    LegacyConversation,
    LegacyRequest,
    LegacyRow,
    build_conversation,
    serialize,
    transform_message,
    transform_request,
)


def triples(rows: list[LegacyRow]) -> list[tuple[str, str | None, object]]:
    return [(row.kind, row.content, None if row.data_json is None else json.loads(row.data_json)) for row in rows]


def sent_natively(request: ms.Request, *, stream: bool = False) -> bytes:
    return DIALECT.encode(request, request.model, ms.OpenAIChat(), stream=stream).body


ROUND = [
    ms.Message.user("What is it like in Oslo and Rome?"),
    ms.Message.assistant(
        [ms.Text("I look."), ms.ToolCall("a", "weather", '{"city":"Oslo"}'), ms.ToolCall("b", "w", "")]
    ),
    ms.Message("tool", [ms.ToolResult("a", "rain"), ms.ToolResult("b", "no such tool", is_error=True)]),
    ms.Message.assistant("Rain in Oslo."),
    ms.Message.user([ms.Text("And "), ms.Text("tomorrow?")]),
]


@pytest.mark.parametrize(("message", "row"), [
    (ms.Message.user("hello"), ("user", "hello", None)),
    (ms.Message.assistant("hi"), ("assistant", "hi", None)),
    (
        ms.Message.tool_call("c1", "add", '{"a": 1}'),
        ("tool_call", None, {"id": "c1", "type": "function", "name": "add", "arguments": '{"a": 1}'}),
    ),
    (
        ms.Message.tool_result("c1", "2"),
        ("tool_result", None, {"tool_call_id": "c1", "name": "", "output": "2", "success": True}),
    ),
    (
        ms.Message.tool_result("c1", "boom", is_error=True),
        ("tool_result", None, {"tool_call_id": "c1", "name": "", "output": "boom", "success": False}),
    ),
])  # fmt: skip
def test_each_block_has_its_row(message: ms.Message, row: tuple[str, str | None, object]) -> None:
    assert triples(transform_message(message)) == [row]


def test_a_results_tool_name_is_found_in_earlier_messages() -> None:
    rows = triples(transform_message(ROUND[2], ROUND[:2]))
    assert [(data["tool_call_id"], data["name"]) for _, _, data in rows if isinstance(data, dict)] == [
        ("a", "weather"),
        ("b", "w"),
    ]


def test_several_blocks_are_kept_in_order() -> None:
    assert [row[0] for row in triples(transform_message(ROUND[1]))] == ["assistant", "tool_call", "tool_call"]
    assert [row[1] for row in triples(transform_message(ROUND[4]))] == ["And ", "tomorrow?"]


def test_the_system_prompt_is_the_first_row() -> None:
    request = ms.Request("m", ROUND, system=[ms.Text("Be brief."), ms.Text("Be kind.")])
    assert triples(build_conversation(request).rows)[0] == ("system", "Be brief.\n\nBe kind.", None)


def test_no_system_prompt_gives_no_system_row() -> None:
    assert build_conversation(ms.Request("m", ROUND)).rows[0].kind == "user"


def test_a_results_name_is_found_from_the_call_with_its_id() -> None:
    rows = build_conversation(ms.Request("m", ROUND)).rows
    results = [json.loads(row.data_json or "") for row in rows if row.kind == "tool_result"]
    assert [(result["tool_call_id"], result["name"]) for result in results] == [("a", "weather"), ("b", "w")]


def test_a_result_for_an_unknown_call_is_refused_by_its_place() -> None:
    request = ms.Request("m", [ms.Message.user("x"), ms.Message.tool_result("nobody", "1")])
    with pytest.raises(ms.InvalidRequestError, match=r"messages\[1\].content\[0\].tool_call_id: no earlier call"):
        build_conversation(request)


def test_no_messages_are_refused() -> None:
    with pytest.raises(ms.InvalidRequestError, match="messages: must hold at least one"):
        build_conversation(ms.Request("m", []))
    with pytest.raises(ms.InvalidRequestError, match="messages"):
        transform_request(ms.Request("m", []))


WITHOUT_ROW = [
    ms.Message.assistant(ms.Thinking("hm")),
    ms.Message.assistant(ms.RedactedThinking("xyz")),
    ms.Message.user(ms.Image(url="https://host/a.png")),
    ms.Message.user(ms.File(file_id="f")),
    ms.Message.assistant(ms.ProviderBlock("anthropic", {"type": "server_tool_use"})),
]


@pytest.mark.parametrize("message", WITHOUT_ROW, ids=lambda message: type(message.content[0]).__name__)
def test_a_block_that_has_no_row_is_refused_by_name(message: ms.Message) -> None:
    with pytest.raises(ms.InvalidRequestError, match=f"no row for a {type(message.content[0]).__name__} block"):
        transform_request(ms.Request("m", [ms.Message.user("x"), message]))


def test_a_result_that_is_no_text_is_refused_by_name() -> None:
    messages = [ms.Message.tool_call("c", "shot", "{}"), ms.Message.tool_result("c", [ms.Image(url="https://h/i.png")])]
    with pytest.raises(ms.InvalidRequestError, match=r"messages\[1\].content\[0\].content\[0\].*Image"):
        transform_request(ms.Request("m", messages))


def test_the_temperature_is_0_7_unless_the_request_sets_one() -> None:
    assert transform_request(ms.Request("m", ROUND)).temperature == 0.7
    assert transform_request(ms.Request("m", ROUND, temperature=0.0)).temperature == 0.0


def test_limits_stream_and_model_are_carried() -> None:
    legacy = transform_request(ms.Request("gpt-4.1", ROUND, max_output_tokens=99), stream=True)
    assert (legacy.model, legacy.max_completion_tokens, legacy.stream) == ("gpt-4.1", 99, True)
    assert transform_request(ms.Request("m", ROUND)).max_completion_tokens is None


@pytest.mark.parametrize(
    ("level", "model"), [("none", "gpt-4.1"), ("low", "o3-mini"), ("med", "o4-mini"), ("high", "o3")]
)
def test_the_thinking_level_selects_the_model(level: str, model: str) -> None:
    assert transform_request(ms.Request("gpt-4.1", ROUND, thinking=ms.ThinkingLevel(level))).model == model


def test_the_models_of_the_levels_can_be_overridden() -> None:
    request = ms.Request("gpt-4.1", ROUND, thinking=ms.ThinkingLevel.HIGH)
    assert transform_request(request, thinking_models={ms.ThinkingLevel.HIGH: "mine"}).model == "mine"
    assert transform_request(request, thinking_models={}).model == "gpt-4.1"


def test_a_budget_cannot_select_a_model() -> None:
    with pytest.raises(ms.InvalidRequestError, match="thinking"):
        transform_request(ms.Request("m", ROUND, thinking=ms.ThinkingConfig(budget_tokens=100)))


def test_options_without_a_place_are_named_in_warnings() -> None:
    legacy = transform_request(ms.Request("m", ROUND, tools=[ms.Tool("weather")], seed=1, stop=["x"]))
    assert [warning.split(":")[0] for warning in legacy.warnings] == ["tools", "stop", "seed"]


@pytest.mark.parametrize("stream", [False, True])
def test_the_bytes_equal_what_the_chat_dialect_sends(stream: bool) -> None:
    request = ms.Request(
        "gpt-4.1", ROUND, system=[ms.Text("Be brief."), ms.Text("Be kind.")], temperature=0.2, max_output_tokens=50
    )
    assert serialize(transform_request(request, stream=stream)) == sent_natively(request, stream=stream)


def test_malformed_arguments_are_unchanged() -> None:
    messages = [ms.Message.user("x"), ms.Message.tool_call("c", "f", '{"a": '), ms.Message.tool_result("c", "no")]
    request = ms.Request("gpt-4.1", messages, temperature=0.7)
    assert serialize(transform_request(request)) == sent_natively(request)


def test_the_default_temperature_is_not_sent_if_refused() -> None:
    assert json.loads(serialize(transform_request(ms.Request("gpt-4.1", ROUND))))["temperature"] == 0.7
    assert "temperature" not in json.loads(serialize(transform_request(ms.Request("o3", ROUND))))


def test_rows_without_continues_are_read() -> None:
    """A store may keep only kind, content and data_json."""
    request = ms.Request("gpt-4.1", ROUND, temperature=0.7)
    rows = [LegacyRow(row.kind, row.content, row.data_json) for row in build_conversation(request).rows]
    sent = json.loads(serialize(LegacyRequest("gpt-4.1", LegacyConversation(rows))))
    assert [message["role"] for message in sent["messages"]] == [
        "user", "assistant", "assistant", "tool", "assistant", "tool", "assistant", "user", "user",
    ]  # fmt: skip


def test_an_unreadable_row_is_an_error_naming_it() -> None:
    rows = [LegacyRow("user", "x"), LegacyRow("tool_call", None, "{")]
    with pytest.raises(RowError, match=r"row 1 \(kind 'tool_call'\), field 'data_json'"):
        serialize(LegacyRequest("m", LegacyConversation(rows)))


def test_a_later_system_message_keeps_its_place() -> None:
    messages = [ms.Message.user("x"), ms.Message.system("Be long."), ms.Message.user("y")]
    legacy = transform_request(ms.Request("gpt-4o", messages, system="Be brief."))
    assert legacy.conversation.rows == [
        LegacyRow("system", "Be brief."),
        LegacyRow("user", "x"),
        LegacyRow("system", "Be long."),
        LegacyRow("user", "y"),
    ]
    assert [message["role"] for message in json.loads(serialize(legacy))["messages"]] == [
        "system", "user", "system", "user",
    ]  # fmt: skip


def test_options_that_chat_cannot_carry_cause_warnings() -> None:
    messages = [
        ms.Message.user("x"),
        ms.Message.tool_call("c", "f", "{}"),
        ms.Message.tool_result("c", "no such city", is_error=True),
        ms.Message.tool_call("d", "f", "{}"),
    ]
    legacy = transform_request(ms.Request("gpt-4.1", messages))
    assert legacy.warnings == []
    expected = [
        "messages[2].content[0].is_error: not sent; this dialect has no mark for failed results",
        "messages[3].content[0]: call 'd' has no result and is not sent",
    ]
    assert serialize(legacy) == serialize(legacy)
    assert legacy.warnings == expected
