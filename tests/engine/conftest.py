"""What tests of several files are given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import manystream as ms


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store's file is, or will be."""
    return tmp_path / "conversations.db"


@pytest.fixture
def store(path: Path) -> Iterator[ms.ConversationStore]:
    """A store that is open and empty."""
    with ms.ConversationStore(path) as opened:
        yield opened
