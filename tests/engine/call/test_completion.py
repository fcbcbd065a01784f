"""Calls on routes and with several keys: each attempt with its times, each wait with its reason, each final error."""

import logging
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from tests.support.peers import error_body, open_peer, until
from tests.support.targets import Server, ask, failing, hangs, open_targets, provider

ONCE = ms.Retry(max_attempts=1)
DOWN = failing("500 Broken")


def rows(completion: ms.Completion) -> list[tuple[object, ...]]:
    """Target, outcome and rounded seconds of each attempt."""
    return [
        (each.target, each.outcome, round(each.started, 1), round(each.ended, 1)) for each in completion.attempt_records
    ]


def waits(completion: ms.Completion) -> dict[str, float]:
    return {reason: round(seconds, 1) for reason, seconds in completion.timings.waited.items()}


def message(completion: ms.Completion) -> str:
    return completion.error_message or ""


async def test_a_call_s_times_are_counted_from_its_start(autojump_clock: MockClock) -> None:
    """It waits for a limit of its first target, fails there after a timeout, and is answered by the second one."""
    one, two = Server("one", fault=lambda server: None if server.sent == 1 else b"hang"), Server("two", seconds=2)
    rates = {"one": ms.RateLimit(requests_per_minute=6)}
    route = ms.Route("fast", [ms.Target("one/m", timeouts=ms.Timeouts(first_byte=3)), "two/m"])
    async with open_targets(one, two, route=route, rates=rates, retry=ONCE) as engine:
        for _ in range(6):
            one.fault = None
            await engine.start_stream(ask()).wait()
        one.fault = hangs
        await trio.sleep(4)
        call = engine.start_stream(ask())
        await trio.sleep(1)
        assert (call.state, call.target) == (ms.CallState.QUEUED, "")
        assert call.waiting_for == "declared requests_per_minute of one, 0 ahead, about 5 s"
        completion = await call.wait()
        assert call.waiting_for == ""
        statistics = engine.statistics()
    waited = waits(completion)["quota"]
    assert waited == pytest.approx(5.7, abs=0.4)
    first, second = rows(completion)
    assert first == ("one/m", "timeout", waited, pytest.approx(waited + 3, abs=0.11))
    assert second == ("two/m", "ok", pytest.approx(waited + 3, abs=0.11), pytest.approx(waited + 5, abs=0.2))
    assert (completion.success, completion.attempts, call.target) == (True, 2, "two/m")
    error = completion.attempt_records[0].error
    assert error.message.startswith("first_byte timeout: no response byte within 3 s (waiting, http://127.0.0.1:")
    assert (error.provider, error.model) == ("one", "m")
    timings = completion.timings
    assert timings.queued == pytest.approx(waited + 3, abs=0.2)
    assert timings.first_byte == pytest.approx(waited + 5, abs=0.2)
    assert statistics.traffic.routes["fast"].targets[0].failures > 0
    assert {name: scope.sent for name, scope in statistics.traffic.limiters.items()} == {"one/m": 7, "two/m": 1}


async def test_a_call_too_late_everywhere_fails_with_a_queue_timeout(autojump_clock: MockClock) -> None:
    one, two = Server("one"), Server("two")
    rates = {name: ms.RateLimit(requests_per_minute=1) for name in ("one", "two")}
    targets = [
        ms.Target(f"{name}/m", timeouts=ms.Timeouts(queue=seconds)) for name, seconds in (("one", 2), ("two", 4))
    ]
    async with open_targets(one, two, route=ms.Route("fast", targets), rates=rates, retry=ONCE) as engine:
        for name in ("one/m", "two/m"):
            assert (await engine.start_stream(ask(name)).wait()).success
        completion = await engine.start_stream(ask()).wait()
        scopes = engine.statistics().traffic.limiters
    assert message(completion) == (
        "queue timeout: the call was not sent within 4 s (waiting for declared requests_per_minute of two, 0 ahead,"
        " about 54 s)"
    )
    assert (completion.error.category, completion.error.provider_code) == (ms.ErrorCategory.TIMEOUT, "queue")
    assert (completion.attempts, completion.attempt_records, completion.timings.waited.keys()) == (0, (), {"quota"})
    assert completion.timings.finished == pytest.approx(6, abs=0.2)  # two seconds here and four there
    assert [(scope.waiting, scope.running) for scope in scopes.values()] == [(0, 0), (0, 0)]


