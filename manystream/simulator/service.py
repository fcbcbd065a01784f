"""From a request to the program that answers it: routing, knobs, errors, and a cache of programs.

This module knows no sockets. Every answer, an error too, is a `Program`.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from ..http_server import BadRequest, HTTPRequest, websocket_head
from .anthropic import AnthropicWire
from .batch_interfaces import AnthropicBatches, Batches, GeminiBatches, OpenAIBatches, OpenRouterBatches
from .batches import BatchTime, JobStore
from .control import ControlPages
from .gemini import GeminiWire
from .gemini_interactions import GeminiInteractionsWire
from .inference import BatchModel, InferenceServer
from .journal import Journal, Statistics
from .json_text import EncodeError, dumps, is_json, loads_object
from .knobs import HEADER, KnobError, Knobs, combine, directive_in_model, directive_in_text
from .limit import Limit
from .limiter import Limiter, Ticket, Usage
from .openai_chat import UNKNOWN_URL, OpenAIChatWire
from .openai_responses import OpenAIResponsesWire
from .program import Ending, Program, complete, content_of, no_response, position_of, streamed, unstreamed, with_headers
from .prompt import APIError, Prompt
from .prompt_caches import CacheModel, PromptCaches
from .replay import Replay
from .replica import Replica, ReplicaState
from .scenario import Scenario, write_scenario
from .store import AnswerStore, StoredAnswer
from .websocket import Turn, error_frame
from .wire import CREATED, StoringWire, Wire

OPENAI = OpenAIChatWire()
INTERACTIONS = GeminiInteractionsWire()
STORING: dict[str, StoringWire] = {
    "/v1/responses": OpenAIResponsesWire(),
    "/v1beta/interactions": INTERACTIONS,
    "/v1/interactions": INTERACTIONS,
}
"""Path → dialect whose service keeps answers. An answer has the path + `/ID`."""

WIRES: dict[str, Wire] = {
    "/v1/chat/completions": OPENAI,
    "/v1/messages": AnthropicWire(),
    **STORING,
}
"""Path → dialect. Gemini has the model in its path; its methods are recognised by the end of the path."""

GEMINI = GeminiWire()
GEMINI_METHODS = (":generateContent", ":streamGenerateContent")

CACHED_CONTENTS = ("/v1beta/cachedContents", "/v1/cachedContents")
"""The paths of Google's caches that requests name."""

GEMINI_BATCHES = ("/v1beta/batches", "/v1beta/files", "/upload/v1beta/files", "/download/v1beta/files")

MODEL = "simulated"
MODEL_LISTS: dict[str, bytes] = {
    "/v1/models": dumps(  # OpenAI's form, with the members of Anthropic's
        {
            "object": "list",
            "data": [
                {
                    "id": MODEL,
                    "object": "model",
                    "created": CREATED,
                    "owned_by": "manystream",
                    "type": "model",
                    "display_name": MODEL,
                    "created_at": "2023-11-14T22:13:20Z",
                }
            ],
            "first_id": MODEL,
            "last_id": MODEL,
            "has_more": False,
        }
    ),
    "/v1beta/models": dumps(
        {
            "models": [
                {
                    "name": f"models/{MODEL}",
                    "displayName": MODEL,
                    "supportedGenerationMethods": ["generateContent", "streamGenerateContent"],
                }
            ]
        }
    ),
}
"""Path → the list of models. Its one model stands for all: the simulator answers for any name."""

BASE_PATHS = {
    "openai-chat": "/v1",
    "openai-responses": "/v1",
    "anthropic": "",
    "gemini": "",
    "gemini-interactions": "",
}
"""Dialect → what follows the server's origin in a client's base URL."""

USUAL_PATHS = re.compile(r"/openai/(?:v1/|deployments/[^/]*+/)?+(?=.)|/api/v1/(?!batches)")
"""How a path at Azure and at OpenRouter begins, instead of with `/v1/`."""

UNCHANGED = "chunk=0,delay=0,stamp=0"
"""The knobs of an answer that stands in a batch, on top of those of its request."""

CACHED_FRAMES = 100_000
"""The cache of programs holds at most so many frames. Then it is emptied."""

