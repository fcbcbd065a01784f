"""OpenAI's older flat form: whole requests, whole rows, whole errors and warnings."""

from __future__ import annotations

import json

import pytest

import manystream as ms
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
