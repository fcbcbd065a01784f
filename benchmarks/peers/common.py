"""What every measured client shares: arguments, clock, line of results. Standard library only.

Latency is the time from the send of the load source to the callback of the client. The text of each event is the
source's CLOCK_MONOTONIC.
"""

from __future__ import annotations

import argparse
import array
import gc
import json
import math
import os
import resource
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..source.load import FORMS, load_path
from ..wire import MODEL_NAMES, WIRES

PATHS = {
    "chat": "/chat/completions",
    "responses": "/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
    "interactions": "/v1beta/interactions",
}
"""Dialect → the path that a client without a provider's library appends to the base URL."""

TEXT_OF: dict[str, Callable[[Any], str | None]] = {
    "chat": lambda event: event["choices"][0]["delta"].get("content") if event["choices"] else None,
    "responses": lambda event: event["delta"] if event["type"] == "response.output_text.delta" else None,
    "anthropic": lambda event: event["delta"]["text"] if event["type"] == "content_block_delta" else None,
    "gemini": lambda event: event["candidates"][0]["content"]["parts"][0]["text"],
    "interactions": lambda event: event["delta"]["text"] if event["event_type"] == "step.delta" else None,
}
"""Dialect → the members that lead to the text of an event, for clients without a dialect."""

PRIORITY = -15
LAST_LINES = {
    "chat": b"data: [DONE]",
    "responses": b'data: {"type":"response.completed"',
    "anthropic": b'data: {"type":"message_stop"',
    "gemini": b"data: ",
    "interactions": b"data: [DONE]",
}


@dataclass(frozen=True, slots=True)
class Task:
    """The load of a client.

    streams: concurrent streams.
    events, rate: per stream; the rate is per second.
    spread: milliseconds over which the first events of the streams are spread, once all streams are open.
    mode: the mode of the source; `answer` means `events` unstreamed requests in total, `streams` at a time.
    ca: the certificate of the authority, for TLS.
    delay: milliseconds from an unstreamed request to its response.
    form: the wire form of a chat stream.
    collect: time full collections of the garbage collector, at the start and half-way.
    over: of a client that has several forms, the one to run: the transport of a library, the loop and form of ours.
    moment: microseconds for which the source gathers events; 0: it never sleeps; negative: half a millisecond.
    """

    url: str
    streams: int
    events: int
    rate: float
    dialect: str
    spread: int
    mode: str
    size: int
    ca: str
    delay: int = 0
    form: str = "plain"
    collect: bool = False
    over: str = ""
    moment: int = -1

    @property
    def base_url(self) -> str:
        """The source's origin, the path of the load, and the base path of the dialect."""
        load: dict[str, object] = {"mode": self.mode}
        if self.mode != "answer":
            load |= {"events": self.events, "rate": self.rate, "gate": self.streams, "spread": self.spread}
        elif self.delay:
            load["delay"] = self.delay
        if self.moment >= 0:
            load["moment"] = self.moment
        if self.mode == "giant":
            load["size"] = self.size
        load |= FORMS[self.form]
        return self.url + load_path(**load) + WIRES[self.dialect].base

    @property
    def path(self) -> str:
        """The path that a client without a library appends."""
        path = PATHS[self.dialect]
        return path if self.mode != "answer" else path.replace("streamGenerateContent?alt=sse", "generateContent")

    @property
    def model(self) -> str:
        """A model name of the dialect."""
        return MODEL_NAMES[self.dialect]

    @property
    def body(self) -> bytes:
        """The body of a request, for clients without a dialect. The source ignores it."""
        message = {"role": "user", "content": "Say hello."}
        return json.dumps({"model": self.model, "messages": [message], "stream": True}).encode()

    def warm_up(self) -> Task:
        """Return the load of a short stream before the measured ones, for libraries that build their types at first
        use.
        """
        return replace(self, streams=1, events=1 if self.mode == "answer" else 3, spread=0)

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return a context that trusts the source, or None without TLS."""
        return ssl.create_default_context(cafile=self.ca) if self.ca else None


def read_task() -> Task:
    """Parse the command line.

    Also raises the soft limit of open files to the hard one, and the priority of this process if that is allowed.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--events", type=int, default=250)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--dialect", choices=tuple(WIRES), default="chat")
    parser.add_argument("--spread", type=int, default=1000)
    parser.add_argument("--mode", default="stream")
    parser.add_argument("--size", type=int, default=0)
    parser.add_argument("--ca", default="")
    parser.add_argument("--delay", type=int, default=0)
    parser.add_argument("--form", choices=tuple(FORMS), default="plain")
    parser.add_argument("--collect", type=int, choices=(0, 1), default=0)
    parser.add_argument("--over", default="")
    parser.add_argument("--moment", type=int, default=-1)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    raise_priority()
    return Task(**vars(parser.parse_args()))


def raise_priority(process: int = 0) -> None:
    """Raise the priority of a process, if that is allowed.

    Linux first weighs the processes of one session together (sched(7), "The autogroup feature"). The harness starts
    each client in its own session.

    process: its id; 0: this process.
    """
    try:
        os.setpriority(os.PRIO_PROCESS, process, PRIORITY)
        with open(f"/proc/{process or 'self'}/autogroup", "w") as group:
            group.write(str(PRIORITY))
    except OSError:
        pass


def waited() -> float:
    """Return the seconds in which this process was ready and had no core."""
    with open("/proc/self/schedstat") as statistics:
        return int(statistics.read().split()[1]) / 1e9


