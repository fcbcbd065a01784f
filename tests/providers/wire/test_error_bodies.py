"""Error objects and bodies of every known shape, HTML pages too → the whole error, member by member."""

from __future__ import annotations

import json

import pytest

import manystream as ms
from manystream import ErrorEvent, OpenAIChat
from manystream.providers.anthropic import DIALECT as ANTHROPIC
from manystream.providers.catalog.dialect import BARE_LINES, Dialect
from manystream.providers.gemini import DIALECT as GEMINI
from manystream.providers.json.json_values import JSON, JSONObject, dumps
from manystream.providers.model.provider_error import ErrorCategory, ProviderError
from manystream.providers.openai.chat import DIALECT as CHAT
from manystream.providers.openai.chat import DIALECT as OPENAI
from manystream.providers.wire.error_bodies import (
    decode_error,
    error_from_object,
    object_of,
    reported_error,
)

NOW = 1_800_000_000.0

BODY = b"the body"

NO_WORDS = "the server reported an error without a message"


def in_stream(error: JSON) -> ProviderError:
    return error_from_object(error, http_status=200, body=BODY)


def unknown(message: str, **facts: object) -> ProviderError:
    """The expected error inside a stream, of no known category unless one is given."""
    given: dict[str, object] = {"category": ErrorCategory.UNKNOWN, "http_status": 200, "body": BODY, **facts}
    return ProviderError(message, **given)  # type: ignore[arg-type]


BLANK = unknown(NO_WORDS, category=ErrorCategory.SERVER, retryable=True)
"""The expected error of an object that says nothing: the server gave no answer, and no reason why."""

# --- what is an error ---
WHY: JSONObject = {"message": "why"}

MINIMAX: JSONObject = {"status_code": 1002, "status_msg": "why"}

REPORTED: list[tuple[str, JSON, JSON]] = [
    ("", {"error": WHY}, WHY),
    ("", {"error": "why", "code": "c"}, {"error": "why", "code": "c"}),
    ("", {"error": {"code": 0, "message": "why"}}, {"code": 0, "message": "why"}),
    ("", {"error": {"code": 0, "message": ""}}, None),
    ("", [{"error": WHY}, {"error": {"message": "second"}}], WHY),
    ("", [{"choices": []}, {"error": WHY}], None),
    ("", [], None),
    ("", ["why"], None),
    ("error", ["why"], "why"),
    ("error", "why", "why"),
    ("error", 7, 7),
    ("", "why", None),
    ("error", {"text": "why"}, {"text": "why"}),
    ("other", {"text": "why"}, None),
    ("", {"object": "error", "text": "why"}, {"object": "error", "text": "why"}),
    ("", {"type": "error", "text": "why"}, {"type": "error", "text": "why"}),
    ("", {"status": "error", "text": "why"}, None),
    ("", {"type": "response.failed", "response": {"error": WHY, "id": "r"}}, WHY),
    ("", {"type": "response.failed", "response": {"error": None}}, None),
    ("", {"type": "response.completed", "response": {"error": WHY}}, None),
    ("", {"detail": "why"}, {"detail": "why"}),
    ("", {"detail": ""}, None),
    ("", {"errors": [WHY]}, {"errors": [WHY]}),
    ("", {"errors": []}, None),
    ("", {"errors": ["why"]}, None),
    ("", {"message": "why", "code": "not_found"}, {"message": "why", "code": "not_found"}),
    ("", {"message": "why", "type": "server_error"}, {"message": "why", "type": "server_error"}),
    ("", {"message": "why", "code": "Unknown.Code"}, {"message": "why", "code": "Unknown.Code"}),
    *(("", {"message": "why", "code": code}, None) for code in ("", "0", "200", "OK", "success", 7, None)),
    ("", {"message": "why", "success": False}, {"message": "why", "success": False}),
    ("", {"message": "why", "success": True}, None),
    ("", {"message": "why", "type": "unknown"}, None),
    ("", {"message": "why", "statusCode": 401}, {"message": "why", "statusCode": 401}),
    ("", {"choices": None, "base_resp": MINIMAX}, MINIMAX),
    ("", {"choices": [{"index": 0}], "base_resp": MINIMAX}, MINIMAX),
    ("", {"choices": [{"index": 0}], "base_resp": {"status_code": 0, "status_msg": "success"}}, None),
    ("", {"base_resp": None}, None),
    ("", {"message": "why", "status": 500}, {"message": "why", "status": 500}),
    ("", {"message": "why", "status": 200}, None),
    ("", {"message": "why"}, None),
    ("", {"message": "", "code": "not_found"}, None),
    ("", {"message": {"a": 1}, "code": "not_found"}, None),
    ("", {"code": "not_found", "status": 500}, None),
]


