"""The batch interfaces of OpenAI (and Azure), OpenRouter, Anthropic and Gemini: their requests and responses.

`Batches` finds out what is asked of which batch or file. Its subclasses have what differs between the services: tables,
how a request that creates a batch is read, and how batches and files are shown.
"""

from __future__ import annotations

import abc
import base64
import datetime
import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from ..http_server import HTTPRequest
from .anthropic import AnthropicWire
from .batches import DAY, Item, Job, JobStore, Kept, Line, StoredFile
from .gemini import GeminiWire
from .json_text import JSON, JSONObject, dumps, integer, loads_object, mapping, raw_json, string
from .knobs import HEADER
from .openai_chat import UNKNOWN_URL, OpenAIChatWire
from .prompt import APIError
from .wire import Wire, body_object

ASKED = {
    "POST": "create", "GET": "list", "GET ID": "show", "DELETE ID": "delete", "POST ID cancel": "cancel",
    "GET ID results": "results", "GET ID content": "content", "GET ID download": "download",
}  # fmt: skip
"""Method, and what follows the name of a collection → what is asked of it, or of one of its items."""

_PLACE = re.compile(
    r"\A.*?/(?:(files|batches)(?:/([^/:]+))?(?:[/:](.+))?|\w+/[^/:]+:batchGenerateContent)\Z", re.DOTALL
)
_BOUNDARY = re.compile(r'boundary="?([^";]+)"?')
_NAME = re.compile(rb'[; ]name="([^"]*)"')
_FILENAME = re.compile(rb'[; ]filename="([^"]*)"')


