"""The head of a request on the wire."""

import h11
import pytest
import trio

from manystream.transport.exchange import METHODS_WITH_BODY, WireHead
from manystream.transport.headers import validate_headers
from tests.support.exchanges import open_rig


async def test_the_request_is_sent_as_given() -> None:
    async with open_rig() as rig:
        rig.start()
        await trio.lowlevel.checkpoint()
        raw = rig.server.recv(1000)
        assert raw == b"POST /v1/x HTTP/1.1\r\nHost: example.test\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    "headers",
    [
        [("Host", "a.test")],
        [("Host", "a.test:8080"), ("Accept-Encoding", "identity")],
        [("Host", "[::1]:9"), ("Authorization", "Bearer x"), ("X-Odd", "tab\there; a=b"), ("X-Empty", "")],
    ],
)
@pytest.mark.parametrize(("method", "size"), [(b"POST", 12), (b"POST", 0), (b"GET", 0), (b"GET", 3), (b"HEAD", 0)])
async def test_a_request_head_is_written_as_by_h11(headers: list[tuple[str, str]], method: bytes, size: int) -> None:
    head = WireHead(method, b"/v1/x?y=%20z", validate_headers(headers))
    length = [(b"Content-Length", b"%d" % size)] if size or method == b"POST" else []
    request = h11.Request(method=head.method, target=head.target, headers=[*head.headers, *length])
    assert head.encode(size) == h11.Connection(h11.CLIENT).send(request)


async def test_with_header_returns_a_new_head_and_keeps_the_old() -> None:
    head = WireHead(b"POST", b"/", [(b"Host", b"h")])
    more = head.with_header(b"Idempotency-Key", b"k-1")
    assert more.encode(2) == b"POST / HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k-1\r\nContent-Length: 2\r\n\r\n"
    assert more.headers == ((b"Host", b"h"), (b"Idempotency-Key", b"k-1"))
    assert head.encode(2) == b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n"


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"PATCH"])
def test_an_empty_body_of_a_post_has_a_content_length(method: bytes) -> None:
    assert {b"POST", b"PUT", b"PATCH"} == METHODS_WITH_BODY
    head = WireHead(method, b"/", [(b"Host", b"h")])
    assert b"\r\ncontent-length: 0\r\n" in head.encode(0).lower()
    assert b"content-length" not in WireHead(b"GET", b"/", [(b"Host", b"h")]).encode(0).lower()
