"""Anthropic Messages on the wire: `POST /v1/messages`.

A content block is started, filled by deltas, and stopped. A thinking block gets its signature just before it stops.
The first delta of a tool call is empty. A ping follows the start of the first block. `message_delta` has the stop
reason and the cumulative usage. `input_tokens` does not count cached tokens. A signature that comes back with changed
thinking is an error, as it is at the service.
"""

from __future__ import annotations

import math

from ..http_server import HTTPRequest
from .json_text import JSON, JSONObject, dumps, integer, loads_object, mapping, objects, string, text_length
from .openai_chat import content_text
from .prompt import APIError, Prompt, ToolDeclaration, ToolResult
from .request_checks import ANTHROPIC, ANTHROPIC_TOOL_NAME, wrong_members, wrong_name
from .scenario import Scenario, is_forged
from .wire import body_object, last_turn, seconds_text, split_at, sse

STOP_REASON = {"stop": "end_turn", "length": "max_tokens", "tool_use": "tool_use", "content_filter": "refusal"}
ERRORS: dict[int, tuple[str, str]] = {
    400: ("invalid_request_error", "The request is invalid."),
    401: ("authentication_error", "invalid x-api-key"),
    402: ("billing_error", "Your credit balance is too low."),
    403: ("permission_error", "Your API key does not have permission to use the specified resource."),
    404: ("not_found_error", "The requested resource could not be found."),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your organization's rate limit."),
    500: ("api_error", "Internal server error"),
    504: ("timeout_error", "Request timed out"),
    529: ("overloaded_error", "Overloaded"),
}
"""Status → the error's type and message."""

INTERLEAVED = "interleaved-thinking"
"""The beta in which the budget of thinking may be larger than `max_tokens`."""

LEAST_THINKING = 1024
"""The smallest budget of thinking, in tokens."""

TOOL_CHOICE = {"any": "required", "auto": "auto", "none": "none"}


