"""The programs of docs/guide/ray-data.md run on Ray, and print what the page shows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from manystream.simulator import Simulator, open_simulator
from tests.docs.check_types import RAY
from tests.docs.run_page import ADDRESS
from tests.support.blocks import DOCS, Block, read_blocks

pytest.importorskip("ray.data", reason="needs Ray: make ray")
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PAGE = DOCS / "guide" / "ray-data.md"
PROGRAMS = [block for block in read_blocks(PAGE.read_text("utf-8")) if (block.reason or "").startswith(RAY)]


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator("events=2") as simulator:
        yield simulator


def test_the_page_has_programs() -> None:
    assert len(PROGRAMS) == 2


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: f"line {program.line}")
def test_a_program_prints_what_the_page_shows(program: Block, simulator: Simulator, tmp_path: Path) -> None:
    code = program.code.replace(ADDRESS, f"{simulator.host}:{simulator.port}")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True, text=True, encoding="utf-8", timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == program.output
