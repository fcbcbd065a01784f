"""The most input tokens that the media in one request's body can cost, and what in a body adds input, or a price, that
nothing bounds.

The rules for images are the providers' own: OpenAI counts tiles of 512 pixels or patches of 32, Anthropic one token for
750 pixels, Gemini tiles of 768 pixels or a number for each resolution. Each scales a larger image down first, so an
image of unknown size costs at most what the largest one costs.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from dataclasses import dataclass

from ..errors import InvalidRequestError
from ..json.json_values import JSON, JSONObject, mapping, objects, string


@dataclass(slots=True, frozen=True)
class ImageRow:
    """The tokens of one image of a family of models.

    beginning: the beginning of the models' names.
    most: the tokens of the largest image.
    low: the tokens with `detail: "low"`; 0 if the models do not know it.
    """

    beginning: str
    most: int
    low: int = 0


IMAGES: tuple[ImageRow, ...] = (
    # Tiles: OpenAI scales an image to at most 2048 × 768 pixels, which are 8 tiles, and adds a base.
    ImageRow("gpt-4o-mini", 2_833 + 8 * 5_667, 2_833),
    ImageRow("gpt-4o", 85 + 8 * 170, 85),
    ImageRow("chatgpt-4o", 85 + 8 * 170, 85),
    ImageRow("gpt-4-turbo", 85 + 8 * 170, 85),
    ImageRow("gpt-4.5", 85 + 8 * 170, 85),
    ImageRow("o1", 75 + 8 * 150, 75),
    ImageRow("o3", 75 + 8 * 150, 75),
    ImageRow("computer-use", 65 + 8 * 129, 65),
    # Patches: at most 1,536, with a factor; with the detail `original`, 10,000.
    ImageRow("gpt-4.1-mini", 2_489),
    ImageRow("gpt-4.1-nano", 3_779),
    ImageRow("gpt-4.1", 1_536, 85),
    ImageRow("o4-mini", 2_642),
    ImageRow("gpt-5-mini", 2_489),
    ImageRow("gpt-5-nano", 3_779),
    ImageRow("gpt-5.", 16_200),
    ImageRow("gpt-5", 1_844),
    # Anthropic scales to 1,568 pixels, newer models to 2,576.
    ImageRow("claude-3", 1_640),
    ImageRow("claude-opus-4-5", 1_640),
    ImageRow("claude-opus-4-6", 1_640),
    ImageRow("claude-sonnet-4-5", 1_640),
    ImageRow("claude-sonnet-4-6", 1_640),
    ImageRow("claude-haiku-4-5", 1_640),
    ImageRow("claude-", 5_000),
    # Gemini scales to 3,072 pixels, which are 16 tiles; from Gemini 3, the highest resolution has a number of its own.
    ImageRow("gemini-1", 16 * 258),
    ImageRow("gemini-2", 16 * 258),
    ImageRow("gemini-", 2_240),
)
"""The first row whose beginning a model's name has counts."""

ANY_IMAGE = max(row.most for row in IMAGES)
"""The tokens of an image for a model without a row."""

PAGE_TEXT = 3_000
"""The most tokens of the text of a page (Anthropic's page on PDF). Each page costs as much as an image besides."""

SOUND_BYTES = 10
"""Bytes of sound for a token, at least: 32 tokens a second (Gemini) of speech at 6 kbit/s have 23."""

TEXT_BYTES = 2
"""Bytes of a text file for a token, at least."""


@dataclass(slots=True)
class Media:
    """What the media in a body cost.

    tokens: the most tokens of images, pages and sound.
    encoded: bytes of the body in them, which are no text.
    sound: the member that has sound, whose tokens may have a price of their own; empty if there is none.
    """

    tokens: int = 0
    encoded: int = 0
    sound: str = ""


