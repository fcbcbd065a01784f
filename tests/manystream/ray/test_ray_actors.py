"""The actors of a data set with a fake in Ray's place: the journal, the keeper of rates, and how they are started."""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import manystream as ms
from manystream.batch import JournalError
from manystream.engine.traffic.limits.leases import Lease, LeaseNumber, LeaseRequest
from manystream.providers.errors import InvalidRequestError
from manystream.ray import AskError, ray_rates, share_rates
from manystream.ray.exchange import Answer
from manystream.ray.ray_answers import AnswerActor, RayJournal, compute_strategy, first_line, start_here, start_journal
from manystream.ray.ray_rates import RateActor, RayRateLink
from tests.manystream.ray import fake_ray
from tests.manystream.ray.fake_ray import FakeActor, FakeRay

HERE = {"node": "this-node", "soft": False}
ANSWER = Answer("a", b'{"id": "a", "text": "yes"}', failed=False)
FAILURE = Answer("b", b'{"id": "b", "error": {}}', failed=True)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    return fake_ray.install(monkeypatch)


@pytest.fixture
def at_exit(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Return what is called when the process ends."""
    registered: list[Callable[[], None]] = []
    monkeypatch.setattr(atexit, "register", registered.append)
    return registered


def test_the_journal_s_actor_keeps_answers(tmp_path: Path, at_exit: list[Callable[[], None]]) -> None:
    path = str(tmp_path / "a.jsonl")
    actor = AnswerActor(path, False)
    assert (actor.failure(), actor.record([ANSWER, FAILURE])) == ("", {})
    assert actor.lookup(["a", "b", "c"]) == {"a": ANSWER.record, "b": FAILURE.record}
    (close,) = at_exit
    close()
    again = AnswerActor(path, True)
    assert again.lookup(["a", "b"]) == {"a": ANSWER.record}, "failures are asked again"
    at_exit[1]()


def test_an_actor_whose_files_cannot_be_used_says_why(tmp_path: Path, at_exit: list[Callable[[], None]]) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"id": "a", "messages": []}\n', "utf-8")
    actor = AnswerActor(str(path), False)
    assert "was not written by a batch" in actor.failure()
    for call in (actor.lookup, actor.record):
        with pytest.raises(JournalError) as caught:
            call([])
        assert str(caught.value) == actor.failure()
    assert at_exit == []


def journal_of(answer: object) -> tuple[RayJournal, FakeActor]:
    actor = FakeActor(AnswerActor, {}, ())
    actor.answer = lambda method, arguments: answer
    return RayJournal("a.jsonl", actor), actor


def test_a_journal_sends_lists_and_waits_for_the_reply(ray: FakeRay) -> None:
    journal, actor = journal_of({"a": b"{}"})
    assert journal.lookup(("a", 3)) == {"a": b"{}"}
    assert journal.record((ANSWER,)) == {"a": b"{}"}
    assert actor.calls == [("lookup", (["a", 3],)), ("record", ([ANSWER],))]
    assert ray.log == [("get", None)] * 2, "it waits as long as it takes"
    assert repr(journal) == "<RayJournal a.jsonl>"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (fake_ray.RayTaskError(OSError(28, "No space left")), "cannot write a.jsonl: No space left"),
        (fake_ray.RayTaskError(JournalError("it is not open")), "cannot write a.jsonl: it is not open"),
        (fake_ray.ActorDiedError("It died.\nmore"), "the journal a.jsonl cannot be reached: It died."),
    ],
)
def test_a_journal_that_fails_says_why(ray: FakeRay, error: Exception, message: str) -> None:
    journal, _ = journal_of(error)
    with pytest.raises(AskError) as caught:
        journal.record([ANSWER])
    assert str(caught.value) == message


def test_a_journal_is_started_on_this_node_and_again(ray: FakeRay) -> None:
    ray.answer = lambda method, arguments: ""
    journal = start_journal("a.jsonl", retry_failed=True)
    (actor,) = ray.actors
    options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": HERE}
    assert (actor.of, actor.options, actor.arguments) == (AnswerActor, options, ("a.jsonl", True))
    assert actor.calls == [("failure", ())]
    assert ray.log == [("init", {}), ("get", 70.0)]
    assert journal.path == "a.jsonl"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("a.jsonl: another batch is writing", "a.jsonl: another batch is writing"),
        (fake_ray.RayError(""), "the journal a.jsonl cannot be opened: RayError"),
    ],
)
def test_a_journal_that_cannot_be_opened_says_why(ray: FakeRay, answer: object, message: str) -> None:
    ray.answer = lambda method, arguments: answer
    with pytest.raises(AskError) as caught:
        start_journal("a.jsonl", retry_failed=False)
    assert str(caught.value) == message


def test_ray_is_connected_only_if_the_program_has_not(ray: FakeRay) -> None:
    ray.initialized = True
    start_here(AnswerActor, {"num_cpus": 0}, 1, 2)
    assert (ray.log, ray.actors[0].arguments) == ([], (1, 2))


def test_an_actor_of_a_data_set_has_several_calls(ray: FakeRay) -> None:
    assert compute_strategy(4, 16) == {
        "size": 4, "max_concurrent_calls_per_actor": 16, "max_tasks_in_flight_per_actor": 16,
        "enable_true_multi_threading": True,
    }  # fmt: skip


def test_a_missing_ray_or_ray_data_is_named(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(AskError, match=r"^Ray Data is not installed \(.+\): pip install 'manystream\[ray\]'$"):
        compute_strategy(1, 1)
    monkeypatch.setitem(sys.modules, "ray", None)
    for call in (lambda: compute_strategy(1, 1), lambda: start_here(AnswerActor, {})):
        with pytest.raises(AskError, match=r"^Ray is not installed \(.+\): pip install 'manystream\[ray\]'$"):
            call()


@pytest.mark.parametrize(
    ("error", "line"),
    [(ValueError("one\ntwo"), "one"), (ValueError("\n one\ntwo"), "one"), (ValueError(" \n"), "ValueError")],
)
def test_the_first_line_of_an_error(error: Exception, line: str) -> None:
    assert first_line(error) == line


# --- shared rates ---

LIMITS = {"*": ms.RateLimit(requests_per_second=5)}
REQUEST = LeaseRequest("h", 3.0, LeaseNumber(0, 0), 0.0, 5.0)


def test_shared_rates_are_kept_by_an_actor_on_this_node(ray: FakeRay) -> None:
    ray.answer = lambda method, arguments: "ready"
    shared = share_rates(LIMITS)
    (actor,) = ray.actors
    options = {
        "num_cpus": 0, "max_restarts": -1, "max_task_retries": 0, "enable_task_events": False,
        "scheduling_strategy": HERE,
    }  # fmt: skip
    assert (actor.of, actor.options, actor.arguments) == (RateActor, options, (LIMITS,))
    assert actor.calls == [("ready", ())]
    assert ray.log == [("init", {}), ("get", 60.0)]
    assert (shared.limits, shared.link._actor) == (LIMITS, actor)  # type: ignore[attr-defined]


def test_a_keeper_that_does_not_start_is_reported(ray: FakeRay) -> None:
    ray.answer = lambda method, arguments: fake_ray.RayError("No node has room.\nmore")
    with pytest.raises(AskError) as caught:
        share_rates(LIMITS)
    assert str(caught.value) == "the keeper of the shared rate limits did not start: No node has room."


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (5, "rates['sim']: must be a RateLimit"),
        (ms.RateLimit(concurrent=3),
            "rates['sim'].concurrent: cannot be shared: give each engine its part in its own `traffic`"),
    ],
)  # fmt: skip
def test_a_limit_that_cannot_be_shared_is_named(ray: FakeRay, limit: object, message: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        share_rates({"sim": limit})  # type: ignore[dict-item]
    assert (str(caught.value), ray.actors) == (message, [])


def test_an_engine_asks_the_keeper_for_at_most_a_second(ray: FakeRay) -> None:
    lease = Lease(LeaseNumber(1, 1), 3.0, 5.0)
    actor = FakeActor(RateActor, {}, ())
    actor.answer = lambda method, arguments: (lease,)
    link = RayRateLink(actor)
    assert link.renew([REQUEST]) == (lease,)
    assert (actor.calls, ray.log) == ([("renew", ([REQUEST],))], [("get", 1.0)])
    actor.answer = lambda method, arguments: fake_ray.ActorUnavailableError("it starts again")
    assert link.renew([REQUEST]) is None


def test_a_keeper_that_was_started_again_waits_for_one_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(ray_rates.time, "monotonic", lambda: now)
    monkeypatch.setattr(ray_rates.time, "monotonic_ns", lambda: 77)
    actor = RateActor(LIMITS)
    assert actor.ready() is None  # type: ignore[func-returns-value]
    assert actor.renew([REQUEST]) == (Lease(LeaseNumber(77, 1), 3.0, 0.0, LeaseNumber(0, 0)),)
    now += 4.0
    assert actor.renew([REQUEST]) == (Lease(LeaseNumber(77, 2), 3.0, 5.0),)
    assert time.monotonic() == now
