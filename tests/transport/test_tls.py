"""TLS: the CAs that are trusted, the protocols that are offered, the error messages, and that no socket leaks."""

import datetime
import errno
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

import manystream as ms
from manystream.transport import tls
from manystream.transport.errors import Phase, TransportError
from manystream.transport.tls import NOT_TLS_REASONS, VERIFY_HINTS, TLSConfigError, handshake, make_context
from manystream.transport.tls_socket import TLSSocket
from tests.support.addresses import TLSPeer, closed_port, echoes, hang, reset, serving
from tests.transport.test_dial import facts

pytestmark = pytest.mark.usefixtures("no_leak")

NAME = "api.example.test"

ORIGIN = f"https://{NAME}:443"

SECRET = "canary-password"


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[socket.socket]:
    """Yield a connected non-blocking socket; close it at the end unless a TLS socket owns it."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    with socket.socket(fileno=stream.socket.detach()) as sock:
        sock.setblocking(False)
        yield sock


async def refused(peer: TLSPeer, context: ssl.SSLContext, name: str = NAME) -> TransportError:
    """Return the error of a handshake that must fail, after a check that no byte of a request was sent."""
    async with serving(peer.serve) as port, connected(port) as sock:
        with pytest.raises(TransportError) as caught:
            await handshake(sock, context, name, origin=ORIGIN)
        assert sock.fileno() == -1
    assert peer.received == b""
    assert caught.value.phase is Phase.TLS
    assert caught.value.origin == ORIGIN
    assert not caught.value.sent
    assert ORIGIN in str(caught.value)
    return caught.value


async def test_a_trusted_server_gets_its_name_and_http_1_1_only(ca: trustme.CA, trusting: ssl.SSLContext) -> None:
    peer = TLSPeer(ca.issue_cert(NAME))
    async with serving(peer.serve) as port, connected(port) as sock:
        with await handshake(sock, trusting, NAME) as secured:
            assert await echoes(secured)
            assert sock.gettimeout() == 0
    assert peer.names == [NAME]
    assert peer.chosen == ["http/1.1"]


async def test_a_final_dot_is_not_sent_as_part_of_the_name(ca: trustme.CA, trusting: ssl.SSLContext) -> None:
    peer = TLSPeer(ca.issue_cert(NAME))
    async with serving(peer.serve) as port, connected(port) as sock:
        (await handshake(sock, trusting, NAME + ".")).close()
    assert peer.names == [NAME]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_an_address_is_no_sni_but_is_verified(ca: trustme.CA, trusting: ssl.SSLContext, address: str) -> None:
    peer = TLSPeer(ca.issue_cert(address))
    async with serving(peer.serve) as port, connected(port) as sock:
        with await handshake(sock, trusting, address) as secured:
            assert await echoes(secured)
    assert peer.names == [None]


async def test_a_server_without_alpn_is_accepted(ca: trustme.CA, trusting: ssl.SSLContext) -> None:
    peer = TLSPeer(ca.issue_cert(NAME), protocols=[])
    async with serving(peer.serve) as port, connected(port) as sock:
        with await handshake(sock, trusting, NAME) as secured:
            assert await echoes(secured)
    assert peer.chosen == [None]


async def test_a_server_that_chooses_another_protocol_is_refused(
    ca: trustme.CA, trusting: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def h2(_: TLSSocket) -> str:
        return "h2"

    monkeypatch.setattr(TLSSocket, "selected_alpn_protocol", h2)
    error = await refused(TLSPeer(ca.issue_cert(NAME)), trusting)
    assert "the server chose 'h2'" in str(error)
    assert error.protocol
    assert error.permanent


async def test_an_unknown_ca_is_refused_with_a_hint(trusting: ssl.SSLContext) -> None:
    error = await refused(TLSPeer(trustme.CA().issue_cert(NAME)), trusting)
    assert re.search(r"certificate verify failed: .* \(if the server's CA is private, .*ca_file", str(error))
    assert error.permanent


async def test_the_system_s_cas_are_the_default(ca: trustme.CA) -> None:
    error = await refused(TLSPeer(ca.issue_cert(NAME)), make_context(ms.TLSConfig()))
    assert "certificate verify failed" in str(error)


@pytest.mark.parametrize(
    ("identity", "asked"),
    [
        ("other.example.test", NAME),
        ("*.example.test", "a.b.example.test"),
        ("*.example.test", "example.test"),
        (NAME, "127.0.0.1"),
        ("127.0.0.2", "127.0.0.1"),
    ],
)
async def test_a_certificate_for_another_name_is_refused(
    ca: trustme.CA, trusting: ssl.SSLContext, identity: str, asked: str
) -> None:
    error = await refused(TLSPeer(ca.issue_cert(identity)), trusting, asked)
    assert re.search("(Hostname|IP address) mismatch", str(error))
    assert "connect by a name that is in the certificate" in str(error)
    assert error.permanent


async def test_a_common_name_is_not_used_as_a_host_name(ca: trustme.CA, trusting: ssl.SSLContext) -> None:
    error = await refused(TLSPeer(ca.issue_cert(common_name=NAME)), trusting)
    # Python 3.13 verifies strictly: it refuses the certificate's empty list of names before it compares a name.
    assert re.search("Hostname mismatch|Empty Subject Alternative Name", str(error))


def strict(config: ms.TLSConfig) -> ssl.SSLContext:
    """Return a new context of this configuration with the flag that Python 3.13 and newer set by default."""
    context = make_context.__wrapped__(config)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


async def test_a_certificate_without_names_is_refused_with_a_hint(ca: trustme.CA) -> None:
    context = strict(ms.TLSConfig(ca_data=ca.cert_pem.bytes().decode()))
    error = await refused(TLSPeer(ca.issue_cert(common_name=NAME)), context)
    assert "the certificate names no host: renew it with a subjectAltName" in str(error)
    assert error.permanent


def certificate_of_an_old_authority() -> tuple[str, trustme.LeafCert]:
    """Return a CA's certificate without key usage, and a certificate for NAME that this CA has issued."""
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "an old authority")])
    own_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    key, own_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def builder(subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder(name, subject, public_key, x509.random_serial_number())
        return made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))

    authority = builder(name, key.public_key()).add_extension(x509.BasicConstraints(True, None), critical=False)
    names = x509.SubjectAlternativeName([x509.DNSName(NAME)])
    leaf = builder(own_name, own_key.public_key()).add_extension(names, critical=False)
    pem, own_pem = (each.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM) for each in (authority, leaf))
    own_key_pem = own_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem.decode(), trustme.LeafCert(own_key_pem, own_pem, [])


