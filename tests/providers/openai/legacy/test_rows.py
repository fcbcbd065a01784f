"""OpenAI's older flat form: one row per block, the same bytes as the Chat dialect, and whole errors and warnings."""

from __future__ import annotations

import json

import pytest

import manystream as ms
from manystream.providers.model.rows import RowError
from manystream.providers.openai.chat import DIALECT
from manystream.providers.openai.legacy import (
    DEFAULT_TEMPERATURE,
    THINKING_MODELS,
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
    ms.Message.assistant(ms.Thinking("hm")), ms.Message.assistant(ms.RedactedThinking("xyz")),
    ms.Message.user(ms.Image(url="https://host/a.png")), ms.Message.user(ms.File(file_id="f")),
    ms.Message.assistant(ms.ProviderBlock("anthropic", {"type": "server_tool_use"})),
]  # fmt: skip


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
        LegacyRow("system", "Be brief."), LegacyRow("user", "x"), LegacyRow("system", "Be long."),
        LegacyRow("user", "y"),
    ]  # fmt: skip
    assert [message["role"] for message in json.loads(serialize(legacy))["messages"]] == [
        "system", "user", "system", "user",
    ]  # fmt: skip


def test_options_that_chat_cannot_carry_cause_warnings() -> None:
    messages = [
        ms.Message.user("x"), ms.Message.tool_call("c", "f", "{}"),
        ms.Message.tool_result("c", "no such city", is_error=True), ms.Message.tool_call("d", "f", "{}"),
    ]  # fmt: skip
    legacy = transform_request(ms.Request("gpt-4.1", messages))
    assert legacy.warnings == []
    expected = [
        "messages[2].content[0].is_error: not sent; this dialect has no mark for failed results",
        "messages[3].content[0]: call 'd' has no result and is not sent",
    ]
    assert serialize(legacy) == serialize(legacy)
    assert legacy.warnings == expected


HI = ms.Message.user("x")
CALL = ms.Message.tool_call("c", "f", "{}")
CUSTOM = ms.Message.assistant(ms.ToolCall("c", "f", "{}", state=ms.ProviderState("openai-chat", {"type": "custom"})))
SIGNED = ms.Message.assistant(ms.ToolCall("c", "f", "{}", state=ms.ProviderState("google", {"id": "1"})))

ERRORS: list[tuple[list[ms.Message], str]] = [
    ([HI, ms.Message.tool_result("n", "1")], "messages[1].content[0].tool_call_id: no earlier call has the id 'n'"),
    ([HI, ms.Message.assistant([ms.Text("a"), ms.Thinking("t")])],
        "messages[1].content[1]: the legacy form has no row for a Thinking block"),
    ([CALL, ms.Message.tool_result("c", [ms.Text("a"), ms.Image(url="https://h/i.png")])],
        "messages[1].content[0].content[1]: the legacy form has no row for a Image block"),
    ([HI, CUSTOM], "messages[1].content[0]: the legacy form has no row for a call of a custom tool"),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "text"), ERRORS, ids=[row[1] for row in ERRORS])
