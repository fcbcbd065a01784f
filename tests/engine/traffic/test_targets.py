"""Several keys of one provider, from the user's side."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.engine.traffic.routing.router import (
    ModelKeys,
    Sessions,
)
from manystream.engine.traffic.targets import is_keys_fault, is_targets_fault, moves_on
from manystream.providers.limits.quota_report import Refusal
from manystream.providers.model.provider_error import ErrorCategory, ProviderError
from tests.support.limited import Limited, openai_headers
from tests.support.peers import (
    STREAM_HEAD,
    Line,
    answer,
    chat_answer,
    chat_stream,
    chunked,
    error_body,
    open_peer,
    stream_of,
)
from tests.support.targets import Server, ask, failing, path, provider

KEYS = ("sk-first", "sk-second")


@asynccontextmanager
async def open_keys(
    server: Server, keys: object = KEYS, traffic: ms.Traffic | None = None, **options: object
) -> AsyncGenerator[ms.Engine, None]:
    async with open_peer(server.serve) as peer:
        one = provider(server, peer, api_key=keys)
        async with ms.open_engine([one], traffic=traffic or ms.Traffic(), **options) as engine:  # type: ignore[arg-type]
            yield engine


def key_of(request: bytes) -> str:
    head = request.partition(b"\r\n\r\n")[0].decode()
    return next(line.rpartition(" ")[2] for line in head.split("\r\n") if line.lower().startswith("authorization:"))


def refuses(key: str, status: str = "401 Unauthorized", code: str | None = None) -> object:
    def respond(server: Server) -> bytes | None:
        if key_of(server.requests[-1]) != key:
            return None
        return answer(error_body("refused", "error", code), status=status)

    return respond


@pytest.mark.parametrize(
    ("body", "sent", "category"),
    [
        ('{"code":"permission-denied","error":"Content violates usage guidelines."}', 1, "content_filter"),
        ('{"error":{"message":"no such parameter","code":"unsupported_parameter"}}', 1, "invalid_arg"),
        ('{"error":{"message":"no access","code":"permission_denied"}}', 2, "auth"),
    ],
)
async def test_a_403_goes_to_each_key_only_if_it_refuses_the_key(body: str, sent: int, category: str) -> None:
    server = Server("one", fault=lambda server: answer(body, status="403 Forbidden"))
    async with open_keys(server) as engine:
        completion = await engine.start_stream(ask("one/m")).wait()
    assert (len(server.requests), completion.error_category) == (sent, category)


async def test_both_keys_are_used_to_their_limits(autojump_clock: MockClock) -> None:
    server = Server("one")
    traffic = ms.Traffic(rates={"one": ms.RateLimit(requests_per_minute=60)})
    async with open_keys(server, traffic=traffic) as engine:
        started = trio.current_time()
        calls = [engine.start_stream(ask("one/m")) for _ in range(160)]
        completions = [await call.wait() for call in calls]
        seconds = trio.current_time() - started
        scopes = engine.statistics().traffic.limiters
    assert all(completion.success for completion in completions)
    assert seconds < 22
    assert set(scopes) == {"one[0]/m", "one[1]/m"}
    used = Counter(map(key_of, server.requests))
    assert used == {key: pytest.approx(80, abs=2) for key in KEYS}
    assert path(completions[0]) == [("one/m", "ok")]


async def test_overtaking_calls_use_both_keys_to_their_limits(autojump_clock: MockClock) -> None:
    limits = {key: Limited(per_minute=1800, capacity=100, refusal_headers="retry-after-ms: 50\r\n") for key in KEYS}
    received = 0

    async def serve(line: Line) -> None:
        nonlocal received
        while request := await line.request():
            received += 1
            await trio.sleep(0.002 + received % 7 * 0.003)  # some calls arrive before earlier ones
            limit = limits[key_of(request)]
            if limit.take():
                limit.at.append(trio.current_time())
                await line.send(STREAM_HEAD.replace("\r\n\r\n", f"\r\n{openai_headers(limit)}\r\n"))
                await line.send(chunked(*chat_stream("fine")))
            else:
                limit.refused += 1
                limit.level -= 1  # as OpenAI does
                headers = openai_headers(limit) + limit.refusal_headers
                await line.send(answer(limit.refusal_body, status=limit.refusal, headers=headers))

    async with open_peer(serve) as peer:
        one = provider(Server("one"), peer, api_key=KEYS)
        async with ms.open_engine([one], traffic=ms.Traffic()) as engine:
            started = trio.current_time()
            calls = [engine.start_stream(ask("one/m")) for _ in range(600)]
            completions = [await call.wait() for call in calls]
            seconds = trio.current_time() - started
    assert all(completion.success for completion in completions)
    for limit in limits.values():
        assert limit.refused <= 20
        assert len(limit.at) / (100 + 30 * seconds) > 0.85


@pytest.mark.parametrize(
    ("status", "code"),
    [("401 Unauthorized", "invalid_api_key"), ("403 Forbidden", None), ("429 Too Many Requests", "insufficient_quota")],
)
async def test_no_call_fails_by_a_refused_key(autojump_clock: MockClock, status: str, code: str | None) -> None:
    server = Server("one", fault=refuses("sk-first", status, code))  # type: ignore[arg-type]
    async with open_keys(server, retry=ms.Retry(max_attempts=1)) as engine:
        completions = []
        for _ in range(200):
            completions.append(await engine.start_stream(ask("one/m")).wait())
            await trio.sleep(0.1)
        assert all(completion.success for completion in completions)
        first = Counter(map(key_of, server.requests))["sk-first"]
        assert 1 <= first <= 2
        await trio.sleep(61)
        server.fault = None
        for _ in range(6):
            calls = [engine.start_stream(ask("one/m")) for _ in range(6)]
            assert all([(await call.wait()).success for call in calls])
    assert Counter(map(key_of, server.requests))["sk-first"] > first


async def test_calls_that_wait_for_a_refused_key_are_not_sent_with_it(autojump_clock: MockClock) -> None:
    server = Server("one", fault=refuses("sk-first"))  # type: ignore[arg-type]
    async with open_keys(server) as engine:
        completions = [await call.wait() for call in [engine.start_stream(ask("one/m")) for _ in range(300)]]
        scopes = engine.statistics().traffic.limiters
    assert all(completion.success for completion in completions)
    assert Counter(map(key_of, server.requests))["sk-first"] <= 10  # what was under way when the first one was refused
    assert {(scope.waiting, scope.running) for scope in scopes.values()} == {(0, 0)}


async def test_when_every_key_is_refused_the_call_fails_or_moves_on(autojump_clock: MockClock) -> None:
    one, two = Server("one", fault=failing("401 Unauthorized")), Server("two")
    async with open_peer(one.serve) as first, open_peer(two.serve) as second:
        providers = [provider(one, first, api_key=KEYS), provider(two, second)]
        traffic = ms.Traffic(routes=[ms.Route("fast", ["one/m", "two/m"])])
        async with ms.open_engine(providers, traffic=traffic) as engine:
            moved = await engine.start_stream(ask()).wait()
            failed = await engine.start_stream(ask("one/m")).wait()
    assert path(moved) == [("one/m", "auth"), ("one/m", "auth"), ("two/m", "ok")]
    assert failed.error_category is ms.ErrorCategory.AUTH
    assert path(failed) == [("one/m", "auth"), ("one/m", "auth")]
    assert failed.error is not None
    assert not any(key in str(failed.error) + repr(failed) for key in KEYS)


async def test_a_session_keeps_its_key(autojump_clock: MockClock) -> None:
    server = Server("one")
    async with open_keys(server, keys=[*KEYS, lambda: "sk-third"]) as engine:
        for _ in range(3):
            for number in range(5):
                request = ask("one/m", session=f"s{number}", extra_headers={"x-session": f"s{number}"})
                assert (await engine.start_stream(request).wait()).success
        engine.end_session("s0")
    pairs = {(request.partition(b"x-session: ")[2][:2], key_of(request)) for request in server.requests}
    assert len(pairs) == 5


async def test_one_key_in_a_list_is_one_key() -> None:
    assert ms.OpenAIChat(["a"], "http://127.0.0.1:9/v1").api_key == "a"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([], "api_key: must hold at least one key"),
        (["a", ""], r"api_key\[1\]: must not be empty"),
        (["a", 3], r"api_key\[1\]: must be text, or a function that returns it, not int"),
        (["secret", "secret"], r"api_key\[1\]: is given twice"),
    ],
)
async def test_wrong_keys_are_errors_that_show_no_key(keys: object, message: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=message) as caught:
        ms.OpenAIChat(keys, "http://127.0.0.1:9/v1")  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)


async def test_a_key_ring_uses_all_keys_where_each_was_put_aside() -> None:
    keys = ModelKeys("m", 2, Sessions())
    keys.put_aside(0, 10)
    assert keys.usable(11) == [1]
    keys.put_aside(1, 11)
    assert keys.usable(12) == [0, 1]
    assert keys.usable(12, {0}) == [1]
    keys.restore(0)
    assert keys.usable(12) == [0]
    assert keys.usable(80) == [0, 1]


async def test_a_session_goes_to_the_key_with_the_most_room_and_stays() -> None:
    keys = ModelKeys("m", 3, Sessions())
    assert keys.best([0, 1, 2], {0: 1, 1: 5, 2: 3}, "s", 0) == 1
    keys.keep(1, "s", 0)
    assert keys.best([0, 1], {0: 9, 1: 1}, "s", 1) == 1
    assert keys.best([0, 2], {0: 9, 2: 1}, "s", 1) == 0
    assert keys.best([0, 1], {0: 9, 1: 1}, "s", 4000) == 0
    keys.keep(1, "s", 4000)
    keys.end_session("s")
    assert keys.best([0, 1], {0: 9, 1: 1}, "s", 4001) == 0


async def test_every_door_forgets_sessions(autojump_clock: MockClock) -> None:
    async with open_keys(Server("one")) as engine:
        engine.end_session("s")
        for session in (None, b"s", ["s"]):
            with pytest.raises(ms.InvalidRequestError, match=r"^session: must be text"):
                engine.end_session(session)  # type: ignore[arg-type]
        await trio.to_thread.run_sync(engine.from_thread.end_session, "s")
    server = Server("one")
    async with open_peer(server.serve) as peer, ms.open_engine([provider(server, peer)]) as engine:
        engine.end_session("s")  # without traffic there is nothing to forget


def no_key() -> str:
    raise OSError("the vault is closed")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("key", "model", "answered"),
    [
        (no_key, "one/m", []),
        ([no_key, "good"], "one/m", ["good"] * 5),
        (["good", no_key], "one/m", ["good"] * 5),
        ([no_key, lambda: no_key()], "one/m", []),
        (no_key, "ordered", ["other"] * 5),
        ([no_key, lambda: no_key()], "ordered", ["other"] * 5),
        ([no_key, "good"], "ordered", ["good"] * 5),
        (no_key, "quick", ["other"] * 5),
        (no_key, "alone", []),
    ],
)
async def test_a_call_goes_on_without_a_key_that_there_is_not(
    autojump_clock: MockClock, key: Any, model: str, answered: list[str], stream: bool
) -> None:
    """Nothing is sent without a key. The call goes on with the next key, and then to the next target."""
    keys: list[str] = []

    async def serve(line: Line) -> None:
        while request := await line.request():
            keys.append(request.partition(b"uthorization: Bearer ")[2].partition(b"\r\n")[0].decode())
            if stream:
                await line.send(stream_of(*chat_stream("fine")))
            else:
                await line.send(answer(chat_answer("fine")))

    routes = [
        ms.Route("ordered", ["one/m", "two/m"]),
        ms.Route("quick", ["one/m", "two/m"], balance="fastest", hedge=ms.Hedge(0.1, at_most=1)),
        ms.Route("alone", ["one/m"]),
    ]
    async with open_peer(serve) as peer:
        providers = [
            ms.OpenAIChat(each, peer.url, name=name, profile="openai-chat")
            for name, each in (("one", key), ("two", "other"))
        ]
        async with ms.open_engine(providers, traffic=ms.Traffic(routes=routes)) as engine:
            start = engine.start_stream if stream else engine.start_request
            with trio.fail_after(60):
                completions = [await start(ms.Request(model, "hello")).wait() for _ in range(5)]
            left = engine.statistics().traffic
    assert keys == answered
    assert [completion.success for completion in completions] == [bool(answered)] * 5
    for completion in completions:
        if completion.error is not None:
            assert (completion.error.category, completion.error.retryable) == (ms.ErrorCategory.AUTH, False)
            assert completion.error.message == "the api_key function of 'one' raised OSError"
    assert all((each.running, each.waiting) == (0, 0) for each in left.limiters.values())


# --- failures ---


def failure(category: ErrorCategory, **members: object) -> ProviderError:
    return ProviderError("no", category=category, **members)  # type: ignore[arg-type]


MOVES = {
    "auth": (True, True, True), "rate_limit": (False, True, False), "invalid_arg": (False, False, False),
    "not_found": (True, True, False), "server": (True, True, False), "timeout": (True, True, False),
    "content_filter": (False, False, False), "network": (True, True, False), "cancelled": (False, False, False),
    "callback": (False, False, False), "budget": (False, False, False), "unknown": (False, False, False),
}  # fmt: skip
"""Category → whether it counts against the target, moves the call to another one, and is the key's."""


