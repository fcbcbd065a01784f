"""The batch interfaces of all providers, as the official SDKs use them, over a service whose clock the test moves."""

from __future__ import annotations

import datetime
import io
import json
from collections import Counter
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import types

from tests.manystream.simulator.test_batches import (
    Wire,
    asked,
    chat,
    jsonl,
    messages,
    openai_client,
    results,
    submitted,
    world,
)

from .in_process import World


def test_openais_batch_has_states_and_the_live_answers() -> None:
    sim = world("100")
    client = openai_client(sim)
    batch = submitted(client, jsonl(10))
    assert (batch.status, batch.model, batch.metadata) == ("validating", None, {"run": "r1"})
    seen: list[tuple[str, int]] = []
    for now in (4, 6, 50, 75, 97, 101):
        sim.now = now
        batch = client.batches.retrieve(batch.id)
        assert batch.request_counts is not None
        seen.append((batch.status, batch.request_counts.completed))
    assert seen == [
        ("validating", 0), ("in_progress", 0), ("in_progress", 0), ("in_progress", 5), ("finalizing", 10),
        ("completed", 10),
    ]  # fmt: skip
    assert batch.error_file_id is None
    assert batch.completed_at is not None
    assert batch.completed_at - batch.created_at == 100
    got = {str(line["custom_id"]): line for line in results(client, batch.output_file_id)}
    assert [*got] != [f"line-{n}" for n in range(10)], "results come in any order"
    for n in range(10):
        live = client.chat.completions.with_raw_response.create(**chat(f"question {n}"))  # type: ignore[call-overload]
        assert got[f"line-{n}"]["response"]["body"] == json.loads(live.text)  # type: ignore[index]


def test_openais_files_and_lists() -> None:
    sim = world("10")
    client = openai_client(sim)
    data = b'{"a": 1}\r\n\x00--\xff'
    file = client.files.create(
        file=("in.jsonl", data), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert (file.bytes, file.filename, file.purpose, file.expires_at) == (
        len(data), "in.jsonl", "batch", file.created_at + 3600,
    )  # fmt: skip
    assert client.files.content(file.id).content == data
    assert client.files.retrieve(file.id) == file
    ids = [file.id, *(client.files.create(file=b"x", purpose="user_data").id for _ in range(4))]
    assert [one.id for one in client.files.list(limit=2)] == ids[::-1]
    assert [one.id for one in client.files.list(limit=2, order="asc")] == ids
    assert [one.id for one in client.files.list(purpose="batch")] == ids[:1]
    assert client.files.delete(file.id).deleted
    for missing in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError):
            missing(file.id)
    batches = [submitted(client, jsonl(1)).id for _ in range(5)]
    assert [one.id for one in client.batches.list(limit=2)] == batches[::-1]
    with pytest.raises(openai.BadRequestError, match="limit"):
        client.batches.list(limit=101)
    with pytest.raises(openai.BadRequestError, match="input_file_id"):
        client.batches.create(input_file_id="", endpoint="/v1/chat/completions", completion_window="24h")
    for metadata in ({"a": "b" * 513}, {"a" * 65: "b"}, {str(n): "b" for n in range(17)}, {"a": 1}, "a"):
        wrong: Any = {"input_file_id": ids[1], "endpoint": "/v1/responses", "metadata": metadata}
        with pytest.raises(openai.BadRequestError, match="metadata"):
            client.batches.create(**wrong, completion_window="24h")
    with pytest.raises(openai.BadRequestError, match="purpose"):
        client.files.create(file=b"x", purpose="nothing")  # type: ignore[arg-type]
    with pytest.raises(openai.BadRequestError, match=r"Must be \.jsonl"):
        client.files.create(file=("lines.txt", jsonl(1)), purpose="batch")


async def test_openais_async_client_takes_a_batch_from_end_to_end() -> None:
    sim = world("0")
    http = httpx2.AsyncClient(transport=Wire(sim))
    async with openai.AsyncOpenAI(api_key="k", base_url="http://sim/v1", max_retries=0, http_client=http) as client:
        file = await client.files.create(file=("in.jsonl", jsonl(3, "/v1/responses", input="hi")), purpose="batch")
        batch = await client.batches.create(input_file_id=file.id, endpoint="/v1/responses", completion_window="24h")
        sim.now = 1
        assert [one.id async for one in client.batches.list(limit=1)] == [batch.id]
        batch = await client.batches.retrieve(batch.id)
        assert batch.status == "completed"
        assert batch.output_file_id is not None
        assert len((await client.files.content(batch.output_file_id)).text.splitlines()) == 3
        assert (await client.files.delete(file.id)).deleted


