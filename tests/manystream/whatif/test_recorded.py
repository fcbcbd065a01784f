"""The reader of recordings: its forms, what is unknown, and files that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import manystream as ms
from manystream import whatif
from tests.manystream.whatif.day import Day, lines, traffic, works, written

RATE = {"openai": ["requests-per-minute=200 bucket=1"]}


# --- what the recording does not show ---


def test_what_was_not_recorded_is_unknown(day_file: Path) -> None:
    routes = [ms.Route("chat", ["anthropic/claude-x"])]
    report = whatif.run(day_file, traffic=traffic(routes=routes), models={"openai/gpt-5": "chat"})
    assert not report.valid
    assert report.unknown == {"anthropic/claude-x": 60}
    assert report.reasons == ("unknown: 60 requests to anthropic/claude-x",)
    speed = whatif.Server(first_event=1.0, tokens_per_second=10.0, output_tokens=100)
    known = whatif.run(
        day_file, traffic=traffic(routes=routes), models={"openai/gpt-5": "chat"}, servers={"anthropic/*": speed}
    )
    assert known.valid
    assert known.latency.p50 == pytest.approx(11.0)


def test_the_first_form_is_read(day_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "content.jsonl"
    Day(works(60, 5.0), RATE).run(traffic(), path, content=True)
    members = ("started", "origin", "request", "response", "chunks", "end", "ended")
    first = [{"version": 1, **{name: line[name] for name in members}} for line in lines(path)]
    report = whatif.run(written(tmp_path / "first.jsonl", first), traffic=traffic())
    assert report.valid, report.reasons
    assert (report.calls, report.before.cost) == (len(first), None)
    assert "first form" in report.notes[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no call"),
        ("{", "line 1 is no line of a recording"),
        ("[]", "no JSON object of version 1 or 2"),
        ('{"custom_id": "a", "body": {}}', "no JSON object of version 1 or 2"),
        ('{"version": 2, "call": 1}', "provider, dialect or origin is missing"),
        ({"started": None}, "started: must be a number"),
        ({"ended": -1}, "ended: must be a number from 0 to 1e\\+06, not -1"),
        ({"asked": 1e18}, "asked: must be a number"),
        ({"bytes": "many"}, "bytes: must be a number from 0 to 1e\\+09, not 'many'"),
        ({"dialect": "telnet"}, "dialect: 'telnet' has no simulated server"),
        ({"end": "somehow"}, "end: must be one of whole, broken, left, unsent"),
        ({"usage": {"output_tokens": -3}}, "output_tokens: must be a number"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    text: str | dict[str, Any], why: str, day_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text if isinstance(text, str) else json.dumps({**lines(day_file)[0], **text}), "utf-8")
    with pytest.raises(whatif.RecordingError, match=why) as raised:
        whatif.run(path)
    assert str(path) in str(raised.value)


def test_numbers_beyond_all_bounds_are_refused(day_file: Path, tmp_path: Path) -> None:
    line = day_file.read_text("utf-8").splitlines()[0]
    for member in ("started", "ended", "asked", "bytes", "key"):
        broken = json.loads(line)
        broken[member] = "HERE"
        path = tmp_path / f"{member}.jsonl"
        path.write_text(json.dumps(broken).replace('"HERE"', "1e400"), "utf-8")
        with pytest.raises(whatif.RecordingError, match="line 1 is no line of a recording"):
            whatif.run(path)


def test_links_and_folders_are_read_or_named(day_file: Path, tmp_path: Path) -> None:
    link, loop = tmp_path / "link.jsonl", tmp_path / "loop.jsonl"
    link.symlink_to(day_file)
    loop.symlink_to(loop)
    assert whatif.run(link).valid
    for path in (loop, tmp_path, tmp_path / "missing.jsonl"):
        with pytest.raises(whatif.RecordingError, match=path.name):
            whatif.run(path)
