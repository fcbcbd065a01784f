"""The head of a request: its path with the query, its headers, the header with the key, and the session."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from ..json.json_values import JSON
from .quirks import Quirks, SessionField

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
    return bearer(api_key, header) if header.lower() == AUTHORIZATION else [(header, api_key)]


def bearer(token: str, header: str = AUTHORIZATION) -> list[tuple[str, str]]:
    """Return the header of an access token (RFC 6750)."""
    return [(header, f"Bearer {token}")]


LONGEST_SESSION = 128
"""The number of characters of a session that is sent as it is. OpenRouter and Dynamo refuse more than 256."""

HASHED_SESSION = 32
"""The number of hexadecimal digits of a hashed session. OpenAI refuses more than 64 characters."""


def sent_session(field: SessionField, session: str) -> str:
    """Return what a server gets of `Request.session`: the text itself, or its hash."""
    if not field.hashed and len(session) <= LONGEST_SESSION and all("!" <= character <= "~" for character in session):
        return session
    return sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:HASHED_SESSION]


def add_session(body: dict[str, JSON], session: str, quirks: Quirks) -> None:
    """Add the session of a request to its body, if the server reads it there."""
    field = quirks.session
    if field is not None and field.member:
        body[field.member] = sent_session(field, session)
