"""Errors in another dialect's form: every dialect reads them in a stream, unstreamed, and in an error response."""

import json

import pytest
from google.genai import types as google

import manystream as ms
from manystream.providers.catalog.dialect import BARE_LINES
from manystream.providers.catalog.registry import DIALECTS

PROVIDERS: dict[str, ms.Provider] = {
    "openai-chat": ms.OpenAIChat(), "openai-responses": ms.OpenAIResponses(), "anthropic": ms.Anthropic(),
    "gemini": ms.Gemini(),
}  # fmt: skip
each = pytest.mark.parametrize("dialect", PROVIDERS)

SERVER, RATE = ms.ErrorCategory.SERVER, ms.ErrorCategory.RATE_LIMIT
FORMS: dict[str, tuple[str, object, ms.ErrorCategory]] = {
    "llama.cpp": ("error", {"code": 500, "message": "out of slots", "type": "server_error"}, SERVER),
    "llama.cpp, unnamed": ("", {"code": 500, "message": "out of slots", "type": "server_error"}, SERVER),
    "LiteLLM": ("", {"error": {"message": "out of slots", "type": None, "param": None, "code": "500"}}, SERVER),
    "LiteLLM, typed": ("", {"error": {"message": "out of slots", "type": "throttling", "code": "429"}}, RATE),
    "OpenAI Chat": ("", {"error": {"message": "out of slots", "type": "server_error", "code": None}}, SERVER),
    "OpenAI Chat, code": ("", {"error": {"message": "out of slots", "code": "rate_limit_exceeded"}}, RATE),
    "Responses, flat": ("error", {"type": "error", "code": "server_error", "message": "out of slots"}, SERVER),
    "Responses, nested": ("error", {"type": "error",
        "error": {"type": "too_many_requests", "message": "out of slots"}}, RATE),
    "Responses, failed": ("response.failed", {"type": "response.failed",
        "response": {"status": "failed", "error": {"code": "server_error", "message": "out of slots"}}}, SERVER),
    "Anthropic": ("error", {"type": "error", "error": {"type": "overloaded_error", "message": "out of slots"}}, SERVER),
    "Anthropic, unnamed": ("", {"type": "error", "error": {"type": "api_error", "message": "out of slots"}}, SERVER),
    "Gemini": ("", {"error": {"code": 503, "message": "out of slots", "status": "UNAVAILABLE"}}, SERVER),
    "Gemini, in an array": ("", [{"error": {"code": 429, "message": "out of slots"}}], RATE),
    "Gemini, by status": ("", {"error": {"message": "out of slots", "status": "RESOURCE_EXHAUSTED"}}, RATE),
    "vLLM": ("", {"object": "error", "message": "out of slots", "type": "InternalServerError", "code": 500}, SERVER),
    "a gateway's text": ("error", {"type": "error", "error": "out of slots", "status": 502}, SERVER),
    "a status beside it": ("error", {"type": "error", "error": {"message": "out of slots"}, "status_code": 429}, RATE),
    "Codex": ("error", {"type": "error", "status": 529, "error": {"type": "x", "message": "out of slots"}}, SERVER),
    "DashScope": ("", {"error": {"code": "Throttling.AllocationQuota", "message": "out of slots"}}, RATE),
    "Z.ai": ("", {"code": 500, "msg": "out of slots", "success": False}, SERVER),
    "Z.ai, a number of its own": ("", {"code": 1302, "msg": "out of slots"}, ms.ErrorCategory.UNKNOWN),
    "Interactions": ("error", {"event_type": "error",
        "error": {"code": "prohibited_content", "message": "out of slots"}}, ms.ErrorCategory.CONTENT_FILTER),
    "FastAPI": ("error", {"detail": "out of slots"}, ms.ErrorCategory.UNKNOWN),
    "Rails": ("", {"errors": [{"message": "out of slots", "code": "overloaded"}]}, SERVER),
    "text": ("error", b"out of slots", ms.ErrorCategory.UNKNOWN),
}  # fmt: skip
form = pytest.mark.parametrize("form", FORMS)


