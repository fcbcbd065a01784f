"""Calls with one beginning of their prompts, at servers with caches: who writes, who waits, and what each call says."""

from __future__ import annotations

import gc
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, cast

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from benchmarks.prefixes import ROWS, RULES, ModelledServer, Row, fan_out, measure, row
from manystream.batch import Batch, Journal, read_lines
from manystream.engine.call.runtime import Runtime
from manystream.engine.traffic import prompt_caches
from manystream.engine.traffic.prefix_state import CacheFacts, PrefixState
from manystream.engine.traffic.prompt_caches import CachedAdmission, ModelCache
from manystream.http_server import HTTPRequest
from manystream.providers.json.json_values import mapping
from manystream.providers.wire.cache_marks import WirePrefix
from manystream.simulator.knobs import Knobs
from manystream.simulator.program import Program
from manystream.simulator.prompt_caches import CacheModel
from manystream.simulator.service import ServiceSettings
from tests.support.batches import line, write

CACHES = CacheModel(cold=3, warm=0.5, lag=0.5)
PROVIDERS: dict[str, ms.Provider] = {
    "claude-sonnet-4-5": ms.Anthropic("key", base_url="http://modelled.test"),
    "gpt-5.6": ms.OpenAIChat("key", profile="openai-chat", base_url="http://modelled.test/v1"),
}


@asynccontextmanager
async def opened(
    caches: CacheModel = CACHES, knobs: Knobs | None = None, model: str = "claude-sonnet-4-5", **options: object
) -> AsyncGenerator[tuple[ms.Engine, ModelledServer]]:
    async with trio.open_nursery() as nursery:
        server = ModelledServer(nursery, ServiceSettings(knobs=knobs or Knobs(events=2), journal=0, caches=caches))
        traffic = ms.Traffic(**options)  # type: ignore[arg-type]
        async with ms.open_engine([PROVIDERS[model]], dial=server.dial, traffic=traffic) as engine:
            yield engine, server
        nursery.cancel_scope.cancel()


def flat_price(provider: ms.Provider, model: str, usage: ms.Usage) -> float:
    return (usage.input_tokens or 0) * 1e-6


def request(task: str, rules: str = RULES, model: str = "claude-sonnet-4-5", **options: object) -> ms.Request:
    system = [ms.Text(rules, cache_control=ms.CacheControl())]
    return ms.Request(model, [ms.Message.user(task)], system=system, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])
@pytest.mark.parametrize("lag", [0.0, 0.5, 2.0])
async def test_a_prefix_is_paid_for_once(lag: float, streamed: bool, autojump_clock: MockClock) -> None:
    case = replace(row(lag=lag), calls=100, streamed=streamed)
    [without] = await measure(case, ms.Traffic(warm=False))
    [outcome] = await measure(case, ms.Traffic())
    assert not outcome.failed
    assert outcome.cost <= (1.15 if streamed else 1.3) * case.least
    assert outcome.end <= without.end + case.later
    assert without.cost > 5 * outcome.cost


@pytest.mark.parametrize("model", list(PROVIDERS))
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])
async def test_every_call_says_what_it_had(streamed: bool, model: str, autojump_clock: MockClock) -> None:
    async with opened(model=model, price=flat_price) as (
        engine,
        _,
    ):
        start = engine.start_stream if streamed else engine.start_request
        question = "the mark is in the question" if model == "gpt-5.6" else "task"
        calls = [start(request(f"{question} {number}", model=model)) for number in range(5)]
        assert calls[0].waiting_for == ""
        assert calls[4].waiting_for.startswith("a prompt prefix of ")
        assert calls[4].waiting_for.endswith(" tokens that call 1 is writing")
        done = [await call.wait() for call in calls]
        assert all(completion.success for completion in done), done[0].error
        uses = [completion.cache for completion in done]
        assert all(use is not None for use in uses)
        written, read = [sum(getattr(use, name) or 0 for use in uses) for name in ("written", "read")]
        assert 0 < written < read
        assert uses[0] is not None
        assert uses[0].waited == 0
        assert uses[4] is not None
        assert 3 < uses[4].waited <= 10
        assert done[4].timings.waited["prefix"] == uses[4].waited
        assert "up to a mark, about " in uses[4].shared
        [(name, figures)] = engine.statistics().traffic.caches.items()
        assert name == f"{PROVIDERS[model].name}/{model}"
        assert (figures.read, figures.written) == (read, written)
        assert figures.prefixes >= 1
        assert figures.usd_saved == 0.0
        assert figures.waited == sum(use.waited for use in uses if use is not None)


