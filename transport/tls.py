"""TLS: one context per configuration, and the handshake on a non-blocking socket.

Knows certificates, names and OpenSSL's ways to say no. Must not know HTTP, nor who is behind a certificate.

A context takes 11 to 15 milliseconds to make, in which no stream moves, so each configuration has one for the
life of the process. Verification cannot be switched off: whoever runs a server with its own certificate names
that certificate (or its CA) in `ca_file`, and is then safer than without.
"""

from __future__ import annotations

import functools
import os
import socket
import ssl
from dataclasses import dataclass, field
from typing import Final, NoReturn

import trio

from .errors import Phase, TransportError
from .tls_socket import TLSSocket

PROTOCOL: Final = "http/1.1"
"""The one protocol offered (ALPN, RFC 7301)."""

_PRIVATE_CA = "if the server's CA is private, name its certificate in TLSConfig(ca_file=…) or SSL_CERT_FILE"
_OTHER_NAME = "connect by a name that is in the certificate"
_CLOCK = "renew the server's certificate, or correct this machine's clock"

VERIFY_HINTS: Final[dict[int, str]] = {
    9: _CLOCK,  # not yet valid
    10: _CLOCK,  # expired
    18: _PRIVATE_CA,  # self-signed
    19: _PRIVATE_CA,  # self-signed in the chain
    20: _PRIVATE_CA,  # no local issuer
    21: _PRIVATE_CA,  # cannot verify the leaf
    62: _OTHER_NAME,  # host name
    64: _OTHER_NAME,  # IP address
}
"""What to do about a verification error, by X509_V_ERR number (openssl-verification-options, "diagnostics")."""

NOT_TLS_REASONS: Final = frozenset(
    {
        "BAD_RECORD_TYPE",
        "HTTP_REQUEST",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
        "UNKNOWN_PROTOCOL",
        "UNSUPPORTED_PROTOCOL",
        "WRONG_VERSION_NUMBER",
    }
)
"""OpenSSL's reasons, over its versions, for bytes that are no TLS record."""


class TLSConfigError(ValueError):
    """A TLS configuration that cannot be used. The message names the file and never a password."""


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """What this side shows to a server that asks for a certificate.

    certificate_file: PEM, the leaf first, then the chain. key_file: PEM; None where the key is in the first file.
    password: of the key, where it is encrypted; shown in no repr.
    """

    certificate_file: str
    key_file: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSConfig:
    """Whom to trust, and who we are. The default trusts what the system does (SSL_CERT_FILE and SSL_CERT_DIR
    included).

    ca_file: a PEM file with the CAs to trust instead of the system's. ca_data: the same as PEM text; with both
    given, both are trusted. client_certificate: for servers that ask for one.
    """

    ca_file: str | None = None
    ca_data: str | None = field(default=None, repr=False)
    client_certificate: ClientCertificate | None = None


