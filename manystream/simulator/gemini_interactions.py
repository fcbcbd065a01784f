"""Google's Interactions API on the wire: `POST /v1beta/interactions`, and `/v1beta/interactions/{id}` for an answer.

A conversation and an answer are lists of steps: thoughts, outputs, function calls. Each step of a stream is started,
filled by deltas, and stopped. The last event has the status and the usage, and no steps. The API keeps answers unless
`store` is false: `previous_interaction_id` continues one. In a stream in the background some events have an `event_id`,
from which the stream is read again.
"""

from __future__ import annotations

import base64
import re

from ..http_server import HTTPRequest
from .gemini import STATUS, GoogleWire, google_error
from .json_text import JSON, JSONObject, dumps, integer, loads_object, mapping, objects, string, text_length
from .prompt import APIError, Prompt, ToolDeclaration, ToolResult
from .request_checks import GEMINI_TOOL_NAME, INTERACTIONS, INTERACTIONS_CONFIG, wrong_members, wrong_name
from .scenario import Scenario, ScriptedCall, is_forged
from .wire import JSON_MODE, body_object, ending, last_turn, split_at, sse

CREATED = "2023-11-14T22:13:20Z"
DONE = b"event: done\ndata: [DONE]\n\n"
STATUSES = {"stop": "completed", "length": "incomplete", "tool_use": "requires_action", "content_filter": "failed"}
CODES = {400: "invalid_request", 404: "not_found", 405: "invalid_request", 500: "internal_error"}
"""HTTP status → the code of an error of the API's own. Other errors are Google's, as those of every API of theirs."""

CHOICES = {"auto": "auto", "any": "required", "none": "none", "validated": "auto"}
EVENTS_PER_ID = 3
"""One of so many deltas of a stream in the background has an id."""

_EVENT_ID = re.compile(rb"([0-9]{1,9})_[0-9a-f]{8}")


