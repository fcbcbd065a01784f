"""Ray Data on Ray: `make ray`. Actors, nodes and the program are killed while a data set is asked.

The simulator counts the requests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from manystream.simulator import Simulator

from .nodes import processes_below, raylet, send

pytest.importorskip("ray.data", reason="needs Ray: make ray")
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("data_program.py")
ROWS = 5000
FAILING = ROWS // 100
BLOCKS = 60
CONCURRENCY = 450
WAIT = 300.0
GAINED = {"text", "error", "usage", "finish_reason"}


class Run:
    """A program that runs, and its files."""

    def __init__(self, folder: Path, address: str, simulator: Simulator, *, journal: bool = True, **changes: object):
        self.answers, self.output = folder / "a.jsonl", folder / "rows.jsonl"
        self.simulator = simulator
        self.requests_before = simulator.limit_counts()[0].accepted
        settings: dict[str, object] = {
            "address": address,
            "base_url": simulator.base_urls["openai-chat"],
            "rows": ROWS,
            "blocks": BLOCKS,
            "actors": 3,
            "concurrency": CONCURRENCY,
            "delay": 0.5,
            "journal": str(self.answers) if journal else None,
            "output": str(self.output),
        }
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), json.dumps(settings | changes)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )

    @property
    def requests(self) -> int:
        """The number of requests that the simulator has answered. It does not count the rows that fail."""
        return self.simulator.limit_counts()[0].accepted - self.requests_before

    def reach(self, count: int) -> None:
        deadline = time.monotonic() + WAIT
        while self.requests < count and self.process.poll() is None:
            assert time.monotonic() < deadline, f"{self.requests} requests after {WAIT} seconds"
            time.sleep(0.1)
        assert self.process.poll() is None, self.process.communicate()[0]

    def end(self) -> str:
        """Wait until the program has ended with status 0. Return what it printed."""
        output = self.process.communicate(timeout=WAIT)[0]
        assert self.process.returncode == 0, output
        return output

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def check(self) -> None:
        """Check that every row is there once, with its own answer."""
        rows = [json.loads(line) for line in self.output.read_text("utf-8").splitlines()]
        assert sorted(row["number"] for row in rows) == list(range(ROWS))
        for row in rows:
            failed = row["number"] % 100 == 0
            assert row["id"] == f"q{row['number']}"
            assert row.keys() == {"id", "messages", "number", *GAINED}
            assert bool(row["error"]) == failed, row
            assert bool(row["text"]) != failed
            assert failed or (row["finish_reason"] == "stop" and row["usage"]["output_tokens"] >= 0)

    def check_journal(self) -> None:
        """Check that every answer is recorded once."""
        ids = [json.loads(line)["id"] for line in self.answers.read_bytes().splitlines()]
        assert len(ids) == len(set(ids)) == ROWS - FAILING


ASKS, KEEPS = b"MapWorker(MapBatches(Ask))", b"AnswerActor"
"""What the titles of processes hold that ask rows, and of the one that keeps the journal."""


def titled(pid: int, title: bytes) -> list[int]:
    """Return the processes below this one whose title holds a text."""
    found: list[int] = []
    for process in processes_below(pid):
        try:
            has_title = title in Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:
            continue
        if has_title:
            found.append(process)
    return found


@pytest.mark.parametrize("journal", [False, True], ids=["without a journal", "with a journal"])
def test_a_data_set_gains_four_columns(journal: bool, simulator: Simulator, tmp_path: Path) -> None:
    run = Run(tmp_path, "local", simulator, journal=journal, delay=0.01)
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
    run = Run(tmp_path, cluster.address, simulator)
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
    run = Run(tmp_path, cluster.address, simulator)
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
    run = Run(tmp_path, cluster.address, simulator)
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
    run = Run(tmp_path, cluster.address, simulator)
    try:
        run.reach(int(0.7 * ROWS))
    finally:
        run.kill()
    again = Run(tmp_path, cluster.address, simulator)
    try:
        again.end()
    finally:
        again.kill()
    again.check()
    again.check_journal()
    count = run.requests - (ROWS - FAILING)
    print(f"program killed: {count} asked again")
    assert count <= CONCURRENCY + 0.02 * ROWS
