"""A client of Responses over a WebSocket that sends what it is told to, frame by frame."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from manystream.transport.websocket import CLOSE, PING, TEXT, FrameReader, decode_close, encode_frame

LAST = frozenset({"response.completed", "response.failed", "response.incomplete", "error"})
"""The events that end a turn."""


def handshake(path: str = "/v1/responses", *headers: str, host: str = "127.0.0.1", key: str = "key") -> bytes:
    """Return the request that opens a WebSocket. A header of the same name replaces the usual one."""
    lines = {
        "host": host, "upgrade": "websocket", "connection": "Upgrade", "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==", "authorization": f"Bearer {key}",
    }  # fmt: skip
    lines |= {name.lower(): value for name, _, value in (header.partition(": ") for header in headers)}
    sent = [f"{name}: {value}" for name, value in lines.items() if value]
    return "\r\n".join([f"GET {path} HTTP/1.1", *sent, "", ""]).encode()


def create(text: str = "Hello.", **members: Any) -> bytes:
    """Return the frame of a `response.create`."""
    body = {"type": "response.create", "model": "sim-text", "input": [{"role": "user", "content": text}], **members}
    return encode_frame(json.dumps(body).encode(), masked=True)


async def three_turns(lane: Any) -> list[str]:
    """Make three turns of one conversation over a lane of OpenAI's session. Return their statuses."""
    previous: dict[str, str] = {}
    said: list[str] = []
    for number in range(3):
        question = [{"role": "user", "content": f"Question {number}"}]
        await lane.send({"type": "response.create", "model": "m", "input": question, "store": False, **previous})
        response = await lane.get_final_response()
        previous = {"previous_response_id": response.id}
        said.append(response.status)
    return said


class WebSocketClient:
    """What a client has received.

    head: the head of the response to the handshake; empty before it has come.
    control: the control frames that are not yet taken, as opcode and payload.
    rest: bytes of a response that opened no WebSocket.
    """

    def __init__(self, receive: Callable[[], bytes] = bytes) -> None:
        self.receive = receive
        self.head = ""
        self.rest = b""
        self.control: list[tuple[int, bytes]] = []
        self.events: list[dict[str, Any]] = []
        self._reader = FrameReader(1 << 26, masked=False)

    def feed(self, data: bytes) -> None:
        """Read bytes of the server."""
        if not self.head:
            self.rest += data
            head, found, data = self.rest.partition(b"\r\n\r\n")
            if not found:
                return
            self.head, self.rest = head.decode(), data
        if not self.head.startswith("HTTP/1.1 101 "):
            return
        for opcode, payload in self._reader.feed(data):
            if opcode == TEXT:
                self.events.append(json.loads(payload))
            else:
                self.control.append((opcode, payload))

    @property
    def closed(self) -> int | None:
        """The code with which the server has closed the WebSocket."""
        return next((decode_close(payload)[0] for opcode, payload in self.control if opcode == CLOSE), None)

    def turn(self) -> list[dict[str, Any]] | None:
        """Return the events of the next turn, and forget them; None while it has not ended."""
        for place, event in enumerate(self.events):
            if event["type"] in LAST:
                taken, self.events = self.events[: place + 1], self.events[place + 1 :]
                return taken
        return None

    # --- over a socket that blocks ---

    def wait(self, has_come: Callable[[], bool]) -> bool:
        """Receive until something has come. Returns False if the connection ends before."""
        while not has_come():
            data = self.receive()
            if not data:
                return False
            self.feed(data)
        return True

    def next_turn(self) -> list[dict[str, Any]]:
        """Receive the events of the next turn."""
        found: list[dict[str, Any]] = []

        def has_come() -> bool:
            found.extend(self.turn() or ())
            return bool(found)

        assert self.wait(has_come), (self.head, self.events, self.control)
        return found


class Socket(WebSocketClient):
    """A client over a socket that blocks."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(lambda: sock.recv(65536))
        self.send = sock.sendall

    def ask(self, text: str = "Hello.", **members: Any) -> list[dict[str, Any]]:
        """Send a `response.create` and return its events."""
        self.send(create(text, **members))
        return self.next_turn()

    def ping(self) -> None:
        self.send(encode_frame(b"there?", PING, masked=True))


@contextmanager
def opened(address: tuple[str, int], *headers: str, path: str = "/v1/responses") -> Generator[Socket]:
    """Open a WebSocket that is closed at the end of the block."""
    with socket.create_connection(address, timeout=60) as sock:
        client = Socket(sock)
        client.send(handshake(path, *headers))
        client.wait(lambda: bool(client.head))
        yield client


def id_of(events: list[dict[str, Any]]) -> str:
    """Return the id of the answer that a turn's last event has."""
    return str(events[-1]["response"]["id"])
