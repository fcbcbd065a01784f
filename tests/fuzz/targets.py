"""The targets of fuzzing: functions that take any bytes and raise an exception if a law is violated."""

import contextlib
import html
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import unquote

import h11

import manystream as ms
from manystream.engine.request.redaction import LONGEST_PART, Redaction, redacted
from manystream.providers.catalog.provider import OpenAIChat
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.model.rows import Row, RowError, message_from_row
from manystream.providers.wire.retry_hints import LONGEST_HINT_MS, NO_HINT, retry_after_ms
from manystream.transport.backend import Backend
from manystream.transport.errors import TransportError, URLError
from manystream.transport.exchange import RawHeaders, WireHead
from manystream.transport.headers import HeaderError, headers_to_mapping, validate_headers
from manystream.transport.http1 import Connection
from manystream.transport.loop import Loop
from manystream.transport.proxy import is_excepted, parse_proxy_url
from manystream.transport.sse import SSEParser
from manystream.transport.url import parse_base_url, target
from tests.engine.request import test_redaction
from tests.support.event_order import OrderChecker
from tests.transport import test_chunked, test_sse

NOW: Final = 1_800_000_000.0
PROVIDERS: dict[str, tuple[ms.Provider, ...]] = {
    "openai-chat": (OpenAIChat(api_key="k"), OpenAIChat(api_key="k", base_url="http://server.test/v1", name="server")),
    "openai-responses": (ms.OpenAIResponses(api_key="k"),), "anthropic": (ms.Anthropic(api_key="k"),),
    "gemini": (ms.Gemini(api_key="k"),), "gemini-interactions": (ms.GeminiInteractions(api_key="k"),),
}  # fmt: skip


def cut(data: bytes) -> list[bytes]:
    """Cut the data into pieces. Its first byte determines their sizes, so that a fuzzer can move the cuts."""
    if not data:
        return []
    step, body = data[0] % 64 + 1, data[1:]
    return [body[place : place + step] for place in range(0, len(body), step)]


# --- bytes ---


def chunks(data: bytes) -> None:
    """The chunk decoder agrees with h11, except for the differences that `chunked.py` documents."""
    test_chunked.check(data[1:], cut(data))


def sse(data: bytes) -> None:
    """The SSE parser agrees with a second parser that is written from the standard."""
    pieces = cut(data)
    assert test_sse.parse(pieces) == test_sse.reference(data[1:])


class _Line:
    """A simulated socket that returns the given pieces and accepts all bytes."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def recv(self, size: int, flags: int = 0) -> bytes:
        if not self.pieces:
            return b""
        piece = self.pieces.pop(0)
        if len(piece) > size:
            self.pieces.insert(0, piece[size:])
        return piece[:size]

    def send(self, data: bytes) -> int:
        return len(data)

    def fileno(self) -> int:
        return 0

    def close(self) -> None:
        self.pieces.clear()


class _StillLoop(Loop):
    """A loop that never runs: the target calls the connection itself."""

    def add(self, connection: object) -> None:
        """Do nothing."""

    remove = add

    def watch(self, connection: object, *, read: bool, write: bool) -> None:
        """Do nothing."""

    def start(self, backend: Backend) -> None:
        raise AssertionError

    def close(self) -> None:
        """Do nothing."""


class _RecordedExchange:
    """An exchange that records what it receives and checks the order."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""
        self.ended = False
        self.failure: TransportError | None = None

    def on_head(self, status: int, headers: RawHeaders) -> None:
        assert not self.status
        assert not self.failure
        self.status = status
        headers_to_mapping(headers)

    def on_body(self, data: bytes) -> None:
        assert data
        assert self.status
        assert not self.ended
        assert not self.failure
        self.body += data

    def on_end(self) -> None:
        assert self.status
        assert not self.ended
        assert not self.failure
        self.ended = True

    def on_failure(self, error: TransportError) -> None:
        assert not self.ended
        assert not self.failure
        self.failure = error


def _read(pieces: list[bytes]) -> tuple[_RecordedExchange, str]:
    """Read a response with a connection. Returns the exchange, and the connection's fate."""
    fate: list[str] = []
    line = _Line([piece for piece in pieces if piece])
    exchange = _RecordedExchange()
    connection = Connection(
        line, "http://fuzz.test:80", _StillLoop(lambda: 0.0), lambda _: fate.append("idle"),
        lambda _: fate.append("closed"),
    )  # fmt: skip
    connection.send(WireHead(b"POST", b"/", [(b"Host", b"fuzz.test")]), b"", exchange)
    while not connection.closed:
        connection.on_readable()
    assert exchange.ended != (exchange.failure is not None)
    assert fate in (["closed"], ["idle", "closed"])
    return exchange, fate[0]


