"""Writes content blocks as Gemini's `parts`, one block at a time.

A block's provider state is sent back only if this provider made it.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes, urlsplit

from ..catalog.provider import Provider, takes_block
from ..errors import InvalidRequestError
from ..json.json_values import JSON, JSONObject, MalformedJSONError, parse_object, string
from ..model.messages import (
    Block,
    File,
    Image,
    ProviderBlock,
    ProviderState,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    state_for,
)
from ..wire.omission_warnings import foreign_block, foreign_thinking, given_left_out, note_foreign_refusal
from .json_names import MEDIA_ANNOTATIONS, TEXT_ANNOTATIONS
from .path import API_VERSION

MEDIA_TYPES: dict[str, str] = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "heic": "image/heic",
    "heif": "image/heif",
    "gif": "image/gif",
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "html": "text/html",
    "csv": "text/csv",
    "json": "application/json",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "flac": "audio/flac",
    "ogg": "audio/ogg",
    "aac": "audio/aac",
    "mp4": "video/mp4",
    "mpeg": "video/mpeg",
    "mov": "video/quicktime",
    "webm": "video/webm",
}
"""Extension of a URL's path → media type, for files that are given by URL without a media type."""

RESULT_MEDIA = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
"""Media types that a function's response may contain besides its JSON, from Gemini 3 on ("Function calling")."""

FILES_COLLECTION = "files/"
"""The beginning of the name of an uploaded file."""


