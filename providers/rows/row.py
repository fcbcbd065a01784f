"""One database row of a conversation, what can be wrong with it, and the kinds there are. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ManystreamError
from ..json_values import MalformedJSONError
from ..messages import Role, ToolCall


@dataclass(slots=True)
class Row:
    """One row. `data_json` is the text of a JSON object, or None; read from a database that parses JSON itself, it may
    be the object."""

    kind: str
    content: str | None = None
    data_json: str | None = None


class RowError(ManystreamError, ValueError):
    """A row that cannot be read. `field` names what to mend; `row` is the row itself; `position` its place."""

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
"""Kind → the role that it has where its row names none."""


def is_readable(call: ToolCall) -> bool:
    """Whether the arguments are an object. Some models write some that are not, and that is kept as it is."""
    try:
        return type(call.parsed) is dict
    except MalformedJSONError:
        return False
