"""The standard streams of a command: closed ones, encodings of few characters, and output that cannot be written."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from manystream.cli import main
from manystream.simulator import Simulator, open_simulator_thread

WAIT = 30.0


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator_thread() as simulator:
        yield simulator


def run_options(simulator: Simulator, *more: str) -> list[str]:
    return ["run", "--base-url", simulator.base_urls["openai-chat"], "--model", "m", *more]


class Full(io.RawIOBase):
    """A file on a full disk."""

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def stream(raw: io.RawIOBase | None = None, encoding: str = "utf-8") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(raw) if raw is not None else io.BytesIO(), encoding, write_through=True)


def written(output: io.TextIOWrapper) -> bytes:
    buffer = output.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue()


@pytest.mark.parametrize("more", [(), ("--no-stream",)], ids=["streamed", "unstreamed"])
def test_an_answer_in_ascii_has_escapes(
    simulator: Simulator, more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = stream(encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)
    assert main(run_options(simulator, *more, "Zürich →")) == 0
    assert written(output).startswith(b"This is a simulated answer about Z\\xfcrich \\u2192")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_the_help_is_printed_in_every_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    output = stream(encoding=encoding)
    monkeypatch.setattr(sys, "stdout", output)
    assert main(["batch", "--help"]) == 0
    assert b"exit status:" in written(output)


@pytest.mark.parametrize("more", [(), ("--no-stream",)], ids=["streamed", "unstreamed"])
def test_an_answer_on_a_full_disk_is_one_line(
    simulator: Simulator,
    more: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdout", stream(Full()))
    assert main(run_options(simulator, *more, "Hello")) == 1
    assert capsys.readouterr().err.endswith("manystream run: cannot write the output: No space left on device\n")


def test_full_standard_output_and_error_are_status_1(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", stream(Full()))
    monkeypatch.setattr(sys, "stderr", stream(Full()))
    assert main(run_options(simulator, "Hello")) == 1


@pytest.mark.parametrize("arguments", [("run", "-"), ("batch", "-", "-o", "answers.jsonl")], ids=["run", "batch"])
def test_a_closed_standard_input_is_one_line(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", None)
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"manystream {arguments[0]}: cannot read standard input: it is closed\n"


def test_a_prompt_in_another_encoding_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), "utf-8"))
    assert main(["run", "-"]) == 1
    reason = "standard input is not utf-8 text (byte 0xe9 at 3): convert it"
    assert capsys.readouterr().err == f"manystream run: {reason}\n"


def test_closed_streams_are_no_files_of_the_batch(simulator: Simulator, tmp_path: Path) -> None:
    prompts, answers = tmp_path / "prompts.jsonl", tmp_path / "answers.jsonl"
    prompts.write_text('{"id": "1", "messages": [{"role": "user", "content": "Hello"}]}\n')
    url = simulator.base_urls["openai-chat"]
    command = [sys.executable, "-m", "manystream", "batch", os.fspath(prompts), "-o", os.fspath(answers)]
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command, "--base-url", url, "--model", "m"]
    done = subprocess.run(closed, env={**os.environ, "OPENAI_API_KEY": "any"}, timeout=WAIT)
    assert done.returncode == 0
    assert answers.read_text().startswith('{"id":"1",')
    assert answers.read_text().count("\n") == 1
