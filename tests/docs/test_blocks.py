"""Every code block of README.md and of the site runs, against the simulator, and prints what its page says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

import manystream as ms
from manystream.simulator import open_simulator
from tests.support.blocks import FENCE, LANGUAGES, ROOT, Block, name_of, pages, read_blocks, setting

RUNNER = Path(__file__).with_name("run_page.py")
BLOCKS = {name_of(page): read_blocks(page.read_text("utf-8")) for page in pages()}

SECONDS = 300.0
"""How long a page may take."""

NOT_RUN = 34
"""How many blocks are not run, each with its reason in a comment above it."""


def environment(home: Path) -> dict[str, str]:
    """A reader's: no keys, no proxy, and our command on the path."""
    hidden = ("_KEY", "_TOKEN", "_PROXY", "_proxy", "COLUMNS")
    kept = {name: value for name, value in os.environ.items() if not name.endswith(hidden)}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    return kept | {"PATH": path, "HOME": str(home), "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1", "COLUMNS": "100"}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A simulator's host and port."""
    with open_simulator() as simulator:
        yield f"{simulator.host}:{simulator.port}"


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """The process whose forks run the pages."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", str(RUNNER)], env=environment(tmp_path_factory.mktemp("home")),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
    )  # fmt: skip
    with process:
        yield process
        process.communicate()
    assert not process.returncode


@pytest.mark.parametrize("page", [name for name, blocks in BLOCKS.items() if blocks])
def test_the_blocks_of_a_page_do_as_it_says(
    page: str, address: str, runner: subprocess.Popen[str], tmp_path: Path
) -> None:
    run_page(runner, page, address, tmp_path, setting(), [block for block in BLOCKS[page] if block.reason is None])


def run_page(
    runner: subprocess.Popen[str], page: str, address: str, folder: Path, setting: str, blocks: list[Block]
) -> None:
    """Run blocks in a process of their own."""
    description = {"name": page, "address": address, "setting": setting, "blocks": [asdict(block) for block in blocks]}
    (folder / "page.json").write_text(json.dumps(description), "utf-8")
    assert runner.stdin is not None
    assert runner.stdout is not None
    print(folder, file=runner.stdin, flush=True)
    process = int(runner.stdout.readline())
    deadline = threading.Timer(SECONDS, os.killpg, (process, signal.SIGKILL))  # what a page has started, too
    deadline.start()
    status = runner.stdout.readline()
    deadline.cancel()
    said = (folder / "said.txt").read_text("utf-8")
    assert status == "0\n", said
    assert not said


@pytest.mark.parametrize("page", BLOCKS)
def test_every_block_says_what_it_is(page: str) -> None:
    unknown = [(block.line, block.language) for block in BLOCKS[page] if block.language not in LANGUAGES]
    assert not unknown


@pytest.mark.parametrize("page", BLOCKS)
def test_a_fragment_means_the_same_inside_a_function(page: str) -> None:
    """It runs at the top of a module and is read inside `main`, where these two words would mean something else."""
    programs = [block for block in BLOCKS[page] if block.language == "python" and "import manystream" not in block.code]
    assert not [block.line for block in programs if re.search(r"^\s*(global|nonlocal) ", block.code, re.MULTILINE)]


def test_blocks_that_are_not_run_are_counted_and_have_a_reason() -> None:
    without = {
        f"{page}:{block.line}": block.reason for page, blocks in BLOCKS.items() for block in blocks if block.reason
    }
    marks = sum(page.read_text("utf-8").count("<!-- not run:") for page in pages())
    assert len(without) == marks, "a mark stands right above its block"
    assert len(without) == NOT_RUN, without


@pytest.mark.parametrize("page", BLOCKS)
def test_a_page_does_not_speak_of_its_tests_above_a_block(page: str) -> None:
    assert not re.search(r"^\*Not run", (ROOT / page).read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", BLOCKS)
def test_what_is_indented_instead_of_fenced_is_for_make(page: str) -> None:
    """Nothing else escapes the runner that way."""
    text = FENCE.sub("", (ROOT / page).read_text("utf-8"))
    found = re.findall(r"(?<=\n\n) {4}(\S.*)", text)
    assert all(line.startswith(("make ", "options:")) for line in found)


@pytest.mark.parametrize("page", BLOCKS)
def test_code_fits_eighty_columns(page: str) -> None:
    """A line of JSON lines is a whole record, so it cannot be wrapped."""
    blocks = [block for block in BLOCKS[page] if block.language != "jsonl"]
    lines = [line for block in blocks for line in (block.code + "\n" + (block.output or "")).splitlines()]
    assert not [line for line in lines if len(line) > 80]


def test_most_blocks_are_programs() -> None:
    assert sum(block.language == "python" for blocks in BLOCKS.values() for block in blocks) >= 50


def test_the_first_screen_of_readme_installs_and_runs() -> None:
    """Installation first, then a short program on trio and the same on asyncio; both need no server and no key."""
    install, on_trio, on_asyncio = BLOCKS["README.md"][:3]
    assert "pip install" in install.code
    assert "trio.run(main)" in on_trio.code
    assert "asyncio.run(main())" in on_asyncio.code
    for program in (on_trio, on_asyncio):
        assert program.output
        assert "simulator" in program.code
        assert sum(bool(line.strip()) for line in program.code.splitlines()) <= 18
    assert on_asyncio.line < 60


def test_readme_shows_the_error_without_an_event_loop() -> None:
    with pytest.raises(ms.EventLoopError) as error:
        ms.open_engine([]).__aenter__().send(None)  # type: ignore[attr-defined]
    shown = re.search(r"`EventLoopError: (.*) …`", (ROOT / "README.md").read_text("utf-8"))
    assert str(error.value).startswith(shown[1])