def test_an_error_names_the_place_and_the_reason(messages: list[ms.Message], text: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        transform_request(ms.Request("m", messages))
    assert str(caught.value) == text


def test_the_place_in_a_single_message() -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        transform_message(ms.Message.assistant([ms.Text("a"), ms.Thinking("t")]))
    assert str(caught.value) == "message.content[1]: the legacy form has no row for a Thinking block"


def test_no_messages_are_refused_by_name() -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        build_conversation(ms.Request("m", []))
    assert str(caught.value) == "messages: must hold at least one message"


def test_a_request_is_checked_first() -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        transform_request(ms.Request("m", [HI], temperature=-1))
    assert caught.value.field == "temperature"


@pytest.mark.parametrize("config", [ms.ThinkingConfig(effort="low"), ms.ThinkingConfig(include_summary=True)])
def test_thinking_without_a_level_is_refused(config: ms.ThinkingConfig) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        transform_request(ms.Request("m", [HI], thinking=config))
    assert str(caught.value) == "thinking: the legacy form has levels only: it selects the model by them"
    assert transform_request(ms.Request("m", [HI], thinking=ms.ThinkingConfig())).model == "m"


def test_the_defaults() -> None:
    assert DEFAULT_TEMPERATURE == 0.7
    assert {level.value: model for level, model in THINKING_MODELS.items()} == {
        "low": "o3-mini", "med": "o4-mini", "high": "o3",
    }  # fmt: skip
    row = LegacyRow("user", "x")
    assert row.continues is False
    assert transform_request(ms.Request("m", [HI])) == LegacyRequest(
        "m", LegacyConversation([row]), 0.7, None, False, []
    )
    assert LegacyRequest("m", LegacyConversation([row])) == transform_request(ms.Request("m", [HI]))


def test_every_option_that_is_not_carried_is_named() -> None:
    request = ms.Request(
        "m", [HI], tools=[ms.Tool("f")], top_p=0.5, stop=["x"], seed=0, response_schema={"type": "object"},
        parallel_tool_calls=False, metadata={"a": "b"}, extra_body={"a": 1}, extra_headers={"a": "b"},
    )  # fmt: skip
    names = (
        "tools", "top_p", "stop", "seed", "response_schema", "parallel_tool_calls", "metadata", "extra_body",
        "extra_headers",
    )  # fmt: skip
    expected = [f"{name}: not carried; the legacy form has no place for it" for name in names]
    assert transform_request(request).warnings == expected


def test_options_that_are_empty_are_not_named() -> None:
    request = ms.Request("m", [HI], tools=[], stop=[], metadata={}, extra_body={}, extra_headers={})
    assert transform_request(request).warnings == []


def test_whole_rows() -> None:
    messages = [
        ms.Message.user([ms.Text("a"), ms.Text("b")]),
        ms.Message.assistant([ms.Text("c"), ms.ToolCall("t", "f", '{"a":1}'), ms.ToolCall("u", "g", "{")]),
        ms.Message("tool", [ms.ToolResult("t", [ms.Text("r"), ms.Text("s")]), ms.ToolResult("u", "no", is_error=True),
                            ms.Text("d")]),
    ]  # fmt: skip
    rows = build_conversation(ms.Request("m", messages, system="s")).rows
    assert rows == [
        LegacyRow("system", "s"),
        LegacyRow("user", "a"),
        LegacyRow("user", "b", continues=True),
        LegacyRow("assistant", "c"),
        LegacyRow(
            "tool_call", None, '{"id":"t","type":"function","name":"f","arguments":"{\\"a\\":1}"}', continues=True
        ),
        LegacyRow(
            "tool_call",
            None,
            '{"id":"u","type":"function","name":"g","arguments":"{","malformed":true}',
            continues=True,
        ),
        LegacyRow("tool_result", None, '{"tool_call_id":"t","name":"f","output":"rs","success":true}'),
        LegacyRow("tool_result", None, '{"tool_call_id":"u","name":"g","output":"no","success":false}', continues=True),
        LegacyRow("user", "d", continues=True),
    ]


def test_a_call_with_other_state_has_a_row() -> None:
    (row,) = transform_message(SIGNED)
    assert row.data_json == '{"id":"c","type":"function","name":"f","arguments":"{}"}'


def sent(*rows: LegacyRow, model: str = "gpt-4.1", temperature: float = 0.7) -> dict[str, object]:
    body: dict[str, object] = json.loads(serialize(LegacyRequest(model, LegacyConversation([*rows]), temperature)))
    return body


def test_rows_that_continue_are_one_message() -> None:
    rows = [
        LegacyRow("system", "s"), LegacyRow("system", None), LegacyRow("system", "t"), LegacyRow("user", "a"),
        LegacyRow("user", "b", continues=True), LegacyRow("user", "c"), LegacyRow("assistant", "d", continues=True),
    ]  # fmt: skip
    assert sent(*rows) == {
        "model": "gpt-4.1", "messages": [{"role": "system", "content": "s\n\nt"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}], "temperature": 0.7,
    }  # fmt: skip


def test_a_first_row_may_say_that_it_continues() -> None:
    assert sent(LegacyRow("user", "a", continues=True))["messages"] == [{"role": "user", "content": "a"}]


def test_a_temperature_of_ones_own_is_dropped_with_a_warning() -> None:
    legacy = LegacyRequest("o3", LegacyConversation([LegacyRow("user", "a")]), temperature=0.5)
    assert json.loads(serialize(legacy)) == {"model": "o3", "messages": [{"role": "user", "content": "a"}]}
    assert legacy.warnings == ["temperature: not sent; o3 takes it only without reasoning"]
    plain = LegacyRequest("o3", LegacyConversation([LegacyRow("user", "a")]))
    assert (json.loads(serialize(plain)), plain.warnings) == (json.loads(serialize(legacy)), [])


def test_limits_and_streams() -> None:
    legacy = LegacyRequest(
        "gpt-4.1", LegacyConversation([LegacyRow("user", "a")]), max_completion_tokens=9, stream=True
    )
    assert json.loads(serialize(legacy)) == {
        "model": "gpt-4.1", "messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 9,
        "temperature": 0.7, "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip


def test_a_late_system_row_keeps_its_place() -> None:
    late = sent(LegacyRow("user", "a"), LegacyRow("system", "s"))
    assert late["messages"][1:] == [{"role": "system", "content": "s"}]


@pytest.mark.parametrize("field", ["arguments", "name", "id"])
def test_a_call_with_a_field_of_another_type_is_named(field: str) -> None:
    call = ms.ToolCall("c", "f", "{}")
    setattr(call, field, None)
    with pytest.raises(ms.InvalidRequestError, match=rf"^message\.content\[0\]\.{field}: must be"):
        transform_message(ms.Message.assistant([call]))
