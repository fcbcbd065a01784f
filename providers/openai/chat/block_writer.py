"""Writes content blocks as the content of chat messages: text, pictures, files, sound, films, and cache marks."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...errors import InvalidRequestError
from ...json.json_values import JSON, JSONObject
from ...model.messages import Block, CacheControl, File, Image, Text
from ...wire.cache_marks import BREAKPOINT, written_mark
from ...wire.omission_warnings import given_left_out
from ...wire.quirks import CacheMarkMember, Quirks
from ..file_data import data_url
from ..thinking import takes_breakpoints

AUDIO_FORMATS: dict[str, str] = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/vnd.wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/ogg": "ogg",
    "audio/flac": "flac",
    "audio/x-flac": "flac",
    "audio/aac": "aac",
    "audio/mp4": "m4a",
    "audio/x-m4a": "m4a",
    "audio/webm": "webm",
    "audio/pcm": "pcm16",
}
"""Media type → `input_audio.format`. OpenAI accepts the first two formats; other servers accept more."""

PlacedBlock: TypeAlias = tuple[str, Text | Image | File]
"""A block after its place in the request, such as `messages[0].content[1]`, which errors and warnings name."""


def cache_mark_member(quirks: Quirks, model: str) -> CacheMarkMember:
    """Return the member for a cache mark of a content part; empty if this model takes none."""
    if quirks.cache_mark == BREAKPOINT and not takes_breakpoints(model):
        return ""
    return quirks.cache_mark


def plain_text(blocks: Sequence[Block]) -> str | None:
    """Return the text of content that is one text without a cache mark, the usual case; None for any other content."""
    if len(blocks) != 1:
        return None
    block = blocks[0]
    return block.text if type(block) is Text and block.cache_control is None else None


@dataclass(slots=True, eq=False, repr=False)
class BlockWriter:
    """Writes the content of one request's messages."""

    _quirks: Quirks  # how the server departs from the dialect
    _warnings: list[str]  # gets a warning for each thing that cannot be sent
    _model: str = ""  # the model that the messages are for; empty if it is not known

    def content(self, blocks: Sequence[PlacedBlock]) -> JSON:
        """Return a message's content: a string for one text without a mark, which every server accepts, else parts."""
        if len(blocks) == 1:
            where, block = blocks[0]
            if type(block) is Text:
                return self.text_content([block], where)
        return [self.part(block, where) for where, block in blocks]

    def text_content(self, blocks: Sequence[Text], where: str, separator: str = "") -> JSON:
        """Return content of text only: parts if there are cache marks that the server accepts, else a string."""
        if len(blocks) == 1 and blocks[0].cache_control is None:
            return blocks[0].text
        marks = [block.cache_control for block in blocks if block.cache_control is not None]
        if marks and cache_mark_member(self._quirks, self._model):
            return [self.part(block, where) for block in blocks]
        for mark in marks:
            self._mark({}, mark, where)
        return separator.join(block.text for block in blocks)

    def part(self, block: Text | Image | File, where: str) -> JSONObject:
        """Return one content part. Raises `InvalidRequestError` for a block that the server does not accept."""
        if isinstance(block, Text):
            part: JSONObject = {"type": "text", "text": block.text}
        elif isinstance(block, Image):
            part = self._image(block, where)
        else:
            part = self._file(block, where)
        if not isinstance(block, Text) and block.state is not None:
            self._warnings.extend(given_left_out(block))
        return self._mark(part, block.cache_control, where)

    def _mark(self, part: JSONObject, mark: CacheControl | None, where: str) -> JSONObject:
        """Add a cache mark to a part, or a warning if the server does not accept it. Returns the part."""
        if mark is not None:
            member = cache_mark_member(self._quirks, self._model)
            if member:
                part[member] = written_mark(mark, member)
            else:
                self._warnings.append(f"{where}: cache_control not sent; the server caches by itself, or not at all")
        return part

    def _image(self, block: Image, where: str) -> JSONObject:
        if block.file_id is not None:
            raise InvalidRequestError(f"{where}.file_id", "a chat request takes a picture as data or url only")
        source: JSONObject = {"url": _url_of(block)}
        if block.detail is not None:
            source["detail"] = block.detail
        return {"type": "image_url", "image_url": source}

    def _file(self, block: File, where: str) -> JSONObject:
        kind = (block.media_type or "").partition(";")[0].strip().lower()
        if kind.startswith("image/") and block.file_id is None:
            return {"type": "image_url", "image_url": {"url": _url_of(block)}}
        if kind.startswith("audio/") and block.file_id is None:
            return self._audio(block, kind, where)
        if kind.startswith("video/") and block.file_id is None:
            if not self._quirks.video_parts:
                raise InvalidRequestError(where, "the server takes no films")
            return {"type": "video_url", "video_url": {"url": _url_of(block)}}
        return self._document(block, where)

    def _audio(self, block: File, kind: str, where: str) -> JSONObject:
        if block.data is None:
            raise InvalidRequestError(f"{where}.url", "a chat request takes sound as data only")
        if kind not in AUDIO_FORMATS:
            raise InvalidRequestError(f"{where}.media_type", f"no format is known for {kind!r}")
        data = base64.b64encode(block.data).decode()
        return {"type": "input_audio", "input_audio": {"data": data, "format": AUDIO_FORMATS[kind]}}

    def _document(self, block: File, where: str) -> JSONObject:
        if not self._quirks.file_parts:
            raise InvalidRequestError(where, "the server takes no files")
        if block.file_id is not None:
            return {"type": "file", "file": {"file_id": block.file_id}}
        if block.url is not None and not block.url.startswith("data:") and not self._quirks.file_urls:
            raise InvalidRequestError(f"{where}.url", "the server takes a file as data or file_id, not by its URL")
        return {"type": "file", "file": {"filename": block.name or _default_name(block), "file_data": _url_of(block)}}


def _url_of(block: Image | File) -> str:
    if block.data is not None:
        return data_url(block.data, block.media_type or "application/octet-stream")
    return block.url or ""


def _default_name(block: File) -> str:
    """Return a file name: one is required, and some servers derive the media type from its extension."""
    ending = (block.media_type or "").rpartition("/")[2].partition(";")[0]
    return f"file.{ending}" if ending.isalnum() else "file"
