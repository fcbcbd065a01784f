"""External names that the engine uses: header names, media types, OpenTelemetry's conventions."""

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

import manystream as ms
from manystream.engine.observe.recording import REQUEST_HEADERS, RESPONSE_HEADER_PREFIXES, RESPONSE_HEADERS
from manystream.engine.request.redaction import HARMLESS_QUERY
from manystream.otel import OPERATIONS, PROVIDER_NAMES, REQUEST_ATTRIBUTES
from tests.support.peers import NO_RETRY, answer, chat_answer, hello, open_peer, reply_once


async def completion_of(response: bytes, *, stream: bool) -> ms.Completion:
    """Return the completion of a call whose server sends these bytes."""

    async with open_peer(reply_once(response)) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        start = engine.start_stream if stream else engine.start_request
        return await start(hello()).wait()


@pytest.mark.parametrize(
    "name", ["x-request-id", "request-id", "x-goog-request-id", "apim-request-id", "x-ms-request-id", "cf-ray"]
)
async def test_every_request_id_header_of_a_response_is_kept(name: str) -> None:
    completion = await completion_of(answer(chat_answer("hi"), headers=f"{name}: r-1\r\n"), stream=False)
    assert completion.success
    assert completion.request_id == "r-1"


@pytest.mark.parametrize("kind", ["application/json", "text/json", "application/json; charset=utf-8"])
async def test_a_stream_request_may_get_an_unstreamed_response(kind: str) -> None:
    completion = await completion_of(answer(chat_answer("hi"), kind=kind), stream=True)
    assert completion.response.text == "hi"


@pytest.mark.parametrize("kind", ["text/html", "application/xhtml+xml", "image/png", "audio/mpeg", "video/mp4"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_page_or_a_picture_is_not_a_response(kind: str, stream: bool) -> None:
    completion = await completion_of(answer("data: [DONE]\n\n", kind=kind), stream=stream)
    assert completion.error.category is ms.ErrorCategory.SERVER
    assert b"[DONE]" in completion.error.body


def test_providers_have_the_names_of_opentelemetry_s_conventions() -> None:
    assert PROVIDER_NAMES == {
        "openai-chat": "openai", "openai-responses": "openai", "anthropic": "anthropic",
        "anthropic-openai": "anthropic", "google": "gcp.gemini", "google-interactions": "gcp.gemini",
        "google-openai": "gcp.gemini", "azure": "azure.ai.openai", "azure-deployment": "azure.ai.openai",
        "azure-responses": "azure.ai.openai", "azure-models": "azure.ai.inference", "foundry": "azure.ai.inference",
        "bedrock-mantle": "aws.bedrock", "bedrock-responses": "aws.bedrock", "bedrock-anthropic": "aws.bedrock",
        "vertex-anthropic": "gcp.vertex_ai",
        "groq-responses": "groq", "mistral": "mistral_ai", "xai": "x_ai", "xai-responses": "x_ai",
    }  # fmt: skip
    assert {*PROVIDER_NAMES.values()} <= {name.value for name in gen_ai_attributes.GenAiProviderNameValues}


def test_the_attributes_follow_opentelemetry_s_conventions() -> None:
    assert {"gemini": gen_ai_attributes.GenAiOperationNameValues.GENERATE_CONTENT.value} == OPERATIONS
    assert REQUEST_ATTRIBUTES == {
        gen_ai_attributes.GEN_AI_REQUEST_MAX_TOKENS: "max_output_tokens",
        gen_ai_attributes.GEN_AI_REQUEST_TEMPERATURE: "temperature",
        gen_ai_attributes.GEN_AI_REQUEST_TOP_P: "top_p",
        gen_ai_attributes.GEN_AI_REQUEST_SEED: "seed",
    }


def test_a_recording_writes_these_headers_and_no_others() -> None:
    """None of these headers contains a key or a cookie."""
    assert {
        "accept", "anthropic-beta", "anthropic-version", "content-type", "openai-beta", "user-agent",
    } == REQUEST_HEADERS  # fmt: skip
    assert {
        "cf-ray", "content-encoding", "content-type", "date", "request-id", "retry-after", "retry-after-ms", "server",
        "x-goog-request-id", "x-request-id", "x-should-retry",
    } == RESPONSE_HEADERS  # fmt: skip
    assert set(RESPONSE_HEADER_PREFIXES) == {
        "anthropic-ratelimit-", "ratelimit-", "x-ratelimit-", "x-rate-limit-",
        "llm_provider-anthropic-ratelimit-", "llm_provider-retry-after", "llm_provider-x-ratelimit-",
    }  # fmt: skip
    assert {"alt", "api-version", "beta"} == HARMLESS_QUERY
