"""A result as an HTML page."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.bench_runs import Runs, at

URL = "http://127.0.0.1:1/v1"


Bench: TypeAlias = "Callable[..., tuple[int, str, str]]"


def test_a_page_needs_matplotlib(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    status, _, err = bench(URL, "--html", str(tmp_path / "a.html"))
    assert (status, err) == (
        2,
        "manystream bench: --html: plots need the library matplotlib:"
        " pip install '.[plots]' in manystream's checkout\n",
    )  # fmt: skip


def test_a_search_as_json_and_as_a_page(bench: Bench, runs: Runs, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    runs.found = [at(1.0, 1.0), at(1.5, 1.0)]
    page = tmp_path / "a.html"
    words = ("--find", "--slo", "ttft=200ms", "--rate", "1..1.5", "--attain", "0.9", "--json", "--html", str(page))
    status, out, _ = bench(URL, *words)
    found = json.loads(out)
    assert (status, found["highest_rate"], found["certain"], found["attain"]) == (0, 1.5, True, 0.9)
    assert [(step["offered_rate"], step["keeps"]) for step in found["steps"]] == [(1.0, True), (1.5, True)]
    text = page.read_text("utf-8")
    assert (text.count("<svg"), text.count("missed the objective")) == (1, 0)
    runs.found = [at(1.0, 1.0), *(at(1.5, 0.0) for _ in range(20))]
    _, out, _ = bench(URL, *words[:-1], str(tmp_path / "b.html"))
    missed = [step for step in json.loads(out)["steps"] if not step["keeps"]]
    assert (tmp_path / "b.html").read_text("utf-8").count("missed the objective</span>") == len(missed) > 0
