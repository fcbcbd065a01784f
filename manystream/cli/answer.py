"""A writer that shows an answer: its text on one output stream; thinking, tool calls and figures on another."""

from __future__ import annotations

from typing import TextIO

from .. import (
    Completion,
    Event,
    Response,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    Timings,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from ..cost import GATEWAY_HINT, Cost, CostExtraError, PriceTable, PriceTableError, Unpriced, check_installed
from .output.errors import CommandError
from .output.terminal import Paint, duration, harmless, harmless_writer, money, one_line

USAGE_WORDS = (
    ("input_tokens", "in"),
    ("cached_tokens", "from cache"),
    ("cache_write_tokens", "to cache"),
    ("output_tokens", "out"),
    ("thinking_tokens", "thinking"),
)


class AnswerWriter:
    """Writes one answer, event by event or as a whole.

    text: the output stream for the answer's text.
    aside: the output stream for thinking, tool calls and figures.

    Each block begins on a new line. A thinking block and a tool call begin with a label.
    """

    def __init__(self, text: TextIO, aside: TextIO) -> None:
        self._text, self._aside = (harmless_writer(stream) for stream in (text, aside))
        self._paint = Paint(self._aside)
        self._index: int | None = None
        self._column_used: dict[TextIO, bool] = {self._text: False, self._aside: False}

    def on_event(self, event: Event) -> None:
        """Write an event's text at once."""
        if isinstance(event, TextDelta):
            self._write(event.index, event.text, self._text)
        elif isinstance(event, ThinkingDelta):
            self._write(event.index, event.text, self._aside, "thinking: ")
        elif isinstance(event, ToolCallStart):
            self._write(event.index, "", self._aside, f"tool call {event.name} ")
        elif isinstance(event, ToolCallDelta):
            self._write(event.index, event.arguments, self._aside)

    def show_response(self, response: Response) -> None:
        """Write an unstreamed answer."""
        for index, block in enumerate(response.content):
            if isinstance(block, Text):
                self._write(index, block.text, self._text)
            elif isinstance(block, Thinking):
                self._write(index, block.text, self._aside, "thinking: ")
            elif isinstance(block, ToolCall):
                self._write(index, block.arguments, self._aside, f"tool call {block.name} ")

    def finish(self, completion: Completion, *, streamed: bool, cost: Cost | Unpriced | None = None) -> None:
        """End the last line, and write usage, cost and timings. An incomplete answer has them, too.

        streamed: the answer's events were written before. cost: None to write none.
        """
        response = completion.response
        if response is not None and not streamed:
            self.show_response(response)
        self._end_line()
        if response is not None:
            print(self._paint(summary(completion, response, cost), "dim"), file=self._aside, flush=True)

    def _write(self, index: int, text: str, stream: TextIO, label: str = "") -> None:
        if index != self._index:
            self._end_line()
            self._index = index
            if label:
                stream.write(self._paint(label, "bold"))
                self._column_used[stream] = True
        if text:
            stream.write(text if stream is self._text else self._paint(text, "dim"))
            self._column_used[stream] = not text.endswith("\n")
        stream.flush()

    def _end_line(self) -> None:
        for stream, used in self._column_used.items():
            if used:
                stream.write("\n")
                stream.flush()
                self._column_used[stream] = False


def summary(completion: Completion, response: Response, cost: Cost | Unpriced | None = None) -> str:
    """Return model, finish reason, usage, cost and timings in one line."""
    parts = [one_line(response.model or "unknown model")]
    if completion.success:
        parts.append(response.finish_reason.value)
    figures = (usage_text(response.usage), cost_text(cost), timings_text(completion.timings))
    parts += [part for part in figures if part]
    if completion.attempts > 1:
        parts.append(f"{completion.attempts} attempts")
    return "[" + " · ".join(parts) + "]"


def usage_text(usage: Usage) -> str:
    """Return the known token counts as text, or an empty text if none is known."""
    known = ((getattr(usage, name), word) for name, word in USAGE_WORDS)
    text = ", ".join(f"{count} {word}" for count, word in known if count is not None)
    return f"{text} tokens" if text else ""


def read_prices(path: str | None) -> PriceTable | None:
    """Return the table of `--prices`; None without the option. Raises `CommandError`."""
    try:
        return None if path is None else PriceTable.read(path)
    except PriceTableError as error:
        raise CommandError(f"--prices: {error}", status=2) from None


def need_prices(option: str) -> None:
    """Raise `CommandError` for an option that needs prices where there are none."""
    try:
        check_installed()
    except CostExtraError as error:
        raise CommandError(f"{option}: {error}", status=2) from None


def price_reason(reason: str) -> str:
    """Return why an answer has no price, without what a library's user could do and a command's cannot."""
    return reason.replace(GATEWAY_HINT, "")


def cost_text(cost: Cost | Unpriced | None) -> str:
    """Return the cost of an answer with its input and output parts, or why it has no price.

    If `cost` is None, the text is empty.
    """
    if cost is None:
        return ""
    if isinstance(cost, Unpriced):
        return f"cost unknown: {harmless(price_reason(cost.reason))}"
    given = money(cost.input + cost.cached + cost.cache_write, cost.currency)
    return f"{money(cost.total, cost.currency)} ({given} in, {money(cost.output, cost.currency)} out)"


def timings_text(timings: Timings) -> str:
    """Return the times to the first token and to the end as text."""
    parts = [
        f"{words} {duration(seconds)}"
        for words, seconds in (("first token after", timings.first_token), ("complete after", timings.finished))
        if seconds is not None
    ]
    return ", ".join(parts)
