"""Messages and an agent's conversation: adding, clearing, cloning, requests, rounds of calls, and pending thinking."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

import manystream as ms
from manystream.providers.anthropic import DIALECT as ANTHROPIC
from manystream.store import RowError, rows_from_message
from tests.providers.strategies import conversations

SIGNED = ms.Thinking("I need the weather.", "signature-1")

REDACTED = ms.RedactedThinking("encrypted")

FIRST = ms.ToolCall("call_1", "weather", '{"city":"Oslo"}')

SECOND = ms.ToolCall("call_2", "weather", '{"city":"Rome"}')


def response(*content: object) -> ms.Response:
    return ms.Response(list(content), ms.FinishReason.TOOL_USE)  # type: ignore[arg-type]


def sent_to_anthropic(conversation: ms.Conversation) -> list[ms.JSONObject]:
    request = conversation.request("claude-sonnet-4-5")
    messages = json.loads(ANTHROPIC.encode(request, request.model, ms.Anthropic(), stream=False).body)["messages"]
    assert isinstance(messages, list)
    return messages


# --- a list of messages ---
def test_add_appends_in_order() -> None:
    conversation = ms.Conversation()
    conversation.add(ms.Message.user("a"))
    conversation.add(ms.Message.assistant("b"))
    assert [message.text for message in conversation] == ["a", "b"]
    assert len(conversation) == 2


@pytest.mark.parametrize("wrong", ["text", None, ms.Text("x"), {"role": "user"}])
def test_anything_but_a_message_is_refused_and_nothing_is_added(wrong: object) -> None:
    conversation = ms.Conversation([ms.Message.user("a")])
    with pytest.raises(ms.InvalidRequestError, match=r"^messages\[1\]: must be a Message, not "):
        conversation.extend([ms.Message.user("b"), wrong])  # type: ignore[list-item]
    with pytest.raises(ms.InvalidRequestError, match=r"^message: must be a Message, not "):
        conversation.add(wrong)  # type: ignore[arg-type]
    assert len(conversation) == 1


def test_clear_removes_messages_and_pending_thinking() -> None:
    conversation = ms.Conversation([ms.Message.user("a")])
    conversation.keep_thinking(response(SIGNED, FIRST))
    conversation.clear()
    assert (len(conversation), bool(conversation.pending)) == (0, False)
    conversation.complete_tool(FIRST, "rain")
    assert conversation.messages[0].content == [FIRST]


def test_a_conversation_equals_one_with_equal_messages() -> None:
    assert ms.Conversation([ms.Message.user("a")]) == ms.Conversation([ms.Message.user("a")])
    assert ms.Conversation([ms.Message.user("a")]) != ms.Conversation([ms.Message.user("b")])
    assert ms.Conversation() != []


def test_the_repr_shows_length_and_pending_thinking() -> None:
    conversation = ms.Conversation([ms.Message.user("secret")])
    assert repr(conversation) == "<Conversation of 1 messages>"
    conversation.keep_thinking(response(SIGNED, FIRST))
    assert repr(conversation) == "<Conversation of 1 messages, thinking pending>"


# --- clones ---
def test_changing_a_clones_blocks_never_changes_the_original() -> None:
    state: ms.JSONObject = {"id": "rs_1", "deep": {"list": [1]}}
    thinking = ms.Thinking("hm", "sig", ms.ProviderState("openai-responses", state))
    original = ms.Conversation(
        [ms.Message.user([ms.Text("a", citations=[{"url": "u"}]), ms.Image(data=b"x", media_type="image/png")]),
        ms.Message("assistant", [thinking, REDACTED, FIRST], {"note": [1]}),
        ms.Message.tool_result("call_1", [ms.Text("r")])]
    )  # fmt: skip
    original.keep_thinking(response(SIGNED, SECOND))
    before = original.clone()
    clone = original.clone()
    assert clone == original
    for message in clone:
        for block in message.content:
            if isinstance(block, ms.Text):
                block.text = "changed"
                block.citations.clear()
            elif isinstance(block, ms.Thinking):
                block.signature = "changed"
                block.state.data["deep"] = "changed"
            elif isinstance(block, ms.RedactedThinking):
                block.data = "changed"
            elif isinstance(block, ms.ToolResult):
                assert isinstance(block.content, list)
                block.content.clear()
        message.content.append(ms.Text("more"))
        message.provider_metadata["more"] = 1
    clone.pending.blocks.clear()
    clone.add(ms.Message.user("more"))
    assert original == before


@settings(max_examples=40)
@given(conversations)
def test_a_clone_is_equal_and_shares_nothing(conversation: ms.Conversation) -> None:
    clone = conversation.clone()
    assert clone == conversation
    for message in clone:
        message.content.clear()
        message.provider_metadata["changed"] = True
    assert all("changed" not in message.provider_metadata for message in conversation)
    assert not conversation.messages or clone != conversation


def test_a_clone_continues_with_its_own_pending_thinking() -> None:
    original = ms.Conversation([ms.Message.user("a")])
    original.keep_thinking(response(SIGNED, FIRST, SECOND))
    original.complete_tool(FIRST, "rain")
    clone = original.clone()
    original.complete_tool(SECOND, "sun")
    clone.complete_tool(SECOND, "sun")
    assert clone == original
    assert clone.messages[1].content == [SIGNED, FIRST, SECOND]


# --- requests ---
def test_a_request_has_the_messages_and_the_options() -> None:
    conversation = ms.Conversation([ms.Message.user("a")])
    tool = ms.Tool("weather")
    request = conversation.request("m", system="Be brief.", tools=[tool], thinking=ms.ThinkingLevel.LOW)
    assert request == ms.Request(
        "m", (ms.Message.user("a"),), system="Be brief.", tools=[tool], thinking=ms.ThinkingLevel.LOW
    )


def test_a_later_message_does_not_change_an_earlier_request() -> None:
    conversation = ms.Conversation([ms.Message.user("a")])
    conversation.keep_thinking(response(SIGNED, FIRST, SECOND))
    conversation.complete_tool(FIRST, "rain")
    request = conversation.request("m")
    before = ms.Conversation(request.messages).clone().messages
    conversation.complete_tool(SECOND, "sun")
    conversation.add(ms.Message.user("more"))
    assert list(request.messages) == before


# --- agent state ---
def test_a_whole_response_is_added_as_the_assistants_message() -> None:
    conversation = ms.Conversation()
    conversation.add_response(response(SIGNED, ms.Text("I look."), FIRST))
    assert conversation.messages == [ms.Message.assistant([SIGNED, ms.Text("I look."), FIRST])]


def test_a_response_without_content_adds_nothing() -> None:
    conversation = ms.Conversation()
    conversation.add_response(ms.Response())
    assert len(conversation) == 0


@pytest.mark.parametrize(
    ("thought", "blocks"),
    [
        ([SIGNED], [SIGNED, FIRST]),
        ([REDACTED], [REDACTED, FIRST]),
        ([SIGNED, REDACTED], [SIGNED, REDACTED, FIRST]),
        ([], [FIRST]),
    ],
)
def test_completing_a_tool_uses_the_pending_thinking(thought: list[object], blocks: list[object]) -> None:
    conversation = ms.Conversation([ms.Message.user("a")])
    conversation.keep_thinking(response(*thought, FIRST))
    assert bool(conversation.pending) is bool(thought)
    assert len(conversation) == 1, "no unpaired call is stored"
    conversation.complete_tool(FIRST, "rain")
    assert conversation.messages[1:] == [ms.Message.assistant(blocks), ms.Message.tool_result("call_1", "rain")]  # type: ignore[arg-type]
    assert not conversation.pending


@pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, FIRST)])
def test_parallel_calls_make_one_message_in_order(order: tuple[ms.ToolCall, ...]) -> None:
    conversation = ms.Conversation()
    conversation.keep_thinking(response(SIGNED, FIRST, REDACTED, SECOND))
    for call in order:
        conversation.complete_tool(call, f"result of {call.id}")
    assert conversation.messages == [
        ms.Message.assistant([SIGNED, FIRST, REDACTED, SECOND]),
        ms.Message("tool", [ms.ToolResult(call.id, f"result of {call.id}") for call in (FIRST, SECOND)]),
    ]


def test_calls_after_another_message_make_a_new_message() -> None:
    conversation = ms.Conversation()
    conversation.keep_thinking(response(SIGNED, FIRST, REDACTED, SECOND))
    conversation.complete_tool(FIRST, "rain")
    conversation.add(ms.Message.user("hurry"))
    conversation.complete_tool(SECOND, "sun")
    assert [message.content for message in conversation] == [
        [SIGNED, FIRST], [ms.ToolResult("call_1", "rain")], [ms.Text("hurry")], [REDACTED, SECOND],
        [ms.ToolResult("call_2", "sun")],
    ]  # fmt: skip


def test_a_changed_call_takes_the_thinking() -> None:
    """An agent may correct a call before it executes the call."""
    mended = ms.ToolCall("call_9", "weather", '{"city":"Bergen"}')
    conversation = ms.Conversation()
    conversation.keep_thinking(response(SIGNED, FIRST))
    conversation.complete_tool(mended, "rain")
    assert conversation.messages[0].content == [SIGNED, mended]


def test_a_new_responses_thinking_replaces_the_pending_one() -> None:
    conversation = ms.Conversation()
    conversation.keep_thinking(response(SIGNED, FIRST))
    conversation.keep_thinking(response(REDACTED, SECOND))
    conversation.complete_tool(SECOND, "sun")
    assert conversation.messages[0].content == [REDACTED, SECOND]


def test_anthropic_gets_thinking_back_unchanged() -> None:
    conversation = ms.Conversation([ms.Message.user("a")])
    conversation.keep_thinking(response(SIGNED, REDACTED, FIRST, SECOND))
    conversation.complete_tool(FIRST, "rain")
    conversation.complete_tool(SECOND, "boom", is_error=True)
    asked, answered = sent_to_anthropic(conversation)[1:]
    assert asked["content"] == [
        {"type": "thinking", "thinking": "I need the weather.", "signature": "signature-1"},
        {"type": "redacted_thinking", "data": "encrypted"},
        {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Oslo"}},
        {"type": "tool_use", "id": "call_2", "name": "weather", "input": {"city": "Rome"}},
    ]
    assert answered["content"] == [
        {"type": "tool_result", "tool_use_id": "call_1", "content": "rain"},
        {"type": "tool_result", "tool_use_id": "call_2", "content": "boom", "is_error": True},
    ]


THINKING, REDACTED_ROUND = ms.Thinking("h", "s"), ms.RedactedThinking("d")

A, B, C = (ms.ToolCall(f"c{name}", "f", f'{{"n":"{name}"}}') for name in "abc")


def kept(*content: object) -> ms.Conversation:
    conversation = ms.Conversation()
    conversation.keep_thinking(response(*content))
    return conversation


def asked(*content: object) -> ms.Message:
    return ms.Message.assistant(list(content))  # type: ignore[arg-type]


def answered(*pairs: tuple[ms.ToolCall, str]) -> ms.Message:
    return ms.Message("tool", [ms.ToolResult(call.id, text) for call, text in pairs])


def test_the_pending_thinking_of_a_response() -> None:
    conversation = kept(ms.Text("x"), REDACTED_ROUND, THINKING, A, ms.Thinking("i"), ms.RedactedThinking("e"))
    pending = conversation.pending
    assert pending.blocks == [REDACTED_ROUND, THINKING, ms.Thinking("i"), ms.RedactedThinking("e")]
    assert (pending.thinking, pending.redacted, bool(pending)) == (THINKING, REDACTED_ROUND, True)
    empty = kept(A).pending
    assert (empty.thinking, empty.redacted, bool(empty)) == (None, None, False)
    conversation.add_response(response(A))
    assert not conversation.pending


def test_thinking_between_calls_stays_between_them() -> None:
    later = ms.Thinking("i")
    conversation = kept(THINKING, A, later, B, REDACTED_ROUND)
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
    rows = [row for call in (A, B) for said in appended.complete_tool(call, call.id) for row in rows_from_message(said)]
    assert ms.Conversation.from_rows(rows) == ms.Conversation(appended.messages)


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
    conversation = kept(THINKING, REDACTED_ROUND, A)
    assert conversation.complete_tool(B, "2") == (asked(THINKING, REDACTED_ROUND, B), answered((B, "2")))
    assert conversation.complete_tool(A, "1") == (asked(A), answered((A, "1")))
    assert len(conversation.messages) == 4
    again = kept(A)
    again.complete_tool(A, "1")
    assert again.complete_tool(A, "2") == (asked(A), answered((A, "2")))
    assert len(again.messages) == 4


def test_a_round_that_another_message_follows_is_not_changed() -> None:
    conversation = kept(THINKING, A, REDACTED_ROUND, B, C)
    conversation.complete_tool(A, "1")
    conversation.add(ms.Message.user("u"))
    conversation.complete_tool(C, "3")
    conversation.complete_tool(B, "2")
    assert conversation.messages == [
        asked(THINKING, A), answered((A, "1")), ms.Message.user("u"), asked(REDACTED_ROUND, B, C),
        answered((B, "2"), (C, "3")),
    ]  # fmt: skip
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
    rows = [row for message in messages for row in rows_from_message(message)]
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
def test_a_longer_pair_replaces_another(written: tuple[ms.Message, ...], read: tuple[ms.Message, ...] | None) -> None:
    if read is None:
        with pytest.raises(RowError, match="no earlier row calls a tool as 'cc'"):
            stored(*written)
    else:
        assert stored(*written) == [*read]


def test_results_without_calls_are_read_unless_that_is_refused() -> None:
    rows = rows_from_message(answered((A, "1")))
    with pytest.raises(RowError):
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
