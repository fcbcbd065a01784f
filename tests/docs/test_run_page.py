"""The runner of the pages' code itself: what it finds wrong, and what it lets pass."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.run_page import Wrong, compare
from tests.docs.test_blocks import RUNNER, environment
from tests.support.blocks import Block, read_blocks

SETTING = """\
import contextlib

import trio


@contextlib.asynccontextmanager
async def open_engine():
    yield "an engine"


async def main() -> None:
    async with open_engine() as engine:
        ...


trio.run(main)
"""


def run(folder: Path, text: str) -> str:
    """Run a page that consists of this text; what is wrong with it, empty where nothing is."""
    blocks = [
        {"line": block.line, "language": block.language, "code": block.code, "title": block.title,
        "output": block.output} for block in read_blocks(text) if block.reason is None
    ]  # fmt: skip
    description = {"name": "page.md", "address": "127.0.0.1:1", "setting": SETTING, "blocks": blocks}
    (folder / "page.json").write_text(json.dumps(description), "utf-8")
    command = [sys.executable, "-W", "error", str(RUNNER), str(folder)]
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == (1 if done.stdout else 0), done.stderr
    return done.stdout


def python(code: str, output: str | None = None) -> str:
    shown = "" if output is None else f"\n```text\n{output}\n```\n"
    return f"```python\n{code}\n```\n{shown}"


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("one\ntwo\n", "one\ntwo\n"),
        ("one  \n", "one\n"),
        ("a 12 b\n", "a … b\n"),
        ("1\n2\n3\n", "…\n3\n"),
        ("", "…\n"),
        ("(a.b)\n", "(a.b)\n"),
    ],
)
def test_an_output_may_leave_places_open(printed: str, expected: str) -> None:
    compare(printed, expected)


@pytest.mark.parametrize(("printed", "expected"), [("one\n", "two\n"), ("one\ntwo\n", "one\n"), ("axb\n", "a.b\n")])
def test_any_other_difference_is_found(printed: str, expected: str) -> None:
    with pytest.raises(Wrong, match="it prints"):
        compare(printed, expected)


def test_blocks_of_a_page_share_their_names_and_run_in_order(tmp_path: Path) -> None:
    page = python("one = 1") + python("import trio\nawait trio.sleep(0)\nprint(one, engine)", "1 an engine")
    assert not run(tmp_path, page)


@pytest.mark.parametrize(
    "page",
    [
        python("print(1)", "2"),
        python("1 / 0"),
        python("import sys\nprint('x', file=sys.stderr)"),
        python("import warnings\nwarnings.warn('old')"),
        "```console\n$ rm -r nothing\n```\n",
        "```console\n$ python -c 'raise SystemExit(3)'\n```\n",
        "```console\n$ python -c 'print(1)'\n2\n```\n",
        "```jsonl\n{}\n{\n```\n",
        "```toml\na =\n```\n",
    ],
)
def test_what_does_not_do_as_it_says_is_told_with_its_line(tmp_path: Path, page: str) -> None:
    assert run(tmp_path, "# A page\n\n" + page).startswith("page.md, line 3: ")


def test_a_command_may_name_its_exit_status_and_use_page_files(tmp_path: Path) -> None:
    page = '```json title="a.json"\n{"a": 1}\n```\n\n```console\n$ cat a.json\n{"a": …}\n'
    page += "$ python -c 'raise SystemExit(3)'  # exit status 3\n```\n"
    assert not run(tmp_path, page)


def test_a_block_that_is_not_run_has_its_reason_right_above_it() -> None:
    first, second = read_blocks("<!-- not run: it needs a key -->\n\n```console\n$ x\n```\n\n```toml\na = 1\n```\n")
    assert first == Block(3, "console", "$ x\n", reason="it needs a key")
    assert second.reason is None


def test_a_text_block_is_an_output_only_right_after_a_program() -> None:
    kinds = [block.language for block in read_blocks(python("print(1)", "1") + "\nWords.\n\n```text\n2\n```\n")]
    assert kinds == ["python", "text"]


def test_a_command_may_go_on_in_the_next_line(tmp_path: Path) -> None:
    page = "```console\n$ python -c \\\n    'print(1)'\n1\n```\n"
    assert not run(tmp_path, page)
