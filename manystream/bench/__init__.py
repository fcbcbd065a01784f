"""The load generator: `load` runs calls against a server, `figures` and `latency` measure them, `report` writes the
result down as JSON. Knows engines and results. Must not know the command line.
"""

from __future__ import annotations

from .figures import Figures, Percentiles, Result
from .load import Load, Plan
from .report import result_object

__all__ = ["Figures", "Load", "Percentiles", "Plan", "Result", "result_object"]