async def test_an_old_authority_is_refused_with_a_hint_unless_lenient() -> None:
    pem, certificate = certificate_of_an_old_authority()
    error = await refused(TLSPeer(certificate), strict(ms.TLSConfig(ca_data=pem)))
    assert re.search(r"verify failed: .* \(Python 3.13 .* RFC 5280: .*TLSConfig\(lenient=True\)\)", str(error))
    assert error.permanent
    peer = TLSPeer(certificate)
    async with serving(peer.serve) as port, connected(port) as sock:
        with await handshake(sock, make_context(ms.TLSConfig(ca_data=pem, lenient=True)), NAME) as secured:
            assert await echoes(secured)


@pytest.mark.parametrize("by_default", [ssl.VERIFY_X509_STRICT, ssl.VerifyFlags(0)], ids=["3.13", "3.12"])
def test_only_lenient_removes_python_s_rules(monkeypatch: pytest.MonkeyPatch, by_default: ssl.VerifyFlags) -> None:
    create = ssl.create_default_context

    def create_default_context(*, cafile: str | None, cadata: str | None) -> ssl.SSLContext:
        context = create(cafile=cafile, cadata=cadata)
        context.verify_flags = context.verify_flags & ~ssl.VERIFY_X509_STRICT | by_default
        return context

    monkeypatch.setattr(ssl, "create_default_context", create_default_context)
    assert make_context.__wrapped__(ms.TLSConfig()).verify_flags & ssl.VERIFY_X509_STRICT == by_default
    lenient = make_context.__wrapped__(ms.TLSConfig(lenient=True))
    assert not lenient.verify_flags & ssl.VERIFY_X509_STRICT
    assert lenient.verify_mode is ssl.CERT_REQUIRED
    assert lenient.check_hostname


