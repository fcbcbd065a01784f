"""Google Gemini on the wire: `POST /v1beta/models/{model}:generateContent` and `:streamGenerateContent`.

With `?alt=sse` a stream is server-sent events, framed with CRLF. Without it, a stream is one growing JSON array. Each
event is a whole `GenerateContentResponse`: a piece of text, or a tool call with all its arguments. Each event has the
cumulative usage. No marker follows the event with the finish reason. A thought signature is on the first tool call,
else on an empty text part at the end.
"""

from __future__ import annotations

import re

from ..http_server import HTTPRequest
from .json_text import (
    JSON,
    JSONObject,
    dumps,
    dumps_sorted,
    integer,
    loads,
    loads_object,
    mapping,
    objects,
    string,
    text_length,
)
from .prompt import APIError, Prompt, ToolDeclaration, ToolResult
from .request_checks import GEMINI, GEMINI_CONFIG, GEMINI_TOOL_NAME, wrong_members, wrong_name
from .scenario import SIGNATURE_MARK, Scenario, sign
from .wire import JSON_MODE, body_object, last_turn, seconds_text, split_at

_NUMBER = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?")

STATUS: dict[int, tuple[str, str]] = {
    400: ("INVALID_ARGUMENT", "Request contains an invalid argument."),
    401: ("UNAUTHENTICATED", "Request had invalid authentication credentials."),
    403: ("PERMISSION_DENIED", "The caller does not have permission"),
    404: ("NOT_FOUND", "The model is not found for API version v1beta, or is not supported for generateContent."),
    429: ("RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan and billing details."),
    500: ("INTERNAL", "An internal error has occurred."),
    503: ("UNAVAILABLE", "The model is overloaded. Please try again later."),
    504: ("DEADLINE_EXCEEDED", "Deadline expired before operation could complete."),
}
"""HTTP status → Google's status and message."""

FINISH = {"stop": "STOP", "length": "MAX_TOKENS", "tool_use": "STOP", "content_filter": "SAFETY"}
_SNAKE = re.compile("_([a-z])")
OPAQUE = frozenset({"args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema"})
"""Members whose own members belong to the caller: their names are kept."""

MODES = {"ANY": "required", "NONE": "none", "AUTO": "auto"}


class GoogleWire:
    """What Google's two dialects have in common."""

    def check_headers(self, request: HTTPRequest) -> None:
        headers = request.headers
        if not (headers.get("x-goog-api-key") or request.query.get("key") or headers.get("authorization")):
            raise APIError(401, "Request is missing required authentication credential.")

    def error_headers(self, failure: APIError) -> list[tuple[str, str]]:
        return []

    def headers(self, prompt: Prompt | None, identity: str) -> list[tuple[str, str]]:
        streamed = prompt is not None and prompt.stream and not prompt.array
        return [
            ("content-type", "text/event-stream" if streamed else "application/json; charset=UTF-8"),
            ("x-gemini-service-tier", "standard"),
        ]


