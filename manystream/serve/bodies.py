"""A client's body without its compression, and changes in it: another name of the model, and the members that a slot
adds. All other bytes stay."""

from __future__ import annotations

import re
import zlib
from importlib import import_module
from typing import Protocol, cast

from ..http_server import BODY_LIMIT, BadRequest
from ..providers.json.json_values import JSON, JSONObject, dumps, loads_object

_MODEL = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')
"""A member `model`. It matches no text inside a string, where the quotes are escaped."""


CODINGS = ("gzip", "zstd")
"""The content codings of bodies that are read. A Codex that is logged in sends zstd."""

ZSTD_MODULES = ("compression.zstd", "backports.zstd")
"""Python has it from 3.14 on."""

MOST_WINDOW = 23
"""The logarithm of the largest window that a sender may use (RFC 9659)."""


class Decompressor(Protocol):
    """What `zlib` and `zstd` have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def uncompressed(body: bytes, coding: str) -> bytes:
    """Return a body without its compression. Raises `BadRequest`."""
    decompressor, failure = _gzip() if coding == "gzip" else _zstd()
    try:
        data = decompressor.decompress(body, BODY_LIMIT + 1)
    except failure as error:
        raise BadRequest(400, f"the request's body is not {coding}: {error}") from None
    if len(data) > BODY_LIMIT:
        raise BadRequest(413, f"the request's body is longer than {BODY_LIMIT} bytes without its compression")
    if not decompressor.eof or decompressor.unused_data:
        raise BadRequest(400, f"the request's body is not one whole {coding} stream")
    return data


def _gzip() -> tuple[Decompressor, type[Exception]]:
    return cast("Decompressor", zlib.decompressobj(16 + zlib.MAX_WBITS)), zlib.error


def _zstd() -> tuple[Decompressor, type[Exception]]:
    for name in ZSTD_MODULES:
        try:
            module = import_module(name)
        except ImportError:
            continue
        options = {module.DecompressionParameter.window_log_max: MOST_WINDOW}
        return module.ZstdDecompressor(options=options), module.ZstdError
    text = "content-encoding 'zstd' needs Python 3.14 at the gateway, or pip install '.[zstd]' in manystream's checkout"
    raise BadRequest(415, f"{text}: send the body with gzip, or uncompressed")


def with_model(body: bytes, members: JSONObject, model: str) -> bytes:
    """Return the body with another name of the model. members: the body, parsed."""
    if members.get("model") == model:
        return body
    found = list(_MODEL.finditer(body))
    if len(found) == 1:
        start, end = found[0].span(1)
        changed = body[:start] + dumps(model) + body[end:]
        if loads_object(changed).get("model") == model:
            return changed
    return dumps({**members, "model": model})  # other objects have such a member, too


def with_members(body: bytes, members: JSONObject, added: dict[str, JSON]) -> bytes:
    """Return the body with members that it has not yet at its end, or with another value. members: the body, parsed."""
    if not added:
        return body
    if not members or added.keys() & members.keys():
        return dumps({**members, **added})
    return body.rstrip()[:-1] + b"," + dumps(added)[1:]
