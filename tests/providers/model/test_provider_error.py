"""The codes, types and words of servers' errors, copied from their documentation, and what each means."""

from __future__ import annotations

import json
import pickle
from typing import get_args

import anthropic.types.shared
import pytest
from openai.types.responses import ResponseError

import manystream as ms
from manystream.providers.anthropic import DIALECT as ANTHROPIC
from manystream.providers.anthropic.errors import SPENT_CODES
from manystream.providers.model.provider_error import malformed, truncated
from manystream.providers.openai.chat import DIALECT as CHAT
from manystream.providers.openai.responses.dialect import DIALECT as RESPONSES
from manystream.providers.wire.error_bodies import CODE_CATEGORY, TYPE_CATEGORY, error_from_object

NOW = 1_800_000_000.0

SPENT = {
    "insufficient_quota",  # OpenAI
    "billing_hard_limit_reached",  # OpenAI
    "billing_not_active",  # OpenAI
    "quota_exceeded",  # Azure and gateways
    "exceeded_current_quota_error",  # Moonshot
    "insufficient_balance",  # DeepSeek
    "insufficient_credits",  # OpenRouter
    "insufficient_user_quota",  # New API
    "credit_balance_too_low",  # gateways to Anthropic
    "credit_balance_exhausted",  # OpenAI
    "terminal_quota_exhausted",
    "budget_exceeded",  # LiteLLM
    "arrearage",  # Alibaba: Arrearage
    "contract_spend_limit_reached",  # Anthropic, as those that follow
    "enforced_spend_limit_reached",
    "linked_organization_billing_unavailable",
    "linked_organization_spend_limit_reached",
}
"""The account has no balance or no quota left."""

CODES: dict[ms.ErrorCategory, set[str]] = {
    ms.ErrorCategory.CONTENT_FILTER: {
        "content_policy_violation",  # OpenAI
        "moderation_blocked",  # OpenAI
        "image_content_policy_violation",  # OpenAI Responses
        "bio_policy",  # OpenAI Responses
        "misalignment_policy_violation",  # OpenAI Responses
        "cyber_policy_violation",  # OpenAI
        "content_filter",  # Azure
        "responsibleaipolicyviolation",  # Azure: ResponsibleAIPolicyViolation
        "content_filtered", "content_filter_error", "content_moderation",  # gateways
        "data_inspection_failed", "datainspectionfailed",  # Alibaba
    },
    ms.ErrorCategory.AUTH: {
        "invalid_api_key", "invalid_organization", "account_deactivated",  # OpenAI
        "unsupported_country_region_territory",  # OpenAI
        "invalid_org",
        "authentication_error", "permission_error",  # Anthropic
        "permission_denied", "unauthenticated",  # google.rpc.Code
        "unauthorized", "access_denied", "permission_denied_error",
        "invalid_authentication_error", "incorrect_api_key_error",  # Moonshot
        "wrong_api_key",  # Cerebras
        "invalidapikey",  # Alibaba: InvalidApiKey
        "api_key_invalid", "api_key_expired", "api_key_service_blocked", "service_disabled",  # Google's ErrorInfo
        "access_token_expired",
    },
    ms.ErrorCategory.RATE_LIMIT: {
        *SPENT,
        "rate_limit_exceeded",  # OpenAI
        "rate_limit_error",  # Anthropic
        "resource_exhausted",  # google.rpc.Code
        "rate_limit_reached_error", "engine_overloaded_error",  # Moonshot
        "ratelimitreached",  # Azure: RateLimitReached
        "too_many_requests", "rate_limited", "requests_limit_exceeded", "tokens_limit_exceeded",
        "throttling",  # Alibaba
        "queue_exceeded",  # Cerebras
    },
    ms.ErrorCategory.NOT_FOUND: {
        "model_not_found", "previous_response_not_found", "image_file_not_found",  # OpenAI
        "deploymentnotfound",  # Azure: DeploymentNotFound
        "not_found_error",  # Anthropic
        "not_found",  # google.rpc.Code
        "resource_not_found_error",  # Moonshot
        "model_not_available", "unknown_model",
    },
    ms.ErrorCategory.INVALID_ARG: {
        "context_length_exceeded", "string_above_max_length", "array_above_max_length",  # OpenAI
        "unsupported_parameter", "unsupported_value", "invalid_value", "invalid_type",
        "missing_required_parameter", "unknown_parameter", "invalid_function_parameters",
        "invalid_prompt", "data_residency_mismatch",  # OpenAI Responses, as those that follow
        "invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url", "invalid_image_mode",
        "image_too_large", "image_too_small", "image_parse_error", "image_file_too_large",
        "unsupported_image_media_type", "empty_image_file", "failed_to_download_image",
        "tool_use_failed", "json_validate_failed",  # Groq
        "request_too_large",  # Anthropic
        "exceed_context_size_error",  # llama.cpp
        "failed_precondition", "invalid_argument", "out_of_range",  # google.rpc.Code
        "too_many_prompt_tokens", "max_tokens_exceeded",
    },
    ms.ErrorCategory.SERVER: {
        "overloaded_error",  # Anthropic
        "unavailable",  # google.rpc.Code
        "slow_down", "vector_store_timeout",  # OpenAI
        "overloaded", "server_overloaded", "model_overloaded", "service_unavailable", "service_unavailable_error",
        "provider_unavailable", "no_available_providers",  # gateways
    },
    ms.ErrorCategory.TIMEOUT: {
        "timeout_error",  # Anthropic
        "deadline_exceeded",  # google.rpc.Code
        "timeout", "request_timeout", "gateway_timeout",
    },
}  # fmt: skip
"""Codes and types with the same meaning for every HTTP status."""

