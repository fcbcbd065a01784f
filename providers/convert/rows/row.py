"""One database row of a conversation, its error, and the table of kinds. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import ManystreamError
from ...json.json_values import MalformedJSONError
from ...model.messages import Role, ToolCall


@dataclass(slots=True)
class Row:
    """One row.

    kind: what the row contains: a key of `KIND_ROLE`, or `system`.
    content: the text, or None.
    data_json: the text of a JSON object, or None. Rows of a database that parses JSON may have the object itself.
    """

    kind: str
    content: str | None = None
    data_json: str | None = None


class RowError(ManystreamError, ValueError):
    """A row that cannot be read.

    field: the field that must be corrected.
    reason: what is wrong with it.
    row: the row.
    position: its position in the conversation, or None.
    """

    def __init__(self, field: str, message: str, row: Row, position: int | None = None) -> None:
        where = f"row {position}" if position is not None else "row"
        super().__init__(f"{where} (kind {row.kind!r}), field {field!r}: {message}")
        self.field = field
        self.reason = message
        self.row = row
        self.position = position


KIND_ROLE: dict[str, Role] = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool_call": Role.ASSISTANT,
    "tool_result": Role.TOOL,
    "tool": Role.TOOL,
    "thinking": Role.ASSISTANT,
    "redacted_thinking": Role.ASSISTANT,
    "image": Role.USER,
    "file": Role.USER,
    "provider_block": Role.ASSISTANT,
}
"""Kind → the role of the row's message, unless the row names another role. A row of the kind `system` names it: without
a role it is the system prompt, which is no message."""


def is_readable(call: ToolCall) -> bool:
    """Return whether a call's arguments are a JSON object. Rows keep others, which models sometimes write, as text."""
    try:
        return type(call.parsed) is dict
    except MalformedJSONError:
        return False
