"""Recognise the form of a body by its first bytes: events, JSON, a page or another text."""

from __future__ import annotations

import enum
import re

from ....providers.wire.json_stream import DONE_MARK
from .base import BOM

_NO_CONTENT = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t\r\n]++|:[^\r\n]*+[\r\n])*+")
"""What may precede every body: a byte order mark (RFC 8259, section 8.1), blank lines, comments of an event stream."""

_FIELD = re.compile(rb"(?:data|event|id|retry)(?:[:\r\n])|(?i:error):")
"""The beginning of a line that is a field of an event (HTML standard, 9.2.6), or an error in place of one."""

_FIELDS = (b"data", b"event", b"id", b"retry", b"error")


class Form(enum.Enum):
    """The form of a body."""

    JSON = "json"
    EVENTS = "events"
    PAGE = "page"
    TEXT = "text"


def content_of(body: bytes) -> bytes:
    """Return a body without the blank lines, comments and byte order mark at its beginning."""
    match = _NO_CONTENT.match(body)
    return body[match.end() :] if match is not None else body


def form_of(content: bytes) -> Form | None:
    """Return the form of a body that begins with this content, or None if more bytes are needed."""
    first = content[:1]
    if first == b"[" and DONE_MARK.startswith(content[: len(DONE_MARK)]):
        return Form.EVENTS if len(content) > 1 else None
    if first in (b"{", b"["):
        return Form.JSON
    if first == b"<":
        return Form.PAGE
    if _FIELD.match(content) is not None:
        return Form.EVENTS
    # These may become a field, a byte order mark or a comment.
    unclear = any(field.startswith(content.lower()) for field in _FIELDS) or BOM.startswith(content) or first == b":"
    return None if unclear else Form.TEXT
