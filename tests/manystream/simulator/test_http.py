"""The simulator's reader of HTTP/1.1: split at every byte, pipelined, chunked, and broken requests."""

from __future__ import annotations

import pytest

from manystream.http_server import HEAD_LIMIT, BadRequest, HTTPRequest, RequestReader
from manystream.simulator import Simulator

from .raw_client import body_of, connected, path_of, request_bytes, statistics

SIZED = b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nX-Simulate:  events=1 \r\nContent-Length: 4\r\n\r\nbody"
CHUNKED = (
    b"POST /a?b=c HTTP/1.1\r\nhost: x\r\nx-simulate: events=1\r\ntransfer-encoding: chunked\r\n\r\n"
    b"3;extension=1\r\nbod\r\n1\r\ny\r\n0\r\ntrailer: 1\r\n\r\n"
)


def requests_in(*pieces: bytes) -> list[HTTPRequest]:
    """All requests that a reader returns for these pieces."""
    reader = RequestReader()
    found: list[HTTPRequest] = []
    for piece in pieces:
        reader.feed(piece)
        while (request := reader.next_request()) is not None:
            found.append(request)
    return found


@pytest.mark.parametrize("data", [SIZED, CHUNKED])
def test_a_request_is_read_at_every_split_point(data: bytes) -> None:
    [whole] = requests_in(data)
    assert (whole.method, whole.path, whole.query, whole.body) == ("POST", "/a", {"b": "c"}, b"body")
    assert whole.headers["x-simulate"] == "events=1"
    for split in range(1, len(data)):
        assert requests_in(data[:split], data[split:]) == [whole]
    assert requests_in(*(data[at : at + 1] for at in range(len(data)))) == [whole]


def test_pipelined_requests_are_read_one_after_the_other() -> None:
    assert [request.body for request in requests_in(SIZED + CHUNKED + SIZED)] == [b"body"] * 3
    data = SIZED + CHUNKED
    for split in range(1, len(data)):
        assert len(requests_in(data[:split], data[split:])) == 2


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\r\nname : value\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nffffffffff\r\n", 413),
        (b"GET / HTTP/1.1\r\nhost: x\r\n" + b"x: y\r\n" * HEAD_LIMIT, 431),
    ],
)
def test_bytes_that_are_no_request_get_an_error_and_a_close(simulator: Simulator, data: bytes, status: int) -> None:
    with pytest.raises(BadRequest) as caught:
        requests_in(data)
    assert caught.value.status == status
    with connected(simulator) as line:
        line.send(data)
        answer = line.read()
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert not line.more()


def test_a_connection_serves_many_requests(simulator: Simulator) -> None:
    with connected(simulator) as line:
        for _ in range(3):
            for stream in (True, False):
                line.send(request_bytes(path_of("anthropic"), body_of("anthropic", stream=stream)))
                assert line.read().whole
    counts = statistics(simulator)
    assert (counts["accepted"], counts["completed"]) == (2, 6)


def test_pipelined_answers_come_in_order_and_whole(simulator: Simulator) -> None:
    requests = [
        request_bytes(path_of("openai-chat"), body_of("openai-chat", stream=True), directive=f"events={count}")
        for count in (1, 5, 2)
    ]
    with connected(simulator) as line:
        line.send(b"".join(requests))
        answers = [line.read() for _ in requests]
    assert [len(answer.events) for answer in answers] == [4, 8, 5]
    assert all(answer.whole for answer in answers)


def test_connection_close_closes_after_the_answer(simulator: Simulator) -> None:
    for stream in (True, False):
        with connected(simulator) as line:
            headers = {"authorization": "Bearer k", "connection": "close"}
            line.send(request_bytes(path_of("openai-chat"), body_of("openai-chat", stream=stream), headers=headers))
            answer = line.read()
            assert answer.whole
            assert answer.headers["connection"] == "close"
            assert not line.more()


def test_100_continue_is_sent_before_the_body(simulator: Simulator) -> None:
    headers = {"authorization": "Bearer k", "expect": "100-continue"}
    data = request_bytes(path_of("openai-chat"), body_of("openai-chat"), headers=headers)
    head, _, body = data.partition(b"\r\n\r\n")
    with connected(simulator) as line:
        line.send(head + b"\r\n\r\n")
        while b"\r\n\r\n" not in line.received:
            assert line.more()
        assert line.received == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.received = b""
        line.send(body)
        assert line.read().status == 200


def test_a_client_that_leaves_in_the_middle_is_counted(simulator: Simulator) -> None:
    with connected(simulator) as line:
        line.send(
            request_bytes(path_of("openai-chat"), body_of("openai-chat", stream=True), directive="rate=10,events=1000")
        )
        while line.received.count(b"data: ") < 1:
            assert line.more()
    while not (counts := statistics(simulator))["aborted"]:
        pass
    assert (counts["completed"], counts["live"], counts["connections"]) == (0, 0, 1)
