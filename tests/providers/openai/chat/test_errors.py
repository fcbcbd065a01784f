"""Error responses and errors inside a stream: category, message, code, hint, and every form of body."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import manystream as ms
from manystream.providers.model.provider_error import BODY_LIMIT
from manystream.providers.model.response import arrived
from manystream.providers.openai.chat import DIALECT
from manystream.providers.wire.error_bodies import MESSAGE_LIMIT, error_from_object
from tests.providers.statuses import CASES

from .wire import OPENAI, SERVER, decode, stream

NOW = 1_800_000_000.0


def failed(status: int, body: object, headers: dict[str, str] | None = None) -> ms.ProviderError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return DIALECT.decode_error(status, headers or {}, data, NOW)


def in_stream(error: object) -> ms.ProviderError:
    return error_from_object(error, http_status=200, body=b"")  # type: ignore[arg-type]


# --- classification ---


@pytest.mark.parametrize(("status", "category"), CASES)
def test_every_status(status: int, category: ms.ErrorCategory) -> None:
    for body in (b"", b"{}", b"gone", b'{"error": {"message": "m", "type": "invalid_request_error"}}'):
        assert failed(status, body).category is category
    assert failed(status, b"").message == f"HTTP {status}"
    assert failed(status, b"").http_status == status


# --- forms ---

SHAPES: list[tuple[object, str, str | None]] = [
    ({"error": {"message": "why", "type": "t", "param": None, "code": "c"}}, "why", "c"),
    ({"error": {"message": "why", "type": "t", "code": None}}, "why", "t"),
    ({"error": {"message": "why", "code": 1301}}, "why", "1301"),
    ({"error": "why"}, "why", None),
    ({"code": "invalid-argument", "error": "why"}, "why", "invalid-argument"),
    ({"object": "error", "message": "why", "type": "BadRequestError", "code": 400}, "why", "400"),
    ({"message": "why"}, "why", None),
    ({"detail": "why"}, "why", None),
    ({"detail": [{"loc": ["body", "x"], "msg": "why", "type": "missing"}]}, "body.x: why", "missing"),
    ({"detail": [{"loc": ["x"], "msg": "why"}, {"loc": ["y", 0], "msg": "what"}]}, "x: why; y.0: what", None),
    ({"object": "error", "message": {"detail": [{"loc": ["body"], "msg": "why"}]}, "type": "t", "code": None},
        "body: why", "t"),
    ({"error": {"message": {"message": "why"}}}, "why", None),
    ({"errors": [{"message": "why", "code": 10000}]}, "why", "10000"),
    ([{"error": {"code": 400, "message": "why", "status": "INVALID_ARGUMENT"}}], "why", "400"),
    ({"title": "why", "status": 422}, "why", "422"),
    ({"error": {"code": "c"}}, "c", "c"),
    ({"type": "error", "error": {"type": "overloaded_error", "message": "why"}}, "why", "overloaded_error"),
    ('"why"', "why", None),
    ("why\n   not", "why not", None),
    ("<html><head><title>502 Bad\nGateway</title></head><body>x</body></html>", "502 Bad Gateway", None),
    ("<!doctype html><style>p{}</style><p>why</p>", "why", None),
    ("{broken", "{broken", None),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message", "code"), SHAPES)
def test_shapes(body: object, message: str, code: str | None) -> None:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    error = failed(400, data)
    assert (error.message, error.provider_code) == (message, code)
    assert error.body == data
    assert error.category in (ms.ErrorCategory.INVALID_ARG, ms.ErrorCategory.SERVER)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b"  ", b'{"error": {}}', b'{"error": null}', b"[[[]]]"])
def test_bodies_without_information(body: bytes) -> None:
    assert failed(503, body).message in ("HTTP 503", "null")
    assert failed(503, body).category is ms.ErrorCategory.SERVER


def test_messages_and_bodies_are_bounded() -> None:
    error = failed(500, b"x" * 100_000)
    assert len(error.message) <= MESSAGE_LIMIT + 1
    assert len(error.body) == BODY_LIMIT
    assert len(failed(500, {"error": {"message": "x" * 100_000}}).message) <= MESSAGE_LIMIT + 1


# --- hints and ids ---


def test_x_should_retry_false_is_obeyed() -> None:
    assert failed(500, b"").retryable
    assert not failed(500, b"", {"x-should-retry": "false"}).retryable
    assert not failed(400, b"", {"x-should-retry": "true"}).retryable


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    ["error", "message", "code", "type", "detail", "metadata", "raw", "status", "loc", "x"]
                ),
                inner,
                max_size=5,
            )
        ),
        max_leaves=15,
    ),
    st.integers(0, 600),
)
def test_no_body_crashes(value: object, status: int) -> None:
    body = json.dumps(value).encode()
    assert failed(status, body).message
    assert error_from_object(value, http_status=status, body=body).message  # type: ignore[arg-type]


@given(st.binary(max_size=200))
def test_no_bytes_crash(body: bytes) -> None:
    assert failed(500, body).category is ms.ErrorCategory.SERVER


def test_deeply_nested_errors_are_read_in_part() -> None:
    deep = b'{"error":' * 5000 + b'"why"' + b"}" * 5000
    assert failed(500, deep).category is ms.ErrorCategory.SERVER
    assert failed(500, b'{"error":' * 50 + b'"why"' + b"}" * 50).message


# --- errors with status 200 ---

GOOD = 'data: {"model":"m","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}'


@pytest.mark.parametrize(
    ("line", "category"),
    [
        ('data: {"error":{"message":"why","type":"server_error"}}', ms.ErrorCategory.SERVER),
        ('data: {"error":{"message":"why","code":"rate_limit_exceeded"}}', ms.ErrorCategory.RATE_LIMIT),
        ('data: {"error":"why"}', ms.ErrorCategory.UNKNOWN),
        ('data: {"error":"why","code":"overloaded"}', ms.ErrorCategory.SERVER),
        ('data: {"error":true,"message":"why","code":429}', ms.ErrorCategory.RATE_LIMIT),
        ('data: {"object":"error","message":"why","type":"BadRequestError","code":400}', ms.ErrorCategory.INVALID_ARG),
        ('data: {"type":"error","error":{"type":"overloaded_error","message":"why"}}', ms.ErrorCategory.SERVER),
        ('data: {"type":"error","message":"why","code":"timeout"}', ms.ErrorCategory.TIMEOUT),
        ('data: {"detail":"why"}', ms.ErrorCategory.UNKNOWN),
        ('data: {"id":"x","choices":[],"x_groq":{"id":"r","error":"why"}}', ms.ErrorCategory.UNKNOWN),
        ('data: {"choices":[{"index":0,"delta":{},"error":{"code":502,"message":"why"}}]}', ms.ErrorCategory.SERVER),
        ('data: {"error":{"code":502,"message":"why"},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}',
            ms.ErrorCategory.SERVER),
        ('event: error\ndata: {"error":{"message":"why","type":"invalid_request_error","code":"tool_use_failed",'
            '"status_code":400}}', ms.ErrorCategory.INVALID_ARG),
        ('event: error\ndata: {"message":"why","code":"429"}', ms.ErrorCategory.RATE_LIMIT),
        ("event: error\ndata: why", ms.ErrorCategory.UNKNOWN),
    ],
)  # fmt: skip
def test_errors_inside_a_stream(line: str, category: ms.ErrorCategory) -> None:
    for before in ("", f"{GOOD}\n{GOOD}\n{GOOD}\n"):
        outcome = stream(f"{before}{line}\ndata: [DONE]")
        error = outcome.error.error
        assert (error.category, error.message, error.http_status) == (category, "why", 200)
        assert outcome.response.text == ("aaa" if before else "")
        assert len(outcome.events) == (5 if before else 1)


@pytest.mark.parametrize("error", ["null", "{}", '""', "false", '{"message":"","code":0}'])
def test_an_empty_error_member_is_no_error(error: str) -> None:
    outcome = stream(f"""
        {GOOD}
        data: {{"error":{error},"choices":[{{"index":0,"delta":{{"content":"b"}},"finish_reason":"stop"}}]}}
        data: [DONE]
    """)
    assert outcome.response.text == "ab"
    assert outcome.done.finish_reason is ms.FinishReason.STOP


@pytest.mark.parametrize(
    ("members", "kept"),
    [
        ({}, False),
        ({"id": "c1", "model": "m", "choices": []}, False),
        ({"usage": {"prompt_tokens": 3, "completion_tokens": 1}}, True),
        ({"id": "c1", "choices": [{"index": 0, "finish_reason": "error"}]}, True),
    ],
)
def test_an_error_keeps_one_response_streamed_and_unstreamed(members: ms.JSONObject, kept: bool) -> None:
    chunk = {"error": {"message": "why", "code": 400}, **members}
    streamed = stream(f"data: {json.dumps(chunk)}\n\n")
    with pytest.raises(ms.ProviderError, match="why") as caught:
        decode(chunk)
    assert streamed.error.error == caught.value
    assert arrived(streamed.response) == caught.value.partial
    assert (caught.value.partial is not None) == kept


def test_a_chunk_with_an_error_keeps_its_text() -> None:
    choice = {"index": 0, "delta": {"content": "the end"}, "finish_reason": "error", "error": {"message": "why"}}
    outcome = stream(f"data: {json.dumps({'choices': [choice]})}\n\n")
    assert (outcome.response.text, outcome.error.error.message) == ("the end", "why")
    assert any(isinstance(event, ms.TextDelta) for event in outcome.events)


def test_an_error_after_the_finish_reason_keeps_the_usage() -> None:
    outcome = stream(f"""
        {GOOD}
        data: {{"choices":[{{"index":0,"delta":{{}},"finish_reason":"stop"}}]}}
        data: {{"error":{{"message":"why","code":502}},"choices":[],"usage":{{"prompt_tokens":3,"completion_tokens":1}}}}
    """)  # noqa: E501
    assert outcome.error.error.category is ms.ErrorCategory.SERVER
    assert outcome.response.usage.total_tokens == 4
    assert outcome.response.text == "a"


@pytest.mark.parametrize(
    ("stray", "category", "message"),
    [
        (b'error: {"message":"why","code":"rate_limit_exceeded"}', ms.ErrorCategory.RATE_LIMIT, "why"),
        (b'error: {"error":{"message":"why","type":"server_error"}}', ms.ErrorCategory.SERVER, "why"),
        (b'junk\n{"error":{"message":"why","code":503}}', ms.ErrorCategory.SERVER, "why"),
        (b'{\n  "error": {\n    "message": "why",\n    "code": 400\n  }\n}', ms.ErrorCategory.INVALID_ARG, "why"),
        (b"error: upstream overloaded", ms.ErrorCategory.SERVER, "upstream overloaded"),
        (b"ERROR: why", ms.ErrorCategory.UNKNOWN, "why"),
        (b"<html>", ms.ErrorCategory.NETWORK, "truncated stream, after '<html>'"),
        (b"{broken", ms.ErrorCategory.NETWORK, "truncated stream, after '{broken'"),
        (b"[1]", ms.ErrorCategory.NETWORK, "truncated stream, after '[1]'"),
    ],
)
def test_errors_in_stray_lines_are_read(stray: bytes, category: ms.ErrorCategory, message: str) -> None:
    outcome = stream(GOOD, stray=stray)
    assert (outcome.error.error.category, outcome.error.error.message) == (category, message)
    assert outcome.response.text == "a"


def test_harmless_stray_lines_are_ignored_after_a_whole_answer() -> None:
    finished = GOOD.replace("null}", '"stop"}')
    assert stream(finished, stray=b"harmless").done.finish_reason is ms.FinishReason.STOP
    outcome = stream(finished, stray=b'error: {"message":"why"}')
    assert outcome.error.error.message == "why"


@pytest.mark.parametrize(
    ("body", "category"),
    [
        ({"error": {"message": "why", "code": 502}}, ms.ErrorCategory.SERVER),
        ({"error": "overloaded"}, ms.ErrorCategory.SERVER),
        ({"choices": [{"error": {"message": "why", "code": 429}}]}, ms.ErrorCategory.RATE_LIMIT),
        ({"detail": "Rate limit"}, ms.ErrorCategory.RATE_LIMIT),
        ({"hello": 1}, ms.ErrorCategory.SERVER),
        ({"choices": "x"}, ms.ErrorCategory.SERVER),
        ({"id": "c", "choices": None, "error": None}, ms.ErrorCategory.SERVER),
        (b"", ms.ErrorCategory.SERVER),
        (b"<html>", ms.ErrorCategory.SERVER),
        (b"[]", ms.ErrorCategory.SERVER),
    ],
)
def test_a_body_that_is_no_answer_is_an_error(body: object, category: ms.ErrorCategory) -> None:
    with pytest.raises(ms.ProviderError) as caught:
        decode(body)
    assert caught.value.category is category


def test_errors_are_the_same_for_every_provider() -> None:
    for provider in (OPENAI, SERVER):
        assert stream('data: {"error":"why"}', provider).error.error.message == "why"