TYPES: dict[ms.ErrorCategory, set[str]] = {
    ms.ErrorCategory.INVALID_ARG: {
        "invalid_request_error",  # OpenAI
        "badrequesterror",  # vLLM: BadRequestError
        "invalid_request", "bad_request", "validation_error",
    },
    ms.ErrorCategory.NOT_FOUND: {"notfounderror"},  # vLLM: NotFoundError
    ms.ErrorCategory.AUTH: {"authenticationerror"},  # LiteLLM: AuthenticationError
    ms.ErrorCategory.RATE_LIMIT: {
        "tokens", "requests",  # OpenAI: the limit that was reached
        "ratelimiterror",  # LiteLLM: RateLimitError
    },
    ms.ErrorCategory.SERVER: {
        "server_error", "image_generation_server_error",  # OpenAI
        "internal", "data_loss",  # google.rpc.Code
        "api_error",  # Anthropic
        "internalservererror",  # vLLM: InternalServerError
        "internal_error", "internal_server_error", "service_error", "upstream_error", "provider_error",
    },
}  # fmt: skip
"""General types, which count only if the status has no category."""


def rows(words: dict[ms.ErrorCategory, set[str]]) -> list[tuple[str, ms.ErrorCategory]]:
    return [(word, category) for category, group in words.items() for word in sorted(group)]


def failed(status: int, body: object) -> list[ms.ProviderError]:
    """Return the error as each of the two OpenAI dialects reads it."""
    data = json.dumps(body).encode()
    return [dialect.decode_error(status, {}, data, NOW) for dialect in (CHAT, RESPONSES)]


def in_stream(error: dict[str, object]) -> ms.ProviderError:
    return error_from_object(error, http_status=200, body=b"")  # type: ignore[arg-type]


@pytest.mark.parametrize(("word", "category"), rows(CODES))
def test_a_code_means_the_same_whatever_the_status(word: str, category: ms.ErrorCategory) -> None:
    for place in ("code", "type"):
        for spelling in (word, word.upper()):
            error: dict[str, object] = {"message": "m", place: spelling}
            assert [found.category for found in failed(418, {"error": error})] == [category] * 2
            assert in_stream(error).category is category