@pytest.mark.parametrize(("event", "value", "error"), REPORTED)
def test_the_error_that_an_event_reports(event: str, value: JSON, error: JSON) -> None:
    assert reported_error(event, value) == error


@pytest.mark.parametrize(
    "member", ["choices", "candidates", "content", "delta", "output", "response", "item", "part", "index"]
)
def test_a_part_of_an_answer_is_no_bare_error(member: str) -> None:
    bare: list[JSONObject] = [{"detail": "why"}, {"errors": [WHY]}, {"message": "why", "code": "not_found"}]
    for error in bare:
        assert reported_error("", {**error, member: 0}) is None
        assert reported_error("", {**error, member: None}) == {**error, member: None}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b"error: why", "why"),
        (b"  ERROR:why \n", "why"),
        (b'error: {"message": "why"}', "why"),
        (b"error: \xff", "\ufffd"),
        (b'error: "why"', "why"),
        (b'{"error": "why"}', "why"),
        (b'[{"error": "why"}]', "why"),
        (b'error: {"text": "why"}', NO_WORDS),
        (b"error: 12", NO_WORDS),
        (b"error:", "truncated stream, after 'error:'"),
        (b"errors: why", "truncated stream, after 'errors: why'"),
        (b"why", "truncated stream, after 'why'"),
        (b'error: {"text"', "truncated stream, after 'error: {\"text\"'"),
        (b'error: ["why"]', "truncated stream, after 'error: [\"why\"]'"),
        (b'{"error"', "truncated stream, after '{\"error\"'"),
        (b'"why"', "truncated stream, after '\"why\"'"),
        (b'{"text": "why"}', "truncated stream"),
    ],
)
def test_the_error_in_lines_that_are_no_events(lines: bytes, message: str) -> None:
    machine = OPENAI.machine(OpenAIChat("key"), lambda: "made")
    event = [*machine.feed(BARE_LINES, lines), *machine.end()][-1]
    assert isinstance(event, ErrorEvent)
    assert event.error.message == message


def test_all_objects_of_a_long_line_are_read() -> None:
    machine = OPENAI.machine(OpenAIChat("key"), lambda: "made")
    chunk = b'{"choices":[{"index":0,"delta":{"content":"a"}}]},'
    assert len(machine.feed(BARE_LINES, chunk * 20_000)) == 1 + 20_000


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b' {"a": 1}\n', {"a": 1}),
        (b"[1]", [1]),
        (b'"why"', "why"),
        (b'event: error\ndata: {"a": 1}\n\n', {"a": 1}),
        (b'data: {"a": 1}\ndata: {"b": 2}', {"a": 1}),
        (b"data:  why  \n", "why"),
        (b"event: error\n", ""),
        (b'{"a"', '{"a"'),
        (b"12", "12"),
        (b"null", ""),
        (b"nullify", "nullify"),
        (b"<>", ""),
        (b"a\xff", "a\ufffd"),
        (b"x" * 9000, "x" * 8000),
    ],
)
def test_a_body_is_read_as_json_or_as_text(body: bytes, value: JSON) -> None:
    assert object_of(body) == value