class GeminiInteractionsWire(GoogleWire):
    """The dialect."""

    name = "gemini-interactions"
    ping = b": keep-alive\n\n"

    def read(self, request: HTTPRequest) -> Prompt:
        body = body_object(request)
        for path, expected, value in (
            *wrong_members(body, INTERACTIONS),
            *wrong_members(mapping(body, "generation_config"), INTERACTIONS_CONFIG, "generation_config."),
        ):
            raise APIError(400, f"Invalid value at '{path}': {dumps(value).decode()[:60]} is not {expected}.")
        if not (string(body, "model") or string(body, "agent")):
            raise APIError(400, "Either model or agent must be specified.")
        functions = [tool for tool in objects(body, "tools") if string(tool, "type") == "function"]
        wrong = wrong_name(functions, GEMINI_TOOL_NAME)
        if wrong is not None:
            raise APIError(400, f"Invalid function name at 'tools': {string(functions[wrong], 'name')[:60]!r}.")
        background = body.get("background") is True
        if background and body.get("store") is False:
            raise APIError(400, "background=true requires store=true.")
        steps = _steps(body)
        if not steps:
            raise APIError(400, "Input is required.")
        return _prompt(body, steps)

    def continued(self, prompt: Prompt, earlier: Prompt, answer: Scenario) -> Prompt:
        return _prompt(prompt.body, [*_steps(earlier.body), *_answer_steps(answer), *_steps(prompt.body)], whole=True)

    def frames(self, prompt: Prompt, scenario: Scenario) -> list[bytes]:
        return _StreamWriter(prompt, scenario).write()

    def body(self, prompt: Prompt, scenario: Scenario) -> bytes:
        interaction = _ended(prompt, scenario)
        interaction["steps"] = [*_answer_steps(scenario)]
        return dumps(interaction)

    def error_body(self, failure: APIError) -> bytes:
        own = failure.status in CODES and failure.details is None and failure.retry_after is None
        return dumps({"error": _own_error(failure) if own else google_error(failure)})

    def error_frames(self, prompt: Prompt, scenario: Scenario, failure: APIError, position: int) -> list[bytes]:
        return [_event("error", error=_own_error(failure))]

    def id(self, scenario: Scenario) -> str:
        return scenario.id("v1_", 40)

    def shown(self, prompt: Prompt, scenario: Scenario, status: str, failure: APIError | None) -> bytes:
        ended = status == "ended"
        if ended:
            interaction = _ended(prompt, scenario)
        else:
            interaction = _interaction(prompt, scenario, "in_progress" if status == "queued" else status)
            interaction.update(created=CREATED, updated=CREATED)
        if failure is not None and status == "failed":
            interaction["errors"] = [_own_error(failure)]
        interaction["steps"] = [*_steps(prompt.body), *(_answer_steps(scenario) if ended else [])]
        return dumps(interaction)

    def cancelled_frames(self, prompt: Prompt, scenario: Scenario, position: int) -> list[bytes]:
        interaction = _interaction(prompt, scenario, "cancelled")
        more = {"event_id": _event_id(scenario, position)}
        return [_event("interaction.completed", interaction=interaction, **more), DONE]

    def events_read(self, request: HTTPRequest, scenario: Scenario) -> int:
        given = request.query.get("last_event_id", "")
        if not given:
            return 0
        try:
            found = _EVENT_ID.fullmatch(base64.urlsafe_b64decode(given.removeprefix("v1_") + "=="))
        except ValueError:
            found = None
        if found is None or given != _event_id(scenario, int(found[1])):
            raise APIError(400, "Invalid last_event_id.")
        return int(found[1]) + 1

    def not_found(self, id: str) -> APIError:
        return APIError(404, f"Interaction '{id[:80]}' is not found.")

    def streams_by_id(self, prompt: Prompt) -> bool:
        return True

    def not_streamed(self) -> APIError:
        return APIError(400, "Only an interaction that was created with background=true can be streamed.")

    def not_cancelled(self) -> APIError:
        return APIError(400, "Only an interaction in the background can be cancelled.")

    def deleted(self, id: str) -> bytes:
        return b"{}"


class _StreamWriter:
    """The writer of one stream. It numbers events and steps."""

    def __init__(self, prompt: Prompt, scenario: Scenario) -> None:
        self.prompt = prompt
        self.scenario = scenario
        self.frames: list[bytes] = []
        self.steps = 0

    def write(self) -> list[bytes]:
        prompt, scenario = self.prompt, self.scenario
        self._event("interaction.created", identified=True, interaction=_interaction(prompt, scenario, "in_progress"))
        self._event("interaction.status_update", interaction_id=scenario.id("v1_", 40), status="in_progress")
        if scenario.thinking_pieces or scenario.redacted is not None:
            summary: JSONObject = {"content": {"text": "<text>", "type": "text"}, "type": "thought_summary"}
            signature: JSONObject = {"signature": _signature(scenario), "type": "thought_signature"}
            self._step({"type": "thought"}, summary, scenario.thinking_pieces, signature)
        if scenario.text_pieces or not scenario.calls:
            self._step({"type": "model_output"}, {"text": "<text>", "type": "text"}, scenario.text_pieces)
        for call in scenario.calls:
            delta: JSONObject = {"arguments": "<text>", "type": "arguments_delta"}
            self._step({**_call_step(call), "arguments": {}}, delta, call.fragments)
        self._event("interaction.completed", identified=True, interaction=_ended(prompt, scenario))
        self.frames.append(DONE)
        return self.frames

    def _event(self, type: str, *, identified: bool = False, **members: JSON) -> None:
        if identified and self.prompt.background:
            members["event_id"] = _event_id(self.scenario, len(self.frames))
        self.frames.append(_event(type, **members))

    def _step(self, step: JSONObject, delta: JSONObject, pieces: tuple[str, ...], *more: JSONObject) -> None:
        """One step, with a delta for each piece. delta: has `<text>` where the piece belongs. more: further deltas."""
        place = self.steps
        self._event("step.start", index=place, step=step)
        type = "step.delta"
        members: JSONObject = {"index": place, "delta": delta, "event_type": type}
        before, after = split_at(members, "<text>")
        for number, piece in enumerate(pieces):
            data = before + dumps(piece) + after
            if self.prompt.background and number % EVENTS_PER_ID == 0:
                data = b'%b,"event_id":"%b"}' % (data[:-1], _event_id(self.scenario, len(self.frames)).encode())
            self.frames.append(sse(data, type))
        for other in more:
            self._event(type, index=place, delta=other)
        self._event("step.stop", index=place)
        self.steps += 1