REPEATED_KEYS = 10_000
"""At most so many keys of the knob `times` are counted. Then counting starts anew."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ServiceSettings:
    """What a service answers.

    knobs: the default knobs of all answers.
    journal: how many requests `GET /sim/requests` returns.
    replay: a recording; all answers come from it, and no limit holds.
    limits: rate limits.
    batch: answers share an inference server of this speed and size.
    batch_time: how long batches of the batch interfaces take, and what goes wrong with them.
    replica: speed, failures and outages.

    Raises `KnobError` for a negative `journal`.
    """

    knobs: Knobs = field(default_factory=Knobs)
    journal: int = 256
    replay: Replay | None = None
    limits: tuple[Limit, ...] = ()
    batch: BatchModel | None = None
    batch_time: BatchTime = field(default_factory=BatchTime)
    caches: CacheModel | None = None
    replica: Replica = field(default_factory=Replica)

    def __post_init__(self) -> None:
        if self.journal < 0:
            raise KnobError(f"journal: {self.journal} is no number of requests: it is a whole number from 0")


class Service:
    """Answers requests. Each answer that a limit covers has a ticket; its connection calls `end` with it.

    clock, wall: the time in seconds, monotonic and Unix.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.knobs: Knobs = settings.knobs
        self._clock = clock
        self._wall = wall
        self._replay = settings.replay
        self.journal: Journal = Journal(settings.journal)
        self.statistics: Statistics = Statistics()
        self.limiter: Limiter = Limiter(settings.limits)
        batch = settings.batch
        self.inference: InferenceServer[object] | None = InferenceServer(batch) if batch else None
        self.caches: PromptCaches | None = PromptCaches(settings.caches) if settings.caches else None
        self._replica = ReplicaState(settings.replica, clock())
        self.jobs: JobStore = JobStore(settings.batch_time, self._answered, clock, wall)
        openai = OpenAIBatches(self.jobs)
        self._batches: dict[str, Batches] = {
            "/v1/files": openai,
            "/v1/batches": openai,
            "/api/v1/batches": OpenRouterBatches(self.jobs),
            "/v1/messages/batches": AnthropicBatches(self.jobs),
            **dict.fromkeys(GEMINI_BATCHES, GeminiBatches(self.jobs)),
        }
        self._pages = ControlPages(self.journal, self.statistics, self.limiter, self.jobs, self.caches, clock, wall)
        self._store = AnswerStore()
        self._programs: dict[tuple[str, str, bytes, bool], Program] = {}
        self._frames = 0
        self._repeats: Counter[str] = Counter()

    def answer(self, request: HTTPRequest) -> Program:
        """The program for a request. Never raises for anything that a client sends."""
        path = request.path
        if path.startswith("/sim/"):
            return self._pages.answer(request)
        if path == "/metrics" and request.method == "GET" and self._replay is None:
            return self._replica.interrupt(self._clock()) or self._metrics(request)
        self.journal.add(request, request.sent if isinstance(request, Turn) else b"")
        if USUAL_PATHS.match(path):
            request = _at_usual_path(request)
            path = request.path
        batched = self._batches_of(request)
        storing = next((wire for start, wire in STORING.items() if path.startswith(start + "/")), None)
        wire = batched.wire if batched else storing or _wire_of(path)
        if self._replay is not None:
            failure = APIError(404, f"the recording holds no exchange for {request.method} {path}")
            return self._replay.answer(request) or self._refused(wire or OPENAI, failure, request)
        try:
            interrupted = self._replica.interrupt(self._clock())
            if interrupted is not None:
                return interrupted
            if request.method == "GET" and path in MODEL_LISTS:
                headers = [("content-type", "application/json")]
                return complete(200, headers, MODEL_LISTS[path], keep=request.keep_alive)
            if self.caches is not None and path.startswith(CACHED_CONTENTS):
                GEMINI.check_headers(request)
                shown = self.caches.contents(request, request.key, self._clock(), self._wall())
                return complete(200, GEMINI.headers(None, ""), dumps(shown), keep=request.keep_alive)
            if wire is None:
                raise APIError(404, f"Invalid URL ({request.method} {path})", code=UNKNOWN_URL)
            if batched is not None:
                return self._batched(batched, request)
            if storing is not None:
                storing.check_headers(request)
                return self._stored(storing, request)
            if "upgrade" in request.headers and request.method == "GET" and isinstance(wire, OpenAIResponsesWire):
                return self._handshake(wire, request)
            if request.method != "POST":
                raise APIError(405, f"Not allowed to {request.method} on {path}. (HINT: use POST)")
            wire.check_headers(request)
            return self._limited(wire, request, self._replica.paced(self._program(wire, request)))
        except APIError as failure:
            return self._refused(wire or OPENAI, failure, request)
        except (RecursionError, EncodeError):
            return self._refused(wire or OPENAI, APIError(400, "The request's JSON is nested too deeply."), request)
        except KnobError as error:
            return self._refused(wire or OPENAI, APIError(400, f"simulator: {error}"), request)

    def _metrics(self, request: HTTPRequest) -> Program:
        """The answers that run and wait here, in the form of vLLM's metrics."""
        served = self.inference
        running, waiting = (self.statistics.live, 0) if served is None else (len(served.running), served.queued)
        figures = {"running": running, "waiting": waiting}
        text = "".join(
            f'# TYPE vllm:num_requests_{name} gauge\nvllm:num_requests_{name}{{model_name="{MODEL}"}} {number}.0\n'
            for name, number in figures.items()
        )
        headers = [("content-type", "text/plain; version=0.0.4; charset=utf-8")]
        return complete(200, headers, text.encode(), keep=request.keep_alive)

    def end(self, ticket: Ticket, *, whole: bool) -> None:
        """Account for the end of an answer. whole: it was sent to its end."""
        self.limiter.end(ticket, self._clock(), whole=whole)

    def _limited(self, wire: Wire, request: HTTPRequest, program: Program) -> Program:
        """The program with a ticket, if the limits have room for it. Raises `APIError` if they have not."""
        if program.usage is None:
            return program
        try:
            tokens = program.usage.input_tokens + program.usage.output_tokens
            if self.inference is not None and self.inference.is_full_for(tokens):
                raise APIError(self.inference.model.status, "The server is overloaded: too many requests are waiting.")
            usage = replace(program.usage, delay=program.delay, seconds=program.interval * len(program.frames))
            ticket = self.limiter.accept(wire.name, request.key, usage, self._clock(), self._wall())
        except APIError:
            self.statistics.limited += 1
            raise
        if program.on_accept is not None:
            program.on_accept()
        if ticket is None:
            return program
        if isinstance(request, Turn):  # its frames have no head
            return replace(program, ticket=ticket)
        limited = with_headers(program, ticket.headers)
        return replace(limited, ticket=ticket)

    def bad_request(self, error: BadRequest) -> Program:
        """The program for bytes that are not a request: an error, then the connection closes."""
        self.statistics.refused += 1
        body = OPENAI.error_body(APIError(error.status, error.message))
        return complete(error.status, [("content-type", "application/json")], body, keep=False)

    def _handshake(self, wire: Wire, request: HTTPRequest) -> Program:
        """The response that opens a WebSocket. Raises `APIError`."""
        wire.check_headers(request)
        knobs = self.knobs_of(request)
        failed = self._failed(wire, knobs, request, "")
        if failed is not None:
            return failed
        try:
            return Program([websocket_head(request)], delay=knobs.delay, ending=Ending.UPGRADE, counted=False)
        except BadRequest as error:
            failure = APIError(error.status, error.message)
            failure.headers.append(("sec-websocket-version", "13"))
            raise failure from None

    def knobs_of(self, request: HTTPRequest) -> Knobs:
        """The knobs of the server and of a request's header."""
        return self._faults(combine(self.knobs, request.headers.get(HEADER, "")), request)

    def _program(self, wire: Wire, request: HTTPRequest, *, batched: bool = False) -> Program:
        key = (request.target, request.headers.get(HEADER, ""), request.body, request.keep_alive)
        turn = request if isinstance(request, Turn) else None
        program = self._programs.get(key) if turn is None else None
        if program is not None:
            if program.answer is not None:
                self._store.keep(program.answer, request.key)
            return program
        prompt, knobs = self._read(wire, request)
        failed = self._failed(wire, knobs, request, prompt.model)
        if failed is not None:
            return failed
        scenario, on_accept = write_scenario(prompt, knobs), None
        if self.caches is not None:
            account = f"{request.key} in batches" if batched else request.key
            use = self.caches.look(wire.name, account, prompt, self._clock())
            scenario = replace(scenario, tokens=use.tokens(scenario.tokens))
            knobs = replace(knobs, delay=knobs.delay + use.delay)
            on_accept = partial(self.caches.keep, use, self._clock())
        if turn is not None:
            scenario = turn.of(scenario)
        elif prompt.background:
            return replace(self._background(prompt, scenario, knobs, request), on_accept=on_accept)
        frame = None if turn is None else turn.frame
        program = answer_program(wire, prompt, scenario, knobs, keep=request.keep_alive, frame=frame)
        program.on_accept = on_accept
        storing = STORING.get(request.path)
        if storing is not None and (prompt.stored if turn is None else knobs.error is None):
            program.answer = StoredAnswer(wire=storing, prompt=prompt, scenario=scenario, keys=set())
            if prompt.stored:
                self._store.keep(program.answer, request.key)
        if turn is None and not (knobs.times or prompt.previous or on_accept):
            self._remember(key, program)
        return program

    def _failed(self, wire: Wire, knobs: Knobs, request: HTTPRequest, model: str) -> Program | None:
        """The program of a request that gets no answer, as the knobs ask; None if it gets one."""
        if knobs.drop:
            return no_response(knobs.delay)
        if knobs.fail is None:
            return None
        failure = APIError(knobs.fail, "", code=knobs.code, retry_after=knobs.retry_after)
        failed = Usage(model=model, input_tokens=0, cached_tokens=0, output_tokens=0, max_tokens=0)
        self.limiter.fail(wire.name, request.key, failed, self._clock(), self._wall())
        return self._refused(wire, failure, request, delay=knobs.delay)

    def _background(self, prompt: Prompt, scenario: Scenario, knobs: Knobs, request: HTTPRequest) -> Program:
        """Begin an answer in the background. The response shows its beginning, or its stream from the first event."""
        now, wire = self._clock(), STORING[request.path]
        answer = self._store.create(wire, prompt, scenario, knobs, request.key, now, self._wall())
        if prompt.stream:
            program = answer.stream(0, knobs, now, keep=request.keep_alive)
        else:
            program = answer.shown("queued", knobs, keep=request.keep_alive)
        return replace(program, usage=_usage(prompt, scenario))

    def _stored(self, wire: StoringWire, request: HTTPRequest) -> Program:
        """The program of a request that reads, cancels or deletes an answer. Raises `APIError`."""
        now, method = self._clock(), request.method
        start = next(start for start in STORING if request.path.startswith(start + "/"))
        id, _, action = request.path.removeprefix(start + "/").partition("/")
        if action not in ("", "cancel"):
            raise APIError(404, f"Invalid URL ({method} {request.path})", code=UNKNOWN_URL)
        if method not in (("POST",) if action else ("GET", "DELETE")):
            raise APIError(405, f"Not allowed to {method} on {request.path}.")
        answer = self._store.find(wire, id, request.key)
        knobs = self.knobs_of(request)
        failed = self._failed(wire, knobs, request, answer.prompt.model)
        if failed is not None:
            return failed
        keep, background = request.keep_alive, answer.prompt.background
        if method == "GET" and request.query.get("stream") == "true":
            if not (background and wire.streams_by_id(answer.prompt)):
                raise wire.not_streamed()
            read = wire.events_read(request, answer.scenario)
            return answer.stream(read, knobs, now, keep=keep)
        if method == "DELETE":
            self._store.forget(answer)
            return complete(200, wire.headers(None, "simulator"), wire.deleted(id), keep=keep)
        if action and not background:
            raise wire.not_cancelled()
        last = answer.cancel(now) if action else None
        program = answer.shown(answer.status(now), knobs, keep=keep)
        return replace(program, counted=False, cancels=None if last is None else (answer, last))

    def _batches_of(self, request: HTTPRequest) -> Batches | None:
        """The batch interface of a request. Google's paths may begin with `/v1/`, too."""
        path = request.path
        if path.endswith(":batchGenerateContent"):
            path = GEMINI_BATCHES[0]
        elif path.startswith(("/upload/", "/download/")) or (
            "x-goog-api-key" in request.headers and "authorization" not in request.headers
        ):
            path = path.replace("/v1/", "/v1beta/", 1)
        return next((found for start, found in self._batches.items() if f"{path}/".startswith(start + "/")), None)

    def _batched(self, batches: Batches, request: HTTPRequest) -> Program:
        """The program of a request to a batch interface. Raises `APIError`."""
        knobs = self.knobs_of(request)
        failed = self._failed(batches.wire, knobs, request, "")
        if failed is not None:
            return failed
        reply = batches.reply(request, request.key)
        usual = batches.wire.headers(None, self.jobs.new_id())
        headers = [*reply.headers, *(header for header in usual if header[0] != "content-type")]
        program = unstreamed(
            headers, reply.body, replace(knobs, error=None), status=reply.status, keep=request.keep_alive
        )
        return replace(program, counted=False)

    def _answered(self, request: HTTPRequest) -> tuple[int, bytes, Usage | None]:
        """The answer to a request in a batch: the live one, or an error if that would not come whole."""
        wire = _wire_of(request.path) or OPENAI
        try:
            if (loads_object(request.body) or {}).get("stream") is True:
                raise APIError(400, '"stream=True" is not supported in a batch')
            directives = (request.headers.get(HEADER, ""), UNCHANGED)
            live = replace(request, headers={**request.headers, HEADER: ",".join(filter(None, directives))})
            program = self._program(wire, live, batched=True)
            if program.on_accept is not None:
                program.on_accept()
            status, body = content_of(program)
            if program.ending not in (Ending.KEEP, Ending.CLOSE) or not is_json(body):
                raise APIError(500, "")
        except APIError as failure:
            return failure.status, wire.error_body(failure), None
        return status, body, program.usage

    def _read(self, wire: Wire, request: HTTPRequest) -> tuple[Prompt, Knobs]:
        prompt = wire.read(request)
        if isinstance(request, Turn):
            request.check(prompt)
        if prompt.previous:
            storing = STORING[request.path]
            earlier = self._store.find(storing, prompt.previous, request.key)
            prompt = storing.continued(prompt, earlier.prompt, earlier.scenario)
        header = request.headers.get(HEADER, "")
        knobs = combine(self.knobs, directive_in_model(prompt.model), directive_in_text(prompt.text), header)
        return prompt, self._faults(knobs, request)

    def _faults(self, knobs: Knobs, request: HTTPRequest) -> Knobs:
        """The knobs, without faults if those are used up."""
        if knobs.times and knobs.faulty and self._faults_used_up(knobs, request):
            return replace(knobs.without_faults(), times=0)
        return knobs

    def _faults_used_up(self, knobs: Knobs, request: HTTPRequest) -> bool:
        """Whether the first `times` requests of this key, which go wrong, are over."""
        if len(self._repeats) > REPEATED_KEYS:
            self._repeats.clear()
        key = knobs.key or f"{request.path} {knobs!r}"
        self._repeats[key] += 1
        return self._repeats[key] > knobs.times

    def _remember(self, key: tuple[str, str, bytes, bool], program: Program) -> None:
        self._frames += len(program.frames)
        if self._frames > CACHED_FRAMES:
            self._programs.clear()
            self._frames = len(program.frames)
        self._programs[key] = program

    def _refused(self, wire: Wire, failure: APIError, request: HTTPRequest, *, delay: float = 0.0) -> Program:
        self.statistics.refused += 1
        if isinstance(request, Turn):
            frame = error_frame(failure, request.stream, [*wire.error_headers(failure), *failure.headers])
            return Program([frame], delay=delay, counted=False)
        headers = [*wire.headers(None, "simulator"), *wire.error_headers(failure), *failure.headers]
        return complete(failure.status, headers, wire.error_body(failure), delay=delay, keep=request.keep_alive)


