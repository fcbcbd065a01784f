"""The limits on candidates and parts, at the exact number."""

from __future__ import annotations

import json
from typing import Any

import pytest

from manystream.providers.gemini import DIALECT
from manystream.providers.model.events import Error
from manystream.providers.wire.answer_limits import AnswerLimits
from tests.providers.gemini.wire import PROVIDER, Ids, part_chunk

LIMITS = AnswerLimits(max_choices=3, max_blocks=3, max_tool_calls=3)


def candidate(index: int) -> dict[str, Any]:
    return {"index": index, "finishReason": "STOP"}


def outcome(*chunks: dict[str, Any]) -> str:
    """Return the message of the error that ends the stream; empty if there is none."""
    machine = DIALECT.machine(PROVIDER, Ids(), LIMITS)
    events = [event for chunk in chunks for event in machine.feed("", json.dumps(chunk).encode())]
    errors = [event.error.message for event in events if isinstance(event, Error)]
    return errors[0] if errors else ""


CHOICES = "the answer has more than 3 choices (limits.max_choices)"
PARTS = "the answer has more than 3 content parts in one event (limits.max_blocks)"
BLOCKS = "the answer has more than 3 content blocks (limits.max_blocks)"


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([{"candidates": [candidate(0)] * 3}], ""),
        ([{"candidates": [candidate(0)] * 4}], CHOICES),
        ([{"candidates": [candidate(index)]} for index in (1, 2, 1, 0, 2)], ""),
        ([{"candidates": [candidate(index)]} for index in (1, 2, 3)], CHOICES),
        ([part_chunk(*[{"text": "a"}] * 3)], ""),
        ([part_chunk(*[{"text": "a"}] * 4)], PARTS),
        ([part_chunk(*[{"text": "a"}] * 3)] * 3, ""),
        ([part_chunk({"executableCode": {}})] * 3, ""),
        ([part_chunk({"executableCode": {}})] * 4, BLOCKS),
    ],
)
def test_an_answer_has_at_most_so_many_candidates_and_parts(chunks: list[dict[str, Any]], message: str) -> None:
    assert outcome(*chunks) == message


def test_a_call_has_at_most_so_many_pieces_in_one_part() -> None:
    piece = {"jsonPath": "$.a", "stringValue": "b", "willContinue": True}
    for number, message in ((3, ""), (4, PARTS)):
        call = {"functionCall": {"name": "f", "partialArgs": [piece] * number, "willContinue": True}}
        assert outcome(part_chunk(call)) == message


def test_what_came_before_a_limit_is_delivered() -> None:
    machine = DIALECT.machine(PROVIDER, Ids(), LIMITS)
    parts: list[dict[str, Any]] = [{"text": "a"}, {"executableCode": {}}, {"text": "b"}]
    events = [*machine.feed("", json.dumps(part_chunk(*parts)).encode())]
    events += machine.feed("", json.dumps(part_chunk({"text": "c"}, {"executableCode": {}})).encode())
    assert [event.type for event in events] == ["start", "text_delta", "text_delta", "text_delta", "error"]
    assert machine.response().text == "abc"
