"""Every kind of row with all of its members, written and read; and the whole text of every error."""

from __future__ import annotations

import json

import pytest

import manystream as ms
from manystream.providers.model.rows import messages_from_rows, rows_from_message
from manystream.store import Row, RowError, message_from_row

STATE = ms.ProviderState("anthropic", {"k": 1})
STATE_JSON = {"provider": "anthropic", "data": {"k": 1}}
MARK = ms.CacheControl("1h")
CARRIED = {"state": STATE_JSON, "cache_control": {"ttl": "1h"}}

Stored = tuple[str, str | None, object]

WRITTEN: list[tuple[ms.Role, ms.Block, Stored]] = [
    (ms.Role.USER, ms.Text("a"), ("user", "a", None)),
    (ms.Role.USER, ms.Text("a", [{"url": "u"}], MARK, STATE),
        ("user", "a", {"state": STATE_JSON, "cache_control": {"ttl": "1h"}, "citations": [{"url": "u"}]})),
    (ms.Role.ASSISTANT, ms.Text("a"), ("assistant", "a", None)),
    (ms.Role.ASSISTANT, ms.Text("", cache_control=ms.CacheControl("5m")),
        ("assistant", "", {"cache_control": {"ttl": "5m"}})),
    (ms.Role.TOOL, ms.Text("a"), ("assistant", "a", {"role": "tool"})),
    (ms.Role.USER, ms.Text("a", cache_control=ms.CacheControl()), ("user", "a", {"cache_control": {"ttl": None}})),
    (ms.Role.ASSISTANT, ms.ToolCall("t", "f", '{"a":1}', state=STATE, cache_control=MARK),
        ("tool_call", None, {"tool_call_id": "t", "tool_name": "f", "tool_args": '{"a":1}', **CARRIED})),
    (ms.Role.ASSISTANT, ms.ToolCall("t", "f", "{", complete=False),
        ("tool_call", None, {"tool_call_id": "t", "tool_name": "f", "tool_args": "{", "complete": False,
        "malformed": True})),
    (ms.Role.USER, ms.ToolCall("t", "f", "[]"),
        ("tool_call", None, {"tool_call_id": "t", "tool_name": "f", "tool_args": "[]", "malformed": True,
        "role": "user"})),
    (ms.Role.TOOL, ms.ToolResult("t", "r"), ("tool_result", None,
        {"tool_call_id": "t", "output": "r", "success": True})),
    (
        ms.Role.TOOL,
        ms.ToolResult(
            "t",
            [
                ms.Text("r", state=STATE, cache_control=MARK),
                ms.Image(url="u", detail="low"),
                ms.File(file_id="f", name="n", state=STATE),
            ],
            is_error=True,
            cache_control=MARK,
        ),
        (
            "tool_result",
            None,
            {
                "tool_call_id": "t",
                "output": "r",
                "success": False,
                "output_blocks": [
                    {"kind": "text", "text": "r", **CARRIED},
                    {"kind": "image", "url": "u", "detail": "low"},
                    {"kind": "file", "file_id": "f", "name": "n", "state": STATE_JSON},
                ],
                "cache_control": {"ttl": "1h"},
            },
        ),
    ),
    (ms.Role.USER, ms.ToolResult("t", []), ("tool_result", None,
        {"tool_call_id": "t", "output": "", "success": True, "output_blocks": [], "role": "user"})),
    (ms.Role.ASSISTANT, ms.Thinking("h"), ("thinking", None, {"text": "h"})),
    (ms.Role.ASSISTANT, ms.Thinking("h", "s", STATE),
        ("thinking", None, {"text": "h", "signature": "s", "state": STATE_JSON})),
    (ms.Role.USER, ms.RedactedThinking("d"), ("redacted_thinking", None, {"data": "d", "role": "user"})),
    (ms.Role.ASSISTANT, ms.RedactedThinking("d", STATE),
        ("redacted_thinking", None, {"data": "d", "state": STATE_JSON})),
    (ms.Role.USER, ms.Image(b"abc", "image/png", "u", "f", "high", MARK, STATE),
        ("image", None, {"base64": "YWJj", "media_type": "image/png", "url": "u", "file_id": "f", "detail": "high",
        **CARRIED})),
    (ms.Role.USER, ms.Image(b""), ("image", None, {"base64": ""})),
    (ms.Role.USER, ms.File(b"abc", "text/csv", "u", "f", "n", MARK, STATE),
        ("file", None, {"base64": "YWJj", "media_type": "text/csv", "url": "u", "file_id": "f", "name": "n",
        **CARRIED})),
    (ms.Role.ASSISTANT, ms.File(url="u"), ("file", None, {"url": "u", "role": "assistant"})),
    (ms.Role.ASSISTANT, ms.ProviderBlock("anthropic", {"type": "t"}),
        ("provider_block", None, {"provider": "anthropic", "data": {"type": "t"}})),
]  # fmt: skip