class Reply(NamedTuple):
    """The response of a batch interface."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),)


class Collection(NamedTuple):
    """The batches or the files of an interface.

    offers: what can be asked of it: values of `ASKED`.
    usual, most: the usual and the largest number of items of a page.
    unknown: the message about an id that nothing has.
    """

    offers: str
    usual: int
    most: int
    unknown: str


def is_ended(item: Item) -> bool:
    return isinstance(item, Job) and item.ended


def is_running(item: Item) -> bool:
    return isinstance(item, Job) and not item.ended


Refusal: TypeAlias = tuple[Callable[[Item], bool], int, str, str]
"""When an item refuses what is asked of it; the status, the message (which the item formats) and the code."""


class Batches(abc.ABC):
    """One batch interface.

    service, wire: its name, and the dialect of its errors.
    collections: `batches` and perhaps `files`.
    paging: members of a query: the last item before the page, the first item after the page, and the number of items.
    filters: members of a query that the items of a list must have, too.
    newest_file_first: the order of a list of files; one of batches has the newest first.
    refusals: what can be asked → when it is refused.
    full: the message of the refusal to have more lines in batches; or the error of a batch that has them.
    deleted: the response to a deletion, beside the id; None: those to a deletion and a cancellation are empty.
    unknown_url: the code of the error for an unknown path.
    accepted: the HTTP status of the response to a creation.
    """

    service: str
    wire: Wire
    collections: Mapping[str, Collection]
    refusals: Mapping[str, Refusal]
    paging: tuple[str, str, str] = ("after", "", "limit")
    filters: tuple[str, ...] = ()
    newest_file_first: bool = True
    full: JSONObject | str = "Too many requests are in batches that have not ended."
    deleted: Mapping[str, JSON] | None = None
    unknown_url: str = ""
    accepted: int = 200

    def __init__(self, store: JobStore) -> None:
        self.store: JobStore = store

    @abc.abstractmethod
    def create(self, request: HTTPRequest, key: str) -> Job:
        """Read a request that creates a batch. Raises `APIError`."""

    @abc.abstractmethod
    def shown(self, item: Item) -> JSONObject:
        """A batch or a file as the service shows it."""

    def upload(self, request: HTTPRequest, key: str) -> StoredFile:
        """Read a request that uploads a file. Raises `APIError`."""
        raise APIError(404, f"{self.service} takes no files")

    def content(self, item: Item) -> Reply:
        """What is downloaded: the bytes of a file."""
        assert isinstance(item, StoredFile)
        return Reply(item.data, headers=(("content-type", "application/octet-stream"),))

    def listed(self, kind: str, page: list[JSONObject], more: bool) -> JSONObject:
        """A page of a list. more: whether items follow."""
        first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
        return {"data": [*page], "first_id": first, "last_id": last, "has_more": more}

    def reply(self, request: HTTPRequest, key: str) -> Reply:
        """The response to a request. key: the API key. Raises `APIError`."""
        self.wire.check_headers(request)
        place = _PLACE.fullmatch(request.path)
        kind, id, action = place.groups("") if place else ("none", "", "")
        kind = kind or "batches"
        collection = self.collections.get(kind)
        asked = ASKED.get(" ".join(filter(None, (request.method, id and "ID", action))), "")
        if collection is None or asked not in collection.offers.split():
            status = 404 if action or not collection else 405
            raise APIError(status, f"Invalid URL ({request.method} {request.path})", code=self.unknown_url)
        if asked == "create":
            made = self._checked(self.create(request, key)) if kind == "batches" else self.upload(request, key)
            return json_reply(self.shown(self.keep(made)), self.accepted)
        if asked == "list":
            return json_reply(self.listed(kind, *self._page(kind, request.query, key)))
        item = self.find(id, key)
        if item is None:
            raise APIError(404, collection.unknown.format(id), param="id", code="")
        if asked in self.refusals:
            is_refused, status, message, code = self.refusals[asked]
            if is_refused(item):
                raise APIError(status, message.format(item), code=code)
        if asked == "delete":
            del self.store.items[self.service, key, id]
            return json_reply({} if self.deleted is None else {"id": id, **self.deleted})
        if asked in ("results", "content", "download"):
            return self.content(item)
        if asked == "cancel" and isinstance(item, Job):
            self.store.cancel(item)
        return json_reply({} if asked == "cancel" and self.deleted is None else self.shown(item))

    def keep(self, item: Kept) -> Kept:
        self.store.items[self.service, item.key, item.id] = item
        return self.store.advanced(item)

    def find(self, id: str, key: str) -> Item | None:
        """The item with an id, if this key made it."""
        item = self.store.items.get((self.service, key, id))
        return None if item is None else self.store.advanced(item)

    def _checked(self, job: Job) -> Job:
        """The batch, which may be beyond the queue of its key. Raises `APIError`."""
        if self.store.is_full_for(job):
            if isinstance(self.full, str):
                raise APIError(429, self.full)
            job.errors = [self.full]
        return job

    def _page(self, kind: str, query: Mapping[str, str], key: str) -> tuple[list[JSONObject], bool]:
        """The items of one page, and whether more follow."""
        _, usual, most, _ = self.collections[kind]
        after, before, limit = (query.get(name, "") for name in self.paging)
        size = int(limit) if limit.isdecimal() and len(limit) < 6 else 0
        if limit and not 1 <= size <= most:
            name = self.paging[2]
            raise APIError(400, f"{name}: must be a number from 1 to {most}", param=name)
        found = [item for place, item in self.store.items.items() if place[:2] == (self.service, key)]
        items = [self.store.advanced(item) for item in found if isinstance(item, StoredFile) is (kind == "files")]
        oldest_first = query.get("order") == "asc" or (kind == "files" and not self.newest_file_first)
        shown = [self.shown(item) for item in (items if oldest_first else items[::-1])]
        shown = [one for one in shown if all(query.get(name, "") in ("", one.get(name)) for name in self.filters)]
        size, names = size or usual, [one.get("id", one.get("name")) for one in shown]
        if before:
            end = names.index(before) if before in names else len(names)
            return shown[max(0, end - size) : end], end > size
        start = names.index(after) + 1 if after in names else 0
        return shown[start : start + size], start + size < len(shown)


def line_of(request: HTTPRequest, id: str, target: str, body: object, metadata: JSONObject | None = None) -> Line:
    """A line of the batch that a request creates. target: that of the live request. body: its JSON value."""
    headers = {name: value for name, value in request.headers.items() if name != HEADER}
    return Line(id, replace(request, method="POST", target=target, headers=headers, body=dumps(body)), metadata)


def form_parts(request: HTTPRequest) -> list[tuple[bytes, bytes]]:
    """The headers and the content of each part of a multipart body (RFC 2046, 5.1). Raises `APIError`."""
    boundary = _BOUNDARY.search(request.headers.get("content-type", ""))
    if boundary is None:
        raise APIError(400, "The request's body must be multipart.")
    parts = request.body.split(b"--" + boundary[1].encode("latin-1"))[1:-1]
    split = (part.removeprefix(b"\r\n").partition(b"\r\n\r\n") for part in parts)
    return [(head, content.removesuffix(b"\r\n")) for head, _, content in split]


def time_text(seconds: float) -> str:
    """A Unix time as RFC 3339 writes it."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat().replace("+00:00", "Z")


