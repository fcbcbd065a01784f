"""Recorded exchanges as answers: which exchange a request gets, its bytes and its pace, and broken recordings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from manystream.http_server import HTTPRequest
from manystream.simulator import ReplayError, read_replay
from manystream.simulator.program import Ending, Program
from manystream.simulator.replay import Exchange, Replay

LINE: dict[str, Any] = {
    "version": 1, "request": {"target": "/v1/messages?beta=true", "body": '{"b": 1, "a": [2]}'},
    "response": {"status": 200, "headers": [["A", "b"], ["C", "d"]], "at": 0.5},
    "chunks": [[0.75, "data: 1\n\n"], [0.75, ""], [2.0, {"base64": "//4="}]], "ended": 3.0, "end": "whole",
}  # fmt: skip
HEAD = b"HTTP/1.1 200 OK\r\nA: b\r\nC: d\r\ntransfer-encoding: chunked\r\n\r\n"
CLOSING_HEAD = b"HTTP/1.1 200 OK\r\nA: b\r\nC: d\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
FIRST, SECOND, LAST = b"9\r\ndata: 1\n\n\r\n", b"2\r\n\xff\xfe\r\n", b"0\r\n\r\n"
BODY = b'{"a":[2],"b":1}'


def written(folder: Path, *lines: object) -> str:
    path = folder / "recording.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return str(path)


def request(target: str = "/v1/messages", body: bytes = BODY, *, keep: bool = True) -> HTTPRequest:
    return HTTPRequest("POST", target, {}, body, keep)


def chain(program: Program | None) -> list[tuple[list[bytes], float, int, Ending]]:
    """The frames, delay, events and ending of each program of a chain."""
    found: list[tuple[list[bytes], float, int, Ending]] = []
    while program is not None:
        found.append((program.frames, program.delay, program.events, program.ending))
        program = program.following
    return found


def test_a_replay_sends_bytes_when_they_were_received(tmp_path: Path) -> None:
    assert chain(read_replay(written(tmp_path, LINE)).answer(request())) == [
        ([HEAD], 0.5, 1, Ending.KEEP),
        ([FIRST], 0.25, 1, Ending.KEEP),
        ([SECOND + LAST], 1.25, 1, Ending.KEEP),
    ]


def test_pace_is_the_speed_relative_to_the_recording(tmp_path: Path) -> None:
    programs = chain(read_replay(written(tmp_path, LINE), 2.0).answer(request()))
    assert [delay for _, delay, _, _ in programs] == [0.25, 0.125, 0.625]


def test_without_a_pace_all_is_one_program(tmp_path: Path) -> None:
    program = read_replay(written(tmp_path, LINE), 0).answer(request())
    assert program == Program([HEAD, FIRST, SECOND + LAST], events=3, ending=Ending.KEEP)


def test_a_client_that_closes_gets_a_closing_head(tmp_path: Path) -> None:
    program = read_replay(written(tmp_path, LINE), 0).answer(request(keep=False))
    assert program == Program([CLOSING_HEAD, FIRST, SECOND + LAST], events=3, ending=Ending.CLOSE)


@pytest.mark.parametrize(
    ("end", "keep", "ending"),
    [
        ("broken", True, Ending.CLOSE),
        ("broken", False, Ending.CLOSE),
        ("left", True, Ending.STALL),
        ("left", False, Ending.STALL),
    ],
)
def test_an_exchange_that_did_not_end_well_ends_late(tmp_path: Path, end: str, keep: bool, ending: Ending) -> None:
    replay = read_replay(written(tmp_path, {**LINE, "end": end}))
    assert chain(replay.answer(request(keep=keep))) == [
        ([HEAD if keep else CLOSING_HEAD], 0.5, 1, ending), ([FIRST], 0.25, 1, ending), ([SECOND], 1.25, 1, ending),
        ([b""], 1.0, 1, ending),
    ]  # fmt: skip


def test_without_a_response_only_the_end_is_replayed(tmp_path: Path) -> None:
    line: dict[str, Any] = {**LINE, "response": {}, "chunks": [], "end": "broken"}
    assert chain(read_replay(written(tmp_path, line)).answer(request())) == [([b""], 3.0, 1, Ending.CLOSE)]
    assert read_replay(written(tmp_path, line), 0).answer(request()) == Program([b""], ending=Ending.CLOSE)


def test_times_that_go_back_are_no_pause(tmp_path: Path) -> None:
    line = {**LINE, "chunks": [[0.25, "a"], [1, "b"]]}
    programs = chain(read_replay(written(tmp_path, line)).answer(request()))
    assert [delay for _, delay, _, _ in programs] == [0.5, 0.0, 0.75]


# --- which exchange a request gets ---


def exchange(name: str, *, body: bytes = BODY, endpoint: str = "messages") -> Exchange:
    return Exchange(endpoint, body, 200, (), 0.0, ((0.0, name.encode()),), 0.0, Ending.KEEP)


def answers(replay: Replay, *requests: HTTPRequest) -> list[str]:
    """The name of the exchange that each request gets."""
    found: list[str] = []
    for one in requests:
        program = replay.answer(one)
        found.append("" if program is None else program.frames[1].split(b"\r\n")[1].decode())
    return found


def test_equal_requests_get_their_exchanges_in_turn() -> None:
    replay = Replay([exchange("1"), exchange("x", body=b"other"), exchange("2"), exchange("3")], 0)
    assert answers(replay, *[request()] * 7) == ["1", "2", "3", "1", "2", "3", "1"]


def test_requests_are_equal_whatever_their_formatting() -> None:
    replay = Replay([exchange("1", body=b"else"), exchange("2"), exchange("3", endpoint="responses")], 0)
    assert answers(replay, request(body=b'{ "b": 1, "a" : [2] }')) == ["2"]
    assert answers(replay, request("/v1/responses?x=/y", b'{"b":1,"a":[2]}')) == ["3"]
    assert answers(replay, request("/other/place/messages?x=1", b"else")) == ["1"]


def test_an_unknown_request_gets_what_was_not_sent_yet() -> None:
    replay = Replay([exchange("1"), exchange("2"), exchange("3"), exchange("4", endpoint="responses")], 0)
    other = request(body=b"other")
    assert answers(replay, request(), other, other, other, other) == ["1", "2", "3", "", ""]
    assert answers(replay, request("/v1/unknown"), request("/v1/responses", b"x")) == ["", "4"]


def test_by_default_a_replay_keeps_its_pauses() -> None:
    late = Exchange("messages", BODY, 200, (), 1.0, ((4.0, b"x"),), 4.0, Ending.KEEP)
    assert [delay for _, delay, _, _ in chain(Replay([late]).answer(request()))] == [1.0, 3.0]


def test_deep_nesting_is_compared_as_it_is() -> None:
    deep = b"[" * 900 + b"]" * 900
    assert answers(Replay([exchange("1", body=deep)], 0), request(body=deep)) == ["1"]


# --- recordings that cannot be read ---


def changed(**members: object) -> dict[str, Any]:
    return {**LINE, **members}


def of_response(**members: object) -> dict[str, Any]:
    return {**LINE, "response": {**LINE["response"], **members}}


BROKEN: list[tuple[object, str]] = [
    ("[]", "it is not a JSON object"),
    ("{", "it is not a JSON object"),
    (changed(version=3), "its version is not 1 or 2"),
    (changed(version=None), "its version is not 1 or 2"),
    (changed(request={"target": "/x"}), "'body'"),
    (changed(request={"target": "/x", "body": 4}), "bytes are neither text nor base64"),
    (changed(chunks=None), "a list is missing"),
    (changed(chunks=[1]), "an item of a list is not a pair"),
    (changed(chunks=[[1, "a", 2]]), "an item of a list is not a pair"),
    (changed(chunks=[["1", "a"]]), "a time is not a number"),
    (changed(chunks=[[True, "a"]]), "a time is not a number"),
    (changed(chunks=[[1, None]]), "bytes are neither text nor base64"),
    (changed(chunks=[[1, {"base64": "!"}]]), "Only base64 data is allowed"),
    (changed(ended="3"), "a time is not a number"),
    (changed(end="else"), "'else'"),
    (of_response(status="200"), "the status is not a whole number"),
    (of_response(status=True), "the status is not a whole number"),
    (of_response(headers={"A": "b"}), "a list is missing"),
    (of_response(headers=[["A", 1]]), "a header is not text"),
    (of_response(headers=[[1, "A"]]), "a header is not text"),
    (of_response(headers=[["A", "b\r\nC: d"]]), "the header 'A' holds a control character"),
    (of_response(headers=[["A\n", "b"]]), "the header 'A\\n' holds a control character"),
    (of_response(at=None), "a time is not a number"),
]


@pytest.mark.parametrize(("line", "message"), BROKEN)
def test_a_broken_line_is_named(tmp_path: Path, line: object, message: str) -> None:
    path = written(tmp_path, LINE, line)
    with pytest.raises(ReplayError) as caught:
        read_replay(path)
    assert str(caught.value) == f"{path}, line 2 is not a recorded exchange: {message}"


@pytest.mark.parametrize("pace", [-0.001, float("inf"), float("nan")])
def test_a_pace_is_from_zero_and_finite(tmp_path: Path, pace: float) -> None:
    with pytest.raises(ReplayError, match=r"\Apace must be 0 or more\Z"):
        read_replay(written(tmp_path, LINE), pace)


def test_a_file_that_is_missing_or_empty_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(ReplayError) as caught:
        read_replay(missing)
    assert str(caught.value) == f"{missing}: No such file or directory"
    empty = written(tmp_path)
    with pytest.raises(ReplayError) as caught:
        read_replay(empty)
    assert str(caught.value) == f"{empty} holds no exchange"
