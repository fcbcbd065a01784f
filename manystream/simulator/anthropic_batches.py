"""Anthropic's batches: `POST /v1/messages/batches`, and what can be done with each. The results are lines of JSON."""

from __future__ import annotations

import re

from ..http_server import HTTPRequest
from .anthropic import AnthropicWire
from .batches import Batches, Job, Line, Lines, Reply, json_reply, page_of, time_text
from .json_text import JSONObject, dumps, mapping, objects, raw_json, string
from .prompt import APIError
from .wire import Wire, body_object

LONGEST_BATCH = 100_000
CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
STATUS = dict.fromkeys(("validating", "in_progress", "finalizing"), "in_progress") | {"cancelling": "canceling"}
"""Phase → `processing_status`; that of all others is `ended`."""

UNANSWERED = {"cancelled": "canceled", "expired": "expired"}
"""Last phase → the type of a result that holds no answer."""


class AnthropicBatches(Batches):
    """Answers the requests of `/v1/messages/batches`."""

    wire: Wire = AnthropicWire()

    def reply(self, request: HTTPRequest, key: str) -> Reply:
        self.wire.check_headers(request)
        store, query, host = self._store, request.query, request.headers.get("host", "")
        match (request.method, *request.path.split("/")[4:]):
            case ("POST",):
                return json_reply(self._shown(self._create(request, key), host))
            case ("GET",):
                jobs = store.jobs("anthropic", key)
                before = query.get("before_id", "")
                if before:
                    jobs.reverse()
                page, more = page_of(jobs, query, f"{'before_id' if before else 'after_id'} limit", most=1000)
                shown = [self._shown(job, host) for job in (page[::-1] if before else page)]
                first, last = (shown[0]["id"], shown[-1]["id"]) if shown else (None, None)
                return json_reply({"data": shown, "has_more": more, "first_id": first, "last_id": last})
            case method, id, *action:
                job = store.find("anthropic", id, key)
                if job is None:
                    raise APIError(404, f"Message Batch {id} not found.")
                return self._one(job, (method, *action), host)
            case _:
                raise APIError(405, f"Not allowed to {request.method} on {request.path}.")

    def _one(self, job: Job, asked: tuple[str, ...], host: str) -> Reply:
        ended = job.has_ended(self._store.now)
        match asked:
            case ("GET",):
                return json_reply(self._shown(job, host))
            case "GET", "results" if ended:
                results = (_result(line, job.end[1]) for line in [*self._store.answered(job), *job.left()])
                data = b"".join(dumps(result) + b"\n" for result in results)
                return Reply(data, headers=[("content-type", "application/x-jsonl")])
            case "GET", "results":
                raise APIError(404, f"Message Batch {job.id} has no available results.")
            case "POST", "cancel" if not ended:
                self._store.cancel(job)
                return json_reply({**self._shown(job, host), "processing_status": "canceling"})
            case ("DELETE",) if ended:
                self._store.forget(job)
                return json_reply({"id": job.id, "type": "message_batch_deleted"})
            case _:
                raise APIError(400, f"Message Batch {job.id} cannot be {asked[-1].lower()}ed now.")

    def _create(self, request: HTTPRequest, key: str) -> Job:
        requests, store = objects(body_object(request), "requests"), self._store
        if not 1 <= len(requests) <= LONGEST_BATCH:
            raise APIError(400, f"requests: must hold 1 to {LONGEST_BATCH} requests")
        lines, ids = Lines(request), set[str]()
        for place, one in enumerate(requests):
            id = string(one, "custom_id")
            if not CUSTOM_ID.fullmatch(id) or id in ids:
                rule = "must be unique" if id in ids else f"must match {CUSTOM_ID.pattern}"
                raise APIError(400, f"requests.{place}.custom_id: {rule}")
            ids.add(id)
            lines.add(id, "/v1/messages", mapping(one, "params"))
        if store.is_full_for(key, len(requests)):
            raise APIError(429, "Too many requests are in batches that have not ended.")
        return store.create("anthropic", "msgbatch_" + store.new_id(), key, lines.lines, [], {})

    def _shown(self, job: Job, host: str) -> JSONObject:
        """The batch as the service shows it. Its counts are made when it has ended."""
        times, answered = job.times(self._store.now), self._store.answered(job)
        ended = job.has_ended(self._store.now)
        counts = {"processing": 0, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
        for line in [*answered, *job.left()]:
            counts[_kind(line, job.end[1]) if ended else "processing"] += 1
        cancelled = None if job.cancelled is None else time_text(job.created + job.cancelled)
        return {
            "id": job.id, "type": "message_batch", "processing_status": STATUS.get([*times][-1], "ended"),
            "request_counts": {**counts}, "created_at": time_text(job.created),
            "expires_at": time_text(job.created + job.expires), "archived_at": None, "cancel_initiated_at": cancelled,
            "ended_at": time_text(job.created + job.end[0]) if ended else None,
            "results_url": f"http://{host}/v1/messages/batches/{job.id}/results" if ended else None,
        }  # fmt: skip


def _kind(line: Line, last: str) -> str:
    """The type of a result. last: the last phase of the batch."""
    if line.answered is None:
        return UNANSWERED.get(last, "errored")
    return "errored" if line.answered.is_error else "succeeded"


def _result(line: Line, last: str) -> dict[str, object]:
    result: dict[str, object] = {"type": _kind(line, last)}
    if result["type"] == "succeeded" and line.answered is not None:
        result["message"] = raw_json(line.answered.body)
    elif result["type"] == "errored":
        body = line.answered.body if line.answered else AnthropicBatches.wire.error_body(APIError(500, ""))
        result["error"] = raw_json(body)
    return {"custom_id": line.id, "result": result}
