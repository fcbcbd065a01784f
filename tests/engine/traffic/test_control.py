"""Traffic control in an engine: calls to servers that limit requests, from the user's side."""

import logging
from collections.abc import Callable

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import manystream as ms
from tests.support.limited import Form, Limited, no_headers, open_limited, openai_headers, provider
from tests.support.peers import (
    Line,
    Recorder,
    answer,
    chat_answer,
    chat_stream,
    error_body,
    open_peer,
    replies,
    stream_of,
)

ONE_ATTEMPT = ms.Retry(max_attempts=1)


def ask(**options: object) -> ms.Request:
    return ms.Request("openai/gpt-5", [ms.Message.user("hello")], **options)  # type: ignore[arg-type]


async def run_all(engine: ms.Engine, count: int, **options: object) -> list[ms.Completion]:
    calls = [engine.start_stream(ask(**options)) for _ in range(count)]
    return [await call.wait() for call in calls]


def declared(**limits: float) -> ms.Traffic:
    return ms.Traffic(rates={"openai": ms.RateLimit(**limits)})  # type: ignore[arg-type]


@pytest.mark.parametrize("form", [openai_headers, no_headers])
async def test_calls_at_once_use_the_limit_and_none_fails(autojump_clock: MockClock, form: Form) -> None:
    server = Limited(per_minute=600, capacity=50, form=form)
    async with open_limited(server) as peer, ms.open_engine([provider(peer)], traffic=ms.Traffic()) as engine:
        started = trio.current_time()
        completions = await run_all(engine, 600)
        seconds = trio.current_time() - started
    assert all(completion.success for completion in completions)
    assert server.refused <= 0.1 * server.sent
    assert seconds < (600 - 50) / 10 * 1.15 + 3


@pytest.mark.parametrize(("seconds", "at_once"), [(0.05, 50), (0.3, 200), (10, 400)])
async def test_a_server_without_limits_is_soon_used_as_without_traffic(
    autojump_clock: MockClock, seconds: float, at_once: int
) -> None:
    """The window grows quickly: a refusal would have come long before an unstreamed answer."""

    async def serve(line: Line) -> None:
        while await line.request():
            await trio.sleep(seconds)
            await line.send(answer(chat_answer("fine")))

    async with open_peer(serve) as peer, ms.open_engine([provider(peer)], traffic=ms.Traffic()) as engine:
        started = trio.current_time()
        async with engine.map((ask() for _ in range(4 * at_once)), concurrency=at_once) as results:
            assert all([completion.success async for _, completion in results])
        assert trio.current_time() - started <= (4 + 3) * seconds


@pytest.mark.parametrize("outage", [3, 60, 3600])
async def test_a_rate_learned_in_an_outage_recovers(autojump_clock: MockClock, outage: float) -> None:
    """A server that refuses everything says nothing about its rate."""
    until = trio.current_time() + outage

    async def serve(line: Line) -> None:
        while await line.request():
            if trio.current_time() < until:
                await line.send(answer(error_body("slow down"), status="429 Too Many Requests"))
            else:
                await line.send(answer(chat_answer("fine")))

    async with open_peer(serve) as peer:
        timeouts = ms.Timeouts(total=1e6)
        async with ms.open_engine([provider(peer)], traffic=ms.Traffic(), timeouts=timeouts) as engine:
            calls = [engine.start_request(ask()) for _ in range(100)]
            assert all([(await call.wait()).success for call in calls])
    assert trio.current_time() - until < 16 + 5, "a hold of 16 s, and then soon at full speed"


@pytest.mark.parametrize(
    ("reported", "later"),
    [*((each, "x-ratelimit-limit-requests: 6000\r\n") for each in ("5e-324", "0.01", "1", "60")), ("0.01", "")],
)
async def test_a_rate_that_one_refusal_reported_yields(autojump_clock: MockClock, reported: str, later: str) -> None:
    sent = list[float]()

    async def serve(line: Line) -> None:
        while await line.request():
            sent.append(trio.current_time())
            if len(sent) > 1:
                await line.send(answer(chat_answer("fine"), headers=later))
                continue
            headers = f"x-ratelimit-limit-requests: {reported}\r\n"
            await line.send(answer(error_body("slow down"), status="429 Too Many Requests", headers=headers))

    async with open_peer(serve) as peer:
        timeouts = ms.Timeouts(total=1e6)
        async with ms.open_engine([provider(peer)], traffic=ms.Traffic(), timeouts=timeouts) as engine:
            started = trio.current_time()
            calls = [engine.start_request(ask()) for _ in range(50)]
            completions = [await call.wait() for call in calls]
            assert all(completion.success for completion in completions)
            assert trio.current_time() - started < 30


