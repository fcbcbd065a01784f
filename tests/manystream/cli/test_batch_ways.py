"""`manystream batch --by`, `--via`, `--status` and `--json`."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from urllib.request import urlopen

import pytest

from manystream.batch import JournalError
from manystream.batch.submissions import Submissions
from manystream.cli import main
from manystream.cli.batch_ways import read_deadline
from manystream.cli.output.errors import CommandError
from manystream.simulator import Simulator, open_simulator_thread
from tests.manystream.cli.test_batch import ENVIRONMENT
from tests.support.batches import line, records, write
from tests.support.waiting import until

NOW = datetime(2026, 11, 26, 22, 30).astimezone()
FILES = ("p.jsonl", "-o", "a.jsonl", "--plain")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv("OPENAI_API_KEY", ENVIRONMENT["OPENAI_API_KEY"])
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "p.jsonl", [line(f"q{n}", f"text {n}") for n in range(12)])
    return tmp_path


@pytest.fixture
def slow() -> Iterator[Simulator]:
    """A simulator whose batches never end."""
    with open_simulator_thread("events=4", batch_time="inf") as simulator:
        yield simulator


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("3h", NOW + timedelta(hours=3)),
        ("1h30m", NOW + timedelta(minutes=90)),
        ("0.5d", NOW + timedelta(hours=12)),
        ("45s", NOW + timedelta(seconds=45)),
        ("23:00", NOW + timedelta(minutes=30)),
        ("06:00", NOW + timedelta(hours=7, minutes=30)),
        ("2026-11-27T06:00", NOW + timedelta(hours=7, minutes=30)),
        (None, None),
    ],
)
def test_a_deadline_is_a_span_a_time_of_day_or_a_date(given: str | None, expected: datetime | None) -> None:
    assert read_deadline(given, NOW) == expected


@pytest.mark.parametrize(
    "given", ["", "soon", "3", "25:00", "12:60", "3h foo", "2026-11-25T06:00", "-3h", "1e999d", "999999999d"]
)
def test_a_deadline_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(CommandError, match="--by"):
        read_deadline(given, NOW)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("p.jsonl", "-o", "-", "--by", "3h"), "--by needs a file with -o"),
        ((*FILES, "--via", "batch", "--cache", "x"), "--via is not for --cache"),
        ((*FILES, "--via", "batch", "--route", "a,b"), "--via batch needs one server"),
    ],
)
def test_options_that_exclude_others(words: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch", *words]) == 2
    assert reason in capsys.readouterr().err


def test_the_receipt_names_the_ways_and_the_deadline(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch", *FILES, "--simulate", "--by", "3h"]) == 0
    out = capsys.readouterr().out
    assert "batch: 12 lines" in out
    assert "was kept, with 2:59" in out or "was kept, with 3:00" in out
    assert len(records(Path("a.jsonl"))) == 12


def test_the_receipt_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch", *FILES, "--simulate", "--via", "live", "--by", "3h", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["answered"], found["kept"], found["missed_seconds"]) == (12, True, 0)
    assert found["ways"]["live"]["lines"] == 12
    assert found["ways"]["live"]["paid"] is None, "the simulator has no prices"


def test_a_missed_deadline_is_an_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    with open_simulator_thread("events=4", batch_time="3") as simulator:
        url = simulator.base_urls["openai-chat"]
        assert main(["batch", *FILES, "--base-url", url, "--model", "m", "--via", "batch", "--by", "1s"]) == 1
    out = capsys.readouterr().out
    assert "was missed by 0:0" in out
    assert len(records(Path("a.jsonl"))) == 12


def test_ctrl_c_leaves_batches_running_and_in_status(slow: Simulator, capsys: pytest.CaptureFixture[str]) -> None:
    url = slow.base_urls["openai-chat"]
    words = [sys.executable, "-m", "manystream", "batch", *FILES, "--base-url", url, "--model", "m", "--via", "batch"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=ENVIRONMENT, stderr=pipe, stdout=pipe, text=True) as process:
        until(lambda: Path("a.batches.jsonl").exists() and '"submitted"' in Path("a.batches.jsonl").read_text())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130, out + err
    assert "12 lines are in 1 batch of the provider, which go on" in err
    assert main(["batch", "--status", "a.jsonl"]) == 0
    shown = capsys.readouterr().out
    assert "12 lines for m; the provider says 'validating'" in shown
    assert "12 lines are under way in 1 batch." in shown
    assert main(["batch", *FILES, "--base-url", url, "--model", "m"]) == 1
    assert "12 lines are in batches of a provider" in capsys.readouterr().err
    with urlopen(f"{url.removesuffix('/v1')}/sim/batches") as page:
        assert len(json.load(page)["batches"]) == 1


INTENDED = {
    "state": "intended", "provider": "openai-chat", "profile": "openai-chat", "model": "m", "path": "/chat/completions",
    "headers": [], "generation": 0, "at": 1.0, "lines": ["a", "b"],
}  # fmt: skip
NOT_ASKED: dict[str, tuple[dict[str, object], str]] = {
    "without a key": ({"url": "https://api.openai.com/v1"}, "OPENAI_API_KEY"),
    "at a server that nobody has named": ({"url": "https://evil.example/v1"}, "--base-url https://evil.example/v1"),
    "without TLS": ({"url": "http://api.openai.com/v1"}, "--base-url http://api.openai.com/v1"),
    "at another port": ({"url": "https://api.openai.com:8443/v1"}, "--base-url https://api.openai.com:8443/v1"),
    "with a backslash": ({"url": "https://api.openai.com/\\v1"}, "contains a backslash"),
    "at no URL": ({"url": "http://[bad"}, "the host or port is malformed"),
    "with a path as its id": ({"url": "http://127.0.0.1:1/v1", "batch": ".."}, "'..' is no id"),
    "with a path in its id": ({"url": "http://127.0.0.1:1/v1", "batch": "a/../b"}, "'a/../b' is no id"),
    "at an address with a secret": ({"url": ""}, "give its address"),
    "at no provider": ({"profile": "none", "url": "http://127.0.0.1:1"}, "'none' is no provider"),
    "at a server that is away": ({"url": "http://127.0.0.1:1/v1"}, "does not say how far it is: "),
}


@pytest.mark.parametrize("case", NOT_ASKED)
def test_the_status_says_why_a_provider_was_not_asked(
    case: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    members, reason = NOT_ASKED[case]
    if case == "without a key":
        monkeypatch.delenv("OPENAI_API_KEY")
    steps: list[dict[str, object]] = [
        {"id": "k", **INTENDED, **members},
        {"id": "k", "state": "submitted", "batch": members.get("batch", "batch_1")},
        *({"id": f"t{n}", "state": "named", "line": f"w{n}", "way": "window-2h", "at": 9.0} for n in range(3)),
        {"id": "t0", "state": "read", "line": "w0"},
    ]
    write(Path("a.batches.jsonl"), steps)
    assert main(["batch", "--status", "a.jsonl"]) == 0
    first, windows, last = capsys.readouterr().out.splitlines()
    assert f"{members.get('batch', 'batch_1')} is under way since 1970" in first
    assert "2 lines for m; the provider" in first
    assert reason in first
    assert "2 lines are in window-2h since 1970" in windows
    assert last == "2 lines are under way in 1 batch."


def test_the_status_names_a_batch_that_is_not_there(slow: Simulator, capsys: pytest.CaptureFixture[str]) -> None:
    url = slow.base_urls["openai-chat"]
    submitted = {"id": "k", "state": "submitted", "batch": "gone"}
    write(Path("a.batches.jsonl"), [{"id": "k", **INTENDED, "url": url}, submitted])
    assert main(["batch", "--status", "a.jsonl"]) == 0
    assert "No batch found with id 'gone'" in capsys.readouterr().out


def test_the_status_of_a_file_without_batches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch", "--status", "none.jsonl"]) == 0
    assert capsys.readouterr().out.startswith("Nothing is under way")


def test_the_status_of_a_forged_file(capsys: pytest.CaptureFixture[str]) -> None:
    forged: dict[str, object] = {"provider": "a\nall is well", "model": "m\nm", "at": 1e17}
    window = {"id": "t", "state": "named", "line": 1, "way": "window\n", "at": -1e300}
    write(Path("a.batches.jsonl"), [{"id": "k", **INTENDED, **forged}, window])
    assert main(["batch", "--status", "a.jsonl"]) == 0
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("a all is well (not known yet, key k) is under way since 5138")
    assert second.startswith("1 line is in window since 1970")


@pytest.mark.parametrize("members", [{"lines": [True]}, {"lines": ["a", {}]}, {"headers": [["a"]]}, {"headers": [7]}])
def test_a_forged_intention_is_refused(members: dict[str, object]) -> None:
    write(Path("a.batches.jsonl"), [{"id": "k", **INTENDED, **members}])
    with pytest.raises(JournalError, match="line 1 was not written by a batch: it is no intention of a batch"):
        Submissions(Path("a.batches.jsonl"))


def test_figures_of_a_forged_file_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    ways = {"live": {"lines": 1e308, "paid": 2}}
    write(Path("a.batches.jsonl"), [{"id": None, "state": "figures", "ways": ways}])
    assert main(["batch", "--status", "a.jsonl"]) == 0
    assert "live: 0 lines, 0 tokens in, 0 out" in capsys.readouterr().out


def test_the_status_waits_for_no_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("a.batches.jsonl")
    assert main(["batch", "--status", "a.jsonl"]) == 1
    assert "it is no regular file" in capsys.readouterr().err


@pytest.mark.timeout(400)  # after a kill before the batch is in the list, the next run looks for it for 63 s
@pytest.mark.parametrize("interface", ["openai-chat", "anthropic"])
def test_kill_9_at_any_moment_submits_and_pays_nothing_twice(interface: str) -> None:
    """The command is killed after each step that it writes down. The server counts what it was given."""
    submissions = Path("a.batches.jsonl")

    def steps() -> int:
        return submissions.read_bytes().count(b"\n") if submissions.exists() else 0

    with open_simulator_thread("events=2", batch_time="0.4") as simulator:
        origin = simulator.base_urls["openai-chat"].removesuffix("/v1")
        words = [sys.executable, "-m", "manystream", "batch", *FILES, "--model", "m", "--via", "batch"]
        words += ["--base-url", simulator.base_urls[interface]]
        words += ["--provider", "anthropic"] if interface == "anthropic" else []
        environment = {**ENVIRONMENT, "ANTHROPIC_API_KEY": "sk-canary"}
        for step in range(1, 6):
            with subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL) as process:
                until(lambda: steps() >= step or process.poll() is not None)  # noqa: B023
                process.kill()
        ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        with urlopen(f"{origin}/sim/batches") as page:
            found = json.load(page)["batches"]
    assert ended.returncode == 0, ended.stderr
    assert sorted(str(record["id"]) for record in records(Path("a.jsonl"))) == sorted(f"q{n}" for n in range(12))
    assert len(found) == 1


def test_kill_9_pays_no_answer_in_a_window_twice() -> None:
    """The command is killed when all answers are named, and when some of them are there."""
    submissions, answers = Path("a.batches.jsonl"), Path("a.jsonl")

    def count(path: Path, part: bytes) -> int:
        return path.read_bytes().count(part) if path.exists() else 0

    with open_simulator_thread("events=2,delay=3", journal=2_000) as simulator:
        url = simulator.base_urls["openai-responses"]
        words = [sys.executable, "-m", "manystream", "batch", *FILES, "--model", "m", "--via", "window"]
        words += ["--base-url", url, "--provider", "openai-responses"]
        for is_time in (lambda: count(submissions, b'"named"') >= 12, lambda: count(answers, b"\n") >= 1):
            with subprocess.Popen(words, env=ENVIRONMENT, stderr=subprocess.PIPE) as process:
                until(lambda: is_time() or process.poll() is not None)  # noqa: B023
                process.kill()
        ended = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        with urlopen(f"{url.removesuffix('/v1')}/sim/requests") as page:
            found = json.load(page)
    assert ended.returncode == 0, ended.stderr
    assert sorted(str(record["id"]) for record in records(answers)) == sorted(f"q{n}" for n in range(12))
    assert len([request for request in found if request["method"] == "POST"]) == 12
