"""The load generator of `manystream bench`.

`load` makes calls to a server. `figures` and `latency` measure them. `report` makes a JSON object of the result.
"""

from __future__ import annotations

from .figures import Figures, Percentiles, Result
from .load import Load, Plan
from .report import result_object

__all__ = ["Figures", "Load", "Percentiles", "Plan", "Result", "result_object"]