async def test_a_call_too_large_for_every_target_names_the_last_limit(autojump_clock: MockClock) -> None:
    rates = {"one": ms.RateLimit(tokens_per_minute=100), "two": ms.RateLimit(tokens_per_minute=200)}
    async with open_targets(Server("one"), Server("two"), rates=rates, retry=ONCE) as engine:
        completion = await engine.start_stream(ask(max_output_tokens=5000)).wait()
        passed = await engine.start_stream(ask(max_output_tokens=150)).wait()
    assert message(completion) == (
        "not sent to two/m: the request is larger than the whole limit: declared tokens_per_minute of two (200)"
    )
    assert (completion.attempts, completion.attempt_records) == (0, ())
    assert [row[:2] for row in rows(passed)] == [("two/m", "ok")]


async def test_the_last_error_that_may_pass_is_reported(autojump_clock: MockClock) -> None:
    """A refused key is a later error, but the earlier one decides: the server may come back."""
    one, two = Server("one", fault=failing("503 Busy", "first")), Server("two", fault=failing("401 No", "second"))
    async with open_targets(one, two, retry=ONCE) as engine:
        completion = await engine.start_stream(ask()).wait()
        one.fault = failing("404 Not Found", "gone")
        permanent = await engine.start_stream(ask()).wait()
    assert (message(completion), completion.http_status) == ("first", 503)
    assert [row[:2] for row in rows(completion)] == [("one/m", "server"), ("two/m", "auth")]
    assert (completion.error.provider, completion.error.model) == ("one", "m")
    assert message(permanent) == "second"


async def test_a_parked_call_says_what_it_waits_for(autojump_clock: MockClock) -> None:
    one = Server("one", fault=lambda server: DOWN(server) if server.sent <= 5 else None)
    async with open_targets(one, retry=ONCE) as engine:
        for _ in range(5):
            await engine.start_stream(ask()).wait()
        call = engine.start_stream(ask(timeouts=ms.Timeouts(queue=10)))
        late = engine.start_stream(ask(timeouts=ms.Timeouts(queue=1)))
        await trio.sleep(0.5)
        assert (call.state, call.target) == (ms.CallState.QUEUED, "")
        assert call.waiting_for == late.waiting_for == "a target of fast to be used again"
        completion, failed = await call.wait(), await late.wait()
    assert (waits(completion), [row[:2] for row in rows(completion)]) == ({"target": 2.0}, [("one/m", "ok")])
    assert (waits(failed), failed.attempts) == ({"target": 1.0}, 0)
    assert message(failed) == (
        "queue timeout: the call was not sent within 1 s (waiting for a target of fast to be used again)"
    )


@pytest.mark.parametrize("balance", ["order", "weighted", "fastest"])
async def test_the_target_that_is_left_to_wait_for_is_named(balance: Any, autojump_clock: MockClock) -> None:
    """The call waits at one target for two seconds at most, and at the other one without a limit."""
    one, two = Server("one", seconds=9), Server("two", seconds=9)
    route = ms.Route("fast", [ms.Target("one/m", timeouts=ms.Timeouts(queue=2)), "two/m"], balance=balance)
    rates = {"one": ms.RateLimit(concurrent=1), "two": ms.RateLimit(concurrent=1)}
    async with open_targets(one, two, route=route, rates=rates, retry=ONCE) as engine:
        busy = [engine.start_stream(ask(f"{name}/m")) for name in ("one", "two")]
        await trio.sleep(1)
        call = engine.start_stream(ask())
        assert call.waiting_for == "one of 1 calls of one to end, 0 ahead"
        await trio.sleep(3)
        assert call.waiting_for == "one of 1 calls of two to end, 0 ahead"
        assert (await call.wait()).success
        assert [(await each.wait()).success for each in busy] == [True, True]


