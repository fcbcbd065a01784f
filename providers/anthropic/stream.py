"""The stream machine for Anthropic's Messages.

A stream has `message_start`, then for each content block `content_block_start`, deltas and `content_block_stop`, then
`message_delta` with the stop reason, then `message_stop`, the terminal marker. `ping` and `error` may come anywhere.
Source: https://platform.claude.com/docs/en/build-with-claude/streaming.

The `type` in the data selects the method, because compatible servers omit the event's name. If it is missing, the name
selects it. The index identifies a block.

`EVENTS` maps each event to its method. A delta that matches the one before does not come here (`delta_template.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..catalog.dialect import MakeId
from ..catalog.json_stream import BlockStream, index_of, object_in
from ..catalog.provider import Provider
from ..json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    exactly_object,
    mapping,
    objects,
    shown,
    string,
)
from ..model.events import Event
from ..model.provider_error import ProviderError, malformed
from ..wire.accumulate import CUT_SHORT, CallInProgress, Placed, TextInProgress, ThinkingInProgress
from ..wire.answer_limits import ANSWER_LIMITS, AnswerLimits
from ..wire.delta_template import Path
from ..wire.error_bodies import reported_error
from .blocks import BlockReader, ProviderBlockInProgress
from .errors import error_in
from .response import MESSAGE_MEMBERS, add_provider_data, add_usage, finish_reason

WITH_BLOCKS = frozenset({"message", "message_start", "content_block_start"})
"""Events that contain whole blocks."""

WITHOUT_NUMBERS = frozenset({"text", "thinking", "redacted_thinking"})
"""Types of blocks that contain no numbers."""

NO_TEXT_TO_CITE = "the answer has a citation in a block that is no text; it was dropped"
NO_THINKING_TO_SIGN = "the answer has a signature in a block that is no thinking; it was dropped"
"""Warnings about deltas that have no place."""

EVENT_MEMBERS = frozenset({"type", "delta", "usage"})
DELTA_MEMBERS = frozenset({"type", "stop_reason"})
"""Members of an event, and of a message's delta, that are not provider data."""


