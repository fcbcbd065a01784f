"""Warnings about parts of a conversation that a request cannot carry as they are, in words that all dialects share.

A warning names no position. Otherwise a long conversation with another provider would cause one warning per message.
"""

from __future__ import annotations

from ..json.json_values import mapping, objects, string
from ..model.messages import File, Image, ProviderBlock, ProviderState
from .accumulate import REFUSAL

OPENING = "(The conversation begins with the assistant's message.)"
"""The text of the user message that is inserted before an assistant's first message, for providers that require it."""


ELSEWHERE = "put its text into the system prompt, or into a user's message at the same place"
"""What to do with a system message in the middle of a conversation, for a provider that has none."""


BLANK_TEXT = "a text without any characters but white space is not sent; Anthropic refuses it"
"""The warning for a text that was left out, after its place."""


GIVEN_MEMBERS = frozenset({"context", "citations", "partMetadata", "videoMetadata", "mediaResolution"})
"""Members that a user gives with a picture or a file in one provider's form: Anthropic's and Gemini's."""


def given_left_out(block: Image | File, *takers: str) -> list[str]:
    """Return the warnings for what a user gave with a picture or a file in the form of another provider.

    takers: the makers whose form the provider of this request takes.
    """
    state = block.state
    if state is None or state.provider in takers:
        return []
    warnings = [
        f"messages: the {name!r} of a file is not sent; only {state.provider!r} takes it"
        for name in sorted(GIVEN_MEMBERS & state.data.keys())
    ]
    if any(string(part, "type") != "text" for part in objects(mapping(state.data, "source"), "content")):
        warnings.append(f"messages: a picture in a document is not sent; only {state.provider!r} takes it")
    return warnings


def opening_added(provider: str) -> str:
    return f"messages: begin with the assistant, which {provider} refuses; sent with {OPENING!r} as the user's first"


def system_moved(provider: str) -> str:
    return f"messages: a system message before the user's is sent after it, as {provider} requires"


def foreign_thinking(name: str) -> str:
    return f"messages: thinking that {name!r} did not make is not sent to it"


def note_foreign_refusal(state: ProviderState | None, name: str, warnings: list[str]) -> None:
    """Add a warning if a text came with a refusal of another provider. `name`: the provider of this request."""
    if state is not None and state.provider != name and REFUSAL in state.data:
        warnings.append(f"messages: a refusal that {name!r} did not make is not sent to it, only the text before it")


def unsigned_thinking(name: str) -> str:
    return f"messages: thinking without a signature is not sent; {name!r} accepts only thinking that it signed"


def thinking_at_the_end(provider: str) -> str:
    return f"messages: thinking at the end of an assistant's message is not sent; {provider} refuses it"


def foreign_block(block: ProviderBlock) -> str:
    return f"messages: {block_name(block)} of {block.provider!r} is not sent; only its provider understands it"


def block_name(block: ProviderBlock) -> str:
    """Return a name of a provider's own block for a warning: its type, or the member that has its content (Gemini)."""
    member = next((name for name, value in block.data.items() if type(value) is dict), None)
    name = block.kind or member
    return repr(name) if name else "a block"


def cut_off_block(block: ProviderBlock) -> str:
    return f"messages: {block.kind!r} that was cut off is not sent; its input is incomplete"


def unanswered_call(call_id: str) -> str:
    return f"messages: call {call_id!r} has no result and is not sent"


def unasked_result(call_id: str) -> str:
    return f"messages: result {call_id!r} has no call and is not sent"