# --- the message ---
@pytest.mark.parametrize(
    ("name", "later"),
    [
        ("error", "errors"),
        ("errors", "detail"),
        ("detail", "message"),
        ("message", "Message"),
        ("Message", "error_message"),
        ("error_message", "errorMessage"),
        ("errorMessage", "msg"),
        ("msg", "status_msg"),
        ("status_msg", "title"),
        ("title", "reason"),
        ("reason", "details"),
        ("details", "response"),
        ("response", "upstream_error"),
        ("upstream_error", "base_resp"),
        ("base_resp", "other"),
    ],
)
def test_the_first_member_with_a_message_counts(name: str, later: str) -> None:
    assert in_stream({later: "what", name: "why"}) == unknown("why")
    assert in_stream({name: {"message": "why"}}) == unknown("why")
    assert in_stream({name: {"message": ""}, "message": "why"}) == unknown("why")


MESSAGES: list[tuple[JSON, ProviderError]] = [
    ({}, BLANK),
    ("", BLANK),
    (7, BLANK),
    ({"code": "c-1"}, unknown("c-1", provider_code="c-1")),
    ({"type": "error"}, BLANK),
    ({"loc": ["body", 0, "x"], "msg": "why"}, unknown("body.0.x: why")),
    ({"loc": "body", "msg": "why"}, unknown("why")),
    ({"loc": ["body"]}, BLANK),
    ([{"message": "a"}, {"code": "c"}, "b"], unknown("a; b")),
    ([[], {"message": "a", "code": "second"}], unknown("a")),
    ([{"message": str(number)} for number in range(10)], unknown("0; 1; 2; 3; 4; 5; 6; 7")),
    ({"message": "a", "metadata": {"message": "b"}}, unknown("a: b")),
    ({"message": "a", "raw": "b"}, unknown("a: b")),
    ({"message": "a", "raw": {"message": "b"}}, unknown("a: b")),
    ({"message": "a", "raw": ["b"]}, unknown("a: b")),
    ({"message": "a", "raw": 7}, unknown("a")),
    ({"message": "a b", "raw": "b"}, unknown("a b")),
    ({"message": "a", "value": {"error_message": '{"error": {"message": "b"}}'}}, unknown("a: b")),  # Vercel's gateway
    ({"message": "a", "value": "what was given"}, unknown("a")),
    ({"raw": "b"}, unknown("b")),
    ({"message": "a", "innererror": {"message": "b"}, "details": [{"message": "c"}]}, unknown("a")),
    ({"message": ' {"message": "inside"} '}, unknown("inside")),
    ({"message": '{"message": '}, unknown('{"message":')),
    ({"message": "two\n\t lines "}, unknown("two lines")),
]


@pytest.mark.parametrize(("error", "expected"), MESSAGES)
def test_the_message_of_an_error(error: JSON, expected: ProviderError) -> None:
    assert in_stream(error) == expected


def test_an_error_without_any_words_names_its_status() -> None:
    assert error_from_object({}, http_status=0, body=b"").message == NO_WORDS
    assert error_from_object({}, http_status=200, body=b"").message == NO_WORDS
    assert error_from_object({}, http_status=201, body=b"").message == "HTTP 201"
    assert error_from_object({}, http_status=500, body=b"").message == "HTTP 500"
    assert error_from_object({"code": "c"}, http_status=500, body=b"").message == "c"


def test_a_long_message_is_cut_at_a_thousand_characters() -> None:
    assert in_stream("x" * 1000).message == "x" * 1000
    assert in_stream("x" * 1001).message == "x" * 1000 + "…"
    assert in_stream({"message": "x" * 1001}).message == "x" * 1000
    assert in_stream(["x" * 600, "y" * 600]).message == "x" * 600 + "; " + "y" * 398


def errors_inside(levels: int, message: str = "why", member: str = "error") -> JSON:
    error: JSON = {"message": message}
    for _ in range(levels):
        error = {member: error}
    return error


