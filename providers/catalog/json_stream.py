"""A stream whose events are JSON objects: the base class of the dialects' stream machines.

It reads what servers and gateways of every dialect put beside those objects: the end marker of Chat Completions,
keep-alives in place of comments, errors as text, JSON without `data:` before it, and data that cannot be read.

An answer in the form of another API comes from a base URL that belongs to that one, or from a gateway that passes it on
as it is. Nothing in it is read, and no further attempt brings another form.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Sequence

from ..json.json_values import JSON, JSONObject, MalformedJSONError, json_at, loads, shown
from ..model.events import ErrorEvent, Event
from ..model.provider_error import NO_ANSWER_CODE, ProviderError, malformed, no_answer, truncated
from ..model.response import Response, arrived
from ..wire.accumulate import CallInProgress, OwnInProgress
from ..wire.answer_limits import ANSWER_LIMITS, AnswerLimits
from ..wire.delta_template import Template
from ..wire.error_bodies import ERROR, reported_error
from .dialect import BARE_LINES, MakeId, StreamMachine
from .provider import Provider
from .registry import ROWS


def foreign_answer(value: JSON, dialect: str, data: bytes) -> ProviderError | None:
    """Return the error for an answer, or an event of one, in the form of another API than the dialect's; or None.

    value: the answer. None: it is parsed from `data`.
    """
    if value is None:
        try:
            value = loads(data)
        except MalformedJSONError:
            return None
    own = ROWS.get(dialect)
    if type(value) is not dict or own is None or own.is_form_of is None:  # it may have any form
        return None
    for name, row in ROWS.items():
        if row.is_form_of is not None and row.is_form_of(value):
            return None if name == dialect else _error(row.api, f"{row.provider} reads it", data)
    if type(value.get("done")) is bool and ("message" in value or "response" in value):
        return _error("Ollama's own API", "OpenAIChat reads what Ollama sends below /v1", data)
    return None


def _error(api: str, reader: str, data: bytes) -> ProviderError:
    return malformed(f"the answer has the form of another API, {api} ({reader}): {shown(data)}", data)


DONE_MARK = b"[DONE]"
"""The end marker of Chat Completions. Gateways send it in streams of other dialects as well."""

PINGS = frozenset({"ping", "pong", "keepalive", "keep-alive", "keep_alive", "heartbeat"})
"""Names of events, and types in their data, that keep a connection alive and have no other meaning."""

_KEEP_ALIVE = re.compile(
    rb"(?::|//|\#).*"  # a comment that a gateway has put into an event
    rb"|[^\w{}\[\]\"]*(?:(?:ping|pong|keep\W?alive|keep_alive|heart\W?beat|no\W?op|null|none|nil|undefined)"
    rb"[^\w{}\[\]\"]*)?",
    re.IGNORECASE | re.DOTALL,
)
"""Data that is no JSON and keeps a connection alive: a comment, one of these words, or no word at all."""

_LONGEST_KEEP_ALIVE = 200
"""The most bytes of a keep-alive. Longer data is not matched."""

_MOST_FAILURES = 8
"""The most places of one block of lines at which JSON may begin and not be whole. It bounds the time for a block."""


class JSONStream(StreamMachine):
    """Converts one stream of JSON objects. A dialect implements the abstract methods.

    marked: whether the end marker of Chat Completions has come.
    """

    __slots__ = ("_quiet", "_unread", "marked")

    def __init__(self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> None:
        super().__init__(provider, make_id, limits)
        self.marked: bool = False
        self._quiet = b""  # the last object that brought no event
        self._unread = b""  # the first lines that were neither a field nor anything else that can be read

    @abc.abstractmethod
    def take_object(self, event: str, value: JSONObject, data: bytes) -> Sequence[Event]:
        """Take one event: its name, its data parsed, and its data. Returns its events, as `take_event` does."""

    @abc.abstractmethod
    def take_mark(self) -> Sequence[Event]:
        """Take the end marker of Chat Completions. Returns its events."""

    @abc.abstractmethod
    def error_of(self, reported: JSON, data: bytes) -> ProviderError:
        """Return the error that an event reports. `data`: the bytes that the error keeps."""

    def take_other(self, value: JSON, data: bytes) -> Sequence[Event]:
        """Take data that is JSON, but no object, no error and no keep-alive."""
        return self.fail(malformed(f"malformed event: expected an object, got {shown(data)}", data))

    def take_event(self, event: str, data: bytes) -> Sequence[Event]:
        if data == DONE_MARK:
            return self._mark()
        try:
            value = loads(data, self.note_half)
        except MalformedJSONError as error:
            return self._no_json(event, data, error)
        if type(value) is dict:
            events = self.take_object(event, value, data)
            if not events:
                self._quiet = data
            return events
        return self._no_object(event, value, data)

    def feed_last(self, event: str, data: bytes) -> Sequence[Event]:
        events: list[Event] = []
        for name, frame in (frames_in(event, data) if event != BARE_LINES else ()) or ((event, data),):
            events.extend(super().feed_last(name, frame))
        return events

    def truncated(self, what: str) -> Sequence[Event]:
        """End the stream with the error that it ended too early, with what came instead. Returns the last events.

        If nothing came but the end marker of Chat Completions, the stream has an end, and no answer.
        """
        foreign = self.foreign()
        if foreign is not None:
            return self.fail(foreign)
        if self.marked and arrived(self.answer.response()) is None:
            return self.fail(no_answer(DONE_MARK))
        return self.fail(truncated(f"{what}, after {shown(self._unread)}" if self._unread else what))

    def foreign(self) -> ProviderError | None:
        """Return the error for a stream in the form of another API, of which nothing could be read; or None."""
        if not self._quiet or not self.answer.is_empty():
            return None
        return foreign_answer(None, self.provider.profile.dialect_name, self._quiet)

    def _mark(self) -> Sequence[Event]:
        self.marked = True
        events = self.take_mark()
        if events and isinstance(events[-1], ErrorEvent) and events[-1].error.provider_code == NO_ANSWER_CODE:
            events[-1].error.body = DONE_MARK  # nothing else has come
        return events

    def _no_json(self, event: str, data: bytes, error: MalformedJSONError) -> Sequence[Event]:
        if event == BARE_LINES:
            found = events_in(data)
            if not found:
                self._unread = self._unread or data
            return self._take_each(found)
        frames = frames_in(event, data)
        if frames:
            return self._take_each(frames)
        text = data.strip()
        if text.startswith(DONE_MARK):
            return self._mark()
        if DONE_MARK.startswith(text):
            return ()  # nothing, or a mark that was cut
        if event == ERROR:
            return self.fail(self.error_of(text.decode("utf-8", "replace"), data))
        if event in PINGS or _is_keep_alive(text):
            return ()
        return self.fail(malformed(str(error), data))

    def _no_object(self, event: str, value: JSON, data: bytes) -> Sequence[Event]:
        reported = reported_error(event, value)
        if reported is not None or event == ERROR:
            return self.fail(self.error_of(reported, data))
        if not value or event in PINGS:
            return ()
        if type(value) is str:
            text = value.strip().encode()
            if text == DONE_MARK:
                return self._mark()
            if _is_keep_alive(text):
                return ()
        if event == BARE_LINES and not _is_list_of_objects(value):
            self._unread = self._unread or data
            return ()
        return self.take_other(value, data)

    def _take_each(self, frames: Sequence[tuple[str, bytes]]) -> Sequence[Event]:
        """Take what came together, as names and data. Returns the events of all."""
        events: list[Event] = []
        for name, data in frames:
            if self.ended:
                break
            self.template: Template | None = None  # of the frame before, whose block may have ended
            events.extend(self.take_event(name, data))
        if self._cut_pairs is not None:
            self.template = None  # half a pair may wait for the next delta
        return events


def _is_keep_alive(text: bytes) -> bool:
    return len(text) <= _LONGEST_KEEP_ALIVE and text.isascii() and _KEEP_ALIVE.fullmatch(text) is not None


def _is_list_of_objects(value: JSON) -> bool:
    return type(value) is list and bool(value) and all(type(item) is dict for item in value)


_BETWEEN = re.compile(r"[\s,]*+(?:data:\s*+)?+")
"""What may stand between two frames."""

_MOST_FRAMES = 1_000
"""The most frames of one event. An event with more is malformed."""

_TYPES = frozenset({"type", "event_type"})


def frames_in(event: str, data: bytes) -> list[tuple[str, bytes]]:
    """Return the frames in the data of one event that is no JSON, as names and data; none if it is not several.

    A server or a proxy that leaves out the blank line between two events joins them: `{…}{…}`, also on lines of their
    own. A frame is a JSON object or array, or an end marker; what cannot be read is the last one. The event's name may
    be that of another frame, so a frame that names its type gets none.
    """
    text = data.decode("utf-8", "replace")
    found: list[tuple[str, bytes]] = []
    place = 0
    while place < len(text) and len(found) <= _MOST_FRAMES:
        between = _BETWEEN.match(text, place)
        start = place if between is None else between.end()
        value, end = json_at(text, start) if text.startswith(("{", "["), start) else (None, start)
        if end == start:
            end = start + len(DONE_MARK) if text.startswith(DONE_MARK.decode(), start) else len(text)
        if end > start:
            named = event != ERROR and type(value) is dict and not _TYPES.isdisjoint(value)
            found.append(("" if named else event, text[start:end].encode()))
        place = end
    return found if 1 < len(found) <= _MOST_FRAMES else []


_LINE = re.compile(r"[ \t\r,]*+((?i:error):[ \t]*+)?+")
"""The beginning of a line, or of what follows a JSON text, and whether it is an error in place of a field."""


def events_in(lines: bytes) -> list[tuple[str, bytes]]:
    """Return the events in lines that are no fields, as names and data: JSON objects, end markers and errors as text.

    Whatever else is in the lines is skipped. JSON may have several lines, and a line several JSON objects.
    """
    text = lines.decode("utf-8", "replace")
    found: list[tuple[str, bytes]] = []
    place, failures = 0, 0
    while place < len(text) and failures < _MOST_FAILURES:
        match = _LINE.match(text, place)
        start = place if match is None else match.end()
        name = ERROR if match is not None and match[1] else ""
        if text.startswith(("{", "["), start) and not text.startswith("[DONE]", start):
            value, end = json_at(text, start)
            if end > start:
                place = end
                if type(value) is dict or _is_list_of_objects(value):
                    found.append((name, text[start:end].encode()))
                continue
            failures += 1
            name = ""
            if text[start] == "[":
                place = start + 1  # an array that was cut: its first elements are whole
                continue
        line_end = text.find("\n", start)
        place = len(text) if line_end < 0 else line_end + 1
        if text.startswith("[DONE]", start):
            found.append((name, DONE_MARK))
        elif name and (line := text[start:place].strip()):
            found.append((name, line.encode()))
    return found


class BlockStream(JSONStream):
    """A stream whose blocks have an index, and begin and stop by events of their own.

    The end of a tool call is delivered when the next block begins or the answer ends: only then is it known whether the
    length limit cut it off.

    opened: the wire's index → the block that has it.
    latest: the index of the block that began last.
    stopped: calls whose stop event has come, but whose end is not delivered yet; None for none.
    """

    __slots__ = ("latest", "opened", "started", "stopped")

    def __init__(self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> None:
        super().__init__(provider, make_id, limits)
        self.opened: dict[int, object] = {}
        self.latest: int = -1
        self.started: bool = False
        self.stopped: list[CallInProgress] | None = None

    def response(self) -> Response:
        for block in self.opened.values():
            if isinstance(block, OwnInProgress):
                block.settle()
        return super().response()

    def begin(self) -> list[Event]:
        """Return the start event, if it was not returned yet: a server may omit the stream's first event."""
        if self.started:
            return []
        self.started = True
        return [self.answer.start(self.answer.model, self.answer.id)]

    def stop(self, index: int) -> Sequence[Event]:
        """End a block. Returns the events for arguments that were not streamed.

        A provider's own block is joined when the answer is read, because joining it at each stop would be quadratic.
        """
        call = self.opened.get(index)
        if not isinstance(call, CallInProgress) or call.stopped:
            return ()
        call.stopped = True
        if self.stopped is None:
            self.stopped = []
        self.stopped.append(call)
        return call.settle()

    def finish_stopped(self, *, last_is_cut: bool = False) -> list[Event]:
        """Return the end events of the calls that have stopped. last_is_cut: the answer's last block is incomplete."""
        events: list[Event] = []
        stopped, self.stopped = self.stopped, None
        for block in stopped or ():
            events.extend(block.call.finish(complete=not (last_is_cut and self.is_last(block))))
        return events

    def is_last(self, block: CallInProgress) -> bool:
        """Return whether a call is the last block of the stream so far. Text that came inside the call is behind it."""
        last = self.answer.blocks[-1]
        return last is block.call or last is block.beside

    def release(self, index: int, events: list[Event]) -> None:
        """Release an index that the wire uses again. The block that had it has ended; an unfinished call is cut off."""
        block = self.opened.pop(index, None)
        if isinstance(block, CallInProgress) and not block.stopped:
            events.extend(block.call.finish(complete=False))
        elif isinstance(block, OwnInProgress):
            block.settle()


def index_of(payload: JSONObject, otherwise: int) -> int:
    """Return the index in an event, or `otherwise` if it has none. Raises `MalformedJSONError`."""
    index = payload.get("index")
    if index is None:
        return otherwise
    if type(index) is not int:
        raise MalformedJSONError("an index that is no number")
    return index


def object_in(payload: JSONObject, member: str) -> JSONObject:
    """Return the member of an event, which must be an object. Raises `MalformedJSONError`."""
    value = payload.get(member)
    if type(value) is not dict:
        raise MalformedJSONError(f"no {member} object")
    return value
