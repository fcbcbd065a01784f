"""The command `manystream batch`: files, output, exit status, and interruptions."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from manystream.cli import main
from manystream.simulator import Simulator, open_simulator
from tests.support.commands import KEYS
from tests.support.waiting import LONGEST, until

CANARY = "canary-5ecret-key"
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in KEYS and "proxy" not in name.lower()}
ENVIRONMENT |= {"HOME": "/nonexistent", "PYTHONIOENCODING": "utf-8", "OPENAI_API_KEY": CANARY}


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator("events=4") as simulator:
        yield simulator


def line(id: str, text: str = "hello", **members: object) -> dict[str, object]:
    return {"id": id, "messages": [{"role": "user", "content": text}], **members}


def write(path: Path, lines: Sequence[object]) -> Path:
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in lines), "utf-8")
    return path


def ids(path: Path) -> list[str]:
    return [json.loads(text)["id"] for text in path.read_bytes().split(b"\n") if text] if path.exists() else []


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "manystream", "batch", *arguments], cwd=folder, env=ENVIRONMENT,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8",
    )  # fmt: skip


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run the command in this process, in the folder. Return its status, output and error output."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, ENVIRONMENT, clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        status = main(["batch", *arguments])
    printed, complaints = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    assert CANARY not in printed + complaints
    return status, printed, complaints


def run_process(folder: Path, *arguments: str, given: str = "") -> tuple[int, str, str]:
    """Run the command in another process, for what only a process has: standard input, and the encoding of output."""
    process = start(folder, *arguments)
    try:
        out, err = process.communicate(given, timeout=LONGEST)
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in err
    assert CANARY not in out + err
    return process.returncode, out, err


def run_from(prompts: str, text: str, folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run the command with its input from a file, or from standard input, which only another process has."""
    if prompts == "-":
        return run_process(folder, "-", *arguments, given=text)
    return run(folder, prompts, *arguments)


