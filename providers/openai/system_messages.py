"""The system messages of OpenAI's two dialects, whose role is `system` or `developer`.

Servers treat both alike or accept only one. So a message whose role is not the default keeps it as the state of its
first text: the provider of the message gets that role back, and any other provider gets its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..json.json_values import string
from ..model.messages import SYSTEM, Block, Message, ProviderState, Text

SYSTEM_ROLES = ("system", "developer")


def system_message(role: str, content: Sequence[Block], provider: str) -> Message:
    """Return a system message that was read with this role. `provider`: the maker of the provider it is for."""
    first = next((block for block in content if isinstance(block, Text)), None)
    if role != SYSTEM_ROLES[0] and first is not None:
        first.state = ProviderState(provider, {"role": role})
    return Message(SYSTEM, [*content])


def wire_role(content: Sequence[Block], provider: str, default: str) -> str:
    """Return the role of a system message for a provider. `default`: the role unless the message has its own."""
    for block in content:
        if type(block) is Text and block.state is not None and block.state.provider == provider:
            role = string(block.state.data, "role")
            if role in SYSTEM_ROLES:
                return role
    return default
