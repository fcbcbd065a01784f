"""Parsers of the input's lines: each makes a request of a line's JSON object.

A line has one of three forms:

- manystream's: `{"id": "…", "messages": [{"role": "user", "content": "…"}], …options of `Request`}`. Messages have the
  form of OpenAI's chat API; a text is one user's message. Both may be called `prompt`. Tools have the form `{"name": …,
  "description": …, "parameters": …}`.
- OpenAI's batch line: `{"custom_id": "…", "method": "POST", "url": "/v1/chat/completions", "body": {…}}`. The `url` may
  also end in `/responses`, and needs no `/v1` (Azure).
- Anthropic's batch line: `{"custom_id": "…", "params": {…}}`.

In the last two forms, members that are no option of `Request` are sent unchanged (`extra_body`), because the provider
that the line was written for accepts them.

Other members beside those of the form are columns of the line: its answer has them, too.
"""

from __future__ import annotations

import codecs
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from string import Formatter
from typing import Literal, TypeAlias, TypedDict, TypeVar, cast

from .. import InvalidRequestError, ManystreamError, Message, Usage
from ..providers.convert.plain_forms import function_tool
from ..providers.convert.sdk_arguments import CallOptions, SystemPrompt, joined_system, read_conversation
from ..providers.json.json_types import AnswerType
from ..providers.json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    dumps_text,
    exact_loads,
    loads_object,
    mapping,
    string,
)
from ..providers.json.object_reader import Members
from ..providers.model.options import Durable, Priority, PriorityName, Retry, Timeouts
from ..providers.model.request import Request, RequestOptions, Tags, ThinkingConfig, ThinkingLevel, Tool
from ..providers.openai.chat.converter import ChatConverter

LineId: TypeAlias = str | int
ChooseModel: TypeAlias = Callable[[str | None], str | None]
"""Maps the model that a line names (or None) to the model that the request is sent to; None: there is none. Those here
can be sent to another process."""

ID_NAMES = ("id", "custom_id")
LEVELS = {level.value: level for level in ThinkingLevel}
URLS = ("/v1/chat/completions", "/v1/responses")

LONGEST_LINE = 64 * 1024 * 1024
"""The length of the longest line that is read, in bytes, its line end included. No provider accepts as much."""


@dataclass(slots=True, frozen=True)
class ModelChoice:
    """The model of each line.

    provider: the provider's name, which the request's model begins with.
    model: the model for all lines, whatever they name; None: the model that the line names.
    default: the model of a line that names none; None: such a line is refused.
    """

    provider: str
    model: str | None = None
    default: str | None = None

    def __call__(self, named: str | None) -> str | None:
        """Return the request's model for a line that names this model, or None if there is none."""
        model = self.model or named or self.default
        return f"{self.provider}/{model}" if model is not None else None


@dataclass(slots=True, frozen=True)
class OneModel:
    """The same model for each line, whatever it names, such as a route."""

    name: str

    def __call__(self, named: str | None) -> str:
        return self.name


class CommonRequestOptions(TypedDict, total=False):
    """Options of the requests of all lines, as in `Request`."""

    system: str
    max_output_tokens: int
    temperature: float
    response_schema: JSONObject | AnswerType


class CommonOptions(CommonRequestOptions, total=False):
    """Options of all lines: those of their requests, and the prompt that is made of a line's columns."""

    prompt: Prompt


@dataclass(slots=True, frozen=True)
class Prompt:
    """One user's message, made of the columns of a row. Then no column is an option, and all pass through.

    parts: texts, each with the name of the column whose value follows it; None at the end.
    """

    parts: tuple[tuple[str, str | None], ...]

    def render(self, row: JSONObject) -> str:
        """Return the message of a row. Raises `InvalidRequestError` for a column that it has not."""
        return "".join(text if name is None else text + self._value(row, name) for text, name in self.parts)

    @property
    def column(self) -> str | None:
        """The column that alone is the prompt; None if the prompt has other parts."""
        return self.parts[0][1] if len(self.parts) == 1 and not self.parts[0][0] else None

    def conversation(self, row: JSONObject) -> tuple[list[Message], SystemPrompt]:
        """Return the messages of a row, and the system prompt before them. Raises `InvalidRequestError`.

        Where one column alone is the prompt, it may hold a list of messages.
        """
        if self.column is not None and is_conversation(row.get(self.column)):
            return _messages(self.column, row[self.column])
        return [Message.user(self.render(row))], None

    def _value(self, row: JSONObject, name: str) -> str:
        value = row.get(name)
        if value is None:
            reason = "is null" if name in row else f"is missing; the row has {', '.join(map(repr, row)) or 'none'}"
            raise InvalidRequestError(name, f"{reason}, and the prompt is made of this column")
        return value if type(value) is str else dumps_text(value)