def texts_inside(levels: int) -> str:
    text = json.dumps({"message": "why"})
    for _ in range(levels):
        text = json.dumps({"message": text})
    return text


def test_seven_levels_of_errors_are_read() -> None:
    assert in_stream(errors_inside(6)).message == "why"
    assert in_stream(errors_inside(7)).message == NO_WORDS
    assert in_stream(errors_inside(6, member="raw")).message == "why"
    assert in_stream(errors_inside(7, member="raw")).message == NO_WORDS
    assert in_stream([errors_inside(5)]).message == "why"
    assert in_stream([errors_inside(6)]).message == NO_WORDS
    assert in_stream(texts_inside(2)).message == "why"
    assert in_stream(texts_inside(3)).message == NO_WORDS
    assert in_stream(errors_inside(6, '{"message": "why"}')).message == '{"message": "why"}'


# --- codes, types and statuses ---
CODES: list[tuple[JSONObject, ProviderError]] = [
    ({"code": "c", "error_code": "e", "type": "t"}, unknown("m", provider_code="c")),
    ({"error_code": "e", "type": "t"}, unknown("m", provider_code="e")),
    ({"code": 12, "type": "t"}, unknown("m", provider_code="12")),
    ({"code": "", "type": "t"}, unknown("m", provider_code="t")),
    ({"code": 1.5, "type": "t"}, unknown("m", provider_code="t")),
    ({"type": "t", "error_type": "e", "status": "s"}, unknown("m", provider_code="t")),
    ({"error_type": "e", "status": "s"}, unknown("m", provider_code="e")),
    ({"status": "s"}, unknown("m", provider_code="s")),
    ({"type": "error"}, unknown("m")),
    ({"type": "<nil>"}, unknown("m")),
    ({"type": "None", "param": "None"}, unknown("m")),
    ({"type": "<nil>", "code": "c"}, unknown("m", provider_code="c")),
    ({"type": "t", "code": "<nil>"}, unknown("m", provider_code="t")),
    ({"error": {"message": "n", "code": "inner"}, "code": "outer"}, unknown("n", provider_code="outer")),
    ({"error": {"message": "n", "code": "inner"}, "type": "outer"}, unknown("n", provider_code="inner")),
    ({"error": {"message": "n", "type": "inner"}, "type": "outer"}, unknown("n", provider_code="inner")),
    ({"innererror": {"code": "inner"}}, unknown("m")),
    ({"base_resp": {"status_code": 0, "status_msg": "success"}}, unknown("m")),
]


@pytest.mark.parametrize(("error", "expected"), CODES)
def test_the_code_of_an_error(error: JSONObject, expected: ProviderError) -> None:
    assert in_stream({"message": "m", **error}) == expected


@pytest.mark.parametrize("name", ["code", "type", "error_type", "error_code", "status", "reason"])
def test_a_known_word_counts_in_each_of_these_members(name: str) -> None:
    assert in_stream({"message": "m", name: " Model_Not_Found "}).category is ErrorCategory.NOT_FOUND
    assert in_stream({"message": "m", "title": "model_not_found"}).category is ErrorCategory.UNKNOWN


@pytest.mark.parametrize(
    "name", ["innererror", "inner_error", "provider_specific_fields", "metadata", "raw", "details"]
)
def test_a_known_word_counts_in_an_object_beside_the_error(name: str) -> None:
    inners: list[JSON] = [{"code": "model_not_found"}, [{"code": "model_not_found"}], '{"code": "model_not_found"}']
    for inner in inners:
        error = in_stream({"message": "m", name: inner, "type": "t"})
        assert (error.category, error.provider_code) == (ErrorCategory.NOT_FOUND, "t")
    assert in_stream({"message": "m", "other": {"code": "model_not_found"}}).category is ErrorCategory.UNKNOWN


