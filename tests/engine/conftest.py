"""What tests of several files are given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import manystream as ms
from manystream.simulator import Simulator, start_simulator_thread


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store's file is, or will be."""
    return tmp_path / "conversations.db"


@pytest.fixture
def store(path: Path) -> Iterator[ms.ConversationStore]:
    """A store that is open and empty."""
    with ms.ConversationStore(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    """One that answers with few events. Files of tests that need another one have their own."""
    with start_simulator_thread("events=4") as simulator:
        yield simulator


@pytest.fixture
def provider(simulator: Simulator) -> ms.Provider:
    """The simulator, as `sim`."""
    return ms.OpenAIChat("key", simulator.base_urls["openai-chat"], name="sim")
