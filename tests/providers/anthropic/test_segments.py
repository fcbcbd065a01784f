"""What the writer of messages leaves for the next part of a conversation, which is written apart from the first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from manystream.providers.anthropic.message_writer import MessageWriter, WriterState
from manystream.providers.json.json_values import JSONObject
from manystream.providers.model.messages import Message
from manystream.providers.wire.omission_warnings import OPENING
from manystream.providers.wire.prefix_cache import Segment

from .wire import STRICT

USER, MODEL = Message.user("a"), Message.assistant("b")
CALL, RESULT = Message.tool_call("t", "look", "{}"), Message.tool_result("t", "x")
EMPTY = Message.user("")
NO_RESULT = "messages: call 't' has no result and is not sent"

A: JSONObject = {"role": "user", "content": "a"}
B: JSONObject = {"role": "assistant", "content": "b"}


def used(call_id: str = "t") -> list[JSONObject]:
    """Return a call and its result in wire form."""
    return [
        {"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": "x"}]},
    ]


def state(*taken: str, open_calls: tuple[str, ...] = ()) -> WriterState:
    return WriterState(frozenset(taken), open_calls)


OPEN = state(open_calls=("t",))
OPENED = f"messages: begin with the assistant, which Anthropic refuses; sent with {OPENING!r} as the user's first"
BOTH: JSONObject = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "a"}]}
FIRST: list[tuple[list[Message], Segment[WriterState]]] = [
    ([USER], Segment([A], state())),
    ([USER, MODEL], Segment([A, B], None)),
    ([USER, CALL, RESULT], Segment([A, *used()], state("t"))),
    ([USER, CALL, USER], Segment([BOTH], OPEN, [], [NO_RESULT])),
    ([USER, CALL], Segment([A], OPEN, [], [NO_RESULT])),
    ([EMPTY], Segment([], None)),
    ([MODEL], Segment([{"role": "user", "content": OPENING}, B], None, [OPENED])),
]
LATER: list[tuple[list[Message], WriterState, Segment[WriterState] | None]] = [
    ([MODEL], state("t"), Segment([B], None)),
    ([MODEL, USER], state("t"), Segment([B, A], state("t"))),
    ([USER], state("t"), None),
    ([EMPTY], state("t"), Segment([], None)),
    ([CALL, RESULT], state("t"), Segment(used("t_2"), state("t", "t_2"))),
    ([CALL, RESULT], state("t", open_calls=("t",)), Segment(used("t_2"), state("t", "t_2"), [NO_RESULT])),
    ([RESULT], state("t", open_calls=("t",)), None),
]


@pytest.mark.parametrize(("messages", "segment"), FIRST)
def test_the_first_messages_leave_their_state(messages: Sequence[Message], segment: Segment[WriterState]) -> None:
    assert MessageWriter(STRICT).write(messages, 0, None) == segment


@pytest.mark.parametrize(("messages", "before", "segment"), LATER)
def test_later_messages_continue_from_a_state(
    messages: Sequence[Message], before: WriterState, segment: Segment[WriterState] | None
) -> None:
    assert MessageWriter(STRICT).write(messages, 3, before) == segment