def test_the_outermost_known_word_counts() -> None:
    error: JSON = {
        "code": "timeout",
        "error": {"message": "m", "code": "model_not_found"},
        "raw": {"code": "throttling"},
    }
    assert in_stream(error).category is ErrorCategory.TIMEOUT
    error = {"error": {"message": "m", "code": "model_not_found"}, "raw": {"code": "throttling"}}
    assert in_stream(error).category is ErrorCategory.NOT_FOUND


def test_a_word_of_a_hundred_characters_is_no_code() -> None:
    word = "x" * 84 + "_content_filter"
    assert in_stream({"message": "m", "code": word}).category is ErrorCategory.CONTENT_FILTER
    assert in_stream({"message": "m", "code": "x" + word}).category is ErrorCategory.UNKNOWN


@pytest.mark.parametrize(
    ("status", "category", "retryable"),
    [
        (1000, ErrorCategory.SERVER, True),
        (1001, ErrorCategory.TIMEOUT, True),
        (1002, ErrorCategory.RATE_LIMIT, True),
        (1004, ErrorCategory.AUTH, False),
        (1008, ErrorCategory.RATE_LIMIT, False),
        (1027, ErrorCategory.CONTENT_FILTER, False),
        (1039, ErrorCategory.RATE_LIMIT, True),
        (2013, ErrorCategory.INVALID_ARG, False),
        (9999, ErrorCategory.UNKNOWN, False),
    ],
)
def test_the_status_of_minimax_is_that_of_the_error(status: int, category: ErrorCategory, retryable: bool) -> None:
    """Its errors are answers without choices, or with a part of one, and have the HTTP status 200."""
    error: JSONObject = {"status_code": status, "status_msg": "why"}
    body = dumps({"id": "a", "choices": None, "base_resp": error})
    machine = OPENAI.machine(OpenAIChat("key"), lambda: "made")
    event = machine.feed("", body)[-1]
    assert isinstance(event, ErrorEvent)
    with pytest.raises(ProviderError) as raised:
        OPENAI.decode(body, OpenAIChat("key"), lambda: "made")
    refused = OPENAI.decode_error(200, {}, body, NOW)
    for found in (event.error, raised.value, refused):
        assert (found.category, found.retryable, found.provider_code) == (category, retryable, str(status))
        assert str(found).endswith("why")


STATUSES: list[tuple[JSONObject, ErrorCategory]] = [
    ({"status_code": 401, "status": 404, "code": 429, "http_status": 504}, ErrorCategory.AUTH),
    ({"status": 404, "code": 429, "http_status": 504}, ErrorCategory.NOT_FOUND),
    ({"code": 429, "http_status": 504}, ErrorCategory.RATE_LIMIT),
    ({"http_status": 504}, ErrorCategory.TIMEOUT),
    ({"http_status": "504"}, ErrorCategory.TIMEOUT),
    ({"http_status": "0504"}, ErrorCategory.UNKNOWN),
    ({"http_status": "٥٠٤"}, ErrorCategory.UNKNOWN),
    ({"http_status": 504.0}, ErrorCategory.UNKNOWN),
    ({"code": 399}, ErrorCategory.UNKNOWN),
    ({"code": 400}, ErrorCategory.INVALID_ARG),
    ({"code": 499}, ErrorCategory.UNKNOWN),
    ({"code": 500}, ErrorCategory.SERVER),
    ({"code": 505}, ErrorCategory.SERVER),
    ({"code": 599}, ErrorCategory.SERVER),
    ({"code": 600}, ErrorCategory.UNKNOWN),
    ({"code": 0}, ErrorCategory.UNKNOWN),
    ({"code": 505, "type": "badrequesterror"}, ErrorCategory.INVALID_ARG),
    ({"error": {"message": "m", "code": 429}, "code": 503}, ErrorCategory.SERVER),
    ({"error": {"message": "m", "code": 429}, "code": 7}, ErrorCategory.RATE_LIMIT),
    ({"error": {"message": "not found", "code": 505}}, ErrorCategory.NOT_FOUND),
    ({"error": 7, "message": {"message": "m", "code": 429}}, ErrorCategory.RATE_LIMIT),
    ({"error": " ", "message": {"message": "m", "code": 429}}, ErrorCategory.RATE_LIMIT),
    ({"error": [7], "message": {"message": "m", "code": 429}}, ErrorCategory.RATE_LIMIT),
]


