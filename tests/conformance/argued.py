"""The intended differences from the reference, by phenomenon, each with its reason.

A rule names no recording: it applies to every response with the phenomenon. A difference without a rule makes the run
fail.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from manystream.providers.json.json_values import JSON, string
from manystream.providers.openai.responses.items import CALL_KINDS

from .compare import Difference
from .outcome import Failure
from .reference import NO_READING


@dataclass(slots=True, frozen=True)
class Argument:
    """One rule.

    members: the members of `Outcome` that may differ.
    applies: returns whether the recording has the phenomenon.
    """

    name: str
    members: frozenset[str]
    applies: Callable[[Difference], bool]
    reason: str


MORE_THAN_A_STATUS: dict[str, str] = {
    "content_filter": "content_filter", "ResponsibleAIPolicyViolation": "content_filter",
    "model_not_found": "not_found", "DeploymentNotFound": "not_found", "rate_limit_exceeded": "rate_limit",
    "insufficient_quota": "rate_limit", "overloaded_error": "server", "invalid_api_key": "auth",
    "API_KEY_INVALID": "auth", "authentication_error": "auth",
}  # fmt: skip
"""A code in an error's body → its category, for codes that contradict the HTTP status."""


def _failure(difference: Difference) -> Failure | None:
    return difference.ours if isinstance(difference.ours, Failure) else None


def _cut_off(difference: Difference) -> bool:
    failure, expected = _failure(difference), difference.case.reference
    no_end = expected.get("terminal_event_seen") is False or expected.get("no_terminal_event") is True
    return no_end and failure is not None and failure.category == "network" and "truncated" in (failure.message or "")


def _prompt_refused(difference: Difference) -> bool:
    failure, reason = _failure(difference), string(difference.case.reference, "block_reason")
    return failure is not None and failure.category == "content_filter" and (reason or "?") in (failure.message or "")


def _no_answer(difference: Difference) -> bool:
    failure, expected = _failure(difference), difference.case.reference
    empty = not any(expected.get(name) for name in ("text", "tool_calls", "usage", "model", "finish_reason"))
    return empty and failure is not None and (failure.message or "").startswith("malformed answer")


def _says_nothing(difference: Difference) -> bool:
    failure, expected = _failure(difference), difference.case.reference
    empty = not any(expected.get(name) for name in ("text", "tool_calls", "finish_reason"))
    return empty and failure is not None and failure.code == "no_answer"


def _body_says_more(difference: Difference) -> bool:
    text = difference.case.text
    return any(f'"{code}"' in text and difference.ours == meaning for code, meaning in MORE_THAN_A_STATUS.items())


def _reason_of_error_info(difference: Difference) -> bool:
    try:
        body: JSON = json.loads(difference.case.body)
    except ValueError:
        return False
    return any(detail.get("reason") == difference.ours for detail in _objects_below(body))


def _objects_below(value: JSON) -> list[dict[str, JSON]]:
    if isinstance(value, dict):
        return [value, *(below for member in value.values() for below in _objects_below(member))]
    return [below for member in value for below in _objects_below(member)] if isinstance(value, list) else []


def _servers_own_calls(difference: Difference) -> bool:
    """Return whether all calls that we omit are custom calls of tools that the echoed request does not contain."""
    text = difference.case.text.replace(" ", "")
    ours, theirs = difference.ours, difference.reference
    if not isinstance(ours, list) or not isinstance(theirs, list) or '"tools":[{' not in text:
        return False
    left_out = [call for call in theirs if call not in ours]
    return '"custom_tool_call"' in text and all(
        f'"type":"custom","name":"{name}"' not in text for _, name, _ in left_out
    )


def _calls_of_own_tools(difference: Difference) -> bool:
    """Return whether all calls that we have in addition are calls of the API's own tools, which the caller must run."""
    ours, theirs = difference.ours, difference.reference
    if difference.case.dialect != "openai-responses" or not isinstance(ours, list) or not isinstance(theirs, list):
        return False
    return {name for _, name, _ in (call for call in ours if call not in theirs)} <= OWN_TOOLS


def _cut_off_arguments(difference: Difference) -> bool:
    """Return whether the calls differ only in arguments that are not complete JSON, which we keep as text."""
    ours, theirs = difference.ours, difference.reference
    if not isinstance(ours, list) or not isinstance(theirs, list) or len(ours) != len(theirs):
        return False
    pairs = [(mine, other) for mine, other in zip(ours, theirs, strict=True) if mine != other]
    return all(mine[:2] == other[:2] and isinstance(mine[2], str) for mine, other in pairs)


def _model_handed_over(difference: Difference) -> bool:
    return (
        '"type":"fallback"' in difference.case.text.replace(" ", "") and f'"{difference.ours}"' in difference.case.text
    )


def _begun_anew(difference: Difference) -> bool:
    return difference.case.text.replace(" ", "").count('"type":"message_start"') > 1


def _reader_failed(difference: Difference) -> bool:
    error = difference.case.reference.get("error")
    kind = string(error, "type") if isinstance(error, dict) else None
    return kind in NO_READING and difference.reference in (None, "", [])