@pytest.mark.parametrize("endpoint", ["/chat/completions", "/v1/chat/completions"])
def test_azures_paths_and_key(endpoint: str) -> None:
    sim = world("100")
    http = httpx2.Client(transport=Wire(sim))
    client = openai.AzureOpenAI(
        api_key="k", api_version="2025-04-01-preview", azure_endpoint="http://sim", max_retries=0, http_client=http
    )
    batch = submitted(client, jsonl(2, endpoint), endpoint)
    sim.now = 101
    assert client.batches.retrieve(batch.id).status == "completed"
    newer = openai.OpenAI(
        api_key="unused", base_url="http://sim/openai/v1/", default_headers={"api-key": "k", "authorization": ""},
        http_client=http,
    )  # fmt: skip
    assert [one.id for one in newer.batches.list()] == [batch.id]
    assert client.chat.completions.create(**chat("hi")).choices[0].message.content  # type: ignore[call-overload]


def test_openrouters_batch_has_its_results_inline() -> None:
    sim = world("100")
    requests = [{"custom_id": f"r{n}", "body": {"messages": [{"role": "user", "content": f"q{n}"}]}} for n in range(3)]
    body = {"endpoint": "/v1/chat/completions", "model": "m", "completion_window": "24h", "requests": requests}
    status, batch = asked(sim, "POST", "/api/v1/batches", body)
    assert (status, batch["status"], batch["results"]) == (202, "validating", None)
    path = f"/api/v1/batches/{batch['id']}"
    assert asked(sim, "DELETE", path)[0] == 409
    assert asked(sim, "POST", path + "/cancel")[0] == 404
    sim.now = 101
    batch = asked(sim, "GET", path)[1]
    live = asked(sim, "POST", "/api/v1/chat/completions", {"model": "m", **requests[1]["body"]})[1]  # type: ignore[dict-item]
    got = {line["custom_id"]: line["response"]["body"] for line in batch["results"]}  # type: ignore[attr-defined]
    assert got["r1"] == live
    assert batch["usage"]["total_tokens"] == 3 * live["usage"]["total_tokens"]  # type: ignore[index]
    listed = asked(sim, "GET", "/api/v1/batches?status=completed")[1]
    assert listed["data"] == [{**batch, "results": None}]
    assert asked(sim, "GET", "/api/v1/batches?status=failed")[1]["data"] == []
    assert asked(sim, "DELETE", path)[0] == 200
    assert asked(sim, "GET", path)[0] == 404
    assert asked(sim, "POST", "/api/v1/batches", {"requests": requests, **body, "endpoint": "/v1/x"})[0] == 400


def anthropic_client(world: World) -> anthropic.Anthropic:
    http = httpx2.Client(transport=Wire(world))
    return anthropic.Anthropic(api_key="k", base_url="http://sim", max_retries=0, http_client=http)


def test_anthropics_batch_has_states_and_the_live_answers() -> None:
    sim = world("100")
    client = anthropic_client(sim)
    batch = client.messages.batches.create(requests=messages(4))
    assert (batch.processing_status, batch.results_url, batch.request_counts.processing) == ("in_progress", None, 4)
    sim.now = 90
    batch = client.messages.batches.retrieve(batch.id)
    assert (batch.processing_status, batch.request_counts.processing) == ("in_progress", 4)
    with pytest.raises(anthropic.BadRequestError):
        client.messages.batches.delete(batch.id)
    with pytest.raises(anthropic.NotFoundError):
        client.get(f"/v1/messages/batches/{batch.id}/results", cast_to=object)
    sim.now = 101
    batch = client.messages.batches.retrieve(batch.id)
    assert (batch.processing_status, batch.request_counts.succeeded, batch.ended_at) == (
        "ended", 4, batch.created_at + datetime.timedelta(seconds=100),
    )  # fmt: skip
    got = {line.custom_id: line.result for line in client.messages.batches.results(batch.id)}
    for n, one in enumerate(messages(4)):
        result = got[f"line-{n}"]
        assert result.type == "succeeded"
        assert result.message.to_dict() == client.messages.create(**one["params"]).to_dict()
    assert client.messages.batches.delete(batch.id).type == "message_batch_deleted"
    with pytest.raises(anthropic.NotFoundError):
        client.messages.batches.retrieve(batch.id)


