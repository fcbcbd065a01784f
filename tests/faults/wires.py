"""One wire for each fault that a single response can show: the same bytes for every client that is compared.

Only data: what the server writes after the first request, and how it closes the connection.
"""

from tests.faults.exchange import EVENTS, ONE, WHOLE, End, Wire, in_chunks, ok, raw
from tests.support.peers import STREAM_HEAD, chat_chunk, chunked, error_body, stream_of

_PIECE = chunked(ONE, end=False)
_GOOD = Wire(stream_of(WHOLE))
_PAGE = "<html><body>Please log in</body></html>"

WIRES: dict[int, Wire] = {
    4: Wire(b"", End.FIN),
    7: Wire(_GOOD.data + STREAM_HEAD.encode() + chunked(WHOLE.replace("one", "POISON"))),
    9: ok(f"Connection: close\r\nContent-Length: {len(WHOLE)}\r\n", WHOLE, End.FIN),
    10: raw(f"HTTP/1.0 200 OK\r\n{EVENTS}", WHOLE, End.FIN),
    15: ok(f"Content-Length: {len(ONE) + 10}\r\n", ONE, End.FIN),
    16: ok(f"Content-Length: {len(WHOLE)}\r\n", WHOLE + "data: stray\n\n"),
    17: in_chunks(_PIECE, End.FIN),
    18: in_chunks(_PIECE + b"0\r\n", End.FIN),
    19: in_chunks(_PIECE + b"0x5\r\nhello\r\n"),
    20: in_chunks(_PIECE + b"FFFFFFFFFFFFFFFFF\r\n"),
    21: in_chunks(_PIECE + b"5;" + b"x" * 100_000 + b"\r\nhello\r\n0\r\n\r\n"),
    22: in_chunks(chunked(WHOLE, end=False) + b"0\r\nContent-Length: 5\r\n\r\n"),
    23: ok("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", chunked(WHOLE)),
    24: ok("Content-Length: 5\r\nContent-Length: 6\r\n", ONE),
    25: ok("Transfer-Encoding: gzip\r\n", ONE),
    26: ok("", ONE, End.FIN),
    27: Wire(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + _GOOD.data),
    28: Wire(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
    29: raw("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n", "hello"),
    31: Wire(b"SSH-2.0-OpenSSH_9.2\r\n"),
    32: ok(f"X-A: a\0b\r\nContent-Length: {len(WHOLE)}\r\n", WHOLE),
    33: ok("X-A: 1234567890\r\n" * 20_000 + f"Content-Length: {len(WHOLE)}\r\n", WHOLE),
    34: Wire(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n", End.FIN),
    35: ok("Content-Encoding: gzip\r\nContent-Length: 7\r\n", "garbage"),
    36: ok(f"Content-Encoding: zebra\r\nContent-Length: {len(WHOLE)}\r\n", WHOLE),
    45: raw("HTTP/1.1 307 Temporary Redirect\r\nLocation: /v1/chat/elsewhere\r\nContent-Length: 0\r\n"),
    64: in_chunks(_PIECE, End.RESET),
    65: Wire(_GOOD.data, End.RESET),
    66: in_chunks(chunked(ONE)),
    67: in_chunks(_PIECE),
    69: Wire(b""),
    74: in_chunks(b"", End.FIN),
    75: raw(f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(_PAGE)}\r\n", _PAGE),
    76: in_chunks(chunked(ONE, f"data: {error_body('overloaded')}\n\n")),
    77: in_chunks(chunked(ONE, 'data: {"choices": [\n\n', WHOLE.removeprefix(ONE))),
    78: in_chunks(chunked(chat_chunk("TEXT").encode().replace(b"TEXT", b"caf\xe9"), WHOLE.removeprefix(ONE))),
}
"""Row → wire. The other rows need more than one response."""

CUT = frozenset({15, 17, 18, 26, 64, 66})
"""Rows whose response is incomplete: a client that reports success is wrong."""
