"""Reads the arguments of `client.models.generate_content` (google-genai) into a `Request`.

The converter reads the contents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import cast, get_args, get_origin

from ..convert.sdk_arguments import (
    CallOptions,
    check_names,
    headers_of,
    plain,
    read_conversation,
    schema_class,
    timeouts_of,
)
from ..errors import InvalidRequestError
from ..json.json_values import JSON, JSONObject, integer, items, mapping, objects, string
from ..json.object_reader import Members
from ..model.messages import Text
from ..model.request import Request, ThinkingConfig, Tool, with_given
from ..model.structured import makes_schema, schema_of
from ..wire.wire_head import JSON_TYPE
from .converter import GeminiConverter, as_on_the_wire
from .json_names import camel, open_api_schema, wire_names
from .request import NAME, SOURCES, TOOL_CHOICES, without_added_tools

METHOD = "google-genai's client.models.generate_content"

ARGUMENTS = ("model", "contents", "config")

TOP_MEMBERS = frozenset({
    "systemInstruction", "safetySettings", "tools", "toolConfig", "labels", "cachedContent", "serviceTier",
    "continuationToken", "store", "modelArmorConfig", "generationOutputConfig",
})  # fmt: skip
"""Members of `config` that the SDK puts at the top of the body."""

GENERATION_MEMBERS = frozenset({
    "temperature", "topP", "topK", "candidateCount", "maxOutputTokens", "stopSequences", "responseLogprobs", "logprobs",
    "presencePenalty", "frequencyPenalty", "seed", "responseMimeType", "responseSchema", "responseJsonSchema",
    "routingConfig", "modelSelectionConfig", "responseModalities", "mediaResolution", "speechConfig", "audioTimestamp",
    "thinkingConfig", "imageConfig", "enableEnhancedCivicAnswers", "audioTranscriptionConfig",
})  # fmt: skip
"""Members of `config` that the SDK puts into `generationConfig`."""

RENAMED = {"modelSelectionConfig": "modelConfig", "generationOutputConfig": "outputConfig"}
"""Maps the members of `config` that have another name on the wire to that name."""

IGNORED = frozenset({"automaticFunctionCalling", "automaticContinuation"})
"""Members of `config` that control how the SDK processes a response. They are not sent."""

CONFIG_MEMBERS = TOP_MEMBERS | GENERATION_MEMBERS | IGNORED | {"httpOptions"}

FUNCTIONS = "functionDeclarations"
DECLARATION_MEMBERS = frozenset({"name", "description", "parameters", "parametersJsonSchema"})
MODES = {mode: word for word, mode in TOOL_CHOICES.items()}
THINKING_MEMBERS = frozenset({"includeThoughts", "thinkingBudget", "thinkingLevel"})


def read_arguments(arguments: Mapping[str, object]) -> Request:
    """Return the request. Raises `InvalidRequestError`, which names the argument or the path in it."""
    check_names(arguments, ARGUMENTS, METHOD)
    config = _config(arguments.get("config"))
    options = _take_http_options(config.pop("httpOptions", None))
    schema: type | None = None
    described = config.get("responseSchema")
    if is_type_form(described):
        config.pop("responseSchema")
        config |= schema_members(described, "config.response_schema")
    elif isinstance(described, type):
        schema = schema_class(config.pop("responseSchema"), "config.response_schema")
        config.pop("responseMimeType", None)
    body: JSONObject = {"contents": list(_contents(arguments.get("contents")))}
    generation: JSONObject = {}
    for name, value in config.items():
        if name in IGNORED or value is None:
            continue
        wire = as_on_the_wire(value, f"config.{name}", name)
        if type(wire) is str and name in TEXT_FORMS:
            wire = TEXT_FORMS[name](wire)
        if name in TOP_MEMBERS:
            body[RENAMED.get(name, name)] = _system_instruction(wire) if name == "systemInstruction" else wire
        else:
            generation[RENAMED.get(name, name)] = wire
    if generation:
        body["generationConfig"] = generation
    model = arguments.get("model")
    if not isinstance(model, str):
        raise InvalidRequestError("model", "must be text" if model is not None else "is missing")
    return read_body(model, body, options, schema=schema)


def _config(value: object) -> dict[str, object]:
    """Return the members of `config` by their wire names. Raises `InvalidRequestError` for an unknown member."""
    members = _attributes(value, "config")
    for name in members:
        if name not in CONFIG_MEMBERS:
            check_names({f"config.{name}": None}, [f"config.{known}" for known in CONFIG_MEMBERS], METHOD)
    return members


def _attributes(value: object, where: str) -> dict[str, object]:
    """Return the members that were set in a dict or in an SDK's object, by their wire names.

    An object is not dumped as a whole, because it may contain classes.
    """
    if value is None:
        return {}
    if isinstance(value, Mapping):
        given = cast("Mapping[object, object]", value)
        return {camel(str(name)): member for name, member in given.items()}
    names: object = getattr(value, "model_fields_set", None)
    if not isinstance(names, set):
        raise InvalidRequestError(where, f"must be a dict or the SDK's own object, not {type(value).__name__}")
    return {camel(name): getattr(value, name) for name in cast("set[str]", names)}


def _take_http_options(value: object) -> CallOptions:
    """Return the options of the call. Raises `InvalidRequestError` for options of the client."""
    options, where = CallOptions(), "config.http_options"
    for name, member in _attributes(value, where).items():
        if member is None:
            continue
        if name == "timeout":
            if not isinstance(member, int | float) or isinstance(member, bool):
                raise InvalidRequestError(f"{where}.timeout", "must be milliseconds")
            options.timeouts = timeouts_of(member / 1000, f"{where}.timeout")
        elif name == "headers":
            options.extra_headers = headers_of(member, f"{where}.headers")
        elif name == "extraBody":
            extra = plain(member, f"{where}.extra_body")
            if type(extra) is not dict:
                raise InvalidRequestError(f"{where}.extra_body", "must be a dict")
            options.extra_body = extra
        else:
            raise InvalidRequestError(
                f"{where}.{name}", "cannot be carried: it belongs to the provider or to open_engine"
            )
    return options


def _voice(name: str) -> JSONObject:
    """Return the speech configuration for a voice, which the SDK takes by its name alone as well."""
    voice: JSONObject = {"voiceName": name}
    prebuilt: JSONObject = {"prebuiltVoiceConfig": voice}
    return {"voiceConfig": prebuilt}


def _cached_content(name: str) -> JSON:
    """Return the resource name of a cache, which the SDK takes by its id alone as well."""
    return name if not name or "/" in name else f"cachedContents/{name}"


TEXT_FORMS: dict[str, Callable[[str], JSON]] = {"speechConfig": _voice, "cachedContent": _cached_content}
"""Member of `config` that may be a text → the function that returns its wire form."""


# --- contents ---


def _contents(value: object) -> list[JSONObject]:
    """Return the contents as the SDK makes them: adjacent parts outside a content become one content."""
    if value is None or value == []:
        raise InvalidRequestError("contents", "are missing")
    given = plain(value, "contents", base64_bytes=True)
    elements = given if type(given) is list else [given]
    contents: list[JSONObject] = []
    loose: list[JSON] = []  # adjacent parts outside a content
    for place, item in enumerate(elements):
        where = f"contents[{place}]" if type(given) is list else "contents"
        if type(item) is list:
            _close(loose, contents)
            contents.append({"role": "user", "parts": [_part(part, where) for part in item]})
            continue
        wire = wire_names(item, "")
        if type(wire) is dict and (not wire or wire.keys() & {"parts", "role"}):
            _close(loose, contents)
            contents.append(wire)
            continue
        part = _part(wire, where)
        if loose and _is_call(loose[-1]) is not _is_call(part):
            _close(loose, contents)
        loose.append(part)
    _close(loose, contents)
    return contents


def _close(loose: list[JSON], contents: list[JSONObject]) -> None:
    if loose:
        role = "model" if _is_call(loose[-1]) else "user"
        contents.append({"role": role, "parts": list(loose)})
        loose.clear()


def _is_call(part: JSON) -> bool:
    return type(part) is dict and "functionCall" in part


def _part(value: JSON, where: str) -> JSONObject:
    if type(value) is str:
        return {"text": value}
    wire = wire_names(value, "")
    if type(wire) is not dict:
        raise InvalidRequestError(where, "must be text, a part, a content or a file")
    uri = string(wire, "uri")
    if uri is not None:  # an uploaded file
        return {"fileData": {"fileUri": uri, "mimeType": string(wire, "mimeType")}}
    return wire


def _system_instruction(value: JSON) -> JSONObject:
    if type(value) is dict and "parts" in value:
        return value
    parts: list[JSON] = [
        _part(part, "config.systemInstruction") for part in (value if type(value) is list else [value])
    ]
    return {"parts": parts, "role": "user"}


# --- the body ---


def read_body(model: str, body: JSONObject, options: CallOptions, *, schema: type | None = None) -> Request:
    """Return the request of a body. `schema`: the class that the response must match; None: no class was given."""
    members = Members(body)
    extra: JSONObject = {}
    messages, _ = read_conversation(GeminiConverter, members.some_objects("contents"))
    generation = Members(members.object("generationConfig") or {}, "generationConfig")
    extra_config: JSONObject = {}
    tools = _tools(members, extra)
    request = Request(
        model,
        messages,
        system=_system(members.object("systemInstruction")),
        tools=tools,
        tool_choice=_tool_choice(members, extra, tools),
        thinking=_thinking(generation, extra_config),
        max_output_tokens=generation.whole("maxOutputTokens"),
        temperature=generation.number("temperature"),
        top_p=generation.number("topP"),
        stop=generation.texts("stopSequences"),
        seed=generation.whole("seed"),
        response_schema=schema if schema is not None else _schema(generation, extra_config),
        metadata=members.strings("labels"),
        timeouts=options.timeouts,
        extra_headers=options.extra_headers,
    )
    extra_config.update(generation.rest())
    if extra_config:
        extra["generationConfig"] = extra_config
    extra_body: JSONObject = {**members.rest(), **extra, **options.extra_body}
    object.__setattr__(request, "extra_body", extra_body or None)
    config = mapping(body, "generationConfig")
    read = {f"generationConfig.{name}": value for name, value in config.items() if name not in extra_config}
    carried = {**without_added_tools(body, extra), **read}
    written = frozenset[str]()
    if schema is not None:
        written = frozenset({"generationConfig.responseMimeType", "generationConfig.responseJsonSchema"})
    return with_given(request, NAME, carried, SOURCES, written)


def _system(wire: JSONObject | None) -> str | Sequence[Text] | None:
    """Return the system prompt. Its parts are read like those of a content."""
    if wire is None:
        return None
    messages, _ = read_conversation(GeminiConverter, [{"parts": wire.get("parts")}])
    blocks: list[Text] = []
    for place, block in enumerate(block for message in messages for block in message.content):
        if not isinstance(block, Text):
            raise InvalidRequestError(f"systemInstruction.parts[{place}]", "must be text")
        blocks.append(block)
    return blocks[0].text if len(blocks) == 1 and blocks[0] == Text(blocks[0].text) else blocks or None


def _tools(members: Members, extra: JSONObject) -> list[Tool]:
    """Return the functions if `Tool` can hold all of them. Tools of other kinds go to `extra` unchanged."""
    wire = members.objects("tools")
    functions = [tool for tool in wire if tool.keys() == {FUNCTIONS}]
    declared = [declaration for tool in functions for declaration in objects(tool, FUNCTIONS)]
    if not all(each.keys() <= DECLARATION_MEMBERS and _has_plain_type(each) for each in declared):
        extra["tools"] = list(wire)
        return []
    others: list[JSON] = [tool for tool in wire if tool.keys() != {FUNCTIONS}]
    if others:
        extra["tools"] = others
    return [_tool(declaration, f"tools[].functionDeclarations[{place}]") for place, declaration in enumerate(declared)]


def _has_plain_type(declaration: JSONObject) -> bool:
    """Return True if the schema's types are names. Protobuf accepts numbers, too."""
    return type(mapping(declaration, "parameters").get("type", "")) is str


