"""Declared limits: the calls that an entry of `rates` covers, the scopes that share it, and invalid entries."""

import dataclasses
import math
from collections import Counter

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import manystream as ms
from tests.support.limited import Limited
from tests.support.peers import open_peer
from tests.support.targets import Server, ask, open_targets

MESSAGES = [ms.Message.user("hello")]
MINUTE = ms.RateLimit(requests_per_minute=60)


def providers(url: str) -> list[ms.Provider]:
    """Return two providers with one key at OpenAI in two dialects, and two servers of the same kind."""
    return [
        ms.OpenAIChat("key", url, name="chat", profile="openai-chat"),
        ms.OpenAIResponses("key", url, name="responses", profile="openai-responses"),
        ms.OpenAIChat("one", url, name="first", profile="vllm"),
        ms.OpenAIChat("two", url, name="second", profile="vllm"),
    ]


BAD_KEYS = {
    "anthropic": "covers no provider; configured are 'chat', 'responses', 'first', 'second'",
    "gpt-5": "covers no provider", "": "must be 'provider', 'provider/model'",
    "/gpt-5": "must be 'provider', 'provider/model'", "chat/": "must be 'provider', 'provider/model'",
    "chat*": "must be 'provider', 'provider/model'", "chat/gpt-*-mini": "must be 'provider', 'provider/model'",
}  # fmt: skip


@pytest.mark.parametrize("key", BAD_KEYS)
async def test_an_entry_that_covers_nothing_is_an_error(key: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"traffic\.rates\[") as raised:
        async with ms.open_engine(providers("http://127.0.0.1:9/v1"), traffic=ms.Traffic(rates={key: MINUTE})):
            pass
    assert BAD_KEYS[key] in str(raised.value)


LIMITS = [field.name for field in dataclasses.fields(ms.RateLimit)]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, 1e308, True, False, "60", "", [60]], ids=repr)
def test_a_limit_that_is_no_limit_is_an_error(limit: str, value: object) -> None:
    with pytest.raises(ms.InvalidRequestError, match=limit):
        ms.RateLimit(**{limit: value})  # type: ignore[arg-type]


def test_calls_at_a_time_are_a_whole_number() -> None:
    with pytest.raises(ms.InvalidRequestError, match="concurrent"):
        ms.RateLimit(concurrent=1.5)  # type: ignore[arg-type]


