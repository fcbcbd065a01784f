"""The WebSocket protocol without I/O: handshakes of both sides, and frames at every split point."""

import random
import tracemalloc

import pytest

from manystream.transport.exchange import RawHeaders
from manystream.transport.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    INVALID_DATA,
    MASK_BYTES,
    NO_STATUS,
    PING,
    PONG,
    PROTOCOL_ERROR,
    TEXT,
    TOO_BIG,
    FrameError,
    FrameReader,
    HandshakeError,
    accept_of,
    accept_upgrade,
    decode_close,
    encode_close,
    encode_frame,
    fault_of_upgrade,
    mask,
    new_key,
    upgrade_headers,
)

LIMIT = 100_000
KEY = b"dGhlIHNhbXBsZSBub25jZQ=="  # the example of RFC 6455, 1.3
Messages = list[tuple[int, bytes]]


def lowered(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in headers]


def raw(first: int, payload: bytes = b"", *, size: int | None = None, masked: bool = False) -> bytes:
    """One frame with any head. `size`: the length that it announces."""
    size, bit = len(payload) if size is None else size, 0x80 if masked else 0
    if size < 126:
        head = bytes((first, bit | size))
    elif size < 1 << 16:
        head = bytes((first, bit | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, bit | 127)) + size.to_bytes(8, "big")
    key = b"\x01\x80\xff\x37" if masked else b""
    return head + key + (bytes(byte ^ key[n % 4] for n, byte in enumerate(payload)) if masked else payload)


def read(wire: bytes, pieces: list[int], *, masked: bool = False) -> tuple[Messages, int]:
    """The messages, and the code of the error that ended them; 0 for none. `pieces`: offsets at which to cut."""
    reader, messages = FrameReader(LIMIT, masked=masked), Messages()
    for start, end in zip([0, *pieces], [*pieces, len(wire)], strict=True):
        try:
            messages += reader.feed(wire[start:end])
        except FrameError as error:
            return messages + error.messages, error.code
    return messages, 0


CASES: dict[str, tuple[list[tuple[int, bytes]], Messages, int]] = {
    "empty text": ([(0x81, b"")], [(TEXT, b"")], 0),
    "125 bytes": ([(0x81, b"a" * 125)], [(TEXT, b"a" * 125)], 0),
    "126 bytes": ([(0x81, b"a" * 126)], [(TEXT, b"a" * 126)], 0),
    "127 bytes": ([(0x81, b"a" * 127)], [(TEXT, b"a" * 127)], 0),
    "256 bytes": ([(0x81, b"a" * 256)], [(TEXT, b"a" * 256)], 0),
    "binary": ([(0x82, b"\x00\xff")], [(BINARY, b"\x00\xff")], 0),
    "several": ([(0x81, b"a"), (0x81, b"b"), (0x81, b"c")], [(TEXT, b"a"), (TEXT, b"b"), (TEXT, b"c")], 0),
    "fragments": ([(0x01, b"ab"), (0x00, b"c"), (0x80, b"d")], [(TEXT, b"abcd")], 0),
    "empty fragments": ([(0x01, b""), (0x00, b""), (0x80, b"")], [(TEXT, b"")], 0),
    "binary fragments": ([(0x02, b"ab"), (0x80, b"c")], [(BINARY, b"abc")], 0),
    "ping inside": ([(0x01, b"a"), (0x89, b"p"), (0x80, b"b")], [(PING, b"p"), (TEXT, b"ab")], 0),
    "pong": ([(0x8A, b"")], [(PONG, b"")], 0),
    "ping of 125": ([(0x89, b"p" * 125)], [(PING, b"p" * 125)], 0),
    "close": ([(0x88, b"\x03\xe8bye")], [(CLOSE, b"\x03\xe8bye")], 0),
    "frames after close": ([(0x88, b""), (0x81, b"late")], [(CLOSE, b"")], 0),
    "close inside": ([(0x01, b"a"), (0x88, b"")], [(CLOSE, b"")], 0),
    "text after message": ([(0x01, b"a"), (0x80, b"b"), (0x81, b"c")], [(TEXT, b"ab"), (TEXT, b"c")], 0),
    "RSV1": ([(0x81, b"a"), (0xC1, b"")], [(TEXT, b"a")], PROTOCOL_ERROR),
    "RSV2": ([(0xA1, b"")], [], PROTOCOL_ERROR),
    "RSV3 on a ping": ([(0x99, b"")], [], PROTOCOL_ERROR),
    "opcode 3": ([(0x83, b"")], [], PROTOCOL_ERROR),
    "opcode 7": ([(0x87, b"a")], [], PROTOCOL_ERROR),
    "opcode 11": ([(0x8B, b"a")], [], PROTOCOL_ERROR),
    "opcode 15": ([(0x8F, b"")], [], PROTOCOL_ERROR),
    "cut ping": ([(0x09, b"a")], [], PROTOCOL_ERROR),
    "cut close": ([(0x08, b"")], [], PROTOCOL_ERROR),
    "ping of 126": ([(0x89, b"p" * 126)], [], PROTOCOL_ERROR),
    "continuation alone": ([(0x80, b"a")], [], PROTOCOL_ERROR),
    "first continuation": ([(0x00, b"a")], [], PROTOCOL_ERROR),
    "continuation after end": ([(0x01, b"a"), (0x80, b""), (0x80, b"b")], [(TEXT, b"a")], PROTOCOL_ERROR),
    "text inside": ([(0x01, b"a"), (0x81, b"b")], [], PROTOCOL_ERROR),
    "binary inside": ([(0x01, b"a"), (0x02, b"b")], [], PROTOCOL_ERROR),
}