def wire(value: object) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def streamed(dialect: str, name: str, data: bytes) -> ms.ProviderError:
    machine = DIALECTS[dialect].machine(PROVIDERS[dialect], lambda: "id")
    events = [*machine.feed(name, data), *machine.end()]
    assert len(events) == 1, events
    assert isinstance(events[0], ms.ErrorEvent)
    return events[0].error


@each
@form
def test_an_error_in_a_stream_is_read_in_any_form(dialect: str, form: str) -> None:
    name, value, category = FORMS[form]
    error = streamed(dialect, name, wire(value))
    assert (error.category, "out of slots" in error.message) == (category, True)
    assert error.body == wire(value)


@each
@form
def test_an_error_in_stray_lines_is_read_in_any_form(dialect: str, form: str) -> None:
    name, value, category = FORMS[form]
    machine = DIALECTS[dialect].machine(PROVIDERS[dialect], lambda: "id")
    (event,) = machine.feed(BARE_LINES, b"error: " + wire(value) if name == "error" else wire(value))
    assert isinstance(event, ms.ErrorEvent)
    assert (event.error.category, "out of slots" in event.error.message) == (category, True)


@each
@form
def test_a_body_with_status_200_that_is_an_error_is_raised(dialect: str, form: str) -> None:
    _, value, category = FORMS[form]
    with pytest.raises(ms.ProviderError, match="out of slots") as raised:
        DIALECTS[dialect].decode(wire(value), PROVIDERS[dialect], lambda: "id")
    # Gemini's own answers may be arrays. In other dialects, a body that is no object is malformed and quoted.
    malformed = isinstance(value, bytes) or (isinstance(value, list) and dialect != "gemini")
    assert raised.value.category is (SERVER if malformed else category)
    assert raised.value.body == wire(value)


@each
@form
@pytest.mark.parametrize(("status", "by_status"), [(404, ms.ErrorCategory.NOT_FOUND), (502, SERVER)])
def test_a_failed_answer_has_the_message(dialect: str, form: str, status: int, by_status: ms.ErrorCategory) -> None:
    _, value, category = FORMS[form]
    error = DIALECTS[dialect].decode_error(status, {"retry-after": "2"}, wire(value), 0.0)
    assert "out of slots" in error.message
    assert error.http_status == status
    assert error.category in (by_status, category)


XAI = "Content violates usage guidelines. Team: a, Failed check: SAFETY_CHECK_TYPE_BIO"
FILTERED, SPENT = (ms.ErrorCategory.CONTENT_FILTER, False), (RATE, False)
MEANINGS: dict[str, tuple[int, object, tuple[ms.ErrorCategory, bool]]] = {
    "xAI": (403, {"code": "permission-denied", "error": XAI}, FILTERED),
    "xAI, in words": (403, {"code": "The caller does not have permission", "error": XAI}, FILTERED),
    "xAI, a known code": (403, {"code": "permission_denied", "error": XAI}, FILTERED),
    "OpenRouter": (403, {"error": {"code": 403, "message": "The model requires moderation and your input was flagged",
        "metadata": {"reasons": ["violence"], "flagged_input": "a"}}}, FILTERED),
    "OpenRouter, behind it": (403, {"error": {"code": 403, "message": "Refused",
        "metadata": {"reasons": ["violence"], "flagged_input": "a"}}}, FILTERED),
    "a key": (403, {"error": {"code": "permission_denied", "message": "Access to the endpoint is denied"}},
        (ms.ErrorCategory.AUTH, False)),
    "an account": (403, {"error": {"message": "Your account was flagged"}}, (ms.ErrorCategory.AUTH, False)),
    "too large": (429, {"error": {"message": "On tokens per min (TPM): Limit 30,000, Requested 45,000.",
        "code": "rate_limit_exceeded"}}, SPENT),
    "too many": (429, {"error": {"message": "On tokens per min: Limit 30000, Used 29000, Requested 2000.",
        "code": "rate_limit_exceeded"}}, (RATE, True)),
    "402, an object": (402, {"error": {"message": "This needs more credits", "code": 402}}, SPENT),
    "402, a text": (402, {"error": "This needs more credits"}, SPENT),
    "402, a code": (402, {"error": "insufficient_quota"}, SPENT),
    "402, a page": (402, b"<title>402</title>", (ms.ErrorCategory.UNKNOWN, False)),
}  # fmt: skip


