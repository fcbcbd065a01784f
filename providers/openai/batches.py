"""The batch interfaces of OpenAI, Azure and OpenRouter.

developers.openai.com/api/docs/guides/batch; learn.microsoft.com/azure/foundry/openai/how-to/batch;
openrouter.ai/docs/batch-quickstart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from ..catalog.batches import (
    BatchFiles,
    BatchGroup,
    BatchInterface,
    BatchPaths,
    BatchResult,
    BatchState,
    BatchTerms,
    count,
    status_of,
)
from ..catalog.dialect import WireRequest
from ..catalog.provider import Provider
from ..json.json_values import JSON, JSONObject, dumps, integer, mapping, objects, received_dumps, string
from ..model.provider_error import ErrorCategory
from ..wire.error_bodies import error_from_object

HOUR = 3600.0

ENDED = frozenset({"completed", "failed", "expired", "cancelled"})


METADATA = "manystream_batch"
"""The name of the key in a batch's metadata."""

UNANSWERED = frozenset({"batch_expired", "batch_cancelled", "batch_canceled", "expired", "canceled", "cancelled"})
"""Codes of lines that the batch did not answer, because it ended before."""
FULL = frozenset({"token_limit_exceeded", "enqueued_token_limit_exceeded", "rate_limit_exceeded"})
"""Codes of a batch that failed because the key has too much in unfinished batches."""

STATUSES: dict[ErrorCategory, int] = {
    ErrorCategory.INVALID_ARG: 400,
    ErrorCategory.CONTENT_FILTER: 400,
    ErrorCategory.AUTH: 401,
    ErrorCategory.NOT_FOUND: 404,
    ErrorCategory.RATE_LIMIT: 429,
}
"""Category of a line's error → its HTTP status, where the line has none. Any other error may pass: 500."""

PROBLEM_LIMIT = 500


FILES = BatchFiles(
    path="/files",
    kind="multipart/form-data",
    parts=(
        'Content-Disposition: form-data; name="purpose"\r\n\r\nbatch',
        'Content-Disposition: form-data; name="file"; filename="{}"\r\nContent-Type: application/jsonl',
    ),
    all="/files?purpose=batch&order=desc&limit=100",
    one="/files/{}",
    members=("data", "filename", "id"),
)


class OpenRouter(BatchInterface):
    """OpenRouter's interface: the lines are in the request, and the results in the state of a completed batch.

    It keeps no metadata, and a batch cannot be cancelled.
    """

    terms: BatchTerms = BatchTerms(
        lines=50_000,
        bytes=20_000_000,
        prior=((0.5, 420.0), (0.9, HOUR), (0.99, 8 * HOUR), (1.0, 24 * HOUR)),
        stop=math.inf,
    )
    paths: ClassVar[BatchPaths] = BatchPaths(
        batches="/batches?limit=100",
        after="after",
        one="/batches/{}",
        cancel="/batches/{}/cancel",
        results="/files/{}/content",
    )
    endpoints: ClassVar[dict[str, str]] = {"/chat/completions": "/v1/chat/completions", "/responses": "/v1/responses"}
    """The end of a live request's path → the endpoint in a batch."""

    def takes(self, group: BatchGroup) -> bool:
        return _end(group.path) in self.endpoints and not group.headers

    def line(self, id: str, body: bytes, group: BatchGroup) -> bytes:
        return b'{"custom_id":%b,"body":%b}' % (dumps(id), body)

    def create(self, key: str, lines: Sequence[bytes], file: str | None, group: BatchGroup) -> WireRequest:
        # The server reads the body as it comes, so the requests are last.
        head = dumps({"endpoint": self.endpoints[_end(group.path)], "model": group.model, "completion_window": "24h"})
        return self._post("/batches", b'%b,"requests":[%b]}' % (head[:-1], b",".join(lines)))

    def state(self, body: JSONObject) -> BatchState:
        status, counts = string(body, "status") or "", mapping(body, "request_counts")
        errors = objects(mapping(body, "errors"), "data") or [mapping(body, "error")]
        files = (string(body, name) for name in ("output_file_id", "error_file_id"))
        return BatchState(
            string(body, "id") or "",
            status,
            status in ENDED,
            done=count(counts.get("completed")) + count(counts.get("failed")),
            answered=count(counts.get("completed")),
            total=count(counts.get("total")),
            key=string(mapping(body, "metadata"), METADATA),
            created=_time(body.get("created_at")),
            results=tuple(file for file in files if file),
            lines=objects(body, "results"),
            problem=_problem(errors) if status == "failed" else "",
            bad_lines=tuple(line for error in errors if (line := integer(error, "line"))),
            is_full=any(string(error, "code") in FULL for error in errors),
        )

    def result(self, value: JSONObject) -> BatchResult | None:
        id = string(value, "custom_id")
        if id is None:
            return None
        response, error = mapping(value, "response"), mapping(value, "error")
        body, status = response.get("body"), status_of(response, "status_code")
        request_id = string(response, "request_id")
        code = string(error, "code") or string(error, "type") or ""
        if type(body) is dict and status >= 400:
            inner = mapping(body, "error")
            code = string(inner, "type") or string(inner, "code") or code
        if code in UNANSWERED or (not status and not error):
            return BatchResult(id, 0, (string(error, "message") or code or "the line has no answer").encode())
        if error and not 200 <= status < 300 and type(body) is not dict:
            category = error_from_object(error, http_status=0, body=b"").category
            return BatchResult(
                id,
                status if status >= 400 else STATUSES.get(category, 500),
                received_dumps({"error": error}),
                request_id,
            )
        return BatchResult(id, status, received_dumps(body), request_id)


class OpenAI(OpenRouter):
    """OpenAI's interface: a file of lines is uploaded, and the results are files."""

    terms: BatchTerms = BatchTerms(
        lines=50_000,
        bytes=200_000_000,
        prior=((0.25, 900.0), (0.5, HOUR), (0.9, 8 * HOUR), (0.99, 24 * HOUR)),
        stop=600.0,
    )
    keeps_key: ClassVar[bool] = True

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider, FILES)

    def line(self, id: str, body: bytes, group: BatchGroup) -> bytes:
        url = self.endpoints[_end(group.path)]
        return b'{"custom_id":%b,"method":"POST","url":%b,"body":%b}' % (dumps(id), dumps(url), body)

    def create(self, key: str, lines: Sequence[bytes], file: str | None, group: BatchGroup) -> WireRequest:
        body: JSONObject = {
            "input_file_id": file,
            "endpoint": self.endpoints[_end(group.path)],
            "completion_window": "24h",
            "metadata": {METADATA: key},
        }
        return self._post("/batches", dumps(body))


class Azure(OpenAI):
    """Azure's: OpenAI's, with other names of the endpoints."""

    terms: BatchTerms = replace(OpenAI.terms, lines=100_000)
    endpoints: ClassVar[dict[str, str]] = {"/chat/completions": "/chat/completions", "/responses": "/v1/responses"}


def _end(path: str) -> str:
    """Return the end of a live request's path, which names the endpoint: a deployment's name may be before it."""
    return path if not path.endswith("/chat/completions") else "/chat/completions"


def _time(value: JSON) -> float | None:
    return float(value) if type(value) is int or type(value) is float else None


def _problem(errors: Sequence[JSONObject]) -> str:
    found = "; ".join(dict.fromkeys(string(error, "message") or string(error, "code") or "" for error in errors))
    return found[:PROBLEM_LIMIT] or "the batch failed"