def json_lines(values: Iterable[object]) -> bytes:
    return b"".join(dumps(value) + b"\n" for value in values)


def json_reply(value: object, status: int = 200) -> Reply:
    return Reply(dumps(value), status)


# --- OpenAI, Azure and OpenRouter ---

LONGEST_FILE, LONGEST_INLINE = 50_000, 100_000
"""A batch has at most so many lines from a file, and so many inline."""

ENDPOINTS = ("/v1/responses", "/v1/chat/completions")
ROUTED_ENDPOINTS = (*ENDPOINTS, "/v1/messages")
WINDOWS = ("24h",)
PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
REQUIRED = ("custom_id", "method", "url", "body")
"""The members of a line of a file."""

PHASE_TIMES = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
"""The phases of which OpenAI's batch says when they began."""

NOT_EXECUTED = {
    "expired": ("batch_expired", "This request could not be executed before the completion window expired."),
    "cancelled": ("batch_cancelled", "This request was not executed because the batch was cancelled."),
}
"""Last phase of the batch → code and message of a line that has no answer."""

FILE_ERRORS: dict[str, tuple[str, str | None]] = {
    "invalid_json_line": ("This line is not parseable as valid JSON.", None),
    "missing_required_parameter": ("Missing required parameter: '{}'.", None),
    "duplicate_custom_id": ("The custom_id for this request is a duplicate of another request.", "custom_id"),
    "invalid_method": ("The method of a request must be POST.", "method"),
    "url_mismatch": ("The URL of a request must be the endpoint of the batch.", "url"),
    "model_mismatch": ("All requests of a batch must have the same model.", "body.model"),
    "empty_batch": ("The file holds no request.", None),
    "too_many_tasks": (f"The file holds more than {LONGEST_FILE} requests.", None),
    "token_limit_exceeded": ("Enqueued token limit reached. Please try again once other batches have ended.", None),
}
"""Code of an error of an uploaded file → its message and the member that is wrong."""


def file_error(code: str, line: int | None = None, missing: str | None = None) -> JSONObject:
    """What is wrong with an uploaded file, or with a line of it. missing: the member that the line lacks."""
    message, param = FILE_ERRORS[code]
    return {"code": code, "message": message.format(missing), "param": param or missing, "line": line}


