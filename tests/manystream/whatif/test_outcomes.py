"""What calls had, and what it cost."""

from __future__ import annotations

from pathlib import Path

import pytest

import manystream as ms
from manystream import whatif
from tests.manystream.whatif.day import lines, traffic, written


def test_list_prices_are_those_of_the_recorded_address(day_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("genai_prices")
    from manystream.cost import price as list_price

    changed = [{**line, "origin": "https://api.openai.com"} for line in lines(day_file)]
    report = whatif.run(written(tmp_path / "x.jsonl", changed), traffic=ms.Traffic(price=list_price))
    assert report.valid, report.reasons
    assert report.cost == report.before.cost
    assert (report.cost or 0) > 0


def test_failures_come_again_at_their_place(day_file: Path, tmp_path: Path) -> None:
    changed = [line for line in lines(day_file) if line["end"] == "whole" and line["response"]["status"] == 200]
    changed[0] |= {"response": {"at": 0.2, "status": 400, "headers": []}, "usage": None, "ended": 0.2}
    changed[1] |= {"end": "broken", "usage": None}
    changed[2] |= {"end": "left", "usage": None}
    changed[3] |= {"end": "unsent", "request": None, "response": None, "usage": None, "chunks": []}
    changed[4] |= {"end": "broken", "usage": None, "response": None, "chunks": [], "ended": 0.3}
    report = whatif.run(written(tmp_path / "x.jsonl", changed), traffic=traffic(), retry=ms.Retry(max_attempts=1))
    failures = report.before.failures
    assert failures == {"cancelled": 1, "invalid_arg": 1, "network": 2, "unsent": 1}
    assert report.failures == {"cancelled": 1, "invalid_arg": 1, "network": 2}
