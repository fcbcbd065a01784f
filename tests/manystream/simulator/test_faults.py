"""Every knob that paces or breaks an answer, observed on a raw socket."""

import json
import time

import pytest

from manystream.simulator import Simulator

from .raw_client import DIALECTS, ask, body_of, connected, path_of, request_bytes, statistics

FAULTLESS_EVENTS = {"openai-chat": 11, "openai-responses": 16, "anthropic": 14, "gemini": 9, "gemini-interactions": 14}
"""Number of events of a stream of eight words, by dialect."""

TERMINAL = {
    "openai-chat": b"data: [DONE]",
    "openai-responses": b"event: response.completed",
    "anthropic": b"event: message_stop",
    "gemini": b'data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP"',
    "gemini-interactions": b"event: done",
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_event_is_one_http_chunk_up_to_the_marker(simulator: Simulator, dialect: str) -> None:
    answer = ask(simulator, dialect)
    assert answer.status == 200
    assert answer.whole
    assert len(answer.chunks) == len(answer.events) == FAULTLESS_EVENTS[dialect]
    assert answer.events[-1].startswith(TERMINAL[dialect])
    assert answer.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("place", [0, 1, 5])
def test_cut_closes_after_exactly_so_many_events(simulator: Simulator, dialect: str, place: int) -> None:
    answer = ask(simulator, dialect, f"cut={place}")
    assert (answer.status, len(answer.events)) == (200, place)
    assert not answer.whole
    assert not answer.reset


def test_reset_sends_a_tcp_reset_after_the_events(simulator: Simulator) -> None:
    answer = ask(simulator, directive="reset=3")
    assert (len(answer.events), answer.rest) == (3, b"")
    assert answer.reset
    counts = statistics(simulator)
    assert (counts["started"], counts["completed"], counts["live"]) == (1, 1, 0)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_truncate_ends_the_body_without_the_marker(simulator: Simulator, dialect: str) -> None:
    answer = ask(simulator, dialect, "truncate=-1")
    assert answer.whole
    assert len(answer.events) == FAULTLESS_EVENTS[dialect] - 1
    assert not any(event.startswith(TERMINAL[dialect]) for event in answer.events)


def test_stall_sends_nothing_after_so_many_events(simulator: Simulator) -> None:
    with connected(simulator) as line:
        line.send(request_bytes(path_of("openai-chat"), body_of("openai-chat", stream=True), directive="stall=4"))
        while line.received.count(b"data: ") < 4:
            assert line.more()
        line.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            line.more()
        assert statistics(simulator)["live"] == 1
    wait_until(simulator, "aborted", 1)
    assert statistics(simulator)["live"] == 0


@pytest.mark.parametrize(
    ("dialect", "ping"),
    [
        ("openai-chat", b": keep-alive\n\n"),
        ("openai-responses", b"event: keepalive\n"),
        ("anthropic", b"event: ping\n"),
        ("gemini", b": keep-alive\r\n\r\n"),
        ("gemini-interactions", b": keep-alive\n\n"),
    ],
)
def test_a_stalled_stream_pings_where_it_is_asked_to(simulator: Simulator, dialect: str, ping: bytes) -> None:
    with connected(simulator) as line:
        request = request_bytes(
            path_of(dialect, stream=True), body_of(dialect, stream=True), directive="stall=1,ping=0.01"
        )
        line.send(request)
        while line.received.count(ping) < 3:
            assert line.more()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_malformed_breaks_one_event_and_no_other(simulator: Simulator, dialect: str) -> None:
    good, bad = ask(simulator, dialect), ask(simulator, dialect, "malformed=5")
    different = [place for place, (a, b) in enumerate(zip(good.events, bad.events, strict=True)) if a != b]
    assert different == [5]
    data = bad.events[5].partition(b"data: ")[2]
    with pytest.raises(json.JSONDecodeError):
        json.loads(data)


@pytest.mark.parametrize(
    ("dialect", "status", "words"),
    [
        ("openai-chat", 429, [b'data: {"error":{"message"', b'"code":"rate_limit_exceeded"']),
        ("openai-responses", 429, [b"event: error", b"event: response.failed", b'"status":"failed"']),
        ("anthropic", 529, [b"event: error", b'"type":"overloaded_error"']),
        ("gemini", 503, [b'data: {"error":{"code":503', b'"status":"UNAVAILABLE"']),
        ("gemini-interactions", 503, [b"event: error", b'"code":"unavailable"']),
    ],
)
def test_error_ends_the_stream_with_the_dialects_own_error_event(
    simulator: Simulator, dialect: str, status: int, words: list[bytes]
) -> None:
    answer = ask(simulator, dialect, f"error=4,error-status={status}")
    assert answer.whole
    assert answer.events[:4] == ask(simulator, dialect).events[:4]
    ending = b"\n".join(answer.events[4:])
    assert all(word in ending for word in words), ending
    assert not any(event.startswith(TERMINAL[dialect]) for event in answer.events)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_fail_responds_with_the_status_and_keeps_the_connection(simulator: Simulator, dialect: str) -> None:
    with connected(simulator) as line:
        body = body_of(dialect, stream=True)
        line.send(request_bytes(path_of(dialect, stream=True), body, directive="fail=503"))
        refused = line.read()
        assert refused.status == 503
        assert refused.headers["content-type"].startswith("application/json")
        assert "error" in refused.json()
        line.send(request_bytes(path_of(dialect, stream=True), body))
        assert line.read().whole


RETRY_HINTS = {
    "openai-chat": {"retry-after": "1.5", "retry-after-ms": "1500"},
    "openai-responses": {"retry-after": "1.5", "retry-after-ms": "1500"},
    "anthropic": {"retry-after": "1.5", "x-should-retry": "true"},
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_failure_tells_when_to_come_again_as_the_service_does(simulator: Simulator, dialect: str) -> None:
    answer = ask(simulator, dialect, "fail=429,retry-after=1.5")
    hints = RETRY_HINTS.get(dialect, {})
    assert {name: answer.headers.get(name) for name in hints} == hints
    if dialect == "gemini":
        assert "retry-after" not in answer.headers
        assert b'"retryDelay":"1.5s"' in answer.body


def test_code_replaces_the_providers_own_error_code(simulator: Simulator) -> None:
    error = ask(simulator, directive="fail=429,code=insufficient_quota").json()["error"]
    assert isinstance(error, dict)
    assert (error["type"], error["code"]) == ("insufficient_quota", "insufficient_quota")


def test_times_makes_only_the_first_requests_fail(simulator: Simulator) -> None:
    directive = "fail=429,times=2"
    assert [ask(simulator, directive=directive).status for _ in range(4)] == [429, 429, 200, 200]


def test_times_counts_each_key_apart(simulator: Simulator) -> None:
    statuses = [ask(simulator, directive=f"fail=500,times=1,key={key}").status for key in ("a", "b", "a", "b")]
    assert statuses == [500, 500, 200, 200]


def test_times_holds_for_faults_inside_the_stream_too(simulator: Simulator) -> None:
    assert [ask(simulator, directive="cut=2,times=1").whole for _ in range(3)] == [False, True, True]


def test_drop_closes_without_any_response(simulator: Simulator) -> None:
    answer = ask(simulator, directive="drop=1")
    assert (answer.status, answer.body, answer.reset) == (0, b"", False)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_chunk_cuts_the_same_body_anywhere(simulator: Simulator, dialect: str, size: int, stream: bool) -> None:
    uncut = ask(simulator, dialect, stream=stream)
    answer = ask(simulator, dialect, f"chunk={size}", stream=stream)
    assert answer.body == uncut.body
    assert {len(piece) for piece in answer.chunks[:-1]} <= {size}
    assert answer.whole


def test_a_cut_body_still_cuts_after_whole_events(simulator: Simulator) -> None:
    uncut = ask(simulator)
    answer = ask(simulator, directive="chunk=7,cut=3")
    assert answer.body == b"".join(uncut.chunks[:3])
    assert not answer.whole


def test_delay_holds_the_first_byte_back(simulator: Simulator) -> None:
    begin = time.monotonic()
    assert ask(simulator, directive="delay=0.15").whole
    assert time.monotonic() - begin >= 0.15


def test_rate_spaces_events_and_never_sends_one_early(simulator: Simulator) -> None:
    begin = time.monotonic()
    answer = ask(simulator, directive="rate=100,events=20")
    # The first event is due at once; 20 pieces of text and three more events are 22 intervals of 10 ms.
    assert time.monotonic() - begin >= 0.22
    assert answer.whole


def test_rate_holds_for_a_body_that_is_cut_small(simulator: Simulator) -> None:
    begin = time.monotonic()
    assert ask(simulator, directive="rate=100,events=20,chunk=16").whole
    assert 0.2 <= time.monotonic() - begin < 5


@pytest.mark.parametrize("dialect", DIALECTS)
def test_stamp_makes_each_text_the_time_of_its_sending(simulator: Simulator, dialect: str) -> None:
    before = time.monotonic_ns()
    answer = ask(simulator, dialect, "stamp=1,rate=500,events=6")
    after = time.monotonic_ns()
    assert answer.whole
    texts = [text for event in answer.events for text in deltas_of(event)]
    assert {len(text) for text in texts} == {len("12345678901234567890 ")}  # the demo expects twenty digits
    stamps = [int(text) for text in texts]
    assert len(stamps) == 6
    assert before <= stamps[0] <= stamps[-1] <= after  # on a busy machine, several are sent at once
    assert stamps[-1] - before >= 5_000_000  # the last one is due ten milliseconds after the first
    assert stamps == sorted(stamps)
    if dialect == "openai-responses":
        assert "".join(texts).encode() in answer.events[-1]


def test_stamp_works_unstreamed(simulator: Simulator) -> None:
    answer = ask(simulator, directive="stamp=1,events=3", stream=False)
    choices = answer.json()["choices"]
    assert isinstance(choices, list)
    assert len([int(word) for word in choices[0]["message"]["content"].split()]) == 3


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_unstreamed_answer_breaks_at_a_byte_of_its_body(simulator: Simulator, dialect: str) -> None:
    good = ask(simulator, dialect, stream=False)
    cut = ask(simulator, dialect, "cut=20", stream=False)
    assert (cut.body, cut.whole) == (good.body[:20], False)
    assert cut.headers["content-length"] == str(len(good.body))
    short = ask(simulator, dialect, "truncate=20", stream=False)
    assert (short.body, short.whole) == (good.body[:20], True)
    error = ask(simulator, dialect, "error=0", stream=False)
    assert error.status == 200
    assert "error" in error.json()


@pytest.mark.parametrize(
    "directive", ["speed=3", "events=many", "kind=poem", "fail=200", "stamp=1,chunk=3", "events", "rate=-1", "rate=nan"]
)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_unreadable_directive_is_refused_with_the_knobs_name(
    simulator: Simulator, dialect: str, directive: str
) -> None:
    answer = ask(simulator, dialect, directive)
    assert answer.status == 400
    assert directive.partition("=")[0].encode() in answer.body


def test_a_client_that_does_not_read_delays_no_other_client(simulator: Simulator) -> None:
    with connected(simulator) as slow:
        body = body_of("openai-chat", stream=True)
        slow.send(request_bytes(path_of("openai-chat"), body, directive="events=60000"))
        assert ask(simulator).whole
        answer = slow.read()
    assert answer.whole
    assert len(answer.events) == 60_003


def deltas_of(event: bytes) -> list[str]:
    """The visible text of an event of any dialect."""
    data = event.partition(b"data: ")[2]
    if not data.startswith(b"{"):
        return []
    value = json.loads(data)
    if "choices" in value:
        return [choice["delta"]["content"] for choice in value["choices"] if choice["delta"].get("content")]
    if value.get("type") == "response.output_text.delta":
        return [value["delta"]]
    if value.get("type") == "content_block_delta":
        return [value["delta"]["text"]]
    if value.get("event_type") == "step.delta":
        return [value["delta"]["text"]]
    parts = [part for candidate in value.get("candidates", ()) for part in candidate["content"]["parts"]]
    return [part["text"] for part in parts if part.get("text")]


def wait_until(simulator: Simulator, count: str, value: float) -> None:
    """Poll the statistics until a count has a value. Each poll is a round trip, so there is no sleep."""
    deadline = time.monotonic() + 10
    while statistics(simulator)[count] != value:
        assert time.monotonic() < deadline, f"{count} never became {value}"
