"""The standard streams of a command: closed ones, encodings of few characters, and output that cannot be written."""

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
from tests.support.threaded_server import Wire, serving
from tests.support.waiting import LONGEST


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
def test_ascii_answers_escape(simulator: Simulator, more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
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
    simulator: Simulator, more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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
    done = subprocess.run(closed, env={**os.environ, "OPENAI_API_KEY": "any"}, timeout=LONGEST)
    assert done.returncode == 0
    assert answers.read_text().startswith('{"id":"1",')
    assert answers.read_text().count("\n") == 1


HOSTILE_TEXT = r"\u001b[2J\u001b]0;t\u0007\u009b31m\nmanystream: done\r"
REFUSED = ('{"error": {"message": "' + HOSTILE_TEXT + '", "code": "insufficient_quota"}}').encode()
FINE = (
    '{"id": "1", "object": "chat.completion", "model": "' + HOSTILE_TEXT + '", "choices": [{"index": 0, "message":'
    ' {"role": "assistant", "content": "' + HOSTILE_TEXT + '"}, "finish_reason": "stop"}]}'
).encode()
ADDRESS = ("--provider", "openai-chat", "--base-url")
BATCH = ("batch", "p.jsonl", "-o", "a.jsonl", "--model", "m", "--attempts", "1", *ADDRESS)


@pytest.mark.parametrize(
    ("words", "status", "body"),
    [
        (BATCH, 401, REFUSED),
        (BATCH, 429, REFUSED),
        (BATCH, 400, REFUSED),
        (("run", "Hi", "--no-stream", "--model", "m", *ADDRESS), 401, REFUSED),
        (("run", "Hi", "--no-stream", "--model", "m", *ADDRESS), 200, FINE),
        (("doctor", *ADDRESS), 401, REFUSED),
        (("bench", "--json", "--requests", "2", "--concurrency", "1", "--model", "m"), 401, REFUSED),
        (("bench", "--requests", "2", "--concurrency", "1", "--model", "m"), 401, REFUSED),
    ],
)  # fmt: skip
def test_a_pipe_gets_no_control_characters_of_a_server(
    words: tuple[str, ...],
    status: int,
    body: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    lines = [f'{{"id": {number}, "messages": [{{"role": "user", "content": "Hi"}}]}}\n' for number in range(12)]
    Path("p.jsonl").write_text("".join(lines), "utf-8")
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    def serve(wire: Wire) -> None:
        while True:
            wire.body(wire.head())
            wire.send(head + body)

    with serving(serve) as server:
        main([*words, f"{server.url}/v1"])
    shown = "".join(capsys.readouterr())
    assert shown
    assert not [character for character in shown if ord(character) < 0x20 and character not in "\n\t\r"]
    assert not [character for character in shown if 0x7F <= ord(character) < 0xA0]
    assert "\nmanystream: done" not in shown or status == 200, "a line of a server looks like one of ours"
    for path in tmp_path.glob("a*.jsonl"):
        text = path.read_text("utf-8")
        assert not [character for character in text if 0x7F <= ord(character) < 0xA0], "it may be printed, too"
