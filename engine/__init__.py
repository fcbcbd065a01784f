"""Calls: nursery, callbacks, timeouts, retries, limits, cancellation.

Knows transport and providers. Neither of these knows the engine or the other.

Each name is imported from its module when it is first used, so that an engine loads only the modules that it needs. The
modules follow the same rule:

| module | what it imports at the top |
|---|---|
| `core` | what checks an engine's options and runs its tasks, and the types in the signatures of its methods |
| `starter` | what every call needs; imported when the engine first waits (`loading`), or by its first call |
| others | imported by the function that opens them: portals, maps, observers, recordings, traffic control, statistics |

Type checkers read the plain imports.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .call_state import CallState as CallState
    from .completion import Completion as Completion
    from .completion import Timings as Timings
    from .core import Engine as Engine
    from .core import open_engine as open_engine
    from .errors import EngineClosedError as EngineClosedError
    from .errors import TooManyCallsError as TooManyCallsError
    from .handle import Call as Call
    from .limits import Limits as Limits
    from .mapped import CallMap as CallMap
    from .observe import CallStart as CallStart
    from .observe import Observer as Observer
    from .record import Recording as Recording
    from .statistics import CallFigures as CallFigures
    from .statistics import OriginStatistics as OriginStatistics
    from .statistics import ProviderStatistics as ProviderStatistics
    from .statistics import Statistics as Statistics
    from .stream import EventStream as EventStream

_HOMES: dict[str, str] = {
    "Call": "handle",
    "CallFigures": "statistics",
    "CallMap": "mapped",
    "CallStart": "observe",
    "CallState": "call_state",
    "Completion": "completion",
    "Engine": "core",
    "EngineClosedError": "errors",
    "EventStream": "stream",
    "Limits": "limits",
    "Observer": "observe",
    "OriginStatistics": "statistics",
    "ProviderStatistics": "statistics",
    "Recording": "record",
    "Statistics": "statistics",
    "Timings": "completion",
    "TooManyCallsError": "errors",
    "open_engine": "core",
}
"""Public name → the module that defines it."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f".{home}", __name__), name)
        return value


__all__ = [
    "Call",
    "CallFigures",
    "CallMap",
    "CallStart",
    "CallState",
    "Completion",
    "Engine",
    "EngineClosedError",
    "EventStream",
    "Limits",
    "Observer",
    "OriginStatistics",
    "ProviderStatistics",
    "Recording",
    "Statistics",
    "Timings",
    "TooManyCallsError",
    "open_engine",
]