async def test_lenient_accepts_no_other_name_and_no_unknown_ca(ca: trustme.CA) -> None:
    lenient = make_context(ms.TLSConfig(ca_data=ca.cert_pem.bytes().decode(), lenient=True))
    assert "mismatch" in str(await refused(TLSPeer(ca.issue_cert("other.example.test")), lenient))
    assert "unable to get local issuer" in str(await refused(TLSPeer(trustme.CA().issue_cert(NAME)), lenient))


async def test_the_server_s_own_certificate_can_be_trusted_alone(ca: trustme.CA) -> None:
    """Python 3.13 and newer trust it by default. Before, only a certificate that signed itself was trusted."""
    certificate = ca.issue_cert(NAME)
    trusted = make_context(ms.TLSConfig(ca_data=certificate.cert_chain_pems[0].bytes().decode()))
    peer = TLSPeer(certificate)
    async with serving(peer.serve) as port, connected(port) as sock:
        with await handshake(sock, trusted, NAME) as secured:
            assert await echoes(secured)
    assert "unable to get local issuer" in str(await refused(TLSPeer(ca.issue_cert(NAME)), trusted))


@pytest.mark.parametrize(("days", "word"), [(-2, "expired"), (+2, "not yet valid")])
async def test_an_expired_or_future_certificate_is_refused(
    ca: trustme.CA, trusting: ssl.SSLContext, days: int, word: str
) -> None:
    day = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    hour = datetime.timedelta(hours=1)
    error = await refused(TLSPeer(ca.issue_cert(NAME, not_before=day - hour, not_after=day + hour)), trusting)
    assert word in str(error)
    assert "this machine's clock" in str(error)
    assert error.permanent


async def test_plain_http_on_the_port_is_named(trusting: ssl.SSLContext) -> None:
    async def plain(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await hang(stream)

    async with serving(plain) as port, connected(port) as sock:
        with pytest.raises(TransportError, match=r"plain HTTP on this port\? then write http://") as caught:
            await handshake(sock, trusting, NAME, origin=ORIGIN)
    assert caught.value.protocol
    assert caught.value.permanent


async def test_an_alert_is_reported_in_words(ca: trustme.CA, trusting: ssl.SSLContext) -> None:
    async def alert(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"\x15\x03\x03\x00\x02\x02\x28")  # fatal, handshake_failure
        await hang(stream)

    async with serving(alert) as port, connected(port) as sock:
        with pytest.raises(TransportError, match="handshake failure") as caught:
            await handshake(sock, trusting, NAME)
    assert not caught.value.permanent


@pytest.mark.parametrize("with_reset", [False, True])
@pytest.mark.parametrize(("via", "phase"), [("", Phase.TLS), ("http://proxy.test:3128", Phase.PROXY)])
async def test_a_lost_handshake_is_not_a_certificate_error(
    trusting: ssl.SSLContext, with_reset: bool, via: str, phase: Phase
) -> None:
    async def leave(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        if with_reset:
            reset(stream)

    async with serving(leave) as port, connected(port) as sock:
        with pytest.raises(TransportError, match="during the handshake") as caught:
            await handshake(sock, trusting, NAME, origin=ORIGIN, via=via)
    assert caught.value.phase is phase
    assert not caught.value.permanent
    assert via in str(caught.value)


async def test_a_peer_that_left_before_the_handshake_is_a_tls_error(trusting: ssl.SSLContext) -> None:
    async def leave(stream: trio.SocketStream) -> None:
        reset(stream)

    async with serving(leave) as port, connected(port) as sock:
        await trio.lowlevel.wait_readable(sock.fileno())
        with pytest.raises(TransportError, match="during the handshake"):
            await handshake(sock, trusting, NAME)


async def test_an_unconnected_socket_is_an_error_and_is_closed(trusting: ssl.SSLContext) -> None:
    sock = socket.socket()
    sock.setblocking(False)
    assert sock.connect_ex(("127.0.0.1", closed_port()))
    with pytest.raises(TransportError):
        await handshake(sock, trusting, NAME)


async def test_cancelling_a_stalled_handshake_closes_the_socket(trusting: ssl.SSLContext) -> None:
    async with serving(hang) as port, connected(port) as sock:
        with trio.move_on_after(0.05) as scope:
            await handshake(sock, trusting, NAME)
        assert scope.cancelled_caught
        assert sock.fileno() == -1


async def test_a_handshake_cancelled_before_it_begins_sends_nothing(trusting: ssl.SSLContext) -> None:
    async with serving(hang) as port, connected(port) as sock:
        with trio.CancelScope() as scope:
            scope.cancel()
            await handshake(sock, trusting, NAME)
        assert scope.cancelled_caught
        assert sock.fileno() == -1


async def test_a_client_certificate_is_presented_on_request(ca: trustme.CA, tmp_path: Path) -> None:
    own = ca.issue_cert("client@example.test")
    own.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "client.pem"))
    config = ms.TLSConfig(
        ca_data=ca.cert_pem.bytes().decode(), client_certificate=ms.ClientCertificate(str(tmp_path / "client.pem"))
    )
    peer = TLSPeer(ca.issue_cert(NAME), client_ca=ca)
    async with serving(peer.serve) as port, connected(port) as sock:
        with await handshake(sock, make_context(config), NAME) as secured:
            assert await echoes(secured)
    expected = ssl.PEM_cert_to_DER_cert(own.cert_chain_pems[0].bytes().decode())
    assert peer.shown == [expected]


