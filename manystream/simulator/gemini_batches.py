"""Gemini's batches: `:batchGenerateContent` and `/v1beta/batches`, with requests inline or in a file, and those files.

A file is uploaded in one request (`X-Goog-Upload-Protocol: multipart`), or with Google's resumable protocol: a first
request gets an address, to which the bytes go in pieces.
"""

from __future__ import annotations

import base64
import hashlib

from ..http_server import HTTPRequest
from .batches import (
    DAY,
    Batches,
    Job,
    JobStore,
    Line,
    Lines,
    Reply,
    StoredFile,
    form_parts,
    json_reply,
    page_of,
    time_text,
)
from .gemini import GeminiWire
from .json_text import JSON, JSONObject, dumps, integer, loads_object, mapping, objects, raw_json, string
from .prompt import APIError
from .wire import Wire, body_object

TYPE = "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch"
STATES = {
    "validating": "PENDING", "completed": "SUCCEEDED", "failed": "FAILED", "cancelled": "CANCELLED",
    "expired": "EXPIRED",
}  # fmt: skip
"""Phase → state, without its `BATCH_STATE_`. That of all others is `RUNNING`."""

RPC_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 429: 8, 500: 13, 503: 14, 504: 4}
"""HTTP status → code of Google's RPC errors."""

CANCELLED: JSONObject = {"code": 1, "message": "The operation was cancelled."}
FAILURES: dict[str, JSONObject] = {
    "failed": {"code": 13, "message": "The batch failed."},
    "expired": {"code": 4, "message": "The batch expired."},
}
"""Last phase of a batch without results → its error."""


