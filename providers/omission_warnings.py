"""The warnings of what a conversation holds and a request does not carry as it is, in words that all dialects share.

They name no place: a long conversation that was begun with another provider would otherwise tell of each message.
"""

from __future__ import annotations

from .messages import ProviderBlock

OPENING = "(The conversation begins with the assistant's message.)"
"""What the user is made to say before an assistant's first message, for a provider that needs the user to begin."""


def opening_added(provider: str) -> str:
    """`OPENING` was put in."""
    return f"messages: begin with the assistant, which {provider} refuses; sent with {OPENING!r} as the user's first"


def foreign_thinking(name: str) -> str:
    """Thinking goes back only to the provider that made it. `name`: the one that is asked."""
    return f"messages: thinking that {name!r} did not make is not sent to it"


def unsigned_thinking(name: str) -> str:
    """Some providers take back only what they signed. `name`: the one that is asked."""
    return f"messages: thinking without a signature is not sent; {name!r} takes back only what it signed"


def foreign_block(block: ProviderBlock) -> str:
    """So does content that only its provider understands."""
    return f"messages: {block.kind or 'a block'!r} of {block.provider!r} is not sent; only its maker understands it"


def unanswered_call(call_id: str) -> str:
    """A call without a result is refused everywhere."""
    return f"messages: call {call_id!r} has no result and is not sent"


def unasked_result(call_id: str) -> str:
    """And so is a result without a call."""
    return f"messages: result {call_id!r} has no call and is not sent"