def encrypted_key(own: trustme.LeafCert, folder: Path) -> tuple[str, str]:
    """Write the certificate and its key to two files, the key encrypted with SECRET. Returns the paths."""
    key = load_pem_private_key(own.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(SECRET.encode()))
    (folder / "key.pem").write_bytes(pem)
    own.cert_chain_pems[0].write_to_path(str(folder / "certificate.pem"))
    return str(folder / "certificate.pem"), str(folder / "key.pem")


def test_an_encrypted_key_is_opened_with_its_password(ca: trustme.CA, tmp_path: Path) -> None:
    files = encrypted_key(ca.issue_cert("client@example.test"), tmp_path)
    assert make_context(ms.TLSConfig(client_certificate=ms.ClientCertificate(*files, SECRET)))


def test_an_encrypted_key_without_its_password_is_an_error(ca: trustme.CA, tmp_path: Path) -> None:
    files = encrypted_key(ca.issue_cert("client@example.test"), tmp_path)
    with pytest.raises(TLSConfigError, match=r"certificate\.pem needs a password"):
        make_context(ms.TLSConfig(client_certificate=ms.ClientCertificate(*files)))


def test_a_wrong_password_is_an_error_without_the_password(ca: trustme.CA, tmp_path: Path) -> None:
    files = encrypted_key(ca.issue_cert("client@example.test"), tmp_path)
    with pytest.raises(TLSConfigError, match=r"certificate\.pem and .*key\.pem: ") as caught:
        make_context(ms.TLSConfig(client_certificate=ms.ClientCertificate(*files, SECRET + "-wrong")))
    assert SECRET not in repr(caught.value)


