"""The cluster of Ray and the actors of a data set, with a fake in Ray's place."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import manystream as ms
from manystream.batch import Counters, JournalError
from manystream.batch.lines import ModelChoice
from manystream.providers.errors import InvalidRequestError
from manystream.ray import AskError, ray_cluster, ray_rates, share_rates
from manystream.ray.cluster import ClusterError, Died, Replied, Unreachable
from manystream.ray.exchange import Answer, Offer, Reply
from manystream.ray.rate_leases import Lease, LeaseNumber, LeaseRequest
from manystream.ray.ray_answers import AnswerActor, RayJournal, compute_strategy, first_line, start_here, start_journal
from manystream.ray.ray_cluster import RayCluster, WorkerActor, connect
from manystream.ray.ray_rates import RateActor, RayRateLink
from manystream.ray.worker import WorkerOptions, WorkerReply
from tests.manystream.ray import fake_ray
from tests.manystream.ray.fake_ray import FakeActor, FakeRay

OPTIONS = WorkerOptions(
    (ms.OpenAIChat("key", "http://127.0.0.1:9/v1", name="sim"),), ModelChoice("sim"), 1, 1, False, "p.jsonl"
)
REPLY = WorkerReply(Reply(1, (), 0.5), Counters(), "", False)
HOW = {
    "num_cpus": 1, "max_restarts": 0, "max_task_retries": 0, "max_concurrency": 2, "scheduling_strategy": "SPREAD",
    "enable_task_events": False,
}  # fmt: skip


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    return fake_ray.install(monkeypatch)


@pytest.fixture
def cluster(ray: FakeRay) -> RayCluster:
    return RayCluster(OPTIONS)


def test_a_worker_is_an_actor_that_ray_does_not_restart(ray: FakeRay, cluster: RayCluster) -> None:
    cluster.start(0, 7, instead_of=None)
    cluster.call(0, offer := Offer(1, ()))
    (actor,) = ray.actors
    assert (actor.of, actor.options, actor.arguments) == (WorkerActor, HOW, (replace(OPTIONS, concurrency=7),))
    assert actor.calls == [("exchange", (offer,))]
    assert ray.log == []


def reply(ray: FakeRay, cluster: RayCluster, worker: int, result: object) -> list[Replied | Unreachable | Died]:
    """Call a worker, let Ray return a result, and return the events."""
    cluster.call(worker, Offer(1, ()))
    ray.actors[worker].references[-1].result = result
    return cluster.collect(0.1)


@pytest.mark.parametrize(
    ("alive", "avoided"),
    [
        ({"n1": True, "n2": True}, {"label_selector": {"ray.io/node-id": "!n1"}}),
        ({"n1": False, "n2": True}, {"label_selector": {"ray.io/node-id": "!n1"}}),
        ({"n1": True, "n2": False}, {}),
        ({"n1": True}, {}),
    ],
)
def test_a_replacement_avoids_the_node_if_there_is_another(
    ray: FakeRay, cluster: RayCluster, alive: dict[str, bool], avoided: dict[str, object]
) -> None:
    ray.alive = alive
    cluster.start(0, 7, instead_of=None)
    assert reply(ray, cluster, 0, ("n1", REPLY)) == [Replied(0, REPLY)]
    for worker, instead_of in ((1, 0), (2, 1), (3, None)):
        cluster.start(worker, 7, instead_of=instead_of)
    options = [actor.options for actor in ray.actors]
    assert options == [HOW, HOW | avoided, HOW, HOW], "the node of worker 1 is not known, since it has not replied"


def test_each_result_of_ray_is_an_event(ray: FakeRay, cluster: RayCluster) -> None:
    results: list[object] = [
        ("n1", REPLY),
        fake_ray.ActorUnavailableError("The actor is unavailable"),
        fake_ray.ActorDiedError("The actor died because its node has died. Node Id: 17\nmore\nand more"),
        fake_ray.ActorDiedError(
            "The actor died because of an error raised in its creation task, ray::WorkerActor\n"
            "  File worker.py, line 1\n  ModuleNotFoundError: No module named 'manystream'  \n"
        ),
        fake_ray.ActorDiedError(""),
        fake_ray.RayTaskError(RuntimeError("exchange 1 does not follow exchange 2")),
        fake_ray.ObjectLostError("\n Failed to retrieve object 77.\nIts owner has died."),
    ]
    for worker, result in enumerate(results):
        cluster.start(worker, 1, instead_of=None)
        cluster.call(worker, Offer(1, ()))
        ray.actors[worker].references[-1].result = result
    assert cluster.collect(0.25) == [
        Replied(0, REPLY), Unreachable(1), Died(2, "The actor died because its node has died. Node Id: 17"),
        Died(3, "ModuleNotFoundError: No module named 'manystream'"), Died(4, "ActorDiedError"),
        Died(6, "Failed to retrieve object 77."),
    ]  # fmt: skip
    assert ray.log == [("wait", 7, 1, 0.25), ("wait", 7, 7, 0), *[("get", 0)] * 7]
    assert cluster.collect(0.25) == [], "each result is collected once"


def test_a_result_that_is_not_there_stays_open(ray: FakeRay, cluster: RayCluster) -> None:
    for worker in range(2):
        cluster.start(worker, 1, instead_of=None)
        cluster.call(worker, Offer(1, ()))
    assert cluster.collect(0.1) == []
    assert ray.log == [("wait", 2, 1, 0.1)]
    ray.actors[1].references[0].result = ("n1", REPLY)
    assert cluster.collect(0.1) == [Replied(1, REPLY)]
    ray.log.clear()
    ray.actors[0].references[0].result = ("n1", REPLY)
    assert cluster.collect(0.1) == [Replied(0, REPLY)]
    assert ray.log == [("wait", 1, 1, 0.1), ("get", 0)], "one that is open needs no second look"


def test_two_results_that_are_there_are_collected_together(ray: FakeRay, cluster: RayCluster) -> None:
    for worker in range(2):
        cluster.start(worker, 1, instead_of=None)
        cluster.call(worker, Offer(1, ()))
        ray.actors[worker].references[0].result = ("n1", REPLY)
    assert cluster.collect(0.1) == [Replied(0, REPLY), Replied(1, REPLY)]


def test_a_worker_is_killed_once_and_may_be_dead_already(ray: FakeRay, cluster: RayCluster) -> None:
    cluster.start(0, 1, instead_of=None)
    ray.failure = fake_ray.RayActorError("it is dead")
    cluster.kill(0)
    cluster.kill(0)
    cluster.kill(5)
    assert ray.log == [("kill", ray.actors[0])]


def test_resources_are_stated_in_words(ray: FakeRay, cluster: RayCluster) -> None:
    assert cluster.resources() == (
        "each needs 1 CPU, and 3 of the cluster's 8 CPUs are free; wait until others have ended, or ask"
        " for fewer with --actors"
    )
    ray.free, ray.total = {}, {}
    assert cluster.resources().startswith("each needs 1 CPU, and 0 of the cluster's 0 CPUs are free;")


def test_an_exchange_of_the_actor_has_its_node(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    class Worker:
        def __init__(self, options: WorkerOptions) -> None:
            assert options is OPTIONS

        def exchange(self, offer: Offer) -> tuple[str, Offer]:
            return "reply to", offer

    monkeypatch.setattr(ray_cluster, "Worker", Worker)
    assert WorkerActor(OPTIONS).exchange(Offer(3, ())) == ("this-node", ("reply to", Offer(3, ())))


# --- the connection to a cluster ---


QUIET = {"log_to_driver": False, "logging_level": logging.ERROR}


@pytest.mark.parametrize(
    ("address", "workers", "cores", "options"),
    [
        ("local", None, 4, {"address": "local", "num_cpus": 4, "include_dashboard": False}),
        ("local", 50, 4, {"address": "local", "num_cpus": 50, "include_dashboard": False}),
        ("local", 2, 4, {"address": "local", "num_cpus": 4, "include_dashboard": False}),
        ("local", None, None, {"address": "local", "num_cpus": 1, "include_dashboard": False}),
        ("auto", 50, 4, {"address": "auto"}),
        ("10.0.0.5:6379", 50, 4, {"address": "10.0.0.5:6379"}),
    ],
)
def test_ray_is_connected_without_its_log_and_dashboard(
    ray: FakeRay,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    workers: int | None,
    cores: int | None,
    options: dict[str, object],
) -> None:
    probed: list[str] = []
    monkeypatch.setattr(ray_cluster, "_probe", probed.append)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "x")
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED")
    with connect(address, workers) as cpus:
        assert (cpus, os.environ["RAY_USAGE_STATS_ENABLED"]) == (8, "0")
        assert ray.log == [("init", QUIET | options)]
    assert ray.log[1:] == [("shutdown",)]
    assert probed == (["10.0.0.5:6379"] if address == "10.0.0.5:6379" else [])


def test_ray_is_left_after_an_error_and_a_setting_is_kept(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    ray.total = {}
    connection = connect("local", 1)
    assert (connection.__enter__(), os.environ["RAY_USAGE_STATS_ENABLED"]) == (0, "1")
    with pytest.raises(KeyError):
        connection.gen.throw(KeyError)  # type: ignore[attr-defined]
    assert ray.log[-1] == ("shutdown",)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("Version\n  mismatch"), "Version mismatch"),
        (ConnectionError(), "ConnectionError"),
        (ValueError("x" * 400 + "y"), "x" * 400),
    ],
)
def test_a_cluster_that_cannot_be_connected_says_why(ray: FakeRay, error: Exception, reason: str) -> None:
    ray.failure = error
    with pytest.raises(ClusterError) as caught, connect("auto", None):
        pass
    assert str(caught.value) == f"cannot connect to the Ray cluster at auto: {reason}"
    assert [entry[0] for entry in ray.log] == ["init"]


class FakeConnection:
    """A connection to what listens at an address. It sends these pieces, then ends."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces
        self.sent = b""
        self.received: list[int] = []
        self.is_closed = False

    def __enter__(self) -> FakeConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_closed = True

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def recv(self, size: int) -> bytes:
        self.received.append(size)
        return self.pieces.pop(0) if self.pieces else b""


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[str, int], float, FakeConnection]]:
    """Return the connections that are opened. Each receives the head of a SETTINGS frame in three pieces."""
    opened: list[tuple[tuple[str, int], float, FakeConnection]] = []

    def create(address: tuple[str, int], timeout: float) -> FakeConnection:
        connection = FakeConnection([b"\0\0\6", b"\4\0\0\0", b"\0\0"])
        opened.append((address, timeout, connection))
        return connection

    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    monkeypatch.setattr(ray_cluster.socket, "create_connection", create)
    return opened


