"""Measure how much of a secret a text contains."""


def longest_common_run(key: str, text: str) -> int:
    """Return the length of the longest run of the key's characters in the text. Escapes in both are ignored."""
    key, longest = key.replace("\\", ""), 0
    for start in range(len(key)):
        while start + longest < len(key) and key[start : start + longest + 1] in text:
            longest += 1
    return longest
