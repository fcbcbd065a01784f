"""When the calls of an open loop are due: at a rate that is constant or rises, at random, or as a trace has them.

In an open loop a call is due whether or not the calls before it have ended, as the users of a service do not wait for
each other. A slow server is then not spared by the client (coordinated omission).
"""

from __future__ import annotations

import csv
import datetime
import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappushpop
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import NamedTuple

from ..providers.json.json_values import JSON, loads_object

MOST_RATE = 100_000.0
"""The highest rate, in calls per second: far above what one machine can start."""
LARGEST_LENGTH = 10_000_000
"""The longest prompt and the longest answer, in tokens."""
KINDS = ("constant", "poisson", "gamma")
"""How the times between two calls are distributed."""


class TraceError(ValueError):
    """A trace that cannot be read. The message names the file and the line."""


class Arrival(NamedTuple):
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
    trace: the calls of a trace in the order of their times, in place of a rate; None for none.
    """

    first: float = 0.0
    last: float = 0.0
    kind: str = "constant"
    burstiness: float = 1.0
    trace: Trace | tuple[Arrival, ...] | None = None

    def calls(self, seconds: float, seed: int) -> Iterator[Arrival]:
        """Yield the calls that are due within so many seconds, in order. The same seed gives the same times.

        The expected number of calls up to a time is `first * t + (last - first) * t * t / (2 * seconds)`. Its inverse
        turns steps of mean 1 into times.
        """
        if self.trace is not None:
            yield from takewhile(lambda arrival: arrival.due < seconds, self.trace)
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

    def busiest(self, seconds: float, within: float) -> Arrivals:
        """Return the so many seconds of a trace that have the most calls; a rate is returned as it is.

        within: how many seconds of the trace are looked at.
        """
        if self.trace is None:
            return self
        found = tuple[Arrival, ...]()
        part = deque[Arrival](maxlen=MOST_BUSIEST)
        for arrival in chain(self.calls(within, 0), [Arrival(math.inf)]):
            if part and arrival.due >= part[0].due + seconds:
                found = tuple(part) if len(part) > len(found) else found
                while part and arrival.due >= part[0].due + seconds:
                    part.popleft()
            part.append(arrival)
        return replace(self, trace=tuple(arrival._replace(due=arrival.due - found[0].due) for arrival in found))

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

TIMES = ("timestamp", "TIMESTAMP", "Timestamp")
INPUTS = ("input_length", "ContextTokens", "Request tokens", "input_tokens", "input")
OUTPUTS = ("output_length", "GeneratedTokens", "Response tokens", "output_tokens", "output")
"""The names of a time and of lengths: those of Mooncake, Azure and BurstGPT, and general ones."""
BLOCKS = "hash_ids"
BYTES_PER_TOKEN = 4
"""The length of a token in the requests of a recording, which reports none."""
READ_AHEAD = 4096
"""The calls of a trace that are read ahead and sorted: a recording has them in the order of their ends."""
MOST_BUSIEST = 100_000
"""The most calls of the busiest part of a trace."""


@dataclass(slots=True, frozen=True)
class Trace:
    """The calls of a file in the order of their times, from 0 on.

    Each iteration reads the file line by line, so the memory that a trace takes does not grow with it. It is a table or
    has JSON lines, with names of `TIMES`, `INPUTS` and `OUTPUTS`, or is a recording of `engine.record`. An iteration
    raises `TraceError`.

    length: how many of its calls are made.
    """

    path: Path
    length: int = 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Arrival]:
        return (arrival for _, arrival in self.numbered())

    def numbered(self) -> Iterator[tuple[int, Arrival]]:
        """Yield the calls with the numbers of their lines. Raises `TraceError`."""
        lines = ((arrival.due, number, arrival) for number, arrival in self._lines())
        ahead = list(islice(lines, READ_AHEAD))
        if not ahead:
            raise TraceError(f"{self.path}: has no call")
        heapify(ahead)
        start = latest = ahead[0][0]
        for line in lines:
            if line[0] < latest:
                raise TraceError(
                    f"{self.path}:{line[1]}: its time is before that of a line {READ_AHEAD:,} or more above it:"
                    " sort the lines by their times"
                )
            latest, number, arrival = heappushpop(ahead, line)
            yield number, arrival._replace(due=latest - start)
        while ahead:
            due, number, arrival = heappop(ahead)
            yield number, arrival._replace(due=due - start)

    def _lines(self) -> Iterator[tuple[int, Arrival]]:
        """Yield the number and the call of each line. Raises `TraceError`."""
        number, names = 0, None
        try:
            with self.path.open("rb") as file:
                for number, data in enumerate(file, 1):
                    line = data.decode("utf-8-sig" if number == 1 else "utf-8")
                    if not line.strip():
                        continue
                    if names is None:
                        names = [] if line.lstrip().startswith("{") else _heading(line)
                        if names:
                            continue
                    members = _row(names, line) if names else loads_object(line)
                    is_recorded = "started" in members and "request" in members
                    yield number, _recorded(members) if is_recorded else _traced(members)
        except OSError as error:
            raise TraceError(f"{self.path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise TraceError(f"{self.path}:{number}: is not UTF-8 text") from None
        except (ValueError, OverflowError, csv.Error) as error:
            raise TraceError(f"{self.path}:{number}: {error}") from None
        if names is None:
            raise TraceError(f"{self.path}: is empty")


def read_trace(path: Path, seconds: float, requests: int | None = None) -> tuple[Trace, list[str]]:
    """Return the trace of a file, and notes on what it lacks. Raises `TraceError`.

    All that a run makes is read here once, so that no error ends the run: the calls that are due within so many
    seconds, and not more than so many requests.
    """
    if path.exists() and not path.is_file():
        raise TraceError(f"{path}: is no regular file, and a trace is read more than once")
    length = unordered = prompts = answers = before = 0
    for number, arrival in islice(takewhile(lambda one: one[1].due < seconds, Trace(path).numbered()), requests):
        length += 1
        unordered += number < before
        prompts += arrival.input is None
        answers += arrival.output is None
        before = number
    counts = {
        "not in the order of the times": unordered,
        "without a length of the prompt": prompts,
        "without a length of the answer": answers,
    }
    return Trace(path, length), [f"calls {what}: {count:,} of {length:,}" for what, count in counts.items() if count]


def _heading(line: str) -> list[str]:
    """Return the names of the columns of a table. Raises `ValueError`."""
    names = next(csv.reader([line]))
    if not any(name in TIMES for name in names):
        raise ValueError(f"has neither JSON lines nor a heading with {TIMES[1]}, {INPUTS[1]} and {OUTPUTS[1]}")
    _check_names(names, "columns")
    return names


def _row(names: Sequence[str], line: str) -> dict[str, JSON]:
    """Return the members of a line of a table. Raises `ValueError` and `csv.Error`."""
    cells: list[JSON] = [*next(csv.reader([line], strict=True))]
    if len(cells) > len(names):
        raise ValueError(f"has {len(cells)} cells, and the heading has {len(names)}")
    return dict(zip(names, cells, strict=False))


def _check_names(names: Iterable[str], kind: str) -> None:
    """Raise `ValueError` if there are unknown names where the name of a length is missing: it may be one of them."""
    unknown = [name for name in names if name not in (*TIMES, *INPUTS, *OUTPUTS, BLOCKS)]
    for known in (INPUTS, OUTPUTS):
        if unknown and not any(name in known for name in names):
            raise ValueError(f"unknown {kind} {', '.join(unknown)}, and none of {', '.join(known)}")


def _traced(members: Mapping[str, JSON]) -> Arrival:
    """Return a call of a line with a time and lengths. Raises `ValueError`."""
    time = next((members[name] for name in TIMES if name in members), None)
    if time is None:
        raise ValueError(f"{TIMES[0]}: is missing; the line has {', '.join(members) or 'no member'}")
    blocks, prompt, answer = members.get(BLOCKS), _tokens(members, INPUTS), _tokens(members, OUTPUTS)
    if prompt is None or answer is None:
        _check_names(members, "members")
    return Arrival(
        _seconds(time),
        prompt,
        answer,
        tuple(block for block in blocks if isinstance(block, int)) if isinstance(blocks, list) else (),
    )


def _recorded(members: Mapping[str, JSON]) -> Arrival:
    """Return a call of a recording. Tokens that its usage does not report are estimated: 4 bytes for one of the prompt,
    an event for one of the answer. Raises `ValueError`."""
    started, request, chunks = members["started"], members["request"], members.get("chunks")
    body = request.get("body") if isinstance(request, dict) else None
    size, usage = members.get("bytes", len(body) if isinstance(body, str) else None), members.get("usage")
    if not isinstance(started, (int, float)) or not math.isfinite(started) or not isinstance(size, int):
        raise ValueError("is no line of a recording: `started` or the body of `request` is missing")
    if isinstance(usage, dict) and usage.get("input_tokens") and usage.get("output_tokens"):
        return Arrival(float(started), _tokens(usage, ("input_tokens",)), _tokens(usage, ("output_tokens",)))
    texts = (part for chunk in chunks if isinstance(chunk, list) for part in chunk) if isinstance(chunks, list) else ()
    events = sum(text.count("data:") for text in texts if isinstance(text, str))
    return Arrival(float(started), max(1, size // BYTES_PER_TOKEN), events or None)


def _seconds(time: JSON) -> float:
    """Return a time in seconds: a number has milliseconds, a text has seconds, or a date and a time."""
    takes = "a number of milliseconds"
    if isinstance(time, str):
        takes = "a date and a time, or a number"
        with suppress(ValueError):
            if ":" not in time:
                return _seconds(float(time) * 1000)
            moment = datetime.datetime.fromisoformat(time.strip())
            return moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp()
    if isinstance(time, bool) or not isinstance(time, (int, float)) or not math.isfinite(time):
        raise ValueError(f"{TIMES[0]}: must be {takes}, not {time!r}")
    return time / 1000


def _tokens(members: Mapping[str, JSON], names: Sequence[str]) -> int | None:
    for name in names:
        if members.get(name) is not None:
            text = str(members[name]).strip()
            if not text.isdecimal() or int(text) > LARGEST_LENGTH:
                raise ValueError(
                    f"{name}: must be a number of tokens, not {members[name]!r}, and at most {LARGEST_LENGTH:,}"
                )
            return int(text)
    return None