def _event(type: str, **members: JSON) -> bytes:
    id = members.pop("event_id", None)
    return sse(dumps({**members, "event_type": type, **({} if id is None else {"event_id": id})}), type)


def _event_id(scenario: Scenario, position: int) -> str:
    """The id of the event at a position. It is opaque to clients."""
    return "v1_" + base64.urlsafe_b64encode(f"{position}_{scenario.identity[:8]}".encode()).decode().rstrip("=")


def _interaction(prompt: Prompt, scenario: Scenario, status: str) -> JSONObject:
    named = "model" if string(prompt.body, "model") else "agent"
    return {"id": scenario.id("v1_", 40), "status": status, "object": "interaction", named: scenario.model}


def _ended(prompt: Prompt, scenario: Scenario) -> JSONObject:
    """The interaction at its end, without its steps."""
    tokens = scenario.tokens
    return {
        **_interaction(prompt, scenario, STATUSES[scenario.finish]),
        "usage": {
            "total_tokens": tokens.input + tokens.output + tokens.thinking,
            "total_input_tokens": tokens.input,
            "input_tokens_by_modality": [{"modality": "text", "tokens": tokens.input}],
            "total_cached_tokens": tokens.cached,
            "total_output_tokens": tokens.output,
            "total_tool_use_tokens": 0,
            "total_thought_tokens": tokens.thinking,
        },
        "created": CREATED,
        "updated": CREATED,
        "service_tier": string(prompt.body, "service_tier") or "standard",
    }


def _answer_steps(scenario: Scenario) -> list[JSONObject]:
    steps: list[JSONObject] = []
    if scenario.thinking_pieces or scenario.redacted is not None:
        summary: list[JSON] = [{"text": scenario.thinking, "type": "text"}] if scenario.thinking_pieces else []
        thought: JSONObject = {"signature": _signature(scenario), "type": "thought"}
        steps.append({**thought, "summary": summary} if summary else thought)
    if scenario.text_pieces or not scenario.calls:
        content: list[JSON] = [{"text": scenario.text, "type": "text"}] if scenario.text_pieces else []
        steps.append({"content": content, "type": "model_output"})
    steps += [_call_step(call) for call in scenario.calls]
    return steps


def _signature(scenario: Scenario) -> str:
    return scenario.redacted or scenario.signature


def _call_step(call: ScriptedCall) -> JSONObject:
    arguments = loads_object(call.arguments) if call.complete else {}
    return {"id": f"fc_{call.id}", "name": call.name, "arguments": arguments or {}, "type": "function_call"}


def _own_error(failure: APIError) -> JSONObject:
    status, message = STATUS.get(failure.status, STATUS[500 if failure.status >= 500 else 400])
    code = failure.code or CODES.get(failure.status, status.lower())
    return {"message": failure.message or message, "code": code}


def _steps(body: JSONObject) -> list[JSONObject]:
    """The steps of a request's input. It may be a text, one content, contents, or steps."""
    given = body.get("input")
    text: JSONObject = {"type": "text", "text": given}
    entries: list[JSONObject] = objects({"input": [text if isinstance(given, str) else given]}, "input")
    entries = entries or objects(body, "input")
    steps: list[JSONObject] = []
    for entry in entries:
        kind = string(entry, "type")
        if kind in CONTENTS or kind == "user_input":
            contents: list[JSONObject] = [entry] if kind in CONTENTS else _contents(entry)
            results = [content for content in contents if string(content, "type") == "function_result"]
            others: list[JSON] = [content for content in contents if content not in results]
            if others:
                steps.append({"type": "user_input", "content": others})
            steps += results
        else:
            steps.append(entry)
    return steps


