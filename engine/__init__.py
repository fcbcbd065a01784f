"""Calls: nursery, callbacks, timeouts, retries, limits, cancellation.

Knows transport and providers. Neither of these knows the engine or the other.
"""

from .clocks import CallState as CallState
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
