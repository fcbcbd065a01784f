"""Calls: nursery, callbacks, timeouts, retries, limits, cancellation. Imports go from top to bottom:

| part | what it is |
|---|---|
| `frontends/` | how programs open an engine and drive its calls: `Engine`, streams, maps, portals for threads |
| `monitor`, `sharing` | what an engine opens for other processes |
| `gate`, `calls` | one engine: whether a call can start here and now; what starts, holds and counts the calls |
| `observe/` | what an engine shows of itself: observer, recordings, figures |
| `traffic/` | when a call is sent, and where |
| `call/` | one call, from its start to its completion |
| `request/` | a request, and the bytes of its attempts |

Each name is imported from its module when it is first used, so that an engine loads only the modules that it needs. The
modules follow the same rule:

| module | what it imports at the top |
|---|---|
| `frontends/engine` | what checks an engine's options and runs its tasks, and the types in its methods' signatures |
| `calls` | what every call needs; imported when the engine first waits (`loading`), or by its first call |
| others | imported by the function that opens them: portals, maps, observers, recordings, traffic control, statistics |

Type checkers read the plain imports.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .call.completion import CallFigures as CallFigures
    from .call.completion import Completion as Completion
    from .call.completion import Timings as Timings
    from .call.handle import Call as Call
    from .call.timeouts import CallState as CallState
    from .frontends.engine import Engine as Engine
    from .frontends.engine import open_engine as open_engine
    from .frontends.lazy import LazyEngine as LazyEngine
    from .frontends.map import CallMap as CallMap
    from .frontends.stream import EventStream as EventStream
    from .observe.observer import CallStart as CallStart
    from .observe.observer import Observer as Observer
    from .observe.recording import Recording as Recording
    from .observe.statistics import Statistics as Statistics
    from .request.errors import EngineClosedError as EngineClosedError
    from .request.errors import EventLoopError as EventLoopError
    from .request.errors import TooManyCallsError as TooManyCallsError
    from .request.limits import EngineLimits as EngineLimits

_HOMES: dict[str, str] = {
    "Call": "call.handle",
    "CallFigures": "call.completion",
    "CallMap": "frontends.map",
    "CallStart": "observe.observer",
    "CallState": "call.timeouts",
    "Completion": "call.completion",
    "Engine": "frontends.engine",
    "EngineClosedError": "request.errors",
    "EventLoopError": "request.errors",
    "EventStream": "frontends.stream",
    "LazyEngine": "frontends.lazy",
    "EngineLimits": "request.limits",
    "Observer": "observe.observer",
    "Recording": "observe.recording",
    "Statistics": "observe.statistics",
    "Timings": "call.completion",
    "TooManyCallsError": "request.errors",
    "open_engine": "frontends.engine",
}
"""Public name → the module that defines it."""

if not TYPE_CHECKING:
    __all__ = list(_HOMES)

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f".{home}", __name__), name)
        return value
