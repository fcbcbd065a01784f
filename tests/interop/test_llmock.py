"""llmock, a server that others wrote: all four dialects, streamed and not, and its faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio

import manystream as ms
from manystream.providers.provider import Provider

from .asking import DIALECTS, MODELS, WEATHER, Told, ask
from .processes import MissingServerError, Running, llmock

pytestmark = [pytest.mark.servers, pytest.mark.trio, pytest.mark.timeout(900)]  # the first one installs a server

PATHS = {"openai-chat": "/v1", "openai-responses": "/v1", "anthropic": "/anthropic", "gemini": "/gemini"}
SAID = "Grüße aus Łódź 👋🏽 — and 一切都好."


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    try:
        with llmock() as running:
            yield running
    except MissingServerError as missing:
        pytest.skip(f"llmock: {missing}")


@pytest.fixture
def clean(server: Running) -> Running:
    server.post("/_llmock/reset")
    return server


def provider(server: Running, dialect: str) -> Provider:
    return DIALECTS[dialect]("key", server.origin + PATHS[dialect])


def plan(server: Running, *behaviours: dict[str, object]) -> None:
    server.post("/_llmock/scenario", {"behaviors": list(behaviours)})


def question(dialect: str, **options: object) -> ms.Request:
    return ms.Request(MODELS[dialect], [ms.Message.user("What is the weather in Paris?")], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_text_is_the_same_streamed_and_unstreamed(clean: Running, dialect: str) -> None:
    plan(clean, {"type": "reply", "text": SAID, "times": 2})
    whole = await ask(provider(clean, dialect), question(dialect), stream=False)
    streamed = await ask(provider(clean, dialect), question(dialect), stream=True)
    assert whole.response.text == streamed.response.text == streamed.text == SAID
    assert whole.response.finish_reason is streamed.response.finish_reason is ms.FinishReason.STOP
    for told in (whole, streamed):
        assert told.response.usage.input_tokens
        assert told.response.usage.output_tokens
        assert told.response.model or dialect == "gemini"  # it sends no modelVersion


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_is_made_and_its_result_is_answered(clean: Running, dialect: str, stream: bool) -> None:
    arguments = {"city": "Zürich 👋🏽"}  # escaped, and cut inside the escapes
    plan(clean, {"type": "reply", "tool_calls": [{"name": "get_weather", "arguments": arguments}]})
    asked = question(dialect, tools=[WEATHER])
    first = await ask(provider(clean, dialect), asked, stream=stream)
    (call,) = first.response.tool_calls
    assert (call.name, call.parsed, call.complete) == ("get_weather", arguments, True)
    assert first.response.finish_reason is ms.FinishReason.TOOL_USE
    history = [*asked.messages, first.response.to_message(), ms.Message.tool_result(call.id, "Rain.")]
    second = await ask(provider(clean, dialect), ms.Request(MODELS[dialect], history, tools=[WEATHER]), stream=stream)
    assert second.response.text
    assert second.response.tool_calls == []
    assert second.response.finish_reason is ms.FinishReason.STOP


async def broken(server: Running, dialect: str, kind: str, **fault: object) -> Told:
    """A stream that breaks after some of its chunks."""
    plan(
        server,
        {"type": "reply", "text": SAID * 5},
        {"type": "stream_fault", "kind": kind, "after_chunks": 6, **fault},
    )
    return await ask(
        provider(server, dialect), question(dialect), stream=True, timeouts=ms.Timeouts(total=30, idle=1.0)
    )


def assert_the_beginning_is_kept(told: Told) -> None:
    assert not told.completion.success
    assert told.text
    assert (SAID * 5).startswith(told.text)
    assert told.response.text == told.text


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", ["truncate", "disconnect"])
async def test_a_stream_that_is_cut_is_an_error_with_what_had_come(clean: Running, dialect: str, kind: str) -> None:
    told = await broken(clean, dialect, kind)
    assert told.error.category is ms.ErrorCategory.NETWORK
    assert_the_beginning_is_kept(told)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_broken_chunk_is_an_error_that_quotes_it(clean: Running, dialect: str) -> None:
    told = await broken(clean, dialect, "malformed")
    assert told.error.category is ms.ErrorCategory.SERVER
    assert told.error.body
    assert not told.error.retryable
    assert_the_beginning_is_kept(told)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_stalled_stream_is_ended_by_the_idle_clock(clean: Running, dialect: str) -> None:
    began = trio.current_time()
    told = await broken(clean, dialect, "stall", stall_seconds=20)
    assert told.error.category is ms.ErrorCategory.TIMEOUT
    assert trio.current_time() - began < 15
    assert_the_beginning_is_kept(told)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_rate_limit_is_waited_out_as_the_server_asks(clean: Running, dialect: str, stream: bool) -> None:
    plan(clean, {"type": "fail", "status": 429, "retry_after": 0.4, "times": 2}, {"type": "reply", "text": SAID})
    told = await ask(
        provider(clean, dialect),
        question(dialect),
        stream=stream,
        retry=ms.Retry(max_attempts=3, base=0.01, jitter=0.0),
    )
    assert told.response.text == SAID
    assert told.completion.attempts == 3
    findings = str(clean.get("/_llmock/verdict"))
    assert "retry_after_ignored" not in findings
    assert "retry_storm" not in findings


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (400, ms.ErrorCategory.INVALID_ARG),
        (401, ms.ErrorCategory.AUTH),
        (404, ms.ErrorCategory.NOT_FOUND),
        (503, ms.ErrorCategory.SERVER),
    ],
)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_error_has_its_category(clean: Running, dialect: str, status: int, category: ms.ErrorCategory) -> None:
    plan(clean, {"type": "fail", "status": status})
    told = await ask(provider(clean, dialect), question(dialect), stream=True)
    assert (told.error.category, told.error.http_status) == (category, status)
    assert told.error.provider_code
    assert told.error.message
