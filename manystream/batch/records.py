"""The record of a line: of its answer, or of its failure. The journal and workers on a cluster have the same."""

from __future__ import annotations

from .. import Completion, ErrorCategory, JSONObject, ProviderError, Response
from ..cost import Cost, Unpriced
from ..engine.embedding import OK
from ..providers.model.structured import json_of
from .budget import SPENT
from .intake import RECORDED_TEXT
from .lines import USAGE_MEMBERS, Item


def target_of(completion: Completion) -> str:
    """Return which target answered a call, as `provider/model`; empty without `traffic` in the engine."""
    return next((attempt.target for attempt in reversed(completion.attempt_records) if attempt.outcome == OK), "")


def error_of(completion: Completion) -> ProviderError | None:
    """Return why a call's answer is none for its line: the call's error, or that the answer does not fit the type that
    is the request's `response_schema`. None for an answer.
    """
    response = completion.response
    if completion.error is not None or response is None or response.parse_error is None:
        return completion.error
    reason = f"the answer does not fit the response schema: {response.parse_error}"
    return ProviderError(
        reason, category=ErrorCategory.UNKNOWN, http_status=200, retryable=False, body=response.text.encode()
    )


def answer_record(
    item: Item,
    completion: Completion,
    provider: str | None,
    cost: Cost | Unpriced | None = None,
    spent: float | None = None,
) -> JSONObject:
    """Return the record of an answer.

    completion: the call's completion, with a response.
    provider: the value of the member `provider`, if the completion does not name who answered.
    cost: the answer's cost; `Unpriced` is written as null, and None leaves out the member `cost`.
    spent: US dollars of all attempts of the line; None leaves out the member.
    """
    response = completion.response
    assert response is not None
    target = target_of(completion)
    record: JSONObject = {
        "id": item.id,
        "provider": target.partition("/")[0] or provider,
        "model": response.model or target or item.request.model,
        **_said(response),
        "usage": {name: getattr(response.usage, name) for name in USAGE_MEMBERS},
        "error": None,
        "attempts": completion.attempts,
        "seconds": _seconds(completion),
        "request_id": completion.request_id,
    }
    if completion.cached:
        record["cached"] = True
    if cost is not None:
        record["cost"] = {"currency": cost.currency, "total": float(cost.total)} if isinstance(cost, Cost) else None
    if spent is not None:
        record[SPENT] = spent
    if item.request.response_schema is not None:
        record["parsed"] = json_of(response, item.request.response_schema)
    if response.refusal:
        record["refusal"] = response.refusal
    if response.warnings:
        record["warnings"] = list(response.warnings)
    return record | _asked_for(item, response) | item.columns


def failure_record(item: Item, completion: Completion, error: ProviderError, spent: float | None = None) -> JSONObject:
    """Return the record of a failure. Its members `text` and `provider_data` are the part of the answer that had
    arrived.

    spent: US dollars of all attempts of the line; None or 0 leaves out the member.
    """
    record: JSONObject = {
        "id": item.id,
        "line": item.number,
        "error": {
            "category": error.category.value,
            "message": error.message[:RECORDED_TEXT],
            "http_status": error.http_status,
            "provider_code": error.provider_code,
            "retryable": error.retryable,
        },
        "text": completion.response.text if completion.response is not None else None,
        "attempts": completion.attempts,
        "seconds": _seconds(completion),
        "request_id": completion.request_id,
    }
    if spent:
        record[SPENT] = spent
    return record | _asked_for(item, completion.response) | item.columns


def _said(response: Response) -> JSONObject:
    return {
        "text": response.text,
        "thinking": response.thinking or None,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments, "complete": call.complete}
            for call in response.tool_calls
        ],
        "finish_reason": response.finish_reason.value,
    }


def _asked_for(item: Item, response: Response | None) -> JSONObject:
    """Return the members `choices` (the other ones), `tokens`, and `provider_data`: what else an answer has.

    The last is left out for a line that asks for nothing of the provider's own: it holds members of every answer,
    too.
    """
    asked: JSONObject = {}
    if response is not None and response.others:
        asked["choices"] = [_said(other) | _asked_for(item, other) for other in response.others]
    if response is not None and response.tokens is not None:
        asked["tokens"] = response.tokens.to_json()
    if response is not None and response.provider_data and (item.request.extra_body or item.request.logprobs):
        asked["provider_data"] = response.provider_data
    return asked


def _seconds(completion: Completion) -> float | None:
    finished = completion.timings.finished
    return round(finished, 3) if finished is not None else None
