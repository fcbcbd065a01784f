"""A batch whose engine ends each call as a test says: its figures, its records, and what ends it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing

import manystream as ms
from manystream.batch import Batch, BatchBudget, BatchError, Counters, Journal, JournalError
from manystream.batch.lines import OneModel
from manystream.cost import Unpriced
from manystream.engine import Engine
from manystream.engine.call.completion import Completion
from manystream.engine.traffic.limits.host import AWAY
from manystream.providers.model.provider_error import ErrorCategory
from tests.support.batches import COST, USAGE, a_cent, completed, failed, line, provider, records


class ScriptedEngine:
    """An engine that ends the call of each line as `ends` says: by a completion, an exception, or not at all."""

    def __init__(self, ends: Callable[[str], object]) -> None:
        self.ends = ends
        self.asked: list[str] = []
        self.cancelled: list[str] = []
        self.running: dict[str, Callable[[Completion], None]] = {}

    def start_request(self, request: ms.Request, on_completion: Callable[[Completion], None]) -> object:
        (message,) = request.messages
        text = message.text
        self.asked.append(text)
        end = self.ends(text)
        if isinstance(end, BaseException):
            raise end
        if end is None:
            self.running[text] = on_completion
        else:
            trio.lowlevel.current_trio_token().run_sync_soon(on_completion, end)
        return SimpleNamespace(cancel=lambda: self.cancel(text))

    def start_stream(self, request: ms.Request, events: None, on_completion: Callable[[Completion], None]) -> object:
        self.asked.append("stream")
        return self.start_request(request, on_completion)

    def cancel(self, text: str) -> None:
        self.cancelled.append(text)
        if text in self.running:
            self.running.pop(text)(failed(ErrorCategory.CANCELLED, "cancelled"))


async def some(*lines: object) -> AsyncGenerator[list[tuple[int, bytes]], None]:
    for number, value in enumerate(lines, 1):
        yield [(number, value if isinstance(value, bytes) else json.dumps(value).encode())]


async def ran(folder: Path, engine: ScriptedEngine, *lines: object, **options: object) -> Batch:
    with Journal(folder / "a.jsonl") as journal:
        batch = Batch(cast("Engine", engine), journal, lambda named: "sim/m", **options)  # type: ignore[arg-type]
        await batch.run(some(*lines))
    return batch


def count_of(batch: Batch) -> dict[str, object]:
    plain = Counters()
    figures = {each.name: getattr(batch.counters, each.name) for each in fields(plain)}
    return {name: value for name, value in figures.items() if value != getattr(plain, name)}


async def test_the_figures_of_a_batch(tmp_path: Path) -> None:
    ends = {
        "good": completed(attempts=3), "bad": failed(), "worse": failed(),
        "late": replace(failed(ErrorCategory.TIMEOUT), response=ms.Response(usage=ms.Usage(5, 6))),
    }  # fmt: skip
    batch = await ran(
        tmp_path, ScriptedEngine(ends.__getitem__), *(line(text, text) for text in ends), b"{oh", {"id": "x"}
    )
    assert count_of(batch) == {
        "lines": 6, "answered": 1, "failed": 3, "invalid": 2, "retries": 8, "input_tokens": 15, "output_tokens": 31,
        "failures": {"server": 2, "timeout": 1},
    }  # fmt: skip
    assert [record["id"] for record in records(tmp_path / "a.jsonl")] == ["good"]
    found = {record["line"]: record["id"] for record in records(tmp_path / "a.errors.jsonl")}
    assert found == {2: "bad", 3: "worse", 4: "late", 5: None, 6: "x"}


@dataclass
class Reading:
    degrees: int


async def test_an_answer_that_its_type_refuses_is_a_failure(tmp_path: Path) -> None:
    good = ms.Response([ms.Text('{"degrees": 3}')], ms.FinishReason.STOP, parsed=Reading(3))
    bad = ms.Response([ms.Text('{"degrees": "x"}')], ms.FinishReason.STOP, usage=USAGE, parse_error="no integer")
    ends = {"good": completed(good), "bad": completed(bad)}
    options = {"response_schema": Reading}
    batch = await ran(tmp_path, ScriptedEngine(ends.__getitem__), *(line(text, text) for text in ends), options=options)
    assert (batch.counters.answered, batch.counters.failures) == (1, {"unknown": 1})
    (record,) = records(tmp_path / "a.jsonl")
    assert (record["id"], record["parsed"]) == ("good", {"degrees": 3})
    (failure,) = records(tmp_path / "a.errors.jsonl")
    error = cast("dict[str, object]", failure["error"])
    assert error["message"] == "the answer does not fit the response schema: no integer"


async def test_requests_are_streamed_only_on_request(tmp_path: Path) -> None:
    for stream, asked in ((False, ["a"]), (True, ["stream", "b"])):
        engine = ScriptedEngine(lambda text: completed())
        await ran(tmp_path, engine, line(asked[-1], asked[-1]), stream=stream)
        assert engine.asked == asked


async def test_at_most_a_hundred_calls_run_by_default(tmp_path: Path) -> None:
    engine = ScriptedEngine(lambda text: None)
    with Journal(tmp_path / "a.jsonl") as journal:
        batch = Batch(cast("Engine", engine), journal, OneModel("sim/m"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(batch.run, some(*(line(n, str(n)) for n in range(150))))
            await trio.testing.wait_all_tasks_blocked()
            assert (len(engine.asked), batch.counters.running, batch.counters.lines) == (100, 100, 101)
            engine.running.pop("5")(completed())
            await trio.testing.wait_all_tasks_blocked()
            assert (engine.asked[-1], batch.counters.running, batch.counters.answered) == ("100", 100, 1)
            batch.stop()
    assert (len(engine.cancelled), batch.counters.running, batch.counters.failed) == (100, 0, 0)
    assert [record["model"] for record in records(tmp_path / "a.jsonl")] == ["m-1"]


async def test_a_call_that_starts_after_a_stop_is_cancelled(tmp_path: Path) -> None:
    with Journal(tmp_path / "a.jsonl") as journal:
        engine = ScriptedEngine(lambda text: batch.stop())
        batch = Batch(cast("Engine", engine), journal, OneModel("sim/m"))
        await batch.run(some(line("a", "a"), line("b", "b")))
    assert (engine.asked, engine.cancelled, batch.counters.running) == (["a"], ["a"], 0)


async def test_a_call_cancelled_by_others_ends_the_batch(tmp_path: Path) -> None:
    ends = {"a": failed(ErrorCategory.CANCELLED, "closed"), "b": completed()}
    with pytest.raises(BatchError, match=r"^line 1 was not answered: closed$"):
        await ran(tmp_path, ScriptedEngine(ends.__getitem__), line("a", "a"))
    assert not (tmp_path / "a.errors.jsonl").exists()


KEY = {"http_status": 401, "category": ErrorCategory.AUTH}


async def test_a_refused_key_ends_a_batch_without_answers(tmp_path: Path) -> None:
    with pytest.raises(BatchError, match=r"^the key was refused: no$"):
        await ran(tmp_path, ScriptedEngine(lambda text: failed(**KEY)), line("a", "a"))  # type: ignore[arg-type]
    later = ScriptedEngine(lambda text: completed() if text == "a" else failed(**KEY))  # type: ignore[arg-type]
    assert (await ran(tmp_path, later, line("a", "a"), line("b", "b"), concurrency=1)).counters.failed == 1
    own = line("c", "c", extra_headers={"authorization": "x"})
    assert (await ran(tmp_path, later, own)).counters.failed == 1
    other = ScriptedEngine(lambda text: failed(ErrorCategory.AUTH, http_status=403))
    assert (await ran(tmp_path, other, line("d", "d"))).counters.failed == 1


@pytest.mark.parametrize(("lines", "headers", "ends"), [(9, {}, False), (10, {}, True), (20, {"x-a": "b"}, False)])
async def test_a_key_that_is_revoked_ends_a_batch(
    tmp_path: Path, lines: int, headers: dict[str, str], ends: bool
) -> None:
    engine = ScriptedEngine(lambda text: completed() if text == "a" else failed(**KEY))  # type: ignore[arg-type]
    given = [line("a", "a"), *(line(n, "q", extra_headers=headers or None) for n in range(lines + 50 * ends))]
    if ends:
        with pytest.raises(BatchError, match=r"^the key was refused: no$"):
            await ran(tmp_path, engine, *given, concurrency=1)
    else:
        assert (await ran(tmp_path, engine, *given, concurrency=1)).counters.failures == {"auth": lines}
    assert len(engine.asked) <= lines + 2


@pytest.mark.parametrize(("between", "lines", "ends"), [(10, 9, False), (10, 10, True), (5, 14, False), (5, 15, True)])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (failed(ErrorCategory.RATE_LIMIT, "no money", retryable=False), "the quota is exhausted: no money"),
        (failed(ErrorCategory.NETWORK, "gone", provider_code=AWAY), "the server takes no connection: gone"),
    ],
)
async def test_ten_lines_in_a_row_for_a_reason_that_lasts_end_a_batch(
    tmp_path: Path, between: int, lines: int, ends: bool, error: Completion, reason: str
) -> None:
    """An answer, on the line `between`, begins the count anew."""
    engine = ScriptedEngine(lambda text: completed() if text == "answer" else error)
    given = [line(n, "answer" if n == between else "q", model="m") for n in range(lines + (between < lines))]
    if ends:
        with pytest.raises(BatchError, match=f"^{reason}$"):
            await ran(tmp_path, engine, *given, concurrency=1)
    else:
        batch = await ran(tmp_path, engine, *given, concurrency=1)
        assert batch.counters.failures == {error.error_category: lines}


@pytest.mark.parametrize("members", [{"retryable": True}, {"retryable": False, "provider_code": "request_too_large"}])
async def test_other_refusals_do_not_end_a_batch(tmp_path: Path, members: dict[str, object]) -> None:
    engine = ScriptedEngine(lambda text: failed(ErrorCategory.RATE_LIMIT, **members))
    batch = await ran(tmp_path, engine, *(line(n, "q") for n in range(12)), concurrency=1)
    assert batch.counters.failures == {"rate_limit": 12}


async def test_a_line_that_cannot_be_started_is_invalid(tmp_path: Path) -> None:
    ends: dict[str, object] = {"a": ms.InvalidRequestError("top_p", "is odd"), "b": KeyError("b"), "c": completed()}
    batch = await ran(tmp_path, ScriptedEngine(ends.__getitem__), *(line(text, text) for text in ends))
    assert [record["error"] for record in records(tmp_path / "a.errors.jsonl")] == [
        {"category": "invalid_line", "message": "input line 1: top_p: is odd"},
        {"category": "invalid_line", "message": "input line 2: cannot be sent: KeyError('b')"},
    ]
    assert count_of(batch) == {
        "lines": 3, "answered": 1, "invalid": 2, "input_tokens": 10, "output_tokens": 25,
    }  # fmt: skip


async def test_a_call_whose_start_was_interrupted_is_ignored(tmp_path: Path) -> None:
    class Interrupted(ScriptedEngine):
        def start_request(self, request: ms.Request, on_completion: Callable[[Completion], None]) -> object:
            super().start_request(request, on_completion)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await ran(tmp_path, Interrupted(lambda text: completed()), line("a", "a"))
    await trio.testing.wait_all_tasks_blocked()
    assert records(tmp_path / "a.jsonl") == []


async def test_a_key_that_cannot_be_had_ends_a_batch(tmp_path: Path) -> None:
    with pytest.raises(BatchError, match=r"^api_key: none$"):
        await ran(tmp_path, ScriptedEngine(lambda text: ms.InvalidRequestError("api_key", "none")), line("a", "a"))
    with pytest.raises(BatchError, match=r"^line 1 could not be sent: "):
        await ran(tmp_path, ScriptedEngine(lambda text: ms.TooManyCallsError("full")), line("a", "a"))
    assert not (tmp_path / "a.errors.jsonl").exists()


# --- costs and budgets ---


async def test_the_cost_of_answers_and_failures_is_summed(tmp_path: Path) -> None:
    partial = replace(failed(), response=ms.Response(usage=ms.Usage(5, 6)))
    unknown = replace(failed(), response=ms.Response(usage=ms.Usage(5, None)))
    ends = {"a": completed(), "b": partial, "c": unknown, "d": failed(), "e": completed(), "f": completed()}
    found = iter((COST, COST, Unpriced("first"), Unpriced("second")))
    batch = await ran(tmp_path, ScriptedEngine(ends.__getitem__), *(line(text, text) for text in ends),
                      price=lambda request, response: next(found), concurrency=1)  # fmt: skip
    assert (batch.counters.cost, batch.counters.unpriced, batch.counters.unpriced_reason) == (
        {"USD": Decimal(1)}, 2, "first",
    )  # fmt: skip


async def test_lines_that_the_budget_refuses_are_not_recorded(tmp_path: Path) -> None:
    refused = failed(ErrorCategory.BUDGET, "too much", provider_code="budget_spent")
    ends: dict[str, object] = {"a": completed(cost=0.5), "b": refused, "c": failed(spent=0.25), "d": refused}
    budget = BatchBudget(2.0, a_cent, [provider()])
    budget.unrecorded = 0.125
    batch = await ran(tmp_path, ScriptedEngine(ends.__getitem__), *(line(text, text) for text in ends), budget=budget)
    assert count_of(batch) == {
        "lines": 4, "answered": 1, "failed": 1, "failures": {"server": 1}, "retries": 6, "input_tokens": 10,
        "output_tokens": 25, "budget": 2.0, "spent": 0.875, "unpaid": 2,
    }  # fmt: skip
    assert [record["spent_usd"] for record in records(tmp_path / "a.jsonl")] == [0.5]
    assert [record["spent_usd"] for record in records(tmp_path / "a.errors.jsonl")] == [0.25]
    again = BatchBudget(2.0, a_cent, [provider()])
    with Journal(tmp_path / "a.jsonl", budget=again):
        assert (again.spent_before, again.uncounted) == (0.75, 0)
    assert again.for_engine().usd is not None
    assert cast("Callable[[None], float]", again.for_engine().usd)(None) == 1.25
    assert again.of_line("c", 0.5) == 0.75
    assert again.of_line("a", 0.5) == 0.5


async def test_ten_unpaid_lines_in_a_row_end_the_intake(tmp_path: Path) -> None:
    refused = failed(ErrorCategory.BUDGET, "too much", provider_code="budget_spent")
    engine = ScriptedEngine(lambda text: completed() if text == "3" else refused)
    batch = await ran(tmp_path, engine, *(line(n, str(n)) for n in range(30)), concurrency=1,
                      budget=BatchBudget(1.0, a_cent, [provider()]))  # fmt: skip
    assert (batch.counters.unpaid, batch.counters.answered) == (14, 1)  # the next one has begun
    without = await ran(tmp_path, engine, line("another", "another"))
    assert without.counters.failures == {"budget": 1}, "it is not the batch's own"


async def test_a_batch_needs_functions(tmp_path: Path) -> None:
    with Journal(tmp_path / "a.jsonl") as journal:
        for options, where in (({"choose_model": "m"}, "choose_model"), ({"price": 3}, "price")):
            given = {"choose_model": OneModel("m"), **options}
            with pytest.raises(ms.InvalidRequestError, match=f"^{where}: "):
                Batch(cast("Engine", ScriptedEngine(print)), journal, **given)  # type: ignore[arg-type]
    assert issubclass(BatchError, ms.ManystreamError)
    assert issubclass(JournalError, RuntimeError)