REFUSED_IN_TRAILERS = frozenset(
    {"Only Transfer-Encoding: chunked is supported", "multiple Transfer-Encoding headers"}
    | {"bad Content-Length", "conflicting Content-Length headers"}
)
"""h11's messages about framing fields. Once it has given the response's head, they can only be about a trailer."""


def _read_with_h11(data: bytes) -> tuple[int, bytes] | None:
    """Return status and body of a complete response; None for any other."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    connection.send(h11.Request(method="POST", target="/", headers=[("Host", "fuzz.test"), ("Content-Length", "0")]))
    connection.send(h11.EndOfMessage())
    status, body = 0, b""
    try:
        for piece in (data, b""):
            if not piece and data and connection.their_state is h11.DONE:
                break
            connection.receive_data(piece)
            while True:
                event = connection.next_event()
                if isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    return status, body
                elif not isinstance(event, h11.InformationalResponse):
                    break
    except h11.RemoteProtocolError as error:
        # h11 refuses framing fields in trailers. A recipient may discard trailers (RFC 9112, 7.1.2), as ours does.
        if status and str(error) in REFUSED_IN_TRAILERS:
            return status, body
    return None


def responses(data: bytes) -> None:
    """A connection delivers any response in order and once, equally at every split, and in agreement with h11."""
    body = data[1:]
    exchange, fate = _read([body])
    in_pieces, fate_in_pieces = _read(cut(data))
    assert (exchange.status, exchange.ended) == (in_pieces.status, in_pieces.ended)
    assert exchange.body == in_pieces.body or not exchange.ended
    if exchange.ended and fate == "idle":
        assert fate_in_pieces == "idle"  # the reverse need not hold: stray bytes may come after the end was seen
    theirs = _read_with_h11(body)
    if exchange.ended and exchange.status != 205:
        assert theirs == (exchange.status, exchange.body), (theirs, exchange.status, exchange.body)


# --- machines ---


def _ids() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"made{next(numbers):018}"


def _held(block: ms.Block) -> tuple[str, str] | None:
    if isinstance(block, ms.Text):
        return ("text", block.text) if block.text else None
    if isinstance(block, ms.Thinking):
        return ("thinking", block.text) if block.text else None
    return ("call", f"{block.id} {block.name} {block.arguments}") if isinstance(block, ms.ToolCall) else None


def _delivered(events: list[ms.Event]) -> list[tuple[str, str]]:
    blocks: dict[int, list[str]] = {}
    kinds: dict[int, str] = {}
    for event in events:
        if isinstance(event, ms.TextDelta | ms.ThinkingDelta):
            kinds[event.index] = "text" if isinstance(event, ms.TextDelta) else "thinking"
            blocks.setdefault(event.index, []).append(event.text)
        elif isinstance(event, ms.ToolCallStart):
            kinds[event.index] = "call"
            blocks[event.index] = [f"{event.id} {event.name} "]
        elif isinstance(event, ms.ToolCallDelta):
            blocks[event.index].append(event.arguments)
    joined = [(kinds[index], "".join(pieces)) for index, pieces in sorted(blocks.items())]
    return [block for block in joined if block[1]]


CONTRADICTABLE: Final = frozenset({"openai-responses"})
"""Dialects that send each text twice, in pieces and whole. If a server contradicts itself, the pieces are in the events
and the whole text is in the response."""


def run_machine(
    dialect: str, provider: ms.Provider, pieces: list[bytes], *, templates: bool = True
) -> tuple[list[ms.Event], ms.Response]:
    """Feed a body to parser and machine; check the order, exactly one end, and that deltas and response agree.

    templates: whether the machine may match deltas with a template.
    """
    parser, machine, order = SSEParser(), DIALECTS[dialect].machine(provider, _ids()), OrderChecker()
    if not templates:
        machine._templates_left = 0  # pyright: ignore[reportPrivateUsage]
    events: list[ms.Event] = []

    def feed() -> Iterator[ms.Event]:
        for piece in pieces:
            for name, payload in parser.feed(piece):
                if payload:
                    yield from machine.feed(name, payload)
        for name, payload in parser.end():
            yield from machine.feed_last(name, payload)
        yield from machine.end()

    for event in feed():
        order.check(event)
        events.append(event)
    assert machine.ended
    assert isinstance(events[-1], ms.Done | ms.ErrorEvent)
    assert machine.end() == ()
    assert machine.feed("", b"{}") == ()
    response = machine.response()
    held, delivered = [block for block in map(_held, response.content) if block], _delivered(events)
    if dialect in CONTRADICTABLE:
        held, delivered = [(kind, "") for kind, _ in held], [(kind, "") for kind, _ in delivered]
    assert held == delivered, (held, delivered)
    return events, response


def machine(dialect: str, data: bytes) -> None:
    """Any stream keeps the order, ends once, agrees with its response, and is the same at every split.

    It is also the same without templates, when every event is parsed whole.
    """
    for provider in PROVIDERS[dialect]:
        whole = run_machine(dialect, provider, [data[1:]])
        parsed = run_machine(dialect, provider, [data[1:]], templates=False)
        for other in (parsed, run_machine(dialect, provider, cut(data))):
            assert other == whole or repr(other) == repr(whole)  # NaN is kept and is not equal to itself


def answers(data: bytes) -> None:
    """Any body, decoded as a response or as an error, gives a response or a `ProviderError`."""
    if not data:
        return
    status = (200, 400, 404, 429, 500, 529, 999)[data[0] % 7]
    for name, dialect in DIALECTS.items():
        for provider in PROVIDERS[name]:
            with contextlib.suppress(ms.ProviderError):
                assert isinstance(dialect.decode(data[1:], provider, _ids()), ms.Response)
            error = dialect.decode_error(status, {"content-type": "application/json"}, data[1:], NOW)
            assert error.message
            assert NO_HINT <= error.retry_after_ms <= LONGEST_HINT_MS
            assert len(error.body) <= 4096


# --- text ---


def headers(data: bytes) -> None:
    """Any header gives a hint within bounds; an accepted header cannot break its line."""
    lines = [line.partition(b":") for line in data.split(b"\n")]
    mapping = headers_to_mapping((name, value.strip()) for name, _, value in lines)
    for status in (0, 429):
        assert NO_HINT <= retry_after_ms(mapping, NOW, status=status) <= LONGEST_HINT_MS
    for name, _, value in lines:
        with contextlib.suppress(HeaderError):
            for sent, content in validate_headers([(name.decode("latin-1"), value.decode("utf-8", "replace"))]):
                assert not set(sent + content) & set(b"\r\n\0")
    for dialect in DIALECTS.values():
        assert dialect.decode_error(429, mapping, b"", NOW).retry_after_ms >= NO_HINT


def urls(data: bytes) -> None:
    """Any text gives a URL with an intact request line, or a `URLError`."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(URLError):
        base = parse_base_url(text)
        line = target(base, "/chat/completions")
        assert line.isascii()
        assert line.isprintable()
        assert " " not in line
        assert not set(base.origin.host_header) & set("\r\n @/#?")
        assert parse_base_url(f"{base.origin}{base.path}").origin == base.origin
        is_excepted(base.origin, text)
    with contextlib.suppress(URLError):
        assert parse_proxy_url(text).origin.scheme == "http"


