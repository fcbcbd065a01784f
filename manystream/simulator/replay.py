"""Recorded exchanges as answers: which exchange a request gets, and the program that sends it.

A recording is a file of JSON lines, one exchange each, as `engine.record` writes them: request, response head, chunks
of the body with the seconds since the request began, and how the exchange ended. A request gets the exchange of an
equal request (last part of the path, and body). Several equal requests get their exchanges in turn, in recorded order.
A request that was not recorded gets the next exchange of its path that was not sent yet, else an error.

This module knows no sockets and no dialect: recorded bytes are sent unchanged.
"""

from __future__ import annotations

import base64
import os
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..http_server import LAST_CHUNK, HTTPRequest, chunk, http_head
from .json_text import JSON, JSONObject, dumps_sorted, loads, loads_object, mapping, string
from .program import Ending, Program

VERSIONS = (1, 2)
"""The forms of a recording's lines. The second one has the call, too, and may have sizes in place of content."""

ENDINGS = {"whole": Ending.KEEP, "broken": Ending.CLOSE, "left": Ending.STALL}
"""How the recorded exchange ended → what follows its last byte. After `left` (the client closed first) the recording
does not show what the server would have sent, so the stream stalls."""


class ReplayError(ValueError):
    """A recording that cannot be read. The message names the file and the line."""


@dataclass(slots=True, frozen=True)
class Exchange:
    """One recorded exchange.

    endpoint: the last part of the path.
    body: the request's body, in a form that does not depend on JSON formatting.
    status: the HTTP status; 0 if no response came.
    head_at: seconds from the request to the response head.
    chunks: seconds since the request, and bytes.
    ended: seconds from the request to the end.
    ending: what follows the last byte.
    """

    endpoint: str
    body: bytes
    status: int
    headers: tuple[tuple[str, str], ...]
    head_at: float
    chunks: tuple[tuple[float, bytes], ...]
    ended: float
    ending: Ending


class Replay:
    """A recording and what was sent of it. pace: speed relative to the recording; 0 leaves out all pauses."""

    def __init__(self, exchanges: Sequence[Exchange], pace: float = 1.0) -> None:
        self._pace = pace
        self._same: dict[tuple[str, bytes], deque[Exchange]] = {}
        self._unplayed: dict[str, deque[Exchange]] = {}
        for exchange in exchanges:
            self._same.setdefault((exchange.endpoint, exchange.body), deque()).append(exchange)
            self._unplayed.setdefault(exchange.endpoint, deque()).append(exchange)
        self._played: set[int] = set()

    def answer(self, request: HTTPRequest) -> Program | None:
        """The program for a request; None if no exchange fits."""
        exchange = self._choose(_endpoint(request.target), _comparable(request.body))
        if exchange is None:
            return None
        self._played.add(id(exchange))
        return _program(exchange, self._pace, keep=request.keep_alive)

    def _choose(self, endpoint: str, body: bytes) -> Exchange | None:
        same = self._same.get((endpoint, body))
        if same:
            same.rotate(-1)
            return same[-1]
        unplayed = self._unplayed.get(endpoint, deque())
        while unplayed:
            exchange = unplayed.popleft()
            if id(exchange) not in self._played:
                return exchange
        return None


def read_replay(path: str, pace: float = 1.0) -> Replay:
    """Read a recording from a file. Raises `ReplayError`."""
    if not 0 <= pace < float("inf"):
        raise ReplayError("pace must be 0 or more")
    if os.path.exists(path) and not os.path.isfile(path):
        raise ReplayError(f"{path}: it is no regular file")  # a named pipe would be waited for
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise ReplayError(f"{path}: {error.strerror}") from None
    exchanges: list[Exchange] = []
    for number, line in enumerate(lines, 1):
        try:
            members = loads_object(line)
            if members is None or members.get("end") != "unsent":  # a call that was never sent
                exchanges.append(_exchange(members))
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise ReplayError(f"{path}, line {number} is not a recorded exchange: {error}") from None
    if not exchanges:
        raise ReplayError(f"{path} holds no exchange")
    return Replay(exchanges, pace)


def _exchange(line: JSONObject | None) -> Exchange:
    if line is None:
        raise ValueError("it is not a JSON object")
    if line.get("version") not in VERSIONS:
        raise ValueError(f"its version is not {' or '.join(map(str, VERSIONS))}")
    asked, answered = mapping(line, "request"), mapping(line, "response")
    if "body" in asked and asked["body"] is None:
        raise ValueError("it was recorded without content, so that there is no answer to send")
    return Exchange(
        endpoint=_endpoint(string(asked, "target")),
        body=_comparable(_bytes(asked["body"])),
        status=_integer(answered.get("status", 0)),
        headers=tuple(_pairs(answered.get("headers", []))),
        head_at=_seconds(answered.get("at", 0.0)),
        chunks=tuple(_chunks(line["chunks"])),
        ended=_seconds(line["ended"]),
        ending=ENDINGS[string(line, "end")],
    )


def _program(exchange: Exchange, pace: float, *, keep: bool) -> Program:
    """The exchange as a chain of programs, one for each moment at which bytes were received."""
    ending = exchange.ending if keep or exchange.ending is not Ending.KEEP else Ending.CLOSE
    moments: list[tuple[float, bytes]] = []
    if exchange.status:
        closing = [] if keep else [("connection", "close")]
        head = http_head(exchange.status, [*exchange.headers, ("transfer-encoding", "chunked"), *closing])
        moments = [(exchange.head_at, head), *((at, chunk(data)) for at, data in exchange.chunks if data)]
    if exchange.ending is Ending.KEEP:
        at, data = moments.pop()  # HTTP framing ended with the last chunk; a later end was not waited for
        moments.append((at, data + LAST_CHUNK))
    else:
        moments.append((exchange.ended, b""))
    if not pace:
        return Program([data for _, data in moments], events=len(exchange.chunks), ending=ending)
    first: Program | None = None
    times = [0.0, *(at for at, _ in moments)]
    for place in reversed(range(len(moments))):
        delay = max(0.0, times[place + 1] - times[place]) / pace
        first = Program([moments[place][1]], events=1, delay=delay, ending=ending, following=first)
    assert first is not None
    return first


def _endpoint(target: str) -> str:
    """The last part of a path. It names the operation in every dialect."""
    return target.partition("?")[0].rpartition("/")[2]


def _comparable(body: bytes) -> bytes:
    """A body in a form that does not depend on JSON formatting."""
    try:
        return dumps_sorted(loads(body))
    except (ValueError, TypeError):  # not JSON, or nested too deeply to serialise
        return body


def _bytes(value: JSON) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):
        return base64.b64decode(string(value, "base64"), validate=True)
    raise TypeError("bytes are neither text nor base64")


def _integer(value: JSON) -> int:
    if type(value) is not int:
        raise TypeError("the status is not a whole number")
    return value


def _seconds(value: JSON) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError("a time is not a number")
    return float(value)


def _items(value: JSON) -> Iterable[tuple[JSON, JSON]]:
    if not isinstance(value, list):
        raise TypeError("a list is missing")
    for item in value:
        if not isinstance(item, list) or len(item) != 2:
            raise TypeError("an item of a list is not a pair")
        yield item[0], item[1]


def _pairs(value: JSON) -> Iterable[tuple[str, str]]:
    for name, text in _items(value):
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError("a header is not text")
        if not (name + text).isprintable():
            raise ValueError(f"the header {name!r} holds a control character")
        yield name, text


def _chunks(value: JSON) -> Iterable[tuple[float, bytes]]:
    for at, data in _items(value):
        yield _seconds(at), _bytes(data)
