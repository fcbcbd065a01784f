"""The batch interfaces of OpenAI, Azure and OpenRouter.

developers.openai.com/api/docs/guides/batch; learn.microsoft.com/azure/foundry/openai/how-to/batch;
openrouter.ai/docs/batch-quickstart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

from ..catalog.batches import (
    UPLOADED,
    BatchGroup,
    BatchInterface,
    BatchResult,
    BatchState,
    BatchTerms,
    count,
    later_page,
    status_of,
)
from ..catalog.dialect import WireRequest
from ..json.json_values import JSON, JSONObject, dumps, integer, mapping, objects, string

HOUR = 3600.0

ENDED = frozenset({"completed", "failed", "expired", "cancelled"})


@dataclass(slots=True, frozen=True)
class Window:
    """A window of OpenAI's Responses: an answer that may take so long costs less.

    name: the provider's word.
    seconds: its length.
    price: a part of the list price.
    """

    name: str
    seconds: float
    price: float


WINDOWS = (Window("8h", 8 * HOUR, 0.6), Window("2h", 2 * HOUR, 0.7))

METADATA = "manystream_batch"
"""The name of the key in a batch's metadata."""

UNANSWERED = frozenset({"batch_expired", "batch_cancelled", "batch_canceled", "expired", "canceled", "cancelled"})
"""Codes of lines that the batch did not answer, because it ended before."""
FULL = frozenset({"token_limit_exceeded", "enqueued_token_limit_exceeded", "rate_limit_exceeded"})
"""Codes of a batch that failed because the key has too much in unfinished batches."""

PROBLEM_LIMIT = 500


class _Lines(BatchInterface):
    """What the three have in common: the form of a result."""

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
            return BatchResult(id, status if status >= 400 else 500, dumps({"error": error}), request_id)
        return BatchResult(id, status, dumps(body), request_id)


class OpenAI(_Lines):
    """OpenAI's interface: a file of lines is uploaded, and the results are files."""

    terms: ClassVar[BatchTerms] = BatchTerms(
        lines=50_000,
        bytes=200_000_000,
        prior=((0.25, 900.0), (0.5, HOUR), (0.9, 8 * HOUR), (0.99, 24 * HOUR)),
        stop=600.0,
    )
    has_files: ClassVar[bool] = True
    keeps_key: ClassVar[bool] = True
    paths: ClassVar[dict[str, str]] = {"/chat/completions": "/v1/chat/completions", "/responses": "/v1/responses"}
    """The end of a live request's path → the endpoint in a batch."""

    def takes(self, group: BatchGroup) -> bool:
        return _end(group.path) in self.paths and not group.headers

    def line(self, id: str, body: bytes, group: BatchGroup) -> bytes:
        url = self.paths[_end(group.path)]
        return b'{"custom_id":%b,"method":"POST","url":%b,"body":%b}' % (dumps(id), dumps(url), body)

    def upload(self, key: str, lines: Sequence[bytes]) -> WireRequest:
        mark = f"manystream-{key}"
        parts = [
            f'--{mark}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{UPLOADED.format(key)}"\r\n'
            "Content-Type: application/jsonl\r\n\r\n".encode(),
            b"\n".join(lines),
            f"\n\r\n--{mark}--\r\n".encode(),
        ]
        return self._post("/files", b"".join(parts), [("content-type", f"multipart/form-data; boundary={mark}")])

    def list_files(self) -> WireRequest:
        return self._get("/files?purpose=batch&order=desc&limit=100")

    def file_of(self, body: JSONObject, key: str) -> str | None:
        name = UPLOADED.format(key)
        return next((string(file, "id") for file in objects(body, "data") if file.get("filename") == name), None)

    def delete_file(self, file: str) -> WireRequest:
        wire = self._get(f"/files/{quote(file, safe='')}")
        wire.method = "DELETE"
        return wire

    def create(self, key: str, lines: Sequence[bytes], file: str | None, group: BatchGroup) -> WireRequest:
        body: JSONObject = {
            "input_file_id": file,
            "endpoint": self.paths[_end(group.path)],
            "completion_window": "24h",
            "metadata": {METADATA: key},
        }
        return self._post("/batches", dumps(body))

    def read(self, id: str) -> WireRequest:
        return self._get(f"/batches/{quote(id, safe='')}")

    def cancel(self, id: str) -> WireRequest:
        return self._post(f"/batches/{quote(id, safe='')}/cancel", b"")

    def list(self, after: str | None) -> WireRequest:
        return self._get(f"/batches?limit=100{_after(after)}")

    def read_list(self, body: JSONObject) -> tuple[Sequence[BatchState], str | None]:
        found = [self.state(batch) for batch in objects(body, "data")]
        last = later_page(body) or (found[-1].id if found and body.get("has_more") is True else None)
        return found, last

    def state(self, body: JSONObject) -> BatchState:
        status, counts = string(body, "status") or "", mapping(body, "request_counts")
        errors = objects(mapping(body, "errors"), "data")
        files = (string(body, name) for name in ("output_file_id", "error_file_id"))
        return BatchState(
            string(body, "id") or "",
            status,
            status in ENDED,
            done=count(counts.get("completed")) + count(counts.get("failed")),
            total=count(counts.get("total")),
            key=string(mapping(body, "metadata"), METADATA),
            created=_time(body.get("created_at")),
            results=tuple(file for file in files if file),
            problem=_problem(errors) if status == "failed" else "",
            bad_lines=tuple(line for error in errors if (line := integer(error, "line"))),
            is_full=any(string(error, "code") in FULL for error in errors),
        )

    def results(self, name: str) -> WireRequest:
        return self._get(f"/files/{quote(name, safe='')}/content")


