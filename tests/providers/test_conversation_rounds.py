"""Which calls and results a conversation joins to one round, in memory and in rows that were only appended."""

from __future__ import annotations

import pytest

import manystream as ms

THINKING, REDACTED = ms.Thinking("h", "s"), ms.RedactedThinking("d")
A, B, C = (ms.ToolCall(f"c{name}", "f", f'{{"n":"{name}"}}') for name in "abc")


def response(*content: object) -> ms.Response:
    return ms.Response(list(content), ms.FinishReason.TOOL_USE)  # type: ignore[arg-type]


def kept(*content: object) -> ms.Conversation:
    conversation = ms.Conversation()
    conversation.keep_thinking(response(*content))
    return conversation


def asked(*content: object) -> ms.Message:
    return ms.Message.assistant(list(content))  # type: ignore[arg-type]


def answered(*pairs: tuple[ms.ToolCall, str]) -> ms.Message:
    return ms.Message("tool", [ms.ToolResult(call.id, text) for call, text in pairs])


def test_the_pending_thinking_of_a_response() -> None:
    conversation = kept(ms.Text("x"), REDACTED, THINKING, A, ms.Thinking("i"), ms.RedactedThinking("e"))
    pending = conversation.pending
    assert pending.blocks == [REDACTED, THINKING, ms.Thinking("i"), ms.RedactedThinking("e")]
    assert (pending.thinking, pending.redacted, bool(pending)) == (THINKING, REDACTED, True)
    empty = kept(A).pending
    assert (empty.thinking, empty.redacted, bool(empty)) == (None, None, False)
    conversation.add_response(response(A))
    assert not conversation.pending


def test_thinking_between_calls_stays_between_them() -> None:
    later = ms.Thinking("i")
    conversation = kept(THINKING, A, later, B, REDACTED)
    assert conversation.complete_tool(A, "1") == (asked(THINKING, A), answered((A, "1")))
    assert conversation.complete_tool(B, "2") == (asked(THINKING, A, later, B), answered((A, "1"), (B, "2")))
    assert conversation.messages == [asked(THINKING, A, later, B), answered((A, "1"), (B, "2"))]


def test_the_text_beside_calls_is_kept_in_its_place() -> None:
    first, last, own = ms.Text("I look."), ms.Text("Done."), ms.ProviderBlock("anthropic", {"type": "server_tool_use"})
    conversation = kept(THINKING, first, A, own, B, last)
    assert conversation.pending.blocks == [THINKING]
    assert conversation.complete_tool(A, "1") == (asked(THINKING, first, A), answered((A, "1")))
    whole = (asked(THINKING, first, A, own, B, last), answered((A, "1"), (B, "2")))
    assert conversation.complete_tool(B, "2") == whole
    assert conversation.messages == [*whole]
    appended = kept(THINKING, first, A, own, B, last)
    rows = [
        row for call in (A, B) for said in appended.complete_tool(call, call.id) for row in ms.rows_from_message(said)
    ]
    assert ms.Conversation.from_rows(rows) == ms.Conversation(appended.messages)


def test_calls_may_be_completed_in_any_order() -> None:
    conversation = kept(THINKING, A, B)
    assert conversation.complete_tool(B, "2") == (asked(THINKING, B), answered((B, "2")))
    assert conversation.pending.blocks == []
    conversation.complete_tool(A, "1")
    assert conversation.messages == [asked(THINKING, A, B), answered((A, "1"), (B, "2"))]


def test_equal_ids_are_told_apart_by_the_call() -> None:
    first, second = ms.ToolCall("c", "f", "1"), ms.ToolCall("c", "f", "2")
    conversation = kept(first, second)
    conversation.complete_tool(second, "2")
    conversation.complete_tool(first, "1")
    assert conversation.messages == [asked(first, second), answered((first, "1"), (second, "2"))]
    equal = kept(first, second)
    equal.complete_tool(ms.ToolCall("c", "f", "2"), "2")
    assert equal.messages == [asked(second), answered((second, "2"))]
    changed = kept(first, second)
    changed.complete_tool(ms.ToolCall("c", "f", "3"), "3")
    changed.complete_tool(second, "2")
    assert changed.messages[0] == asked(ms.ToolCall("c", "f", "3"), second)
    twins = kept(ms.ToolCall("c", "f", "1"), twin := ms.ToolCall("c", "f", "1"))
    twins.complete_tool(twin, "2")
    twins.complete_tool(ms.ToolCall("c", "f", "1"), "1")
    assert twins.messages[1] == answered((twin, "1"), (twin, "2"))


def test_a_call_of_no_kept_response_takes_the_pending_thinking() -> None:
    conversation = kept(THINKING, REDACTED, A)
    assert conversation.complete_tool(B, "2") == (asked(THINKING, REDACTED, B), answered((B, "2")))
    assert conversation.complete_tool(A, "1") == (asked(A), answered((A, "1")))
    assert len(conversation.messages) == 4
    again = kept(A)
    again.complete_tool(A, "1")
    assert again.complete_tool(A, "2") == (asked(A), answered((A, "2")))
    assert len(again.messages) == 4