class AnthropicWire:
    """The dialect."""

    name = "anthropic"
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'

    def check_headers(self, request: HTTPRequest) -> None:
        headers = request.headers
        if not (headers.get("x-api-key") or headers.get("authorization", "").lower().startswith("bearer ")):
            raise APIError(401, "x-api-key header is required")
        if "anthropic-version" not in headers:
            raise APIError(400, "anthropic-version: header is required")

    def read(self, request: HTTPRequest) -> Prompt:
        body = body_object(request)
        model = string(body, "model")
        for name in ("model", "max_tokens", "messages"):
            if name not in body:
                raise APIError(400, f"{name}: Field required")
        limit = integer(body, "max_tokens")
        if not model or limit is None or limit < 0:
            raise APIError(
                400, "model: Field required" if not model else "max_tokens: must be greater than or equal to 0"
            )
        for path, expected, _ in wrong_members(body, ANTHROPIC):
            raise APIError(400, f"{path}: Input should be {expected}")
        _check_tools(body)
        _check_thinking(body, math.inf if INTERLEAVED in request.headers.get("anthropic-beta", "") else limit)
        messages = objects(body, "messages")
        if not messages:
            raise APIError(400, "messages: at least one message is required")
        names = _check_messages(messages)
        turns = [message for message in messages if string(message, "role") != "system"]
        last_user, rounds = last_turn(
            ("tools" if _tool_results(turn) else string(turn, "role"), turn) for turn in turns
        )
        format = mapping(mapping(body, "output_config"), "format") or mapping(body, "output_format")
        choice = mapping(body, "tool_choice")
        kind = string(choice, "type")
        if limit == 0:
            _check_prewarm(body)
        return Prompt(
            model=model,
            text=content_text(last_user.get("content")),
            stream=body.get("stream") is True,
            tools=tuple(
                ToolDeclaration(string(tool, "name"), mapping(tool, "input_schema"))
                for tool in objects(body, "tools")
                if "input_schema" in tool
            ),
            tool_choice=string(choice, "name") if kind == "tool" else TOOL_CHOICE.get(kind, "auto"),
            parallel=choice.get("disable_parallel_tool_use") is not True,
            tool_results=tuple(
                ToolResult(names[string(block, "tool_use_id")], content_text(block.get("content")))
                for block in _tool_results(turns[-1])
            ),
            rounds=rounds,
            schema=mapping(format, "schema") or None,
            max_tokens=limit,
            prewarm=limit == 0,
            characters=text_length([body.get("system"), *(message.get("content") for message in messages)]),
            body=body,
        )

    def frames(self, prompt: Prompt, scenario: Scenario) -> list[bytes]:
        message = _message(scenario)
        message.update(content=[], stop_reason=None, usage=_usage(scenario, output=1, thinking=0))
        message.pop("stop_details", None)
        frames = [_event("message_start", message=message)]
        blocks = _blocks(scenario)
        for index, (start, deltas) in enumerate(blocks):
            frames.append(_event("content_block_start", index=index, content_block=start))
            if index == 0:
                frames.append(self.ping)
            for kind, member, pieces in deltas:
                frames += _deltas(index, kind, member, pieces)
            frames.append(_event("content_block_stop", index=index))
        tokens = scenario.tokens
        frames.append(
            _event(
                "message_delta",
                delta={"stop_reason": message_stop(scenario), "stop_sequence": None, **_stop_details(scenario)},
                usage={
                    "input_tokens": tokens.input - tokens.cached - (tokens.written or 0),
                    "cache_creation_input_tokens": tokens.written or 0,
                    "cache_read_input_tokens": tokens.cached,
                    "output_tokens": tokens.output + tokens.thinking,
                    "output_tokens_details": {"thinking_tokens": tokens.thinking},
                },
            )
        )
        frames.append(_event("message_stop"))
        return frames

    def body(self, prompt: Prompt, scenario: Scenario) -> bytes:
        return dumps(_message(scenario))

    def error_body(self, failure: APIError) -> bytes:
        return dumps(_error(failure))

    def error_headers(self, failure: APIError) -> list[tuple[str, str]]:
        retry = [] if failure.retry_after is None else [("retry-after", seconds_text(failure.retry_after))]
        return [
            *retry,
            ("x-should-retry", "true" if failure.status in (408, 409, 429) or failure.status >= 500 else "false"),
        ]

    def error_frames(self, prompt: Prompt, scenario: Scenario, failure: APIError, position: int) -> list[bytes]:
        return [sse(dumps(_error(failure)), "error")]

    def headers(self, prompt: Prompt | None, identity: str) -> list[tuple[str, str]]:
        streamed = prompt is not None and prompt.stream
        return [
            ("content-type", "text/event-stream; charset=utf-8" if streamed else "application/json"),
            ("request-id", f"req_{identity}"),
        ]


def message_stop(scenario: Scenario) -> str:
    """The stop reason of an answer."""
    return STOP_REASON[scenario.finish]


def _event(type: str, **members: JSON) -> bytes:
    return sse(dumps({"type": type, **members}), type)


def _deltas(index: int, kind: str, member: str, pieces: tuple[str, ...]) -> list[bytes]:
    event: JSON = {"type": "content_block_delta", "index": index, "delta": {"type": kind, member: "<piece>"}}
    before, after = split_at(event, "<piece>")
    before = b"event: content_block_delta\ndata: " + before
    after += b"\n\n"
    made = {piece: before + dumps(piece) + after for piece in set(pieces)}  # words recur
    return [made[piece] for piece in pieces]