TURNS = {"user_input": "user", "function_result": "tools"}
CONTENTS = frozenset({"text", "image", "audio", "video", "document"})
"""Types of contents. Any other type is one of steps."""


def _contents(step: JSONObject) -> list[JSONObject]:
    content = step.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else objects(step, "content")


def _characters(step: JSONObject) -> int:
    """The length of a step's text."""
    said = sum(len(string(content, "text")) for content in _contents(step))
    return said + text_length([step.get("result"), step.get("arguments")])


def _prompt(body: JSONObject, steps: list[JSONObject], *, whole: bool = False) -> Prompt:
    """The prompt of a request. whole: `steps` begin with those of the interaction that it continues."""
    previous = string(body, "previous_interaction_id")
    names = {string(step, "id"): string(step, "name") for step in steps if string(step, "type") == "function_call"}
    if whole or not previous:
        _check_steps(steps, names)
    config = mapping(body, "generation_config")
    last_user, rounds = last_turn((TURNS.get(string(step, "type"), ""), step) for step in steps)
    formats = objects(body, "response_format") or [mapping(body, "response_format")]
    schema = mapping(formats[0], "schema")
    if not schema and string(formats[0], "mime_type") == "application/json":
        schema = JSON_MODE
    return Prompt(
        model=string(body, "model") or string(body, "agent"),
        text="".join(string(content, "text") for content in _contents(last_user)),
        stream=body.get("stream") is True,
        tools=tuple(
            ToolDeclaration(string(tool, "name"), mapping(tool, "parameters"))
            for tool in objects(body, "tools")
            if string(tool, "type") == "function"
        ),
        tool_choice=_tool_choice(config),
        tool_results=tuple(_result(step, names) for step in ending(steps, "type", "function_result")),
        rounds=rounds,
        schema=schema or None,
        max_tokens=integer(config, "max_output_tokens"),
        characters=sum(_characters(step) for step in steps) + len(string(body, "system_instruction")),
        stored=body.get("store") is not False,
        background=body.get("background") is True,
        previous=previous,
        body={**body, "input": [*steps]},
    )


def _tool_choice(config: JSONObject) -> str:
    choice = config.get("tool_choice")
    allowed = mapping(mapping(config, "tool_choice"), "allowed_tools")
    word = CHOICES.get(choice if isinstance(choice, str) else string(allowed, "mode"), "auto")
    named = allowed.get("tools")
    return str(named[0]) if word == "required" and isinstance(named, list) and len(named) == 1 else word


def _check_steps(steps: list[JSONObject], names: dict[str, str]) -> None:
    """Check the conversation. Raises `APIError` for what the service does not accept."""
    answered = {string(step, "call_id") for step in steps if string(step, "type") == "function_result"}
    for call in sorted(answered - names.keys()):
        raise APIError(400, f"No function call was found for the function result with call_id '{call[:80]}'.")
    for call in sorted(names.keys() - answered):
        raise APIError(400, f"No function result was found for the function call with id '{call[:80]}'.")
    for step in steps:
        summary = "".join(string(part, "text") for part in objects(step, "summary"))
        if string(step, "type") == "thought" and summary and is_forged(string(step, "signature"), summary):
            raise APIError(400, "Thought signature is not valid.")


def _result(step: JSONObject, names: dict[str, str]) -> ToolResult:
    result = step.get("result")
    text = result if isinstance(result, str) else dumps(result).decode()
    if isinstance(result, list):
        text = "".join(string(part, "text") for part in objects(step, "result"))
    return ToolResult(names.get(string(step, "call_id")) or string(step, "name"), text)
