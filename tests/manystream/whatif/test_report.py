"""The report of a what-if: its groups, and the same in any process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from manystream import whatif
from tests.manystream.whatif.day import TWO, limited, route

PROGRAM = """
import sys, manystream as ms
from manystream import whatif
from manystream.providers.json.json_values import dumps
def price(provider, model, usage): return usage.output_tokens * 1e-5
routes = [ms.Route("chat", ["openai/gpt-5", "openai-1/gpt-5"], balance="fastest", hedge=ms.Hedge(after=1.5))]
report = whatif.run(sys.argv[1], traffic=ms.Traffic(price=price, routes=routes), seed=3)
sys.stdout.buffer.write(dumps(report.to_json()))
"""


def test_a_report_is_the_same_in_any_process(tmp_path: Path) -> None:
    path = tmp_path / "day.jsonl"
    TWO.run(route("weighted"), path)
    pages = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(path)],
            env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert pages[0] == pages[1]
    assert json.loads(pages[0])["schema"] == "manystream.whatif/1"


def test_groups_add_up(day_file: Path) -> None:
    report = whatif.run(day_file, traffic=limited(100))
    assert report.by_tenant.keys() == {"a", "b"}
    for groups in (report.by_tenant, report.by_target, report.by_hour):
        assert sum(each.calls for each in groups.values()) == report.calls == 60
        assert sum(each.cost or 0.0 for each in groups.values()) == pytest.approx(report.cost)
    assert report.by_target.keys() == {"openai/gpt-5"}
