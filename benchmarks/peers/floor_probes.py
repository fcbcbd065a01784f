"""The floor: single calls beside live streams: `python -m benchmarks.peers.floor_probes URL KIND STREAMS CALLS`."""

from __future__ import annotations

import select
import socket
import time

import orjson

from ..probes import Probes, read_probes, report
from .common import TEXT_OF, Recorder
from .floor import open_stream, request_bytes

WARM_SECONDS = 1.0


class Caller:
    """One warm connection, with one call after the other. `latencies`: in nanoseconds."""

    def __init__(self, probes: Probes) -> None:
        url, body = probes.call.base_url + probes.call.path, probes.call.body
        self.sock: socket.socket = open_stream(url, body)
        self.latencies: list[int] = []
        self._request = request_bytes(url, body)
        self._left = probes.calls
        self._answer = probes.call.mode == "answer"
        self._received = b""

    def on_readable(self) -> bool:
        """Read; begin the next call after the end of one. Returns whether a call runs."""
        self._received += self.sock.recv(16384)
        _, separator, body = self._received.partition(b"\r\n\r\n")
        if self._answer and separator and body.endswith(b"}"):
            self._record(orjson.loads(body)["choices"][0]["message"]["content"])
            return self._next()
        if not self._answer:
            *lines, self._received = self._received.split(b"\n")
            for line in lines:
                if line.startswith(b"data: {"):
                    text = TEXT_OF["chat"](orjson.loads(line[6:]))
                    if text:
                        self._record(text)
                elif line == b"0\r":
                    return self._next()
        return True

    def _record(self, text: str) -> None:
        self.latencies.append(time.monotonic_ns() - int(text))

    def _next(self) -> bool:
        self._received = b""
        self._left -= 1
        if self._left:
            self.sock.sendall(self._request)
        return bool(self._left)


def main() -> None:
    probes = read_probes()
    loads, text_of, record = orjson.loads, TEXT_OF["chat"], Recorder(probes.live).record
    epoll = select.epoll()
    live = probes.live
    streams = (open_stream(live.base_url + live.path, live.body) for _ in range(live.streams))
    sockets = {sock.fileno(): sock for sock in streams}
    rests = dict.fromkeys(sockets, b"")
    for descriptor in sockets:
        epoll.register(descriptor, select.EPOLLIN)
    begin, caller, running = time.monotonic() + WARM_SECONDS, None, True
    while running:
        for descriptor, _ in epoll.poll(0.1, 512):
            if caller is not None and descriptor == caller.sock.fileno():
                running = caller.on_readable()
                continue
            *lines, rests[descriptor] = (rests[descriptor] + sockets[descriptor].recv(16384)).split(b"\n")
            for line in lines:
                if line.startswith(b"data: {") and (text := text_of(loads(line[6:]))):
                    record(text)
        if caller is None and time.monotonic() >= begin:
            caller = Caller(probes)
            epoll.register(caller.sock.fileno(), select.EPOLLIN)
    assert caller is not None
    report(caller.latencies)


if __name__ == "__main__":
    main()
