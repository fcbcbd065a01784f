"""Read an unstreamed answer: collect its bytes, and decode them at the end."""

from __future__ import annotations

from functools import partial

from ....providers.errors import ProviderError
from ....providers.model.response import Response
from ....providers.wire.accumulate import events_of
from ..slices import STEP_EVENTS
from .base import BOM, Body, BodyOwner
from .error_answer import add_address


class AnswerBody(Body):
    """The body of an unstreamed answer; or of a page, whose beginning the error quotes."""

    __slots__ = ("_is_page", "_partial", "_pieces")

    def __init__(self, attempt: BodyOwner, *, is_page: bool = False) -> None:
        """Create the reader.

        is_page: the content type is not that of an answer; the body is then read as an answer only if it is JSON.
        """
        super().__init__(attempt)
        self._is_page = is_page
        self._pieces: list[bytes] = []
        self._partial: Response | None = None  # what came with an error

    def feed(self, data: bytes) -> None:
        if self._is_page and data.removeprefix(BOM).lstrip()[:1] in (b"{", b"["):
            self._is_page = False  # JSON, despite its content type
        self._pieces.append(data)
        is_due = self.count(len(data))
        if self._is_page:
            if self.received >= self._attempt.prepared.limits.max_error_bytes:
                self._attempt.close()
                self.end()
        elif is_due:
            self._may_grow()

    def end(self) -> None:
        attempt, prepared = self._attempt, self._attempt.prepared
        body = b"".join(self._pieces)
        self._pieces.clear()
        try:
            response = prepared.dialect.decode(body, prepared.provider, prepared.make_id, prepared.limits)
        except ProviderError as error:
            if error.request_id is None:
                error.request_id = attempt.request_id
            if not body or not attempt.headers.keys() & {"content-length", "transfer-encoding"}:
                error.message = f"{error.message} (the body ended with the connection, perhaps early)"
            if body.removeprefix(BOM).lstrip()[:1] == b"<":
                add_address(error, prepared)  # a page for people
            self._partial, error.partial = error.partial, None
            attempt.failed(error)
            return
        for name in prepared.unasked:
            response.provider_data.pop(name, None)
        if not prepared.stream:
            attempt.answered(response, None)
            return
        *events, done = events_of(response)
        if len(events) > STEP_EVENTS:
            attempt.deliver_in_steps(events, partial(attempt.answered, response, done))
            return
        attempt.receiver.deliver(events)
        attempt.answered(response, done)

    def partial_response(self) -> Response | None:
        return self._partial
