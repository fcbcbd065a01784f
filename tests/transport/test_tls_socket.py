"""TLS over a socket: a read returns all whole records; at any split no byte is lost or delivered twice."""

import contextlib
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
import trio
import trustme

from manystream.transport.tls import handshake
from manystream.transport.tls_socket import TLSSocket
from tests.support.addresses import LOOPBACK, closed_port, receive, send_all

NAME = "api.example.test"
FULL = 16 * 1024


class Wire:
    """A simulated socket whose other end is the test.

    arriving: the pieces that the next reads return. b"" is the end of the stream; an empty list means no data yet.
    sent: the bytes that the client has sent.
    room: the number of bytes that the socket still accepts.
    reads: the number of calls of `recv`.
    broken: sending raises an error.
    """

    def __init__(self) -> None:
        self.arriving: list[bytes] = []
        self.sent = bytearray()
        self.room = 1 << 30
        self.reads = 0
        self.broken = False
        self.closed = False

    def recv(self, size: int) -> bytes:
        self.reads += 1
        if not self.arriving:
            raise BlockingIOError
        piece, self.arriving[0] = self.arriving[0][:size], self.arriving[0][size:]
        if not self.arriving[0]:
            del self.arriving[0]
        return piece

    def send(self, data: bytes) -> int:
        if self.broken:
            raise BrokenPipeError
        if not self.room:
            raise BlockingIOError
        taken = data[: self.room]
        self.room -= len(taken)
        self.sent += taken
        return len(taken)

    def fileno(self) -> int:
        return -1 if self.closed else 7

    def close(self) -> None:
        self.closed = True


