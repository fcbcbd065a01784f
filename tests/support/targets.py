"""Loopback servers that fail, hang or answer slowly, as the targets of routes."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import trio

import manystream as ms
from tests.support.peers import (
    STREAM_HEAD,
    Line,
    Peer,
    answer,
    chat_answer,
    chat_stream,
    chunked,
    error_body,
    open_peer,
)

Fault = Callable[["Server"], bytes | None]
"""Returns the whole response of a failure; None lets the server answer."""

HANG = b"hang"


@dataclass
class Server:
    """A server. name: its provider's. seconds: what an answer takes. fault: what it answers in place of it."""

    name: str
    seconds: float = 0.05
    fault: Fault | None = None
    requests: list[bytes] = field(default_factory=list[bytes])
    at: list[float] = field(default_factory=list[float])

    @property
    def sent(self) -> int:
        return len(self.requests)

    async def serve(self, line: Line) -> None:
        while request := await line.request():
            self.requests.append(request)
            self.at.append(trio.current_time())
            fault = None if self.fault is None else self.fault(self)
            if fault == HANG:
                await line.closed_by_peer()
                return
            if fault is not None:
                await line.send(fault)
                continue
            await trio.sleep(self.seconds)
            if b'"stream":true' in request:
                await line.send(STREAM_HEAD)
                await line.send(chunked(*chat_stream(self.name)))
            else:
                await line.send(answer(chat_answer(self.name)))


def failing(status: str, message: str = "it failed", code: str | None = None, headers: str = "") -> Fault:
    """Every request fails in the same way."""
    body = error_body(message, "server_error", code)
    return lambda server: answer(body, status=status, headers=headers)


def hangs(server: Server) -> bytes | None:
    return HANG


def provider(server: Server, peer: Peer, **options: object) -> ms.OpenAIChat:
    """The server as a provider that has limits per time, as OpenAI has."""
    settings = {"api_key": f"sk-{server.name}", "profile": "openai-chat", **options}
    return ms.OpenAIChat(base_url=peer.url, name=server.name, **settings)  # type: ignore[arg-type]


@asynccontextmanager
async def open_targets(
    *servers: Server, route: ms.Route | None = None, rates: dict[str, ms.RateLimit] | None = None, **options: object
) -> AsyncGenerator[ms.Engine, None]:
    """Open the servers, and an engine with a provider for each one. route: default, in the order of the servers."""
    names = [f"{server.name}/m" for server in servers]
    traffic = ms.Traffic(routes=[route or ms.Route("fast", names)], rates=rates or {})
    async with AsyncExitStack() as stack:
        providers = [provider(server, await stack.enter_async_context(open_peer(server.serve))) for server in servers]
        yield await stack.enter_async_context(ms.open_engine(providers, traffic=traffic, **options))  # type: ignore[arg-type]


def ask(model: str = "fast", **options: object) -> ms.Request:
    return ms.Request(model, [ms.Message.user("hello")], **options)  # type: ignore[arg-type]


def path(completion: ms.Completion) -> list[tuple[str, str]]:
    """The targets and outcomes of a call's attempts."""
    return [(record.target, record.outcome) for record in completion.attempt_records]