async def test_without_traffic_a_refused_call_fails_after_its_attempts(autojump_clock: MockClock) -> None:
    server = Limited(per_minute=60, capacity=5)
    async with open_limited(server) as peer, ms.open_engine([provider(peer)]) as engine:
        completions = await run_all(engine, 100)
    assert sum(not completion.success for completion in completions) > 50


# --- refusals ---

REFUSALS: dict[str, dict[str, object]] = {
    "with headers and a hint": {"refusal_headers": "retry-after: 1\r\n"},
    "with a hint in the words": {"form": no_headers,
        "refusal_body": error_body("Rate limit reached for gpt-5. Please try again in 120ms.", "requests")},
    "without headers": {"form": no_headers, "refusal_body": "slow down"},
    "inside the first event of a stream": {"hidden": True, "form": no_headers},
}  # fmt: skip


@pytest.mark.parametrize("options", REFUSALS.values(), ids=REFUSALS)
async def test_a_refused_call_waits_and_goes_again(autojump_clock: MockClock, options: dict[str, object]) -> None:
    """A refusal is not a failure, so a call may be refused more often than it may be attempted."""
    server = Limited(per_minute=60, capacity=1, seconds=0, **options)  # type: ignore[arg-type]
    async with (
        open_limited(server) as peer,
        ms.open_engine([provider(peer)], traffic=ms.Traffic(), retry=ONE_ATTEMPT) as engine,
    ):
        completions = await run_all(engine, 12)
        scope = engine.statistics().traffic.limiters["openai/gpt-5"]
    assert all(completion.success for completion in completions)
    assert max(completion.attempts for completion in completions) > 1
    assert sum(completion.attempts for completion in completions) == server.sent == scope.sent
    assert (scope.waiting, scope.running, scope.refused) == (0, 0, server.refused)
    assert any(completion.timings.waited.get("quota", 0) > 1 for completion in completions)


SPENT: dict[str, tuple[str, str]] = {
    "OpenAI's money": ("429 Too Many Requests", error_body("You exceeded your current quota", "insufficient_quota",
        "insufficient_quota")),
    "a credit": ("402 Payment Required", error_body("no credits left", "billing_error")),
}  # fmt: skip


@pytest.mark.parametrize(("status", "body"), SPENT.values(), ids=SPENT)
async def test_a_spent_quota_fails_all_at_once(autojump_clock: MockClock, status: str, body: str) -> None:
    server = Limited(per_minute=0.001, capacity=0.5, refusal=status, refusal_body=body, form=no_headers)
    async with open_limited(server) as peer, ms.open_engine([provider(peer)], traffic=ms.Traffic()) as engine:
        started = trio.current_time()
        completions = await run_all(engine, 300)
        later = await engine.start_stream(ask()).wait()
        assert trio.current_time() - started < 1
        asked = server.sent
        await trio.sleep(61)
        await engine.start_stream(ask()).wait()
        assert server.sent == asked + 1
    assert asked <= 20
    for completion in [*completions, later]:
        assert not completion.error.retryable
    assert (later.error.category, later.error.provider_code) == (ms.ErrorCategory.RATE_LIMIT, "quota_spent")
    assert later.attempts == 0
    assert 0 < later.error.retry_after_ms <= 60_000


