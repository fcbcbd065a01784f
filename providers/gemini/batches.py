"""Gemini's batch interface (ai.google.dev/api/batch-api). The batch's display name is its key."""

from __future__ import annotations

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
)
from ..catalog.dialect import WireRequest
from ..catalog.provider import Provider
from ..json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    dumps,
    integer,
    mapping,
    objects,
    received_dumps,
    shown,
    string,
)
from .path import API_VERSION, METHODS

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


INLINE_BYTES = 19_000_000
"""The most bytes of a request that has its lines in it: the limit is 20 MB."""

FILES = BatchFiles(
    path=f"/upload{API_VERSION}/files",
    kind="multipart/related",
    parts=(
        'Content-Type: application/json\r\n\r\n{{"file":{{"displayName":"{}"}}}}',
        "Content-Type: application/jsonl",
    ),
    headers=(("x-goog-upload-protocol", "multipart"),),
    all="/files?pageSize=100",
    one="/{}",
    members=("files", "displayName", "name"),
)


class Gemini(BatchInterface):
    """Gemini's interface: the lines are uploaded as a file, and the results are one.

    Below a base URL that has a version, such as that of a proxy, nothing can be uploaded: uploads have a path of their
    own before the version. Then the lines are in the request, and the results in the state of the batch.
    """

    terms: BatchTerms = BatchTerms(
        lines=50_000,
        bytes=2_000_000_000,
        prior=((0.25, 600.0), (0.5, 1800.0), (0.9, 6 * HOUR), (0.99, 24 * HOUR)),
        stop=300.0,
    )
    paths: ClassVar[BatchPaths] = BatchPaths(
        batches="/batches?pageSize=100",
        after="pageToken",
        one="/{}",
        cancel="/{}:cancel",
        cancel_body=b"{}",
        results="/{}:download?alt=media",
    )
    version: ClassVar[str] = API_VERSION
    keeps_key: ClassVar[bool] = True

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        if self._version:
            self.files: BatchFiles | None = FILES
        else:
            self.terms = replace(self.terms, bytes=INLINE_BYTES)

    def takes(self, group: BatchGroup) -> bool:
        return not group.headers and group.path.endswith(METHODS[False])

    def line(self, id: str, body: bytes, group: BatchGroup) -> bytes:
        if self.files is None:
            return b'{"request":%b,"metadata":{"key":%b}}' % (body, dumps(id))
        return b'{"key":%b,"request":%b}' % (dumps(id), body)

    def create(self, key: str, lines: Sequence[bytes], file: str | None, group: BatchGroup) -> WireRequest:
        path = group.path.removesuffix(METHODS[False]) + ":batchGenerateContent"
        source = b'"requests":{"requests":[%b]}' % b",".join(lines)
        if file is not None:
            source = b'"fileName":%b' % dumps(file)
        return self._post(path, b'{"batch":{"displayName":%b,"inputConfig":{%b}}}' % (dumps(NAME.format(key)), source))

    def read_list(self, body: JSONObject) -> tuple[Sequence[BatchState], str | None]:
        if "error" in body:  # a page without batches is an empty object
            raise MalformedJSONError(f"{shown(received_dumps(body))} is no list of batches")
        found = objects(body, "operations") or objects(body, "batches")
        return [self.state(batch) for batch in found], string(body, "nextPageToken") or None

    def state(self, body: JSONObject) -> BatchState:
        batch = mapping(body, "metadata") or body
        word, stats = string(batch, "state") or "", mapping(batch, "batchStats")
        status = word.partition("_STATE_")[2] or word
        total, name = count(stats.get("requestCount")), string(batch, "displayName") or ""
        error = mapping(body, "error")
        prefix = NAME.format("")
        output = mapping(body, "response") or mapping(batch, "output")  # it may be there twice
        file = string(output, "responsesFile") or string(mapping(body, "dest"), "fileName")
        return BatchState(
            string(body, "name") or "",
            word,
            status in ENDED or body.get("done") is True,
            done=max(0, count(stats.get("successfulRequestCount")) + count(stats.get("failedRequestCount"))),
            answered=count(stats.get("successfulRequestCount")),
            total=total,
            key=name.removeprefix(prefix) if name.startswith(prefix) else None,
            results=(file,) if file else (),
            lines=objects(mapping(output, "inlinedResponses"), "inlinedResponses"),
            problem=(string(error, "message") or "the batch failed") if status == "FAILED" else "",
            is_full=integer(error, "code") == FULL,
        )

    def result(self, value: JSONObject) -> BatchResult | None:
        id = string(value, "key") or string(mapping(value, "metadata"), "key")
        if id is None:
            return None
        error = mapping(value, "error") or mapping(value, "status")
        if not error:
            return BatchResult(id, 200, received_dumps(mapping(value, "response")))
        code = integer(error, "code") or 0
        message: JSON = string(error, "message") or "the line has no answer"
        if code in (CANCELLED, DEADLINE_EXCEEDED):
            return BatchResult(id, 0, str(message).encode())
        status, word = STATUSES.get(code, (500, "INTERNAL"))
        return BatchResult(id, status, received_dumps({"error": {"code": status, "message": message, "status": word}}))
