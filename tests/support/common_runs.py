"""How much of a secret stands in a text."""

from __future__ import annotations


def longest_common_run(key: str, text: str) -> int:
    """How many characters of the key, one after the other, stand in the text; neither's escapes count."""
    key, longest = key.replace("\\", ""), 0
    for start in range(len(key)):
        while start + longest < len(key) and key[start : start + longest + 1] in text:
            longest += 1
    return longest
