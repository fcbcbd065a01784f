"""OpenAI Chat Completions on the wire: `POST /v1/chat/completions`.

OpenAI itself shows no thinking in this dialect. Thinking is sent in `reasoning_content`, as most compatible servers do.
With `stream_options.include_usage` every chunk has `usage: null`, and one more chunk without choices has the usage.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..http_server import HTTPRequest
from .json_text import JSON, JSONObject, dumps, dumps_text, integer, mapping, objects, string, text_length
from .prompt import APIError, Prompt, ToolDeclaration, ToolResult
from .request_checks import CHAT, CHAT_TOOL_NAME, wrong_members, wrong_name
from .scenario import Scenario
from .wire import CREATED, JSON_MODE, body_object, ending, seconds_text, split_at, sse

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
FINISH = {"stop": "stop", "length": "length", "tool_use": "tool_calls", "content_filter": "content_filter"}
ERRORS: dict[int, tuple[str, str | None, str]] = {
    400: ("invalid_request_error", None, "The request is invalid."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("invalid_request_error", "unsupported_country_region_territory", "Access denied."),
    404: ("invalid_request_error", "model_not_found", "The model does not exist or you do not have access to it."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests."),
    500: ("server_error", None, "The server had an error while processing your request. Sorry about that!"),
    503: ("server_error", None, "The engine is currently overloaded, please try again later."),
}
"""Status → the error's type, code and message."""

OBFUSCATION = "a1B2c3D4e5F6g7H8"


def obfuscation(text: str) -> str:
    """Padding that hides the length of a delta from an observer of encrypted sizes, as the service sends it."""
    return OBFUSCATION[: 16 - len(text) % 16]


class OpenAIWire:
    """What OpenAI's two dialects have in common."""

    def check_headers(self, request: HTTPRequest) -> None:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise APIError(
                401,
                "You didn't provide an API key. You need to provide your API key in an Authorization header using"
                " Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
            )

    def error_body(self, failure: APIError) -> bytes:
        return dumps({"error": error_object(failure)})

    def error_headers(self, failure: APIError) -> list[tuple[str, str]]:
        if failure.retry_after is None:
            return []
        return [
            ("retry-after", seconds_text(failure.retry_after)),
            ("retry-after-ms", str(round(failure.retry_after * 1000))),
        ]

    def headers(self, prompt: Prompt | None, identity: str) -> list[tuple[str, str]]:
        streamed = prompt is not None and prompt.stream
        return [
            ("content-type", "text/event-stream; charset=utf-8" if streamed else "application/json"),
            ("x-request-id", f"req_{identity}"),
            ("openai-version", "2020-10-01"),
        ]


