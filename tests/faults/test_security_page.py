"""Every promise on the page of promises names tests, and each of these tests exists."""

import re
from pathlib import Path

from tests.faults.test_rows import functions_of

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "guide" / "promises.md"
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def test_every_promise_names_a_test_that_exists() -> None:
    text = PAGE.read_text("utf-8")
    promised = text.partition("## Promises and their tests")[2].partition("## What is not promised")[0]
    rows = [line for line in promised.splitlines() if line.startswith("| ") and not line.startswith("| promise |")]
    rows = [row for row in rows if not row.startswith("| goal |")]
    assert len(rows) > 20
    for row in rows:
        named = NAMED.findall(row)
        assert named, row
        for file, test in named:
            assert test in functions_of(file), f"{file}::{test}"
