"""Estimate the input tokens of a request before a server has counted them.

Knows the size of a request's body and its media. Must not know dialects or limits.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..providers.messages import File, Image, ToolResult
from ..providers.request import Request

BYTES_PER_TOKEN = 4.0
"""Bytes of a body per token, JSON included. Providers use the same estimate."""

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
    tokens, encoded = 0.0, 0
    for block in _blocks_of(request):
        if isinstance(block, Image | File) and block.data is not None:
            encoded += 4 * len(block.data) // 3
            tokens += MEDIA_TOKENS * (1 + len(block.data) // MEDIA_PAGE_BYTES)
    return tokens + max(0, size - encoded) / BYTES_PER_TOKEN


def _blocks_of(request: Request) -> Iterator[object]:
    """Yield the content blocks of all messages, including those inside tool results."""
    for message in request.messages:
        for block in message.content:
            if isinstance(block, ToolResult) and not isinstance(block.content, str):
                yield from block.content
            else:
                yield block
