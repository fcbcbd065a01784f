"""Whole messages in a stream: after deltas they repeat the content, in place of deltas they are the content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...json.json_values import JSON, JSONObject
from ...wire.accumulate import TextInProgress, ThinkingInProgress


def next_message(
    message: JSONObject, texts: Mapping[str, TextInProgress | ThinkingInProgress | None], *, has_calls: bool
) -> JSONObject:
    """Return what a message adds to those before it, in a stream that has messages in place of deltas.

    A text in it is the next piece, or the whole text so far. Calls come whole, and once.

    texts: member → the block of its text, if there is one.
    has_calls: whether calls came before.
    """
    added: dict[str, JSON] = {**message}
    for name, block in texts.items():
        text = message.get(name)
        if type(text) is str and block is not None:
            added[name] = _after(block.pieces, text)
    if has_calls:
        added.pop("tool_calls", None)
    return added


def _after(pieces: Sequence[str], text: str) -> str:
    """Return a text without the pieces that it begins with; the text itself, if it does not begin with all of them."""
    place = 0
    for piece in pieces:
        if not text.startswith(piece, place):
            return text
        place += len(piece)
    return text[place:]
