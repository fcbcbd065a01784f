"""The rows of a data set: what is asked for a row, and what the record of its answer adds to it."""

import pytest

import manystream as ms
from manystream.ray.rows import AskedRow, AskError, Gained, check_columns, gained_of, read_rows, unsent_record


def make(content: object) -> ms.Request:
    return ms.Request("m", content)  # type: ignore[arg-type]


def read(count: int = 1, *, needs_id: bool = False, **columns: list[object]) -> list[AskedRow]:
    return read_rows(columns, count, make, needs_id=needs_id)


def message_of(row: AskedRow) -> str:
    assert row.request is None
    assert row.record is not None
    error = gained_of(row.record).error
    assert error["category"] == "invalid_arg"
    return str(error["message"])


def text_of(row: AskedRow) -> str:
    (block,) = row.request.messages[-1].content
    assert isinstance(block, ms.Text)
    return block.text


def test_a_row_has_a_prompt_or_messages() -> None:
    said = [{"role": "system", "content": "brief"}, {"role": "user", "content": "two"}]
    rows = read(2, prompt=["one", None], messages=[None, said])
    assert [text_of(row) for row in rows] == ["one", "two"]
    assert rows[1].request.system == "brief"


def test_members_that_other_rows_have_are_null_and_left_out() -> None:
    """All structs of a column have the same members."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "what?", "tool_calls": None, "tool_call_id": None},
        {"role": "assistant", "content": None, "tool_calls": [call], "tool_call_id": None},
        {"role": "tool", "content": "42", "tool_calls": None, "tool_call_id": "c1"},
    ]
    (row,) = read(messages=[messages])
    plain = [{name: value for name, value in one.items() if value is not None} for one in messages]
    assert row.request == make(plain)


class Array:
    """An array as pandas makes it of a list."""

    def __init__(self, values: list[object]) -> None:
        self.values = values

    def tolist(self) -> list[object]:
        return self.values


def test_arrays_are_lists() -> None:
    for name in ("messages", "prompt"):
        (row,) = read(**{name: [Array([{"role": "user", "content": "hi"}])]})
        assert text_of(row) == "hi"


@pytest.mark.parametrize(
    ("messages", "prompt", "reason"),
    [
        (None, None, "messages: and 'prompt' are both null"),
        ([{"role": "user", "content": "x"}], "y", "messages: and 'prompt' are both given"),
        ([], None, "messages: must be a list with at least one message, not an empty list"),
        ("text", None, "messages: must be a list with at least one message, not str; a text is a 'prompt'"),
        (None, 5, "prompt: must be text, not int"),
        ([{"role": "user"}], None, "messages[0].content"),
        ([{"role": "nobody", "content": "x"}], None, "messages[0].role"),
    ],
)
def test_a_row_that_cannot_be_asked_says_why_alone(messages: object, prompt: object, reason: str) -> None:
    bad, good = read(2, messages=[messages, None], prompt=[prompt, "good"])
    assert message_of(bad).startswith(reason)
    assert text_of(good) == "good"


@pytest.mark.parametrize(
    ("id", "reason"),
    [
        (None, "id: is missing"),
        ("", "id: must be text that is not empty, or a whole number, not str"),
        (1.5, "id: must be text that is not empty, or a whole number, not float"),
        (True, "id: must be text that is not empty, or a whole number, not bool"),
        ("a", "id: 'a' is used twice in this block, first in row 0"),
    ],
)
def test_a_journal_needs_an_id(id: object, reason: str) -> None:
    rows = read(3, needs_id=True, id=["a", id, 7], prompt=["x", "y", "z"])
    assert message_of(rows[1]).startswith(reason)
    assert (rows[0].id, rows[2].id) == ("a", 7)
    assert all(row.request is not None for row in read(3, id=["a", id, 7], prompt=["x", "y", "z"]))


def test_a_row_has_its_place_its_id_and_its_record() -> None:
    def fail(content: object) -> ms.Request:
        if content == "defect":
            raise ZeroDivisionError("by zero")
        return make(content)

    rows = read_rows({"id": ["a", None, "c"], "prompt": ["x", "y", "defect"]}, 3, fail, needs_id=True)
    assert rows == [
        AskedRow(0, "a", make("x")),
        AskedRow(
            1,
            "",
            None,
            {
                "id": "",
                "error": {
                    "category": "invalid_arg",
                    "message": "id: is missing; a row needs one where there is a journal, to find its answer in it",
                },
            },
        ),
        AskedRow(
            2,
            "c",
            None,
            {
                "id": "c",
                "error": {"category": "invalid_arg", "message": "cannot be read: ZeroDivisionError('by zero')"},
            },
        ),
    ]
    assert [row.id for row in read(2, id=["a", "a"], prompt=["x", "y"])] == ["", ""]


def test_a_long_message_is_cut() -> None:
    assert unsent_record("a", "x" * 2000 + "y") == {
        "id": "a",
        "error": {"category": "invalid_arg", "message": "x" * 2000},
    }


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ({"role": "user"}, "messages: must be a list with at least one message, not dict; a text is a 'prompt'"),
        (5, "messages: must be a list with at least one message, not int; a text is a 'prompt'"),
        ((), "messages: must be a list with at least one message, not an empty list; a text is a 'prompt'"),
    ],
)
def test_messages_that_are_no_list_are_named(messages: object, reason: str) -> None:
    (row,) = read(messages=[messages])
    assert message_of(row) == reason


def test_columns_are_refused_with_what_to_do() -> None:
    for names, needs_id, message in (
        (
            ["a", "b"],
            False,
            "the rows have neither 'messages' nor 'prompt': they have 'a', 'b'; rename the column to ask",
        ),
        ([], False, "the rows have neither 'messages' nor 'prompt': they have no columns; rename the column to ask"),
        (
            ["messages"],
            True,
            "the rows have no 'id', and the journal needs one to find their answers: they have 'messages'",
        ),
        (
            ["finish_reason", "prompt", "usage", "error", "text"],
            False,
            "the rows have 'text' and 'error' and 'usage' and 'finish_reason' already, which answers add: rename or"
            " drop the column",
        ),
    ):
        with pytest.raises(AskError) as caught:
            check_columns(names, needs_id=needs_id)
        assert str(caught.value) == message


def test_columns_that_no_row_can_be_asked_with_end_the_data_set() -> None:
    check_columns(["id", "prompt", "other"], needs_id=True)
    check_columns(["messages"], needs_id=False)
    with pytest.raises(AskError, match="neither 'messages' nor 'prompt': they have 'id', 'question'; rename"):
        check_columns(["id", "question"], needs_id=False)
    with pytest.raises(AskError, match="no 'id', and the journal needs one"):
        check_columns(["prompt"], needs_id=True)
    with pytest.raises(AskError, match="have 'text' and 'usage' already, which answers add"):
        check_columns(["prompt", "usage", "text"], needs_id=False)
    with pytest.raises(AskError, match="no columns"):
        check_columns([], needs_id=False)


def test_a_record_becomes_columns_of_fixed_types() -> None:
    usage = {"input_tokens": 3, "output_tokens": 2**64 - 1, "other": "x"}
    gained = gained_of({"id": "a", "text": "hi", "usage": usage, "finish_reason": "stop", "error": None})
    assert (gained.text, gained.error, gained.finish_reason) == ("hi", None, "stop")
    assert gained.usage == {
        "input_tokens": 3, "output_tokens": None, "thinking_tokens": None, "cached_tokens": None,
        "cache_write_tokens": None, "total_tokens": None,
    }  # fmt: skip
    failed = gained_of({"id": "a", "text": "par", "error": {"category": "server", "http_status": 500, "more": []}})
    assert (failed.text, failed.usage, failed.finish_reason) == ("par", None, None)
    assert failed.error == {
        "category": "server", "message": None, "http_status": 500, "provider_code": None, "retryable": False,
    }  # fmt: skip


def test_every_member_of_a_record_has_its_column() -> None:
    counts = {
        "input_tokens": 1, "output_tokens": 2**63 - 1, "thinking_tokens": 3, "cached_tokens": 2**63,
        "cache_write_tokens": 5, "total_tokens": 6,
    }  # fmt: skip
    assert gained_of({"text": "hi", "usage": counts, "finish_reason": "stöp\udc00"}) == Gained(
        "hi", None, {**counts, "cached_tokens": None}, "stöp\ufffd"
    )
    error = {
        "category": "server\ud83d", "message": "m\ud83d", "http_status": 503, "provider_code": "c\ud83d",
        "retryable": True,
    }  # fmt: skip
    replaced = {
        "category": "server\ufffd", "message": "m\ufffd", "http_status": 503, "provider_code": "c\ufffd",
        "retryable": True,
    }  # fmt: skip
    assert gained_of({"error": error}) == Gained(None, replaced, None, None)


def test_half_a_character_is_replaced() -> None:
    assert gained_of({"id": "a", "text": "x\ud83d", "error": {"category": "server", "message": "\udc00é"}}).text == "x�"
