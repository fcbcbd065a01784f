"""The answers of the benchmarks, kept in a file, and the pages that show them."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import live_streams, report
from benchmarks.answers import Answer, Row, Series

FIRST, SECOND, THIRD = "live_streams", "memory", "start"


def answer(question: str, value: float, *, met: bool | None = None) -> Answer:
    found = Answer(f"What of {question}?", series=[Series(f"{question} over streams", "manystream", [(1.0, value)])])
    found.add("manystream", value, "ms", ratio=0.25, against="a peer", target="≤ 4 ms", met=met)
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, file in (("RAW", "results.json"), ("RESULTS", "RESULTS.md"), ("SERIES", "series.json"), ("PLOTS", "")):
        monkeypatch.setattr(report, name, tmp_path / file)
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(report, "PAGES", ("page.md",))
    monkeypatch.setattr(report, "versions", lambda python: {})
    monkeypatch.setattr(report.subprocess, "run", lambda *arguments, **options: None)
    (tmp_path / "page.md").write_text(
        "It takes <!--figure memory: manystream-->9<!----> ms, a peer\n"
        "<!--figure memory: manystream | inverse-->9<!----> times that."
    )
    report.write({FIRST: answer(FIRST, 1.0), SECOND: answer(SECOND, 2.0)}, "python", whole=True)
    return tmp_path


def shown(folder: Path) -> dict[str, str]:
    text = (folder / "RESULTS.md").read_text()
    return dict(re.findall(r"^\| \*\*What of (\w+)\?\*\* .*? \| manystream \| (.+?) ms \|", text, re.MULTILINE))


def plotted(folder: Path) -> dict[str, float]:
    return {line["plot"]: line["points"][0][1] for line in json.loads((folder / "series.json").read_text())}


@pytest.mark.parametrize("again", [FIRST, SECOND])
def test_a_question_asked_again_replaces_its_answer(folder: Path, again: str) -> None:
    report.write({again: answer(again, 7.5)}, "python")
    other, value = (SECOND, "2") if again == FIRST else (FIRST, "1")
    assert shown(folder) == {again: "7.5", other: value}
    assert list(shown(folder)) == [FIRST, SECOND]
    assert plotted(folder) == {f"{again} over streams": 7.5, f"{other} over streams": float(value)}


def test_a_new_question_comes_last(folder: Path) -> None:
    for value in (3.0, 4.0):
        report.write({THIRD: answer(THIRD, value)}, "python")
    assert list(shown(folder).items())[2:] == [(THIRD, "4")]


def test_a_question_without_a_figure_keeps_its_answer(folder: Path) -> None:
    report.write({FIRST: Answer("What?", notes=["not measured: the client failed"])}, "python")
    assert shown(folder)[FIRST] == "1"


def test_a_whole_run_forgets_earlier_ones(folder: Path) -> None:
    (folder / "page.md").write_text("no figure")
    report.write({THIRD: answer(THIRD, 3.0)}, "python", whole=True)
    assert shown(folder) == {THIRD: "3"}
    assert plotted(folder) == {f"{THIRD} over streams": 3.0}


def test_a_missed_target_has_its_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(report.REASONS, (FIRST, "manystream"), "the interpreter")
    missed = {name: answer(name, 5.0, met=False) for name in (FIRST, SECOND)}
    report.write(missed, "python")
    verdicts = re.findall(r"MISSED.*(?= \|)", (folder / "RESULTS.md").read_text())
    assert verdicts == ["MISSED: the interpreter", "MISSED: not explained"]


@pytest.mark.parametrize(
    ("floor", "notes", "expected"),
    [
        (900.0, [], "it asks for 2,000 streams; the bare loop carried 900 in chat"),
        (2500.0, [], "it asks for 0.80 of the streams of the bare loop, which has no dialect"),
        (0.0, [], ""),
        (2100.0, ["Manystream, chat: above 900 the load source was late, not the client"], "the load source was late"),
        (2500.0, ["Manystream, gemini: above 900 the load source was late, not the client"], "it asks for 0.80"),
    ],
)
def test_the_floor_and_the_source_explain_a_limit(floor: float, notes: list[str], expected: str) -> None:
    rows = [Row("chat, openai SDK", 50.0, "streams", 18.0), Row("chat, bare epoll + orjson (floor)", floor, "streams")]
    found = live_streams.reason(rows[0], rows, notes)
    assert found.startswith(expected)
    assert bool(found) == bool(expected)


def test_pages_get_the_figures(folder: Path) -> None:
    page = folder / "page.md"
    assert re.sub("<!--.*?-->", "", page.read_text()) == "It takes 2 ms, a peer\n4 times that."
    report.write({SECOND: answer(SECOND, 2.5)}, "python")
    assert ">2.5<" in page.read_text()
    with pytest.raises(KeyError):
        report.with_figures(
            "<!--figure memory: no such row-->1<!---->", json.loads((folder / "results.json").read_text())
        )


SPEED = re.compile(r"\d[\d.,]* ?(?:µs|×|times\b|streams (?:of|per)|live streams|short calls|(?:ms|s|seconds) of CPU)")
CODE = re.compile(r"```.*?```|^    .*?$|`[^`]*`", re.DOTALL | re.MULTILINE)
"""What is no prose of a page: its code."""


def test_the_pages_show_the_results() -> None:
    results = json.loads(report.RAW.read_text())
    assert report.RESULTS.read_text() == report.markdown(results)
    assert len(report.RESULTS.read_text().splitlines()) <= 150
    for name in report.PAGES:
        text = (report.ROOT / name).read_text()
        assert report.FIGURE.search(text), name
        assert report.with_figures(text, results) == text, f"{name}: run `make figures`"


@pytest.mark.parametrize("folder", ["README.md", "docs"])
def test_no_page_shows_a_speed_that_is_not_in_the_results(folder: str) -> None:
    """Tables count, too. The pages of the design say what was tried, beside the results that they name."""
    path = report.ROOT / folder
    pages = [path] if path.is_file() else [page for page in path.rglob("*.md") if page.parent.name != "design"]
    found = {page.name: SPEED.findall(CODE.sub("", report.FIGURE.sub("", page.read_text()))) for page in pages}
    assert not {name: figures for name, figures in found.items() if figures}
    marked = {str(page.relative_to(report.ROOT)) for page in pages if report.FIGURE.search(page.read_text())}
    assert marked <= set(report.PAGES), "the report writes the figures of these pages"