def _runs_on(difference: Difference) -> bool:
    return difference.reference is None and difference.ours in ("in_progress", "queued")


def _after_an_error(difference: Difference) -> bool:
    return (
        difference.case.dialect == "gemini-interactions"
        and '"event_type":"error"' in difference.case.text
        and difference.ours is None
    )


def _aborted(difference: Difference) -> bool:
    failure, status = _failure(difference), string(difference.case.reference, "status")
    return failure is not None and failure.code in ("aborted", "failed") and status in ("cancelled", "failed")


def _generation_broke(difference: Difference) -> bool:
    failure, word = _failure(difference), string(difference.case.reference, "finish_reason")
    return failure is not None and failure.code == word and (failure.message or "").startswith(GENERATION_BROKE)


def _rewritten_at_the_end(difference: Difference) -> bool:
    return difference.case.reference.get("delta_text_equals_final") is False


OWN_TOOLS = {kind.tool for kind in CALL_KINDS.values() if kind.tool}
GENERATION_BROKE = "the generation of the answer broke"
ANY_MEMBER = frozenset({"text", "thinking", "signatures", "redacted", "tool calls", "finish reason", "usage", "model"})

ARGUMENTS: tuple[Argument, ...] = (
    Argument(
        "cut off",
        frozenset({"error"}),
        _cut_off,
        "the body ends without its dialect's terminal marker; a truncated response must not count as complete",
    ),
    Argument(
        "prompt refused",
        frozenset({"error"}),
        _prompt_refused,
        "promptFeedback.blockReason: the prompt was refused and there is no answer; the reader returns an empty one",
    ),
    Argument(
        "no answer at all",
        frozenset({"error"}),
        _no_answer,
        "a 200 with JSON that is not a response of this dialect; the reader checks nothing and returns an empty answer",
    ),
    Argument(
        "an end and no answer",
        frozenset({"error"}),
        _says_nothing,
        "a 200 without content, calls and finish reason is no answer; the reader returns an empty one",
    ),
    Argument(
        "the body says more than the status",
        frozenset({"error category"}),
        _body_says_more,
        "the category follows the code in the body if it is more specific than the HTTP status",
    ),
    Argument(
        "ErrorInfo",
        frozenset({"error code"}),
        _reason_of_error_info,
        "ErrorInfo.reason is the code that clients shall act on (AIP-193); the status name stands in the message",
    ),
    Argument(
        "empty word",
        frozenset({"finish reason"}),
        lambda difference: difference.reference == "" and difference.ours is None,
        "an empty finish_reason is Go's zero value and means that there is none yet",
    ),
    Argument(
        "enum as number",
        frozenset({"finish reason"}),
        lambda difference: difference.reference is None and str(difference.ours).isdigit(),
        "the wire has the enum's number, which the reader drops; it is kept as its digits",
    ),
    Argument(
        "server-side call",
        frozenset({"tool calls"}),
        _servers_own_calls,
        "a custom_tool_call of a tool that the request did not define is the server's own search: kept, not offered",
    ),
    Argument(
        "a call of the API's own tool",
        frozenset({"tool calls"}),
        _calls_of_own_tools,
        "a call that the caller must run is a tool call, whatever its type; the reader keeps it raw",
    ),
    Argument(
        "cut-off arguments",
        frozenset({"tool calls"}),
        _cut_off_arguments,
        "arguments that are not complete JSON are kept as received; the reader repairs them into another value",
    ),
    Argument(
        "model handed over",
        frozenset({"model"}),
        _model_handed_over,
        "a fallback block reports that another model continued, so the response names that model",
    ),
    Argument(
        "begun anew",
        frozenset({"signatures", "tool calls", "thinking", "text"}),
        _begun_anew,
        "two message_start in one stream reuse block indexes; the reader mixes the blocks, we keep them separate",
    ),
    Argument(
        "runs on",
        frozenset({"finish reason"}),
        _runs_on,
        "an interaction in the background has a status that is no end; it is kept as the raw reason",
    ),
    Argument(
        "after an error",
        frozenset({"finish reason", "usage"}),
        _after_an_error,
        "an error event ends the stream; what the server sends after it belongs to no answer",
    ),
    Argument(
        "aborted",
        frozenset({"error"}),
        _aborted,
        "an interaction that was cancelled at the server, or that the server calls failed, is no whole answer: the call"
        " fails with what came before, as a failed answer of Responses does",
    ),
    Argument(
        "generation broke",
        frozenset({"error"}),
        _generation_broke,
        "a finish reason that says that the generation broke is no success: the call fails, and keeps what came before",
    ),
    Argument(
        "reader failed",
        ANY_MEMBER,
        _reader_failed,
        "the reader stopped with an assertion of its own and returns nothing of the partial response; we keep it",
    ),
    Argument(
        "rewritten at the end",
        frozenset({"events"}),
        _rewritten_at_the_end,
        "the final item replaces delivered text: events cannot be undone, and the response has the final text",
    ),
)  # fmt: skip


def argument_for(difference: Difference) -> Argument | None:
    """Return the rule that applies to a difference; None if there is none."""
    for argument in ARGUMENTS:
        if difference.member in argument.members and argument.applies(difference):
            return argument
    return None