def lifetime_price(provider: ms.Provider, model: str, usage: ms.Usage) -> float:
    """Price a token at 1, one that was read at 0.1, and one that was written at 1.25, or at 2 for an hour."""
    read, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
    long = mapping(usage.raw or {}, "cache_creation").get("ephemeral_1h_input_tokens") or 0
    assert isinstance(long, int)
    return (usage.input_tokens or 0) - 0.9 * read + 0.25 * (written - long) + long


@pytest.mark.parametrize(("ttl", "dearer"), [("5m", 0.25), ("1h", 1.0)])
async def test_what_was_saved_counts_the_price_of_a_write(
    ttl: Literal["5m", "1h"], dearer: float, autojump_clock: MockClock
) -> None:
    system = [ms.Text(RULES, cache_control=ms.CacheControl(ttl=ttl))]
    async with opened(price=lifetime_price) as (engine, _):
        for number in range(3):
            await engine.request(ms.Request("claude-sonnet-4-5", f"{number}", system=system))
            await trio.sleep(1)
        [figures] = engine.statistics().traffic.caches.values()
    assert figures.written > 1024
    assert figures.usd_saved == pytest.approx(0.9 * figures.read - dearer * figures.written)


async def test_a_call_that_will_read_reserves_the_price_of_that(autojump_clock: MockClock) -> None:
    async with opened(price=lifetime_price, budgets=[ms.Budget(usd=1e6)]) as (engine, _):
        reserved: list[float] = []
        for rules in (RULES, RULES, RULES, "Other " + RULES):
            call = engine.start_stream(request("task", rules, max_output_tokens=10))
            await trio.sleep(0.1)
            reserved.append(engine.statistics().traffic.budgets[0].reserved.usd)
            assert (await call.wait()).success
        use = (await engine.start_stream(request("task")).wait()).cache
    read = 0 if use is None else use.read
    assert read
    assert reserved[0] - reserved[2] == pytest.approx((1.25 - 0.1) * read)
    assert reserved[3] >= reserved[0], "another prefix is not proven"


async def test_calls_that_never_wait(autojump_clock: MockClock) -> None:
    """A single call, a unique prompt, an urgent one, one without a mark, a short prefix, and a readable prefix."""
    async with opened() as (engine, _):
        kinds = [
            request("one"), request("another", rules="Other " + RULES), request("urgent", priority="interactive"),
            ms.Request("claude-sonnet-4-5", [ms.Message.user("no mark")]), request("short", rules="Be kind."),
        ]  # fmt: skip
        done = [await call.wait() for call in [engine.start_stream(each) for each in kinds]]
        assert [None if each.cache is None else each.cache.waited for each in done] == [0, 0, 0, None, 0]
        later = await engine.start_stream(request("later")).wait()
        assert later.cache is not None
        assert (later.cache.waited, later.cache.written) == (0, 0)
        assert (later.cache.read or 0) > 1024


async def test_a_known_prefix_keeps_no_request_in_memory(autojump_clock: MockClock) -> None:
    async with opened() as (engine, _):
        for number in range(3):
            assert (await engine.start_stream(request("task", rules=f"{number} {RULES}")).wait()).success
        gc.collect()
        assert not [each for each in gc.get_objects() if isinstance(each, CachedAdmission)]