class OpenAIBatches(Batches):
    """Answers the requests of `/v1/files` and `/v1/batches`: a file of lines becomes one of answers and one of errors.

    Azure has the same below `/openai/v1` and `/openai`.
    """

    service = "openai"
    wire: Wire = OpenAIChatWire()
    collections: Mapping[str, Collection] = {
        "files": Collection("create list show content delete", 10_000, 10_000, "No such File object: {}"),
        "batches": Collection("create list show cancel", 20, 100, "No batch found with id '{}'."),
    }
    refusals: Mapping[str, Refusal] = {"cancel": (is_ended, 409, "Cannot cancel a batch with status '{0.phase}'.", "")}
    filters: tuple[str, ...] = ("purpose",)
    full: JSONObject | str = file_error("token_limit_exceeded")
    unknown_url: str = UNKNOWN_URL
    deleted: Mapping[str, JSON] | None = {"object": "file", "deleted": True}

    def listed(self, kind: str, page: list[JSONObject], more: bool) -> JSONObject:
        return {"object": "list", **super().listed(kind, page, more)}

    def shown(self, item: Item) -> JSONObject:
        if isinstance(item, Job) and item.ended:
            self._write(item)
        shown: JSONObject = {"id": item.id, "created_at": int(item.created), **item.members}
        if isinstance(item, StoredFile):
            return {**shown, "object": "file", "bytes": len(item.data), "status": "processed", "status_details": None}
        valid = item.phase not in ("validating", "failed")
        return {
            **shown, "object": "batch", "status": item.phase,
            "model": string(loads_object(item.lines[0].request.body), "model") if valid else None,
            "errors": {"object": "list", "data": [*item.errors]} if item.errors and item.ended else None,
            "expires_at": int(item.created + item.expires), "request_counts": _counts(item, valid=valid),
            "usage": _usage(item.lines if item.ended else []),
            **{f"{name}_at": int(item.created + item.times[name]) if name in item.times else None
               for name in PHASE_TIMES},
        }  # fmt: skip

    def upload(self, request: HTTPRequest, key: str) -> StoredFile:
        parts: dict[str, tuple[bytes, str]] = {}
        for head, content in form_parts(request):
            named, filename = _NAME.search(head), _FILENAME.search(head)
            if named is not None:
                file = filename[1] if filename is not None else b""
                parts[named[1].decode("utf-8", "replace")] = content, file.decode("utf-8", "replace")
        for name in ("file", "purpose"):
            if name not in parts:
                raise APIError(400, f"Missing required parameter: '{name}'.", param=name)
        (data, name), purpose = parts["file"], parts["purpose"][0].decode("utf-8", "replace")
        if purpose not in PURPOSES:
            raise APIError(400, f"'{purpose}' is not one of {[*PURPOSES]} - 'purpose'", param="purpose")
        if purpose == "batch" and not name.endswith(".jsonl"):
            raise APIError(400, "Invalid file format for Batch API. Must be .jsonl")
        lives = parts.get("expires_after[seconds]", (b"", ""))[0]
        expires = int(self.store.wall()) + int(lives) if lives.isdigit() and len(lives) < 12 else None
        id = "file-" + self.store.new_id()
        return self.store.new_file(id, key, data, filename=name, purpose=purpose, expires_at=expires)

    def create(self, request: HTTPRequest, key: str) -> Job:
        body = body_object(request)
        for name in ("input_file_id", "endpoint", "completion_window"):
            if not string(body, name):
                raise APIError(400, f"Missing required parameter: '{name}'.", param=name)
        endpoint, window = string(body, "endpoint"), string(body, "completion_window")
        if _live_path(endpoint) not in ENDPOINTS:
            raise APIError(400, f"Invalid value: '{endpoint}'. Supported values are: {ENDPOINTS}.", param="endpoint")
        if window not in WINDOWS:
            raise APIError(400, f"Invalid value: supported values are: {WINDOWS}.", param="completion_window")
        metadata = mapping(body, "metadata")
        fits = (isinstance(text, str) and len(text) <= 512 and len(name) <= 64 for name, text in metadata.items())
        if len(metadata) > 16 or not all(fits) or body.get("metadata") not in (None, metadata):
            rule = "an object of at most 16 texts, with names of at most 64 and values of at most 512 characters"
            raise APIError(400, f"metadata: must be {rule}", param="metadata")
        file = self.find(string(body, "input_file_id"), key)
        if not isinstance(file, StoredFile) or file.members["purpose"] != "batch":
            message = f"No such File object for a batch: {body['input_file_id']}"
            raise APIError(400, message, param="input_file_id", code="")
        lines, errors = _read_lines(file.data, request, endpoint)
        return self.store.new_job(
            "batch_" + self.store.new_id(), key, lines, errors, endpoint=endpoint, input_file_id=file.id,
            completion_window=window, metadata=metadata or None, output_file_id=None, error_file_id=None,
        )  # fmt: skip

    def _write(self, job: Job) -> None:
        """Write the files of answers and errors, unless they are written."""
        if job.members["output_file_id"] or job.members["error_file_id"]:
            return
        error = NOT_EXECUTED.get(job.phase)
        good = [_result(line) for line in job.order if line.status and not line.failed]
        bad = [_result(line, error) for line in job.order if line.failed or (error and not line.status)]
        for name, results in (("output", good), ("error", bad)):
            if results:
                file = self.store.new_file(
                    "file-" + self.store.new_id(), job.key, json_lines(results), filename=f"{job.id}_{name}.jsonl",
                    purpose="batch_output", expires_at=None,
                )  # fmt: skip
                job.members[f"{name}_file_id"] = self.keep(file).id


