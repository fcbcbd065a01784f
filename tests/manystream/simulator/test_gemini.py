"""Google's SDK reads the simulator's answers, streamed and unstreamed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google import genai
from google.genai import errors, types

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