def media_of(body: JSONObject, model: str) -> Media:
    """Return what the media in a body cost. Raises `InvalidRequestError` that names a member whose input is unbounded.

    model: the model's name, with or without that of a maker (`openai/gpt-4o`).
    """
    found = Media()
    for name in SERVER_SIDE:
        if body.get(name) and not (name == "prompt" and isinstance(body[name], str)):
            raise _unbounded(name)
    for place, tool in enumerate(objects(body, "tools")):
        if not _runs_here(tool):
            raise _unbounded(f"tools[{place}]")
    _refuse_compaction(body.get("context_management"))
    row = row_of(model)
    waiting: list[tuple[str, JSON]] = [(name, body[name]) for name in CONVERSATION if name in body]
    while waiting:
        path, value = waiting.pop()
        if type(value) is list:
            waiting += [(f"{path}[{place}]", item) for place, item in enumerate(value) if type(item) in (dict, list)]
        elif type(value) is dict and not _count(found, path, value, row):
            waiting += [(f"{path}.{name}", value[name]) for name in INSIDE if name in value]
    return found


def row_of(model: str) -> ImageRow:
    """Return the tokens of an image for a model. A model without a row costs as much as the dearest."""
    name = model.rpartition("/")[2].lower()
    return next((row for row in IMAGES if name.startswith(row.beginning)), ImageRow("", ANY_IMAGE))


def unpriced_member(body: JSONObject, model: str, media: Media) -> str:
    """Return the member of a body because of which the price of tokens may be another one: sound, output that is no
    text, another model. Empty if there is none.
    """
    if media.sound:
        return media.sound
    for path, wanted in (
        ("modalities", body.get("modalities")),
        ("generationConfig.responseModalities", mapping(body, "generationConfig").get("responseModalities")),
    ):
        if type(wanted) is list and any(str(each).lower() != "text" for each in wanted):
            return path
    named = string(body, "model")
    if named is not None and named != model:
        return "model"
    return next((name for name in ("models", "fallbacks") if body.get(name)), "")


SERVER_SIDE = (
    "previous_response_id", "conversation", "prompt", "cachedContent", "cached_content", "container", "mcp_servers",
    "web_search_options", "search_parameters", "plugins",
)  # fmt: skip
"""Members of a body, in any dialect, for which the server adds input that it has or fetches."""

CONVERSATION = ("messages", "system", "input", "instructions", "contents", "systemInstruction", "system_instruction")
"""Members of a body that have the conversation."""

INSIDE = ("content", "parts", "output", "functionResponse", "function_response", "source", "audio")
"""Members of a message, or of a part of it, that may have media. The arguments of calls are not among them: their
objects are the program's own.
"""

RUN_HERE = re.compile(
    r"function|custom|namespace|local_shell|shell|apply_patch|computer(?:_.*)?|bash_\d+|text_editor_\d+|memory_\d+"
)
"""Types of tools that the program runs. A server runs the others, and their results are input."""

FUNCTIONS = ("functionDeclarations", "function_declarations")


def _runs_here(tool: JSONObject) -> bool:
    kind = tool.get("type")
    if type(kind) is str:
        return RUN_HERE.fullmatch(kind) is not None
    return "name" in tool or "function" in tool or all(name in FUNCTIONS for name in tool)


def _refuse_compaction(managed: JSON) -> None:
    """Raise `InvalidRequestError` if a server may summarise the conversation, which is an answer of its own."""
    edits = objects(managed, "edits") if type(managed) is dict else objects({"edits": managed}, "edits")
    if any(str(edit.get("type")).startswith("compact") for edit in edits):
        raise _unbounded("context_management")


def _count(found: Media, path: str, part: JSONObject, row: ImageRow) -> bool:
    """Count a part of a message if it has media. Returns False if it is anything else."""
    kind = part.get("type")
    if kind in ("image_url", "input_image", "computer_screenshot"):
        inner = part.get("image_url")
        where = inner if type(inner) is dict else part
        _add_image(found, row, where.get("url") if type(inner) is dict else inner, where.get("detail"))
    elif kind == "image" and type(part.get("source")) is dict:
        _add_image(found, row, mapping(part, "source").get("data"), None)
    elif kind == "document" and type(part.get("source")) is dict:
        source = mapping(part, "source")
        if source.get("type") in ("text", "content"):
            return False
        _add_file(found, f"{path}.source", source.get("data"), str(source.get("media_type")), row)
    elif kind in ("file", "input_file"):
        where, at = (mapping(part, "file"), f"{path}.file") if kind == "file" else (part, path)
        _add_data_url(found, at, where, where.get("file_data"), row)
    elif kind == "input_audio":
        _add_file(found, f"{path}.input_audio", mapping(part, "input_audio").get("data"), "audio/", row)
    elif kind in ("audio_url", "video_url"):
        _add_data_url(found, f"{path}.{kind}", part, mapping(part, str(kind)).get("url"), row)
    elif kind in ("container_upload", "item_reference"):
        raise _unbounded(path)
    elif type(inline := part.get("inlineData", part.get("inline_data"))) is dict:
        _add_file(found, f"{path}.inlineData", inline.get("data"), _type_of(inline), row)
    elif type(linked := part.get("fileData", part.get("file_data"))) is dict:
        if not _type_of(linked).startswith("image/"):
            raise _unbounded(f"{path}.fileData")
        _add_image(found, row, None, None)
    elif type(sound := part.get("audio")) is dict and "id" in sound:
        raise _unbounded(f"{path}.audio.id")
    else:
        return False
    return True


