"""The machine for a Responses stream.

`response.created`, then per output item `response.output_item.added`, deltas and `response.output_item.done`, then
one of `response.completed`, `.incomplete`, `.failed`, `.cancelled`, which carries the whole response and is the
terminal marker; `error` anywhere. Source: https://platform.openai.com/docs/api-reference/responses-streaming.

The event's name decides; where servers leave it out, the `type` in the data does. Events that are not in the table
(progress of server-side tools, pings, whatever comes next year) tell the caller nothing. What a delta misses, the
whole item tells later, and what the items miss, the final response tells: see `items.py`.

A delta that matches the one before but for its text does not come here (`delta_template.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from ... import errors
from ...answer_limits import ANSWER_LIMITS, AnswerLimits
from ...delta_template import Path, VolatileMembers
from ...dialect import MakeId, StreamMachine
from ...error_bodies import error_from_object, reported_error, reported_in_text
from ...events import Error, Event, FinishReason, Start
from ...json_values import (
    JSONObject,
    MalformedJSONError,
    exactly_object,
    integer,
    items,
    loads,
    mapping,
    objects,
    shown,
    string,
)
from ...provider import Provider
from .items import CONTENT, SUMMARY, may_hold_numbers
from .output import Output
from .response import conclude, describe, keep

DONE_MARK = b"[DONE]"
"""Not of this dialect; servers that also speak Chat Completions end with it."""

PINGS = frozenset({"ping", "keepalive", "heartbeat"})
"""Events whose data is of no interest, JSON or not."""

ENVELOPE = ("type", "response", "sequence_number", "event_id")
"""Members of a terminal event that are not kept: all others are the server's own and go into `provider_data`."""


