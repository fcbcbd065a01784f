"""A server on loopback that speaks all five dialects, for tests, demos and measurements without a provider.

It shares no code with the library's transport or providers, but for the frames of a WebSocket: an error in those would
otherwise hide itself here.
`knobs` defines what a request can ask of it. `scenario` decides what an answer holds. The modules named after
dialects write it in their wire format. `server` sends it at the right time.
"""

from __future__ import annotations

from .knobs import HEADER as HEADER
from .knobs import KnobError as KnobError
from .knobs import Knobs as Knobs
from .knobs import combine as combine
from .limit import Limit as Limit
from .limiter import LimitCounts as LimitCounts
from .process import Simulator as Simulator
from .process import SimulatorError as SimulatorError
from .process import SimulatorOptions as SimulatorOptions
from .process import open_simulator as open_simulator
from .process import open_simulator_thread as open_simulator_thread
from .process import serve as serve
from .process import settings_of as settings_of
from .prompt import Prompt as Prompt
from .prompt import ToolDeclaration as ToolDeclaration
from .prompt import ToolResult as ToolResult
from .prompt_caches import CacheCounts as CacheCounts
from .replay import Replay as Replay
from .replay import ReplayError as ReplayError
from .replay import read_replay as read_replay
from .scenario import Scenario as Scenario
from .scenario import write_scenario as write_scenario
from .server import Server as Server
from .server import Settings as Settings
