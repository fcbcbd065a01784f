"""The simulator as an inference server with a batch, and as several replicas."""

import json

import pytest

import manystream as ms
from manystream.providers.limits.server_load import read_load
from manystream.simulator import KnobError, open_simulator, open_simulator_thread
from manystream.simulator.inference import BatchModel, InferenceServer, read_batch
from manystream.simulator.program import Ending, Program
from manystream.simulator.prompt import APIError
from manystream.simulator.replica import Outage, Replica, ReplicaState, read_replica
from manystream.simulator.service import ServiceSettings

from .in_process import World, head_and_body
from .raw_client import ask, body_of, connected, path_of, request_bytes, statistics


def test_calls_that_do_not_fit_wait_inside_in_order() -> None:
    server: InferenceServer[str] = InferenceServer(BatchModel(kv=100, queue=2))
    for name, tokens in (("a", 60), ("b", 60), ("c", 30)):
        server.add(name, tokens)
    assert server.start_waiting() == ["a"]
    assert (server.queued, server.is_full_for(1)) == (2, True)
    assert server.remove("a")
    assert server.start_waiting() == ["b", "c"]
    assert server.queued == 0
    assert not server.is_full_for(100)


def test_a_call_that_left_while_it_waited_is_not_started() -> None:
    server: InferenceServer[str] = InferenceServer(BatchModel(kv=100))
    for name in ("a", "b", "c"):
        server.add(name, 100)
    assert server.start_waiting() == ["a"]
    assert server.remove("b")
    assert not server.remove("b")
    server.remove("a")
    assert server.start_waiting() == ["c"]


def test_a_call_larger_than_the_cache_runs_alone() -> None:
    server: InferenceServer[str] = InferenceServer(BatchModel(kv=100))
    server.add("large", 1000)
    server.add("small", 1)
    assert server.start_waiting() == ["large"]
    server.remove("large")
    assert server.start_waiting() == ["small"]


def test_a_step_takes_longer_with_more_running_calls() -> None:
    server: InferenceServer[int] = InferenceServer(BatchModel(step=0.02, per_call=0.001))
    for number in range(10):
        server.add(number, 1)
    server.start_waiting()
    assert server.step == pytest.approx(0.03)


def test_without_a_queue_a_server_takes_what_it_can_run() -> None:
    server: InferenceServer[str] = InferenceServer(BatchModel(kv=10, queue=0))
    assert not server.is_full_for(10)
    server.add("a", 10)
    server.start_waiting()
    assert server.is_full_for(10)
    server.remove("a")
    assert not server.is_full_for(10)


def test_a_batch_answers_all_and_refuses_beyond_its_queue() -> None:
    batch = "step=0.005 per-call=0 kv=20 queue=1 prefill=0"
    with open_simulator_thread("events=4", batch=batch) as simulator:
        with connected(simulator) as first, connected(simulator) as second:
            for number, line in enumerate((first, second)):
                text = f"Question {number}"
                data = request_bytes(path_of("openai-chat"), body_of("openai-chat", text, stream=True))
                line.send(data.replace(b"host", b"x-simulate: events=15\r\nhost", 1))
                while not number and b"data:" not in line.received:
                    line.more()
            while statistics(simulator)["queued"] != 1:
                pass
            refused = ask(simulator)
            assert refused.status == 503
            assert "overloaded" in json.dumps(refused.json())
            for line in (first, second):
                answer = line.read()
                assert (answer.status, answer.whole, len(answer.events)) == (200, True, 18)
        assert ask(simulator, stream=False).status == 200
        assert statistics(simulator)["limited"] == 1


@pytest.mark.parametrize("text", ["speed=1", "step=x", "step=-1", "kv=0", "status=200", "step"])
def test_a_batch_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(KnobError, match="batch"):
        read_batch(text)


def test_a_batch_is_read_from_text() -> None:
    read = read_batch("step=0.1, per-call=0.2 prefill=0.3 kv=4 queue=5 status=429")
    assert read == BatchModel(step=0.1, per_call=0.2, prefill=0.3, kv=4, queue=5, status=429)


