"""The prepared request, which all attempts of a call share, except for the key of a key function."""

from __future__ import annotations

import copy
from typing import Protocol

from ..providers.dialect import NOTHING_UNASKED, Dialect, MakeId
from ..providers.provider import Provider
from ..transport.exchange import WireHead
from ..transport.url import Origin
from .buffered import Buffered
from .fresh_key import FreshKey
from .limits import Limits
from .redaction import Redaction


class Prepared:
    """A prepared request: its destination, its head and body, and the decoder of its answer.

    body: the request's body; empty once the call has delivered an event, because no attempt follows.
    fresh_key: called before each attempt if the provider's key is a function. Until then `head` has no key.
    unasked: names of members of `Response.provider_data` that the request did not ask for; they are not kept.
    """

    __slots__ = (
        "body",
        "buffered",
        "dialect",
        "fresh_key",
        "head",
        "limits",
        "make_id",
        "model",
        "origin",
        "provider",
        "secrets",
        "stream",
        "unasked",
        "wall_clock",
    )

    def __init__(
        self,
        *,
        origin: Origin,
        head: WireHead,
        body: bytes,
        secrets: Redaction,
        stream: bool,
        provider: Provider,
        model: str,
        dialect: Dialect,
        make_id: MakeId,
        limits: Limits,
        buffered: Buffered,
        wall_clock: WallClock,
        fresh_key: FreshKey | None = None,
        unasked: frozenset[str] = NOTHING_UNASKED,
    ) -> None:
        self.origin: Origin = origin
        self.head: WireHead = head
        self.body: bytes = body
        self.secrets: Redaction = secrets
        self.stream: bool = stream
        self.provider: Provider = provider
        self.model: str = model
        self.dialect: Dialect = dialect
        self.make_id: MakeId = make_id
        self.limits: Limits = limits
        self.buffered: Buffered = buffered
        self.wall_clock: WallClock = wall_clock
        self.fresh_key: FreshKey | None = fresh_key
        self.unasked: frozenset[str] = unasked

    def with_fresh_key(self) -> Prepared:
        """Return a copy with the current key, for one attempt. Raises `ProviderError` (AUTH).

        Its secrets include the keys of the earlier attempts.
        """
        assert self.fresh_key is not None
        head, secrets = self.fresh_key.ask()
        renewed = copy.copy(self)
        if self.provider.idempotency_header is not None:
            head = head.with_header(
                *self.head.headers[-1]
            )  # the idempotency key: of this call only, equal in all of its attempts
        renewed.head = head
        if not self.secrets.key:
            renewed.secrets = secrets
        elif self.secrets.key != secrets.key:
            renewed.secrets = secrets.covering(self.secrets)
        return renewed


class WallClock(Protocol):
    """Unix seconds, for dates in headers; never used to time anything."""

    def __call__(self) -> float: ...
