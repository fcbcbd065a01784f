"""The ways in which a connection ends before its response is complete."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import Phase, TransportError
from .framing import BodyEnd
from .socket_errors import certificate_hint, error_text


@dataclass(frozen=True, slots=True)
class EarlyEnd:
    """An end before the response was complete.

    protocol: the server violated HTTP.
    eof: the peer closed it in order.
    permanent: another connection would end in the same way.
    """

    message: str
    protocol: bool = False
    eof: bool = False
    permanent: bool = False

    def error(self, origin: str, phase: Phase, *, unread: bool) -> TransportError:
        """Return the error for the exchange. `unread`: no byte of the request was written."""
        return TransportError(
            f"{self.message} [{origin}]",
            phase=phase,
            origin=origin,
            unread=unread,
            protocol=self.protocol,
            sent=True,
            permanent=self.permanent,
            eof=self.eof,
        )


NO_RESPONSE = EarlyEnd("server disconnected without sending a response", eof=True)
CUT_OFF = EarlyEnd("connection closed before the response's end", eof=True)


def cut_off(end: BodyEnd, remaining: int) -> EarlyEnd:
    """Return the end of a connection in a body that ends by the rule `end`, with `remaining` bytes announced."""
    if end is BodyEnd.LENGTH:
        return EarlyEnd(f"connection closed {remaining} bytes before the body's end", eof=True)
    return CUT_OFF


def broken(error: OSError) -> EarlyEnd:
    """Return the end that an exception of `recv` reports."""
    return EarlyEnd(
        f"connection broken: {error_text(error)}",
        permanent=bool(certificate_hint(error)),
    )


def malformed(message: str) -> EarlyEnd:
    """Return the end of a connection whose server has violated HTTP."""
    return EarlyEnd(message, protocol=True)
