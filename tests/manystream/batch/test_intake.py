"""What the intake of a batch does with each line: it is sent, skipped, refused or priced."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import cast

import manystream as ms
from manystream.batch import BatchBudget, Counters, LineError, Shard
from manystream.batch.intake import Intake
from tests.support.batches import a_cent, provider


def selected(intake: Intake, *lines: tuple[int, object]) -> list[object]:
    found: list[object] = []
    for number, value in lines:
        try:
            selected_line = intake.select(number, value if isinstance(value, bytes) else json.dumps(value).encode())
        except LineError as error:
            found.append((error.id, str(error)))
        else:
            found.append(selected_line and (selected_line.number, selected_line.id, selected_line.size))
    return found


def test_lines_with_an_answer_or_a_failure_are_skipped() -> None:
    for retry, again in ((False, None), (True, (3, "f", 11))):
        counters = Counters()
        intake = Intake(counters, "p.jsonl", {"a", 7}, {"f"}, retry_failed=retry)
        assert selected(intake, (1, {"id": "a"}), (2, {"id": 7}), (3, {"id": "f"}), (4, {"id": "n"})) == [
            None, None, again, (4, "n", 11),
        ]  # fmt: skip
        assert (counters.lines, counters.answered_before, counters.failed_before) == (4, 2, 0 if retry else 1)
    assert selected(Intake(Counters(), "", set(), {"f"}), (1, {"id": "f"})) == [None]


def test_an_id_is_used_by_one_line_only_of_any_shard() -> None:
    counters = Counters()
    intake = Intake(counters, "p.jsonl", set(), set(), shard=Shard(1, 2))
    lines = ((1, {"id": "a"}), (2, {"id": "b"}), (3, {"id": "b"}), (4, b"{oh"), (5, {"id": "a"}), (7, {"id": "c"}))
    assert selected(intake, *lines) == [
        (1, "a", 11), None, ("b", "id: 'b' is used twice, first on line 2"), None,
        ("a", "id: 'a' is used twice, first on line 1"), (7, "c", 11),
    ]  # fmt: skip
    assert counters.lines == 4


def test_the_record_of_a_refused_line() -> None:
    intake = Intake(Counters(), "p.jsonl", set(), set())
    assert intake.refusal(3, "a", "wrong") == {
        "id": "a", "line": 3, "error": {"category": "invalid_line", "message": "p.jsonl line 3: wrong"},
    }  # fmt: skip
    error = intake.refusal(3, None, "x" * 3000)["error"]
    assert isinstance(error, dict)
    assert error["message"] == "p.jsonl line 3: " + "x" * 1984


# --- costs of earlier runs ---


def test_answers_of_earlier_runs_have_the_cost_that_is_known() -> None:
    budget = BatchBudget(5.0, a_cent, [provider()])
    usage = {"input_tokens": 1, "output_tokens": 2, "thinking_tokens": 3, "cached_tokens": 4, "cache_write_tokens": 5}
    answers: list[tuple[dict[str, object], float, int]] = [
        ({"spent_usd": 0.5, "cost": {"currency": "USD", "total": 9.0}}, 0.5, 0),
        ({"spent_usd": 0}, 0.5, 0),
        ({"cost": {"currency": "USD", "total": 2}}, 2.5, 0),
        ({"cost": {"currency": "EUR", "total": 2}}, 2.5, 1),
        ({"provider": "sim", "model": "m", "usage": usage}, 54323.5, 1),
        ({"provider": "other", "model": "m", "usage": usage}, 54323.5, 2),
        ({"provider": "sim", "usage": usage}, 54323.5, 3),
        ({"provider": "sim", "model": "m", "usage": {"input_tokens": 1}}, 54323.5, 4),
        ({"provider": "sim", "model": "m", "usage": {"output_tokens": 1}}, 54323.5, 5),
        ({"provider": "sim", "model": "free", "usage": usage}, 54323.5, 6),
        ({"spent_usd": -1}, 54323.5, 7),
        ({"spent_usd": True}, 54323.5, 8),
        ({"spent_usd": 1e300}, 54323.5, 9),
        ({"cost": {"currency": "USD", "total": "2"}}, 54323.5, 10),
    ]
    for record, spent, uncounted in answers:
        budget.read_answer(record)  # type: ignore[arg-type]
        assert (budget.spent_before, budget.uncounted) == (spent, uncounted), record
    assert cast("Callable[[None], float]", budget.for_engine().usd)(None) == 0
    assert (budget.usd, budget.price, budget.unpaid_in_a_row, budget.unrecorded) == (5.0, a_cent, 10, 0)


def test_a_failure_replaces_the_lines_earlier_failure() -> None:
    budget = BatchBudget(5.0, a_cent, [])
    for record in ({"spent_usd": 0.5}, {"spent_usd": 0.75}, {}, {"spent_usd": 0}):
        budget.read_failure("a", cast("dict[str, ms.JSON]", record))
    budget.read_failure(7, {"spent_usd": 0.25})
    assert (budget.spent_before, budget.of_line("a", 1), budget.of_line(7, 1), budget.of_line("b", 1)) == (
        1.0, 1.75, 1.25, 1,
    )  # fmt: skip
