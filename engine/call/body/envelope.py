"""Decide from its bytes what the body of a successful response is, whatever its content type says.

Gateways send events as `application/json` or `text/html`, a whole answer as `text/event-stream`, with or without
`data:` before it, JSON lines, and blank lines or comments before any of them. So the first bytes choose the reader. The
content type chooses it only for a body without any, and for a text that is neither JSON nor an event.
"""

from __future__ import annotations

from ....transport.errors import TransportError
from .answer import AnswerBody
from .base import Body, BodyOwner, Form, content_of, form_of
from .fast_path import FastPath
from .stream import stream_body

EVENT_STREAM = "text/event-stream"
JSON_TYPES = ("application/json", "text/json")
NO_ANSWER_TYPES = ("text/html", "application/xhtml+xml", "image/", "audio/", "video/")


class Envelope(Body):
    """The beginning of a body, until its bytes show its form. The reader of that form then reads all of it."""

    __slots__ = ("_beginning",)

    def __init__(self, attempt: BodyOwner) -> None:
        super().__init__(attempt)
        self._beginning = b""

    def feed(self, data: bytes) -> FastPath | None:
        if self.count(len(data)) and not self._may_grow():
            return None
        content = content_of(self._beginning + data)
        form = form_of(content)
        if form is None:
            self._beginning = content if content[:1] != b":" else b":"  # a comment's text is not kept
            return None
        reader = self._reader(form)
        self._attempt.read_with(reader)
        return reader.feed(content)

    def end(self) -> None:
        self._unclear().end()

    def fail(self, error: TransportError) -> None:
        self._unclear().fail(error)

    def kept_bytes(self) -> int:
        return len(self._beginning)

    def _unclear(self) -> Body:
        """Return the reader of a body that ended before its form was clear. It has got the body."""
        reader = self._reader(Form.TEXT)
        self._attempt.read_with(reader)
        if self._beginning not in (b"", b":"):
            reader.feed(self._beginning)
        return reader

    def _reader(self, form: Form) -> Body:
        """Return the reader for a body of this form."""
        attempt = self._attempt
        media_type = attempt.headers.get("content-type", "").partition(";")[0].strip().lower()
        if form is Form.PAGE or (form is Form.TEXT and media_type.startswith(NO_ANSWER_TYPES)):
            return AnswerBody(attempt, is_page=True)
        is_stream = media_type == EVENT_STREAM or (attempt.prepared.stream and media_type not in JSON_TYPES)
        if form is Form.EVENTS or (form is Form.TEXT and is_stream):
            return stream_body(attempt)
        return AnswerBody(attempt)
