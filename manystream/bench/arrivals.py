"""When the calls of an open loop are due: at a rate that is constant or rises, at random, or as a trace has them.

In an open loop a call is due whether or not the calls before it have ended, as the users of a service do not wait for
each other. A slow server is then not spared by the client (coordinated omission).
"""

from __future__ import annotations

import csv
import datetime
import math
import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from ..providers.json.json_values import JSON, MalformedJSONError, loads_object

MOST_RATE = 100_000.0
"""The highest rate, in calls per second: far above what one machine can start."""
KINDS = ("constant", "poisson", "gamma")
"""How the times between two calls are distributed."""


class TraceError(ValueError):
    """A trace that cannot be read. The message names the file and the line."""


@dataclass(slots=True, frozen=True)
class Arrival:
    """One call of an open loop.

    due: seconds from the start of the run.
    input: tokens of its prompt, or None.
    output: the most tokens of its answer, or None.
    blocks: the ids of the blocks of its prompt: calls with the same ids in front have the same beginning.
    """

    due: float
    input: int | None = None
    output: int | None = None
    blocks: tuple[int, ...] = ()


@dataclass(slots=True, frozen=True)
class Arrivals:
    """The calls of an open loop.

    first, last: the rate at the start and at the end of the run, in calls per second.
    kind: one of `KINDS`.
    burstiness: the shape of `gamma`: 1 is `poisson`, less has more bursts, more is more regular.
    trace: the calls of a trace, in place of a rate; None for none.
    """

    first: float = 0.0
    last: float = 0.0
    kind: str = "constant"
    burstiness: float = 1.0
    trace: tuple[Arrival, ...] | None = None

    def calls(self, seconds: float, seed: int) -> Iterator[Arrival]:
        """Yield the calls that are due within so many seconds, in order. The same seed gives the same times.

        The expected number of calls up to a time is `first * t + (last - first) * t * t / (2 * seconds)`. Its inverse
        turns steps of mean 1 into times.
        """
        if self.trace is not None:
            yield from (arrival for arrival in self.trace if arrival.due < seconds)
            return
        step = self._step(random.Random(seed))
        slope = (self.last - self.first) / seconds
        expected = 0.0 if self.kind == "constant" else step()
        whole = (self.first + self.last) / 2 * seconds
        while expected < whole:
            yield Arrival(
                2 * expected / (self.first + math.sqrt(self.first**2 + 2 * slope * expected)) if expected else 0.0
            )
            expected += step()

    def busiest(self, seconds: float) -> Arrivals:
        """Return the so many seconds of a trace that have the most calls; a rate is returned as it is."""
        if self.trace is None:
            return self
        times = [arrival.due for arrival in self.trace]
        ends = [bisect_left(times, time + seconds) for time in times]
        first = max(range(len(times)), key=lambda place: ends[place] - place)
        part = self.trace[first : ends[first]]
        return replace(self, trace=tuple(replace(arrival, due=arrival.due - times[first]) for arrival in part))

    def _step(self, numbers: random.Random) -> Callable[[], float]:
        if self.kind == "constant":
            return lambda: 1.0
        if self.kind == "poisson":
            return lambda: numbers.expovariate(1.0)
        return lambda: numbers.gammavariate(self.burstiness, 1.0 / self.burstiness)


def read_rate(text: str) -> tuple[float, float]:
    """Parse a rate, such as `50`, or its first and last value, such as `1..200`. Raises `ValueError`."""
    first, dots, last = text.partition("..")
    rates = (float(first), float(last if dots else first))
    if not all(0 <= rate <= MOST_RATE for rate in rates) or not max(rates):
        raise ValueError("a rate is bounded, and one end of a ramp is above 0")
    return rates


# --- traces ---

TIMES = ("timestamp", "TIMESTAMP")
INPUTS = ("input_length", "ContextTokens", "input_tokens", "input")
OUTPUTS = ("output_length", "GeneratedTokens", "output_tokens", "output")
BYTES_PER_TOKEN = 4
"""The length of a token in the requests of a recording, which reports none."""


