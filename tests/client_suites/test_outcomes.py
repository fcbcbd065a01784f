"""The comparison of a suite's outcomes over two transports, and the tables of what is left out."""

from __future__ import annotations

from tests.client_suites.outcomes import Outcome, compare
from tests.client_suites.plan import FILES, OTHER_FILES, Row, matches, reason_for

PASSED, FAILED = Outcome("passed", 1), Outcome("failed", 1, "AssertionError")
MOCKED, BROKEN = Outcome("passed", 0), Outcome("failed", 0, "AssertionError")


def test_each_test_is_sorted_by_its_two_outcomes() -> None:
    theirs = {"same": PASSED, "mock": MOCKED, "broken": BROKEN, "better": FAILED, "known": PASSED, "new": PASSED}
    ours = {"same": PASSED, "mock": MOCKED, "broken": BROKEN, "better": PASSED, "known": FAILED, "new": FAILED}
    found = compare(theirs, ours, (Row("known", "a reason"),))
    assert (found.same, found.without, found.only_theirs) == (["same"], ["mock"], ["better"])
    assert found.failing == {"broken": "AssertionError"}
    assert found.explained == {"known": "a reason"}
    assert found.differing == {"new": "passed over its own, failed over ours: AssertionError"}
    assert not found.complete


def test_a_row_without_a_difference_is_stale_unless_it_may_be() -> None:
    rows = (Row("gone", "a reason"), Row("sometimes", "a reason", always=False))
    found = compare({"same": PASSED}, {"same": PASSED}, rows)
    assert found.stale == ["gone"]
    assert not found.complete
    assert compare({"same": PASSED}, {"same": PASSED}, rows[1:]).complete


def test_a_test_that_bypasses_our_transport_is_a_difference() -> None:
    found = compare({"one": PASSED, "lost": PASSED}, {"one": MOCKED}, ())
    assert sorted(found.differing) == ["lost", "one"]
    assert not found.complete


def test_a_bracket_of_a_pattern_stands_for_itself() -> None:
    assert matches("test_get[asyncio]", "test_get[*")
    assert not matches("test_geta", "test_get[a]")
    assert not [name for name in FILES if reason_for(name, OTHER_FILES) is not None]
