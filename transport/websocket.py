"""The WebSocket protocol (RFC 6455) without I/O, for clients and servers: the handshake's headers, frames and messages.

No extension and no subprotocol is offered or accepted.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from struct import Struct
from typing import Final

from .exchange import RawHeaders
from .pieces import keep

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
"""The opcodes (RFC 6455, 5.2)."""

NORMAL, GOING_AWAY, PROTOCOL_ERROR, NO_STATUS, INVALID_DATA, POLICY, TOO_BIG, INTERNAL = (
    1000, 1001, 1002, 1005, 1007, 1008, 1009, 1011,
)  # fmt: skip
"""Status codes of a close frame (RFC 6455, 7.4.1). `NO_STATUS` stands for a frame without one."""

VERSION: Final = b"13"
MAX_CONTROL_BYTES: Final = 125
"""The maximum payload of a close, ping or pong frame (RFC 6455, 5.5)."""
MASK_BYTES: Final = 65_536
"""A payload is masked in pieces of this size, so that no integer has the size of a large message."""

WHOLE_TEXT: Final = 0x81
"""The beginning of a frame that is a whole text message."""

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_FIN = 0x80
_KNOWN = frozenset({CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG})
_U16, _U64 = Struct("!H"), Struct("!Q")
_KEY_BYTES = 16


class HandshakeError(ValueError):
    """A request that opens no WebSocket. `status`: of the response that refuses it; `headers`: those it must have."""

    def __init__(self, status: int, message: str, headers: RawHeaders = ()) -> None:
        super().__init__(message)
        self.status: int = status
        self.headers: RawHeaders = headers


class FrameError(ValueError):
    """The peer has violated the protocol, or its message is too large. The message quotes nothing that it sent.

    code: the status code with which to close the connection.
    messages: the complete messages that the same `feed` call read before the error. Process them as usual.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code: int = code
        self.messages: list[tuple[int, bytes]] = []


# --- the handshake ---


def new_key() -> bytes:
    """Return a random value for `Sec-WebSocket-Key`."""
    return base64.b64encode(os.urandom(_KEY_BYTES))


def accept_of(key: bytes) -> bytes:
    """Return the value of `Sec-WebSocket-Accept` that answers a key."""
    return base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())


def upgrade_headers(key: bytes) -> RawHeaders:
    """Return the headers that a client adds to a GET request to open a WebSocket."""
    return (
        (b"Upgrade", b"websocket"),
        (b"Connection", b"Upgrade"),
        (b"Sec-WebSocket-Version", VERSION),
        (b"Sec-WebSocket-Key", key),
    )


def fault_of_upgrade(headers: RawHeaders, key: bytes) -> str:
    """Return why the headers of a 101 response open no WebSocket; empty if they open one. Names are in lower case."""
    if b"websocket" not in _tokens(headers, b"upgrade") or b"upgrade" not in _tokens(headers, b"connection"):
        return "it switches to another protocol than WebSocket"
    if _values(headers, b"sec-websocket-accept") != [accept_of(key)]:
        return "its Sec-WebSocket-Accept does not answer the key"
    if any(_values(headers, b"sec-websocket-extensions")) or any(_values(headers, b"sec-websocket-protocol")):
        return "it has an extension or a subprotocol that was not offered"
    return ""


def accept_upgrade(method: bytes, headers: RawHeaders) -> RawHeaders:
    """Return the headers of the 101 response to a request that opens a WebSocket. Names are in lower case.

    Raises `HandshakeError` with the status of the response that refuses the request.
    """
    if b"websocket" not in _tokens(headers, b"upgrade") or b"upgrade" not in _tokens(headers, b"connection"):
        raise HandshakeError(426, "the request does not ask for a WebSocket", ((b"Upgrade", b"websocket"),))
    if method != b"GET":
        raise HandshakeError(405, "a WebSocket is opened with GET", ((b"Allow", b"GET"),))
    if _values(headers, b"sec-websocket-version") != [VERSION]:
        raise HandshakeError(426, "only version 13 of WebSocket is spoken", ((b"Sec-WebSocket-Version", VERSION),))
    keys = _values(headers, b"sec-websocket-key")
    try:
        sizes = [len(base64.b64decode(key, validate=True)) for key in keys]
    except binascii.Error:
        sizes = []
    if sizes != [_KEY_BYTES]:
        raise HandshakeError(400, "Sec-WebSocket-Key must be 16 bytes in base64")
    return (
        (b"Upgrade", b"websocket"),
        (b"Connection", b"Upgrade"),
        (b"Sec-WebSocket-Accept", accept_of(keys[0])),
    )


def _values(headers: RawHeaders, name: bytes) -> list[bytes]:
    return [value.strip() for field, value in headers if field == name]


def _tokens(headers: RawHeaders, name: bytes) -> set[bytes]:
    return {token.strip().lower() for value in _values(headers, name) for token in value.split(b",")}


# --- frames ---


def encode_frame(payload: bytes, opcode: int = TEXT, *, masked: bool) -> bytes:
    """Return a message as one frame. `masked`: a client must mask its frames, and a server must not."""
    size, bit = len(payload), _FIN if masked else 0
    if size < 126:
        head = bytes((_FIN | opcode, bit | size))
    elif size < 65_536:
        head = bytes((_FIN | opcode, bit | 126)) + _U16.pack(size)
    else:
        head = bytes((_FIN | opcode, bit | 127)) + _U64.pack(size)
    if not masked:
        return head + payload
    key = os.urandom(4)
    return b"".join((head, key, mask(payload, key)))


