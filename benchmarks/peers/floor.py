"""The floor: an epoll loop that only receives, splits lines and parses JSON.

It has no dialect, no HTTP (it reads heads and chunk sizes as lines), no timeouts and no errors. No Python client can be
faster.
"""

from __future__ import annotations

import select
import socket
import ssl
from urllib.parse import urlsplit

import orjson

from .common import TEXT_OF, Recorder, Task, read_task


def open_stream(task: Task, context: ssl.SSLContext | None) -> socket.socket:
    """Return a non-blocking socket that has sent its request."""
    url = urlsplit(task.base_url + task.path)
    connection = socket.create_connection((url.hostname or "", url.port or 0))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context:
        connection = context.wrap_socket(connection, server_hostname=url.hostname)
    target = url.path + (f"?{url.query}" if url.query else "")
    head = f"POST {target} HTTP/1.1\r\nhost: {url.netloc}\r\ncontent-length: {len(task.body)}\r\n\r\n"
    connection.sendall(head.encode() + task.body)
    connection.setblocking(False)
    return connection


def main() -> None:
    task = read_task()
    context, text_of = task.ssl_context(), TEXT_OF[task.dialect]
    recorder = Recorder(task)
    record, loads = recorder.record, orjson.loads
    epoll = select.epoll()
    sockets = {
        connection.fileno(): connection for connection in (open_stream(task, context) for _ in range(task.streams))
    }
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
            *lines, rest = (rests[descriptor] + chunk).split(b"\n")
            rests[descriptor] = rest
            for line in lines:
                if line.startswith(b"data: {"):
                    text = text_of(loads(line[6:]))
                    if text:
                        record(text)
                elif line == b"0\r":
                    recorder.complete()
                    epoll.unregister(descriptor)
                    sockets.pop(descriptor).close()
                    break
    recorder.report()


if __name__ == "__main__":
    main()