def _blocks(scenario: Scenario) -> list[tuple[JSONObject, list[tuple[str, str, tuple[str, ...]]]]]:
    """Each block at its start, and its deltas: their type, the member that holds their text, and the pieces."""
    blocks: list[tuple[JSONObject, list[tuple[str, str, tuple[str, ...]]]]] = []
    if scenario.thinking_pieces:
        start: JSONObject = {"type": "thinking", "thinking": "", "signature": ""}
        thinking = ("thinking_delta", "thinking", scenario.thinking_pieces)
        blocks.append((start, [thinking, ("signature_delta", "signature", (scenario.signature,))]))
    if scenario.redacted is not None:
        blocks.append(({"type": "redacted_thinking", "data": scenario.redacted}, []))
    if scenario.text_pieces:
        blocks.append(({"type": "text", "text": ""}, [("text_delta", "text", scenario.text_pieces)]))
    for call in scenario.calls:
        start = {"type": "tool_use", "id": f"toolu_01{call.id}", "name": call.name, "input": {}}
        blocks.append((start, [("input_json_delta", "partial_json", ("", *call.fragments))]))
    return blocks


def _message(scenario: Scenario) -> JSONObject:
    content: list[JSON] = []
    if scenario.thinking_pieces:
        content.append({"type": "thinking", "thinking": scenario.thinking, "signature": scenario.signature})
    if scenario.redacted is not None:
        content.append({"type": "redacted_thinking", "data": scenario.redacted})
    if scenario.text_pieces:
        content.append({"type": "text", "text": scenario.text})
    for call in scenario.calls:
        arguments: JSONObject = loads_object(call.arguments) or {}
        content.append({"type": "tool_use", "id": f"toolu_01{call.id}", "name": call.name, "input": arguments})
    tokens = scenario.tokens
    return {
        "model": scenario.model,
        "id": scenario.id("msg_01", 22),
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": message_stop(scenario),
        "stop_sequence": None,
        "usage": _usage(scenario, tokens.output + tokens.thinking, tokens.thinking),
        **_stop_details(scenario),
    }


def _stop_details(scenario: Scenario) -> JSONObject:
    if scenario.finish != "content_filter":
        return {}
    return {"stop_details": {"type": "refusal", "category": None, "explanation": "The simulator was asked to refuse."}}


def _usage(scenario: Scenario, output: int, thinking: int) -> JSONObject:
    tokens = scenario.tokens
    written = tokens.written or 0
    return {
        "input_tokens": tokens.input - tokens.cached - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": tokens.cached,
        "cache_creation": {
            "ephemeral_5m_input_tokens": written - tokens.written_long,
            "ephemeral_1h_input_tokens": tokens.written_long,
        },
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": thinking},
        "service_tier": "standard",
    }


def _error(failure: APIError) -> JSONObject:
    kind, message = ERRORS.get(failure.status, ERRORS[500 if failure.status >= 500 else 400])
    error: JSONObject = {"type": failure.code or kind, "message": failure.message or message}
    return {"type": "error", "error": error, "request_id": "req_simulator"}


def _tool_results(message: JSONObject) -> list[JSONObject]:
    return [block for block in objects(message, "content") if string(block, "type") == "tool_result"]


