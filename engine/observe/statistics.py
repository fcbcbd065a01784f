"""Snapshots of an engine's figures. Values only; the engine creates them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..traffic.options import TrafficStatistics


@dataclass(slots=True, frozen=True)
class OriginStatistics:
    """The connections to one origin at one moment. The WebSockets of conversations have origins of their own
    (`wss://…`).

    connecting: connections that are being opened.
    active: connections with a running exchange.
    idle: kept-alive connections without an exchange.
    waiting: calls that wait for a connection.
    continued: turns over a WebSocket of which only what is new was sent, since the engine opened.
    whole: why turns were sent whole over a WebSocket, and how many. `new`: the socket is new. `messages`, `options`:
        earlier messages, or other members of the request, were changed. `answer`: the answer before has failed, or is
        not what would be sent of it. `forgotten`: the server did not know it any more. `lost`: the socket had ended.
    over_http: why turns were sent over HTTP, and how many. `refused`: the server opens no WebSocket. `busy`: a turn of
        the conversation was under way. `size`: a message of this size was too large for the server.
    """

    connecting: int = 0
    active: int = 0
    idle: int = 0
    waiting: int = 0
    continued: int = 0
    whole: Mapping[str, int] = field(default_factory=lambda: {})
    over_http: Mapping[str, int] = field(default_factory=lambda: {})


@dataclass(slots=True, frozen=True)
class ProviderStatistics:
    """The calls to one provider since the engine opened.

    running: the number of running calls.
    completed: the number of ended calls.
    failures: by category, the number of calls that ended without a complete response; `cancelled` is a category.
    events: the number of delivered events.
    """

    running: int = 0
    completed: int = 0
    events: int = 0
    failures: Mapping[str, int] = field(default_factory=lambda: {})


@dataclass(slots=True, frozen=True)
class Statistics:
    """The figures of one engine at one moment.

    calls: the number of running calls by state.
    started: calls started since the engine opened.
    completed: calls ended since the engine opened, with any outcome.
    failed: ended calls without a complete response, without those that were cancelled.
    cancelled: ended calls that were cancelled.
    retried: attempts made after a failed attempt and a delay.
    resent: attempts that sent a request again although the server may have read it (`Completion.resent`).
    providers: the figures of each provider, by its name.
    connections: the current connections, by origin.
    opened: connections opened since the engine opened.
    reused: requests sent on a kept-alive connection.
    discarded: kept-alive connections closed because they were too old or the server had closed them.
    events: events delivered; those of streams without a callback count, too.
    bytes_received: bytes received on all connections, after TLS decryption.
    bytes_sent: bytes sent on all connections, before TLS encryption.
    loop_lag: seconds of the longest tick of the event loop in about the last second. A stream may have waited so long.
    loop_culprit: the call that took most of that tick, by number and model, if it took more than 5 ms (mostly in its
        callback); else "".
    loop_ticks: ticks since the engine opened.
    observer_failures: exceptions that methods of the observer have raised. Only the first one of each method is logged.
    traffic: the figures of traffic control, by limiter; empty in an engine without `traffic`.
    """

    calls: Mapping[str, int] = field(default_factory=lambda: {})
    started: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    resent: int = 0
    providers: Mapping[str, ProviderStatistics] = field(default_factory=lambda: {})
    connections: Mapping[str, OriginStatistics] = field(default_factory=lambda: {})
    opened: int = 0
    reused: int = 0
    discarded: int = 0
    events: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    loop_lag: float = 0.0
    loop_culprit: str = ""
    loop_ticks: int = 0
    observer_failures: int = 0
    traffic: TrafficStatistics = field(default_factory=TrafficStatistics)