def read_prompt(template: str) -> Prompt:
    """Parse a text with names of columns in braces, such as `Translate: {text}`; `{{` is one brace of the text.

    Raises `ValueError`.
    """
    parts: list[tuple[str, str | None]] = []
    for text, name, form, conversion in Formatter().parse(template):
        if name is not None and (not name or form or conversion):
            raise ValueError("a column is written as {name}, and a brace of the text as {{ or }}")
        parts.append((text, name))
    if not any(name is not None for _, name in parts):
        raise ValueError("it names no column, such as {text}, so every row would have the same prompt")
    return Prompt(tuple(parts))


class LineError(ManystreamError, ValueError):
    """A line that is not a valid request.

    id: the line's id, or None if it has none.
    """

    def __init__(self, message: str, id: LineId | None = None) -> None:
        super().__init__(message)
        self.id = id


@dataclass(slots=True)
class Item:
    """A line of the input and its request.

    number: the line's number, from 1.
    request: the request that the line describes.
    size: the line's length in bytes. The number of tokens is estimated from it.
    columns: the line's other members, which its answer has, too.
    """

    number: int
    id: LineId
    request: Request
    size: int
    columns: JSONObject = field(default_factory=dict[str, JSON])


@dataclass(slots=True)
class Line:
    """A line whose id is known, but whose other members are not yet checked.

    A resumed batch skips most lines at this point.
    """

    number: int
    id: LineId
    members: JSONObject
    size: int


class Refused(bytes):
    """In place of a line: why the row of a table cannot be one."""


def read_line(data: bytes, number: int) -> Line:
    """Parse a line's object and its id. `number` is the line's number, from 1. Raises `LineError`."""
    if isinstance(data, Refused):
        raise LineError(data.decode())
    if len(data) > LONGEST_LINE:
        raise LineError(f"is longer than {LONGEST_LINE:,} bytes, the limit of a line")
    _check_encoding(data)
    try:
        members = loads_object(data)
    except MalformedJSONError as error:
        raise LineError(str(error)) from None
    for name in ID_NAMES:
        id = members.get(name)
        if id is None:
            continue
        if type(id) is int or (type(id) is str and id):
            return Line(number, id, members, len(data))
        raise LineError(f"{name}: must be text that is not empty, or a whole number")
    raise LineError("id: is missing; each line needs one, to find its answer and to resume the batch")


def named_model(data: bytes) -> str | None:
    """Return the model that a line names; None if it names none, or is no line of a batch."""
    members = members_of(data)
    inner = next((name for name in ("params", "body") if name in members), None)
    return string(members if inner is None else mapping(members, inner), "model")


def members_of(data: bytes) -> JSONObject:
    """Return a line's object; an empty one if the line is no object."""
    try:
        return loads_object(data.removeprefix(codecs.BOM_UTF8))
    except MalformedJSONError:
        return {}