class GeminiWire(GoogleWire):
    """The dialect."""

    name = "gemini"
    ping = b": keep-alive\r\n\r\n"

    def read(self, request: HTTPRequest) -> Prompt:
        body = mapping({"body": _in_camel_case(body_object(request))}, "body")
        model, _, method = request.path.rpartition("/models/")[2].partition(":")
        config = mapping(body, "generationConfig")
        for path, expected, value in (
            *wrong_members(body, GEMINI),
            *wrong_members(_with_numbers(config), GEMINI_CONFIG, "generation_config."),
        ):
            raise APIError(400, f"Invalid value at '{path}': {dumps(value).decode()[:60]} is not {expected}")
        _check_functions(body)
        contents = objects(body, "contents")
        if not contents:
            raise APIError(400, "* GenerateContentRequest.contents: contents is not specified")
        _check_contents(contents)
        last_user, rounds = last_turn((_kind(content), content) for content in contents)
        calling = mapping(mapping(body, "toolConfig"), "functionCallingConfig")
        allowed = calling.get("allowedFunctionNames")
        choice = MODES.get(string(calling, "mode"), "auto")
        if choice == "required" and isinstance(allowed, list) and len(allowed) == 1:
            choice = str(allowed[0])
        schema = mapping(config, "responseJsonSchema") or mapping(config, "responseSchema")
        if not schema and string(config, "responseMimeType") == "application/json":
            schema = JSON_MODE
        return Prompt(
            model=model,
            text="".join(string(part, "text") for part in objects(last_user, "parts")),
            stream=method == "streamGenerateContent",
            tools=tuple(
                ToolDeclaration(
                    string(tool, "name"), mapping(tool, "parametersJsonSchema") or mapping(tool, "parameters")
                )
                for entry in objects(body, "tools")
                for tool in objects(entry, "functionDeclarations")
            ),
            tool_choice=choice,
            tool_results=tuple(
                ToolResult(string(answer, "name"), _answer_text(mapping(answer, "response")))
                for answer in _members(contents[-1], "functionResponse")
            ),
            rounds=rounds,
            schema=schema or None,
            max_tokens=integer(config, "maxOutputTokens"),
            characters=text_length([body.get("systemInstruction"), *(content.get("parts") for content in contents)]),
            array=request.query.get("alt") != "sse",
            body=body,
        )

    def frames(self, prompt: Prompt, scenario: Scenario) -> list[bytes]:
        events = _events(scenario)
        if prompt.array:
            first, *others = events
            return [b"[" + first, *(b",\r\n" + event for event in others), b"]"]
        return [b"data: %b\r\n\r\n" % event for event in events]

    def body(self, prompt: Prompt, scenario: Scenario) -> bytes:
        parts: list[JSON] = []
        if scenario.thinking_pieces:
            parts.append({"text": scenario.thinking, "thought": True})
        if scenario.text_pieces:
            parts.append({"text": scenario.text, **_text_signature(scenario)})
        parts += _call_parts(scenario)
        tokens = scenario.tokens
        return dumps(_response(scenario, parts, _usage(scenario, tokens.output, tokens.thinking), ended=True))

    def error_body(self, failure: APIError) -> bytes:
        return dumps({"error": google_error(failure)})

    def error_frames(self, prompt: Prompt, scenario: Scenario, failure: APIError, position: int) -> list[bytes]:
        error = dumps({"error": google_error(failure)})
        if prompt.array:
            return [(b"[" if position == 0 else b",\r\n") + error, b"]"]
        return [b"data: %b\r\n\r\n" % error]


def _events(scenario: Scenario) -> list[bytes]:
    """The events of the stream, without SSE framing."""
    events: list[bytes] = []
    events += _text_events(scenario, scenario.thinking_pieces, {"text": "<text>", "thought": True}, 0)
    said = len(events)
    events += _text_events(scenario, scenario.text_pieces, {"text": "<text>"}, scenario.tokens.thinking or said)
    tokens = scenario.tokens
    output = len(scenario.text_pieces)
    for call, part in zip((call for call in scenario.calls if call.complete), _call_parts(scenario), strict=True):
        output += len(call.fragments)
        events.append(dumps(_response(scenario, [part], _usage(scenario, output, tokens.thinking))))
    last: JSON = {"text": "", **({} if scenario.calls else _text_signature(scenario))}
    usage = _usage(scenario, tokens.output, tokens.thinking)
    events.append(dumps(_response(scenario, [last], usage, ended=True)))
    return events


def _text_events(scenario: Scenario, pieces: tuple[str, ...], part: JSONObject, earlier: int) -> list[bytes]:
    """The events of one part, a piece each. earlier: the tokens of the output before this part."""
    if not pieces:
        return []
    usage = _usage(scenario, 0, 0)
    counted = "thoughtsTokenCount" if "thought" in part else "candidatesTokenCount"
    if "thought" not in part and scenario.tokens.thinking:
        usage["thoughtsTokenCount"] = scenario.tokens.thinking
    usage.pop("totalTokenCount")
    usage.update({counted: "<count>", "totalTokenCount": "<total>"})
    before, between, further, after = split_at(_response(scenario, [part], usage), "<text>", "<count>", "<total>")
    base = scenario.tokens.input + earlier
    return [
        b"%b%b%b%d%b%d%b" % (before, dumps(piece), between, count, further, base + count, after)
        for count, piece in enumerate(pieces, 1)
    ]


def _response(scenario: Scenario, parts: list[JSON], usage: JSONObject, ended: bool = False) -> JSONObject:
    content: JSONObject = {"parts": parts, "role": "model"} if parts else {"role": "model"}
    candidate: JSONObject = {"content": content}
    if ended:
        candidate["finishReason"] = FINISH[scenario.finish]
    candidate["index"] = 0
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": scenario.model,
        "responseId": scenario.id("", 22),
    }


def _usage(scenario: Scenario, output: int, thinking: int) -> JSONObject:
    tokens = scenario.tokens
    usage: JSONObject = {"promptTokenCount": tokens.input}
    if tokens.cached:
        usage["cachedContentTokenCount"] = tokens.cached
    if output:
        usage["candidatesTokenCount"] = output
    usage["promptTokensDetails"] = [{"modality": "TEXT", "tokenCount": tokens.input}]
    if thinking:
        usage["thoughtsTokenCount"] = thinking
    usage["totalTokenCount"] = tokens.input + output + thinking
    return usage


