"""The form of a body is read from its bytes: events, whole answers, JSON lines, with every label, cut anywhere."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import pytest

import manystream as ms
from tests.engine.one_stream import Case, Stream
from tests.support.dialects import CHAT, DIALECTS, Wording

LABELS = ["application/json", "text/event-stream", "text/html", "text/plain", "application/x-ndjson", ""]
MARK = "data: [DONE]\n\n"


def events_of(wording: Wording) -> str:
    return wording.beginning + wording.rest


def payloads(wording: Wording) -> list[str]:
    return [line[6:].strip() for line in events_of(wording).splitlines() if line.startswith("data: {")]


def pretty(wording: Wording) -> str:
    return json.dumps(json.loads(wording.whole), indent=2)


def as_data(text: str) -> str:
    """Return an event with this text, whose lines are fields of their own."""
    return "".join(f"data: {line}\n" for line in text.splitlines()) + "\n"


def between(wording: Wording, *, extra: str) -> str:
    """Return the events with an extra one before, between and after them."""
    end = MARK if wording is CHAT else ""
    return extra + "".join(f"data: {payload}\n\n{extra}" for payload in payloads(wording)) + end


KEEP_ALIVES = [
    ": keepalive", ":", "ping", "PING", "keep-alive", "heartbeat", "null", "None", '""', "[]", "{}", '"ping"', ".",
    "# x", '{"type":"ping"}', '{"type": "keepalive"}',
]  # fmt: skip
FORMS: dict[str, Callable[[Wording], str]] = {
    "events": events_of,
    "events after a byte order mark": lambda wording: f"\ufeff{events_of(wording)}",
    "events after lines": lambda wording: f"\r\n\n : x\n\n: wait\n\nretry: 3000\n\n{events_of(wording)}",
    "an answer": lambda wording: wording.whole,
    "an answer after lines": lambda wording: f"\ufeff\n\n \r\n{wording.whole}",
    "an answer after comments": lambda wording: f": PROCESSING\n\n: PROCESSING\n\n{wording.whole}",
    "an answer over lines": pretty,
    "an answer and a mark": lambda wording: f"{wording.whole}\n\n{MARK}",
    "an answer and a mark alone": lambda wording: f"{wording.whole}\n[DONE]\n",
    "an answer over lines, and a mark": lambda wording: pretty(wording).replace("\n", "\n\n", 2) + f"\n\n{MARK}",
    "an answer after a field, and a mark": lambda wording: f"retry: 1\n\n{pretty(wording)}\n\n{MARK}",
    "an answer as an event": lambda wording: f"data: {wording.whole}\n\n",
    "an answer as an event, and a mark": lambda wording: f"\n: x\n\ndata: {wording.whole}\n\n{MARK}",
    "an answer as an event over lines": lambda wording: as_data(pretty(wording)) + MARK,
    "JSON lines": lambda wording: "\n".join(payloads(wording)),
    "JSON lines and a mark": lambda wording: "".join(f"{line}\n" for line in payloads(wording)) + MARK,
    "JSON lines, blank lines and a mark alone": lambda wording: "\n\n".join([*payloads(wording), "[DONE]"]),
    "JSON without line ends": lambda wording: "".join(payloads(wording)),
    "JSON lines after a comment": lambda wording: ": x\n" + "".join(f"{line}\n\n" for line in payloads(wording)),
    "JSON lines after a field": lambda wording: "retry: 1\n" + "".join(f"{line}\n\n" for line in payloads(wording)),
    **{f"keep-alives: {data}": partial(between, extra=f"data: {data}\n\n") for data in KEEP_ALIVES},
    **{
        f"keep-alives by name: {data}": partial(between, extra=f"event: ping\ndata: {data}\n\n") for data in KEEP_ALIVES
    },
}


def response_to(wording: Wording, body: str, label: str, *, streamed: bool, cut: Sequence[int] = ()) -> Stream:
    """Read a response with this body, in the pieces that begin at the places in `cut`."""
    data = body.encode()
    kind = f"content-type: {label}\r\n" if label else ""
    head = f"HTTP/1.1 200 OK\r\n{kind}content-length: {len(data)}\r\n\r\n".encode()
    pieces = [data[start:end] for start, end in pairwise([0, *cut, len(data)])]
    case = Case(wording.provider("http://127.0.0.1"), (), b"", ())
    return Stream(case, True, streamed=streamed).read([head, *pieces])


wordings = pytest.mark.parametrize("wording", DIALECTS, ids=[wording.name for wording in DIALECTS])


@wordings
@pytest.mark.parametrize("form", FORMS)
def test_a_body_is_read_in_every_form_with_every_label(form: str, wording: Wording) -> None:
    body = FORMS[form](wording)
    for label in LABELS:
        for streamed in (True, False):
            read = response_to(wording, body, label, streamed=streamed)
            assert read.response is not None, (label, streamed, read.outcome)
            assert (read.response.text, read.response.finish_reason) == ("one", ms.FinishReason.STOP)
            assert "type" not in read.response.provider_data
            if streamed:
                assert [event.partition("(")[0] for event in read.events] == ["Start", "TextDelta"]


@wordings
@pytest.mark.parametrize("form", [form for form in FORMS if "keep-alives" not in form or "ping" in form])
def test_a_body_is_read_in_every_form_at_every_split(form: str, wording: Wording) -> None:
    """Every fifth place of a body of Chat; every 23rd one in other dialects, whose bytes take the same way."""
    first, step = (1, 5) if wording is CHAT else (1 + len(form + wording.name) % 23, 23)
    body = FORMS[form](wording)
    size = len(body.encode())
    for label, streamed in (("text/event-stream", True), ("application/json", False)):
        whole = response_to(wording, body, label, streamed=streamed).delivered
        assert response_to(wording, body, label, streamed=streamed, cut=range(1, size)).delivered == whole
        for place in range(first, size, step):
            assert response_to(wording, body, label, streamed=streamed, cut=[place]).delivered == whole, place


# --- bodies without an answer ---

NOTHING = [
    MARK, f": x\n\n{MARK}", "[DONE]", f"data: : keepalive\n\n{MARK}", f"data: null\n\n{MARK}", "", " \r\n\n", "\ufeff",
    ": x", "{}", "[]", "null", '{"error":{}}', '{"error":{"message":""}}', 'data: {"error":{}}\n\n', f"{{}}\n{MARK}",
    "event: ping\n\n", "[null]", '[{"error":{}}]', '{"choices":[],"candidates":[],"output":[],"content":[],"id":""}',
]  # fmt: skip


@wordings
@pytest.mark.parametrize("body", NOTHING)
def test_a_body_that_says_nothing_may_be_retried(body: str, wording: Wording) -> None:
    for label in LABELS:
        for streamed in (True, False):
            read = response_to(wording, body, label, streamed=streamed)
            assert read.error is not None, (label, streamed, read.outcome)
            # A stream without any terminal marker is truncated.
            truncated = read.error.category is ms.ErrorCategory.NETWORK and "[DONE]" not in body
            assert truncated or read.error.category is ms.ErrorCategory.SERVER
            assert read.error.retryable
            assert read.events == []


REFUSED = {"code": 400, "message": "bad prompt", "type": "invalid_request_error"}
ERRORS = {
    "a field": f"error: {json.dumps(REFUSED)}\n\n",
    "a field, nested": f"Error:{json.dumps({'error': REFUSED})}\n\n",
    "a field over lines": f"error: {json.dumps(REFUSED, indent=1)}\n\n",
    "a field before the mark": f"error: {json.dumps(REFUSED)}\n{MARK}",
    "JSON": f"{json.dumps({'error': REFUSED})}\n\n",
    "JSON over lines": f"{json.dumps({'error': REFUSED}, indent=2)}\n\n",
    "an event": f"data: {json.dumps({'error': REFUSED})}\n\n",
    "a named event": f"event: error\ndata: {json.dumps(REFUSED)}\n\n",
}


@wordings
@pytest.mark.parametrize("form", ERRORS)
def test_an_error_is_read_in_every_form_at_its_place(form: str, wording: Wording) -> None:
    for before, after in ((": x\n\n", ""), ("", MARK), (wording.beginning, MARK), (wording.beginning, wording.rest)):
        body = before + ERRORS[form] + after
        for label in LABELS:
            for streamed in (True, False):
                read = response_to(wording, body, label, streamed=streamed)
                assert read.error is not None, (before, after, label, streamed, read.outcome)
                assert read.error.category is ms.ErrorCategory.INVALID_ARG
                assert "bad prompt" in read.error.message
                assert not read.error.retryable
        read = response_to(wording, body, "", streamed=True)
        assert any("TextDelta" in event for event in read.events) == (before == wording.beginning)
        cut = range(1, len(body.encode()))
        assert response_to(wording, body, "", streamed=True, cut=cut).delivered == read.delivered


UNREADABLE = {
    "a page": "<html><body>Sign in</body></html>", "a text": "upstream connect error",
    "a text in an event": "data: upstream connect error\n\n", "JSON that is cut": '{"id":"c1","choices":[{"mess',
    "an event that is cut": 'data: {"id":"c1"', "a number": "data: 7\n\n",
    "unknown fields": "status: fine\nstate: ready\n\n",
}  # fmt: skip


@wordings
@pytest.mark.parametrize("form", UNREADABLE)
def test_what_cannot_be_read_is_an_error_in_every_form(form: str, wording: Wording) -> None:
    for label in LABELS:
        for streamed in (True, False):
            read = response_to(wording, UNREADABLE[form], label, streamed=streamed)
            assert read.error is not None, (label, streamed, read.outcome)
            assert read.error.category in (ms.ErrorCategory.SERVER, ms.ErrorCategory.NETWORK)
            if form.startswith(("a page", "a text")):
                quoted = "Sign in" if form == "a page" else "upstream connect error"
                assert quoted in read.error.message + read.error.body.decode()
