"""Faults of framing (rows 15 to 36): errors in a response's head and in the coding of its body."""

import gzip
import zlib
from dataclasses import dataclass

import pytest
from trio.testing import MockClock

import manystream as ms
from manystream.transport.exchange import WireHead
from manystream.transport.response_head import MAX_HEAD_BYTES
from tests.faults.exchange import EVENTS, ONE, WHOLE, End, Wire, in_chunks, observe, ok, raw
from tests.support.exchanges import open_rig
from tests.support.peers import CHAT_DONE, chat_chunk, chat_stream, chunked, error_body

NETWORK, SERVER, UNKNOWN = ms.ErrorCategory.NETWORK, ms.ErrorCategory.SERVER, ms.ErrorCategory.UNKNOWN
SUCCESS = None
AT_ONCE = 1.0
"""Seconds on the virtual clock: less than any of the call's timeouts."""


@dataclass(frozen=True)
class Case:
    """A wire and its expected outcome: category (None: success), delivered text, reuse, retry, and a part of the
    message.
    """

    name: str
    wire: Wire
    category: ms.ErrorCategory | None
    text: str = ""
    reused: bool = False
    retried: bool = False
    says: str = ""
    at_once: bool = True


def by_name(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


async def check(case: Case, *, stream: bool = True) -> None:
    seen = await observe(case.wire, stream=stream)
    seen.check_once()
    outcome = (seen.first.error_category, seen.recorder.text, seen.reused, seen.retried)
    assert outcome == (case.category, case.text, case.reused, case.retried), seen
    if case.category is not None:
        assert case.says in seen.message, seen.message
        partial = seen.first.response.text if seen.first.response is not None else ""
        assert partial == case.text  # what arrived is kept
    if case.at_once:
        assert seen.seconds < AT_ONCE


def sized(length: int, body: str | bytes, end: End = End.OPEN) -> Wire:
    return ok(f"Content-Length: {length}\r\n", body, end)


PIECE = chunked(ONE, end=False)
REST = chunked("".join(chat_stream("one")[1:]), end=False)
PING = chunked(": ping\n\n", end=False)

LENGTH_CASES = [
    Case("15 too long, then FIN", sized(len(ONE) + 10, ONE, End.FIN), NETWORK, "one", says="10 bytes before"),
    Case("15 too long, nothing came", sized(10, "", End.FIN), NETWORK, retried=True, says="truncated stream"),
    Case("15 too long, but the answer is whole", sized(len(WHOLE) + 10, WHOLE, End.FIN), SUCCESS, "one"),
    Case("16 too short", sized(len(WHOLE), WHOLE + "data: stray\n\n"), SUCCESS, "one"),
    Case("16 a second response behind it", Wire(sized(len(WHOLE), WHOLE).data * 2), SUCCESS, "one"),
    Case("16 shorter than the stream", sized(len(ONE), WHOLE), NETWORK, "one", says="truncated"),
]


@by_name(LENGTH_CASES)
async def test_a_length_that_does_not_fit(case: Case, autojump_clock: MockClock) -> None:
    await check(case)


CUT_CASES = [
    Case("17 in the data", in_chunks(PIECE[:-20], End.FIN), NETWORK, retried=True, says="truncated stream"),
    Case("17 in the data, an event before", in_chunks(PIECE + PIECE[:-20], End.FIN), NETWORK, "one", says="truncated"),
    Case("17 in a size", in_chunks(PIECE + b"1", End.FIN), NETWORK, "one", says="truncated stream"),
    Case("17 before the last chunk", in_chunks(PIECE, End.FIN), NETWORK, "one", says="truncated stream"),
    Case("17 before the last chunk, answer whole", in_chunks(PIECE + REST, End.FIN), SUCCESS, "one"),
    Case("18 after 0 CR LF", in_chunks(PIECE + b"0\r\n", End.FIN), NETWORK, "one", says="truncated stream"),
    Case("18 after 0", in_chunks(PIECE + b"0", End.FIN), NETWORK, "one", says="truncated stream"),
    Case("18 after 0 CR LF, answer whole", in_chunks(PIECE + REST + b"0\r\n", End.FIN), SUCCESS, "one"),
    Case("18 after 0, answer whole", in_chunks(PIECE + REST + b"0", End.FIN), SUCCESS, "one"),
]


@by_name(CUT_CASES)
async def test_chunks_that_are_cut(case: Case, autojump_clock: MockClock) -> None:
    await check(case)


BAD_SIZES = [b"xyz", b"", b"-5", b"+5", b"0x5", b"0_5", b" 5", b"5\x00", "５".encode(), b"5 5", b"FFFFFFFFFFFFFFFFF"]
SIZE_CASES = [
    case for size in BAD_SIZES for case in (Case(f"19 {size!r} first", in_chunks(size + b"\r\nhello\r\n"), NETWORK,
    says="illegal chunk size line"), Case(f"19 {size!r} after an event", in_chunks(PIECE + size + b"\r\n"), NETWORK,
    "one", says="illegal chunk"))
]  # fmt: skip
SIZE_CASES += [
    Case("19 data that runs on", in_chunks(PIECE[:-2] + b"XX"), NETWORK, "one", says="expected CR LF"),
    Case("20 the largest size, and no data", in_chunks(b"F" * 15 + b"\r\n", End.FIN), NETWORK, retried=True),
    Case("20 2^63 - 1", in_chunks(PIECE + b"7" + b"F" * 15 + b"\r\n"), NETWORK, "one", says="larger than any response"),
    Case("20 2^64 - 1", in_chunks(b"F" * 16 + b"\r\n"), NETWORK, says="larger than any response"),
    Case(
        "21 an extension", in_chunks(PIECE.replace(b"\r\n", b";a=b\r\n", 1) + REST + b"0\r\n\r\n"), SUCCESS, "one", True
    ),
    Case("21 an extension of 100 KB", in_chunks(PIECE + b"5;" + b"x" * 100_000), NETWORK, "one", says="longer than"),
    Case("21 an extension of 15 KB of spaces", in_chunks(b"5;" + b" " * 15_000 + b"\n"), NETWORK, says="illegal chunk"),
    Case("21 an endless extension, in a later read", Wire(b"x" * 20_000, pieces=(in_chunks(b"5;x").data,)), NETWORK),
]


@by_name(SIZE_CASES)
async def test_chunk_sizes(case: Case, autojump_clock: MockClock) -> None:
    await check(case)


TRAILER_CASES = [
    Case("22 trailers", in_chunks(PIECE + REST + b"0\r\nX-Sum: 1\r\n\r\n"), SUCCESS, "one", True),
    Case("22 framing among them", in_chunks(PIECE + REST + b"0\r\nContent-Length: 5\r\n\r\n"), SUCCESS, "one", True),
    Case("22 a status among them", in_chunks(PIECE + REST + b"0\r\nX-Request-Id: other\r\n\r\n"), SUCCESS, "one", True),
    Case("22 a malformed one, answer whole", in_chunks(PIECE + REST + b"0\r\nno colon\r\n\r\n"), SUCCESS, "one"),
    Case("22 a malformed one", in_chunks(PIECE + b"0\r\nno colon\r\n\r\n"), NETWORK, "one", says="illegal trailer"),
    Case("22 an endless section", in_chunks(PIECE + b"0\r\n" + b"A: b\r\n" * 20_000), NETWORK, "one", says="longer"),
]


@by_name(TRAILER_CASES)
async def test_trailers_change_nothing(case: Case, autojump_clock: MockClock) -> None:
    await check(case)


BOTH = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"
HEAD_CASES = [
    Case("23 length and chunked", ok(BOTH, PIECE + REST + b"0\r\n\r\n"), SUCCESS, "one"),
    Case("24 two lengths", ok("Content-Length: 5\r\nContent-Length: 6\r\n", ONE), NETWORK, says="malformed response"),
    *(Case(f"24 {length}", ok(f"Content-Length: {length}\r\n", ONE), NETWORK, says="malformed response")
        for length in ("+5", "5.0", "0x5", "-5", "5, 6", "five", "9" * 30, str(2**63))),
    *(Case(f"25 {coding}", ok(f"Transfer-Encoding: {coding}\r\n", ONE), NETWORK, says="malformed response")
        for coding in ("gzip", "xchunked", "identity", "chunked, chunked", "gzip, chunked", "\x0bchunked")),
    Case("25 chunked, in two headers", ok("Transfer-Encoding: chunked\r\n" * 2, PIECE), NETWORK, says="malformed"),
    Case("25 in capitals", ok("TRANSFER-ENCODING: CHUNKED\r\n", PIECE + REST + b"0\r\n\r\n"), SUCCESS, "one", True),
    Case("26 ended by FIN, answer whole", ok("", WHOLE, End.FIN), SUCCESS, "one"),
    Case("26 ended by FIN, no terminal marker", ok("", ONE, End.FIN), NETWORK, "one", says="truncated stream"),
    Case("26 ended by FIN, nothing came", ok("", ": ping\n\n", End.FIN), NETWORK, retried=True, says="truncated"),
]  # fmt: skip


@by_name(HEAD_CASES)
async def test_what_the_head_says_of_the_body(case: Case, autojump_clock: MockClock) -> None:
    await check(case)


FINAL = ok("Transfer-Encoding: chunked\r\n", PIECE + REST + b"0\r\n\r\n").data


def after(*informational: str) -> Wire:
    return Wire("".join(f"HTTP/1.1 {line}\r\n\r\n" for line in informational).encode() + FINAL)


INFORMATIONAL_CASES = [
    Case("27 100", after("100 Continue"), SUCCESS, "one", True),
    Case("27 100 with a header", after("100 Continue\r\nX: y"), SUCCESS, "one", True),
    Case("27 102 twenty times", after(*["102 Processing"] * 20), SUCCESS, "one", True),
    Case("27 103 and 199", after("103 Early Hints\r\nLink: </x>", "199 Whatever"), SUCCESS, "one", True),
    Case("27 as many as allowed", after(*["100 Continue"] * 1000), SUCCESS, "one", True),
    Case("27 one too many", after(*["100 Continue"] * 1001), NETWORK, says="more than 1000 informational responses"),
    Case("27 five thousand", after(*["100 Continue"] * 5000), NETWORK, says="informational responses"),
    Case("28 101", after("101 Switching Protocols\r\nUpgrade: x"), NETWORK, says="malformed response"),
]


@by_name(INFORMATIONAL_CASES)
async def test_informational_responses(case: Case, autojump_clock: MockClock) -> None:
    await check(case)


BODILESS_CASES = [
    Case("29 204", raw("HTTP/1.1 204 No Content\r\n"), UNKNOWN, reused=True, says="204"),
    Case("29 204 with a length", raw("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n"), UNKNOWN, says="204"),
    Case("29 204 with a body", raw("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n", "hello"), UNKNOWN, says="204"),
    Case("29 204, chunked", raw("HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n"), UNKNOWN, says="204"),
    Case("29 205", raw("HTTP/1.1 205 Reset Content\r\n"), UNKNOWN, reused=True, says="205"),
    Case("29 205 with a body", raw("HTTP/1.1 205 Reset\r\nContent-Length: 5\r\n", "hello"), UNKNOWN, says="205"),
    Case("29 304", raw("HTTP/1.1 304 Not Modified\r\n"), UNKNOWN, reused=True, says="304"),
    Case("29 304 with a length", raw("HTTP/1.1 304 Not\r\nContent-Length: 5\r\n"), UNKNOWN, says="304"),
]


@by_name(BODILESS_CASES)
async def test_statuses_without_a_body_end_at_once(case: Case, autojump_clock: MockClock) -> None:
    await check(case)
    await check(case, stream=False)


async def test_a_response_to_head_has_no_body() -> None:
    async with open_rig() as rig:
        exchange = rig.start(WireHead(b"HEAD", b"/health", [(b"Host", b"example.test")]), b"")
        rig.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await rig.settle()
        assert (exchange.ended, exchange.status, exchange.body) == (1, 200, b"")
        assert (rig.owner.idle, rig.owner.closed) == (1, 0)


BODY = f"Content-Length: {len(WHOLE)}\r\n"
STATUS_CASES = [
    Case("31 no reason", raw(f"HTTP/1.1 200\r\n{EVENTS}{BODY}", WHOLE), SUCCESS, "one", True),
    Case("31 no reason, a space", raw(f"HTTP/1.1 200 \r\n{EVENTS}{BODY}", WHOLE), SUCCESS, "one", True),
    Case("31 529", raw("HTTP/1.1 529 Overloaded\r\nContent-Length: 0\r\n"), SERVER, "", True, True, "529"),
    Case("31 599", raw("HTTP/1.1 599 What\r\nContent-Length: 0\r\n"), SERVER, "", True, True, "599"),
    Case("31 600", raw("HTTP/1.1 600 What\r\nContent-Length: 0\r\n"), UNKNOWN, "", True, says="600"),
    *(
        Case(f"31 {line!r}", Wire(line.encode("latin-1") + b"\r\n" + BODY.encode() + b"\r\n"), NETWORK, says=says)
        for line, says in (
            ("HTTP/1.1 099 Low", "malformed response"),
            ("HTTP/1.1 2000 Long", "malformed response"),
            ("HTTP/1.1 20 Short", "malformed response"),
            ("HTTP/1.1 -12 Negative", "malformed response"),
            ("HTTP/1.1  200 Spaces", "malformed response"),
            ("HTTP/2 200", "not HTTP/1.1: b'HTTP/2 200"),
            ("ICY 200 OK", "not HTTP/1.1: b'ICY 200 OK"),
            ("<html>502 Bad Gateway</html>", "not HTTP/1.1: b'<html>502"),
            ("SSH-2.0-OpenSSH_9.2", "not HTTP/1.1: b'SSH-2.0"),
            ("\x15\x03\x01\x00\x02\x02\x46", "TLS on this port? use https://"),
            ("\x00\x00\x12\x04\x00\x00\x00\x00\x00", "not HTTP/1.1: b'\\x00\\x00\\x12"),
        )
    ),
    Case("31 HTTP/0.9", Wire(b"hello"), NETWORK, says="not HTTP/1.1: b'hello'"),
]


@by_name(STATUS_CASES)
async def test_status_lines(case: Case, autojump_clock: MockClock) -> None:
    await check(case)


NEWLINE = "\r\n"
LINE_CASES = [
    Case("32 a folded line", ok(f"X-A: a\r\n  b\r\n{BODY}", WHOLE), SUCCESS, "one", True),
    Case("32 lines that end in LF", Wire(ok(BODY, WHOLE).data.replace(b"\r\n", b"\n", 3)), SUCCESS, "one", True),
    Case("32 a space before the colon", ok(f"X-A : b\r\n{BODY}", WHOLE), NETWORK, says="malformed response"),
    Case("32 an empty name", ok(f": b\r\n{BODY}", WHOLE), NETWORK, says="malformed response"),
    Case("32 no colon", ok(f"X-A\r\n{BODY}", WHOLE), NETWORK, says="malformed response"),
    Case("32 NUL in a value", ok(f"X-A: a\0b\r\n{BODY}", WHOLE), NETWORK, says="malformed response"),
    Case("32 CR in a value", ok(f"X-A: a\rb\r\n{BODY}", WHOLE), NETWORK, says="malformed response"),
    Case("32 a folded first line", raw(f"HTTP/1.1 200 OK\r\n X: y\r\n{BODY}", WHOLE), NETWORK, says="malformed"),
    Case("33 64 KiB in one header", ok(f"X-A: {'x' * 65536}\r\n{BODY}", WHOLE), SUCCESS, "one", True),
    Case("33 120 KB in one header", ok(f"X-A: {'x' * 120_000}\r\n{BODY}", WHOLE), NETWORK, says="line is longer"),
    Case("33 a MiB in one header", ok(f"X-A: {'x' * 2**20}\r\n{BODY}", WHOLE), NETWORK, says="line is longer"),
    Case("33 white space before a value", ok(f"X-A:{' ' * 64}x\r\n{BODY}", WHOLE), SUCCESS, "one", True),
    Case("33 90 KB of it", ok(f"X-A:{' ' * 90_000}\0\r\n{BODY}", WHOLE), NETWORK, says="header value"),
    Case("33 90 KB of it, folded", ok(f"X-A:{(NEWLINE + ' ') * 30_000}\0\r\n{BODY}", WHOLE), NETWORK, says="4096"),
    Case("33 6,000 headers", ok("X-A: 1234567890\r\n" * 6_000 + BODY, WHOLE), NETWORK, says="4096 lines"),
    Case("33 20,000 headers", ok("X-A: 1234567890\r\n" * 20_000 + BODY, WHOLE), NETWORK, says="head is larger than"),
    Case("34 cut in the status line", Wire(b"HTTP/1.1 20", End.FIN), NETWORK, retried=True, says="before the response"),
    Case("34 cut after the status line", Wire(b"HTTP/1.1 200 OK\r\n", End.FIN), NETWORK, retried=True, says="before"),
    Case("34 cut in a name", Wire(b"HTTP/1.1 200 OK\r\nConte", End.FIN), NETWORK, retried=True, says="before the"),
    Case("34 cut before the blank line", Wire(b"HTTP/1.1 200 OK\r\nA: b\r\n", End.FIN), NETWORK, retried=True),
]


@by_name(LINE_CASES)
async def test_header_lines(case: Case, autojump_clock: MockClock) -> None:
    await check(case)


async def test_a_head_that_never_ends_is_refused_at_its_cap(autojump_clock: MockClock) -> None:
    drip = tuple(b"X-%06d: %b\r\n" % (number, b"x" * 4000) for number in range(MAX_HEAD_BYTES // 4000 + 20))
    seen = await observe(Wire(b"", pieces=(b"HTTP/1.1 200 OK\r\n", *drip)))
    seen.check_once()
    assert seen.error.category is NETWORK
    assert not seen.retried
    assert seen.seconds < AT_ONCE


def encoded(coding: str, body: bytes, status: str = "200 OK") -> Wire:
    return raw(f"HTTP/1.1 {status}\r\n{EVENTS}Content-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n", body)


ZIPPED = gzip.compress(WHOLE.encode())
ENCODING_CASES = [
    Case("35 gzip", encoded("gzip", ZIPPED), SERVER, says="content-encoding 'gzip'"),
    Case("35 x-gzip", encoded("x-gzip", ZIPPED), SERVER, says="content-encoding 'x-gzip'"),
    Case("35 deflate", encoded("deflate", zlib.compress(WHOLE.encode())), SERVER, says="content-encoding"),
    Case("35 cut short", encoded("gzip", ZIPPED[:-9]), SERVER, says="content-encoding"),
    Case("35 garbage", encoded("gzip", b"garbage"), SERVER, says="content-encoding"),
    Case("35 a bomb", encoded("gzip", gzip.compress(b"data: " + b"x" * 10_000_000)), SERVER, says="content-encoding"),
    Case("35 two members", encoded("gzip", ZIPPED + ZIPPED), SERVER, says="content-encoding"),
    Case("35 identity", encoded("identity", WHOLE.encode()), SUCCESS, "one", True),
    Case("35 on a 503", encoded("gzip", ZIPPED, "503 Busy"), SERVER, "", True, True, "503"),
    Case("36 an unknown one", encoded("zebra", WHOLE.encode()), SERVER, says="content-encoding 'zebra'"),
]


@by_name(ENCODING_CASES)
async def test_encodings_are_refused(case: Case, autojump_clock: MockClock) -> None:
    await check(case)
    seen = await observe(case.wire, stream=False) if case.category is not None else None
    assert seen is None or seen.error.category is case.category


async def test_only_the_identity_coding_is_requested(autojump_clock: MockClock) -> None:
    seen = await observe(in_chunks(PIECE + REST + b"0\r\n\r\n"))
    assert all(b"accept-encoding: identity\r\n" in request.lower() for request in seen.requests)
    assert not any(b"\r\nexpect:" in request.lower() for request in seen.requests)


async def test_an_error_sent_as_an_event_stream_keeps_its_text(autojump_clock: MockClock) -> None:
    body = f"data: {error_body('the model fell over')}\n\n{CHAT_DONE}"
    seen = await observe(raw(f"HTTP/1.1 500 Oops\r\n{EVENTS}Content-Length: {len(body)}\r\n", body))
    seen.check_once()
    assert (seen.error.category, seen.error.http_status, seen.reused) == (SERVER, 500, True)
    assert "the model fell over" in seen.message
    assert chat_chunk("x") not in seen.message
