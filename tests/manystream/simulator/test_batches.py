"""The batch interfaces, as the official SDKs use them, over a service whose clock the test moves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx2
import openai
import pytest

from manystream.http_server import HTTPRequest
from manystream.simulator import KnobError
from manystream.simulator.batches import BatchTime, read_batch_time
from manystream.simulator.service import ServiceSettings

from .in_process import World, head_and_body
from .raw_client import request_bytes
from .virtual_server import VirtualServer


class Wire(httpx2.MockTransport):
    """Gives the requests of an SDK to the service of a world."""

    def __init__(self, world: World) -> None:
        super().__init__(self.respond)
        self.world = world

    def respond(self, request: httpx2.Request) -> httpx2.Response:
        target = request.url.raw_path.decode()
        headers = {name.lower(): value for name, value in request.headers.items()}
        program = self.world.service.answer(HTTPRequest(request.method, target, headers, request.read()))
        head, _, body = b"".join(program.frames).partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        pairs = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
        return httpx2.Response(int(status.split()[1]), headers=pairs, content=body)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        return self.respond(request)


def world(time: str) -> World:
    return World(ServiceSettings(batch_time=read_batch_time(time)))


def openai_client(world: World, key: str = "sk-a") -> openai.OpenAI:
    http = httpx2.Client(transport=Wire(world))
    return openai.OpenAI(api_key=key, base_url="http://sim/v1", max_retries=0, http_client=http)


def chat(text: str, **more: object) -> dict[str, object]:
    return {"model": "sim-text", "messages": [{"role": "user", "content": text}], **more}


def jsonl(count: int, url: str = "/v1/chat/completions", **more: object) -> bytes:
    lines = [
        {"custom_id": f"line-{n}", "method": "POST", "url": url, "body": chat(f"question {n}", **more)}
        for n in range(count)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def submitted(client: openai.OpenAI, data: bytes, endpoint: str = "/v1/chat/completions") -> openai.types.Batch:
    file = client.files.create(file=("in.jsonl", data), purpose="batch")
    return client.batches.create(
        input_file_id=file.id,
        endpoint=endpoint,
        completion_window="24h",
        metadata={"run": "r1"},  # type: ignore[arg-type]
    )


def results(client: openai.OpenAI, id: str | None) -> Iterator[dict[str, object]]:
    assert id is not None
    for line in client.files.content(id).text.splitlines():
        yield json.loads(line)


def test_a_cancelled_batch_answers_a_little_longer() -> None:
    sim = world("100")
    client = openai_client(sim)
    batch = submitted(client, jsonl(100))
    sim.now = 60
    assert client.batches.cancel(batch.id).status == "cancelling"
    sim.now = 64
    assert client.batches.retrieve(batch.id).status == "cancelling"
    sim.now = 66
    batch = client.batches.retrieve(batch.id)
    assert batch.status == "cancelled"
    got = [*results(client, batch.output_file_id)]
    left = [*results(client, batch.error_file_id)]
    assert (len(got), len(left)) == (33, 67)
    assert {line["custom_id"] for line in got + left} == {f"line-{n}" for n in range(100)}
    assert all(line["response"] is None and line["error"] for line in left)
    with pytest.raises(openai.ConflictError):
        client.batches.cancel(batch.id)


def test_an_expired_batch_says_which_lines_have_no_answer() -> None:
    sim = world("100 expires=70")
    client = openai_client(sim)
    batch = submitted(client, jsonl(9))
    sim.now = 71
    batch = client.batches.retrieve(batch.id)
    assert batch.status == "expired"
    assert len([*results(client, batch.output_file_id)]) == 4
    codes = {line["error"]["code"] for line in results(client, batch.error_file_id)}  # type: ignore[index]
    assert codes == {"batch_expired"}


def test_the_files_of_a_batch_without_an_answer_are_written_once() -> None:
    sim = world("0 errors=1")
    client = openai_client(sim)
    batch = submitted(client, jsonl(2))
    sim.now = 1
    batch = client.batches.retrieve(batch.id)
    assert (batch.status, batch.output_file_id) == ("completed", None)
    assert len([*results(client, batch.error_file_id)]) == 2
    assert client.batches.retrieve(batch.id) == batch


def test_a_line_with_a_fault_is_an_error_of_that_line() -> None:
    sim = world("0")
    client = openai_client(sim)
    data = jsonl(1) + jsonl(1, stream=True).replace(b"line-0", b"stream")
    for fault in ("fail=429", "drop=1", "cut=5", "malformed=3", "error=0", "delay=9"):
        line = {"custom_id": fault, "method": "POST", "url": "/v1/chat/completions", "body": chat(f"simulate:{fault}")}
        data += json.dumps(line).encode() + b"\n"
    batch = submitted(client, data)
    sim.now = 1
    batch = client.batches.retrieve(batch.id)
    assert {line["custom_id"] for line in results(client, batch.output_file_id)} == {"line-0", "delay=9", "error=0"}
    status = {str(line["custom_id"]): line["response"]["status_code"] for line in results(client, batch.error_file_id)}  # type: ignore[index]
    assert status == {"stream": 400, "fail=429": 429, "drop=1": 500, "cut=5": 500, "malformed=3": 500}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (jsonl(1) + b"{\n", "invalid_json_line"),
        (jsonl(1) * 2, "duplicate_custom_id"),
        (jsonl(1, "/v1/responses"), "url_mismatch"),
        (jsonl(1).replace(b"POST", b"GET"), "invalid_method"),
        (jsonl(1).replace(b"custom_id", b"id"), "missing_required_parameter"),
        (jsonl(1).replace(b"body", b"params") + jsonl(3)[len(jsonl(1)) :], "missing_required_parameter"),
        (b"\xef\xbb\xbf" + jsonl(3), "invalid_json_line"),
        (jsonl(1) + jsonl(2).replace(b"line", b"l").replace(b"sim-text", b"sim"), "model_mismatch"),
        (b"\n", "empty_batch"),
        (jsonl(50_001), "too_many_tasks"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_file_fails_as_a_whole(data: bytes, code: str) -> None:
    sim = world("100")
    client = openai_client(sim)
    batch = submitted(client, data)
    sim.now = 6
    batch = client.batches.retrieve(batch.id)
    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert {error.code for error in batch.errors.data} == {code}, "the other lines are right"
    assert batch.output_file_id is None


def test_a_key_has_so_many_lines_in_batches_and_no_more() -> None:
    sim = world("100 queue=15")
    client = openai_client(sim)
    first, second = submitted(client, jsonl(10)), submitted(client, jsonl(10))
    other = submitted(openai_client(sim, "sk-b"), jsonl(10))
    sim.now = 50
    assert client.batches.retrieve(first.id).status == "in_progress"
    failed = client.batches.retrieve(second.id)
    assert failed.errors is not None
    assert failed.errors.data is not None
    assert failed.errors.data[0].code == "token_limit_exceeded"
    with pytest.raises(openai.NotFoundError):
        client.batches.retrieve(other.id)
    sim.now = 101
    submitted(client, jsonl(10))
    sim.now = 150
    assert [batch.status for batch in client.batches.list()] == ["in_progress", "failed", "completed"]


def test_a_request_answers_a_few_lines_and_the_loop_the_rest() -> None:
    sim = world("100")
    client = openai_client(sim)
    batch = submitted(client, jsonl(1000))
    sim.now = 101
    batch = client.batches.retrieve(batch.id)
    assert batch.request_counts is not None
    assert (batch.status, batch.request_counts.completed, batch.output_file_id) == ("finalizing", 128, None)
    for _ in range(1000):
        if sim.service.jobs.behind:
            sim.service.jobs.work()
    batch = client.batches.retrieve(batch.id)
    assert (batch.status, batch.completed_at) == ("completed", batch.created_at + 100)
    assert len([*results(client, batch.output_file_id)]) == 1000


def test_the_loop_answers_lines_while_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    server = VirtualServer(monkeypatch)
    path, body = "/v1/messages/batches", json.dumps({"requests": messages(300)}).encode()
    clients = [server.connect(), server.connect()]
    clients[0].send(request_bytes(path, body))
    server.at(1, partial(clients[1].send, request_bytes(path, method="GET")))
    server.run()
    created, listed = (json.loads(client.data.partition(b"\r\n\r\n")[2]) for client in clients)
    assert created["processing_status"] == "in_progress"
    [batch] = listed["data"]
    assert (batch["processing_status"], batch["request_counts"]["succeeded"]) == ("ended", 300)


def asked(sim: World, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
    """A request without an SDK: its status and its JSON object."""
    lines, text = head_and_body(sim.ask(path, body, method=method))
    return int(lines[0].split()[1]), json.loads(text)


def test_the_page_of_batches_counts_what_was_charged() -> None:
    sim = world("100 errors=0.5")
    client = openai_client(sim)
    submitted(client, jsonl(10))
    submitted(client, jsonl(5))
    sim.now = 101
    page = asked(sim, "GET", "/sim/batches")[1]
    first, second = page["batches"]  # type: ignore[misc]
    assert page["files"] == 2
    assert [line["id"] for line in second["lines"]] == [f"line-{n}" for n in range(5)]  # type: ignore[has-type]
    assert second["lines"][3]["body"] == chat("question 3")  # type: ignore[has-type]
    assert all(line["answered"] for line in first["lines"])  # type: ignore[has-type]
    assert 0 < sum(line["charged"] for line in first["lines"]) < 10  # type: ignore[has-type]
    assert first["metadata"] == {"run": "r1"}  # type: ignore[has-type]


def test_a_response_may_be_lost_after_the_batch_was_created() -> None:
    sim = world("100")
    client = openai_client(sim)
    file = client.files.create(file=("in.jsonl", jsonl(1)), purpose="batch")
    body = {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    headers = {"authorization": "Bearer sk-a"}
    lost = sim.ask("/v1/batches", body, directive="cut=0", headers=headers)
    assert lost.frames[0].endswith(b"\r\n\r\n")
    assert len([*client.batches.list()]) == 1
    sim.ask("/v1/batches", body, directive="drop=1", headers=headers)
    sim.ask("/v1/batches", body, directive="fail=503", headers=headers)
    assert len([*client.batches.list()]) == 1


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("", BatchTime()),
        ("420", BatchTime(median=420)),
        ("inf", BatchTime(median=float("inf"))),
        ("median=420, p90=3600 errors=0.1 fails=1 queue=7 seed=3 expires=60",
         BatchTime(median=420, p90=3600, errors=0.1, fails=1, queue=7, seed=3, expires=60)),
    ],
)  # fmt: skip
def test_the_time_of_batches_is_read(text: str, time: BatchTime) -> None:
    assert read_batch_time(text) == time


@pytest.mark.parametrize("text", ["x", "-1", "nan", "median=5 p90=4", "p90=4", "errors=2", "when=5", "expires=0"])
def test_a_wrong_time_of_batches_is_refused(text: str) -> None:
    with pytest.raises(KnobError, match="batch-time"):
        read_batch_time(text)


def test_times_are_spread_as_asked() -> None:
    sim = world("median=420 p90=3600")
    client = openai_client(sim)
    file = client.files.create(file=("in.jsonl", jsonl(1)), purpose="batch")
    for _ in range(300):
        client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    sim.now = 420
    done = sum(batch.status == "completed" for batch in client.batches.list(limit=100))
    assert 120 < done < 180
    sim.now = 3600
    done = sum(batch.status == "completed" for batch in client.batches.list(limit=100))
    assert 255 < done < 285


def test_a_batch_may_fail_for_no_reason_of_its_own_or_never_end() -> None:
    sim = world("inf fails=1")
    client = openai_client(sim)
    batch = submitted(client, jsonl(1))
    sim.now = 61
    assert client.batches.retrieve(batch.id).status == "failed"
    sim = world("inf")
    client = openai_client(sim)
    batch = submitted(client, jsonl(1))
    sim.now = 86_399
    assert client.batches.retrieve(batch.id).status == "in_progress"
    sim.now = 86_401
    assert client.batches.retrieve(batch.id).status == "expired"


def messages(count: int, **more: Any) -> list[Any]:
    return [
        {"custom_id": f"line-{n}", "params": {"max_tokens": 50, **chat(f"question {n}"), **more}} for n in range(count)
    ]
