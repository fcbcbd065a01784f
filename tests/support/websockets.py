"""A server of OpenAI's Responses over HTTP and WebSocket, which rebuilds conversations from the chains of sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import manystream as ms
from manystream.transport.websocket import (
    CLOSE,
    PING,
    PONG,
    TEXT,
    FrameReader,
    accept_upgrade,
    encode_close,
    encode_frame,
)
from tests.support.peers import STREAM_HEAD, Line, Peer, answer, chunked, open_peer

Items = list[dict[str, Any]]


@dataclass
class Turn:
    """One turn as the server reads it.

    number: of all turns, counted from 1.
    transport: `http` or `websocket`.
    body: what was sent.
    whole: the conversation: what the chain has, and the new items.
    size: the bytes that were sent.
    """

    number: int
    transport: str
    body: dict[str, Any]
    whole: Items
    size: int

    @property
    def continued(self) -> bool:
        return "previous_response_id" in self.body


@dataclass
class Socket:
    """The server's side of one WebSocket."""

    line: Line
    known: dict[str, Items] = field(default_factory=dict[str, Items])
    reader: FrameReader = field(default_factory=lambda: FrameReader(1 << 26, masked=True))
    received: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])
    pongs: list[bytes] = field(default_factory=list[bytes])
    answers_pings: bool = True

    async def receive(self) -> bytes | None:
        """The next text; None at the end."""
        while True:
            while self.received:
                opcode, payload = self.received.pop(0)
                if opcode == TEXT:
                    return payload
                if opcode == CLOSE:
                    return None
                if opcode == PING and self.answers_pings:
                    await self.line.send(encode_frame(payload, PONG, masked=False))
                elif opcode == PONG:
                    self.pongs.append(payload)
            data = self.line.received or await self.line.stream.receive_some(65536)
            self.line.received = b""
            if not data:
                return None
            self.received += self.reader.feed(data)

    async def send(self, *events: dict[str, Any]) -> None:
        await self.line.send(b"".join(encode_frame(json.dumps(event).encode(), masked=False) for event in events))

    async def close(self, code: int, reason: str = "") -> None:
        await self.line.send(encode_frame(encode_close(code, reason), CLOSE, masked=False))


def call_item(number: int, name: str = "look") -> dict[str, Any]:
    arguments = json.dumps({"page": number})
    return {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name,
            "arguments": arguments, "status": "completed"}  # fmt: skip


def text_item(number: int, text: str) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [part]}


def events_of(number: int, output: Items, status: str = "completed") -> Items:
    """The events of a response, with two deltas for each item."""
    response: dict[str, Any] = {
        "id": f"resp_{number}",
        "object": "response",
        "model": "m",
        "status": "in_progress",
        "output": [],
    }
    events: Items = [{"type": "response.created", "response": response}]
    for index, item in enumerate(output):
        events.append({"type": "response.output_item.added", "output_index": index, "item": {**item, "content": []}
                       if item["type"] == "message" else {**item, "arguments": ""}})  # fmt: skip
        place = {"item_id": item["id"], "output_index": index}
        text = item["content"][0]["text"] if item["type"] == "message" else item["arguments"]
        kind = "output_text" if item["type"] == "message" else "function_call_arguments"
        half = len(text) // 2
        for piece in (text[:half], text[half:]):
            events.append({"type": f"response.{kind}.delta", **place, "content_index": 0, "delta": piece})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    ended = {**response, "status": status, "output": output, "usage": usage}
    events.append({"type": f"response.{status}", "response": ended})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


OnTurn = Callable[["ResponsesServer", Socket | None, Turn], Awaitable[bool]]


