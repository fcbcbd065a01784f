"""Converts plain forms of messages and tools for `Request(messages=…, tools=…)`: text, and dicts in OpenAI's chat form.

`request.py` loads this module at the first use. Other values are returned unchanged; the checks of the request then
report what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeAlias, cast

from ..errors import InvalidRequestError
from ..json.json_values import JSONObject, mapping
from ..json.object_reader import Members
from ..model.messages import Message, Text, leading_system
from ..model.request import Tool
from ..openai.chat.converter import ChatConverter
from ..wire.cache_marks import MARKS, read_mark
from .sdk_arguments import plain, read_turns, split_system

System: TypeAlias = str | Sequence[Text] | None


def read_messages(given: object, system: System, warnings: list[str] | None = None) -> tuple[Sequence[Message], System]:
    """Convert messages to `Message` values. Return them and the system prompt.

    System messages at the beginning become the system prompt. Raises `InvalidRequestError`.

    warnings: gets a warning for each kind of member that is left out.
    """
    if isinstance(given, str):
        return [Message.user(given)], system
    items = cast("Sequence[object]", [given] if isinstance(given, Message) else given)
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, (Message, Mapping)) for item in items):
        return cast("Sequence[Message]", given), system
    if all(isinstance(item, Message) for item in items) and not leading_system(cast("Sequence[Message]", items)):
        return cast("Sequence[Message]", items), system
    messages: list[Message] = []
    place = 0
    for are_ready, run in groupby(items, lambda item: isinstance(item, Message)):
        group = list(run)
        messages += cast("list[Message]", group) if are_ready else _read_run(group, place, warnings)
        place += len(group)
    turns, lead = split_system(messages)
    if lead is not None and system is not None:
        raise InvalidRequestError(
            "messages[0]", "is a system prompt, which stands first, or in system=…: give one of the two"
        )
    return turns, lead if lead is not None else system


def _read_run(group: Sequence[object], place: int, warnings: list[str] | None) -> list[Message]:
    """Convert a run of adjacent dicts. `place`: the index of the first one, for error messages."""
    wire = [cast("JSONObject", plain(item, f"messages[{place + number}]")) for number, item in enumerate(group)]
    try:
        return read_turns(ChatConverter, wire, warnings=warnings)
    except InvalidRequestError as error:
        if not place:
            raise
        number, _, rest = error.field.removeprefix("messages[").partition("]")
        field = f"messages[{int(number) + place}]{rest}" if number.isdigit() else error.field
        raise InvalidRequestError(field, str(error).removeprefix(f"{error.field}: ")) from None


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
    """Return True if the value is a dict or another mapping."""
    return isinstance(value, Mapping)


def function_tool(value: JSONObject, where: str) -> Tool:
    """Convert a function tool: in OpenAI's form, nested (`function`) or flat, or with the fields of `Tool`.

    Raises `InvalidRequestError`. `where`: the tool's path, for messages.
    """
    kind = value.get("type", "function")
    if kind != "function":
        raise InvalidRequestError(f"{where}.type", f"must be 'function', not {kind!r}: put other tools into extra_body")
    function = mapping(value, "function")
    if function:
        outer = Members(value, where)
        for member in ("type", "function", *MARKS):
            outer.take(member)
        outer.end(("type", "function", MARKS[0]))
    members = Members(function or value, where)
    for member in ("type", *MARKS):
        members.take(member)
    mark = read_mark(value, where, InvalidRequestError) or read_mark(function, f"{where}.function", InvalidRequestError)
    name, description = members.text("name"), members.text("description") or ""
    schema, strict = members.object("parameters"), members.flag("strict")
    members.end(("name", "description", "parameters", "strict"))
    if not name:
        raise InvalidRequestError(f"{where}.name", "is missing")
    tool = Tool(name, description, strict=strict, cache_control=mark)
    return tool if schema is None else replace(tool, parameters=schema)