def test_missing_or_invalid_pem_files_are_named(tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    absent = str(tmp_path / "absent.pem")
    for path in (absent, str(junk)):
        with pytest.raises(TLSConfigError, match=re.escape(path)):
            make_context(ms.TLSConfig(ca_file=path))
        with pytest.raises(TLSConfigError, match=re.escape(path)):
            make_context(ms.TLSConfig(client_certificate=ms.ClientCertificate(path)))
    with pytest.raises(TLSConfigError, match="ca_data"):
        make_context(ms.TLSConfig(ca_data="no certificate"))


def test_pem_text_may_have_comments_in_any_language(ca: trustme.CA) -> None:
    pem = ca.cert_pem.bytes().decode()
    context = make_context(ms.TLSConfig(ca_data=f"# Főtanúsítvány \ud800\n{pem}# 認証局\n"))
    assert context.get_ca_certs() == make_context(ms.TLSConfig(ca_data=pem)).get_ca_certs()


@pytest.mark.parametrize("config", [ms.TLSConfig(ca_file=""), ms.TLSConfig(ca_data="")])
def test_an_empty_authority_does_not_mean_those_of_the_system(config: ms.TLSConfig) -> None:
    with pytest.raises(TLSConfigError, match="leave them out to trust the system's CAs"):
        make_context(config)


def test_one_context_is_made_for_equal_configurations(ca: trustme.CA, tmp_path: Path) -> None:
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    path = str(tmp_path / "ca.pem")
    assert make_context(ms.TLSConfig(ca_file=path)) is make_context(ms.TLSConfig(ca_file=path))
    assert make_context(ms.TLSConfig(ca_file=path)) is not make_context(ms.TLSConfig())


def test_every_context_verifies_certificate_and_name() -> None:
    context = make_context(ms.TLSConfig())
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert not context.hostname_checks_common_name


def test_no_version_below_tls_1_2_is_offered() -> None:
    assert make_context(ms.TLSConfig()).minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_password_is_in_no_repr() -> None:
    config = ms.TLSConfig(client_certificate=ms.ClientCertificate("c.pem", "k.pem", SECRET))
    assert "c.pem" in repr(config)
    assert SECRET not in repr(config)


RESET = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


# --- TLS ---
def ssl_error(kind: type[ssl.SSLError], text: str, **members: object) -> ssl.SSLError:
    error = kind(1, text)
    for name, value in members.items():
        setattr(error, name, value)
    return error


@pytest.mark.parametrize(
    ("error", "via", "text", "phase", "true"),
    [
        (ssl_error(ssl.SSLCertVerificationError, "x", verify_code=10, verify_message="certificate has expired"), "",
            ": certificate verify failed: certificate has expired (renew the server's certificate, or correct this"
            " machine's clock)", Phase.TLS, {"permanent"}),
        (ssl_error(ssl.SSLCertVerificationError, "x", verify_code=1, verify_message="unspecified"), "http://p:80",
            " through proxy http://p:80: certificate verify failed: unspecified", Phase.TLS, {"permanent"}),
        (ssl_error(ssl.SSLError, "x", reason="WRONG_VERSION_NUMBER"), "",
            ": wrong version number (plain HTTP on this port? then write http://)", Phase.TLS,
            {"protocol", "permanent"}),
        (ssl_error(ssl.SSLError, "x", reason="TLSV1_ALERT_INTERNAL_ERROR"), "", ": tlsv1 alert internal error",
            Phase.TLS, {"protocol"}),
        (ssl_error(ssl.SSLEOFError, "x", strerror="EOF occurred"), "",
            ": connection lost during the handshake: EOF occurred", Phase.TLS, set()),
        (RESET, "http://p:80",
            " through proxy http://p:80: broke the tunnel during the handshake: Connection reset by peer", Phase.PROXY,
            set()),
        (ValueError("a\x00b"), "", ": the host name cannot be used: a\x00b", Phase.TLS, {"permanent"}),
    ],
)  # fmt: skip
def test_a_handshake_that_fails(error: Any, via: str, text: str, phase: Phase, true: set[str]) -> None:
    with pytest.raises(TransportError) as caught:
        tls._raise_transport_error(error, "https://h.test:443", via)
    assert facts(caught.value) == (f"TLS with https://h.test:443{text}", phase, "https://h.test:443", true)


CLOCK = (9, 10)
"""X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED (openssl/x509_vfy.h)."""

PRIVATE_CA = (18, 19, 20, 21)
"""DEPTH_ZERO_SELF_SIGNED_CERT, SELF_SIGNED_CERT_IN_CHAIN, UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
UNABLE_TO_VERIFY_LEAF_SIGNATURE."""

OTHER_NAME = (62, 64)
"""HOSTNAME_MISMATCH, IP_ADDRESS_MISMATCH."""

NO_NAME = (87,)
"""EMPTY_SUBJECT_ALT_NAME."""

STRICT = (80, 81, 82, 83, 84, 85, 86, 88, 89, 90, 91, 92, 93)
"""The other errors that OpenSSL reports under X509_V_FLAG_X509_STRICT only, from PATHLEN_INVALID_FOR_NON_CA to
EXTENSIONS_REQUIRE_VERSION_3."""


def test_every_verification_error_has_its_hint() -> None:
    words = {
        "clock": CLOCK, "CA is private": PRIVATE_CA, "name that is in the certificate": OTHER_NAME,
        "renew it with a subjectAltName": NO_NAME, "RFC 5280": STRICT,
    }  # fmt: skip
    assert {number for numbers in words.values() for number in numbers} == VERIFY_HINTS.keys()
    for word, numbers in words.items():
        assert all(word in VERIFY_HINTS[number] for number in numbers)


def test_the_openssl_reasons_for_bytes_that_are_not_tls() -> None:
    reasons = {
        "BAD_RECORD_TYPE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL",
        "UNSUPPORTED_PROTOCOL", "WRONG_VERSION_NUMBER",
    }  # fmt: skip
    assert reasons == NOT_TLS_REASONS