@pytest.mark.parametrize("name", MOVES)
def test_what_a_failure_says_of_its_target(name: str) -> None:
    error = failure(ErrorCategory(name))
    found = is_targets_fault(error), moves_on(error, Refusal.NONE, ()), is_keys_fault(error, Refusal.NONE)
    assert found == MOVES[name]


@pytest.mark.parametrize(
    ("refusal", "moves", "key"),
    [("none", False, False), ("rate", False, False), ("overload", False, False), ("too_large", True, False),
     ("spent", True, True)],
)  # fmt: skip
def test_where_a_call_goes_after_a_refusal(refusal: str, moves: bool, key: bool) -> None:
    error = failure(ErrorCategory.UNKNOWN, http_status=402)
    assert (moves_on(error, Refusal(refusal), ()), is_keys_fault(error, Refusal(refusal))) == (moves, key)


@pytest.mark.parametrize(("status", "key"), [(400, False), (401, True), (402, False), (403, True), (404, False)])
def test_a_status_that_refuses_a_key(status: int, key: bool) -> None:
    assert is_keys_fault(failure(ErrorCategory.UNKNOWN, http_status=status), Refusal.NONE) is key


@pytest.mark.parametrize(
    ("code", "status", "is_fault"),
    [("total", 0, False), ("queue", 0, False), ("total", 504, True), ("first_byte", 0, True), ("idle", 0, True)],
)
def test_a_timeout_of_the_whole_call_is_not_the_targets(code: str, status: int, is_fault: bool) -> None:
    error = failure(ErrorCategory.TIMEOUT, provider_code=code, http_status=status)
    assert (is_targets_fault(error), moves_on(error, Refusal.NONE, ())) == (is_fault, is_fault)
    assert is_targets_fault(failure(ErrorCategory.SERVER, provider_code="total"))


def test_a_route_may_move_on_for_a_filter_and_a_long_prompt() -> None:
    filtered = failure(ErrorCategory.CONTENT_FILTER)
    long = failure(ErrorCategory.SERVER, context_overflow=True)
    assert not is_targets_fault(long)
    for added, moves in (
        ((), [False, False]),
        (["content_filter"], [True, False]),
        (["context_overflow"], [False, True]),
    ):
        assert [moves_on(error, Refusal.TOO_LARGE, added) for error in (filtered, long)] == moves
