"""Draw a run against a server with a rate limit: `python -m benchmarks.traffic_picture`.

600 calls are started at once, with `ms.Traffic()` and nothing declared. The simulator limits as OpenAI does: its
headers report 1,800 requests a minute, but it enforces 30 in each second. After six seconds it allows half as much. Its
own counts give the requests that it received and refused. The levels of the limits are those of
`engine.statistics().traffic`. The run takes about 35 seconds.

Writes `plots/requests-and-levels-during-a-run.png`, and its data to `plots/series.json`.
"""

from __future__ import annotations

import time

import trio

import manystream as ms
from manystream.simulator import Simulator, open_simulator

from .answers import Answer, Series
from .environment import clients_python
from .limit_forms import ANSWER, MODEL
from .report import draw

PLOT = "requests and levels during a run"
"""The plot's name, which `draw.py` knows."""

CALLS = 600
LIMITS = ("requests-per-minute=1800 by-second=1", "requests-per-minute=900 by-second=1")
"""The limit at the beginning, and the later one."""

CHANGE_SECONDS = 6.0
SAMPLE_SECONDS = 0.1
LONGEST_SECONDS = 120.0

Point = tuple[float, float]


class Samples:
    """The figures of one run over time, by the label of their line."""

    def __init__(self, engine: ms.Engine, simulator: Simulator) -> None:
        self._engine = engine
        self._simulator = simulator
        self._began = time.monotonic()
        self._is_changed = False
        self.points: dict[str, list[Point]] = {}

    async def take(self) -> None:
        """Add the figures of this moment. Change the limit when that is due."""
        if not self._is_changed and time.monotonic() - self._began >= CHANGE_SECONDS:
            self._is_changed = True
            await trio.to_thread.run_sync(self._simulator.change_limits, [LIMITS[1]])
        [counts] = await trio.to_thread.run_sync(self._simulator.limit_counts)
        at = round(time.monotonic() - self._began, 3)
        self._add("received by the server", at, float(counts.accepted + counts.refused))
        self._add("refused by the server", at, float(counts.refused))
        for scope in self._engine.statistics().traffic.limiters.values():
            for limits, label in ((scope.reported, "level, reported limit"), (scope.learned, "level, learned limit")):
                if limits:
                    self._add(label, at, round(min(limit.level for limit in limits.values()), 3))

    def _add(self, label: str, at: float, value: float) -> None:
        self.points.setdefault(label, []).append((at, value))


async def measure(simulator: Simulator) -> Samples:
    """Run all calls, and return the figures over time. Raises `RuntimeError` if a call has no answer."""
    provider = ms.OpenAIChat("key", simulator.base_urls["openai-chat"])
    request = ms.Request(MODEL, [ms.Message.user("Tell me of rivers.")])
    async with ms.open_engine([provider], traffic=ms.Traffic()) as engine:
        samples = Samples(engine, simulator)
        calls = [engine.start_stream(request) for _ in range(CALLS)]
        with trio.fail_after(LONGEST_SECONDS):
            while not all(call.completion is not None for call in calls):
                await samples.take()
                await trio.sleep(SAMPLE_SECONDS)
        await samples.take()
    failed = sum(call.completion is None or not call.completion.success for call in calls)
    if failed:
        raise RuntimeError(f"{failed} of {CALLS} calls have no answer")
    return samples


def main() -> None:
    python = clients_python()
    with open_simulator(ANSWER, journal=0, limits=[LIMITS[0]]) as simulator:
        samples = trio.run(measure, simulator)
    for label, points in samples.points.items():
        print(f"{label:24} {points[-1][1]:6g} after {points[-1][0]:.1f} s")
    answer = Answer("how a run with a rate limit goes")
    answer.series += [Series(PLOT, label, points) for label, points in samples.points.items()]
    draw([answer], python)


if __name__ == "__main__":
    main()
