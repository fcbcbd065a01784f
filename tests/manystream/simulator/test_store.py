"""Answers that the simulator keeps: what is written of them at a time, and what each response shows of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import openai
import pytest
from openai.types.responses import ResponseStreamEvent

from manystream.simulator import Simulator
from manystream.simulator import store as store_module
from manystream.simulator.program import Ending, Program

from .in_process import World, head_and_body
from .raw_client import HEADERS, connected, get, request_bytes

RESPONSES = "/v1/responses"
ASKED = {"model": "gpt-5.4", "input": "Name a river.", "background": True}


def whole(program: Program) -> Program:
    """The response as one program: what its chain of programs sends."""
    frames = list(program.frames)
    following = program.following
    while following is not None:
        frames += following.frames
        following = following.following
    return Program(frames)


def value(program: Program) -> dict[str, object]:
    """The JSON object of a response."""
    body: dict[str, object] = json.loads(head_and_body(whole(program))[1])
    return body


def status(program: Program) -> int:
    return int(program.frames[0].split()[1])


def numbers(program: Program) -> list[int]:
    """The numbers of a stream's events."""
    events = head_and_body(whole(program))[1].split("\n\n")
    return [json.loads(event.partition("data: ")[2])["sequence_number"] for event in events if event]


def moments(program: Program, now: float) -> list[float]:
    """When each frame of a response is sent."""
    found: list[float] = []
    current: Program | None = program
    while current is not None:
        now += current.delay
        for _ in current.frames:
            found.append(round(now, 6))
            now += current.interval
        current = current.following
    return found


def created(world: World, directive: str = "", *, stream: bool = False, headers: Mapping[str, str] = HEADERS) -> str:
    """Begin an answer in the background. Returns its path."""
    program = world.ask(RESPONSES, {**ASKED, "stream": stream}, directive=directive, headers=headers)
    assert status(program) == 200
    return f"{RESPONSES}/{id_in(b''.join(whole(program).frames))}"


def id_in(data: bytes) -> str:
    """The id of the answer in the beginning of a response."""
    return data.partition(b'"id":"')[2].partition(b'"')[0].decode()


def shown(world: World, path: str) -> str:
    """The status of an answer."""
    return str(value(world.ask(path, method="GET"))["status"])


def test_an_answer_is_queued_then_written_then_complete() -> None:
    world = World(directive="events=10")
    path = created(world, "delay=2,rate=10")
    statuses: list[str] = []
    for now in (0.0, 1.9, 2.0, 3.0, 3.4, 4.0):
        world.now = now
        statuses.append(shown(world, path))
    assert statuses == ["queued", "queued", "in_progress", "in_progress", "in_progress", "completed"]
    assert value(world.ask(path, method="GET"))["output"]


def test_the_response_to_the_creation_is_a_queued_answer() -> None:
    assert value(World().ask(RESPONSES, ASKED))["status"] == "queued"


def test_equal_requests_make_answers_with_different_ids() -> None:
    world = World()
    assert len({created(world) for _ in range(3)}) == 3


@pytest.mark.parametrize("read", range(-1, 30))
@pytest.mark.parametrize("now", [0.0, 0.5, 0.55, 30.0])
def test_a_stream_goes_on_after_the_event_that_the_reader_has(read: int, now: float) -> None:
    world = World(directive="events=10")
    path = created(world, "rate=10", stream=True)
    every = numbers(world.ask(f"{path}?stream=true", method="GET"))
    assert every == list(range(len(every)))
    world.now = now
    query = f"?stream=true&starting_after={read}" if read >= 0 else "?stream=true"
    program = world.ask(path + query, method="GET")
    assert numbers(program) == every[read + 1 :]
    due = [max(now, 0.1 * max(0, number - 2)) for number in every[read + 1 :]]
    sent = moments(program, now)
    assert sent[len(sent) - len(due) :] == pytest.approx(due), "what is written comes at once, the rest at its time"


