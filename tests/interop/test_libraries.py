"""Libraries above the SDKs run the programs of docs/guide/sdk-clients.md, each in an environment of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from manystream.simulator import Simulator, open_simulator
from tests.docs.check_types import ELSEWHERE
from tests.interop.processes import LITELLM_LIBRARY, ROOT, MissingServerError, python_with
from tests.support.blocks import DOCS, read_blocks, setting

pytestmark = [pytest.mark.servers, pytest.mark.timeout(900)]  # a test installs its library

PAGE = DOCS / "guide" / "sdk-clients.md"
PACKAGES = {
    "pydantic-ai-slim 2.68.0": "pydantic-ai-slim[openai]==2.68.0",
    "langchain-openai 1.7.3": "langchain-openai==1.7.3",
    "litellm 1.106.2": LITELLM_LIBRARY,
}
"""Name and version on the page → requirement."""
BLOCKS = {
    (block.reason or "").removeprefix(f"{ELSEWHERE}, with "): block
    for block in read_blocks(PAGE.read_text("utf-8"))
    if (block.reason or "").startswith(ELSEWHERE)
}


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    with open_simulator() as simulator:
        yield simulator


def test_each_library_of_the_page_is_tested() -> None:
    assert list(BLOCKS) == list(PACKAGES)


@pytest.mark.parametrize("library", PACKAGES)
def test_the_program_of_the_page_runs(library: str, sim: Simulator, tmp_path: Path) -> None:
    try:
        python = python_with(PACKAGES[library])
    except MissingServerError as error:
        pytest.skip(f"{library}: {error}")
    description = {
        "name": PAGE.name, "address": re.sub(r"^https?://", "", sim.origin), "setting": setting(),
        "blocks": [asdict(replace(BLOCKS[library], reason=None))],
    }  # fmt: skip
    (tmp_path / "page.json").write_text(json.dumps(description), "utf-8")
    environment = {
        "PATH": os.environ.get("PATH", os.defpath), "HOME": str(tmp_path), "PYTHONPATH": str(ROOT),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }  # fmt: skip
    runner = ROOT / "tests" / "docs" / "run_page.py"
    done = subprocess.run(
        [str(python), str(runner), str(tmp_path)], cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
