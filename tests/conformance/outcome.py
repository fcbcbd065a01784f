"""The outcome of a recorded response, in one form for our reading and for the reference's.

`reference` creates the other side.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import manystream as ms
from manystream.providers.json.json_values import MalformedJSONError, loads, mapping, objects, string


@dataclass(slots=True)
class Call:
    """A tool call.

    id: None if the wire has none.
    arguments: the parsed value; the text itself if it is not JSON.
    """

    id: str | None
    name: str
    arguments: ms.JSON


@dataclass(slots=True)
class Failure:
    """An error. `category`, `code` and `message` are None if the reference does not have them."""

    category: str | None
    code: str | None
    message: str | None


@dataclass(slots=True)
class Outcome:
    """The compared members. A string is empty if there is no value."""

    text: str = ""
    thinking: str = ""
    signatures: list[str] = field(default_factory=list[str])
    redacted: list[str] = field(default_factory=list[str])
    calls: list[Call] = field(default_factory=list[Call])
    finish_reason: str | None = None
    usage: ms.JSON = None
    model: str | None = None
    refusal: str = ""
    error: Failure | None = None


def arguments_of(text: str) -> ms.JSON:
    """Return arguments as JSON: the empty object for empty text, and the text itself if it is not JSON."""
    if not text.strip():
        return {}
    try:
        return loads(text)
    except MalformedJSONError:
        return text


def outcome_of(completion: ms.Completion, dialect: str, body: str) -> Outcome:
    """Return the outcome of our reading.

    body: the recorded body. An id that it does not contain was generated here and counts as none.
    """
    error = completion.error
    response = completion.response or ms.Response()
    outcome = Outcome(
        text=response.text,
        thinking=response.thinking,
        calls=[
            Call(call.id if _in_wire(call.id, body) else None, call.name, arguments_of(call.arguments))
            for call in response.tool_calls
        ],
        finish_reason=response.raw_finish_reason,
        usage=response.usage.raw,
        model=response.model,
        refusal=response.refusal or "",
        error=None if error is None else Failure(error.category.value, error.provider_code, error.message),
    )
    for block in response.content:
        _add_state(outcome, block, dialect)
    return outcome


def _in_wire(id: str, body: str) -> bool:
    return bool(id) and id in body


def _add_state(outcome: Outcome, block: ms.Block, dialect: str) -> None:
    """Add the block's signatures and encrypted data from where the dialect keeps them."""
    if dialect == "anthropic":
        if isinstance(block, ms.Thinking) and block.signature:
            outcome.signatures.append(block.signature)
        elif isinstance(block, ms.RedactedThinking):
            outcome.redacted.append(block.data)
    elif dialect == "gemini-interactions":
        signature = block.signature if isinstance(block, ms.Thinking) else string(_state(block), "signature")
        if signature:
            outcome.signatures.append(signature)
    elif dialect == "gemini":
        signature = string(_state(block), "thoughtSignature")
        if signature:
            outcome.signatures.append(signature)
    elif dialect == "openai-responses":
        encrypted = string(_state(block), "encrypted_content") if isinstance(block, ms.Thinking) else None
        if encrypted:
            outcome.redacted.append(encrypted)
    else:
        _add_details(outcome, _state(block))


def _add_details(outcome: Outcome, state: ms.JSONObject) -> None:
    """Add the signed and the encrypted items of OpenRouter's `reasoning_details` (OpenAI Chat)."""
    for detail in objects(state, "reasoning_details"):
        signature, data = string(detail, "signature"), string(detail, "data")
        if signature:
            outcome.signatures.append(signature)
        if data:
            outcome.redacted.append(data)


def _state(block: ms.Block) -> ms.JSONObject:
    if isinstance(block, ms.ProviderBlock):
        return block.data
    if isinstance(block, ms.RedactedThinking | ms.ToolResult):
        return {}
    return block.state.data if block.state is not None else mapping({}, "")