@functools.lru_cache(maxsize=64)
def make_context(config: TLSConfig) -> ssl.SSLContext:
    """The context of a configuration, the same one each time: files are read once. Blocks for some milliseconds.

    Certificate and host name are verified, by subjectAltName only (RFC 9110, 4.3.4); TLS 1.2 or newer; ALPN
    http/1.1. Raises `TLSConfigError`; and `OSError`, which may pass, where the process has no file descriptor left.
    """
    # OpenSSL passes over what it cannot open without a word, and a context that trusts nobody would be kept for good.
    os.close(os.open(os.devnull, os.O_RDONLY))
    try:
        context = ssl.create_default_context(cafile=config.ca_file, cadata=config.ca_data)
    except (OSError, ValueError) as error:
        source = config.ca_file if config.ca_file is not None else "ca_data"
        raise TLSConfigError(f"cannot load the CA certificates of {source}: {_reason(error)}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    context.set_alpn_protocols([PROTOCOL])
    if config.client_certificate is not None:
        _load_client_certificate(context, config.client_certificate)
    return context


async def handshake(
    sock: socket.socket, context: ssl.SSLContext, server_hostname: str, *, origin: str = "", via: str = ""
) -> TLSSocket:
    """Turn a connected non-blocking socket into a TLS one; the old one is used up, also by an error.

    server_hostname: whom the certificate must name; sent as SNI without a final dot, addresses are not sent.
    origin: for errors. via: the proxy, where the socket is a tunnel; to lose the connection is then its fault.
    Raises `TransportError`. On any error and on cancellation the socket is closed. No clock: the caller cancels.
    """
    origin = origin or server_hostname
    try:
        secured = TLSSocket(sock, context, server_hostname.removesuffix("."))
        await _drive(secured)
        _check_protocol(secured, origin)
    except BaseException as error:
        sock.close()
        if isinstance(error, (OSError, ValueError)):
            _raise_transport_error(error, origin, via)
        raise
    return secured


_TURNSTILE: trio.lowlevel.RunVar[trio.Lock] = trio.lowlevel.RunVar("handshake turnstile")


def _turnstile() -> trio.Lock:
    try:
        return _TURNSTILE.get()
    except LookupError:
        lock = trio.Lock()
        _TURNSTILE.set(lock)
        return lock


async def _drive(secured: TLSSocket) -> None:
    """Shake hands. A step of it is up to a millisecond of computing, so one is made per turn of the scheduler,
    whichever of a thousand handshakes it belongs to: the streams that are running wait for one, not for all."""
    turnstile = _turnstile()
    while True:
        async with turnstile:
            try:
                secured.do_handshake()
                return
            except ssl.SSLWantReadError:
                wait = trio.lowlevel.wait_readable
            except ssl.SSLWantWriteError:
                wait = trio.lowlevel.wait_writable
            await trio.lowlevel.checkpoint()
        await wait(secured.fileno())


def _check_protocol(secured: TLSSocket, origin: str) -> None:
    chosen = secured.selected_alpn_protocol()
    if chosen not in (None, PROTOCOL):
        raise TransportError(
            f"TLS with {origin}: the server chose {chosen!r}, which was not offered; only {PROTOCOL} is",
            phase=Phase.TLS,
            origin=origin,
            protocol=True,
            permanent=True,
        )


def _raise_transport_error(error: OSError | ValueError, origin: str, via: str) -> NoReturn:
    through = f" through proxy {via}" if via else ""
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = VERIFY_HINTS.get(error.verify_code)
        text = f"certificate verify failed: {error.verify_message}" + (f" ({hint})" if hint else "")
        raise TransportError(f"TLS with {origin}{through}: {text}", phase=Phase.TLS, origin=origin, permanent=True)
    if isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        text, no_tls = _reason(error), _openssl_reason(error) in NOT_TLS_REASONS
        if no_tls:
            text += " (plain HTTP on this port? then write http://)"
        raise TransportError(
            f"TLS with {origin}{through}: {text}", phase=Phase.TLS, origin=origin, protocol=True, permanent=no_tls
        ) from error
    if isinstance(error, OSError):
        what = "broke the tunnel" if via else "connection lost"
        raise TransportError(
            f"TLS with {origin}{through}: {what} during the handshake: {_reason(error)}",
            phase=Phase.PROXY if via else Phase.TLS,
            origin=origin,
        ) from error
    raise TransportError(
        f"TLS with {origin}{through}: the host name cannot be used: {error}",
        phase=Phase.TLS,
        origin=origin,
        permanent=True,
    ) from error


def _load_client_certificate(context: ssl.SSLContext, certificate: ClientCertificate) -> None:
    def password() -> str:
        # Without this function OpenSSL would ask on the terminal, and stop every stream until somebody answers.
        if certificate.password is None:
            raise TLSConfigError(f"the key of client certificate {certificate.certificate_file} needs a password")
        return certificate.password

    try:
        context.load_cert_chain(certificate.certificate_file, certificate.key_file, password)
    except TLSConfigError:
        raise
    except (OSError, ValueError) as error:
        files = " and ".join(filter(None, (certificate.certificate_file, certificate.key_file)))
        raise TLSConfigError(f"cannot load the client certificate of {files}: {_reason(error)}") from None


def _openssl_reason(error: OSError | ValueError) -> str:
    """OpenSSL's word for what went wrong; empty for an error that did not come from OpenSSL."""
    return getattr(error, "reason", None) or "" if isinstance(error, ssl.SSLError) else ""


def _reason(error: OSError | ValueError) -> str:
    if word := _openssl_reason(error):
        return word.replace("_", " ").lower()
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
