"""llmock, a third-party server: the four dialects that it has, streamed and unstreamed, and its faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio

import manystream as ms
from manystream.providers.catalog.provider import Provider

from .asking import DIALECTS, MODELS, WEATHER, Answer, ask
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


@pytest.mark.parametrize("dialect", PATHS)
async def test_text_is_equal_streamed_and_unstreamed(clean: Running, dialect: str) -> None:
    plan(clean, {"type": "reply", "text": SAID, "times": 2})
    whole = await ask(provider(clean, dialect), question(dialect), stream=False)
    streamed = await ask(provider(clean, dialect), question(dialect), stream=True)
    assert whole.response.text == streamed.response.text == streamed.text == SAID
    assert whole.response.finish_reason is streamed.response.finish_reason is ms.FinishReason.STOP
    for answer in (whole, streamed):
        assert answer.response.usage.input_tokens
        assert answer.response.usage.output_tokens
        assert answer.response.model or dialect == "gemini"  # llmock sends no modelVersion


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])
@pytest.mark.parametrize("dialect", PATHS)
async def test_a_tool_call_and_its_result_are_processed(clean: Running, dialect: str, stream: bool) -> None:
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


async def broken(server: Running, dialect: str, kind: str, **fault: object) -> Answer:
    """Make a call whose stream breaks after some chunks."""
    plan(
        server, {"type": "reply", "text": SAID * 5}, {"type": "stream_fault", "kind": kind, "after_chunks": 6, **fault}
    )
    return await ask(
        provider(server, dialect), question(dialect), stream=True, timeouts=ms.Timeouts(total=30, idle=1.0)
    )


def assert_the_beginning_is_kept(answer: Answer) -> None:
    assert not answer.completion.success
    assert answer.text
    assert (SAID * 5).startswith(answer.text)
    assert answer.response.text == answer.text


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("kind", ["truncate", "disconnect"])
async def test_a_truncated_stream_is_an_error_with_its_partial_text(clean: Running, dialect: str, kind: str) -> None:
    answer = await broken(clean, dialect, kind)
    assert answer.error.category is ms.ErrorCategory.NETWORK
    assert_the_beginning_is_kept(answer)


@pytest.mark.parametrize("dialect", PATHS)
async def test_a_broken_chunk_is_an_error_that_quotes_it(clean: Running, dialect: str) -> None:
    answer = await broken(clean, dialect, "malformed")
    assert answer.error.category is ms.ErrorCategory.SERVER
    assert answer.error.body
    assert not answer.error.retryable
    assert_the_beginning_is_kept(answer)


@pytest.mark.parametrize("dialect", PATHS)
async def test_the_idle_timeout_ends_a_stalled_stream(clean: Running, dialect: str) -> None:
    began = trio.current_time()
    answer = await broken(clean, dialect, "stall", stall_seconds=20)
    assert answer.error.category is ms.ErrorCategory.TIMEOUT
    assert trio.current_time() - began < 15
    assert_the_beginning_is_kept(answer)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])
@pytest.mark.parametrize("dialect", PATHS)
async def test_a_retry_waits_as_the_rate_limit_asks(clean: Running, dialect: str, stream: bool) -> None:
    plan(clean, {"type": "fail", "status": 429, "retry_after": 0.4, "times": 2}, {"type": "reply", "text": SAID})
    answer = await ask(
        provider(clean, dialect), question(dialect), stream=stream,
        retry=ms.Retry(max_attempts=3, base=0.01, jitter=0.0),
    )  # fmt: skip
    assert answer.response.text == SAID
    assert answer.completion.attempts == 3
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
@pytest.mark.parametrize("dialect", PATHS)
async def test_an_error_has_its_category(clean: Running, dialect: str, status: int, category: ms.ErrorCategory) -> None:
    plan(clean, {"type": "fail", "status": status})
    answer = await ask(provider(clean, dialect), question(dialect), stream=True)
    assert (answer.error.category, answer.error.http_status) == (category, status)
    assert answer.error.provider_code
    assert answer.error.message
