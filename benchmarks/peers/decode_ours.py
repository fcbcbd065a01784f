"""manystream's decoding alone: bytes in memory → events. No socket, no engine.

    python -m benchmarks.peers.decode_ours DIALECT EVENTS [PASSES [FORM]]

Each chunk has one server-sent event, as providers send them. FORM is a form of chat's deltas; see `FORMS` in wire.py.
"""

from __future__ import annotations

import sys
import time

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.transport.sse import SSEParser

from ..wire import FORMS, WIRES, chunks_of
from .ours import PROVIDERS


def decode(dialect: str, chunks: list[bytes]) -> int:
    """Decode the stream, and return the number of text deltas."""
    provider = PROVIDERS[dialect]("key", "http://127.0.0.1")
    parser, machine = SSEParser(), DIALECTS[provider.dialect].machine(provider, lambda: "id")
    deltas = 0
    for chunk in chunks:
        for name, data in parser.feed(chunk):
            for event in machine.feed(name, data):
                if type(event) is ms.TextDelta:
                    deltas += 1
    machine.end()
    return deltas


def main() -> None:
    dialect, events = sys.argv[1], int(sys.argv[2])
    passes = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    wire = FORMS[sys.argv[4]] if len(sys.argv) > 4 else WIRES[dialect]
    chunks = chunks_of(wire, events)
    best = float("inf")
    for _ in range(passes):
        begin = time.process_time()
        deltas = decode(dialect, chunks)
        best = min(best, time.process_time() - begin)
        assert deltas == events, deltas
    print(events / best)


if __name__ == "__main__":
    main()