def test_a_queued_answer_has_the_opening_of_its_stream() -> None:
    world = World(directive="events=2")
    program = world.ask(RESPONSES, {**ASKED, "stream": True}, directive="delay=5,rate=10")
    assert moments(program, 0.0)[:4] == pytest.approx([0.0, 0.0, 5.0, 5.1])


def test_a_fault_ends_a_response_and_not_the_answer() -> None:
    world = World(directive="events=10")
    path = created(world, "cut=4", stream=True)
    program = world.ask(f"{path}?stream=true&starting_after=3", method="GET")
    assert numbers(program)[0] == 4
    assert shown(world, path) == "completed"
    cut = world.ask(f"{path}?stream=true&starting_after=3", method="GET", directive="cut=2")
    assert whole(cut).frames == whole(program).frames[:2]
    assert (cut.ending, program.ending) == (Ending.CLOSE, Ending.KEEP)


def test_an_error_ends_the_answer() -> None:
    world = World(directive="events=10")
    path = created(world, "error=6", stream=True)
    found = value(world.ask(path, method="GET"))
    assert (found["status"], found["output"]) == ("failed", [])
    assert isinstance(found["error"], dict)
    program = world.ask(f"{path}?stream=true&starting_after=3", method="GET")
    assert numbers(program) == [4, 5, 6, 7]
    assert "response.failed" in head_and_body(whole(program))[1]


def test_requests_for_an_answer_fail_as_the_knobs_ask() -> None:
    world = World(directive="events=10")
    path = created(world)
    answers = [world.ask(path, method="GET", directive="fail=503,times=1") for _ in range(2)]
    assert [status(answer) for answer in answers] == [503, 200]
    assert world.ask(path, method="GET", directive="drop=1").frames == [b""]


def test_an_answer_is_cancelled_once_and_stays_so() -> None:
    world = World(directive="events=10")
    path = created(world, "rate=10", stream=True)
    world.now = 0.25
    assert [value(world.ask(f"{path}/cancel"))["status"] for _ in range(2)] == ["cancelled", "cancelled"]
    world.now = 60.0
    assert shown(world, path) == "cancelled"
    assert numbers(world.ask(f"{path}?stream=true", method="GET")) == [0, 1, 2, 3, 4]
    complete = created(world)
    assert value(world.ask(f"{complete}/cancel"))["status"] == "completed", "nothing is left to cancel"


def error(program: Program) -> dict[str, object]:
    found = value(program)["error"]
    assert isinstance(found, dict)
    return found


OTHER_KEY = {**HEADERS, "authorization": "Bearer sk-other"}


def test_an_answer_is_known_to_the_key_that_made_it() -> None:
    world = World(directive="events=2")
    path = created(world)
    id = path.rpartition("/")[2]
    for address, method in ((path, "GET"), (f"{path}/cancel", "POST"), (path, "DELETE")):
        refused = world.ask(address, method=method, headers=OTHER_KEY)
        assert status(refused) == 404
        assert error(refused) == {
            "message": f"Response with id '{id}' not found.", "type": "invalid_request_error", "param": None,
            "code": None,
        }  # fmt: skip
    assert shown(world, path) == "completed"


def test_a_deleted_answer_is_forgotten() -> None:
    world = World(directive="events=2")
    path = created(world)
    assert value(world.ask(path, method="DELETE")) == {
        "id": path.rpartition("/")[2],
        "object": "response",
        "deleted": True,
    }
    assert status(world.ask(path, method="GET")) == 404


def test_the_oldest_answers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "KEPT_ANSWERS", 2)
    world = World(directive="events=2")
    paths = [created(world) for _ in range(3)]
    assert [status(world.ask(path, method="GET")) for path in paths] == [404, 200, 200]


