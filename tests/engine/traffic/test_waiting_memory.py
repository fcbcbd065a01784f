"""The memory of calls that wait, beside the text of their requests, as counted by tracemalloc."""

import gc
import tracemalloc
from typing import Literal

import pytest
import trio
from trio.testing import MockClock

import manystream as ms

CALLS = 250
ONE_LIMIT = {"*": ms.RateLimit(requests_per_minute=1)}


TEXT = (
    b'{"model":"m","messages":[{"role":"user","content":"hello"}],'
    b'"stream":true,"stream_options":{"include_usage":true}}'
)
"""The request's own text, as it is sent. It is not counted."""

HOSTS = [ms.OpenAIChat("k", "http://127.0.0.1:9/v1", name=name) for name in ("a", "b", "c")]
TWO_KEYS = [ms.OpenAIChat(["k", "l"], "http://127.0.0.1:9/v1", name="a")]
TARGETS = ["a/m", "b/m", "c/m"]


async def bytes_of_a_waiting_call(model: str, traffic: ms.Traffic, providers: list[ms.Provider]) -> float:
    """Return the bytes of a call that waits, without its text."""
    async with ms.open_engine(providers, traffic=traffic) as engine:
        question = ms.Request(model, [ms.Message.user("hello")])
        warm = [engine.start_stream(question) for _ in range(CALLS)]  # fills caches
        for call in warm:
            call.cancel()
        await trio.sleep(1)
        gc.collect()
        tracemalloc.start(1)
        try:
            before = tracemalloc.get_traced_memory()[0]
            calls = [engine.start_stream(question) for _ in range(CALLS)]
            gc.collect()
            used = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert sum(call.waiting_for != "" for call in calls) == CALLS - 1
        for call in calls:
            call.cancel()
    return used / CALLS - len(TEXT)


def on_a_route(balance: Literal["order", "weighted"] = "order", hedge: ms.Hedge | None = None) -> ms.Traffic:
    route = ms.Route("fast", TARGETS, balance=balance, hedge=hedge)
    return ms.Traffic(rates=ONE_LIMIT, routes=[route])


WAYS: dict[str, tuple[str, ms.Traffic, list[ms.Provider], int]] = {
    "one queue": ("a/m", ms.Traffic(rates=ONE_LIMIT), [*HOSTS], 1_150),
    "a route in order": ("fast", on_a_route(), [*HOSTS], 1_600),
    "a route that hedges": ("fast", on_a_route(hedge=ms.Hedge()), [*HOSTS], 1_664),
    "two keys": ("a/m", ms.Traffic(rates=ONE_LIMIT), [*TWO_KEYS], 1_850),
    "a budget": ("a/m", ms.Traffic(rates=ONE_LIMIT, budgets=[ms.Budget(input_tokens=1e9)]), [*HOSTS], 1_450),
    "for a budget": ("a/m", ms.Traffic(budgets=[ms.Budget(calls=1)]), [*HOSTS], 2_048),
    "three queues": ("fast", on_a_route("weighted"), [*HOSTS], 2_048),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
async def test_a_waiting_call_needs_less_than_two_kib(way: str, autojump_clock: MockClock) -> None:
    model, traffic, providers, most = WAYS[way]
    used = await bytes_of_a_waiting_call(model, traffic, providers)
    assert used < most