def _type_of(part: JSONObject) -> str:
    return str(part.get("mimeType", part.get("mime_type")))


def _add_image(found: Media, row: ImageRow, data: JSON, detail: JSON) -> None:
    found.tokens += row.low if detail == "low" and row.low else row.most
    if type(data) is str and not data.startswith(("http://", "https://")):
        found.encoded += len(data)


def _add_data_url(found: Media, path: str, part: JSONObject, data: JSON, row: ImageRow) -> None:
    if type(data) is not str or data.startswith(("http://", "https://")):
        name = next((name for name in ("file_id", "file_url") if name in part), "")
        raise _unbounded(f"{path}.{name}" if name else path)
    head, comma, encoded = data.partition(",")
    if comma:
        _add_file(found, path, encoded, head.removeprefix("data:").partition(";")[0], row)
    else:
        _add_file(found, path, data, "application/pdf" if str(part.get("filename")).endswith(".pdf") else "", row)


def _add_file(found: Media, path: str, encoded: JSON, kind: str, row: ImageRow) -> None:
    """Count a file in base64, or raise `InvalidRequestError` if its kind says nothing of its tokens."""
    if type(encoded) is not str:
        raise _unbounded(path)
    size = 3 * len(encoded) // 4
    if kind.startswith("image/"):
        found.tokens += row.most
    elif kind.startswith("audio/"):
        found.tokens += 1 + size // SOUND_BYTES
        found.sound = path
    elif kind.startswith("text/") or kind in ("application/json", "application/xml"):
        found.tokens += 1 + size // TEXT_BYTES
    else:
        pages = _pages(encoded) if kind == "application/pdf" else 0
        if not pages:
            raise _unbounded(path, "the pages of the file cannot be counted")
        found.tokens += pages * (PAGE_TEXT + row.most)
    found.encoded += len(encoded)


_PAGE = re.compile(rb"/Type\s*/Page\b(?!s)")

LARGEST_OBJECTS = 64 * 1024 * 1024
"""The most bytes that the compressed objects of a PDF are inflated to, together."""

LONGEST_DICTIONARY = 4096
"""Bytes between the type of a stream and its beginning, at most."""


def _pages(encoded: str) -> int:
    """Return the number of pages of a PDF in base64; 0 if they cannot be counted."""
    try:
        data = base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        return 0
    pages, left, end = len(_PAGE.findall(data)), LARGEST_OBJECTS, 0
    # The objects of newer files lie in compressed streams (ISO 32000-2, section 7.5.7).
    while (kind := data.find(b"/ObjStm", end)) >= 0:
        start = data.find(b"stream", kind, kind + LONGEST_DICTIONARY) + len(b"stream")
        end = data.find(b"endstream", start)
        if start < kind or end < 0:
            break
        inflater = zlib.decompressobj()
        try:
            objects_text = inflater.decompress(data[start:end].lstrip(b"\r\n"), left)
        except zlib.error:
            return 0
        left -= len(objects_text)
        if left <= 0:
            return 0
        pages += len(_PAGE.findall(objects_text))
    return pages


def _unbounded(member: str, why: str = "how much it adds is known only to the server") -> InvalidRequestError:
    return InvalidRequestError(
        member,
        f"a budget limits the input, and {why}: leave it out, or send the call from an engine without that budget",
    )