@pytest.mark.parametrize(
    ("time", "cancel", "kinds"),
    [
        ("100", True, {"succeeded": 33, "canceled": 67}),
        ("100 expires=65", False, {"succeeded": 33, "expired": 67}),
        ("100 errors=1", False, {"errored": 100}),
        ("100 fails=1", False, {"errored": 100}),
    ],
)
def test_each_line_of_anthropics_batch_has_a_result(time: str, cancel: bool, kinds: dict[str, int]) -> None:
    sim = world(time)
    client = anthropic_client(sim)
    batch = client.messages.batches.create(requests=messages(100))
    sim.now = 60
    if cancel:
        batch = client.messages.batches.cancel(batch.id)
        assert (batch.processing_status, batch.cancel_initiated_at) == (
            "canceling", batch.created_at + datetime.timedelta(seconds=60),
        )  # fmt: skip
    sim.now = 101
    batch = client.messages.batches.retrieve(batch.id)
    got = {line.custom_id: line.result.type for line in client.messages.batches.results(batch.id)}
    assert Counter(got.values()) == kinds
    assert {kind: count for kind, count in batch.request_counts.to_dict().items() if count} == kinds
    with pytest.raises(anthropic.BadRequestError):
        client.messages.batches.cancel(batch.id)


def test_anthropics_lists_go_both_ways_and_requests_are_checked() -> None:
    sim = world("10 queue=9")
    client = anthropic_client(sim)
    ids = [client.messages.batches.create(requests=messages(1)).id for _ in range(5)]
    assert [one.id for one in client.messages.batches.list(limit=2)] == ids[::-1]
    assert [one.id for one in client.messages.batches.list(limit=2, before_id=ids[0]).data] == [ids[2], ids[1]]
    with pytest.raises(anthropic.RateLimitError):
        client.messages.batches.create(requests=messages(5))
    for wrong in ([], messages(1) * 2, [{**messages(1)[0], "custom_id": "a b"}], [{"custom_id": "a"}], ["a"]):
        with pytest.raises(anthropic.BadRequestError, match="requests"):
            client.messages.batches.create(requests=wrong)
    with pytest.raises(anthropic.NotFoundError, match="not_found_error"):
        client.get(f"/v1/messages/batches/{ids[0]}/nothing", cast_to=object)
    assert (client.messages.batches.with_raw_response.list().request_id or "").startswith("req_")
    batch = client.messages.batches.create(requests=messages(1, stream=True) + messages(2, max_tokens=-1)[1:])
    sim.now = 11
    got = [line.result for line in client.messages.batches.results(batch.id)]
    for result in got:
        assert result.type == "errored"
        assert result.error.error.type == "invalid_request_error"


async def test_anthropics_async_client_takes_a_batch_from_end_to_end() -> None:
    sim = world("0")
    http = httpx2.AsyncClient(transport=Wire(sim))
    async with anthropic.AsyncAnthropic(api_key="k", base_url="http://sim", max_retries=0, http_client=http) as client:
        batch = await client.messages.batches.create(requests=messages(3))
        sim.now = 1
        assert [one.id async for one in client.messages.batches.list()] == [batch.id]
        results = [line async for line in await client.messages.batches.results(batch.id)]
        assert len(results) == 3
        await client.messages.batches.delete(batch.id)


def gemini_client(world: World) -> genai.Client:
    options = types.HttpOptions(
        base_url="http://sim",
        httpx_client=httpx2.Client(transport=Wire(world)),
        httpx_async_client=httpx2.AsyncClient(transport=Wire(world)),
    )
    return genai.Client(api_key="k", http_options=options)


def inlined(count: int) -> list[Any]:
    return [
        {"contents": [{"role": "user", "parts": [{"text": f"question {n}"}]}], "metadata": {"custom_id": f"line-{n}"}}
        for n in range(count)
    ]


def test_geminis_inline_batch_has_states_and_the_live_answers() -> None:
    sim = world("100")
    client = gemini_client(sim)
    batch = client.batches.create(model="sim-text", src=inlined(4), config={"display_name": "run 1"})
    assert (batch.state, batch.display_name, batch.dest) == (types.JobState.JOB_STATE_PENDING, "run 1", None)
    assert batch.name is not None
    sim.now = 90
    assert client.batches.get(name=batch.name).state == types.JobState.JOB_STATE_RUNNING
    sim.now = 101
    batch = client.batches.get(name=batch.name)
    assert (batch.state, batch.model) == (types.JobState.JOB_STATE_SUCCEEDED, "models/sim-text")
    assert batch.dest is not None
    assert batch.dest.inlined_responses is not None
    for n, one in enumerate(batch.dest.inlined_responses):
        assert one.metadata == {"custom_id": f"line-{n}"}
        assert one.response is not None
        live = client.models.generate_content(model="sim-text", contents=f"question {n}")
        assert one.response.text == live.text
        shared = {name: value for name, value in live.to_json_dict().items() if name in one.response.to_json_dict()}
        assert one.response.to_json_dict() == shared
    assert batch.name is not None
    client.batches.delete(name=batch.name)
    with pytest.raises(genai.errors.ClientError, match="404"):
        client.batches.get(name=batch.name)


def gemini_file(client: genai.Client, count: int) -> types.File:
    lines = [
        {"key": f"line-{n}", "request": {"contents": [{"parts": [{"text": f"question {n}"}]}]}} for n in range(count)
    ]
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    return client.files.upload(file=io.BytesIO(data), config={"display_name": "in", "mime_type": "application/jsonl"})


