"""Google's SDK reads the simulator's interactions, streamed, unstreamed and in the background."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from google import genai
from google.genai import _interactions_errors, types

from manystream.simulator import HEADER, Simulator
from tests.manystream.simulator.test_gemini import scenario

QUESTION = "What is the weather?"


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.fixture(scope="module", params=["v1beta", "v1"])
def client(simulator_process: Simulator, request: pytest.FixtureRequest) -> Iterator[genai.Client]:
    options = types.HttpOptions(
        base_url=simulator_process.base_urls["gemini"],
        api_version=request.param,
        timeout=20_000,
        retry_options=types.HttpRetryOptions(attempts=1),
    )
    with genai.Client(api_key="test", http_options=options) as opened:
        yield opened


# --- interactions ---

FUNCTION: dict[str, Any] = {"type": "function", "name": "weather", "parameters": SCHEMA}


DIRECTIVE = {HEADER: "events=8,text=unicode"}


def joined(events: Iterable[Any], kind: str, member: str = "text") -> str:
    """What the deltas of one kind are together."""
    deltas = [event.delta for event in events if event.event_type == "step.delta" and event.delta.type == kind]
    return "".join(getattr(getattr(delta, "content", None) or delta, member) for delta in deltas)


@pytest.mark.parametrize("model", ["sim-text", "sim-thinking", "sim-tools", "sim-mixed"])
def test_a_streamed_interaction_has_what_the_unstreamed_one_has(client: genai.Client, model: str) -> None:
    expected = scenario(model)
    asked: dict[str, Any] = {"model": model, "input": QUESTION, "tools": [FUNCTION], "extra_headers": DIRECTIVE}
    events = list(client.interactions.create(**asked, stream=True))
    whole = client.interactions.create(**asked)
    assert joined(events, "text") == expected.text
    assert joined(events, "thought_summary") == expected.thinking
    arguments = joined(events, "arguments_delta", "arguments")
    assert arguments == "".join(text for _, text in expected.tool_calls)
    calls = [step for step in whole.steps or () if step.type == "function_call"]
    assert [(call.name, call.arguments) for call in calls] == [
        (name, json.loads(text)) for name, text in expected.tool_calls
    ]
    assert (whole.output_text or "") == expected.text
    last = events[-1]
    assert last.event_type == "interaction.completed"
    assert (last.interaction.id, last.interaction.status) == (whole.id, whole.status)
    assert whole.usage is not None
    counted = whole.usage.model_copy(update={"initial_input_tokens": None})  # the SDK adds it to unstreamed answers
    assert last.interaction.usage == counted
    assert whole.usage.total_output_tokens == expected.tokens.output
    assert whole.usage.total_thought_tokens == expected.tokens.thinking


@pytest.mark.parametrize("kept", [True, False])
def test_an_interaction_continues_with_the_tools_result(client: genai.Client, kept: bool) -> None:
    more: dict[str, Any] = {"model": "sim-tools", "tools": [FUNCTION], "extra_headers": DIRECTIVE, "store": kept}
    first = client.interactions.create(input=QUESTION, **more)
    assert first.status == "requires_action"
    steps = [step.model_dump(exclude_none=True) for step in first.steps or ()]
    [call] = [step for step in steps if step["type"] == "function_call"]
    result = {"type": "function_result", "call_id": call["id"], "name": "weather", "result": "Rain, 12 degrees"}
    if kept:
        second = client.interactions.create(input=[result], previous_interaction_id=first.id, **more)
    else:
        asked = {"type": "user_input", "content": [{"type": "text", "text": QUESTION}]}
        second = client.interactions.create(input=[asked, *steps, result], **more)
    assert second.status == "completed"
    assert "Rain, 12 degrees" in (second.output_text or "")
    if kept:
        shown = client.interactions.get(second.id or "").steps or ()
        assert [step.type for step in shown] == ["user_input", "function_call", "function_result", "model_output"]
        third = client.interactions.create(input="And tomorrow?", previous_interaction_id=second.id, **more)
        assert third.status == "requires_action"


@pytest.mark.parametrize("place", range(0, 27, 2))
def test_an_interaction_is_read_again_from_its_last_event_id(client: genai.Client, place: int) -> None:
    asked: dict[str, Any] = {"model": "sim-mixed", "input": QUESTION, "background": True, "stream": True}
    stream = client.interactions.create(**asked, extra_headers={HEADER: f"events=8,truncate={place}"})
    events = list(stream)
    assert len(events) == place
    if not events:
        return
    first = events[0]
    assert first.event_type == "interaction.created"
    known = max(number for number, event in enumerate(events) if event.event_id)
    rest = list(client.interactions.get(first.interaction.id, stream=True, last_event_id=events[known].event_id))
    every = list(client.interactions.get(first.interaction.id, stream=True))
    assert [*events[: known + 1], *rest] == every
    whole = client.interactions.get(first.interaction.id)
    assert whole.status == "requires_action"
    assert joined(every, "text") == whole.output_text


def test_an_unstreamed_interaction_is_streamed_by_its_id(client: genai.Client) -> None:
    created = client.interactions.create(model="sim-mixed", input=QUESTION, background=True, extra_headers=DIRECTIVE)
    events = list(client.interactions.get(created.id or "", stream=True))
    assert joined(events, "text") == client.interactions.get(created.id or "").output_text
    foreground = client.interactions.create(model="sim-text", input=QUESTION)
    with pytest.raises(_interactions_errors.BadRequestError, match="can be streamed"):
        client.interactions.get(foreground.id or "", stream=True)


def test_a_background_interaction_is_polled_and_deleted(client: genai.Client) -> None:
    more = {HEADER: "delay=1000"}
    waiting = client.interactions.create(model="sim-text", input="Hi.", background=True, extra_headers=more)
    id = waiting.id or ""
    assert (waiting.status, client.interactions.get(id).status) == ("in_progress", "in_progress")
    assert client.interactions.cancel(id).status == "cancelled"
    assert client.interactions.get(id).status == "cancelled"
    client.interactions.delete(id)
    with pytest.raises(_interactions_errors.NotFoundError, match="not found"):
        client.interactions.get(id)


@pytest.mark.parametrize(
    ("directive", "kind"),
    [
        ("fail=400", _interactions_errors.BadRequestError),
        ("fail=401", _interactions_errors.AuthenticationError),
        ("fail=404", _interactions_errors.NotFoundError),
        ("fail=429", _interactions_errors.RateLimitError),
        ("fail=500", _interactions_errors.InternalServerError),
    ],
)
def test_an_interaction_that_fails_raises_the_sdks_error(
    client: genai.Client, directive: str, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        client.interactions.create(model="sim-text", input="Hi.", extra_headers={HEADER: directive})


def test_an_error_inside_an_interaction_is_an_event(client: genai.Client) -> None:
    more = {HEADER: "error=4,error-status=503"}
    events = list(client.interactions.create(model="sim-text", input="Hi.", stream=True, extra_headers=more))
    last = events[-1]
    assert last.event_type == "error"
    assert last.error is not None
    assert last.error.code == "unavailable"