class OpenRouterBatches(OpenAIBatches):
    """Answers the requests of `/api/v1/batches`. A batch has its results inline, and only once it is complete."""

    service = "openrouter"
    collections: Mapping[str, Collection] = {
        "batches": Collection("create list show delete", 20, 100, "Batch {} not found")
    }
    refusals: Mapping[str, Refusal] = {"delete": (is_running, 409, "Batch {0.id} has not ended", "")}
    filters: tuple[str, ...] = ("status",)
    full: JSONObject | str = Batches.full
    deleted: Mapping[str, JSON] | None = {"object": "batch", "deleted": True}
    accepted: int = 202

    def create(self, request: HTTPRequest, key: str) -> Job:
        body = body_object(request)
        endpoint, model, window = (string(body, name) for name in ("endpoint", "model", "completion_window"))
        if [*body][-1:] != ["requests"] or not model:
            raise APIError(400, "'endpoint' and 'model' must stand before 'requests'")
        if endpoint not in ROUTED_ENDPOINTS:
            raise APIError(400, f"endpoint: must be one of {ROUTED_ENDPOINTS}")
        if window not in ("", *WINDOWS):
            raise APIError(400, f"completion_window: must be one of {WINDOWS}")
        lines, errors = list[Line](), list[JSONObject]()
        for place, id, asked in _inline(body, "body", re.compile(".+")):
            if asked.get("model", model) != model:
                raise APIError(400, f"requests.{place}.body.model: must be the model of the batch")
            if asked.get("stream") is True:
                errors.append({"code": 400, "message": f"requests.{place}.body.stream: is not supported"})
            lines.append(line_of(request, id, endpoint, {**asked, "model": model}))
        id = "batch_" + self.store.new_id()
        return self.store.new_job(id, key, lines, errors, endpoint=endpoint, model=model, completion_window="24h")

    def listed(self, kind: str, page: list[JSONObject], more: bool) -> JSONObject:
        return super().listed(kind, [{**one, "results": None} for one in page], more)

    def shown(self, item: Item) -> JSONObject:
        assert isinstance(item, Job)
        complete, usage = item.phase == "completed", _usage(item.lines)
        names = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens", "total_tokens": "total_tokens"}
        return {
            "id": item.id, "object": "batch", **item.members, "status": item.phase, "created_at": int(item.created),
            "finalized_at": int(item.since) if item.ended else None,
            "request_counts": _counts(item, valid=item.phase != "validating"),
            "usage": {shown: usage[name] for name, shown in names.items()} if complete else None,
            "results": [_result(line) for line in item.order] if complete else None,
            "error": item.errors[0] if item.errors and item.ended else None,
        }  # fmt: skip


def _counts(job: Job, *, valid: bool) -> JSONObject:
    return {"total": len(job.lines) if valid else 0, "completed": job.count - job.failed, "failed": job.failed}


def _usage(lines: list[Line]) -> JSONObject:
    """The tokens of all answers."""
    usages = [line.usage for line in lines if line.usage]
    read, written = sum(usage.input_tokens for usage in usages), sum(usage.output_tokens for usage in usages)
    return {
        "input_tokens": read, "output_tokens": written, "total_tokens": read + written,
        "input_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in usages)},
        "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip


def _result(line: Line, error: tuple[str, str] | None = None) -> JSONObject:
    """A line of a file of results. error: code and message of a line without an answer."""
    result: JSONObject = {"id": f"batch_req_{line.id}", "custom_id": line.id, "response": None, "error": None}
    if line.status:
        response: JSONObject = {"status_code": line.status, "request_id": f"req_{line.id}"}
        result["response"] = {**response, "body": raw_json(line.body)}
    elif error is not None:
        result["error"] = {"code": error[0], "message": error[1]}
    return result


def _read_lines(data: bytes, request: HTTPRequest, endpoint: str) -> tuple[list[Line], list[JSONObject]]:
    """The lines of an uploaded file, and what is wrong with them."""
    lines, errors, ids, first = list[Line](), list[JSONObject](), set[str](), ""
    for number, text in enumerate(data.splitlines(), 1):
        if not text.strip():
            continue
        line = loads_object(text)
        id, url, body = string(line, "custom_id"), _live_path(string(line, "url")), mapping(line, "body")
        model = string(body, "model")
        missing = None if line is None else next((name for name in REQUIRED if not line.get(name)), None)
        wrong = {
            "invalid_json_line": line is None,
            "missing_required_parameter": missing is not None,
            "duplicate_custom_id": id in ids,
            "invalid_method": string(line, "method") != "POST",
            "url_mismatch": url != _live_path(endpoint),
            "model_mismatch": model not in (first or model, ""),
        }
        first = first or model
        errors += [file_error(code, number, missing) for code, is_wrong in wrong.items() if is_wrong][:1]
        ids.add(id)
        lines.append(line_of(request, id, url, body))
    if not lines:
        errors.append(file_error("empty_batch"))
    if len(lines) > LONGEST_FILE:
        errors.append(file_error("too_many_tasks"))
    return lines, errors


def _live_path(endpoint: str) -> str:
    """The path of the live request. Azure leaves `/v1` out."""
    return "/v1" + endpoint.removeprefix("/v1")


def _inline(body: JSONObject, member: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, str, JSONObject]]:
    """The place, the id and the body of each request in the body of a request. Raises `APIError`."""
    requests, ids = body.get("requests"), set[str]()
    if not isinstance(requests, list) or not 1 <= len(requests) <= LONGEST_INLINE:
        raise APIError(400, f"requests: must hold 1 to {LONGEST_INLINE} requests")
    for place, one in enumerate(requests):
        id = string(one, "custom_id")
        if not pattern.fullmatch(id) or id in ids:
            raise APIError(400, f"requests.{place}.custom_id: must be unique, and match {pattern.pattern}")
        asked = one.get(member) if isinstance(one, dict) else None
        if not isinstance(asked, dict):
            raise APIError(400, f"requests.{place}.{member}: Field required")
        ids.add(id)
        yield place, id, asked


