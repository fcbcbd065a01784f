"""Reads the data and the URLs of files in OpenAI's requests: data URLs (RFC 2397), plain base64 text, other URLs; and
the detail of pictures.
"""

from __future__ import annotations

import base64
from typing import TypeAlias

from ..json.json_values import JSONObject, string
from ..model.messages import IMAGE_DETAILS, Image, ImageDetail

MEDIA_TYPES: dict[str, str] = {
    "csv": "text/csv",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "html": "text/html",
    "json": "application/json",
    "md": "text/markdown",
    "pdf": "application/pdf",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "txt": "text/plain",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xml": "application/xml",
}
"""Extension of a file's name → media type, for data without one. Other files are `UNKNOWN`."""

FILM_TYPES: dict[str, str] = {
    "mp4": "video/mp4",
    "mpeg": "video/mpeg",
    "mpg": "video/mpeg",
    "mov": "video/quicktime",
    "webm": "video/webm",
}
"""Extension of a URL's path → media type of a film. A URL with another one, or without, is `video/mp4`."""

UNKNOWN = "application/octet-stream"
PDF_BEGIN = b"%PDF-"


Source: TypeAlias = tuple[bytes | None, str | None, str | None]
"""A file's bytes with their media type, or its URL."""


def url_source(url: str | None) -> Source:
    """Return a data URL's bytes and media type, or the URL itself. Raises `ValueError` for bytes that are no base64."""
    head, comma, data = (url or "").partition(",")
    if not head.startswith("data:") or not comma:
        return None, None, url
    return _decoded(data, "is not base64 text"), head.removeprefix("data:").partition(";")[0], None


def file_source(data: str, name: str | None) -> Source:
    """Return the bytes and media type of a file's data, or its URL. Raises `ValueError` for any other text.

    The data is a data URL, or base64 text without a media type. Some servers take another URL in its place.
    """
    if not data or ":" in data[:32]:  # base64 has no colon, a URL has one after its scheme
        return url_source(data)
    decoded = _decoded(data, "is neither a URL nor base64 text")
    ending = (name or "").rpartition(".")[2].lower()
    media_type = "application/pdf" if decoded.startswith(PDF_BEGIN) else MEDIA_TYPES.get(ending, UNKNOWN)
    return decoded, media_type, None


def detail_of(wire: JSONObject) -> ImageDetail | None:
    """Return a picture's `detail`: None if it has none, and `auto` for an unknown one."""
    detail = string(wire, "detail")
    return IMAGE_DETAILS.get(detail, "auto") if detail else None


def film_type(url: str) -> str:
    """Return the media type of a film at a URL, by the extension of its path."""
    path = url.partition("?")[0].partition("#")[0]
    return FILM_TYPES.get(path.rpartition(".")[2].lower(), "video/mp4")


def _decoded(text: str, complaint: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # not base64, or not ASCII
        raise ValueError(complaint) from None


def image_of_url(url: str) -> Image:
    """Return the picture at a URL, with its bytes if it is a base64 data URL. Any other URL is kept."""
    if not is_base64_url(url):
        return Image(url=url)
    head, _, text = url.partition(",")
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except ValueError:  # not base64, or not ASCII
        return Image(url=url)
    return Image(data=data, media_type=head[5:-7].partition(";")[0] or "image/png")


def is_base64_url(url: str) -> bool:
    """Return whether a URL says that it is a data URL with base64 text."""
    head, comma, _ = url.partition(",")
    return bool(comma) and head[:5] == "data:" and head.endswith(";base64")


def data_url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"
