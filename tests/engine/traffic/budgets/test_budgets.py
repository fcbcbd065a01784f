"""Budgets at the engine's level: what calls may cost, from the user's side."""

import random
from collections.abc import Callable
from functools import partial

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import manystream as ms
import manystream.cost
from manystream.engine.traffic.budgets.amounts import Amounts
from tests.support.charged import Charged, ask, of, open_charged, price, provider
from tests.support.peers import Line, Recorder, answer, chat_chunk, error_body, open_peer, stream_of


async def test_a_thousand_calls_in_one_tick_cannot_overspend(autojump_clock: MockClock) -> None:
    server = Charged()
    limit = 0.25  # about 490 answers, or 245 reservations
    async with open_charged(server, ms.Budget(usd=limit)) as engine:
        calls = [engine.start_stream(ask()) for _ in range(1_000)]
        await trio.sleep(0.01)
        during = of(engine)
        completions = [await call.wait() for call in calls]
        after = of(engine)
    good = [each for each in completions if each.success]
    spent = sum(each.cost or 0.0 for each in completions)
    assert during.reserved.usd <= limit * (1 + 1e-9)
    assert 0.97 * limit <= spent <= limit
    assert spent == pytest.approx(server.dollars())
    assert after.spent.usd == pytest.approx(spent)
    assert (after.reserved, after.waiting) == (Amounts(), 0)
    for failed in completions:
        if not failed.success:
            assert failed.error.category is ms.ErrorCategory.BUDGET
            assert (failed.attempts, failed.cost, failed.error.retryable) == (0, 0.0, False)
    assert len(good) + sum(each.error_category is ms.ErrorCategory.BUDGET for each in completions) == 1_000


