"""The comparison of two results: what differs by more than chance, and what cannot be compared."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from manystream.bench.work import WorkPlan, read_length
from tests.support.bench_results import figures, result, run, whole_run
from tests.support.bench_runs import Runs

URL = "http://127.0.0.1:1/v1"


Bench: TypeAlias = "Callable[..., tuple[int, str, str]]"


INVALID = run(result(figures({"ttft": [0.1]}, ok=5), cpu=9.9, stream=True))


# Comparison.


def test_two_results_are_compared(bench: Bench, runs: Runs, tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("a.json", "b.json")]
    slower = figures({"ttft": [0.2] * 10 + [0.3] * 10, "itl": [0.02] * 98 + [0.05] * 2}, ok=5, windows=10)
    for file, found in zip(files, (whole_run(), run(result(slower))), strict=True):
        runs.found = [found]
        bench(URL, "--save", file)
    status, out, _ = bench("compare", *files)
    assert status == 0
    heading, *lines = out.splitlines()
    assert heading == "figure      before     after   change       95 % interval  real"
    assert lines[0] == "TTFT p50  100.0 ms  200.0 ms  +100.0%  +100.0% to +100.0%  yes"
    assert lines[3].split() == ["ITL", "p50", "20.0", "ms", "20.0", "ms", "+0.0%", "+0.0%", "to", "+0.0%", "no"]
    rows = json.loads(bench("compare", *files, "--json")[1])
    found = {(row["figure"], row["percentile"]): row["real"] for row in rows["differences"]}
    names = ("p50", "p90", "p99")
    assert found == {("ttft", name): True for name in names} | {("itl", name): False for name in names}
    assert rows["valid"] is True
    assert rows["settings"] == ['slo: {"ttft":0.2}, null']
    assert lines[-1] == 'note: the results have another slo: {"ttft":0.2}, null'


def test_what_was_asked_otherwise_is_noted(bench: Bench, runs: Runs, tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for file, work in zip(files, (WorkPlan("m"), WorkPlan("m", input=read_length("normal:512,128"))), strict=True):
        runs.found = [run(result(figures({"ttft": [0.1]}, ok=5), work=work))]
        bench(URL, "--save", file)
    assert bench("compare", *files)[1].endswith('note: the results have another input: null, "normal:512,128"\n')


def test_an_invalid_result_is_compared_with_a_warning(bench: Bench, runs: Runs, tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for file, found in zip(files, (INVALID, whole_run()), strict=True):
        runs.found = [found]
        bench(URL, "--save", file)
    status, out, _ = bench("compare", *files)
    assert status == 3
    assert out.endswith(f"INVALID: {files[0]}: its client was the limit\n")
    assert "unknown: too few windows" in out


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "No such file or directory"),
        ("nonsense", ""),
        ("{}", "is no result of `manystream bench` of the schema manystream.bench/1"),
        ('{"schema": "manystream.bench/1", "ttft": {"histograms": ["x"]}}', "ttft: a histogram is no histogram"),
    ],
)
def test_other_files_cannot_be_compared(bench: Bench, tmp_path: Path, text: str | None, complaint: str) -> None:
    path = tmp_path / "a.json"
    if text is not None:
        path.write_text(text)
    status, out, err = bench("compare", str(path), str(path))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert complaint in err
    assert str(path) in err


def test_a_comparison_takes_two_files(bench: Bench) -> None:
    for files in ([], ["a"], ["a", "b", "c"]):
        status, _, err = bench("compare", *files)
        assert (status, "compare takes two results" in err) == (2, True)
