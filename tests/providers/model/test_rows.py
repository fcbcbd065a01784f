"""Messages as database rows and back: every kind, every older spelling, and every error with its field and row."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

import manystream as ms
from manystream.providers.model.rows import messages_from_rows
from manystream.store import Row, RowError, message_from_row, rows_from_message
from tests.providers.strategies import conversations, messages


def row(kind: str, content: str | None = None, /, **data: object) -> Row:
    return Row(kind, content, json.dumps(data) if data else None)


def data_of(row: Row) -> dict[str, object]:
    data = json.loads(row.data_json or "{}")
    assert isinstance(data, dict)
    return data


CALL = {"tool_call_id": "t1", "tool_name": "weather", "tool_args": '{"city": "Oslo"}'}
MADE = ms.ToolCall("t1", "weather", '{"city": "Oslo"}')


# --- rows → messages ---


def test_a_system_row_is_no_message() -> None:
    assert message_from_row(row("system", "Be brief.")) is None


@pytest.mark.parametrize("kind", ["user", "assistant"])
def test_user_and_assistant_rows_are_text(kind: str) -> None:
    assert message_from_row(row(kind, "hello")) == ms.Message(kind, "hello")


ROLES: list[tuple[Row, str]] = [
    (row("user", "a"), "user"),
    (row("assistant", "a"), "assistant"),
    (row("tool_call", **CALL), "assistant"),
    (row("tool_result", tool_call_id="t1", output="rain"), "tool"),
    (row("tool", tool_call_id="t1", output="rain"), "tool"),
    (row("thinking", text="hm"), "assistant"),
    (row("redacted_thinking", data="xyz"), "assistant"),
    (row("image", url="https://h.test/a.png"), "user"),
    (row("file", url="https://h.test/a.pdf"), "user"),
    (row("provider_block", provider="anthropic", data={"type": "server_tool_use"}), "assistant"),
]


@pytest.mark.parametrize(("stored", "role"), ROLES, ids=[stored.kind for stored, _ in ROLES])
def test_a_row_s_kind_decides_the_role_it_does_not_name(stored: Row, role: str) -> None:
    message = message_from_row(stored)
    assert message.role.value == role
    assert "role" not in data_of(rows_from_message(message)[0])
    other = {"user": "assistant", "assistant": "user", "tool": "assistant"}[role]
    named = message_from_row(row(stored.kind, stored.content, **data_of(stored), role=other))
    assert named.role.value == other


READ: list[tuple[dict[str, object], list[ms.Block]]] = [
    (CALL, [MADE]),
    ({**CALL, "thinking": {"text": "hm", "signature": "sig"}}, [ms.Thinking("hm", "sig"), MADE]),
    ({**CALL, "thinking": {"text": "hm"}}, [ms.Thinking("hm"), MADE]),
    ({**CALL, "redacted_thinking": {"data": "xyz"}}, [ms.RedactedThinking("xyz"), MADE]),
    ({**CALL, "redacted_thinking": {"data": "xyz"}, "thinking": {"text": "hm", "signature": "sig"}},
        [ms.Thinking("hm", "sig"), ms.RedactedThinking("xyz"), MADE]),
    ({**CALL, "thinking": None, "redacted_thinking": None}, [MADE]),
    ({"id": "t1", "name": "weather", "arguments": '{"city": "Oslo"}'}, [MADE]),
    ({"id": "t1", "type": "function", "name": "weather", "arguments": '{"city": "Oslo"}'}, [MADE]),
    ({"id": "t1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}, [MADE]),
    ({"id": "t1", "name": "weather", "arguments": {"city": "Oslo"}}, [ms.ToolCall("t1", "weather", '{"city":"Oslo"}')]),
    ({"id": "t1", "name": "weather", "arguments": ""}, [ms.ToolCall("t1", "weather", "")]),
]  # fmt: skip


@pytest.mark.parametrize(("data", "blocks"), READ)
def test_a_tool_call_row_has_thinking_before_the_call(data: dict[str, object], blocks: list[ms.Block]) -> None:
    message = message_from_row(row("tool_call", **data))
    assert message == ms.Message.assistant(blocks)


@pytest.mark.parametrize("kind", ["tool_result", "tool"])
@pytest.mark.parametrize(("success", "is_error"), [({"success": True}, False), ({"success": False}, True), ({}, False)])
def test_a_tool_result_row_without_success_is_an_error(kind: str, success: dict[str, object], is_error: bool) -> None:
    message = message_from_row(row(kind, tool_call_id="t1", output="rain", **success))
    assert message == ms.Message.tool_result("t1", "rain", is_error)


def test_an_older_tool_result_row_has_its_call_id() -> None:
    assert message_from_row(row("tool", id="t1", output="rain")) == ms.Message.tool_result("t1", "rain")


def test_data_that_a_database_has_parsed_is_read() -> None:
    parsed = Row("tool_call", None, dict(CALL))  # type: ignore[arg-type]
    assert message_from_row(parsed) == ms.Message.assistant(MADE)


# --- errors ---

MALFORMED: list[tuple[Row, str]] = [
    (row("robot", "x"), "kind"),
    (Row("", None), "kind"),
    (Row("user", None), "content"),
    (Row("assistant", None), "content"),
    (Row("tool_call", None, "{"), "data_json"),
    (Row("tool_call", None, "[]"), "data_json"),
    (Row("tool_call", None, "1"), "data_json"),
    (Row("user", "x", "nonsense"), "data_json"),
    (Row("tool_call", None, 5), "data_json"),  # type: ignore[arg-type]
    (Row("tool_call", None, None), "data_json"),
    (row("tool_call", tool_name="f", tool_args="{}"), "tool_call_id"),
    (row("tool_call", tool_call_id="t", tool_args="{}"), "tool_name"),
    (row("tool_call", tool_call_id="t", tool_name="f"), "tool_args"),
    (row("tool_call", tool_call_id=1, tool_name="f", tool_args="{}"), "tool_call_id"),
    (row("tool_call", tool_call_id="t", tool_name=["f"], tool_args="{}"), "tool_name"),
    (row("tool_call", tool_call_id="t", tool_name="f", tool_args=5), "tool_args"),
    (row("tool_call", tool_call_id="t", tool_name="f", tool_args="{not json"), "tool_args"),
    (row("tool_call", tool_call_id="t", tool_name="f", tool_args="[1]"), "tool_args"),
    (row("tool_call", **CALL, thinking="hm"), "thinking"),
    (row("tool_call", **CALL, thinking={"signature": "s"}), "thinking.text"),
    (row("tool_call", **CALL, thinking={"text": 1}), "thinking.text"),
    (row("tool_call", **CALL, thinking={"text": "hm", "signature": 1}), "thinking.signature"),
    (row("tool_call", **CALL, redacted_thinking={}), "redacted_thinking.data"),
    (row("tool_call", **CALL, redacted_thinking=["x"]), "redacted_thinking"),
    (row("tool_call", **CALL, complete="no"), "complete"),
    (row("tool_call", id="t", function="f"), "function"),
    (row("tool_result", output="x"), "tool_call_id"),
    (row("tool_result", tool_call_id="t"), "output"),
    (row("tool", tool_call_id="t", output=1), "output"),
    (row("tool_result", tool_call_id="t", output="x", success="yes"), "success"),
    (row("tool_result", tool_call_id="t", output="x", output_blocks=[{"kind": "film"}]), "output_blocks.kind"),
    (row("image", base64="!"), "base64"),
    (row("image", url="u", detail="sharp"), "detail"),
    (row("provider_block", provider="x"), "data"),
    (row("user", "x", role="robot"), "role"),
    (row("user", "x", citations=["y"]), "citations"),
    (row("user", "x", state={"provider": "p"}), "state.data"),
    (row("user", "x", state={"data": {}}), "state.provider"),
    (row("user", "x", cache_control={"ttl": "9m"}), "cache_control.ttl"),
    (row("user", "x", provider_metadata=1), "provider_metadata"),
]


@pytest.mark.parametrize(("wrong", "field"), MALFORMED)
def test_an_unreadable_row_is_an_error_naming_field_and_row(wrong: Row, field: str) -> None:
    with pytest.raises(RowError) as caught:
        message_from_row(wrong)
    assert (caught.value.field, caught.value.row) == (field, wrong)
    assert repr(field) in str(caught.value)
    assert repr(wrong.kind) in str(caught.value)


@pytest.mark.parametrize(("wrong", "field"), MALFORMED)
def test_an_unreadable_row_returns_no_partial_conversation(wrong: Row, field: str) -> None:
    with pytest.raises(RowError, match=r"^row 2 \(kind") as caught:
        ms.Conversation.from_rows([row("user", "a"), row("system", "b"), wrong, row("user", "c")])
    assert (caught.value.position, caught.value.field) == (2, field)


def test_a_result_without_a_call_is_an_error_naming_its_row() -> None:
    rows = [row("tool_call", **CALL), row("tool", tool_call_id="t1", output="x"), row("tool", id="t2", output="y")]
    with pytest.raises(RowError, match=r"row 2 .*'tool_call_id': no earlier row calls a tool as 't2'"):
        ms.Conversation.from_rows(rows)
    kept = ms.Conversation.from_rows(rows, strict=False)
    assert kept.messages[2] == ms.Message.tool_result("t2", "y")


def test_a_row_that_continues_nothing_is_an_error() -> None:
    with pytest.raises(RowError, match="continues"):
        messages_from_rows([row("user", "x", continues=True)])
    with pytest.raises(RowError, match="continues"):
        messages_from_rows([row("user", "x"), row("assistant", "y", continues=True)])


# --- messages → rows ---


@pytest.mark.parametrize("message", [ms.Message.user("a"), ms.Message.assistant("b")])
def test_text_is_a_row_of_its_role_without_data(message: ms.Message) -> None:
    assert rows_from_message(message) == [Row(message.role.value, message.text, None)]


def test_a_tool_call_with_thinking_is_one_row() -> None:
    message = ms.Message.assistant([ms.Thinking("hm", "sig"), ms.RedactedThinking("xyz"), MADE])
    (made,) = rows_from_message(message)
    assert (made.kind, made.content) == ("tool_call", None)
    assert data_of(made) == {
        **CALL,
        "thinking": {"text": "hm", "signature": "sig"},
        "redacted_thinking": {"data": "xyz"},
    }


def test_a_tool_result_is_one_row() -> None:
    (made,) = rows_from_message(ms.Message.tool_result("t1", "boom", is_error=True))
    assert (made.kind, data_of(made)) == ("tool_result", {"tool_call_id": "t1", "output": "boom", "success": False})


def test_a_message_of_several_blocks_has_one_row_per_block() -> None:
    second = ms.ToolCall("t2", "weather", "{}")
    message = ms.Message.assistant([ms.Text("I look."), ms.Thinking("hm", "sig"), MADE, second])
    rows = rows_from_message(message)
    assert [made.kind for made in rows] == ["assistant", "tool_call", "tool_call"]
    assert [data_of(made).get("continues", False) for made in rows] == [False, True, True]
    assert messages_from_rows(rows) == [message]


def test_adjacent_messages_of_one_role_stay_separate() -> None:
    conversation = ms.Conversation([ms.Message.user("a"), ms.Message.user("b")])
    assert ms.Conversation.from_rows(conversation.rows()) == conversation


def test_malformed_arguments_are_marked_and_kept() -> None:
    message = ms.Message.tool_call("t1", "weather", '{"city": ')
    (made,) = rows_from_message(message)
    assert data_of(made)["malformed"] is True
    assert message_from_row(made) == message


def test_arguments_that_were_cut_off_are_kept_with_their_mark() -> None:
    message = ms.Message.assistant(ms.ToolCall("t1", "weather", '{"ci', complete=False))
    assert message_from_row(rows_from_message(message)[0]) == message


def test_what_json_cannot_hold_is_named() -> None:
    """A server may send it, in an answer that is kept."""
    deep: list[object] = []
    for _ in range(300):
        deep = [deep]
    for value, words in ((deep, "it is nested too deeply"), (10**5000, "data.a is a whole number of too many digits")):
        block = ms.ProviderBlock("anthropic", {"a": value})
        with pytest.raises(ms.InvalidRequestError, match=rf"message: cannot be written as JSON: .*{words}"):
            ms.Conversation([ms.Message.assistant(block)]).rows()


def test_a_row_is_not_changed_by_reading_it() -> None:
    made = row("tool_call", **CALL, thinking={"text": "hm"})
    before = Row(made.kind, made.content, made.data_json)
    message_from_row(made)
    assert made == before


@settings(max_examples=150)
@given(messages)
def test_any_message_survives_its_rows(message: ms.Message) -> None:
    assert messages_from_rows(rows_from_message(message), strict=False) == [message]


@settings(max_examples=80)
@given(conversations)
def test_any_conversation_survives_its_rows(conversation: ms.Conversation) -> None:
    rows = conversation.rows()
    assert ms.Conversation.from_rows(rows, strict=False) == conversation
    assert all(made.data_json is None or isinstance(json.loads(made.data_json), dict) for made in rows)