def _tool(wire: JSONObject, where: str) -> Tool:
    members = Members(wire, where)
    name, description = members.needed_text("name"), members.text("description") or ""
    schema, older = members.object("parametersJsonSchema"), members.object("parameters")
    if schema is None and older is not None:
        schema = open_api_schema(older)
    return Tool(name, description) if schema is None else Tool(name, description, schema)


def _tool_choice(members: Members, extra: JSONObject, tools: list[Tool]) -> str:
    """Return the functions that the model may call. A choice that no field holds goes to `extra` unchanged."""
    config = members.object("toolConfig")
    if config is None:
        return "auto"
    calling = mapping(config, "functionCallingConfig")
    mode, names = string(calling, "mode"), items(calling, "allowedFunctionNames")
    if tools and config.keys() == {"functionCallingConfig"} and calling.keys() <= {"mode", "allowedFunctionNames"}:
        name = names[0] if len(names) == 1 else None
        if mode == "ANY" and type(name) is str and any(tool.name == name for tool in tools):
            return name
        if mode in MODES and not names:
            return MODES[mode]
    extra["toolConfig"] = config
    return "auto"


def _schema(generation: Members, extra: JSONObject) -> JSONObject | None:
    """Return the schema that the response must match. Other response formats, and OpenAPI schemas, go to `extra`."""
    kind, schema = generation.text("responseMimeType"), generation.object("responseJsonSchema")
    if kind == JSON_TYPE and schema is not None:
        return schema
    if kind is not None:
        extra["responseMimeType"] = kind
    if schema is not None:
        extra["responseJsonSchema"] = schema
    return None


