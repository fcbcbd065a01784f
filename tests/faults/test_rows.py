"""The table of faults is complete: each row names tests, all of these tests exist, and the page is current."""

import ast
import functools
from pathlib import Path

import pytest

from tests.faults.page import PAGE, page_text
from tests.faults.rows import COUNT, ROWS, Row

TESTS = Path(__file__).resolve().parent.parent


@functools.cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_fault_has_its_row() -> None:
    assert [row.number for row in ROWS] == list(range(1, COUNT + 1))


@pytest.mark.parametrize("row", ROWS, ids=[str(row.number) for row in ROWS])
def test_every_row_has_a_test(row: Row) -> None:
    assert row.tests
    for test in row.tests:
        file, _, function = test.partition("::")
        assert function in functions_of(file), test


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == page_text(), "run: python -m tests.faults.page"
