"""Runs of calls and their results."""

from __future__ import annotations

import pytest

from manystream.providers.model.messages import (
    Message,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from tests.providers.openai.responses.test_message_writer import call, items, output, text, user, warned
from tests.providers.openai.responses.test_request import input_of, said


def test_results_follow_the_run_with_their_calls() -> None:
    conversation = [
        Message.assistant([Text("Both."), ToolCall("a", "f", "{}")]), Message.assistant(ToolCall("b", "f", "{}")),
        Message.user("Hurry."), Message(Role.TOOL, [ToolResult("b", "2"), ToolResult("a", "1"), Text("(late)")]),
    ]  # fmt: skip
    assert items(*conversation) == [
        {"type": "message", "role": "assistant", "content": "Both."}, call("a"), call("b"), output("a", "1"),
        output("b", "2"), user(text("Hurry.")), user(text("(late)")),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("conversation", "warning"),
    [
        ([Message.user("q"), Message.tool_call("c1", "f", "{}")], "call 'c1' has no result"),
        ([Message.user("q"), Message.tool_result("c1", "r")], "result 'c1' has no call"),
        ([Message.tool_result("c1", "r"), Message.tool_call("c1", "f", "{}"), Message.user("q")], "result 'c1'"),
    ],
)
def test_unpaired_calls_and_results_are_left_out_with_a_warning(conversation: list[Message], warning: str) -> None:
    assert items(*conversation) == [user(text("q"))]
    assert warning in warned(*conversation)[0]


@pytest.mark.parametrize("member", ["previous_response_id", "conversation"])
def test_a_result_whose_call_the_server_keeps_is_sent(member: str) -> None:
    assert items(Message.tool_result("c1", "done"), **{member: "id_1"}) == [output("c1")]


def test_reused_ids_are_made_unique() -> None:
    turn = [Message.tool_call("call_0", "f", "{}"), Message.tool_result("call_0", "done")]
    assert items(*turn, *turn, *turn) == [
        call("call_0"), output("call_0"), call("call_0_2"), output("call_0_2"), call("call_0_3"), output("call_0_3"),
    ]  # fmt: skip


def test_the_same_id_twice_in_one_turn_is_answered_in_order() -> None:
    sent = items(
        Message.assistant([ToolCall("x", "f", "{}"), ToolCall("x", "g", "{}")]),
        Message(Role.TOOL, [ToolResult("x", "1"), ToolResult("x", "2")]),
    )
    assert sent == [call("x", "f"), call("x_2", "g"), output("x", "1"), output("x_2", "2")]


def test_a_result_answers_the_nearest_run_that_uses_its_id() -> None:
    conversation = [
        Message.tool_call("call_0", "given_up", "{}"), Message.user("Something else."),
        Message.tool_call("call_0", "f", "{}"), Message.tool_result("call_0", "done"),
    ]  # fmt: skip
    assert items(*conversation) == [user(text("Something else.")), call("call_0", "f"), output("call_0")]
    assert warned(*conversation) == ["messages: call 'call_0' has no result and is not sent"]


def test_a_result_of_a_kept_call_has_its_place_in_a_message() -> None:
    message = Message("tool", [Text("a"), ToolResult("c1", "r"), Text("b")])
    output = {"type": "function_call_output", "call_id": "c1", "output": "r"}
    assert input_of(message, previous_response_id="p") == [said("a"), output, said("b")]
    assert input_of(message, conversation="p") == [said("a"), output, said("b")]
    assert input_of(message, store=True) == [said("a"), said("b")]


def test_a_result_in_an_assistants_message_is_sent_where_it_is() -> None:
    message = Message.assistant([Text("a"), ToolResult("c1", "r"), Text("b")])
    spoken = [{"type": "message", "role": "assistant", "content": text} for text in "ab"]
    output = {"type": "function_call_output", "call_id": "c1", "output": "r"}
    assert input_of(message, previous_response_id="p") == [spoken[0], output, spoken[1]]


def test_a_call_between_texts_separates_them() -> None:
    message = Message.assistant([Text("a"), ToolCall("c1", "f", "{}"), Text("b"), Text("c")])
    assert input_of(message, Message.tool_result("c1", "r")) == [
        {"type": "message", "role": "assistant", "content": "a"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "message", "role": "assistant", "content": "bc"},
        {"type": "function_call_output", "call_id": "c1", "output": "r"},
    ]