@pytest.mark.parametrize(("word", "category"), rows(TYPES))
def test_a_general_type_counts_where_there_is_no_status(word: str, category: ms.ErrorCategory) -> None:
    assert in_stream({"message": "m", "type": word}).category is category
    for status, expected in ((403, ms.ErrorCategory.AUTH), (404, ms.ErrorCategory.NOT_FOUND)):
        assert [found.category for found in failed(status, {"error": {"type": word}})] == [expected] * 2


@pytest.mark.parametrize("word", sorted(SPENT))
def test_a_used_up_quota_is_not_retryable(word: str) -> None:
    for error in (*failed(429, {"error": {"message": "m", "type": word}}), in_stream({"message": "m", "code": word})):
        assert (error.category, error.retryable) == (ms.ErrorCategory.RATE_LIMIT, False)


def test_every_code_of_the_responses_sdk_has_a_category() -> None:
    """A failed response has no HTTP status that classifies it, and a server error would be retried."""
    codes = {*get_args(ResponseError.model_fields["code"].annotation)}
    assert codes - CODE_CATEGORY.keys() - TYPE_CATEGORY.keys() == set()


# --- Anthropic ---
SPENT_AT_ANTHROPIC = (
    "contract_spend_limit_reached", "enforced_spend_limit_reached", "linked_organization_billing_unavailable",
    "linked_organization_spend_limit_reached",
)  # fmt: skip


def test_every_quota_code_of_anthropic_is_tested() -> None:
    assert {*SPENT_AT_ANTHROPIC} == SPENT_CODES


@pytest.mark.parametrize("code", SPENT_AT_ANTHROPIC)
def test_a_used_up_quota_at_anthropic_is_not_retryable(code: str) -> None:
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "m", "details": {"error_code": code}}}
    error = ANTHROPIC.decode_error(429, {"x-should-retry": "true"}, json.dumps(body).encode(), NOW)
    assert (error.category, error.retryable, error.provider_code) == (ms.ErrorCategory.RATE_LIMIT, False, code)


def test_every_error_of_anthropics_sdk_has_a_category() -> None:
    kinds = get_args(get_args(anthropic.types.shared.ErrorObject)[0])
    words = {word for kind in kinds for word in get_args(kind.model_fields["type"].annotation)}
    assert "overloaded_error" in words
    for word in words - {"billing_error"}:  # no category fits an unpaid bill
        body = {"type": "error", "error": {"type": word, "message": "m"}}
        error = ANTHROPIC.decode_error(418, {}, json.dumps(body).encode(), NOW)
        assert error.category is not ms.ErrorCategory.UNKNOWN, word


SENTENCES: dict[ms.ErrorCategory, tuple[str, ...]] = {
    ms.ErrorCategory.CONTENT_FILTER: (
        "Stopped by the content filter", "it triggered our content management rules", "against the content policy",
        "rejected by the safety system", "flagged by moderation",
    ),
    ms.ErrorCategory.INVALID_ARG: (
        "above the context length", "larger than the context window", "the context size is 4096",
        "the maximum context is 4096", "too many tokens", "the prompt is too long",
    ),
    ms.ErrorCategory.RATE_LIMIT: ("Rate limit reached", "rate-limited", "ratelimit", "Too many requests"),
    ms.ErrorCategory.TIMEOUT: ("the request timed out", "time out", "timeout", "deadline exceeded"),
    ms.ErrorCategory.SERVER: (
        "the engine is overloaded", "service unavailable", "we are at capacity", "server error",
        "the server had an error", "a worker disconnected", "Over capacity: please wait", "back off exponentially",
        "Internal network failure", "a network error", "internal error",
        "an error was encountered while running the model",
    ),
    ms.ErrorCategory.AUTH: (
        "no such API key", "unauthorized", "unauthorised", "cannot authenticate you", "forbidden",
    ),
    ms.ErrorCategory.NOT_FOUND: ("model not found", "it does not exist", "no such model"),
    ms.ErrorCategory.UNKNOWN: ("content", "a context", "limit", "too many", "requests", "server", "key", "no model",
                             "network", "capacity", "internal"),
}  # fmt: skip
"""Messages of errors with status 200 and without code, type or status."""


