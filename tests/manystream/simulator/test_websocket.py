"""Responses over a WebSocket: what the simulator keeps, refuses and breaks, and what OpenAI's session reads of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from openai.lib.responses_websocket import (
    AsyncResponsesWebSocketSession,
    ResponsesWebSocketError,
    ResponsesWebSocketLimits,
)

from manystream.simulator import Simulator
from manystream.transport.websocket import PING, PONG, encode_frame
from tests.support.websocket_client import Socket, create, id_of, opened, three_turns

from .raw_client import get

KINDS = ("response.created", "response.completed")


def address(simulator: Simulator) -> tuple[str, int]:
    return simulator.host, simulator.port


def asked(simulator: Simulator) -> list[dict[str, Any]]:
    """The turns as the server has answered them."""
    page: Any = get(simulator, "/sim/requests")
    return [entry["body"] for entry in page if "sent" in entry]


def error_of(events: list[dict[str, Any]]) -> tuple[object, object]:
    return events[-1].get("status"), events[-1]["error"]["code"]


def kinds_of(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events if "delta" not in event]


def test_the_events_are_those_of_http(simulator: Simulator) -> None:
    with openai.OpenAI(api_key="k", base_url=simulator.base_urls["openai-responses"]) as client:
        question: Any = [{"role": "user", "content": "Hello."}]
        http = [each.to_dict() for each in client.responses.create(model="sim-text", input=question, stream=True)]
    with opened(address(simulator)) as line:
        events = line.ask()

    def known(event: dict[str, Any]) -> dict[str, Any]:
        return {**event, "response": {**event.get("response", {}), "id": ""}}

    assert [known(event) for event in events] == [known(event) for event in http]  # type: ignore[arg-type]


def test_the_server_rebuilds_the_conversation(simulator: Simulator) -> None:
    with opened(address(simulator)) as line:
        previous = None
        for number in range(3):
            more = {} if previous is None else {"previous_response_id": previous}
            events = line.ask(f"Question {number}", store=False, model="sim-tools" if number == 3 else "m", **more)
            previous = id_of(events)
    bodies = asked(simulator)
    inputs = [body["input"] for body in bodies]
    assert [len(each) for each in inputs] == [1, 3, 5]
    assert (inputs[2][:3], inputs[1][:1]) == (inputs[1], inputs[0])
    assert [item["role"] for item in inputs[2]] == ["user", "assistant"] * 2 + ["user"]
    assert bodies[2].keys() == {"model", "input", "store", "stream"}


def test_only_the_latest_answer_of_a_stream_goes_on(simulator: Simulator) -> None:
    with opened(address(simulator)) as line:
        first = id_of(line.ask("One", store=False))
        second = id_of(line.ask("Two", store=False, previous_response_id=first))
        lost = line.ask("Three", store=False, previous_response_id=first)
        kept = line.ask("Three", store=False, previous_response_id=second, stream_id="fork")
        failed = line.ask("Four", store=False, previous_response_id=second, max_output_tokens="x")
        gone = line.ask("Five", store=False, previous_response_id=second)
        fork = line.ask("Six", store=False, previous_response_id=id_of(kept), stream_id="fork")
        stored = id_of(line.ask("Seven"))
        line.ask("Eight")
        from_store = line.ask("Nine", previous_response_id=stored)
    assert error_of(lost) == (400, "previous_response_not_found")
    assert {event["stream_id"] for event in kept} == {"fork"}
    assert error_of(failed)[0] == 400
    assert error_of(gone) == (400, "previous_response_not_found")
    assert fork[-1]["type"] == from_store[-1]["type"] == "response.completed"


@pytest.mark.parametrize(
    ("model", "last"), [("sim@error=3", "failed"), ("sim@finish=length", "incomplete"), ("sim@fail=429", None)]
)
def test_an_answer_that_failed_is_no_parent(simulator: Simulator, model: str, last: str | None) -> None:
    with opened(address(simulator)) as line:
        parent = id_of(line.ask("One", store=False))
        events = line.ask("Two", store=False, model=model, previous_response_id=parent)
        if last == "failed":
            events = line.next_turn()
        tried = parent if last is None else id_of(events)
        after = line.ask("Three", store=False, previous_response_id=tried)
    assert events[-1]["type"] == ("error" if last is None else f"response.{last}")
    assert error_of(after) == (400, "previous_response_not_found")


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"stream_id": "a b"}, "invalid_stream_id"),
        ({"stream_id": 7}, "invalid_stream_id"),
        ({"background": True}, None),
        ({"type": "response.cancel"}, None),
        ({"model": None}, None),
    ],
)
def test_a_wrong_message_gets_an_error_event(simulator: Simulator, members: dict[str, Any], code: str) -> None:
    with opened(address(simulator)) as line:
        events = line.ask(**members)
        assert line.ask()[-1]["type"] == "response.completed"
    assert (events[-1]["type"], events[-1]["status"]) == ("error", 400)
    assert code is None or error_of(events)[1] == code


def test_a_connection_has_32_named_streams(simulator: Simulator) -> None:
    with opened(address(simulator)) as line:
        for number in range(33):
            line.send(create(stream_id=f"s-{number}"))
        turns = [line.next_turn() for _ in range(33)]
        again = line.ask(stream_id="s-0")
    assert [turn[-1]["type"] for turn in turns] == ["response.completed"] * 32 + ["error"]
    assert error_of(turns[-1])[1] == "websocket_stream_limit_reached"
    assert again[-1]["stream_id"] == "s-0"


def test_a_response_without_output_can_be_continued(simulator: Simulator) -> None:
    with opened(address(simulator)) as line:
        warm = line.ask("Rules", generate=False)
        line.ask("Hello", previous_response_id=id_of(warm))
    assert kinds_of(warm) == ["created", "in_progress", "completed"]
    assert warm[-1]["response"]["output"] == []  # type: ignore[index]
    assert [item["content"] for item in asked(simulator)[1]["input"]] == ["Rules", "Hello"]


FAULTS = {
    "cut=2": (2, None),
    "reset=2": (2, None),
    "truncate=2": (2, 1000),
    "close=1011": (0, 1011),
    "close=1001,truncate=3": (3, 1001),
    "drop=1": (0, None),
    "cut_bytes=7": (0, None),
}


@pytest.mark.parametrize("directive", FAULTS)
@pytest.mark.parametrize("chunk", [0, 5])
def test_a_fault_ends_the_connection(simulator: Simulator, directive: str, chunk: int) -> None:
    with opened(address(simulator)) as line:
        line.send(create(model=f"sim@{directive},chunk={chunk}"))
        try:
            line.wait(lambda: False)
        except ConnectionResetError:
            assert "reset" in directive
        assert (len(line.events), line.closed) == FAULTS[directive]


@pytest.mark.parametrize("directive", ["stall=2", "silent=2"])
def test_a_silent_server_answers_no_ping(simulator: Simulator, directive: str) -> None:
    with opened(address(simulator)) as line, opened(address(simulator)) as other:
        line.send(create(model=f"sim@{directive}"))
        line.wait(lambda: len(line.events) == 2)
        line.ping()
        other.ping()
        other.wait(lambda: bool(other.control))
        other.ask()
        if directive == "stall=2":
            line.wait(lambda: bool(line.control))
        assert line.control == [(PONG, b"there?")] * (directive == "stall=2")


def test_a_stalled_stream_is_pinged(simulator: Simulator) -> None:
    with opened(address(simulator)) as line:
        line.send(create(model="sim@stall=1,ping=0.001"))
        line.wait(lambda: len(line.control) > 1)
    assert line.control[0] == (PING, b"")


def test_a_large_message_is_refused_with_1009(simulator: Simulator) -> None:
    with opened(address(simulator), "x-simulate: largest=300") as line:
        line.ask()
        line.send(create("x" * 300))
        assert not line.wait(lambda: False)
        assert line.closed == 1009


def test_a_connection_that_has_lived_its_time_ends(simulator: Simulator) -> None:
    with opened(address(simulator), "x-simulate: lifetime=0") as line:
        events = line.ask()
        line.wait(lambda: line.closed is not None)
    assert error_of(events)[1] == "websocket_connection_limit_reached"


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("x-simulate: fail=401", 401),
        ("x-simulate: fail=503", 503),
        ("sec-websocket-version: 12", 426),
        ("sec-websocket-key: short", 400),
        ("authorization: ", 401),
        ("x-simulate: drop=1", 0),
    ],
)
def test_a_handshake_can_be_refused(simulator: Simulator, header: str, status: int) -> None:
    with opened(address(simulator), header) as line:
        assert line.head.startswith(f"HTTP/1.1 {status} ") == bool(status)


def test_frames_that_break_the_rules_end_it(simulator: Simulator) -> None:
    with opened(address(simulator)) as line:
        line.ask()
        line.send(encode_frame(b"{}", masked=False))
        assert not line.wait(lambda: False)
        assert line.closed == 1002


def steered(line: Socket, **members: Any) -> list[dict[str, Any]]:
    """Steer a slow answer at its seventh event, and return the events up to the end of the last turn."""
    line.send(create(**members))
    line.wait(lambda: len(line.events) > 6)
    steer = {"type": "response.steer", "previous_response_id": id_of(line.events[:1]), "input": "Left."}
    line.send(encode_frame(json.dumps(steer).encode(), masked=True))
    return line.next_turn()


def test_a_text_that_is_steered_goes_on_with_the_input(simulator: Simulator) -> None:
    with opened(address(simulator)) as line:
        one = steered(line, model="sim@rate=100,events=30", stream_id="s")
        two = line.next_turn()
    assert kinds_of(one)[:5] == ["created", "in_progress", "output_item.added", "content_part.added", "steer.accepted"]
    last = one[-1]["response"]
    assert (last["status"], last["incomplete_details"]) == ("incomplete", {"reason": "steered"})
    assert [event["sequence_number"] for event in one if "steer" not in event] == list(range(len(one) - 1))
    assert (kinds_of(two)[0], two[-1]["type"], two[-1]["stream_id"]) == ("created", "response.completed", "s")
    [_, whole] = asked(simulator)
    assert whole["input"][1]["content"][0]["text"] == last["output"][0]["content"][0]["text"]
    assert whole["input"][2] == {"role": "user", "content": "Left."}


def test_a_tool_call_that_is_steered_waits_for_its_result(simulator: Simulator) -> None:
    with opened(address(simulator)) as line:
        one = steered(line, model="sim-mixed@rate=100,events=20,calls=1")
        line.wait(lambda: bool(line.events))
        pending = line.events.pop(0)
        [required] = pending["required_input"]  # type: ignore[misc]
        required["output"] = "ok"
        line.ask(input=[required], previous_response_id=id_of(one))
    assert (pending["type"], pending["steer"]) == (
        "response.steer.pending",
        {"id": "steer_1", "previous_response_id": id_of(one)},
    )
    *_, left, result = asked(simulator)[1]["input"]
    assert (left, result["type"]) == ({"role": "user", "content": "Left."}, "function_call_output")


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({}, "response_already_completed"),
        ({"previous_response_id": "resp_x"}, "response_not_found"),
        ({"input": []}, "invalid_input"),
        ({"stream_id": "s"}, "invalid_input"),
    ],
)
def test_an_input_that_cannot_steer_comes_back(simulator: Simulator, members: dict[str, Any], code: str) -> None:
    with opened(address(simulator)) as line:
        steer = {"type": "response.steer", "previous_response_id": id_of(line.ask()), "input": "Left.", **members}
        line.send(encode_frame(json.dumps(steer).encode(), masked=True))
        line.wait(lambda: bool(line.events))
    [event] = line.events
    assert event["type"] == "response.steer.failed"
    assert (event["error"]["code"], event["steer"]["input"]) == (code, steer["input"])  # type: ignore[index]


def test_openais_session_reads_streams_and_errors(simulator: Simulator) -> None:
    limits = ResponsesWebSocketLimits(
        max_lanes=8, max_events_per_lane=256, max_events=2048, max_bytes_per_lane=1 << 24, max_bytes=1 << 26
    )

    async def main() -> tuple[list[list[str]], object]:
        async with (
            openai.AsyncOpenAI(api_key="k", base_url=simulator.base_urls["openai-responses"]) as client,
            client.responses.connect() as connection,
            AsyncResponsesWebSocketSession(connection, limits=limits) as session,
        ):
            said = await asyncio.gather(*(three_turns(session.lane(f"agent-{number}")) for number in range(4)))
            await session.default.send({"type": "response.create", "model": "sim@fail=429,retry_after=3", "input": "x"})
            with pytest.raises(ResponsesWebSocketError) as caught:
                await session.default.get_final_response()
            return said, caught.value.event

    said, event = asyncio.run(main())
    assert said == [["completed"] * 3] * 4
    assert (event.status, event.error.headers["retry-after"]) == (429, "3")  # type: ignore[attr-defined]
    assert len(asked(simulator)) == 13
