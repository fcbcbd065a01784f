"""The chat stream: server-sent events in, the eight events out.

Knows how a chat stream ends and which errors it may hold. Must not know what chunks mean (`answer` does).

The plain content delta is the hot path and is read in `feed` itself: a chunk with the same members as the one
before it, one choice, and a delta that holds nothing but text. Anything else takes the long way, which also learns
the members to compare with.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dialect import MakeId, StreamMachine
from ...errors import ProviderError, malformed, truncated
from ...events import Event, TextDelta
from ...json_values import JSON, JSONObject, MalformedJSONError, integer, loads, mapping, objects, strict_loads
from ...provider import Provider
from ...response import Response
from ..errors import error_from_object
from .answer import ChatAnswer

DONE = b"[DONE]"
ERROR = "error"
STREAM_STATUS = 200

QUIET_CHUNK = frozenset(
    {"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier", "provider",
     "obfuscation", "p", "stream_options"}
)  # fmt: skip
"""Members of a chunk that need no second look while all chunks have the same: constants, padding, and those whose
value the hot path checks."""

QUIET_CHOICE = frozenset({"index", "delta", "finish_reason", "native_finish_reason", "logprobs", "text"})
"""The same for a choice."""


class ChatStream(StreamMachine):
    """One chat stream."""

    __slots__ = ("_choice_index", "_choice_members", "_chunk_members", "_content")

    def __init__(self, provider: Provider, make_id: MakeId) -> None:
        super().__init__(provider, make_id)
        self._content = ChatAnswer(self.answer, provider.profile.name, make_id)
        self._chunk_members: tuple[str, ...] | None = None
        self._choice_members: tuple[str, ...] | None = None
        self._choice_index: JSON = None

    def feed(self, event: str, data: bytes) -> Sequence[Event]:
        """Take one server-sent event."""
        if self.ended:
            return ()
        try:
            chunk = strict_loads(data)
        except ValueError:
            return self._take_leniently(event, data)
        if type(chunk) is dict and tuple(chunk) == self._chunk_members and event != ERROR and not chunk.get("usage"):
            choices = chunk["choices"]
            choice = choices[0] if type(choices) is list and len(choices) == 1 else None
            if (
                type(choice) is dict
                and tuple(choice) == self._choice_members
                and choice.get("index") == self._choice_index
                and not choice["finish_reason"]
                and not choice.get("logprobs")
            ):
                delta = choice["delta"]
                if type(delta) is dict:
                    text, block = delta.get("content"), self._content.text
                    if text and type(text) is str and block is not None and (len(delta) == 1 or _only_text(delta)):
                        block.pieces.append(text)
                        return (TextDelta(block.index, text),)
                    return self._take_delta(delta, data)
        return self._take(event, chunk, data)

    def end(self, stray: bytes = b"") -> Sequence[Event]:
        """The body has ended."""
        if self.ended:
            return ()
        told = self._take_stray(stray) if stray.strip() else ()
        if self.ended:
            return told
        whole = self._content.finish is not None and not self.provider.profile.quirks.strict_end
        return [*told, *(self._finish() if whole else self.fail(truncated()))]

    def fail(self, error: ProviderError) -> Sequence[Event]:
        """End the stream with an error; what came so far stays in the answer."""
        if not self.ended:
            self._content.settle()
        return super().fail(error)

    def response(self) -> Response:
        """The answer so far."""
        if not self.ended:
            self._content.settle()
        return super().response()

    def _take_delta(self, delta: JSONObject, data: bytes) -> Sequence[Event]:
        try:
            return self._content.take_delta(delta)
        except MalformedJSONError as shape:
            return self.fail(malformed(f"malformed event: {shape}", data))

    def _take_leniently(self, event: str, data: bytes) -> Sequence[Event]:
        try:
            chunk = loads(data)
        except MalformedJSONError as error:
            return self._not_json(event, data, error)
        return self._take(event, chunk, data)

    def _take(self, event: str, chunk: JSON, data: bytes) -> Sequence[Event]:
        """The long way of a chunk."""
        if type(chunk) is not dict:
            return self.fail(malformed("malformed event: a chat chunk must be a JSON object", data))
        error = error_in(event, chunk)
        if error is not None:
            self._content.take_usage(chunk)
            return self.fail(error_from_object(error, http_status=STREAM_STATUS, body=data))
        try:
            events = self._content.take(chunk)
        except MalformedJSONError as shape:
            return self.fail(malformed(f"malformed event: {shape}", data))
        self._learn_members(chunk)
        return events

    def _learn_members(self, chunk: JSONObject) -> None:
        choices = chunk.get("choices")
        if type(choices) is not list or len(choices) != 1 or not QUIET_CHUNK.issuperset(chunk):
            return
        choice = choices[0]
        if type(choice) is not dict or not {"delta", "finish_reason"} <= choice.keys() <= QUIET_CHOICE:
            return
        if (integer(choice, "index") or 0) == self._content.choice_index:
            self._chunk_members = tuple(chunk)
            self._choice_members = tuple(choice)
            self._choice_index = choice.get("index")

    def _finish(self) -> Sequence[Event]:
        self.ended = True
        return self._content.done()

    def _not_json(self, event: str, data: bytes, error: MalformedJSONError) -> Sequence[Event]:
        text = data.strip()
        if text.startswith(DONE):
            return self._finish()
        if not text or DONE.startswith(text):
            return ()
        if event == ERROR:
            return self.fail(error_from_object(text.decode("utf-8", "replace"), http_status=STREAM_STATUS, body=data))
        return self.fail(malformed(str(error), data))

    def _take_stray(self, stray: bytes) -> Sequence[Event]:
        """Lines that are no SSE fields: an error, or a whole body from a server that does not stream."""
        for text in (stray, *stray.split(b"\n")):
            text = text.strip().removeprefix(b"error:").strip()
            if text[:1] != b"{":
                continue
            try:
                value = loads(text)
            except MalformedJSONError:
                continue
            if type(value) is not dict:
                continue
            if not value.get("choices"):
                return self.fail(error_from_object(value, http_status=STREAM_STATUS, body=text))
            return self._take("", value, text)
        if stray.lstrip()[:6].lower() == b"error:":
            words = stray.strip()[6:].decode("utf-8", "replace")
            return self.fail(error_from_object(words, http_status=STREAM_STATUS, body=stray))
        return ()


def _only_text(delta: JSONObject) -> bool:
    """Whether a delta says nothing beside its text (and the role, which some servers repeat)."""
    for name, value in delta.items():  # noqa: SIM110 (hot: a generator costs more than the loop)
        if value and name != "content" and name != "role":
            return False
    return True


def error_in(event: str, chunk: JSONObject) -> JSON:
    """The error that a chunk reports, in whichever place; None where it reports none."""
    error = chunk.get("error")
    if _says_something(error):
        # What stands beside the error may say more about it (`{"code": "…", "error": "text"}`).
        return error if type(error) is dict else chunk
    if ERROR in (event, chunk.get("object"), chunk.get("type")):
        return chunk
    error = mapping(chunk, "x_groq").get("error")
    if _says_something(error):
        return error
    for choice in objects(chunk, "choices"):
        error = choice.get("error")
        if _says_something(error):
            return error
    return chunk if "choices" not in chunk and chunk.get("detail") else None


def _says_something(error: JSON) -> bool:
    return any(error.values()) if type(error) is dict else bool(error)