class BlockWriter:
    """Writes the parts of one request.

    provider: the provider of the request. Its base URL completes the ids of uploaded files.
    warnings: gets a warning for each thing that cannot be sent in full.
    media_in_results: whether the model accepts files inside a function's response.
    """

    __slots__ = ("_maker", "_provider", "_warnings", "media_in_results")

    def __init__(self, provider: Provider, warnings: list[str], *, media_in_results: bool) -> None:
        self._provider = provider
        self._maker = provider.maker
        self._warnings = warnings
        self.media_in_results: bool = media_in_results

    def text(self, text: str) -> JSONObject:
        """Return the part of a text that has nothing beside it."""
        return {"text": text}

    def content(self, block: Block, field: str) -> JSONObject | None:
        """Return the part of a block that is no call and no result, or None if there is nothing to send."""
        if isinstance(block, Text):
            self._note_cache_mark(block.cache_control, field)
            note_foreign_refusal(block.state, self._maker, self._warnings)
            signed = self._state(block.state)
            described = self._annotations(block.state, TEXT_ANNOTATIONS)
            return {"text": block.text, **signed, **described} if block.text or signed else None
        if isinstance(block, Thinking):
            return self._thinking(block)
        if isinstance(block, Image | File):
            if block.data == b"":
                self._warnings.append(f"{field}: left out, the file has no bytes")
                return None
            described = self._annotations(block.state, MEDIA_ANNOTATIONS)
            return {**self.media(block, field), **self._state(block.state), **described}
        if isinstance(block, ProviderBlock):
            if takes_block(self._provider, block):
                return block.data
            self._warnings.append(foreign_block(block))
            return None
        if isinstance(block, RedactedThinking):
            self._warnings.append(foreign_thinking(self._maker))
            return None
        raise InvalidRequestError(field, f"unsupported content block {type(block).__name__}")

    def call(self, block: ToolCall, field: str) -> JSONObject:
        """Return a `functionCall` part."""
        self._note_cache_mark(block.cache_control, field)
        call: dict[str, JSON] = {"name": block.name, "args": self._arguments(block, field)}
        if block.state is None:
            return {"functionCall": call}
        call.update(self._wire_id(block))
        return {"functionCall": call, **self._state(block.state)}

    def _arguments(self, block: ToolCall, field: str) -> JSONObject:
        """Return a call's arguments. What is no JSON object is sent as text in one, and not lost."""
        try:
            return parse_object(block.arguments, field)
        except MalformedJSONError:
            self._warnings.append(f"{field}.arguments: no JSON object, sent as text")
            return {"arguments": block.arguments}

    def _wire_id(self, block: ToolCall) -> JSONObject:
        """Return the call's id if Gemini gave it one. An id that was made elsewhere is not sent to Gemini."""
        wire_id = string(state_for(block.state, self._maker), "id")
        return {"id": wire_id} if wire_id else {}

    def result(self, block: ToolResult, call: ToolCall, field: str) -> tuple[JSONObject, list[JSONObject]]:
        """Return a `functionResponse` part, and the parts with files that it cannot contain."""
        if block.cache_control is not None:
            self._note_cache_mark(block.cache_control, field)
        # `output` and `error` are the API's names for the two; a response without them is the output itself.
        result: dict[str, JSON] = {"error" if block.is_error else "output": block.text}
        response: dict[str, JSON] = {"name": call.name, "response": result}
        if call.state is not None:
            response.update(self._wire_id(call))
        if isinstance(block.content, str):
            return {"functionResponse": response}, []
        inside: list[JSON] = []
        beside: list[JSONObject] = []
        for place, item in enumerate(block.content):
            if isinstance(item, Text):
                continue
            part = {**self.media(item, f"{field}.content[{place}]"), **self._annotations(item.state, MEDIA_ANNOTATIONS)}
            if self.media_in_results and item.data is not None and item.media_type in RESULT_MEDIA:
                inside.append(part)
            else:
                self._warnings.append(f"{field}.content[{place}]: sent beside the result, which cannot contain it")
                beside.append(part)
        if inside:
            response["parts"] = inside
        return {"functionResponse": response}, beside

    def media(self, block: Image | File, field: str) -> JSONObject:
        """Return the part of an image or a file: `inlineData` for bytes, `fileData` for a URL."""
        self._note_cache_mark(block.cache_control, field)
        self._warnings.extend(given_left_out(block, self._maker))
        if isinstance(block, Image) and block.detail not in (None, "auto"):
            self._warnings.append(f"{field}.detail: left out, Gemini sets it for the whole request (mediaResolution)")
        if isinstance(block, File) and block.name is not None:
            self._warnings.append(f"{field}.name: left out, Gemini takes no names of files")
        if block.data is not None:
            return _inline(block.data, block.media_type or "")
        address = self._address(block)
        if address.startswith("data:"):
            data, media_type = data_of_url(address, block.media_type, field)
            return _inline(data, media_type)
        file: dict[str, JSON] = {"fileUri": address}
        known = block.media_type or media_type_of(address)
        if known:
            file["mimeType"] = known
        return {"fileData": file}

    def _thinking(self, block: Thinking) -> JSONObject | None:
        """Return thinking as a part for the provider that made it; None, with a warning, for any other."""
        ours = block.state is not None and block.state.provider == self._maker
        unowned = block.state is None and block.signature is None
        if not ours and not unowned:
            self._warnings.append(foreign_thinking(self._maker))
            return None
        signed = self._state(block.state)
        return {"text": block.text, "thought": True, **signed} if block.text or signed else None

    def _state(self, state: ProviderState | None) -> JSONObject:
        """Return the members that are sent back with a part: its signature, if this provider made it."""
        signature = string(state_for(state, self._maker), "thoughtSignature")
        return {"thoughtSignature": signature} if signature else {}

    def _annotations(self, state: ProviderState | None, names: Sequence[str]) -> JSONObject:
        """Return the members with these names that were given with a text or a file."""
        given = state_for(state, self._maker)
        return {name: given[name] for name in names if name in given}

    def _address(self, block: Image | File) -> str:
        """Return a file's URL. The files service names files `files/…`, but a part requires the whole URL."""
        if block.url is not None:
            return block.url
        file_id = block.file_id or ""
        if not file_id.startswith(FILES_COLLECTION):
            return file_id
        base = urlsplit(self._provider.base_url)
        return f"{base.scheme}://{base.netloc.rpartition('@')[2]}{API_VERSION}/{file_id}"

    def _note_cache_mark(self, mark: object, field: str) -> None:
        if mark is not None:
            self._warnings.append(f"{field}.cache_control: left out, Gemini caches by itself or by cachedContent")


def _inline(data: bytes, media_type: str) -> JSONObject:
    return {"inlineData": {"mimeType": media_type, "data": base64.b64encode(data).decode()}}


def media_type_of(address: str) -> str | None:
    """Return the media type that the end of a URL's path names, or None."""
    return MEDIA_TYPES.get(urlsplit(address).path.rpartition(".")[2].lower())


def data_of_url(address: str, media_type: str | None, field: str) -> tuple[bytes, str]:
    """Return the bytes of a data URL (RFC 2397) and their media type, which `media_type` replaces if it is given.

    Raises `InvalidRequestError` if it cannot be decoded.
    """
    head, comma, text = address.removeprefix("data:").partition(",")
    kind, *parameters = head.split(";")
    try:
        raw = unquote_to_bytes(text)
        data = base64.b64decode(raw, validate=True) if "base64" in parameters else raw
        if comma:
            return data, media_type or kind or "text/plain"
    except ValueError:
        pass
    raise InvalidRequestError(f"{field}.url", "is no data URL that can be read: data:<type>;base64,<data>")
