"""Known equivalents of `transport`: see `row.py`."""

from __future__ import annotations

from tests.mutants.equivalents.row import Equivalent

_IN_PROGRESS = (
    "_IN_PROGRESS = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN, "
    'getattr(errno, "WSAEWOULDBLOCK", -1)})'
)

ROWS: tuple[Equivalent, ...] = (
    Equivalent(
        "transport/tls_socket.py",
        "TLSSocket.recv",
        "if self._incoming.pending and data:",
        "and",
        "or",
        "with data and nothing pending no record more is read; at the end nothing is read, whatever is pending",
    ),
    *(
        Equivalent(
            "transport/liveness.py",
            "PEEKED_BYTES",
            "PEEKED_BYTES = 16 * 1024",
            before,
            after,
            "any byte that is read ends the connection, however many are",
        )
        for before, after in (("16", "17"), ("*", "+"), ("1024", "1025"))
    ),
    *(
        Equivalent("transport/dial.py", "_IN_PROGRESS", _IN_PROGRESS, before, after, reason)
        for before, after, reason in (
            ("errno.EWOULDBLOCK", "errno.EAGAIN", "they are one number on POSIX; on Windows the fourth entry is it"),
            (
                "errno.EAGAIN",
                "errno.EINPROGRESS",
                "EWOULDBLOCK is it on POSIX; on Windows no connect gives it",
            ),
            ('"WSAEWOULDBLOCK"', "'WSAEWOULDBLOCKx'", "on Windows errno.EWOULDBLOCK is the same number"),
            ("1", "2", "the value where the error does not exist: no error number is negative"),
        )
    ),
    *(
        Equivalent(
            f"transport/{module}.py",
            scope,
            text,
            before,
            after,
            "a shortcut for the most common bytes: without it, the general case returns the same",
        )
        for module, scope, text, before, after in (
            ("sse", "SSEParser.feed", "if len(payload) == len(rest):", "==", "!="),
            ("sse", "SSEParser.feed", 'if chunk.endswith(b"\\n\\n") and _CR not in chunk:', 'b"\\n\\n"', "b'\\n\\nx'"),
            (
                "chunked",
                "ChunkDecoder.feed",
                'if size and start + size + 2 == len(data) and data.endswith(b"\\r\\n"):',
                'b"\\r\\n"',
                "b'\\r\\nx'",
            ),
        )
    ),
    Equivalent(
        "transport/chunked.py",
        "ChunkDecoder.feed",
        'start = data.find(b"\\n") + 1',
        "+",
        "-",
        "a shortcut for one whole chunk: without it, the general case returns the same",
    ),
    *(
        Equivalent(
            "transport/http1.py",
            "Connection.__init__",
            'self._method = b""',
            before,
            after,
            "an exchange sets it before the head of its response is read",
        )
        for before, after in (('self._method = b""', "pass"), ('b""', "b'x'"))
    ),
)
