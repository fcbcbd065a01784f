"""OpenAI's batches: an uploaded file of lines becomes a file of answers and one of errors. OpenRouter's: both inline.

`POST /v1/files`, `/v1/batches`, and what can be done with each; Azure has the same below `/openai/v1` and `/openai`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..http_server import HTTPRequest
from .batches import Batches, Job, Line, Lines, Reply, StoredFile, form_parts, json_reply, page_of
from .json_text import JSON, JSONObject, dumps, loads_object, mapping, objects, raw_json, string
from .openai_chat import UNKNOWN_URL, OpenAIChatWire
from .prompt import APIError
from .wire import Wire, body_object

LONGEST_BATCH = 50_000
ENDPOINTS = ("/v1/responses", "/v1/chat/completions")
ROUTED_ENDPOINTS = (*ENDPOINTS, "/v1/messages")
WINDOWS = ("24h",)
METADATA_PAIRS, METADATA_NAME, METADATA_VALUE = 16, 64, 512
TIMES = {
    "in_progress": "in_progress_at", "finalizing": "finalizing_at", "completed": "completed_at", "failed": "failed_at",
    "expired": "expired_at", "cancelling": "cancelling_at", "cancelled": "cancelled_at",
}  # fmt: skip
"""Phase → the member that says when it began."""

UNANSWERED = {
    "expired": ("batch_expired", "This request could not be executed before the completion window expired."),
    "cancelled": ("batch_cancelled", "This request was not executed because the batch was cancelled."),
}
"""Last phase of the batch → code and message of a line that has no answer."""

FILE_ERRORS: dict[str, tuple[str, str | None]] = {
    "invalid_json_line": ("This line is not parseable as valid JSON.", None),
    "missing_required_parameter": ("Missing required parameter: 'custom_id'.", "custom_id"),
    "duplicate_custom_id": ("The custom_id for this request is a duplicate of another request.", "custom_id"),
    "invalid_method": ("The method of a request must be POST.", "method"),
    "url_mismatch": ("The URL of a request must be the endpoint of the batch.", "url"),
    "model_mismatch": ("All requests of a batch must have the same model.", "body.model"),
    "empty_batch": ("The file holds no request.", None),
    "too_many_tasks": (f"The file holds more than {LONGEST_BATCH} requests.", None),
    "token_limit_exceeded": ("Enqueued token limit reached. Please try again once other batches have ended.", None),
}
"""Code of an error of an uploaded file → its message and the member that is wrong."""

_NAME = re.compile(rb'[; ]name="([^"]*)"')
_FILE_NAME = re.compile(rb'filename="([^"]*)"')


class OpenAIBatches(Batches):
    """Answers the requests of `/v1/files` and `/v1/batches`."""

    wire: Wire = OpenAIChatWire()

    def reply(self, request: HTTPRequest, key: str) -> Reply:
        self.wire.check_headers(request)
        _, _, kind, *rest = request.path.split("/")
        if kind == "files":
            return self._file(request, rest, key)
        match (request.method, *rest):
            case ("POST",):
                return json_reply(self._shown(self._create(request, key)))
            case ("GET",):
                return self._list(request, key)
            case "GET", id:
                return json_reply(self._shown(self._find(id, key)))
            case "POST", id, "cancel":
                job = self._find(id, key)
                phase = job.phase(self._store.now)
                if job.has_ended(self._store.now):
                    raise APIError(409, f"Cannot cancel a batch with status '{phase}'.", code="")
                self._store.cancel(job)
                return json_reply(self._shown(job, phase="cancelling"))
            case _:
                raise APIError(404, f"Invalid URL ({request.method} {request.path})", code=UNKNOWN_URL)

    def _file(self, request: HTTPRequest, rest: list[str], key: str) -> Reply:
        match (request.method, *rest):
            case ("POST",):
                return json_reply(_file_shown(self._upload(request, key)))
            case ("GET",):
                purpose = request.query.get("purpose", "")
                files = [file for file in self._store.files.values()
                         if file.key == key and (not purpose or file.members["purpose"] == purpose)]  # fmt: skip
                if request.query.get("order") != "asc":
                    files.reverse()
                page, more = page_of(files, request.query, usual=10_000, most=10_000)
                return _list_reply([file.id for file in page], [_file_shown(file) for file in page], more)
            case _:
                id = "".join(rest[:1])
        file = self._store.file(id, key)
        if file is None:
            raise APIError(404, f"No such File object: {id}", param="id", code="")
        match (request.method, *rest[1:]):
            case ("GET",):
                return json_reply(_file_shown(file))
            case "GET", "content":
                return Reply(file.data, headers=[("content-type", "application/octet-stream")])
            case ("DELETE",):
                del self._store.files[id]
                return json_reply({"id": id, "object": "file", "deleted": True})
            case _:
                raise APIError(404, f"Invalid URL ({request.method} {request.path})", code=UNKNOWN_URL)

    def _upload(self, request: HTTPRequest, key: str) -> StoredFile:
        parts: dict[str, tuple[bytes, str]] = {}
        for head, content in form_parts(request):
            named, file_name = _NAME.search(head), _FILE_NAME.search(head)
            if named is not None:
                text = file_name[1].decode("utf-8", "replace") if file_name else ""
                parts[named[1].decode("utf-8", "replace")] = content, text
        if "file" not in parts or "purpose" not in parts:
            missing = "file" if "file" not in parts else "purpose"
            raise APIError(400, f"Missing required parameter: '{missing}'.", param=missing)
        data, name = parts["file"]
        lives = parts.get("expires_after[seconds]", (b"", ""))[0]
        expires = int(self._store.wall) + int(lives) if lives.isdigit() and len(lives) < 12 else None
        purpose = parts["purpose"][0].decode("utf-8", "replace")
        return self._store.keep(
            "file-" + self._store.new_id(), key, data, {"filename": name, "purpose": purpose, "expires_at": expires}
        )

    def _create(self, request: HTTPRequest, key: str) -> Job:
        body, store = body_object(request), self._store
        for name in ("input_file_id", "endpoint", "completion_window"):
            if not string(body, name):
                raise APIError(400, f"Missing required parameter: '{name}'.", param=name)
        endpoint = string(body, "endpoint")
        if _live_path(endpoint) not in ENDPOINTS:
            raise APIError(400, f"Invalid value: '{endpoint}'. Supported values are: {ENDPOINTS}.", param="endpoint")
        if string(body, "completion_window") not in WINDOWS:
            raise APIError(400, f"Invalid value: supported values are: {WINDOWS}.", param="completion_window")
        metadata = mapping(body, "metadata")
        _check_metadata(metadata)
        file = store.file(string(body, "input_file_id"), key)
        if file is None or file.members["purpose"] != "batch":
            raise APIError(
                400, f"No such File object for a batch: {body['input_file_id']}", param="input_file_id", code=""
            )
        lines, errors = _lines(file.data, request, endpoint)
        if store.is_full_for(key, len(lines)):
            errors = [_file_error("token_limit_exceeded")]
        kept: JSONObject = {
            "endpoint": endpoint, "input_file_id": file.id, "completion_window": string(body, "completion_window"),
            "metadata": metadata or None, "output_file_id": None, "error_file_id": None,
        }  # fmt: skip
        return store.create("openai", "batch_" + store.new_id(32), key, lines, errors, kept)

    def _find(self, id: str, key: str) -> Job:
        job = self._store.find("openai", id, key)
        if job is None:
            raise APIError(404, f"No batch found with id '{id}'.", code="")
        return job

    def _list(self, request: HTTPRequest, key: str) -> Reply:
        page, more = page_of(self._store.jobs("openai", key), request.query)
        return _list_reply([job.id for job in page], [self._shown(job) for job in page], more)

    def _shown(self, job: Job, phase: str = "") -> JSONObject:
        """The batch as the service shows it. phase: the present one, where a request has just begun it."""
        store = self._store
        answered, times = store.answered(job), job.times(store.now)
        phase = phase or [*times][-1]
        ended = job.has_ended(store.now)
        if ended and "written" not in job.members:
            job.members["written"] = True
            self._write(job, answered, phase)
        valid = phase not in ("validating", "failed")
        shown: JSONObject = {"id": job.id, "object": "batch", "endpoint": job.members["endpoint"]}
        shown["model"] = string(loads_object(job.lines[0].request.body), "model") if valid and job.lines else None
        shown["errors"] = {"object": "list", "data": [*job.errors]} if job.errors and ended else None
        shown |= {name: job.members[name] for name in job.members if name not in ("endpoint", "written")}
        shown |= {"status": phase, "created_at": int(job.created), "expires_at": int(job.created + job.expires)}
        shown |= {member: int(job.created + times[name]) if name in times else None for name, member in TIMES.items()}
        shown["request_counts"] = _counts(job, answered, valid=valid)
        shown["usage"] = _usage(answered if ended else [])
        if phase == "cancelling" and shown["cancelling_at"] is None:
            shown["cancelling_at"] = int(store.wall)
        return shown

    def _write(self, job: Job, answered: list[Line], phase: str) -> None:
        """Write the files of answers and errors."""
        good = [_result(line) for line in answered if line.answered and not line.answered.is_error]
        bad = [_result(line) for line in answered if line.answered and line.answered.is_error]
        if phase in UNANSWERED:
            bad += [_result(line, UNANSWERED[phase]) for line in job.lines if line.answered is None]
        for member, results, purpose in (("output_file_id", good, "output"), ("error_file_id", bad, "error")):
            if not results:
                continue
            name = f"{job.id}_{purpose}.jsonl"
            data = b"".join(dumps(result) + b"\n" for result in results)
            members: JSONObject = {"filename": name, "purpose": "batch_output", "expires_at": None}
            job.members[member] = self._store.keep("file-" + self._store.new_id(), job.key, data, members).id


class OpenRouterBatches(Batches):
    """Answers the requests of `/api/v1/batches`. A batch has its results inline, and only once it is complete."""

    wire: Wire = OpenAIChatWire()

    def reply(self, request: HTTPRequest, key: str) -> Reply:
        self.wire.check_headers(request)
        store, query, rest = self._store, request.query, request.path.split("/")[4:]
        match (request.method, *rest):
            case ("POST",):
                return json_reply(self._shown(self._create(request, key)), 202)
            case ("GET",):
                jobs = [job for job in store.jobs("openrouter", key)
                        if query.get("status", "") in ("", job.phase(store.now))]  # fmt: skip
                page, more = page_of(jobs, query)
                shown = [{**self._shown(job), "results": None} for job in page]
                return _list_reply([job.id for job in page], shown, more)
            case (("GET" | "DELETE"), id):
                job = store.find("openrouter", id, key)
                if job is None:
                    raise APIError(404, f"Batch {id} not found", code="")
                if request.method == "DELETE":
                    if not job.has_ended(store.now):
                        raise APIError(409, f"Batch {id} has not ended", code="")
                    store.forget(job)
                    return json_reply({"id": id, "object": "batch", "deleted": True})
                return json_reply(self._shown(job))
            case _:
                raise APIError(404, f"Invalid URL ({request.method} {request.path})", code=UNKNOWN_URL)

    def _create(self, request: HTTPRequest, key: str) -> Job:
        body, store = body_object(request), self._store
        endpoint, model, requests = string(body, "endpoint"), string(body, "model"), objects(body, "requests")
        if [*body][-1:] != ["requests"] or not requests or not model:
            raise APIError(400, "'endpoint' and 'model' must stand before 'requests', which must not be empty")
        if endpoint not in ROUTED_ENDPOINTS:
            raise APIError(400, f"endpoint: must be one of {ROUTED_ENDPOINTS}")
        if string(body, "completion_window") not in ("", *WINDOWS):
            raise APIError(400, f"completion_window: must be one of {WINDOWS}")
        lines, ids, errors = Lines(request), set[str](), list[JSONObject]()
        for place, line in enumerate(requests):
            id, asked = string(line, "custom_id"), mapping(line, "body")
            if not id or id in ids:
                raise APIError(400, f"requests.{place}.custom_id: must be a text that no other request has")
            if asked.get("model", model) != model:
                raise APIError(400, f"requests.{place}.body.model: must be the model of the batch")
            if asked.get("stream") is True:
                errors.append({"code": 400, "message": f"requests.{place}.body.stream: is not supported"})
            ids.add(id)
            lines.add(id, endpoint, {**asked, "model": model})
        if store.is_full_for(key, len(lines.lines)):
            raise APIError(429, "Too many requests are in unfinished batches.")
        members: JSONObject = {"endpoint": endpoint, "model": model, "completion_window": "24h"}
        return store.create("openrouter", "batch_" + store.new_id(), key, lines.lines, errors, members)

    def _shown(self, job: Job) -> dict[str, object]:
        store = self._store
        answered, times = store.answered(job), job.times(store.now)
        phase = [*times][-1]
        complete, ended = phase == "completed", job.has_ended(store.now)
        usage: JSONObject = {
            {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}.get(name, name): value
            for name, value in _usage(answered).items()
            if isinstance(value, int)
        }
        return {
            "id": job.id, "object": "batch", **job.members, "status": phase, "created_at": int(job.created),
            "finalized_at": int(job.created + times[phase]) if ended else None,
            "request_counts": _counts(job, answered, valid=phase != "validating"),
            "usage": usage if complete else None,
            "results": [_result(line) for line in answered] if complete else None,
            "error": job.errors[0] if job.errors and ended else None,
        }  # fmt: skip


def _counts(job: Job, answered: list[Line], *, valid: bool) -> JSONObject:
    failed = sum(1 for line in answered if line.answered and line.answered.is_error)
    return {"total": len(job.lines) if valid else 0, "completed": len(answered) - failed, "failed": failed}


def _usage(answered: list[Line]) -> JSONObject:
    """The tokens of all answers."""
    usages = [line.answered.usage for line in answered if line.answered and line.answered.usage]
    read, written = sum(usage.input_tokens for usage in usages), sum(usage.output_tokens for usage in usages)
    return {
        "input_tokens": read, "output_tokens": written, "total_tokens": read + written,
        "input_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in usages)},
        "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip


def _result(line: Line, error: tuple[str, str] | None = None) -> dict[str, object]:
    """A line of a file of results. error: code and message of a line that was not answered."""
    response: object = None
    if line.answered is not None:
        body = raw_json(line.answered.body)
        response = {"status_code": line.answered.status, "request_id": f"req_{line.id}", "body": body}
    failure: JSON = None if error is None else {"code": error[0], "message": error[1]}
    return {"id": f"batch_req_{line.id}", "custom_id": line.id, "response": response, "error": failure}


def _lines(data: bytes, request: HTTPRequest, endpoint: str) -> tuple[list[Line], list[JSONObject]]:
    """The lines of an uploaded file, and what is wrong with them."""
    lines, errors, ids, models = Lines(request), list[JSONObject](), set[str](), set[str]()
    for number, text in enumerate(data.splitlines(), 1):
        if not text.strip():
            continue
        line = loads_object(text)
        id, body = string(line, "custom_id"), mapping(line or {}, "body")
        models.add(string(body, "model"))
        url, method = _live_path(string(line, "url")), string(line, "method")
        wrong = {
            "invalid_json_line": line is None,
            "missing_required_parameter": not id,
            "duplicate_custom_id": id in ids,
            "invalid_method": method != "POST",
            "url_mismatch": url != _live_path(endpoint),
            "model_mismatch": len(models) > 1,
        }
        errors += [_file_error(code, number) for code, is_wrong in wrong.items() if is_wrong][:1]
        ids.add(id)
        lines.add(id, url, body)
    if not lines.lines:
        errors.append(_file_error("empty_batch"))
    if len(lines.lines) > LONGEST_BATCH:
        errors.append(_file_error("too_many_tasks"))
    return lines.lines, errors


def _file_error(code: str, line: int | None = None) -> JSONObject:
    message, param = FILE_ERRORS[code]
    return {"code": code, "message": message, "param": param, "line": line}


def _live_path(endpoint: str) -> str:
    """The path of the live request. Azure leaves `/v1` out."""
    return "/v1" + endpoint.removeprefix("/v1")


def _check_metadata(metadata: JSONObject) -> None:
    for name, value in metadata.items():
        if len(metadata) > METADATA_PAIRS or len(name) > METADATA_NAME:
            raise APIError(400, "metadata: at most 16 pairs, with names of at most 64 characters", param="metadata")
        if not isinstance(value, str) or len(value) > METADATA_VALUE:
            raise APIError(400, f"metadata.{name}: must be a text of at most 512 characters", param="metadata")


def _file_shown(file: StoredFile) -> JSONObject:
    return {
        "id": file.id, "object": "file", "bytes": len(file.data), "created_at": int(file.created), **file.members,
        "status": "processed", "status_details": None,
    }  # fmt: skip


def _list_reply(ids: list[str], shown: Sequence[object], more: bool) -> Reply:
    first, last = (ids[0], ids[-1]) if ids else (None, None)
    return json_reply({"object": "list", "data": shown, "first_id": first, "last_id": last, "has_more": more})
