"""Programs and libraries read the annotations of public names at run time: type aliases, pydantic, `get_type_hints`."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterator

import pydantic
import pytest

import manystream as ms

LATE = {"Engine.stream", "Engine.map", "Engine.statistics", "Engine.record", "open_engine", "Profile"}
"""Their hints name a class whose module is imported when it is first used."""

ALIASES = ("APIKey", "Block", "Event", "JSON", "JSONObject", "OnCompletion", "OnEvent", "Price", "Sign")


def annotated() -> Iterator[tuple[str, object]]:
    for name in sorted(ms.__all__):
        value = getattr(ms, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            yield name, value
        if inspect.isclass(value):
            for member, function in vars(value).items():
                if inspect.isfunction(function) and not member.startswith("_"):
                    yield f"{name}.{member}", function


@pytest.mark.parametrize("name", ALIASES)
def test_an_alias_can_be_combined_in_an_annotation(name: str) -> None:
    alias = getattr(ms, name)
    assert not isinstance(alias, str)
    assert typing.get_args(alias | None)[-1] is type(None)


def test_every_alias_is_examined() -> None:
    others = {name for name in ms.__all__ if not inspect.isroutine(getattr(ms, name))}
    aliases = {name for name in others if not inspect.isclass(getattr(ms, name)) and name != "__version__"}
    assert aliases | {"JSON"} == set(ALIASES)  # `object` at run time


def test_isinstance_accepts_the_alias_of_a_union() -> None:
    assert isinstance(ms.TextDelta(0, "a"), ms.Event)
    assert not isinstance(ms.Text("a"), ms.Event)
    assert isinstance(ms.Text("a"), ms.Block)
    assert set(typing.get_args(ms.Event)) >= {ms.Start, ms.TextDelta, ms.Done, ms.ErrorEvent}


@pytest.mark.parametrize(("name", "value"), [pytest.param(*pair, id=pair[0]) for pair in annotated()])
def test_the_hints_of_public_names_can_be_resolved(name: str, value: object) -> None:
    if name in LATE:
        with pytest.raises(NameError):
            typing.get_type_hints(value)
    else:
        typing.get_type_hints(value)


def test_values_are_members_of_a_pydantic_model() -> None:
    class State(pydantic.BaseModel):
        messages: list[ms.Message]
        usage: ms.Usage | None = None
        tools: list[ms.Tool] = []
        events: list[ms.TextDelta | ms.Done] = []
        arguments: ms.JSONObject = {}

    State.model_rebuild(_types_namespace={"ms": ms})
    message = ms.Message.assistant([ms.Text("hello"), ms.ToolCall("call_1", "look_up", '{"n":1}')])
    state = State(messages=[message], usage=ms.Usage(input_tokens=3), arguments={"a": [1, None]})
    assert state.messages == [message]
    assert state.usage.input_tokens == 3
    assert state.model_dump()["messages"][0]["content"][0]["text"] == "hello"
    with pytest.raises(pydantic.ValidationError, match="messages"):
        State(messages=["hello"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def test_public_dataclasses_have_resolvable_fields() -> None:
    for name in sorted(ms.__all__):
        value = getattr(ms, name)
        if dataclasses.is_dataclass(value) and name not in LATE:
            hints = typing.get_type_hints(value)
            assert {field.name for field in dataclasses.fields(value)} <= hints.keys(), name
