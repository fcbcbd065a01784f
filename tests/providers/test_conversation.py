"""An agent's conversation: adding, clearing, cloning, requests, and thinking that waits for its tool call."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

import manystream as ms
from manystream.providers.anthropic import DIALECT as ANTHROPIC
from manystream.providers.json.json_values import JSONObject

from .strategies import conversations

SIGNED = ms.Thinking("I need the weather.", "signature-1")
REDACTED = ms.RedactedThinking("encrypted")
FIRST = ms.ToolCall("call_1", "weather", '{"city":"Oslo"}')
SECOND = ms.ToolCall("call_2", "weather", '{"city":"Rome"}')


def response(*content: object) -> ms.Response:
    return ms.Response(list(content), ms.FinishReason.TOOL_USE)  # type: ignore[arg-type]


def sent_to_anthropic(conversation: ms.Conversation) -> list[JSONObject]:
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
    state: JSONObject = {"id": "rs_1", "deep": {"list": [1]}}
    thinking = ms.Thinking("hm", "sig", ms.ProviderState("openai-responses", state))
    original = ms.Conversation(
        [
            ms.Message.user([ms.Text("a", citations=[{"url": "u"}]), ms.Image(data=b"x", media_type="image/png")]),
            ms.Message("assistant", [thinking, REDACTED, FIRST], {"note": [1]}),
            ms.Message.tool_result("call_1", [ms.Text("r")]),
        ]
    )
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
                assert block.state is not None
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


def test_pending_thinking_can_be_read() -> None:
    conversation = ms.Conversation()
    conversation.keep_thinking(response(SIGNED, REDACTED, FIRST))
    assert (conversation.pending.thinking, conversation.pending.redacted) == (SIGNED, REDACTED)


def test_a_failed_tool_is_a_result_that_is_an_error() -> None:
    conversation = ms.Conversation()
    conversation.complete_tool(FIRST, "no such city", is_error=True)
    assert conversation.messages[1].content == [ms.ToolResult("call_1", "no such city", is_error=True)]


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


def test_a_call_that_is_never_completed_is_never_stored() -> None:
    conversation = ms.Conversation()
    conversation.keep_thinking(response(SIGNED, FIRST, SECOND))
    conversation.complete_tool(SECOND, "sun")
    conversation.add(ms.Message.user("never mind the other"))
    assert conversation.messages[0].content == [SIGNED, SECOND]


def test_calls_after_another_message_make_a_new_message() -> None:
    conversation = ms.Conversation()
    conversation.keep_thinking(response(SIGNED, FIRST, REDACTED, SECOND))
    conversation.complete_tool(FIRST, "rain")
    conversation.add(ms.Message.user("hurry"))
    conversation.complete_tool(SECOND, "sun")
    assert [message.content for message in conversation] == [
        [SIGNED, FIRST],
        [ms.ToolResult("call_1", "rain")],
        [ms.Text("hurry")],
        [REDACTED, SECOND],
        [ms.ToolResult("call_2", "sun")],
    ]


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
