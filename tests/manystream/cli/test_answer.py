"""The output of `manystream run`: the answer's text on one stream, everything else on the other, block by block."""

import io
from decimal import Decimal

import pytest

import manystream as ms
from manystream.cli.answer import AnswerWriter, cost_text, summary, timings_text, usage_text
from manystream.cost import Cost, Unpriced

USAGE = ms.Usage(input_tokens=12, output_tokens=5, thinking_tokens=0)
EVENTS: list[ms.Event] = [
    ms.Start("claude-test", "id"), ms.ThinkingDelta(0, "let me "), ms.ThinkingDelta(0, "see"),
    ms.TextDelta(1, "It is "), ms.TextDelta(1, "sunny."), ms.ToolCallStart(2, "call-1", "get_weather"),
    ms.ToolCallDelta(2, '{"city":'), ms.ToolCallDelta(2, '"Łódź"}'), ms.ToolCallDone(2),
    ms.Done(ms.FinishReason.TOOL_USE, "tool_use", USAGE),
]  # fmt: skip
RESPONSE = ms.Response(
    content=[ms.Thinking("let me see"), ms.Text("It is sunny."),
    ms.ToolCall("call-1", "get_weather", '{"city":"Łódź"}')], finish_reason=ms.FinishReason.TOOL_USE,
    raw_finish_reason="tool_use", usage=USAGE, model="claude-test",
)  # fmt: skip
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


def test_piped_text_has_no_control_characters_but_its_line_ends() -> None:
    text = io.StringIO()
    writer = AnswerWriter(text, io.StringIO())
    for piece in ("\x1b[31mred\r", "\n\tone\r\ntwo\x9b\n"):
        writer.on_event(ms.TextDelta(0, piece))
    assert text.getvalue() == "\ufffd[31mred\r\n\tone\r\ntwo\ufffd\n"


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


class Output(io.StringIO):
    """An output stream; a terminal if `tty`. Its reader receives only what was flushed."""

    def __init__(self, *, tty: bool = False) -> None:
        super().__init__()
        self.tty = tty
        self.received = ""

    def isatty(self) -> bool:
        return self.tty

    def flush(self) -> None:
        self.received = self.getvalue()


def test_each_event_is_received_at_once() -> None:
    text, aside = Output(), Output()
    writer = AnswerWriter(text, aside)
    expected = [
        ("", ""), ("", "thinking: let me "), ("", "thinking: let me see"), ("It is ", "thinking: let me see\n"),
        ("It is sunny.", "thinking: let me see\n"), ("It is sunny.\n", "thinking: let me see\ntool call get_weather "),
    ]  # fmt: skip
    received: list[tuple[str, str]] = []
    for event in EVENTS[:6]:
        writer.on_event(event)
        received.append((text.received, aside.received))
    assert received == expected
    writer.finish(COMPLETION, streamed=True)
    assert aside.received.endswith("complete after 1.50 s]\n")


def test_the_last_line_of_the_text_is_ended_at_once() -> None:
    text = Output()
    writer = AnswerWriter(text, Output())
    writer.on_event(ms.TextDelta(0, "one"))
    writer.finish(ms.Completion(success=True), streamed=True)
    assert text.received == "one\n"


def test_a_terminal_shows_labels_bold_and_the_rest_dim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text, aside = Output(tty=True), Output(tty=True)
    writer = AnswerWriter(text, aside)
    writer.on_event(ms.ThinkingDelta(0, "let\x1b me"))
    writer.on_event(ms.TextDelta(1, "\x1b[31mred"))
    writer.on_event(ms.ToolCallStart(2, "call-1", "get\x1b"))
    writer.on_event(ms.ToolCallDelta(2, "{\x1b}"))
    writer.finish(ms.Completion(success=True, response=ms.Response(model="m")), streamed=True)
    assert text.getvalue() == "\ufffd[31mred\n"
    assert aside.getvalue() == (
        "\x1b[1mthinking: \x1b[0m\x1b[2mlet\ufffd me\x1b[0m\n"
        "\x1b[1mtool call get\ufffd \x1b[0m\x1b[2m{\ufffd}\x1b[0m\n"
        "\x1b[2m[m · unknown]\x1b[0m\n"
    )


def test_blocks_of_one_kind_have_labels_and_lines_of_their_own() -> None:
    aside = io.StringIO()
    writer = AnswerWriter(io.StringIO(), aside)
    for index, thought in ((0, "one\n"), (1, "two"), (1, " three"), (2, "")):
        writer.on_event(ms.ThinkingDelta(index, thought))
    writer.finish(ms.Completion(success=False), streamed=False)
    assert aside.getvalue() == "thinking: one\nthinking: two three\nthinking: \n"


def test_an_unstreamed_tool_call_cannot_control_the_terminal() -> None:
    aside = io.StringIO()
    response = ms.Response(content=[ms.ToolCall("id", "\x1b[2J", "{}")])
    AnswerWriter(io.StringIO(), aside).show_response(response)
    assert aside.getvalue() == "tool call \ufffd[2J {}"


def test_the_summary_has_all_parts() -> None:
    response = ms.Response(
        finish_reason=ms.FinishReason.LENGTH, usage=ms.Usage(input_tokens=1, cached_tokens=2, cache_write_tokens=3,
        output_tokens=4, thinking_tokens=5, total_tokens=15), model="m\x1b",
    )  # fmt: skip
    cost = Cost("USD", Decimal(1), Decimal(2), Decimal(4), Decimal(8), Decimal(16), Decimal(31), "m", "p")
    completion = ms.Completion(success=True, attempts=2, timings=ms.Timings(first_token=0.5, finished=2.0))
    assert summary(completion, response, cost) == (
        "[m\ufffd · length · 1 in, 2 from cache, 3 to cache, 4 out, 5 thinking tokens · $31.00 ($7.00 in, $8.00 out)"
        " · first token after 500.0 ms, complete after 2.00 s · 2 attempts]"
    )
    nothing = ms.Completion(success=False, attempts=1)
    assert summary(nothing, ms.Response()) == "[unknown model]"


def test_parts_that_are_not_known_are_empty() -> None:
    assert (cost_text(None), timings_text(ms.Timings())) == ("", "")
    assert cost_text(Unpriced("no\x1b")) == "cost unknown: no\ufffd"
    assert timings_text(ms.Timings(finished=0.0)) == "complete after 0 µs"
    assert timings_text(ms.Timings(first_token=0.0)) == "first token after 0 µs"
