"""The OpenTelemetry observer: spans and metrics of the GenAI conventions, with an engine and without one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, cast

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.trace import SpanKind, StatusCode

import manystream as ms
from manystream.engine.call.completion import Completion, Timings
from manystream.engine.observe.observer import CallStart
from manystream.engine.traffic.budgets.amounts import Amounts, BudgetStatistics
from manystream.engine.traffic.limits.rate_limit import BucketStatistics, LimiterStatistics
from manystream.engine.traffic.routing.options import RouteStatistics, TargetStatistics
from manystream.otel import OpenTelemetryObserver
from manystream.providers.model.provider_error import ErrorCategory, ProviderError
from manystream.simulator import Simulator, open_simulator_thread
from tests.support.peers import NO_RETRY
from tests.support.telemetry import Telemetry


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator_thread("events=10") as simulator:
        yield simulator


def ask(knobs: str = "", **options: Any) -> ms.Request:
    return ms.Request("claude-sonnet-4-5", [ms.Message.user("hi")], extra_headers={"x-simulate": knobs}, **options)


def claude(simulator: Simulator) -> ms.Anthropic:
    return ms.Anthropic("sk-canary-5ecret", simulator.base_urls["anthropic"], profile="anthropic")


async def test_a_stream_is_one_client_span_with_all_attributes(telemetry: Telemetry, simulator: Simulator) -> None:
    async with ms.open_engine([claude(simulator)], observer=telemetry.observer) as engine:
        request = ask("kind=thinking,cached=1", max_output_tokens=500, temperature=0.5, stop=["END"])
        completion = await engine.start_stream(request).wait()
    response = completion.response
    assert response is not None
    (span,) = telemetry.spans
    assert (span.name, span.kind, span.status.status_code) == (
        "chat claude-sonnet-4-5", SpanKind.CLIENT, StatusCode.UNSET,
    )  # fmt: skip
    attributes = dict(span.attributes or {})
    assert attributes.pop("gen_ai.response.time_to_first_chunk") > 0  # type: ignore[operator]
    assert attributes.pop("manystream.waited.connection") > 0  # type: ignore[operator]
    usage = response.usage
    assert usage.output_tokens is not None
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-sonnet-4-5",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 500,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.stop_sequences": ("END",),
        "gen_ai.response.model": response.model,
        "gen_ai.response.id": response.id,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens + (usage.thinking_tokens or 0),
        "gen_ai.usage.cache_read.input_tokens": 1,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": simulator.port,
    } | ({} if usage.thinking_tokens is None else {"gen_ai.usage.reasoning.output_tokens": usage.thinking_tokens})


async def test_chunks_are_timed_only_with_every_event(telemetry: Telemetry, simulator: Simulator) -> None:
    """Without the option, streams keep their fast path."""
    assert not telemetry.observer.every_event
    async with ms.open_engine([claude(simulator)], observer=telemetry.observer) as engine:
        await engine.start_stream(ask()).wait()
    assert "gen_ai.client.operation.time_to_first_chunk" in telemetry.metrics()
    assert "gen_ai.client.operation.time_per_output_chunk" not in telemetry.metrics()


async def test_the_four_client_metrics_are_recorded(simulator: Simulator) -> None:
    telemetry = Telemetry(every_event=True)
    chunks = 0

    def count(event: ms.Event) -> None:
        nonlocal chunks
        chunks += isinstance(event, ms.TextDelta)

    async with ms.open_engine([claude(simulator)], observer=telemetry.observer) as engine:
        await engine.start_stream(ask(), count).wait()
        await engine.start_request(ask()).wait()
    metrics = telemetry.metrics()
    assert sorted(metrics) == [
        "gen_ai.client.operation.duration", "gen_ai.client.operation.time_per_output_chunk",
        "gen_ai.client.operation.time_to_first_chunk", "gen_ai.client.token.usage",
    ]  # fmt: skip
    assert sum(point.count for point in metrics["gen_ai.client.operation.duration"]) == 2
    assert [point.count for point in metrics["gen_ai.client.operation.time_to_first_chunk"]] == [1]
    assert [point.count for point in metrics["gen_ai.client.operation.time_per_output_chunk"]] == [chunks - 1]
    kinds = {point.attributes["gen_ai.token.type"]: point.count for point in metrics["gen_ai.client.token.usage"]}
    assert kinds == {"input": 2, "output": 2}
    (point, *_) = metrics["gen_ai.client.operation.duration"]
    assert point.attributes["gen_ai.request.model"] == "claude-sonnet-4-5"
    assert point.attributes["gen_ai.response.model"] == "claude-sonnet-4-5"


async def test_a_failure_has_its_category_and_its_retries(telemetry: Telemetry, simulator: Simulator) -> None:
    retry = ms.Retry(max_attempts=2, base=0.01, jitter=0)
    async with ms.open_engine([claude(simulator)], observer=telemetry.observer) as engine:
        await engine.start_stream(ask("fail=503", retry=retry)).wait()
        await engine.start_stream(ask("fail=401", retry=NO_RETRY)).wait()
    busy, refused = telemetry.spans
    assert (busy.status.status_code, refused.status.status_code) == (StatusCode.ERROR, StatusCode.ERROR)
    assert [dict(span.attributes or {})["error.type"] for span in (busy, refused)] == ["server", "auth"]
    assert dict(busy.attributes or {})["http.request.resend_count"] == 1
    assert [event.name for event in busy.events] == ["retry"]
    assert "5ecret" not in busy.to_json() + refused.to_json()
    points = telemetry.metrics()["gen_ai.client.operation.duration"]
    assert sorted(point.attributes["error.type"] for point in points) == ["auth", "server"]


async def test_a_calls_span_is_a_child_of_the_current_span(telemetry: Telemetry, simulator: Simulator) -> None:
    tracer = telemetry.tracers.get_tracer("test")
    async with ms.open_engine([claude(simulator)], observer=telemetry.observer) as engine:
        with tracer.start_as_current_span("agent") as parent:
            call = engine.start_stream(ask())
        await call.wait()
    child = next(span for span in telemetry.spans if span.name.startswith("chat"))
    assert child.parent.span_id == parent.get_span_context().span_id


async def test_no_call_is_kept_after_its_end(telemetry: Telemetry, simulator: Simulator) -> None:
    async with ms.open_engine([claude(simulator)], observer=telemetry.observer) as engine:
        for _ in range(3):
            await engine.start_request(ask()).wait()
        engine.start_stream(ask("stall=2"))
    assert len(telemetry.spans) == 4
    assert not telemetry.observer._running  # pyright: ignore[reportPrivateUsage]


async def test_the_names_are_in_the_conventions() -> None:
    import inspect

    from manystream import otel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
        from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
    known = {value for module in (gen_ai_attributes, gen_ai_metrics) for value in vars(module).values()
             if isinstance(value, str)}  # fmt: skip
    import re

    used = set(re.findall(r'"(gen_ai\.[a-z_.]+)"', inspect.getsource(otel)))
    assert used <= known
    assert len(used) > 15


CALL = cast("ms.Call", object())


CHAT = ms.OpenAIChat("k", "http://127.0.0.1:9/v1", name="mine", profile="openai-chat")


HOST = {"server.address": "example.org", "server.port": 8443}


def start(provider: ms.Provider = CHAT, *, stream: bool = True, **options: Any) -> CallStart:
    return CallStart(
        ms.Request("mine/m", [ms.Message.user("hi")], **options), provider, "m", "example.org", 8443, stream
    )


def span_of(completion: Completion, begun: CallStart | None = None, *, attempts: int = 1) -> tuple[Any, dict[str, Any]]:
    telemetry = Telemetry()
    telemetry.observer.call_started(CALL, begun or start())
    for number in range(1, attempts + 1):
        telemetry.observer.attempt_started(CALL, number)
    telemetry.observer.call_ended(CALL, completion)
    telemetry.observer.call_ended(CALL, completion)
    (span,) = telemetry.spans
    return span, dict(span.attributes or {})


def test_the_span_of_a_call_with_every_option() -> None:
    schema: ms.JSONObject = {"type": "object"}
    begun = start(
        max_output_tokens=5, temperature=0.0, top_p=0.5, seed=0, stop=["a", "b"], response_schema=schema,
        tags={"agent": "planner", "step": 3},
    )  # fmt: skip
    response = ms.Response(
        [], ms.FinishReason.LENGTH, usage=ms.Usage(10, 20, 3, 0, 2), model="m-1", id="r-1"
    )  # fmt: skip
    timings = Timings(waited={"quota": 1.5, "slot": 0.25})
    completion = Completion(True, 201, response, attempts=3, timings=timings)
    span, attributes = span_of(completion, begun, attempts=3)
    assert (span.name, span.kind, span.status.status_code) == ("chat m", SpanKind.CLIENT, StatusCode.UNSET)
    assert [(event.name, dict(event.attributes or {})) for event in span.events] == [
        ("retry", {"http.request.resend_count": 1}), ("retry", {"http.request.resend_count": 2}),
    ]  # fmt: skip
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": True,
        "manystream.tags.agent": "planner",
        "manystream.tags.step": 3,
        "gen_ai.request.max_tokens": 5,
        "gen_ai.request.temperature": 0.0,
        "gen_ai.request.top_p": 0.5,
        "gen_ai.request.seed": 0,
        "gen_ai.request.stop_sequences": ("a", "b"),
        "gen_ai.output.type": "json",
        "gen_ai.response.model": "m-1",
        "gen_ai.response.id": "r-1",
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 23,
        "gen_ai.usage.reasoning.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.cache_creation.input_tokens": 2,
        "http.response.status_code": 201,
        "http.request.resend_count": 2,
        "manystream.waited.quota": 1.5,
        "manystream.waited.slot": 0.25,
        **HOST,
    }


def test_the_span_of_a_call_that_failed_before_an_answer() -> None:
    error = ProviderError("no", category=ErrorCategory.NETWORK)
    span, attributes = span_of(Completion(False, error=error, attempts=1), start(stream=False))
    assert (span.status.status_code, span.status.description, span.events) == (StatusCode.ERROR, "no", ())
    assert attributes == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "m",
        "gen_ai.request.stream": False, "error.type": "network", **HOST,
    }  # fmt: skip


def test_the_span_of_a_call_that_failed_in_its_answer() -> None:
    error = ProviderError("cut", category=ErrorCategory.SERVER)
    _, attributes = span_of(Completion(False, 200, ms.Response(usage=ms.Usage(7)), error, attempts=1))
    assert {name: value for name, value in attributes.items() if "request" not in name and "server" not in name} == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.usage.input_tokens": 7,
        "http.response.status_code": 200, "error.type": "server",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("provider", "name", "operation"),
    [
        (CHAT, "openai", "chat"),
        (ms.OpenAIChat("k", "http://127.0.0.1:9/v1", name="mine"), "mine", "chat"),
        (ms.OpenAIChat("k", "http://127.0.0.1:9/v1", name="x", profile="groq"), "groq", "chat"),
        (ms.OpenAIChat("k", "http://127.0.0.1:9/v1", name="openai-compatible"), "openai-compatible", "chat"),
        (ms.Gemini("k", name="g"), "gcp.gemini", "generate_content"),
    ],
)
def test_the_name_of_a_provider(provider: ms.Provider, name: str, operation: str) -> None:
    span, attributes = span_of(Completion(True, 200, ms.Response()), start(provider))
    assert (attributes["gen_ai.provider.name"], attributes["gen_ai.operation.name"], span.name) == (
        name, operation, f"{operation} m",
    )  # fmt: skip


def metrics_of(telemetry: Telemetry) -> dict[str, list[tuple[dict[str, Any], Any]]]:
    return {
        name: [(dict(point.attributes), point.value if hasattr(point, "value") else point.count) for point in points]
        for name, points in telemetry.metrics_by_unit().items()
    }


def test_the_metrics_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("manystream.otel.time.perf_counter", lambda: now[0])
    telemetry = Telemetry(every_event=True)
    assert (telemetry.observer.every_event, OpenTelemetryObserver().every_event) == (True, False)
    telemetry.observer.call_started(CALL, start())
    now[0] = 100.5
    telemetry.observer.first_token(CALL)
    now[0] = 102.5
    telemetry.observer.events_received(CALL, [])
    now[0] = 106.5
    telemetry.observer.events_received(CALL, [])
    now[0] = 110.0
    response = ms.Response(usage=ms.Usage(10, 20, 3), model="m-1")
    telemetry.observer.call_ended(CALL, Completion(True, 200, response))
    (span,) = telemetry.spans
    assert dict(span.attributes or {})["gen_ai.response.time_to_first_chunk"] == 0.5
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "m", **HOST,
    }  # fmt: skip
    points = telemetry.metrics()
    assert {
        name: [(dict(point.attributes), point.count, point.sum) for point in found] for name, found in points.items()
    } == {
        "gen_ai.client.operation.time_to_first_chunk": [(attributes, 1, 0.5)],
        "gen_ai.client.operation.time_per_output_chunk": [(attributes, 2, 6.0)],
        "gen_ai.client.token.usage": [
            ({**attributes, "gen_ai.response.model": "m-1", "gen_ai.token.type": "input"}, 1, 10),
            ({**attributes, "gen_ai.response.model": "m-1", "gen_ai.token.type": "output"}, 1, 23),
        ],
        "gen_ai.client.operation.duration": [({**attributes, "gen_ai.response.model": "m-1"}, 1, 10.0)],
    }


def test_the_units_and_bounds_of_the_client_metrics() -> None:
    reader = InMemoryMetricReader()
    observer = OpenTelemetryObserver(meter_provider=MeterProvider([reader]))
    observer.call_started(CALL, start())
    observer.first_token(CALL)
    observer.events_received(CALL, [])
    observer.call_ended(CALL, Completion(True, 200, ms.Response(usage=ms.Usage(1, 1))))
    data = reader.get_metrics_data()
    (scope,) = data.resource_metrics[0].scope_metrics
    assert scope.scope.name == "manystream"
    found = {
        metric.name: (metric.unit, metric.description, cast("Any", metric.data.data_points[0]).explicit_bounds)
        for metric in scope.metrics
    }
    seconds = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
    chunks = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)
    assert found == {
        "gen_ai.client.operation.duration": ("s", "GenAI operation duration.", seconds),
        "gen_ai.client.operation.time_to_first_chunk": ("s", "Time to receive the first chunk of a stream.", seconds),
        "gen_ai.client.operation.time_per_output_chunk": ("s", "Time between two chunks of a stream.", chunks),
        "gen_ai.client.token.usage": (
            "{token}", "Number of input and output tokens used.", tuple(4**power for power in range(14)),
        ),
    }  # fmt: skip


def test_a_call_that_reports_no_tokens_records_none() -> None:
    telemetry = Telemetry()
    telemetry.observer.call_started(CALL, start())
    telemetry.observer.call_ended(CALL, Completion(True, 200, ms.Response(usage=ms.Usage(output_tokens=4))))
    (point,) = telemetry.metrics()["gen_ai.client.token.usage"]
    assert (point.attributes["gen_ai.token.type"], point.sum) == ("output", 4)


# --- traffic control ---


def test_every_figure_of_a_scope_is_a_metric() -> None:
    telemetry = Telemetry()
    limits = {"requests": BucketStatistics(1.5, 60, 40)}
    learned = {"tokens": BucketStatistics(25, 100, -3)}
    telemetry.observer.limiter_changed("p/old", LimiterStatistics(1, 2, 3, 4, {}, {}, 5, 6, 7, 8, None))
    telemetry.observer.limiter_changed("p/m", LimiterStatistics(9, 9, 9, 9, {}, {}, 9, 9, 9, 9, 9))
    telemetry.observer.limiter_changed("p/m", LimiterStatistics(11, 12, 13, 14, limits, learned, 15, 16, 17, 18, 19))
    old, new = {"manystream.limiter": "p/old"}, {"manystream.limiter": "p/m"}
    reported = {**new, "manystream.limit": "requests", "manystream.limit.source": "reported"}
    from_refusals = {**new, "manystream.limit": "tokens", "manystream.limit.source": "learned"}
    assert metrics_of(telemetry) == {
        "manystream.traffic.waiting {call}": [(old, 1), (new, 11)],
        "manystream.traffic.running {call}": [(old, 2), (new, 12)],
        "manystream.traffic.sent {request} grows": [(old, 3), (new, 13)],
        "manystream.traffic.refused {request} grows": [(old, 4), (new, 14)],
        "manystream.traffic.window {call}": [(old, 5), (new, 15)],
        "manystream.traffic.held s": [(old, 7), (new, 17)],
        "manystream.traffic.concurrent {call}": [(new, 19)],
        "manystream.traffic.limit.rate ": [(reported, 1.5), (from_refusals, 25)],
        "manystream.traffic.limit.level ": [(reported, 40), (from_refusals, -3)],
    }


def test_every_figure_of_a_route_is_a_metric() -> None:
    telemetry = Telemetry()
    targets = (TargetStatistics("a/m", 1, 2, "open", 3.5, 4.5, 0.25), TargetStatistics("b/m", breaker="probing"))
    telemetry.observer.route_changed("fast", RouteStatistics(targets, 5, 6))
    route = {"manystream.route": "fast"}
    one, two = ({**route, "manystream.target": name} for name in ("a/m", "b/m"))
    assert metrics_of(telemetry) == {
        "manystream.route.waiting {call}": [(route, 5)], "manystream.route.hedged {call} grows": [(route, 6)],
        "manystream.route.outstanding {call}": [(one, 1), (two, 0)],
        "manystream.route.sessions {session}": [(one, 2), (two, 0)],
        "manystream.route.open 1": [(one, 1), (two, 0)], "manystream.route.score s": [(one, 3.5)],
        "manystream.route.first_event s": [(one, 4.5)], "manystream.route.failures 1": [(one, 0.25), (two, 0)],
    }  # fmt: skip


def test_every_figure_of_a_budget_is_a_metric() -> None:
    telemetry = Telemetry()
    inf = float("inf")
    whole = ms.Budget(usd=lambda tenant: 5, output_tokens=9)
    each = ms.Budget(calls=3, per="tenant", every=60)
    telemetry.observer.budget_changed(
        BudgetStatistics(whole, None, Amounts(inf, inf, 9, inf), Amounts(1, 2, 3, 4), Amounts(5, 6, 7, 8), 2, -1)
    )
    telemetry.observer.budget_changed(
        BudgetStatistics(each, "t", Amounts(inf, inf, inf, 3), Amounts(0, 0, 0, 1), Amounts(0, 0, 0, 2), 0, 30)
    )
    one: dict[str, Any] = {"manystream.budget.per": "engine"}
    two: dict[str, Any] = {
        "manystream.budget.per": "tenant", "manystream.budget.every": 60, "manystream.budget.tenant": "t",
    }  # fmt: skip
    usd, output = ({**one, "manystream.budget.amount": name} for name in ("usd", "output_tokens"))
    calls = {**two, "manystream.budget.amount": "calls"}
    assert metrics_of(telemetry) == {
        "manystream.budget.waiting {call}": [(one, 2), (two, 0)],
        "manystream.budget.spent ": [(usd, 1), (output, 3), (calls, 1)],
        "manystream.budget.reserved ": [(usd, 5), (output, 7), (calls, 2)],
        "manystream.budget.limit ": [(output, 9), (calls, 3)],
    }


def test_the_latest_thousand_scopes_are_kept() -> None:
    telemetry = Telemetry()
    for number in range(1001):
        telemetry.observer.limiter_changed(f"p/{number}", LimiterStatistics(sent=number))
    telemetry.observer.limiter_changed("p/500", LimiterStatistics(sent=7))
    values = {
        point.attributes["manystream.limiter"]: point.value for point in telemetry.metrics()["manystream.traffic.sent"]
    }
    assert (len(values), "p/0" in values, values["p/1"], values["p/500"], values["p/1000"]) == (1000, False, 1, 7, 1000)