async def test_a_refusal_names_what_is_spent(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with open_charged(Charged(), ms.Budget(calls=2, per="tenant", every=3600)) as engine:
        for _ in range(2):
            assert (await engine.start_stream(ask(tenant="alice")).wait()).success
        await trio.sleep(600)
        call = engine.start_stream(ask(tenant="alice"), recorder.on_event, recorder.on_completion)
        assert recorder.completions == []  # never before start_* has returned
        completion = await call.wait()
        other = await engine.start_stream(ask(tenant="bob")).wait()
    error = completion.error
    assert error is not None
    assert other.success
    assert error.message == (
        "not sent: the budget of tenant 'alice' allows 2 calls in 3600 s: 2 are spent, 0 are reserved, and this call"
        " may use 1"
    )
    assert (error.category, error.provider_code, error.retryable) == (ms.ErrorCategory.BUDGET, "budget_spent", False)
    assert 2_990_000 < error.retry_after_ms <= 3_000_000
    assert [type(event).__name__ for event in recorder.events] == ["ErrorEvent"]
    assert completion.timings.waited == {}


async def test_the_next_window_has_the_full_amounts(autojump_clock: MockClock) -> None:
    async with open_charged(Charged(), ms.Budget(calls=1, every=60)) as engine:
        assert (await engine.start_stream(ask()).wait()).success
        refused = await engine.start_stream(ask()).wait()
        await trio.sleep(60)
        assert (await engine.start_stream(ask()).wait()).success
    assert refused.error_category is ms.ErrorCategory.BUDGET


async def test_a_call_waits_for_what_others_have_reserved(autojump_clock: MockClock) -> None:
    server = Charged(seconds=5, output=10)
    async with open_charged(server, ms.Budget(output_tokens=150)) as engine:
        calls = [engine.start_stream(ask()) for _ in range(3)]
        await trio.sleep(1)
        texts = [call.waiting_for for call in calls]
        figures = of(engine)
        completions = [await call.wait() for call in calls]
    assert texts == [
        "",
        "output_tokens of the engine's budget, reserved by 1 calls, 0 ahead",
        "output_tokens of the engine's budget, reserved by 1 calls, 1 ahead",
    ]
    assert (figures.reserved.output_tokens, figures.waiting, figures.limit.output_tokens) == (100, 2, 150)
    assert [each.success for each in completions] == [True, True, True]
    assert [each.timings.waited.get("budget", 0) for each in completions] == [
        0,
        pytest.approx(5, abs=0.2),
        pytest.approx(10, abs=0.2),
    ]
    assert sum(completions[2].timings.waited.values()) == pytest.approx(10, abs=0.2)


async def test_a_wait_for_a_budget_counts_in_the_queue_timeout(autojump_clock: MockClock) -> None:
    server = Charged(seconds=20)
    async with open_charged(server, ms.Budget(calls=1), timeouts=ms.Timeouts(queue=3)) as engine:
        first = engine.start_stream(ask())
        late = await engine.start_stream(ask()).wait()
        first.cancel()
        await first.wait()
        figures = of(engine)
    assert (late.error.category, late.error.provider_code) == (ms.ErrorCategory.TIMEOUT, "queue")
    assert "calls of the engine's budget" in late.error.message
    assert late.timings.waited == {"budget": pytest.approx(3, abs=0.1)}
    assert (figures.waiting, figures.reserved) == (0, Amounts())


@pytest.mark.parametrize("when", ["at once", "while it waits", "under way"])
async def test_a_cancelled_call_leaves_nothing(autojump_clock: MockClock, when: str) -> None:
    server = Charged(seconds=5)
    async with open_charged(server, ms.Budget(calls=1, usd=1.0)) as engine:
        calls = [engine.start_stream(ask()) for _ in range(2)]
        if when != "at once":
            await trio.sleep(1)
        cancelled = calls[0] if when == "under way" else calls[1]
        cancelled.cancel()
        completion = await cancelled.wait()
        rest = [await call.wait() for call in calls if call is not cancelled]
        figures = of(engine)
    assert completion.error_category is ms.ErrorCategory.CANCELLED
    assert (figures.reserved, figures.waiting) == (Amounts(), 0)
    if when == "under way":  # its prompt was sent, and is paid
        assert (figures.spent.calls, rest[0].error_category) == (1, ms.ErrorCategory.BUDGET)
        record = completion.attempt_records[0]
        assert record.estimated
        assert record.usage is not None
        assert completion.cost == pytest.approx((record.usage.input_tokens or 0) * 1e-6)
    else:
        assert (figures.spent.calls, rest[0].success, completion.cost) == (1, True, 0.0)


async def test_an_unstreamed_call_that_is_cancelled_keeps_its_output(autojump_clock: MockClock) -> None:
    """The server may make the whole answer, and charge it."""
    async with open_charged(Charged(seconds=5), ms.Budget(usd=1.0)) as engine:
        call = engine.start_request(ask())
        await trio.sleep(1)
        call.cancel()
        completion = await call.wait()
        figures = of(engine)
    [record] = completion.attempt_records
    assert record.estimated
    assert record.usage is not None
    assert (record.usage.output_tokens, figures.spent.output_tokens) == (100, 100)
    assert completion.cost == figures.spent.usd == pytest.approx((record.usage.input_tokens or 0) * 1e-6 + 1e-3)


async def test_closing_the_engine_leaves_nothing(autojump_clock: MockClock) -> None:
    async with open_charged(Charged(seconds=50), ms.Budget(calls=3)) as engine:
        calls = [engine.start_stream(ask()) for _ in range(10)]
        await trio.sleep(1)
    assert all(call.completion is not None for call in calls)
    assert (of(engine).reserved, of(engine).waiting) == (Amounts(), 0)


async def test_drain_waits_for_calls_that_wait_for_a_budget(autojump_clock: MockClock) -> None:
    async with open_charged(Charged(output=1, seconds=1), ms.Budget(output_tokens=200)) as engine:
        calls = [engine.start_stream(ask()) for _ in range(20)]
        assert await engine.drain(60)
        assert all(call.completion is not None and call.completion.success for call in calls)


async def test_the_cost_of_a_call_is_that_of_all_attempts(autojump_clock: MockClock) -> None:
    failures = iter([answer(error_body("oops"), status="500 Internal Server Error")])

    class Failing(Charged):
        async def serve(self, line: Line) -> None:
            failure = next(failures, None)
            if failure is not None:
                await line.request()
                await line.send(failure)
            await super().serve(line)

    server = Failing()
    async with open_charged(server, retry=ms.Retry(base=0.01, jitter=0)) as engine:
        streamed = await engine.start_stream(ask()).wait()
        whole = await engine.start_request(ask()).wait()
        unpriced = await engine.start_request(ask("openai/other")).wait()
        figures = engine.statistics().traffic
    assert (streamed.success, streamed.attempts) == (True, 2)
    assert streamed.cost == pytest.approx(5.05e-4, rel=0.1)
    assert whole.cost is not None
    assert [record.usage is None for record in streamed.attempt_records] == [True, False]
    assert not any(record.estimated for record in streamed.attempt_records)
    assert (unpriced.success, unpriced.cost) == (True, None)
    assert figures.budgets == ()


async def test_without_a_price_there_is_no_cost(autojump_clock: MockClock) -> None:
    async with open_charged(Charged(), price=None) as engine:
        completion = await engine.start_stream(ask()).wait()
    assert (completion.success, completion.cost) == (True, None)
    assert "Traffic(price=" in completion.cost_unknown


def _unknown(provider: ms.Provider, model: str, usage: ms.Usage, *, table: str = "") -> None:
    return None


def _with_why(why: object) -> Callable[..., None]:
    def unknown(provider: ms.Provider, model: str, usage: ms.Usage, *, table: str = "") -> None:
        return None

    unknown.__dict__["why"] = why
    return unknown


def _reason(provider: ms.Provider, model: str, usage: ms.Usage, *, table: str = "no table") -> str:
    return f"{model} of {provider.name} is not in {table}"


def _broken(provider: ms.Provider, model: str, usage: ms.Usage) -> str:
    raise ValueError("canary")


NO_REASON = "the price function knows no price of openai/m"


@pytest.mark.parametrize(
    ("price", "why"),
    [
        (_unknown, NO_REASON),
        (_with_why(_reason), "m of openai is not in no table"),
        (partial(_with_why(_reason), table="mine"), "m of openai is not in mine"),
        (partial(partial(_with_why(_reason), table="mine"), table="yours"), "m of openai is not in yours"),
        (_with_why(lambda *_: "what the server said " * 10_000), "what the server said"),
        (_with_why(_broken), NO_REASON),
        (_with_why(None), NO_REASON),
        (_with_why(lambda *_: None), NO_REASON),
        (manystream.cost.price, "genai-prices has no price of model 'm' at"),
        (partial(manystream.cost.price, table={"other": {"input": 1, "output": 1}}), "genai-prices has no price of"),
    ],
)
async def test_an_unknown_cost_has_a_reason(
    autojump_clock: MockClock, price: Callable[..., float | None], why: str
) -> None:
    async with open_charged(Charged(), price=price) as engine:
        completion = await engine.start_stream(ask()).wait()
    assert (completion.success, completion.cost) == (True, None)
    assert completion.cost_unknown.startswith(why)
    assert len(completion.cost_unknown) <= 500
    async with open_charged(Charged(), ms.Budget(usd=1.0), price=price) as engine:
        with pytest.raises(ms.InvalidRequestError) as raised:
            engine.start_stream(ask())
    said = "traffic.price knows no price of openai/m, and a budget limits usd"
    assert str(raised.value).startswith(f"model: {said}" + ("" if why == NO_REASON else f": {why}"))


async def test_a_known_cost_has_no_reason(autojump_clock: MockClock) -> None:
    async with open_charged(Charged()) as engine:
        completion = await engine.start_stream(ask()).wait()
    assert (completion.cost is None, completion.cost_unknown) == (False, "")


async def test_a_server_that_reports_no_usage_is_estimated(autojump_clock: MockClock) -> None:
    server = Charged(reports=False)
    async with open_charged(server, ms.Budget(output_tokens=1_000, input_tokens=1_000)) as engine:
        completion = await engine.start_stream(ask()).wait()
        figures = of(engine)
    assert completion.attempt_records[0].estimated
    assert figures.spent.output_tokens == pytest.approx(63)  # 250 bytes
    assert 5 < figures.spent.input_tokens < 60


PICTURE = ms.Image(data=b"\x89PNG" * 50, media_type="image/png")
LINKED = ms.Image(url="https://pictures.example/1.png", detail="low")
PDF = b"%PDF-1.4 << /Type /Pages /Count 2 >> << /Type /Page >> <</Type/Page/Parent 1 0 R>>" + b" " * 250_000
DOCUMENT = ms.File(data=PDF, media_type="application/pdf", name="a.pdf")
RESULT = [ms.Message.user("a"), ms.Message.tool_call("c", "f", "{}"), ms.Message.tool_result("c", [PICTURE])]


@pytest.mark.parametrize(
    ("model", "messages", "tokens"),
    [
        ("gpt-4o", [ms.Message.user(PICTURE)], 1_445),
        ("gpt-4o", [ms.Message.user([PICTURE, LINKED])], 1_530),
        ("gpt-4o", RESULT, 1_445),
        ("gpt-4o-mini", [ms.Message.user(LINKED)], 2_833),
        ("gpt-4o-mini", [ms.Message.user(PICTURE)], 48_169),
        ("maker/gpt-4o-mini-2024-07-18", [ms.Message.user(PICTURE)], 48_169),
        ("m", [ms.Message.user(PICTURE)], 48_169),
        ("gpt-4o", [ms.Message.user(DOCUMENT)], 2 * 4_445),
    ],
)
async def test_pictures_and_pages_count_as_tokens(
    autojump_clock: MockClock, model: str, messages: list[ms.Message], tokens: int
) -> None:
    async with open_charged(Charged(), ms.Budget(input_tokens=100_000)) as engine:
        call = engine.start_stream(ms.Request(f"openai/{model}", messages, max_output_tokens=100))
        await trio.testing.wait_all_tasks_blocked()
        reserved = of(engine).reserved.input_tokens
        call.cancel()
    assert tokens < reserved < tokens + 250


@pytest.mark.parametrize("limit", [100_000.0, "100000", "1e5"])
@pytest.mark.parametrize("member", ["max_tokens", "max_completion_tokens", "max_new_tokens"])
async def test_a_limit_of_the_body_counts_in_every_form(autojump_clock: MockClock, member: str, limit: object) -> None:
    async with open_charged(Charged(), ms.Budget(usd=0.5)) as engine:
        dear = await engine.start_stream(ask(most=10, extra_body={member: limit})).wait()  # type: ignore[dict-item]
        usual = await engine.start_stream(ask(most=10)).wait()
    assert dear.error.provider_code == "budget_spent"
    assert usual.success


UNBOUNDED: list[tuple[ms.Request, str]] = [
    (ask(extra_body={"max_tokens": "many"}), "extra_body.max_tokens"),
    (ask(extra_body={"n": 2.5}), "extra_body.n"),
    (ask(extra_body={"previous_response_id": "r1"}), "extra_body.previous_response_id"),
    (ask(extra_body={"web_search_options": {"a": 1}}), "extra_body.web_search_options"),
    (ask(extra_body={"tools": [{"type": "web_search"}]}), "extra_body.tools[0]"),
    (ask(extra_body={"modalities": ["text", "audio"]}), "extra_body.modalities"),
    (ask(extra_body={"model": "dear"}), "extra_body.model"),
    (ask(extra_body={"models": ["dear"]}), "extra_body.models"),
    (ms.Request("openai/m", [ms.Message.user(ms.File(file_id="f"))], max_output_tokens=5),
        "messages[0].content[0].file.file_id"),
    (ms.Request("openai/m", [ms.Message.user(ms.File(data=b"R", media_type="audio/wav"))], max_output_tokens=5),
        "messages[0].content[0].input_audio"),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "member"), UNBOUNDED, ids=[member for _, member in UNBOUNDED])
