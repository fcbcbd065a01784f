"""Reported limits under which nothing can be sent: the server is asked again after a minute."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.engine.traffic.limits.bucket import declared_buckets
from manystream.engine.traffic.limits.quota import Quota
from manystream.engine.traffic.queue.fair_queue import Cost, Permit
from manystream.providers.limits.charging import Charging
from manystream.providers.limits.quota_report import DAY, MINUTE, NOTHING, QuotaReport, Refusal, ReportedLimit, Unit
from tests.support.limited import Limited, open_limited, provider
from tests.support.peers import Line, answer, error_body, open_peer, replies

BODY = (
    '{"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"index": 0, "message":'
    ' {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 2,'
    ' "completion_tokens": 1, "total_tokens": 3}}'
)
TOO_SMALL = "x-ratelimit-limit-tokens: 20\r\nx-ratelimit-remaining-tokens: 20\r\nx-ratelimit-reset-tokens: 0s\r\n"
SHORT, LONG = "hello", "How many rivers cross the plain? " * 10
USED_UP = "x-ratelimit-limit-requests: 200\r\nx-ratelimit-remaining-requests: 0\r\nx-ratelimit-reset-requests: 5h\r\n"
PLENTY = "x-ratelimit-limit-requests: 200\r\nx-ratelimit-remaining-requests: 199\r\nx-ratelimit-reset-requests: 4h\r\n"


async def outcomes(headers: list[str], calls: Sequence[tuple[float, str]]) -> tuple[list[str], int]:
    """Return the outcome of each call, at its time with its prompt, and the requests that the server received.

    headers: those of each response; the last ones for all further responses.
    """
    sent = 0

    async def serve(line: Line) -> None:
        nonlocal sent
        while await line.request():
            given = headers[min(sent, len(headers) - 1)]
            sent += 1
            await line.send(answer(BODY, headers=given))

    found: list[str] = []
    async with open_peer(serve) as peer, ms.open_engine([provider(peer)], traffic=ms.Traffic()) as engine:
        started = trio.current_time()
        for time, prompt in calls:
            await trio.sleep_until(started + time)
            completion = await engine.start_request(ms.Request("openai/gpt-5", prompt)).wait()
            found.append(completion.error.provider_code or "" if completion.error else "ok")
    return found, sent


async def test_a_limit_below_one_call_is_asked_for_again(autojump_clock: MockClock) -> None:
    """A gateway may report the limit of another model once."""
    calls = [(0, SHORT), (1, LONG), (59, LONG), (61, LONG), (62, LONG), (63, LONG)]
    with trio.fail_after(600):
        found, sent = await outcomes([TOO_SMALL, ""], calls)
    assert found == ["ok", "request_too_large", "request_too_large", "ok", "ok", "ok"]
    assert sent == 4


async def test_a_limit_below_an_accepted_call_is_ignored(autojump_clock: MockClock) -> None:
    with trio.fail_after(5):
        assert await outcomes([TOO_SMALL], [(0, LONG), (1, LONG), (2, LONG)]) == (["ok", "ok", "ok"], 3)


async def test_a_used_up_day_is_asked_for_again(autojump_clock: MockClock) -> None:
    times = [0, 1, 61, 62, 122, 123, 124]
    with trio.fail_after(600):
        found, sent = await outcomes([USED_UP, USED_UP, PLENTY], [(time, SHORT) for time in times])
    assert found == ["ok", "quota_spent", "ok", "quota_spent", "ok", "ok", "ok"]
    assert sent == 5


async def test_a_cached_prompt_above_a_limit_is_sent(autojump_clock: MockClock) -> None:
    """Anthropic counts no input that it reads from its cache."""
    headers = (
        "anthropic-ratelimit-input-tokens-limit: 1000\r\nanthropic-ratelimit-input-tokens-remaining: 1000\r\n"
        "anthropic-ratelimit-input-tokens-reset: 2026-01-01T00:00:00Z\r\n"
    )
    body = (
        '{"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",'
        ' "stop_sequence": null, "content": [{"type": "text", "text": "fine"}],'
        ' "usage": {"input_tokens": 5, "cache_read_input_tokens": 9000, "output_tokens": 1}}'
    )

    async with open_peer(replies(answer(body, headers=headers))) as peer:
        claude = ms.Anthropic("sk", peer.url, name="claude")
        async with ms.open_engine([claude], traffic=ms.Traffic()) as engine:
            request = ms.Request("claude/claude-sonnet-4-5", "words and words " * 2000, max_output_tokens=10)
            with trio.fail_after(300):
                completions = [await engine.start_request(request).wait() for _ in range(3)]
    assert [completion.success for completion in completions] == [True] * 3


def test_refused_input_counts_against_a_whole_limit_in_the_end() -> None:
    quota = Quota(Charging(cached_input=False))
    limit = ReportedLimit("input-tokens", Unit.INPUT_TOKENS, MINUTE, 1000, 1000)
    quota.confirm(send(quota, 0), QuotaReport((limit,)), 0)
    call = Permit(5000, 0)
    for call.refusals in range(5):
        assert quota.never(call, 1) is None
    call.refusals = 5
    never = quota.never(call, 1)
    assert (never.refusal, never.why) == (
        Refusal.TOO_LARGE, "the request is larger than the whole limit: input-tokens (1000)",
    )  # fmt: skip


def test_an_error_refutes_no_limit() -> None:
    quota = Quota(Charging())
    report = QuotaReport((ReportedLimit("tokens", Unit.TOKENS, MINUTE, 10, 10),))
    quota.confirm(send(quota, 0), report, 0, accepted=False)
    assert quota.reported["tokens"].limit == pytest.approx(10)
    for _ in range(2):
        quota.confirm(send(quota, 0), report, 0)
        assert quota.reported == {}
    assert quota.news == ["limit reported: tokens, 10 in 60 s", "limit ignored, a larger call was accepted: tokens, 10"]


def send(quota: Quota, now: float) -> Permit:
    ticket = Permit(100, 0)
    ticket.cost = Cost(1, 100, 0, 100)
    quota.reserve(ticket, now)
    return ticket


def daily(remaining: float) -> QuotaReport:
    return QuotaReport((ReportedLimit("requests per day", Unit.REQUESTS, DAY, 200, remaining, 3600),))


def test_a_day_may_be_full_again_at_once() -> None:
    """Cerebras and Groq settle by usage; their day ends at midnight."""
    quota = Quota(Charging(settlement="usage"))
    quota.confirm(send(quota, 0), daily(0), 0)
    assert quota.level(Unit.REQUESTS, 0) == 0
    quota.confirm(send(quota, 0), daily(150), 0)
    assert quota.level(Unit.REQUESTS, 0) == 150
    quota.confirm(send(quota, 0), daily(20), 0)
    assert quota.level(Unit.REQUESTS, 0) == 149


@pytest.mark.parametrize(("now", "refusal"), [(59.9, Refusal.SPENT), (60, None), (300, None)])
def test_a_minute_without_a_request_lets_one_call_go(now: float, refusal: Refusal | None) -> None:
    quota = Quota(Charging())
    quota.confirm(send(quota, 0), daily(0), 0)
    never = quota.never(Permit(100, 0), now)
    assert (never.refusal if never else None) is refusal
    if refusal is None:
        assert quota.ready_at(Cost(1, 100, 0, 100), now) == now
        send(quota, now)
        never = quota.never(Permit(100, 0), now)
        assert never.refusal is Refusal.SPENT


@pytest.mark.parametrize(
    ("limit", "refusal"),
    [(ms.RateLimit(tokens_per_minute=10), Refusal.TOO_LARGE), (ms.RateLimit(requests_per_day=1), Refusal.SPENT)],
)
def test_a_declared_limit_is_never_asked_for_again(limit: ms.RateLimit, refusal: Refusal) -> None:
    quota = Quota(Charging(), declared=declared_buckets(limit))
    quota.confirm(send(quota, 0), NOTHING, 0)
    for now in (0, 60, 3600):
        never = quota.never(Permit(100, 0), now)
        assert never.refusal is refusal


def test_a_limit_per_minute_holds_after_a_silence_too() -> None:
    quota = Quota(Charging())
    quota.confirm(send(quota, 0), QuotaReport((ReportedLimit("requests", Unit.REQUESTS, MINUTE, 60, 0),)), 0)
    quota.reported["requests"].bucket.level = -120.0
    assert quota.ready_at(Cost(1, 100, 0, 100), 61) == 121


CLAUDE = (
    '{"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",'
    ' "stop_sequence": null, "content": [{"type": "text", "text": "fine"}],'
    ' "usage": {"input_tokens": 9, "output_tokens": 3}}'
)
ANTHROPIC = "anthropic-ratelimit-{0}-limit: {1}\r\nanthropic-ratelimit-{0}-remaining: {1}\r\n"
OPENAI = "x-ratelimit-limit-{0}: {1}\r\nx-ratelimit-remaining-{0}: {1}\r\n"
UNITS = ("requests", "tokens", "input-tokens", "output-tokens")
NONSENSE = [
    *((ms.Anthropic, CLAUDE, ANTHROPIC.format(unit, few)) for unit in UNITS for few in ("1e-300", "0.001", "1")),
    *((ms.OpenAIChat, BODY, OPENAI.format(unit, few)) for unit in UNITS for few in ("5e-324", "0.001", "1")),
    *(
        (ms.OpenAIChat, BODY, OPENAI.format(f"req-{of}", few))
        for of in ("second", "minute")
        for few in ("5e-324", "0.5")
    ),
]


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request"])
@pytest.mark.parametrize(("kind", "body", "headers"), NONSENSE)
async def test_a_limit_below_one_answered_call_is_none(
    autojump_clock: MockClock, kind: type[ms.OpenAIChat], body: str, headers: str, status: str
) -> None:
    first = True

    async def serve(line: Line) -> None:
        nonlocal first
        while await line.request():
            await line.send(answer(body, headers=headers, status=status) if first else answer(body))
            first = False

    async with (
        open_peer(serve) as peer,
        ms.open_engine([kind("k", peer.url, name="p")], traffic=ms.Traffic()) as engine,
    ):
        request, began = ms.Request("p/gpt-5", LONG), trio.current_time()
        with trio.fail_after(1000):
            completions = [await engine.start_request(request).wait()]
            await trio.sleep(0 if completions[0].success else 61)  # a call may be larger than what an error reports
            completions += [await engine.start_request(request).wait() for _ in range(3)]
    assert [each.success for each in completions] == [status == "200 OK", True, True, True]
    # One request a minute, and one token after an error, are limits; each call is then counted once more.
    assert trio.current_time() - began < (240 if "requests" in headers or status != "200 OK" else 1)


def test_an_output_that_took_longer_than_a_window_refutes_no_limit() -> None:
    quota = Quota(Charging(output="produced"))
    limit = ReportedLimit("output-tokens", Unit.OUTPUT_TOKENS, MINUTE, 1000, 1000)
    for used, names in ((2500.0, ["output-tokens"]), (3500.0, [])):
        call = send(quota, 0)
        quota.confirm(call, QuotaReport((limit,)), 1)
        quota.settle(call, Cost(1, 10, used, used + 10), 180)
        assert list(quota.reported) == names


@pytest.mark.parametrize("fine", [True, False], ids=["milliseconds", "seconds"])
@pytest.mark.parametrize("together", [48, 1])
async def test_a_limit_per_second_is_not_taken_for_a_minutes(
    fine: bool, together: int, autojump_clock: MockClock
) -> None:
    """The headers do not name the period. The reset says when all of the limit is left again."""

    def form(server: Limited) -> str:
        seconds = (8 - server.level) / 8
        reset = f"{seconds * 1000:.0f}ms" if fine else f"{math.ceil(seconds)}s"
        return (
            f"x-ratelimit-limit-requests: 8\r\nx-ratelimit-remaining-requests: {int(server.level)}\r\n"
            f"x-ratelimit-reset-requests: {reset}\r\n"
        )

    server = Limited(per_minute=480, capacity=8, form=form, seconds=0.1)
    async with open_limited(server) as peer, ms.open_engine([provider(peer)], traffic=ms.Traffic()) as engine:
        began, requests = trio.current_time(), [ms.Request("openai/gpt-5", "hi")] * 48
        async with engine.map(requests, concurrency=together) as results:
            assert [completion.success async for _, completion in results] == [True] * 48
        seconds = trio.current_time() - began
    assert seconds < (12 if fine else 25)
    assert server.refused <= 12


async def test_a_limit_per_minute_stays_one_at_its_end(autojump_clock: MockClock) -> None:
    """In a fixed window, the last reports of a minute have resets of a second, too."""
    used, refused = Counter[int](), 0

    async def serve(line: Line) -> None:
        nonlocal refused
        while await line.request():
            minute, left = int(trio.current_time() // 60), 60 - trio.current_time() % 60
            is_full = used[minute] == 60
            used[minute] += not is_full
            refused += is_full
            headers = f"x-ratelimit-limit-requests: 60\r\nx-ratelimit-remaining-requests: {60 - used[minute]}\r\n"
            headers += f"x-ratelimit-reset-requests: {left:.3f}s\r\n"
            body, status = (error_body("no"), "429 Too Many Requests") if is_full else (BODY, "200 OK")
            await line.send(answer(body, status=status, headers=headers))

    await trio.sleep(50)
    async with (
        open_peer(serve) as peer,
        ms.open_engine([provider(peer)], traffic=ms.Traffic()) as engine,
        engine.map([ms.Request("openai/gpt-5", "hi")] * 250, concurrency=20) as results,
    ):
        assert [completion.success async for _, completion in results] == [True] * 250
    assert (trio.current_time() < 330, refused < 40) == (True, True), (trio.current_time(), refused)


ONE_A_MINUTE = [
    (ms.OpenAIChat, BODY, "x-ratelimit-limit-requests: 1\r\n"),
    (ms.OpenAIChat, BODY, "x-ratelimit-limit-requests: 1\r\nx-ratelimit-remaining-requests: 0\r\n"),
    (ms.OpenAIChat, BODY, "x-ratelimit-limit-req-minute: 1\r\nx-ratelimit-remaining-req-minute: 0\r\n"),
    (ms.Anthropic, CLAUDE, ANTHROPIC.format("requests", 1)),
]


@pytest.mark.parametrize("which", [[0], [20], range(60), range(0, 60, 3)], ids=["first", "20th", "all", "third"])
@pytest.mark.parametrize(("kind", "body", "headers"), ONE_A_MINUTE)
async def test_answers_with_a_tiny_limit_hold_no_batch(
    kind: type[ms.OpenAIChat], body: str, headers: str, which: Collection[int], autojump_clock: MockClock
) -> None:
    """The server answers more than that, so that it is none."""
    count = 0

    async def serve(line: Line) -> None:
        nonlocal count
        while await line.request():
            odd, count = count in which, count + 1
            await trio.sleep(0.1)
            await line.send(answer(body, headers=headers if odd else ""))

    async with (
        open_peer(serve) as peer,
        ms.open_engine([kind("k", peer.url, name="openai")], traffic=ms.Traffic()) as engine,
        engine.map([ms.Request("openai/gpt-5", "hi")] * 60, concurrency=20) as results,
    ):
        assert [completion.success async for _, completion in results] == [True] * 60
    assert trio.current_time() < 10


@pytest.mark.parametrize("at", range(8))
def test_answers_that_report_nothing_refute_a_tiny_limit(at: int) -> None:
    """Of calls that are sent together, one answer reports a limit: whichever comes first, the others refute it."""
    quota = Quota(Charging())
    calls = [send(quota, 0) for _ in range(8)]
    limit = ReportedLimit("requests", Unit.REQUESTS, MINUTE, 1, 0)
    for number, call in enumerate(calls):
        quota.confirm(call, QuotaReport((limit,)) if number == at else QuotaReport(), 0.1)
    assert quota.reported == {}


@pytest.mark.parametrize("seconds", [0, 2, 90])
@pytest.mark.parametrize(
    ("unit", "limit", "kind", "body"),
    [("tokens", 200, ms.OpenAIChat, BODY), ("input-tokens", 200, ms.Anthropic, CLAUDE)],
    ids=["tokens", "input"],
)
async def test_all_that_is_answered_refutes_a_used_up_limit(
    unit: str, limit: int, kind: type[ms.OpenAIChat], body: str, seconds: float, autojump_clock: MockClock
) -> None:
    """No single answer uses more than the limit, of which each says that nothing is left."""
    headers = (
        f"x-ratelimit-limit-{unit}: {limit}\r\nx-ratelimit-remaining-{unit}: 0\r\nx-ratelimit-reset-{unit}: 60s\r\n"
    )
    if body is CLAUDE:
        headers = f"anthropic-ratelimit-{unit}-limit: {limit}\r\nanthropic-ratelimit-{unit}-remaining: 0\r\n"
    body = re.sub(r'"(prompt|input)_tokens": \d+', r'"\1_tokens": 105', body)

    async def serve(line: Line) -> None:
        while await line.request():
            await trio.sleep(seconds)
            await line.send(answer(body, headers=headers))

    async with (
        open_peer(serve) as peer,
        ms.open_engine([kind("k", peer.url, name="openai")], traffic=ms.Traffic()) as engine,
        engine.map([ms.Request("openai/gpt-5", "hi", max_output_tokens=9)] * 300, concurrency=300) as results,
    ):
        assert [completion.success async for _, completion in results] == [True] * 300
    assert trio.current_time() < 900


def test_calls_before_a_refusal_refute_no_limit() -> None:
    """They may have been answered out of a bucket that was full. Those after it count, of which none was refused."""
    quota = Quota(Charging())
    report = QuotaReport((ReportedLimit("tokens", Unit.TOKENS, MINUTE, 200, 0),))
    calls = [send(quota, 0) for _ in range(9)]
    quota.refuse(calls.pop(), replace(report, refusal=Refusal.RATE), 1)
    for call in calls:
        quota.confirm(call, report, 2)
        quota.settle(call, Cost(1, 100, 0, 100), 2)
    assert list(quota.reported) == ["tokens"]
    for call in [send(quota, 3) for _ in range(5)]:
        quota.confirm(call, report, 4)
        quota.settle(call, Cost(1, 100, 0, 100), 4)
    assert quota.reported == {}
    quota.refuse(send(quota, 5), replace(report, refusal=Refusal.RATE), 6)
    call = send(quota, 7)
    quota.confirm(call, report, 8)
    assert list(quota.reported) == ["tokens"]


@pytest.mark.parametrize("reports", [True, False])
async def test_a_limit_of_one_a_minute_that_is_true_holds(reports: bool, autojump_clock: MockClock) -> None:
    def form(server: Limited) -> str:
        remaining = f"x-ratelimit-remaining-requests: {int(server.level)}\r\n"
        return "x-ratelimit-limit-requests: 1\r\n" + remaining * reports

    server = Limited(per_minute=1, capacity=1, form=form, seconds=0.1)
    async with (
        open_limited(server) as peer,
        ms.open_engine([provider(peer)], traffic=ms.Traffic()) as engine,
        engine.map([ms.Request("openai/gpt-5", "hi")] * 12, concurrency=12) as results,
    ):
        assert [completion.success async for _, completion in results] == [True] * 12
    assert server.refused <= 30


async def test_a_limit_that_falls_is_one_of_a_minute(autojump_clock: MockClock) -> None:
    """What was accepted before says nothing of the new number."""
    headers = ["x-ratelimit-limit-requests: 600\r\n"] * 300 + ["x-ratelimit-limit-requests: 6\r\n"]
    await outcomes(headers, [(number * 0.1, SHORT) for number in range(320)])
    assert trio.current_time() > 100
