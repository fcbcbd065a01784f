"""A loopback server that limits requests with a token bucket, and reports the limit in one of several forms."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

import manystream as ms
from tests.support.peers import STREAM_HEAD, Line, Peer, answer, chat_stream, chunked, error_body, open_peer, stream_of

Form = Callable[["Limited"], str]


def openai_headers(server: Limited) -> str:
    """Return headers with the limit, the remaining requests, and the duration until the bucket is full."""
    left = int(server.level)
    seconds = (server.per_minute - server.level) * 60 / server.per_minute
    return (
        f"x-ratelimit-limit-requests: {server.per_minute:.0f}\r\nx-ratelimit-remaining-requests: {left}\r\n"
        f"x-ratelimit-reset-requests: {seconds * 1000:.0f}ms\r\n"
    )


def no_headers(server: Limited) -> str:
    return ""


@dataclass
class Limited:
    """A server whose requests are limited by a token bucket.

    per_minute: requests that flow into the bucket per minute.
    capacity: the largest number of requests in the bucket.
    seconds: the duration of a call.
    """

    per_minute: float = 600.0
    capacity: float = 0.0
    form: Form = openai_headers
    seconds: float = 0.5
    refusal: str = "429 Too Many Requests"
    refusal_body: str = field(
        default_factory=lambda: error_body("Rate limit reached", "requests", "rate_limit_exceeded")
    )
    refusal_headers: str = ""
    hidden: bool = False
    """A server that reports a refusal as the first event of a stream."""
    sent: int = 0
    refused: int = 0
    at: list[float] = field(default_factory=list[float])
    bodies: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    level: float = 0.0
    _filled: float = 0.0

    def __post_init__(self) -> None:
        self.level = self.capacity = self.capacity or self.per_minute

    def take(self) -> bool:
        now = trio.current_time()
        self._filled = self._filled or now
        self.level = min(self.capacity, self.level + (now - self._filled) * self.per_minute / 60)
        self._filled = now
        if self.level < 1:
            return False
        self.level -= 1
        return True

    async def serve(self, line: Line) -> None:
        while request := await line.request():
            self.sent += 1
            self.bodies.append(json.loads(request.partition(b"\r\n\r\n")[2]))
            if self.take():
                self.at.append(trio.current_time())
                head = STREAM_HEAD.replace("\r\n\r\n", f"\r\n{self.form(self)}\r\n")
                await line.send(head)
                await trio.sleep(self.seconds)
                await line.send(chunked(*chat_stream("fine")))
                continue
            self.refused += 1
            if self.hidden:
                await line.send(stream_of(f"data: {self.refusal_body}\n\n"))
            else:
                headers = self.form(self) + self.refusal_headers
                await line.send(answer(self.refusal_body, status=self.refusal, headers=headers))


@asynccontextmanager
async def open_limited(server: Limited) -> AsyncGenerator[Peer, None]:
    async with open_peer(server.serve) as peer:
        yield peer


def provider(peer: Peer, **options: object) -> ms.OpenAIChat:
    """Return a provider with the profile of OpenAI at the peer's address."""
    return ms.OpenAIChat("sk-canary-secret", peer.url, **{"name": "openai", "profile": "openai-chat", **options})  # type: ignore[arg-type]
