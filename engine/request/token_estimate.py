"""Estimate the tokens of a request and of a part of an answer that no server has counted."""

from __future__ import annotations

from collections.abc import Iterator

from ...providers.errors import InvalidRequestError
from ...providers.limits.input_limits import Media, media_of
from ...providers.model.messages import File, Image, Text, Thinking, ToolCall, ToolResult
from ...providers.model.request import Request
from ...providers.model.response import Response
from .forwarded import forwarded_of

BYTES_PER_TOKEN = 4.0
"""Bytes of a body per token, JSON included. Providers use the same estimate."""

LEAST_BYTES_PER_TOKEN = 3.0
"""ASCII bytes per token in text that is expensive for its size, such as code and numbers."""

LEAST_OTHER_BYTES_PER_TOKEN = 2.0
"""UTF-8 bytes of other characters per token, in the same sense."""

NOT_ASCII = bytes(range(128, 256))

LOOKED_AT_FROM = 16_384
"""The size of a body from which its messages are searched for images and files. A smaller one has no relevant ones."""

MEDIA_TOKENS = 1_500.0
"""Tokens of an image or a page of a file."""

MEDIA_PAGE_BYTES = 100_000
"""Bytes of a file that count as a page."""


def estimate_input_tokens(request: Request, body: bytes) -> float:
    """Return the input tokens, within a factor of about two. The base64 of images and files does not count as text."""
    size = len(body)
    if size < LOOKED_AT_FROM:
        return size / BYTES_PER_TOKEN
    tokens, encoded = _media(request) if forwarded_of(request) is None else _media_of_body(request)
    return tokens + max(0, size - encoded) / BYTES_PER_TOKEN


def largest_input_tokens(body: bytes, media: Media) -> float:
    """Return more input tokens than a server counts for any usual text, with those of the media."""
    other = len(body) - len(body.translate(None, NOT_ASCII))
    ascii_bytes = max(0, len(body) - other - media.encoded)
    return media.tokens + ascii_bytes / LEAST_BYTES_PER_TOKEN + other / LEAST_OTHER_BYTES_PER_TOKEN


def seen_output_tokens(response: Response | None) -> float:
    """Return the tokens of the part of an answer that has arrived."""
    size = 0
    for block in () if response is None else response.content:
        if isinstance(block, Text | Thinking):
            size += _bytes(block.text)
        elif isinstance(block, ToolCall):
            size += _bytes(block.name) + _bytes(block.arguments)
    return size / BYTES_PER_TOKEN


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _media(request: Request) -> tuple[float, int]:
    """Return the tokens of images and files, and the size of their base64."""
    tokens, encoded = 0.0, 0
    for block in _blocks_of(request):
        if isinstance(block, Image | File) and block.data is not None:
            encoded += 4 * len(block.data) // 3
            tokens += MEDIA_TOKENS * (1 + len(block.data) // MEDIA_PAGE_BYTES)
    return tokens, encoded


def _media_of_body(request: Request) -> tuple[float, int]:
    """Return the same of a body that is forwarded. Members whose input is unbounded count as text."""
    forwarded = forwarded_of(request)
    assert forwarded is not None
    try:
        media = media_of(forwarded.members, request.model)
    except InvalidRequestError:
        return 0.0, 0
    return media.tokens, media.encoded


def _blocks_of(request: Request) -> Iterator[object]:
    """Yield the content blocks of all messages, including those inside tool results."""
    for message in request.messages:
        for block in message.content:
            if isinstance(block, ToolResult) and not isinstance(block.content, str):
                yield from block.content
            else:
                yield block