def _wire_of(path: str) -> Wire | None:
    """The dialect of a path; None for an unknown path."""
    generates = path.startswith(("/v1beta/models/", "/v1/models/")) and path.endswith(GEMINI_METHODS)
    if generates or path.startswith(CACHED_CONTENTS):
        return GEMINI
    return WIRES.get(path)


def _at_usual_path(request: HTTPRequest) -> HTTPRequest:
    """The request at OpenAI's path. Azure's key is in a header of its own."""
    headers = request.headers
    if "api-key" in headers:
        headers = {**headers, "authorization": f"Bearer {headers['api-key']}"}
    return replace(request, target=USUAL_PATHS.sub("/v1/", request.target, count=1), headers=headers)


def _usage(prompt: Prompt, scenario: Scenario) -> Usage:
    """What an answer uses of the limits."""
    tokens = scenario.tokens
    return Usage(
        model=prompt.model,
        input_tokens=tokens.input,
        cached_tokens=tokens.cached,
        output_tokens=tokens.output + tokens.thinking,
        max_tokens=prompt.max_tokens or 0,
        streamed=prompt.stream,
    )


def answer_program(
    wire: Wire,
    prompt: Prompt,
    scenario: Scenario,
    knobs: Knobs,
    *,
    keep: bool,
    frame: Callable[[bytes], bytes] | None = None,
) -> Program:
    """The program of a successful answer, with the faults that the knobs ask for. frame: that of `streamed`."""
    usage = _usage(prompt, scenario)
    headers = wire.headers(prompt, scenario.identity[:24])
    failure = APIError(knobs.error_status, "", code=knobs.code)
    if not prompt.stream:
        body = wire.body(prompt, scenario)
        program = unstreamed(headers, body, knobs, error_body=wire.error_body(failure), keep=keep)
        return replace(program, usage=usage)
    events = wire.frames(prompt, scenario)
    error_events: list[bytes] = []
    if knobs.error is not None:
        error_events = wire.error_frames(prompt, scenario, failure, position_of(knobs.error, len(events)))
    program = streamed(headers, events, knobs, error_events=error_events, ping=wire.ping, keep=keep, frame=frame)
    return replace(program, usage=usage)
