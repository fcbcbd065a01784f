"""The floor: an epoll loop that only receives, splits lines and parses JSON.

It has no dialect, no HTTP (it reads heads and chunk sizes as lines), no timeouts and no errors. No Python client can be
faster. Over TLS, it reads through a memory BIO: one system call receives all records that have arrived.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson

from .common import TEXT_OF, Recorder, read_task


class OverTLS:
    """A connection with TLS over a memory BIO, with the methods of a socket that `read_streams` uses."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, host: str | None) -> None:
        """Make the handshake on a blocking socket."""
        self.connection = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        shaken = False
        while not shaken:
            try:
                self._tls.do_handshake()
                shaken = True
            except ssl.SSLWantReadError:
                connection.sendall(self._outgoing.read())
                self._incoming.write(connection.recv(16384))
        self.sendall(b"")

    def sendall(self, data: bytes) -> None:
        """Send on a blocking socket, with what the handshake has left."""
        if data:
            self._tls.write(data)
        self.connection.sendall(self._outgoing.read())

    def recv(self, size: int) -> bytes:
        """Return the data of all records that one read of the socket completes."""
        received = self.connection.recv(size)
        if not received:
            return b""
        self._incoming.write(received)
        pieces: list[bytes] = []
        try:
            while piece := self._tls.read(size):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            if not pieces:
                raise
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self.connection.fileno()

    def close(self) -> None:
        """Close the socket."""
        self.connection.close()


def open_tls_stream(url: str, body: bytes, context: ssl.SSLContext) -> OverTLS:
    """Return a non-blocking connection with TLS that has sent its request."""
    connection = connect(url)
    over = OverTLS(connection, context, urlsplit(url).hostname)
    over.sendall(request_bytes(url, body))
    connection.setblocking(False)
    return over


def connect(url: str) -> socket.socket:
    """Return a connected socket."""
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname or "", parts.port or 0))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def open_stream(url: str, body: bytes) -> socket.socket:
    """Return a non-blocking socket that has sent its request."""
    connection = connect(url)
    connection.sendall(request_bytes(url, body))
    connection.setblocking(False)
    return connection


def request_bytes(url: str, body: bytes) -> bytes:
    """Return head and body of the request."""
    parts = urlsplit(url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    head = f"POST {target} HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def read_streams(
    connections: Sequence[socket.socket | OverTLS],
    text_of: Callable[[Any], str | None],
    record: Callable[[str], object],
    complete: Callable[[], object],
    tick: Callable[[float], object] = float,
) -> None:
    """Read all streams to their end.

    text_of: returns the text of a parsed event.
    record: gets each text.
    complete: called at the end of each stream.
    tick: gets the seconds in which the streams that were ready at once were read.
    """
    loads, clock = orjson.loads, time.perf_counter
    epoll = select.epoll()
    sockets = {connection.fileno(): connection for connection in connections}
    rests = dict.fromkeys(sockets, b"")
    receive = {descriptor: connection.recv for descriptor, connection in sockets.items()}
    for descriptor in sockets:
        epoll.register(descriptor, select.EPOLLIN)
    while sockets:
        ready = epoll.poll(10, 512)
        began = clock()
        for descriptor, _ in ready:
            try:
                chunk = receive[descriptor](16384)
            except ssl.SSLWantReadError:
                continue
            *lines, rest = (rests[descriptor] + (chunk or b"0\r\n")).split(b"\n")  # without chunks, the end is the end
            rests[descriptor] = rest
            for line in lines:
                if line.startswith(b"data: {"):
                    text = text_of(loads(line[6:]))
                    if text:
                        record(text)
                elif line == b"0\r":
                    complete()
                    epoll.unregister(descriptor)
                    sockets.pop(descriptor).close()
                    break
        tick(clock() - began)


def main() -> None:
    task = read_task()
    context = task.ssl_context()
    recorder = Recorder(task)
    url = task.base_url + task.path
    connections = [
        open_tls_stream(url, task.body, context) if context else open_stream(url, task.body)
        for _ in range(task.streams)
    ]
    read_streams(connections, TEXT_OF[task.dialect], recorder.record, recorder.complete, recorder.tick)
    recorder.report()


if __name__ == "__main__":
    main()