def _check_encoding(data: bytes) -> None:
    """Raise `LineError` for bytes that are not UTF-8. The parser would replace them, and a prompt would change."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        wrong = data[error.start]
        raise LineError(f"is not UTF-8 text (byte {wrong:#04x} at {error.start}): save the file as UTF-8") from None


def read_item(line: Line, choose_model: ChooseModel, options: CommonOptions | None = None) -> Item:
    """Make the line's request. Raises `LineError`, which names the wrong member.

    options: options of every request, whatever the line says.
    """
    prompt, common = _taken(options)
    read = _read_anthropic if "params" in line.members else _read_openai if "body" in line.members else _read_ours
    members = Members(line.members)
    for name in ID_NAMES:
        members.take(name)
    try:
        if prompt is None:
            request = read(members, choose_model)
            columns = _columns(members, read)
        else:
            messages, lead = prompt.conversation(line.members)
            request = Request(_model(Members({}), choose_model), messages, system=lead)
            columns = passed_through(members.rest())
        if common:
            request = replace(request, **common)
    except (InvalidRequestError, MalformedJSONError) as error:
        raise LineError(str(error), line.id) from None
    return Item(line.number, line.id, request, line.size, columns)


# --- manystream's form ---

OUR_MEMBERS = (*ID_NAMES, "model", "messages", "prompt", *RequestOptions.__annotations__)


def _read_ours(members: Members, choose_model: ChooseModel) -> Request:
    messages, lead = _conversation(members)
    return Request(
        _model(members, choose_model),
        messages,
        system=joined_system(members.text("system"), lead),
        tools=_tools(members.take("tools")),
        tool_choice=members.text("tool_choice") or "auto",
        thinking=_thinking(members.take("thinking")),
        max_output_tokens=_whole(members, "max_output_tokens"),
        temperature=members.number("temperature"),
        top_p=members.number("top_p"),
        stop=members.texts("stop"),
        seed=_whole(members, "seed"),
        response_schema=members.object("response_schema"),
        parallel_tool_calls=members.flag("parallel_tool_calls"),
        metadata=members.strings("metadata"),
        timeouts=_made(Timeouts, "timeouts", members.object("timeouts"), TIMEOUT_MEMBERS),
        retry=_retry(members.object("retry")),
        extra_body=members.object("extra_body"),
        extra_headers=members.strings("extra_headers"),
        priority=cast("PriorityName", members.text("priority") or Priority.NORMAL.value),
        tenant=members.text("tenant"),
        session=members.text("session"),
        tags=cast("Tags | None", members.object("tags")),
        durable=_durable(members.take("durable")),
        return_tokens=members.flag("return_tokens") or False,
        logprobs=_whole(members, "logprobs"),
        prompt_token_ids=cast("list[int] | None", members.take("prompt_token_ids")),
        continue_aborted=members.flag("continue_aborted") or False,
        cache=cast("Literal['auto'] | None", members.text("cache")),
    )


def _conversation(members: Members) -> tuple[list[Message], SystemPrompt]:
    """Return the messages of a line, and the texts of system messages before them."""
    prompt, messages = members.take("prompt"), members.take("messages")
    if prompt is not None and messages is not None:
        raise InvalidRequestError("prompt", "is another name of `messages`: leave out one of them")
    return _messages("messages", messages) if prompt is None else _messages("prompt", prompt)


def _messages(name: str, value: JSON) -> tuple[list[Message], SystemPrompt]:
    if type(value) is str:
        return [Message.user(value)], None
    return read_conversation(ChatConverter, Members({name: value}).some_objects(name))


def _tools(value: JSON) -> list[Tool]:
    """Return the tools of a line. A data set may have them as a text, since Arrow has one schema for all rows."""
    if type(value) is str:
        try:
            value = exact_loads(value) if value.strip() else None
        except MalformedJSONError as error:
            raise InvalidRequestError("tools", f"must be an array, or a text that is one: {error}") from None
    tools = Members({"tools": value}).objects("tools")
    return [function_tool(tool, f"tools[{position}]") for position, tool in enumerate(tools)]


def is_conversation(value: JSON) -> bool:
    """Return whether a value is a list of messages."""
    return type(value) is list and bool(value) and all(type(each) is dict and "role" in each for each in value)


def _whole(members: Members, name: str) -> int | None:
    """Take a whole number. A table may have it as 256.0: pandas stores a column with nulls so."""
    value = members.take(name)
    return Members({name: int(value) if type(value) is float and value.is_integer() else value}).whole(name)


def _made(
    make: Callable[..., _Made], name: str, value: JSONObject | None, readers: Mapping[str, _Read]
) -> _Made | None:
    """Make an option of its object; None of none. readers: all members that it can have → what reads each."""
    if value is None:
        return None
    members = Members(value, name)
    made = make(**{member: read(members, member) for member, read in readers.items()})
    members.end(tuple(readers))
    return made


def _level(members: Members, name: str) -> ThinkingLevel | None:
    level = members.text(name)
    if level is not None and level not in LEVELS:
        raise InvalidRequestError(members.field(name), f"must be one of {', '.join(LEVELS)}, not {level!r}")
    return None if level is None else LEVELS[level]


def _thinking(value: JSON) -> ThinkingLevel | ThinkingConfig | None:
    if value is None:
        return None
    if type(value) is str and value in LEVELS:
        return LEVELS[value]
    if type(value) is not dict:
        raise InvalidRequestError("thinking", f"must be one of {', '.join(LEVELS)}, or an object")
    return _made(ThinkingConfig, "thinking", value, THINKING_MEMBERS)


def _durable(value: JSON) -> bool | Durable:
    if value is None or type(value) is bool:
        return value or False
    if type(value) is not dict:
        raise InvalidRequestError("durable", "must be true, false, or an object with a `window`")
    return _made(Durable, "durable", value, {"window": Members.text}) or False


def _retry(value: JSONObject | None) -> Retry | None:
    def made(max_attempts: int | None) -> Retry | None:
        return None if max_attempts is None else Retry(max_attempts=max_attempts)

    return _made(made, "retry", value, {"max_attempts": Members.whole})


_Made = TypeVar("_Made")
_Read: TypeAlias = Callable[[Members, str], object]

TIMEOUT_MEMBERS: dict[str, _Read] = dict.fromkeys(("connect", "first_byte", "idle", "total", "queue"), Members.number)
THINKING_MEMBERS: dict[str, _Read] = {
    "level": _level, "budget_tokens": Members.whole, "effort": Members.text, "include_summary": Members.flag
}  # fmt: skip


# --- OpenAI's form ---


def _read_openai(members: Members, choose_model: ChooseModel) -> Request:
    members.take("method")
    url, body = members.text("url") or URLS[0], members.object("body")
    if body is None:
        raise InvalidRequestError("body", "must be an object")
    if url.endswith("/chat/completions"):
        from ..providers.openai.chat.arguments import read_body
    elif url.endswith("/responses"):
        from ..providers.openai.responses.arguments import read_body
    else:
        raise InvalidRequestError("url", f"must be one of {', '.join(URLS)}, not {url!r}")
    n = body.get("n")
    if n is not None and (type(n) is not int or n < 1):
        raise InvalidRequestError("body.n", "must be a whole number above 0")
    return read_body(_without_stream(body, "body", choose_model), CallOptions(), "body")


# --- Anthropic's form ---


def _read_anthropic(members: Members, choose_model: ChooseModel) -> Request:
    params = members.object("params")
    if params is None:
        raise InvalidRequestError("params", "must be an object")
    from ..providers.anthropic.arguments import read_body

    return read_body(_without_stream(params, "params", choose_model), CallOptions(), "params")


# --- common to all forms ---

FORM_MEMBERS = ("messages", "prompt", "body", "params")
"""The members of the forms that hold a request. No record of a batch has one of them."""

ANSWER_MEMBERS = frozenset(
    {"id", "line", "provider", "model", "text", "thinking", "tool_calls", "finish_reason", "usage", "error", "attempts"}
    | {"seconds", "request_id", "cost", "spent_usd", "parsed", "refusal", "warnings", "provider_data", "tokens"}
    | {"cached", "choices"}
)
"""The members that a record of a batch may have of its own (`records.py`)."""

USAGE_MEMBERS = tuple(name for name in Usage.__dataclass_fields__ if name != "raw")
"""The members of `usage`. Each is a number of tokens, or null if the server did not report it."""

OTHER_NAMES = {
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens_to_sample": "max_output_tokens",
    "stop_sequences": "stop",
    "response_format": "response_schema",
    "reasoning_effort": "thinking",
    "timeout": "timeouts",
    "max_retries": "retry",
    "stream": "extra_body",
    "stream_options": "extra_body",
    "top_k": "extra_body",
    "frequency_penalty": "extra_body",
    "presence_penalty": "extra_body",
    "logit_bias": "extra_body",
    "top_logprobs": "logprobs",
    "return_token_ids": "return_tokens",
    "functions": "tools",
    "function_call": "tool_choice",
}
"""A provider's name of an option → where our form has it. In our form, such a member is no column but a mistake."""

