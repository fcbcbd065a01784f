"""What would have happened: a recorded day under other limits, routes, keys and prices.

    from manystream import whatif

    report = whatif.run("monday.jsonl", traffic=ms.Traffic(rates={"openai": ms.RateLimit(requests_per_minute=500)}))
    print(report.valid, report.latency.p95, report.waited, report.refused)

| module | role |
|---|---|
| `recorded` | a recording as columns |
| `fit` | how fast the recorded servers were, and what they refused |
| `simulate` | the engine in simulated time, against servers in memory |
| `outcomes` | what calls had, and its figures |
| `report` | whether the figures can be vouched for; the report as a value |

The engine is the real one. What is modelled is the servers, and the report says whether that model gives the recording.
"""

from __future__ import annotations

from .fit import Server
from .outcomes import Figures, Spread
from .recorded import RecordingError
from .report import Report, run

__all__ = ["Figures", "RecordingError", "Report", "Server", "Spread", "run"]
