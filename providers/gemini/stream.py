"""The stream machine for Gemini: converts chunks (`GenerateContentResponse`) to the library's eight events.

Every chunk has the shape of a whole answer, so the unstreamed decoder (`response.py`) passes its one chunk through this
machine as well. There is no terminal event. The terminal marker is the end of the body after a `finishReason`; a
`finishReason` alone is not, because some servers send one with every chunk. So `end` returns `Done`.

Candidate 0 is the answer; other candidates go to `provider_data`. A chunk that differs from the one before only in its
text and usage does not come here (`delta_template.py`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence, Set
from typing import ClassVar

from ..catalog.dialect import MakeId, TakeValue
from ..catalog.json_stream import PINGS, JSONStream
from ..catalog.provider import Provider
from ..json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    exactly,
    exactly_object,
    integer,
    items,
    mapping,
    objects,
    required_objects,
    shown,
    string,
    without_nulls,
)
from ..model.events import ErrorEvent, Event, Start
from ..model.messages import File, Image, ProviderBlock, ProviderState
from ..model.provider_error import ProviderError, malformed
from ..model.response import Response
from ..wire.accumulate import CUT_SHORT, TextInProgress, ThinkingInProgress
from ..wire.answer_limits import ANSWER_LIMITS, AnswerLimits
from ..wire.delta_template import Path, VolatileMembers
from ..wire.error_bodies import ERROR, reported_error
from .calls import FunctionCalls
from .errors import blocked, read_error
from .extras import USAGE, Extras
from .finish import finish_reason, raw_finish_reason
from .json_names import ANNOTATIONS, TEXT_ANNOTATIONS, chunk_as_on_the_wire

PLAIN_CHUNK = frozenset({"candidates", "usageMetadata", "modelVersion", "responseId", "createTime"})
PLAIN_CANDIDATE = frozenset({"content", "index"})
"""Members of a chunk and of its candidate that bring nothing new except a text and the usage."""

PLAIN_PARTS = (frozenset({"text"}), frozenset({"text", "thought"}))
"""Members of a part that brings nothing new except a text."""

READ_IN_CHUNK = frozenset({"candidates", "usageMetadata", "modelVersion", "responseId", "error"})
READ_IN_CANDIDATE = frozenset({"content", "index", "finishReason"})
"""Members that are read into the answer. All others go to `provider_data`."""

CALL = b'all"'
"""Part of the bytes of every chunk with a call (`functionCall`, `function_call`), whose numbers must be exact."""

TEXT: Path = ("candidates", 0, "content", "parts", 0, "text")
"""The path to the text of a chunk with a single part."""


def has_only_text(chunk: JSONObject) -> bool:
    """Return whether a chunk has one text or thought of candidate 0, and nothing else except the usage."""
    candidates = objects(chunk, "candidates")
    if len(candidates) != 1 or candidates[0].get("index", 0) != 0:
        return False
    parts = objects(mapping(candidates[0], "content"), "parts")
    return (
        chunk.keys() <= PLAIN_CHUNK
        and candidates[0].keys() <= PLAIN_CANDIDATE
        and len(parts) == 1
        and parts[0].keys() in PLAIN_PARTS
    )


class GeminiStream(JSONStream):
    """Converts one stream. `take` reads a chunk; `PARTS` maps each kind of part to its method."""

    __slots__ = ("_calls", "_extras", "_finish", "_maker", "_started", "_text", "_thinking")

    volatile: ClassVar[VolatileMembers] = VolatileMembers(values=((USAGE,),))

    def __init__(self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> None:
        super().__init__(provider, make_id, limits)
        self._started = False
        self._text: TextInProgress | None = None  # the block that the next text part continues
        self._thinking: ThinkingInProgress | None = None  # likewise for thought parts; at most one of both is open
        self._finish: str | None = None
        self._maker = provider.maker
        self._calls: FunctionCalls | None = None  # from the first call on
        self._extras = Extras()

    # --- input ---

    def take_object(self, event: str, value: JSONObject, data: bytes) -> Sequence[Event]:
        if event == ERROR:
            return self.fail(read_error(value, data))
        events = self._chunk(exactly_object(value, data) if data.find(CALL) >= 0 else value, data)
        one = len(events) == 1 or (len(events) == 2 and type(events[0]) is Start)
        if one and has_only_text(value):
            self.expect_more(event, data, value, TEXT, events[-1], self._reader)
        return events

    def take_other(self, value: JSON, data: bytes) -> Sequence[Event]:
        """Take an array of chunks, as the server sends them without `alt=sse`, or any other value."""
        return self.take(exactly(value, data), data)

    def take_mark(self) -> Sequence[Event]:
        return ()  # gateways add it; the end of the body decides

    def error_of(self, reported: JSON, data: bytes) -> ProviderError:
        return read_error(reported, data)

    def _reader(self, member: str) -> TakeValue:
        return self._extras.take_usage  # of the only volatile member

    def take(self, value: JSON, data: bytes) -> list[Event]:
        """Read one parsed chunk, or an array of chunks. `data`: the bytes that an error quotes."""
        if type(value) is dict:
            return self._chunk(value, data)
        events: list[Event] = []
        if type(value) is not list or not value:
            events.extend(self.fail(malformed(f"Gemini sent {shown(data)} where an object belongs", data)))
        for chunk in value if type(value) is list else ():
            if not self.ended:
                events.extend(self.take(chunk if type(chunk) is dict else None, data))
        return events

    def take_end(self) -> Sequence[Event]:
        if self._finish is None:
            what = "without a finishReason" if self._started else "with no event"
            return self.truncated(f"truncated stream: the body ended {what}")
        return self.finish()

    def finish(self) -> list[Event]:
        """End the answer. Returns the last events."""
        self.ended = True
        reason = finish_reason(self._finish)
        events: list[Event] = []
        if self._calls is not None:
            self._calls.close(events, complete=reason not in CUT_SHORT)
        self._settle()
        details = string(self.answer.provider_data, "finishMessage") or ""
        return [*events, *self.answer.done(reason, self._finish, details=details)]

    def response(self) -> Response:
        self._settle()
        return super().response()

    def _settle(self) -> None:
        """Add what was collected besides the content to the answer. May be called any number of times."""
        self.answer.raw_finish_reason = self._finish
        self._extras.settle(self.answer)

    # --- one chunk ---

    def _chunk(self, chunk: JSONObject, data: bytes) -> list[Event]:
        if b"_" in data:
            chunk = chunk_as_on_the_wire(chunk)
        if USAGE in chunk:
            self._extras.take_usage(chunk[USAGE])
        if (chunk.get(ERROR) or chunk.get("candidates") is None) and reported_error("", chunk) is not None:
            return list(self.fail(read_error(chunk, data)))
        refusal = blocked(chunk, data) if chunk.get("promptFeedback") is not None else None
        if refusal is not None:
            return list(self.fail(refusal))
        if "candidates" not in chunk and string(chunk, "type") in PINGS:
            return []
        events: list[Event] = []
        self._start(chunk, events)
        try:
            candidates = required_objects(chunk.get("candidates"), "candidates")
            self.answer.count.check_choices(len(candidates))
            for position, candidate in enumerate(candidates):
                index = integer(candidate, "index")
                self._candidate(candidate, position if index is None else index, events)
        except ProviderError as error:  # beyond a limit; the events before it are delivered
            return [*events, *self.fail(error.with_traceback(None))]
        except MalformedJSONError as error:
            return [*events, *self.fail(malformed(f"{error} in Gemini's answer: {shown(data)}", data))]
        for name, value in chunk.items():
            if name not in READ_IN_CHUNK:
                self._extras.note(name, value)
        return events

    def _start(self, chunk: JSONObject, events: list[Event]) -> None:
        """Add the start event for the first chunk. Model and id may come with a later one."""
        answer = self.answer
        if not self._started:
            self._started = True
            events.append(answer.start(string(chunk, "modelVersion"), string(chunk, "responseId")))
        elif answer.model is None or answer.id is None:
            answer.model = answer.model or string(chunk, "modelVersion")
            answer.id = answer.id or string(chunk, "responseId")

    def _candidate(self, candidate: JSONObject, index: int, events: list[Event]) -> None:
        """Read one candidate. Only candidate 0 has events. Raises `MalformedJSONError` if it cannot be read."""
        if index != 0:
            self.answer.count.check_parts(len(items(mapping(candidate, "content"), "parts")))
            self._extras.other_candidate(index, candidate, self.answer.count)
            return
        content = candidate.get("content") or {}
        if type(content) is not dict:
            raise MalformedJSONError("content is no object")
        parts = required_objects(content.get("parts"), "parts")
        self.answer.count.check_parts(len(parts))
        for part in parts:
            self._part(part, events)
        self._finish = raw_finish_reason(candidate.get("finishReason")) or self._finish
        for name, value in candidate.items():
            if name not in READ_IN_CANDIDATE:
                self._extras.note(name, value)

    # --- parts ---

    def _part(self, part: JSONObject, events: list[Event]) -> None:
        """Read one part. A part has one kind of content; serialisers may add the other kinds as null or empty."""
        part = without_nulls(part)
        kinds = part.keys() - ANNOTATIONS
        if len(kinds) > 1:
            # If all are empty, only the text is ignored: an empty call ends the one whose arguments are streamed.
            kinds = {name for name in kinds if part[name] not in EMPTY} or kinds - {"text"}
        known = [name for name in PARTS if name in kinds]
        if not kinds:
            self.text_part(part, events)  # it may have a signature
        elif not known:
            self.provider_part(part, events)
        elif len(kinds) == 1:
            PARTS[known[0]](self, part, events)
        else:
            self._several(part, known, kinds.difference(known), events)

    def _several(self, part: JSONObject, known: list[str], others: Set[str], events: list[Event]) -> None:
        """Read a part with several kinds of content, which the protocol does not have.

        The annotations belong to the last content, so that a signature stays with the call.
        """
        contents: list[JSONObject] = [{kind: part[kind]} for kind in known]
        if known[0] == "text" and "thought" in part:
            contents[0]["thought"] = part["thought"]
        if others:
            contents.append({name: part[name] for name in part if name in others})
        contents[-1].update({name: part[name] for name in part if name in ANNOTATIONS})
        for content in contents:
            PARTS.get(next(iter(content)), GeminiStream.provider_part)(self, content, events)

    def text_part(self, part: JSONObject, events: list[Event]) -> None:
        """Read text, or thinking if the part is marked so. An empty text may have a signature."""
        text = string(part, "text")
        if text is None and part.get("text") is not None:
            raise MalformedJSONError("a text is no string")
        signature = string(part, "thoughtSignature")
        if part.get("thought") is True:
            self.thought_part(text, signature, events)
            return
        block = self._text
        if block is None:
            if not text and not signature:
                return
            block = self._text = self.answer.text()
            self._thinking = None
        if text:
            events.append(block.delta(text))
        kept = {name: part[name] for name in TEXT_ANNOTATIONS if part.get(name)}
        if signature:
            kept["thoughtSignature"] = signature
        if kept:
            earlier = {} if block.state is None else block.state.data
            block.state = self._state({**earlier, **kept})
        if signature:
            self._text = None  # a signed part must not be merged with the next one

    def thought_part(self, text: str | None, signature: str | None, events: list[Event]) -> None:
        """Read thinking, which may be empty and have a signature."""
        block = self._thinking
        if block is None:
            if not text and not signature:
                return
            block = self._thinking = self.answer.thinking()
            block.state = self._state({"thought": True})
            self._text = None
        if text:
            events.append(block.delta(text))
        if signature:
            block.state = self._state({"thought": True, "thoughtSignature": signature})
            block.signature_pieces.append(signature)
            self._thinking = None

    def function_call_part(self, part: JSONObject, events: list[Event]) -> None:
        """Read a whole call, or the beginning, a continuation or the end of a call whose arguments are streamed."""
        if self._calls is None:
            self._calls = FunctionCalls(self.answer, self._maker, self.make_id)
        if self._calls.begins(part):
            self._text = self._thinking = None
        if not self._calls.read(part, events):
            self.provider_part(part, events)  # a call without a name cannot be executed, but is not dropped

    def inline_data_part(self, part: JSONObject, events: list[Event]) -> None:
        """Read an image or another file that the model made."""
        blob = mapping(part, "inlineData")
        media_type = string(blob, "mimeType")
        data = decoded_bytes(string(blob, "data") or "")
        if data is None or not media_type or part.get("thought") is True:
            # An image that is part of the thinking is not part of the answer.
            self.provider_part(part, events)
            return
        state = self._state_of(part)
        self._place(
            Image(data=data, media_type=media_type, state=state)
            if media_type.startswith("image/")
            else File(data=data, media_type=media_type, name=string(blob, "displayName"), state=state)
        )

    def file_data_part(self, part: JSONObject, events: list[Event]) -> None:
        """Read an image or another file that is given by URL."""
        file = mapping(part, "fileData")
        address = string(file, "fileUri")
        media_type = string(file, "mimeType")
        if not address:
            self.provider_part(part, events)
        elif (media_type or "").startswith("image/"):
            self._place(Image(url=address, media_type=media_type, state=self._state_of(part)))
        else:
            self._place(File(url=address, media_type=media_type, state=self._state_of(part)))

    def provider_part(self, part: JSONObject, events: list[Event]) -> None:
        """Keep a part that only Gemini understands: server-side code and tools, and unknown kinds of parts."""
        self._place(ProviderBlock(self._maker, part))

    def _place(self, block: Image | File | ProviderBlock) -> None:
        """Add a whole block. The next text or thought begins a new block."""
        self._text = self._thinking = None
        self.answer.place(block)

    def _state(self, members: JSONObject) -> ProviderState:
        """Return state with these members, for this provider."""
        return ProviderState(self._maker, members)

    def _state_of(self, part: JSONObject) -> ProviderState | None:
        """Return state with the annotations of a part with a file, or None if it has none."""
        kept = {name: part[name] for name in part if name in ANNOTATIONS and name != "thought" and part[name]}
        return self._state(kept) if kept else None


PARTS: dict[str, Callable[[GeminiStream, JSONObject, list[Event]], None]] = {
    "text": GeminiStream.text_part,
    "functionCall": GeminiStream.function_call_part,
    "inlineData": GeminiStream.inline_data_part,
    "fileData": GeminiStream.file_data_part,
}
"""Kind of part → its method. `executableCode`, `codeExecutionResult`, `toolCall` and `toolResponse` belong to calls
that the server makes itself. These and every unknown kind are kept as `ProviderBlock`s in their place.
"""


EMPTY: tuple[JSON, ...] = ("", {}, [])
"""Contents that are ignored if the part has another content."""


def first_error(events: Sequence[Event]) -> ErrorEvent | None:
    """Return the error that ends these events, or None."""
    return events[-1] if events and isinstance(events[-1], ErrorEvent) else None


def decoded_bytes(text: str) -> bytes | None:
    """Return the bytes of base64 text in either alphabet, with or without padding; None for any other text."""
    try:
        return base64.b64decode(text.translate(_STANDARD_ALPHABET) + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


_STANDARD_ALPHABET = str.maketrans("-_", "+/")
"""Protobuf's JSON mapping lets a server write bytes in either base64 alphabet, with or without padding."""