@each
@pytest.mark.parametrize("name", MEANINGS)
def test_the_words_say_more_than_the_status(dialect: str, name: str) -> None:
    status, body, expected = MEANINGS[name]
    error = DIALECTS[dialect].decode_error(status, {}, wire(body), 0.0)
    assert (error.category, error.retryable, error.http_status) == (*expected, status)


@each
def test_headers_inside_an_error_have_its_hint(dialect: str) -> None:
    for value in (
        {"type": "error", "status": 429, "error": {"message": "slow", "headers": {"Retry-After": "7"}}},
        {"type": "error", "status": 429, "error": {"message": "slow"}, "headers": {"retry-after": 7}},
        {"type": "error", "status": 429, "error": {"message": "slow"}, "retry_after": 7},
    ):
        error = streamed(dialect, "error", wire(value))
        assert (error.category, error.retry_after_ms) == (RATE, 7000)


@pytest.mark.parametrize("dialect", ["gemini", "gemini-interactions"])
def test_every_reason_to_block_a_prompt_is_a_filter(dialect: str) -> None:
    words = {reason.value.lower() for reason in google.BlockedReason} - {"blocked_reason_unspecified"}
    assert "safety" in words
    for code in (*words, "spii", "recitation"):
        value = {"error": {"code": code, "message": "no"}}
        for status in (400, 403):
            assert DIALECTS[dialect].decode_error(status, {}, wire(value), 0.0).category is FILTERED[0], code
        machine = DIALECTS[dialect].machine(ms.GeminiInteractions(), lambda: "id")
        (event,) = machine.feed("error", wire({"event_type": "error", **value}))
        assert isinstance(event, ms.ErrorEvent)
        assert (event.error.category, event.error.retryable) == FILTERED


@each
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"Invalid API key", "Invalid API key"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b"<html><head><title>502 Bad Gateway</title></head></html>", "502 Bad Gateway"),
        (b'"upstream down"', "upstream down"),
        (b'event: error\ndata: {"detail": "busy"}\n\n', "busy"),
        (b'{"message":"no route","request_id":"r-1"}', "no route"),
        (b"", "HTTP 502"),
        (b"{}", "HTTP 502"),
        (b"\xff\xfe", "HTTP 502"),
    ],
)
def test_a_body_of_no_dialects_form_gives_the_same_error(dialect: str, body: bytes, message: str) -> None:
    error = DIALECTS[dialect].decode_error(502, {}, body, 0.0)
    assert (error.message, error.category, error.retryable) == (message, SERVER, True)


@each
@pytest.mark.parametrize(
    "value",
    [
        {"type": "ping"},
        {"type": "some.progress", "message": "working"},
        {"type": "status", "code": 200, "message": "fine"},
        {"error": None},
        {"type": "x", "error": {"message": None, "code": None}},
    ],
)
def test_an_answer_is_not_mistaken_for_an_error(dialect: str, value: object) -> None:
    machine = DIALECTS[dialect].machine(PROVIDERS[dialect], lambda: "id")
    machine.feed("", wire(value))
    assert not machine.ended


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        ("openai-chat", "must have choices"),
        ("openai-responses", "is no response object"),
        ("anthropic", "expected a message with content"),
    ],
)
@pytest.mark.parametrize("value", [{"id": "x", "error": {}}, {"id": "x", "error": ""}, {"id": "x"}])
def test_a_body_with_an_empty_error_and_no_answer_is_malformed(dialect: str, expected: str, value: object) -> None:
    with pytest.raises(ms.ProviderError, match=expected) as caught:
        DIALECTS[dialect].decode(wire(value), PROVIDERS[dialect], lambda: "id")
    assert caught.value.category is SERVER
