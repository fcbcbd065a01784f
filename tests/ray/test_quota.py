"""Limits on the rate on three nodes: they hold while nodes, drivers and keepers are killed.

The server runs in this process and notes when each request arrives.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from .batch_run import Run
from .counting import LIMIT, CountingServer
from .data_run import DataRun
from .nodes import ASKS, RATES, Fault, raylet, titled

pytest.importorskip("ray", reason="needs Ray: make ray")
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

ROWS = 20_000


def test_the_limit_holds_while_worker_and_driver_are_killed(cluster: Any, tmp_path: Path) -> None:
    with CountingServer().running() as server:
        words = ("--max-rps", str(LIMIT))
        with Run(tmp_path, cluster.address, server.url, *words, rows=ROWS) as run:
            run.reach(ROWS // 3)
            quiet_until = time.monotonic()
            with Fault(cluster, "killed"):
                run.reach(2 * ROWS // 3)
        with Run(tmp_path, cluster.address, server.url, *words, rows=ROWS) as run:
            run.end()
        run.check()
    server.check(quiet_until)


def test_a_data_set_s_limit_survives_kills_of_keeper_and_actor(cluster: Any, tmp_path: Path) -> None:
    with CountingServer().running() as server:
        run = DataRun(
            tmp_path, cluster.address, server.url, lambda: len(server.at), rows=ROWS, blocks=200,
            requests_per_second=LIMIT,
        )  # fmt: skip
        try:
            run.reach(ROWS // 3)
            quiet_until = time.monotonic()
            (keeper,) = titled(raylet(cluster.head_node), RATES)
            actors = [pid for node in cluster.worker_nodes for pid in titled(raylet(node), ASKS)]
            os.kill(keeper, signal.SIGKILL)
            os.kill(actors[0], signal.SIGKILL)
            run.end()
        finally:
            run.kill()
    assert len(run.output.read_text("utf-8").splitlines()) == ROWS
    server.check(quiet_until)