# --- Anthropic ---

PROCESSING = dict.fromkeys(("validating", "in_progress", "finalizing"), "in_progress") | {"cancelling": "canceling"}
"""Phase → `processing_status`; that of all others is `ended`."""

KINDS = ("processing", "succeeded", "errored", "canceled", "expired")
UNANSWERED = {"cancelled": "canceled", "expired": "expired"}
"""Last phase → the type of a result that holds no answer."""


class AnthropicBatches(Batches):
    """Answers the requests of `/v1/messages/batches`. The results are lines of JSON."""

    service = "anthropic"
    wire: Wire = AnthropicWire()
    collections: Mapping[str, Collection] = {
        "batches": Collection("create list show cancel delete results", 20, 1000, "Message Batch {} not found."),
    }
    refusals: Mapping[str, Refusal] = {
        "cancel": (is_ended, 400, "Message Batch {0.id} has ended: it cannot be canceled.", ""),
        "delete": (is_running, 400, "Message Batch {0.id} has not ended: it cannot be deleted.", ""),
        "results": (is_running, 404, "Message Batch {0.id} has no available results.", ""),
    }
    paging: tuple[str, str, str] = ("after_id", "before_id", "limit")
    deleted: Mapping[str, JSON] | None = {"type": "message_batch_deleted"}

    def create(self, request: HTTPRequest, key: str) -> Job:
        requests = _inline(body_object(request), "params", re.compile(r"[a-zA-Z0-9_-]{1,64}"))
        lines = [line_of(request, id, "/v1/messages", params) for _, id, params in requests]
        url = f"http://{request.headers.get('host', '')}{request.path}"
        return self.store.new_job("msgbatch_" + self.store.new_id(), key, lines, [], url=url)

    def shown(self, item: Item) -> JSONObject:
        assert isinstance(item, Job)
        kinds = Counter(_kind(line, item) if item.ended else "processing" for line in item.lines)
        return {
            "id": item.id, "type": "message_batch", "processing_status": PROCESSING.get(item.phase, "ended"),
            "request_counts": {kind: kinds[kind] for kind in KINDS}, "created_at": time_text(item.created),
            "expires_at": time_text(item.created + item.expires),
            "cancel_initiated_at": time_text(item.created + item.cancelled) if item.cancelled < math.inf else None,
            "ended_at": time_text(item.since) if item.ended else None, "archived_at": None,
            "results_url": f"{item.members['url']}/{item.id}/results" if item.ended else None,
        }  # fmt: skip

    def content(self, item: Item) -> Reply:
        assert isinstance(item, Job)
        lines: list[JSONObject] = []
        for line in item.order:
            kind = _kind(line, item)
            result: JSONObject = {"type": kind}
            if kind in ("succeeded", "errored"):
                body = line.body or self.wire.error_body(APIError(500, ""))
                result["message" if kind == "succeeded" else "error"] = raw_json(body)
            lines.append({"custom_id": line.id, "result": result})
        return Reply(json_lines(lines), headers=(("content-type", "application/x-jsonl"),))


