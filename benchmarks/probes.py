"""The load of a client that measures single calls beside live streams. Standard library only."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from .peers.common import Task, percentile

FIRST_TOKEN, ANSWER = "first-token", "answer"
KINDS = (FIRST_TOKEN, ANSWER)
"""What is measured of a call: a stream's first event of text, or an unstreamed answer."""

DELAY_MS = 10
"""From an unstreamed request to its response. A stream's first event is sent after up to a period of 20 ms."""
SECONDS_PER_CALL = 0.02


@dataclass(frozen=True, slots=True)
class Probes:
    """Live streams, and calls that are made one after the other meanwhile, on one warm connection.

    live: the load of the streams.
    call: the load of one call.
    calls: the number of calls.
    """

    live: Task
    call: Task
    calls: int


def read_probes() -> Probes:
    """Parse the command line: `URL KIND STREAMS CALLS`."""
    url, kind, streams, calls = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    events = int(50 * (3 + calls * SECONDS_PER_CALL * 2))
    live = Task(url, streams, events, 50.0, "chat", 0, "stream", 0, "")
    mode = "answer" if kind == ANSWER else "stream"
    call = Task(url, 1, 1, 50.0, "chat", 0, mode, 0, "", DELAY_MS)
    return Probes(live, call, calls)


def report(latencies: list[int]) -> None:
    """Print the percentiles of the calls' latencies (ns), in milliseconds."""
    ordered = sorted(latencies)
    print(json.dumps({f"p{part:g}_ms": percentile(ordered, part / 100) / 1e6 for part in (50, 99)}))
