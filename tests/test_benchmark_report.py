"""The page of the benchmarks' results: a section that is measured again replaces its old one, and no other."""

import json
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.answers import Answer, Series

FIRST, SECOND, THIRD = "Live streams, p99 ≤ 50 ms (chat)", "Memory", "Start of a call"


def answer(question: str, value: float) -> Answer:
    found = Answer(question, series=[Series(f"{question} over streams", "manystream", [(1.0, value)])])
    found.add("manystream", value, "ms")
    return found


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(report, "RESULTS", tmp_path / "RESULTS.md")
    monkeypatch.setattr(report, "PLOTS", tmp_path)
    monkeypatch.setattr(report, "SERIES", tmp_path / "series.json")
    monkeypatch.setattr(report, "versions", lambda python: {})
    monkeypatch.setattr(report.subprocess, "run", lambda *arguments, **options: None)
    report.write([answer(FIRST, 1.0), answer(SECOND, 2.0)], "python", quick=False)
    return tmp_path


def plotted(folder: Path) -> dict[str, float]:
    return {line["plot"]: line["points"][0][1] for line in json.loads((folder / "series.json").read_text())}


@pytest.mark.parametrize("again", [FIRST, SECOND])
def test_a_section_measured_again_replaces_its_old_one(folder: Path, again: str) -> None:
    report.rewrite([answer(again, 7.5)], "python")
    text = (folder / "RESULTS.md").read_text()
    other, value = (SECOND, "2 ms") if again == FIRST else (FIRST, "1 ms")
    assert text.index(f"## {FIRST}\n") < text.index(f"## {SECOND}\n")
    sections = {part.partition("\n")[0]: part for part in text.split("\n## ")[1:]}
    assert "| manystream | 7.5 ms |" in sections[again]
    assert "Measured again by itself on" in sections[again]
    assert f"| manystream | {value} |" in sections[other]
    assert "again" not in sections[other]
    assert plotted(folder) == {f"{again} over streams": 7.5, f"{other} over streams": float(value[0])}


def test_a_new_section_is_added_at_the_end(folder: Path) -> None:
    report.rewrite([answer(THIRD, 3.0)], "python")
    report.rewrite([answer(THIRD, 4.0)], "python")
    text = (folder / "RESULTS.md").read_text()
    assert [part.partition("\n")[0] for part in text.split("\n## ")[1:]] == [FIRST, SECOND, THIRD]
    assert "| manystream | 4 ms |" in text


def test_a_question_without_a_figure_keeps_its_section(folder: Path) -> None:
    before = (folder / "RESULTS.md").read_text()
    report.rewrite([Answer(FIRST, notes=["not measured: the client failed"])], "python")
    assert (folder / "RESULTS.md").read_text().rstrip() == before.rstrip()


def test_a_whole_run_forgets_the_plots_of_earlier_ones(folder: Path) -> None:
    report.write([answer(THIRD, 3.0)], "python", quick=True)
    assert plotted(folder) == {f"{THIRD} over streams": 3.0}