async def test_the_unbounded_is_refused_by_name(autojump_clock: MockClock, request_: ms.Request, member: str) -> None:
    server = Charged()
    async with open_charged(server, ms.Budget(usd=1.0)) as engine:
        with pytest.raises(ms.InvalidRequestError, match=r": a budget limits") as raised:
            engine.start_stream(request_)
        assert raised.value.field == member
        assert server.sent == 0
    async with open_charged(server, ms.Budget(calls=1)) as engine:  # calls are counted whatever they ask for
        engine.start_stream(request_).cancel()


async def test_pictures_by_url_do_not_exceed_a_budget(autojump_clock: MockClock) -> None:
    server = Charged(seconds=1, input=25_501)
    asked = ms.Request(
        "openai/gpt-4o-mini", [ms.Message.user(ms.Image(url="https://p.example/1"))], max_output_tokens=9
    )
    async with open_charged(server, ms.Budget(input_tokens=100_000)) as engine:
        calls = [engine.start_stream(asked) for _ in range(20)]
        completions = [await call.wait() for call in calls]
        spent = of(engine).spent.input_tokens
    assert 50_000 < spent <= 100_000
    assert {each.error_category for each in completions} == {None, ms.ErrorCategory.BUDGET}


@pytest.mark.parametrize("stream", [True, False])
async def test_an_error_inside_an_answer_costs_its_input(autojump_clock: MockClock, stream: bool) -> None:
    failed = error_body("gone", code="server_error")
    fault = answer(f"data: {failed}\n\n", kind="text/event-stream") if stream else answer(failed)
    async with open_charged(Charged(fault=fault), ms.Budget(usd=1.0), retry=ms.Retry(max_attempts=1)) as engine:
        completion = await (engine.start_stream if stream else engine.start_request)(ask()).wait()
        spent = of(engine).spent
    assert completion.error.http_status == 200
    assert completion.attempt_records[0].estimated
    assert 10 < spent.input_tokens < 60
    assert completion.cost == spent.usd == pytest.approx(spent.input_tokens * 1e-6)


