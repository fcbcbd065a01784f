"""Changes in a client's body: another name of the model, and the members that a slot adds. All other bytes stay."""

from __future__ import annotations

import re

from ..providers.json.json_values import JSON, JSONObject, dumps, loads_object

_MODEL = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')
"""A member `model`. It matches no text inside a string, where the quotes are escaped."""


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
