"""A request with a response schema: the response has the parsed object in each dialect, or there is a clear error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pydantic
import pytest

import manystream as ms
from manystream.providers.json.json_values import JSONObject
from manystream.providers.model.structured import fitted
from manystream.simulator import Simulator, open_simulator
from tests.support.peers import (
    NO_RETRY,
    STREAM_HEAD,
    Line,
    Recorder,
    answer,
    chat_answer,
    chat_stream,
    chunked,
    open_peer,
    replies,
)

SCHEMA: JSONObject = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}  # fmt: skip

MODELS = ["anthropic/claude-sonnet-4-5", "openai-responses/gpt-5.1", "google/gemini-2.5-pro", "openai-chat/gpt-4.1"]


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator("events=4") as started:
        yield started


def providers(origin: str) -> list[ms.Provider]:
    return [
        ms.Anthropic("key", origin, profile="anthropic"),
        ms.OpenAIResponses("key", f"{origin}/v1", profile="openai-responses"),
        ms.Gemini("key", origin, profile="google"),
        ms.OpenAIChat("key", f"{origin}/v1", profile="openai-chat"),
    ]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", MODELS)
async def test_the_parsed_object_is_on_the_response(simulator: Simulator, model: str, stream: bool) -> None:
    request = ms.Request(model, [ms.Message.user("How warm is it?")], response_schema=SCHEMA)
    async with ms.open_engine(providers(simulator.origin)) as engine:
        call = engine.start_stream(request) if stream else engine.start_request(request)
        completion = await call.wait()
    assert completion.success, completion.error
    assert isinstance(completion.response.parsed, dict)
    assert fitted(completion.response.parsed, SCHEMA) == completion.response.parsed


class Reading(pydantic.BaseModel):
    city: str
    degrees: int

    @pydantic.field_validator("degrees")
    @classmethod
    def _is_bearable(cls, degrees: int) -> int:
        if degrees > 1000:
            raise ValueError("this is too hot")
        return degrees


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", [Reading, list[Reading]])
async def test_an_instance_is_on_the_response(simulator: Simulator, kind: Any, model: str, stream: bool) -> None:
    request = ms.Request(model, "How warm is it?", response_schema=kind)
    async with ms.open_engine(providers(simulator.origin)) as engine:
        call = engine.start_stream(request) if stream else engine.start_request(request)
        response = (await call.wait()).response_or_raise()
    assert response.parse_error is None
    readings = response.parsed if kind is not Reading else [response.parsed]
    assert {type(reading) for reading in readings} <= {Reading}


@pytest.mark.parametrize("model", MODELS)
async def test_a_truncated_answer_has_its_reason_and_a_warning(simulator: Simulator, model: str) -> None:
    request = ms.Request(
        model, [ms.Message.user("How warm is it?")], response_schema=SCHEMA,
        extra_headers={"x-simulate": "finish=length,events=2"}, max_output_tokens=16,
    )  # fmt: skip
    async with ms.open_engine(providers(simulator.origin)) as engine:
        response = await engine.request(request)
    assert response.finish_reason is ms.FinishReason.LENGTH
    if response.parsed is None:
        assert any("cut off by the length limit" in warning for warning in response.warnings)


async def test_without_a_schema_nothing_is_parsed(simulator: Simulator) -> None:
    async with ms.open_engine(providers(simulator.origin)) as engine:
        response = await engine.request(ms.Request(MODELS[-1], [ms.Message.user("hi")]))
    assert response.parsed is None


@pytest.mark.parametrize("stream", [False, True])
async def test_a_text_that_does_not_fit_is_an_error_with_the_response(stream: bool) -> None:
    text = '{"city": "Oslo", "degrees": "warm"}'

    async def script(line: Line) -> None:
        await line.request()
        if stream:
            await line.send(STREAM_HEAD)
            await line.send(chunked(*chat_stream(text)))
        else:
            await line.send(answer(chat_answer(text)))

    recorder = Recorder()
    request = ms.Request("m", [ms.Message.user("x")], response_schema=SCHEMA)
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        if stream:
            call = engine.start_stream(request, recorder.on_event, recorder.on_completion)
        else:
            call = engine.start_request(request, recorder.on_completion)
        await call.wait()
    completion = recorder.completion
    assert completion.error is not None
    assert completion.error_category is ms.ErrorCategory.UNKNOWN
    assert not completion.error.retryable
    assert 'at $.degrees: must be integer, not "warm"' in completion.error.message
    assert (completion.response.text, completion.response.parsed) == (text, None)
    assert recorder.types[-1:] == (["ERROR"] if stream else [])
    assert "DONE" not in recorder.types


@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_validator_refuses_is_a_success_with_its_words(stream: bool) -> None:
    async def script(line: Line) -> None:
        await line.request()
        text = '{"city": "Oslo", "degrees": 1001}'
        if stream:
            await line.send(STREAM_HEAD)
            await line.send(chunked(*chat_stream(text)))
        else:
            await line.send(answer(chat_answer(text)))

    request = ms.Request("m", "x", response_schema=Reading)
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        call = engine.start_stream(request) if stream else engine.start_request(request)
        response = (await call.wait()).response_or_raise()
    assert (response.parsed, response.warnings) == (None, [])
    assert response.parse_error == (
        "1 validation error for Reading\ndegrees\n"
        "  Value error, this is too hot [type=value_error, input_value=1001, input_type=int]"
    )


async def test_an_answer_that_does_not_fit_is_not_retried() -> None:
    async with open_peer(replies(answer(chat_answer("no JSON")))) as peer, ms.open_engine([peer.chat]) as engine:
        with pytest.raises(ms.ProviderError, match="the answer is not JSON: 'no JSON'"):
            await engine.request(ms.Request("m", [ms.Message.user("x")], response_schema=SCHEMA))
    assert len(peer.requests) == 1