def read_trace(path: Path) -> tuple[tuple[Arrival, ...], list[str]]:
    """Read a trace: the calls in the order of their times, from 0 on, and notes on what it lacks.

    Three forms are read: JSON lines with `timestamp` in milliseconds, `input_length`, `output_length` and `hash_ids`
    (Mooncake), a table with `TIMESTAMP`, `ContextTokens` and `GeneratedTokens` (Azure), and a recording of
    `engine.record`. Raises `TraceError`.
    """
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TraceError(f"{path}: is not UTF-8 text") from None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise TraceError(f"{path}: is empty")
    names: list[str] | None = None
    if not lines[0][1].lstrip().startswith("{"):
        names = next(csv.reader([lines.pop(0)[1]]))
        if not any(name in TIMES for name in names):
            raise TraceError(
                f"{path}:1: has neither JSON lines nor a heading with {TIMES[1]}, {INPUTS[1]} and {OUTPUTS[1]}"
            )
    found: list[Arrival] = []
    for number, line in lines:
        try:
            cells: Mapping[str, JSON] = (
                dict(zip(names, next(csv.reader([line])), strict=False)) if names else loads_object(line)
            )
            found.append(_recorded(cells) if "started" in cells and "request" in cells else _traced(cells))
        except (ValueError, MalformedJSONError) as error:
            raise TraceError(f"{path}:{number}: {error}") from None
    counts = {
        "not in the order of the times": sum(later.due < earlier.due for earlier, later in pairwise(found)),
        "without a length of the prompt": sum(arrival.input is None for arrival in found),
        "without a length of the answer": sum(arrival.output is None for arrival in found),
    }
    notes = [f"calls {what}: {count:,} of {len(found):,}" for what, count in counts.items() if count]
    found.sort(key=lambda arrival: arrival.due)
    if not found:
        raise TraceError(f"{path}: has no call")
    return tuple(replace(one, due=one.due - found[0].due) for one in found), notes


def _traced(members: Mapping[str, JSON]) -> Arrival:
    """Return a call of a line with a time and lengths. Raises `ValueError`."""
    time = next((members[name] for name in TIMES if name in members), None)
    if time is None:
        raise ValueError(f"{TIMES[0]}: is missing; the line has {', '.join(members) or 'no member'}")
    blocks = members.get("hash_ids")
    return Arrival(
        _seconds(time),
        _tokens(members, INPUTS),
        _tokens(members, OUTPUTS),
        tuple(block for block in blocks if isinstance(block, int)) if isinstance(blocks, list) else (),
    )


def _recorded(members: Mapping[str, JSON]) -> Arrival:
    """Return a call of a recording. Its tokens are estimated: 4 bytes for one of the prompt, an event for one of the
    answer. Raises `ValueError`."""
    started, request, chunks = members["started"], members["request"], members.get("chunks")
    body = request.get("body") if isinstance(request, dict) else None
    if not isinstance(started, (int, float)) or not isinstance(body, str):
        raise ValueError("is no line of a recording: `started` or the body of `request` is missing")
    texts = [chunk[1] for chunk in chunks if isinstance(chunk, list)] if isinstance(chunks, list) else []
    events = sum(text.count("data:") for text in texts if isinstance(text, str))
    return Arrival(float(started), max(1, len(body) // BYTES_PER_TOKEN), events or None)


def _seconds(time: JSON) -> float:
    """Return a time in seconds: a number has milliseconds, a text has seconds, or a date and a time."""
    takes = "a number of milliseconds"
    if isinstance(time, str):
        takes = "a date and a time, or a number"
        with suppress(ValueError):
            time = float(time) * 1000
    if isinstance(time, str):
        with suppress(ValueError):
            moment = datetime.datetime.fromisoformat(time.strip())
            return moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp()
    if isinstance(time, bool) or not isinstance(time, (int, float)) or not math.isfinite(time):
        raise ValueError(f"{TIMES[0]}: must be {takes}, not {time!r}")
    return time / 1000


def _tokens(members: Mapping[str, JSON], names: Sequence[str]) -> int | None:
    for name in names:
        if members.get(name) is not None:
            if not str(members[name]).strip().isdecimal():
                raise ValueError(f"{name}: must be a number of tokens, not {members[name]!r}")
            return int(str(members[name]))
    return None
