"""How a response's head decides what is read of an answer: content types, statuses, codings, ids and sizes."""

import pytest
import trio

import manystream as ms
from tests.support.peers import (
    NO_RETRY,
    Line,
    Recorder,
    answer,
    chat_answer,
    chat_stream,
    chunked,
    error_body,
    hello,
    open_peer,
)

STREAM = "".join(chat_stream("fine"))


async def respond(
    response: bytes | str, *, stream: bool = True, close: bool = False, limits: ms.EngineLimits | None = None
) -> ms.Completion:
    """Make a call to a server with this response. close: the connection ends behind it."""

    async def script(line: Line) -> None:
        await line.request()
        await line.send(response)
        if not close:
            await line.closed_by_peer()

    recorder = Recorder()
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY, limits=limits) as engine:
        if stream:
            return await engine.start_stream(hello(), recorder.on_event, recorder.on_completion).wait()
        return await engine.start_request(hello(), recorder.on_completion).wait()


def text(completion: ms.Completion) -> str | None:
    return completion.response.text if completion.success and completion.response is not None else None


def said(completion: ms.Completion) -> str:
    """The error's message, without the request's place."""
    return completion.error_message or ""


@pytest.mark.parametrize("stream", [True, False])
async def test_a_page_as_an_answer_says_where_the_request_was_sent(stream: bool) -> None:
    failed = await respond(answer("<!doctype html><title>Chat</title>", kind="text/html"), stream=stream)
    assert "/v1/chat/completions: is the base URL right?)" in said(failed)


# --- content types ---


@pytest.mark.parametrize(
    "kind", ["text/event-stream", "Text/Event-Stream; charset=utf-8", "text/plain", "application/octet-stream", "", "x"]
)
async def test_a_stream_is_read_as_events_unless_it_is_json(kind: str) -> None:
    assert text(await respond(answer(STREAM, kind=kind))) == "fine"


@pytest.mark.parametrize("kind", ["application/json", "text/json", "Application/JSON ; charset=utf-8"])
async def test_a_json_answer_to_a_stream_request_is_read_whole(kind: str) -> None:
    assert text(await respond(answer(chat_answer("whole"), kind=kind))) == "whole"


@pytest.mark.parametrize("kind", ["application/json", "text/plain", ""])
async def test_an_unstreamed_answer_is_json_whatever_its_type(kind: str) -> None:
    assert text(await respond(answer(chat_answer("whole"), kind=kind), stream=False)) == "whole"


BOM = "\ufeff"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", ["application/json", "text/html"])
async def test_a_byte_order_mark_before_json_is_ignored(kind: str, stream: bool) -> None:
    assert text(await respond(answer(BOM + chat_answer("whole"), kind=kind), stream=stream)) == "whole"


async def test_events_answer_an_unstreamed_request() -> None:
    assert text(await respond(answer(STREAM, kind="text/event-stream"), stream=False)) == "fine"


PAGES = ["text/html", "application/xhtml+xml", "image/png", "audio/mpeg", "video/mp4", "TEXT/HTML; charset=utf-8"]


@pytest.mark.parametrize("kind", PAGES)
async def test_a_page_is_an_error_unless_it_holds_json(kind: str) -> None:
    failed = await respond(answer("a page", kind=kind))
    assert (failed.success, failed.http_status) == (False, 200)
    assert "a page" in said(failed)
    assert text(await respond(answer(" \n" + chat_answer("whole"), kind=kind))) == "whole"


async def test_of_a_page_only_the_beginning_is_read() -> None:
    limits = ms.EngineLimits(max_error_bytes=10)
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100\r\n\r\n"
    with trio.fail_after(30):
        completion = await respond(head + "0123456789", limits=limits)  # the rest never comes
    assert "0123456789" in said(completion)
    whole = await respond(answer("0123456789abc", kind="text/html"), limits=ms.EngineLimits(max_error_bytes=14))
    assert "0123456789abc" in said(whole)


# --- statuses ---


@pytest.mark.parametrize("status", [200, 201, 203, 206, 299])
async def test_each_status_of_success_has_an_answer(status: int) -> None:
    completion = await respond(answer(chat_answer("whole"), status=f"{status} Fine"), stream=False)
    assert (text(completion), completion.http_status) == ("whole", status)


