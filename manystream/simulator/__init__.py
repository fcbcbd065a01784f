"""A server on loopback that speaks all five dialects, for tests, demos and measurements without a provider.

It shares no code with the library's transport or providers, but for the frames of a WebSocket: an error in those would
otherwise hide itself here.
`knobs` defines what a request can ask of it. `scenario` decides what an answer holds. The modules named after
dialects write it in their wire format. `server` sends it at the right time.
"""

from __future__ import annotations

from .knobs import HEADER, KnobError, Knobs, combine
from .limit import Limit
from .limiter import LimitCounts
from .process import (
    Simulator,
    SimulatorError,
    SimulatorOptions,
    open_simulator,
    open_simulator_thread,
    serve,
    settings_of,
)
from .prompt import Prompt, ToolDeclaration, ToolResult
from .prompt_caches import CacheCounts
from .replay import Replay, ReplayError, read_replay
from .scenario import Scenario, write_scenario
from .server import Server, Settings

__all__ = [
    "HEADER",
    "CacheCounts",
    "KnobError",
    "Knobs",
    "Limit",
    "LimitCounts",
    "Prompt",
    "Replay",
    "ReplayError",
    "Scenario",
    "Server",
    "Settings",
    "Simulator",
    "SimulatorError",
    "SimulatorOptions",
    "ToolDeclaration",
    "ToolResult",
    "combine",
    "open_simulator",
    "open_simulator_thread",
    "read_replay",
    "serve",
    "settings_of",
    "write_scenario",
]
