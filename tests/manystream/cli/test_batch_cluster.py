"""`manystream batch --ray`: what the cluster, its workers and the batch over them are given."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manystream.batch import Counters, Shard
from manystream.batch.lines import ModelChoice
from manystream.cli import batch_ray, main
from manystream.cli.batch_ray import shares, with_key
from manystream.engine.traffic.limits.rate_limit import RateLimit
from manystream.providers.catalog.provider import Anthropic, OpenAIChat
from manystream.providers.errors import InvalidRequestError
from manystream.ray.cluster import ClusterError
from manystream.ray.worker import WorkerOptions
from manystream.simulator import Simulator
from tests.support.batches import line, write


class Cluster:
    """Stands in for Ray and for the batch over a cluster, and keeps what they were given.

    free: the number of CPUs of the cluster.
    """

    def __init__(self) -> None:
        self.free = 8
        self.asked: list[tuple[str, int | None]] = []
        self.workers: WorkerOptions | None = None
        self.options: dict[str, Any] = {}

    @contextlib.contextmanager
    def connect(self, address: str, actors: int | None) -> Iterator[int]:
        if address == "down:1":
            raise ClusterError("no cluster answers")
        self.asked.append((address, actors))
        yield self.free

    def ray_cluster(self, options: WorkerOptions) -> str:
        self.workers = options
        return "cluster"

    def batch(self, cluster: object, journal: object, **options: Any) -> Any:
        assert cluster == "cluster"
        self.options = options

        class Batch:
            counters = Counters(answered=1)

            async def run(self, lines: Any) -> None:
                self.lines = [each async for each in lines]

        return Batch()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(batch_ray, "connect", cluster.connect)
    monkeypatch.setattr(batch_ray, "RayCluster", cluster.ray_cluster)
    monkeypatch.setattr(batch_ray, "ClusterBatch", cluster.batch)
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "p.jsonl", [line("a")])
    return cluster


def batch(*words: str) -> int:
    return main(["batch", "p.jsonl", "-o", "a.jsonl", *words])


def test_a_cluster_is_given_the_defaults(cluster: Cluster) -> None:
    assert batch("--ray", "10.0.0.5:6379", "--model", "gpt-5") == 0
    assert cluster.asked == [("10.0.0.5:6379", None)]
    workers = cluster.workers
    (provider,) = workers.providers
    assert (type(provider), provider.api_key) == (OpenAIChat, "sk-canary")
    assert workers == WorkerOptions(
        providers=(provider,), choose_model=ModelChoice("openai-chat", "gpt-5"), concurrency=100, attempts=6,
        stream=False, source="p.jsonl", routes=(), limit=None, adaptive=True, proxy=None, monitor=False, priced=True,
        budgeted=False,
    )  # fmt: skip
    assert cluster.options == {
        "concurrency": [13, 13, 13, 13, 12, 12, 12, 12], "retry_failed": False, "source": "p.jsonl", "shard": None,
        "limit": None, "budget": None,
    }  # fmt: skip


def test_a_cluster_is_given_every_option(cluster: Cluster) -> None:
    words = ["--ray", "auto", "--actors", "2", "--concurrency", "5", "--attempts", "3", "--stream", "--retry-failed"]
    assert (
        batch(*words, "--no-adaptive", "--outage", "60", "--monitor", "--max-rps", "4", "--shard", "0/2", "--model",
        "gpt-5") == 0
    )  # fmt: skip
    assert cluster.asked == [("auto", 2)]
    workers = cluster.workers
    assert (workers.concurrency, workers.attempts, workers.stream, workers.adaptive) == (5, 3, True, False)
    assert (workers.monitor, workers.limit, workers.outage) == (True, RateLimit(requests_per_second=2.0), 60.0)
    assert cluster.options == {
        "concurrency": [3, 2], "retry_failed": True, "source": "p.jsonl", "shard": Shard(0, 2),
        "limit": RateLimit(requests_per_second=2.0), "budget": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("free", "words", "shared"),
    [
        (0, (), [3]),
        (2, (), [2, 1]),
        (8, (), [1, 1, 1]),
        (1, ("--actors", "2"), [2, 1]),
        (8, ("--actors", "4"), [1, 1, 1]),
    ],
)
def test_no_more_workers_than_calls(cluster: Cluster, free: int, words: tuple[str, ...], shared: list[int]) -> None:
    cluster.free = free
    assert batch("--ray", "auto", "--model", "gpt-5", "--concurrency", "3", *words) == 0
    assert cluster.options["concurrency"] == shared


def test_a_cluster_on_this_machine_may_ask_the_simulator(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = contextlib.nullcontext(Simulator("127.0.0.1", 8001, 77))
    monkeypatch.setattr("manystream.simulator.open_simulator", lambda *_, **__: simulator)
    assert batch("--ray", "local", "--simulate") == 0
    workers = cluster.workers
    assert (workers.priced, workers.proxy) == (False, "")


def test_another_cluster_cannot_ask_the_simulator(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert batch("--ray", "auto", "--simulate") == 2
    assert capsys.readouterr().err == (
        "manystream batch: the simulator answers on this machine only, and --ray auto may use others: name a --model,"
        " or use --ray local\n"
    )


def test_a_cluster_that_cannot_be_reached_is_status_2(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert batch("--ray", "down:1", "--model", "gpt-5") == 2
    assert capsys.readouterr() == ("", "manystream batch: no cluster answers\n")


def test_calls_are_divided_so_that_parts_differ_by_one() -> None:
    assert (shares(10, 4), shares(8, 4), shares(3, 1)) == ([3, 3, 2, 2], [2, 2, 2, 2], [3])


def test_a_provider_holds_its_key_in_a_copy() -> None:
    provider = Anthropic()
    keyed = with_key(provider, {"ANTHROPIC_API_KEY": "k", "HOME": "/nonexistent"})
    assert (keyed.api_key, provider.api_key, type(keyed)) == ("k", None, Anthropic)
    with pytest.raises(InvalidRequestError, match="ANTHROPIC_API_KEY"):
        with_key(provider, {"HOME": "/nonexistent", "MANYSTREAM_CREDENTIALS": ""})
    local = with_key(OpenAIChat(base_url="http://127.0.0.1:1/v1"), {"HOME": "/nonexistent"})
    assert local.api_key is None
