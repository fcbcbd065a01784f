"""Anthropic's batch interface (platform.claude.com/docs/en/api/messages/batches). It keeps no metadata."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from ..catalog.batches import BatchGroup, BatchInterface, BatchPaths, BatchResult, BatchState, BatchTerms, count
from ..catalog.dialect import WireRequest
from ..json.json_values import JSON, JSONObject, dumps, mapping, received_dumps, string
from ..wire.wire_head import request_headers
from .errors import TYPE_STATUS
from .request import API_VERSION

HOUR = 3600.0


class Anthropic(BatchInterface):
    """Anthropic's interface: the lines are in the request, and the results are a file. It reports no progress."""

    terms: BatchTerms = BatchTerms(
        lines=100_000,
        bytes=256_000_000,
        prior=((0.25, 300.0), (0.5, 1200.0), (0.9, 2 * HOUR), (0.99, 24 * HOUR)),
        stop=600.0,
    )
    paths: ClassVar[BatchPaths] = BatchPaths(
        batches="/messages/batches?limit=100",
        after="after_id",
        one="/messages/batches/{}",
        cancel="/messages/batches/{}/cancel",
        results="/messages/batches/{}/results",
    )
    version: ClassVar[str] = "/v1"

    def takes(self, group: BatchGroup) -> bool:
        return group.path == f"{self._version}/messages"

    def line(self, id: str, body: bytes, group: BatchGroup) -> bytes:
        return b'{"custom_id":%b,"params":%b}' % (dumps(id), body)

    def create(self, key: str, lines: Sequence[bytes], file: str | None, group: BatchGroup) -> WireRequest:
        path = f"{self._version}/messages/batches"
        return self._post(path, b'{"requests":[%b]}' % b",".join(lines), group.headers)

    def state(self, body: JSONObject) -> BatchState:
        status, counts = string(body, "processing_status") or "", mapping(body, "request_counts")
        id = string(body, "id") or ""
        total = sum(count(number) for number in counts.values())
        ended = status == "ended"
        return BatchState(
            id,
            status,
            ended,
            done=total - count(counts.get("processing")),
            answered=count(counts.get("succeeded")),
            total=total,
            created=_time(body.get("created_at")),
            results=(id,) if ended and string(body, "results_url") else (),
        )

    def result(self, value: JSONObject) -> BatchResult | None:
        id, result = string(value, "custom_id"), mapping(value, "result")
        kind = string(result, "type") or "unknown"
        if id is None:
            return None
        if kind == "succeeded":
            return BatchResult(id, 200, received_dumps(mapping(result, "message")))
        if kind != "errored":
            return BatchResult(id, 0, kind.encode())
        outer = mapping(result, "error")
        error = mapping(outer, "error") or outer
        status = TYPE_STATUS.get(string(error, "type") or "", 500)
        return BatchResult(id, status, received_dumps({"type": "error", "error": error}), string(outer, "request_id"))

    def _headers(self) -> Sequence[tuple[str, str]]:
        own = {"anthropic-version": API_VERSION}
        return request_headers(self.provider.profile.quirks, None, stream=False, own=own)


def _time(value: JSON) -> float | None:
    """Return Unix seconds of a time as RFC 3339 has it; None for anything else."""
    try:
        return datetime.fromisoformat(value).timestamp() if type(value) is str else None
    except (ValueError, OverflowError):
        return None