def _check_tools(body: JSONObject) -> None:
    """Check the tools and which of them must be called. Raises `APIError`."""
    tools = objects(body, "tools")
    for place, tool in enumerate(tools):
        if string(tool, "type") not in ("", "custom"):
            continue
        if wrong_name([tool], ANTHROPIC_TOOL_NAME) is not None:
            raise APIError(400, f"tools.{place}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if not isinstance(tool.get("input_schema"), dict):
            raise APIError(400, f"tools.{place}.custom.input_schema: Field required")
    names = [string(tool, "name") for tool in tools if "name" in tool]
    if len(set(names)) < len(names):
        raise APIError(400, "tools: Tool names must be unique.")
    choice = mapping(body, "tool_choice")
    if string(choice, "type") == "tool" and string(choice, "name") not in names:
        raise APIError(400, f"Tool '{string(choice, 'name')}' not found in provided tools")


def _check_thinking(body: JSONObject, limit: float) -> None:
    """Check the budget of the thinking, which must be below the limit. Raises `APIError`."""
    thinking = mapping(body, "thinking")
    if string(thinking, "type") != "enabled":
        return
    budget = integer(thinking, "budget_tokens")
    if budget is None:
        raise APIError(400, "thinking.enabled.budget_tokens: Field required")
    if budget < LEAST_THINKING:
        raise APIError(
            400, f"thinking.enabled.budget_tokens: Input should be greater than or equal to {LEAST_THINKING}"
        )
    if budget >= limit:
        raise APIError(400, "`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_prewarm(body: JSONObject) -> None:
    """Check a request that only writes to the prompt cache. Raises `APIError`."""
    excluded = {
        "stream": body.get("stream") is True,
        "thinking": string(mapping(body, "thinking"), "type") in ("enabled", "adaptive"),
        "output_config.format": bool(mapping(mapping(body, "output_config"), "format")),
        "tool_choice": string(mapping(body, "tool_choice"), "type") in ("any", "tool"),
    }
    for name in (name for name, given in excluded.items() if given):
        raise APIError(400, f"{name}: not supported when max_tokens is 0")


def _check_messages(messages: list[JSONObject]) -> dict[str, str]:
    """Tool names by call id. Raises `APIError` for conversations that the service does not accept."""
    names: dict[str, str] = {}
    open_calls: list[str] = []
    for position, message in enumerate(messages):
        where = f"messages.{position}"
        role = string(message, "role")
        if role not in ("user", "assistant", "system"):
            raise APIError(400, f"{where}.role: Input should be 'user', 'assistant' or 'system', not \"{role}\"")
        if role == "system":
            _check_place(messages, position, where)
        if not message.get("content") and not (role == "system" and mapping(message, "output_config")):
            raise APIError(400, f"{where}: all messages must have non-empty content")
        for number, block in enumerate(objects(message, "content")):
            _check_block(block, f"{where}.content.{number}", open_calls, names)
        if open_calls:
            raise APIError(
                400,
                f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after:"
                f" {', '.join(open_calls)}. Each `tool_use` block must have a corresponding `tool_result` block in the"
                " next message.",
            )
        if role == "assistant":
            calls = [block for block in objects(message, "content") if string(block, "type") == "tool_use"]
            open_calls = [string(block, "id") for block in calls]
            names.update((string(block, "id"), string(block, "name")) for block in calls)
    if open_calls:
        raise APIError(
            400, f"messages: `tool_use` ids were found without `tool_result` blocks: {', '.join(open_calls)}"
        )
    return names


def _check_place(messages: list[JSONObject], position: int, where: str) -> None:
    """Raise `APIError` for a system message that stands where the service does not accept one.

    It follows a user's message, or an assistant's that ends in a call of the service's own tool, and it is the last
    message or an assistant's follows it ("Mid-conversation system messages").
    """
    before = messages[position - 1] if position else {}
    last = objects(before, "content")[-1:]
    after_call = bool(last) and string(last[0], "type") in ("server_tool_use", "mcp_tool_use")
    if string(before, "role") != "user" and not after_call:
        raise APIError(400, f"{where}: a `system` message must follow a `user` message or a server tool use")
    if position + 1 < len(messages) and string(messages[position + 1], "role") != "assistant":
        raise APIError(400, f"{where}: a `system` message must be the last one or come before an `assistant` message")


def _check_block(block: JSONObject, where: str, open_calls: list[str], names: dict[str, str]) -> None:
    kind = string(block, "type")
    if kind == "tool_result":
        id = string(block, "tool_use_id")
        if id not in open_calls:
            raise APIError(
                400,
                f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must"
                " have a corresponding `tool_use` block in the previous message.",
            )
        open_calls.remove(id)
    elif kind == "text" and not string(block, "text"):
        raise APIError(400, f"{where}.text: text content blocks must be non-empty")
    elif kind == "thinking" and is_forged(string(block, "signature"), string(block, "thinking")):
        raise APIError(400, f"{where}: Invalid `signature` in `thinking` block")
