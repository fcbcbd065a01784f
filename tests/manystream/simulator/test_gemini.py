"""Google's SDK reads the simulator's answers, streamed and unstreamed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from google import genai
from google.genai import _interactions_errors, errors, types

from manystream.simulator import HEADER, Knobs, Prompt, Scenario, Simulator, ToolDeclaration, combine, write_scenario

QUESTION = "What is the weather?"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = types.Tool(function_declarations=[types.FunctionDeclaration(name="weather", parameters_json_schema={**SCHEMA})])


def scenario(model: str, directive: str = "events=8,text=unicode") -> Scenario:
    """The answer that the simulator gives to `QUESTION`."""
    declared = (ToolDeclaration("weather", {**SCHEMA}),)
    kind = f"kind={model.removeprefix('sim-')}"
    prompt = Prompt(model=model, text=QUESTION, characters=len(QUESTION), tools=declared)
    return write_scenario(prompt, combine(Knobs(), kind, directive))


def config(directive: str = "events=8,text=unicode", *, tools: bool = True) -> types.GenerateContentConfig:
    """A request configuration with a directive, and with tools that the SDK does not call by itself."""
    return types.GenerateContentConfig(
        tools=[TOOL] if tools else None,
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        http_options=types.HttpOptions(headers={HEADER: directive}),
    )


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


def parts_of(response: types.GenerateContentResponse) -> list[types.Part]:
    """The parts of the only candidate."""
    assert response.candidates is not None
    content = response.candidates[0].content
    return (content.parts or []) if content is not None else []


@pytest.mark.parametrize("model", ["sim-text", "sim-thinking", "sim-tools", "sim-mixed"])
def test_a_stream_has_what_the_unstreamed_answer_has(client: genai.Client, model: str) -> None:
    expected = scenario(model)
    chunks = list(client.models.generate_content_stream(model=model, contents=QUESTION, config=config()))
    whole = client.models.generate_content(model=model, contents=QUESTION, config=config())
    for parts in ([part for chunk in chunks for part in parts_of(chunk)], parts_of(whole)):
        assert "".join(part.text or "" for part in parts if not part.thought) == expected.text
        assert "".join(part.text or "" for part in parts if part.thought) == expected.thinking
        calls = [part.function_call for part in parts if part.function_call]
        assert [call.name for call in calls] == [name for name, _ in expected.tool_calls]
        assert all(call.args and call.id for call in calls)
        signed = [part for part in parts if part.thought_signature]
        assert len(signed) == (1 if expected.thinking else 0)
    assert whole.candidates is not None
    assert whole.candidates[0].finish_reason == types.FinishReason.STOP
    assert chunks[-1].usage_metadata == whole.usage_metadata
    assert whole.usage_metadata is not None
    tokens = expected.tokens
    assert whole.usage_metadata.candidates_token_count == tokens.output
    assert whole.usage_metadata.thoughts_token_count == (tokens.thinking or None)
    assert whole.usage_metadata.total_token_count == tokens.input + tokens.output + tokens.thinking
    assert whole.model_version == model


def test_usage_in_a_stream_is_cumulative(client: genai.Client) -> None:
    chunks = client.models.generate_content_stream(model="sim-text", contents=QUESTION, config=config())
    counts = [chunk.usage_metadata.candidates_token_count for chunk in chunks if chunk.usage_metadata]
    assert counts == [1, 2, 3, 4, 5, 6, 7, 8, 8]


def test_an_agent_loop_ends_and_its_signature_is_checked(client: genai.Client) -> None:
    first = client.models.generate_content(model="sim-mixed", contents=QUESTION, config=config())
    assert first.candidates is not None
    called = first.candidates[0].content
    assert called is not None
    calls = [part.function_call for part in parts_of(first) if part.function_call]
    answers = [
        types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name,
        response={"output": "Rain, 12°"})) for call in calls
    ]  # fmt: skip
    history = [
        types.Content(role="user", parts=[types.Part(text=QUESTION)]),
        called,
        types.Content(role="user", parts=answers),
    ]
    second = client.models.generate_content(model="sim-mixed", contents=history, config=config())
    assert not [part for part in parts_of(second) if part.function_call]
    assert "Rain, 12°" in (second.text or "")
    signed = next(part for part in called.parts or [] if part.thought_signature)
    assert signed.function_call is not None
    signed.function_call.args = {"city": "elsewhere"}
    with pytest.raises(errors.ClientError, match="Thought signature is not valid"):
        client.models.generate_content(model="sim-mixed", contents=history, config=config())


def test_a_schema_is_answered_with_json_that_fits(client: genai.Client) -> None:
    answer = client.models.generate_content(
        model="sim-text",
        contents=QUESTION,
        config=types.GenerateContentConfig(
            response_mime_type="application/json",
            response_schema=types.Schema(
                type=types.Type.OBJECT,
                properties={
                    "size": types.Schema(type=types.Type.STRING, enum=["small", "large"]),
                    "counts": types.Schema(type=types.Type.ARRAY, items=types.Schema(type=types.Type.INTEGER)),
                },
            ),
        ),
    )
    assert isinstance(answer.parsed, dict)
    assert answer.parsed["size"] == "small"
    assert all(isinstance(count, int) for count in answer.parsed["counts"])


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_finish_reasons(client: genai.Client, finish: str) -> None:
    answer = client.models.generate_content(
        model="sim-text", contents=QUESTION, config=config(f"finish={finish}", tools=False)
    )
    assert answer.candidates is not None
    expected = {"length": types.FinishReason.MAX_TOKENS, "content_filter": types.FinishReason.SAFETY}
    assert answer.candidates[0].finish_reason == expected[finish]


STATUSES = [
    (400, "INVALID_ARGUMENT"), (401, "UNAUTHENTICATED"), (403, "PERMISSION_DENIED"), (404, "NOT_FOUND"),
    (429, "RESOURCE_EXHAUSTED"), (500, "INTERNAL"), (503, "UNAVAILABLE"),
]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("code", "status"), STATUSES)
def test_error_statuses_raise_the_clients_own_errors(
    client: genai.Client, code: int, status: str, stream: bool
) -> None:
    ask = client.models.generate_content_stream if stream else client.models.generate_content
    with pytest.raises(errors.APIError) as caught:
        list(ask(model="sim-text", contents=QUESTION, config=config(f"fail={code}")))
    assert (caught.value.code, caught.value.status) == (code, status)


def test_an_error_inside_a_stream_raises(client: genai.Client) -> None:
    with pytest.raises(errors.APIError) as caught:
        list(
            client.models.generate_content_stream(
                model="sim-text", contents=QUESTION, config=config("error=3,error-status=503")
            )
        )
    assert caught.value.code == 503


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