def stored(row: Row) -> Stored:
    return row.kind, row.content, None if row.data_json is None else json.loads(row.data_json)


@pytest.mark.parametrize(("role", "block", "row"), WRITTEN)
def test_a_block_with_all_its_members_is_one_row(role: ms.Role, block: ms.Block, row: Stored) -> None:
    (made,) = rows_from_message(ms.Message(role, block))
    assert stored(made) == row
    assert messages_from_rows([made], strict=False) == [ms.Message(role, block)]


THINKING, OTHER, REDACTED = ms.Thinking("h", "s", STATE), ms.Thinking("i"), ms.RedactedThinking("d", STATE)
CALL = ms.ToolCall("t", "f", "{}")
THINKING_JSON = {"text": "h", "signature": "s", "state": STATE_JSON}
REDACTED_JSON = {"data": "d", "state": STATE_JSON}
CALL_JSON = {"tool_call_id": "t", "tool_name": "f", "tool_args": "{}"}
NEXT = {"continues": True}

SEVERAL: list[tuple[list[ms.Block], list[Stored]]] = [
    ([], [("assistant", "", {"empty": True})]),
    ([THINKING, CALL], [("tool_call", None, {**CALL_JSON, "thinking": THINKING_JSON})]),
    ([THINKING, REDACTED, CALL, CALL], [("tool_call", None,
        {**CALL_JSON, "thinking": THINKING_JSON, "redacted_thinking": REDACTED_JSON}),
        ("tool_call", None, {**CALL_JSON, **NEXT})]),
    ([REDACTED, CALL, THINKING, CALL], [("tool_call", None, {**CALL_JSON, "redacted_thinking": REDACTED_JSON}),
        ("tool_call", None, {**CALL_JSON, "thinking": THINKING_JSON, **NEXT})]),
    ([REDACTED, THINKING, CALL], [("redacted_thinking", None, REDACTED_JSON),
        ("tool_call", None, {**CALL_JSON, "thinking": THINKING_JSON, **NEXT})]),
    ([OTHER, THINKING, CALL], [("thinking", None, {"text": "i"}),
        ("tool_call", None, {**CALL_JSON, "thinking": THINKING_JSON, **NEXT})]),
    ([OTHER, REDACTED, REDACTED, CALL], [("thinking", None, {"text": "i"}),
        ("redacted_thinking", None, {**REDACTED_JSON, **NEXT}),
        ("tool_call", None, {**CALL_JSON, "redacted_thinking": REDACTED_JSON, **NEXT})]),
    ([THINKING, ms.Text("a"), CALL], [("thinking", None, THINKING_JSON), ("assistant", "a", NEXT),
        ("tool_call", None, {**CALL_JSON, **NEXT})]),
    ([CALL, THINKING], [("tool_call", None, CALL_JSON), ("thinking", None, {**THINKING_JSON, **NEXT})]),
    ([ms.Text("a", [{"b": 1}]), ms.Image(url="u")],
        [("assistant", "a", {"citations": [{"b": 1}]}), ("image", None, {"url": "u", "role": "assistant", **NEXT})]),
]  # fmt: skip


