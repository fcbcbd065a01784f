"""The files of `manystream batch`: paths that cannot be used are one line, and a named pipe is an input."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from manystream.batch import Journal, JournalError, read_lines
from manystream.cli import batch, main
from manystream.simulator import Simulator, open_simulator_thread

LINE = '{"id": "1", "messages": [{"role": "user", "content": "Hello"}]}\n'
LONG = "x" * 300
DEADLINE = 30.0


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator_thread() as simulator:
        yield simulator


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    (tmp_path / "p.jsonl").write_text(LINE)
    return tmp_path


def no_prices(*_: object, table: object) -> None:
    pass


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (("-o", ""), 2, "-o '' names no file, such as answers.jsonl"),
        (("-o", "/"), 2, "-o / names no file, such as answers.jsonl"),
        (("-o", ".", "--shard", "0/2"), 2, "-o . names no file, such as answers.jsonl"),
        (("-o", "a.jsonl", "--errors", ""), 2, "--errors '' names no file, such as answers.jsonl"),
        (("-o", LONG), 1, f"cannot write {LONG}: File name too long"),
        (("-o", "a.jsonl", "--errors", LONG), 1, f"cannot write {LONG}: File name too long"),
        (("-o", "a.jsonl", "--errors", "nowhere/e.jsonl"), 1,
            "cannot write nowhere/e.jsonl: No such file or directory"),
        (("-o", "a.jsonl", "--errors", "p.jsonl/e"), 1, "cannot write p.jsonl/e: Not a directory"),
    ],
)  # fmt: skip
def test_a_path_that_cannot_be_written_is_one_line(
    options: tuple[str, ...], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["batch", "p.jsonl", *options, "--model", "m", "--base-url", "http://127.0.0.1:1/v1"]) == status
    assert capsys.readouterr().err == f"manystream batch: {message}\n"


def test_a_folder_that_may_not_be_searched_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = Path.stat

    def stat(self: Path, **options: bool) -> os.stat_result:
        if self.name == "a.errors.jsonl":
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, **options)

    monkeypatch.setattr(Path, "stat", stat)
    assert main(["batch", "p.jsonl", "-o", "a.jsonl", "--model", "m", "--base-url", "http://127.0.0.1:1/v1"]) == 1
    assert capsys.readouterr().err == "manystream batch: cannot write a.errors.jsonl: Permission denied\n"


def test_a_journal_needs_the_name_of_a_file() -> None:
    with pytest.raises(JournalError, match=r"\. names no file, such as answers\.jsonl"):
        Journal(Path())


def test_lines_of_a_named_pipe_are_sent(simulator: Simulator, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "price_list", no_prices)  # it takes a second to load
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=[LINE], daemon=True)  # waits until the pipe is opened
    writer.start()
    url = simulator.base_urls["openai-chat"]
    assert main(["batch", "pipe", "-o", "a.jsonl", "--model", "m", "--base-url", url]) == 0
    writer.join(DEADLINE)
    assert (folder / "a.jsonl").read_text().startswith('{"id":"1",')


async def test_waiting_for_a_writer_of_a_pipe_can_be_cancelled(folder: Path) -> None:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            async for _ in read_lines(pipe):
                raise AssertionError("nobody writes")

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))  # ends the thread that waits