async def test_two_waits_of_a_call_are_counted_apart(autojump_clock: MockClock) -> None:
    """A call waits for a budget that another one holds, and then for a limit."""
    one = Server("one", seconds=3)
    rates = {"one": ms.RateLimit(requests_per_minute=6)}
    async with open_peer(one.serve) as peer:
        traffic = ms.Traffic(
            routes=[ms.Route("fast", ["one/m"])], rates=rates, budgets=[ms.Budget(output_tokens=150, per="tenant")]
        )
        async with ms.open_engine([provider(one, peer)], traffic=traffic, retry=ONCE) as engine:
            for _ in range(5):
                engine.start_stream(ask("one/m", max_output_tokens=1))
            busy = engine.start_stream(ask(max_output_tokens=100, tenant="a"))
            waiting = engine.start_stream(ask(max_output_tokens=100, tenant="a"))
            await trio.sleep(1)
            assert waiting.waiting_for.startswith("declared requests_per_minute of one")
            completion = await waiting.wait()
            assert (await busy.wait()).success
            (figures,) = [each for each in engine.statistics().traffic.budgets if each.tenant == "a"]
    assert completion.success
    assert figures.reserved.output_tokens == 0
    assert sum(completion.timings.waited.values()) == pytest.approx(completion.attempt_records[0].started, abs=0.1)
    assert "quota" in completion.timings.waited


async def test_a_wait_for_a_budget_is_named_on_a_route(autojump_clock: MockClock) -> None:
    one = Server("one", seconds=4)
    async with open_peer(one.serve) as peer:
        traffic = ms.Traffic(routes=[ms.Route("fast", ["one/m"])], budgets=[ms.Budget(output_tokens=150)])
        async with ms.open_engine([provider(one, peer)], traffic=traffic, retry=ONCE) as engine:
            first = engine.start_stream(ask(max_output_tokens=100))
            second = engine.start_stream(ask(max_output_tokens=100))
            late = engine.start_stream(ask(max_output_tokens=100, timeouts=ms.Timeouts(queue=2)))
            await trio.sleep(1)
            assert second.waiting_for == "output_tokens of the engine's budget, reserved by 1 calls, 0 ahead"
            completions = [await call.wait() for call in (first, second, late)]
    assert [each.success for each in completions] == [True, True, False]
    assert waits(completions[1]) == {"budget": pytest.approx(4.0, abs=0.2)}
    assert waits(completions[2]) == {"budget": 2.0}
    assert message(completions[2]) == (
        "queue timeout: the call was not sent within 2 s (waiting for output_tokens of the engine's budget,"
        " reserved by 1 calls, 1 ahead)"
    )


# --- several keys ---


async def test_a_refused_key_is_followed_by_the_next_one(autojump_clock: MockClock) -> None:
    def refuses_the_first(server: Server) -> bytes | None:
        return failing("401 No", "wrong key")(server) if b"sk-first" in server.requests[-1] else None

    one = Server("one", fault=refuses_the_first)
    async with open_peer(one.serve) as peer:
        keyed = provider(one, peer, api_key=["sk-first", "sk-second"])
        async with ms.open_engine([keyed], traffic=ms.Traffic(), retry=ONCE) as engine:
            completion = await engine.start_stream(ask("one/m")).wait()
            again = await engine.start_stream(ask("one/m")).wait()
            scopes = engine.statistics().traffic.limiters
    assert [row[:2] for row in rows(completion)] == [("one/m", "auth"), ("one/m", "ok")]
    assert [row[:2] for row in rows(again)] == [("one/m", "ok")]
    assert {name: (scope.sent, scope.running) for name, scope in scopes.items()} == {
        "one[0]/m": (1, 0), "one[1]/m": (2, 0),
    }  # fmt: skip


async def test_each_key_has_a_limit_of_its_own(autojump_clock: MockClock) -> None:
    one = Server("one")
    async with open_peer(one.serve) as peer:
        keyed = provider(one, peer, api_key=["sk-first", "sk-second"])
        traffic = ms.Traffic(rates={"one": ms.RateLimit(requests_per_minute=1)})
        async with ms.open_engine([keyed], traffic=traffic, retry=ONCE) as engine:
            calls = [engine.start_stream(ask("one/m", timeouts=ms.Timeouts(queue=5))) for _ in range(3)]
            completions = [await call.wait() for call in calls]
    assert [each.success for each in completions] == [True, True, False]
    keys = [request.partition(b"Bearer ")[2].partition(b"\r\n")[0] for request in one.requests]
    assert sorted(keys) == [b"sk-first", b"sk-second"]
    assert message(completions[2]).startswith("queue timeout: the call was not sent within 5 s (waiting for declared")


