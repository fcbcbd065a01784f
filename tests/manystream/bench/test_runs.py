"""A whole run: its calibration, its cores, and a server that refuses."""

import os
import socket
import sys

import pytest

import manystream as ms
from manystream.bench import runs
from manystream.bench.load import Plan
from manystream.bench.moments import Wire
from manystream.bench.validity import (
    Calibration,
)
from manystream.bench.work import WorkPlan


@pytest.mark.parametrize(
    ("added", "busy", "measured"),
    [
        ([0.04, 0.05, 0.0001], 0.3, 3),
        ([0.04, 0.0001], 0.3, 2),
        ([0.04] * 9, 0.3, 3),
        ([0.04] * 9, 0.99, 1),
        ([None], 0.3, 1),
    ],
)
def test_a_calibration_that_others_disturb_is_measured_again(
    monkeypatch: pytest.MonkeyPatch, added: list[float | None], busy: float, measured: int
) -> None:
    left = [None if p99 is None else Calibration(0.0, p99, busy) for p99 in added]
    monkeypatch.setattr(runs, "_calibrated", lambda *_: left.pop(0))
    found = runs.calibrate(ms.OpenAIChat, "openai-chat", Plan(WorkPlan("m"), True, 1, 1.0), 1.0)
    assert len(added) - len(left) == measured
    assert found == (None if added == [None] else Calibration(0.0, added[measured - 1] or 0.0, busy))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems assign no cores")
@pytest.mark.parametrize(
    ("mine", "cores", "moved", "left"),
    [({0, 1}, 2, None, True), ({1}, 4, {0, 2, 3}, True), ({0}, 1, set[int](), False)],
)
def test_a_simulator_leaves_the_only_core_of_its_client(
    monkeypatch: pytest.MonkeyPatch, mine: set[int], cores: int, moved: set[int] | None, *, left: bool
) -> None:
    found: list[tuple[int, set[int]]] = []

    def move(process: int, to: set[int]) -> None:
        found.append((process, to))
        if not to:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "sched_getaffinity", {0: mine}.__getitem__)
    monkeypatch.setattr(os, "sched_setaffinity", move)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert runs.leave_core(4711) is left
    assert found == ([] if moved is None else [(4711, moved)])


async def test_a_port_that_refuses_is_an_error_of_the_system() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        await Wire().connect("127.0.0.1", port)