async def test_a_spent_day_of_gemini_fails_at_once(autojump_clock: MockClock) -> None:
    """The refusal names a short retryDelay; only its quotaId shows that the daily quota is used up."""
    violation = '{"quotaMetric": "generate_content_free_tier_requests", "quotaId": "PerDayPerProjectPerModel"}'
    body = (
        '{"error": {"code": 429, "message": "Resource exhausted", "status": "RESOURCE_EXHAUSTED", "details": ['
        '{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [' + violation + "]},"
        '{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"}]}}'
    )

    async with open_peer(replies(answer(body, status="429 Too Many Requests"))) as peer:
        gemini = ms.Gemini("key", peer.origin, profile="google", name="gemini")
        async with ms.open_engine([gemini], traffic=ms.Traffic()) as engine:
            started = trio.current_time()
            completions = [
                await engine.start_stream(ms.Request("gemini/gemini-2.5-flash", [ms.Message.user("a")])).wait()
                for _ in range(3)
            ]
            assert trio.current_time() - started < 1
    assert [completion.error_category for completion in completions] == [ms.ErrorCategory.RATE_LIMIT] * 3
    assert [completion.attempts for completion in completions] == [1, 0, 0]


async def test_an_overloaded_server_is_retried_by_the_call(autojump_clock: MockClock) -> None:
    seen = [0]

    async def script(line: Line) -> None:
        while await line.request():
            seen[0] += 1
            body = '{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}'
            await line.send(answer(body, status="529 Overloaded"))

    async with open_peer(script) as peer:
        anthropic = ms.Anthropic("key", peer.origin, profile="anthropic", name="anthropic")
        async with ms.open_engine([anthropic], traffic=ms.Traffic()) as engine:
            call = engine.start_stream(ms.Request("anthropic/claude-sonnet-4-5", [ms.Message.user("a")]))
            completion = await call.wait()
            scope = engine.statistics().traffic.limiters["anthropic/claude-sonnet-4"]
    assert (completion.error_category, completion.attempts, seen[0]) == (ms.ErrorCategory.SERVER, 4, 4)
    assert (scope.running, scope.waiting, scope.refused) == (0, 0, 0)


# --- what can never go ---


async def test_a_request_larger_than_a_declared_limit_fails_at_once() -> None:
    server, recorder = Limited(), Recorder()
    async with (
        open_limited(server) as peer,
        ms.open_engine([provider(peer)], traffic=declared(tokens_per_minute=1000)) as engine,
    ):
        call = engine.start_stream(ask(max_output_tokens=2000), recorder.on_event, recorder.on_completion)
        assert recorder.completions == []  # nothing is called inside the start
        completion = await call.wait()
    assert server.sent == 0
    assert (completion.error.category, completion.error.retryable) == (ms.ErrorCategory.RATE_LIMIT, False)
    assert completion.error.provider_code == "request_too_large"
    assert completion.error.message == (
        "not sent to openai/gpt-5: the request is larger than the whole limit:"
        " declared tokens_per_minute of openai (1000)"
    )
    assert recorder.types == ["ERROR"]


async def test_a_request_larger_than_a_reported_limit_fails_at_once(autojump_clock: MockClock) -> None:
    def tokens(server: Limited) -> str:
        return "x-ratelimit-limit-tokens: 1000\r\nx-ratelimit-remaining-tokens: 900\r\n"

    server = Limited(form=tokens)
    async with open_limited(server) as peer, ms.open_engine([provider(peer)], traffic=ms.Traffic()) as engine:
        assert (await engine.start_stream(ask()).wait()).success
        completion = await engine.start_stream(ask(max_output_tokens=2000)).wait()
    assert server.sent == 1
    assert completion.error.provider_code == "request_too_large"


# --- waiting ---


async def test_a_call_that_is_cancelled_while_it_waits_holds_nothing(autojump_clock: MockClock) -> None:
    server = Limited(seconds=1)
    async with (
        open_limited(server) as peer,
        ms.open_engine([provider(peer)], traffic=declared(requests_per_minute=1)) as engine,
    ):
        first = engine.start_stream(ask())
        waiting = [engine.start_stream(ask()) for _ in range(3)]
        assert waiting[1].state is ms.CallState.QUEUED
        waiting[0].cancel()
        waiting[1].cancel()
        assert engine.statistics().traffic.limiters["openai/gpt-5"].waiting == 1
        completion = await waiting[0].wait()
        assert completion.error_category is ms.ErrorCategory.CANCELLED
        started = trio.current_time()
        assert (await waiting[2].wait()).success
        assert trio.current_time() - started == pytest.approx(61, abs=1)
        assert (await first.wait()).success
        scope = engine.statistics().traffic.limiters["openai/gpt-5"]
    assert (scope.waiting, scope.running, scope.sent) == (0, 0, 2)


