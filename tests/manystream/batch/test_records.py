"""The record of a line: of its answer, or of its failure."""

from __future__ import annotations

from dataclasses import fields, replace

import manystream as ms
from manystream.batch import Counters, Item
from manystream.batch.records import answer_record, failure_record, target_of
from manystream.cost import Unpriced
from manystream.engine.call.completion import AttemptRecord, Timings
from manystream.providers.model.provider_error import ErrorCategory
from tests.support.batches import COST, USAGE, completed, failed

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
