"""Writes content blocks in Anthropic's form, one at a time."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from hashlib import sha256

from ..catalog.provider import Provider
from ..errors import InvalidRequestError
from ..json.json_values import JSON, JSONObject, MalformedJSONError, parse_object, string
from ..model.messages import (
    Block,
    CacheControl,
    File,
    Image,
    ProviderState,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from ..wire.cache_marks import CACHE_CONTROL, written_mark
from ..wire.omission_warnings import foreign_thinking, given_left_out, unsigned_thinking

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
IMAGE_SPELLINGS = {"image/jpg": "image/jpeg"}
TEXT_TYPES = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml"})
"""Media types besides `text/*` whose bytes are sent as a plain-text document."""

CITATION_TYPES = frozenset(
    {
        "char_location",
        "page_location",
        "content_block_location",
        "search_result_location",
        "web_search_result_location",
    }
)
"""Anthropic's own citations. It accepts no others."""

FIRST_PARTY = "anthropic"
"""The profile that thinking with a signature and without a state is attributed to."""

RESULT_KINDS = frozenset({"search_result", "tool_reference"})
"""Types of blocks that only Anthropic understands and that are read as text, which other providers get."""

SYSTEM_MEMBERS = ("clear_at", "output_config")
"""Members of a system message beside its content. They are sent as given."""

DOCUMENT_OPTIONS = ("context", "citations")
"""Members of a document beside its content and its title. They are sent as given."""

IMAGE_OPTION = "transformations"
"""Member of an image beside its source. It is sent as given."""

TOOLSET = "toolset_name"
"""Member of a call of a toolset's tool. The call's result has it, too."""

INVALID_JSON = "INVALID_JSON"
"""The member for arguments that are no JSON object; the name is from Anthropic's guide."""

CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NOT_IN_CALL_ID = re.compile(r"[^a-zA-Z0-9_-]")


