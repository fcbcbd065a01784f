"""The body of an error response: its forms, its limit, its status, and the id and the address in the error."""

import json

import pytest
import trio

import manystream as ms
from tests.engine.call.test_answer_body import respond, said
from tests.support.peers import NO_RETRY, answer, chat_chunk, chunked, error_body, hello, open_peer, reply_once

# --- wrong addresses ---

NO_MODEL = '{"error": {"message": "The model `m` does not exist", "code": "model_not_found"}}'


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        ("404 Not Found", "", "HTTP 404"),
        ("404 Not Found", '{"detail":"Not Found"}', "Not Found"),
        ("404 Not Found", "<html><title>404 Not Found</title></html>", "404 Not Found"),
        ("404 Not Found", "404 page not found", "404 page not found"),
        ("404 Not Found", error_body("File Not Found", code="404"), "File Not Found"),
        ("404 Not Found", error_body("Invalid URL (POST /v1/x)", code="unknown_url"), "Invalid URL (POST /v1/x)"),
        ("405 Method Not Allowed", '{"detail":"Method Not Allowed"}', "Method Not Allowed"),
        ("404 Not Found", NO_MODEL, ""),
        ("404 Not Found", error_body("Model not found", code="404"), ""),
        ("400 Bad Request", "", ""),
    ],
)
async def test_an_error_of_an_address_says_where_it_went(status: str, body: str, words: str, stream: bool) -> None:
    error = (await respond(answer(body, status=status), stream=stream)).error
    assert error is not None
    if words:
        assert error.message.startswith(f"{words} (POST http://127.0.0.1:")
        assert error.message.endswith("/v1/chat/completions: is the base URL right?)")
        assert str(error).endswith(error.message)
    else:
        assert "POST" not in error.message


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("", "/chat/completions: is /v1 missing at the end of the base URL?"),
        ("/v1/v1", "/v1/v1/chat/completions: is /v1 one too many in the base URL?"),
        ("/v1beta/v1", "/v1beta/v1/chat/completions: is /v1beta one too many in the base URL?"),
        ("/v1/x?key=sk-1", "/v1/x/chat/completions: is the base URL right?"),
    ],
)
async def test_a_wrong_address_has_a_hint(path: str, hint: str) -> None:

    async with open_peer(reply_once(answer("", status="404 Not Found"))) as peer:
        provider = ms.OpenAIChat("k", f"{peer.origin}{path}", name=peer.chat.name)
        async with ms.open_engine([provider], retry=NO_RETRY) as engine:
            failed = await engine.start_request(hello(), None).wait()
    assert said(failed).endswith(f":{peer.port}{hint})")


BOM = "\ufeff"


async def test_a_byte_order_mark_before_an_error_is_ignored() -> None:
    failed = await respond(answer(BOM + error_body("no such thing", code="gone"), status="404 Not Found"))
    assert (said(failed), failed.error and failed.error.provider_code) == ("no such thing", "gone")


@pytest.mark.parametrize("status", [300, 302, 399])
async def test_a_redirect_is_named_without_its_query(status: int) -> None:
    location = "Location: https://other.example/v1?key=secret\r\n"
    completion = await respond(answer("moved", status=f"{status} Moved", headers=location))
    assert said(completion) == (
        f"HTTP {status}: redirects are not followed; the server points to 'https://other.example/v1'"
    )
    assert (completion.error.category, completion.error.retryable) == (ms.ErrorCategory.UNKNOWN, False)
    assert completion.http_status == completion.error.http_status == status


@pytest.mark.parametrize("status", ["304 Not Modified", "400 Bad Request"])
async def test_a_location_is_named_of_redirects_only(status: str) -> None:
    headers = "Location: https://other.example/v1\r\n" if status[0] == "4" else ""
    completion = await respond(answer("" if status[0] == "3" else error_body("no"), status=status, headers=headers))
    assert "redirects" not in said(completion)
    assert completion.http_status == int(status[:3])


async def test_an_error_in_a_coding_has_its_status_only() -> None:
    body = error_body("unreadable")
    completion = await respond(answer(body, status="404 Not Found", headers="Content-Encoding: br\r\n"))
    assert (completion.http_status, completion.error_category) == (404, ms.ErrorCategory.NOT_FOUND)
    assert "unreadable" not in said(completion)
    assert completion.error.body == b""


async def test_each_kind_of_failure_has_the_id() -> None:
    headers = "X-Request-Id: r1\r\n"
    stream_head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n{headers}\r\n"
    responses = {
        "no json": answer("{", headers=headers),
        "an error event": stream_head.encode() + chunked(f"data: {error_body('no')}\n\n"),
        "a cut stream": stream_head.encode() + chunked(chat_chunk("a")),
        "an error event after text": stream_head.encode() + chunked(chat_chunk("a"), f"data: {error_body('no')}\n\n"),
    }
    for name, response in responses.items():
        completion = await respond(response)
        assert (completion.success, completion.request_id) == (False, "r1"), name
        assert completion.error is not None
        if name != "a cut stream":
            assert completion.error.request_id == "r1", name


# --- bodies of errors and of answers ---


async def test_an_error_may_come_as_an_event() -> None:
    events = f": wait\n\nevent: error\ndata: {error_body('as an event', code='c1')}\n\ndata: other\n\n"
    for kind in ("text/event-stream", "text/event-stream; charset=utf-8", "application/json", "text/html", ""):
        completion = await respond(answer(events, status="400 Bad Request", kind=kind))
        assert said(completion) == "as an event"
        assert completion.error.provider_code == "c1"
    unfinished = answer(f"data: {error_body('cut')}", status="400 Bad Request", kind="text/event-stream")
    assert said(await respond(unfinished)) == "cut"


ERROR_FORMS = [
    "{}", "\ufeff\n{}", ": wait\n\n{}", "{}\n\ndata: [DONE]\n\n", "data: [DONE]\n\ndata: {}\n\n", "error: {}\n",
    "data: {}",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json", "text/plain"])
@pytest.mark.parametrize("body", ERROR_FORMS)
async def test_an_error_s_body_is_read_in_every_form(body: str, kind: str) -> None:
    for error in (error_body("why", code="c1"), json.dumps(json.loads(error_body("why", code="c1")), indent=2)):
        if "\n" in error and "data: {}" in body:
            continue
        completion = await respond(answer(body.replace("{}", error), status="400 Bad Request", kind=kind))
        assert said(completion) == "why"
        assert completion.error.provider_code == "c1"


async def test_an_error_s_body_is_read_up_to_its_limit() -> None:
    limits = ms.EngineLimits(max_error_bytes=12)
    head = "HTTP/1.1 500 Oops\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\n"
    with trio.fail_after(30):
        completion = await respond(head + "0123456789ab", limits=limits)  # the rest never comes
    assert completion.error.body == b"0123456789ab"
    longer = await respond(head + "0123456789abcdef", limits=limits)
    assert longer.error.body == b"0123456789ab"


async def test_a_broken_error_body_keeps_its_status() -> None:
    head = "HTTP/1.1 403 No\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    completion = await respond(head + '{"error"', close=True)
    assert (completion.http_status, completion.error_category) == (403, ms.ErrorCategory.AUTH)
