"""The knobs: everything that a request can ask of its answer, and how a knob is written.

A directive is a list of `name=value`, separated by commas or spaces: `events=500,rate=50,kind=mixed`. It may be in four
places. Where several places set a knob, the first of this list wins:

1. the request header `x-simulate`;
2. the last user message, if it begins with `simulate:` (or is the JSON object `{"simulate": {…}}`);
3. the model's name: `sim-text`, `sim-thinking`, `sim-tools`, `sim-mixed`, with further knobs after an `@`, as in
   `sim-mixed@events=40,rate=20`; other model names have no knobs;
4. the server's settings.

The position `k` of a fault counts events of the stream (everything with a `data:` of its own, the `[DONE]` of Chat
too). 0 is before the first event. A negative position counts from the end: `truncate=-1` leaves out the last event. In
an unstreamed answer the position counts bytes of the body.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TypeVar

from .json_text import loads_object, mapping

KINDS = ("text", "thinking", "tools", "mixed")
TEXTS = ("sentences", "unicode")
FINISHES = ("stop", "length", "content_filter")
HEADER = "x-simulate"
_SEPARATORS = re.compile(r"[,\s]+")


class KnobError(ValueError):
    """A directive that cannot be read. The message names the knob and its valid values."""


Number = TypeVar("Number", int, float)


def _within(kind: type[Number], low: float, high: float) -> Callable[[str], Number]:
    def read(text: str) -> Number:
        value = kind(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return read


_number, _whole = partial(_within, float), partial(_within, int)


def _switch(text: str) -> bool:
    return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]


def _one_of(*words: str) -> Callable[[str], str]:
    return {word: word for word in words}.__getitem__


_PLACE = (_whole(-1_000_000, 1_000_000), "a whole number of events")
Default = TypeVar("Default")


def _knob(default: Default, read: Callable[[str], object], takes: str) -> Default:
    """A knob of an answer. read: reads its value. takes: its valid values, in words."""
    return field(default=default, metadata={"reader": (read, takes)})


@dataclass(slots=True, frozen=True, kw_only=True)
class Knobs:
    """The knobs of one answer.

    What the answer holds:

    kind: `text`, `thinking` (then text), `tools`, or `mixed` (thinking, text, tool calls).
    text: `sentences` about the question, or `unicode`: words that trouble parsers (several scripts, emoji, escapes).
    events: pieces of thinking and text together.
    calls: tool calls in one answer.
    steps: rounds of tool calls in a conversation before the answer is text.
    finish: `stop`, `length` or `content_filter`.
    cached: how many input tokens the usage reports as cached.
    redacted: the thinking is encrypted (Anthropic).
    seed: a number that varies the text; by default it is made from the last user message.
    stamp: each piece of text is `time.monotonic_ns()` when it is sent, in 20 digits, and a space.

    How fast it is sent:

    rate: events per second; 0 sends as fast as the socket takes them.
    delay: seconds before the first byte of the response.
    chunk: cut the body into HTTP chunks of so many bytes, at any byte, each with a `send` of its own.
    ping: seconds between keep-alive events while the stream stalls.

    What goes wrong, where `k` counts the events of the stream:

    fail: respond with this HTTP status.
    retry_after: seconds, reported with a failure.
    code: the provider's error code, instead of the one that fits the status.
    drop: close the connection without a response.
    cut: close the socket after `k` events.
    reset: send a TCP reset after `k` events.
    truncate: end the body after `k` events, with correct HTTP framing.
    stall: send nothing more after `k` events and keep the connection open.
    silent: the same, and read nothing: over a WebSocket, answer no ping.
    cut_bytes: close the socket after so many bytes of the events.
    close: end a WebSocket with this code, after `truncate` events, or before the first one.
    largest: a message of a WebSocket with more bytes ends it with the code 1009.
    lifetime: seconds that a WebSocket lives.
    malformed: event `k` is broken JSON.
    error: event `k` is an error inside the stream.
    error_status: the HTTP status whose error that is.
    times: only the first so many requests of this `key` go wrong; 0: every request.
    key: what `times` counts by; by default the directive itself.
    """

    kind: str | None = _knob(None, _one_of(*KINDS), "one of " + ", ".join(KINDS))
    text: str = _knob("sentences", _one_of(*TEXTS), "one of " + ", ".join(TEXTS))
    events: int | None = _knob(None, _whole(0, 1_000_000), "0 to 1000000")
    calls: int | None = _knob(None, _whole(0, 1000), "0 to 1000")
    steps: int = _knob(1, _whole(0, 1000), "0 to 1000")
    finish: str = _knob("stop", _one_of(*FINISHES), "one of " + ", ".join(FINISHES))
    cached: int = _knob(0, _whole(0, 10**9), "a number of tokens")
    redacted: bool = _knob(False, _switch, "0 or 1")
    seed: int | None = _knob(None, _whole(0, 2**63 - 1), "a whole number from 0")
    stamp: bool = _knob(False, _switch, "0 or 1")
    rate: float = _knob(0.0, _number(0, 1e6), "0 to 1000000 events a second")
    delay: float = _knob(0.0, _number(0, 3600), "0 to 3600 seconds")
    chunk: int = _knob(0, _whole(0, 1 << 20), "0 to 1048576 bytes")
    ping: float = _knob(0.0, _number(0, 3600), "0 to 3600 seconds")
    fail: int | None = _knob(None, _whole(400, 599), "an HTTP status from 400 to 599")
    retry_after: float | None = _knob(None, _number(0, 86400), "0 to 86400 seconds")
    code: str | None = _knob(None, str, "a word")
    drop: bool = _knob(False, _switch, "0 or 1")
    cut: int | None = _knob(None, *_PLACE)
    reset: int | None = _knob(None, *_PLACE)
    truncate: int | None = _knob(None, *_PLACE)
    stall: int | None = _knob(None, *_PLACE)
    silent: int | None = _knob(None, *_PLACE)
    cut_bytes: int | None = _knob(None, _whole(0, 1 << 30), "0 to 1073741824 bytes")
    close: int | None = _knob(None, _whole(1000, 4999), "a code from 1000 to 4999")
    largest: int | None = _knob(None, _whole(0, 1 << 30), "0 to 1073741824 bytes")
    lifetime: float = _knob(3600.0, _number(0, 86400), "0 to 86400 seconds")
    malformed: int | None = _knob(None, *_PLACE)
    error: int | None = _knob(None, *_PLACE)
    error_status: int = _knob(500, _whole(400, 599), "an HTTP status from 400 to 599")
    times: int = _knob(0, _whole(0, 1_000_000), "0 to 1000000")
    key: str = _knob("", str, "a word")

    @property
    def faulty(self) -> bool:
        """Whether a fault is asked for."""
        return self.drop or any(getattr(self, name) is not None for name in FAULTS)

    def without_faults(self) -> Knobs:
        """A copy without faults."""
        return replace(self, drop=False, **dict.fromkeys(FAULTS))  # type: ignore[arg-type]  # each may be None


FAULTS = (
    "fail", "cut", "cut_bytes", "reset", "truncate", "close", "stall", "silent", "malformed", "error", "largest",
)  # fmt: skip

READERS: dict[str, tuple[Callable[[str], object], str]] = {knob.name: knob.metadata["reader"] for knob in fields(Knobs)}
"""Knob → the function that reads its value, and the valid values. In a directive, `_` may be written as `-`."""


def read_directive(text: str) -> dict[str, object]:
    """The knobs of a directive. Raises `KnobError`."""
    found: dict[str, object] = {}
    for pair in _SEPARATORS.split(text.strip()):
        if not pair:
            continue
        name, equals, value = pair.partition("=")
        name = name.replace("-", "_").lower()
        if name not in READERS or not equals:
            raise KnobError(f"{pair!r} is not a knob; write name=value, with a name out of: {', '.join(READERS)}")
        read, takes = READERS[name]
        try:
            found[name] = read(value)
        except (ValueError, KeyError):
            raise KnobError(f"{name}={value!r}: {name} takes {takes}") from None
    return found


TYPES: dict[str, Callable[[str], object]] = {"int": int, "float": float, "str": str, "bool": _switch}


def readers_of(kind: type, **own: Callable[[str], object]) -> dict[str, Callable[[str], object]]:
    """Option → the function that reads its value, for the fields of a dataclass. own: of fields of other types."""
    return {field.name: own.get(field.name) or TYPES[str(field.type).removesuffix(" | None")] for field in fields(kind)}


def read_options(
    of: str, text: str, readers: Mapping[str, Callable[[str], object]], usual: str = "", called: str = "an option"
) -> list[tuple[str, object]]:
    """The options of a text: `NAME=VALUE` pairs, separated by spaces or commas. Raises `KnobError`.

    of: what they belong to, for messages.
    readers: option → the function that reads its value, which raises `ValueError` for what is no number.
    usual: the option whose value may stand alone.
    called: what a message calls one of them.
    """
    found: list[tuple[str, object]] = []
    for pair in filter(None, _SEPARATORS.split(text.strip())):
        name, equals, value = pair.partition("=")
        if usual and not equals:
            name, value = usual, pair
        name = name.replace("-", "_").lower()
        if name not in readers or not (equals or usual):
            names = ", ".join(readers)
            raise KnobError(f"{of}: {pair!r} is not {called}; write name=value, with a name of: {names}")
        try:
            found.append((name, readers[name](value)))
        except KnobError:
            raise
        except (ValueError, KeyError):
            takes = "0 or 1" if readers[name] is _switch else "a number"
            raise KnobError(f"{of}: {name}={value!r}: {name} is {takes}") from None
    return found


def directive_in_text(text: str) -> str:
    """The directive in a user message; empty if it holds none."""
    start = text.lstrip()
    if start.startswith("simulate:"):
        return start[len("simulate:") :]
    if start.startswith("{"):
        members = mapping(loads_object(start), "simulate")
        return ",".join(f"{name}={value}" for name, value in members.items())
    return ""


def directive_in_model(model: str) -> str:
    """The directive in a model's name; empty if it holds none."""
    if not model.startswith("sim"):
        return ""
    word, _, directive = model.partition("@")
    kind = word.removeprefix("sim-")
    return f"kind={kind},{directive}" if kind in KINDS else directive


def combine(defaults: Knobs, *directives: str) -> Knobs:
    """The defaults, changed by the directives. Later directives win. Raises `KnobError`."""
    found: dict[str, object] = {}
    for directive in directives:
        if directive:
            found.update(read_directive(directive))
    if not found:
        return defaults
    knobs = replace(defaults, **found)  # type: ignore[arg-type]  # READERS gives each its type
    if knobs.stamp and knobs.chunk:
        raise KnobError("stamp and chunk exclude each other: a stamp is made when its event is sent whole")
    return knobs