@pytest.mark.parametrize(("error", "category"), STATUSES)
def test_a_status_in_the_error_object(error: JSONObject, category: ErrorCategory) -> None:
    assert in_stream({"message": "m", **error}).category is category


def test_an_error_status_of_http_precedes_that_of_the_object() -> None:
    error: JSON = {"message": "not found", "status": 429, "type": "server_error"}
    for status, category in ((399, "rate_limit"), (400, "invalid_arg"), (401, "auth"), (418, "unknown")):
        assert error_from_object(error, http_status=status, body=b"").category.value == category


# --- used-up quota, overflow, and whether to retry ---
def test_a_used_up_quota_is_a_rate_limit_that_is_not_retried() -> None:
    spent = {"category": ErrorCategory.RATE_LIMIT, "retryable": False}
    assert in_stream("Insufficient funds") == unknown("Insufficient funds", **spent)
    assert in_stream({"message": "out of credits", "code": 400}) == unknown(
        "out of credits", provider_code="400", **spent
    )
    found = in_stream({"message": "out of credits", "code": 503})
    assert (found.category, found.retryable) == (ErrorCategory.SERVER, False)


@pytest.mark.parametrize(
    ("quota", "retryable"),
    [("RequestsPerMinutePerProject", True), ("RequestsPerDayPerProject", False), ("RequestsPerMonthPerProject", False)],
)
@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC, GEMINI])
def test_a_quota_of_google_is_spent_by_its_name_alone(dialect: Dialect, quota: str, retryable: bool) -> None:
    details: list[JSON] = [
        {"violations": [{"quotaId": quota, "quotaValue": "20"}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.4s"},
    ]
    message = "You exceeded your current quota, please check your plan and billing details."
    error: JSON = {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details}
    for value in ([{"error": error}], {"error": error}, {"error": {"message": json.dumps({"error": error})}}):
        found = dialect.decode_error(429, {}, json.dumps(value).encode(), NOW)
        assert (found.category, found.retryable) == (ErrorCategory.RATE_LIMIT, retryable)
        assert (found.retry_after_ms, message in found.message) == (34_400, True)


@pytest.mark.parametrize(
    ("message", "category"),
    [
        ("The prompt triggered Azure OpenAI's content management policy.", ErrorCategory.CONTENT_FILTER),
        ("litellm.ContentPolicyViolationError: VertexAIException", ErrorCategory.CONTENT_FILTER),
        ("The content policy of this project has no owner.", ErrorCategory.INVALID_ARG),
    ],
)
@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC, GEMINI])
def test_a_filtered_prompt_is_known_without_a_code(dialect: Dialect, message: str, category: ErrorCategory) -> None:
    errors: list[JSON] = [{"message": message, "type": None, "code": "400"}]
    if dialect is ANTHROPIC:
        errors.append({"type": "invalid_request_error", "message": message})
    for error in errors:
        body = json.dumps({"type": "error", "error": error}).encode()
        assert dialect.decode_error(400, {}, body, NOW).category is category


