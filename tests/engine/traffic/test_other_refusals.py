"""Refusals that look like a full server and are not, and refusals inside answers, from the user's side."""

import itertools
import json

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from tests.support.limited import Limited, no_headers, open_limited, provider
from tests.support.peers import Line, answer, chat_answer, error_body, open_peer
from tests.support.targets import Server, ask, failing, open_targets, path


async def refused(body: str, status: str = "429 Too Many Requests") -> tuple[ms.Completion, float, int]:
    """Return the completion of one call to a server that always refuses, the seconds, and the requests."""
    server = Limited(per_minute=60, capacity=1e-9, form=no_headers, refusal=status, refusal_body=body)
    async with open_limited(server) as peer, ms.open_engine([provider(peer)], traffic=ms.Traffic()) as engine:
        started = trio.current_time()
        completion = await engine.start_stream(ms.Request("openai/gpt-5", "hello")).wait()
        return completion, trio.current_time() - started, server.sent


@pytest.mark.parametrize(
    ("code", "category"),
    [
        ("model_not_available", ms.ErrorCategory.NOT_FOUND),
        ("invalid_api_key", ms.ErrorCategory.AUTH),
        ("content_filter", ms.ErrorCategory.CONTENT_FILTER),
    ],
)
async def test_a_429_of_no_limit_fails(autojump_clock: MockClock, code: str, category: ms.ErrorCategory) -> None:
    """Without a timeout, the call would wait for ever."""
    with trio.fail_after(60):
        completion, seconds, sent = await refused(error_body("no", "invalid_request_error", code))
    assert (completion.error.category, completion.error.retryable) == (category, False)
    assert (seconds < 1, sent) == (True, 1)


@pytest.mark.parametrize(
    "message",
    [
        "Rate limit reached for gpt-5 on requests per min (RPM): Limit 0, Used 0, Requested 1.",
        "You exceeded your current quota, please check your plan and billing details.",
    ],
)
async def test_a_call_does_not_wait_for_a_limit_of_0(autojump_clock: MockClock, message: str) -> None:
    with trio.fail_after(60):
        completion, seconds, sent = await refused(error_body(message, "requests"))
    assert (completion.error.category, completion.error.retryable) == (ms.ErrorCategory.RATE_LIMIT, False)
    assert (seconds < 1, sent) == (True, 1)


async def test_a_gateways_429_inside_a_stream_is_a_refusal(autojump_clock: MockClock) -> None:
    """OpenRouter answers with 200 and reports the refusal of the server behind it as an event with a number as code."""
    server = Limited(per_minute=60, capacity=1, seconds=0, form=no_headers, hidden=True)
    server.refusal_body = '{"error": {"code": 429, "message": "Provider returned error"}}'
    once = ms.Retry(max_attempts=1)
    async with (
        open_limited(server) as peer,
        ms.open_engine([provider(peer)], traffic=ms.Traffic(), retry=once) as engine,
    ):
        calls = [engine.start_stream(ms.Request("openai/gpt-5", "hello")) for _ in range(5)]
        completions = [await call.wait() for call in calls]
        scope = engine.statistics().traffic.limiters["openai/gpt-5"]
    assert [completion.success for completion in completions] == [True] * 5
    assert scope.refused == server.refused > 0


async def test_a_missing_model_holds_no_other_call_back(autojump_clock: MockClock) -> None:
    gone = Server("one", fault=failing("429 Too Many Requests", code="model_not_found"))
    route = ms.Route("fast", ["one/m", "two/m"])
    async with open_targets(gone, Server("two"), route=route) as engine:
        started = trio.current_time()
        completions = [await engine.start_stream(ask()).wait() for _ in range(3)]
        seconds = trio.current_time() - started
    assert [path(completion) for completion in completions] == [[("one/m", "not_found"), ("two/m", "ok")]] * 3
    assert seconds < 1


@pytest.mark.parametrize(
    "message",
    [
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.",
        "This organization has been disabled.",
    ],
)
async def test_a_key_without_credit_is_put_aside(message: str, autojump_clock: MockClock) -> None:
    """Anthropic reports a used-up balance and a closed account as an invalid request with status 400."""
    body = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": message}})
    good = (
        '{"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",'
        ' "stop_sequence": null, "content": [{"type": "text", "text": "fine"}],'
        ' "usage": {"input_tokens": 1, "output_tokens": 1}}'
    )
    keys: list[bytes] = []

    async def serve(line: Line) -> None:
        while request := await line.request():
            head = request.partition(b"\r\n\r\n")[0].lower()
            key = b"poor" if b"x-api-key: sk-poor" in head else b"rich"
            keys.append(key)
            await line.send(answer(body, status="400 Bad Request") if key == b"poor" else answer(good))

    async with open_peer(serve) as peer:
        both = ms.Anthropic(["sk-poor", "sk-rich"], peer.url, name="claude")
        async with ms.open_engine([both], traffic=ms.Traffic()) as engine:
            for _ in range(3):
                call = engine.start_request(ms.Request("claude/m", "hello", max_output_tokens=5))
                assert (await call.wait()).success
    assert keys == [b"poor", b"rich", b"rich", b"rich"]


# --- what a server says about the time to wait ---

BUSY, LIMITED = "503 Service Unavailable", "429 Too Many Requests"
LEARNING, OBEYING, NONE = ms.Traffic(), ms.Traffic(adaptive=False), None