def _text_signature(scenario: Scenario) -> JSONObject:
    thinks = scenario.thinking_pieces or scenario.redacted
    return {"thoughtSignature": scenario.signature} if thinks and not scenario.calls else {}


def _call_parts(scenario: Scenario) -> list[JSON]:
    """The complete tool calls; this service sends no others. Only the first has a signature."""
    parts: list[JSON] = []
    for call in scenario.calls:
        if not call.complete:
            continue
        function: JSONObject = {"name": call.name, "args": loads_object(call.arguments) or {}}
        if not scenario.model.startswith(("gemini-1", "gemini-2")):  # call ids came with the third generation
            function["id"] = call.id[:8]
        part: JSONObject = {"functionCall": function}
        if not parts and (scenario.thinking_pieces or scenario.redacted):
            part["thoughtSignature"] = _sign_call(function)
        parts.append(part)
    return parts


def _sign_call(function: JSONObject) -> str:
    return sign(string(function, "name") + dumps_sorted(mapping(function, "args")).decode())


def google_error(failure: APIError) -> JSONObject:
    """The error of Google's APIs."""
    status, message = STATUS.get(failure.status, STATUS[500 if failure.status >= 500 else 400])
    error: JSONObject = {
        "code": failure.status,
        "message": failure.message or message,
        "status": failure.code or status,
    }
    if failure.details is not None:
        error["details"] = failure.details
    elif failure.retry_after is not None:
        delay = seconds_text(failure.retry_after) + "s"
        error["details"] = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}]
    return error


def _members(content: JSONObject, name: str) -> list[JSONObject]:
    return [mapping(part, name) for part in objects(content, "parts") if name in part]


def _answer_text(response: JSONObject) -> str:
    for name in ("output", "result", "error"):
        if string(response, name):
            return string(response, name)
    return dumps(response).decode()


def _in_camel_case(value: JSON) -> JSON:
    """The request with member names in lowerCamelCase. ProtoJSON accepts snake_case too, which Google's SDK uses."""
    if isinstance(value, list):
        return [_in_camel_case(item) for item in value]
    if not isinstance(value, dict):
        return value
    named = {_SNAKE.sub(lambda found: found[1].upper(), name): member for name, member in value.items()}
    return {name: member if name in OPAQUE else _in_camel_case(member) for name, member in named.items()}


def _with_numbers(config: JSONObject) -> JSONObject:
    """The configuration with the numbers that it has as text: ProtoJSON takes both."""
    return {
        name: loads(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value
        for name, value in config.items()
    }


def _check_functions(body: JSONObject) -> None:
    """Check the names of functions. Raises `APIError`."""
    for tool, entry in enumerate(objects(body, "tools")):
        wrong = wrong_name(objects(entry, "functionDeclarations"), GEMINI_TOOL_NAME)
        if wrong is not None:
            raise APIError(
                400,
                f"* GenerateContentRequest.tools[{tool}].function_declarations[{wrong}].name: Invalid function name."
                " Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_),"
                " dots (.), colons (:), or dashes (-), with a maximum length of 128.",
            )


def _check_contents(contents: list[JSONObject]) -> None:
    """Check the conversation. Raises `APIError` for what the service does not accept."""
    calls = 0
    for position, content in enumerate(contents):
        role = string(content, "role") or "user"
        if role not in ("user", "model", "function"):
            raise APIError(400, "Please use a valid role: user, model.")
        if not objects(content, "parts"):
            raise APIError(
                400, f"* GenerateContentRequest.contents[{position}].parts: contents.parts must not be empty."
            )
        answers = len(_members(content, "functionResponse"))
        if answers != calls:
            raise APIError(
                400,
                "Please ensure that the number of function response parts is equal to the number of function call parts"
                " of the function call turn.",
            )
        calls = len(_members(content, "functionCall"))
        for part in objects(content, "parts"):
            _check_part(part)
    if calls:
        raise APIError(400, "Please ensure that function call turn comes immediately before a function response turn.")


def _kind(content: JSONObject) -> str:
    """What a content is to `last_turn`. Any role but the model's is the user's."""
    if _members(content, "functionResponse"):
        return "tools"
    return "model" if string(content, "role") == "model" else "user"


def _check_part(part: JSONObject) -> None:
    signature = string(part, "thoughtSignature")
    function = mapping(part, "functionCall")
    if function and signature.startswith(SIGNATURE_MARK) and signature != _sign_call(function):
        raise APIError(400, "Thought signature is not valid")
