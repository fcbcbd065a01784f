"""Members of a body that are sent as they were given."""

from __future__ import annotations

import manystream as ms
from manystream.providers.model.given_body import GivenBody
from tests.providers.convert.test_plain_forms import MESSAGE

# --- the given form of a body ---
SOURCES = {"a": ("seed",), "b.c": ("stop", "top_p"), "d": ("top_p",), "e": ("messages",)}


def given_body(request: ms.Request, written: frozenset[str] = frozenset()) -> GivenBody:
    from manystream.providers.model.given_body import given_body as make

    return make("chat", {"a": 1, "b.c": [2], "e": "u"}, request, SOURCES, written)


def restored(request: ms.Request, body: GivenBody, dialect: str = "chat") -> tuple[object, list[str]]:
    members: dict[str, object] = {"a": 7, "b": {"c": 8}, "d": 9, "e": [], "x": 0}
    warnings = ["seed: w", "stop is w", "other: w", "top_p: w", ""]
    body.restore(dialect, members, request, SOURCES, warnings)  # type: ignore[arg-type]
    return members, warnings


def test_members_of_unchanged_fields_are_sent_as_given() -> None:
    request = ms.Request("m", [MESSAGE], seed=1)
    body = given_body(request)
    assert restored(request, body) == ({"a": 1, "b": {"c": [2]}, "e": "u", "x": 0}, ["other: w", ""])
    written: dict[str, object] = {"a": 7, "b": {"c": 8}, "d": 9, "e": [], "x": 0}
    assert restored(request, body, "other") == (written, ["seed: w", "stop is w", "other: w", "top_p: w", ""])
    changed = ms.Request("m", [MESSAGE], seed=2)
    assert restored(changed, body) == ({"a": 7, "b": {"c": [2]}, "e": "u", "x": 0}, ["seed: w", "other: w", ""])
    changed = ms.Request("m", [MESSAGE], seed=1, top_p=0.5)
    assert restored(changed, body) == ({**written, "a": 1, "e": "u"}, ["other: w", "top_p: w", ""])
    changed = ms.Request("m", [MESSAGE, MESSAGE], seed=1)
    assert restored(changed, body)[0] == {"a": 1, "b": {"c": [2]}, "e": [], "x": 0}
    kept = given_body(request, frozenset({"a", "d"}))
    assert restored(request, kept)[0] == {"a": 7, "b": {"c": [2]}, "d": 9, "e": "u", "x": 0}


def test_a_member_of_an_object_is_put_and_removed() -> None:
    request = ms.Request("m", [MESSAGE])
    sources = {"a.b.c": ("seed",), "a.d": ("stop",)}
    body: dict[str, object] = {}
    put = GivenBody("chat", {"a.b.c": 1}, frozenset(), {"seed": None, "stop": ()}, None)
    put.restore("chat", body, request, sources, [])  # type: ignore[arg-type]
    assert body == {"a": {"b": {"c": 1}}}
    body = {"a": {"b": {"c": 1}, "d": 2}, "x": 0}
    gone = GivenBody("chat", {}, frozenset(), {"seed": None, "stop": ()}, None)
    gone.restore("chat", body, request, sources, [])  # type: ignore[arg-type]
    assert body == {"x": 0}
    body = {"a": 7}
    gone.restore("chat", body, request, sources, [])  # type: ignore[arg-type]
    assert body == {"a": 7}