async def asked(
    status: str, hint: str, profile: str, traffic: ms.Traffic | None, code: str = "", calls: int = 1
) -> tuple[list[float], list[ms.Completion], float]:
    """Start calls to a server that refuses for 20 s. Return the times of its requests and of the last completion."""
    at: list[float] = []
    started = trio.current_time()

    async def serve(line: Line) -> None:
        while request := await line.request():
            if request.startswith(b"GET"):  # how many calls wait in the server
                await line.send(answer("", status="404 Not Found"))
                continue
            at.append(trio.current_time() - started)
            refusal = answer(error_body("no", code=code or None), status=status, headers=f"Retry-After: {hint}\r\n")
            await line.send(refusal if at[-1] < 20 else answer(chat_answer("fine")))

    async with open_peer(serve) as peer:
        here = ms.OpenAIChat("key", peer.url, name="here", profile=profile)
        async with ms.open_engine([here], traffic=traffic) as engine:
            started_calls = [engine.start_request(ms.Request("here/m", "hello")) for _ in range(calls)]
            return at, [await call.wait() for call in started_calls], trio.current_time() - started


@pytest.mark.parametrize("hint", ["0", "0.0004", "3600", "86400", "2678400"])
@pytest.mark.parametrize(
    ("profile", "status", "traffic", "longest"),
    [
        ("vllm", BUSY, LEARNING, 5),
        ("llama-cpp", BUSY, LEARNING, 5),
        ("deepseek", LIMITED, LEARNING, 5),
        ("deepseek", BUSY, LEARNING, 5),
        ("openai-chat", LIMITED, OBEYING, 120),
        ("vllm", LIMITED, OBEYING, 120),
        ("deepseek", LIMITED, OBEYING, 120),
    ],
)
async def test_a_hint_is_neither_nothing_nor_a_day(
    autojump_clock: MockClock, profile: str, status: str, traffic: ms.Traffic, longest: float, hint: str
) -> None:
    at, (completion,), ended = await asked(status, hint, profile, traffic)
    pauses = [later - earlier for earlier, later in itertools.pairwise(at)]
    expected = [min(longest, max(float(hint), min(2.0, 0.1 * 2**n))) for n in range(len(pauses))]
    assert pauses == pytest.approx(expected, abs=0.02)
    assert completion.success
    assert ended < 20 + min(longest, max(2.0, float(hint)))
    assert completion.attempts == len(at) == len(completion.attempt_records)


@pytest.mark.parametrize(
    ("profile", "status", "traffic"),
    [("vllm", BUSY, NONE), ("vllm", LIMITED, NONE), ("openai-chat", BUSY, LEARNING), ("vllm", BUSY, OBEYING)],
)
async def test_a_call_s_own_retries_do_not_flood_a_server(
    autojump_clock: MockClock, profile: str, status: str, traffic: ms.Traffic | None
) -> None:
    at, (completion,), _ = await asked(status, "0", profile, traffic)
    assert at == pytest.approx([0, 0.1, 0.3, 0.7], abs=0.1)
    assert not completion.success
    at, (completion,), ended = await asked(status, "86400", profile, traffic)
    assert (len(at), completion.success, ended < 1, completion.retry_after_ms) == (1, False, True, 86_400_000)


@pytest.mark.parametrize("profile", ["vllm", "deepseek"])
async def test_calls_that_ran_together_are_one_refusal(autojump_clock: MockClock, profile: str) -> None:
    at, completions, ended = await asked(BUSY, "0", profile, LEARNING, calls=50)
    assert all(completion.success for completion in completions)
    assert (at[:9], ended < 23) == (pytest.approx([0] * 8 + [0.1], abs=0.02), True)


async def test_a_spent_quota_is_asked_again_after_a_minute(autojump_clock: MockClock) -> None:
    sent = 0

    async def serve(line: Line) -> None:
        nonlocal sent
        while await line.request():
            sent += 1
            spent = error_body("no", "insufficient_quota", "insufficient_quota")
            refusal = answer(spent, status=LIMITED, headers="Retry-After: 2678400\r\n")
            await line.send(refusal if sent == 1 else answer(chat_answer("fine")))

    async with open_peer(serve) as peer, ms.open_engine([provider(peer)], traffic=LEARNING) as engine:
        outcomes: list[str] = []
        for pause in (0, 58, 3):
            await trio.sleep(pause)
            completion = await engine.start_request(ms.Request("openai/gpt-5", "hello")).wait()
            outcomes.append("" if completion.error is None else completion.error.provider_code or "")
    assert (outcomes, sent) == (["insufficient_quota", "quota_spent", ""], 2)


async def test_a_call_refused_for_hours_records_a_hundred_attempts(autojump_clock: MockClock) -> None:
    server = Limited(per_minute=1, capacity=1e-9, form=no_headers, refusal=LIMITED)
    async with (
        open_limited(server) as peer,
        ms.open_engine([provider(peer)], traffic=OBEYING, timeouts=ms.Timeouts(queue=4000)) as engine,
    ):
        completion = await engine.start_stream(ms.Request("openai/gpt-5", "hello")).wait()
    records = completion.attempt_records
    assert completion.attempts == server.sent > 200
    assert (len(records), records[0].started) == (100, 0)
    assert [later.started > earlier.started for earlier, later in itertools.pairwise(records)] == [True] * 99
    assert records[-1].ended > 3_900
    assert records[50].started > 50 * records[49].started / 49
