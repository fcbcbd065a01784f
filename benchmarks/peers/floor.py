"""The floor: an epoll loop that only receives, splits lines and parses JSON.

It has no dialect, no HTTP (it reads heads and chunk sizes as lines), no timeouts and no errors. No Python client can be
faster.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import orjson

from .common import TEXT_OF, Recorder, read_task


def open_stream(url: str, body: bytes, context: ssl.SSLContext | None) -> socket.socket:
    """Return a non-blocking socket that has sent its request."""
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname or "", parts.port or 0))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context:
        connection = context.wrap_socket(connection, server_hostname=parts.hostname)
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
    connections: list[socket.socket],
    text_of: Callable[[Any], str | None],
    record: Callable[[str], object],
    complete: Callable[[], object],
) -> None:
    """Read all streams to their end.

    text_of: returns the text of a parsed event.
    record: gets each text.
    complete: called at the end of each stream.
    """
    loads = orjson.loads
    epoll = select.epoll()
    sockets = {connection.fileno(): connection for connection in connections}
    rests = dict.fromkeys(sockets, b"")
    receive = {descriptor: connection.recv for descriptor, connection in sockets.items()}
    for descriptor in sockets:
        epoll.register(descriptor, select.EPOLLIN)
    while sockets:
        for descriptor, _ in epoll.poll(10, 512):
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


def main() -> None:
    task = read_task()
    context = task.ssl_context()
    recorder = Recorder(task)
    connections = [open_stream(task.base_url + task.path, task.body, context) for _ in range(task.streams)]
    read_streams(connections, TEXT_OF[task.dialect], recorder.record, recorder.complete)
    recorder.report()


if __name__ == "__main__":
    main()
