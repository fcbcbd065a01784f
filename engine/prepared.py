"""What every attempt of a call shares. Values only."""

from __future__ import annotations

from typing import Protocol

from ..providers.dialect import Dialect, MakeId
from ..providers.provider import Provider
from ..transport.exchange import WireHead
from ..transport.url import Origin
from .buffered import Buffered
from .limits import Limits
from .redaction import Redaction


class Prepared:
    """What every attempt of a call shares: where it goes, what it says, who reads the answer."""

    __slots__ = (
        "body",
        "buffered",
        "dialect",
        "head",
        "limits",
        "make_id",
        "model",
        "origin",
        "provider",
        "secrets",
        "stream",
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


class WallClock(Protocol):
    """Unix seconds, for dates in headers; never used to time anything."""

    def __call__(self) -> float: ...
