"""External test vectors, if the environment variable `MANYSTREAM_SHARED` names a folder that contains them.

The folder has `vectors/http_responses.json` (raw responses, and the outcomes in other clients) and `vectors/sse.json`.
Without it these tests are skipped. The server sends each response and then closes, or leaves the connection open. Each
call must have an outcome, and must not affect the next call on the same engine.
"""

import base64
import contextlib
import hashlib
import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.faults.exchange import End, Wire, observe, raw
from tests.faults.page import CLIENTS
from tests.support.exchanges import RecordedExchange, open_rig
from tests.support.peers import chat_stream, chunked

SHARED = "MANYSTREAM_SHARED"
MODES = {"close": End.FIN, "open": End.OPEN}
MODELLED = "httpx"
"""The client that also parses HTTP with h11: its outcome of a vector should be ours."""

DIFFERENCES: dict[str, str] = {
    "encoding": "a coding that was not asked for is passed on by HTTP and refused by the attempt, never decoded",
    "quick": "what can never become HTTP/1.1 is refused at its first bytes, where the other waits for more",
    "line": "a size line that ends in a bare LF is refused at once, where the other waits for a CR LF",
    "cap": "trailers are capped at 16 KiB",
    "length": "a length that no body has is refused at once, where the other waits for the body",
}
"""The reasons for which our outcome may differ from the other client's."""


def load(name: str) -> dict[str, Any]:
    folder = os.environ.get(SHARED)
    path = Path(folder, "vectors", name) if folder else None
    return json.loads(path.read_text("utf-8")) if path and path.exists() else {}  # type: ignore[no-any-return]


HTTP: list[dict[str, Any]] = load("http_responses.json").get("vectors", [])
SSE: dict[str, Any] = load("sse.json")
needs_folder = pytest.mark.skipif(not HTTP, reason=f"{SHARED} names no folder with vectors/http_responses.json")


def wire_of(vector: dict[str, Any]) -> bytes:
    if "raw_b64" in vector:
        return base64.b64decode(vector["raw_b64"])
    return zlib.decompress(base64.b64decode(vector["raw_zlib_b64"]))


async def read(wire: bytes, end: End) -> RecordedExchange:
    """Read a wire with the HTTP layer alone."""
    async with open_rig() as rig:
        exchange = rig.start()
        rest = wire
        with contextlib.suppress(ConnectionError):
            while rest and not rig.connection.closed:
                try:
                    rest = rest[rig.server.send(rest[:16_384]) :]
                except BlockingIOError:
                    await trio.sleep(0.002)
            await trio.sleep(0.005)
            if end is End.FIN:
                rig.end()
        await trio.sleep(0.005)
        return exchange


def difference(vector: dict[str, Any], wire: bytes, exchange: RecordedExchange, observed: dict[str, Any]) -> str | None:
    """Return the reason in `DIFFERENCES` for our different outcome.

    None if the outcomes are equal, empty if there is no reason.
    """
    if exchange.ended and observed["r"] == "ok":
        same = (exchange.status, hashlib.sha256(exchange.body).hexdigest()[:8]) == (observed["status"], observed["h"])
        return None if same else ("encoding" if b"content-encoding" in exchange.headers else "")
    if exchange.error is not None:
        text = str(exchange.error)
        reasons = {"not HTTP/1.1": "quick", "illegal chunk size line": "line", "trailer section": "cap"}
        reasons |= {"a body of": "length", "larger than any response": "length"}
        found = next((reason for words, reason in reasons.items() if words in text), "")
        return None if observed["r"] == "err" else found
    if exchange.ended:
        return "encoding" if observed["r"] == "err" and b"content-encoding" in exchange.headers else ""
    return None if observed["r"] == "timeout" else ("encoding" if b"content-encoding" in exchange.headers else "")


@needs_folder
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("vector", HTTP, ids=[vector["name"] for vector in HTTP])
async def test_http_is_read_as_by_h11_or_with_a_reason(vector: dict[str, Any], mode: str) -> None:
    wire = wire_of(vector)
    exchange = await read(wire, MODES[mode])
    reason = difference(vector, wire, exchange, vector["observed"][MODELLED][mode])
    assert reason is None or reason in DIFFERENCES, (
        exchange.status,
        exchange.error,
        vector["observed"][MODELLED][mode],
    )


ARGUED: dict[str, str] = {
    "chunk-ext-space": "a space before an extension is no grammar of RFC 9112's, and h11 and aiohttp refuse it, too"
}
"""Vectors whose expectation is not met, with the reason."""


@needs_folder
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("vector", HTTP, ids=[vector["name"] for vector in HTTP])
async def test_every_response_has_an_outcome_and_leaks_nothing(
    vector: dict[str, Any], mode: str, autojump_clock: MockClock
) -> None:
    wire, want = wire_of(vector), vector["want"]
    exchange = await read(wire, MODES[mode])
    for stream in (True, False):
        seen = await observe(Wire(wire, MODES[mode]), stream=stream)
        seen.check_once()  # one completion; the next call receives its own response, and nothing is left open
        if "not reused" in want.lower() or "never reused" in want or "not reusable" in want:
            assert not seen.reused
        if " or " in want or vector["name"] in ARGUED:
            continue
        if want.startswith("ok") and mode == "close":
            assert exchange.ended
        if want.startswith(("error", "incomplete")):
            # If HTTP broke after a stream's terminal marker, the response was complete.
            assert exchange.error or not exchange.ended or not seen.first.success


CONTENT_TYPES: list[dict[str, Any]] = [
    vector for vector in SSE.get("transport", []) if "content_type" in vector and vector["status"] == 200
]


@needs_folder
@pytest.mark.parametrize("vector", CONTENT_TYPES, ids=[vector["name"] for vector in CONTENT_TYPES])
async def test_a_stream_is_one_however_its_type_is_written(vector: dict[str, Any], autojump_clock: MockClock) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {vector['content_type']}\r\nTransfer-Encoding: chunked\r\n"
    seen = await observe(raw(head, chunked(*chat_stream("caf\u00e9"))))
    assert (seen.first.success, seen.recorder.text) == (True, "caf\u00e9")


@needs_folder
def test_the_page_on_other_clients_agrees_with_the_vectors() -> None:
    """At least one row is in both: the response that is read as the response to the next request."""
    page = json.loads(CLIENTS.read_text("utf-8"))
    stray = next(vector for vector in HTTP if vector["name"] == "extra-response")["observed"]
    for client, column in ((MODELLED, "httpx"), ("aiohttp", "aiohttp")):
        said = next(rows["7"] for title, rows in page.items() if title.startswith(column))
        assert ("a stray answer" in said) == (stray[client]["open"]["second"] != "second-ok")
