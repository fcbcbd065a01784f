"""A server with its own `select` loop: a client sends a prompt in a line, and receives the answer as a stream.

    python examples/select_loop.py                                  simulated: serves three clients and ends
    python examples/select_loop.py --port 7000 --model gpt-5-mini   a real model; `nc 127.0.0.1 7000` is a client

The program owns the loop, its sockets and its callbacks. The engine is a guest of the loop (see guest.py). The
engine's
callbacks run on the loop's thread and write into the clients' buffers. A client that disconnects cancels its call.
"""

from __future__ import annotations

import argparse
import select
import socket
import threading
from collections import deque
from collections.abc import Callable

from guest import Guest
from setting import Setting, add_arguments, open_setting

import manystream as ms

LONGEST_LINE = 10_000


class SelectLoop:
    """A `select` loop: each socket has a callback, and a queue holds callbacks to run soon."""

    def __init__(self) -> None:
        self.readers: dict[socket.socket, Callable[[], None]] = {}
        self.writers: dict[socket.socket, Callable[[], None]] = {}
        self._soon: deque[Callable[[], object]] = deque()
        self._stopped = False
        # A byte through this pair of sockets wakes `select` when another thread adds a callback.
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self.readers[self._wake_reader] = self._on_wake

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Run a callback in the next iteration. Call it on the loop's thread only."""
        self._soon.append(callback)

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> None:
        """Run a callback in the next iteration. Any thread may call it."""
        self._soon.append(callback)
        try:
            self._wake_writer.send(b"\0")
        except BlockingIOError:
            pass  # the buffer is full of bytes that wake the loop

    def _on_wake(self) -> None:
        self._wake_reader.recv(4096)

    def run(self) -> None:
        """Iterate until `stop` is called."""
        while not self._stopped:
            timeout = 0.0 if self._soon else None
            readable, writable, _ = select.select(list(self.readers), list(self.writers), [], timeout)
            for watched, ready in ((self.readers, readable), (self.writers, writable)):
                for sock in ready:
                    if sock in watched:  # an earlier callback may have closed it
                        watched[sock]()
            for _ in range(len(self._soon)):
                self._soon.popleft()()

    def stop(self) -> None:
        """End `run` after the current iteration."""
        self._stopped = True

    def close(self) -> None:
        """Close the loop's own sockets."""
        self._wake_reader.close()
        self._wake_writer.close()


class Client:
    """One connection: reads a line, writes an answer, and closes the connection."""

    def __init__(self, server: Server, sock: socket.socket) -> None:
        self.server = server
        self.sock = sock
        self.incoming = bytearray()
        self.outgoing = bytearray()
        self.call: ms.Call | None = None
        sock.setblocking(False)
        server.loop.readers[sock] = self.on_readable

    def on_readable(self) -> None:
        try:
            data = self.sock.recv(4096)
        except OSError:
            data = b""
        if not data:  # the client has disconnected
            self.close()
            return
        if self.call is not None:
            return  # one line per connection
        self.incoming += data
        line, newline, _ = bytes(self.incoming).partition(b"\n")
        if newline and self.server.engine is not None:
            request = ms.Request(self.server.model, [ms.Message.user(line.decode("utf-8", "replace"))])
            self.call = self.server.engine.start_stream(request, self.on_event, self.on_completion)
        elif len(self.incoming) > LONGEST_LINE:
            self.close()

    def on_event(self, event: ms.Event) -> None:
        """Take one event of the answer. The engine calls it on the loop's thread."""
        if isinstance(event, ms.TextDelta):
            self.send(event.text)

    def on_completion(self, completion: ms.Completion) -> None:
        """Take the completion. The engine calls it once."""
        if completion.error is not None:
            self.send(f"[{completion.error.category}]")
        self.send("\n")

    def send(self, text: str) -> None:
        """Append to the client's buffer. The loop writes the buffer when the socket accepts data."""
        if self.sock in self.server.loop.readers:
            self.outgoing += text.encode()
            self.server.loop.writers[self.sock] = self.on_writable

    def on_writable(self) -> None:
        try:
            del self.outgoing[: self.sock.send(self.outgoing)]
        except OSError:
            self.close()
            return
        if not self.outgoing:
            del self.server.loop.writers[self.sock]
            if self.call is not None and self.call.completion is not None:
                self.close()

    def close(self) -> None:
        """Close the connection, and cancel its call if the call still runs."""
        self.server.loop.readers.pop(self.sock, None)
        self.server.loop.writers.pop(self.sock, None)
        self.sock.close()
        self.server.clients.discard(self)
        if self.call is not None:
            self.call.cancel()


class Server:
    """The program: a listening socket on the loop, and an engine for the answers."""

    def __init__(self, loop: SelectLoop, setting: Setting, port: int) -> None:
        self.loop = loop
        self.model = setting.model
        self.engine: ms.Engine | None = None
        self.clients: set[Client] = set()
        self.listener = socket.create_server(("127.0.0.1", port))
        self.listener.setblocking(False)
        self.port: int = self.listener.getsockname()[1]
        self.guest = Guest(
            setting.providers,
            self.on_open,
            loop.stop,
            call_soon_threadsafe=loop.call_soon_threadsafe,
            call_soon=loop.call_soon,
        )

    def on_open(self, engine: ms.Engine) -> None:
        """Start to accept clients."""
        self.engine = engine
        self.loop.readers[self.listener] = self.on_connection

    def on_connection(self) -> None:
        try:
            sock, _ = self.listener.accept()
        except OSError:
            return  # the client has disconnected
        self.clients.add(Client(self, sock))

    def run(self) -> None:
        """Serve until `guest.close()` or Ctrl-C."""
        try:
            self.loop.run()
        finally:
            self.listener.close()
            for client in tuple(self.clients):
                client.close()
            self.loop.close()
        self.guest.check()


def play(server: Server) -> None:
    """Run three clients in a thread: two read their answers, one disconnects early. Then end the server."""

    def connect(prompt: str) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        client.sendall(prompt.encode() + b"\n")
        return client

    try:
        with connect("rivers") as first, connect("bridges") as second:
            with connect("a long story") as leaving:
                leaving.recv(1)
            for client, prompt in ((first, "rivers"), (second, "bridges")):
                with client.makefile("r", encoding="utf-8") as answer:
                    print(f"{prompt}: {len(answer.read().split())} words")
    finally:
        server.loop.call_soon_threadsafe(server.guest.close)


def main() -> None:
    parser = argparse.ArgumentParser(description="A select loop that drives the engine.")
    add_arguments(parser)
    parser.add_argument(
        "--port", type=int, help="serve on this port, 0 for a free one, until Ctrl-C (default: play three clients)"
    )
    arguments = parser.parse_args()
    with open_setting(arguments, "events=20,rate=40") as setting:
        server = Server(SelectLoop(), setting, arguments.port or 0)
        player: threading.Thread | None = None
        if arguments.port is not None:
            print(f"serving on 127.0.0.1:{server.port}", flush=True)
        else:
            player = threading.Thread(target=play, args=[server])
            player.start()
        server.run()
        if player is not None:
            player.join()
        if server.engine is not None:
            figures = server.engine.statistics()
            print(f"{figures.started} calls, {figures.cancelled} cancelled")


if __name__ == "__main__":
    main()
