"""The types of a request's members, and the names of its tools: what every real service checks first.

One table for each dialect. A member that is absent or null is not checked: the dialect's module reads required ones.
This module knows no wire format: each dialect words its own error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from .json_text import JSON, JSONObject, string

Fault: TypeAlias = tuple[str, str, JSON]
"""A member's path, what the service expects there, and what it received."""

CHAT_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
ANTHROPIC_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
GEMINI_TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")


def _is_integer(value: JSON) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list_of(kind: type) -> Callable[[JSON], bool]:
    return lambda value: isinstance(value, list) and all(isinstance(item, kind) for item in value)


_is_texts, _is_objects = _is_list_of(str), _is_list_of(dict)

BOOLEAN, NUMBER, INTEGER, COUNT = "a boolean", "a number", "an integer", "an integer of 1 or more"
TEXT, TEXTS, OBJECT, OBJECTS = "a string", "an array of strings", "an object", "an array of objects"
TEXT_OR_TEXTS, TEXT_OR_OBJECTS = "a string or an array of strings", "a string or an array of objects"
TEXT_OR_OBJECT = "a string or an object"
OBJECT_OR_OBJECTS, TEXT_OR_STEPS = "an object or an array of objects", "a string, an object or an array of objects"

KINDS: dict[str, Callable[[JSON], bool]] = {
    BOOLEAN: lambda value: isinstance(value, bool),
    NUMBER: lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    INTEGER: _is_integer,
    COUNT: lambda value: _is_integer(value) and value > 0,  # type: ignore[operator]  # it is an integer
    TEXT: lambda value: isinstance(value, str),
    TEXTS: _is_texts,
    OBJECT: lambda value: isinstance(value, dict),
    OBJECTS: _is_objects,
    TEXT_OR_TEXTS: lambda value: isinstance(value, str) or _is_texts(value),
    TEXT_OR_OBJECTS: lambda value: isinstance(value, str) or _is_objects(value),
    TEXT_OR_OBJECT: lambda value: isinstance(value, str | dict),
    OBJECT_OR_OBJECTS: lambda value: isinstance(value, dict) or _is_objects(value),
    TEXT_OR_STEPS: lambda value: isinstance(value, str | dict) or _is_objects(value),
}
"""What is expected → whether a value is that."""

CHAT: dict[str, str] = {
    "model": TEXT, "messages": OBJECTS, "stream": BOOLEAN, "stream_options": OBJECT, "temperature": NUMBER,
    "top_p": NUMBER, "max_tokens": COUNT, "max_completion_tokens": COUNT, "n": COUNT, "seed": INTEGER,
    "logprobs": BOOLEAN, "top_logprobs": INTEGER, "presence_penalty": NUMBER, "frequency_penalty": NUMBER,
    "stop": TEXT_OR_TEXTS, "tools": OBJECTS, "tool_choice": TEXT_OR_OBJECT, "parallel_tool_calls": BOOLEAN,
    "response_format": OBJECT,
}  # fmt: skip
RESPONSES: dict[str, str] = {
    "model": TEXT, "input": TEXT_OR_OBJECTS, "instructions": TEXT_OR_OBJECTS, "stream": BOOLEAN,
    "stream_options": OBJECT, "temperature": NUMBER, "top_p": NUMBER, "max_output_tokens": COUNT, "tools": OBJECTS,
    "tool_choice": TEXT_OR_OBJECT, "parallel_tool_calls": BOOLEAN, "text": OBJECT, "reasoning": OBJECT,
    "include": TEXTS, "store": BOOLEAN, "background": BOOLEAN, "background_options": OBJECT,
}  # fmt: skip
ANTHROPIC: dict[str, str] = {
    "model": TEXT, "messages": OBJECTS, "system": TEXT_OR_OBJECTS, "stream": BOOLEAN, "temperature": NUMBER,
    "top_p": NUMBER, "top_k": INTEGER, "stop_sequences": TEXTS, "tools": OBJECTS, "tool_choice": OBJECT,
    "thinking": OBJECT, "metadata": OBJECT,
}  # fmt: skip
GEMINI: dict[str, str] = {
    "contents": OBJECTS, "systemInstruction": OBJECT, "tools": OBJECTS, "toolConfig": OBJECT,
    "safetySettings": OBJECTS, "generationConfig": OBJECT,
}  # fmt: skip
GEMINI_CONFIG: dict[str, str] = {
    "temperature": NUMBER, "topP": NUMBER, "topK": NUMBER, "maxOutputTokens": INTEGER, "candidateCount": COUNT,
    "stopSequences": TEXTS, "responseSchema": OBJECT, "responseMimeType": TEXT, "thinkingConfig": OBJECT,
}  # fmt: skip
INTERACTIONS: dict[str, str] = {
    "model": TEXT, "agent": TEXT, "input": TEXT_OR_STEPS, "system_instruction": TEXT, "tools": OBJECTS,
    "generation_config": OBJECT, "response_format": OBJECT_OR_OBJECTS, "stream": BOOLEAN, "store": BOOLEAN,
    "background": BOOLEAN, "previous_interaction_id": TEXT, "service_tier": TEXT, "labels": OBJECT,
}  # fmt: skip
INTERACTIONS_CONFIG: dict[str, str] = {
    "temperature": NUMBER, "top_p": NUMBER, "max_output_tokens": COUNT, "stop_sequences": TEXTS, "seed": INTEGER,
    "thinking_level": TEXT, "thinking_summaries": TEXT, "tool_choice": TEXT_OR_OBJECT,
}  # fmt: skip
"""Member → what is expected. Members that are not listed may have any value."""


def wrong_members(body: JSONObject, table: Mapping[str, str], path: str = "") -> Iterator[Fault]:
    """The members of an object that are not what the table expects. path: that of the object, with a dot at its end."""
    for name, expected in table.items():
        value = body.get(name)
        if value is not None and not KINDS[expected](value):
            yield path + name, expected, value


def wrong_name(tools: list[JSONObject], pattern: re.Pattern[str]) -> int | None:
    """The position of the first tool without a name of the pattern."""
    return next((place for place, tool in enumerate(tools) if not pattern.fullmatch(string(tool, "name"))), None)
