"""OpenAI Responses on the wire: `POST /v1/responses`, and `/v1/responses/{id}` for an answer that is kept.

Every event has its name twice (SSE's `event:` and `type`) and a `sequence_number` from 0. Items follow each other:
reasoning, message, function calls. Each item is added, filled by deltas, and done. The last event repeats all items. A
reasoning item has `encrypted_content` if the request's `include` asks for it. If it comes back changed, the response
is an error.
"""

from __future__ import annotations

import re

from ..http_server import HTTPRequest
from .json_text import JSON, JSONObject, dumps, integer, mapping, objects, string, text_length
from .openai_chat import (
    MISSING,
    WRONG_TYPE,
    OpenAIWire,
    check_tools,
    check_types,
    content_text,
    error_object,
    is_function,
    obfuscation,
)
from .prompt import APIError, Prompt, ToolDeclaration, ToolResult
from .request_checks import RESPONSES
from .scenario import Scenario, ScriptedCall, is_forged, sign
from .wire import CREATED, JSON_MODE, body_object, ending, last_turn, split_at, sse

_EVENT_NUMBER = re.compile(r"-?[0-9]{1,18}")
INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter", "steered": "steered"}
ENCRYPTED = "reasoning.encrypted_content"
SUMMARY_EVENT, TEXT_EVENT = "response.reasoning_summary_text.delta", "response.output_text.delta"
ARGUMENTS_EVENT = "response.function_call_arguments.delta"


TURNS = {"function_call": "tools", "function_call_output": "results", "reasoning": "reasoning"}


class OpenAIResponsesWire(OpenAIWire):
    """The dialect."""

    name = "openai-responses"
    ping = b'event: keepalive\ndata: {"type":"keepalive","sequence_number":0}\n\n'

    def read(self, request: HTTPRequest) -> Prompt:
        body = body_object(request)
        model = string(body, "model")
        if not model:
            raise APIError(400, "Missing required parameter: 'model'.", param="model", code=MISSING)
        check_types(body, RESPONSES)
        functions = [(place, tool) for place, tool in enumerate(objects(body, "tools")) if is_function(tool)]
        check_tools(functions, "tools[{}].name", _tool_choice(body))
        items = items_of(body)
        if not items:
            raise APIError(400, "Missing required parameter: 'input'.", param="input", code=MISSING)
        return _prompt(body, items)

    def continued(self, prompt: Prompt, earlier: Prompt, answer: Scenario) -> Prompt:
        items = whole_input(earlier, answer, items_of(prompt.body))
        return _prompt({**prompt.body, "input": [*items]}, items, whole=True)

    def frames(self, prompt: Prompt, scenario: Scenario) -> list[bytes]:
        return _StreamWriter(prompt, scenario).write()

    def body(self, prompt: Prompt, scenario: Scenario) -> bytes:
        return dumps(final_response(prompt, scenario))

    def error_frames(self, prompt: Prompt, scenario: Scenario, failure: APIError, position: int) -> list[bytes]:
        error = error_object(failure)
        code = error["code"] or "server_error"
        error = {"type": error["type"], "code": code, "message": error["message"], "param": error["param"]}
        response = _failed_response(prompt, scenario, failure)
        return [
            sse(dumps({"type": "error", "sequence_number": position, "error": error}), "error"),
            sse(
                dumps({"type": "response.failed", "sequence_number": position + 1, "response": response}),
                "response.failed",
            ),
        ]

    def id(self, scenario: Scenario) -> str:
        return scenario.id("resp_", 48)

    def shown(self, prompt: Prompt, scenario: Scenario, status: str, failure: APIError | None) -> bytes:
        if status == "ended":
            return self.body(prompt, scenario)
        if failure is not None and status == "failed":
            return dumps(_failed_response(prompt, scenario, failure))
        return dumps(response_object(prompt, scenario, status))

    def cancelled_frames(self, prompt: Prompt, scenario: Scenario, position: int) -> list[bytes]:
        return []  # the stream just ends

    def events_read(self, request: HTTPRequest, scenario: Scenario) -> int:
        after = request.query.get("starting_after", "-1")
        if not _EVENT_NUMBER.fullmatch(after):
            message = f"Invalid 'starting_after': expected an integer, but got {after[:40]!r} instead."
            raise APIError(400, message, param="starting_after", code=WRONG_TYPE)
        return max(0, int(after) + 1)

    def not_found(self, id: str) -> APIError:
        return APIError(404, f"Response with id '{id[:80]}' not found.", type="invalid_request_error", code="")

    def streams_by_id(self, prompt: Prompt) -> bool:
        return prompt.stream

    def not_streamed(self) -> APIError:
        message = "This response was not created with background=true and stream=true and cannot be streamed."
        return APIError(400, message, param="stream", code="")

    def not_cancelled(self) -> APIError:
        return APIError(400, "Cannot cancel a synchronous response.", code="")

    def deleted(self, id: str) -> bytes:
        return dumps({"id": id, "object": "response", "deleted": True})


