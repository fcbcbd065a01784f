"""The command line: exit status, standard output and standard error of `help`, `run`, `demo` and `simulate`.

Most tests call `main` in this process. Tests of signals, pipes, terminals and start-up run the command in another
process, in a temporary folder.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from manystream.cli import main
from manystream.simulator import Simulator, open_simulator_thread
from tests.support.commands import KEYS
from tests.support.waiting import LONGEST
from tests.support.websocket_client import id_of, opened

Call: TypeAlias = "Callable[..., Done]"

CANARY = "canary-5ecret-key"
WITHOUT_KEYS = {name: value for name, value in os.environ.items() if name not in KEYS and "proxy" not in name.lower()}
ENVIRONMENT = WITHOUT_KEYS | {"HOME": "/nonexistent", "PYTHONIOENCODING": "utf-8"}
WITH_KEYS = ENVIRONMENT | dict.fromkeys(KEYS[:3], CANARY)


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator_thread() as simulator:
        yield simulator


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    command = Command(tmp_path)
    yield command
    command.end()


class Command:
    """Runs the command in another process, in a folder outside the checkout."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, environment: dict[str, str] = WITH_KEYS) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "manystream", *arguments], cwd=self._folder, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8",
        )  # fmt: skip
        self._processes.append(process)
        return process

    def __call__(self, *arguments: str, environment: dict[str, str] = WITH_KEYS) -> Done:
        """Run the command until it ends."""
        process = self.start(*arguments, environment=environment)
        out, err = process.communicate(timeout=LONGEST)
        return Done(process.returncode, out, err)

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@dataclass
class Done:
    """The exit status and output of a command. It asserts that they hold no traceback and no key."""

    status: int
    out: str
    err: str

    def __post_init__(self) -> None:
        assert "Traceback" not in self.err
        assert CANARY not in self.out + self.err


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Return a function that calls `main` in this process."""

    def call(*arguments: str, environment: dict[str, str] = WITH_KEYS, given: str = "") -> Done:
        for name in KEYS:
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        status = main(arguments)
        out, err = capsys.readouterr()
        return Done(status, out, err)

    return call


def one_line(text: str) -> str:
    """Return the text, which must be one line that begins with the command's name."""
    assert text.startswith("manystream ")
    assert text.count("\n") == 1
    return text


# Help and usage


# run


def test_only_the_answer_goes_to_standard_output(command: Command, simulator: Simulator) -> None:
    url = simulator.base_urls["anthropic"]
    knobs = "x-simulate=kind=mixed,events=8,calls=1"
    done = command("run", "--provider", "anthropic", "--base-url", url, "--header", knobs, "Hello")
    assert done.status == 0
    assert done.out.count("\n") == 1
    thinking, call, summary = done.err.splitlines()
    assert thinking.startswith("thinking: ")
    assert call.startswith("tool call get_weather {")
    assert "tool_use" in summary
    assert "tokens" in summary


@pytest.mark.parametrize("name", ["anthropic", "openai-chat", "openai-responses", "gemini", "gemini-interactions"])
def test_streamed_and_unstreamed_answers_look_the_same(call: Call, simulator: Simulator, name: str) -> None:
    arguments = ("run", "--provider", name, "--model", "m", "--base-url", simulator.base_urls[name], "Hello")
    streamed, whole = call(*arguments), call(*arguments, "--no-stream")
    assert streamed.status == whole.status == 0, streamed.err + whole.err
    assert streamed.out == whole.out != ""


def test_a_loopback_base_url_needs_no_key(call: Call, simulator: Simulator) -> None:
    url = simulator.base_urls["openai-chat"]
    done = call("run", "--base-url", url, "--model", "llama3.2", "Hello", environment=ENVIRONMENT)
    assert done.status == 0, done.err


def test_a_missing_key_is_one_line_that_names_the_variable(call: Call) -> None:
    done = call("run", "--provider", "anthropic", "Hello", environment=ENVIRONMENT)
    assert done.status == 1
    assert "ANTHROPIC_API_KEY" in one_line(done.err)


