"""Writes content blocks as steps, or as contents of a step, one block at a time.

A block's provider state is sent back only if this provider made it.
"""

from __future__ import annotations

import base64

from ..gemini.block_writer import BlockWriter as GeminiBlockWriter
from ..gemini.block_writer import data_of_url, media_type_of
from ..json.json_values import JSON, JSONObject, objects
from ..model.messages import Block, File, Image, ProviderState, Text, Thinking, ToolCall, ToolResult, state_for
from ..wire.omission_warnings import foreign_thinking, note_foreign_refusal
from .steps import CALL, RESULT, SIGNATURE, SUMMARY, THOUGHT

RESOLUTIONS: dict[str, str] = {"low": "low", "high": "high", "original": "ultra_high"}
"""`Image.detail` → `resolution`. Any other is left to the server."""


class BlockWriter(GeminiBlockWriter):
    """Writes the steps of one request. The rules for files and foreign blocks are Gemini's."""

    __slots__ = ()

    def text(self, text: str) -> JSONObject:
        return {"type": "text", "text": text}

    def content(self, block: Block, field: str) -> JSONObject | None:
        """Return the content or step of a block that is no call and no result, or None if there is nothing to send."""
        if isinstance(block, Text):
            self._note_cache_mark(block.cache_control, field)
            note_foreign_refusal(block.state, self._maker, self._warnings)
            if not block.text:
                return None
            annotations: dict[str, JSON] = {"annotations": [*block.citations]}
            return {**self.text(block.text), **(annotations if block.citations and self._is_own(block.state) else {})}
        if isinstance(block, Thinking):
            return self._thought(block)
        if isinstance(block, Image | File) and block.data != b"":
            return self.media(block, field)
        return super().content(block, field)

    def call(self, block: ToolCall, field: str) -> JSONObject:
        """Return a `function_call` step."""
        self._note_cache_mark(block.cache_control, field)
        arguments = self._arguments(block, field)
        step: dict[str, JSON] = {"type": CALL, "id": block.id, "name": block.name, "arguments": arguments}
        return {**step, **state_for(block.state, self._maker)}

    def result(self, block: ToolResult, call: ToolCall, field: str) -> tuple[JSONObject, list[JSONObject]]:
        """Return a `function_result` step, which may contain any file, and nothing beside it."""
        self._note_cache_mark(block.cache_control, field)
        contents: JSON
        if isinstance(block.content, str):
            contents = block.content
        else:
            written = [self.content(part, f"{field}.content[{place}]") for place, part in enumerate(block.content)]
            contents = [part for part in written if part is not None]
        step: dict[str, JSON] = {"type": RESULT, "call_id": call.id, "name": call.name, "result": contents}
        if block.is_error:
            step["is_error"] = True
        return step, []

    def media(self, block: Image | File, field: str) -> JSONObject:
        """Return the content of an image or a file: its bytes or its URL, with what was given beside it."""
        self._note_cache_mark(block.cache_control, field)
        if isinstance(block, File) and block.name is not None:
            self._warnings.append(f"{field}.name: left out, Gemini takes no names of files")
        address = "" if block.data is not None else self._address(block)
        data, media_type = block.data, block.media_type
        if address.startswith("data:"):
            data, media_type = data_of_url(address, media_type, field)
        else:
            media_type = media_type or media_type_of(address)
        content: dict[str, JSON] = {"type": "image" if isinstance(block, Image) else _kind(media_type)}
        if data is not None:
            content["data"] = base64.b64encode(data).decode()
        else:
            content["uri"] = address
        if media_type:
            content["mime_type"] = media_type
        if isinstance(block, Image) and block.detail in RESOLUTIONS:
            content["resolution"] = RESOLUTIONS[block.detail]
        return {**content, **state_for(block.state, self._maker)}

    def _thought(self, block: Thinking) -> JSONObject | None:
        """Return a `thought` step for the provider that made it; None, with a warning, for any other."""
        unowned = block.state is None and block.signature is None
        if not unowned and not self._is_own(block.state):
            self._warnings.append(foreign_thinking(self._maker))
            return None
        step: dict[str, JSON] = {"type": THOUGHT}
        if block.signature:
            step[SIGNATURE] = block.signature
        summary: list[JSON] = [self.text(block.text)] if block.text else []
        summary.extend(objects(state_for(block.state, self._maker), SUMMARY))
        if summary:
            step[SUMMARY] = summary
        return step if len(step) > 1 else None

    def _is_own(self, state: ProviderState | None) -> bool:
        return state is not None and state.provider == self._maker


def _kind(media_type: str | None) -> str:
    """Return the type of a content with a file of this media type."""
    main = (media_type or "").partition("/")[0].lower()
    return main if main in ("image", "audio", "video") else "document"