@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC, GEMINI])
@pytest.mark.parametrize(
    "inner",
    [
        {"error": {"code": 400, "message": "not now", "status": "INVALID_ARGUMENT"}},
        {"type": "error", "error": {"type": "invalid_request_error", "message": "not now"}, "request_id": "r"},
        {"error": {"message": "not now", "type": "invalid_request_error", "code": None}},
    ],
)
@pytest.mark.parametrize(
    "outer",
    [
        {"code": 400, "status": "INVALID_ARGUMENT"},
        {"code": 400, "status": "Bad Request"},
        {"type": "api_error"},
        {"message": "", "type": "x"},
    ],
)
def test_an_error_whose_message_is_an_error_is_that_error(dialect: Dialect, outer: JSONObject, inner: JSON) -> None:
    for text in (json.dumps(inner), json.dumps(inner, indent=2) + "\n"):
        error = dialect.decode_error(400, {}, json.dumps({"error": {**outer, "message": text}}).encode(), NOW)
        assert (error.category, "{" in error.message, "not now" in error.message) == (
            ErrorCategory.INVALID_ARG,
            False,
            True,
        )
    kept = dialect.decode_error(400, {}, json.dumps({"error": {**outer, "message": "{a} is not b"}}).encode(), NOW)
    assert "{a} is not b" in kept.message


def test_only_an_oversized_request_is_never_retried() -> None:
    for status, retryable in ((412, True), (413, False), (414, True)):
        error = error_from_object({"message": "m", "code": "throttling"}, http_status=status, body=b"")
        assert (error.category, error.retryable) == (ErrorCategory.RATE_LIMIT, retryable)


def test_an_overflow_is_shown_by_a_code_or_by_words() -> None:
    errors: list[JSON] = [
        {"message": "m", "code": "context_length_exceeded"},
        {"message": "prompt is too long", "code": 400},
    ]
    for error in errors:
        found = in_stream(error)
        assert (found.category, found.context_overflow) == (ErrorCategory.INVALID_ARG, True)
    assert not in_stream({"message": "prompt is too long", "code": 429}).context_overflow


# --- hints and ids ---
HINTS: list[tuple[JSON, int]] = [
    ({"retry_after_ms": 0}, 0),
    ({"retry_after_ms": 31 * 24 * 3_600_000}, 2_678_400_000),
    ({"retry_after_ms": 31 * 24 * 3_600_000 + 1}, -1),
    ({"retry_after_ms": "250"}, -1),
    ({"retry_after": "2"}, 2000),
    ({"retry_after": "1 minute"}, 60_000),
    ({"retry_after": 10**400}, -1),
    ({"retry_after": 31 * 24 * 3600}, 2_678_400_000),
    ({"retry_after_ms": 7, "retry_after": 8, "retry_after_seconds": 9}, 7),
    ({"retry_after": 8, "retry_after_seconds": 9}, 8000),
    ({"retry_after_seconds": 9}, 9000),
    ({"retry_after_seconds": True}, -1),
    ({"retryDelay": "0.5s"}, 500),
    ({"retryDelay": 3}, -1),
    ({"error": "the model is loading", "estimated_time": 20.5}, 20_500),
    ({"retryDelay": "soon", "message": "try again in 4s"}, 4000),
    ({"retry_after": 1, "message": "try again in 4s"}, 1000),
    ({"message": "try again in 4s", "metadata": {"retry_after": 3}}, 4000),
    ({"message": "m", "metadata": {"retry_after": 3}, "details": [{"retryDelay": "5s"}]}, 3000),
    ({"message": "m", "details": [{"a": 1}, {"retryDelay": "5s"}, {"retryDelay": "6s"}]}, 5000),
    ({"message": "m", "raw": "retry in 2s"}, 2000),
    ({"code": 429, "message": "m", "metadata": {"headers": {"Retry-After": "3", "X-A": None}}}, 3000),
    ({"code": 429, "message": "m", "metadata": {"headers": {"X-RateLimit-Reset": "30"}}}, 30_000),
    ({"code": 429, "message": "try again in 4s", "metadata": {"headers": {"X-RateLimit-Reset": "30"}}}, 30_000),
    ({"message": "m", "metadata": {"headers": {"X-RateLimit-Reset": "1800000030000"}}}, -1),
    ("Retry after 1.5 Milliseconds", 2),
    ("retry in 3 MS", 3),
    ("retry in 2M", 120_000),
    ("retry in 2m minutes", 120_000),
    ("retry in 1h2m3s", 3_723_000),
    ("retry at 3", -1),
]


