"""The stream machine for chat: converts server-sent events to the library's eight events.

A delta that differs from the one before only in its text, its log probabilities or its token counts does not come here
(`delta_template.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import ClassVar

from ...catalog.dialect import MakeId, TakeValue
from ...catalog.json_stream import PINGS, JSONStream
from ...catalog.provider import Provider
from ...json.json_values import JSON, JSONObject, MalformedJSONError, integer, items, mapping, objects, string
from ...model.events import Event, Start, ToolCallStart
from ...model.provider_error import ProviderError, malformed
from ...model.response import Response
from ...wire.answer_limits import ANSWER_LIMITS, AnswerLimits
from ...wire.delta_template import Path, VolatileMembers
from ...wire.error_bodies import ERROR, error_from_object, reported_error
from .answer import ChatAnswer
from .values import LOGPROBS, PADDING, TOKEN_IDS, USAGE

STREAM_STATUS = 200

PADDING_MEMBERS = ("obfuscation", "p")
"""Members of a chunk that hide the length of its text, as OpenAI and Mistral send them."""

QUIET_CHUNK = frozenset(
    {
        "id",
        "object",
        "created",
        "model",
        "choices",
        "system_fingerprint",
        "service_tier",
        "provider",
        USAGE,
        *PADDING_MEMBERS,
    }
)
"""Members that a chunk may have to become a template: constants, padding, volatile values. All others must be empty."""

QUIET_CHOICE = frozenset({"index", "delta", "text", LOGPROBS, TOKEN_IDS})
"""Members that a choice may have to become a template. All others must be empty."""

DELTA: Path = ("choices", 0, "delta")

REPEATED = frozenset({"content", "reasoning_content", "reasoning", "reasoning_text"})
"""Members of a delta with text."""


CALLS = "tool_calls"
QUIET_DELTA = REPEATED | PADDING | {CALLS}
"""Members that a delta may have to become a template. All others must be empty."""

QUIET_CALL = frozenset({"index", "id", "type", "function"})
QUIET_FUNCTION = frozenset({"arguments"})
"""Members that a fragment of a tool call and its function may have to become a template. All others must be empty. A
name may begin another call, whatever its arguments are.
"""

ARGUMENTS: Path = (*DELTA, CALLS, 0, "function", "arguments")
"""The path to the arguments of a delta with one fragment of a tool call."""


class ChatStream(JSONStream):
    """Converts one chat stream."""

    __slots__ = ("_content",)

    volatile: ClassVar[VolatileMembers] = VolatileMembers(
        padding=PADDING_MEMBERS, values=((USAGE,), ("choices", 0, LOGPROBS), ("choices", 0, TOKEN_IDS))
    )

    def __init__(self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> None:
        super().__init__(provider, make_id, limits)
        self._content = ChatAnswer(self.answer, provider.maker, make_id)

    def take_mark(self) -> Sequence[Event]:
        foreign = None if self._content.finished else self.foreign()
        if foreign is not None:
            return self.fail(foreign)
        self.ended = True
        return self._content.done()

    def take_end(self) -> Sequence[Event]:
        whole = self._content.finished and not self.provider.profile.quirks.strict_end
        return self.take_mark() if whole else self.truncated("truncated stream")

    def error_of(self, reported: JSON, data: bytes) -> ProviderError:
        return error_from_object(reported, http_status=STREAM_STATUS, body=data)

    def fail(self, error: ProviderError) -> Sequence[Event]:
        """End the stream with an error. The answer keeps what came so far."""
        if self.ended:
            return super().fail(error)
        events = self._content.release()
        self._content.settle()
        return [*events, *super().fail(error)]

    def response(self) -> Response:
        """Return the answer so far."""
        if not self.ended:
            self._content.settle()
        return super().response()

    def take_object(self, event: str, value: JSONObject, data: bytes) -> Sequence[Event]:
        error = error_in(event, value)
        if error is None and "choices" not in value and (not value or event in PINGS or string(value, "type") in PINGS):
            return ()
        self.answer.count.check_choices(len(items(value, "choices")))  # before any choice is read
        if error is not None:
            return self._failed(error, value, data)
        events: list[Event] = []
        self._content.keeps_logprobs = LOGPROBS not in self.unasked
        self._content.choices, self._content.asked = self.choices, self.asked
        if self.asked:
            self.answer.its_tokens().ids_only = LOGPROBS in self.unasked and LOGPROBS not in self.asked
        try:
            self._content.take(value, events, data)
        except MalformedJSONError as shape:
            return [*events, *self.fail(malformed(f"malformed event: {shape}", data))]
        except ProviderError as failure:
            return [*events, *self.fail(failure.with_traceback(None))]
        if len(events) == 1 or (len(events) == 2 and type(events[0]) in (Start, ToolCallStart)):
            path = self._repeated_path(value)
            if path is not None:
                self.expect_more(event, data, value, path, events[-1], self._reader)
        return events

    def _failed(self, error: JSON, chunk: JSONObject, data: bytes) -> Sequence[Event]:
        """End the stream with the error that a chunk reports. Returns the chunk's own events before it."""
        events: list[Event] = []
        if chunk.get("choices"):
            with contextlib.suppress(MalformedJSONError, ProviderError):  # the reported error says more
                self._content.take(chunk, events, data)
        else:
            self._content.take_usage(chunk)
        return [*events, *self.fail(self.error_of(error, data))]

    def _reader(self, member: str) -> TakeValue:
        return self._content.values().reader(member)

    def _repeated_path(self, chunk: JSONObject) -> Path | None:
        """Return the path to a chunk's text, or None unless it is one text of the answer's choice and nothing else.

        The text is one of the answer, of the thinking, or of the arguments of a tool call.
        """
        choices = objects(chunk, "choices")
        if len(choices) != 1 or (integer(choices[0], "index") or 0) != self._content.choice_index:
            return None
        delta = mapping(choices[0], "delta")
        for members, quiet in ((chunk, QUIET_CHUNK), (choices[0], QUIET_CHOICE), (delta, QUIET_DELTA)):
            if any(map(members.get, members.keys() - quiet)):
                return None
        texts = [name for name in delta if name in REPEATED and delta[name]]
        calls = objects(delta, CALLS)
        if calls:
            return ARGUMENTS if not texts and _is_fragment(calls) else None
        return (*DELTA, texts[0]) if len(texts) == 1 else None


def _is_fragment(calls: Sequence[JSONObject]) -> bool:
    """Return whether the tool calls of a delta are one fragment of the arguments of a function, and nothing else."""
    function = mapping(calls[0], "function")
    return (
        len(calls) == 1
        and not any(map(calls[0].get, calls[0].keys() - QUIET_CALL))
        and not any(map(function.get, function.keys() - QUIET_FUNCTION))
        and calls[0].get("type") in (None, "", "function")
    )


PLACES_OF_ERRORS = ("choices", "x_groq")
"""Members of a chunk in which an error may be, beside the chunk itself."""


def error_in(event: str, chunk: JSONObject) -> JSON:
    """Return the error that a chunk reports, in any place and form, or None if it reports none."""
    error = reported_error(event, chunk)
    if error is not None or chunk.keys().isdisjoint(PLACES_OF_ERRORS):
        return error
    for place in (mapping(chunk, "x_groq"), *objects(chunk, "choices")):
        if place.get(ERROR):
            return reported_error("", {ERROR: place[ERROR]})
    return None
