"""Members of an object: taken once, and refused by their path."""

import pytest

import manystream as ms
from manystream.providers.json.json_values import MalformedJSONError, required_objects
from manystream.providers.json.object_reader import Members


def test_an_array_of_objects_that_is_required() -> None:
    empty: list[ms.JSON] = [None, [], "", 0, {}]
    assert [required_objects(value, "x") for value in empty] == [[]] * 5
    assert required_objects([{"a": 1}, None, {}], "x") == [{"a": 1}, {}]
    with pytest.raises(MalformedJSONError, match=r"^x is no array$"):
        required_objects({"a": 1}, "x")
    with pytest.raises(MalformedJSONError, match=r"^x contains a value that is no object$"):
        required_objects([{}, 0], "x")


# --- members of an object that a person wrote ---
TAKES: list[tuple[str, ms.JSON, str]] = [
    ("text", 1, "must be text, not a number"),
    ("flag", "x", "must be true or false, not text"),
    ("whole", 1.5, "must be a whole number, not a number"),
    ("whole", True, "must be a whole number, not true or false"),
    ("number", True, "must be a number, not true or false"),
    ("number", float("inf"), "must be a number, not a number"),
    ("object", [1], "must be an object, not an array"),
    ("array", {"a": 1}, "must be an array, not an object"),
    ("objects", "x", "must be an array, not text"),
    ("texts", 1, "must be text or an array of texts, not a number"),
    ("strings", "x", "must be an object, not text"),
]


@pytest.mark.parametrize(("method", "value", "words"), TAKES)
def test_a_member_of_a_wrong_type_is_named(method: str, value: ms.JSON, words: str) -> None:
    for where, path in (("", "m"), ("a[1]", "a[1].m")):
        with pytest.raises(ms.InvalidRequestError) as caught:
            getattr(Members({"m": value}, where), method)("m")
        assert (caught.value.field, str(caught.value)) == (path, f"{path}: {words}")


NONE: dict[str, ms.JSON] = {
    "text": None, "flag": None, "whole": None, "number": None, "object": None, "array": None, "objects": [],
    "texts": [], "strings": None,
}  # fmt: skip


@pytest.mark.parametrize("method", NONE)
def test_a_member_may_be_missing_or_null(method: str) -> None:
    for value in ({}, {"m": None}):
        members = Members(value)  # type: ignore[arg-type]
        assert getattr(members, method)("m") == NONE[method]
        assert members.rest() == {}


def test_members_are_taken_once() -> None:
    given: ms.JSONObject = {"t": "x", "f": False, "w": 0, "n": 1.5, "o": {"a": 1}, "l": [1], "s": {"a": "b"}, "x": 1}
    members = Members(given)
    assert (members.text("t"), members.flag("f"), members.whole("w"), members.number("n")) == ("x", False, 0, 1.5)
    assert (members.object("o"), members.array("l"), members.strings("s")) == ({"a": 1}, [1], {"a": "b"})
    assert members.text("t") is None
    assert members.rest() == {"x": 1}
    assert len(given) == 8
    assert Members({"n": 3}).number("n") == 3
    assert Members({"a": "x"}).texts("a") == ["x"]
    assert Members({"a": ["x", "y"]}).texts("a") == ["x", "y"]
    assert Members({"a": [{"b": 1}]}).some_objects("a") == [{"b": 1}]
    assert Members({"a": ""}).needed_text("a") == ""


@pytest.mark.parametrize(
    ("method", "value", "error"),
    [
        ("objects", [{"a": 1}, 1], "w.m[1]: must be an object, not a number"),
        ("objects", [None], "w.m[0]: must be an object, not null"),
        ("some_objects", None, "w.m: must hold at least one message"),
        ("needed_text", None, "w.m: is missing"),
        ("texts", ["x", 1], "w.m[1]: must be text, not a number"),
        ("strings", {"a": "b", "c": 1}, "w.m.c: must be text, not a number"),
    ],
)
def test_a_wrong_value_inside_a_member_is_named(method: str, value: ms.JSON, error: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        getattr(Members({"m": value}, "w"), method)("m")
    assert str(caught.value) == error


def test_a_misspelt_member_is_refused_with_a_hint() -> None:
    Members({}).end(("model",))
    for name, hint in (("modle", "did you mean 'model'?"), ("zz", "its members are model, stop")):
        with pytest.raises(ms.InvalidRequestError) as caught:
            Members({name: 1}, "w").end(("model", "stop"))
        assert str(caught.value) == f"w.{name}: is not a member of this form; {hint}"
