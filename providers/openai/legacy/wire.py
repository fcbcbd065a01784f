"""The rows of the older form → the Chat Completions JSON.

Reads the rows back as messages and hands them to the Chat dialect. Must not know how that writes a request.
"""

from __future__ import annotations

from ...messages import Message, Text
from ...provider import OpenAIChat
from ...request import Request
from ...rows import RowError, message_from_row
from ..chat import DIALECT
from ..thinking import takes_sampling
from .rows import DEFAULT_TEMPERATURE, LegacyRequest


def serialize(legacy: LegacyRequest) -> bytes:
    """The Chat Completions JSON of a request in the older form. What it cannot say goes into `legacy.warnings`, each
    line once. Raises `RowError` for rows that cannot be read, and `InvalidRequestError`."""
    system: list[Text] = []
    messages: list[Message] = []
    for position, row in enumerate(legacy.conversation.rows):
        if row.kind == "system":
            if messages:
                raise RowError("kind", "must not be 'system' after the first message", row, position)
            system.append(Text(row.content or ""))
            continue
        message = message_from_row(row, position)
        assert message is not None
        if row.continues and messages and messages[-1].role is message.role:
            messages[-1].content.extend(message.content)
        else:
            messages.append(message)
    # The models that reason refuse a temperature, so the default of the form is not held against them.
    default = legacy.temperature == DEFAULT_TEMPERATURE and not takes_sampling(legacy.model, None)
    request = Request(
        legacy.model,
        messages,
        system=system or None,
        temperature=None if default else legacy.temperature,
        max_output_tokens=legacy.max_completion_tokens,
    )
    wire = DIALECT.encode(request, legacy.model, OpenAIChat(), stream=legacy.stream)
    legacy.warnings += [warning for warning in wire.warnings if warning not in legacy.warnings]
    return wire.body