@pytest.mark.parametrize(("blocks", "rows"), SEVERAL)
def test_the_rows_of_several_blocks(blocks: list[ms.Block], rows: list[Stored]) -> None:
    message = ms.Message.assistant(blocks)
    made = rows_from_message(message)
    assert [stored(row) for row in made] == rows
    assert messages_from_rows(made) == [message]


def test_the_members_of_a_message_are_in_its_first_row() -> None:
    message = ms.Message("user", [ms.Text("a"), ms.Text("b")], {"name": "ann"})
    made = rows_from_message(message)
    assert [stored(row) for row in made] == [
        ("user", "a", {"provider_metadata": {"name": "ann"}}),
        ("user", "b", {"continues": True}),
    ]
    assert messages_from_rows(made) == [message]
    assert [stored(row) for row in rows_from_message(ms.Message("user", []))] == [("user", "", {"empty": True})]
    assert [stored(row) for row in rows_from_message(ms.Message("tool", []))] == [
        ("assistant", "", {"empty": True, "role": "tool"})
    ]


def test_a_whole_number_of_any_size_is_kept_beside_other_members() -> None:
    block = ms.ProviderBlock("anthropic", {"n": 12345678901234567890123})
    (_, made) = rows_from_message(ms.Message.assistant([ms.Text("a"), block]))
    assert made.data_json == '{"provider":"anthropic","data":{"n":12345678901234567890123},"continues":true}'


def test_a_block_of_another_class_has_no_row() -> None:
    message = ms.Message("user", [ms.Text("a")])
    message.content[0] = 7  # type: ignore[call-overload]
    with pytest.raises(ms.InvalidRequestError, match=r"^message.content\[0\]: unsupported content block int$"):
        rows_from_message(message)


# --- reading ---


def row(kind: str, content: str | None = None, /, **data: object) -> Row:
    return Row(kind, content, json.dumps(data))


READ: list[tuple[Row, ms.Block]] = [
    (row("user", "a", cache_control={"ttl": "5m"}), ms.Text("a", cache_control=ms.CacheControl("5m"))),
    (row("user", "a", cache_control={}), ms.Text("a", cache_control=ms.CacheControl())),
    (row("user", "a", citations=None, state=None, cache_control=None, role=None), ms.Text("a")),
    (row("user", "a", continues=1, empty=1), ms.Text("a")),
    (row("tool_call", tool_call_id="1", id="2", tool_name="3", name="4", tool_args="", arguments="{}"),
        ms.ToolCall("1", "3", "")),
    (row("tool_call", id="2", name="4", tool_args=None, arguments="{}"), ms.ToolCall("2", "4", "{}")),
    (row("tool_call", id="2", name="outer", function={"name": "inner", "arguments": {"a": 1.0}, "id": "3"}),
        ms.ToolCall("2", "outer", '{"a":1.0}')),
    (row("tool_call", id="2", name="4", arguments="[", complete=False), ms.ToolCall("2", "4", "[", complete=False)),
    (row("tool_call", id="2", name="4", arguments="{}", complete=True), ms.ToolCall("2", "4", "{}")),
    (row("tool_call", id="2", name="4", arguments="[", malformed=True), ms.ToolCall("2", "4", "[")),
    (row("tool_call", id="2", name="4", arguments={"n": 10**30}), ms.ToolCall("2", "4", '{"n":1' + "0" * 30 + "}")),
    (row("tool_result", tool_call_id="1", id="2", output="r"), ms.ToolResult("1", "r")),
    (row("tool_result", id="2", output_blocks=[{"kind": "text", "text": "r"}]), ms.ToolResult("2", [ms.Text("r")])),
    (row("tool_result", id="2", output="r", output_blocks=[]), ms.ToolResult("2", [])),
    (row("image", url="u", detail="auto"), ms.Image(url="u", detail="auto")),
    (row("image", base64="YWJj", media_type="image/png"), ms.Image(b"abc", "image/png")),
    (row("file", url="u", detail="x"), ms.File(url="u")),
]  # fmt: skip