def _kind(line: Line, job: Job) -> str:
    """The type of the result of a line."""
    if not line.status:
        return UNANSWERED.get(job.phase, "errored")
    return "errored" if line.failed else "succeeded"


# --- Gemini ---

UNKNOWN, PRECONDITION = "Requested entity was not found", "FAILED_PRECONDITION"
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


def is_uploaded(item: Item) -> bool:
    """Whether it is a file that the client has uploaded."""
    return item.members.get("source") == "UPLOADED"


class GeminiBatches(Batches):
    """Answers the requests of `/v1beta/batches`, `/v1beta/files`, and those that create either.

    A batch has its requests inline or in a file. A file is uploaded in one request (`X-Goog-Upload-Protocol:
    multipart`), or with Google's resumable protocol: a first request gets an address, to which the bytes go in pieces.
    """

    service = "gemini"
    wire: Wire = GeminiWire()
    collections: Mapping[str, Collection] = {
        "files": Collection("list show download delete", 10, 100, f"{UNKNOWN}: files/{{}}"),
        "batches": Collection("create list show cancel delete", 20, 1000, f"{UNKNOWN}: batches/{{}}"),
    }
    refusals: Mapping[str, Refusal] = {
        "cancel": (is_ended, 400, "batches/{0.id} has ended", PRECONDITION),
        "download": (is_uploaded, 400, "files/{0.id} was uploaded: it has no download", PRECONDITION),
    }
    paging: tuple[str, str, str] = ("pageToken", "", "pageSize")
    newest_file_first = False
    full: JSONObject | str = ""

    def __init__(self, store: JobStore) -> None:
        super().__init__(store)
        self._uploads: dict[str, StoredFile] = {}

    def reply(self, request: HTTPRequest, key: str) -> Reply:
        if not request.path.startswith("/upload/") or request.method == "GET":
            return super().reply(request, key)
        id, headers = request.query.get("upload_id", ""), (("x-goog-upload-status", "active"),)
        file = self._uploads.get(id)
        if file is None:
            self.wire.check_headers(request)
            id, file = self.store.new_id(), self.upload(request, key)
            if not file.data:
                self._uploads[id] = file
                url = f"http://{request.headers.get('host', '')}/upload/v1beta/files?upload_id={id}"
                return Reply(b"", headers=(*headers, ("x-goog-upload-url", url + "&upload_protocol=resumable")))
        else:  # the first request had the key
            offset = request.headers.get("x-goog-upload-offset", "0")
            if offset != str(len(file.data)):
                said = f"X-Goog-Upload-Offset: {offset} is not {len(file.data)}"
                raise APIError(400, f"{said}, the number of bytes so far")
            file.data += request.body
            if "finalize" not in request.headers.get("x-goog-upload-command", ""):
                return Reply(b"", headers=headers)
            del self._uploads[id]
        reply = json_reply({"file": self.shown(self.keep(file))})
        return reply._replace(headers=(*reply.headers, ("x-goog-upload-status", "final")))

    def upload(self, request: HTTPRequest, key: str) -> StoredFile:
        described, data = request.body, b""
        kind = request.headers.get("x-goog-upload-header-content-type", "")
        if request.headers.get("x-goog-upload-protocol") == "multipart":
            parts = form_parts(request)
            if len(parts) != 2:
                raise APIError(400, "a multipart upload has two parts: the file's description, and its bytes")
            (_, described), (head, data) = parts
            kind = head.partition(b": ")[2].decode("latin-1")
        asked = mapping(loads_object(described), "file")
        id = string(asked, "name").removeprefix("files/") or self.store.new_id()[:12]
        title, kind = _either(asked, "displayName"), kind or string(asked, "mimeType")
        members: JSONObject = {"displayName": title} if title else {}
        return self.store.new_file(id, key, data, mimeType=kind, source="UPLOADED", **members)

    def create(self, request: HTTPRequest, key: str) -> Job:
        batch, lines = mapping(body_object(request), "batch"), list[Line]()
        source = mapping(batch, "inputConfig") or mapping(batch, "input_config")
        name = _either(source, "fileName")
        requests = mapping(source, "requests").get("requests") or []
        if name:
            file = self.find(name.removeprefix("files/"), key)
            if not isinstance(file, StoredFile):
                raise APIError(404, f"{UNKNOWN}: {name}")
            requests = [loads_object(text) for text in file.data.splitlines() if text.strip()]
        if not requests or not isinstance(requests, list) or not all(isinstance(one, dict) for one in requests):
            raise APIError(400, f"{name or 'batch.input_config'}: there must be requests, each a JSON object")
        model = "/".join(request.path.split("/")[2:]).partition(":")[0]
        for one in requests:
            asked = mapping(one, "request")
            target = f"/v1beta/{string(asked, 'model') or model}:generateContent"
            lines.append(line_of(request, string(one, "key"), target, asked, mapping(one, "metadata")))
        title = _either(batch, "displayName")
        return self.store.new_job(self.store.new_id(), key, lines, [], model=model, displayName=title, file=name)

    def listed(self, kind: str, page: list[JSONObject], more: bool) -> JSONObject:
        listed: JSONObject = {"files" if kind == "files" else "operations": [*page]}
        return {**listed, "nextPageToken": string(page[-1], "name")} if more else listed

    def shown(self, item: Item) -> JSONObject:
        made = time_text(item.created)
        if isinstance(item, StoredFile):
            digest = base64.b64encode(hashlib.sha256(item.data).digest()).decode()
            uri = f"https://generativelanguage.googleapis.com/v1beta/files/{item.id}"
            return {
                **item.members, "name": f"files/{item.id}", "sizeBytes": str(len(item.data)), "createTime": made,
                "updateTime": made, "expirationTime": time_text(item.created + 2 * DAY), "sha256Hash": digest,
                "uri": uri, "state": "ACTIVE",
                **({} if is_uploaded(item) else {"downloadUri": f"{uri}:download?alt=media"}),
            }  # fmt: skip
        left, name, since = len(item.lines) - item.count, f"batches/{item.id}", time_text(item.since)
        counts = {"successful": item.count - item.failed, "failed": item.failed, "pending": left}
        if item.ended:
            counts |= {"failed": item.failed + left, "pending": 0}
        stats: JSONObject = {f"{kind}RequestCount": str(count) for kind, count in counts.items() if count}
        metadata: JSONObject = {
            "@type": TYPE, "name": name, "model": item.members["model"], "displayName": item.members["displayName"],
            "createTime": made, "updateTime": since, "state": f"BATCH_STATE_{STATES.get(item.phase, 'RUNNING')}",
            "batchStats": {"requestCount": str(len(item.lines)), **stats},
        }  # fmt: skip
        shown: JSONObject = {"name": name, "metadata": metadata}
        if item.ended:
            shown["done"], metadata["endTime"] = True, since
            if item.phase in FAILURES:
                shown["error"] = FAILURES[item.phase]
            else:
                metadata["output"] = self._output(item)
                shown["response"] = {"@type": TYPE + "Output", **mapping(metadata, "output")}
        return shown

    def _output(self, job: Job) -> JSONObject:
        """The results: inline in the order of the requests, or a file in the order of the answers."""
        if not job.members["file"]:
            inline: list[JSON] = [{"metadata": line.metadata, **_outcome(line)} for line in job.lines]
            return {"inlinedResponses": {"inlinedResponses": inline}}
        if "responsesFile" not in job.members:
            data = json_lines({"key": line.id, **_outcome(line)} for line in job.order)
            members: JSONObject = {"mimeType": "application/jsonl", "source": "GENERATED"}
            file = self.store.new_file(f"batch-{job.id}", job.key, data, **members)
            job.members["responsesFile"] = f"files/{self.keep(file).id}"
        return {"responsesFile": job.members["responsesFile"]}


def _outcome(line: Line) -> JSONObject:
    if not line.status:
        return {"error": CANCELLED}
    if not line.failed:
        return {"response": raw_json(line.body)}
    error = mapping(loads_object(line.body), "error")
    return {"error": {"code": RPC_CODES.get(integer(error, "code") or 500, 13), "message": string(error, "message")}}


def _either(value: JSONObject, name: str) -> str:
    """A text, whose name may be written in camel case or in snake case."""
    return string(value, name) or string(value, re.sub("([A-Z])", r"_\1", name).lower())
