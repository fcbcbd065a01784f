"""A loopback server that responds to request n with recorded response n, cut as planned.

The framing depends on the cut: the whole body and single bytes are sent with Content-Length, random pieces as one
chunk each.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

import trio

from .cuts import Cut

WHICH = "x-recorded-answer"
"""The request header with the number of the response to send."""

_WHICH = re.compile(rb"\r\n" + WHICH.encode() + rb": (\d+)\r\n", re.IGNORECASE)
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)


@dataclass(slots=True, frozen=True)
class Answer:
    """A response to send, and its cut."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    cut: Cut


class Server:
    """A server of the given responses."""

    def __init__(self, answers: Sequence[Answer], which: re.Pattern[bytes] = _WHICH) -> None:
        """Create it. which: finds the number of a response in the bytes of a request."""
        self._answers = answers
        self._which = which
        self.port = 0

    async def run(self, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. `task_status` receives the port."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=256)
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started(self.port)
        await trio.serve_listeners(self._serve, listeners)

    async def _serve(self, stream: trio.SocketStream) -> None:
        received = b""
        try:
            while True:
                while b"\r\n\r\n" not in received:
                    data = await stream.receive_some(65536)
                    if not data:
                        return
                    received += data
                head, _, rest = received.partition(b"\r\n\r\n")
                head += b"\r\n"
                length = _LENGTH.search(head)
                assert length is not None, head
                while len(rest) < int(length[1]):
                    rest += await stream.receive_some(65536)
                wanted = self._which.search(head + rest)
                assert wanted is not None, head
                received = rest[int(length[1]) :]
                await _send(stream, self._answers[int(wanted[1])])
        except (trio.BrokenResourceError, ConnectionError):
            pass  # the client has closed the connection, as it does after a response that it refuses
        finally:
            await trio.aclose_forcefully(stream)


async def _send(stream: trio.SocketStream, answer: Answer) -> None:
    chunked = bool(answer.cut.sizes)
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {answer.status} {phrase}", *(f"{name}: {value}" for name, value in answer.headers)]
    lines.append("Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(answer.body)}")
    await stream.send_all("\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n")
    for piece in answer.cut.pieces(answer.body):
        await stream.send_all(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
    if chunked:
        await stream.send_all(b"0\r\n\r\n")
