"""The OpenTelemetry SDK with exporters that keep all data in memory."""

from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from manystream.otel import OpenTelemetryObserver


class Telemetry:
    """An SDK that keeps all spans and metrics in memory."""

    def __init__(self, *, every_event: bool = False) -> None:
        self._spans = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider([self._reader])
        self.observer = OpenTelemetryObserver(self.tracers, self._meters, every_event=every_event)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())

    def metrics(self) -> dict[str, list[Any]]:
        """Return the metrics: name → data points."""
        return {metric.name: list(metric.data.data_points) for metric in self._found()}

    def metrics_by_unit(self) -> dict[str, list[Any]]:
        """Return the metrics: name, unit, and `grows` for one that only grows → data points."""
        return {
            f"{metric.name} {metric.unit}{' grows' * getattr(metric.data, 'is_monotonic', False)}": list(
                metric.data.data_points
            )
            for metric in self._found()
        }

    def _found(self) -> Sequence[Metric]:
        (scope,) = self._reader.get_metrics_data().resource_metrics[0].scope_metrics
        return scope.metrics
