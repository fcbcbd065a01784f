"""The head of a request: its path with the query, its headers, and the header with the key."""

from __future__ import annotations

from collections.abc import Mapping

from ..catalog.profile import Quirks

AUTHORIZATION = "authorization"

JSON_TYPE = "application/json"
EVENT_STREAM = "text/event-stream"

_USUAL_HEADERS: dict[bool, tuple[tuple[str, str], ...]] = {
    stream: (("content-type", JSON_TYPE), ("accept", EVENT_STREAM if stream else JSON_TYPE)) for stream in (False, True)
}
"""Whether the answer is a stream → the headers that every dialect sends."""


def path_with_query(path: str, quirks: Quirks) -> str:
    """Return `path` with the profile's query, which is added to a query that `path` already has."""
    if not quirks.query:
        return path
    return f"{path}{'&' if '?' in path else '?'}{quirks.query}"


def request_headers(
    quirks: Quirks, extra: Mapping[str, str] | None, *, stream: bool, own: Mapping[str, str] | None = None
) -> list[tuple[str, str]]:
    """Return the headers in order, names in lower case.

    The profile's headers replace the dialect's (`own`), and the request's (`extra`) replace both.
    """
    if not (quirks.headers or extra or own):
        return list(_USUAL_HEADERS[stream])
    headers = {**dict(_USUAL_HEADERS[stream]), **(own or {})}
    for name, value in (*quirks.headers, *(extra or {}).items()):
        headers[name.lower()] = value
    return list(headers.items())


def key_headers(quirks: Quirks, api_key: str, own: str) -> list[tuple[str, str]]:
    """Return the header with the key: the one that the profile names, else the dialect's (`own`).

    `authorization` sends `Bearer …` (RFC 6750), any other header the key alone. Returns no header if the key is empty.
    """
    if not api_key:
        return []
    header = quirks.auth_header or own
    return [(header, f"Bearer {api_key}" if header.lower() == AUTHORIZATION else api_key)]