@pytest.mark.parametrize(("category", "message"), [(kind, text) for kind, texts in SENTENCES.items() for text in texts])
def test_an_error_with_only_a_message_is_classified_by_it(category: ms.ErrorCategory, message: str) -> None:
    assert error_from_object({"message": message}, http_status=200, body=b"").category is category


# --- errors ---
def test_an_error_has_these_defaults() -> None:
    error = ms.ProviderError("m", category=ms.ErrorCategory.UNKNOWN)
    facts = (error.http_status, error.provider_code, error.retry_after_ms, error.retryable, error.request_id)
    assert facts == (0, None, -1, False, None)
    assert (error.body, error.context_overflow, error.provider, error.model, error.host) == (b"", False, "", "", "")
    assert error.args == ("m",)
    for category in ms.ErrorCategory:
        retryable = category.value in ("rate_limit", "server", "timeout", "network")
        assert ms.ProviderError("m", category=category).retryable is retryable
        assert ms.ProviderError("m", category=category, retryable=not retryable).retryable is not retryable
    assert malformed("w", b"b") == ms.ProviderError("w", category=ms.ErrorCategory.SERVER, retryable=False, body=b"b")
    assert truncated() == ms.ProviderError("truncated stream", category=ms.ErrorCategory.NETWORK)
    assert truncated("w").message == "w"


def test_an_error_is_shown_in_one_line() -> None:
    error = ms.ProviderError(
        "a\n b", category=ms.ErrorCategory.SERVER, http_status=503, retry_after_ms=0, provider_code="c"
    )
    assert str(error) == "server, HTTP 503: a b (retry after 0 s)"
    error.provider, error.model, error.host, error.retry_after_ms = "p", "m", "h", 1500
    assert str(error) == "server, HTTP 503, provider p, model m, host h: a b (retry after 1.5 s)"
    assert repr(error) == (
        r"ProviderError('a\n b', category=SERVER, http_status=503, provider_code='c', retryable=True)"
    )
    plain = ms.ProviderError("a", category=ms.ErrorCategory.AUTH)
    assert (str(plain), repr(plain)) == ("auth: a", "ProviderError('a', category=AUTH, http_status=0, retryable=False)")


VALUES: dict[str, object] = {
    "category": ms.ErrorCategory.AUTH, "http_status": 1, "provider_code": "c", "retry_after_ms": 5, "retryable": True,
    "request_id": "r", "body": b"b", "context_overflow": True,
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_errors_are_compared_by_every_fact(name: str) -> None:
    def make(**facts: object) -> ms.ProviderError:
        return ms.ProviderError("m", **{"category": ms.ErrorCategory.UNKNOWN, **facts})  # type: ignore[arg-type]

    assert make() == make()
    assert hash(make()) == hash(make())
    assert make(**{name: VALUES[name]}) != make()
    assert make() != "m"
    assert ms.ProviderError("n", category=ms.ErrorCategory.UNKNOWN) != make()


def test_errors_can_be_sent_to_another_process() -> None:
    error = ms.ProviderError("m", category=ms.ErrorCategory.AUTH, http_status=1, body=b"b")
    error.provider, error.model, error.host = "p", "m", "h"
    copied = pickle.loads(pickle.dumps(error))
    assert (copied, str(copied), copied.host) == (error, str(error), "h")
    wrong = pickle.loads(pickle.dumps(ms.InvalidRequestError("f", "w")))
    assert (wrong.field, str(wrong)) == ("f", "f: w")
