"""`manystream batch --ray` on a Ray cluster of three nodes on this machine: `make ray`.

Nodes are killed and frozen while a batch runs. The simulator counts the requests.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from manystream.simulator import Simulator

from .batch_run import CONCURRENCY, ROWS, Run
from .nodes import FAULTS, Fault

pytest.importorskip("ray", reason="needs Ray: make ray")
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def accepted(simulator: Simulator) -> int:
    """Return the number of requests that the simulator has received."""
    return simulator.limit_counts()[0].accepted


@pytest.mark.parametrize("kind", FAULTS)
def test_a_failing_node_loses_and_doubles_nothing(
    kind: str, cluster: Any, simulator: Simulator, tmp_path: Path
) -> None:
    before = accepted(simulator)
    with Run(tmp_path, cluster.address, simulator.base_urls["openai-chat"]) as run:
        run.reach(ROWS // 3)
        with Fault(cluster, kind):
            pause = run.end()
    run.check()
    again = accepted(simulator) - before - ROWS
    print(f"{kind}: {again} asked again, {run.lost} workers lost, longest pause {pause:.1f} s")
    assert run.lost >= 1
    # On a slow machine, a worker without a fault may be silent for 5 seconds, too. It costs the same.
    assert again <= run.lost * CONCURRENCY / 3 + 0.005 * ROWS
    assert pause <= 10.0


@pytest.mark.parametrize("kind", FAULTS)
def test_a_killed_driver_can_be_repeated(kind: str, cluster: Any, simulator: Simulator, tmp_path: Path) -> None:
    before, url = accepted(simulator), simulator.base_urls["openai-chat"]
    with ExitStack() as stack:
        with Run(tmp_path, cluster.address, url) as run:
            run.reach(ROWS // 3)
            stack.enter_context(Fault(cluster, kind))
            run.reach(int(0.7 * ROWS))
        with Run(tmp_path, cluster.address, url) as run:
            run.end()
    run.check()
    again = accepted(simulator) - before - ROWS
    print(f"{kind}, then the driver: {again} asked again, {run.lost} workers lost in the second run")
    assert again <= CONCURRENCY / 3 + CONCURRENCY + run.lost * CONCURRENCY / 3 + 0.02 * ROWS
