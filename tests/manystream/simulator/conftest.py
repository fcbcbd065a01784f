"""One simulator for a whole module of tests: in a process of its own, or in a thread where that does not matter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from manystream.simulator import Simulator, open_simulator, open_simulator_thread


@pytest.fixture(scope="session")
def simulator_process() -> Iterator[Simulator]:
    """A simulator in another process."""
    with open_simulator("events=8,text=unicode") as simulator:
        yield simulator


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    """A fresh simulator in a thread."""
    with open_simulator_thread("events=8,text=unicode") as started:
        yield started
