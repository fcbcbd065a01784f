"""Reads a whole Responses object as the end of an answer: its items, its usage, and why it stopped.

`decode_response` uses it for an unstreamed answer, the stream machine for the response inside its terminal event. So
both read the end in the same way.
"""

from __future__ import annotations

from ...catalog.dialect import MakeId
from ...catalog.json_stream import foreign_answer
from ...catalog.provider import Provider
from ...json.json_values import JSON, JSONObject, MalformedJSONError, items, mapping, shown, string
from ...model.events import ErrorEvent, Event, FinishReason
from ...model.provider_error import ErrorCategory, ProviderError, malformed
from ...model.response import Response
from ...wire.accumulate import CUT_SHORT, Accumulator, answer_object, concluded
from ...wire.answer_limits import ANSWER_LIMITS, AnswerLimits
from ...wire.error_bodies import error_from_object, reported_error
from ...wire.finish_words import reason_of_word
from .output import Output
from .usage import read_usage

STATUS_REASON: dict[str, FinishReason] = {
    "completed": FinishReason.STOP,
    "complete": FinishReason.STOP,
    "incomplete": FinishReason.LENGTH,
    "in_progress": FinishReason.UNKNOWN,
    "queued": FinishReason.UNKNOWN,
}
"""Status of a response that did not fail → finish reason. One in progress or queued runs in the background."""

UNFINISHED = frozenset({"in_progress", "queued"})
"""Status of a response that has not ended."""

INCOMPLETE_REASON: dict[str, FinishReason] = {
    "max_output_tokens": FinishReason.LENGTH,
    "max_messages": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
    "steered": FinishReason.UNKNOWN,
}
"""`incomplete_details.reason` → finish reason. Any other word is LENGTH, because the answer is not complete, unless the
word says that the generation broke.
"""

FAILED_CATEGORY: dict[str, ErrorCategory] = {
    "failed": ErrorCategory.SERVER,
    "cancelled": ErrorCategory.CANCELLED,
}
"""Status of a response that failed → category, if its error object is not more specific."""

NAMELESS_CALLS = "{} tool call(s) that never got a name were dropped"
"""The warning for calls that cannot be executed."""

ECHOED = frozenset(
    {
        "id", "object", "model", "output", "output_text", "usage", "error", "tools", "tool_choice", "input",
        "instructions", "prompt", "text", "temperature", "top_p", "top_k", "top_logprobs", "presence_penalty",
        "frequency_penalty", "truncation", "max_output_tokens", "max_tool_calls", "parallel_tool_calls", "store",
        "stream", "stream_options", "include", "user", "safety_identifier", "prompt_cache_key",
        "prompt_cache_retention", "prompt_cache_options", "context_management",
    }
)  # fmt: skip
"""Members that are read elsewhere or that repeat the request. All others are kept in `provider_data`."""