def mask(payload: bytes, key: bytes) -> bytes:
    """Mask a payload with a key of 4 bytes, or unmask it (RFC 6455, 5.3). It takes about 1 µs per KiB."""
    if len(payload) <= MASK_BYTES:
        return _xor(payload, key)
    view = memoryview(payload)
    return b"".join([_xor(view[start : start + MASK_BYTES], key) for start in range(0, len(view), MASK_BYTES)])


def _xor(data: bytes | memoryview, key: bytes) -> bytes:
    size = len(data)
    pad = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(pad, "little")).to_bytes(size, "little")


def encode_close(code: int, reason: str = "") -> bytes:
    """Return the payload of a close frame. A reason that is too long is cut."""
    return _U16.pack(code) + reason.encode()[: MAX_CONTROL_BYTES - 2].decode(errors="ignore").encode()


def decode_close(payload: bytes) -> tuple[int, str]:
    """Return the status code and the reason of a close frame. Raises `FrameError`."""
    if not payload:
        return NO_STATUS, ""
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or not (1000 <= code <= 1014 or 3000 <= code < 5000) or code in (1004, NO_STATUS, 1006):
        raise FrameError(PROTOCOL_ERROR, "a close frame with a status code that may not be sent")
    try:
        return code, payload[2:].decode()
    except UnicodeDecodeError:
        raise FrameError(INVALID_DATA, "a close frame whose reason is not UTF-8") from None


class FrameReader:
    """An incremental reader of one side's frames, cut anywhere. It joins the fragments of a message.

    It does not check that a text is UTF-8: the JSON parser of the reader's user does. It reads nothing after a close
    frame.

    closed: a close frame was read.
    pending: the number of bytes that are held of an incomplete message.
    """

    __slots__ = ("_held", "_held_bytes", "_limit", "_mask_bit", "_message", "_needed", "_opcode", "closed")

    def __init__(self, limit: int, *, masked: bool) -> None:
        """Create it. limit: the maximum size of a message, in bytes. masked: the peer is a client."""
        self._limit = limit
        self._mask_bit = _FIN if masked else 0
        self._held: list[bytes] | None = None  # the beginning of a frame
        self._held_bytes = 0
        self._needed = 0  # bytes that the frame in `_held` has at least
        self._message: bytearray | None = None  # the fragments of a message that has not ended
        self._opcode = 0  # of that message
        self.closed: bool = False

    @property
    def pending(self) -> int:
        return self._held_bytes + len(self._message or b"")

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Read the next bytes. Returns the messages and control frames that are complete: opcode and payload.

        Raises `FrameError`. After that, do not call `feed` again.
        """
        if self._held is not None:
            keep(self._held, data)
            self._held_bytes += len(data)
            if self._held_bytes < self._needed:
                return []
            data = b"".join(self._held)
            self._held = None
            self._held_bytes = 0
        messages: list[tuple[int, bytes]] = []
        try:
            position = self._read(data, messages)
        except FrameError as error:
            error.messages = messages
            raise
        if position < len(data) and not self.closed:
            self._held = [data[position:] if position else data]
            self._held_bytes = len(data) - position
        return messages

    def _read(self, data: bytes, messages: list[tuple[int, bytes]]) -> int:
        """Read the complete frames. Returns the offset of the rest, and sets `_needed` for it."""
        position, end, mask_bit = 0, len(data), self._mask_bit
        self._needed = 2
        while end - position >= 2 and not self.closed:
            first, size = data[position], data[position + 1] ^ mask_bit
            start = position + 2
            if size >= 126:
                start = position + (4 if size == 126 else 10)
                if size > 127:
                    raise FrameError(
                        PROTOCOL_ERROR, "a frame with a mask" if not mask_bit else "a frame without a mask"
                    )
                if start > end:
                    self._needed = start - position
                    break
                size = int.from_bytes(data[position + 2 : start], "big")
            if first != WHOLE_TEXT or self._message is not None or size > self._limit:
                self._check(first, size)
            if mask_bit:
                start += 4
            stop = start + size
            if stop > end:
                self._needed = stop - position
                break
            payload = data[start:stop]
            if mask_bit:
                payload = mask(payload, data[start - 4 : start])
            if first == WHOLE_TEXT:
                messages.append((TEXT, payload))
            else:
                self._take(first, payload, messages)
            position = stop
        return position

    def _check(self, first: int, size: int) -> None:
        """Check the head of a frame. Raises `FrameError`."""
        opcode, message = first & 0x0F, self._message
        fault, code = "", PROTOCOL_ERROR
        if first & 0x70:
            fault = "a reserved bit, although no extension was agreed on"
        elif opcode not in _KNOWN:
            fault = f"a frame of the unknown kind {opcode}"
        elif size >> 63:
            fault = "a length with the highest bit set"
        elif opcode >= CLOSE and (not first & _FIN or size > MAX_CONTROL_BYTES):
            fault = "a control frame that is cut or larger than 125 bytes"
        elif opcode == CONTINUATION and message is None:
            fault = "a continuation of no message"
        elif opcode in (TEXT, BINARY) and message is not None:
            fault = "a message within another one"
        elif opcode < CLOSE and size + len(message or b"") > self._limit:
            fault, code = f"a message of more than {self._limit} bytes", TOO_BIG
        if fault:
            raise FrameError(code, fault)

    def _take(self, first: int, payload: bytes, messages: list[tuple[int, bytes]]) -> None:
        """Take a frame that is no whole text."""
        opcode = first & 0x0F
        if opcode >= CLOSE or (first & _FIN and self._message is None):
            self.closed = opcode == CLOSE
            messages.append((opcode, payload))
            return
        if self._message is None:
            self._message, self._opcode = bytearray(), opcode
        self._message += payload
        if first & _FIN:
            messages.append((self._opcode, bytes(self._message)))
            self._message = None
