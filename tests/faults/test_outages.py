"""A server is away for a while: it refuses connections, drops them, or resets them with the request in its hands."""

import math
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Literal

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.batch import Batch, BatchError, Journal
from tests.support.peers import Line, answer, chat_answer, chat_stream, error_body, stream_of

Kind = Literal["refuse", "drop", "reset", "busy"]
KINDS: tuple[Kind, ...] = ("refuse", "drop", "reset", "busy")


AT_A_TIME = ms.RateLimit(concurrent=16)


@dataclass
class Server:
    """A server that can be away. port: 0 until it is first open. answered: the times of its answers.

    kind: what it does while it is away; `busy` answers 503, as a proxy before it does.
    busy: this answer.
    serves_none: whether it answers so to a request, also while it is not away.
    """

    name: str = "one"
    kind: Kind = "refuse"
    busy: bytes = field(default_factory=lambda: answer(error_body("down"), status="503 Down"))
    serves_none: Callable[[bytes], bool] = lambda request: False
    seconds: float = 0.5
    port: int = 0
    is_away: bool = False
    answered: list[float] = field(default_factory=list[float])
    asked: list[float] = field(default_factory=list[float])
    _serving: set[trio.CancelScope] = field(default_factory=set[trio.CancelScope])
    _open: trio.CancelScope = field(default_factory=trio.CancelScope)
    _back: trio.Event = field(default_factory=trio.Event)

    @property
    def provider(self) -> ms.OpenAIChat:
        return ms.OpenAIChat("k", f"http://127.0.0.1:{self.port}/v1", name=self.name)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        while True:
            listeners = await trio.open_tcp_listeners(self.port, host="127.0.0.1", backlog=1024)
            self.port = listeners[0].socket.getsockname()[1]
            with trio.CancelScope() as self._open:
                await trio.serve_listeners(self._serve, listeners, task_status=task_status)  # type: ignore[arg-type]
            task_status = trio.TASK_STATUS_IGNORED
            await self._back.wait()

    async def _serve(self, stream: trio.SocketStream) -> None:
        line = Line(stream)
        try:
            if self.is_away and self.kind == "drop":
                self.asked.append(trio.current_time())
                return
            while request := await line.request():
                if self.is_away or self.serves_none(request):
                    self.asked.append(trio.current_time())
                    if self.is_away and self.kind != "busy":
                        line.reset()
                        return
                    await line.send(self.busy)
                    continue
                with trio.CancelScope() as scope:
                    self._serving.add(scope)
                    await trio.sleep(self.seconds)
                self._serving.discard(scope)
                if scope.cancelled_caught:
                    line.reset()
                    return
                self.answered.append(trio.current_time())
                if b'"stream":true' in request:
                    await line.send(stream_of(*chat_stream("fine")))
                else:
                    await line.send(answer(chat_answer("fine")))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            stream.socket.close()

    async def away(self, seconds: float) -> None:
        self.is_away, self._back = True, trio.Event()
        if self.kind == "refuse":
            self._open.cancel()
        for scope in self._serving:
            scope.cancel()
        await trio.sleep(seconds)
        self.is_away = False
        self._back.set()


@asynccontextmanager
async def serving(*servers: Server) -> AsyncGenerator[None, None]:
    async with trio.open_nursery() as nursery:
        for server in servers:
            await nursery.start(server.run)
        yield
        nursery.cancel_scope.cancel()


