"""Libraries above the SDKs run the programs of the pages about them, each in an environment of its own."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from manystream.simulator import Simulator, open_simulator
from tests.interop.frameworks import BLOCKS, PACKAGES, environment
from tests.interop.processes import ROOT, MissingServerError, python_with
from tests.support.blocks import setting

pytestmark = [pytest.mark.servers, pytest.mark.timeout(900)]  # a test installs its library


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    with open_simulator() as simulator:
        yield simulator


def test_each_library_of_the_pages_is_tested() -> None:
    assert list(BLOCKS) == list(PACKAGES)


@pytest.mark.parametrize("library", PACKAGES)
def test_the_program_of_the_page_runs(library: str, sim: Simulator, tmp_path: Path) -> None:
    try:
        python = python_with(*PACKAGES[library])
    except MissingServerError as error:
        pytest.skip(f"{library}: {error}")
    description = {
        "name": library, "address": re.sub(r"^https?://", "", sim.origin), "setting": setting(),
        "blocks": [asdict(replace(BLOCKS[library], reason=None))],
    }  # fmt: skip
    (tmp_path / "page.json").write_text(json.dumps(description), "utf-8")
    runner = ROOT / "tests" / "docs" / "run_page.py"
    done = subprocess.run(
        [str(python), str(runner), str(tmp_path)], cwd=tmp_path, env=environment(tmp_path), capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
