"""The output of `manystream run`: the answer's text on one stream, everything else on the other, block by block."""

from __future__ import annotations

import io

import manystream as ms
from manystream.cli.answer import AnswerWriter, summary, usage_text

USAGE = ms.Usage(input_tokens=12, output_tokens=5, thinking_tokens=0)
EVENTS: list[ms.Event] = [
    ms.Start("claude-test", "id"),
    ms.ThinkingDelta(0, "let me "),
    ms.ThinkingDelta(0, "see"),
    ms.TextDelta(1, "It is "),
    ms.TextDelta(1, "sunny."),
    ms.ToolCallStart(2, "call-1", "get_weather"),
    ms.ToolCallDelta(2, '{"city":'),
    ms.ToolCallDelta(2, '"Łódź"}'),
    ms.ToolCallDone(2),
    ms.Done(ms.FinishReason.TOOL_USE, "tool_use", USAGE),
]
RESPONSE = ms.Response(
    content=[
        ms.Thinking("let me see"),
        ms.Text("It is sunny."),
        ms.ToolCall("call-1", "get_weather", '{"city":"Łódź"}'),
    ],
    finish_reason=ms.FinishReason.TOOL_USE,
    raw_finish_reason="tool_use",
    usage=USAGE,
    model="claude-test",
)
COMPLETION = ms.Completion(
    success=True, http_status=200, response=RESPONSE, attempts=1, timings=ms.Timings(first_token=0.25, finished=1.5)
)
ASIDE = (
    "thinking: let me see\n"
    'tool call get_weather {"city":"Łódź"}\n'
    "[claude-test · tool_use · 12 in, 5 out, 0 thinking tokens · first token after 250.0 ms, complete after 1.50 s]\n"
)


def test_a_streamed_answer_is_shown_event_by_event() -> None:
    text, aside = io.StringIO(), io.StringIO()
    writer = AnswerWriter(text, aside)
    for event in EVENTS:
        writer.on_event(event)
    writer.finish(COMPLETION, streamed=True)
    assert text.getvalue() == "It is sunny.\n"
    assert aside.getvalue() == ASIDE


def test_an_unstreamed_answer_looks_the_same() -> None:
    text, aside = io.StringIO(), io.StringIO()
    AnswerWriter(text, aside).finish(COMPLETION, streamed=False)
    assert text.getvalue() == "It is sunny.\n"
    assert aside.getvalue() == ASIDE


def test_text_with_a_line_end_gets_no_second_one() -> None:
    text = io.StringIO()
    writer = AnswerWriter(text, io.StringIO())
    writer.on_event(ms.TextDelta(0, "one\n"))
    writer.finish(ms.Completion(success=True), streamed=True)
    assert text.getvalue() == "one\n"


def test_blocks_of_text_begin_on_lines_of_their_own() -> None:
    text = io.StringIO()
    writer = AnswerWriter(text, io.StringIO())
    writer.on_event(ms.TextDelta(0, "one"))
    writer.on_event(ms.TextDelta(1, "two"))
    writer.finish(ms.Completion(success=True), streamed=True)
    assert text.getvalue() == "one\ntwo\n"


def test_piped_text_is_written_unchanged() -> None:
    text = io.StringIO()
    AnswerWriter(text, io.StringIO()).on_event(ms.TextDelta(0, "\x1b[31mred"))
    assert text.getvalue() == "\x1b[31mred"


def test_a_tool_name_cannot_control_the_terminal() -> None:
    aside = io.StringIO()
    AnswerWriter(io.StringIO(), aside).on_event(ms.ToolCallStart(0, "id", "\x1b[2J"))
    assert "\x1b" not in aside.getvalue()


def test_unknown_token_counts_are_left_out() -> None:
    assert usage_text(ms.Usage()) == ""
    assert usage_text(ms.Usage(output_tokens=3)) == "3 out tokens"


def test_the_summary_of_a_failure_has_no_finish_reason() -> None:
    error = ms.ProviderError("cut", category=ms.ErrorCategory.NETWORK)
    partial = ms.Completion(success=False, response=ms.Response(model="m"), error=error, attempts=3)
    assert partial.response is not None
    assert summary(partial, partial.response) == "[m · 3 attempts]"


def test_a_call_without_arguments_has_a_line_of_its_own() -> None:
    text, aside = io.StringIO(), io.StringIO()
    writer = AnswerWriter(text, aside)
    events = [ms.ToolCallStart(0, "call-1", "now"), ms.ToolCallDone(0), ms.ThinkingDelta(1, "well")]
    for event in events:
        writer.on_event(event)
    assert aside.getvalue() == "tool call now \nthinking: well"
