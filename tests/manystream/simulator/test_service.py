"""The service without sockets: where knobs come from, what is counted, cached and limited, and the pages about it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from manystream.http_server import BadRequest
from manystream.simulator import Knobs, Limit, Replay
from manystream.simulator import service as service_module
from manystream.simulator.inference import BatchModel
from manystream.simulator.limiter import Usage
from manystream.simulator.program import Ending, Program
from manystream.simulator.replica import Outage, Replica
from manystream.simulator.service import Service, ServiceSettings

from .in_process import World, head_and_body
from .raw_client import DIALECTS, body_of, path_of

CHAT = "/v1/chat/completions"


OVERLOADED = (
    '{"error":{"message":"The server is overloaded: too many requests are waiting.",'
    '"type":"server_error","param":null,"code":null}}'
)


def chat(text: str = "Hello.", *, model: str = "m", stream: bool = True) -> dict[str, object]:
    return body_of("openai-chat", text, stream=stream, model=model)


def status(program: Program) -> int:
    return int(head_and_body(program)[0][0].split()[1])


def test_a_service_has_these_settings_by_default() -> None:
    assert ServiceSettings() == ServiceSettings(
        knobs=Knobs(), journal=256, replay=None, limits=(), batch=None, replica=Replica()
    )
    assert Knobs() == Knobs(
        kind=None, text="sentences", events=None, calls=None, steps=1, finish="stop", cached=0, redacted=False,
        seed=None, stamp=False, rate=0.0, delay=0.0, chunk=0, ping=0.0, fail=None, retry_after=None, code=None,
        drop=False, cut=None, reset=None, truncate=None, stall=None, malformed=None, error=None,
        error_status=500, times=0, key="",
    )  # fmt: skip
    assert (service_module.CACHED_FRAMES, service_module.REPEATED_KEYS) == (100_000, 10_000)


def events_of(program: Program) -> int:
    return sum(b'"content":"' in frame for frame in program.frames) - 1


def test_the_header_wins_over_message_model_and_settings() -> None:
    world = World(directive="events=1")
    assert events_of(world.ask(CHAT, chat())) == 1
    assert events_of(world.ask(CHAT, chat(model="sim-text@events=2"))) == 2
    assert events_of(world.ask(CHAT, chat("simulate: events=3", model="sim-text@events=2"))) == 3
    last = chat("simulate: events=3", model="sim-text@events=2")
    assert events_of(world.ask(CHAT, last, directive="events=4")) == 4


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        ("0", "0"), ("2", "2"), ("20", "20"), ("100", "100"), ("0.25", "0.25"), ("1.0625", "1.062"), ("1.9996", "2"),
        ("0.0004", "0"),
    ],
)  # fmt: skip
def test_the_time_to_a_retry_is_a_number(seconds: str, text: str) -> None:
    lines, _ = head_and_body(World().ask(CHAT, chat(), directive=f"fail=429,retry-after={seconds}"))
    assert [line for line in lines if line.startswith("retry-after:")] == [f"retry-after: {text}"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_knows_its_usage(dialect: str) -> None:
    for stream in (True, False):
        body = {**body_of(dialect, "What is the weather in Rome?", stream=stream)}
        limits: dict[str, int] = {}
        if dialect == "gemini-interactions":
            body["generation_config"] = {"max_output_tokens": 90}
            limits["max_tokens"] = 90
        elif dialect != "gemini":
            name = {"openai-chat": "max_tokens", "openai-responses": "max_output_tokens"}.get(dialect, "max_tokens")
            body[name] = limits["max_tokens"] = 90
        program = World().ask(path_of(dialect, stream=stream), body, directive="kind=thinking,events=8,cached=3")
        assert program.usage == Usage(
            model="sim-text", input_tokens=8, cached_tokens=3, output_tokens=8, max_tokens=limits.get("max_tokens", 0),
            delay=0.0, seconds=0.0, streamed=stream,
        )  # fmt: skip
        assert program.ticket is None


# --- the knob `times`, and the cache ---


def test_equal_requests_share_a_program() -> None:
    world = World()
    first = world.ask(CHAT, chat())
    assert world.ask(CHAT, chat()) is first
    for other in (
        world.ask(CHAT, chat("Else")),
        world.ask(CHAT, chat(), directive="events=24"),
        world.ask(CHAT + "?x=1", chat()),
        world.ask(CHAT, chat(), keep=False),
    ):
        assert other is not first
    assert world.ask(CHAT, chat()) is first
    assert world.ask(CHAT, chat(), keep=False).ending is Ending.CLOSE


def test_a_full_cache_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "CACHED_FRAMES", 12)
    world = World(directive="events=3")  # six frames
    first, second = world.ask(CHAT, chat("1")), world.ask(CHAT, chat("2"))
    assert (world.ask(CHAT, chat("1")), world.ask(CHAT, chat("2"))) == (first, second)
    assert world.ask(CHAT, chat("1")) is first
    third = world.ask(CHAT, chat("3"))
    assert world.ask(CHAT, chat("3")) is third
    again = world.ask(CHAT, chat("1"))
    assert again is not first
    assert (world.ask(CHAT, chat("3")), world.ask(CHAT, chat("1"))) == (third, again)
    assert world.ask(CHAT, chat("3")) is third
    world.ask(CHAT, chat("2"))
    assert world.ask(CHAT, chat("3")) is not third


def test_times_counts_faults_by_path_and_directive_or_by_key() -> None:
    world = World()

    def fails(directive: str, *, path: str = CHAT, text: str = "Hello.") -> bool:
        return status(world.ask(path, chat(text) | {"input": text}, directive=directive)) != 200

    assert [fails("fail=500,times=2") for _ in range(4)] == [True, True, False, False]
    assert [fails("fail=500,times=2", text=f"{number}") for number in range(2)] == [False, False]
    assert [fails("fail=501,times=2") for _ in range(3)] == [True, True, False]
    assert [fails("fail=500,times=2", path="/v1/responses") for _ in range(3)] == [True, True, False]
    assert [fails(f"fail={code},times=1,key=k") for code in (500, 501, 502)] == [True, False, False]
    assert [fails("times=1") for _ in range(2)] == [False, False]


def test_an_answer_after_the_faults_has_all_other_knobs() -> None:
    world = World()
    assert world.ask(CHAT, chat(), directive="events=3,rate=10,drop=1,times=1").frames == [b""]
    assert world.ask(CHAT, chat(), directive="events=3,rate=10,drop=1,times=1") == world.ask(
        CHAT, chat(), directive="events=3,rate=10"
    )


def test_many_keys_of_times_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "REPEATED_KEYS", 2)
    world = World()

    def failed(text: str, *keys: str) -> list[bool]:
        return [status(world.ask(CHAT, chat(text), directive=f"fail=500,times=1,key={key}")) == 500 for key in keys]

    assert failed("1", "a", "b", "a", "b") == [True, True, False, False]
    assert failed("2", "a", "c") == [False, True]
    assert failed("3", "a", "b", "a") == [True, True, False], "three keys were counted: all of them were forgotten"


# --- statistics, journal and pages ---


def page(world: World, path: str, body: object = None, *, method: str = "GET") -> Any:
    program = world.ask(path, body, method=method)
    lines, text = head_and_body(program)
    assert lines[0] == "HTTP/1.1 200 OK"
    assert lines[1] == "content-type: application/json"
    assert not program.counted
    return json.loads(text)


def test_the_statistics_have_these_members() -> None:
    world = World()
    world.ask("/nowhere")
    world.service.bad_request(BadRequest(400, "broken"))
    found = page(world, "/sim/statistics")
    assert found.pop("cpu_seconds") > 0
    assert found == {
        "started": 0, "completed": 0, "aborted": 0, "refused": 2, "limited": 0, "queued": 0, "events": 0,
        "bytes_sent": 0, "connections": 0, "accepted": 0, "live": 0, "most_live": 0, "late_ms": 0.0,
    }  # fmt: skip


def test_bytes_that_are_no_request_get_this_response() -> None:
    program = Service(ServiceSettings()).bad_request(BadRequest(431, "the head is too long"))
    body = '{"error":{"message":"the head is too long","type":"invalid_request_error","param":null,"code":null}}'
    assert head_and_body(program) == (
        ["HTTP/1.1 431 Request Header Fields Too Large", "content-type: application/json", "content-length: 100",
        "connection: close"], body,
    )  # fmt: skip
    assert program.ending is Ending.CLOSE


# --- limits ---


def test_an_answer_within_its_limits_has_their_headers() -> None:
    world = World(ServiceSettings(limits=(Limit(requests_per_minute=60, tokens_per_minute=6000),)))
    body = {**chat(), "max_tokens": 100}
    program = world.ask(CHAT, body, directive="events=4,rate=10,delay=2,cached=1")
    assert head_and_body(program)[0] == [
        "HTTP/1.1 200 OK", "x-ratelimit-limit-requests: 60", "x-ratelimit-remaining-requests: 59",
        "x-ratelimit-reset-requests: 1s", "x-ratelimit-limit-tokens: 6000", "x-ratelimit-remaining-tokens: 5900",
        "x-ratelimit-reset-tokens: 1s", "content-type: text/event-stream; charset=utf-8",
        "x-request-id: req_5832cd61d9aecd146a1b3ad5", "openai-version: 2020-10-01", "transfer-encoding: chunked",
    ]  # fmt: skip
    assert program.ticket is not None
    assert program.ticket.usage == Usage(
        model="m", input_tokens=2, cached_tokens=1, output_tokens=4, max_tokens=100, delay=2.0,
        seconds=pytest.approx(0.7), streamed=True,
    )  # fmt: skip
    assert world.service.statistics.limited == 0


def test_an_answer_beyond_its_limits_is_refused() -> None:
    world = World(ServiceSettings(limits=(Limit(requests_per_minute=60, bucket=1),)))
    assert status(world.ask(CHAT, chat())) == 200
    world.now += 0.25
    assert head_and_body(world.ask(CHAT, chat())) == (
        [
            "HTTP/1.1 429 Too Many Requests",
            "content-type: application/json",
            "x-request-id: req_simulator",
            "openai-version: 2020-10-01",
            "x-ratelimit-limit-requests: 60",
            "x-ratelimit-remaining-requests: 0",
            "x-ratelimit-reset-requests: 1s",
            "retry-after-ms: 750",
            "retry-after: 1",
            "content-length: 224",
        ],
        '{"error":{"message":"Rate limit reached for m in organization org-simulator on requests per min (RPM):'
        ' Limit 60, Used 60, Requested 1. Please try again in 750ms.","type":"requests","param":null,'
        '"code":"rate_limit_exceeded"}}',
    )
    assert (world.service.statistics.limited, world.service.statistics.refused) == (1, 1)


def test_an_answer_that_ends_gives_its_place_back() -> None:
    world = World(ServiceSettings(limits=(Limit(server="vllm", concurrent=1),)))
    ticket = world.ask(CHAT, chat()).ticket
    assert ticket is not None
    assert status(world.ask(CHAT, chat())) == 503
    world.service.end(ticket, whole=True)
    assert status(world.ask(CHAT, chat())) == 200


def test_a_failure_that_was_asked_for_counts_as_a_request() -> None:
    world = World(ServiceSettings(limits=(Limit(requests_per_minute=2),)))
    assert [status(world.ask(CHAT, chat(), directive="fail=500")) for _ in range(2)] == [500, 500]
    assert status(world.ask(CHAT, chat())) == 429
    assert World(ServiceSettings(limits=(Limit(requests_per_minute=2),))).ask(
        CHAT, chat(), directive="drop=1"
    ).frames == [b""]


KEYS: list[tuple[str, dict[str, str], str]] = [
    (CHAT, {"authorization": "Bearer k"}, "k"),
    (CHAT, {"authorization": "bearer  k "}, "k"),
    ("/v1/messages", {"authorization": "Basic x", "x-api-key": "k", "api-key": "other"}, "k"),
    ("/v1/messages", {"authorization": "Bearer k", "x-api-key": "other"}, "k"),
    ("/v1beta/models/m:generateContent", {"api-key": "k", "x-goog-api-key": "other"}, "k"),
    ("/v1beta/models/m:generateContent?key=other", {"x-goog-api-key": "k"}, "k"),
    ("/v1beta/models/m:generateContent?key=k", {}, "k"),
    ("/v1beta/models/m:generateContent", {"authorization": "Basic x"}, ""),
]


@pytest.mark.parametrize(("path", "headers", "key"), KEYS)
def test_a_limit_of_a_key_finds_it_where_the_dialect_puts_it(path: str, headers: dict[str, str], key: str) -> None:
    limits = tuple(Limit(key=name, server="vllm", concurrent=1) for name in ("k", "other", "x", ""))
    world = World(ServiceSettings(limits=limits))
    dialect = {"/v1/messages": "anthropic", CHAT: "openai-chat"}.get(path, "gemini")
    world.ask(path, body_of(dialect), headers={"anthropic-version": "1", **headers})
    assert [limit.key for limit, counts in world.service.limiter.counts() if counts.accepted] == [key]


def test_a_full_inference_server_refuses() -> None:
    world = World(ServiceSettings(batch=BatchModel(kv=5, queue=0, status=529)))
    inference = world.service.inference
    assert inference is not None
    program = world.ask(CHAT, chat(), directive="events=4")
    assert status(program) == 200
    inference.add("call", 1)
    inference.start_waiting()
    assert status(world.ask(CHAT, chat(), directive="events=2")) == 200
    refused = head_and_body(world.ask(CHAT, chat(), directive="events=3"))
    assert (refused[0][0], refused[1]) == ("HTTP/1.1 529 Site Overloaded", OVERLOADED)


# --- recordings and replicas ---


def test_a_recording_answers_everything_but_the_pages() -> None:
    world = World(ServiceSettings(replay=Replay([])))
    lines, body = head_and_body(world.ask("/v1/messages", {}))
    assert lines[0] == "HTTP/1.1 404 Not Found"
    assert json.loads(body) == {
        "type": "error",
        "error": {"type": "not_found_error", "message": "the recording holds no exchange for POST /v1/messages"},
        "request_id": "req_simulator",
    }
    lines, body = head_and_body(world.ask("/v1/files", {}, method="GET"))
    message = "the recording holds no exchange for GET /v1/files"
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": "model_not_found"}
    assert json.loads(body) == {"error": error}
    shown = page(world, "/sim/requests")
    assert [entry["path"] for entry in shown] == ["/v1/messages", "/v1/files"]


def test_a_replica_fails_and_slows_answers() -> None:
    outages = (Outage(10.0, 20.0), Outage(20.0, 30.0, "hang"), Outage(30.0, 40.0, "close"))
    world = World(ServiceSettings(replica=Replica(speed=0.5, delay=3.0, outages=outages)))
    slow = world.ask(CHAT, chat(), directive="rate=10,delay=1")
    assert (slow.interval, slow.delay) == (pytest.approx(0.2), 5.0)
    world.now = 10.0
    assert status(world.ask(CHAT, chat())) == 503
    world.now = 20.0
    assert world.ask(CHAT, chat()) == Program([b""], ending=Ending.STALL, counted=False)
    world.now = 30.0
    assert world.ask(CHAT, chat()) == Program([b""], ending=Ending.CLOSE, delay=0.0)
    world.now = 40.0
    assert status(world.ask(CHAT, chat())) == 200
