"""An observer that reports each call to OpenTelemetry: a span, and the client metrics of the GenAI conventions.

    from manystream.otel import OpenTelemetryObserver

    async with ms.open_engine(providers=[…], observer=OpenTelemetryObserver()) as engine: …

Needs the extra `otel`, which is OpenTelemetry's API. The program installs the SDK and configures its exporters. Names
follow the semantic conventions for generative AI, https://github.com/open-telemetry/semantic-conventions-genai. These
are not stable yet, so all their names are in this file. The metrics of traffic control are in `otel_traffic.py`. No
attribute of a span has a prompt, answer or tool argument: the conventions make this optional, and this module does not
support it. The status of a failed call's span is described by the error's message, which may quote a piece of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .extras import not_installed

try:
    from opentelemetry import metrics, trace
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode
except ImportError as _error:
    raise not_installed(__name__, "otel", _error) from None

from . import Call, CallStart, Completion, Event, Observer, Provider, Request, Usage
from .otel_traffic import TrafficMetrics
from .statistics import BudgetStatistics, LimiterStatistics, RouteStatistics

Value: TypeAlias = str | bool | int | float | Sequence[str]

INSTRUMENTATION = "manystream"

OPERATIONS = {"gemini": "generate_content"}
"""Dialect → the operation's name. All other dialects: `chat`."""

PROVIDER_NAMES = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "anthropic": "anthropic",
    "anthropic-openai": "anthropic",
    "google": "gcp.gemini",
    "google-interactions": "gcp.gemini",
    "google-openai": "gcp.gemini",
    "azure": "azure.ai.openai",
    "azure-deployment": "azure.ai.openai",
    "azure-models": "azure.ai.inference",
    "azure-responses": "azure.ai.openai",
    "bedrock-mantle": "aws.bedrock",
    "bedrock-responses": "aws.bedrock",
    "bedrock-anthropic": "aws.bedrock",
    "vertex-anthropic": "gcp.vertex_ai",
    "foundry": "azure.ai.inference",
    "groq-responses": "groq",
    "mistral": "mistral_ai",
    "xai": "x_ai",
    "xai-responses": "x_ai",
}
"""Profile → the provider's name in the conventions. All other profiles: the profile's own name."""

REQUEST_ATTRIBUTES = {
    "gen_ai.request.max_tokens": "max_output_tokens",
    "gen_ai.request.temperature": "temperature",
    "gen_ai.request.top_p": "top_p",
    "gen_ai.request.seed": "seed",
}
"""Attribute of the span → attribute of `Request`."""

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
CHUNK_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
"""The histograms' bucket boundaries, in seconds (`SECONDS`, `CHUNK_SECONDS`) and tokens."""

HISTOGRAMS = (
    ("gen_ai.client.operation.duration", "s", "GenAI operation duration.", SECONDS),
    ("gen_ai.client.operation.time_to_first_chunk", "s", "Time to receive the first chunk of a stream.", SECONDS),
    ("gen_ai.client.operation.time_per_output_chunk", "s", "Time between two chunks of a stream.", CHUNK_SECONDS),
    ("gen_ai.client.token.usage", "{token}", "Number of input and output tokens used.", TOKENS),
)
"""Name, unit, description and bucket boundaries of each histogram."""


@dataclass(slots=True, eq=False)
class _Running:
    """A call that has not ended.

    started: when it started, in seconds of `time.perf_counter`.
    last: when its latest chunk arrived, in seconds of `time.perf_counter`.
    """

    span: Span
    attributes: dict[str, Value]
    started: float
    last: float


