"""The Python in README.md runs, against the simulator, and prints what README.md says it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from manystream.engine.simulator import start_simulator

README = Path(__file__).resolve().parent.parent / "README.md"
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?", re.MULTILINE | re.DOTALL)
ADDRESS = "127.0.0.1:8080"
"""Where README.md has the simulator listen; a free port stands in for it."""

BLOCKS = list(BLOCK.finditer(README.read_text("utf-8")))


def line_of(block: re.Match[str]) -> str:
    """Where a block stands."""
    return f"line {block.string.count(chr(10), 0, block.start()) + 1}"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A simulator's host and port."""
    with start_simulator() as simulator:
        yield f"{simulator.host}:{simulator.port}"


@pytest.mark.parametrize("block", BLOCKS, ids=line_of)
def test_a_block_runs_and_prints_what_is_said(block: re.Match[str], address: str, tmp_path: Path) -> None:
    assert ADDRESS in block["code"], "a block talks to the simulator, so that everybody can run it"
    program = tmp_path / "example.py"
    program.write_text(block["code"].replace(ADDRESS, address), "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    if block["output"] is not None:
        printed = "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())
        assert printed == block["output"]


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 4