class Pair:
    """A `TLSSocket` on a `Wire`, and the server's end of TLS in memory."""

    def __init__(self, ca: trustme.CA, trusting: ssl.SSLContext, version: ssl.TLSVersion) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert(NAME).configure_cert(context)
        context.maximum_version = version
        self.wire = Wire()
        self.secured = TLSSocket(cast("socket.socket", self.wire), trusting, NAME)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = context.wrap_bio(self._in, self._out, server_side=True)

    def shake_hands(self) -> None:
        client = server = False
        for _ in range(10):
            with contextlib.suppress(ssl.SSLWantReadError):
                self.secured.do_handshake()
                client = True
            self.deliver()
            with contextlib.suppress(ssl.SSLWantReadError):
                self.server.do_handshake()
                server = True
            self.wire.arriving += filter(None, [self._out.read()])
            if client and server:
                break
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
            self.secured.recv(FULL)  # session tickets
        assert client
        assert server
        self.wire.reads = 0

    def deliver(self) -> None:
        """Deliver to the server what the client has sent."""
        self._in.write(bytes(self.wire.sent))
        self.wire.sent.clear()

    def records(self, *texts: bytes) -> bytes:
        """Encode each text as a record of its own."""
        for text in texts:
            self.server.write(text)
        return self._out.read()

    def goodbye(self) -> bytes:
        """Return the server's close_notify alert."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.server.unwrap()
        return self._out.read()

    def heard(self) -> bytes:
        """Return the plaintext that the server has received from the client."""
        self.deliver()
        text = b""
        with contextlib.suppress(ssl.SSLWantReadError):
            while True:
                text += self.server.read(FULL)
        return text


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def pair(request: pytest.FixtureRequest, ca: trustme.CA, trusting: ssl.SSLContext) -> Pair:
    pair = Pair(ca, trusting, request.param)
    pair.shake_hands()
    return pair


def everything(pair: Pair) -> bytes:
    """Read until the wire is empty; return all plaintext."""
    text = b""
    while pair.wire.arriving:
        with contextlib.suppress(ssl.SSLWantReadError):
            text += pair.secured.recv(FULL)
    return text


def test_one_system_call_returns_all_whole_records(pair: Pair) -> None:
    pair.wire.arriving = [pair.records(b"one ", b"two ", b"three")]
    assert pair.secured.recv(FULL) == b"one two three"
    assert pair.wire.reads == 1
    assert not pair.secured.buffered
    with pytest.raises(BlockingIOError):
        pair.secured.recv(FULL)


def test_records_may_be_cut_anywhere(pair: Pair) -> None:
    place, data = 0, b" "
    while (place := place + 1) <= len(data):
        data = pair.records(b"one ", b"two")
        pair.wire.arriving = [data[:place], *filter(None, [data[place:]])]
        assert everything(pair) == b"one two"


def test_records_larger_than_a_read_arrive_whole(pair: Pair) -> None:
    pair.wire.arriving = [bytes([byte]) for byte in pair.records(b"slowly")]
    assert everything(pair) == b"slowly"
    large = b"0123456789" * 20_000
    pair.wire.arriving = [pair.records(large)]
    assert everything(pair) == large


def test_an_end_after_data_is_reported_after_the_data(pair: Pair) -> None:
    pair.wire.arriving = [pair.records(b"last words") + pair.goodbye()]
    assert pair.secured.recv(FULL) == b"last words"
    assert pair.secured.buffered
    assert pair.secured.recv(FULL) == b""
    assert pair.secured.recv(FULL) == b""
    assert pair.wire.reads == 1


def test_an_end_can_arrive_in_a_read_of_its_own(pair: Pair) -> None:
    pair.wire.arriving = [pair.goodbye()]
    assert pair.secured.recv(FULL) == b""


def test_an_end_without_close_notify_is_an_end(pair: Pair) -> None:
    data = pair.records(b"cut here")
    pair.wire.arriving = [data[:-3]]
    with pytest.raises(ssl.SSLWantReadError):
        pair.secured.recv(FULL)
    pair.wire.arriving = [b""]
    assert pair.secured.recv(FULL) == b""


def test_records_before_a_broken_one_are_returned_first(pair: Pair) -> None:
    good, bad = pair.records(b"fine"), bytearray(pair.records(b"forged"))
    bad[-1] ^= 1
    pair.wire.arriving = [good + bytes(bad)]
    assert pair.secured.recv(FULL) == b"fine"
    assert pair.secured.buffered
    for _ in range(2):
        with pytest.raises(ssl.SSLError):
            pair.secured.recv(FULL)


def test_a_broken_record_is_an_error_and_sends_an_alert(pair: Pair) -> None:
    bad = bytearray(pair.records(b"forged"))
    bad[-1] ^= 1
    pair.wire.arriving = [bytes(bad)]
    with pytest.raises(ssl.SSLError):
        pair.secured.recv(FULL)
    pair.deliver()
    with pytest.raises(ssl.SSLError, match=r"(?i)bad.record.mac|decrypt.error"):
        pair.server.read(FULL)


def test_data_is_returned_if_the_alert_cannot_be_sent(pair: Pair) -> None:
    good, bad = pair.records(b"fine"), bytearray(pair.records(b"forged"))
    bad[-1] ^= 1
    pair.wire.arriving = [good + bytes(bad)]
    pair.wire.broken = True
    assert pair.secured.recv(FULL) == b"fine"
    with pytest.raises(ssl.SSLError):
        pair.secured.recv(FULL)


@pytest.mark.parametrize("room", [1, 7, 100, 20_000])
def test_a_full_socket_buffer_gets_every_byte_once(pair: Pair, room: int) -> None:
    data = b"0123456789" * 4_000
    left, heard = memoryview(data), b""
    for _ in range(200_000):
        if not left:
            break
        pair.wire.room = room
        with contextlib.suppress(BlockingIOError):
            left = left[pair.secured.send(left) :]
        heard += pair.heard()
    assert heard == data


def test_bytes_count_as_sent_when_the_kernel_has_them(pair: Pair) -> None:
    pair.wire.room = 10
    with pytest.raises(BlockingIOError):
        pair.secured.send(b"question")
    with pytest.raises(BlockingIOError):
        pair.secured.send(b"question")
    pair.wire.room = 1000
    assert pair.secured.send(b"question") == len(b"question")
    assert pair.heard() == b"question"


def test_a_handshake_waits_until_the_socket_is_writable(ca: trustme.CA, trusting: ssl.SSLContext) -> None:
    pair = Pair(ca, trusting, ssl.TLSVersion.TLSv1_3)
    pair.wire.room = 10
    with pytest.raises(ssl.SSLWantWriteError):
        pair.secured.do_handshake()
    pair.wire.room = 1 << 30
    pair.shake_hands()
    assert pair.secured.version() == "TLSv1.3"
    expires = pair.secured.expires()
    assert expires is not None
    assert ssl.cert_time_to_seconds(expires) > 0


class OpenSSL:
    """The `openssl s_server` program, which can send messages that no Python library can send, such as a key update."""

    def __init__(self, process: trio.Process, port: int) -> None:
        self.port = port
        self._process = process
        self._output = b""

    async def wait_printed(self, words: bytes) -> None:
        """Wait until the server has printed these words."""
        assert self._process.stdout is not None
        while words not in self._output:
            more = await self._process.stdout.receive_some()
            assert more, self._output
            self._output += more

    async def type(self, line: bytes) -> None:
        await self._process.stdin.send_all(line)


@asynccontextmanager
async def open_openssl(pem: Path) -> AsyncIterator[OpenSSL]:
    program, port = shutil.which("openssl"), closed_port()
    if program is None:
        pytest.skip("the test of key updates needs the openssl program, which is not installed")
    command = [program, "s_server", "-msg", "-accept", f"{LOOPBACK}:{port}", "-cert", str(pem), "-key", str(pem)]
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        with trio.fail_after(20):
            server = OpenSSL(process, port)
            await server.wait_printed(b"ACCEPT")
            yield server
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def test_a_key_update_is_accepted_and_answered(ca: trustme.CA, trusting: ssl.SSLContext, tmp_path: Path) -> None:
    ca.issue_cert(NAME).private_key_and_cert_chain_pem.write_to_path(tmp_path / "pem")
    async with open_openssl(tmp_path / "pem") as server:
        sock = socket.create_connection((LOOPBACK, server.port))
        sock.setblocking(False)
        with await handshake(sock, trusting, NAME) as secured:
            await server.type(b"K\n")
            await server.wait_printed(b">>> TLS 1.3, Handshake [length 0005], KeyUpdate")
            await server.type(b"under new keys\n")
            assert await receive(secured) == b"under new keys\n"
            await send_all(secured, b"heard\n")
            await server.wait_printed(b"<<< TLS 1.3, Handshake [length 0005], KeyUpdate")
            await server.wait_printed(b"heard\n")
