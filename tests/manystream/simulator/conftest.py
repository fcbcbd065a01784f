"""Simulators for tests: one process for the whole session, and a thread for each test that changes its state."""

from collections.abc import Iterator

import pytest

from manystream.simulator import Simulator, open_simulator, open_simulator_thread


@pytest.fixture(scope="session")
def simulator_process() -> Iterator[Simulator]:
    """A simulator in another process, shared by all tests."""
    with open_simulator("events=8,text=unicode") as simulator:
        yield simulator


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    """A new simulator in a thread."""
    with open_simulator_thread("events=8,text=unicode") as started:
        yield started
