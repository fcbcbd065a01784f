"""`manystream batch --ray`: the options that reach the workers, and clusters that cannot be reached.

The workers are threads of this process, in place of Ray's.
"""

import importlib
import json
import pickle
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from manystream.cli import batch_ray, main
from manystream.ray import ray_cluster
from manystream.ray.cluster import ClusterError
from manystream.ray.ray_cluster import _probe
from manystream.ray.worker import WorkerOptions
from manystream.simulator import Simulator, open_simulator_thread
from tests.manystream.cli.test_batch import line, write
from tests.manystream.ray.thread_cluster import ThreadCluster, connect


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--ray", "10.0.0.5:6379", "--simulate"),
            "the simulator answers on this machine only, and --ray 10.0.0.5:6379 may"),
        (("--ray", "local", "--simulate"),
            "Ray is not installed (No module named 'ray'): pip install '.[ray]' in manystream's checkout"),
    ],
)  # fmt: skip
def test_an_error_is_one_line_and_status_2(
    words: tuple[str, ...],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def not_installed(name: str) -> object:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", not_installed)
    write(tmp_path / "p.jsonl", [line("a")])
    monkeypatch.chdir(tmp_path)
    assert main(["batch", "p.jsonl", "-o", "a.jsonl", *words]) == 2
    err = capsys.readouterr().err
    assert f"manystream batch: {complaint}" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("address", ["", "here", "ray://10.0.0.5:10001", "10.0.0.5:", ":6379", "10.0.0.5:99999"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ClusterError, match="must be HOST:PORT of the cluster's head, auto or local"):
        _probe(address)


def test_an_address_where_nobody_listens_is_reported() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ClusterError, match=f"no Ray cluster answers at {address}: Connection refused"):
            _probe(address)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "timed out; `ray start --head` starts one"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "what listens there is no head of a cluster"),
    ],
    ids=["silence", "another protocol"],
)
def test_what_listens_and_is_no_head_is_reported(answer: bytes, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "PROBE_SECONDS", 0.5 if not answer else 30.0)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as threads:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.recv(100)
                connection.sendall(answer)
                with suppress(ConnectionError):
                    connection.recv(100)  # until the other side closes

        serving = threads.submit(serve)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ClusterError) as raised:
            _probe(address)
        serving.result()
    assert f"no Ray cluster answers at {address}: {reason}" in str(raised.value)


def test_a_head_answers_the_probe() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as threads:

        def serve() -> bytes:
            with server.accept()[0] as connection:
                received = connection.recv(100)
                connection.sendall(b"\0\0\6\4\0\0\0\0\0" + b"\0\3\x7f\xff\xff\xff")
                return received

        serving = threads.submit(serve)
        _probe(f"127.0.0.1:{server.getsockname()[1]}")
        assert serving.result().startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")


def test_another_version_of_ray_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ray:
        def init(self, **options: object) -> None:
            raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.59.0\n    Python: 3.11.7\n")

    monkeypatch.setattr(ray_cluster, "import_ray", Ray)
    with pytest.raises(ClusterError) as raised, ray_cluster.connect("auto", None):
        pass
    assert str(raised.value) == (
        "cannot connect to the Ray cluster at auto: Version mismatch: The cluster was started with: Ray: 2.59.0"
        " Python: 3.11.7"
    )


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator_thread("events=2") as simulator:
        yield simulator


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[ThreadCluster]]:
    """Put threads in the place of Ray, and a file of 60 prompts into the working directory."""
    made: list[ThreadCluster] = []

    def make(options: WorkerOptions) -> ThreadCluster:
        made.append(ThreadCluster(pickle.loads(pickle.dumps(options))))
        return made[-1]

    monkeypatch.setattr(batch_ray, "connect", connect)
    monkeypatch.setattr(batch_ray, "RayCluster", make)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "p.jsonl", [line(str(number)) for number in range(60)])
    yield made
    for cluster in made:
        cluster.close()


COMMAND = ("batch", "p.jsonl", "-o", "a.jsonl", "--plain", "--ray", "local", "--actors", "2")


def answers(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (folder / "a.jsonl").read_bytes().splitlines()]


def test_two_workers_answer_lines_once(clusters: list[ThreadCluster], simulator: Simulator, tmp_path: Path) -> None:
    url = simulator.base_urls["openai-chat"]
    assert main([*COMMAND, "--model", "sim-text", "--base-url", url]) == 0
    assert sorted(int(each["id"]) for each in answers(tmp_path)) == list(range(60))
    assert clusters[0].options.providers[0].base_url == url


def test_workers_have_the_batch_s_replicas(clusters: list[ThreadCluster], simulator: Simulator, tmp_path: Path) -> None:
    url = simulator.base_urls["openai-chat"]
    assert main([*COMMAND, "--route", "sim-text@fail=503,sim-text", "--base-url", url]) == 0
    found = answers(tmp_path)
    assert len(found) == 60
    assert max(each["attempts"] for each in found) == 2
    with open_simulator_thread("events=2") as second:
        urls = (url, second.base_urls["openai-chat"])
        options = [part for each in urls for part in ("--base-url", each)]
        assert main([*COMMAND, "-o", "b.jsonl", "--model", "sim-text", *options]) == 0
    names = {json.loads(text)["provider"] for text in (tmp_path / "b.jsonl").read_bytes().splitlines()}
    assert names == {each.split("/")[2] for each in urls}


def test_limits_of_this_process_go_to_the_workers(clusters: list[ThreadCluster], simulator: Simulator) -> None:
    options = ["--max-rps", "4000", "--max-tpm", "8e8", "--no-adaptive", "--shard", "0/2"]
    url = simulator.base_urls["openai-chat"]
    assert main([*COMMAND, "--model", "sim-text", "--base-url", url, *options]) == 0
    given = clusters[0].options
    assert (given.limit.requests_per_second, given.limit.tokens_per_minute, given.adaptive) == (2000, 4e8, False)


def test_the_key_is_found_where_the_command_runs(
    clusters: list[ThreadCluster], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_workers(*arguments: object, **options: object) -> None:
        raise ClusterError("no worker has started: each needs a thread")

    monkeypatch.setattr(ThreadCluster, "start", no_workers)
    assert main([*COMMAND, "--model", "gpt-5-mini"]) == 2
    assert clusters[0].options.providers[0].api_key == "sk-canary"
    assert "sk-canary" not in repr(clusters[0].options)
    monkeypatch.delenv("OPENAI_API_KEY")
    assert main([*COMMAND, "--model", "gpt-5-mini"]) == 1
    err = capsys.readouterr().err
    assert "api_key: 'openai-chat' has no key: pass api_key=… or set OPENAI_API_KEY" in err
    assert len(clusters) == 1, "no cluster is asked"
