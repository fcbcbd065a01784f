"""The simulator as an inference server with a batch."""

from __future__ import annotations

import json
import math

import pytest

import manystream as ms
from manystream.providers.limits.server_load import read_load
from manystream.simulator import (
    KnobError,
    open_simulator_thread,
)
from manystream.simulator.inference import BatchModel, InferenceServer, read_batch
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


# --- a batch ---


def test_a_batch_has_these_options_by_default() -> None:
    assert BatchModel() == BatchModel(
        step=0.02, per_call=0.0005, prefill=0.00001, kv=100_000, queue=math.inf, status=503
    )
    assert read_batch("") == BatchModel()
    assert read_batch("Per-Call=0,PREFILL=0 step=0 queue=0 kv=0.5 status=400") == BatchModel(
        step=0, per_call=0, prefill=0, kv=0.5, queue=0, status=400
    )
    assert BatchModel(status=599).status == 599
    assert isinstance(read_batch("status=429").status, int)


WRONG_BATCHES: list[tuple[str, str]] = [
    ("step=-1", "batch: step=-1.0: step is a number from 0"),
    ("per-call=-1", "batch: per_call=-1.0: per_call is a number from 0"),
    ("prefill=nan", "batch: prefill=nan: prefill is a number from 0"),
    ("queue=-1", "batch: queue=-1.0: queue is a number from 0"),
    ("kv=0", "batch: kv is a number above 0, and status an HTTP status from 400 to 599"),
    ("kv=nan", "batch: kv is a number above 0, and status an HTTP status from 400 to 599"),
    ("status=399", "batch: kv is a number above 0, and status an HTTP status from 400 to 599"),
    ("status=600", "batch: kv is a number above 0, and status an HTTP status from 400 to 599"),
    ("status=4.5", "batch: status='4.5': status is a number"),
    ("kv=many", "batch: kv='many': kv is a number"),
    ("x=1",
        "batch: 'x=1' is not an option; write name=value, with a name of: step, per_call, prefill, kv, queue, status"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG_BATCHES)
def test_a_wrong_batch_is_told_why(text: str, message: str) -> None:
    with pytest.raises(KnobError) as caught:
        read_batch(text)
    assert str(caught.value) == message