async def test_a_refused_key_costs_nothing_but_a_call(autojump_clock: MockClock) -> None:
    fault = answer(error_body("wrong key", code="invalid_api_key"), status="401 Unauthorized")
    async with open_charged(Charged(fault=fault), ms.Budget(usd=1.0, calls=5)) as engine:
        completion = await engine.start_stream(ask()).wait()
        figures = of(engine)
    assert (completion.error_category, completion.cost) == (ms.ErrorCategory.AUTH, 0.0)
    assert figures.spent == Amounts(calls=1)


async def test_a_server_that_cannot_be_reached_costs_nothing(autojump_clock: MockClock) -> None:
    traffic = ms.Traffic(budgets=[ms.Budget(calls=1)], price=price)
    unreachable = ms.OpenAIChat("k", "http://127.0.0.1:9", name="openai")
    async with ms.open_engine([unreachable], traffic=traffic, retry=ms.Retry(max_attempts=1)) as engine:
        for _ in range(3):
            completion = await engine.start_stream(ask()).wait()
            assert completion.error_category is ms.ErrorCategory.NETWORK
            assert completion.cost == 0.0
        assert of(engine).spent == Amounts()


async def test_every_target_passes_the_budget_with_its_own_price(autojump_clock: MockClock) -> None:
    dear, cheap = Charged(), Charged()
    route = ms.Route("smart", ["dear/m", "cheap/cheap"])
    traffic = ms.Traffic(routes=[route], budgets=[ms.Budget(usd=0.0011)], price=price)
    async with open_peer(dear.serve) as first, open_peer(cheap.serve) as second:
        providers = [provider(first, "dear"), provider(second, "cheap")]
        async with ms.open_engine(providers, traffic=traffic) as engine:
            completions = [await engine.start_stream(ask("smart")).wait() for _ in range(5)]
            figures = of(engine)
    # One fits the dear target, later ones only the cheap one, until not even that fits.
    assert [each.success for each in completions] == [True, True, True, True, True]
    assert [each.attempt_records[0].target for each in completions] == ["dear/m", *["cheap/cheap"] * 4]
    assert figures.spent.usd == pytest.approx(dear.dollars() + cheap.dollars("cheap"))
    assert sum(each.cost or 0 for each in completions) == pytest.approx(figures.spent.usd)


