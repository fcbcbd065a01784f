"""Each promise in SECURITY.md names the test that proves it, and each of these tests exists."""

from __future__ import annotations

import re
from pathlib import Path

from tests.faults.test_rows import functions_of

PAGE = Path(__file__).resolve().parent.parent.parent / "SECURITY.md"
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def test_every_promise_names_a_test_that_exists() -> None:
    promised = PAGE.read_text("utf-8").partition("## What is promised")[2].partition("## What is not promised")[0]
    rows = [line for line in promised.splitlines() if line.startswith("| ") and not line.startswith("| promise |")]
    rows = [row for row in rows if not row.startswith("| it wants |")]
    assert len(rows) > 20
    for row in rows:
        named = NAMED.findall(row)
        assert named, row
        for file, test in named:
            assert test in functions_of(file), f"{file}::{test}"
