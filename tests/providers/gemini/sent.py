"""Shared by the tests of requests: encodes, and checks every member against the official client's types."""

import json
from typing import Any

from google.genai import types

import manystream as ms
from manystream.providers.catalog.dialect import WireRequest
from manystream.providers.gemini import DIALECT

MODEL = "gemini-3.8-flash"
OLD_MODEL = "gemini-2.5-flash"

BODY_TYPES: dict[str, Any] = {
    "systemInstruction": types.Content,
    "generationConfig": types.GenerationConfig,
    "toolConfig": types.ToolConfig,
}
"""Member of the body → the official type. These types forbid unknown members."""

LIST_TYPES: dict[str, Any] = {"contents": types.Content, "tools": types.Tool}


def wire(*messages: ms.Message, model: str = MODEL, stream: bool = False, **options: Any) -> WireRequest:
    """Encode without checking against the official types."""
    request = ms.Request(model, list(messages) or [ms.Message.user("Hi")], **options)
    return DIALECT.encode(request, model, ms.Gemini("key"), stream=stream)


def body_of(request: WireRequest) -> dict[str, Any]:
    """Return the body, checked member by member."""
    body: dict[str, Any] = json.loads(request.body)
    for name, value in body.items():
        if name in LIST_TYPES:
            for member in value:
                LIST_TYPES[name].model_validate(member)
        elif name in BODY_TYPES:
            BODY_TYPES[name].model_validate(value)
        elif name == "labels":
            types.GenerateContentConfig.model_validate({"labels": value})
        else:
            raise AssertionError(f"{name} is no member that these tests know")
    return body


def sent(*messages: ms.Message, **options: Any) -> dict[str, Any]:
    """Encode a request with these messages. Returns the body, checked."""
    return body_of(wire(*messages, **options))


def contents(*messages: ms.Message, **options: Any) -> list[Any]:
    """Return the contents of a request, checked."""
    result: list[Any] = sent(*messages, **options)["contents"]
    return result


def warnings(*messages: ms.Message, **options: Any) -> list[str]:
    """Return the warnings of a request."""
    return wire(*messages, **options).warnings
