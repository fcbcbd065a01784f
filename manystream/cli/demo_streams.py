"""The streams of `manystream demo`: their requests, the events they receive, and the comparison with what was sent.

There are two kinds of streams:

- A *plain* stream carries words. They must equal the words that the simulator sent, byte for byte.
- A *stamped* stream carries time stamps as its text. Each is the time at which the simulator sent it, on the machine's
  monotonic clock, which both processes share. So the latency from sending to the callback can be measured. The text
  must hold the expected number of stamps, all complete and in order.

Thinking and tool calls are compared exactly in both kinds.

The callbacks run on the core that is measured, so they do little: they append a piece of text to a list. The contents
are compared after the last stream has ended.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field

from .. import (
    Completion,
    Done,
    ErrorEvent,
    Event,
    FinishReason,
    Message,
    Request,
    Retry,
    TextDelta,
    ThinkingDelta,
    Timeouts,
    ToolCallDelta,
    ToolCallStart,
)
from ..bench.histogram import Counts, bucket_of, new_counts
from ..simulator.knobs import HEADER, Knobs, combine
from ..simulator.prompt import Prompt
from ..simulator.scenario import Scenario, write_scenario

MODEL = "demonstration"
VARIANTS = 5
"""The number of different texts of the streams with one dialect and recipe.

Neighbouring streams have different texts, so an answer that reaches the wrong stream is noticed. And the simulator
composes about a hundred answers instead of a thousand while it is already sending.
"""

GRACE = 30.0
"""The time, in seconds, that a stream may take longer than expected before its timeout ends it. So the demo ends."""

STAMP = re.compile(r"\d{20} ")


@dataclass(slots=True, frozen=True)
class Recipe:
    """The content of a stream.

    kind: `text`, `thinking` (thinking, then text) or `mixed` (thinking, text and tool calls).
    stamped: whether the text consists of time stamps.
    calls: the number of tool calls.
    """

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
"""The contents of the streams of each dialect, in turn."""


@dataclass(slots=True)
class Counters:
    """The figures of one dialect.

    completed: streams that have ended.
    window: histogram of the latencies since the last update of the display.
    latencies: histogram of the earlier latencies.
    """

    dialect: str
    started: int = 0
    completed: int = 0
    errors: int = 0
    events: int = 0
    window: Counts = field(default_factory=new_counts)
    latencies: Counts = field(default_factory=new_counts)

    @property
    def open(self) -> int:
        """The number of streams that were started and have not ended."""
        return self.started - self.completed


@dataclass(slots=True, eq=False, repr=False)
class DemoStream:
    """One stream: its request, and all that its callbacks received."""

    number: InitVar[int]
    recipe: Recipe  # its content
    counters: Counters  # the counters of its dialect
    _: KW_ONLY
    events: InitVar[int]
    rate: InitVar[float]
    limit: InitVar[float]
    name: str = field(init=False)  # its name, for messages
    prompt: str = field(init=False)  # the text of its prompt
    directive: str = field(init=False)  # the simulator's knobs for its request
    request: Request = field(init=False)  # its request
    text: list[str] = field(default_factory=list[str], init=False)  # the pieces of its text
    thinking: list[str] = field(default_factory=list[str], init=False)  # the pieces of its thinking
    # its tool calls: the start event and the pieces of the arguments
    calls: list[tuple[ToolCallStart, list[str]]] = field(
        default_factory=list[tuple[ToolCallStart, list[str]]], init=False
    )
    ended: Done | ErrorEvent | None = field(default=None, init=False)  # its last event, or None
    events_after_end: int = field(default=0, init=False)  # the number of events after `ended`
    # its completions; there must be one
    completions: list[Completion] = field(default_factory=list[Completion], init=False)

    def __post_init__(self, number: int, events: int, rate: float, limit: float) -> None:
        self.name = f"{self.counters.dialect} stream {number}"
        self.prompt = f"demonstration {number // len(MIXTURE) % VARIANTS}"
        stamp = ",stamp=1" if self.recipe.stamped else ",text=unicode"
        self.directive = f"kind={self.recipe.kind},calls={self.recipe.calls},events={events},rate={rate:g}{stamp}"
        self.request = Request(
            f"{self.counters.dialect}/{MODEL}",
            [Message.user(self.prompt)],
            extra_headers={HEADER: self.directive},
            timeouts=Timeouts(first_byte=GRACE, idle=GRACE, total=limit + GRACE),
            retry=Retry(max_attempts=1),
        )

    def on_event(self, event: Event) -> None:
        self.counters.events += 1
        if type(event) is TextDelta:
            self.text.append(event.text)
        elif type(event) is ThinkingDelta:
            self.thinking.append(event.text)
        else:
            self._on_rare_event(event)

    def on_stamped_event(self, event: Event) -> None:
        """Record an event of a stamped stream, and its latency."""
        counters = self.counters
        counters.events += 1
        if type(event) is TextDelta:
            text = event.text
            counters.window[bucket_of(max(0, time.monotonic_ns() - int(text)) // 1000)] += 1
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
        elif isinstance(event, Done | ErrorEvent):
            self.ended = event

    def _pieces_of_call(self, index: int) -> list[str]:
        for start, pieces in self.calls:
            if start.index == index:
                return pieces
        raise ValueError(f"arguments for block {index}, which is not a tool call")

    def on_completion(self, completion: Completion) -> None:
        self.completions.append(completion)
        self.counters.completed += 1
        if not completion.success:
            self.counters.errors += 1

    def expected(self) -> Scenario:
        """Return the scenario that the simulator sends for this request, composed again from the same inputs."""
        return write_scenario(Prompt(model=MODEL, text=self.prompt, stream=True), combine(Knobs(), self.directive))

    def differences(self) -> list[str]:
        """Return a line for each difference from what the simulator sent; an empty list if there is none."""
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
        comparisons = [
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
            comparisons.append(("text", text, expected.text))
        return found + [
            f"{what}: received {shortened(got)}, but {shortened(sent)} was sent"
            for what, got, sent in comparisons
            if got != sent
        ]


def stamp_differences(text: str, count: int) -> list[str]:
    """Return what is wrong with a stamped text that must hold `count` stamps; an empty list if nothing is."""
    stamps = STAMP.findall(text)
    if "".join(stamps) != text:
        return [f"the text does not consist of complete stamps: {shortened(text)}"]
    if len(stamps) != count:
        return [f"{len(stamps)} stamps instead of {count}"]
    return ["stamps are out of order"] if stamps != sorted(stamps) else []


def shortened(value: object) -> str:
    """Return a value's repr, cut to about 120 characters."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:100]}… ({len(text)} characters)"


def plan_streams(
    count: int, dialects: Sequence[str], *, seconds: float, rate: float
) -> tuple[list[Counters], list[DemoStream]]:
    """Make the streams, spread evenly over the dialects, and a `Counters` for each dialect.

    seconds: how long each stream takes. rate: its events per second.
    """
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