class _StreamWriter:
    """The writer of one stream. It numbers events and items."""

    def __init__(self, prompt: Prompt, scenario: Scenario) -> None:
        self.prompt = prompt
        self.scenario = scenario
        self.frames: list[bytes] = []
        self.items = 0
        options = mapping(prompt.body, "stream_options")
        self.padded = options.get("include_obfuscation") is not False

    def write(self) -> list[bytes]:
        prompt, scenario = self.prompt, self.scenario
        begins = "queued" if prompt.background else "in_progress"
        self._event("response.created", response=response_object(prompt, scenario, begins))
        if prompt.background:
            self._event("response.queued", response=response_object(prompt, scenario, "queued"))
        self._event("response.in_progress", response=response_object(prompt, scenario, "in_progress"))
        if _thinks(scenario):
            self._reasoning()
        if scenario.text_pieces or not (scenario.calls or prompt.prewarm):
            self._message()
        for call in scenario.calls:
            self._call(call)
        final = final_response(prompt, scenario)
        self._event(f"response.{final['status']}", response=final)
        return self.frames

    def _event(self, type: str, **members: JSON) -> None:
        self.frames.append(sse(dumps({"type": type, "sequence_number": len(self.frames), **members}), type))

    def _deltas(self, type: str, pieces: tuple[str, ...], **members: JSON) -> None:
        padding: JSONObject = {"obfuscation": "<padding>"} if self.padded else {}
        marks = ("<number>", "<delta>", *padding.values())
        event: JSONObject = {"type": type, "sequence_number": "<number>", **members, "delta": "<delta>", **padding}
        first, second, third, *rest = split_at(event, *marks)
        first = b"event: %b\ndata: %b" % (type.encode(), first)
        last = (rest[0] if rest else third) + b"\n\n"
        number = len(self.frames)
        for piece in pieces:
            tail = third + b'"%b"' % obfuscation(piece).encode() + last if self.padded else last
            self.frames.append(b"%b%d%b%b%b" % (first, number, second, dumps(piece), tail))
            number += 1

    def _reasoning(self) -> None:
        scenario, place = self.scenario, self.items
        item = _reasoning_item(self.prompt, scenario)
        where: JSONObject = {"item_id": item["id"], "output_index": place, "summary_index": 0}
        self._event("response.output_item.added", output_index=place, item={**item, "summary": []})
        if scenario.thinking_pieces:
            kind = "response.reasoning_summary_"
            part: JSON = {"type": "summary_text", "text": scenario.thinking}
            self._event(kind + "part.added", **where, part={"type": "summary_text", "text": ""})
            self._deltas(SUMMARY_EVENT, scenario.thinking_pieces, **where)
            self._event(kind + "text.done", **where, text=scenario.thinking)
            self._event(kind + "part.done", **where, part=part)
        self._event("response.output_item.done", output_index=place, item=item)
        self.items += 1

    def _message(self) -> None:
        scenario, place = self.scenario, self.items
        item = _message_item(scenario)
        where: JSONObject = {"item_id": item["id"], "output_index": place, "content_index": 0}
        self._event(
            "response.output_item.added", output_index=place, item={**item, "status": "in_progress", "content": []}
        )
        self._event("response.content_part.added", **where, part=_text_part(""))
        self._deltas(TEXT_EVENT, scenario.text_pieces, **where, logprobs=[])
        self._event("response.output_text.done", **where, text=scenario.text, logprobs=[])
        self._event("response.content_part.done", **where, part=_text_part(scenario.text))
        self._event("response.output_item.done", output_index=place, item=item)
        self.items += 1

    def _call(self, call: ScriptedCall) -> None:
        place = self.items
        item = _call_item(self.scenario, call)
        where: JSONObject = {"item_id": item["id"], "output_index": place}
        self._event(
            "response.output_item.added", output_index=place, item={**item, "status": "in_progress", "arguments": ""}
        )
        self._deltas(ARGUMENTS_EVENT, call.fragments, **where)
        self._event("response.function_call_arguments.done", **where, name=call.name, arguments=call.arguments)
        self._event("response.output_item.done", output_index=place, item=item)
        self.items += 1


