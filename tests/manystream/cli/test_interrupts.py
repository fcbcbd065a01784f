"""Ctrl-C as a terminal sends it, to the command and to every process that it has started.

Each command ends soon, shows its results so far and no traceback, and has the exit status 130.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from manystream.cli import main
from manystream.cli.command_line import COMMANDS
from manystream.simulator import open_simulator_thread
from tests.support.waiting import LONGEST, until

WITHOUT_KEYS = {name: value for name, value in os.environ.items() if "KEY" not in name and "proxy" not in name.lower()}

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a command in a new process group."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "manystream", *arguments], cwd=tmp_path, env=WITHOUT_KEYS
            | {"HOME": "/nonexistent", "XDG_RUNTIME_DIR": str(tmp_path / "run"), "PYTHONIOENCODING": "utf-8"}
            | {"OPENAI_API_KEY": "any"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, encoding="utf-8", start_new_session=True,
        )  # fmt: skip
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def interrupt(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Send SIGINT to the process group, and return the output since then."""
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=LONGEST)
    assert process.returncode == 130, out + err
    assert "Traceback" not in err
    return out, err


def read_until(process: subprocess.Popen[str], word: str, *, stream: str = "stdout") -> None:
    lines = process.stdout if stream == "stdout" else process.stderr
    assert lines is not None
    while word not in (line := lines.readline()):
        assert line, f"it ended without {word!r}: {process.communicate(timeout=LONGEST)}"


def test_demo_shows_its_table(start: Start) -> None:
    process = start("demo", "--streams", "8", "--seconds", "60")
    read_until(process, "open 8")
    out, err = interrupt(process)
    assert "dialect" in out
    assert "streams were open at once" in out
    assert not err


def test_run_ends_its_line_and_shows_the_usage(start: Start) -> None:
    with open_simulator_thread("stall=6") as simulator:
        process = start("run", "--base-url", simulator.base_urls["openai-chat"], "--model", "m", "Hello")
        first = process.stdout.read(4)
        out, err = interrupt(process)
    assert (first + out).endswith("\n")
    assert "complete after" in err


def test_batch_keeps_the_answers_and_names_the_next_step(start: Start, tmp_path: Path) -> None:
    prompts, answers = tmp_path / "prompts.jsonl", tmp_path / "answers.jsonl"
    lines = [json.dumps({"id": str(n), "messages": [{"role": "user", "content": "Hello"}]}) for n in range(500)]
    prompts.write_text("\n".join(lines))
    with open_simulator_thread("events=4,delay=0.1") as simulator:
        url = simulator.base_urls["openai-chat"]
        process = start("batch", str(prompts), "-o", str(answers), "--base-url", url, "--model", "m", "--concurrency=2")
        until(lambda: answers.exists() and answers.read_bytes().count(b"\n") > 2)
        out, err = interrupt(process)
    answered = answers.read_bytes().count(b"\n")
    assert 2 < answered < 500
    assert out.startswith(f"{answered} answered in ")
    assert "The same command resumes the batch" in err
    assert not answers.with_suffix(".errors.jsonl").exists()


def test_bench_shows_the_figures_so_far(start: Start) -> None:
    process = start("bench", "--concurrency", "4", "--seconds", "60", "--json")
    read_until(process, "running", stream="stderr")
    out, _ = interrupt(process)
    result = json.loads(out)
    assert result["interrupted"] is True
    assert result["calls"].items() >= {"ok": 0, "failed": 0, "unfinished": 4, "started": 4}.items()
    assert result["events"] > 0
    assert result["itl"]["p50"] > 0


def test_doctor_shows_the_number_of_unfinished_checks(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        process = start("doctor", "--base-url", url, "--timeout", "60")
        line, _ = silent.accept()
        with line:
            line.recv(1)
            out, err = interrupt(process)
    assert "Interrupted: 1 of 1 checks did not finish" in out
    assert not err


@pytest.mark.parametrize("grace", ["0", "60"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_serve_ends_the_answers_under_way_with_an_error(start: Start, grace: str, number: int, status: int) -> None:
    """With a time to wait, the second signal does it, and a request between the two is refused."""
    with open_simulator_thread("stall=6") as simulator:
        process = start("serve", "--base-url", simulator.base_urls["openai-chat"], "--grace", grace)
        url = process.stdout.readline().split()[-1] + "/v1"
        read_until(process, "Ctrl-C")
        asked: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
        with openai.OpenAI(api_key="any", base_url=url, max_retries=0) as client:
            chunks = iter(client.chat.completions.create(**asked, stream=True))
            next(chunks)
            process.send_signal(number)
            read_until(process, "requests under way: 1")
            if grace != "0":
                with pytest.raises(openai.InternalServerError, match="the gateway is ending") as refused:
                    client.chat.completions.create(**asked)
                assert 50 < int(refused.value.response.headers["retry-after"]) <= 60
                process.send_signal(signal.SIGINT)
            with pytest.raises(openai.APIError, match="the gateway has ended"):
                list(chunks)
    _, err = process.communicate(timeout=LONGEST)
    assert (process.returncode, err) == (status, "")


def test_serve_may_open_as_many_files_as_the_system_allows(start: Start) -> None:
    resource = pytest.importorskip("resource")
    if not hasattr(resource, "prlimit"):
        pytest.skip("the limits of another process cannot be read here")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        process = start("serve", "--base-url", "http://127.0.0.1:1/v1")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    read_until(process, "Ctrl-C")
    assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    interrupt(process)


def test_top_ends(start: Start, tmp_path: Path) -> None:
    demo = start("demo", "--streams", "4", "--seconds", "60", "--monitor")
    read_until(demo, "open 4")
    top = start("top", "--interval", "0.1", str(demo.pid))
    read_until(top, "4 calls (4 streams)")
    _, err = interrupt(top)
    assert not err
    interrupt(demo)
    assert not list((tmp_path / "run" / "manystream").iterdir()), "the demo has removed its socket"


def test_ctrl_c_during_the_import_shows_no_traceback() -> None:
    # The import raises `KeyboardInterrupt`: a signal from outside cannot be timed so exactly.
    code = (
        "import builtins, sys\nreal = builtins.__import__\ndef loaded(name, *rest):\n"
        "    if name == 'trio': raise KeyboardInterrupt\n    return real(name, *rest)\nbuiltins.__import__ = loaded\n"
        "from manystream.__main__ import main\nsys.argv.append('demo')\nsys.exit(main())\n"
    )  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LONGEST, check=False)
    assert done.returncode == 130
    assert not done.stderr


# Help.


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_help_has_examples_and_exit_statuses(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"\n  manystream {name}" in text or f"(manystream {name} " in text
    assert "exit status:\n  0    " in text
    assert "the command line is wrong" in text
    assert all(len(line) <= 122 for line in text.splitlines()), "a line is too wide for a terminal"