async def test_a_call_cancelled_before_sending_returns_its_share(autojump_clock: MockClock) -> None:
    async def never_connects(host: str, port: int) -> trio.SocketStream:
        await trio.sleep_forever()
        raise AssertionError

    openai = ms.OpenAIChat("key", "http://127.0.0.1:9/v1", name="openai", profile="openai-chat")
    traffic = declared(requests_per_minute=5)
    async with ms.open_engine([openai], traffic=traffic, dial=never_connects) as engine:
        calls = [engine.start_stream(ask()) for _ in range(5)]
        await trio.testing.wait_all_tasks_blocked()
        before = engine.statistics().traffic.limiters["openai/gpt-5"]
        for call in calls:
            call.cancel()
        after = engine.statistics().traffic.limiters["openai/gpt-5"]
    assert (before.running, round(before.reported["declared requests_per_minute of openai"].level)) == (5, 0)
    assert (after.running, round(after.reported["declared requests_per_minute of openai"].level)) == (0, 5)


async def test_the_queue_clock_bounds_the_wait_for_a_limit(autojump_clock: MockClock) -> None:
    server = Limited(seconds=0)
    async with (
        open_limited(server) as peer,
        ms.open_engine([provider(peer)], traffic=declared(requests_per_minute=1)) as engine,
    ):
        assert (await engine.start_stream(ask()).wait()).success
        started = trio.current_time()
        completion = await engine.start_stream(ask(timeouts=ms.Timeouts(queue=20))).wait()
        assert trio.current_time() - started == pytest.approx(20, abs=0.1)
        total = await engine.start_stream(ask(timeouts=ms.Timeouts(total=5))).wait()
        scope = engine.statistics().traffic.limiters["openai/gpt-5"]
    assert (completion.error.category, completion.error.provider_code) == (ms.ErrorCategory.TIMEOUT, "queue")
    assert completion.error.message == (
        "queue timeout: the call was not sent within 20 s (waiting for declared requests_per_minute of openai,"
        " 0 ahead, about 40 s)"
    )
    assert completion.timings.waited == {"quota": pytest.approx(20, abs=0.1)}
    assert (completion.attempts, completion.error.retryable) == (0, False)
    assert total.error.provider_code == "total"
    assert (scope.waiting, scope.running) == (0, 0)


async def test_a_refused_calls_wait_counts_from_where_it_stood(autojump_clock: MockClock) -> None:
    server = Limited(per_minute=0.001, capacity=1, seconds=0, form=no_headers)
    async with open_limited(server) as peer, ms.open_engine([provider(peer)], traffic=ms.Traffic()) as engine:
        assert (await engine.start_stream(ask()).wait()).success
        started = trio.current_time()
        completion = await engine.start_stream(ask(timeouts=ms.Timeouts(queue=30))).wait()
        assert trio.current_time() - started == pytest.approx(30, abs=1)
    assert completion.error.provider_code == "queue"
    assert completion.attempts > 1


async def test_a_deadline_that_cannot_be_met_fails_early(autojump_clock: MockClock) -> None:
    server = Limited(seconds=0)
    async with (
        open_limited(server) as peer,
        ms.open_engine([provider(peer)], traffic=declared(requests_per_minute=60)) as engine,
    ):
        calls = [engine.start_stream(ask()) for _ in range(200)]
        hopeless = engine.start_stream(ask(timeouts=ms.Timeouts(queue=10)))
        hopeful = engine.start_stream(ask(timeouts=ms.Timeouts(queue=300)))
        started = trio.current_time()
        completion = await hopeless.wait()
        assert trio.current_time() - started < 1
        assert (await hopeful.wait()).success
        assert all([(await call.wait()).success for call in calls])
    assert (completion.error.category, completion.error.provider_code) == (ms.ErrorCategory.TIMEOUT, "queue")
    assert "and it may wait 10 s" in completion.error.message