class ResponsesStream(StreamMachine):
    """One stream."""

    __slots__ = ("done_mark", "output", "started")

    volatile: ClassVar[VolatileMembers] = VolatileMembers(counter="sequence_number", padding=("obfuscation",))

    def __init__(self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> None:
        super().__init__(provider, make_id, limits)
        self.output: Output = Output(self.answer, provider.profile.name, make_id)
        self.started: bool = False
        self.done_mark: bool = False

    def take_event(self, event: str, data: bytes) -> Sequence[Event]:
        try:
            value = loads(data, self.note_half)
        except MalformedJSONError as error:
            return self._unreadable(event, data, str(error))
        if type(value) is not dict:
            reported = reported_error(event, value)
            if reported is not None:
                return self.fail(error_from_object(reported, http_status=200, body=data))
            return self._unreadable(event, data, f"expected an event object, got {shown(data)}")
        kind = event if event in EVENTS else string(value, "type") or ""
        handle = EVENTS.get(kind)
        if handle is None:
            return self._unnamed(value, data)
        try:
            events = handle(self, value, data)
        except MalformedJSONError as error:
            return self.fail(errors.malformed(f"{error}: {shown(data)}", data))
        if not self.started and events:
            return self._with_start(events)
        if kind in REPEATED and len(events) == 1 and not value.get("logprobs"):
            self.expect_more(event, data, value, DELTA, events[0])
        return events

    def take_end(self, stray: bytes) -> Sequence[Event]:
        reported = reported_in_text(stray)
        if reported is not None:
            return self.fail(error_from_object(reported, http_status=200, body=stray))
        if self.done_mark and self.output.all_done() and not self.provider.profile.quirks.strict_end:
            # The server says itself that this is all, and every item has come whole: only the reason is missing.
            self.ended: bool = True
            events = self.answer.done(FinishReason.UNKNOWN, None)
            return events if self.started else self._with_start(events)
        return self.fail(
            errors.truncated("truncated stream: it ended without a terminal event such as response.completed")
        )

    def _unreadable(self, event: str, data: bytes, reason: str) -> Sequence[Event]:
        if event in PINGS or not data.strip():
            return ()
        if data.strip() == DONE_MARK:
            self.done_mark = True
            return ()
        if event == "error":
            return self.fail(error_from_object(data.decode("utf-8", "replace"), http_status=200, body=data))
        return self.fail(errors.malformed(reason, data))

    def _unnamed(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        """An event that the table does not have: one of no interest, or an error in another dialect's form."""
        reported = reported_error("", value)
        return () if reported is None else self.fail(error_from_object(reported, http_status=200, body=data))

    def _with_start(self, events: Sequence[Event]) -> Sequence[Event]:
        """The first event that tells anything, in a stream that has not begun: only an error may stand alone."""
        if type(events[0]) is Error:
            return events
        self.started = True
        return events if type(events[0]) is Start else [Start(self.answer.model, self.answer.id), *events]

    def response_started(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        """`created`, `queued` or `in_progress`, whichever comes first: a resumed stream lacks the first ones."""
        response = _object(value, "response")
        self.output.custom_tools.learn(response)
        describe(self.answer, response)
        if self.started:
            return ()
        return (self.answer.start(self.answer.model, self.answer.id),)

    def text_delta(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        text = value.get("delta")
        if type(text) is not str or not text:
            return _nothing(value)
        message = self.output.message_at(value)
        if message is None:
            return ()
        place = integer(value, "content_index") or 0
        logprobs = items(value, "logprobs")
        if logprobs:
            message.logprobs.setdefault(place, []).extend(logprobs)
        return (message.text(place).delta(text),)

    def text_done(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        return self._take_part(value, value)

    def part_done(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        return self._take_part(value, _object(value, "part"))

    def _take_part(self, value: JSONObject, part: JSONObject) -> Sequence[Event]:
        kind = PART_OF_EVENT.get(string(part, "type") or "", string(part, "type"))
        if kind not in ("output_text", "refusal"):
            return ()
        message = self.output.message_at(value)
        place = integer(value, "content_index") or 0
        return () if message is None else message.take_part(place, {**part, "type": kind})

    def annotation_added(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        """A source. One for text that has not come yet comes again with its item."""
        message, annotation = self.output.message_at(value), value.get("annotation")
        block = None if message is None else message.texts.get(integer(value, "content_index") or 0)
        if block is not None and type(annotation) is dict:
            block.citations.append(annotation)
        return ()

    def refusal_delta(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        text = value.get("delta")
        if type(text) is not str or not text:
            return _nothing(value)
        message = self.output.message_at(value)
        if message is not None:
            message.refusal(integer(value, "content_index") or 0, text)
        return ()

    def summary_delta(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        return self._reasoning_delta(value, SUMMARY)

    def reasoning_delta(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        return self._reasoning_delta(value, CONTENT)

    def _reasoning_delta(self, value: JSONObject, source: str) -> Sequence[Event]:
        text = value.get("delta")
        if type(text) is not str or not text:
            return _nothing(value)
        reasoning = self.output.reasoning_at(value)
        return () if reasoning is None else reasoning.delta(source, text)

    def arguments_delta(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        text = value.get("delta")
        if type(text) is not str or not text:
            return _nothing(value)
        call = self.output.call_at(value)
        return () if call is None or call.block.done else call.block.delta(text)

    def arguments_done(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        call = self.output.call_at(value)
        whole = string(value, "arguments") or string(value, "input") or ""
        return () if call is None else call.take_arguments(whole)

    def audio_delta(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        return self._audio_delta(value, "data")

    def transcript_delta(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        return self._audio_delta(value, "transcript")

    def _audio_delta(self, value: JSONObject, member: str) -> Sequence[Event]:
        """Sound has no item that would bring it again, and no event of ours."""
        text = value.get("delta")
        if type(text) is not str or not text:
            return _nothing(value)
        self.output.audio.setdefault(member, []).append(text)
        return ()

    def item_added(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        return self.output.open(integer(value, "output_index") or 0, _item(value, data))

    def item_done(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        return self.output.take(integer(value, "output_index") or 0, _item(value, data))

    def completed(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        return self._conclude(value, "completed", data)

    def incomplete(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        return self._conclude(value, "incomplete", data)

    def failed(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        return self._conclude(value, "failed", data)

    def cancelled(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        return self._conclude(value, "cancelled", data)

    def _conclude(self, value: JSONObject, status: str, data: bytes) -> Sequence[Event]:
        if any(map(may_hold_numbers, objects(mapping(value, "response"), "output"))):
            value = exactly_object(value, data)
        keep(self.answer, {key: member for key, member in value.items() if key not in ENVELOPE})
        response = value.get("response")
        events = conclude(self.output, response if type(response) is dict else {}, status, data)
        self.ended = True  # not before: what cannot be read ends the stream with an error
        return events

    def error(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        """An error event, nested (`error: {…}`) or flat. The `response.failed` that may follow says the same."""
        reported = value.get("error")
        if not reported:
            # A type that is not the event's own is the error's.
            own = ENVELOPE if value.get("type") == "error" else ENVELOPE[1:]
            reported = {key: member for key, member in value.items() if key not in own}
        return self.fail(error_from_object(reported, http_status=200, body=data))


EVENTS: dict[str, Callable[[ResponsesStream, JSONObject, bytes], Sequence[Event]]] = {
    "response.output_text.delta": ResponsesStream.text_delta,
    "response.output_text.done": ResponsesStream.text_done,
    "response.output_text.annotation.added": ResponsesStream.annotation_added,
    "response.content_part.done": ResponsesStream.part_done,
    "response.refusal.delta": ResponsesStream.refusal_delta,
    "response.refusal.done": ResponsesStream.text_done,
    "response.reasoning_summary_text.delta": ResponsesStream.summary_delta,
    "response.reasoning_text.delta": ResponsesStream.reasoning_delta,
    "response.function_call_arguments.delta": ResponsesStream.arguments_delta,
    "response.function_call_arguments.done": ResponsesStream.arguments_done,
    "response.custom_tool_call_input.delta": ResponsesStream.arguments_delta,
    "response.custom_tool_call_input.done": ResponsesStream.arguments_done,
    "response.audio.delta": ResponsesStream.audio_delta,
    "response.audio.transcript.delta": ResponsesStream.transcript_delta,
    "response.output_item.added": ResponsesStream.item_added,
    "response.output_item.done": ResponsesStream.item_done,
    "response.created": ResponsesStream.response_started,
    "response.queued": ResponsesStream.response_started,
    "response.in_progress": ResponsesStream.response_started,
    "response.completed": ResponsesStream.completed,
    "response.incomplete": ResponsesStream.incomplete,
    "response.failed": ResponsesStream.failed,
    "response.cancelled": ResponsesStream.cancelled,
    "error": ResponsesStream.error,
}
"""Event → what it does. Every other event is passed over."""

REPEATED = frozenset(
    {
        "response.output_text.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_text.delta",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
    }
)
DELTA: Path = ("delta",)
"""Events that tell a delta and nothing else, and where its text is."""

PART_OF_EVENT: dict[str, str] = {"response.output_text.done": "output_text", "response.refusal.done": "refusal"}
"""Event that is itself a whole part → the kind of part."""


def _object(value: JSONObject, key: str) -> JSONObject:
    member = value.get(key)
    if type(member) is not dict:
        raise MalformedJSONError(f"an event of type {shown(string(value, 'type') or '')} without its {key}")
    return member


def _item(value: JSONObject, data: bytes) -> JSONObject:
    """The item of an event, with exact numbers."""
    item = _object(value, "item")
    return _object(exactly_object(value, data), "item") if may_hold_numbers(item) else item


def _nothing(value: JSONObject) -> Sequence[Event]:
    """A delta without text. An empty or absent one is harmless; anything else would be an answer lost."""
    if value.get("delta") in (None, ""):
        return ()
    raise MalformedJSONError("a delta that is no text")
