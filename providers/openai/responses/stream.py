"""The stream machine for Responses.

A stream has `response.created`, then for each output item `response.output_item.added`, deltas and
`response.output_item.done`, then one of `response.completed`, `.incomplete`, `.failed`, `.cancelled` or `.done`, which
has the whole response and is the terminal marker. `error` may come anywhere.
Source: https://platform.openai.com/docs/api-reference/responses-streaming.

The event's name selects the method. If a server leaves it out, the `type` in the data does. Events that are not in the
table (progress of server-side tools, pings, future events) are ignored. Content that the deltas lack comes with the
whole item, and content that the items lack comes with the final response: see `items.py`.

A delta that differs from the one before only in its text does not come here (`delta_template.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from ...catalog.dialect import MakeId
from ...catalog.json_stream import JSONStream
from ...catalog.provider import Provider
from ...json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    exactly_object,
    integer,
    items,
    mapping,
    objects,
    shown,
    string,
)
from ...model.events import Done, ErrorEvent, Event, FinishReason, Start
from ...model.provider_error import ProviderError, malformed
from ...wire.answer_limits import ANSWER_LIMITS, AnswerLimits
from ...wire.delta_template import Path, VolatileMembers
from ...wire.error_bodies import error_from_object, reported_error
from .items import CONTENT, SUMMARY, may_hold_numbers
from .output import Output
from .response import UNFINISHED, conclude, describe, keep

ENVELOPE = ("type", "response", "sequence_number", "event_id", "stream_id")
"""Members of a terminal event that are not kept. All others go into `provider_data`."""


PART_OF_A_RESPONSE = re.compile(r"response\.\w+\.")
"""The type of an event about a part of the response, and not about the whole."""


class ResponsesStream(JSONStream):
    """Converts one stream.

    output: the items of the answer.
    steers: messages into the answer that the server may still go on with.
    is_steered: the answer goes on after such a message.
    held: the end of a part of the answer, while the server may go on.
    """

    __slots__ = ("held", "is_steered", "output", "started", "steers")

    volatile: ClassVar[VolatileMembers] = VolatileMembers(counter="sequence_number", padding=("obfuscation",))

    def __init__(self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> None:
        super().__init__(provider, make_id, limits)
        self.output: Output = Output(self.answer, provider.maker, make_id)
        self.started: bool = False
        self.steers: int = 0
        self.is_steered: bool = False
        self.held: Event | None = None

    def take_object(self, event: str, value: JSONObject, data: bytes) -> Sequence[Event]:
        kind = event if event in EVENTS else string(value, "type") or string(value, "object") or ""
        handle = EVENTS.get(kind)
        if handle is None:
            return self._unnamed(value, data)
        try:
            events = handle(self, value, data)
        except MalformedJSONError as error:
            return self.fail(malformed(f"{error}: {shown(data)}", data))
        if not self.started and events:
            return self._with_start(events)
        if kind in REPEATED and len(events) == 1 and not value.get("logprobs"):
            self.expect_more(event, data, value, DELTA, events[0])
        return events

    def take_mark(self) -> Sequence[Event]:
        return ()  # the end of the body decides

    def take_end(self) -> Sequence[Event]:
        if self.held is not None:
            return self._end_steering()
        if self.marked and self.output.all_done() and not self.provider.profile.quirks.strict_end:
            # The server has marked the end, and every item came whole: only the finish reason is missing.
            self.ended: bool = True
            events = [*self.output.hand_over(), *self.answer.done(FinishReason.UNKNOWN, None)]
            return events if self.started else self._with_start(events)
        return self.truncated("truncated stream: it ended without a terminal event such as response.completed")

    def error_of(self, reported: JSON, data: bytes) -> ProviderError:
        return error_from_object(reported, http_status=200, body=data)

    def _unnamed(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        """Handle an event that is not in the table: ignore it, unless it is an error of another dialect's form.

        The failure of a part of the response, such as `response.steer.failed`, does not end the response.
        """
        reported = reported_error("", value)
        of_a_part = PART_OF_A_RESPONSE.match(string(value, "type") or "")
        return () if reported is None or of_a_part else self.fail(self.error_of(reported, data))

    def _with_start(self, events: Sequence[Event]) -> Sequence[Event]:
        """Put `Start` before the first events of a stream, unless they are an error."""
        if type(events[0]) is ErrorEvent:
            return events
        self.started = True
        return events if type(events[0]) is Start else [Start(self.answer.model, self.answer.id), *events]

    def response_started(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        """Read `created`, `queued` or `in_progress`, whichever comes first: a resumed stream has no first ones."""
        response = _object(value, "response")
        if self.held is not None:  # the server goes on, with items of their own numbers
            self.held, self.steers, self.is_steered = None, 0, True
            self.output = Output(self.answer, self.provider.maker, self.make_id)
        self.output.learn_tools(response)
        describe(self.answer, response)
        if self.started:
            return ()
        return (self.answer.start(self.answer.model, self.answer.id),)

    def text_delta(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        """Append text to a content part."""
        text = _text(value)
        if not text:
            return ()
        message = self.output.message_at(value)
        if message is None:
            return ()
        place = integer(value, "content_index") or 0
        logprobs = items(value, "logprobs")
        if logprobs:
            message.logprobs.setdefault(place, []).extend(logprobs)
        return (message.text(place).delta(text),)

    def text_done(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        """Read a content part that the event itself is."""
        return self._take_part(value, value, ends=False)

    def part_done(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        """Read a whole content part."""
        return self._take_part(value, _object(value, "part"), ends=True)

    def _take_part(self, value: JSONObject, part: JSONObject, *, ends: bool) -> Sequence[Event]:
        """Read a whole part of a message, if it is a text or a refusal."""
        kind = PART_OF_EVENT.get(string(part, "type") or "", string(part, "type"))
        if kind not in ("output_text", "refusal"):
            return ()
        message = self.output.message_at(value)
        place = integer(value, "content_index") or 0
        return () if message is None else message.take_part(place, {**part, "type": kind}, ends=ends)

    def annotation_added(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        """Add a citation. One for text that has not come yet comes again with its item."""
        message, annotation = self.output.message_at(value), value.get("annotation")
        block = None if message is None else message.text_at(integer(value, "content_index") or 0)
        if block is not None and type(annotation) is dict:
            block.cite((annotation,))
        return ()

    def refusal_delta(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        text = _text(value)
        if not text:
            return ()
        message = self.output.message_at(value)
        if message is not None:
            message.refusal(integer(value, "content_index") or 0, text)
        return ()

    def reasoning_delta(self, value: JSONObject, data: bytes, *, source: str) -> Sequence[Event]:
        """Append to the text of reasoning, or to its summary."""
        text = _text(value)
        if not text:
            return ()
        reasoning = self.output.reasoning_at(value)
        return () if reasoning is None else reasoning.delta(source, text)

    def arguments_delta(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        text = _text(value)
        if not text:
            return ()
        call = self.output.call_at(value)
        if call is None:
            self.output.keep_arguments(value, text)
            return ()
        return () if call.block.done else call.block.delta(text)

    def arguments_done(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        """Read a call's whole arguments."""
        call = self.output.call_at(value)
        whole = string(value, "arguments") or string(value, "input") or ""
        if call is None:
            self.output.keep_arguments(value, whole, whole=True)
            return ()
        return call.take_arguments(whole)

    def audio_delta(self, value: JSONObject, data: bytes, *, member: str) -> Sequence[Event]:
        """Keep a piece of the sound or of its transcript. No item repeats it, and it has no event of the library."""
        text = _text(value)
        if not text:
            return ()
        self.output.audio.setdefault(member, []).append(text)
        return ()

    def item_added(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        return self.output.open(integer(value, "output_index") or 0, _item(value, data))

    def item_done(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        return self.output.take(integer(value, "output_index") or 0, _item(value, data))

    def whole(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        """Read an unstreamed answer in place of events. One that is still being made has no meaning here."""
        if string(value, "status") in UNFINISHED:
            return ()
        if any(map(may_hold_numbers, objects(value, "output"))):
            value = exactly_object(value, data)
        events = conclude(self.output, value, None, data)
        self.ended = True
        return events

    def concluded(self, value: JSONObject, data: bytes, *, status: str) -> Sequence[Event]:
        """End the answer with a response of this status. Returns the last events."""
        if any(map(may_hold_numbers, objects(mapping(value, "response"), "output"))):
            value = exactly_object(value, data)
        beside: JSONObject = {key: member for key, member in value.items() if key not in ENVELOPE}
        keep(self.answer, beside)
        response = mapping(value, "response")
        if not response.get("error") and (error := reported_error("", beside)) is not None:
            response = {**response, "error": error}  # a gateway puts it next to the response
        events = conclude(self.output, response, status, data)
        if self.steers and type(events[-1]) is Done:
            self.held = events.pop()
            return events
        self.ended = True  # after reading: a response that cannot be read ends the stream with an error
        return events

    def steer_failed(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        """The server does not go on with a message into the answer."""
        self.steers = max(0, self.steers - 1)
        return self._end_steering() if not self.steers else ()

    def steer_pending(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        """The server goes on with the message when it has the results of the answer's calls."""
        return self._end_steering()

    def _end_steering(self) -> Sequence[Event]:
        """Return the end of the answer, if it was held."""
        held, self.held, self.steers = self.held, None, 0
        self.ended = held is not None
        return () if held is None else (held,)

    def error(self, value: JSONObject, data: bytes) -> Sequence[Event]:
        """Read an error event, nested (`error: {…}` or `error: "…"`) or flat. A `response.failed` after it has the same
        error.
        """
        error = {name: member for name, member in value.items() if name not in ENVELOPE[1:]}
        return self.fail(self.error_of(reported_error("error", error), data))


EVENTS: dict[str, Callable[[ResponsesStream, JSONObject, bytes], Sequence[Event]]] = {
    "response.output_text.delta": ResponsesStream.text_delta,
    "response.output_text.done": ResponsesStream.text_done,
    "response.output_text.annotation.added": ResponsesStream.annotation_added,
    "response.content_part.done": ResponsesStream.part_done,
    "response.refusal.delta": ResponsesStream.refusal_delta,
    "response.refusal.done": ResponsesStream.text_done,
    "response.reasoning_summary_text.delta": partial(ResponsesStream.reasoning_delta, source=SUMMARY),
    "response.reasoning_text.delta": partial(ResponsesStream.reasoning_delta, source=CONTENT),
    "response.function_call_arguments.delta": ResponsesStream.arguments_delta,
    "response.function_call_arguments.done": ResponsesStream.arguments_done,
    "response.custom_tool_call_input.delta": ResponsesStream.arguments_delta,
    "response.custom_tool_call_input.done": ResponsesStream.arguments_done,
    "response.audio.delta": partial(ResponsesStream.audio_delta, member="data"),
    "response.audio.transcript.delta": partial(ResponsesStream.audio_delta, member="transcript"),
    "response.output_item.added": ResponsesStream.item_added,
    "response.output_item.done": ResponsesStream.item_done,
    "response.created": ResponsesStream.response_started,
    "response.queued": ResponsesStream.response_started,
    "response.in_progress": ResponsesStream.response_started,
    "response.completed": partial(ResponsesStream.concluded, status="completed"),
    "response.incomplete": partial(ResponsesStream.concluded, status="incomplete"),
    "response.failed": partial(ResponsesStream.concluded, status="failed"),
    "response.cancelled": partial(ResponsesStream.concluded, status="cancelled"),
    "response.steer.failed": ResponsesStream.steer_failed,
    "response.steer.pending": ResponsesStream.steer_pending,
    # Of the Realtime API and of gateways; the response has the status.
    "response.done": partial(ResponsesStream.concluded, status="completed"),
    "error": ResponsesStream.error,
    "response": ResponsesStream.whole,
}
"""Type of an event, or of the object in place of one → its method. Every other event is ignored."""

REPEATED = frozenset(
    {
        "response.output_text.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_text.delta",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
    }
)
"""Types of events that contain one delta and nothing else."""

DELTA: Path = ("delta",)
"""The path to the text of such an event."""

PART_OF_EVENT: dict[str, str] = {"response.output_text.done": "output_text", "response.refusal.done": "refusal"}
"""Type of an event that is itself a whole part → the type of the part."""


def _object(value: JSONObject, key: str) -> JSONObject:
    """Return the member, which must be an object. Raises `MalformedJSONError`."""
    member = value.get(key)
    if type(member) is not dict:
        raise MalformedJSONError(f"an event of type {shown(string(value, 'type') or '')} without its {key}")
    return member


def _item(value: JSONObject, data: bytes) -> JSONObject:
    """Return the item of an event, with exact numbers."""
    item = _object(value, "item")
    return _object(exactly_object(value, data), "item") if may_hold_numbers(item) else item


def _text(value: JSONObject) -> str:
    """Return the text of a delta, which may be absent. Raises `MalformedJSONError` for any other value."""
    text = value.get("delta")
    if text is not None and type(text) is not str:
        raise MalformedJSONError("a delta that is no text")
    return text or ""