@pytest.mark.parametrize("masked", [False, True], ids=["client", "server"])
@pytest.mark.parametrize("name", CASES)
def test_frames_at_every_split_point(name: str, masked: bool) -> None:
    frames, messages, code = CASES[name]
    wire = b"".join(raw(first, payload, masked=masked) for first, payload in frames)
    expected = messages, code
    assert read(wire, [], masked=masked) == expected
    assert read(wire, list(range(1, len(wire))), masked=masked) == expected
    for split in range(1, len(wire)):
        assert read(wire, [split], masked=masked) == expected, split


def test_a_frame_with_the_wrong_mask_is_refused() -> None:
    assert read(raw(0x81, b"a", masked=True), []) == ([], PROTOCOL_ERROR)
    assert read(raw(0x81, b"a"), [], masked=True) == ([], PROTOCOL_ERROR)
    assert read(raw(0x81, b"a" * 200, masked=True), [1, 2, 3]) == ([], PROTOCOL_ERROR)


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (raw(0x81, size=LIMIT + 1), TOO_BIG),
        (raw(0x82, size=1 << 62), TOO_BIG),
        (raw(0x81, size=1 << 63), PROTOCOL_ERROR),
        (raw(0x82, size=(1 << 64) - 1), PROTOCOL_ERROR),
        (raw(0x89, size=1 << 20), PROTOCOL_ERROR),
        (raw(0x01, b"a" * LIMIT) + raw(0x80, size=1), TOO_BIG),
    ],
)
def test_a_frame_is_refused_by_its_head_alone(head: bytes, code: int) -> None:
    assert read(head, []) == ([], code)
    assert read(head, [len(head) - 1]) == ([], code)


def test_a_message_of_the_limit_is_read() -> None:
    assert read(raw(0x81, b"a" * LIMIT), []) == ([(TEXT, b"a" * LIMIT)], 0)
    cut = raw(0x01, b"a" * (LIMIT - 1)) + raw(0x80, b"b")
    assert read(cut, [7]) == ([(TEXT, b"a" * (LIMIT - 1) + b"b")], 0)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, MASK_BYTES + 3, 3 * MASK_BYTES])
def test_an_encoded_frame_is_read_again(size: int, masked: bool) -> None:
    payload = random.Random(size).randbytes(size)
    wire = encode_frame(payload, BINARY, masked=masked)
    reader = FrameReader(1 << 20, masked=masked)
    assert reader.feed(wire[:1]) == []
    assert reader.feed(wire[1:]) == [(BINARY, payload)]
    assert reader.pending == 0


def test_a_mask_is_the_one_of_the_standard() -> None:
    assert mask(b"Hello", bytes.fromhex("37fa213d")) == bytes.fromhex("7f9f4d5158")  # RFC 6455, 5.7
    payload, key = random.Random(1).randbytes(2 * MASK_BYTES + 5), b"\x01\x00\xfe\x80"
    assert mask(payload, key) == bytes(byte ^ key[n % 4] for n, byte in enumerate(payload))
    assert encode_frame(b"Hello", masked=True)[2:6] != encode_frame(b"Hello", masked=True)[2:6]