def _thinking(generation: Members, extra: JSONObject) -> ThinkingConfig | None:
    config = generation.object("thinkingConfig")
    if config is None:
        return None
    shown, level = config.get("includeThoughts"), string(config, "thinkingLevel")
    if not config.keys() <= THINKING_MEMBERS or type(shown) not in (bool, type(None)):
        extra["thinkingConfig"] = config
        return None
    summary = shown if type(shown) is bool else None
    return ThinkingConfig(None, integer(config, "thinkingBudget"), level.lower() if level else None, summary)


PLAIN_TYPES: dict[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
"""Python type → the type in a JSON Schema."""


def is_type_form(value: object) -> bool:
    """Return True if `schema_members` converts this value."""
    if get_origin(value) is list:
        return True
    return isinstance(value, type) and (value in PLAIN_TYPES or issubclass(value, Enum))


def schema_members(value: object, where: str) -> dict[str, object]:
    """Return the member of `config` for a type, by name. Raises `InvalidRequestError` for a type without a schema.

    An enum alone becomes a `responseSchema`, because the media type `text/x.enum` needs that one.
    """
    schema = _type_schema(value, where)
    if isinstance(value, type) and issubclass(value, Enum):
        return {"responseSchema": {**schema, "type": "STRING"}}
    return {"responseJsonSchema": schema}


def _type_schema(value: object, where: str) -> JSONObject:
    if get_origin(value) is list:
        items = dict(_type_schema(get_args(value)[0], f"{where}[…]"))
        array: JSONObject = {"type": "array", "items": items}
        if "$defs" in items:
            array["$defs"] = items.pop("$defs")  # references begin at the root
        return array
    if not isinstance(value, type):
        raise InvalidRequestError(where, f"has no JSON Schema: {value!r}")
    return _schema_of_class(value, where)


def _schema_of_class(kind: type, where: str) -> JSONObject:
    if kind in PLAIN_TYPES:
        return {"type": PLAIN_TYPES[kind]}
    if makes_schema(kind):
        return schema_of(kind)
    if issubclass(kind, Enum):
        return {"type": "string", "enum": [_word(member, where) for member in kind]}
    raise InvalidRequestError(where, f"must be a class with model_json_schema(), not the class {kind.__name__}")


def _word(member: Enum, where: str) -> JSON:
    word: object = member.value
    if not isinstance(word, str):
        raise InvalidRequestError(where, f"must have texts as values: {type(member).__name__}.{member.name} has none")
    return str(word)