class Attempts(ms.Observer):
    """Notes when attempts begin."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def attempt_started(self, call: ms.Call, number: int) -> None:
        self.at.append(trio.current_time())


def question(model: str = "one/m", **options: object) -> ms.Request:
    return ms.Request(model, [ms.Message.user("hello")], **options)  # type: ignore[arg-type]


def start(engine: ms.Engine, number: int, model: str = "one/m", **options: object) -> list[ms.Call]:
    """Start calls; every other one is streamed."""
    starts = (engine.start_request, engine.start_stream)
    return [starts[index % 2](question(model, **options)) for index in range(number)]


@pytest.mark.parametrize("seconds", [1, 3, 30, 120])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_queue_survives_an_outage(kind: Kind, seconds: float, autojump_clock: MockClock) -> None:
    server, attempts = Server(kind=kind), Attempts()
    async with (
        serving(server),
        ms.open_engine([server.provider], traffic=ms.Traffic(rates={"one": AT_A_TIME}), observer=attempts) as engine,
    ):
        calls = start(engine, 320)
        await trio.sleep(5)
        before = sum(at > trio.current_time() - 2 for at in server.answered)
        down = trio.current_time()
        await server.away(seconds)
        up = trio.current_time()
        completions = [await call.wait() for call in calls]
    assert [completion.error for completion in completions if not completion.success] == []
    each_second = Counter(int(at - down) for at in attempts.at if down + 0.5 < at <= up)
    assert max(each_second.values(), default=0) <= 2
    assert sum(up + 2 < at <= up + 4 for at in server.answered) >= before > 25


@pytest.mark.parametrize(
    ("kind", "number"), [(kind, number) for kind in KINDS for number in (1, 2, 3, 5) if kind != "busy" or number > 2]
)
async def test_a_few_calls_survive_an_outage(kind: Kind, number: int, autojump_clock: MockClock) -> None:
    """With few calls, each of them asks many times whether the server is back."""
    server, attempts = Server(kind=kind), Attempts()
    async with serving(server), ms.open_engine([server.provider], traffic=ms.Traffic(), observer=attempts) as engine:
        calls = start(engine, number)
        await trio.sleep(0.2)
        await server.away(40)
        up = trio.current_time()
        completions = [await call.wait() for call in calls]
    assert all(completion.success for completion in completions)
    assert sum(up - 30 < at <= up for at in attempts.at) <= 2 * 30
    assert server.answered[-1] <= up + 2.5


def busy(status: str, hint: str = "", body: str = "no healthy upstream") -> bytes:
    return answer(body, status=status, headers=f"Retry-After: {hint}\r\n" if hint else "")


ANSWERS = {
    "503": ("openai-chat", busy("503 Down"), 1.0),
    "503 overloaded": ("openai-chat", busy("503 Down", "", error_body("overloaded", code="overloaded_error")), 1.0),
    "529 with a hint": ("openai-chat", busy("529 Overloaded", "5"), 5.0),
    "a hint of a day": ("openai-chat", busy("503 Down", "86400"), 60.0),
    "502 of a gateway": ("openai-chat", busy("502 Bad Gateway"), 1.0),
    "503 of slots": ("vllm", busy("503 Down"), 1.0),
    "502 before slots": ("vllm", busy("502 Bad Gateway"), 1.0),
    "503 of slots with a hint": ("deepseek", busy("503 Down", "3"), 3.0),
}


@pytest.mark.parametrize(("profile", "refusal", "pause"), ANSWERS.values(), ids=ANSWERS)
async def test_a_server_that_serves_none_is_away(
    profile: str, refusal: bytes, pause: float, autojump_clock: MockClock
) -> None:
    server = Server(name=profile, kind="busy", busy=refusal)
    # A hint above `max_hint` ends the calls that were under way; those that wait are not asked.
    retry = ms.Retry(max_hint=math.inf if pause < 60 else 120)
    async with serving(server):
        provider = ms.OpenAIChat("k", server.provider.base_url, name=profile, profile=profile)
        async with ms.open_engine([provider], traffic=ms.Traffic(), retry=retry) as engine:
            for call in start(engine, 20, f"{profile}/m"):
                assert (await call.wait()).success
            down = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.away, 30)
                calls = start(engine, 200, f"{profile}/m")
                await trio.sleep(25)
                (limiter,) = engine.statistics().traffic.limiters.values()
                assert (limiter.waiting >= 170, limiter.away > 20) == (True, True)
                completions = [await call.wait() for call in calls]
    lost = [completion.error for completion in completions if completion.error is not None]
    assert len(lost) <= (20 if pause == 60 else 0)
    assert len([at for at in server.asked if at > down + pause + 1]) <= 30 / min(pause, 30)
    assert server.answered[0] < down + 30 <= server.answered[-1] <= down + 30 + pause + 15


async def test_a_request_that_is_refused_alone_fails(autojump_clock: MockClock) -> None:
    server = Server(serves_none=lambda request: b"poison" in request)
    async with serving(server), ms.open_engine([server.provider], traffic=ms.Traffic()) as engine:
        poison = ms.Request("one/m", "poison")
        first, *others = [await call.wait() for call in (engine.start_request(poison), *start(engine, 50))]
        alone = await engine.start_request(poison).wait()
        assert engine.statistics().traffic.limiters["one/m"].away == 0
    assert all(completion.success for completion in others)
    assert [(each.attempts, each.http_status) for each in (first, alone)] == [(4, 503)] * 2


async def test_a_part_of_the_calls_that_is_refused_is_no_outage(autojump_clock: MockClock) -> None:
    asked = count()
    server = Server(serves_none=lambda request: next(asked) % 4 == 0)
    async with serving(server), ms.open_engine([server.provider], traffic=ms.Traffic()) as engine:
        calls = start(engine, 200)
        while not all(call.completion for call in calls):
            await trio.sleep(0.1)
            assert engine.statistics().traffic.limiters["one/m"].away == 0
    assert sum(call.completion.success for call in calls if call.completion) > 190


async def test_another_model_at_the_address_is_not_away(autojump_clock: MockClock) -> None:
    server = Server(serves_none=lambda request: b'"m"' in request and trio.current_time() < back)
    back = trio.current_time() + 20
    async with serving(server), ms.open_engine([server.provider], traffic=ms.Traffic()) as engine:
        refused, answered = start(engine, 50), start(engine, 50, "one/other")
        assert all([(await call.wait()).success for call in answered])
        assert trio.current_time() < back - 10
        assert all([(await call.wait()).success for call in refused])
    assert len(server.asked) <= 45


async def test_calls_wait_within_their_timeouts(autojump_clock: MockClock) -> None:
    server = Server()
    async with serving(server), ms.open_engine([server.provider], traffic=ms.Traffic()) as engine:
        patient = start(engine, 20)
        hurried = start(engine, 2, timeouts=ms.Timeouts(queue=10)) + start(engine, 2, timeouts=ms.Timeouts(total=10))
        await trio.sleep(0.2)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.away, 30)
            await trio.sleep(5)
            waits_for = patient[-1].waiting_for
            figures = engine.statistics().traffic.limiters["one/m"]
            failed = [await call.wait() for call in hurried]
            at = trio.current_time()
        assert all([(await call.wait()).success for call in patient])
        assert engine.statistics().traffic.limiters["one/m"].away == 0
    assert waits_for.startswith(f"http://127.0.0.1:{server.port} to take connections, ")
    assert 3 <= figures.away <= 5
    assert at - began <= 11
    assert {completion.error_category for completion in failed} == {ms.ErrorCategory.TIMEOUT}


async def test_calls_fail_after_the_longest_outage(autojump_clock: MockClock) -> None:
    server = Server()
    traffic = ms.Traffic(outage=20)
    async with serving(server), ms.open_engine([server.provider], traffic=traffic) as engine:
        calls = start(engine, 50)
        await trio.sleep(0.2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.away, 100)
            began = trio.current_time()
            completions = [await call.wait() for call in calls]
            assert 19 <= trio.current_time() - began <= 22
            late = await engine.start_request(question()).wait()
        await trio.sleep(1)
        back = await engine.start_request(question()).wait()
    errors = [completion.error for completion in completions if completion.error is not None]
    assert len(errors) == 50
    assert {error.category for error in errors} == {ms.ErrorCategory.NETWORK}
    away = f"not sent: http://127.0.0.1:{server.port} has taken no connection for 20 s; the latest error: "
    assert sum(error.message.startswith(away) for error in errors) > 40
    assert not late.success
    assert back.success


@pytest.mark.parametrize("kind", KINDS)
async def test_a_single_attempt_is_not_repeated(kind: Kind, autojump_clock: MockClock) -> None:
    server = Server(kind=kind)
    async with (
        serving(server),
        ms.open_engine([server.provider], traffic=ms.Traffic(), retry=ms.Retry(max_attempts=1)) as engine,
    ):
        calls = start(engine, 2)
        await trio.sleep(0.2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.away, 10)
            completions = [await call.wait() for call in calls]
    assert [(each.success, each.attempts) for each in completions] == [(False, 1)] * 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("balance", ["order", "weighted", "fastest", None])
async def test_a_single_attempt_may_ask_a_server_that_is_away(
    balance: Literal["order", "weighted", "fastest"] | None, kind: Kind, autojump_clock: MockClock
) -> None:
    servers = [Server(kind=kind), Server(name="two", kind=kind)] if balance else [Server(kind=kind)]
    routes = [ms.Route("r", ["one/m", "two/m"], balance=balance)] if balance else []
    model = "r" if balance else "one/m"
    async with (
        serving(*servers),
        ms.open_engine(
            [server.provider for server in servers],
            traffic=ms.Traffic(routes=routes, rates={server.name: AT_A_TIME for server in servers}),
            retry=ms.Retry(max_attempts=1),
        ) as engine,
    ):
        async with trio.open_nursery() as nursery:
            for server in servers:
                nursery.start_soon(server.away, 30)
            await trio.sleep(0.1)
            found = [await call.wait() for call in start(engine, 3 * len(servers), model)]
            calls = start(engine, 100, model)
        completions = [await call.wait() for call in calls]
    assert 3 <= sum(not each.success for each in found) <= 3 * len(servers)
    assert [each.error for each in completions if not each.success] == []
    assert 20 <= sum(each.attempts - 1 for each in completions) <= 40 * len(servers)


async def test_without_traffic_control_the_error_names_the_reserve(autojump_clock: MockClock) -> None:
    server = Server()
    lost = dict[float, list[ms.ProviderError]]()
    for reserve in (100, 0, math.inf):
        async with (
            serving(server),
            ms.open_engine([server.provider], limits=ms.EngineLimits(retry_reserve=reserve)) as engine,
        ):
            calls = start(engine, 400)
            await trio.sleep(0.2)
            await server.away(3)
            completions = [await call.wait() for call in calls]
        lost[reserve] = [completion.error for completion in completions if completion.error is not None]
    assert len(lost[100]) >= 300
    assert len(lost[0]) == 400
    assert lost[math.inf] == []
    for reserve in (100, 0):
        used_up = f"(not repeated: all {reserve} retries of the engine's limits.retry_reserve are used up)"
        assert lost[reserve][-1].message.endswith(used_up)


# --- batches ---


async def prompts(number: int) -> AsyncGenerator[list[tuple[int, bytes]], None]:
    yield [(index, b'{"id": %d, "prompt": "hello"}' % index) for index in range(1, number + 1)]


LONG = [("openai-chat", "refuse"), ("vllm", "never there")]
"""Outages nearly as long as the longest that is survived. The others last as long as several times all retries."""


@pytest.mark.parametrize(("profile", "attempts"), [("openai-chat", 6), ("vllm", 2)])
@pytest.mark.parametrize("kind", [*KINDS, "never there"])
async def test_a_batch_survives_half_an_hour(
    kind: Kind, profile: str, attempts: int, tmp_path: Path, autojump_clock: MockClock
) -> None:
    minutes = 29 if (profile, kind) in LONG else 8
    server = Server(kind="refuse" if kind == "never there" else kind)
    retry = ms.Retry(max_attempts=attempts, cap=60.0)
    async with serving(server):
        provider = ms.OpenAIChat("k", server.provider.base_url, name=profile, profile=profile)
        async with ms.open_engine([provider], retry=retry, traffic=ms.Traffic()) as engine:
            with Journal(tmp_path / "a.jsonl") as journal:
                batch = Batch(engine, journal, lambda model: f"{profile}/m", concurrency=40)
                async with trio.open_nursery() as nursery:
                    if kind == "never there":
                        nursery.start_soon(server.away, minutes * 60)
                    nursery.start_soon(batch.run, prompts(300))
                    if kind != "never there":
                        await trio.sleep(2)
                        nursery.start_soon(server.away, minutes * 60)
                    await trio.sleep((minutes - 1) * 60)
                    batch.count_waiting()
                    assert (minutes - 2) * 60 <= batch.counters.away <= (minutes - 1) * 60 + 2
                    assert batch.counters.waiting >= 39
                batch.count_waiting()
    assert (batch.counters.answered, batch.counters.failed, batch.counters.away) == (300, 0, 0.0)


async def test_a_batch_ends_after_the_longest_outage_and_continues(tmp_path: Path, autojump_clock: MockClock) -> None:
    server = Server()
    answered: list[int] = []
    for outage in (20.0, 0.0, math.inf):
        async with serving(server), ms.open_engine([server.provider], traffic=ms.Traffic(outage=outage)) as engine:
            with Journal(tmp_path / "a.jsonl") as journal:
                batch = Batch(engine, journal, lambda model: "one/m", concurrency=20, retry_failed=True)
                async with trio.open_nursery() as nursery:
                    began = trio.current_time()
                    nursery.start_soon(server.away, 40)
                    if outage < math.inf:
                        with pytest.raises(BatchError, match=r"the server takes no connection: not sent: http://"):
                            await batch.run(prompts(500))
                        assert outage <= trio.current_time() - began <= outage + 3
                        assert batch.counters.failed <= 20
                    else:
                        await batch.run(prompts(500))
                answered.append(batch.counters.answered)
    assert answered == [0, 0, 500]


# --- routes ---


@pytest.mark.parametrize("balance", ["order", "weighted", "fastest", "sticky"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_target_that_is_back_gets_its_part_of_the_queue(
    kind: Kind, balance: Literal["order", "weighted", "fastest", "sticky"], autojump_clock: MockClock
) -> None:
    """All calls are started before the outage; so each of them may have tried the target in vain."""
    one, two = Server("one", kind), Server("two")
    route = ms.Route("r", ["one/m", "two/m"], balance=balance)
    traffic = ms.Traffic(rates={"one": AT_A_TIME, "two": AT_A_TIME}, routes=[route])
    async with serving(one, two), ms.open_engine([one.provider, two.provider], traffic=traffic) as engine:
        calls = [
            engine.start_request(question("r", session=f"{index % 50}" if balance == "sticky" else None))
            for index in range(500)
        ]
        await trio.sleep(1)
        down = trio.current_time()
        await one.away(7)
        up = trio.current_time()
        completions = [await call.wait() for call in calls]
    assert [completion.error for completion in completions if not completion.success] == []
    assert max(completion.attempts for completion in completions) <= 4
    assert sum(down + 3 < at < up for at in two.answered) >= 75  # the queue went to the other one meanwhile
    if (kind, balance) != ("busy", "sticky"):  # the sessions have another target now, which answers
        assert sum(up < at <= up + 10 for at in one.answered) >= (46 if balance == "sticky" or kind == "busy" else 80)
    if kind != "busy":
        assert sum(down + 1 < at <= up for at in one.asked) <= 7


async def test_a_fallback_takes_the_queue_while_its_target_is_away(autojump_clock: MockClock) -> None:
    one, two = Server("one"), Server("two")
    route = ms.Route("r", ["one/m", ms.Target("two/m", fallback=True)], balance="weighted")
    traffic = ms.Traffic(rates={"one": AT_A_TIME, "two": AT_A_TIME}, routes=[route])
    async with serving(one, two), ms.open_engine([one.provider, two.provider], traffic=traffic) as engine:
        calls = start(engine, 300, "r")
        await trio.sleep(1)
        assert two.answered == []
        await one.away(5)
        up = trio.current_time()
        assert all([(await call.wait()).success for call in calls])
    assert len(two.answered) > 50
    assert max(two.answered) < up + 3
    assert sum(at > up for at in one.answered) > 50