class OpenAIChatWire(OpenAIWire):
    """The dialect."""

    name = "openai-chat"
    ping = b": keep-alive\n\n"

    def read(self, request: HTTPRequest) -> Prompt:
        body = body_object(request)
        model = string(body, "model")
        if not model:
            raise APIError(400, "you must provide a model parameter")
        check_types(body, CHAT)
        messages = objects(body, "messages")
        if not messages:
            raise APIError(400, "Missing required parameter: 'messages'.", param="messages", code=MISSING)
        tools = objects(body, "tools")
        functions = [(place, mapping(tool, "function")) for place, tool in enumerate(tools) if is_function(tool)]
        check_tools(functions, "tools[{}].function.name", _tool_choice(body))
        last_user, rounds = _check_messages(messages)
        calls = (call for message in messages for call in objects(message, "tool_calls"))
        names = {string(call, "id"): string(mapping(call, "function"), "name") for call in calls}
        response_format = mapping(body, "response_format")
        schema = (
            JSON_MODE
            if string(response_format, "type") == "json_object"
            else mapping(mapping(response_format, "json_schema"), "schema")
        )
        return Prompt(
            model=model,
            text=content_text(last_user.get("content")),
            stream=body.get("stream") is True,
            tools=tuple(
                ToolDeclaration(string(tool, "name"), mapping(tool, "parameters"))
                for tool in (mapping(entry, "function") for entry in objects(body, "tools"))
            ),
            tool_choice=_tool_choice(body),
            parallel=body.get("parallel_tool_calls") is not False,
            tool_results=tuple(
                ToolResult(names[string(message, "tool_call_id")], content_text(message.get("content")))
                for message in ending(messages, "role", "tool")
            ),
            rounds=rounds,
            schema=schema or None,
            max_tokens=integer(body, "max_completion_tokens") or integer(body, "max_tokens"),
            characters=text_length([message.get("content") for message in messages]),
            body=body,
        )

    def frames(self, prompt: Prompt, scenario: Scenario) -> list[bytes]:
        options = mapping(prompt.body, "stream_options")
        head: JSONObject = {
            "id": scenario.id("chatcmpl-", 29),
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": scenario.model,
            "service_tier": "default",
            "system_fingerprint": "fp_simulator",
        }
        tail: JSONObject = {"usage": None} if options.get("include_usage") is True else {}
        padded = options.get("include_obfuscation") is not False

        def chunk(delta: JSONObject, finish: str | None = None) -> bytes:
            choice: JSON = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return sse(dumps({**head, "choices": [choice], **tail}))

        def deltas(member: str, pieces: tuple[str, ...]) -> list[bytes]:
            choice: JSON = {"index": 0, "delta": {member: "<text>"}, "logprobs": None, "finish_reason": None}
            padding: JSONObject = {"obfuscation": "<padding>"} if padded else {}
            parts = split_at({**head, "choices": [choice], **tail, **padding}, "<text>", *padding.values())
            made: dict[str, bytes] = {}  # equal pieces share one copy
            for piece in set(pieces):
                data = parts[0] + dumps(piece) + parts[1]
                if padded:
                    data += b'"%b"%b' % (obfuscation(piece).encode(), parts[2])
                made[piece] = sse(data)
            return [made[piece] for piece in pieces]

        frames = [chunk({"role": "assistant", "content": "", "refusal": None})]
        frames += deltas("reasoning_content", scenario.thinking_pieces)
        frames += deltas("content", scenario.text_pieces)
        for position, call in enumerate(scenario.calls):
            function: JSONObject = {"name": call.name, "arguments": ""}
            start: JSON = {"index": position, "id": f"call_{call.id}", "type": "function", "function": function}
            frames.append(chunk({"tool_calls": [start]}))
            for fragment in call.fragments:
                frames.append(chunk({"tool_calls": [{"index": position, "function": {"arguments": fragment}}]}))
        frames.append(chunk({}, FINISH[scenario.finish]))
        if tail:
            frames.append(sse(dumps({**head, "choices": [], "usage": _usage(scenario)})))
        frames.append(b"data: [DONE]\n\n")
        return frames

    def body(self, prompt: Prompt, scenario: Scenario) -> bytes:
        message: JSONObject = {
            "role": "assistant",
            "content": scenario.text if scenario.text_pieces or not scenario.calls else None,
            "refusal": None,
            "annotations": [],
        }
        if scenario.thinking_pieces:
            message["reasoning_content"] = scenario.thinking
        if scenario.calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{call.id}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in scenario.calls
            ]
        choice: JSON = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": FINISH[scenario.finish],
        }
        return dumps(
            {
                "id": scenario.id("chatcmpl-", 29),
                "object": "chat.completion",
                "created": CREATED,
                "model": scenario.model,
                "choices": [choice],
                "usage": _usage(scenario),
                "service_tier": "default",
                "system_fingerprint": "fp_simulator",
            }
        )

    def error_frames(self, prompt: Prompt, scenario: Scenario, failure: APIError, position: int) -> list[bytes]:
        return [sse(dumps({"error": error_object(failure)}))]


MISSING = "missing_required_parameter"
WRONG_TYPE, WRONG_VALUE, UNKNOWN_URL = "invalid_type", "invalid_value", "unknown_url"
REQUEST_CODES = (MISSING, WRONG_TYPE, WRONG_VALUE, UNKNOWN_URL)
"""Codes of errors whose type is the usual one."""

CHOICES = ("none", "auto", "required")


def check_types(body: JSONObject, table: Mapping[str, str]) -> None:
    """Check the types of a request's members. Raises `APIError`."""
    for path, expected, value in wrong_members(body, table):
        message = f"Invalid value for '{path}': expected {expected}, but got {dumps_text(value)[:60]} instead."
        raise APIError(400, message, param=path, code=WRONG_TYPE)


def is_function(tool: JSONObject) -> bool:
    """Whether a tool is a function. A tool of another kind has no schema, and the service runs some of them itself."""
    return string(tool, "type") in ("", "function")


