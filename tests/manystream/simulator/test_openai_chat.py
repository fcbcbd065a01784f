"""OpenAI's SDK reads the simulator's answers in both dialects, streamed and unstreamed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionToolParam

from manystream.simulator import HEADER, Knobs, Prompt, Scenario, Simulator, ToolDeclaration, combine, write_scenario

QUESTION = "What is the weather?"


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


CHAT_TOOL: ChatCompletionToolParam = {"type": "function", "function": {"name": "weather", "parameters": {**CITY}}}


def scenario(model: str, directive: str = "events=8,text=unicode", *, tools: bool = False) -> Scenario:
    """The answer that the simulator gives to `QUESTION`."""
    declared = (ToolDeclaration("weather", {**CITY}),) if tools else ()
    kind = f"kind={model.removeprefix('sim-')}"
    return write_scenario(Prompt(model=model, text=QUESTION, tools=declared), combine(Knobs(), kind, directive))


@pytest.fixture(scope="module")
def client(simulator_process: Simulator) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        api_key="sk-test", base_url=simulator_process.base_urls["openai-chat"], max_retries=0, timeout=20
    ) as opened:
        yield opened


def test_a_chat_answer_says_that_it_is_no_refusal(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="sim-text", messages=[{"role": "user", "content": QUESTION}])
    with client.chat.completions.create(
        model="sim-text", messages=[{"role": "user", "content": QUESTION}], stream=True
    ) as stream:
        first = next(iter(stream))
    assert whole.choices[0].message.to_dict(exclude_unset=True) == {
        "role": "assistant", "content": scenario("sim-text").text, "refusal": None, "annotations": [],
    }  # fmt: skip
    assert first.choices[0].delta.to_dict() == {"role": "assistant", "content": "", "refusal": None}


@pytest.mark.parametrize("model", ["sim-text", "sim-thinking"])
def test_chat_streams_text_and_thinking(client: openai.OpenAI, model: str) -> None:
    expected = scenario(model)
    text = thinking = ""
    finishes: list[str] = []
    with client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": QUESTION}], stream=True
    ) as stream:
        for chunk in stream:
            assert chunk.usage is None
            text += chunk.choices[0].delta.content or ""
            thinking += getattr(chunk.choices[0].delta, "reasoning_content", None) or ""
            finishes += [chunk.choices[0].finish_reason] if chunk.choices[0].finish_reason else []
    assert (text, thinking, finishes) == (expected.text, expected.thinking, ["stop"])
    assert bool(thinking) == (model == "sim-thinking")


def test_a_chat_stream_accumulates_to_the_unstreamed_answer(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="sim-mixed",
        messages=[{"role": "user", "content": QUESTION}],
        tools=[CHAT_TOOL],
        stream_options={"include_usage": True},
    ) as stream:
        streamed = stream.get_final_completion()
    whole = client.chat.completions.create(
        model="sim-mixed", messages=[{"role": "user", "content": QUESTION}], tools=[CHAT_TOOL]
    )
    expected = scenario("sim-mixed", tools=True)
    for completion in (streamed, whole):
        message = completion.choices[0].message
        assert message.content == expected.text
        assert message.tool_calls is not None
        calls = [call.function for call in message.tool_calls if call.type == "function"]
        assert [(call.name, call.arguments) for call in calls] == expected.tool_calls
        assert completion.choices[0].finish_reason == "tool_calls"
        assert completion.usage is not None
        assert completion.usage.completion_tokens == expected.tokens.output + expected.tokens.thinking
    assert streamed.id == whole.id
    assert streamed.usage == whole.usage
    ids = [[call.id for call in c.choices[0].message.tool_calls or ()] for c in (streamed, whole)]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2


def test_a_chat_agent_loop_ends_with_the_tools_result(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(
        model="sim-tools", messages=[{"role": "user", "content": QUESTION}], tools=[CHAT_TOOL]
    )
    message = first.choices[0].message
    [call] = message.tool_calls or []
    second = client.chat.completions.create(
        model="sim-tools",
        messages=[
            {"role": "user", "content": QUESTION},
            {
                "role": "assistant",
                "tool_calls": [{"id": call.id, "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": call.id, "content": "Rain, 12 degrees"},
        ],
        tools=[CHAT_TOOL],
    )
    assert second.choices[0].finish_reason == "stop"
    assert "weather" in (second.choices[0].message.content or "")
    assert "Rain, 12 degrees" in (second.choices[0].message.content or "")
    assert second.id != first.id


def test_chat_answers_a_schema_with_json_that_fits(client: openai.OpenAI) -> None:
    schema = {
        "type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 18}},
        "required": ["name", "age"], "additionalProperties": False,
    }  # fmt: skip
    completion = client.chat.completions.create(
        model="sim-text",
        messages=[{"role": "user", "content": QUESTION}],
        response_format={"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}},
    )
    assert completion.choices[0].message.content is not None
    value = json.loads(completion.choices[0].message.content)
    assert sorted(value) == ["age", "name"]
    assert value["age"] >= 18


STATUS_ERRORS = [
    (400, openai.BadRequestError), (401, openai.AuthenticationError), (403, openai.PermissionDeniedError),
    (404, openai.NotFoundError), (429, openai.RateLimitError), (500, openai.InternalServerError),
    (503, openai.InternalServerError),
]  # fmt: skip


@pytest.mark.parametrize(("status", "error"), STATUS_ERRORS)
def test_chat_error_statuses_raise_the_clients_own_errors(
    client: openai.OpenAI, status: int, error: type[openai.APIStatusError]
) -> None:
    with pytest.raises(error) as caught:
        client.chat.completions.create(
            model="sim-text", messages=[{"role": "user", "content": QUESTION}], extra_headers={HEADER: f"fail={status}"}
        )
    assert caught.value.status_code == status
    assert caught.value.request_id
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["message"]


def test_the_client_retries_as_the_hint_says(simulator_process: Simulator) -> None:
    with openai.OpenAI(
        api_key="sk-test", base_url=simulator_process.base_urls["openai-chat"], max_retries=3, timeout=20
    ) as client:
        completion = client.chat.completions.create(
            model="sim-text",
            messages=[{"role": "user", "content": QUESTION}],
            extra_headers={HEADER: "fail=429,retry-after=0.01,times=2,key=sdk-retries"},
        )
    assert completion.choices[0].message.content == scenario("sim-text").text


def test_a_chat_error_inside_a_stream_raises_after_the_text(client: openai.OpenAI) -> None:
    seen: list[object] = []
    with (
        client.chat.completions.create(
            model="sim-text",
            messages=[{"role": "user", "content": QUESTION}],
            stream=True,
            extra_headers={HEADER: "error=3"},
        ) as stream,
        pytest.raises(openai.APIError, match="server had an error"),
    ):
        seen.extend(stream)
    assert len(seen) == 3


def test_the_asyncio_client_reads_many_streams_at_once(simulator_process: Simulator) -> None:
    async def one(client: openai.AsyncOpenAI, number: int) -> str:
        text = ""
        stream = await client.chat.completions.create(
            model="sim-text", messages=[{"role": "user", "content": f"Number {number}"}], stream=True
        )
        async with stream:
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
        return text

    async def all_of_them() -> list[str]:
        async with openai.AsyncOpenAI(
            api_key="sk-test", base_url=simulator_process.base_urls["openai-chat"], timeout=20
        ) as client:
            return await asyncio.gather(*(one(client, number) for number in range(20)))

    expected = [
        write_scenario(Prompt(model="sim-text", text=f"Number {number}"), Knobs(events=8, text="unicode")).text
        for number in range(20)
    ]
    assert asyncio.run(all_of_them()) == expected