def rows(data: bytes) -> None:
    """Any row gives a message, nothing, or a `RowError`."""
    kind, _, rest = data.decode("utf-8", "replace").partition("\n")
    content, _, data_json = rest.partition("\n")
    with contextlib.suppress(RowError, ms.InvalidRequestError):
        message_from_row(Row(kind, content, data_json or None))


# --- secrets ---

_KEY = test_redaction.KEY
_SECRETS = Redaction(_KEY, WireHead(b"POST", b"/", [(b"Host", b"fuzz.test"), (b"X-Tenant", _KEY.encode())]))


_HEX_ESCAPE = re.compile(r"\\++x([0-9a-f]{2})")
"""An escape that `repr` writes for a control character. Its digits are not part of what a server sent."""


def _character(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16))


def secrets(data: bytes) -> None:
    """An error that quotes the key, in any spelling, keeps no long part of it."""
    if not data:
        return
    body = _SECRETS.hide_bytes(data[1:])
    for name, dialect in DIALECTS.items():
        for status, given in ((500, body), (200, data[1:])):
            error = redacted(dialect.decode_error(status, {}, given, NOW), _SECRETS)
            for said in (error.message, repr(error), str(error), error.body.decode("latin-1")):
                plain = html.unescape(unquote(unquote(_HEX_ESCAPE.sub(_character, said)))).replace("\\", "")
                assert test_redaction.longest_common_run(_KEY, plain) <= LONGEST_PART, (name, said)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "chunks": chunks, "sse": sse, "responses": responses, "openai-chat": lambda data: machine("openai-chat", data),
    "openai-responses": lambda data: machine("openai-responses", data),
    "anthropic": lambda data: machine("anthropic", data), "gemini": lambda data: machine("gemini", data),
    "gemini-interactions": lambda data: machine("gemini-interactions", data), "answers": answers, "headers": headers,
    "urls": urls, "rows": rows, "secrets": secrets,
}  # fmt: skip
"""Name → target."""