class OpenTelemetryObserver(Observer):
    """An observer that makes a span and metrics for each call. Pass it to `open_engine(observer=…)`.

    A call's span is a child of the span that was current where the call was started.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        *,
        every_event: bool = False,
    ) -> None:
        """Make an observer.

        tracer_provider: makes the spans; None uses the global one.
        meter_provider: makes the metrics; None uses the global one.
        every_event: whether to record `gen_ai.client.operation.time_per_output_chunk`. Events are then read without the
            fast path. This costs about 30 % more instructions per event, besides those of the measurement.
        """
        self.every_event = every_event
        self._tracer = trace.get_tracer(INSTRUMENTATION, tracer_provider=tracer_provider)
        meter = metrics.get_meter(INSTRUMENTATION, meter_provider=meter_provider)
        self._duration, self._first_chunk, self._per_chunk, self._tokens = (
            meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=boundaries)
            for name, unit, description, boundaries in HISTOGRAMS
        )
        self._running: dict[Call, _Running] = {}
        self._traffic = TrafficMetrics(meter)

    def call_started(self, call: Call, start: CallStart) -> None:
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": OPERATIONS.get(start.provider.profile.dialect_name, "chat"),
            "gen_ai.provider.name": _provider_name(start.provider),
            "gen_ai.request.model": start.model,
            "server.address": start.host,
            "server.port": start.port,
        }
        span = self._tracer.start_span(
            f"{attributes['gen_ai.operation.name']} {start.model}",
            kind=SpanKind.CLIENT,
            attributes=attributes | _request_attributes(start.request, stream=start.stream),
        )
        now = time.perf_counter()
        self._running[call] = _Running(span, attributes, now, now)

    def attempt_started(self, call: Call, number: int) -> None:
        if number > 1:
            self._running[call].span.add_event("retry", {"http.request.resend_count": number - 1})

    def first_token(self, call: Call) -> None:
        running = self._running[call]
        running.last = time.perf_counter()
        elapsed = running.last - running.started
        running.span.set_attribute("gen_ai.response.time_to_first_chunk", elapsed)
        self._first_chunk.record(elapsed, running.attributes)

    def events_received(self, call: Call, events: Sequence[Event]) -> None:
        running = self._running[call]
        before, running.last = running.last, time.perf_counter()
        self._per_chunk.record(running.last - before, running.attributes)

    def call_ended(self, call: Call, completion: Completion) -> None:
        running = self._running.pop(call, None)
        if running is None:
            return
        span, attributes = running.span, running.attributes
        elapsed = time.perf_counter() - running.started
        response = completion.response
        if response is not None:
            if response.model:
                attributes["gen_ai.response.model"] = response.model
            if completion.success:
                span.set_attribute("gen_ai.response.finish_reasons", [response.finish_reason.value])
            if response.id:
                span.set_attribute("gen_ai.response.id", response.id)
            self._report_usage(span, attributes, response.usage)
        if completion.http_status:
            span.set_attribute("http.response.status_code", completion.http_status)
        if completion.attempts > 1:
            span.set_attribute("http.request.resend_count", completion.attempts - 1)
        if completion.error is not None:
            attributes["error.type"] = completion.error.category.value
            span.set_status(Status(StatusCode.ERROR, completion.error.message))
        for reason, seconds in completion.timings.waited.items():
            span.set_attribute(f"manystream.waited.{reason}", seconds)
        self._duration.record(elapsed, attributes)
        span.set_attributes(attributes)
        span.end()

    def limiter_changed(self, limiter: str, statistics: LimiterStatistics) -> None:
        self._traffic.put_limiter(limiter, statistics)

    def route_changed(self, route: str, statistics: RouteStatistics) -> None:
        self._traffic.put_route(route, statistics)

    def budget_changed(self, statistics: BudgetStatistics) -> None:
        self._traffic.put_budget(statistics)

    def _report_usage(self, span: Span, attributes: dict[str, Value], usage: Usage) -> None:
        counts = {
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": _all_output(usage),
            "gen_ai.usage.reasoning.output_tokens": usage.thinking_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        }
        for name, count in counts.items():
            if count is not None:
                span.set_attribute(name, count)
        for kind, count in (("input", usage.input_tokens), ("output", _all_output(usage))):
            if count is not None:
                self._tokens.record(count, attributes | {"gen_ai.token.type": kind})


def _all_output(usage: Usage) -> int | None:
    """Return the output tokens as the conventions count them: with thinking, which `Usage.output_tokens` excludes."""
    if usage.output_tokens is None:
        return None
    return usage.output_tokens + (usage.thinking_tokens or 0)


def _provider_name(provider: Provider) -> str:
    profile = provider.profile
    if profile.generic and provider.name != profile.name:
        return provider.name
    return PROVIDER_NAMES.get(profile.name, profile.name)


def _request_attributes(request: Request, *, stream: bool) -> dict[str, Value]:
    attributes: dict[str, Value] = {"gen_ai.request.stream": stream}
    for name, member in REQUEST_ATTRIBUTES.items():
        value: int | float | None = getattr(request, member)
        if value is not None:
            attributes[name] = value
    if request.stop:
        attributes["gen_ai.request.stop_sequences"] = list(request.stop)
    if request.response_schema is not None:
        attributes["gen_ai.output.type"] = "json"
    for name, tag in (request.tags or {}).items():
        attributes[f"manystream.tags.{name}"] = tag
    return attributes