def memory(field: str, process: int | None = None) -> int:
    """Return bytes of a process (None: of this one) from its status: `VmRSS` now, `VmHWM` at most."""
    with open(f"/proc/{process or 'self'}/status") as status:
        for line in status:
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    return 0


def collection_ms() -> float:
    """Return the milliseconds of a full collection of the garbage collector: the quickest of several."""
    times: list[float] = []
    for _ in range(5):
        begin = time.process_time()
        gc.collect()
        times.append((time.process_time() - begin) * 1000)
    return min(times)


class Recorder:
    """Latencies (ns) and counters of one run.

    For paced streams, CPU and wall time count from the first event, when every stream is open; in other modes from
    the start.
    `steady` is the part in which every stream is live, without most of their first events and ends. Memory is read
    half-way.

    tick_seconds, ticks: the time in which the client's loop served connections, and how often. Only some clients count.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.completed = 0
        self.failures: list[str] = []
        self.rss_before = memory("VmRSS")
        self.latencies = array.array("q")
        self._rss_live = 0
        self._collect_before = collection_ms() if task.collect else math.nan
        self._collect_live = math.nan
        self._setup = time.process_time()
        self._cpu = self._wall = self._waited = 0.0
        self.tick_seconds, self.ticks = 0.0, 0
        self._steady: list[tuple[float, float, int]] = []
        total = task.streams * task.events
        self._marks = [
            (max(2, total // 10), self._mark_steady),
            (max(3, total // 2), self._mark_memory),
            (max(4, total * 85 // 100), self._mark_steady),
        ]
        if task.mode == "stream":
            self._marks.insert(0, (1, self._begin))
        else:
            self._begin()
        self._next = self._marks[0][0]

    def record(self, text: str) -> None:
        """Record an event that has reached the user's code. Its text is the send time of the source."""
        latencies = self.latencies
        latencies.append(time.monotonic_ns() - int(text))
        if len(latencies) == self._next:
            self._mark()

    def tick(self, seconds: float) -> None:
        """Record that the client's loop served connections for so long."""
        self.tick_seconds += seconds
        self.ticks += 1

    def _mark(self) -> None:
        _, act = self._marks.pop(0)
        self._next = self._marks[0][0] if self._marks else 0
        act()

    def _mark_steady(self) -> None:
        self._steady.append((time.process_time(), self.tick_seconds, self.ticks))

    def _mark_memory(self) -> None:
        self._rss_live = memory("VmRSS")
        if self.task.collect:
            self._collect_live = collection_ms()

    def _begin(self) -> None:
        self._wall, self._cpu, self._waited = time.perf_counter(), time.process_time(), waited()

    def complete(self) -> None:
        """Record a stream, or an unstreamed answer, that ended complete."""
        self.completed += 1

    def fail(self, error: object) -> None:
        """Record a failure."""
        if len(self.failures) < 3:
            self.failures.append(f"{type(error).__name__}: {error}"[:200])

    def report(self) -> None:
        """Print the results."""
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        latencies = sorted(self.latencies)
        later = sorted(self.latencies[int(self.task.rate * self.task.streams) :])  # without the first second
        events = len(latencies) or self.completed
        marks = self._steady if len(self._steady) == 2 else [(math.nan, math.nan, 0)] * 2
        steady, in_ticks, ticks = (after - before for before, after in zip(*marks, strict=True))
        steady_latencies = sorted(self.latencies[events // 10 : events * 85 // 100])
        percentiles = {f"p{part:g}_ms": round(percentile(latencies, part / 100) / 1e6, 3) for part in (50, 99, 99.9)}
        result = {
            "streams": self.task.streams,
            "streams_completed": self.completed,
            "events": events,
            **percentiles,
            "max_ms": round(latencies[-1] / 1e6, 3) if latencies else math.nan,
            "later_p99_ms": round(percentile(later, 0.99) / 1e6, 3),
            "cpu_seconds": round(cpu, 4),
            "setup_cpu_seconds": round(self._cpu - self._setup, 4),
            "wall": round(wall, 4),
            "waited": round(waited() - self._waited, 4),
            "cpu_us_per_event": round(cpu / events * 1e6, 3) if events else math.nan,
            "steady_us_per_event": round(steady / (events * 0.75) * 1e6, 3) if events else math.nan,
            "steady_p99_ms": round(percentile(steady_latencies, 0.99) / 1e6, 3),
            "tick_us_per_event": round(in_ticks / (events * 0.75) * 1e6, 3) if events else math.nan,
            "wake_up_us": round((steady - in_ticks) / ticks * 1e6, 3) if ticks else math.nan,
            "rss_before": self.rss_before,
            "rss_live": self._rss_live,
            "peak_rss": memory("VmHWM"),
            "collect_before_ms": self._collect_before,
            "collect_live_ms": self._collect_live,
            "failures": self.failures,
        }
        print(json.dumps(result), flush=True)
        os._exit(0)  # some clients take seconds to close thousands of streams; that is not measured


def percentile(ordered: list[int], part: float) -> float:
    """Return the value that this part of the sorted values does not exceed; NaN without values."""
    if not ordered:
        return math.nan
    return float(ordered[min(len(ordered) - 1, math.ceil(len(ordered) * part) - 1)])


class Lines:
    """A minimal reader of server-sent events: splits chunks into complete lines."""

    __slots__ = ("rest",)

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that the chunk completes."""
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        return lines
