"""The cluster of Ray, with a fake in Ray's place."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace

import pytest

import manystream as ms
from manystream.batch import Counters
from manystream.batch.lines import ModelChoice
from manystream.ray import AskError, ray_cluster
from manystream.ray.cluster import ClusterError, Died, Replied, Unreachable
from manystream.ray.exchange import Offer, Reply
from manystream.ray.ray_answers import AnswerActor, compute_strategy, start_here
from manystream.ray.ray_cluster import RayCluster, WorkerActor, connect
from manystream.ray.worker import WorkerOptions, WorkerReply
from tests.manystream.ray import fake_ray
from tests.manystream.ray.fake_ray import FakeRay

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


def test_a_missing_ray_or_ray_data_is_named(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(AskError, match=r"^Ray Data is not installed \(.+\): pip install '\.\[ray\]' in"):
        compute_strategy(1, 1)
    monkeypatch.setitem(sys.modules, "ray", None)
    for call in (lambda: compute_strategy(1, 1), lambda: start_here(AnswerActor, {})):
        with pytest.raises(AskError, match=r"^Ray is not installed \(.+\): pip install '\.\[ray\]' in"):
            call()
