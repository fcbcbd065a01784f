"""What the writer of contents leaves for the next part of a conversation, which is written apart from the first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from manystream.providers.gemini.block_writer import BlockWriter
from manystream.providers.gemini.message_writer import MessageWriter, WriterState
from manystream.providers.json.json_values import JSONObject
from manystream.providers.model.messages import Message
from manystream.providers.wire.omission_warnings import OPENING
from manystream.providers.wire.prefix_cache import Segment
from tests.providers.gemini.wire import PROVIDER

USER, MODEL = Message.user("a"), Message.assistant("b")
CALL, RESULT = Message.tool_call("t", "look", "{}"), Message.tool_result("t", "x")
EMPTY = Message.user("")
NO_RESULT = "messages: call 't' has no result and is not sent"

A: JSONObject = {"role": "user", "parts": [{"text": "a"}]}
B: JSONObject = {"role": "model", "parts": [{"text": "b"}]}
USED: list[JSONObject] = [
    {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "x"}}}]},
]
DONE, OPEN = WriterState(()), WriterState(("t",))
OPENED = f"messages: begin with the assistant, which Gemini refuses; sent with {OPENING!r} as the user's first"

FIRST: list[tuple[list[Message], Segment[WriterState]]] = [
    ([USER], Segment([A], DONE)),
    ([USER, MODEL], Segment([A, B], None)),
    ([USER, MODEL, USER], Segment([A, B, A], DONE)),
    ([USER, CALL, RESULT], Segment([A, *USED], DONE)),
    ([USER, CALL, USER], Segment([A, A], OPEN, [], [NO_RESULT])),
    ([USER, CALL], Segment([A], None, [], [NO_RESULT])),
    ([EMPTY], Segment([], None)),
    ([MODEL], Segment([{"role": "user", "parts": [{"text": OPENING}]}, B], None, [OPENED])),
]
LATER: list[tuple[list[Message], WriterState, Segment[WriterState] | None]] = [
    ([MODEL], DONE, Segment([B], None)),
    ([MODEL, USER], DONE, Segment([B, A], DONE)),
    ([USER], DONE, Segment([A], DONE)),
    ([USER], OPEN, Segment([A], OPEN, [], [NO_RESULT])),
    ([EMPTY], DONE, Segment([], DONE)),
    ([CALL, RESULT], DONE, Segment(USED, DONE)),
    ([CALL, RESULT], OPEN, Segment(USED, DONE, [NO_RESULT])),
    ([RESULT], OPEN, None),
]


def written(messages: Sequence[Message], first: int, before: WriterState | None) -> Segment[WriterState] | None:
    warnings: list[str] = []
    parts = BlockWriter(PROVIDER, warnings, media_in_results=True)
    return MessageWriter(parts, warnings, sign_calls=False).write(messages, first, before)


@pytest.mark.parametrize(("messages", "segment"), FIRST)
def test_the_first_messages_leave_their_state(messages: Sequence[Message], segment: Segment[WriterState]) -> None:
    assert written(messages, 0, None) == segment


@pytest.mark.parametrize(("messages", "before", "segment"), LATER)
def test_later_messages_continue_from_a_state(
    messages: Sequence[Message], before: WriterState, segment: Segment[WriterState] | None
) -> None:
    assert written(messages, 3, before) == segment