def decode_response(body: bytes, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> Response:
    """Decode an unstreamed answer. Raises `ProviderError`, also for a failure in a response with status 200."""
    try:
        response = answer_object(body)
    except MalformedJSONError as error:
        raise malformed(f"the answer cannot be read: {error}", body) from None
    if response.get("output") is None and string(response, "status") is None:
        reported = reported_error("", response)
        if reported is not None:
            raise error_from_object(reported, http_status=200, body=body)
        foreign = foreign_answer(response, "openai-responses", body)
        raise foreign or malformed(f"the answer is no response object: {shown(body)}", body)
    if response.get("output") is None and (foreign := foreign_answer(response, "openai-responses", body)) is not None:
        raise foreign
    answer = Accumulator(limits)
    try:
        end = conclude(Output(answer, provider.maker, make_id), response, None, body)[-1]
    except MalformedJSONError as error:
        raise malformed(f"{error}: {shown(body)}", body) from None
    return concluded(answer.response(), end, body)


def conclude(output: Output, response: JSONObject, status: str | None, body: bytes) -> list[Event]:
    """Read the final response. Returns events for what was not delivered before, then `Done` or `ErrorEvent`.

    status: the terminal event's status; None for an unstreamed answer.
    body: the bytes that the error keeps.
    """
    answer = output.answer
    describe(answer, response)
    output.learn_tools(response)
    events: list[Event] = []
    try:
        output.take_all(_output_of(output, response), events)
    except ProviderError as error:  # beyond a limit; the events before it are delivered
        return [*events, ErrorEvent(error.with_traceback(None))]
    usage = response.get("usage")
    if type(usage) is dict:
        answer.usage = read_usage(usage)
    keep(answer, response)
    output.keep_beside(answer.provider_data)
    ended_as = status_of(response, status)
    failure = failure_of(response, ended_as, body)
    if failure is not None:
        if ended_as == "cancelled":
            answer.finish_reason, answer.raw_finish_reason = FinishReason.ABORTED, ended_as
        return [*events, ErrorEvent(failure)]
    if response.get("error"):
        answer.provider_data["error"] = response["error"]  # beside a status that is no failure
    nameless = output.nameless_calls(len(items(response, "output")))
    if nameless:
        answer.warn(NAMELESS_CALLS.format(nameless))
    reason, raw = reason_of(response, ended_as)
    if status is not None and answer.is_empty() and not _gives_reason(response):
        raw = None  # an event's name alone is an end, and no reason
    events.extend(output.cut_short() if reason in CUT_SHORT else output.hand_over())
    events.extend(answer.done(reason, raw))
    return events


def _output_of(output: Output, response: JSONObject) -> list[JSON]:
    """Return the final response's items. Raises `MalformedJSONError` for any other output.

    A server without items may send the text alone, under the name that OpenAI's SDK has for it.
    """
    whole, text = response.get("output") or [], string(response, "output_text")
    if type(whole) is not list:
        raise MalformedJSONError("the output is no array")
    return [{"type": "message", "content": text}] if text and not whole and not output.items else whole


def describe(answer: Accumulator, response: JSONObject) -> None:
    """Record model and id, if this response names them."""
    answer.model = string(response, "model") or answer.model
    answer.id = string(response, "id") or answer.id


def keep(answer: Accumulator, members: JSONObject) -> None:
    """Keep other members as received: service tier, incomplete_details, moderation, …"""
    for key, value in members.items():
        if key not in ECHOED and value is not None and value != {} and value != []:
            answer.provider_data[key] = value


def status_of(response: JSONObject, event_status: str | None) -> str | None:
    """Return the status with which a response ended.

    A terminal event's status is used if it is a failure, or if the response's own status is unfinished. Otherwise the
    response's own status is used (`response.completed` with an incomplete response).
    """
    status = string(response, "status")
    unfinished = status is None or status in UNFINISHED
    return event_status if event_status in FAILED_CATEGORY or (event_status and unfinished) else status


def failure_of(response: JSONObject, status: str | None, body: bytes) -> ProviderError | None:
    """Return the error of a response that failed, or None."""
    error = response.get("error")
    category = FAILED_CATEGORY.get(status or "")
    if error and (category is not None or status not in STATUS_REASON):
        return error_from_object(error, http_status=200, body=body)
    if category is None:
        return None
    message = f"the response {'was cancelled' if status == 'cancelled' else 'failed without a reason'}"
    return ProviderError(message, category=category, http_status=200, provider_code=status, body=body)


def _gives_reason(response: JSONObject) -> bool:
    """Return whether a response itself says why it ended."""
    ended = (string(response, "status") or "in_progress") not in UNFINISHED
    return ended or string(mapping(response, "incomplete_details"), "reason") is not None


def reason_of(response: JSONObject, status: str | None) -> tuple[FinishReason, str | None]:
    """Return the finish reason, and the server's own word for it.

    A body without a status is a complete answer of a server that does not report one.
    """
    details = string(mapping(response, "incomplete_details"), "reason")
    if status == "incomplete" or (status is None and details is not None):
        # The raw reason is the status here as well; `provider_data["incomplete_details"]` has the details.
        reason = reason_of_word(details or "", INCOMPLETE_REASON, FinishReason.LENGTH)
        return reason, details if reason is FinishReason.ERROR else status or details
    if status is None:
        return FinishReason.STOP, None
    return reason_of_word(status, STATUS_REASON), status
