"""`manystream batch --shard I/N`: files, limits, display and bad input."""

import json
from pathlib import Path

import pytest

from manystream.cli import main
from manystream.simulator import Simulator
from tests.manystream.cli.test_batch import against, ids, line, run, run_process, simulator, start, write

__all__ = ["simulator"]  # the fixture


def test_four_processes_answer_every_line_once(simulator: Simulator, tmp_path: Path) -> None:
    wanted = [f"q{number}" for number in range(1, 11)]
    write(tmp_path / "p.jsonl", [line(id) for id in wanted])
    processes = [start(tmp_path, *against(simulator), "--shard", f"{index}/4") for index in range(4)]
    try:
        outputs = [process.communicate(timeout=60.0) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0, 0, 0, 0]
    assert sorted(ids(tmp_path / "a.1-of-4.jsonl")) == ["q1", "q5", "q9"]
    assert sorted(ids(tmp_path / "a.0-of-4.jsonl")) == ["q4", "q8"]
    assert sorted(id for index in range(4) for id in ids(tmp_path / f"a.{index}-of-4.jsonl")) == sorted(wanted)
    assert not (tmp_path / "a.jsonl").exists()
    assert "Shard 1/4: the lines whose number modulo 4 is 1" in outputs[1][1]
    assert "→ a.1-of-4.jsonl" in outputs[1][0]


def test_failures_of_a_shard_are_in_a_file_of_its_own(simulator: Simulator, tmp_path: Path) -> None:
    write(tmp_path / "p.jsonl", [line("good"), line("bad", "simulate: fail=400,times=1,key=shard"), "no request"])
    status, out, _ = run(tmp_path, *against(simulator), "--shard", "0/2")
    assert (status, "1 failed (1 invalid_arg) → a.0-of-2.errors.jsonl" in out) == (1, True)
    status, _, _ = run(tmp_path, *against(simulator), "--shard", "0/2", "--retry-failed")
    assert (status, ids(tmp_path / "a.0-of-2.jsonl")) == (0, ["bad"])
    status, _, _ = run(tmp_path, *against(simulator), "--shard", "1/2", "--errors", "failed.jsonl")
    assert status == 1
    (failure,) = (json.loads(text) for text in (tmp_path / "failed.1-of-2.jsonl").read_bytes().splitlines())
    assert failure["line"] == 3


def test_standard_input_is_divided_too(simulator: Simulator, tmp_path: Path) -> None:
    given = "".join(json.dumps(line(str(number))) + "\n" for number in range(1, 6))
    status, _, _ = run_process(tmp_path, "-", *against(simulator)[1:], "--shard", "1/2", given=given)
    assert (status, sorted(ids(tmp_path / "a.1-of-2.jsonl"))) == (0, ["1", "3", "5"])


def test_a_shard_without_lines_succeeds(simulator: Simulator, tmp_path: Path) -> None:
    write(tmp_path / "p.jsonl", [line("a")])
    status, out, _ = run(tmp_path, *against(simulator), "--shard", "3/4")
    assert (status, out.startswith("0 answered")) == (0, True)


def test_each_shard_keeps_to_its_part_of_the_rate(simulator: Simulator, tmp_path: Path) -> None:
    write(tmp_path / "p.jsonl", [line(str(number)) for number in range(1, 61)])
    status, out, err = run(tmp_path, *against(simulator), "--shard", "0/2", "--max-rps", "40")
    assert (status, "--max-rps 20 of 40" in err) == (0, True)
    took = float(out.split(" s ")[0].rpartition(" ")[2])
    assert took >= 0.45, "20 requests at once, and 10 at 20 per second"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--shard", "4/4"), "manystream batch: --shard 4/4: shards are numbered from 0, so the last of 4 is 3/4;"),
        (("--shard", "1/0"), "--shard 1/0: there must be at least 1 shard"),
        (("--shard", "0/0"), "--shard 0/0: there must be at least 1 shard"),
        (("--shard", "9/4"), "--shard 9/4: the number of a shard is between 0 and 3"),
        (("--shard=-1/2",), "--shard -1/2: a shard is written as two whole numbers, I/N, such as 0/4"),
        (("--shard", "-1/2"), "--shard"),
        (("--shard", "first"), "--shard first: a shard is written as"),
        (("--shard", ""), "--shard '': a shard is written as"),
    ],
)
def test_what_is_no_shard_is_one_line_and_status_2(
    words: tuple[str, ...],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path / "p.jsonl", [line("a")])
    monkeypatch.chdir(tmp_path)
    assert main(["batch", "p.jsonl", "-o", "a.jsonl", *words]) == 2
    assert complaint in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["p.jsonl"]


def test_a_shard_s_input_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a.0-of-2.jsonl", [line("a")])
    monkeypatch.chdir(tmp_path)
    assert main(["batch", "a.0-of-2.jsonl", "-o", "a.jsonl", "--shard", "0/2"]) == 2
    assert "-o a.0-of-2.jsonl is the input itself" in capsys.readouterr().err
