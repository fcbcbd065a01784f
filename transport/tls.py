"""TLS contexts, one per configuration, and the handshake on a non-blocking socket.

To create a context blocks all streams for 11 to 15 milliseconds, so the process keeps one context for each
configuration. Verification cannot be switched off. For a server with a private certificate, name the certificate or its
CA in `ca_file`; the connection is then verified.
"""

from __future__ import annotations

import functools
import os
import socket
import ssl
from dataclasses import dataclass, field
from typing import Final, NoReturn

from .backend import Backend
from .errors import Phase, TransportError
from .files import refuse_pipe
from .socket_errors import certificate_hint, ssl_reason
from .tls_socket import TLSSocket
from .trio_backend import TRIO

PROTOCOL: Final = "http/1.1"
"""The only protocol that is offered by ALPN (RFC 7301)."""

_PRIVATE_CA = "if the server's CA is private, name its certificate in TLSConfig(ca_file=…) or SSL_CERT_FILE"
_OTHER_NAME = "connect by a name that is in the certificate"
_CLOCK = "renew the server's certificate, or correct this machine's clock"
_NO_NAME = "the certificate names no host: renew it with a subjectAltName"
_STRICT = (
    "Python 3.13 and newer enforce this rule of RFC 5280: renew the certificate that breaks it, the server's or its"
    " CA's, or pass TLSConfig(lenient=True)"
)

VERIFY_HINTS: Final[dict[int, str]] = {
    9: _CLOCK,  # not yet valid
    10: _CLOCK,  # expired
    18: _PRIVATE_CA,  # self-signed
    19: _PRIVATE_CA,  # self-signed in the chain
    20: _PRIVATE_CA,  # no local issuer
    21: _PRIVATE_CA,  # cannot verify the leaf
    62: _OTHER_NAME,  # host name
    64: _OTHER_NAME,  # IP address
    80: _STRICT,  # a path length without CA:TRUE
    81: _STRICT,  # a path length without key usage keyCertSign
    82: _STRICT,  # key usage keyCertSign without CA:TRUE
    83: _STRICT,  # empty issuer
    84: _STRICT,  # empty subject of a CA
    85: _STRICT,  # no authority key identifier
    86: _STRICT,  # no subject key identifier
    87: _NO_NAME,  # empty subjectAltName
    88: _STRICT,  # subjectAltName not critical though the subject is empty
    89: _STRICT,  # basic constraints of a CA not critical
    90: _STRICT,  # authority key identifier critical
    91: _STRICT,  # subject key identifier critical
    92: _STRICT,  # no key usage in a CA's certificate
    93: _STRICT,  # extensions before X.509 version 3
}
"""X509_V_ERR number (openssl-verification-options, "diagnostics") → hint on how to correct the error."""

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
"""The reasons that different versions of OpenSSL give for bytes that are not a TLS record."""


class TLSConfigError(ValueError):
    """A TLS configuration that cannot be used. The message names the file and never contains a password."""


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """The certificate that the client presents to a server that requests one.

    certificate_file: path of a PEM file with the client's certificate, followed by its chain.
    key_file: path of a PEM file with the private key; None if the key is in `certificate_file`.
    password: the password of an encrypted key; not part of the repr.
    """

    certificate_file: str
    key_file: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSConfig:
    """The CAs to trust, and the client's own certificate.

    The default trusts the system's CAs; the variables SSL_CERT_FILE and SSL_CERT_DIR are honoured.

    ca_file: path of a PEM file with the CAs to trust instead of the system's. A server's own certificate is trusted,
        too, whoever issued it.
    ca_data: CAs to trust instead of the system's, as PEM text. If `ca_file` is given, too, both are trusted.
    client_certificate: presented to servers that request one.
    lenient: accept certificates that break formal rules of RFC 5280, such as a CA without a key usage. Python 3.13 and
        newer refuse them; older ones accept them. Signatures, dates and names are verified in both cases.
    """

    ca_file: str | None = None
    ca_data: str | None = field(default=None, repr=False)
    client_certificate: ClientCertificate | None = None
    lenient: bool = False