NO_COLUMN = (
    "is a member of answers, so no column of the input may have this name: rename it, or name the column of the prompt"
    " (--prompt-field), which makes it 'input_…'"
)

ALIKE = 0.85
"""From this likeness on, a member is a misspelt option and no column."""


def _taken(options: CommonOptions | None) -> tuple[Prompt | None, CommonRequestOptions]:
    """Return the prompt of all rows, and the options of their requests."""
    common = options.copy() if options else CommonOptions()
    return common.pop("prompt", None), cast("CommonRequestOptions", common)


def passed_through(row: JSONObject) -> JSONObject:
    """Return the columns of a row that its record has, too. Raises `InvalidRequestError` if two would have one name.

    A name of the form or of an answer gets `input_` before it, so that the record still has its own member.
    """
    columns: JSONObject = {}
    for name, value in row.items():
        own = f"input_{name}" if name in ANSWER_MEMBERS or name in FORM_MEMBERS else name
        if own != name and own in row:
            raise InvalidRequestError(name, f"is a member of answers and would be {own!r}, which is a column as well")
        columns[own] = value
    return columns


def _columns(members: Members, read: Callable[[Members, ChooseModel], Request]) -> JSONObject:
    """Return the members that are no part of the form. Raises `InvalidRequestError` for a mistake."""
    columns = members.rest()
    for name in columns:
        if read is _read_ours:
            alike = difflib.get_close_matches(name, OUR_MEMBERS, 1, ALIKE)
            known = OTHER_NAMES.get(name) or next(iter(alike), None)
            if known is not None:
                raise InvalidRequestError(name, f"is not a member of this form; did you mean {known!r}?")
        if name in ANSWER_MEMBERS or name in FORM_MEMBERS:
            raise InvalidRequestError(name, NO_COLUMN)
    return columns


def _model(members: Members, choose_model: ChooseModel) -> str:
    model = choose_model(members.text("model"))
    if model is None:
        raise InvalidRequestError(members.field("model"), "is missing, and no model was given for the whole batch")
    return model


def _without_stream(body: JSONObject, where: str, choose_model: ChooseModel) -> JSONObject:
    """Return the body with the model to ask, and without the members about streaming: the batch decides whether to
    stream, not the line."""
    kept = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
    return {**kept, "model": _model(Members(body, where), choose_model)}
