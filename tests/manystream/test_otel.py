"""The OpenTelemetry observer: spans and metrics of the GenAI conventions, read from the SDK's own exporters."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

import manystream as ms
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
