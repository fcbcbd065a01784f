"""Converts dicts to the tools of `Request(tools=…)`, and says what to do instead of an option of another library.

`request.py` loads this module at the first use. Tools that are no dicts are returned unchanged; the checks of the
request then report what is wrong with them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from ..errors import InvalidRequestError
from ..json.json_values import JSONObject, mapping
from ..json.object_reader import Members
from ..model.request import Tool
from ..wire.cache_marks import MARKS, read_mark
from .sdk_arguments import plain

OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "use max_output_tokens": (
        "max_tokens", "max_completion_tokens", "max_new_tokens", "maxOutputTokens", "num_predict",
    ),
    "use system": (
        "system_prompt", "system_message", "system_instruction", "systemInstruction", "instructions", "developer",
    ),
    "use messages, the second argument": ("prompt", "input", "contents", "content", "conversation", "history"),
    "use tools": ("functions", "function_declarations"),
    "use tool_choice": ("function_call", "tool_config"),
    "use stop": ("stop_sequences", "stopSequences", "stop_strings"),
    "use thinking": (
        "reasoning", "reasoning_effort", "effort", "thinking_budget", "thinking_config", "enable_thinking", "reason",
    ),
    "use response_schema": (
        "response_format", "text_format", "output_format", "output_config", "output_type", "response_model", "schema",
        "json_schema", "format", "text", "response_json_schema", "response_mime_type",
    ),
    "use timeouts=ms.Timeouts(…)": ("timeout", "request_timeout", "read_timeout", "connect_timeout", "deadline"),
    "use retry=ms.Retry(max_attempts=…)": ("max_retries", "retries", "num_retries", "max_attempts"),
    "use extra_headers": ("headers", "default_headers"),
    "use extra_body": ("body", "extra", "provider_options", "model_kwargs", "generation_config"),
    "engine.stream streams, and engine.request does not": ("stream", "streaming", "stream_options"),
    "it belongs to the provider, such as ms.OpenAIChat(…)": (
        "api_key", "base_url", "api_base", "organization", "project", "api_version", "provider", "extra_query",
        "query_params", "http_client", "client",
    ),
    "it belongs to engine.start_stream": ("on_event", "on_completion", "callback", "callbacks"),
    "it belongs to open_engine": ("proxy", "limits", "traffic", "observer"),
    "it is the server's: put it into extra_body": (
        "n", "user", "top_k", "min_p", "top_logprobs", "logit_bias", "presence_penalty",
        "frequency_penalty", "repetition_penalty", "service_tier", "store", "verbosity", "truncation",
        "previous_response_id", "safety_settings", "candidate_count", "modalities", "betas", "max_tool_calls",
        "response_logprobs", "speed", "image", "prompt_cache_options", "container",
    ),
    "use ms.CacheControl() on a text, or extra_body": ("cache_control", "cache"),
}  # fmt: skip
"""What to do instead → names that other libraries have for an option of a request."""


def hint_for_option(name: str, known: Iterable[str]) -> str:
    """Return what to do instead of an option that a request does not have. `known`: the options that it has."""
    for hint, names in OTHER_NAMES.items():
        if name in names:
            return hint
    close = difflib.get_close_matches(name, [*known], 1)
    if close:
        return f"did you mean {close[0]!r}?"
    return "what only the server knows goes into extra_body"


def read_tools(given: object) -> Sequence[Tool]:
    """Convert the tools that are dicts to `Tool` values. Raises `InvalidRequestError`."""
    if not isinstance(given, (list, tuple)):
        return cast("Sequence[Tool]", given)
    tools: list[object] = []
    for place, item in enumerate(cast("Sequence[object]", given)):
        where = f"tools[{place}]"
        tools.append(function_tool(cast("JSONObject", plain(item, where)), where) if is_mapping(item) else item)
    return cast("Sequence[Tool]", tools)


def is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def function_tool(value: JSONObject, where: str) -> Tool:
    """Convert a function tool: in OpenAI's form, nested (`function`) or flat, or with the fields of `Tool`.

    Data sets have members that no server takes: null where another row has a member (Arrow), and `return`, the schema
    of the result. They are left out.

    Raises `InvalidRequestError`. `where`: the tool's path, for messages.
    """
    value = {name: member for name, member in value.items() if member is not None}
    kind = value.get("type", "function")
    if kind != "function":
        raise InvalidRequestError(f"{where}.type", f"must be 'function', not {kind!r}: put other tools into extra_body")
    function: JSONObject = {name: member for name, member in mapping(value, "function").items() if member is not None}
    if function:
        outer = Members(value, where)
        for member in ("type", "function", *MARKS):
            outer.take(member)
        outer.end(("type", "function", MARKS[0]))
    members = Members(function or value, where)
    for member in ("type", "return", *MARKS):
        members.take(member)
    mark = read_mark(value, where, InvalidRequestError) or read_mark(function, f"{where}.function", InvalidRequestError)
    name, description = members.text("name"), members.text("description") or ""
    schema, strict = members.object("parameters"), members.flag("strict")
    members.end(("name", "description", "parameters", "strict"))
    if not name:
        raise InvalidRequestError(f"{where}.name", "is missing")
    tool = Tool(name, description, strict=strict, cache_control=mark)
    try:
        return tool if schema is None else replace(tool, parameters=_without_nulls(schema))
    except RecursionError:
        raise InvalidRequestError(f"{where}.parameters", "is nested too deeply") from None


SCHEMAS_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Members of a JSON Schema that have schemas by name."""

VALUES = frozenset({"default", "const", "enum", "examples", "example"})
"""Members of a JSON Schema that have values, and no schemas. Those of `NULL` may be null."""

NULL = frozenset({"default", "const"})


def _without_nulls(schema: JSONObject, *, by_name: bool = False) -> JSONObject:
    """Return a schema without the members that are null and must not be. by_name: it has schemas by name."""
    found: JSONObject = {}
    for name, member in schema.items():
        if not by_name and name in VALUES:
            if member is not None or name in NULL:
                found[name] = member
        elif type(member) is dict:
            found[name] = _without_nulls(member, by_name=not by_name and name in SCHEMAS_BY_NAME)
        elif type(member) is list:
            found[name] = [_without_nulls(each) if type(each) is dict else each for each in member]
        elif member is not None:
            found[name] = member
    return found
