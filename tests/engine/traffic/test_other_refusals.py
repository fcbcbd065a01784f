"""Refusals that look like a full server and are not, and refusals inside answers, from the user's side."""

from __future__ import annotations

import pytest
import trio
import trio.testing

import manystream as ms
from tests.support.peers import Line, answer, error_body, open_peer

from .limited import Limited, no_headers, open_limited, provider
from .targets import Server, ask, failing, open_targets, path

pytestmark = pytest.mark.trio


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
async def test_a_429_of_no_limit_fails_at_once(
    autojump_clock: trio.testing.MockClock, code: str, category: ms.ErrorCategory
) -> None:
    """Without a timeout, the call would wait for ever."""
    with trio.fail_after(60):
        completion, seconds, sent = await refused(error_body("no", "invalid_request_error", code))
    assert completion.error is not None
    assert (completion.error.category, completion.error.retryable) == (category, False)
    assert (seconds < 1, sent) == (True, 1)


@pytest.mark.parametrize(
    "message",
    [
        "Rate limit reached for gpt-5 on requests per min (RPM): Limit 0, Used 0, Requested 1.",
        "You exceeded your current quota, please check your plan and billing details.",
    ],
)
async def test_a_call_does_not_wait_for_a_limit_of_0(autojump_clock: trio.testing.MockClock, message: str) -> None:
    with trio.fail_after(60):
        completion, seconds, sent = await refused(error_body(message, "requests"))
    assert completion.error is not None
    assert (completion.error.category, completion.error.retryable) == (ms.ErrorCategory.RATE_LIMIT, False)
    assert (seconds < 1, sent) == (True, 1)


async def test_a_gateways_429_inside_a_stream_is_a_refusal(autojump_clock: trio.testing.MockClock) -> None:
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
        scope = engine.statistics().traffic.scopes["openai/gpt-5"]
    assert [completion.success for completion in completions] == [True] * 5
    assert scope.refused == server.refused > 0


async def test_a_missing_model_holds_no_other_call_back(autojump_clock: trio.testing.MockClock) -> None:
    gone = Server("one", fault=failing("429 Too Many Requests", code="model_not_found"))
    route = ms.Route("fast", ["one/m", "two/m"])
    async with open_targets(gone, Server("two"), route=route) as engine:
        started = trio.current_time()
        completions = [await engine.start_stream(ask()).wait() for _ in range(3)]
        seconds = trio.current_time() - started
    assert [path(completion) for completion in completions] == [[("one/m", "not_found"), ("two/m", "ok")]] * 3
    assert seconds < 1


async def test_a_key_without_credit_is_put_aside(autojump_clock: trio.testing.MockClock) -> None:
    """Anthropic reports a used-up balance as an invalid request with status 400."""
    body = (
        '{"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low to'
        ' access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}'
    )
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
