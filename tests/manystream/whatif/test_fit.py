"""Servers that are fitted to a recording: what a program says of them, and a limit that it breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

import manystream as ms
from manystream import whatif
from tests.manystream.whatif.day import lines, traffic, written


def test_what_a_program_says_of_a_server_counts(day_file: Path) -> None:
    slow = whatif.run(
        day_file, traffic=traffic(), servers={"openai/*": whatif.Server(requests_per_minute=30, bucket=1)}
    )
    fast = whatif.run(day_file, traffic=traffic(), servers={"*": whatif.Server(requests_per_minute=5_000)})
    keys = whatif.run(day_file, traffic=traffic(), keys={"openai": 4})
    assert slow.waited > whatif.run(day_file, traffic=traffic()).waited > keys.waited >= fast.waited
    with pytest.raises(ms.InvalidRequestError, match="servers: concurrent: must be a number above 0, not 0"):
        whatif.Server(concurrent=0)


def test_a_limit_that_the_recording_breaks_makes_it_invalid(day_file: Path, tmp_path: Path) -> None:
    changed = lines(day_file)
    for line in changed:
        line["response"]["headers"] = [["x-ratelimit-limit-requests", "20"], ["x-ratelimit-remaining-requests", "3"]]
    report = whatif.run(written(tmp_path / "x.jsonl", changed))
    assert not report.valid
    assert report.reasons[0].startswith("refusals: ")
    assert report.to_json()["valid"] is False
