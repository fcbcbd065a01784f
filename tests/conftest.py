"""What holds for every test: how property tests choose their examples, what Ctrl-C means to a child, and the simulator
and the store that tests of several folders are given."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import manystream as ms
from manystream.simulator import Simulator, open_simulator_thread

settings.register_profile("manystream", deadline=None)  # a shared machine may stop any example for a second
settings.register_profile("fuzz", parent=settings.get_profile("manystream"), max_examples=20_000)
settings.load_profile("manystream")

# A shell ignores SIGINT in what it starts in the background, and its children inherit that: without this, commands
# that tests interrupt would go on for ever where the tests themselves were started so.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
    with open_simulator_thread("events=4") as simulator:
        yield simulator


@pytest.fixture
def provider(simulator: Simulator) -> ms.Provider:
    """The simulator, as `sim`."""
    return ms.OpenAIChat("key", simulator.base_urls["openai-chat"], name="sim")
