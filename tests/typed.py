"""What type checkers see: `make lint` runs mypy and pyright over this module. It is not run."""

from __future__ import annotations

from typing import Annotated, Literal, Optional, assert_never, assert_type

import manystream as ms


def by_name(event: ms.Event) -> None:
    """The name of an event's type narrows the event to its class, up to the last one."""
    if event.type == "start":
        assert_type(event, ms.Start)
    elif event.type == "text_delta":
        assert_type(event, ms.TextDelta)
    elif event.type == "thinking_delta":
        assert_type(event, ms.ThinkingDelta)
    elif event.type == "tool_call_start":
        assert_type(event, ms.ToolCallStart)
    elif event.type == "tool_call_delta":
        assert_type(event, ms.ToolCallDelta)
    elif event.type == "tool_call_done":
        assert_type(event, ms.ToolCallDone)
    elif event.type == "done":
        assert_type(event, ms.Done)
    elif event.type == "error":
        assert_type(event, ms.ErrorEvent)
    else:
        assert_never(event)


def types_of_answers(given: type) -> None:
    """A structured answer may have any type that pydantic reads; a text is none."""
    ms.Request("m", "x", response_schema=ms.Text)
    ms.Request("m", "x", response_schema=given)
    ms.Request("m", "x", response_schema=list[ms.Text])
    ms.Request("m", "x", response_schema=ms.Text | None)
    ms.Request("m", "x", response_schema=Optional[ms.Text])  # noqa: UP045
    ms.Request("m", "x", response_schema=Literal["a", "b"])
    ms.Request("m", "x", response_schema=Annotated[int, "metres"])
    ms.Request("m", "x", response_schema="River")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def by_member(event: ms.Event) -> None:
    """So do the members of `EventType`, also in a `match`."""
    if event.type == ms.EventType.TEXT_DELTA:
        assert_type(event, ms.TextDelta)
    if event.type != ms.EventType.ERROR:
        return
    assert_type(event, ms.ErrorEvent)


def by_match(event: ms.Event) -> str:
    match event.type:
        case ms.EventType.TEXT_DELTA | ms.EventType.THINKING_DELTA:
            return event.text
        case "tool_call_delta":
            return event.arguments
        case _:
            return ""