def test_a_round_that_another_message_follows_is_not_changed() -> None:
    conversation = kept(THINKING, A, REDACTED, B, C)
    conversation.complete_tool(A, "1")
    conversation.add(ms.Message.user("u"))
    conversation.complete_tool(C, "3")
    conversation.complete_tool(B, "2")
    assert conversation.messages == [
        asked(THINKING, A),
        answered((A, "1")),
        ms.Message.user("u"),
        asked(REDACTED, B, C),
        answered((B, "2"), (C, "3")),
    ]
    for left in (0, 1):
        cut = kept(A, B)
        cut.complete_tool(A, "1")
        del cut.messages[left:]
        cut.complete_tool(B, "2")
        assert cut.messages[left:] == [asked(B), answered((B, "2"))]


def test_a_request_keeps_the_messages_that_a_round_replaces() -> None:
    conversation = kept(A, B)
    conversation.complete_tool(A, "1")
    request = conversation.request("m")
    conversation.complete_tool(B, "2")
    assert list(request.messages) == [asked(A), answered((A, "1"))]


def test_a_failed_tool_is_marked() -> None:
    for kind in (kept(A), ms.Conversation()):
        _, message = kind.complete_tool(A, "x", is_error=True)
        assert message == ms.Message("tool", ms.ToolResult("ca", "x", is_error=True))
        _, message = kind.complete_tool(B, "x")
        assert message.content[-1] == ms.ToolResult("cb", "x", is_error=False)


# --- rows that were only appended ---


def stored(*messages: ms.Message) -> list[ms.Message]:
    rows = [row for message in messages for row in ms.rows_from_message(message)]
    return ms.Conversation.from_rows(rows).messages


USER = ms.Message.user("u")
ONE, TWO = (asked(THINKING, A), answered((A, "1"))), (asked(THINKING, A, B), answered((A, "1"), (B, "2")))
THREE = (asked(THINKING, A, B, C), answered((A, "1"), (B, "2"), (C, "3")))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ((*ONE, *TWO), TWO),
        ((*ONE, *TWO, *THREE), THREE),
        ((USER, *ONE, *TWO, USER), (USER, *TWO, USER)),
        ((*ONE, USER, *TWO), (*ONE, USER, *TWO)),
        ((*ONE, *ONE), (*ONE, *ONE)),
        ((*TWO, *ONE), (*TWO, *ONE)),
        ((*ONE, asked(THINKING, B, A), TWO[1]), (asked(THINKING, B, A), TWO[1])),
        ((*ONE, asked(A, B), TWO[1]), (*ONE, asked(A, B), TWO[1])),
        ((*ONE, TWO[0], answered((B, "2"), (C, "1"))), None),
        ((*ONE, asked(THINKING, A, B, ms.Text("x")), TWO[1]), (asked(THINKING, A, B, ms.Text("x")), TWO[1])),
        ((*ONE, TWO[0], answered((A, "2"), (B, "2"))), (*ONE, TWO[0], answered((A, "2"), (B, "2")))),
    ],
)  # fmt: skip
def test_a_pair_that_extends_the_one_before_replaces_it(
    written: tuple[ms.Message, ...], read: tuple[ms.Message, ...] | None
) -> None:
    if read is None:
        with pytest.raises(ms.RowError, match="no earlier row calls a tool as 'cc'"):
            stored(*written)
    else:
        assert stored(*written) == [*read]


def test_results_without_calls_are_read_unless_that_is_refused() -> None:
    rows = ms.rows_from_message(answered((A, "1")))
    with pytest.raises(ms.RowError):
        ms.Conversation.from_rows(rows)
    assert ms.Conversation.from_rows(rows, strict=False).messages == [answered((A, "1"))]


# --- values ---


def test_the_repr_and_the_length() -> None:
    conversation = ms.Conversation([USER])
    assert repr(conversation) == "<Conversation of 1 messages>"
    conversation.keep_thinking(response(THINKING))
    assert repr(conversation) == "<Conversation of 1 messages, thinking pending>"
    assert conversation != ms.Conversation([USER])
    assert conversation != [USER]
    with pytest.raises(ms.InvalidRequestError, match=r"^message: must be a Message, not int$"):
        conversation.add(7)  # type: ignore[arg-type]


def test_a_clone_goes_on_with_its_round() -> None:
    conversation = kept(THINKING, A, B)
    conversation.complete_tool(A, "1")
    clone = conversation.clone()
    clone.complete_tool(B, "2")
    assert clone.messages == [*TWO]
    assert conversation.messages == [*ONE]
    conversation.clear()
    assert (conversation.messages, len(clone)) == ([], 2)
    assert conversation.complete_tool(B, "2") == (asked(B), answered((B, "2")))


def test_an_answer_without_content_is_not_added() -> None:
    conversation = ms.Conversation([USER])
    conversation.add_response(response())
    assert conversation.messages == [USER]
    conversation.add_response(response(ms.Text("a")))
    assert conversation.messages == [USER, ms.Message.assistant("a")]
