"""What a batch records and counts, answers, failures, refused lines and the costs of earlier runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import cast

import manystream as ms
from manystream.batch import BatchBudget, Counters, Item, LineError, Shard
from manystream.batch.intake import Intake
from manystream.batch.lines import ModelChoice, OneModel
from manystream.batch.records import answer_record, failure_record, target_of
from manystream.cost import Unpriced
from manystream.engine.call.completion import AttemptRecord, Timings
from manystream.providers.model.provider_error import ErrorCategory
from tests.support.batches import COST, USAGE, a_cent, completed, failed, provider

ITEM = Item(7, "q7", ms.Request("sim/m", [ms.Message.user("hello")]), 90)


# --- records ---


def test_the_record_of_an_answer_with_everything() -> None:
    response = ms.Response(
        [ms.Thinking("hm"), ms.Text("y"), ms.Text("es"), ms.ToolCall("c", "f", '{"a":1}')], ms.FinishReason.TOOL_USE,
        usage=USAGE, model="m-1", refusal="I would rather not", parsed={"x": 1}, warnings=["w"],
    )  # fmt: skip
    item = replace(ITEM, request=replace(ITEM.request, response_schema={"type": "object"}))
    attempts = (AttemptRecord("one/m", 0, 1, "server"), AttemptRecord("two/n", 1, 2, "ok"))
    assert answer_record(item, completed(response, attempt_records=attempts), "sim", COST, 0.75) == {
        "id": "q7",
        "provider": "two",
        "model": "m-1",
        "text": "yes",
        "thinking": "hm",
        "tool_calls": [{"id": "c", "name": "f", "arguments": '{"a":1}', "complete": True}],
        "finish_reason": "tool_use",
        "usage": {
            "input_tokens": 10,
            "output_tokens": 20,
            "thinking_tokens": 5,
            "cached_tokens": 4,
            "cache_write_tokens": 3,
            "total_tokens": 35,
        },
        "error": None,
        "attempts": 1,
        "seconds": 1.235,
        "request_id": "r",
        "cost": {"currency": "USD", "total": 0.5},
        "spent_usd": 0.75,
        "parsed": {"x": 1},
        "refusal": "I would rather not",
        "warnings": ["w"],
    }


def test_the_record_of_an_answer_with_little() -> None:
    record = answer_record(ITEM, completed(ms.Response(), timings=Timings(), request_id=None), None)
    empty = dict.fromkeys(
        ("input_tokens", "output_tokens", "thinking_tokens", "cached_tokens", "cache_write_tokens", "total_tokens")
    )
    assert record == {
        "id": "q7", "provider": None, "model": "sim/m", "text": "", "thinking": None, "tool_calls": [],
        "finish_reason": "unknown", "usage": empty, "error": None, "attempts": 1, "seconds": None, "request_id": None,
    }  # fmt: skip
    assert answer_record(ITEM, completed(ms.Response()), "sim", Unpriced("none"), 0.0)["provider"] == "sim"
    without_price = answer_record(ITEM, completed(ms.Response()), "sim", Unpriced("none"), 0.0)
    assert (without_price["cost"], without_price["spent_usd"]) == (None, 0)


def test_the_model_of_an_answer_that_names_none_is_its_target() -> None:
    answered = completed(ms.Response(), attempt_records=(AttemptRecord("two/n", 0, 1, "ok"),))
    assert (target_of(answered), answer_record(ITEM, answered, None)["model"]) == ("two/n", "two/n")
    assert target_of(completed(attempt_records=(AttemptRecord("two/n", 0, 1, "server"),))) == ""


def test_the_record_of_a_failure() -> None:
    completion = failed(ErrorCategory.RATE_LIMIT, "x" * 2001, http_status=429, provider_code="slow", retryable=True)
    assert completion.error is not None
    record = failure_record(ITEM, completion, completion.error)
    assert record == {
        "id": "q7", "line": 7, "error": {"category": "rate_limit", "message": "x" * 2000, "http_status": 429,
        "provider_code": "slow", "retryable": True}, "text": None, "attempts": 3, "seconds": None, "request_id": None,
    }  # fmt: skip
    partial = replace(completion, response=ms.Response([ms.Text("y")]), request_id="r", timings=Timings(finished=2))
    assert completion.error is not None
    assert failure_record(ITEM, partial, completion.error, 0.25) == {
        **record, "text": "y", "seconds": 2, "request_id": "r", "spent_usd": 0.25,
    }  # fmt: skip
    assert "spent_usd" not in failure_record(ITEM, partial, completion.error, 0.0)


def test_the_figures_of_a_run_begin_with_nothing() -> None:
    counters = Counters()
    assert {each.name: getattr(counters, each.name) for each in fields(counters)} == {
        "lines": 0, "running": 0, "answered": 0, "cached": 0, "failed": 0, "invalid": 0,
        "answered_before": 0, "failed_before": 0,
        "retries": 0, "input_tokens": 0, "output_tokens": 0, "failures": {}, "cost": {}, "unpriced": 0,
        "unpriced_reason": "", "waiting": 0, "away": 0.0, "budget": None, "spent": 0.0, "unpaid": 0, "lost": 0,
        "lost_usd": 0.0, "asked_again": 0, "late": 0, "ways": {}, "submitted": 0, "submissions": 0, "missed": 0.0,
        "notes": [],
    }  # fmt: skip
    assert counters.ended == 0
    assert Counters(answered=1, failed=10, invalid=100, answered_before=1000, failed_before=10000).ended == 11111


# --- models and lines ---


def test_the_model_of_a_line() -> None:
    rules = (
        ModelChoice("p"), ModelChoice("p", "all"), ModelChoice("p", default="else"), ModelChoice("p", "all", "else"),
    )  # fmt: skip
    assert [(rule("own"), rule(None)) for rule in rules] == [
        ("p/own", None), ("p/all", "p/all"), ("p/own", "p/else"), ("p/all", "p/all"),
    ]  # fmt: skip
    assert [OneModel("route")(named) for named in ("own", None)] == ["route", "route"]


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
