"""Decodes an unstreamed answer, and has what it shares with the stream: finish reasons and members of a message.

It uses the same accumulator and block reader as the stream, so both give equal answers.
"""

from __future__ import annotations

from ..catalog.dialect import MakeId
from ..catalog.json_stream import foreign_answer
from ..catalog.provider import Provider
from ..json.json_values import JSON, JSONObject, MalformedJSONError, items, mapping, shown, string
from ..model.events import Event, FinishReason
from ..model.provider_error import malformed
from ..model.response import Response
from ..wire.accumulate import Accumulator, CallInProgress, answer_object, concluded
from ..wire.answer_limits import ANSWER_LIMITS, AnswerLimits
from ..wire.error_bodies import reported_error
from ..wire.finish_words import reason_of_word
from .blocks import BlockReader
from .errors import error_in
from .usage import merge_report, read_usage

FINISH_REASONS: dict[str, FinishReason] = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_USE,
    "refusal": FinishReason.CONTENT_FILTER,
    "compaction": FinishReason.STOP,
    "pause_turn": FinishReason.UNKNOWN,
}
"""`stop_reason` → finish reason. Any other word has the meaning that it has at other servers. After `pause_turn`, the
caller sends the assistant's content back unchanged, and the model continues. `compaction` ends an answer whose content
is the summary that was asked for.
"""

MESSAGE_MEMBERS = frozenset({"id", "type", "role", "model", "content", "stop_reason", "usage"})
"""Members of a message that `Response` has itself. All others are its provider data."""


def finish_reason(raw: str | None) -> FinishReason:
    return reason_of_word(raw, FINISH_REASONS)


def add_provider_data(provider_data: dict[str, JSON], wire: JSONObject, known: frozenset[str]) -> None:
    """Keep members without a field of their own (`container`, `stop_details`, `context_management`, …)."""
    for member, value in wire.items():
        if member not in known and value is not None:
            provider_data[member] = value


def add_usage(answer: Accumulator, raw: dict[str, JSON], report: JSONObject) -> None:
    """Merge a usage report into the earlier ones."""
    merge_report(raw, report)
    answer.usage = read_usage(raw)
    tier = raw.get("service_tier")
    if type(tier) is str:
        answer.provider_data["service_tier"] = tier


def decode_response(body: bytes, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> Response:
    """Decode a `message`. Raises `ProviderError` for an error object, and for a body that is no message."""
    try:
        message = answer_object(body)
    except MalformedJSONError as error:
        raise malformed(str(error), body) from None
    if reported_error("", message) is not None:
        raise error_in(message, body)
    content = message.get("content")
    if type(content) is not list and (content is not None or message.get("type") != "message"):
        foreign = foreign_answer(message, "anthropic", body)
        raise foreign or malformed(f"expected a message with content, got {shown(body)}", body)
    answer = Accumulator(limits)
    answer.start(string(message, "model"), string(message, "id"))
    try:
        _read_content(items(message, "content"), BlockReader(answer, provider.maker, make_id))
    except MalformedJSONError as error:
        raise malformed(f"{error} in {shown(body)}", body) from None
    add_provider_data(answer.provider_data, message, MESSAGE_MEMBERS)
    add_usage(answer, {}, mapping(message, "usage"))
    raw = string(message, "stop_reason")
    *_, end = answer.done(finish_reason(raw), raw)
    return concluded(answer.response(), end, body)


def _read_content(content: list[JSON], reader: BlockReader) -> None:
    events: list[Event] = []  # not delivered: the response has everything
    for block in content:
        if type(block) is not dict:
            raise MalformedJSONError("a content block that is no object")
        opened = reader.open(block, events)
        if isinstance(opened, CallInProgress):
            opened.settle()