async def test_a_waiting_call_says_what_it_waits_for(autojump_clock: MockClock) -> None:
    server = Limited(seconds=0)
    async with (
        open_limited(server) as peer,
        ms.open_engine([provider(peer)], traffic=declared(requests_per_minute=6)) as engine,
    ):
        calls = [engine.start_stream(ask()) for _ in range(20)]
        assert calls[0].target == "openai/gpt-5"
        assert calls[0].waiting_for == ""
        assert calls[6].waiting_for == "declared requests_per_minute of openai, 0 ahead, about 10 s"
        assert calls[18].waiting_for == "declared requests_per_minute of openai, 12 ahead, about 120 s"
        calls[6].cancel()
        assert calls[6].waiting_for == ""


async def test_a_waiting_call_is_no_task(autojump_clock: MockClock) -> None:
    server = Limited(seconds=0)
    async with (
        open_limited(server) as peer,
        ms.open_engine([provider(peer)], traffic=declared(requests_per_minute=1)) as engine,
    ):
        assert (await engine.start_stream(ask()).wait()).success
        before = trio.lowlevel.current_statistics().tasks_living
        calls = [engine.start_stream(ask()) for _ in range(1000)]
        assert trio.lowlevel.current_statistics().tasks_living == before
        assert engine.statistics().traffic.limiters["openai/gpt-5"].waiting == 1000
        engine.close()
        completions = [await call.wait() for call in calls]
    assert {completion.error_category for completion in completions} == {ms.ErrorCategory.CANCELLED}


async def test_a_drain_lets_waiting_calls_go(autojump_clock: MockClock) -> None:
    server = Limited(seconds=0)
    async with (
        open_limited(server) as peer,
        ms.open_engine([provider(peer)], traffic=declared(requests_per_second=2)) as engine,
    ):
        calls = [engine.start_stream(ask()) for _ in range(20)]
        assert await engine.drain(60)
        assert all([(await call.wait()).success for call in calls])


# --- who goes first ---


async def order_of(requests: list[ms.Request], pick: Callable[[ms.Request], str]) -> list[str]:
    """Return the order in which requests are sent at one call per second, after a call that took the first place."""
    server, order = Limited(per_minute=1e6, seconds=0), list[str]()
    async with (
        open_limited(server) as peer,
        ms.open_engine([provider(peer)], traffic=declared(requests_per_second=1)) as engine,
    ):
        first = engine.start_stream(ask())
        calls = [
            engine.start_stream(request, on_completion=lambda _, request=request: order.append(pick(request)))
            for request in requests
        ]
        for call in [first, *calls]:
            await call.wait()
    return order


async def test_priorities_are_strict(autojump_clock: MockClock) -> None:
    words = ["batch", "normal", "interactive"] * 3
    order = await order_of([ask(priority=word) for word in words], lambda request: str(request.priority))
    assert order == ["interactive"] * 3 + ["normal"] * 3 + ["batch"] * 3


async def test_tenants_take_turns(autojump_clock: MockClock) -> None:
    tenants = ["a"] * 6 + ["b"] * 2
    order = await order_of([ask(tenant=tenant) for tenant in tenants], lambda request: str(request.tenant))
    assert sorted(order[:4]) == ["a", "a", "b", "b"]


async def test_priority_and_tenant_are_not_sent(autojump_clock: MockClock) -> None:
    server = Limited(seconds=0)
    async with open_limited(server) as peer, ms.open_engine([provider(peer)]) as engine:
        await engine.start_stream(ask()).wait()
        await engine.start_stream(ask(priority=ms.Priority.BATCH, tenant="t")).wait()
    assert server.bodies[0] == server.bodies[1]


# --- failures that are no refusals ---


