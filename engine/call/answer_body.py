"""The body of a successful response: what it is, as its first bytes show, and the reader of an unstreamed answer.

Gateways send events as `application/json` or `text/html`, a whole answer as `text/event-stream`, with or without
`data:` before it, JSON lines, and blank lines or comments before any of them. So the first bytes choose the reader. The
content type chooses it only for a body without any, and for a text that is neither JSON nor an event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from ...providers.json.json_values import leading_json
from ...providers.model.provider_error import ErrorCategory, ProviderError, truncated
from ...providers.model.response import Response
from ...providers.wire.accumulate import events_of
from ...providers.wire.answer_tokens import drop_unasked
from ...providers.wire.retry_hints import poll_after_ms
from ...transport.errors import TransportError
from ...transport.pieces import keep
from .body import STEP_EVENTS, Body, Form, content_of, form_of
from .error_body import add_address
from .fast_path import FastPath
from .stream_body import stream_body

EVENT_STREAM = "text/event-stream"
JSON_TYPES = ("application/json", "text/json")
NO_ANSWER_TYPES = ("text/html", "application/xhtml+xml", "image/", "audio/", "video/")


@dataclass(slots=True, eq=False, repr=False)
class AnswerBody(Body):
    """The body of an unstreamed answer; or of a page, whose beginning the error quotes.

    is_page: the body is no answer.
    """

    is_page: bool = False
    _pieces: list[bytes] = field(default_factory=lambda: [], init=False)
    _partial: Response | None = field(default=None, init=False)  # what came with an error

    def feed(self, data: bytes) -> None:
        keep(self._pieces, data)
        is_due = self.count(len(data))
        if self.is_page:
            if self.received >= self._attempt.prepared.shared.limits.max_error_bytes:
                self._attempt.close()
                self.end()
        elif is_due:
            self._may_grow()

    def end(self) -> None:
        attempt, prepared = self._attempt, self._attempt.prepared
        body = b"".join(self._pieces)
        self._pieces.clear()
        durable, is_lost = prepared.durable, False
        try:
            if durable is not None:
                ended = durable.has_ended(body, poll_after_ms(attempt.headers, prepared.shared.wall_clock()))
                if ended and durable.machine is not None:
                    self._read_as_events(body, b"")
                    return
                is_lost = durable.reads and not ended  # a gateway has answered in place of the server
            shared = prepared.shared
            response = shared.dialect.decode(body, shared.provider, shared.make_id, shared.limits)
        except ProviderError as error:
            parts = None if self.is_page else leading_json(body)
            if parts is not None:
                self._read_as_events(*parts)
                return
            if error.request_id is None:
                error.request_id = attempt.request_id
            if not body or not attempt.headers.keys() & {"content-length", "transfer-encoding"}:
                error.message = f"{error.message} (the body ended with the connection, perhaps early)"
            if body.startswith(b"<"):
                add_address(error, prepared)  # a page for people
            error.retryable = error.retryable or (is_lost and error.category is ErrorCategory.SERVER)
            self._partial, error.partial = error.partial, None
            attempt.failed(error)
            return
        if is_lost:
            attempt.failed(truncated("the body has no status of the answer"))
            return
        if prepared.keep_received:
            response.received = (body,)
        if prepared.unasked:
            drop_unasked(response, prepared.asked, prepared.unasked)
        if not prepared.stream:
            attempt.answered(response, None)
            return
        *events, done = events_of(response)
        if len(events) > STEP_EVENTS:
            attempt.deliver_in_steps(events, partial(attempt.answered, response, done))
            return
        attempt.receiver.deliver(events)
        attempt.answered(response, done)

    def _read_as_events(self, lines: bytes, rest: bytes) -> None:
        """Read a body that is more than one JSON text: the chunks of a stream, or an answer and an end marker.

        lines: the JSON texts with which it begins, which are no fields of events.
        rest: the body after them.
        """
        reader = stream_body(self._attempt)
        self._attempt.read_with(reader)
        reader.take_lines(lines)
        if rest:
            self._attempt.on_body(rest)
        self._attempt.on_end()

    def partial_response(self) -> Response | None:
        return self._partial


@dataclass(slots=True, eq=False, repr=False)
class Envelope(Body):
    """The beginning of a body, until its bytes show its form. The reader of that form then reads all of it."""

    _beginning: bytes = field(default=b"", init=False)

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
