"""The wire of the batch interfaces: what is sent, and how states, lists and results are read.

With the environment variable `MANYSTREAM_SHARED`, recorded bodies of real servers are read as well.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import manystream as ms
from manystream.providers.catalog.batches import KINDS, BatchInterface, BatchResult, interface_of
from manystream.providers.catalog.profiles import PROFILES
from manystream.providers.catalog.registry import dialect_of
from manystream.providers.json.json_values import loads_object

RECORDED = Path(os.environ.get("MANYSTREAM_SHARED", "/nowhere")) / "corpus" / "batches"

PROVIDERS: dict[str, ms.Provider] = {
    "openai": ms.OpenAIChat("key", "https://api.openai.com/v1"),
    "responses": ms.OpenAIResponses("key", "https://api.openai.com/v1"),
    "azure": ms.OpenAIChat("key", "https://x.openai.azure.com/openai/v1"),
    "openrouter": ms.OpenAIChat("key", "https://openrouter.ai/api/v1"),
    "anthropic": ms.Anthropic("key", "https://api.anthropic.com"),
    "gemini": ms.Gemini("key", "https://generativelanguage.googleapis.com"),
    "gemini below a version": ms.Gemini("key", "https://proxy.example/v1beta"),
}


def interface(name: str) -> BatchInterface:
    found = interface_of(PROVIDERS[name])
    assert found is not None
    return found


def one_line(name: str, **options: Any) -> tuple[BatchInterface, bytes, str]:
    """Return the interface, the line of a request, and the path of the request that creates the batch."""
    provider, kind = PROVIDERS[name], interface(name)
    request = ms.Request("m", [ms.Message.user("Hi")], **options)
    wire = dialect_of(provider.profile).encode(request, "m", provider, stream=False)
    group = kind.group("m", wire)
    assert group is not None
    line = kind.line("k-0", wire.body, group)
    return kind, line, kind.create("k", [line], "file-1" if kind.files else None, group).path


CREATED = {
    "openai": ("/batches", {"custom_id": "k-0", "method": "POST", "url": "/v1/chat/completions"}),
    "responses": ("/batches", {"custom_id": "k-0", "method": "POST", "url": "/v1/responses"}),
    "azure": ("/batches", {"custom_id": "k-0", "method": "POST", "url": "/chat/completions"}),
    "openrouter": ("/batches", {"custom_id": "k-0"}),
    "anthropic": ("/v1/messages/batches", {"custom_id": "k-0"}),
    "gemini": ("/v1beta/models/m:batchGenerateContent", {"key": "k-0"}),
    "gemini below a version": ("/models/m:batchGenerateContent", {"metadata": {"key": "k-0"}}),
}


@pytest.mark.parametrize("name", CREATED)
def test_a_line_has_the_body_of_the_live_request(name: str) -> None:
    _, line, path = one_line(name)
    expected_path, members = CREATED[name]
    value = json.loads(line)
    assert path == expected_path
    assert {member: value[member] for member in members} == members
    (body,) = (value[member] for member in ("body", "params", "request") if member in value)
    assert "Hi" in json.dumps(body)
    assert body.get("stream") is not True


@pytest.mark.parametrize("name", [name for name in CREATED if name not in ("anthropic",)])
def test_a_line_with_headers_of_its_own_is_in_no_batch(name: str) -> None:
    provider = PROVIDERS[name]
    request = ms.Request("m", [ms.Message.user("Hi")], extra_headers={"x-own": "1"})
    wire = dialect_of(provider.profile).encode(request, "m", provider, stream=False)
    assert interface(name).group("m", wire) is None


UPLOADS: dict[str, tuple[str, list[bytes], bytes, bytes, bytes]] = {
    "openai": (
        "/files",
        [b'name="purpose"\r\n\r\nbatch\r\n--', b'filename="manystream-k.jsonl"\r\nContent-Type: application/jsonl'],
        b'{"id":"f1","filename":"manystream-k.jsonl"}',
        b'{"data":[{"id":"f0","filename":"other"},{"id":"f1","filename":"manystream-k.jsonl"}]}',
        b'{"input_file_id":"f1"',
    ),
    "gemini": ("/upload/v1beta/files", [b'json\r\n\r\n{"file":{"displayName":"manystream-k.jsonl"}}\r\n--',
        b"Content-Type: application/jsonl"], b'{"file":{"name":"files/f1","displayName":"manystream-k.jsonl"}}',
        b'{"files":[{"name":"files/f1","displayName":"manystream-k.jsonl"},{"name":"files/f2"}]}',
        b'"inputConfig":{"fileName":"files/f1"}'),
}  # fmt: skip
"""Interface → path of an upload, parts of its body, the answer, the list of files, and what creates the batch."""


@pytest.mark.parametrize("name", [*UPLOADS, "gemini below a version"])
def test_the_key_travels_with_the_batch_where_it_is_kept(name: str) -> None:
    kind, line, _ = one_line(name)
    group = kind.group("m", one_wire(name))
    assert group is not None
    created = json.loads(kind.create("k", [line], "f" if kind.files else None, group).body)
    shown = {"id": "b", **created} if name == "openai" else {"name": "b", "metadata": created["batch"]}
    state = kind.state(loads_object(json.dumps(shown)))
    assert (state.id, state.key) == ("b", "k")


PATHS: dict[str, tuple[str, str, str, str]] = {
    "openai": ("/batches/b", "/batches/b/cancel", "/batches?limit=100&after=x%2F", "/files/r/content"),
    "anthropic": (
        "/v1/messages/batches/b",
        "/v1/messages/batches/b/cancel",
        "/v1/messages/batches?limit=100&after_id=x%2F",
        "/v1/messages/batches/r/results",
    ),
    "gemini": (
        "/v1beta/b", "/v1beta/b:cancel", "/v1beta/batches?pageSize=100&pageToken=x%2F", "/v1beta/r:download?alt=media",
    ),
    "gemini below a version": ("/b", "/b:cancel", "/batches?pageSize=100&pageToken=x%2F", "/r:download?alt=media"),
}  # fmt: skip


@pytest.mark.parametrize("name", PATHS)
def test_the_paths_of_an_interface(name: str) -> None:
    kind = interface(name)
    found = (kind.read("b").path, kind.cancel("b").path, kind.list("x/").path, kind.results("r").path)
    assert found == PATHS[name]
    assert [wire.method for wire in (kind.read("b"), kind.cancel("b"))] == ["GET", "POST"]


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("id", [".", "..", "a/..", "../a", "a/./b"])
def test_an_id_that_changes_the_path_is_refused(name: str, id: str) -> None:
    kind = interface(name)
    for make in (kind.read, kind.cancel, kind.results):
        with pytest.raises(ms.ProviderError, match="is no id"):
            make(id)


def one_wire(name: str) -> Any:
    provider = PROVIDERS[name]
    request = ms.Request("m", [ms.Message.user("Hi")])
    return dialect_of(provider.profile).encode(request, "m", provider, stream=False)


ANSWER = {"id": "c", "object": "chat.completion", "model": "m", "choices": []}


def failed(status: int, kind: str) -> dict[str, Any]:
    return {"status_code": status, "body": {"type": "error", "error": {"type": kind, "message": kind}}}


RESULTS: list[tuple[str, dict[str, Any], tuple[str, int] | None]] = [
    ("openai", {"custom_id": "k-1", "response": {"status_code": 200, "body": ANSWER}, "error": None}, ("k-1", 200)),
    ("openai", {"custom_id": "k-1", "response": {"status_code": 400, "body": {"error": {}}}}, ("k-1", 400)),
    ("openai", {"custom_id": "k-1", "response": None, "error": {"code": "batch_expired"}}, ("k-1", 0)),
    ("openai", {"custom_id": "k-1", "response": None, "error": {"code": "batch_cancelled"}}, ("k-1", 0)),
    ("openai", {"custom_id": "k-1", "response": None, "error": {"type": "server_error"}}, ("k-1", 500)),
    ("openai", {"custom_id": "k-1", "error": {"code": "invalid_request", "message": "no model"}}, ("k-1", 400)),
    ("openai", {"custom_id": "k-1", "error": {"code": "model_not_found", "message": "no"}}, ("k-1", 404)),
    ("openai", {"custom_id": "k-1", "error": {"code": "odd", "message": "no"}}, ("k-1", 500)),
    ("openai", {"custom_id": "k-1", "response": {"status_code": 0, "body": {}}}, ("k-1", 0)),
    ("openai", {"custom_id": "k-1"}, ("k-1", 0)),
    ("openai", {"response": {"status_code": 200, "body": ANSWER}}, None),
    ("openrouter", {"custom_id": "a", "response": failed(499, "canceled")}, ("a", 0)),
    ("openrouter", {"custom_id": "a", "response": failed(408, "expired")}, ("a", 0)),
    ("openrouter", {"custom_id": "a", "response": failed(429, "rate_limit_error")}, ("a", 429)),
    ("anthropic", {"custom_id": "a", "result": {"type": "succeeded", "message": {"id": "msg"}}}, ("a", 200)),
    ("anthropic", {"custom_id": "a", "result": {"type": "canceled"}}, ("a", 0)),
    ("anthropic", {"custom_id": "a", "result": {"type": "expired"}}, ("a", 0)),
    ("anthropic", {"custom_id": "a", "result": {"type": "errored", "error": {"type": "api_error"}}}, ("a", 500)),
    (
        "anthropic",
        {"custom_id": "a", "result": {"type": "errored", "error": {"error": {"type": "overloaded_error"}}}},
        ("a", 529),
    ),
    ("gemini", {"key": "a", "response": {"candidates": []}}, ("a", 200)),
    ("gemini", {"metadata": {"key": "a"}, "error": {"code": 3, "message": "bad"}}, ("a", 400)),
    ("gemini", {"metadata": {"key": "a"}, "error": {"code": 8, "message": "full"}}, ("a", 429)),
    ("gemini", {"metadata": {"key": "a"}, "error": {"code": 1, "message": "cancelled"}}, ("a", 0)),
    ("gemini", {"key": "a", "status": {"code": 13, "message": "internal"}}, ("a", 500)),
    ("gemini", {"response": {"candidates": []}}, None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "expected"), RESULTS)
def test_a_result_is_read_as_if_live(name: str, value: dict[str, Any], expected: tuple[str, int] | None) -> None:
    found = interface(name).result_of_line(json.dumps(value).encode())
    assert (None if found is None else (found.id, found.status)) == expected


@pytest.mark.parametrize(
    "raw", ["NaN", "1e999", "9" * 5000, "[" * 300 + "]" * 300, "[" * 1000 + "]" * 1000, '"\\ud83d"']
)
@pytest.mark.parametrize(("name", "value", "expected"), [each for each in RESULTS if each[2] is not None])
def test_a_result_that_our_writer_refuses_is_read(
    name: str, value: dict[str, Any], expected: tuple[str, int], raw: str
) -> None:
    """One such line must not keep the others of its file: the file would be read again for ever."""
    line = json.dumps(value)
    for place in (line.rfind("{"), max(0, line.find("{", 1))):
        found = interface(name).result_of_line(
            f'{line[: place + 1]}"x": {raw}, {line[place + 1 :]}'.replace(", }", "}").encode()
        )
        assert found is not None
        assert (found.id, found.status) == expected


@pytest.mark.parametrize("line", [b"", b"  \n", b'{"custom_id":"a","resp', b"[1]", b"null"])
@pytest.mark.parametrize("name", PROVIDERS)
def test_a_line_that_cannot_be_read_is_no_result(name: str, line: bytes) -> None:
    assert interface(name).result_of_line(line) is None


def test_a_batch_that_failed_as_a_whole_names_its_lines() -> None:
    errors = {"data": [{"code": "invalid_json_line", "message": "no JSON", "line": 3}, {"code": "x", "line": 7}]}
    state = interface("openai").state(loads_object(json.dumps({"id": "b", "status": "failed", "errors": errors})))
    assert (state.ended, state.bad_lines, state.is_full) == (True, (3, 7), False)
    assert "no JSON" in state.problem
    errors = {"data": [{"code": "token_limit_exceeded", "message": "full", "line": None}]}
    state = interface("openai").state(loads_object(json.dumps({"id": "b", "status": "failed", "errors": errors})))
    assert (state.is_full, state.bad_lines) == (True, ())


def test_every_kind_is_loaded_and_other_providers_have_none() -> None:
    assert interface_of(ms.OpenAIChat("key", "https://api.mistral.ai/v1")) is None
    assert set(KINDS) <= {row.name for row in PROFILES}
    assert all(interface_of(ms.Provider("key", "http://x", profile=row)) for row in PROFILES if row.name in KINDS)


# --- recorded bodies ---
def recorded() -> Iterator[tuple[str, Path]]:
    for path in sorted(RECORDED.glob("*.body")):
        provider = path.name.partition(".")[0]
        if provider in PROVIDERS:
            yield provider, path


def decoded(provider: str, result: BatchResult) -> tuple[bool, str | None]:
    server = PROVIDERS["responses" if b'"output"' in result.body and provider == "openai" else provider]
    dialect = dialect_of(server.profile)
    if b'"stop_reason"' in result.body:
        dialect = dialect_of(PROVIDERS["anthropic"].profile)
    if not 200 <= result.status < 300:
        return False, None
    try:
        return True, dialect.decode(result.body, server, lambda: "id").text
    except ms.ProviderError as error:  # a refused prompt is an error of the live way, and for the reference an answer
        return error.category is ms.ErrorCategory.CONTENT_FILTER, "" if b"blockReason" in result.body else None


@pytest.mark.skipif(not RECORDED.is_dir(), reason="MANYSTREAM_SHARED names no folder with corpus/batches")
@pytest.mark.parametrize(("provider", "path"), [pytest.param(*case, id=case[1].name) for case in recorded()])
def test_recorded_bodies_are_read_as_their_reference_says(provider: str, path: Path) -> None:
    kind, body = interface(provider), path.read_bytes()
    expected = json.loads(path.with_name(path.name.removesuffix(".body") + ".expect.json").read_text())
    if expected["kind"] == "error":
        return
    lines = expected.get("lines")
    results: list[BatchResult] = []
    if expected["kind"] == "results":
        results = [found for line in body.split(b"\n") if (found := kind.result_of_line(line))]
    elif expected["kind"] == "list":
        states, after = kind.read_list(loads_object(body))
        assert [state.id for state in states] == [batch["id"] for batch in expected["batches"]]
        assert (after is not None) == expected["has_more"]
        return
    else:
        state = kind.state(loads_object(body))
        assert (state.id, state.ended) == (expected["batch_id"], expected["done"])
        counts = expected.get("counts") or {}
        if counts and provider != "gemini":
            assert state.total == counts["total"]
        results = [*filter(None, map(kind.result, state.lines))]
    for line in lines or []:
        if line["id"] is None:
            continue
        found = [result for result in results if result.id == line["id"]]
        assert found, line
        outcomes = [decoded(provider, result) for result in found]
        assert (line["ok"], line["text"] if line["ok"] else None) in outcomes, (line, found)