Connections = list[tuple[tuple[str, int], float, FakeConnection]]


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("10.0.0.5:6379", "10.0.0.5", 6379), ("[::1]:1", "::1", 1), ("head.local:65535", "head.local", 65535)],
)
def test_a_cluster_s_head_answers_with_settings(address: str, host: str, port: int, connections: Connections) -> None:
    ray_cluster._probe(address)
    ((place, timeout, connection),) = connections
    assert (place, timeout, connection.is_closed) == ((host, port), 3.0, True)
    assert connection.sent == b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    assert connection.received == [9, 6, 2]


@pytest.mark.parametrize(
    "address", ["", "h", ":6379", "h:", "h:0", "h:65536", "h:x", "h:٣", "h:6.5", "h:-1", "ray://h:10001"]
)
def test_an_address_without_a_host_or_port_is_refused(address: str, connections: Connections) -> None:
    with pytest.raises(ClusterError) as caught:
        ray_cluster._probe(address)
    assert str(caught.value) == f"--ray {address}: must be HOST:PORT of the cluster's head, auto or local"
    assert connections == []


@pytest.mark.parametrize(
    "pieces", [[], [b"\0\0\6\4\0\0\0\0"], [b"\0\0\6\5\0\0\0\0\0"], [b"HTTP/1.1 "], [b"\0\0\4\0\0\0\0\0\0"]]
)
def test_what_answers_otherwise_is_no_head(pieces: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    monkeypatch.setattr(ray_cluster.socket, "create_connection", lambda address, timeout: FakeConnection(pieces))
    with pytest.raises(ClusterError) as caught:
        ray_cluster._probe("10.0.0.5:80")
    assert str(caught.value) == (
        "no Ray cluster answers at 10.0.0.5:80: what listens there is no head of a cluster; the port of `ray start"
        " --head` is 6379 unless --port was given"
    )


@pytest.mark.parametrize(
    ("error", "reason"),
    [(OSError(113, "No route to host"), "No route to host"), (TimeoutError("timed out"), "timed out")],
)
def test_an_unreachable_address_says_why(error: OSError, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(address: tuple[str, int], timeout: float) -> FakeConnection:
        raise error

    monkeypatch.setattr(ray_cluster.socket, "create_connection", fail)
    with pytest.raises(ClusterError) as caught:
        ray_cluster._probe("10.0.0.5:6379")
    assert str(caught.value) == f"no Ray cluster answers at 10.0.0.5:6379: {reason}; `ray start --head` starts one"


@pytest.mark.parametrize(("value", "asks"), [("1", False), ("true", False), ("True", False), ("0", True), ("no", True)])
def test_a_cluster_with_tls_is_only_connected(
    value: str, asks: bool, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_USE_TLS", value)
    ray_cluster._probe("10.0.0.5:6379")
    assert bool(connections[0][2].sent) == asks


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
    with pytest.raises(AskError, match=r"^Ray Data is not installed \(.+\): pip install '\.\[ray\]' in"):
        compute_strategy(1, 1)
    monkeypatch.setitem(sys.modules, "ray", None)
    for call in (lambda: compute_strategy(1, 1), lambda: start_here(AnswerActor, {})):
        with pytest.raises(AskError, match=r"^Ray is not installed \(.+\): pip install '\.\[ray\]' in"):
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
