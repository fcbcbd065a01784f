"""OpenAI's SDK reads the simulator's answers of the dialect Responses."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from openai.types.responses import FunctionToolParam

from manystream.simulator import HEADER, Simulator
from tests.manystream.simulator.test_openai_chat import scenario

QUESTION = "What is the weather?"


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


RESPONSES_TOOL: FunctionToolParam = {"type": "function", "name": "weather", "parameters": {**CITY}, "strict": True}


@pytest.fixture(scope="module")
def client(simulator_process: Simulator) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        api_key="sk-test", base_url=simulator_process.base_urls["openai-chat"], max_retries=0, timeout=20
    ) as opened:
        yield opened


@pytest.mark.parametrize("model", ["sim-text", "sim-thinking", "sim-tools", "sim-mixed"])
def test_responses_streams_what_the_unstreamed_answer_has(client: openai.OpenAI, model: str) -> None:
    expected = scenario(model, tools=True)
    text = thinking = arguments = ""
    numbers: list[int] = []
    with client.responses.stream(
        model=model, input=QUESTION, tools=[RESPONSES_TOOL], include=["reasoning.encrypted_content"]
    ) as stream:
        for event in stream:
            numbers.append(event.sequence_number)
            if event.type == "response.output_text.delta":
                text += event.delta
            elif event.type == "response.reasoning_summary_text.delta":
                thinking += event.delta
            elif event.type == "response.function_call_arguments.delta":
                arguments += event.delta
        streamed = stream.get_final_response()
    whole = client.responses.create(
        model=model, input=QUESTION, tools=[RESPONSES_TOOL], include=["reasoning.encrypted_content"]
    )
    assert numbers == list(range(len(numbers)))
    assert (text, thinking) == (expected.text, expected.thinking)
    assert arguments == "".join(arguments for _, arguments in expected.tool_calls)
    assert streamed.output_text == whole.output_text == expected.text
    assert whole.status == streamed.status == "completed"
    assert [item.type for item in whole.output] == [item.type for item in streamed.output]
    calls = [item for item in whole.output if item.type == "function_call"]
    assert [(call.name, call.arguments) for call in calls] == expected.tool_calls
    reasoning = [item for item in whole.output if item.type == "reasoning"]
    assert ["".join(part.text for part in item.summary) for item in reasoning] == ([thinking] if thinking else [])
    assert all(item.encrypted_content for item in reasoning)
    assert whole.usage is not None
    assert whole.usage.output_tokens_details.reasoning_tokens == expected.tokens.thinking


def test_reasoning_that_comes_back_changed_is_refused(client: openai.OpenAI) -> None:
    include: list[openai.types.responses.ResponseIncludable] = ["reasoning.encrypted_content"]
    first = client.responses.create(model="sim-mixed", input=QUESTION, tools=[RESPONSES_TOOL], include=include)
    items = [item.model_dump(exclude_none=True) for item in first.output]
    for item in [item for item in first.output if item.type == "function_call"]:
        items.append({"type": "function_call_output", "call_id": item.call_id, "output": "Rain"})
    question = {"role": "user", "content": QUESTION}
    body: dict[str, object] = {"model": "sim-mixed", "input": [question, *items]}
    second = client.post("/responses", body=body, cast_to=openai.types.responses.Response)
    assert "Rain" in second.output_text
    items[0]["encrypted_content"] = items[0]["encrypted_content"][:-1] + "x"
    body["input"] = [question, *items]
    with pytest.raises(openai.BadRequestError, match="could not be verified"):
        client.post("/responses", body=body, cast_to=openai.types.responses.Response)


def test_responses_incomplete_says_why(client: openai.OpenAI) -> None:
    response = client.responses.create(
        model="sim-text", input=QUESTION, max_output_tokens=16, extra_headers={HEADER: "finish=length"}
    )
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