def test_a_rate_limit_without_a_limit_is_an_error() -> None:
    with pytest.raises(ms.InvalidRequestError, match="must have a limit: give RateLimit one of requests_per_second"):
        ms.RateLimit()


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"rates": {"chat": 60}}, r"traffic\.rates\['chat'\]: .*use RateLimit\(requests_per_minute=60\)"),
        ({"rates": {"chat": {"requests_per_minute": 60}}}, r"traffic\.rates\['chat'\]"),
        ({"rates": {1: MINUTE}}, r"traffic\.rates"),
        ({"rates": [MINUTE]}, r"traffic\.rates"),
        ({"rates": None}, r"traffic\.rates"),
        ({"adaptive": "no"}, r"traffic\.adaptive"),
    ],
)
def test_a_traffic_that_is_none_is_an_error(options: dict[str, object], where: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=where):
        ms.Traffic(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("traffic", [True, {"rates": {}}, ms.Traffic, "on"])
async def test_an_option_that_is_no_traffic_is_an_error(traffic: object) -> None:
    with pytest.raises(ms.InvalidRequestError, match="traffic"):
        async with ms.open_engine([], traffic=traffic):  # type: ignore[arg-type]
            pass


@pytest.mark.parametrize(
    ("options", "where"),
    [({"priority": "urgent"}, "priority"), ({"tenant": ""}, "tenant"), ({"session": 1}, "session")],
)
async def test_a_request_that_says_it_wrong_is_an_error(options: dict[str, object], where: str) -> None:
    async with ms.open_engine(providers("http://127.0.0.1:9/v1")) as engine:
        with pytest.raises(ms.InvalidRequestError, match=where):
            engine.start_stream(ms.Request("chat/m", MESSAGES, **options))  # type: ignore[arg-type]


COVERED: dict[str, list[list[str]]] = {
    "*": [["chat/a", "chat/b", "chat/ab", "responses/a", "first/a", "second/a"]],
    "chat": [["chat/a", "chat/b", "chat/ab"]], "openai": [["chat/a", "chat/b", "chat/ab", "responses/a"]],
    "chat/a": [["chat/a"]], "chat/a*": [["chat/a", "chat/ab"]], "vllm": [["first/a"], ["second/a"]],
    "vllm/a": [["first/a"], ["second/a"]],
}  # fmt: skip
"""Maps a key of `rates` to the groups of models that share a limit of ten calls. Other models have no limit."""


@pytest.mark.parametrize("key", COVERED)
async def test_what_an_entry_covers_and_who_shares_it(key: str) -> None:
    models = ["chat/a", "chat/b", "chat/ab", "responses/a", "first/a", "second/a"]
    traffic = ms.Traffic(rates={key: ms.RateLimit(requests_per_minute=10)}, adaptive=False)

    async def never_connects(host: str, port: int) -> trio.SocketStream:
        await trio.sleep_forever()
        raise AssertionError

    async with ms.open_engine(providers("http://127.0.0.1:9/v1"), traffic=traffic, dial=never_connects) as engine:
        calls = [engine.start_stream(ms.Request(model, MESSAGES)) for _ in range(12) for model in models]
        waiting = Counter(call.target for call in calls if call.waiting_for)
    limited = {model for group in COVERED[key] for model in group}
    assert {model for model in models if waiting[model]} <= limited
    for group in COVERED[key]:
        assert sum(waiting[model] for model in group) == 12 * len(group) - 10


async def test_calls_at_a_time_are_bounded_over_all(autojump_clock: MockClock) -> None:
    running, most = [0], [0]

    class Counting(Limited):
        def take(self) -> bool:
            running[0] += 1
            most[0] = max(most[0], running[0])
            return True

    server = Counting(seconds=2)

    def ended(_: ms.Completion) -> None:
        running[0] -= 1

    traffic = ms.Traffic(rates={"*": ms.RateLimit(concurrent=3)})
    async with open_peer(server.serve) as peer, ms.open_engine(providers(peer.url), traffic=traffic) as engine:
        calls = [
            engine.start_stream(ms.Request(f"{name}/m", MESSAGES), on_completion=ended)
            for _ in range(6)
            for name in ("chat", "first")
        ]
        assert calls[-1].waiting_for.startswith("one of 3 calls of * to end")
        completions = [await call.wait() for call in calls]
    assert all(completion.success for completion in completions)
    assert most[0] == 3
    assert any(completion.timings.waited.get("slot", 0) > 1 for completion in completions)
    assert all("quota" not in completion.timings.waited for completion in completions)


async def test_small_calls_do_not_keep_large_ones_waiting(autojump_clock: MockClock) -> None:
    server = Limited(per_minute=1e6, seconds=0)
    traffic = ms.Traffic(rates={"*": ms.RateLimit(tokens_per_minute=60_000)}, adaptive=False)
    ends: list[str] = []
    async with open_peer(server.serve) as peer, ms.open_engine(providers(peer.url), traffic=traffic) as engine:

        def start(model: str, tokens: int) -> ms.Call:
            request = ms.Request(model, MESSAGES, max_output_tokens=tokens)
            return engine.start_stream(request, on_completion=lambda _: ends.append(model))

        calls = [start("chat/first", 50_000)]
        calls += [start("chat/small", 1000) for _ in range(60)]
        calls += [start("chat/large", 40_000) for _ in range(2)]
        for call in calls:
            await call.wait()
    assert ends.index("chat/large") < 40


async def test_without_adapting_only_hints_are_followed(autojump_clock: MockClock) -> None:
    server = Limited(per_minute=60, capacity=1, seconds=0, refusal_headers="retry-after: 3\r\n")
    async with (
        open_peer(server.serve) as peer,
        ms.open_engine(providers(peer.url), traffic=ms.Traffic(adaptive=False)) as engine,
    ):
        calls = [engine.start_stream(ms.Request("chat/m", MESSAGES)) for _ in range(3)]
        started = trio.current_time()
        assert all([(await call.wait()).success for call in calls])
        scope = engine.statistics().traffic.limiters["chat/m"]
    assert (scope.reported, scope.learned, scope.window) == ({}, {}, 0)
    assert trio.current_time() - started >= 3


async def test_an_urgent_call_that_fits_goes_before_one_that_waits(autojump_clock: MockClock) -> None:
    """The limit has room for the small urgent call when it is started. The large call waits for some 20 s more."""
    server = Server("one", seconds=0.5)
    rates = {"one/m": ms.RateLimit(output_tokens_per_minute=600)}
    async with open_targets(server, rates=rates) as engine:
        began = trio.current_time()
        for tokens, priority in ((500, ms.Priority.NORMAL), (400, ms.Priority.NORMAL), (50, ms.Priority.INTERACTIVE)):
            request = ask("one/m", max_output_tokens=tokens, priority=priority)
            engine.start_request(request)
            await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(0.1)
        assert len(server.at) == 2
        assert trio.current_time() - began < 1


async def test_two_engines_share_nothing(autojump_clock: MockClock) -> None:
    traffic = ms.Traffic(rates={"*": ms.RateLimit(requests_per_minute=1)})
    server = Limited(seconds=0)
    async with (
        open_peer(server.serve) as peer,
        ms.open_engine(providers(peer.url), traffic=traffic) as one,
        ms.open_engine(providers(peer.url), traffic=traffic) as two,
    ):
        started = trio.current_time()
        for engine in (one, two):
            assert (await engine.start_stream(ms.Request("chat/m", MESSAGES)).wait()).success
        assert trio.current_time() - started < 1


async def test_a_scope_held_back_takes_its_turn_after_the_pause(autojump_clock: MockClock) -> None:
    held = Limited(per_minute=60, capacity=1, seconds=0, refusal_headers="retry-after: 5\r\n")
    busy = Limited(per_minute=1e6, seconds=2)
    traffic = ms.Traffic(rates={"*": ms.RateLimit(concurrent=1)}, adaptive=False)
    async with open_peer(held.serve) as one, open_peer(busy.serve) as two:
        given = [ms.OpenAIChat("one", one.url, name="first"), ms.OpenAIChat("two", two.url, name="second")]
        async with ms.open_engine(given, traffic=traffic) as engine:
            models = ["first/m"] * 2 + ["second/m"] * 3
            calls = [engine.start_stream(ms.Request(model, MESSAGES)) for model in models]
            with trio.fail_after(60):
                completions = [await call.wait() for call in calls]
    assert all(completion.success for completion in completions)
    assert held.refused >= 1
