"""Pictures in the chat dialect: reads and writes data URLs (RFC 2397)."""

from __future__ import annotations

import base64

from ...model.messages import Image


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
    """Return bytes as a data URL."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"