@pytest.mark.parametrize(("stored", "block"), READ)
def test_a_row_of_another_form_is_read(stored: Row, block: ms.Block) -> None:
    message = message_from_row(stored)
    assert message.content == [block]


def test_a_row_that_says_it_is_empty_has_no_block() -> None:
    assert message_from_row(row("assistant", "a", empty=True)) == ms.Message("assistant", [])


CALLED = {"tool_call_id": "t", "tool_name": "f"}
REFUSED: list[tuple[Row, str]] = [
    (row("robot"),
        "field 'kind': unknown kind; known are system, user, assistant, tool_call, tool_result, tool, thinking,"
        " redacted_thinking, image, file, provider_block"),
    (Row("user", "a", "[1]"), "field 'data_json': must be a JSON object, not list"),
    (row("user"), "field 'content': is missing"),
    (row("user", "a", role="robot"), "field 'role': unknown role 'robot'"),
    (row("user", "a", role=1), "field 'role': must be str, not int"),
    (row("user", "a", provider_metadata=[]), "field 'provider_metadata': must be an object, not list"),
    (row("user", "a", citations={}), "field 'citations': must be an array, not dict"),
    (row("user", "a", citations=[{"a": 1}, 1]), "field 'citations': must hold objects only"),
    (row("user", "a", state=1), "field 'state': must be an object, not int"),
    (row("user", "a", state={"provider": "p", "data": 1}), "field 'data': must be an object, not int"),
    (row("user", "a", state={"provider": "p"}), "field 'state.data': is missing"),
    (row("user", "a", state={"data": {}}), "field 'state.provider': is missing"),
    (row("user", "a", state={"provider": 1, "data": {}}), "field 'state.provider': must be str, not int"),
    (row("user", "a", cache_control="1h"), "field 'cache_control': must be an object, not str"),
    (row("user", "a", cache_control={"ttl": "9m"}), "field 'cache_control.ttl': must be '5m' or '1h', not '9m'"),
    (row("tool_call", **CALLED), "field 'tool_args': is missing"),
    (row("tool_call", **CALLED, tool_args=5), "field 'tool_args': must be JSON text"),
    (row("tool_call", **CALLED, tool_args="[1]"), "field 'tool_args': must be the text of a JSON object, not '[1]'"),
    (row("tool_call", **CALLED, tool_args="{}", complete=0), "field 'complete': must be bool, not int"),
    (row("tool_call", **CALLED, tool_args="[", malformed=0), "field 'malformed': must be bool, not int"),
    (row("tool_call", **CALLED, tool_args="[", malformed=False),
        "field 'tool_args': must be the text of a JSON object, not '['"),
    (row("tool_call", tool_name="f", tool_args="{}"), "field 'tool_call_id': is missing"),
    (row("tool_call", id="t", tool_args="{}"), "field 'tool_name': is missing"),
    (row("tool_call", id=1, name="f", tool_args="{}"), "field 'id': must be str, not int"),
    (row("tool_call", **CALLED, thinking={}, tool_args="{}"), "field 'thinking.text': is missing"),
    (row("tool_call", **CALLED, thinking={"text": "h", "signature": 1}, tool_args="{}"),
        "field 'thinking.signature': must be str, not int"),
    (row("tool_call", **CALLED, redacted_thinking={}, tool_args="{}"), "field 'redacted_thinking.data': is missing"),
    *((Row(kind, None, None), f"field 'data_json': is missing: a row of the kind '{kind}' has its values there")
      for kind in ("tool_call", "tool_result", "thinking", "redacted_thinking", "image", "file", "provider_block")),
    (row("tool_result", output="r"), "field 'tool_call_id': is missing"),
    (row("tool_result", id="t"), "field 'output': is missing"),
    (row("tool_result", id="t", output="r", success=1), "field 'success': must be bool, not int"),
    (row("tool_result", id="t", output_blocks={}), "field 'output_blocks': must be an array, not dict"),
    (row("tool_result", id="t", output_blocks=["r"]), "field 'output_blocks': must hold objects, not str"),
    (row("tool_result", id="t", output_blocks=[{"x": 1}]), "field 'output_blocks.kind': is missing"),
    (row("tool_result", id="t", output_blocks=[{"kind": "x"}]), "field 'output_blocks.kind': unknown kind 'x'"),
    (row("tool_result", id="t", output_blocks=[{"kind": "text"}]), "field 'output_blocks.text': is missing"),
    (row("image", base64="YWJ"), "field 'base64': is not base64 text"),
    (row("image", base64="YW Jj"), "field 'base64': is not base64 text"),
    (row("image", base64="é"), "field 'base64': is not base64 text"),
    (row("image", base64=1), "field 'base64': must be str, not int"),
    (row("image", media_type=1), "field 'media_type': must be str, not int"),
    (row("image", url=1), "field 'url': must be str, not int"),
    (row("image", file_id=1), "field 'file_id': must be str, not int"),
    (row("image", detail=1), "field 'detail': must be str, not int"),
    (row("image", detail="x"), "field 'detail': must be one of auto, low, high, original, not 'x'"),
    (row("file", name=1), "field 'name': must be str, not int"),
    (row("thinking"), "field 'text': is missing"),
    (row("thinking", text="h", signature=1), "field 'signature': must be str, not int"),
    (row("redacted_thinking", data=1), "field 'data': must be str, not int"),
    (row("provider_block", data={}), "field 'provider': is missing"),
    (row("provider_block", provider="p"), "field 'data': is missing"),
    (row("provider_block", provider="p", data="d"), "field 'data': must be an object, not str"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "words"), REFUSED)