def test_a_large_message_in_small_reads_is_copied_once() -> None:
    """Joining at each read would copy 64 MiB here, and endless empty fragments would be kept."""
    size, reader = 2 << 20, FrameReader(4 << 20, masked=False)
    wire = raw(0x81, bytes(size))
    tracemalloc.start()
    try:
        for start in range(0, len(wire) - 1, 1 << 14):
            assert reader.feed(wire[start : min(start + (1 << 14), len(wire) - 1)]) == []
        assert reader.pending == len(wire) - 1
        assert tracemalloc.get_traced_memory()[1] < 1.5 * size
        assert reader.feed(wire[-1:]) == [(TEXT, bytes(size))]
        tracemalloc.reset_peak()
        reader.feed(raw(0x01))
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(2_000):
            reader.feed(raw(CONTINUATION))
        assert tracemalloc.get_traced_memory()[0] - before < 1_000
    finally:
        tracemalloc.stop()


def test_close_frames() -> None:
    assert decode_close(b"") == (NO_STATUS, "")
    assert decode_close(encode_close(1008, "why")) == (1008, "why")
    code, reason = decode_close(encode_close(4000, "é" * 100))
    assert (code, reason) == (4000, "é" * 61)
    assert len(encode_close(4000, "é" * 100)) <= 125
    for code in (0, 999, 1004, 1005, 1006, 1015, 2999, 5000):
        with pytest.raises(FrameError, match="status code") as caught:
            decode_close(encode_close(code))
        assert caught.value.code == PROTOCOL_ERROR
    with pytest.raises(FrameError, match="status code"):
        decode_close(b"\x03")
    with pytest.raises(FrameError, match="UTF-8") as caught:
        decode_close(encode_close(1000) + b"\xff")
    assert caught.value.code == INVALID_DATA


def test_a_handshake_of_both_sides() -> None:
    assert accept_of(KEY) == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    key = new_key()
    assert key != new_key()
    answer = lowered(accept_upgrade(b"GET", lowered(upgrade_headers(key))))
    assert fault_of_upgrade(answer, key) == ""
    assert fault_of_upgrade([(n, v.upper() if n == b"upgrade" else v) for n, v in answer], key) == ""
    assert fault_of_upgrade([*answer, (b"connection", b"keep-alive")], key) == ""


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({b"upgrade": b"h2c"}, "another protocol"),
        ({b"upgrade": None}, "another protocol"),
        ({b"connection": b"close"}, "another protocol"),
        ({b"sec-websocket-accept": accept_of(new_key())}, "does not answer the key"),
        ({b"sec-websocket-accept": None}, "does not answer the key"),
        ({b"sec-websocket-extensions": b"permessage-deflate"}, "was not offered"),
        ({b"sec-websocket-protocol": b"realtime"}, "was not offered"),
    ],
)
def test_an_answer_that_opens_no_socket(changed: dict[bytes, bytes | None], fault: str) -> None:
    answer = {**dict(lowered(accept_upgrade(b"GET", lowered(upgrade_headers(KEY))))), **changed}
    assert fault in fault_of_upgrade([(name, value) for name, value in answer.items() if value is not None], KEY)


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({b"upgrade": b"h2c"}, 426),
        ({b"connection": b"keep-alive"}, 426),
        ({b"sec-websocket-version": b"8"}, 426),
        ({b"sec-websocket-key": b"short"}, 400),
        ({b"sec-websocket-key": None}, 400),
        ({b"sec-websocket-key": b"!" * 24}, 400),
    ],
)
def test_a_request_that_opens_no_socket(changed: dict[bytes, bytes | None], status: int) -> None:
    asked = {**dict(lowered(upgrade_headers(KEY))), **changed}
    with pytest.raises(HandshakeError) as caught:
        accept_upgrade(b"GET", [(name, value) for name, value in asked.items() if value is not None])
    assert caught.value.status == status
    assert (status == 426) is bool(caught.value.headers)
    with pytest.raises(HandshakeError) as caught:
        accept_upgrade(b"POST", lowered(upgrade_headers(KEY)))
    assert caught.value.status == 405