class Azure(OpenAI):
    """Azure's: OpenAI's, with other names of the endpoints."""

    terms: ClassVar[BatchTerms] = BatchTerms(
        lines=100_000, bytes=200_000_000, prior=OpenAI.terms.prior, stop=OpenAI.terms.stop
    )
    paths: ClassVar[dict[str, str]] = {"/chat/completions": "/chat/completions", "/responses": "/v1/responses"}


class OpenRouter(_Lines):
    """OpenRouter's interface: the lines are in the request, and the results in the state of a completed batch.

    It keeps no metadata, and a batch cannot be cancelled.
    """

    terms: ClassVar[BatchTerms] = BatchTerms(
        lines=50_000,
        bytes=20_000_000,
        prior=((0.5, 420.0), (0.9, HOUR), (0.99, 8 * HOUR), (1.0, 24 * HOUR)),
        stop=math.inf,
    )
    paths: ClassVar[dict[str, str]] = OpenAI.paths

    def takes(self, group: BatchGroup) -> bool:
        return _end(group.path) in self.paths and not group.headers

    def line(self, id: str, body: bytes, group: BatchGroup) -> bytes:
        return b'{"custom_id":%b,"body":%b}' % (dumps(id), body)

    def create(self, key: str, lines: Sequence[bytes], file: str | None, group: BatchGroup) -> WireRequest:
        # The server reads the body as it comes, so the requests are last.
        head = dumps({"endpoint": self.paths[_end(group.path)], "model": group.model, "completion_window": "24h"})
        return self._post("/batches", b'%b,"requests":[%b]}' % (head[:-1], b",".join(lines)))

    def read(self, id: str) -> WireRequest:
        return self._get(f"/batches/{quote(id, safe='')}")

    def cancel(self, id: str) -> WireRequest:
        raise AssertionError("a batch of OpenRouter cannot be cancelled")

    def list(self, after: str | None) -> WireRequest:
        return self._get(f"/batches?limit=100{_after(after)}")

    def read_list(self, body: JSONObject) -> tuple[Sequence[BatchState], str | None]:
        return [self.state(batch) for batch in objects(body, "data")], later_page(body)

    def state(self, body: JSONObject) -> BatchState:
        status, counts, error = string(body, "status") or "", mapping(body, "request_counts"), mapping(body, "error")
        return BatchState(
            string(body, "id") or "",
            status,
            status in ENDED,
            done=count(counts.get("completed")) + count(counts.get("failed")),
            total=count(counts.get("total")),
            created=_time(body.get("created_at")),
            problem=(string(error, "message") or "the batch failed")[:PROBLEM_LIMIT] if status == "failed" else "",
        )

    def inline_results(self, body: JSONObject) -> Iterator[BatchResult]:
        return filter(None, map(self.result, objects(body, "results")))


def _end(path: str) -> str:
    """Return the end of a live request's path, which names the endpoint: a deployment's name may be before it."""
    return path if not path.endswith("/chat/completions") else "/chat/completions"


def _after(after: str | None) -> str:
    return "" if after is None else f"&after={quote(after, safe='')}"


def _time(value: JSON) -> float | None:
    return float(value) if type(value) is int or type(value) is float else None


def _problem(errors: Sequence[JSONObject]) -> str:
    found = "; ".join(dict.fromkeys(string(error, "message") or string(error, "code") or "" for error in errors))
    return found[:PROBLEM_LIMIT] or "the batch failed"