def test_a_foreground_answer_is_kept_unless_that_is_forbidden() -> None:
    world = World(directive="events=2")
    asked = {"model": "gpt-5.4", "input": "Name a river."}
    first = value(world.ask(RESPONSES, asked))
    path = f"{RESPONSES}/{first['id']}"
    assert value(world.ask(path, method="GET")) == first
    assert status(world.ask(path, method="GET", headers=OTHER_KEY)) == 404
    world.ask(RESPONSES, asked, headers=OTHER_KEY)
    assert status(world.ask(path, method="GET", headers=OTHER_KEY)) == 200, "equal requests have equal answers"
    for refused in (world.ask(f"{path}/cancel"), world.ask(f"{path}?stream=true", method="GET")):
        assert status(refused) == 400
    forbidden = value(world.ask(RESPONSES, {**asked, "store": False, "input": "Name a lake."}))
    assert status(world.ask(f"{RESPONSES}/{forbidden['id']}", method="GET")) == 404


@pytest.mark.parametrize(
    ("method", "more", "code"),
    [
        ("PUT", "", 405),
        ("GET", "/cancel", 405),
        ("POST", "", 405),
        ("GET", "/input_items", 404),
        ("GET", "?stream=true&starting_after=two", 400),
    ],
)
def test_requests_that_the_service_does_not_know_are_errors(method: str, more: str, code: int) -> None:
    world = World(directive="events=2")
    assert status(world.ask(created(world, stream=True) + more, method=method)) == code


@pytest.mark.parametrize("directive", ["rate=2", "delay=100", "rate=100,stall=4"])
def test_cancelling_ends_the_streams_that_show_the_answer(simulator: Simulator, directive: str) -> None:
    asked = {**ASKED, "stream": True}
    with connected(simulator) as line, connected(simulator) as other:
        line.send(request_bytes(RESPONSES, asked, directive=directive))
        while b'"id":"' not in line.received:
            assert line.more()
        id = id_in(line.received)
        other.send(request_bytes(f"{RESPONSES}/{id}/cancel", b""))
        assert other.read().json()["status"] == "cancelled"
        answer = line.read()
        assert answer.whole
        assert b"response.completed" not in answer.body
        line.send(request_bytes(f"{RESPONSES}/{id}?stream=true", method="GET"))
        assert line.read().events[: len(answer.events)] == answer.events, "the connection can be used again"
    counts = get(simulator, "/sim/statistics")
    assert isinstance(counts, dict)
    assert counts["live"] == 0


def collect(stream: Iterable[ResponseStreamEvent], events: list[ResponseStreamEvent]) -> None:
    """Append the events of a stream, those before an error, too."""
    for event in stream:
        events.append(event)  # an error leaves what came before it


def test_openais_sdk_resumes_a_stream(simulator: Simulator) -> None:
    with openai.OpenAI(
        api_key="sk-test", base_url=simulator.base_urls["openai-responses"], max_retries=0, timeout=20
    ) as client:
        events: list[ResponseStreamEvent] = []
        with (
            client.responses.create(
                model="sim-mixed",
                input="Name a river.",
                background=True,
                stream=True,
                extra_headers={"x-simulate": "cut=7"},
            ) as stream,
            pytest.raises(openai.APIConnectionError),
        ):
            collect(stream, events)
        first = events[0]
        assert first.type == "response.created"
        while events[-1].type != "response.completed":
            with client.responses.retrieve(
                first.response.id,
                stream=True,
                starting_after=events[-1].sequence_number,
                extra_headers={"x-simulate": "truncate=9"},
            ) as stream:
                events += stream
        whole_answer = client.responses.retrieve(first.response.id)
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert events[-1].response == whole_answer
        assert whole_answer.status == "completed"
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert "".join(deltas) == whole_answer.output_text


def test_openais_sdk_polls_cancels_and_deletes(simulator: Simulator) -> None:
    with openai.OpenAI(
        api_key="sk-test", base_url=simulator.base_urls["openai-responses"], max_retries=0, timeout=20
    ) as client:
        more = {"x-simulate": "delay=1000"}
        waiting = client.responses.create(model="sim-text", input="Hi.", background=True, extra_headers=more)
        assert (waiting.status, client.responses.retrieve(waiting.id).status) == ("queued", "queued")
        assert client.responses.cancel(waiting.id).status == "cancelled"
        client.responses.delete(waiting.id)
        with pytest.raises(openai.NotFoundError, match="not found"):
            client.responses.retrieve(waiting.id)
