"""The common history as values, and as a view of messages.

`messages_of` converts a history to messages, `history_messages_of` converts messages to a history.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ..errors import InvalidRequestError, ManystreamError
from ..json.json_values import JSON, JSONObject, MalformedJSONError, arguments_text, exact_loads, mapping, string
from ..model.message_rules import MAYBE_FLAG, MAYBE_TEXT, NAME, ROLE_BLOCKS, TEXT
from ..model.messages import BLOCK_TYPES, Block, Message, Role, Text, ToolCall, ToolResult, leading_system
from ..model.response import Response
from ..model.rules import Rule, check_iterable, instance, items_of, optional, sequence, whole
from ..wire.omission_warnings import ELSEWHERE

TEXT_OUTPUT = "text"

UNKNOWN_TOOL = "unknown"
"""The name of a result's tool if no call names it."""


LATE_SYSTEM = f"a system message after the first turn has no place here: {ELSEWHERE}"


class HistoryError(ManystreamError, ValueError):
    """A history that cannot be read or written. The message names the place and the reason.

    where: the place, such as `turns[3]`.
    """

    def __init__(self, where: str, message: str) -> None:
        super().__init__(f"{where}: {message}")
        self.where = where


class HistoryRole(enum.StrEnum):
    """The author of a message in a history."""

    SYSTEM = "system"
    USER = "user"
    MODEL = "model"
    TOOL = "tool"
    CONTEXT = "context"


# --- parts ---


@dataclass(slots=True)
class TextPart:
    """Text.

    text: the text.
    origin: the block that this part is a view of. It is written as it was, with its signature, unless the text changed.
    """

    text: str
    origin: Text | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check("TextPart.text", self.text, TEXT)
        _check("TextPart.origin", self.origin, optional(instance(Text)))


@dataclass(slots=True)
class ToolCallPart:
    """A tool call. Raises `HistoryError` for an empty id or name, and for arguments that are no dict.

    id: connects the call with its result.
    name: the tool's name.
    arguments: the parsed arguments.
    malformed: the arguments as the model wrote them, if they are no JSON object. Then `arguments` is empty, and the
        call must not be executed.
    origin: the block that this part is a view of. It is written as it was unless the part changed.
    """

    id: str
    name: str
    arguments: JSONObject = field(default_factory=lambda: {})
    malformed: str | None = None
    origin: ToolCall | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check("ToolCallPart.id", self.id, NAME)
        _check("ToolCallPart.name", self.name, NAME)
        _check("ToolCallPart.arguments", self.arguments, ARGUMENTS)
        _check("ToolCallPart.malformed", self.malformed, MAYBE_TEXT)
        _check("ToolCallPart.origin", self.origin, optional(instance(ToolCall)))


@dataclass(slots=True)
class ToolOutput:
    """The output of a tool. Raises `HistoryError` for an empty type.

    type: the kind of content, such as `text`.
    content: text, or a list or object of JSON.
    """

    type: str
    content: str | list[JSON] | JSONObject

    def __post_init__(self) -> None:
        _check("ToolOutput.type", self.type, NAME)
        _check("ToolOutput.content", self.content, instance(str, list, dict, must="text, a list or a dict"))

    @classmethod
    def from_any(cls, value: object) -> ToolOutput | None:
        """Convert a value to an output: text, lists and objects as they are, any other value as `str(value)`.

        None and a `ToolOutput` are returned unchanged.
        """
        if value is None or isinstance(value, ToolOutput):
            return value
        if isinstance(value, str | list | dict):
            return cls(TEXT_OUTPUT, value)  # pyright: ignore[reportUnknownArgumentType]
        return cls(TEXT_OUTPUT, str(value))


RESULT_MEMBERS = frozenset({"success", "failure", "output", "display_output"})