async def test_a_routed_call_waits_for_a_budget_or_fails(autojump_clock: MockClock) -> None:
    server = Charged(seconds=2, output=60)
    traffic = ms.Traffic(routes=[ms.Route("smart", ["openai/m"])], budgets=[ms.Budget(output_tokens=170)])
    async with open_peer(server.serve) as peer, ms.open_engine([provider(peer)], traffic=traffic) as engine:
        calls = [engine.start_stream(ask("smart")) for _ in range(3)]
        await trio.sleep(1)
        assert calls[1].waiting_for == "output_tokens of the engine's budget, reserved by 1 calls, 0 ahead"
        assert calls[1].target == ""
        completions = [await call.wait() for call in calls]
        figures = of(engine)
    assert [each.success for each in completions] == [True, True, False]
    assert completions[2].error_category is ms.ErrorCategory.BUDGET
    assert completions[1].timings.waited == {"budget": pytest.approx(2, abs=0.2)}
    assert (figures.reserved, figures.waiting, figures.spent.output_tokens) == (Amounts(), 0, 120)


async def test_a_failed_attempt_gives_its_reservation_back(autojump_clock: MockClock) -> None:
    failing = Charged(fault=answer(error_body("busy"), status="503 Service Unavailable"))
    good = Charged()
    traffic = ms.Traffic(
        routes=[ms.Route("smart", ["one/m", "two/m"])], budgets=[ms.Budget(calls=3, output_tokens=200)], price=price
    )
    async with (
        open_peer(failing.serve) as first,
        open_peer(good.serve) as second,
        ms.open_engine([provider(first, "one"), provider(second, "two")], traffic=traffic) as engine,
    ):
        completions = [await engine.start_stream(ask("smart")).wait() for _ in range(3)]
        figures = of(engine)
    assert [each.success for each in completions] == [True, True, True]
    assert [len(each.attempt_records) for each in completions] == [2, 2, 2]
    assert (figures.spent.calls, figures.spent.output_tokens, figures.reserved) == (3, 150, Amounts())


