"""How many events per second can the simulator send, paced, on one core?

A load source that falls behind measures itself, so this is measured first. The simulator runs in its own process. The
client only receives into one buffer. For each load, the table shows the requested rate, the rate sent, the largest
delay of an event, and the simulator's CPU per event. The reciprocal of the last is the rate that fills one core. The
exit status is 1 if that rate is below the promised one.

    python benchmarks/simulator_throughput.py
    python benchmarks/simulator_throughput.py --streams 2000 --rate 50 --seconds 5 --stamp
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass

from manystream.http_server import allow_many_sockets
from manystream.simulator import HEADER, Simulator, open_simulator

PROMISED = 80_000
"""Paced events per second on one core."""


@dataclass(slots=True, frozen=True)
class Load:
    """A load: streams, events per second of each, seconds, and whether events carry their sending time."""

    streams: int
    rate: float
    seconds: float
    stamp: bool = False

    @property
    def events(self) -> int:
        return max(1, int(self.rate * self.seconds))


LOADS = (
    Load(400, 50, 4),
    Load(1000, 50, 4),
    Load(1600, 50, 4),
    Load(1600, 50, 4, stamp=True),
    Load(1600, 60, 4),
    Load(100, 5000, 4),
    Load(100, 5000, 4, stamp=True),
)


@dataclass(slots=True)
class Result:
    """The result of one load."""

    load: Load
    events: int
    seconds: float
    late_ms: float
    cpu_seconds: float
    completed: int

    @property
    def per_event(self) -> float:
        """The simulator's CPU per event, microseconds."""
        return self.cpu_seconds / self.events * 1e6

    def row(self) -> str:
        load = self.load
        return (
            f"{load.streams:7} {load.rate:7g} {'yes' if load.stamp else 'no':>6} {load.streams * load.rate:9.0f}"
            f" {self.events / self.seconds:9.0f} {self.late_ms:8.1f} {self.cpu_seconds / self.seconds:6.0%}"
            f" {self.per_event:9.2f} {1e6 / self.per_event:10.0f}   {self.completed}/{load.streams}"
        )


HEADING = "streams    rate  stamp     asked      sent  late ms    cpu  us/event  full core   complete"


def statistics(simulator: Simulator) -> dict[str, float]:
    """Return the simulator's counters."""
    with urllib.request.urlopen(f"{simulator.origin}/sim/statistics", timeout=30) as answer:
        counts: dict[str, float] = json.load(answer)
        return counts


def request(simulator: Simulator, load: Load) -> bytes:
    """Return the request of one stream."""
    body = json.dumps(
        {"model": "sim-text", "stream": True, "messages": [{"role": "user", "content": "Go."}]}, separators=(",", ":")
    )
    directive = f"events={load.events},rate={load.rate:g},stamp={int(load.stamp)}"
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {simulator.host}\r\nauthorization: Bearer none\r\n"
        f"{HEADER}: {directive}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n{body}"
    ).encode()


def drain(simulator: Simulator, load: Load) -> float:
    """Open all streams, a few at a time, and read them to their end. Returns the seconds between."""
    data = request(simulator, load)
    buffer = bytearray(65536)
    begin = time.monotonic()
    with selectors.DefaultSelector() as selector:
        waiting, live = load.streams, 0
        while waiting or live:
            for _ in range(min(waiting, 20)):
                stream = socket.create_connection((simulator.host, simulator.port), timeout=30)
                stream.sendall(data)
                stream.setblocking(False)
                selector.register(stream, selectors.EVENT_READ, stream)
                waiting, live = waiting - 1, live + 1
            for key, _ in selector.select(0.001 if waiting else 60):
                ready: socket.socket = key.data
                try:
                    received = ready.recv_into(buffer)
                except BlockingIOError:
                    continue
                if not received:
                    selector.unregister(ready)
                    ready.close()
                    live -= 1
    return time.monotonic() - begin


def measure(load: Load) -> Result:
    """Run one load against a new simulator."""
    with open_simulator() as simulator:
        before = statistics(simulator)
        seconds = drain(simulator, load)
        after = statistics(simulator)
    return Result(
        load,
        events=int(after["events"] - before["events"]),
        seconds=seconds,
        late_ms=after["late_ms"],
        cpu_seconds=after["cpu_seconds"] - before["cpu_seconds"],
        completed=int(after["completed"]),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, help="one load instead of the table's")
    parser.add_argument("--rate", type=float, default=50.0, help="events a second of each stream")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--stamp", action="store_true", help="events carry their sending time")
    options = parser.parse_args(arguments)
    loads = LOADS
    if options.streams:
        loads = (Load(options.streams, options.rate, options.seconds, options.stamp),)
    allow_many_sockets()
    print(HEADING)
    slowest = 0.0
    for load in loads:
        result = measure(load)
        slowest = max(slowest, result.per_event)
        print(result.row(), flush=True)
    kept = 1e6 / slowest >= PROMISED
    print(f"one core sends {1e6 / slowest:,.0f} events a second at the least; promised are {PROMISED:,}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
