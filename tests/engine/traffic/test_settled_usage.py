"""What a call is charged in the end: the tokens that its server reports, or the estimate."""

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from tests.support.peers import (
    CHAT_DONE,
    STREAM_HEAD,
    Line,
    answer,
    chat_chunk,
    chat_stream,
    chunked,
    error_body,
    open_peer,
    replies,
    stream_of,
)

USAGE = {
    "OpenAI": {"prompt_tokens": 30, "completion_tokens": 20, "total_tokens": 50},
    "with thinking": {"prompt_tokens": 30, "completion_tokens": 20, "total_tokens": 50,
        "completion_tokens_details": {"reasoning_tokens": 15}},
}  # fmt: skip


@pytest.mark.parametrize("usage", USAGE.values(), ids=USAGE)
async def test_a_call_is_charged_what_it_used_in_the_end(autojump_clock: MockClock, usage: dict[str, object]) -> None:
    """A declared limit of 6,000 tokens per minute: the reserved output returns when the usage is known."""

    async def script(line: Line) -> None:
        while await line.request():
            await line.send(stream_of(*chat_stream("fine")[:-1], end=False))
            await trio.sleep(0.5)
            await line.send(chunked(chat_chunk(usage=usage), CHAT_DONE).decode())

    async with open_peer(script) as peer:
        provider = ms.OpenAIChat("key", peer.url, name="groq", profile="groq")
        traffic = ms.Traffic(rates={"groq": ms.RateLimit(tokens_per_minute=6000)})
        async with ms.open_engine([provider], traffic=traffic) as engine:
            call = engine.start_stream(ms.Request("groq/m", [ms.Message.user("hello")], max_output_tokens=5000))
            await trio.sleep(0.2)
            name = "declared tokens_per_minute of groq"
            (scope,) = engine.statistics().traffic.limiters.values()
            assert scope.reported[name].level < 1000 + 0.3 * 100
            completion = await call.wait()
            (scope,) = engine.statistics().traffic.limiters.values()
            assert (completion.success, scope.running) == (True, 0)
            assert completion.response.usage.input_tokens == 30
            assert scope.reported[name].level == pytest.approx(6000 - 50, abs=60)


@pytest.mark.parametrize("adaptive", [True, False], ids=["learns", "declared only"])
@pytest.mark.parametrize("profile", ["openai-chat", "openai-compatible", "azure", "groq", "vllm", "deepseek"])
async def test_a_declared_limit_counts_what_was_used_at_every_server(
    autojump_clock: MockClock, profile: str, adaptive: bool
) -> None:
    """Sixty calls reserve four times the limit of a minute, and use a fortieth of it."""

    async def script(line: Line) -> None:
        while await line.request():
            await line.send(STREAM_HEAD)
            await trio.sleep(0.5)
            usage = {"prompt_tokens": 7, "completion_tokens": 20, "total_tokens": 27}
            await line.send(chunked(*chat_stream("fine")[:-1], chat_chunk(usage=usage), CHAT_DONE).decode())

    async with open_peer(script) as peer:
        provider = ms.OpenAIChat("key", peer.url, name="one", profile=profile)
        traffic = ms.Traffic(rates={"*": ms.RateLimit(tokens_per_minute=60_000)}, adaptive=adaptive)
        async with ms.open_engine([provider], traffic=traffic) as engine:
            began = trio.current_time()
            request = ms.Request("one/m", [ms.Message.user("hello")], max_output_tokens=4000)
            calls = [engine.start_stream(request) for _ in range(60)]
            assert all([(await call.wait()).success for call in calls])
            (scope,) = engine.statistics().traffic.limiters.values()
    assert trio.current_time() - began < 10
    assert scope.reported["declared tokens_per_minute of *"].level > 60_000 - 60 * 27 - 1


async def test_a_failed_call_gives_a_declared_limit_its_tokens_back(autojump_clock: MockClock) -> None:

    async with open_peer(replies(answer(error_body("no", "invalid_request_error"), status="400 Bad Request"))) as peer:
        provider = ms.OpenAIChat("key", peer.url, name="openai", profile="openai-chat")
        traffic = ms.Traffic(rates={"openai": ms.RateLimit(tokens_per_minute=6000, requests_per_minute=60)})
        async with ms.open_engine([provider], traffic=traffic) as engine:
            request = ms.Request("openai/m", [ms.Message.user("hello")], max_output_tokens=5000)
            assert not (await engine.start_stream(request).wait()).success
            (scope,) = engine.statistics().traffic.limiters.values()
    assert {name.split()[1]: round(limit.level) for name, limit in scope.reported.items()} == {
        "tokens_per_minute": 6000,
        "requests_per_minute": 59,
    }


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cancelled"])
async def test_a_call_without_usage_is_charged_its_estimate(autojump_clock: MockClock, cut: bool) -> None:
    async def script(line: Line) -> None:
        while await line.request():
            await line.send(stream_of(*chat_stream("fine")[:-1], end=False))
            await trio.sleep(0.5)
            await line.send(chunked(CHAT_DONE).decode())

    async with open_peer(script) as peer:
        provider = ms.OpenAIChat("key", peer.url, name="groq", profile="groq")
        traffic = ms.Traffic(rates={"groq": ms.RateLimit(tokens_per_minute=6000)})
        async with ms.open_engine([provider], traffic=traffic) as engine:
            call = engine.start_stream(ms.Request("groq/m", [ms.Message.user("hello")], max_output_tokens=5000))
            await trio.sleep(0.2)
            if cut:
                call.cancel()
            completion = await call.wait()
            (scope,) = engine.statistics().traffic.limiters.values()
    assert (completion.success, scope.running) == (not cut, 0)
    assert scope.reported["declared tokens_per_minute of groq"].level == pytest.approx(1000, abs=60)


async def test_counts_below_zero_give_a_budget_nothing_back(autojump_clock: MockClock) -> None:
    usage = {"prompt_tokens": -9000, "completion_tokens": 20, "total_tokens": -8980}
    script = replies(stream_of(*chat_stream("fine")[:-1], chat_chunk(usage=usage), CHAT_DONE))
    async with open_peer(script) as peer:
        provider = ms.OpenAIChat("key", peer.url, name="groq", profile="groq")
        traffic = ms.Traffic(budgets=[ms.Budget(input_tokens=9000)])
        async with ms.open_engine([provider], traffic=traffic) as engine:
            request = ms.Request("groq/m", [ms.Message.user("hello")], max_output_tokens=500)
            for _ in range(3):
                assert (await engine.start_stream(request).wait()).success
            (budget,) = engine.statistics().traffic.budgets
    assert 0 < budget.spent.input_tokens < 300
    assert 0 < budget.spent.output_tokens < 300
