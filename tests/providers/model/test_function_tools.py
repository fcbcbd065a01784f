"""Functions as tools."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal, cast

import pydantic
import pytest

import manystream as ms
from tests.providers.model.test_structured import Lake, Unknown


# --- functions as tools ---
def google(city: str, days: int = 3, *, unit: Literal["c", "f"] = "c") -> str:
    """The weather in a city.

    It is a forecast.

    Args:
        city: The city's name,
            in English.
        days (int): How many days: 1 to 7.
        unit: Celsius or Fahrenheit.

    Returns:
        The weather.
    """
    return f"{city} {days} {unit}"


def numpy(city: str, days: int = 3, *, unit: Literal["c", "f"] = "c") -> str:
    """The weather in a city.

    It is a forecast.

    Parameters
    ----------
    city : str
        The city's name,
        in English.
    days
        How many days: 1 to 7.
    unit : str, optional
        Celsius or Fahrenheit.

    Returns
    -------
    str
        The weather.
    """
    return f"{city} {days} {unit}"


async def sphinx(city: str, days: int = 3, *, unit: Literal["c", "f"] = "c") -> str:
    """The weather in a city.

    It is a forecast.

    :param city: The city's name,
        in English.
    :type city: str
    :param int days: How many days: 1 to 7.
    :keyword unit: Celsius or Fahrenheit.
    :returns: The weather.
    """
    return f"{city} {days} {unit}"


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_a_function_is_a_tool(function: Callable[..., object]) -> None:
    tool = ms.Tool.from_function(function)
    assert (tool.name, tool.description) == (function.__name__, "The weather in a city.\n\nIt is a forecast.")
    assert tool.parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "city": {"type": "string", "description": "The city's name, in English."},
            "days": {"type": "integer", "default": 3, "description": "How many days: 1 to 7."},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c", "description": "Celsius or Fahrenheit."},
        },
        "required": ["city"],
    }
    assert pydantic.TypeAdapter(google).validate_json('{"city":"Oslo"}') == "Oslo 3 c"


class Forecast:
    def __call__(self, city: str, days: int = 3, *, unit: Literal["c", "f"] = "c") -> str:
        return google(city, days, unit=unit)

    __call__.__doc__ = google.__doc__


@pytest.mark.parametrize(
    "function",
    [
        functools.lru_cache(google),
        pydantic.validate_call(google),
        Forecast(),
        Forecast().__call__,
        functools.partial(google),
    ],
)
def test_a_callable_around_a_function_is_the_same_tool(function: Callable[..., object]) -> None:
    tool = ms.Tool.from_function(function, name="google")
    assert tool == ms.Tool.from_function(google)
    bound = ms.Tool.from_function(functools.partial(function, days=1), name="google")
    assert bound.description == tool.description
    assert bound.parameters["properties"].keys() == {"city", "unit"}


def test_a_description_in_the_signature_comes_first() -> None:
    def find(what: Annotated[str, pydantic.Field(description="Own.", min_length=1)], at: Lake | None = None) -> None:
        """Args:
        what: Of the docstring.
        """

    tool = ms.Tool.from_function(find, name="look", description="Looks.", strict=True)
    assert (tool.name, tool.description, tool.strict) == ("look", "Looks.", True)
    properties = cast("dict[str, dict[str, object]]", tool.parameters["properties"])
    assert properties["what"] == {"type": "string", "minLength": 1, "description": "Own."}
    assert "$defs" in tool.parameters
    assert ms.Tool.from_function(find).description == ""
    assert ms.Tool.from_function(lambda: None, name="nothing").parameters["properties"] == {}


NO_TOOLS: list[tuple[Any, str]] = [
    (5, "function: must be a function, not int"),
    (lambda x: x, "name: is missing, and the function has none"),
    (lambda x, /: x, "function: the parameter 'x' has no name in a call"),
    (lambda *x: x, "function: the parameter 'x' has no name in a call"),
]


@pytest.mark.parametrize(("function", "words"), NO_TOOLS)
def test_what_is_no_tool_is_refused(function: Any, words: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        ms.Tool.from_function(function)
    assert str(caught.value) == words


def test_a_signature_that_pydantic_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(x: Unknown) -> None: ...

    odd.__annotations__["x"] = Unknown
    with pytest.raises(ms.InvalidRequestError, match=r"^function: pydantic makes no schema of its signature: Unable"):
        ms.Tool.from_function(odd)
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(ms.InvalidRequestError, match=r"^function: needs pydantic: pip install pydantic$"):
        ms.Tool.from_function(google)