class GeminiBatches(Batches):
    """Answers the requests of `/v1beta/batches`, `/v1beta/files`, and those that create either."""

    wire: Wire = GeminiWire()

    def __init__(self, store: JobStore) -> None:
        super().__init__(store)
        self._uploads: dict[str, tuple[str, bytearray, JSONObject, str]] = {}

    def reply(self, request: HTTPRequest, key: str) -> Reply:
        upload = request.query.get("upload_id", "")
        if upload in self._uploads:  # whose first request had the key
            return self._receive(request, upload)
        self.wire.check_headers(request)
        path = request.path.removeprefix("/upload").removeprefix("/download")
        _, _, kind, *rest = path.split("/")
        id, _, action = "/".join(rest).partition(":")
        if action == "batchGenerateContent" and request.method == "POST":
            return json_reply(self._shown(self._create(request, f"{kind}/{id}", key)))
        if request.method == "POST" and path != request.path and not rest:
            return self._start(request, key)
        if request.method == "GET" and not rest:
            return self._list(request, kind, key)
        found: Job | StoredFile | None = self._store.file(f"files/{id}", key)
        if kind == "batches":
            found = self._store.find("gemini", f"batches/{id}", key)
        if found is None:
            raise APIError(404, f"Requested entity was not found: {kind}/{id}")
        return self._one(found, (request.method, action))

    def _one(self, found: Job | StoredFile, asked: tuple[str, str]) -> Reply:
        store = self._store
        match found, asked:
            case Job() as job, ("GET", ""):
                return json_reply(self._shown(job))
            case Job() as job, ("POST", "cancel"):
                if job.has_ended(store.now):
                    raise APIError(400, f"{job.id} has ended", code="FAILED_PRECONDITION")
                store.cancel(job)
            case Job() as job, ("DELETE", ""):
                store.forget(job)
            case StoredFile() as file, ("GET", ""):
                return json_reply(_file_shown(file))
            case StoredFile() as file, ("GET", "download"):
                if file.members["source"] != "GENERATED":
                    raise APIError(400, f"{file.id} was uploaded: it has no download", code="FAILED_PRECONDITION")
                return Reply(file.data, headers=[("content-type", "application/octet-stream")])
            case StoredFile() as file, ("DELETE", ""):
                del store.files[file.id]
            case _:
                raise APIError(404, f"{found.id} does not support this method")
        return json_reply({})

    def _list(self, request: HTTPRequest, kind: str, key: str) -> Reply:
        store, names = self._store, "pageToken pageSize"
        if kind == "files":
            files = [file for file in store.files.values() if file.key == key]
            some, more = page_of(files, request.query, names, usual=10)
            reply: JSONObject = {"files": [_file_shown(file) for file in some]}
            last = some[-1].id if some else ""
        else:
            page, more = page_of(store.jobs("gemini", key), request.query, names, most=1000)
            reply = {"operations": [self._shown(job) for job in page]}
            last = page[-1].id if page else ""
        return json_reply(reply | ({"nextPageToken": last} if more else {}))

    def _start(self, request: HTTPRequest, key: str) -> Reply:
        """Begin an upload: the response has the address for the bytes."""
        headers, described, data = request.headers, request.body, b""
        if headers.get("x-goog-upload-protocol") == "multipart":
            parts = form_parts(request)
            if len(parts) != 2:
                raise APIError(400, "a multipart upload has two parts: the file's description, and its bytes")
            (_, described), (head, data) = parts
            headers = {**headers, "x-goog-upload-header-content-type": head.partition(b": ")[2].decode("latin-1")}
        asked = mapping(loads_object(described) or {}, "file")
        kind = headers.get("x-goog-upload-header-content-type") or string(asked, "mimeType")
        id, title = self._store.new_id(), string(asked, "displayName") or string(asked, "display_name")
        members: JSONObject = {"mimeType": kind, "source": "UPLOADED", **({"displayName": title} if title else {})}
        if data:
            file = self._store.keep(string(asked, "name") or f"files/{id[:12]}", key, data, members)
            return json_reply({"file": _file_shown(file)})
        self._uploads[id] = key, bytearray(), members, string(asked, "name")
        url = f"http://{headers.get('host', '')}/upload/v1beta/files?upload_id={id}&upload_protocol=resumable"
        return Reply(b"", headers=[("x-goog-upload-url", url), ("x-goog-upload-status", "active")])

    def _receive(self, request: HTTPRequest, upload: str) -> Reply:
        """Take bytes of an upload."""
        key, data, members, name = self._uploads[upload]
        offset = request.headers.get("x-goog-upload-offset", "0")
        if offset != str(len(data)):
            raise APIError(400, f"X-Goog-Upload-Offset: {offset} is not {len(data)}, the number of bytes so far")
        data += request.body
        if "finalize" not in request.headers.get("x-goog-upload-command", ""):
            return Reply(b"", headers=[("x-goog-upload-status", "active")])
        del self._uploads[upload]
        id = name or f"files/{self._store.new_id(12)}"
        reply = json_reply({"file": _file_shown(self._store.keep(id, key, bytes(data), members))})
        reply.headers.append(("x-goog-upload-status", "final"))
        return reply

    def _create(self, request: HTTPRequest, model: str, key: str) -> Job:
        store, lines = self._store, Lines(request)
        batch = mapping(body_object(request), "batch")
        source = mapping(batch, "inputConfig") or mapping(batch, "input_config")
        name = string(source, "fileName") or string(source, "file_name")
        requests: list[JSONObject] = objects(mapping(source, "requests"), "requests")
        if name:
            file = store.file(name, key)
            if file is None:
                raise APIError(404, f"Requested entity was not found: {name}")
            read = [loads_object(text) for text in file.data.splitlines() if text.strip()]
            requests = [line for line in read if line is not None]
            if len(requests) < len(read):
                raise APIError(400, f"{name}: each line must be a JSON object")
        if not requests:
            raise APIError(400, "batch.input_config: no requests")
        for one in requests:
            asked = mapping(one, "request")
            target = f"/v1beta/{string(asked, 'model') or model}:generateContent"
            lines.add(string(one, "key"), target, asked, mapping(one, "metadata"))
        if store.is_full_for(key, len(requests)):
            raise APIError(429, "")
        shown = string(batch, "displayName") or string(batch, "display_name")
        members: JSONObject = {"model": model, "displayName": shown, "file": name}
        return store.create("gemini", f"batches/{store.new_id(36)}", key, lines.lines, [], members)

    def _shown(self, job: Job) -> JSONObject:
        """The batch as the service shows it: an operation."""
        store = self._store
        answered, times = store.answered(job), job.times(store.now)
        phase = [*times][-1]
        ended = job.has_ended(store.now)
        failed = sum(1 for line in answered if line.answered and line.answered.is_error)
        counts = {"successful": len(answered) - failed, "failed": failed, "pending": len(job.lines) - len(answered)}
        if ended:
            counts |= {"failed": failed + counts["pending"], "pending": 0}
        stats: JSONObject = {"requestCount": str(len(job.lines))}
        stats |= {f"{name}RequestCount": str(count) for name, count in counts.items() if count}
        metadata: JSONObject = {
            "@type": TYPE, "model": job.members["model"], "displayName": job.members["displayName"],
            "createTime": time_text(job.created), "updateTime": time_text(job.created + times[phase]),
            "batchStats": stats, "state": f"BATCH_STATE_{STATES.get(phase, 'RUNNING')}", "name": job.id,
        }  # fmt: skip
        shown: JSONObject = {"name": job.id, "metadata": metadata}
        if not ended:
            return shown
        metadata["endTime"] = time_text(job.created + times[phase])
        shown["done"] = True
        if phase in FAILURES:
            shown["error"] = FAILURES[phase]
            return shown
        metadata["output"] = self._output(job, answered)
        shown["response"] = {"@type": TYPE + "Output", **mapping(metadata, "output")}
        return shown

    def _output(self, job: Job, answered: list[Line]) -> JSONObject:
        """The results: inline in the order of the requests, or a file in the order of the answers."""
        if not job.members["file"]:
            inline: list[object] = [{"metadata": line.metadata, **_answer(line)} for line in job.lines]
            return {"inlinedResponses": {"inlinedResponses": inline}}  # type: ignore[dict-item]  # with raw JSON
        if "responsesFile" not in job.members:
            results = ({"key": line.id, **_answer(line)} for line in [*answered, *job.left()])
            data = b"".join(dumps(result) + b"\n" for result in results)
            members: JSONObject = {"mimeType": "application/jsonl", "source": "GENERATED"}
            id = f"files/batch-{job.id.removeprefix('batches/')}"
            job.members["responsesFile"] = self._store.keep(id, job.key, data, members).id
        return {"responsesFile": job.members["responsesFile"]}


def _answer(line: Line) -> dict[str, object]:
    if line.answered is None:
        return {"error": CANCELLED}
    if not line.answered.is_error:
        return {"response": raw_json(line.answered.body)}
    error = mapping(loads_object(line.answered.body) or {}, "error")
    return {"error": {"code": RPC_CODES.get(integer(error, "code") or 500, 13), "message": string(error, "message")}}


def _file_shown(file: StoredFile) -> JSONObject:
    digest = base64.b64encode(hashlib.sha256(file.data).digest()).decode()
    made: JSON = time_text(file.created)
    uri = f"https://generativelanguage.googleapis.com/v1beta/{file.id}"
    return {
        **file.members, "name": file.id, "sizeBytes": str(len(file.data)), "createTime": made, "updateTime": made,
        "expirationTime": time_text(file.created + 2 * DAY), "sha256Hash": digest, "uri": uri, "state": "ACTIVE",
        **({"downloadUri": f"{uri}:download?alt=media"} if file.members["source"] == "GENERATED" else {}),
    }  # fmt: skip
