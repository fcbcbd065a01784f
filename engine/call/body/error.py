"""Read the body of an error response, up to its limit, for the details of the error."""

from __future__ import annotations

from ....providers.errors import ProviderError
from ....transport.errors import TransportError
from .base import BOM, Body, BodyOwner, content_coding
from .error_answer import read_error


class ErrorBody(Body):
    """The body of an error response. The status is reported even if the body breaks or a timeout ends it."""

    __slots__ = ("_pieces",)

    reads_error = True

    def __init__(self, attempt: BodyOwner) -> None:
        super().__init__(attempt)
        self._pieces: list[bytes] = []

    def feed(self, data: bytes) -> None:
        self._pieces.append(data)
        self.count(len(data))
        if self.received >= self._attempt.prepared.limits.max_error_bytes:
            self._attempt.close()
            self.end()

    def end(self) -> None:
        attempt, prepared = self._attempt, self._attempt.prepared
        # A body in a coding that was not requested is not read: only the status and the headers are used.
        pieces = [] if content_coding(attempt.headers) else self._pieces
        body = prepared.secrets.hide_bytes(b"".join(pieces).removeprefix(BOM))[: prepared.limits.max_error_bytes]
        error = read_error(prepared, attempt.status, attempt.headers, body)
        if error.request_id is None:
            error.request_id = attempt.request_id
        attempt.failed(error)

    def fail(self, error: TransportError) -> None:
        self.end()

    def expire(self, error: ProviderError) -> None:
        self._attempt.close()
        self.end()
