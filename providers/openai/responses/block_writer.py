"""Writes content blocks as `input_text`, `input_image` and `input_file`, one at a time."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

from ...json.json_values import JSON, JSONObject
from ...model.messages import CacheControl, File, Image, Text
from ...wire.cache_marks import BREAKPOINT, written_mark
from ...wire.omission_warnings import given_left_out
from ..file_data import data_url

EXTENSIONS: dict[str, str] = {
    "application/json": "json",
    "application/pdf": "pdf",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "text/plain": "txt",
}
"""Media type → the extension of a file without a name. The API derives a file's type from its name."""

MARKS_LEFT_OUT = "cache_control: not sent where Responses has no place for it; it caches by itself"
"""The warning for a cache mark that was left out."""


@dataclass(slots=True, eq=False, repr=False)
class BlockWriter:
    """Writes the parts of some messages."""

    _: KW_ONLY
    breakpoints: bool  # whether the model accepts explicit cache marks
    # warnings about what a user gave with a file for another provider
    left_out: list[str] = field(default_factory=lambda: [], init=False)
    marks_left_out: bool = field(default=False, init=False)  # whether a mark was left out because the model does not

    def part(self, block: Text | Image | File) -> JSONObject:
        if isinstance(block, Text):
            part: JSONObject = {"type": "input_text", "text": block.text}
            if block.cache_control is None:
                return part
        elif isinstance(block, Image):
            part = {"type": "input_image", "detail": block.detail or "auto", **image_source(block)}
        elif (block.media_type or "").startswith("image/"):
            part = {"type": "input_image", "detail": "auto", **image_source(block)}
        else:
            part = {"type": "input_file", **file_source(block)}
        if not isinstance(block, Text) and block.state is not None:
            self.left_out.extend(given_left_out(block))
        return self.marked(part, block.cache_control)

    def output(self, content: str | list[Text | Image | File], cache_control: CacheControl | None) -> JSON:
        """Return a tool's output: text as it is, blocks as parts."""
        if isinstance(content, str):
            if cache_control is None or not self.breakpoints:
                self.marks_left_out = self.marks_left_out or cache_control is not None
                return content
            content = [Text(content)]
        parts = [self.part(block) for block in content]
        if parts:
            self.marked(parts[-1], cache_control)
        return [*parts] if parts else ""

    def marked(self, part: JSONObject, cache_control: CacheControl | None) -> JSONObject:
        """Add a cache mark to a part, if there is one and the model accepts it. Returns the part."""
        if cache_control is not None and not self.breakpoints:
            self.marks_left_out = True
        elif cache_control is not None:
            part[BREAKPOINT] = written_mark(cache_control, BREAKPOINT)
        return part


def image_source(block: Image | File) -> JSONObject:
    """Return an image's source: its file id, its URL, or a data URL of its bytes."""
    if block.file_id is not None:
        return {"file_id": block.file_id}
    return {"image_url": block.url if block.url is not None else data_url(block.data or b"", block.media_type or "")}


def file_source(block: File) -> JSONObject:
    """Return a file's source: its file id, its URL, or a data URL of its bytes with a file name."""
    if block.file_id is not None:
        return {"file_id": block.file_id}
    if block.url is not None:
        return {"file_url": block.url}
    media_type = (block.media_type or "").partition(";")[0].strip().lower()
    extension = EXTENSIONS.get(media_type) or media_type.rpartition("/")[2]
    data = data_url(block.data or b"", block.media_type or "")
    return {"filename": block.name or f"file.{extension}", "file_data": data}
