"""The simulator without sockets: requests are given to its service, and responses are read from programs."""

from __future__ import annotations

import json
from collections.abc import Mapping

from manystream.http_server import HTTPRequest
from manystream.simulator.knobs import HEADER, combine
from manystream.simulator.knobs import Knobs as Knobs
from manystream.simulator.program import Program
from manystream.simulator.service import Service, ServiceSettings

from .raw_client import HEADERS

WALL = 1_700_000_000.0
"""The Unix time of all tests, when the clock shows 0."""


class World:
    """A service and its clock."""

    def __init__(self, settings: ServiceSettings | None = None, *, directive: str = "") -> None:
        self.now = 0.0
        self.service = Service(
            settings or ServiceSettings(knobs=combine(Knobs(), directive)), lambda: self.now, lambda: WALL + self.now
        )

    def ask(
        self,
        path: str,
        body: object = None,
        *,
        directive: str = "",
        method: str = "POST",
        headers: Mapping[str, str] = HEADERS,
        keep: bool = True,
    ) -> Program:
        """The program that answers a request."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        more = {HEADER: directive} if directive else {}
        return self.service.answer(HTTPRequest(method, path, {**headers, **more}, data, keep))


def head_and_body(program: Program) -> tuple[list[str], str]:
    """The lines of the response's head, and its body without the framing of HTTP chunks."""
    head, _, body = b"".join(program.frames).partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    if "transfer-encoding: chunked" not in lines:
        assert f"content-length: {len(body)}" in lines
        return lines, body.decode()
    data = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        assert body[length : length + 2] == b"\r\n"
        data, body = data + body[:length], body[length + 2 :]
        if not length:
            assert body == b"", "nothing follows the last chunk"
            break
    else:
        raise AssertionError("the last chunk is missing")
    return lines, data.decode()