def test_a_replica_is_read_from_text() -> None:
    read = read_replica("port=81, speed=0.1 delay=0.2 fail=0.3 status=502 seed=4 outage=1-2 outage=3.5-4:hang")
    outages = (Outage(1, 2, "503"), Outage(3.5, 4, "hang"))
    assert read == Replica(port=81, speed=0.1, delay=0.2, fail=0.3, status=502, seed=4, outages=outages)


@pytest.mark.parametrize(
    "text",
    [
        "speed=0", "fail=2", "slow=-1", "delay=-1", "outage=1", "outage=1-2:maybe", "outage=2-1", "outage=1-1:hang",
        "speed=inf", "delay=inf", "x=1", "port=a",
    ],
)  # fmt: skip
def test_a_replica_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(KnobError, match="replica"):
        read_replica(text)


def test_a_replica_is_out_for_its_outages_only() -> None:
    state = ReplicaState(read_replica("outage=1-2 outage=3-4:hang outage=5-6:close"), 100.0)
    assert [state.interrupt(now) for now in (100.5, 102.0, 104.0, 106.0)] == [None] * 4
    with pytest.raises(APIError) as caught:
        state.interrupt(101.0)
    assert caught.value.status == 503
    hung, closed = state.interrupt(103.5), state.interrupt(105.5)
    assert hung is not None
    assert closed is not None
    assert (hung.ending, closed.ending) == (Ending.STALL, Ending.CLOSE)


def test_the_same_part_of_the_calls_fails_in_every_run() -> None:
    def failures() -> list[bool]:
        state = ReplicaState(Replica(fail=0.3, status=502), 0.0)
        failed: list[bool] = []
        for _ in range(1000):
            try:
                state.interrupt(0.0)
            except APIError as failure:
                failed.append(failure.status == 502)
            else:
                failed.append(False)
        return failed

    assert 250 < sum(failures()) < 350
    assert failures() == failures()


def test_a_slow_replica_stretches_rates_and_delays() -> None:
    paced = ReplicaState(Replica(speed=0.1, delay=1.0), 0.0).paced(Program([b"x"], interval=0.02, delay=0.5))
    assert (paced.interval, paced.delay) == (pytest.approx(0.2), pytest.approx(6.0))


def test_a_part_of_a_replicas_answers_is_slow() -> None:
    state = ReplicaState(read_replica("slow=0.1"), 0.0)
    delays = [state.paced(Program([b"x"], delay=0.1)).delay for _ in range(1_000)]
    assert 50 < sum(delay == pytest.approx(2.0) for delay in delays) < 150
    assert set(delays) == {0.1, 2.0}


@pytest.mark.parametrize("process", [False, True])
def test_replicas_have_ports_of_their_own(process: bool) -> None:
    opened = open_simulator if process else open_simulator_thread
    with opened("events=4", replicas=["speed=1", "fail=1", "outage=0-3600:close"]) as simulator:
        good, failing, closed = simulator.replicas
        assert len({replica.port for replica in simulator.replicas}) == 3
        assert (good.port, good.base_urls) == (simulator.port, simulator.base_urls)
        assert [ask(replica).status for replica in (good, failing, closed)] == [200, 500, 0]
        assert statistics(good)["completed"] == 1


def test_replicas_with_one_port_for_all_are_refused() -> None:
    with pytest.raises(KnobError, match="port"), open_simulator_thread(port=8080, replicas=["speed=1"]):
        pass


def test_it_reports_what_runs_and_waits() -> None:
    """As vLLM does, so that a client finds out how many calls it may send. The server has room for one call."""
    world = World(ServiceSettings(batch=BatchModel(kv=1)))
    served = world.service.inference
    assert served is not None
    for name in ("a", "b", "c"):
        served.add(name, 1)
    served.start_waiting()
    row = ms.OpenAIChat("key", "http://127.0.0.1:1/v1", profile="vllm").profile.quirks.load[0]
    lines, body = head_and_body(world.ask(row.path, method="GET"))
    assert lines[0] == "HTTP/1.1 200 OK"
    assert read_load(row, body.encode()) == ms.ServerLoad(1, 2)
    plain = World()
    plain.service.statistics.live = 3
    assert read_load(row, head_and_body(plain.ask(row.path, method="GET"))[1].encode()) == ms.ServerLoad(3, 0)
    assert world.ask(row.path, {}).frames[0].startswith(b"HTTP/1.1 404")