async def test_a_key_that_is_accepted_again_is_used_first(autojump_clock: MockClock) -> None:
    """Both keys were refused; the one that the server accepts first is used from then on."""
    refusing = True

    def refuses(server: Server) -> bytes | None:
        return failing("401 No", "wrong key")(server) if refusing else None

    one = Server("one", fault=refuses)
    async with open_peer(one.serve) as peer:
        keyed = provider(one, peer, api_key=["sk-first", "sk-second"])
        async with ms.open_engine([keyed], traffic=ms.Traffic(), retry=ONCE) as engine:
            failed = await engine.start_stream(ask("one/m")).wait()
            refusing = False
            for _ in range(5):
                assert (await engine.start_stream(ask("one/m")).wait()).success
            together = [engine.start_stream(ask("one/m")) for _ in range(4)]
            assert all([(await call.wait()).success for call in together])
    assert [row[:2] for row in rows(failed)] == [("one/m", "auth"), ("one/m", "auth")]
    keys = [request.partition(b"Bearer ")[2].partition(b"\r\n")[0] for request in one.requests]
    assert len(set(keys[:2])) == 2
    assert len(set(keys[2:])) == 1


async def test_an_overdue_call_leaves_the_queues_of_all_keys(autojump_clock: MockClock) -> None:
    one, two = Server("one"), Server("two")
    async with open_peer(one.serve) as first, open_peer(two.serve) as second:
        providers = [provider(one, first, api_key=["sk-first", "sk-second"]), provider(two, second)]
        route = ms.Route("fast", [ms.Target("one/m", timeouts=ms.Timeouts(queue=2)), "two/m"])
        traffic = ms.Traffic(routes=[route], rates={"one": ms.RateLimit(requests_per_minute=1)})
        async with ms.open_engine(providers, traffic=traffic, retry=ONCE) as engine:
            for _ in range(2):
                assert (await engine.start_stream(ask()).wait()).success
            call = engine.start_stream(ask())
            await trio.sleep(1)
            scopes = engine.statistics().traffic.limiters
            assert {name: scope.waiting for name, scope in scopes.items()} == {"one[0]/m": 1, "one[1]/m": 1}
            completion = await call.wait()
            scopes = engine.statistics().traffic.limiters
            assert {name: scope.waiting for name, scope in scopes.items()} == dict.fromkeys(scopes, 0)
    assert rows(completion) == [("two/m", "ok", 2.0, pytest.approx(2.05, abs=0.06))]
    assert waits(completion) == {"quota": 2.0}


async def test_a_call_in_the_queues_of_all_targets_is_sent_once(autojump_clock: MockClock) -> None:
    one, two = Server("one"), Server("two")
    rates = {"one": ms.RateLimit(requests_per_minute=2), "two": ms.RateLimit(requests_per_minute=6)}
    route = ms.Route("fast", ["one/m", "two/m"], balance="fastest")
    async with open_targets(one, two, route=route, rates=rates, retry=ONCE) as engine:
        for _ in range(8):
            assert (await engine.start_stream(ask()).wait()).success
        calls = [engine.start_stream(ask()) for _ in range(3)]
        await trio.sleep(1)
        assert [scope.waiting for scope in engine.statistics().traffic.limiters.values()] == [3, 3]
        completions = [await call.wait() for call in calls]
        assert [scope.waiting for scope in engine.statistics().traffic.limiters.values()] == [0, 0]
        assert [target.outstanding for target in engine.statistics().traffic.routes["fast"].targets] == [0, 0]
    assert all(completion.success for completion in completions)
    assert [completion.attempts for completion in completions] == [1, 1, 1]
    assert (one.sent + two.sent, max(each.attempt_records[0].started for each in completions) < 31) == (11, True)
    ends = [each.timings.finished or 0 for each in completions]
    assert ends == sorted(ends)


async def test_a_route_ends_a_session_at_its_target_and_its_key(autojump_clock: MockClock) -> None:
    one, two = Server("one"), Server("two")
    route = ms.Route("fast", ["one/m", "two/m"], balance="sticky")
    async with open_targets(one, two, route=route) as engine:
        for _ in range(3):
            assert (await engine.start_stream(ask(session="s")).wait()).success
        assert sorted(target.sessions for target in engine.statistics().traffic.routes["fast"].targets) == [0, 1]
        assert sorted([one.sent, two.sent]) == [0, 3]
        engine.end_session("s")
        assert [target.sessions for target in engine.statistics().traffic.routes["fast"].targets] == [0, 0]