@dataclass
class ResponsesServer:
    """Answers each turn with a call; the last of `calls` turns with a text.

    on_turn: gets each turn before it is answered; returns whether it has done that itself.
    handshake: what is sent in place of 101; None: the WebSocket is opened.
    by_rounds: an answer depends on the results in the conversation alone, so that a repeated turn gets the same.
    """

    peer: Peer
    on_turn: OnTurn | None = None
    handshake: bytes | None = None
    calls: int = 1_000_000
    by_rounds: bool = False
    turns: list[Turn] = field(default_factory=list[Turn])
    heads: list[bytes] = field(default_factory=list[bytes])
    sockets: list[Socket] = field(default_factory=list[Socket])

    @property
    def provider(self) -> ms.OpenAIResponses:
        return ms.OpenAIResponses("sk-canary-secret", self.peer.url, name="p", websocket=True)

    def output(self, number: int) -> Items:
        return [call_item(number)] if number % self.calls else [text_item(number, f"answer {number}")]

    def whole(self, turn: Turn) -> tuple[int, Items]:
        """The number of an answer, and its items."""
        if not self.by_rounds:
            return turn.number, self.output(turn.number)
        number = sum(item["type"] == "function_call_output" for item in turn.whole) + 1
        return number, [call_item(number), text_item(number, f"text {number}")]

    async def script(self, line: Line) -> None:
        while request := await line.request():
            head, _, body = request.partition(b"\r\n\r\n")
            self.heads.append(head)
            if b"upgrade: websocket" in head.lower():
                if self.handshake is not None:
                    await line.send(self.handshake)
                    return
                await self._serve(line, head)
                return
            sent = json.loads(body)
            turn = Turn(len(self.turns) + 1, "http", sent, sent["input"], len(body))
            self.turns.append(turn)
            if self.on_turn is None or not await self.on_turn(self, None, turn):
                events = events_of(*self.whole(turn))
                if sent.get("stream"):
                    await line.send(STREAM_HEAD)
                    await line.send(chunked(*(f"data: {json.dumps(event)}\n\n" for event in events)))
                else:
                    await line.send(answer(json.dumps(events[-1]["response"])))

    async def _serve(self, line: Line, head: bytes) -> None:
        rows = [row.partition(b":") for row in head.split(b"\r\n")[1:]]
        added = accept_upgrade(head.split(b" ")[0], [(name.lower(), value.strip()) for name, _, value in rows])
        sent = b"".join(b"%b: %b\r\n" % pair for pair in added)
        await line.send(b"HTTP/1.1 101 Switching Protocols\r\nx-request-id: req_ws\r\n" + sent + b"\r\n")
        socket = Socket(line)
        self.sockets.append(socket)
        while (text := await socket.receive()) is not None:
            sent = json.loads(text)
            assert sent.pop("type") == "response.create", sent
            assert "stream" not in sent
            before = socket.known.get(sent.get("previous_response_id", ""), [])
            turn = Turn(len(self.turns) + 1, "websocket", sent, [*before, *sent["input"]], len(text))
            self.turns.append(turn)
            if self.on_turn is not None and await self.on_turn(self, socket, turn):
                continue
            await self.answer(socket, turn)

    async def answer(self, socket: Socket, turn: Turn, *, start: int = 0, end: int | None = None) -> None:
        """Answer a turn, and know it from then on. `start`, `end`: of its events."""
        number, output = self.whole(turn)
        await socket.send(*events_of(number, output)[start:end])
        socket.known = {f"resp_{number}": [*turn.whole, *map(as_input, output)]}


def as_input(item: dict[str, Any]) -> dict[str, Any]:
    """An item of an answer as a client sends it back."""
    if item["type"] == "message":
        return {"type": "message", "role": "assistant", "content": "".join(part["text"] for part in item["content"])}
    return {name: item[name] for name in ("type", "call_id", "name", "arguments")}


@asynccontextmanager
async def open_responses(on_turn: OnTurn | None = None, **options: Any) -> AsyncGenerator[ResponsesServer, None]:
    servers: list[ResponsesServer] = []

    async def script(line: Line) -> None:
        await servers[0].script(line)

    async with open_peer(script) as peer:
        servers.append(ResponsesServer(peer, on_turn, **options))
        yield servers[0]


async def tool_loop(
    engine: ms.Engine, talk: ms.Conversation, turns: int, *, model: str = "p/m", **options: Any
) -> list[ms.Completion]:
    """Turns of an agent: each call of an answer gets a result."""
    found: list[ms.Completion] = []
    for _ in range(turns):
        completion = await engine.start_stream(talk.request(model, **options)).wait()
        found.append(completion)
        response = completion.response_or_raise()
        talk.add_response(response)
        for call in response.tool_calls:
            talk.add(ms.Message.tool_result(call.id, f"result of {call.id}"))
        if not response.tool_calls:
            talk.add(ms.Message.user("and then?"))
    return found


def plain(items: Sequence[dict[str, Any]]) -> Items:
    """Items for a comparison: a message's parts are one text."""
    found: Items = []
    for item in items:
        content = item.get("content")
        text = content if isinstance(content, str) else "".join(part["text"] for part in content or ())
        found.append({**item, "content": text} if "content" in item else item)
    return found
