"""The journal of a data set as an actor of Ray, with a fake in Ray's place."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from pathlib import Path

import pytest

from manystream.batch import JournalError
from manystream.ray import AskError
from manystream.ray.exchange import Answer
from manystream.ray.ray_answers import AnswerActor, RayJournal, compute_strategy, first_line, start_here, start_journal
from tests.manystream.ray import fake_ray
from tests.manystream.ray.fake_ray import FakeActor, FakeRay


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    return fake_ray.install(monkeypatch)


HERE = {"node": "this-node", "soft": False}


ANSWER = Answer("a", b'{"id": "a", "text": "yes"}', failed=False)


FAILURE = Answer("b", b'{"id": "b", "error": {}}', failed=True)


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


@pytest.mark.parametrize(
    ("error", "line"),
    [(ValueError("one\ntwo"), "one"), (ValueError("\n one\ntwo"), "one"), (ValueError(" \n"), "ValueError")],
)
def test_the_first_line_of_an_error(error: Exception, line: str) -> None:
    assert first_line(error) == line
