"""TLS on a socket: every whole record of a read at once, nothing twice, nothing lost, however the wire is cut."""

from __future__ import annotations

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

from manystream.transport.tls import TLSConfig, handshake, make_context
from manystream.transport.tls_socket import TLSSocket
from tests.support.addresses import LOOPBACK, closed_port, receive, send_all

NAME = "api.example.test"
FULL = 16 * 1024


class Wire:
    """A socket whose other end is held by the test. arriving: what the kernel will give, piece by piece; b"" is the
    end, and with nothing in it there is nothing to read. room: bytes that it still takes. broken: it takes none any
    more."""

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
    """A `TLSSocket` on a wire, and the server's end of TLS in memory."""

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
        """What the client has sent comes to the server."""
        self._in.write(bytes(self.wire.sent))
        self.wire.sent.clear()

    def records(self, *texts: bytes) -> bytes:
        """Each text as a record of its own."""
        for text in texts:
            self.server.write(text)
        return self._out.read()

    def goodbye(self) -> bytes:
        """TLS's own word for the end."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.server.unwrap()
        return self._out.read()

    def heard(self) -> bytes:
        """What the server has got of the client."""
        self.deliver()
        text = b""
        with contextlib.suppress(ssl.SSLWantReadError):
            while True:
                text += self.server.read(FULL)
        return text


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def trusting(ca: trustme.CA) -> ssl.SSLContext:
    return make_context(TLSConfig(ca_data=ca.cert_pem.bytes().decode()))


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def pair(request: pytest.FixtureRequest, ca: trustme.CA, trusting: ssl.SSLContext) -> Pair:
    pair = Pair(ca, trusting, request.param)
    pair.shake_hands()
    return pair


def everything(pair: Pair) -> bytes:
    """All that can be read, until nothing is left on the wire."""
    text = b""
    while pair.wire.arriving:
        with contextlib.suppress(ssl.SSLWantReadError):
            text += pair.secured.recv(FULL)
    return text


def test_all_whole_records_come_with_one_read_of_the_kernel(pair: Pair) -> None:
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


def test_byte_by_byte_and_in_records_larger_than_a_read(pair: Pair) -> None:
    pair.wire.arriving = [bytes([byte]) for byte in pair.records(b"slowly")]
    assert everything(pair) == b"slowly"
    large = b"0123456789" * 20_000
    pair.wire.arriving = [pair.records(large)]
    assert everything(pair) == large


def test_an_end_behind_data_is_held_until_the_data_was_given(pair: Pair) -> None:
    pair.wire.arriving = [pair.records(b"last words") + pair.goodbye()]
    assert pair.secured.recv(FULL) == b"last words"
    assert pair.secured.buffered
    assert pair.secured.recv(FULL) == b""
    assert pair.secured.recv(FULL) == b""
    assert pair.wire.reads == 1


def test_an_end_in_a_read_of_its_own(pair: Pair) -> None:
    pair.wire.arriving = [pair.goodbye()]
    assert pair.secured.recv(FULL) == b""


def test_an_end_without_goodbye_is_an_end(pair: Pair) -> None:
    data = pair.records(b"cut here")
    pair.wire.arriving = [data[:-3]]
    with pytest.raises(ssl.SSLWantReadError):
        pair.secured.recv(FULL)
    pair.wire.arriving = [b""]
    assert pair.secured.recv(FULL) == b""


def test_what_came_whole_before_a_broken_record_is_given_first(pair: Pair) -> None:
    good, bad = pair.records(b"fine"), bytearray(pair.records(b"forged"))
    bad[-1] ^= 1
    pair.wire.arriving = [good + bytes(bad)]
    assert pair.secured.recv(FULL) == b"fine"
    assert pair.secured.buffered
    for _ in range(2):
        with pytest.raises(ssl.SSLError):
            pair.secured.recv(FULL)


def test_a_broken_record_is_an_error_and_tells_the_server_so(pair: Pair) -> None:
    bad = bytearray(pair.records(b"forged"))
    bad[-1] ^= 1
    pair.wire.arriving = [bytes(bad)]
    with pytest.raises(ssl.SSLError):
        pair.secured.recv(FULL)
    pair.deliver()
    with pytest.raises(ssl.SSLError, match=r"(?i)bad.record.mac|decrypt.error"):
        pair.server.read(FULL)


def test_a_line_that_takes_no_answer_still_gives_what_it_brought(pair: Pair) -> None:
    good, bad = pair.records(b"fine"), bytearray(pair.records(b"forged"))
    bad[-1] ^= 1
    pair.wire.arriving = [good + bytes(bad)]
    pair.wire.broken = True
    assert pair.secured.recv(FULL) == b"fine"
    with pytest.raises(ssl.SSLError):
        pair.secured.recv(FULL)


@pytest.mark.parametrize("room", [1, 7, 100, 20_000])
def test_a_kernel_that_takes_little_gets_every_byte_once(pair: Pair, room: int) -> None:
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


def test_nothing_is_called_sent_before_the_kernel_has_it(pair: Pair) -> None:
    pair.wire.room = 10
    with pytest.raises(BlockingIOError):
        pair.secured.send(b"question")
    with pytest.raises(BlockingIOError):
        pair.secured.send(b"question")
    pair.wire.room = 1000
    assert pair.secured.send(b"question") == len(b"question")
    assert pair.heard() == b"question"


def test_a_handshake_waits_for_room_to_write(ca: trustme.CA, trusting: ssl.SSLContext) -> None:
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
    """OpenSSL's own server, which does on demand what no library lets one ask for."""

    def __init__(self, process: trio.Process, port: int) -> None:
        self.port = port
        self._process = process
        self._output = b""

    async def told(self, words: bytes) -> None:
        """Wait until it has printed these words."""
        assert self._process.stdout is not None
        while words not in self._output:
            more = await self._process.stdout.receive_some()
            assert more, self._output
            self._output += more

    async def type(self, line: bytes) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send_all(line)


@asynccontextmanager
async def open_openssl(pem: Path) -> AsyncIterator[OpenSSL]:
    program, port = shutil.which("openssl"), closed_port()
    if program is None:
        pytest.skip("new keys are asked for by `openssl s_server`, and there is no openssl program here")
    command = [program, "s_server", "-msg", "-accept", f"{LOOPBACK}:{port}", "-cert", str(pem), "-key", str(pem)]
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        with trio.fail_after(20):
            server = OpenSSL(process, port)
            await server.told(b"ACCEPT")
            yield server
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


@pytest.mark.trio
async def test_new_keys_are_taken_and_answered(ca: trustme.CA, trusting: ssl.SSLContext, tmp_path: Path) -> None:
    ca.issue_cert(NAME).private_key_and_cert_chain_pem.write_to_path(tmp_path / "pem")
    async with open_openssl(tmp_path / "pem") as server:
        sock = socket.create_connection((LOOPBACK, server.port))
        sock.setblocking(False)
        with await handshake(sock, trusting, NAME) as secured:
            await server.type(b"K\n")
            await server.told(b">>> TLS 1.3, Handshake [length 0005], KeyUpdate")
            await server.type(b"under new keys\n")
            assert await receive(secured) == b"under new keys\n"
            await send_all(secured, b"heard\n")
            await server.told(b"<<< TLS 1.3, Handshake [length 0005], KeyUpdate")
            await server.told(b"heard\n")