@dataclass(slots=True)
class ToolCallResult:
    """A tool's success or failure. Raises `HistoryError` unless exactly one of the two is true, and for an output that
    is no `ToolOutput`: `ok` and `error` take any value.

    success: True if the tool succeeded.
    failure: True if the tool failed.
    output: the output for the model.
    display_output: the output for a person, if it differs.
    """

    success: bool | None = None
    failure: bool | None = None
    output: ToolOutput | None = None
    display_output: ToolOutput | None = None

    def __post_init__(self) -> None:
        _check("ToolCallResult.success", self.success, MAYBE_FLAG)
        _check("ToolCallResult.failure", self.failure, MAYBE_FLAG)
        _check("ToolCallResult.output", self.output, optional(instance(ToolOutput)))
        _check("ToolCallResult.display_output", self.display_output, optional(instance(ToolOutput)))
        if bool(self.success) == bool(self.failure):
            raise HistoryError(
                "ToolCallResult",
                f"exactly one of success and failure must be true, not {self.success!r} and {self.failure!r}",
            )

    @classmethod
    def ok(cls, output: object, display_output: object = None) -> ToolCallResult:
        """Return a success with this output, converted by `ToolOutput.from_any`."""
        return cls(success=True, output=ToolOutput.from_any(output), display_output=ToolOutput.from_any(display_output))

    @classmethod
    def error(cls, output: object, display_output: object = None) -> ToolCallResult:
        """Return a failure with this output, converted by `ToolOutput.from_any`."""
        return cls(failure=True, output=ToolOutput.from_any(output), display_output=ToolOutput.from_any(display_output))

    def get_display_output(self) -> ToolOutput | None:
        """Return the output for a person: `display_output`, or `output` if that is None."""
        return self.display_output if self.display_output is not None else self.output

    def to_json(self) -> JSONObject:
        """Return the result as JSON, without members that are None."""
        data: JSONObject = {"success": True} if self.success else {"failure": True}
        for name, output in (("output", self.output), ("display_output", self.display_output)):
            if output is not None:
                data[name] = {"type": output.type, "content": output.content}
        return data

    @classmethod
    def from_json(cls, data: JSONObject) -> ToolCallResult:
        """Parse a result as `to_json` writes it. Raises `HistoryError`."""
        _check("data", data, ARGUMENTS)
        success, failure = data.get("success"), data.get("failure")
        if not isinstance(success, bool | None) or not isinstance(failure, bool | None):
            raise HistoryError("ToolCallResult", "success and failure must be true, false or absent")
        unknown = sorted(data.keys() - RESULT_MEMBERS)
        if unknown:
            raise HistoryError("ToolCallResult", f"has no {unknown[0]!r}")
        return cls(success, failure, _output(data, "output"), _output(data, "display_output"))


@dataclass(slots=True)
class ToolResultPart:
    """The result of a tool call. Raises `HistoryError` for an empty id or name.

    id: the call's id.
    name: the tool's name.
    result: success or failure, with the output.
    """

    id: str
    name: str
    result: ToolCallResult

    def __post_init__(self) -> None:
        _check("ToolResultPart.id", self.id, NAME)
        _check("ToolResultPart.name", self.name, NAME)
        _check("ToolResultPart.result", self.result, instance(ToolCallResult))


@dataclass(slots=True)
class UsagePart:
    """Token counts of one answer; None if not reported.

    prompt_tokens: all input.
    response_tokens: all output, thinking included.
    """

    prompt_tokens: int | None = None
    response_tokens: int | None = None

    def __post_init__(self) -> None:
        _check("UsagePart.prompt_tokens", self.prompt_tokens, optional(whole(0)))
        _check("UsagePart.response_tokens", self.response_tokens, optional(whole(0)))


@dataclass(slots=True)
class FinishReasonPart:
    """Why an answer ended.

    finish_reason: the provider's own word.
    finish_message: the provider's explanation, or None.
    """

    finish_reason: str
    finish_message: str | None = None

    def __post_init__(self) -> None:
        _check("FinishReasonPart.finish_reason", self.finish_reason, NAME)
        _check("FinishReasonPart.finish_message", self.finish_message, MAYBE_TEXT)


@dataclass(slots=True)
class OtherPart:
    """A block without a part of its own: thinking, an image, a provider's own block.

    block: the block, which is written where this part is.
    """

    block: Block

    def __post_init__(self) -> None:
        _check("OtherPart.block", self.block, instance(*BLOCK_TYPES, must="a content block"))


Part: TypeAlias = TextPart | ToolCallPart | ToolResultPart | UsagePart | FinishReasonPart | OtherPart
PART_TYPES = (TextPart, ToolCallPart, ToolResultPart, UsagePart, FinishReasonPart, OtherPart)


# --- messages ---


