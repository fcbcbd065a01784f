"""A call that may be sent over the WebSocket of its conversation."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from ...providers.catalog.dialect import StreamMachine, Turn
from ...providers.model.request import Request
from ...providers.model.response import Response
from ...transport.url import Origin

WEBSOCKET: Final = "websocket"


class Sockets(Protocol):
    """The WebSockets of conversations, as far as a request is prepared for them."""

    def conversation(self, request: Request) -> Hashable | None:
        """Return what stands for the conversation of a request; None if it belongs to none."""
        ...

    def chain(self, conversation: Hashable, origin: Origin) -> object:
        """Return what the server knows of a conversation; None if it knows nothing."""
        ...


@dataclass(slots=True, eq=False)
class ConversationTurn:
    """A call's turn. Its attempts share it.

    conversation: the session of its request, or what stands for its conversation.
    wire: what is sent.
    upgrades: the attempt's next connection is asked for a WebSocket.
    over_http: why it is sent over HTTP; empty if it may be sent over a socket.
    continued: only what is new was sent.
    transport: what it was sent over last.
    reopened: the socket has ended before an event, and the turn was sent over another one.
    resent: how often it was sent again for that, although the server may have read it.
    chain: what the server knows after its answer.
    """

    conversation: Hashable
    wire: Turn
    upgrades: bool = False
    over_http: str = ""
    continued: bool = False
    transport: Literal["http", "websocket"] = "http"
    reopened: bool = False
    resent: int = 0
    chain: object = None

    def succeeded(self, machine: StreamMachine, response: Response) -> None:
        """Take the complete answer."""
        if self.transport is WEBSOCKET:
            self.chain = self.wire.answered(machine, response)
