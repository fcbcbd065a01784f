"""Converts errors of every dialect, in the bodies of error responses and inside streams, to `ProviderError`.

Servers and gateways use each other's forms: llama.cpp puts its own error into an Anthropic stream, LiteLLM puts
OpenAI's into a Gemini stream. So every dialect uses this file: OpenAI's two for all errors, Anthropic and Gemini for
errors that are not in their own form.

The most specific information wins, in this order: a code or type with a meaning of its own (`insufficient_quota`,
`context_length_exceeded`), the HTTP status, a status inside the object, a general type (`server_error`), and last the
words of the message. `invalid_request_error` is such a general type: OpenAI sends it with 401 and 404, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ..json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    integer,
    loads,
    mapping,
    objects,
    says_nothing,
    string,
)
from ..model.provider_error import ErrorCategory, ProviderError, category_of_status
from .retry_hints import LONGEST_HINT_MS, NO_HINT, hint_in_words, hint_ms, retry_after_ms

OVERFLOW_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error", "too_many_prompt_tokens"})
"""Codes and types, in lower case: those of OpenAI, llama.cpp and Databricks."""

_WORDS = re.compile(
    r"prompt (?:is )?too long"  # Anthropic, Fireworks, Ollama
    r"|(?:exceeds?|exceeded|(?:longer|greater|larger) than|reached)[^.]{0,60}"
    r"\b(?:context|model length|max_(?:seq|model)_len)"  # Anthropic, SGLang, vLLM, OpenAI, LM Studio
    r"|context (?:length|window|size)[^.]{0,30}\b(?:exceed|overflow)"  # gateways, MiniMax
    r"|maximum (?:allowed )?(?:context|prompt|input) length"  # OpenAI, vLLM, xAI, OpenRouter, Poolside
    r"|too large for model with \d+ maximum context"  # Mistral
    r"|(?:input|prompt) token count[^.]{0,40}exceeds"  # Gemini, GitHub
    r"|exceeded model token limit"  # Moonshot
    r"|prompt exceeds max"  # Z.ai
    r"|range of input length should be"  # Alibaba
    r"|input is too long for requested model"  # Bedrock
    r"|tokens \+ `max_new_tokens` must be"  # Text Generation Inference, Together
    r"|inputs?`? must have less than \d+ tokens",  # Text Generation Inference
    re.IGNORECASE,
)

ITS_CATEGORIES = frozenset({ErrorCategory.INVALID_ARG, ErrorCategory.UNKNOWN})
"""The categories of such errors. A limit on tokens per minute uses similar words; it is RATE_LIMIT."""


def is_context_overflow(category: ErrorCategory, words: Iterable[str | None], message: str) -> bool:
    """Return whether an error says that the prompt is too long for the model.

    words: the codes and types of the error, in lower case.
    """
    if category not in ITS_CATEGORIES:
        return False
    return not OVERFLOW_CODES.isdisjoint(words) or _WORDS.search(message) is not None


REQUEST_ID_HEADERS = (
    "request-id",  # Anthropic
    "x-goog-request-id",
    "mistral-correlation-id",
    "x-ds-trace-id",  # DeepSeek
    "x-request-id",  # OpenAI and most gateways
    "apim-request-id",  # Azure
    "x-ms-request-id",
    "x-amzn-requestid",  # Bedrock
    "x-correlation-id",
    "cf-ray",
)
"""Header names in lower case, in order of precedence. A gateway in front of a provider adds an `x-request-id` of its
own, so the names that only providers use come first.
"""


def request_id_in(headers: Mapping[str, str]) -> str | None:
    """Return the provider's id for a request, or None if no header has one.

    headers: the response's headers, names in lower case.
    """
    return next((headers[name] for name in REQUEST_ID_HEADERS if headers.get(name)), None)


MESSAGE_LIMIT = 1000
"""An error's message keeps at most this many characters of the server's text."""

_LOOKED_AT = 64 * MESSAGE_LIMIT
"""Characters of a text that are searched for the message; tags and white space count as well."""

SPENT_QUOTA = frozenset(
    {
        "insufficient_quota",
        "quota_exceeded",
        "billing_hard_limit_reached",
        "billing_not_active",
        "insufficient_balance",
        "insufficient_credits",
        "insufficient_user_quota",
        "exceeded_current_quota_error",
        "credit_balance_too_low",
        "credit_balance_exhausted",
        "terminal_quota_exhausted",
        "budget_exceeded",
        "arrearage",
        "contract_spend_limit_reached",
        "enforced_spend_limit_reached",
        "linked_organization_billing_unavailable",
        "linked_organization_spend_limit_reached",
    }
)
"""Codes and types of a used-up quota or balance: a rate limit that does not end by waiting."""

CODE_CATEGORY: dict[str, ErrorCategory] = {
    **dict.fromkeys(
        ("content_filter", "content_filtered", "content_policy_violation", "responsibleaipolicyviolation",
         "content_filter_error", "moderation_blocked", "image_content_policy_violation", "data_inspection_failed",
         "datainspectionfailed", "content_moderation", "cyber_policy_violation", "bio_policy",
         "misalignment_policy_violation",
         # Gemini's reasons to refuse a prompt or to end an answer, which its newer API sends as codes.
         "safety", "blocklist", "prohibited_content", "spii", "jailbreak", "model_armor", "recitation", "escalation",
         "image_safety", "image_prohibited_content", "image_recitation"),
        ErrorCategory.CONTENT_FILTER,
    ),
    **dict.fromkeys(
        ("invalid_api_key", "invalid_org", "invalid_organization", "authentication_error", "unauthorized",
         "permission_error", "permission_denied", "access_denied", "invalid_authentication_error", "wrong_api_key",
         "account_deactivated", "unsupported_country_region_territory", "unauthenticated", "incorrect_api_key_error",
         "permission_denied_error", "invalidapikey", "api_key_invalid", "api_key_expired", "api_key_service_blocked",
         "service_disabled", "access_token_expired"),
        ErrorCategory.AUTH,
    ),
    **dict.fromkeys(
        ("rate_limit_exceeded", "rate_limit_error", "rate_limit_reached_error", "rate_limited", "ratelimitreached",
         "too_many_requests", "requests_limit_exceeded", "tokens_limit_exceeded", "throttling", "resource_exhausted",
         "queue_exceeded", "engine_overloaded_error", *SPENT_QUOTA),
        ErrorCategory.RATE_LIMIT,
    ),
    **dict.fromkeys(
        ("model_not_found", "deploymentnotfound", "not_found_error", "not_found", "model_not_available",
         "previous_response_not_found", "unknown_model", "resource_not_found_error", "image_file_not_found"),
        ErrorCategory.NOT_FOUND,
    ),
    **dict.fromkeys(
        ("context_length_exceeded", "string_above_max_length", "unsupported_parameter", "unsupported_value",
         "invalid_value", "missing_required_parameter", "unknown_parameter", "invalid_type", "invalid_image_url",
         "invalid_image", "image_parse_error", "tool_use_failed", "json_validate_failed", "too_many_prompt_tokens",
         "request_too_large", "exceed_context_size_error", "invalid_prompt", "invalid_function_parameters",
         "max_tokens_exceeded", "array_above_max_length", "failed_precondition", "invalid_argument", "out_of_range",
         "data_residency_mismatch", "invalid_image_format", "invalid_base64_image", "invalid_image_mode",
         "image_too_large", "image_too_small", "image_file_too_large", "unsupported_image_media_type",
         "empty_image_file", "failed_to_download_image"),
        ErrorCategory.INVALID_ARG,
    ),
    **dict.fromkeys(
        ("overloaded_error", "overloaded", "server_overloaded", "service_unavailable", "provider_unavailable",
         "service_unavailable_error", "no_available_providers", "model_overloaded", "unavailable", "slow_down",
         "vector_store_timeout"),
        ErrorCategory.SERVER,
    ),
    **dict.fromkeys(
        ("timeout", "timeout_error", "request_timeout", "deadline_exceeded", "gateway_timeout"),
        ErrorCategory.TIMEOUT,
    ),
}  # fmt: skip
"""Codes and types with a meaning of their own, in lower case. They take precedence over the HTTP status."""

TYPE_CATEGORY: dict[str, ErrorCategory] = {
    "invalid_request_error": ErrorCategory.INVALID_ARG,
    "invalid_request": ErrorCategory.INVALID_ARG,
    "bad_request": ErrorCategory.INVALID_ARG,
    "badrequesterror": ErrorCategory.INVALID_ARG,
    "validation_error": ErrorCategory.INVALID_ARG,
    "notfounderror": ErrorCategory.NOT_FOUND,
    "authenticationerror": ErrorCategory.AUTH,
    "ratelimiterror": ErrorCategory.RATE_LIMIT,
    "tokens": ErrorCategory.RATE_LIMIT,
    "requests": ErrorCategory.RATE_LIMIT,
    "server_error": ErrorCategory.SERVER,
    "internal_error": ErrorCategory.SERVER,
    "internal": ErrorCategory.SERVER,
    "internal_server_error": ErrorCategory.SERVER,
    "internalservererror": ErrorCategory.SERVER,
    "api_error": ErrorCategory.SERVER,
    "service_error": ErrorCategory.SERVER,
    "upstream_error": ErrorCategory.SERVER,
    "provider_error": ErrorCategory.SERVER,
    "image_generation_server_error": ErrorCategory.SERVER,
    "data_loss": ErrorCategory.SERVER,
}
"""General types and codes, in lower case. They count only if the HTTP status is no error status."""

MINIMAX = "base_resp"
"""The member of every answer of MiniMax that says whether it succeeded. Its errors come with the status 200."""

MINIMAX_TYPES: dict[int, str] = {
    1000: "server_error",
    1001: "timeout",
    1002: "rate_limited",
    1004: "invalid_api_key",
    1008: "insufficient_balance",
    1024: "internal_error",
    1026: "content_filter",
    1027: "content_filter",
    1033: "server_error",
    1039: "rate_limited",
    1041: "rate_limited",
    1042: "invalid_value",
    2013: "invalid_value",
    2045: "rate_limited",
    2049: "invalid_api_key",
    2056: "rate_limited",
}
"""Status of MiniMax → the type of the same error at others (https://platform.minimax.io/docs/api-reference/errorcode)."""

MESSAGE_CATEGORY: tuple[tuple[re.Pattern[str], ErrorCategory], ...] = (
    (re.compile(r"content (?:filter|management|policy)|safety system|moderation"), ErrorCategory.CONTENT_FILTER),
    (re.compile(r"context (?:length|window|size)|maximum context|too many tokens|too long"), ErrorCategory.INVALID_ARG),
    (re.compile(r"rate.?limit|too many requests"), ErrorCategory.RATE_LIMIT),
    (re.compile(r"timed? ?out|deadline exceeded"), ErrorCategory.TIMEOUT),
    (
        re.compile(
            r"overloaded|unavailable|(?:at|over) capacity|back off|disconnect"
            r"|server (?:had an )?error|(?:internal|network) (?:error|failure)|error was encountered while running"
        ),
        ErrorCategory.SERVER,
    ),
    (re.compile(r"api key|unauthori[sz]ed|authenticat|forbidden"), ErrorCategory.AUTH),
    (re.compile(r"not found|does not exist|no such model"), ErrorCategory.NOT_FOUND),
)
"""Patterns for the message of an error without a known code, type or status → category. The last resort."""

_QUOTA_WORDS = re.compile(
    r"insufficient (?:balance|credits|quota|funds)|exceeded your current quota|out of credits"
    r"|specified API usage limits|credit balance is too low",
    re.IGNORECASE,
)
_ACCOUNT_WORDS = re.compile(
    r"\b(?:organization|account|team|workspace)\b[^.:;,]{0,40}\b(?:has been|is) (?:disabled|deactivated|suspended)",
    re.IGNORECASE,
)
"""The words of an account that is closed. Anthropic sends them as an invalid request, with the status 400."""

_CODE = re.compile(r"[A-Za-z]+(?:[_.-][A-Za-z]+)+", re.ASCII)
_MONEY = re.compile(r"credit|balance|payment|quota|funds|budget|spend", re.IGNORECASE)
"""The words with which a 402 says that the money is spent."""

_GOOGLES_QUOTA = "resource_exhausted"
"""The status of Google's errors of quotas. Their message has the words of `_QUOTA_WORDS` for a minute's quota, too."""

LONG_QUOTAS = ("PerDay", "PerMonth")
"""Parts of a `quotaId` of Google's quotas that last longer than any retry."""

_FILTER_WORDS = re.compile(
    r"content management policy|content ?policy ?violation|violates? (?:our |the )?(?:usage|content)"
    r"|\b(?:input|prompt|content|output|text|image|messages?) (?:was|were|is|has been|have been) (?:flagged|moderated)"
    r"|SAFETY_CHECK_TYPE",
    re.IGNORECASE,
)
"""The words of a content filter: Azure's, xAI's, OpenRouter's, and LiteLLM's name of one. Gateways send them without a
code, or with the status and the code of a refused key.
"""

_SIZES = re.compile(r"\blimit:? ([\d,]*\d)\b.{0,80}?\brequested:? ([\d,]*\d)", re.IGNORECASE | re.DOTALL)
_TOO_LARGE = re.compile(r"request too large", re.IGNORECASE)

_DEEPEST = 6
"""The most levels of errors inside errors that are followed."""


class _Facts(NamedTuple):
    """The information in an error object.

    words: every code and type in it, in lower case, outermost first.
    code: the provider's code to report, or None.
    status: an HTTP status in the object; 0 if there is none.
    message: the message; empty if there is none.
    retry_after_ms: a hint in milliseconds; -1 if there is none.
    request_id: the provider's id for the request, or None.
    spent: whether Google's details name a quota that is used up for longer than any retry.
    """

    words: list[str]
    code: str | None
    status: int
    message: str
    retry_after_ms: int
    request_id: str | None
    spent: bool


_NO_FACTS = _Facts([], None, 0, "", NO_HINT, None, spent=False)


class _Around(NamedTuple):
    """What is known beside an error object: the response's status, and the wall clock in Unix seconds (0: unknown)."""

    status: int
    now: float


def reported_error(event: str, value: JSON) -> JSON:
    """Return the error that a parsed event or body reports, in any dialect's form, or None if it reports none.

    event: the name of the server-sent event; empty if it has none, or for a body.
    value: the event's data or the body, parsed.
    """
    if type(value) is list:
        # Gemini without `alt=sse` puts its error into an array.
        return next((found for item in value[:1] if (found := reported_error(event, item)) is not None), None)
    if type(value) is not dict:
        return value if event == ERROR else None
    error = value.get(ERROR)
    if error is not None and not says_nothing(error):
        # Members next to the error may have the code (`{"code": "…", "error": "text"}`).
        return with_its_envelope(error, value) if type(error) is dict else value
    kind = value.get("type")
    if ERROR in (event, value.get("object"), kind):
        return value
    if kind == "response.failed" and mapping(value, "response").get(ERROR):
        return mapping(value, "response")[ERROR]
    if MINIMAX in value and mapping(value, MINIMAX).get("status_code"):
        return value[MINIMAX]
    return value if _is_bare(value) else None


def with_its_envelope(error: JSONObject, envelope: JSONObject) -> JSONObject:
    """Return an error object with the status and the hints that stand next to it in the object that contains it."""
    beside: JSONObject = {name: envelope[name] for name in (*_HINT_MEMBERS, "headers") if name in envelope}
    status = _status_of(envelope)
    if status and not _status_of(error):
        beside["status_code"] = status
    return {**beside, **error} if beside else error


ERROR = "error"

ANSWER_MEMBERS = frozenset({"choices", "candidates", "content", "delta", "output", "response", "item", "part", "index"})
"""Members of an event or body that is part of an answer, in any dialect. An object with one of them is no bare
error.
"""


SUCCESSES = frozenset({"", "0", "200", "ok", "success"})
"""Codes of a message that is no error, in lower case."""

BARE_MEMBERS = frozenset({"detail", "errors", "message", "msg"})
"""A bare error has one of these members. Nearly every event of a stream has none, and is not examined further."""


def _is_bare(value: JSONObject) -> bool:
    """Return whether an object is an error that is not marked as one.

    That is a message with a code, a known type or `"success": false`, a list of errors, or FastAPI's `detail`.
    """
    if BARE_MEMBERS.isdisjoint(value):
        return False
    if any(value.get(member) is not None for member in ANSWER_MEMBERS):
        return False
    if value.get("detail") or objects(value, "errors"):
        return True
    if not (string(value, "message") or string(value, "msg")):
        return False
    if _status_of(value) or value.get("success") is False:
        return True
    number = integer(value, "code") if "msg" in value else None  # Z.ai
    if (string(value, "code") or str(number or "")).lower() not in SUCCESSES:
        return True
    return any(word in CODE_CATEGORY or word in TYPE_CATEGORY for word in _words(value))


def decode_error(status: int, headers: Mapping[str, str], body: bytes, now: float) -> ProviderError:
    """Convert an error response to an error, as `DecodeError` says."""
    error = error_from_object(object_of(body), http_status=status, body=body, now=now)
    hint = retry_after_ms(headers, now, status=status)
    if hint != NO_HINT:
        error.retry_after_ms = hint
    error.request_id = request_id_in(headers) or error.request_id
    if headers.get("x-should-retry", "").strip().lower() == "false":
        # OpenAI's servers send this if they know that another attempt fails in the same way.
        error.retryable = False
    return error


def error_from_object(error: JSON, *, http_status: int, body: bytes, now: float = 0.0) -> ProviderError:
    """Convert an error object, or a text, of any known shape to an error. Never raises.

    http_status: the response's status; 200 for an error inside a stream, 0 if there was no response.
    now: the wall clock in Unix seconds, for times in the object; 0 if it is unknown, and they are no hints then.
    """
    facts = _facts(error, _Around(http_status, now), 0)
    category = _category(facts, http_status)
    spent = facts.spent or not SPENT_QUOTA.isdisjoint(facts.words)
    if _GOOGLES_QUOTA not in facts.words:
        spent = spent or _QUOTA_WORDS.search(facts.message) is not None
    spent = spent or (402 in (http_status, facts.status) and _MONEY.search(facts.message) is not None)
    if category in VAGUE:
        if spent and category is not ErrorCategory.AUTH:
            category = ErrorCategory.RATE_LIMIT
        elif _FILTER_WORDS.search(facts.message):
            category = ErrorCategory.CONTENT_FILTER
        elif _ACCOUNT_WORDS.search(facts.message):
            category = ErrorCategory.AUTH
    # A request that is larger than the whole limit will not succeed later either.
    too_large = category is ErrorCategory.RATE_LIMIT and is_too_large(facts.message)
    retryable = False if spent or too_large or http_status == 413 else None
    return ProviderError(
        _message(facts, http_status),
        category=category,
        http_status=http_status,
        provider_code=facts.code,
        retry_after_ms=facts.retry_after_ms,
        retryable=retryable,
        request_id=facts.request_id,
        body=body,
        context_overflow=is_context_overflow(category, facts.words, facts.message),
    )


VAGUE = frozenset({ErrorCategory.UNKNOWN, ErrorCategory.INVALID_ARG, ErrorCategory.AUTH})
"""Categories for which the words of the message are read as well. A 403 refuses the content at some servers."""


def is_too_large(message: str) -> bool:
    """Return whether an error's message says that the request is larger than the whole limit."""
    sizes = _SIZES.search(message)
    limit, requested = (int(text.replace(",", "")) for text in sizes.groups()) if sizes else (0, 0)
    return requested > limit > 0 or _TOO_LARGE.search(message) is not None


def object_of(body: bytes) -> JSON:
    """Parse a body as JSON, or return it as text if it is not JSON. Of a server-sent event, only the data counts."""
    text = body.strip()
    if text.startswith((b"event:", b"data:")):
        text = text.partition(b"data:")[2].partition(b"\n")[0].strip()
    if text[:1] in (b"{", b"[", b'"'):
        try:
            return loads(text)
        except MalformedJSONError:
            pass
    words = text[: MESSAGE_LIMIT * 8].decode("utf-8", "replace")
    return words if any(map(str.isalnum, words)) and words != "null" else ""


def error_object(body: bytes) -> JSONObject:
    """Return the error object in a body, which may be in an array; empty if it has none."""
    value = object_of(body)
    first = value[0] if type(value) is list and value else value
    return (mapping(first, "error") or first) if type(first) is dict else {}


def _category(facts: _Facts, http_status: int) -> ErrorCategory:
    for word in facts.words:
        if "content_filter" in word:
            return ErrorCategory.CONTENT_FILTER
        known = CODE_CATEGORY.get(word) or CODE_CATEGORY.get(word.partition(".")[0])  # DashScope: Throttling.RateQuota
        if known is not None:
            return known
    if http_status >= 400:
        return category_of_status(http_status)
    inner = category_of_status(facts.status) if facts.status else ErrorCategory.UNKNOWN
    if inner is not ErrorCategory.UNKNOWN:
        return inner
    for word in facts.words:
        if word in TYPE_CATEGORY:
            return TYPE_CATEGORY[word]
    message = facts.message.lower()
    for pattern, category in MESSAGE_CATEGORY:
        if pattern.search(message):
            return category
    is_blank = http_status in (0, 200) and not (facts.message or facts.code or facts.status)
    return ErrorCategory.SERVER if facts.status >= 500 or is_blank else ErrorCategory.UNKNOWN


def _message(facts: _Facts, http_status: int) -> str:
    if facts.message:
        return facts.message
    if facts.code:
        return facts.code
    return no_message(http_status)


def no_message(http_status: int) -> str:
    """Return the message of an error that has none. The status of an error inside an answer (200) explains nothing."""
    return f"HTTP {http_status}" if http_status > 200 else "the server reported an error without a message"


def passed_on_headers(error: JSONObject) -> dict[str, str]:
    """Return the headers that an error object repeats, such as those of the server behind a gateway. Names in lower
    case.
    """
    headers = mapping(error, "headers") or mapping(mapping(error, "metadata"), "headers")
    return {name.lower(): str(value) for name, value in headers.items() if type(value) in (str, int, float)}


def _facts(value: JSON, around: _Around, depth: int) -> _Facts:
    if type(value) is str:
        return _facts_of_text(value, around, depth)
    if type(value) is list:
        return _facts_of_list(value, around, depth)
    if type(value) is dict and depth <= _DEEPEST:
        return _facts_of_object(value, around, depth)
    return _NO_FACTS


def _facts_of_text(text: str, around: _Around, depth: int) -> _Facts:
    text = text.strip()
    if text[:1] == "{" and depth <= _DEEPEST:
        # Gateways put the body of the provider's response into a string.
        try:
            return _facts(loads(text), around, depth + 1)
        except MalformedJSONError:
            pass
    return _NO_FACTS._replace(message=_one_line(text), retry_after_ms=hint_in_words(text, around.now))


def _facts_of_list(values: list[JSON], around: _Around, depth: int) -> _Facts:
    # A list of errors (Gemini), or of problems with single fields (FastAPI's `detail`).
    found = [_facts(value, around, depth + 1) for value in values[:8]]
    first = found[0] if found else _NO_FACTS
    message = "; ".join(facts.message for facts in found if facts.message)
    hint = next((facts.retry_after_ms for facts in found if facts.retry_after_ms != NO_HINT), NO_HINT)
    words = [word for facts in found for word in facts.words]
    spent = any(facts.spent for facts in found)
    return first._replace(words=words, message=message[:MESSAGE_LIMIT], retry_after_ms=hint, spent=spent)


_INNER = (
    "error", "errors", "detail", "message", "Message", "error_message", "errorMessage", "msg", "status_msg",
    "title", "reason", "details", "response", "upstream_error", MINIMAX,
)  # fmt: skip
"""Members with the message, or with an object that contains it, in order of precedence."""

_ASIDE = ("innererror", "inner_error", "provider_specific_fields", "metadata", "raw", "value", "details")
"""Members with further codes of the same error."""

_UPSTREAM = frozenset({"metadata", "raw", "value"})
"""Those in which a gateway puts what the server behind it said. Its own message says only that this server failed."""


def _facts_of_object(value: JSONObject, around: _Around, depth: int) -> _Facts:
    words = list(_words(value))
    if "flagged_input" in value:
        words.append("content_filter")  # OpenRouter
    code = _code_of(value, ("code", "error_code"))
    number = integer(value, "status_code") if "status_msg" in value else None
    if number:
        code, words = str(number), [MINIMAX_TYPES.get(number, "")]
    status = _status_of(value)
    message, hint, request_id, spent = "", NO_HINT, None, any(map(is_spent, objects(value, "violations")))
    for name in _INNER:
        member = value.get(name)
        if member and not message:
            inner = _facts(member, around, depth + 1)
            message, hint = _with_place(value, inner.message), inner.retry_after_ms
            words += inner.words
            code, status, request_id = code or inner.code, status or inner.status, inner.request_id
            spent = spent or inner.spent
    for name in _ASIDE:
        member = value.get(name)
        aside = _NO_FACTS if name == "value" and type(member) is not dict else _facts(member, around, depth + 1)
        words += aside.words
        spent = spent or aside.spent
        hint = hint if hint != NO_HINT else aside.retry_after_ms
        if name in _UPSTREAM and aside.message not in message:
            message = f"{message}: {aside.message}" if message else aside.message
    hint = _hint_of(value, hint, _Around(status or around.status, around.now))
    code = code or _code_of(value, ("type", "error_type", "status"))
    if code == ERROR:
        code = None  # this marks an error, but is no code
    own_id = value.get("request_id")
    request_id = own_id if type(own_id) is str else request_id
    return _Facts(words, code, status, message[:MESSAGE_LIMIT], hint, request_id, spent)


def is_spent(violation: JSONObject) -> bool:
    """Return whether a violation in Google's details names a quota that is used up for longer than any retry."""
    quota = string(violation, "quotaId") or ""
    return any(part in quota for part in LONG_QUOTAS) or violation.get("quotaValue") in ("0", 0)


def _words(value: JSONObject) -> Iterator[str]:
    for name in ("code", "type", "error_type", "error_code", "status", "reason"):
        member = value.get(name)
        if type(member) is str and member and len(member) < 100:
            yield member.strip().lower()
    error = value.get(ERROR)  # a text that is a code
    if type(error) is str and _CODE.fullmatch(error):
        yield error.lower()


def _code_of(value: JSONObject, names: tuple[str, ...]) -> str | None:
    for name in names:
        member = value.get(name)
        if type(member) is str and member and not is_nil(member):
            return member
        if type(member) is int:
            return str(member)
    return None


def is_nil(text: str | None) -> bool:
    """Return whether a text is the name of no value. Gateways print a missing code or type: in Go (New API) and Python
    (LiteLLM).
    """
    return text in ("<nil>", "None")


def _status_of(value: JSONObject) -> int:
    for name in ("status_code", "status", "code", "http_status", "statusCode"):
        member = value.get(name)
        if type(member) is str and member.isascii() and member.isdigit() and len(member) == 3:
            member = int(member)
        if type(member) is int and 400 <= member <= 599:
            return member
    return 0


def _with_place(value: JSONObject, message: str) -> str:
    """Put the field's name before the message. FastAPI has it in `loc`."""
    place = value.get("loc")
    if type(place) is not list or not message:
        return message
    return f"{'.'.join(str(part) for part in place)}: {message}"


def _hint_of(value: JSONObject, hint: int, around: _Around) -> int:
    """Return the hint of an object's own members, or else the one that was found inside it, in milliseconds."""
    for name, unit in _HINT_MEMBERS.items():
        found = _hint_member(value.get(name), unit, around.now)
        if found != NO_HINT:
            return found
    found = retry_after_ms(passed_on_headers(value), around.now, status=around.status)
    return hint if found == NO_HINT else found


_HINT_MEMBERS: dict[str, int] = {
    "retry_after_ms": 1,
    "retry_after": 1000,
    "retry_after_seconds": 1000,
    "retryDelay": 0,
    "estimated_time": 1000,  # Hugging Face, while it loads the model
}
"""Members with a hint → the milliseconds of a number's unit; 0 if a number is no hint."""


def _hint_member(member: JSON, unit: int, now: float) -> int:
    if type(member) is str and unit != 1:
        return hint_ms(member, now)
    if type(member) in (int, float) and isinstance(member, int | float) and unit and 0 <= member <= LONGEST_HINT_MS:
        return hint_ms(f"{member * unit / 1000}", now)
    return NO_HINT


def _one_line(text: str) -> str:
    """Return a text as one line of at most `MESSAGE_LIMIT` characters; for an HTML page, its readable text."""
    text = text[:_LOOKED_AT]
    if text[:1] == "<":
        text = page_words(text)
    text = " ".join(text.split())
    return text if len(text) <= MESSAGE_LIMIT else text[:MESSAGE_LIMIT] + "…"


LONGEST_TAG = 500
"""Characters between "<" and ">" in a tag. A longer piece is text that contains a "<"."""

_TITLE = re.compile(r"<title[^<>]*>([^<]*)</title", re.IGNORECASE)
_UNSEEN = ("script", "style")
"""Elements whose content a browser does not show."""


def page_words(page: str) -> str:
    """Return the title of an HTML page, or its text without tags, scripts and styles where it has no title. The time is
    linear in the page's length: no pattern scans beyond the next tag.
    """
    title = _TITLE.search(page)
    if title is not None and title[1].strip():
        return title[1]
    before, *pieces = page.split("<")
    words, unseen = [before], ""
    for piece in pieces:
        tag, closed, text = piece.partition(">")
        name = tag[:8].lower()
        if unseen:
            if not name.startswith("/" + unseen):
                continue
            unseen = ""
        else:
            unseen = next((element for element in _UNSEEN if name.startswith(element)), "")
        is_tag = closed and len(tag) <= LONGEST_TAG
        words.append(("" if unseen else text) if is_tag else "<" + piece)
    return " ".join(words)
