"""Converts a request to the rows of the older form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...errors import InvalidRequestError
from ...json.json_values import JSONObject, escaped_text
from ...model.message_rules import check_fields
from ...model.messages import Block, Message, Role, Text, ToolCall, ToolResult
from ...model.request import Request, ThinkingConfig, ThinkingLevel
from ...model.request_rules import validate_request
from ...model.rows import Row, is_readable
from ...model.rules import flag, instance, items_of

DEFAULT_TEMPERATURE = 0.7
"""The temperature of a request that does not set one."""

THINKING_MODELS: dict[ThinkingLevel, str] = {
    ThinkingLevel.LOW: "o3-mini",
    ThinkingLevel.MED: "o4-mini",
    ThinkingLevel.HIGH: "o3",
}
"""Level → the model that is asked instead of the request's, because this form has no member for thinking. A level that
is not in the table keeps the request's model. `transform_request` accepts another table.
"""

TEXT_KINDS: dict[Role, str] = {
    Role.USER: "user",
    Role.ASSISTANT: "assistant",
    Role.TOOL: "user",
    Role.SYSTEM: "system",
}

NOT_CARRIED = (
    "tools", "top_p", "stop", "seed", "response_schema", "parallel_tool_calls", "metadata", "extra_body",
    "extra_headers",
)  # fmt: skip
"""Options of a request that this form cannot carry."""


@dataclass(slots=True)
class LegacyRow(Row):
    """One row.

    continues: whether it belongs to the message of the previous row. The stored form does not have this: there, each
        row is a message.
    """

    continues: bool = False


@dataclass(slots=True)
class LegacyConversation:
    """A conversation in the older form.

    rows: the rows in order, the system prompt first.
    """

    rows: list[LegacyRow] = field(default_factory=lambda: [])


@dataclass(slots=True)
class LegacyRequest:
    """A request in the older form.

    model: the model's name.
    conversation: the rows.
    temperature: the temperature to send.
    max_completion_tokens: the most tokens that the model may generate, or None.
    stream: whether the answer is streamed.
    warnings: options that this form cannot carry; after `serialize` also those that Chat Completions cannot.
    """

    model: str
    conversation: LegacyConversation
    temperature: float = DEFAULT_TEMPERATURE
    max_completion_tokens: int | None = None
    stream: bool = False
    warnings: list[str] = field(default_factory=lambda: [])


def transform_request(
    request: Request, *, stream: bool = False, thinking_models: Mapping[ThinkingLevel, str] = THINKING_MODELS
) -> LegacyRequest:
    """Return a request in the older form. Raises `InvalidRequestError` naming a part that has no row.

    thinking_models: level → the model that is asked for it.
    """
    flag().check(stream, "stream")
    instance(Mapping).check(thinking_models, "thinking_models")
    validate_request(request)
    return LegacyRequest(
        model=_model(request, thinking_models),
        conversation=build_conversation(request),
        temperature=DEFAULT_TEMPERATURE if request.temperature is None else request.temperature,
        max_completion_tokens=request.max_output_tokens,
        stream=stream,
        warnings=[
            f"{name}: not carried; the legacy form has no place for it"
            for name in NOT_CARRIED
            if getattr(request, name) not in (None, (), [], {})
        ],
    )


def _model(request: Request, thinking_models: Mapping[ThinkingLevel, str]) -> str:
    config = request.thinking_config
    if config is None or config == ThinkingConfig():
        return request.model
    if config.level is None:
        raise InvalidRequestError("thinking", "the legacy form has levels only: it selects the model by them")
    return thinking_models.get(config.level, request.model)


def build_conversation(request: Request) -> LegacyConversation:
    """Return the rows of a request: the system prompt, then one row per block.

    Raises `InvalidRequestError` for a request without messages, for a block without a row, and for a result that no
    earlier call asked for.
    """
    instance(Request).check(request, "request")
    if not request.messages:
        raise InvalidRequestError("messages", "must hold at least one message")
    system = "\n\n".join(block.text for block in request.system_blocks)
    rows = [LegacyRow("system", system)] if system else []
    names: dict[str, str] = {}
    for number, message in enumerate(request.messages):
        rows.extend(_rows(message, f"messages[{number}]", names, known_calls=True))
    return LegacyConversation(rows)


def transform_message(message: Message, earlier: Iterable[Message] = ()) -> list[LegacyRow]:
    """Return the rows of one message.

    earlier: the messages before it. Their calls name the tools of this message's results. A result whose call is not
        among them gets an empty name.

    Raises `InvalidRequestError` for a block without a row.
    """
    instance(Message).check(message, "message")
    names = {call.id: call.name for before in items_of(earlier, Message, "earlier") for call in before.tool_calls}
    return _rows(message, "message", names, known_calls=False)


def _rows(message: Message, where: str, names: dict[str, str], *, known_calls: bool) -> list[LegacyRow]:
    """Return the rows of a message. `names`: call id → tool, of all calls so far; this message's calls are added."""
    check_fields(message.content, where)
    rows: list[LegacyRow] = []
    for position, block in enumerate(message.content):
        field_name = f"{where}.content[{position}]"
        if isinstance(block, ToolCall):
            names[block.id] = block.name
            row = _call_row(block, field_name)
        elif isinstance(block, ToolResult):
            if known_calls and block.tool_call_id not in names:
                raise InvalidRequestError(
                    f"{field_name}.tool_call_id", f"no earlier call has the id {block.tool_call_id!r}"
                )
            row = _result_row(block, names.get(block.tool_call_id, ""), field_name)
        elif isinstance(block, Text):
            row = LegacyRow(TEXT_KINDS[message.role], block.text)
        else:
            raise _without_row(block, field_name)
        row.continues = position > 0
        rows.append(row)
    return rows


def _without_row(block: Block, where: str) -> InvalidRequestError:
    return InvalidRequestError(where, f"the legacy form has no row for a {type(block).__name__} block")


def _call_row(block: ToolCall, where: str) -> LegacyRow:
    if block.state is not None and block.state.data.get("type") == "custom":
        raise InvalidRequestError(where, "the legacy form has no row for a call of a custom tool")
    data: JSONObject = {"id": block.id, "type": "function", "name": block.name, "arguments": block.arguments}
    if not is_readable(block):
        data["malformed"] = True
    return LegacyRow("tool_call", None, escaped_text(data))


def _result_row(block: ToolResult, name: str, where: str) -> LegacyRow:
    if not isinstance(block.content, str):
        for position, part in enumerate(block.content):
            if not isinstance(part, Text):
                raise _without_row(part, f"{where}.content[{position}]")
    data: JSONObject = {
        "tool_call_id": block.tool_call_id,
        "name": name,
        "output": block.text,
        "success": not block.is_error,
    }
    return LegacyRow("tool_result", None, escaped_text(data))
