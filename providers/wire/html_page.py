"""An HTML page received instead of an answer → its readable text.

Gateways answer with a page when something is wrong. The time is linear in the page's length: no pattern here scans
beyond the next tag.
"""

from __future__ import annotations

import re

LONGEST_TAG = 500
"""Characters between "<" and ">" in a tag. A longer piece is text that contains a "<"."""

_TITLE = re.compile(r"<title[^<>]*>([^<]*)</title", re.IGNORECASE)
_UNSEEN = ("script", "style")
"""Elements whose content a browser does not show."""


def page_words(page: str) -> str:
    """Return the page's title, or its text without tags, scripts and styles where it has no title."""
    title = _TITLE.search(page)
    if title is not None and title[1].strip():
        return title[1]
    before, *pieces = page.split("<")
    words, unseen = [before], ""
    for piece in pieces:
        tag, closed, text = piece.partition(">")
        name = tag[:8].lower()
        if unseen:
            if not name.startswith("/" + unseen):
                continue
            unseen = ""
        else:
            unseen = next((element for element in _UNSEEN if name.startswith(element)), "")
        is_tag = closed and len(tag) <= LONGEST_TAG
        words.append(("" if unseen else text) if is_tag else "<" + piece)
    return " ".join(words)
