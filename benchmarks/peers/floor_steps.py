"""The floor in lockstep with the load source, for counting instructions.

    python -m benchmarks.peers.floor_steps URL STREAMS STEPS [FORM]

FORM is a wire form; see `FORMS` in source/load.py. It cannot read events that are cut across chunks.
"""

from __future__ import annotations

import json
import select
import socket
import sys

from .common import PATHS, TEXT_OF
from .floor import open_stream, read_streams
from .steps import Steps


def main(steps: Steps) -> None:
    body = json.dumps({"model": "gpt-4o-mini", "messages": [], "stream": True}).encode()
    streams = [open_stream(steps.base_url + PATHS["chat"], body) for _ in range(steps.streams)]
    for stream in streams:
        select.select([stream], [], [], 30)  # its head has arrived: the source has the request
    per_step = steps.streams * steps.events
    last, seen = per_step * steps.count, 0

    def record(text: str) -> None:
        nonlocal seen
        seen += 1
        if seen == last:
            for stream in streams:
                stream.shutdown(socket.SHUT_RDWR)  # its end is read next
        elif seen % per_step == 0:
            steps.step()

    steps.step()
    read_streams(streams, TEXT_OF["chat"], record, lambda: None)
    print(seen)


if __name__ == "__main__":
    main(Steps(*sys.argv[1:]))