def lines_in(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def reached(process: subprocess.Popen[str], answers: Path, goal: int) -> bool:
    """Return whether the file holds so many answers, or the process has ended."""
    return lines_in(answers) >= goal or process.poll() is not None


FILES = ("p.jsonl", "-o", "a.jsonl")


def against(simulator: Simulator) -> tuple[str, ...]:
    return (*FILES, "--model", "sim-text", "--base-url", simulator.base_urls["openai-chat"])


def test_simulated_answers_need_no_key(tmp_path: Path) -> None:
    write(tmp_path / "p.jsonl", [line(str(n)) for n in range(30)])
    status, out, err = run(tmp_path, *FILES, "--simulate")
    assert status == 0
    assert sorted(ids(tmp_path / "a.jsonl"), key=int) == [str(n) for n in range(30)]
    assert out.startswith("30 answered in ")
    assert err == "The built-in simulator answers, not a model.\n"


@pytest.mark.parametrize("prompts", ["p.jsonl", "-"])
def test_nothing_is_sent_where_no_model_is_named(prompts: str, tmp_path: Path) -> None:
    lines: list[object] = [line("a"), "no JSON", {"custom_id": "b", "body": {"messages": "x"}}]
    text = write(tmp_path / "p.jsonl", lines).read_text("utf-8")
    status, out, err = run_from(prompts, text, tmp_path, "-o", "a.jsonl")
    assert (status, out) == (2, "")
    source = "standard input" if prompts == "-" else prompts
    assert err == (
        f"manystream batch: no model is named, neither here nor by the first lines of {source}: name one with --model,"
        " or let the built-in simulator answer with --simulate\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["p.jsonl"]


@pytest.mark.parametrize("prompts", ["p.jsonl", "-"])
def test_lines_are_sent_where_one_of_them_names_a_model(
    prompts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [line("none"), line("x", model="none"), line("gpt", model="gpt-5"), line("local", model="lmstudio/m")]
    text = write(tmp_path / "p.jsonl", lines).read_text("utf-8")
    monkeypatch.delitem(ENVIRONMENT, "OPENAI_API_KEY")
    status, _, _ = run_from(prompts, text, tmp_path, "-o", "a.jsonl", "--attempts", "1")
    assert status == 1
    failures = [json.loads(record) for record in (tmp_path / "a.errors.jsonl").read_text("utf-8").splitlines()]
    messages = {failure["id"]: failure["error"]["message"] for failure in failures}
    assert messages.keys() == {"none", "x", "gpt", "local"}
    assert "model: is missing, and no model was given for the whole batch" in messages["none"]
    assert "model: unknown model 'none'" in messages["x"]
    assert "model: 'openai-chat' has no key for 'gpt-5': set OPENAI_API_KEY" in messages["gpt"]
    assert "localhost:1234" in messages["local"]


@pytest.mark.parametrize("errors", [(), ("--errors", "e.jsonl")])
def test_answers_are_printed(simulator: Simulator, errors: tuple[str, ...], tmp_path: Path) -> None:
    lines = [line(str(number), label="\x9b") for number in range(200)]
    write(tmp_path / "p.jsonl", [*lines, line("wrong", "simulate: fail=400"), "no JSON"])
    words = ("p.jsonl", "-o", "-", *errors, *against(simulator)[3:], "--plain")
    status, out, err = run(tmp_path, *words) if errors else run_process(tmp_path, *words)
    found = [json.loads(record) for record in out.splitlines()]
    assert sorted(record["id"] for record in found) == sorted(str(number) for number in range(200))
    assert {record["label"] for record in found} == {"\x9b"}
    assert "\x9b" not in out, "what is printed cannot control a terminal"
    failures = err.splitlines() if not errors else (tmp_path / "e.jsonl").read_text("utf-8").splitlines()
    failed = [json.loads(record)["id"] for record in failures if record.startswith("{")]
    assert (status, sorted(failed, key=str)) == (1, [None, "wrong"])
    place = "e.jsonl" if errors else "standard error"
    assert "200 answered in " in err
    assert f"1 failed (1 invalid_arg) → {place}" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.jsonl", "p.jsonl"] if errors else ["p.jsonl"]


def test_a_reader_that_ends_early_ends_the_batch(simulator: Simulator, tmp_path: Path) -> None:
    write(tmp_path / "p.jsonl", [line(str(number)) for number in range(5000)])
    process = start(tmp_path, "p.jsonl", "-o", "-", *against(simulator)[3:], "--plain")
    assert process.stdout.readline().startswith('{"id":')
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(timeout=LONGEST)
    assert (process.returncode, "Traceback" in err) == (141, False)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--retry-failed",), "--retry-failed reads the files of an earlier run, which -o - does not write"),
        (("--max-tokens", "0"), "--max-tokens must be above 0, not 0"),
        (("--temperature", "nan"), "--temperature must be a number from 0, not nan"),
        (("--schema", "none.json"), "--schema: cannot read none.json: No such file or directory"),
        (("--schema", "p.jsonl"), "--schema: 'p.jsonl' holds no JSON Schema: "),
        (("--schema", "none"), "--schema: cannot read none: No such file or directory; a class is written as MODULE:"),
        (("--schema", "no_module:City"),
            "--schema: cannot import no_module:City: ModuleNotFoundError: No module named"),
        (("--schema", "shapes:Town"), "--schema: cannot import shapes:Town: AttributeError: module 'shapes' has no"),
        (("--schema", "shapes:City.name"), "--schema: cannot import shapes:City.name: AttributeError: "),
        (("--schema", "shapes:number"), "--schema: shapes:number is no class with a JSON Schema, such as a pydantic"),
    ],
)  # fmt: skip
def test_a_wrong_option_of_the_requests(
    words: tuple[str, ...],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path / "p.jsonl", ["[]", line("a")])
    (tmp_path / "shapes.py").write_text(SHAPES, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["batch", "p.jsonl", "-o", "-", "--simulate", *words]) == 2
    assert capsys.readouterr().err.startswith(f"manystream batch: {complaint}")


SHAPES = """\
import pydantic
number = 1
class City(pydantic.BaseModel):
    name: str
Cities = list[City]
"""


@pytest.mark.parametrize("given", ["shapes:City", "shapes:Cities", "schema.json"])
def test_a_schema_is_that_of_all_lines(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openai = {"custom_id": "b", "body": {"messages": [{"role": "user", "content": "x"}]}}
    write(tmp_path / "p.jsonl", [line("a"), openai])
    (tmp_path / "shapes.py").write_text(SHAPES, "utf-8")
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    (tmp_path / "schema.json").write_text(json.dumps(schema), "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "shapes", raising=False)
    status, out, err = run(tmp_path, "p.jsonl", "-o", "-", "--simulate", "--schema", given)
    assert (status, "answered" in err) == (0, True)
    found = {record["id"]: record["parsed"] for record in map(json.loads, out.splitlines())}
    if given == "shapes:Cities":
        assert {type(parsed) for parsed in found.values()} == {list}
        found = {id: parsed[0] for id, parsed in found.items()}
    assert {type(parsed["name"]) for parsed in found.values()} == {str}
    assert found.keys() == {"a", "b"}


def test_a_batch_killed_repeatedly_answers_each_line_once(simulator: Simulator, tmp_path: Path) -> None:
    wanted = [f"q{n}" for n in range(600)]
    write(tmp_path / "p.jsonl", [line(id, "simulate: delay=0.05") for id in wanted])
    answers = tmp_path / "a.jsonl"
    for goal in (50, 150, 300, 450):
        process = start(tmp_path, *against(simulator), "--concurrency", "20")
        try:
            until(partial(reached, process, answers, goal))
        finally:
            process.kill()
            process.communicate()
        assert process.returncode == -signal.SIGKILL
        with answers.open("ab") as file:
            file.write(b'{"id":"q599","te')  # an incomplete line, as after a crash during a write
    kept = answers.read_bytes().rpartition(b"\n")[0]
    status, out, _ = run(tmp_path, *against(simulator), "--concurrency", "20")
    assert status == 0
    assert sorted(ids(answers)) == sorted(wanted)
    assert answers.read_bytes().startswith(kept)
    assert "were answered before" in out


def test_failures_are_status_1_and_can_be_sent_again(simulator: Simulator, tmp_path: Path) -> None:
    lines = [line("good"), line("bad", "simulate: fail=400,times=1,key=cli")]
    write(tmp_path / "p.jsonl", lines)
    status, out, _ = run(tmp_path, *against(simulator))
    assert status == 1
    assert "1 failed (1 invalid_arg) → a.errors.jsonl" in out
    status, out, _ = run(tmp_path, *against(simulator))
    assert status == 1
    assert "1 failed before and were skipped: --retry-failed sends them again" in out
    status, out, _ = run(tmp_path, *against(simulator), "--retry-failed")
    assert status == 0
    assert sorted(ids(tmp_path / "a.jsonl")) == ["bad", "good"]
    assert not (tmp_path / "a.errors.jsonl").exists()


def test_invalid_lines_are_reported_with_file_and_number(simulator: Simulator, tmp_path: Path) -> None:
    write(tmp_path / "p.jsonl", [line("a"), line("b", temprature=1)])
    status, out, _ = run(tmp_path, *against(simulator), "--errors", "bad.jsonl")
    assert status == 1
    assert "1 line is not a valid request → bad.jsonl" in out
    (failure,) = (json.loads(text) for text in (tmp_path / "bad.jsonl").read_bytes().splitlines())
    assert failure["id"] == "b"
    assert failure["error"]["message"].startswith("p.jsonl line 2: temprature: is not a member")


def test_standard_input_is_read_as_it_comes(simulator: Simulator, tmp_path: Path) -> None:
    given = "".join(json.dumps(line(str(n))) + "\n" for n in range(5))
    status, _, _ = run_process(tmp_path, "-", *against(simulator)[1:], given=given)
    assert status == 0
    assert sorted(ids(tmp_path / "a.jsonl")) == ["0", "1", "2", "3", "4"]


def test_with_a_server_alone_each_line_names_its_model(simulator: Simulator, tmp_path: Path) -> None:
    write(tmp_path / "p.jsonl", [line("a", model="sim-text@events=2"), line("b")])
    status, _, _ = run(tmp_path, *FILES, "--base-url", simulator.base_urls["openai-chat"])
    assert status == 1
    (answer,) = (json.loads(text) for text in (tmp_path / "a.jsonl").read_bytes().splitlines())
    assert (answer["id"], answer["model"]) == ("a", "sim-text@events=2")
    assert "model: is missing" in (tmp_path / "a.errors.jsonl").read_text("utf-8")


def test_other_providers_batch_lines_are_read(simulator: Simulator, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hello"}]
    lines = [
        {"custom_id": "o", "method": "POST", "url": "/v1/chat/completions",
        "body": {"model": "x", "messages": messages}},
        {"custom_id": "r", "method": "POST", "url": "/v1/responses", "body": {"model": "x", "input": "hello"}},
        {"custom_id": "a", "params": {"model": "x", "max_tokens": 50, "messages": messages}},
    ]  # fmt: skip
    write(tmp_path / "p.jsonl", lines)
    status, _, _ = run(tmp_path, *against(simulator))
    assert status == 0
    assert sorted(ids(tmp_path / "a.jsonl")) == ["a", "o", "r"]


def test_a_refused_key_is_one_line_and_records_nothing(simulator: Simulator, tmp_path: Path) -> None:
    write(tmp_path / "p.jsonl", [line(str(n), "simulate: fail=401") for n in range(50)])
    status, _, err = run(tmp_path, *against(simulator))
    assert status == 1
    assert "manystream batch: the key was refused: " in err
    assert ids(tmp_path / "a.errors.jsonl") == []


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (("p.jsonl", "-o", "p.jsonl"), 2, "-o p.jsonl is the input itself: name another file with -o"),
        (("p.jsonl", "-o", "link.jsonl"), 2, "-o link.jsonl is the input itself"),
        (("p.jsonl", "-o", "a.jsonl", "--errors", "p.jsonl"), 2,
            "--errors p.jsonl is the input itself: name another file with --errors"),
        (("p.jsonl", "-o", "a.jsonl", "--errors", "./link.jsonl"), 2, "--errors link.jsonl is the input itself"),
        (("x.errors.jsonl", "-o", "x.jsonl"), 2, "--errors x.errors.jsonl is the input itself"),
        (("p.jsonl", "-o", "b.jsonl", "--errors", "same.jsonl"), 2,
            "--errors same.jsonl is the file of answers itself: name another file"),
        (("p.jsonl", "-o", "a.jsonl", "--max-rps", "nan"), 2, "--max-rps must be above 0"),
        (("p.jsonl", "-o", "nowhere/a.jsonl"), 1, "cannot write nowhere/a.jsonl"),
        (("p.jsonl",), 2, "-o/--output"),
    ],
)  # fmt: skip
def test_an_error_is_one_line(
    arguments: tuple[str, ...],
    status: int,
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path / "p.jsonl", [line("a")])
    write(tmp_path / "x.errors.jsonl", [line("a")])
    (tmp_path / "link.jsonl").hardlink_to(tmp_path / "p.jsonl")
    (tmp_path / "b.jsonl").touch()
    (tmp_path / "same.jsonl").symlink_to("b.jsonl")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.chdir(tmp_path)
    assert main(["batch", *arguments, "--simulate"]) == status
    assert complaint in capsys.readouterr().err
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


@pytest.mark.parametrize("option", ["-o", "--errors"])
def test_a_file_on_standard_input_is_not_written_to(tmp_path: Path, option: str) -> None:
    prompts = write(tmp_path / "p.jsonl", [line("a")])
    before = prompts.read_bytes()
    files = ("-o", "a.jsonl", "--errors", "p.jsonl") if option == "--errors" else ("-o", "p.jsonl")
    with prompts.open() as given:
        command = [sys.executable, "-W", "error", "-m", "manystream", "batch", "-", *files]
        ended = subprocess.run(
            command, cwd=tmp_path, env=ENVIRONMENT, stdin=given, capture_output=True, timeout=LONGEST
        )
    assert (ended.returncode, prompts.read_bytes()) == (2, before)
    assert f"{option} p.jsonl is the input itself".encode() in ended.stderr


def test_a_full_disk_leaves_a_summary_of_the_stored_answers(simulator: Simulator, tmp_path: Path) -> None:
    write(tmp_path / "p.jsonl", [line(str(n)) for n in range(50)])
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000));"
        "from manystream.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-W", "error", "-c", program, "batch", *against(simulator), "--concurrency", "3"]
    ended = subprocess.run(
        command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, timeout=LONGEST, encoding="utf-8"
    )
    stored = len(ids(tmp_path / "a.jsonl"))
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "cannot write a.jsonl: File too large; all answers so far are in the file; the same command" in ended.stderr
    assert 0 < stored < 50
    assert ended.stdout.startswith(f"{stored} answered in ")
    status, out, _ = run(tmp_path, *against(simulator))
    assert (status, f"{stored} were answered before" in out) == (0, True)


def test_a_file_with_an_undecodable_name_can_be_reported(simulator: Simulator, tmp_path: Path) -> None:
    write(tmp_path / "p.jsonl", [line("a")])
    answers = os.fsdecode(b"a\xff.jsonl")
    status, out, _ = run_process(tmp_path, "p.jsonl", "-o", answers, *against(simulator)[3:])
    assert (status, out.startswith("1 answered")) == (0, True)