def response_object(prompt: Prompt, scenario: Scenario, status: str) -> JSONObject:
    """The response object without its output. It repeats the settings of the request."""
    body = prompt.body
    return {
        "id": scenario.id("resp_", 48),
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "background": prompt.background,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "model": scenario.model,
        "output": [],
        "parallel_tool_calls": prompt.parallel,
        "previous_response_id": body.get("previous_response_id"),
        "reasoning": {"effort": None, "summary": None, **mapping(body, "reasoning")},
        "service_tier": "default",
        "store": body.get("store") is not False,
        "temperature": body.get("temperature", 1.0),
        "text": {"format": {"type": "text"}, **mapping(body, "text")},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools", []),
        "top_p": body.get("top_p", 1.0),
        "truncation": "disabled",
        "usage": None,
        "user": None,
        "metadata": body.get("metadata") or {},
    }


def _failed_response(prompt: Prompt, scenario: Scenario, failure: APIError) -> JSONObject:
    """The response object of an answer that an error ended."""
    response = response_object(prompt, scenario, "failed")
    error = error_object(failure)
    response["error"] = {"code": error["code"] or "server_error", "message": error["message"]}
    return response


def final_response(prompt: Prompt, scenario: Scenario) -> JSONObject:
    """The response object at the end."""
    reason = None if prompt.prewarm else INCOMPLETE.get(scenario.finish)
    response = response_object(prompt, scenario, "incomplete" if reason else "completed")
    tokens = scenario.tokens
    written = tokens.written or 0
    lifetimes: JSONObject = {"ttl_30m_tokens": written - tokens.written_long, "ttl_12h_tokens": tokens.written_long}
    details: JSONObject = {} if tokens.written is None else {"cache_write_tokens_details": lifetimes}
    response["output"] = [*_output(prompt, scenario)]
    response["incomplete_details"] = {"reason": reason} if reason else None
    response["completed_at"] = CREATED
    response["usage"] = {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": written, **details},
        "output_tokens": tokens.output + tokens.thinking,
        "output_tokens_details": {"reasoning_tokens": tokens.thinking},
        "total_tokens": tokens.input + tokens.output + tokens.thinking,
    }
    return response


def _output(prompt: Prompt, scenario: Scenario) -> list[JSONObject]:
    """The items of an answer."""
    output: list[JSONObject] = []
    if _thinks(scenario):
        output.append(_reasoning_item(prompt, scenario))
    if scenario.text_pieces or not (scenario.calls or prompt.prewarm):
        output.append(_message_item(scenario))
    return [*output, *(_call_item(scenario, call) for call in scenario.calls)]


def whole_input(earlier: Prompt, answer: Scenario, items: list[JSONObject]) -> list[JSONObject]:
    """The input of a request that continues an answer with items: what went before it, the answer, and the items."""
    return [*items_of(earlier.body), *_output(earlier, answer), *items]


def items_of(body: JSONObject) -> list[JSONObject]:
    """The items of a request's input."""
    given = body.get("input")
    return [{"role": "user", "content": given}] if isinstance(given, str) else objects(body, "input")


