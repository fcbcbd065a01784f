"""Traffic control in figures. Values only; the scopes fill them in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True, frozen=True)
class LimitStatistics:
    """One limit of a scope at one moment.

    rate: what it lets go per second, of what it counts (requests or tokens).
    capacity: what can go at once after a pause.
    level: what may go now; negative where more was sent than there was room for.
    """

    rate: float
    capacity: float
    level: float


@dataclass(slots=True, frozen=True)
class ScopeStatistics:
    """One scope at one moment: a key of a host, and the models that share a limit there.

    waiting: calls in its queue.
    running: calls that were sent and have not ended.
    sent, refused: requests since the engine opened; one that is sent again counts again.
    reported: limits that the server reports or the program declared, by name.
    learned: limits that refusals have taught, by what they count.
    window: how many calls may be sent before the first of them is known to be accepted.
    unconfirmed: how many of those that were sent are not known to be accepted.
    held: seconds until the pause after a refusal ends; 0 where there is none.
    spent: seconds until a used-up quota is asked for again; 0 where none is used up.
    concurrent: how many calls may run at a time; None where that is not limited.
    """

    waiting: int = 0
    running: int = 0
    sent: int = 0
    refused: int = 0
    reported: Mapping[str, LimitStatistics] = field(default_factory=dict[str, LimitStatistics])
    learned: Mapping[str, LimitStatistics] = field(default_factory=dict[str, LimitStatistics])
    window: int = 0
    unconfirmed: int = 0
    held: float = 0.0
    spent: float = 0.0
    concurrent: int | None = None


@dataclass(slots=True, frozen=True)
class TrafficStatistics:
    """Traffic control at one moment.

    scopes: by name, such as `openai/gpt-5`. Empty in an engine without `traffic`.
    """

    scopes: Mapping[str, ScopeStatistics] = field(default_factory=dict[str, ScopeStatistics])