async def test_a_call_refused_by_a_limit_reserves_again(autojump_clock: MockClock) -> None:
    refusals = [answer(error_body("slow", code="rate_limit_exceeded"), status="429 Too Many Requests")] * 2

    class Limiting(Charged):
        async def serve(self, line: Line) -> None:
            while refusals:
                await line.request()
                await line.send(refusals.pop())
            await super().serve(line)

    async with open_charged(Limiting(), ms.Budget(calls=1, output_tokens=100)) as engine:
        completion = await engine.start_stream(ask()).wait()
        figures = of(engine)
    assert (completion.success, completion.attempts) == (True, 3)
    assert (figures.spent.calls, figures.spent.output_tokens, figures.reserved) == (1, 50, Amounts())


@pytest.mark.parametrize("seed", range(6))
async def test_random_faults_never_exceed_a_budget(autojump_clock: MockClock, seed: int) -> None:
    """Failures, cancelled calls and breaks in any order: reservations balance, and the servers' own counts fit."""
    draw = random.Random(seed)

    class Random(Charged):
        async def serve(self, line: Line) -> None:
            fault = draw.random()
            self.seconds = draw.uniform(0.01, 3)
            if fault < 0.2:
                await line.request()
                await line.send(answer(error_body("busy"), status="503 Service Unavailable"))
            elif fault < 0.3:
                await line.request()
                return
            elif fault < 0.4:
                await line.request()
                await line.send(stream_of(chat_chunk("half " * 10), end=False))
                return
            await super().serve(line)

    one, two = Random(), Random()
    budgets = [ms.Budget(usd=0.02), ms.Budget(calls=30, per="tenant"), ms.Budget(output_tokens=1_500, every=5)]
    traffic = ms.Traffic(
        routes=[ms.Route("smart", ["one/m", "two/m"], balance="weighted")], budgets=budgets, price=price
    )
    async with open_peer(one.serve) as first, open_peer(two.serve) as second:
        providers = [provider(first, "one"), provider(second, "two")]
        async with ms.open_engine(providers, traffic=traffic, retry=ms.Retry(base=0.1, jitter=0)) as engine:
            calls: list[ms.Call] = []
            for number in range(80):
                request = ask(
                    draw.choice(["smart", "one/m"]),
                    tenant=draw.choice("ab"),
                    priority=draw.choice(["interactive", "batch"]),
                    timeouts=ms.Timeouts(queue=draw.choice([1, 20]), total=40),
                )
                calls.append(engine.start_stream(request))
                if number % 5 == 0:
                    await trio.sleep(draw.random())
                    draw.choice(calls).cancel()
                for figures in engine.statistics().traffic.budgets:
                    taken = figures.spent.plus(figures.reserved)
                    assert all(each <= limit * (1 + 1e-6) for each, limit in zip(taken, figures.limit, strict=True))
            completions = [await call.wait() for call in calls]
            figures = engine.statistics().traffic.budgets
    assert all(each.reserved == Amounts() and each.waiting == 0 for each in figures)
    assert one.dollars() + two.dollars() <= 0.02
    assert sum(each.cost or 0 for each in completions) <= 0.02 * (1 + 1e-6)
    known = {"budget", "timeout", "cancelled", "network", "server"}
    assert {each.error_category.value for each in completions if each.error_category} <= known