def test_the_error_of_a_row_says_what_is_wrong(wrong: Row, words: str) -> None:
    with pytest.raises(RowError) as caught:
        message_from_row(wrong)
    assert str(caught.value) == f"row (kind {wrong.kind!r}), {words}"
    assert caught.value.reason == words.partition("': ")[2]
    assert (caught.value.row, caught.value.position) == (wrong, None)
    with pytest.raises(RowError) as caught:
        messages_from_rows([row("user", "a"), row("system"), wrong])
    assert str(caught.value) == f"row 2 (kind {wrong.kind!r}), {words}"
    assert caught.value.position == 2
    with pytest.raises(RowError, match=r"^row 0 \(kind"):
        message_from_row(wrong, 0)


def test_data_that_is_no_json_is_shown() -> None:
    with pytest.raises(RowError, match=r"^row \(kind 'user'\), field 'data_json': malformed JSON '\{': "):
        message_from_row(Row("user", "a", "{"))


def test_a_row_continues_only_a_message_of_its_role() -> None:
    error = "field 'continues': there is no message before it that it could continue"
    continued = row("assistant", "b", continues=True)
    for before, place in (([], 0), ([row("system", "s")], 1), ([row("user", "a")], 1)):
        with pytest.raises(RowError) as caught:
            messages_from_rows([*before, continued])
        assert str(caught.value) == f"row {place} (kind 'assistant'), {error}"
    system = row("system", "s")
    assert messages_from_rows([row("assistant", "a"), system, continued]) == [
        ms.Message("assistant", [ms.Text("a"), ms.Text("b")]),
        ms.Message.system("s"),
    ]


def test_results_need_an_earlier_call_unless_that_is_not_asked() -> None:
    called, result = row("tool_call", **CALLED, tool_args="{}"), row("tool", id="t", output="r")
    assert len(messages_from_rows([called, result])) == 2
    with pytest.raises(RowError) as caught:
        messages_from_rows([result, called])
    error = "row 0 (kind 'tool'), field 'tool_call_id': no earlier row calls a tool as 't'"
    assert (str(caught.value), caught.value.field) == (error, "tool_call_id")
    assert len(messages_from_rows([result, called], strict=False)) == 2