def _prompt(body: JSONObject, items: list[JSONObject], *, whole: bool = False) -> Prompt:
    """The prompt of a request. whole: `items` begin with those of the response that it continues."""
    previous = string(body, "previous_response_id")
    names = _check_items(items) if whole or not previous else {}
    last_user, rounds = last_turn((TURNS.get(string(item, "type"), string(item, "role")), item) for item in items)
    format = mapping(mapping(body, "text"), "format")
    schema = JSON_MODE if string(format, "type") == "json_object" else mapping(format, "schema")
    prewarm = mapping(body, "prompt_cache_options").get("prewarm") is True or body.get("generate") is False
    return Prompt(
        model=string(body, "model"),
        text=content_text(last_user.get("content")),
        stream=body.get("stream") is True,
        tools=tuple(
            ToolDeclaration(string(tool, "name"), mapping(tool, "parameters"))
            for tool in objects(body, "tools")
            if string(tool, "type") == "function"
        ),
        tool_choice=_tool_choice(body),
        parallel=body.get("parallel_tool_calls") is not False,
        tool_results=tuple(
            ToolResult(names.get(string(item, "call_id"), ""), content_text(item.get("output")))
            for item in ending(items, "type", "function_call_output")
        ),
        rounds=rounds,
        schema=schema or None,
        max_tokens=0 if prewarm else integer(body, "max_output_tokens"),
        prewarm=prewarm,
        characters=text_length([item.get("content") or item.get("output") for item in items])
        + len(string(body, "instructions")),
        stored=body.get("store") is not False or body.get("background") is True,
        background=body.get("background") is True,
        previous=previous,
        body=body,
    )


def _thinks(scenario: Scenario) -> bool:
    return bool(scenario.thinking_pieces) or scenario.redacted is not None


def _reasoning_item(prompt: Prompt, scenario: Scenario) -> JSONObject:
    id = scenario.id("rs_", 48)
    summary: list[JSON] = [{"type": "summary_text", "text": scenario.thinking}] if scenario.thinking_pieces else []
    item: JSONObject = {"id": id, "type": "reasoning", "summary": summary}
    included = prompt.body.get("include")
    if isinstance(included, list) and ENCRYPTED in included:
        item["encrypted_content"] = sign(id)
    return item


def _text_part(text: str) -> JSONObject:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _message_item(scenario: Scenario) -> JSONObject:
    status = "incomplete" if scenario.finish in INCOMPLETE and not scenario.calls else "completed"
    return {
        "id": scenario.id("msg_", 48),
        "type": "message",
        "status": status,
        "content": [_text_part(scenario.text)],
        "role": "assistant",
    }


def _call_item(scenario: Scenario, call: ScriptedCall) -> JSONObject:
    return {
        "id": scenario.id("fc_", 48, call.id),
        "type": "function_call",
        "status": "completed" if call.complete else "incomplete",
        "arguments": call.arguments,
        "call_id": f"call_{call.id}",
        "name": call.name,
    }


def _check_items(items: list[JSONObject]) -> dict[str, str]:
    """Tool names by call id. Raises `APIError` for conversations that the service does not accept."""
    names: dict[str, str] = {}
    answered: set[str] = set()
    for item in items:
        kind = string(item, "type") or "message"
        if kind == "function_call":
            names[string(item, "call_id")] = string(item, "name")
        elif kind == "function_call_output":
            call = string(item, "call_id")
            if call not in names:
                raise APIError(400, f"No tool call found for function call output with call_id {call}.", param="input")
            answered.add(call)
        elif kind == "reasoning" and is_forged(string(item, "encrypted_content"), string(item, "id")):
            raise APIError(
                400,
                f"The encrypted content for item {string(item, 'id')} could not be verified.",
                code="invalid_encrypted_content",
            )
    missing = sorted(set(names) - answered)
    if missing:
        raise APIError(400, f"No tool output found for function call {missing[0]}.", param="input")
    return names


def _tool_choice(body: JSONObject) -> str:
    choice = body.get("tool_choice")
    return choice if isinstance(choice, str) else string(mapping(body, "tool_choice"), "name") or "auto"
