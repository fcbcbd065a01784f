"""A loopback server that responds to request n with recorded response n, cut as planned.

The framing depends on the cut: the whole body and single bytes are sent with Content-Length, random pieces as one
chunk each.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from tests.support.peers import Line, Script, chunked

from .cuts import Cut

WHICH = "x-recorded-answer"
"""The request header with the number of the response to send."""

_WHICH = re.compile(rb"\r\n" + WHICH.encode() + rb": (\d+)\r\n", re.IGNORECASE)


@dataclass(slots=True, frozen=True)
class Answer:
    """A response to send, and its cut."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    cut: Cut


def recorded(answers: Sequence[Answer], which: re.Pattern[bytes] = _WHICH) -> Script:
    """Serve the given responses. which: finds the number of a response in the bytes of a request."""

    async def script(line: Line) -> None:
        while request := await line.request():
            wanted = which.search(request)
            assert wanted is not None, request
            await _send(line, answers[int(wanted[1])])

    return script


async def _send(line: Line, answer: Answer) -> None:
    is_chunked = bool(answer.cut.sizes)
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {answer.status} {phrase}", *(f"{name}: {value}" for name, value in answer.headers)]
    lines.append("Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(answer.body)}")
    await line.send("\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n")
    for piece in answer.cut.pieces(answer.body):
        await line.send(chunked(piece, end=False) if is_chunked else piece)
    if is_chunked:
        await line.send(chunked())
