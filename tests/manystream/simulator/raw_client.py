"""A raw socket client for the simulator's tests. It shows the received bytes, and how the connection ended."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from manystream.simulator import HEADER, Simulator

PATIENCE = 20.0
"""How many seconds a wait may take before the test fails."""

HEADERS = {
    "authorization": "Bearer sk-test", "x-api-key": "sk-test", "x-goog-api-key": "sk-test",
    "anthropic-version": "2023-06-01", "content-type": "application/json",
}  # fmt: skip
"""Headers that every dialect accepts."""

PATHS = {
    "openai-chat": "/v1/chat/completions", "openai-responses": "/v1/responses", "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/sim-text:generateContent",
    "gemini-interactions": "/v1beta/interactions",
}  # fmt: skip
DIALECTS = tuple(PATHS)


@dataclass(slots=True)
class Answer:
    """A response.

    chunks: the HTTP chunks of the body.
    whole: the body ended with correct HTTP framing.
    reset: the server ended the connection with a TCP reset.
    rest: bytes after the response.
    """

    status: int
    headers: dict[str, str]
    chunks: list[bytes]
    whole: bool
    reset: bool = False
    rest: bytes = b""

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def events(self) -> list[bytes]:
        """The server-sent events."""
        return [event for event in self.body.replace(b"\r\n", b"\n").split(b"\n\n") if event]

    def json(self) -> dict[str, object]:
        value: dict[str, object] = json.loads(self.body)
        return value


@dataclass(slots=True)
class Line:
    """A connection to the simulator, and what it has received."""

    socket: socket.socket
    received: bytes = b""
    ended: bool = False
    reset: bool = field(default=False)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def more(self) -> bool:
        """Receive some bytes. Returns False at the end of the connection."""
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            self.reset = True
            data = b""
        self.received += data
        self.ended = self.ended or not data
        return bool(data)

    def read(self) -> Answer:
        """Read one response."""
        while b"\r\n\r\n" not in self.received:
            if not self.more():
                return Answer(0, {}, [], whole=False, reset=self.reset)
        head, _, self.received = self.received.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(first.split()[1])
        chunks, whole = (
            self._chunks() if "transfer-encoding" in headers else self._sized(int(headers["content-length"]))
        )
        return Answer(status, headers, chunks, whole, self.reset, self.received)

    def _sized(self, length: int) -> tuple[list[bytes], bool]:
        while len(self.received) < length:
            if not self.more():
                return [self.received], False
        body, self.received = self.received[:length], self.received[length:]
        return [body], True

    def _chunks(self) -> tuple[list[bytes], bool]:
        chunks: list[bytes] = []
        while True:
            line, found, rest = self.received.partition(b"\r\n")
            size = int(line, 16) if found else 0
            if found and len(rest) >= size + 2:
                assert rest[size : size + 2] == b"\r\n"
                self.received = rest[size + 2 :]
                if size == 0:
                    return chunks, True
                chunks.append(rest[:size])
            elif not self.more():
                return chunks, False


@contextmanager
def connected(simulator: Simulator) -> Iterator[Line]:
    """A connection that is closed at the end of the block."""
    with socket.create_connection((simulator.host, simulator.port), timeout=PATIENCE) as opened:
        yield Line(opened)


def body_of(dialect: str, text: str = "Hello.", *, stream: bool = False, model: str = "sim-text") -> dict[str, object]:
    """The body of a request in a dialect."""
    messages = [{"role": "user", "content": text}]
    if dialect == "openai-chat":
        return {"model": model, "messages": messages, "stream": stream}
    if dialect == "openai-responses":
        return {"model": model, "input": messages, "stream": stream}
    if dialect == "anthropic":
        return {"model": model, "messages": messages, "stream": stream, "max_tokens": 1000}
    if dialect == "gemini-interactions":
        return {"model": model, "input": text, "stream": stream}
    return {"contents": [{"role": "user", "parts": [{"text": text}]}]}


def path_of(dialect: str, *, stream: bool = False, model: str = "sim-text") -> str:
    """The path of a request in a dialect."""
    if dialect != "gemini":
        return PATHS[dialect]
    return f"/v1beta/models/{model}:" + ("streamGenerateContent?alt=sse" if stream else "generateContent")


def request_bytes(
    path: str, body: object = None, *, method: str = "POST", headers: Mapping[str, str] = HEADERS, directive: str = ""
) -> bytes:
    """The bytes of a request."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"host": "simulator", **headers, "content-length": str(len(data))}
    if directive:
        sent[HEADER] = directive
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
    return "\r\n".join(lines).encode() + data


def ask(
    simulator: Simulator,
    dialect: str = "openai-chat",
    directive: str = "",
    *,
    stream: bool = True,
    text: str = "Hello.",
    model: str = "sim-text",
) -> Answer:
    """Send one request on a new connection and read the response."""
    with connected(simulator) as line:
        line.send(
            request_bytes(path_of(dialect, stream=stream, model=model),
            body_of(dialect, text, stream=stream, model=model), directive=directive)
        )  # fmt: skip
        return line.read()


def get(simulator: Simulator, path: str, *, method: str = "GET") -> object:
    """Read one of the simulator's own pages."""
    with connected(simulator) as line:
        line.send(request_bytes(path, method=method, headers={}))
        page: object = json.loads(line.read().body)
        return page


def statistics(simulator: Simulator) -> dict[str, float]:
    """The simulator's counts."""
    counts = get(simulator, "/sim/statistics")
    assert isinstance(counts, dict)
    return counts
