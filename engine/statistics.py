"""Snapshots of an engine's figures. Only values; the engine creates them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .traffic.statistics import TrafficStatistics


@dataclass(slots=True, frozen=True)
class OriginStatistics:
    """The number of connections to one origin by state, and of calls that wait for one."""

    connecting: int = 0
    active: int = 0
    idle: int = 0
    waiting: int = 0


@dataclass(slots=True, frozen=True)
class ProviderStatistics:
    """The calls to one provider since the engine opened.

    running: the number of running calls.
    failures: category → the number of calls that ended without a complete answer; `cancelled` is one of them.
    events: the number of delivered events.
    """

    running: int = 0
    completed: int = 0
    events: int = 0
    failures: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(slots=True, frozen=True)
class CallFigures:
    """One running call at one moment.

    number: the call's number in the engine, from 1.
    age: seconds since the call was started.
    quiet: seconds since a byte was last sent or received; the age if there was none.
    request_id: the provider's id of the request, once the response's head has arrived.
    """

    number: int
    provider: str
    model: str
    stream: bool
    state: str
    age: float
    quiet: float
    attempts: int
    request_id: str | None


@dataclass(slots=True, frozen=True)
class Statistics:
    """One engine at one moment.

    calls: running calls by state.
    started, completed, failed, cancelled: calls since the engine opened; `completed` counts every ended call, `failed`
        and `cancelled` are parts of it.
    retried: attempts that followed a failed one after a pause.
    resent: attempts that followed at once on one whose kept-alive connection the server had closed before the request
        reached it.
    providers: calls and events by provider's name.
    connections: by origin. opened, reused, discarded: connections since the engine opened.
    events: events delivered, to a callback or to nobody. bytes_received, bytes_sent: on all connections, TLS taken off.
    loop_lag: seconds that the slowest turn of the multi-request loop took in the last second or so: what a stream
    may have waited for the others. loop_culprit: the call that took most of that turn, by number and model, where one
    took over 5 ms (its callback, mostly); else empty. loop_ticks: turns so far.
    traffic: what traffic control does, by scope; empty without it.
    """

    calls: Mapping[str, int] = field(default_factory=dict[str, int])
    started: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    resent: int = 0
    providers: Mapping[str, ProviderStatistics] = field(default_factory=dict[str, ProviderStatistics])
    connections: Mapping[str, OriginStatistics] = field(default_factory=dict[str, OriginStatistics])
    opened: int = 0
    reused: int = 0
    discarded: int = 0
    events: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    loop_lag: float = 0.0
    loop_culprit: str = ""
    loop_ticks: int = 0
    traffic: TrafficStatistics = field(default_factory=TrafficStatistics)
