"""The path of a request, `…/models/{model}:generateContent`, below any configured base URL."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote, urlsplit

from ..errors import InvalidRequestError

API_VERSION = "/v1beta"
"""The API version with every option that is written here. A base URL with another version keeps its own."""

METHODS: dict[bool, str] = {False: ":generateContent", True: ":streamGenerateContent?alt=sse"}
"""Whether the answer is streamed → method. Without `alt=sse` a stream is one JSON array."""

PUBLISHER = "/publishers/google"
VERTEX_HOST = "aiplatform.googleapis.com"
VERTEX_VERSION = "/v1"

COLLECTIONS = ("tunedModels/", "publishers/", "projects/", "endpoints/")
"""Beginnings of model names that are resource names already, besides `models/`."""

VERSION = re.compile(r"/v\d+(?:(?:alpha|beta)\d*)?(?=/|$)", re.ASCII)
_PROJECT_AT_END = re.compile(r"/projects/[^/]+/locations/[^/]+$", re.ASCII)
_KEPT = "@"
"""Kept unquoted: Vertex AI writes a model's version after it. RFC 3986 allows it in a path."""


@lru_cache(maxsize=256)
def request_path(base_url: str, model: str, *, stream: bool) -> str:
    """Return the path and query that are appended to the base URL. Raises `InvalidRequestError` for no model's name."""
    url = urlsplit(base_url)
    vertex = (url.hostname or "").endswith(VERTEX_HOST)
    path = url.path.rstrip("/")
    name = model.removeprefix(PUBLISHER[1:] + "/").removeprefix("models/")
    if any(segment in ("", ".", "..") for segment in name.split("/")):
        raise InvalidRequestError("model", f"{model!r} is no model's name")
    if name.startswith(COLLECTIONS):
        prefix = "" if VERSION.search(path) else VERTEX_VERSION if vertex else API_VERSION
        return f"{prefix}/{quote(name, safe='/' + _KEPT)}{METHODS[stream]}"
    return f"{_prefix(path, vertex=vertex)}/models/{quote(name, safe=_KEPT)}{METHODS[stream]}"


def _prefix(path: str, *, vertex: bool) -> str:
    """Return what comes between the base URL's path and `/models/…`."""
    if path.endswith(PUBLISHER):
        return ""
    if _PROJECT_AT_END.search(path):
        return PUBLISHER
    last = path[path.rfind("/") :]
    versioned = VERSION.fullmatch(last) is not None
    if vertex:
        return PUBLISHER if versioned else VERTEX_VERSION + PUBLISHER
    return "" if versioned else API_VERSION
