"""The prepared request, which all attempts of a call share, except for the key of a key function."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ...providers.catalog.dialect import NOTHING_UNASKED, Dialect, MakeId
from ...providers.catalog.provider import Provider
from ...providers.model.request import Tags
from ...transport.exchange import WireHead
from ...transport.url import Origin
from .durable import DurableAnswer
from .forwarded import Forwarder
from .fresh_key import FreshKey, Key
from .limits import EngineLimits
from .redaction import Redaction
from .signing import sign_head
from .turn import ConversationTurn

if TYPE_CHECKING:
    from .continued import ContinuedAnswer

WallClock: TypeAlias = Callable[[], float]
"""Returns Unix seconds, for dates in headers; never used to time anything."""


@dataclass(slots=True, frozen=True)
class Shared:
    """What the requests to one provider have in common: where they go, and what decodes and limits the answers."""

    origin: Origin
    provider: Provider
    dialect: Dialect
    make_id: MakeId
    limits: EngineLimits
    wall_clock: WallClock


@dataclass(slots=True, eq=False)
class Prepared:
    """A prepared request: its destination, its head and body, and the decoder of its answer.

    origin, provider: where it goes.
    shared: what it has in common with the other requests to its provider.
    body: the request's body; empty once the call has delivered an event, because no attempt follows.
    fresh_key: asked before each attempt if the provider's key is a function. Until then `head` has no key.
    unasked: names of members of `Response.provider_data` that the request did not ask for; they are not kept.
    choices: the number of choices that the request asked for; 0 if that is not known.
    asked: what the request asks for of the answer's tokens.
    tags: the request's, for recordings and the completion; None if it has none.
    durable: the answer that the server keeps; None for every request that is not durable.
    continued: the answer so far, if the request goes on with one that is stopped; None for every other request.
    forwarder: gets the bytes of the answers; None if nobody does.
    keep_received: whether the response has the provider's own JSON.
    turn: how it is sent over the WebSocket of its conversation; None for every other request.
    """

    origin: Origin
    provider: Provider
    shared: Shared
    model: str
    head: WireHead
    body: bytes
    secrets: Redaction
    stream: bool = False
    fresh_key: FreshKey | None = None
    unasked: frozenset[str] = NOTHING_UNASKED
    choices: int = 0
    tags: Tags | None = None
    asked: frozenset[str] = NOTHING_UNASKED
    durable: DurableAnswer | None = None
    continued: ContinuedAnswer | None = None
    forwarder: Forwarder | None = None
    keep_received: bool = False
    turn: ConversationTurn | None = None

    @property
    def reads(self) -> bool:
        """True if it reads a durable answer that another request has created."""
        return self.durable is not None and self.durable.reads

    def with_key(self, key: Key) -> Prepared:
        """Return a copy with a key of the key function, for one attempt. Raises `ProviderError` (AUTH).

        Its secrets include the keys of the earlier attempts.
        """
        assert self.fresh_key is not None
        head, secrets = self.fresh_key.head_with(key)
        renewed = copy.copy(self)
        for header in self.head.added:  # those of this call only, equal in all of its attempts
            head = head.with_header(*header)
        renewed.head = head
        if not self.secrets.key:
            renewed.secrets = secrets
        elif self.secrets.key != secrets.key:
            renewed.secrets = secrets.covering(self.secrets)
        return renewed

    def signed(self) -> Prepared:
        """Return a copy with the headers that the provider's `sign` returns, for one attempt. Raises `ProviderError`
        (AUTH).

        The secrets of both include the signature, and those of earlier attempts.
        """
        signed = copy.copy(self)
        signed.head = sign_head(self.provider, self.origin, self.head, self.body)
        signed.secrets = self.secrets = self.secrets.of_head(signed.head)
        return signed


class PreparedTurn(Prepared):
    """A request whose body is written when it is asked for first: the socket of its conversation needs less."""

    __slots__ = ("_body", "write_body")

    write_body: Callable[[], bytes] | None

    @property
    def body(self) -> bytes:
        if self.write_body is not None:
            self._body, self.write_body = self.write_body(), None
        return self._body

    @body.setter
    def body(self, body: bytes) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._body, self.write_body = body, None

    def __copy__(self) -> PreparedTurn:
        copied = PreparedTurn.__new__(PreparedTurn)
        for name in (*Prepared.__slots__, *PreparedTurn.__slots__):
            if name != "body":
                setattr(copied, name, getattr(self, name))
        return copied
