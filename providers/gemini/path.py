"""Where a request goes: `…/models/{model}:generateContent`, after whatever base URL is configured.

Knows the resource names of the Gemini API and of Vertex AI. The key is never part of it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote, urlsplit

from ..errors import InvalidRequestError

API_VERSION = "/v1beta"
"""The version that has every option written here; a base URL that names another one keeps it."""

METHODS: dict[bool, str] = {False: ":generateContent", True: ":streamGenerateContent?alt=sse"}
"""Streamed? → method. Without `alt=sse` a stream is one JSON array."""

PUBLISHER = "/publishers/google"
VERTEX_HOST = "aiplatform.googleapis.com"
VERTEX_VERSION = "/v1"

COLLECTIONS = ("tunedModels/", "publishers/", "projects/", "endpoints/")
"""Beginnings of a model's name that are resource names already, beside `models/`."""

_VERSION = re.compile(r"/v\d+(?:(?:alpha|beta)\d*)?(?=/|$)", re.ASCII)
_PROJECT_AT_END = re.compile(r"/projects/[^/]+/locations/[^/]+$", re.ASCII)
_KEPT = "@"
"""Vertex AI writes a model's version after it; RFC 3986 allows the sign in a path."""


@lru_cache(maxsize=256)
def request_path(base_url: str, model: str, *, stream: bool) -> str:
    """The path (and query) that is appended to the base URL's own. Raises `InvalidRequestError`."""
    url = urlsplit(base_url)
    vertex = (url.hostname or "").endswith(VERTEX_HOST)
    path = url.path.rstrip("/")
    name = model.removeprefix(PUBLISHER[1:] + "/").removeprefix("models/")
    if any(segment in ("", ".", "..") for segment in name.split("/")):
        raise InvalidRequestError("model", f"{model!r} is no model's name")
    if name.startswith(COLLECTIONS):
        prefix = "" if _VERSION.search(path) else VERTEX_VERSION if vertex else API_VERSION
        return f"{prefix}/{quote(name, safe='/' + _KEPT)}{METHODS[stream]}"
    return f"{_prefix(path, vertex=vertex)}/models/{quote(name, safe=_KEPT)}{METHODS[stream]}"


def _prefix(path: str, *, vertex: bool) -> str:
    """What stands between the base URL's path and `/models/…`."""
    if path.endswith(PUBLISHER):
        return ""
    if _PROJECT_AT_END.search(path):
        return PUBLISHER
    last = path[path.rfind("/") :]
    versioned = _VERSION.fullmatch(last) is not None
    if vertex:
        return PUBLISHER if versioned else VERTEX_VERSION + PUBLISHER
    return "" if versioned else API_VERSION
