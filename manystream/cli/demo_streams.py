"""The demo's streams: what each asks for, what it was told, and whether that is what the simulator sent.

Knows the simulator's scenarios and the eight events. Must not know displays. What happens per event is kept small,
because it happens on the core that is being measured: a piece of text is appended to a list, and everything is
compared after the last stream has ended.

Two kinds of stream take turns. A *plain* one carries words; they must equal the simulator's, byte for byte. A *stamped*
one carries, as its text, the time at which the simulator sent each piece (the machine's monotonic clock, which both
processes share): that gives the delivery latency from send to callback; its text must be as many stamps as were asked
for, each of them whole and none earlier than the one before. Thinking and tool calls are compared exactly in both.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..bench.latency import LAST, SHIFT, Counts, new_counts
from ..engine.completion import Completion
from ..providers.events import (
    Done,
    Error,
    Event,
    FinishReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
)
from ..providers.messages import Message
from ..providers.options import Retry, Timeouts
from ..providers.request import Request
from ..simulator.knobs import HEADER, Knobs, combine
from ..simulator.prompt import Prompt
from ..simulator.scenario import Scenario, write_scenario

MODEL = "demonstration"
VARIANTS = 5
"""How many different texts the streams of one dialect and recipe have, in turn. Neighbours differ, so an answer that
went to the wrong stream shows; and the simulator has to compose a hundred answers rather than a thousand while it is
already sending."""

GRACE = 30.0
"""Seconds that a stream may take longer than its pace says, before its clock ends it: the demo always ends."""

STAMP = re.compile(r"\d{20} ")


@dataclass(slots=True, frozen=True)
class Recipe:
    """What a stream consists of: `text`, `thinking` (then text) or `mixed` (thinking, text, tool calls)."""

    kind: str
    stamped: bool
    calls: int = 0


MIXTURE = (
    Recipe("text", stamped=True),
    Recipe("thinking", stamped=False),
    Recipe("mixed", stamped=True, calls=2),
    Recipe("text", stamped=False),
    Recipe("thinking", stamped=True),
    Recipe("mixed", stamped=False, calls=3),
)
"""What the streams of each dialect consist of, in turn."""


@dataclass(slots=True)
class Counters:
    """One dialect's figures. `window` holds the latencies since the last look, `latencies` those before."""

    dialect: str
    started: int = 0
    completed: int = 0
    errors: int = 0
    events: int = 0
    window: Counts = field(default_factory=new_counts)
    latencies: Counts = field(default_factory=new_counts)

    @property
    def open(self) -> int:
        """Streams that were started and have not ended."""
        return self.started - self.completed