@functools.lru_cache(maxsize=64)
def make_context(config: TLSConfig) -> ssl.SSLContext:
    """Return the context of a configuration. Equal configurations share one context; its files are read once.

    The context verifies the certificate and the host name, the latter by subjectAltName only (RFC 9110, 4.3.4). It
    requires TLS 1.2 or newer and offers http/1.1 by ALPN. The first call blocks for some milliseconds.

    Raises `TLSConfigError`. Raises `OSError` if the process has no file descriptor left; a later call may succeed.
    """
    if "" in (config.ca_file, config.ca_data):
        raise TLSConfigError("ca_file and ca_data must not be empty: leave them out to trust the system's CAs")
    # OpenSSL silently skips files that it cannot open, and the cache would keep a context that trusts no CA. So check
    # first that a file can be opened.
    os.close(os.open(os.devnull, os.O_RDONLY))
    try:
        refuse_pipe(config.ca_file)
        context = ssl.create_default_context(cafile=config.ca_file, cadata=_ascii(config.ca_data))
    except (OSError, ValueError) as error:
        source = config.ca_file if config.ca_file is not None else "ca_data"
        raise TLSConfigError(f"cannot load the CA certificates of {source}: {_reason(error)}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the default since Python 3.13
    if config.lenient:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # set by default since Python 3.13
    context.set_alpn_protocols([PROTOCOL])
    if config.client_certificate is not None:
        _load_client_certificate(context, config.client_certificate)
    return context


def _ascii(pem: str | None) -> str | None:
    """Return PEM text without the characters that OpenSSL's binding refuses. Only comments between certificates have
    them, as in the bundles of Mozilla's CAs."""
    return None if pem is None else pem.encode("ascii", "replace").decode("ascii")


async def handshake(
    sock: socket.socket,
    context: ssl.SSLContext,
    server_hostname: str,
    *,
    origin: str = "",
    via: str = "",
    backend: Backend = TRIO,
) -> TLSSocket:
    """Perform the TLS handshake on a connected non-blocking socket. Returns the TLS socket, which owns `sock`.

    server_hostname: the name that the certificate must contain. A name is sent as SNI, without a final dot; an address
        is not sent.
    origin: named in error messages.
    via: the proxy, if `sock` is a tunnel. A lost connection then counts as an error of phase PROXY.

    Raises `TransportError`. After an error or a cancellation the socket is closed. There is no timeout: the caller
    cancels.
    """
    origin = origin or server_hostname
    try:
        secured = TLSSocket(sock, context, server_hostname.removesuffix("."))
        await _run_handshake(secured, backend)
        _check_protocol(secured, origin)
    except BaseException as error:
        sock.close()
        if isinstance(error, (OSError, ValueError)):
            _raise_transport_error(error, origin, via)
        raise
    return secured


async def _run_handshake(secured: TLSSocket, backend: Backend) -> None:
    """Perform the steps of a handshake.

    A step computes for up to a millisecond. All handshakes share one lock, so that the event loop runs at most one
    step per iteration: running streams are delayed by one step, not by a thousand.
    """
    lock = backend.handshake_lock()
    while True:
        async with lock:
            try:
                secured.do_handshake()
                return
            except ssl.SSLWantReadError:
                wait = backend.wait_readable
            except ssl.SSLWantWriteError:
                wait = backend.wait_writable
            await backend.checkpoint()
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
        text, no_tls = _reason(error), ssl_reason(error) in NOT_TLS_REASONS
        hint = "plain HTTP on this port? then write http://" if no_tls else certificate_hint(error)
        if hint:
            text += f" ({hint})"
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
        # Without this function OpenSSL would prompt on the terminal, which blocks all streams.
        if certificate.password is None:
            raise TLSConfigError(f"the key of client certificate {certificate.certificate_file} needs a password")
        return certificate.password

    try:
        refuse_pipe(certificate.certificate_file)
        refuse_pipe(certificate.key_file)
        context.load_cert_chain(certificate.certificate_file, certificate.key_file, password)
    except TLSConfigError:
        raise
    except (OSError, ValueError) as error:
        files = " and ".join(filter(None, (certificate.certificate_file, certificate.key_file)))
        raise TLSConfigError(f"cannot load the client certificate of {files}: {_reason(error)}") from None


def _reason(error: OSError | ValueError) -> str:
    if word := ssl_reason(error):
        return word.replace("_", " ").lower()
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