def test_known_prefixes_are_bounded_and_those_in_use_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_caches, "MOST_PREFIXES", 10)
    cache, looked_at = ModelCache("m", CacheFacts()), 0

    class Looked(PrefixState[CachedAdmission]):
        @property
        def is_idle(self) -> bool:
            nonlocal looked_at
            looked_at += 1
            return number_of[self] % 20 != 0

    number_of: dict[object, int] = {}
    monkeypatch.setattr(prompt_caches, "PrefixState", Looked)
    runtime = cast("Runtime", SimpleNamespace(log=None))
    for number in range(200):
        line = cache.line(b"%d" % number, WirePrefix((0, 0), (0, 5000), 300.0), runtime, 10.0)
        number_of[line.state] = number
    assert {b"%d" % number for number in range(0, 200, 20)} <= {*cache.lines}
    assert b"199" in cache.lines
    assert len(cache.lines) <= 20
    assert looked_at <= 400, "each start looks at two"


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "unstreamed"])
async def test_clients_of_a_gateway_share_a_prefix(streamed: bool, autojump_clock: MockClock) -> None:
    """Their SDK writes the messages before the system prompt, and may write white space."""
    marked = [{"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}}]

    async def ask(port: int, number: int) -> None:
        body = {
            "max_tokens": 50, "messages": [{"role": "user", "content": f"{number}"}], "model": "claude-sonnet-4-5",
            "stream": streamed, "system": marked, "tools": [{"name": "t", "input_schema": {"type": "object"}}],
        }  # fmt: skip
        data = json.dumps(body)
        head = (
            f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all((head + data).encode())
            answer = b"".join([piece async for piece in stream])
        assert answer.startswith(b"HTTP/1.1 200")

    async with opened() as (engine, server), ms.open_gateway(engine) as gateway, trio.open_nursery() as clients:
        for number in range(12):
            clients.start_soon(ask, gateway.port, number)
    assert server.counts.requests == 12
    assert server.counts.reads >= 10


async def test_without_warm_nobody_waits(autojump_clock: MockClock) -> None:
    async with opened(warm=False) as (engine, _):
        done = [await call.wait() for call in [engine.start_stream(request(f"{number}")) for number in range(3)]]
        assert [each.cache for each in done] == [None] * 3
        assert not engine.statistics().traffic.caches


@pytest.mark.parametrize("how", ["cancelled", "refused", "hangs"])
async def test_a_writer_that_fails_delays_nobody_long(how: str, autojump_clock: MockClock) -> None:
    knobs = Knobs(events=2)
    async with opened(knobs=knobs) as (engine, _):
        texts = {"refused": "simulate: status=400 task", "hangs": "simulate: hang task"}
        first = engine.start_stream(request(texts.get(how, "task"), timeouts=ms.Timeouts(total=30)))
        calls = [engine.start_stream(request(f"{number}")) for number in range(4)]
        await trio.sleep(1)
        if how == "cancelled":
            first.cancel()
        done = [await call.wait() for call in calls]
        assert all(each.success for each in done)
        waits = [each.cache.waited for each in done if each.cache is not None]
        assert max(waits) <= 10
        assert min(waits) <= (10 if how == "hangs" else 1)
        assert not (await first.wait()).success


async def test_a_waiting_call_has_its_own_timeouts(autojump_clock: MockClock) -> None:
    async with opened() as (engine, _):
        engine.start_stream(request("writer"))
        waiting = engine.start_stream(request("waits", timeouts=ms.Timeouts(queue=1)))
        error = (await waiting.wait()).error
        assert error is not None
        assert "waiting for a prompt prefix of " in error.message
        cancelled = engine.start_stream(request("cancelled"))
        cancelled.cancel()
        assert (await cancelled.wait()).error_category is ms.ErrorCategory.CANCELLED


async def test_a_server_without_a_cache_is_waited_for_once(autojump_clock: MockClock) -> None:
    case: Row = replace(ROWS["no cache at all"], calls=30)
    off = await measure(case, ms.Traffic(warm=False), 2)
    on = await measure(case, ms.Traffic(), 2)
    assert on[0].end <= off[0].end + case.later
    assert on[1].end <= off[1].end + 0.1, "the order of the server's random times differs"


async def test_an_unmarked_prefix_waits_where_that_is_asked(autojump_clock: MockClock) -> None:
    caches = replace(CACHES, server="vllm", lag=0)
    for warm, waits in ((True, False), (ms.Warm(unmarked=True), True)):
        async with opened(caches, model="gpt-5.6", warm=warm) as (engine, server):
            system, model = RULES, "gpt-5.6"
            calls = [
                engine.start_stream(ms.Request(model, [ms.Message.user(f"{number}")], system=system))
                for number in range(20)
            ]
            done = [await call.wait() for call in calls]
            assert all(each.success for each in done)
            assert server.counts.reads == (19 if waits else 0)


async def test_fan_out_without_marks_is_as_before(autojump_clock: MockClock) -> None:
    ends: list[float] = []
    for warm in (True, False):
        async with opened(warm=warm) as (engine, _):
            ends.append((await fan_out(engine, 20, mark=False)).end)
    assert ends[0] == ends[1]


@pytest.mark.parametrize("model", list(PROVIDERS))
@pytest.mark.parametrize("has_traffic", [True, False])
async def test_a_prompt_can_be_written_before_its_calls(
    model: str, has_traffic: bool, autojump_clock: MockClock
) -> None:
    async with opened(model=model, warm=has_traffic) as (engine, server):
        use = await engine.warm(request("task", model=model, thinking="high"))
        assert (use.read, (use.written or 0) > 1024) == (0, True)
        await trio.sleep(0.6)
        assert await engine.request(request("task", model=model))
        assert server.counts.reads == 1


async def test_where_no_prompt_can_be_written(autojump_clock: MockClock) -> None:
    gemini = ms.Gemini("k", base_url="http://modelled.test")
    async with ms.open_engine([gemini, *PROVIDERS.values()]) as engine:
        for model in ("gemini-2.5-flash", "gpt-5-mini"):
            with pytest.raises(
                ms.InvalidRequestError, match=r"max_output_tokens: must be at least 1 for .* no request"
            ):
                await engine.warm(ms.Request(model, [ms.Message.user("Hello")], system=RULES))
        with pytest.raises(ms.InvalidRequestError, match=r"use engine\.warm"):
            engine.start_stream(request("task", max_output_tokens=0))


@pytest.mark.parametrize("model", list(PROVIDERS))
async def test_marks_are_set_where_the_server_takes_them(model: str, autojump_clock: MockClock) -> None:
    async with opened(model=model) as (engine, _):
        plain = ms.Request(model, [ms.Message.user("Hello")], system=RULES, cache="auto")
        first, second = [await engine.start_stream(plain).wait() for _ in range(2)]
        assert first.cache is not None
        assert second.cache is not None
        assert (first.cache.written or 0) > 1024
        assert second.cache.read == first.cache.written


@pytest.mark.parametrize("balance", ["keys", "order", "weighted", "fastest"])
async def test_a_call_goes_where_its_prefix_is_readable(balance: str, autojump_clock: MockClock) -> None:
    """Each key has caches of its own at a provider, and so has each of the targets here."""
    async with trio.open_nursery() as nursery:
        server = ModelledServer(nursery, ServiceSettings(knobs=Knobs(events=2), journal=0, caches=CACHES))
        one, two = [ms.Anthropic(f"key-{name}", name=name, base_url="http://modelled.test") for name in ("one", "two")]
        keyed = ms.Anthropic(["key-one", "key-two"], base_url="http://modelled.test")
        targets = ["one/claude-sonnet-4-5", "two/claude-sonnet-4-5"]
        routes = [] if balance == "keys" else [ms.Route("fast", targets, balance=balance)]  # type: ignore[arg-type]
        model = "claude-sonnet-4-5" if balance == "keys" else "fast"
        providers = [keyed] if balance == "keys" else [one, two]
        async with ms.open_engine(providers, dial=server.dial, traffic=ms.Traffic(routes=routes)) as engine:
            for rules in ("First " + RULES, "Second " + RULES):
                before = server.counts.reads
                calls = [engine.start_stream(request(f"{number}", rules, model)) for number in range(8)]
                done = [await call.wait() for call in calls]
                assert all(each.success for each in done), done[0].error
                assert server.counts.reads - before >= 6
        nursery.cancel_scope.cancel()


async def test_replicas_of_vllm_have_caches_of_their_own(autojump_clock: MockClock) -> None:
    """A call goes to the replica that has read its prefix, until that one is full."""
    caches = replace(CACHES, server="vllm", lag=0)
    async with trio.open_nursery() as nursery:
        servers = {
            name: ModelledServer(nursery, ServiceSettings(knobs=Knobs(events=2), journal=0, caches=caches))
            for name in ("one", "two")
        }

        async def dial(host: str, port: int) -> socket.socket:
            return await servers[host].dial(host, port)

        replicas = [ms.OpenAIChat("k", profile="vllm", name=name, base_url=f"http://{name}/v1") for name in servers]
        traffic = ms.Traffic(
            rates=dict.fromkeys(servers, ms.RateLimit(concurrent=4)),
            routes=[ms.Route("both", ["one/m", "two/m"], balance="weighted")],
            warm=ms.Warm(unmarked=True),
        )
        async with ms.open_engine(replicas, dial=dial, traffic=traffic) as engine:

            async def ask(rules: str, count: int) -> list[int]:
                before = [servers[name].counts.requests for name in servers]
                requests = [ms.Request("both", f"{number}", system=rules + RULES) for number in range(count)]
                calls = [engine.start_stream(each) for each in requests]
                assert all([(await call.wait()).success for call in calls])
                return [servers[name].counts.requests - old for name, old in zip(servers, before, strict=True)]

            homes = {rules: await ask(rules, 1) for rules in ("First", "Second")}
            for rules in [*homes] * 5:
                assert await ask(rules, 1) == homes[rules]
            assert sum(server.counts.reads for server in servers.values()) == 10
            assert sorted(await ask("First", 8)) == [4, 4], "the others go where there is room"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["map", "batch"])
async def test_many_requests_write_their_prefix_once(how: str, tmp_path: Path, autojump_clock: MockClock) -> None:
    async with opened() as (engine, server):
        if how == "map":
            requests = [request(f"{number}") for number in range(40)]
            async with engine.map(requests, concurrency=20) as results:
                assert all([completion.success async for _, completion in results])
        else:
            lines = [line(f"{number}", f"{number}", system=RULES, cache="auto") for number in range(40)]
            with Journal(tmp_path / "a.jsonl") as journal:
                batch = Batch(engine, journal, lambda named: "claude-sonnet-4-5", concurrency=20)
                await batch.run(read_lines(write(tmp_path / "p.jsonl", lines)))
            assert batch.counters.answered == 40
        assert server.counts.requests == 40
        assert server.counts.requests - server.counts.reads <= 2


async def test_agents_of_one_kind_share_cache_keys(autojump_clock: MockClock) -> None:
    keys: dict[str, list[str]] = {}
    async with opened(model="gpt-5.6") as (engine, server):
        answer = server.service.answer

        def noted(read: HTTPRequest) -> Program:
            body = json.loads(read.body)
            keys.setdefault(body["messages"][-1]["content"], []).append(body["prompt_cache_key"])
            return answer(read)

        server.service.answer = noted  # type: ignore[method-assign]
        for _ in range(2):
            each = [ms.Request("gpt-5.6", f"s{n}", system=RULES, session=f"s{n}") for n in range(20)]
            for call in [engine.start_stream(request) for request in each]:
                assert (await call.wait()).success
        await engine.request(ms.Request("gpt-5.6", "other", system="Other " + RULES, session="s1"))
        await engine.request(ms.Request("gpt-5.6", "short", system="Be kind.", session="s1"))
    sessions = [keys[f"s{number}"] for number in range(20)]
    assert all(first == second for first, second in sessions), "a session keeps its shard"
    assert len({first for first, _ in sessions}) == 2, "15 requests a minute share one key"
    assert len({*keys["other"], *keys["short"], sessions[0][0], sessions[19][0]}) == 4
    assert all(len(key) == 32 for found in keys.values() for key in found)


@pytest.mark.parametrize("model", list(PROVIDERS))
async def test_a_server_is_asked_why_a_prompt_missed(model: str, autojump_clock: MockClock) -> None:
    bodies: list[dict[str, dict[str, str]]] = []
    async with opened(model=model, warm=ms.Warm(diagnose=True, unmarked=True)) as (engine, server):
        answer = server.service.answer

        def noted(read: HTTPRequest) -> Program:
            bodies.append(json.loads(read.body))
            return answer(read)

        server.service.answer = noted  # type: ignore[method-assign]
        first = await engine.request(request("one", model=model))
        done = await engine.start_stream(request("two", model=model)).wait()
    members = {"claude-sonnet-4-5": "diagnostics", "gpt-5.6": "prompt_cache_options"}
    assert members[model] not in bodies[0]
    assert [*bodies[1][members[model]].values()] == [first.id]
    assert done.cache is not None
    assert done.cache.miss == ""
