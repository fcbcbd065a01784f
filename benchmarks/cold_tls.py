"""Do handshakes stall what is running? 1,000 calls started at once, each on a new TLS connection, while 200 streams
are live: how late did those streams' events come?"""

from __future__ import annotations

import json

from .answers import Answer
from .command import run_alone
from .runs import Run, run_program

LIMIT_MS = 50.0
STREAMS, CALLS = 200, 1000


def answer(run: Run) -> Answer:
    """The running streams' worst latency."""
    result = Answer(f"{CALLS:,} calls at once on cold TLS connections, {STREAMS} streams running")
    source = run.source
    output = run_program(
        run,
        "benchmarks.peers.ours_handshakes",
        source.origin(),
        source.origin(tls=True),
        str(source.certificate),
        str(STREAMS),
        str(CALLS),
        seconds=60,
    )
    found = json.loads(output)
    if found["completed"] != CALLS:
        result.notes.append(f"only {found['completed']} of {CALLS} calls completed: {found['failures']}")
    worst = found["max_ms"]
    result.add("manystream, p99 of the running streams", found["p99_ms"], "ms")
    result.add(
        "manystream, worst of the running streams",
        worst,
        "ms",
        target=f"≤ {LIMIT_MS:g} ms",
        met=worst <= LIMIT_MS and found["completed"] == CALLS,
    )
    return result


if __name__ == "__main__":
    run_alone(answer)