def test_a_refused_connection_is_one_line(call: Call) -> None:
    done = call("run", "--provider", "anthropic", "--base-url", "http://127.0.0.1:1", "--attempts", "1", "Hello")
    assert done.status == 1
    line = one_line(done.err)
    assert "127.0.0.1:1" in line
    assert "refused" in line.lower()


def test_a_malformed_base_url_is_one_line(call: Call) -> None:
    done = call("run", "--base-url", "127.0.0.1:8080", "--model", "m", "Hello")
    assert done.status == 1
    one_line(done.err)


@pytest.mark.parametrize(("status", "words"), [(401, "the key was refused"), (404, "not found")])
def test_a_refusal_is_one_line_without_the_key(call: Call, simulator: Simulator, status: int, words: str) -> None:
    url = simulator.base_urls["anthropic"]
    done = call("run", "--provider", "anthropic", "--base-url", url, "--header", f"x-simulate=fail={status}", "Hello")
    assert done.status == 1
    assert f"{words} (HTTP {status})" in one_line(done.err)


def test_a_cut_answer_is_shown_with_its_error(call: Call, simulator: Simulator) -> None:
    url = simulator.base_urls["anthropic"]
    done = call("run", "--provider", "anthropic", "--base-url", url, "--header", "x-simulate=cut=8", "Hello")
    assert done.status == 1
    assert done.out.strip()
    assert "truncated stream" in done.err.splitlines()[-1]


def test_a_closed_pipe_shows_no_traceback(command: Command, simulator: Simulator) -> None:
    url = simulator.base_urls["anthropic"]
    knobs = "x-simulate=events=100000"
    process = command.start("run", "--provider", "anthropic", "--base-url", url, "--header", knobs, "Hello")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(LONGEST) == 141
    assert "Traceback" not in err


# demo and simulate


def test_the_demo_prints_plain_lines_without_a_terminal(command: Command) -> None:
    done = command("demo", "--streams", "30", "--seconds", "0.5", "--rate", "40")
    assert done.status == 0, done.out + done.err
    assert "\x1b" not in done.out
    for dialect in ("openai-chat", "openai-responses", "anthropic", "gemini", "gemini-interactions"):
        (row,) = [line.split() for line in done.out.splitlines() if line.startswith(dialect + " ")]
        assert row[1:4] == ["6", "6", "0"]
    assert "All content equals what was sent: 30 streams" in done.out
    assert not done.err


