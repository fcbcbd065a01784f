"""What a reader opens who follows one refused and repeated call through the engine. The bounds may only fall."""

from __future__ import annotations

import pytest

from benchmarks.call_path import KINDS, count

pytestmark = pytest.mark.trio

MOST = {"plain": (16, 14, 90), "traffic": (27, 34, 218), "route with a budget": (31, 43, 368)}
"""Kind of call → the most files, classes, and switches between files. Wanted: 20, 14, 110; 27, 21, 220; 34, 28, 380."""


@pytest.mark.parametrize("kind", KINDS)
async def test_a_refused_call_runs_code_of_few_files(kind: str) -> None:
    found = await count(kind)
    figures = (len(found.files), len(found.classes), found.switches)
    assert all(figure <= most for figure, most in zip(figures, MOST[kind], strict=True)), figures