@pytest.mark.parametrize("status", ["204 No Content", "205 Reset Content"])
async def test_a_success_without_content_is_a_failure(status: str) -> None:
    completion = await respond(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n", stream=False)
    assert (completion.success, completion.http_status) == (False, int(status[:3]))


# --- codings ---


async def test_a_coding_that_was_not_asked_for_is_named() -> None:
    completion = await respond(answer(b"x", headers="Content-Encoding:  GZip \r\n"))
    assert said(completion) == "the server sent content-encoding 'gzip', which was not asked for"
    assert completion.headers["content-encoding"] == "GZip"
    long = await respond(answer(b"x", headers=f"Content-Encoding: {'ab' * 50}\r\n"))
    assert said(long) == f"the server sent content-encoding '{'ab' * 20}', which was not asked for"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_coded_answer_is_the_server_s_fault(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    completion = await respond(answer(b"x", headers="Content-Encoding: gzip\r\n"), stream=stream)
    assert (completion.error_category, completion.http_status) == (ms.ErrorCategory.SERVER, 200)
    assert completion.timings.first_byte is not None
    assert caplog.records == []


@pytest.mark.parametrize("coding", ["identity", "IDENTITY", " "])
async def test_identity_is_no_coding(coding: str) -> None:
    assert text(await respond(answer(chat_answer("whole"), headers=f"Content-Encoding: {coding}\r\n"))) == "whole"


# --- ids ---

ID_HEADERS = [
    "Request-Id", "X-Goog-Request-Id", "X-Request-Id", "Apim-Request-Id", "X-Ms-Request-Id", "X-Amzn-RequestId",
    "CF-Ray",
]  # fmt: skip


@pytest.mark.parametrize("first", range(7))
async def test_the_id_is_read_from_the_first_known_header(first: int) -> None:
    headers = "".join(f"{name}: id-{place}\r\n" for place, name in reversed(list(enumerate(ID_HEADERS))[first:]))
    done = await respond(answer(chat_answer("x"), headers=headers), stream=False)
    assert done.request_id == f"id-{first}"
    alone = f"{ID_HEADERS[first]}: one\r\n"
    failed = await respond(answer(error_body("no"), status="400 No", headers=alone))
    assert failed.request_id == failed.error.request_id == "one"


async def test_a_response_without_an_id_has_none() -> None:
    assert (await respond(answer(chat_answer("x"), headers="X-Id: 1\r\n"))).request_id is None


JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


EARLY = " (the body ended with the connection, perhaps early)"


@pytest.mark.parametrize(
    ("response", "is_early"),
    [
        (answer("{"), False),
        (JSON_HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked("{"), False),
        (JSON_HEAD + b"\r\n{", True),
        (answer(""), True),
    ],
    ids=["length", "chunks", "connection", "empty"],
)
async def test_an_answer_that_may_have_been_cut_says_so(response: bytes, is_early: bool) -> None:
    completion = await respond(response, stream=False, close=True)
    assert not completion.success
    assert said(completion).endswith(EARLY) == is_early


async def test_an_answer_beyond_its_limit_names_the_limit() -> None:
    limits = ms.EngineLimits(max_response_bytes=500)
    fitting, long = chat_answer("x"), chat_answer("x" * 500)
    assert text(await respond(answer(fitting + " " * (500 - len(fitting))), limits=limits)) == "x"
    for stream in (False, True):
        completion = await respond(answer(long), stream=stream, limits=limits)
        assert said(completion) == "the answer is larger than 500 bytes (limits.max_response_bytes)"
    events = answer(STREAM, kind="text/event-stream")
    streamed = await respond(events, limits=ms.EngineLimits(max_response_bytes=100))
    assert said(streamed) == "the answer is larger than 100 bytes (limits.max_response_bytes)"


async def test_an_event_beyond_its_limit_names_the_limit() -> None:
    limits = ms.EngineLimits(max_event_bytes=300)
    completion = await respond(answer(f"data: {'x' * 1000}", kind="text/event-stream"), limits=limits)
    assert said(completion).endswith("(limits.max_event_bytes)")
