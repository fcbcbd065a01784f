"""Ray Data on Ray: `make ray`. Actors, nodes and the program are killed while a data set is asked.

The simulator counts the requests.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from manystream.simulator import Simulator

from .data_run import CONCURRENCY, FAILING, ROWS, DataRun
from .nodes import ASKS, KEEPS, raylet, send, titled

pytest.importorskip("ray.data", reason="needs Ray: make ray")
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def start(folder: Path, address: str, simulator: Simulator, *, journal: bool = True, **changes: object) -> DataRun:
    """Start a program that asks the simulator."""
    url = simulator.base_urls["openai-chat"]
    return DataRun(folder, address, url, lambda: simulator.limit_counts()[0].accepted, journal=journal, **changes)


@pytest.mark.parametrize("journal", [False, True], ids=["without a journal", "with a journal"])
def test_a_data_set_gains_four_columns(journal: bool, simulator: Simulator, tmp_path: Path) -> None:
    run = start(tmp_path, "local", simulator, journal=journal, delay=0.01)
    try:
        schema = run.end()
    finally:
        run.kill()
    run.check()
    assert run.requests == ROWS - FAILING
    assert "error          struct<category: string, message: string, http_status: int64," in schema
    assert "usage          struct<input_tokens: int64," in schema
    if journal:
        run.check_journal()


def test_a_killed_actor_loses_and_doubles_nothing(cluster: Any, simulator: Simulator, tmp_path: Path) -> None:
    run = start(tmp_path, cluster.address, simulator)
    try:
        run.reach(ROWS // 3)
        actors = [pid for node in cluster.worker_nodes for pid in titled(raylet(node), ASKS)]
        assert len(actors) == 3
        os.kill(actors[0], signal.SIGKILL)
        run.end()
    finally:
        run.kill()
    run.check()
    run.check_journal()
    again = run.requests - (ROWS - FAILING)
    print(f"actor killed: {again} asked again")
    assert again <= CONCURRENCY / 3 + 0.005 * ROWS


def test_a_killed_node_loses_and_doubles_nothing(cluster: Any, simulator: Simulator, tmp_path: Path) -> None:
    run = start(tmp_path, cluster.address, simulator)
    try:
        run.reach(ROWS // 3)
        node = max(cluster.worker_nodes, key=lambda node: len(titled(raylet(node), ASKS)))
        actors = len(titled(raylet(node), ASKS))
        assert actors
        send(node, signal.SIGKILL)
        run.end()
    finally:
        run.kill()
    run.check()
    run.check_journal()
    again = run.requests - (ROWS - FAILING)
    print(f"node with {actors} of 3 actors killed: {again} asked again")
    assert again <= actors * CONCURRENCY / 3 + 0.005 * ROWS


def test_a_killed_journal_is_opened_again(cluster: Any, simulator: Simulator, tmp_path: Path) -> None:
    run = start(tmp_path, cluster.address, simulator)
    try:
        run.reach(ROWS // 3)
        (keeper,) = titled(raylet(cluster.head_node), KEEPS)
        os.kill(keeper, signal.SIGKILL)
        run.end()
    finally:
        run.kill()
    run.check()
    run.check_journal()
    assert run.requests == ROWS - FAILING


def test_a_killed_program_can_be_repeated(cluster: Any, simulator: Simulator, tmp_path: Path) -> None:
    run = start(tmp_path, cluster.address, simulator)
    try:
        run.reach(int(0.7 * ROWS))
    finally:
        run.kill()
    again = start(tmp_path, cluster.address, simulator)
    try:
        again.end()
    finally:
        again.kill()
    again.check()
    again.check_journal()
    count = run.requests - (ROWS - FAILING)
    print(f"program killed: {count} asked again")
    assert count <= CONCURRENCY + 0.02 * ROWS