class MessagesStream(BlockStream):
    """Converts one stream.

    opened: redacted thinking, which has no deltas, is left out.
    stop_reason: the wire's stop reason so far.
    usage_raw: the usage reports so far, merged.
    reader: reads blocks into the answer.
    """

    __slots__ = ("reader", "stop_reason", "usage_raw")

    def __init__(self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> None:
        super().__init__(provider, make_id, limits)
        self.reader: BlockReader = BlockReader(self.answer, provider.maker, make_id)
        self.stop_reason: str | None = None
        self.usage_raw: dict[str, JSON] = {}

    def take_object(self, event: str, value: JSONObject, data: bytes) -> Sequence[Event]:
        kind = value.get("type")
        if type(kind) is not str:
            # "message" is also the default name of a server-sent event, so it does not make data a message.
            kind = event if event != "message" or type(value.get("content")) is list else ""
        events = self._dispatch(event, kind, value, data)
        if kind == "content_block_delta" and len(events) == 1:
            path = REPEATED.get(string(mapping(value, "delta"), "type") or "")
            if path is not None:
                self.expect_more(event, data, value, path, events[0])
        return events

    def _dispatch(self, event: str, kind: str, payload: JSONObject, data: bytes) -> Sequence[Event]:
        handle = EVENTS.get(kind)
        try:
            if handle is not None:
                if kind in WITH_BLOCKS and _may_hold_numbers(payload):
                    payload = exactly_object(payload, data)
                return handle(self, payload)
            if reported_error(event, payload) is not None:
                return self.fail(error_in(payload, data))
        except MalformedJSONError as error:
            return self.fail(malformed(f"{kind}: {error} in {shown(data)}", data))
        return ()

    def take_mark(self) -> Sequence[Event]:
        return self._finish() if self.stop_reason is not None else ()

    def take_end(self) -> Sequence[Event]:
        if self.stop_reason is not None and not self.provider.profile.quirks.strict_end:
            return self._finish()
        return self.truncated("truncated stream: it ended without message_stop")

    def error_of(self, reported: JSON, data: bytes) -> ProviderError:
        return error_in(reported, data)

    def message_start(self, payload: JSONObject) -> Sequence[Event]:
        """Read the message as it is at its start: model, id and input tokens, and the content of a resumed turn.

        A second one comes from a server that starts again inside one stream. Delivered events stay valid; the new
        blocks get the next indexes.
        """
        message = object_in(payload, "message")
        content = _objects(message, "content")
        self.answer.count.check_parts(len(content))
        events = self.finish_stopped()
        if not self.started:
            self.started = True
            events.append(self.answer.start(string(message, "model"), string(message, "id")))
        for index in list(self.opened):
            self.release(index, events)
        self.latest = -1
        for index, block in enumerate(content):
            self._open(index, block, events)
            events.extend(self.stop(index))
        add_provider_data(self.answer.provider_data, message, MESSAGE_MEMBERS)
        add_usage(self.answer, self.usage_raw, mapping(message, "usage"))
        self.stop_reason = string(message, "stop_reason")
        return events

    def message(self, payload: JSONObject) -> Sequence[Event]:
        """Read an unstreamed answer in place of events."""
        events = [*self.message_start({"message": payload})]
        events.extend(self._finish())
        return events

    def content_block_start(self, payload: JSONObject) -> Sequence[Event]:
        index, wire = index_of(payload, self.latest + 1), object_in(payload, "content_block")
        events = self.begin()
        events.extend(self.finish_stopped())
        self._open(index, wire, events)
        return events

    def content_block_delta(self, payload: JSONObject) -> Sequence[Event]:
        delta = object_in(payload, "delta")
        index = index_of(payload, self.latest)
        block = self.opened.get(index)
        if isinstance(block, ProviderBlockInProgress):
            block.apply(delta if self._cut_pairs is None else self._cut_pairs.as_sent(delta))
            return ()
        handle = DELTAS.get(string(delta, "type") or "")
        return () if handle is None else handle(self, index, delta)

    def content_block_stop(self, payload: JSONObject) -> Sequence[Event]:
        return self.stop(index_of(payload, self.latest))

    def message_delta(self, payload: JSONObject) -> Sequence[Event]:
        """Read the stop reason and the usage so far. Both are totals, so they replace earlier ones."""
        delta = mapping(payload, "delta")
        events = self.begin()
        self.stop_reason = string(delta, "stop_reason") or self.stop_reason
        self.answer.raw_finish_reason = self.stop_reason
        add_provider_data(self.answer.provider_data, delta, DELTA_MEMBERS)
        add_provider_data(self.answer.provider_data, payload, EVENT_MEMBERS)
        add_usage(self.answer, self.usage_raw, mapping(payload, "usage"))
        if self.stop_reason is not None:
            cut = finish_reason(self.stop_reason) in CUT_SHORT
            events.extend(self.finish_stopped(last_is_cut=cut))
        return events

    def message_stop(self, payload: JSONObject) -> Sequence[Event]:
        """End the message. Gateways send the usage with this event, too."""
        add_provider_data(self.answer.provider_data, payload, EVENT_MEMBERS)
        usage = mapping(payload, "usage")
        if usage:
            add_usage(self.answer, self.usage_raw, usage)
        return self._finish()

    def ping(self, payload: JSONObject) -> Sequence[Event]:
        return ()

    def text_delta(self, index: int, delta: JSONObject) -> Sequence[Event]:
        """Append text that did not match the template."""
        text = _text(delta, "text")
        return self._append(index, TextInProgress, "text", text) if text else ()

    def citations_delta(self, index: int, delta: JSONObject) -> Sequence[Event]:
        """Add a citation to a text block."""
        block, citation = self.opened.get(index), delta.get("citation")
        if isinstance(block, TextInProgress) and type(citation) is dict:
            block.cite((citation,))
        elif citation is not None:
            self.answer.warn(NO_TEXT_TO_CITE)
        return ()

    def thinking_delta(self, index: int, delta: JSONObject) -> Sequence[Event]:
        """Append thinking that did not match the template."""
        text = _text(delta, "thinking")
        return self._append(index, ThinkingInProgress, "thinking", text) if text else ()

    def signature_delta(self, index: int, delta: JSONObject) -> Sequence[Event]:
        """Append to the signature of a thinking block. One that is sent twice is kept once."""
        block, signature = self.opened.get(index), _text(delta, "signature")
        if isinstance(block, ThinkingInProgress) and signature:
            if block.signature_pieces != [signature]:
                block.signature_pieces.append(signature)
            block.state = self.reader.tag
        elif signature:
            self.answer.warn(NO_THINKING_TO_SIGN)
        return ()

    def input_json_delta(self, index: int, delta: JSONObject) -> Sequence[Event]:
        """Append arguments to a tool call. Raises `MalformedJSONError` if no call can have them: a call without a part
        of its arguments must not be executed. An event by itself, outside a stream, has no call.
        """
        block, text = self.opened.get(index), _text(delta, "partial_json")
        if not text or not self.started:
            return ()
        if not isinstance(block, CallInProgress):
            raise MalformedJSONError(f"arguments for content block {index}, which is no tool call,")
        if block.call.done and not block.call.repeats(text):
            raise MalformedJSONError(f"arguments for tool call {block.call.id!r}, which has ended,")
        return block.call.delta(text)

    def _append(
        self, index: int, kind: type[TextInProgress | ThinkingInProgress], name: str, text: str
    ) -> Sequence[Event]:
        """Append text to the block at an index. If no block of its kind is there, it begins one.

        Gateways send thinking in a block that began as text, and text in the block of a tool call, which stays open.

        kind: the class of the block.
        name: its type, which is also the member with its text.
        """
        block = self.opened.get(index)
        call = block if isinstance(block, CallInProgress) else None
        found = block if call is None else call.beside
        if isinstance(found, kind):
            return (found.delta(text),)
        events = self.begin()
        wire: JSONObject = {"type": name, name: text}
        if call is None:
            self._open(index, wire, events)
        else:
            call.beside = self.reader.open(wire, events)
        return events

    def _open(self, index: int, wire: JSONObject, events: list[Event]) -> None:
        """Begin a block at an index, and end the block that had it before."""
        self.release(index, events)
        self.latest: int = index
        opened = self.reader.open(wire, events)
        if not isinstance(opened, Placed):
            self.opened[index] = opened

    def _finish(self) -> Sequence[Event]:
        events, reason = self.begin(), finish_reason(self.stop_reason)
        for block in self.opened.values():
            if isinstance(block, CallInProgress):
                events.extend(block.settle())
                if reason in CUT_SHORT and self.is_last(block):
                    events.extend(block.call.finish(complete=False))
        events.extend(self.answer.done(reason, self.stop_reason))
        self.ended = True
        return events


EVENTS: dict[str, Callable[[MessagesStream, JSONObject], Sequence[Event]]] = {
    "message": MessagesStream.message,
    "message_start": MessagesStream.message_start,
    "content_block_start": MessagesStream.content_block_start,
    "content_block_delta": MessagesStream.content_block_delta,
    "content_block_stop": MessagesStream.content_block_stop,
    "message_delta": MessagesStream.message_delta,
    "message_stop": MessagesStream.message_stop,
    "ping": MessagesStream.ping,
}
"""Type of an event → its method. `error` needs the event's bytes and is handled before. Unknown types are ignored, as
Anthropic's documentation requires.
"""

DELTAS: dict[str, Callable[[MessagesStream, int, JSONObject], Sequence[Event]]] = {
    "text_delta": MessagesStream.text_delta,
    "citations_delta": MessagesStream.citations_delta,
    "thinking_delta": MessagesStream.thinking_delta,
    "signature_delta": MessagesStream.signature_delta,
    "input_json_delta": MessagesStream.input_json_delta,
}
"""Type of a delta → its method. Unknown types are ignored."""

REPEATED: dict[str, Path] = {
    "text_delta": ("delta", "text"),
    "thinking_delta": ("delta", "thinking"),
    "input_json_delta": ("delta", "partial_json"),
}
"""Type of a delta → the path to its text, for deltas that contain nothing else."""


def _may_hold_numbers(payload: JSONObject) -> bool:
    """Return whether an event contains a block other than text or thinking: a tool's input may come whole."""
    block = payload.get("content_block")
    if type(block) is dict:
        return string(block, "type") not in WITHOUT_NUMBERS
    return bool((mapping(payload, "message") or payload).get("content"))


def _objects(payload: JSONObject, member: str) -> list[JSONObject]:
    """Return the member, which must be an array of objects or absent. Raises `MalformedJSONError`."""
    value = payload.get(member)
    if value is not None and (type(value) is not list or any(type(item) is not dict for item in value)):
        raise MalformedJSONError(f"a {member} that is no array of objects")
    return objects(payload, member)


def _text(payload: JSONObject, member: str) -> str:
    """Return the member, which must be a text or absent. Raises `MalformedJSONError`."""
    value = payload.get(member)
    if value is not None and type(value) is not str:
        raise MalformedJSONError(f"a {member} that is no text")
    return value if type(value) is str else ""
