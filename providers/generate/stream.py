"""The stream machine of the three dialects: converts server-sent events to the library's eight events.

An unstreamed answer goes through the same machine, so a streamed answer and a whole one cannot differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..catalog.dialect import MakeId, TakeValue
from ..catalog.json_stream import JSONStream
from ..catalog.provider import Provider
from ..json.json_values import JSON, JSONObject, MalformedJSONError, integer, mapping, objects, shown
from ..model.events import Event, TextDelta
from ..model.provider_error import ProviderError, malformed
from ..model.response import Response
from ..wire.accumulate import answer_loads, concluded
from ..wire.answer_limits import ANSWER_LIMITS, AnswerLimits
from ..wire.delta_template import Path, VolatileMembers
from ..wire.error_bodies import error_from_object, reported_error
from .answer import GenerateAnswer
from .wires import META, SGLangWire

STREAM_STATUS = 200

CHOICE: Path = ("choices", 0)
QUIET_CHUNK = frozenset(
    {"id", "request_id", "object", "created", "model", "choices", "output_mode", "system_fingerprint"}
)
QUIET_CHOICE = frozenset({"index", "text", "token_ids", "logprobs"})
"""Members that a chunk and its choice may have to become a template. All others must be empty."""


class CompletionsStream(JSONStream):
    """Converts one stream of chunks with choices: of Completions, and of vLLM's generate endpoint."""

    __slots__ = ("_content",)

    volatile: ClassVar[VolatileMembers] = VolatileMembers(values=((*CHOICE, "logprobs"), (*CHOICE, "token_ids")))

    def __init__(self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> None:
        super().__init__(provider, make_id, limits)
        self._content = GenerateAnswer(self.answer)

    def chunk(self, value: JSON) -> JSONObject:
        """Return the data of an event, or a whole answer, as a chunk with choices. Raises `MalformedJSONError`."""
        if type(value) is not dict:
            raise MalformedJSONError("an answer must be an object")
        return value

    def take_object(self, event: str, value: JSONObject, data: bytes) -> Sequence[Event]:
        error = reported_error(event, value)
        if error is not None:
            return self.fail(self.error_of(error, data))
        events = self.take_value(value, data)
        choices = objects(value, "choices")
        if events and len(choices) == 1 and isinstance(events[-1], TextDelta) and not integer(choices[0], "index"):
            quiet = ((value, QUIET_CHUNK), (choices[0], QUIET_CHOICE))
            if not any(members[name] for members, names in quiet for name in members.keys() - names):
                path = (*CHOICE, "text") if "text" in choices[0] else ()
                if events[-1].text or not path:
                    self.expect_more(event, data, value, path, events[-1], self._reader)
        return events

    def _reader(self, member: str) -> TakeValue:
        return self._content.reader(member)

    def take_value(self, value: JSON, data: bytes) -> Sequence[Event]:
        """Take the data of an event that is no error. Returns its events."""
        content = self._content
        content.asked, content.unasked = self.asked, self.unasked
        events: list[Event] = []
        try:
            content.take(self.chunk(value), events)
        except MalformedJSONError as shape:
            return [*events, *self.fail(malformed(f"malformed event: {shape}", data))]
        except ProviderError as failure:
            return [*events, *self.fail(failure.with_traceback(None))]
        return events

    def take_mark(self) -> Sequence[Event]:
        self.ended = True
        return self._content.done()

    def take_end(self) -> Sequence[Event]:
        whole = self._content.finished and not self.provider.profile.quirks.strict_end
        return self.take_mark() if whole else self.truncated("truncated stream")

    def error_of(self, reported: JSON, data: bytes) -> ProviderError:
        return error_from_object(reported, http_status=STREAM_STATUS, body=data)


class SGLangStream(CompletionsStream):
    """Converts one stream of SGLang's generate endpoint: its events may repeat the whole answer."""

    __slots__ = ("_wire",)

    def __init__(self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> None:
        super().__init__(provider, make_id, limits)
        self._wire = SGLangWire()

    def chunk(self, value: JSON) -> JSONObject:
        self.answer.count.check_choices(len(value) if type(value) is list else 1)
        return self._wire.chunk(value)

    def take_other(self, value: JSON, data: bytes) -> Sequence[Event]:
        return self.take_value(value, data)


def is_answer(value: JSON) -> bool:
    """Return whether a body has the form of an answer of one of the three dialects."""
    first = value[0] if type(value) is list and value else value
    return type(first) is dict and ("choices" in first or bool(mapping(first, META)))


def decode_completions(
    body: bytes, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS
) -> Response:
    """Decode an answer of Completions, or of vLLM's generate endpoint. Raises `ProviderError`, also for an error in a
    response with status 200.
    """
    return _decode(body, CompletionsStream(provider, make_id, limits))


def decode_sglang(body: bytes, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> Response:
    """Decode an answer of SGLang's generate endpoint: an object, or a list of one for each choice."""
    return _decode(body, SGLangStream(provider, make_id, limits))


def _decode(body: bytes, machine: CompletionsStream) -> Response:
    try:
        value = answer_loads(body)
    except MalformedJSONError as error:
        raise malformed(f"malformed answer: {error}", body) from None
    reported = reported_error("", value)
    if reported is not None:
        raise error_from_object(reported, http_status=STREAM_STATUS, body=body)
    if not is_answer(value):
        raise malformed(f"malformed answer: {shown(body)} has neither choices nor tokens", body)
    events = machine.take_value(value, body)
    end = events[-1] if machine.ended else machine.take_mark()[-1]
    return concluded(machine.response(), end, body)
