"""Deltas that do not fit the block at their index, as gateways send them: nothing is lost without a word."""

from __future__ import annotations

import pytest

from manystream.providers.model.events import Done, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallDone
from manystream.providers.model.messages import Text, Thinking, ToolCall
from manystream.providers.model.provider_error import ErrorCategory
from tests.providers.anthropic.wire import LENIENT, START, STOP, block, call, finish, run, run_at_every_split, sse, text


def delta(index: int, kind: str, **members: object) -> str:
    """Return the event of one delta."""
    return sse({"type": "content_block_delta", "index": index, "delta": {"type": kind, **members}})


def test_thinking_in_a_block_of_text_is_thinking() -> None:
    wire = (
        START + block(0, {"type": "text", "text": ""}, stop=False) + delta(0, "thinking_delta", thinking="The user ")
        + delta(0, "thinking_delta", thinking="greets.") + delta(0, "text_delta", text="Good ")
        + delta(0, "text_delta", text="day!") + finish() + STOP
    )  # fmt: skip
    response = run_at_every_split(wire, LENIENT).response
    assert (response.thinking, response.text) == ("The user greets.", "Good day!")
    assert [type(each) for each in response.content] == [Text, Thinking, Text]


def test_text_in_a_block_of_thinking_is_text() -> None:
    wire = (
        START + block(0, {"type": "thinking", "thinking": ""}, stop=False) + delta(0, "thinking_delta", thinking="Hm.")
        + delta(0, "text_delta", text="Good ") + delta(0, "text_delta", text="day!") + finish() + STOP
    )  # fmt: skip
    outcome = run(wire)
    assert (outcome.response.thinking, outcome.response.text) == ("Hm.", "Good day!")
    assert outcome.events[1:4] == [ThinkingDelta(0, "Hm."), TextDelta(1, "Good "), TextDelta(1, "day!")]


def test_text_inside_a_tool_call_is_text_beside_it() -> None:
    wire = (
        START + call(0, '{"city": ', stop=False) + delta(0, "text_delta", text="\n")
        + delta(0, "input_json_delta", partial_json='"Oslo"}') + delta(0, "text_delta", text="So.")
        + sse({"type": "content_block_stop", "index": 0}) + call(1, "{}", id="toolu_2") + finish("tool_use") + STOP
    )  # fmt: skip
    outcome = run_at_every_split(wire)
    assert outcome.response.content == [
        ToolCall("toolu_1", "look", '{"city": "Oslo"}'),
        Text("\nSo."),
        ToolCall("toolu_2", "look", "{}"),
    ]
    assert outcome.events[2:6] == [
        ToolCallDelta(0, '{"city": '), TextDelta(1, "\n"), ToolCallDelta(0, '"Oslo"}'), TextDelta(1, "So."),
    ]  # fmt: skip


@pytest.mark.parametrize("stop", [True, False])
def test_a_cut_off_call_with_text_inside_is_not_complete(stop: bool) -> None:
    wire = START + call(0, '{"city": "Os', stop=False) + delta(0, "text_delta", text="\n")
    wire += sse({"type": "content_block_stop", "index": 0}) if stop else ""
    outcome = run(wire + finish("max_tokens") + STOP)
    assert outcome.response.tool_calls == [ToolCall("toolu_1", "look", '{"city": "Os', complete=False)]
    assert outcome.events[-2] == ToolCallDone(0, complete=False)


@pytest.mark.parametrize(
    ("before", "index", "words"),
    [
        ("", 1, "content_block_delta: arguments for content block 1, which is no tool call, in "),
        (text(0, "Well."), 0, "content_block_delta: arguments for content block 0, which is no tool call, in "),
        (call(0, stop=True) + call(1, "{}", id="toolu_2"), 0,
            "content_block_delta: arguments for tool call 'toolu_1', which has ended, in "),
    ],
)  # fmt: skip
def test_arguments_that_no_call_can_have_are_an_error(before: str, index: int, words: str) -> None:
    stray = delta(index, "input_json_delta", partial_json='{"path": "/tmp"}')
    outcome = run(START + before + stray + finish("tool_use") + STOP)
    assert outcome.error is not None
    assert str(outcome.error).startswith(f"server: {words}")
    assert (outcome.error.category, outcome.error.retryable) == (ErrorCategory.SERVER, False)


def test_empty_arguments_without_a_call_change_nothing() -> None:
    wire = START + text(0, "Well.") + delta(0, "input_json_delta", partial_json="") + finish() + STOP
    assert isinstance(run(wire).events[-1], Done)


@pytest.mark.parametrize(
    ("stray", "warning"),
    [
        (delta(0, "signature_delta", signature="c2ln"),
            "the answer has a signature in a block that is no thinking; it was dropped"),
        (delta(7, "citations_delta", citation={"type": "char_location"}),
            "the answer has a citation in a block that is no text; it was dropped"),
    ],
)  # fmt: skip
def test_a_part_that_has_no_place_causes_a_warning(stray: str, warning: str) -> None:
    response = run(START + text(0, "Well.") + stray + stray + finish() + STOP).response
    assert (response.text, response.warnings) == ("Well.", [warning])
