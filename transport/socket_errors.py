"""The `OSError`s of sockets that mean that the peer has ended the connection."""

from __future__ import annotations

import ssl

PEER_GONE = (ConnectionError, TimeoutError)
"""Exceptions of `send` after the peer has ended the connection. Its response may have arrived before."""


_REFUSED = "the server refused the client certificate: check TLSConfig(client_certificate=…)"

CERTIFICATE_HINTS: dict[str, str] = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the server requires a client certificate: pass"
    " TLSConfig(client_certificate=…)",
    "TLSV1_ALERT_UNKNOWN_CA": _REFUSED,
    "TLSV1_ALERT_ACCESS_DENIED": _REFUSED,
    "SSLV3_ALERT_BAD_CERTIFICATE": _REFUSED,
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": _REFUSED,
    "SSLV3_ALERT_CERTIFICATE_REVOKED": _REFUSED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": _REFUSED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _REFUSED,
}
"""OpenSSL's name for an alert about the client's certificate → hint.

In TLS 1.3 the client's handshake is complete before the server checks this certificate, so that `recv` raises it."""


def ssl_reason(error: Exception) -> str:
    """Return OpenSSL's name for the error; empty for an error that is not OpenSSL's."""
    return getattr(error, "reason", None) or "" if isinstance(error, ssl.SSLError) else ""


def certificate_hint(error: Exception) -> str:
    """Return the hint for an alert about the client's certificate; empty for any other error."""
    return CERTIFICATE_HINTS.get(ssl_reason(error), "")


def error_text(error: OSError) -> str:
    """Return the system's or OpenSSL's message for the error, with a hint; the exception's name if there is none."""
    reason = ssl_reason(error)
    if not reason:
        return error.strerror or type(error).__name__
    hint = certificate_hint(error)
    return "TLS: " + reason.replace("_", " ").lower() + (f" ({hint})" if hint else "")
