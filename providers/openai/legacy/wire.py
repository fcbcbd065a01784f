"""Converts the rows of the older form to the JSON of Chat Completions.

Reads the rows back as messages and passes them to the Chat dialect.
"""

from __future__ import annotations

from ...catalog.provider import OpenAIChat
from ...model.messages import Message, Text
from ...model.request import Request
from ...model.rows import message_from_row
from ...model.rules import Checker, checked, flag, instance, number, optional, sequence, text, whole
from ..chat import DIALECT
from ..thinking import takes_sampling
from .rows import DEFAULT_TEMPERATURE, LegacyConversation, LegacyRequest, LegacyRow

LEGACY_REQUEST = Checker(
    LegacyRequest,
    {
        "model": text("a model's name", empty=False),
        "conversation": checked(
            Checker(LegacyConversation, {"rows": sequence(instance(LegacyRow), "a list of LegacyRow")})
        ),
        "temperature": number(0, must="a number of at least 0"),
        "max_completion_tokens": optional(whole(1)),
        "stream": flag(),
        "warnings": instance(list, must="a list of texts"),
    },
)


def serialize(legacy: LegacyRequest) -> bytes:
    """Return the Chat Completions JSON of a request in the older form.

    Options that Chat Completions cannot carry are added to `legacy.warnings`, each once. Raises `RowError` for a row
    that cannot be read, and `InvalidRequestError`.
    """
    LEGACY_REQUEST.check(legacy, "legacy")
    system: list[Text] = []
    messages: list[Message] = []
    for position, row in enumerate(legacy.conversation.rows):
        if row.kind == "system" and not messages:
            system.append(Text(row.content or ""))
            continue
        message = message_from_row(row, position)
        if message is None:  # a system message in the middle of the conversation
            message = Message.system(row.content or "")
        if row.continues and messages and messages[-1].role is message.role:
            messages[-1].content.extend(message.content)
        else:
            messages.append(message)
    # Reasoning models refuse a temperature. The form's default is not sent to them, so that it is no error.
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
