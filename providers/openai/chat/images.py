"""Pictures in the chat dialect: reads and writes data URLs (RFC 2397). Must not know the order of messages."""

from __future__ import annotations

import base64
import binascii

from ...messages import Image


def image_of_url(url: str) -> Image:
    """Return the picture at a URL, with its bytes if it is a base64 data URL."""
    head, comma, data = url.partition(",")
    if head[:5] == "data:" and comma and head.endswith(";base64"):
        try:
            return Image(data=base64.b64decode(data), media_type=head[5:-7].partition(";")[0] or "image/png")
        except (binascii.Error, ValueError):
            pass
    return Image(url=url)


def data_url(data: bytes, media_type: str) -> str:
    """Return bytes as a data URL."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"