def check_tools(functions: list[tuple[int, JSONObject]], path: str, choice: str) -> None:
    """Check the names of functions, and that a function which must be called is among them. Raises `APIError`.

    functions: position among the tools → the object with the name.
    path: the path of a name, with `{}` for the position.
    choice: `none`, `auto`, `required`, or the name of a tool.
    """
    wrong = wrong_name([function for _, function in functions], CHAT_TOOL_NAME)
    if wrong is not None:
        where = path.format(functions[wrong][0])
        message = f"Invalid '{where}': expected a string that matches the pattern '^[a-zA-Z0-9_-]{{1,64}}$'."
        raise APIError(400, message, param=where, code=WRONG_VALUE)
    if functions and choice not in (*CHOICES, *(string(function, "name") for _, function in functions)):
        message = f"Invalid value for 'tool_choice': '{choice}' is neither a mode nor a function in 'tools'."
        raise APIError(400, message, param="tool_choice", code=WRONG_VALUE)


def error_object(failure: APIError) -> JSONObject:
    """OpenAI's error object. A code of the knobs is both type and code, as it is for a spent quota. An empty code is
    none."""
    kind, code, message = ERRORS.get(failure.status, ERRORS[500 if failure.status >= 500 else 400])
    if failure.code and failure.code not in REQUEST_CODES:
        kind = failure.code
    kind = failure.type or kind
    return {
        "message": failure.message or message,
        "type": kind,
        "param": failure.param,
        "code": (code if failure.code is None else failure.code) or None,
    }


def content_text(content: JSON) -> str:
    """The text of a message. Its content is a text or a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(string(part, "text") for part in objects({"parts": content}, "parts"))


def _check_messages(messages: list[JSONObject]) -> tuple[JSONObject, int]:
    """The last user message, and the number of tool rounds after it. Raises `APIError` for conversations that the
    service does not accept."""
    last_user: JSONObject = {}
    rounds = 0
    open_calls: set[str] = set()
    for position, message in enumerate(messages):
        role = string(message, "role")
        if role not in ROLES:
            raise APIError(
                400, f"Invalid value: '{role}'. Supported values are: {ROLES}.", param=f"messages[{position}].role"
            )
        if role == "tool":
            call = string(message, "tool_call_id")
            if call not in open_calls:
                raise APIError(
                    400,
                    "Invalid parameter: messages with role 'tool' must be a response to a preceding message with"
                    " 'tool_calls'.",
                    param=f"messages.[{position}].role",
                )
            open_calls.discard(call)
            continue
        if open_calls:
            raise APIError(
                400,
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
                f" 'tool_call_id'. The following tool_call_ids did not have response messages: {sorted(open_calls)}",
                param=f"messages.[{position}].role",
            )
        calls = message.get("tool_calls") or message.get("function_call")
        if role != "function" and not _has_content(message) and not (role == "assistant" and calls):
            raise APIError(
                400,
                f"Invalid value for 'messages[{position}].content': expected a string or an array of content parts.",
                param=f"messages[{position}].content",
                code=WRONG_TYPE,
            )
        if role == "user":
            last_user, rounds = message, 0
        elif role == "assistant" and message.get("tool_calls"):
            rounds += 1
            open_calls = {string(call, "id") for call in objects(message, "tool_calls")}
    if open_calls:
        raise APIError(400, f"No tool output found for tool_call_ids: {sorted(open_calls)}", param="messages")
    return last_user, rounds


def _has_content(message: JSONObject) -> bool:
    """Whether a message has a content, or one of its members that takes its place."""
    content = message.get("content")
    if isinstance(content, list):
        return bool(content) and all(isinstance(part, dict) and string(part, "type") for part in content)
    return isinstance(content, str) or any(message.get(name) for name in ("refusal", "audio", "reasoning_content"))


def _tool_choice(body: JSONObject) -> str:
    choice = body.get("tool_choice")
    if isinstance(choice, str):
        return choice
    return string(mapping(mapping(body, "tool_choice"), "function"), "name") or "auto"


def _usage(scenario: Scenario) -> JSONObject:
    tokens = scenario.tokens
    writes: JSONObject = {} if tokens.written is None else {"cache_write_tokens": tokens.written}
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output + tokens.thinking,
        "total_tokens": tokens.input + tokens.output + tokens.thinking,
        "prompt_tokens_details": {"cached_tokens": tokens.cached, **writes, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": tokens.thinking,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