@dataclass(slots=True)
class HistoryMessage:
    """One turn, or a part of one. Raises `HistoryError` for an unknown role or part, and for a part that a message of
    this role cannot have, such as a tool call of the user.

    role: the author, or its name.
    parts: the content; the constructor also accepts text.
    """

    role: HistoryRole
    parts: list[Part]

    def __init__(self, role: HistoryRole | str, parts: Iterable[Part] | str) -> None:
        try:
            self.role = HistoryRole(role)
        except ValueError:
            raise HistoryError("role", f"unknown role {role!r}; known are {', '.join(HistoryRole)}") from None
        if isinstance(parts, str):
            self.parts = [TextPart(parts)]
            return
        try:
            check_iterable(parts, "parts", "text or a list of parts")
        except InvalidRequestError as error:
            raise HistoryError("parts", str(error).partition(": ")[2]) from None
        self.parts = list(parts)
        _check_parts(self.role, self.parts)

    @property
    def text(self) -> str:
        """The text parts, joined without a separator."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def tool_calls(self) -> list[ToolCallPart]:
        """The tool calls, in order."""
        return [part for part in self.parts if isinstance(part, ToolCallPart)]


@dataclass(slots=True)
class History:
    """A conversation.

    system_message: the system prompt, or None.
    context: a text that precedes the conversation as a user's message, or None.
    conversation: the turns in order.
    """

    system_message: str | None = None
    context: str | None = None
    conversation: list[HistoryMessage] = field(default_factory=lambda: [])

    def __post_init__(self) -> None:
        _check("system_message", self.system_message, MAYBE_TEXT)
        _check("context", self.context, MAYBE_TEXT)
        _check("conversation", self.conversation, CONVERSATION)

    def add(self, message: HistoryMessage) -> None:
        """Append a message. A message without parts is not appended. Raises `HistoryError` for any other value."""
        _check("message", message, Rule("a HistoryMessage", (HistoryMessage,), secret=True))
        if message.parts:
            self.conversation.append(message)

    @classmethod
    def from_messages(cls, messages: Iterable[Message], system_message: str | None = None) -> History:
        """Return a history of messages of the message model."""
        return cls(system_message, conversation=history_messages_of(messages))


# --- the view ---


def messages_of(history: History) -> list[Message]:
    """Return the history as messages, the context first, without the system prompt.

    Raises `HistoryError` for a value that was put into the history later and does not belong there.
    """
    check_history(history)
    return [message for item in turns(history) if (message := message_of(item)).content]


def system_texts(history: History) -> list[str]:
    """Return the texts of the system prompt and of the system messages at the beginning of the conversation."""
    lead = [part for item in history.conversation[: _first_turn(history)] for part in item.parts]
    texts = [history.system_message, *(part.text for part in lead if isinstance(part, TextPart))]
    return [text for text in texts if text]


def turns(history: History) -> list[HistoryMessage]:
    """Return the messages after the system prompt, the context first. Later system messages keep their places."""
    spoken = history.conversation[_first_turn(history) :]
    return [HistoryMessage(HistoryRole.CONTEXT, history.context), *spoken] if history.context else spoken


def _first_turn(history: History) -> int:
    """Return the number of system messages of text at the beginning of the conversation."""
    return leading_system([message_of(item) for item in history.conversation])


MESSAGE_ROLE: dict[HistoryRole, Role] = {
    HistoryRole.USER: Role.USER,
    HistoryRole.CONTEXT: Role.USER,
    HistoryRole.MODEL: Role.ASSISTANT,
    HistoryRole.TOOL: Role.TOOL,
    HistoryRole.SYSTEM: Role.SYSTEM,
}
HISTORY_ROLE: dict[Role, HistoryRole] = {
    Role.USER: HistoryRole.USER,
    Role.ASSISTANT: HistoryRole.MODEL,
    Role.TOOL: HistoryRole.TOOL,
    Role.SYSTEM: HistoryRole.SYSTEM,
}


def message_of(item: HistoryMessage) -> Message:
    """Return one message in the message model."""
    _check_parts(item.role, item.parts)
    blocks = (_block_of(part) for part in item.parts)
    return Message(MESSAGE_ROLE[item.role], [block for block in blocks if block is not None])


def _block_of(part: Part) -> Block | None:
    if isinstance(part, TextPart):
        return part.origin if part.origin is not None and part.origin.text == part.text else Text(part.text)
    if isinstance(part, ToolCallPart):
        return part.origin if part.origin is not None and call_part(part.origin) == part else _call_of(part)
    if isinstance(part, ToolResultPart):
        written = _json_text(part.result.to_json(), "ToolResultPart.result")
        return ToolResult(part.id, written, is_error=bool(part.result.failure))
    return part.block if isinstance(part, OtherPart) else None


def _call_of(part: ToolCallPart) -> ToolCall:
    arguments = part.malformed if part.malformed is not None else _json_text(part.arguments, "ToolCallPart.arguments")
    return ToolCall(part.id, part.name, arguments)


def _json_text(value: JSONObject, where: str) -> str:
    try:
        return arguments_text(value)
    except (TypeError, ValueError) as error:  # a program's own value; ValueError: it contains itself
        raise HistoryError(where, f"cannot be written as JSON: {error}") from None


def history_messages_of(messages: Iterable[Message], names: Mapping[str, str] | None = None) -> list[HistoryMessage]:
    """Return messages in the common form. A user's message that also contains results becomes two.

    names: call id → tool, besides the messages' own calls.

    A result that is not in this form's JSON becomes a success with its text as output, or a failure if it is marked as
    an error.
    """
    _check("names", names, optional(instance(Mapping)))
    known = dict(names or {})
    items: list[HistoryMessage] = []
    for message in items_of(messages, Message, "messages"):
        for position, block in enumerate(message.content):
            part: Part
            role = HISTORY_ROLE[message.role]
            if isinstance(block, ToolCall):
                known[block.id] = block.name
                part = call_part(block)
            elif isinstance(block, ToolResult):
                role = HistoryRole.TOOL
                part = _result_part(block, known.get(block.tool_call_id) or UNKNOWN_TOOL)
            else:
                part = TextPart(block.text, origin=block) if isinstance(block, Text) else OtherPart(block)
            if position and items[-1].role is role:
                items[-1].parts.append(part)
            else:
                items.append(HistoryMessage(role, [part]))
    return items


def call_part(call: ToolCall) -> ToolCallPart:
    """Return a tool call in the common form."""
    try:
        return ToolCallPart(call.id, call.name, call.parsed, origin=call)
    except MalformedJSONError:
        return ToolCallPart(call.id, call.name, malformed=call.arguments, origin=call)


def _result_part(block: ToolResult, name: str) -> ToolResultPart | OtherPart:
    if not isinstance(block.content, str) and not all(isinstance(part, Text) for part in block.content):
        return OtherPart(block)
    result: ToolCallResult | None = None
    try:
        written = exact_loads(block.text)
        result = ToolCallResult.from_json(written if type(written) is dict else {})
    except (MalformedJSONError, HistoryError):
        pass  # any other text is the output itself
    if result is None or (block.is_error and result.success):
        result = ToolCallResult.error(block.text) if block.is_error else ToolCallResult.ok(block.text)
    return ToolResultPart(block.tool_call_id, name, result)


def message_from_response(response: Response) -> HistoryMessage | None:
    """Return an answer in the common form, followed by usage and finish reason if they are known.

    Returns None for an answer without any of these.
    """
    _check("response", response, instance(Response))
    content = history_messages_of([response.to_message()])
    parts: list[Part] = [part for item in content for part in item.parts]
    usage = response.usage
    if usage.input_tokens is not None or usage.output_tokens is not None:
        spent = [count for count in (usage.output_tokens, usage.thinking_tokens) if count is not None]
        parts.append(UsagePart(usage.input_tokens, sum(spent) if spent else None))
    if response.raw_finish_reason:
        parts.append(FinishReasonPart(response.raw_finish_reason, finish_message(response)))
    return HistoryMessage(HistoryRole.MODEL, parts) if parts else None


def finish_message(response: Response) -> str | None:
    """Return the provider's explanation of why the answer ended, or None.

    That is a refusal, Gemini's `finishMessage`, or Anthropic's `stop_details.explanation`.
    """
    details = mapping(response.provider_data, "stop_details")
    return response.refusal or string(response.provider_data, "finishMessage") or string(details, "explanation")


def _output(data: JSONObject, name: str) -> ToolOutput | None:
    value = data.get(name)
    if value is None:
        return None
    kind = string(value, "type") if type(value) is dict else None
    content = value.get("content") if type(value) is dict else None
    if kind is None or not isinstance(content, str | list | dict):
        raise HistoryError(f"ToolCallResult.{name}", "must be an object of type and content")
    return ToolOutput(kind, content)


# --- checks ---

ARGUMENTS = Rule("a dict", (dict,), forms={str: "use json.loads(…)"}, secret=True)
CONVERSATION = sequence(instance(HistoryMessage), "a list of HistoryMessage")

BLOCK_OF_PART: dict[type[Part], type[Block]] = {
    TextPart: Text,
    ToolCallPart: ToolCall,
    ToolResultPart: ToolResult,
}
"""Type of a part → the type of its block. An `OtherPart` has its own. The others describe an answer."""


def check_history(history: History) -> None:
    """Raise `HistoryError` for a value that is no history, or that a history cannot hold."""
    _check("history", history, instance(History))
    history.__post_init__()


def _check(where: str, value: object, rule: Rule) -> None:
    try:
        rule.check(value, where)
    except InvalidRequestError as error:
        raise HistoryError(error.field, str(error).removeprefix(f"{error.field}: ")) from None


def _check_parts(role: HistoryRole, parts: Iterable[Part]) -> None:
    """Raise `HistoryError` for a value that is no part, and for a part that a message of this role cannot have."""
    allowed = ROLE_BLOCKS[MESSAGE_ROLE[role]]
    for position, part in enumerate(parts):
        if not isinstance(part, PART_TYPES):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise HistoryError(f"parts[{position}]", f"unknown part {type(part).__name__}")
        block = type(part.block) if isinstance(part, OtherPart) else BLOCK_OF_PART.get(type(part))
        if block not in allowed if block is not None else role is not HistoryRole.MODEL:
            shown = type(part).__name__ if block is None or not isinstance(part, OtherPart) else block.__name__
            raise HistoryError(f"parts[{position}]", f"a message with the role {role.value!r} cannot have a {shown}")