class DemoStream:
    """One stream: its request, and everything that it was told."""

    __slots__ = (
        "calls",
        "completions",
        "counters",
        "directive",
        "ended",
        "events_after_end",
        "name",
        "prompt",
        "recipe",
        "request",
        "text",
        "thinking",
    )

    def __init__(
        self, number: int, recipe: Recipe, counters: Counters, *, events: int, rate: float, limit: float
    ) -> None:
        self.recipe: Recipe = recipe
        self.counters: Counters = counters
        self.name: str = f"{counters.dialect} stream {number}"
        self.prompt: str = f"demonstration {number // len(MIXTURE) % VARIANTS}"
        stamp = ",stamp=1" if recipe.stamped else ",text=unicode"
        self.directive: str = f"kind={recipe.kind},calls={recipe.calls},events={events},rate={rate:g}{stamp}"
        self.request: Request = Request(
            f"{counters.dialect}/{MODEL}",
            [Message.user(self.prompt)],
            extra_headers={HEADER: self.directive},
            timeouts=Timeouts(first_byte=GRACE, idle=GRACE, total=limit + GRACE),
            retry=Retry(max_attempts=1),
        )
        self.text: list[str] = []
        self.thinking: list[str] = []
        self.calls: list[tuple[ToolCallStart, list[str]]] = []
        self.ended: Done | Error | None = None
        self.events_after_end: int = 0
        self.completions: list[Completion] = []

    def on_event(self, event: Event) -> None:
        """Keep what a plain stream is told."""
        self.counters.events += 1
        if type(event) is TextDelta:
            self.text.append(event.text)
        elif type(event) is ThinkingDelta:
            self.thinking.append(event.text)
        else:
            self._on_rare_event(event)

    def on_stamped_event(self, event: Event) -> None:
        """Keep what a stamped stream is told, and how long it took to get here."""
        counters = self.counters
        counters.events += 1
        if type(event) is TextDelta:
            text = event.text
            bucket = (time.monotonic_ns() - int(text)) >> SHIFT
            counters.window[bucket if bucket < LAST else LAST] += 1
            self.text.append(text)
        elif type(event) is ThinkingDelta:
            self.thinking.append(event.text)
        else:
            self._on_rare_event(event)

    def _on_rare_event(self, event: Event) -> None:
        if self.ended is not None:
            self.events_after_end += 1
        elif isinstance(event, ToolCallStart):
            self.calls.append((event, []))
        elif isinstance(event, ToolCallDelta):
            self._pieces_of_call(event.index).append(event.arguments)
        elif isinstance(event, Done | Error):
            self.ended = event

    def _pieces_of_call(self, index: int) -> list[str]:
        for start, pieces in self.calls:
            if start.index == index:
                return pieces
        raise ValueError(f"arguments for block {index}, which is no tool call")

    def on_completion(self, completion: Completion) -> None:
        """Keep the final record."""
        self.completions.append(completion)
        self.counters.completed += 1
        if not completion.success:
            self.counters.errors += 1

    def expected(self) -> Scenario:
        """What the simulator sends for this request, written here a second time from the same few inputs."""
        return write_scenario(Prompt(model=MODEL, text=self.prompt, stream=True), combine(Knobs(), self.directive))

    def differences(self) -> list[str]:
        """Everything that is not as it should be, one line each; empty when all is well."""
        if len(self.completions) != 1:
            return [f"{len(self.completions)} completions instead of one"]
        completion = self.completions[0]
        if completion.error is not None or completion.response is None:
            return [f"failed: {completion.error_message or 'without an answer'}"]
        found: list[str] = []
        if not isinstance(self.ended, Done) or self.events_after_end:
            found.append(f"ended with {self.ended!r} and {self.events_after_end} events after it")
        expected = self.expected()
        response = completion.response
        text = "".join(self.text)
        calls = [(start.name, "".join(pieces)) for start, pieces in self.calls]
        finish = FinishReason.TOOL_USE if expected.calls else FinishReason.STOP
        told = [
            ("thinking", "".join(self.thinking), expected.thinking),
            ("tool calls", calls, expected.tool_calls),
            ("the response's text", response.text, text),
            ("the response's thinking", response.thinking, expected.thinking),
            ("the response's tool calls", [(c.name, c.arguments) for c in response.tool_calls], expected.tool_calls),
            ("the finish reason", response.finish_reason, finish),
        ]
        if self.recipe.stamped:
            found += stamp_differences(text, len(expected.text_pieces))
        else:
            told.append(("text", text, expected.text))
        return found + [
            f"{what} differ: {shortened(got)}, sent was {shortened(sent)}" for what, got, sent in told if got != sent
        ]


def stamp_differences(text: str, count: int) -> list[str]:
    """What is wrong with a stamped text that should hold `count` stamps."""
    stamps = STAMP.findall(text)
    if "".join(stamps) != text:
        return [f"text is not made of whole stamps: {shortened(text)}"]
    if len(stamps) != count:
        return [f"{len(stamps)} stamps instead of {count}"]
    return ["stamps are out of order"] if stamps != sorted(stamps) else []


def shortened(value: object) -> str:
    """A value's repr, bounded."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:100]}… ({len(text)} characters)"


def plan_streams(
    count: int, dialects: Sequence[str], *, seconds: float, rate: float
) -> tuple[list[Counters], list[DemoStream]]:
    """The streams, spread evenly over the dialects, and one counters per dialect."""
    all_counters = [Counters(dialect) for dialect in dialects]
    events = max(1, round(seconds * rate))
    streams = [
        DemoStream(
            number // len(all_counters),
            MIXTURE[number // len(all_counters) % len(MIXTURE)],
            all_counters[number % len(all_counters)],
            events=events,
            rate=rate,
            limit=seconds,
        )
        for number in range(count)
    ]
    return all_counters, streams