@pytest.mark.parametrize(("ending", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_the_simulator_ends_on_a_signal(command: Command, call: Call, ending: signal.Signals, status: int) -> None:
    process = command.start("simulate", "kind=text", "events=3")
    addresses = dict(process.stdout.readline().split() for _ in range(5))
    assert set(addresses) == {"openai-chat", "openai-responses", "anthropic", "gemini", "gemini-interactions"}
    process.stdout.readline()
    done = call("run", "--provider", "gemini", "--base-url", addresses["gemini"], "Hello")
    assert done.status == 0, done.err
    assert len(done.out.split()) == 3
    process.send_signal(ending)
    _, err = process.communicate(timeout=LONGEST)
    assert process.returncode == status
    assert not err


@pytest.mark.parametrize(("ending", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_the_gateway_serves_and_ends_on_a_signal(
    command: Command, call: Call, simulator: Simulator, ending: signal.Signals, status: int, tmp_path: Path
) -> None:
    url = simulator.base_urls["openai-chat"]
    process = command.start(
        "serve", "--base-url", url, "--traffic", "* concurrent=4", "--budget", "calls=1", "--trace", str(tmp_path),
        "--record", str(tmp_path / "bytes.jsonl"),
    )  # fmt: skip
    origin = process.stdout.readline().split()[2]
    assert process.stdout.readline().split()[0] == f"{origin}/v1"
    assert process.stdout.readline().split()[1] == "openai-compatible,"
    assert process.stdout.readline().split() == ["dialects", "openai-chat,", "openai-responses"]
    process.stdout.readline()
    asked = ("run", "--base-url", f"{origin}/slots/a/v1", "--model", "sim", "--attempts", "1", "Hello")
    assert call(*asked).status == 0
    refused = call(*asked)
    assert refused.status == 1
    assert "allows 1 calls" in refused.err
    process.send_signal(ending)
    _, err = process.communicate(timeout=LONGEST)
    assert (process.returncode, err) == (status, "")
    assert json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])["answer"]["content"]
    assert (tmp_path / "bytes.jsonl").read_text()


def test_the_gateway_keeps_websockets_on_both_sides(command: Command, simulator: Simulator) -> None:
    process = command.start("serve", "--base-url", simulator.base_urls["openai-responses"], "--websocket")
    origin = process.stdout.readline().split()[2]
    with opened(("127.0.0.1", int(origin.rpartition(":")[2]))) as client:
        first = client.ask("Hello", store=False)
        client.ask("More", store=False, previous_response_id=id_of(first))
    with urllib.request.urlopen(f"{simulator.origin}/sim/requests") as page:
        latest = json.load(page)[-1]
    assert latest["sent"]["previous_response_id"] == id_of(first)
    assert len(latest["body"]["input"]) == 3
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONGEST) == 0


@pytest.mark.parametrize("end", ["", "/v1"])
def test_one_server_is_served_in_several_dialects(command: Command, call: Call, simulator: Simulator, end: str) -> None:
    """A provider's name says a dialect; of two with one dialect, the first is used."""
    names = ("vllm", "openai", "anthropic")
    url = f"http://127.0.0.1:{simulator.port}{end}"
    process = command.start("serve", "--base-url", url, *(part for name in names for part in ("--provider", name)))
    origin, lines = process.stdout.readline().split()[2], [process.stdout.readline() for _ in range(4)]
    assert [line.split()[:1] for line in lines] == [[f"{origin}/v1"], ["providers"], ["dialects"], ["Ctrl-C"]]
    spoken = "openai-chat, vllm-generate, openai-completions, openai-responses, anthropic"
    assert lines[2].strip().endswith(spoken)
    for name, base in (("vllm", "/v1"), ("openai", "/v1"), ("anthropic", "")):
        asked = call("run", "--provider", name, "--base-url", origin + base, "--model", "sim", "Hello")
        assert asked.status == 0, asked.err
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONGEST) == 0


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--traffic", "concurrent=4"], 2, "write what the limit covers first"),
        (["--traffic", "* concurrent=many"], 2, "concurrent is a number"),
        (["--traffic", "* cores=4"], 2, "with a name of requests-per-second"),
        (["--traffic", "*"], 2, "--traffic '*': rates: must have a limit"),
        (["--traffic", "* concurrent=1.5"], 2, "--traffic '* concurrent=1.5': rates.concurrent: must be"),
        (["--traffic", "* concurrent=4 concurrent=5"], 2, "--traffic: concurrent is given twice"),
        (["--traffic", "* concurrent=4", "--traffic", "* tokens-per-minute=9"], 2, "--traffic: '*' is given twice"),
        (["--route", "best="], 2, "--route 'best=': target.model: must be"),
        (["--budget", "calls=1 calls=2"], 2, "--budget: calls is given twice"),
        (["--route", "best"], 2, "NAME=MODEL,MODEL"),
        (["--route", "best=nowhere/m"], 2, "no provider is known"),
        (["--budget", "usd=0"], 2, "--budget 'usd=0': budget.usd: must be a number above 0"),
        (["--key", "NO_SUCH_VARIABLE"], 2, "NO_SUCH_VARIABLE is not set"),
        (["--key", "sk-secret"], 2, "--key: the environment variable that was given is not set"),
        (["--host", "0.0.0.0"], 2, "key: is needed"),
        (["--provider", "nobody"], 2, "unknown provider 'nobody'"),
        (["--queue", "0"], 2, "queue"),
        (["--attempts", "0"], 2, "max_attempts"),
        (["--keep-alive", "0"], 2, "keep_alive"),
    ],
)
def test_a_wrong_command_line_of_the_gateway_is_one_line(
    call: Call, arguments: list[str], status: int, words: str
) -> None:
    done = call("serve", "--base-url", "http://127.0.0.1:9/v1", *arguments)
    assert (done.status, done.out) == (status, "")
    assert words in one_line(done.err)


def test_a_port_in_use_is_one_line(call: Call, simulator: Simulator) -> None:
    done = call("simulate", "--port", str(simulator.port))
    assert done.status == 1
    assert "cannot listen" in one_line(done.err)