async def test_a_server_error_is_retried_and_gives_its_place_back(autojump_clock: MockClock) -> None:
    seen = [0]

    async def script(line: Line) -> None:
        while await line.request():
            seen[0] += 1
            if seen[0] == 1:
                await line.send(answer(error_body("oops"), status="500 Internal Server Error"))
            else:
                await line.send(stream_of(*chat_stream("fine")))

    async with open_peer(script) as peer, ms.open_engine([provider(peer)], traffic=ms.Traffic()) as engine:
        completion = await engine.start_stream(ask()).wait()
        scope = engine.statistics().traffic.limiters["openai/gpt-5"]
    assert (completion.success, completion.attempts) == (True, 2)
    assert (scope.running, scope.waiting, scope.unconfirmed) == (0, 0, 0)


async def test_calls_that_cannot_connect_leave_nothing_behind(autojump_clock: MockClock) -> None:
    openai = ms.OpenAIChat("key", "http://127.0.0.1:9/v1", name="openai", profile="openai-chat")
    async with ms.open_engine([openai], traffic=declared(requests_per_minute=100)) as engine:
        completions = await run_all(engine, 20)
        scope = engine.statistics().traffic.limiters["openai/gpt-5"]
    assert {completion.error_category for completion in completions} == {ms.ErrorCategory.NETWORK}
    assert (scope.running, scope.waiting, scope.unconfirmed) == (0, 0, 0)
    assert scope.reported["declared requests_per_minute of openai"].level == pytest.approx(100)


# --- the log ---


async def test_what_is_learned_is_in_the_log(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "manystream.traffic")
    server = Limited(per_minute=60, capacity=3, seconds=0)
    async with open_limited(server) as peer, ms.open_engine([provider(peer)], traffic=ms.Traffic()) as engine:
        await run_all(engine, 8)
    lines = [record.getMessage() for record in caplog.records if record.name == "manystream.traffic"]
    assert lines[0] == "openai/gpt-5: limit reported: requests, 60 in 60 s"
    assert sum("limit learned from a refusal: requests" in line for line in lines) == 1


async def test_empty_headers_are_ignored_and_logged(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def junk(server: Limited) -> str:
        return (
            "x-ratelimit-limit-requests: -1\r\nx-ratelimit-remaining-tokens: NaN\r\nx-ratelimit-limit-tokens: 1e308\r\n"
        )

    server = Limited(form=junk, seconds=0)
    async with open_limited(server) as peer, ms.open_engine([provider(peer)], traffic=ms.Traffic()) as engine:
        completions = await run_all(engine, 5)
        scope = engine.statistics().traffic.limiters["openai/gpt-5"]
    assert all(completion.success for completion in completions)
    assert scope.reported == {}
    lines = [record.getMessage() for record in caplog.records if record.name == "manystream.traffic"]
    assert lines == [
        "openai/gpt-5: the header x-ratelimit-limit-requests says nothing ('-1'), ignored",
        "openai/gpt-5: the header x-ratelimit-limit-tokens says nothing ('1e308'), ignored",
    ]


# --- how a server at an address of its own charges ---

ANTHROPIC_EVENTS = (
    '{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"c","content":[],'
    '"usage":{"input_tokens":10,"output_tokens":1}}}',
    '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
    '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}',
    '{"type":"content_block_stop","index":0}',
    '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}',
    '{"type":"message_stop"}',
)


async def test_a_gateways_output_limit_counts_what_is_produced(autojump_clock: MockClock) -> None:
    """`max_output_tokens` is no charge: 600 a minute are 120 answers of 5 tokens, not two of 300."""

    async def serve(line: Line) -> None:
        while await line.request():
            events = [f"event: {each.split(chr(34))[3]}\ndata: {each}\n\n" for each in ANTHROPIC_EVENTS]
            await line.send(stream_of(*events))

    limits = ms.Traffic(rates={"*": ms.RateLimit(output_tokens_per_minute=600)})
    async with open_peer(serve) as peer:
        claude = ms.Anthropic("key", peer.url, name="gateway")
        async with ms.open_engine([claude], traffic=limits) as engine:
            request = ms.Request("gateway/c", [ms.Message.user("hello")], max_output_tokens=300)
            began = trio.current_time()
            calls = [engine.start_stream(request) for _ in range(100)]
            completions = [await call.wait() for call in calls]
            seconds = trio.current_time() - began
    assert all(completion.success for completion in completions)
    assert seconds < 15