# --- lanes ---


async def test_models_that_share_a_limit_share_a_scope(autojump_clock: MockClock) -> None:
    """Two providers with one key at one address are one account; another key is another one."""
    one = Server("one")
    async with open_peer(one.serve) as peer:
        same = [provider(Server(name), peer, api_key="sk-a") for name in ("a", "b")]
        other = provider(Server("c"), peer, api_key="sk-b")
        async with ms.open_engine([*same, other], traffic=ms.Traffic()) as engine:
            for name in ("a", "b", "c"):
                assert (await engine.start_stream(ask(f"{name}/m")).wait()).success
            scopes = engine.statistics().traffic.limiters
    assert {name: scope.sent for name, scope in scopes.items()} == {"a/m": 2, "c/m": 1}


async def test_two_scopes_of_one_name_are_told_apart(autojump_clock: MockClock) -> None:
    """The same model with an entry of its own in `rates` has another scope."""
    one = Server("one")
    async with open_peer(one.serve) as peer:
        keys = iter(["sk-a", "sk-b", "sk-c"])
        providers = [provider(Server("one"), peer, api_key=next(keys))]
        traffic = ms.Traffic(
            rates={"one/gpt-5-mini": ms.RateLimit(concurrent=5), "one/gpt-5-nano": ms.RateLimit(concurrent=5)}
        )
        async with ms.open_engine(providers, traffic=traffic) as engine:
            for model in ("gpt-5-mini", "gpt-5-nano", "gpt-5"):
                await engine.start_stream(ask(f"one/{model}")).wait()
            names = list(engine.statistics().traffic.limiters)
    assert len(set(names)) == len(names) == 3


async def test_a_thousand_scopes_without_calls_are_forgotten(autojump_clock: MockClock) -> None:
    """Names of models may come from untrusted input."""
    one = Server("one", seconds=50)
    async with open_peer(one.serve) as peer, ms.open_engine([provider(one, peer)], traffic=ms.Traffic()) as engine:
        held = engine.start_stream(ask("one/held"))
        await until(lambda: one.sent == 1)
        for number in range(999):
            engine.start_stream(ask(f"one/m{number}")).cancel()
        assert len(engine.statistics().traffic.limiters) == 1000
        engine.start_stream(ask("one/last")).cancel()
        scopes = engine.statistics().traffic.limiters
        assert list(scopes) == ["one/held", "one/last"]
        assert scopes["one/held"].running == 1
        assert (await held.wait()).success
        assert engine.statistics().traffic.limiters["one/held"].running == 0


async def test_an_overloaded_server_keeps_retry_rules(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "manystream.traffic")
    one = Server("one", fault=failing("529 Overloaded", "overloaded"))
    async with open_targets(one, retry=ms.Retry(max_attempts=2, base=3, jitter=0)) as engine:
        completion = await engine.start_stream(ask("one/m")).wait()
        scope = engine.statistics().traffic.limiters["one/m"]
    assert rows(completion) == [("one/m", "server", 0.0, 0.0), ("one/m", "server", 3.0, 3.0)]
    assert (scope.refused, scope.sent, scope.running, scope.held) == (0, 2, 0, 0.0)
    assert [record.getMessage() for record in caplog.records] == []


async def test_a_refusal_that_only_time_helps_is_no_try(autojump_clock: MockClock) -> None:
    limited = failing("429 Too Many Requests", "slow", "rate_limit_exceeded", "retry-after: 3\r\n")
    one = Server("one", fault=lambda server: limited(server) if server.sent == 1 else None)
    async with open_targets(one, retry=ONCE) as engine:
        completion = await engine.start_stream(ask("one/m")).wait()
        scope = engine.statistics().traffic.limiters["one/m"]
    assert [row[:2] for row in rows(completion)] == [("one/m", "rate_limit"), ("one/m", "ok")]
    assert completion.attempt_records[1].started == pytest.approx(3, abs=0.5)
    assert waits(completion)["quota"] == pytest.approx(3, abs=0.5)
    assert (scope.refused, scope.sent, completion.attempts) == (1, 2, 2)
    assert completion.attempt_records[0].error is not None
    assert (
        error_body("slow", "server_error", "rate_limit_exceeded").encode() == completion.attempt_records[0].error.body
    )
