"""Gemini's batch interface (ai.google.dev/api/batch-api). The batch's display name is its key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar
from urllib.parse import quote

from ..catalog.batches import BatchGroup, BatchInterface, BatchResult, BatchState, BatchTerms, count
from ..catalog.dialect import WireRequest
from ..json.json_values import JSON, JSONObject, dumps, integer, mapping, objects, string
from .path import METHODS, VERSION

HOUR = 3600.0

ENDED = frozenset({"SUCCEEDED", "PARTIALLY_SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED"})
"""Ends of the words for states: `BATCH_STATE_…` on the wire, `JOB_STATE_…` in the SDK."""

NAME = "manystream-{}"
"""The display name of a batch, with its key."""

CANCELLED, DEADLINE_EXCEEDED = 1, 4
STATUSES: dict[int, tuple[int, str]] = {
    3: (400, "INVALID_ARGUMENT"),
    5: (404, "NOT_FOUND"),
    7: (403, "PERMISSION_DENIED"),
    8: (429, "RESOURCE_EXHAUSTED"),
    9: (400, "FAILED_PRECONDITION"),
    11: (400, "OUT_OF_RANGE"),
    12: (501, "UNIMPLEMENTED"),
    14: (503, "UNAVAILABLE"),
    16: (401, "UNAUTHENTICATED"),
}
"""Code of an error (google.rpc.Code) → the HTTP status and the word of the live way. All others are 500."""

FULL = 8
"""The code of a batch that failed because the key has too much in unfinished batches."""


class Gemini(BatchInterface):
    """Gemini's interface: the lines are in the request, and the results in the state of the batch, or in a file."""

    keeps_key: ClassVar[bool] = True
    terms: ClassVar[BatchTerms] = BatchTerms(
        lines=50_000,
        bytes=19_000_000,
        prior=((0.25, 600.0), (0.5, 1800.0), (0.9, 6 * HOUR), (0.99, 24 * HOUR)),
        stop=300.0,
    )

    def takes(self, group: BatchGroup) -> bool:
        return not group.headers and group.path.endswith(METHODS[False])

    def line(self, id: str, body: bytes, group: BatchGroup) -> bytes:
        return b'{"request":%b,"metadata":{"key":%b}}' % (body, dumps(id))

    def create(self, key: str, lines: Sequence[bytes], file: str | None, group: BatchGroup) -> WireRequest:
        path = group.path.removesuffix(METHODS[False]) + ":batchGenerateContent"
        body = b'{"batch":{"displayName":%b,"inputConfig":{"requests":{"requests":[%b]}}}}'
        return self._post(path, body % (dumps(NAME.format(key)), b",".join(lines)))

    def read(self, id: str) -> WireRequest:
        return self._get(f"{self._version}/{quote(id)}")

    def cancel(self, id: str) -> WireRequest:
        return self._post(f"{self._version}/{quote(id)}:cancel", b"{}")

    def list(self, after: str | None) -> WireRequest:
        more = "" if after is None else f"&pageToken={quote(after, safe='')}"
        return self._get(f"{self._version}/batches?pageSize=100{more}")

    def read_list(self, body: JSONObject) -> tuple[Sequence[BatchState], str | None]:
        found = objects(body, "operations") or objects(body, "batches")
        return [self.state(batch) for batch in found], string(body, "nextPageToken") or None

    def state(self, body: JSONObject) -> BatchState:
        batch = mapping(body, "metadata") or body
        word, stats = string(batch, "state") or "", mapping(batch, "batchStats")
        status = word.partition("_STATE_")[2] or word
        total, name = count(stats.get("requestCount")), string(batch, "displayName") or ""
        error = mapping(body, "error")
        prefix = NAME.format("")
        file = string(self._output(body), "responsesFile") or string(mapping(body, "dest"), "fileName")
        return BatchState(
            string(body, "name") or "",
            word,
            status in ENDED or body.get("done") is True,
            done=max(0, count(stats.get("successfulRequestCount")) + count(stats.get("failedRequestCount"))),
            total=total,
            key=name.removeprefix(prefix) if name.startswith(prefix) else None,
            results=(file,) if file else (),
            problem=(string(error, "message") or "the batch failed") if status == "FAILED" else "",
            is_full=integer(error, "code") == FULL,
        )

    def inline_results(self, body: JSONObject) -> Iterator[BatchResult]:
        found = objects(mapping(self._output(body), "inlinedResponses"), "inlinedResponses")
        return filter(None, map(self.result, found))

    def results(self, name: str) -> WireRequest:
        return self._get(f"/download{self._version or '/v1beta'}/{quote(name)}:download?alt=media")

    def result(self, value: JSONObject) -> BatchResult | None:
        id = string(value, "key") or string(mapping(value, "metadata"), "key")
        if id is None:
            return None
        error = mapping(value, "error") or mapping(value, "status")
        if not error:
            return BatchResult(id, 200, dumps(mapping(value, "response")))
        code = integer(error, "code") or 0
        message: JSON = string(error, "message") or "the line has no answer"
        if code in (CANCELLED, DEADLINE_EXCEEDED):
            return BatchResult(id, 0, str(message).encode())
        status, word = STATUSES.get(code, (500, "INTERNAL"))
        return BatchResult(id, status, dumps({"error": {"code": status, "message": message, "status": word}}))

    def _output(self, body: JSONObject) -> JSONObject:
        """Return the output of a batch. It may be there twice."""
        return mapping(body, "response") or mapping(mapping(body, "metadata"), "output")

    @property
    def _version(self) -> str:
        """The API's version in a path, unless the base URL has it."""
        path = self.provider.base_url.partition("?")[0].rstrip("/")
        return "" if VERSION.search(path) else "/v1beta"