@pytest.mark.parametrize(("error", "hint"), HINTS)
def test_the_hint_of_an_error(error: JSON, hint: int) -> None:
    assert in_stream(error).retry_after_ms == hint


def test_a_response_becomes_an_error_with_all_its_facts() -> None:
    body = b'{"error": {"message": "slower", "code": "throttling"}, "request_id": "in the body"}'
    headers = {"retry-after": "2", "x-should-retry": " False ", "request-id": "in a header"}
    facts = {"category": ErrorCategory.RATE_LIMIT, "http_status": 418, "provider_code": "throttling", "body": body}
    assert decode_error(418, {}, body, NOW) == ProviderError(
        "slower", retryable=True, request_id="in the body", **facts,
    )  # fmt: skip
    assert decode_error(418, headers, body, NOW) == ProviderError(
        "slower", retryable=False, request_id="in a header", retry_after_ms=2000, **facts,
    )  # fmt: skip


def test_a_hint_in_a_header_replaces_the_one_in_the_body() -> None:
    body = b'{"message": "try again in 9s"}'
    assert decode_error(429, {}, body, NOW).retry_after_ms == 9000
    assert decode_error(429, {"retry-after": "0"}, body, NOW).retry_after_ms == 0
    later = {"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "3s"}
    assert decode_error(429, later, body, NOW).retry_after_ms == 3000
    assert decode_error(503, later, body, NOW).retry_after_ms == 9000


def test_times_in_a_body_count_from_the_clock() -> None:
    for when in ("X-RateLimit-Reset", "Retry-After"):
        body = json.dumps({"error": {"code": 429, "message": "m", "metadata": {"headers": {when: "1800000030000"}}}})
        for dialect in (OPENAI, ANTHROPIC, GEMINI):
            assert dialect.decode_error(429, {}, body.encode(), NOW).retry_after_ms == 30_000
    body = '{"error": {"message": "m", "retry_after": "Fri, 15 Jan 2027 08:01:00 GMT"}}'
    assert decode_error(429, {}, body.encode(), NOW).retry_after_ms == 60_000


def test_a_request_id_inside_the_error_is_kept() -> None:
    assert in_stream({"error": {"message": "m", "request_id": "inner"}}).request_id == "inner"
    assert in_stream({"error": {"message": "m", "request_id": "inner"}, "request_id": "outer"}).request_id == "outer"
    assert in_stream({"error": {"message": "m", "request_id": "inner"}, "request_id": 7}).request_id == "inner"
    assert in_stream([{"message": "m", "request_id": "inner"}]).request_id == "inner"


@pytest.mark.parametrize("member", ["error", "errors", "detail", "message", "error_message", "errorMessage", "msg",
                                    "title", "reason", "details"])  # fmt: skip
def test_every_member_with_an_errors_message_is_read(member: str) -> None:
    assert CHAT.decode_error(400, {}, json.dumps({member: "why"}).encode(), NOW).message == "why"


@pytest.mark.parametrize("member", ["innererror", "inner_error", "metadata", "raw", "details"])
def test_every_member_with_further_codes_is_read(member: str) -> None:
    body = {"error": {"message": "m", member: {"code": "insufficient_quota"}}}
    error = CHAT.decode_error(418, {}, json.dumps(body).encode(), NOW)
    assert (error.category, error.retryable) == (ms.ErrorCategory.RATE_LIMIT, False)


@pytest.mark.parametrize(
    "words",
    ["Insufficient balance", "insufficient credits", "insufficient quota", "insufficient funds", "out of credits",
     "You exceeded your current quota"],
)  # fmt: skip
def test_a_used_up_balance_is_recognised_in_the_message(words: str) -> None:
    error = CHAT.decode_error(402, {}, json.dumps({"error": {"message": f"Sorry: {words}."}}).encode(), NOW)
    assert (error.category, error.retryable) == (ms.ErrorCategory.RATE_LIMIT, False)