def wire_call_id(call_id: str) -> str:
    """Return a call's id in the characters that Anthropic accepts.

    Another id is always replaced by the same text. A digest keeps ids different that differ only in replaced
    characters.
    """
    if CALL_ID.fullmatch(call_id):
        return call_id
    digest = sha256(call_id.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{_NOT_IN_CALL_ID.sub('_', call_id)}_{digest}"


def marked(block: dict[str, JSON], cache_control: CacheControl | None) -> JSONObject:
    """Add a cache mark to a block, if there is one. Returns the block."""
    if cache_control is not None:
        block[CACHE_CONTROL] = written_mark(cache_control, CACHE_CONTROL)
    return block


def wire_text(block: Text, *, with_citations: bool = False) -> JSONObject | None:
    """Return a text block, or None for text that is only white space, which Anthropic refuses.

    with_citations: send the block's citations if they are all Anthropic's.
    """
    text = block.text
    if not text or text.isspace():
        return None
    wire: dict[str, JSON] = {"type": "text", "text": text}
    if with_citations and block.citations and all(string(c, "type") in CITATION_TYPES for c in block.citations):
        wire["citations"] = list(block.citations)
    return wire if block.cache_control is None else marked(wire, block.cache_control)


def wire_own_text(block: Text, maker: str) -> JSONObject | None:
    """Return the block that Anthropic's own block was, such as a search result; None for any other text."""
    given = given_to(block.state, maker)
    return given if string(given, "type") in RESULT_KINDS else None


def system_members(content: Sequence[Block], maker: str) -> JSONObject:
    """Return the members of a system message beside its content, which are the state of a text of it."""
    states = [given_to(block.state, maker) for block in content if isinstance(block, Text)]
    return {name: state[name] for state in states for name in SYSTEM_MEMBERS if name in state}


def wire_thinking_block(
    block: Thinking | RedactedThinking, provider: Provider, warnings: list[str]
) -> JSONObject | None:
    """Return thinking unchanged for the provider that made it; None, with a warning, for any other provider.

    A signature without a state is Anthropic's, and any gateway may have passed it on. Anthropic requires the signature.
    A compatible server that signs nothing gets its own thinking back.
    """
    maker, profile = provider.maker, provider.profile
    if block.state is not None:
        ours = block.state.provider == maker
    else:
        signed = isinstance(block, RedactedThinking) or bool(block.signature)
        ours = signed and (profile.name == FIRST_PARTY or profile.generic)
    if not ours:
        warnings.append(foreign_thinking(maker))
        return None
    if isinstance(block, RedactedThinking):
        return {"type": "redacted_thinking", "data": block.data}
    if not block.signature and profile.quirks.signed_thinking_only:
        warnings.append(unsigned_thinking(maker))
        return None
    return {"type": "thinking", "thinking": block.text, "signature": block.signature or ""}


def wire_tool_call(block: ToolCall, call_id: str, maker: str, warnings: list[str]) -> JSONObject:
    """Return a `tool_use` block. Arguments that are no JSON object are sent as text inside one, in `INVALID_JSON`."""
    try:
        arguments: JSONObject = parse_object(block.arguments, call_id)
    except MalformedJSONError:
        arguments = {INVALID_JSON: block.arguments}
        warnings.append(f"messages: the arguments of call {block.id!r} are no JSON object; sent as text inside one")
    wire: dict[str, JSON] = {"type": "tool_use", "id": call_id, "name": block.name, "input": arguments}
    if block.state is not None and block.state.provider == maker:
        wire.update(block.state.data)
    return wire if block.cache_control is None else marked(wire, block.cache_control)


def given_to(state: ProviderState | None, maker: str) -> JSONObject:
    """Return what a user's block has in Anthropic's own form; nothing if the form is another maker's.

    Anthropic's form was given by the user, so each server of this dialect gets it.
    """
    return state.data if state is not None and state.provider in (maker, FIRST_PARTY) else {}


def wire_tool_result(block: ToolResult, call_id: str, field: str, warnings: list[str], maker: str) -> JSONObject:
    """Return a `tool_result` block.

    field: the block's place, for errors.
    maker: the provider that the block is sent to.
    """
    content: JSON
    if isinstance(block.content, str):
        content = block.content
    else:
        parts: list[JSON] = []
        for position, part in enumerate(block.content):
            wire_part = wire_part_of(part, f"{field}.content[{position}]", warnings, maker)
            if wire_part is not None:
                parts.append(wire_part)
        content = parts
    wire: dict[str, JSON] = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    if block.is_error:
        wire["is_error"] = True
    return wire if block.cache_control is None else marked(wire, block.cache_control)


def wire_part_of(block: Text | Image | File, field: str, warnings: list[str], maker: str) -> JSONObject | None:
    """Return a block that is allowed both in a user's message and in a tool's result, for this maker."""
    if isinstance(block, Text):
        return wire_own_text(block, maker) or wire_text(block)
    warnings.extend(given_left_out(block, maker, FIRST_PARTY))
    if isinstance(block, Image):
        return wire_image(block, field, warnings, maker)
    return wire_file(block, field, maker)


def wire_image(block: Image, field: str, warnings: list[str], maker: str) -> JSONObject:
    """Return an `image` block. Raises `InvalidRequestError` for a media type that Anthropic does not accept."""
    if block.detail is not None and block.detail != "auto":
        warnings.append("messages: an image's detail is not sent; Anthropic has no such setting")
    wire: dict[str, JSON] = {"type": "image", "source": _image_source(block, field)}
    given = given_to(block.state, maker)
    if IMAGE_OPTION in given:
        wire[IMAGE_OPTION] = given[IMAGE_OPTION]
    return marked(wire, block.cache_control)


def _image_source(block: Image | File, field: str) -> JSONObject:
    if block.data is None:
        return _remote_source(block)
    media_type = _media_type(block)
    media_type = IMAGE_SPELLINGS.get(media_type, media_type)
    if media_type not in IMAGE_TYPES:
        accepted = ", ".join(sorted(IMAGE_TYPES))
        raise InvalidRequestError(f"{field}.media_type", f"Anthropic reads {accepted}, not {media_type!r}")
    return {"type": "base64", "media_type": media_type, "data": base64.b64encode(block.data).decode("ascii")}


def wire_file(block: File, field: str, maker: str) -> JSONObject:
    """Return a `document` block for a PDF or text, or an `image` block for an image.

    maker: the provider that the block is sent to.

    Raises `InvalidRequestError` for any other media type, and for a text that is not UTF-8.
    """
    media_type = _media_type(block)
    if media_type.startswith("image/"):
        return marked({"type": "image", "source": _image_source(block, field)}, block.cache_control)
    given = given_to(block.state, maker)
    wire: dict[str, JSON] = {"type": "document"}
    wire["source"] = given["source"] if "source" in given else _document_source(block, media_type, field)
    if block.name:
        wire["title"] = block.name
    wire.update({name: given[name] for name in DOCUMENT_OPTIONS if name in given})
    return marked(wire, block.cache_control)


def _document_source(block: File, media_type: str, field: str) -> JSONObject:
    if block.data is None:
        return _remote_source(block)
    if media_type == "application/pdf":
        return {"type": "base64", "media_type": media_type, "data": base64.b64encode(block.data).decode("ascii")}
    if media_type.startswith("text/") or media_type in TEXT_TYPES:
        try:
            return {"type": "text", "media_type": "text/plain", "data": block.data.decode()}
        except UnicodeDecodeError as error:
            raise InvalidRequestError(f"{field}.data", f"a text file must be UTF-8: {error.reason}") from None
    raise InvalidRequestError(f"{field}.media_type", f"Anthropic reads PDF, text and images, not {media_type!r}")


def _remote_source(block: Image | File) -> JSONObject:
    return {"type": "url", "url": block.url} if block.url is not None else {"type": "file", "file_id": block.file_id}


def _media_type(block: Image | File) -> str:
    """Return the media type without parameters, in lower case."""
    return (block.media_type or "").partition(";")[0].strip().lower()