@pytest.mark.parametrize("cancel", [False, True])
def test_geminis_batch_of_a_file_has_its_answers_in_a_file(cancel: bool) -> None:
    sim = world("100")
    client = gemini_client(sim)
    file = gemini_file(client, 10)
    assert file.name is not None
    batch = client.batches.create(model="sim-text", src=file.name, config={"display_name": "run 1"})
    assert batch.name is not None
    sim.now = 70
    if cancel:
        client.batches.cancel(name=batch.name)
    sim.now = 101
    batch = client.batches.get(name=batch.name)
    assert batch.state == (types.JobState.JOB_STATE_CANCELLED if cancel else types.JobState.JOB_STATE_SUCCEEDED)
    assert batch.dest is not None
    assert batch.dest.file_name is not None
    lines = [json.loads(line) for line in client.files.download(file=batch.dest.file_name).splitlines()]
    assert sorted(line["key"] for line in lines) == sorted(f"line-{n}" for n in range(10))
    assert sum("response" in line for line in lines) == (5 if cancel else 10)
    assert all(line["error"]["code"] == 1 for line in lines if "error" in line)


@pytest.mark.parametrize(("time", "state"), [("9 fails=1", "FAILED"), ("9 expires=8", "EXPIRED")])
def test_geminis_batch_may_fail_and_expire(time: str, state: str) -> None:
    sim = world(time)
    client = gemini_client(sim)
    batch = client.batches.create(model="sim-text", src=inlined(2))
    sim.now = 10
    assert batch.name is not None
    batch = client.batches.get(name=batch.name)
    assert batch.state == types.JobState(f"JOB_STATE_{state}")
    assert batch.dest is None


def test_each_interface_has_its_own_files() -> None:
    sim = world("10")
    gemini, chat = gemini_client(sim), openai_client(sim, "k")
    name = gemini_file(gemini, 1).name
    id = chat.files.create(file=("x.jsonl", b"x"), purpose="batch").id
    assert [one.id for one in chat.files.list(purpose="batch")] == [id]
    assert [one.name for one in gemini.files.list()] == [name]


def test_geminis_lists_files_and_wrong_requests() -> None:
    sim = world("10 queue=9 errors=1")
    client = gemini_client(sim)
    names = [client.batches.create(model="m", src=inlined(1)).name for _ in range(5)]
    assert [one.name for one in client.batches.list(config={"page_size": 2})] == names[::-1]
    with pytest.raises(genai.errors.ClientError, match="429"):
        client.batches.create(model="m", src=inlined(5))
    for wrong in ({"requests": []}, {"requests": ["a"]}, {"requests": 1}, {}):
        path, body = "/v1beta/models/m:batchGenerateContent", {"batch": {"inputConfig": {"requests": wrong}}}
        assert asked(sim, "POST", path, body)[0] == 400
    big = client.files.upload(file=io.BytesIO(b"x" * 20_000_000), config={"mime_type": "text/plain"})
    assert (big.size_bytes, big.mime_type, big.state) == (20_000_000, "text/plain", types.FileState.ACTIVE)
    files = [big.name, gemini_file(client, 1).name]
    assert [one.name for one in client.files.list(config={"page_size": 1})] == files
    assert big.name is not None
    assert client.files.get(name=big.name).sha256_hash == big.sha256_hash
    client.files.delete(name=big.name)
    with pytest.raises(genai.errors.ClientError, match="404"):
        client.files.get(name=big.name)
    with pytest.raises(genai.errors.ClientError, match="404"):
        client.batches.create(model="m", src=big.name)
    sim.now = 11
    assert names[0] is not None
    batch = client.batches.get(name=names[0])
    assert batch.dest is not None
    assert batch.dest.inlined_responses is not None
    assert batch.dest.inlined_responses[0].error is not None
    assert batch.dest.inlined_responses[0].error.code == 13


async def test_geminis_async_client_takes_a_batch_from_end_to_end() -> None:
    sim = world("0")
    client = gemini_client(sim)
    file = await client.aio.files.upload(
        file=io.BytesIO(b'{"key":"a","request":{"contents":[]}}'), config={"mime_type": "a/b"}
    )
    batch = await client.aio.batches.create(model="sim-text", src=file.name)
    sim.now = 1
    assert batch.name is not None
    batch = await client.aio.batches.get(name=batch.name)
    assert batch.dest is not None
    assert batch.dest.file_name is not None
    [line] = (await client.aio.files.download(file=batch.dest.file_name)).splitlines()
    assert json.loads(line)["error"]["code"] == 3
    await client.aio.batches.delete(name=batch.name)
    assert file.name is not None
    await client.aio.files.delete(name=file.name)
