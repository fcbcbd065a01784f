"""aimock, a server that others wrote: all four dialects, streamed and not, and its faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import manystream as ms
from manystream.providers.provider import Provider

from .asking import DIALECTS, MODELS, WEATHER, Told, ask
from .processes import MissingServerError, Running, aimock

pytestmark = [pytest.mark.servers, pytest.mark.trio, pytest.mark.timeout(900)]  # the first one installs a server

PATHS = {"openai-chat": "/v1", "openai-responses": "/v1", "anthropic": "", "gemini": ""}

SAID = "Zwei Zeilen:\u2028eine Familie 👩\u200d👩\u200d👧, 日本語, \u0085 und Schluß."
THOUGHT = "Erst denken 🤔, dann sprechen."
LONG = " ".join(f"Satz {number}." for number in range(60))
ARGUMENTS = {"city": "Zürich", "note": 'a "quote" and a \\ and a\u2028line'}

FIXTURES = [
    {"match": {"userMessage": "think"},
     "response": {"content": SAID, "reasoning": THOUGHT, "reasoningSignature": "c2ln"}},
    {"match": {"toolCallId": "call_1"}, "response": {"content": "Rain."}},
    {"match": {"userMessage": "tool"},
     "response": {"toolCalls": [{"id": "call_1", "name": "get_weather", "arguments": ARGUMENTS}]}},
    {"match": {"userMessage": "truncate"}, "response": {"content": LONG}, "latency": 15, "truncateAfterChunks": 7},
    {"match": {"userMessage": "disconnect"}, "response": {"content": LONG}, "latency": 15, "disconnectAfterMs": 250},
    {"match": {"userMessage": "stall"}, "response": {"content": LONG}, "latency": 600_000},
    {"match": {"userMessage": "overload"},
     "response": {"error": {"message": "Overloaded, try later.", "type": "overloaded_error"}, "status": 529}},
    {"match": {"userMessage": "limit"},
     "response": {"error": {"message": "Too fast.", "type": "rate_limit_error"}, "status": 429}},
    {"match": {"userMessage": "say"}, "response": {"content": SAID}},
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    try:
        with aimock(FIXTURES, tmp_path_factory.mktemp("aimock")) as running:
            yield running
    except MissingServerError as missing:
        pytest.skip(f"aimock: {missing}")


@pytest.fixture
def chaos(server: Running) -> Iterator[Running]:
    yield server
    server.delete("/__aimock/chaos")


async def told_by(
    server: Running, dialect: str, words: str, *, stream: bool, first_byte: float = 30.0, **options: object
) -> Told:
    provider: Provider = DIALECTS[dialect]("key", server.origin + PATHS[dialect])
    request = ms.Request(MODELS[dialect], [ms.Message.user(words)], **options)  # type: ignore[arg-type]
    return await ask(provider, request, stream=stream, timeouts=ms.Timeouts(total=30, first_byte=first_byte, idle=1.0))


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_text_is_the_same_streamed_and_unstreamed(server: Running, dialect: str) -> None:
    whole = await told_by(server, dialect, "say it", stream=False)
    streamed = await told_by(server, dialect, "say it", stream=True)
    assert whole.response.text == streamed.response.text == streamed.text == SAID
    assert whole.response.finish_reason is streamed.response.finish_reason is ms.FinishReason.STOP
    assert whole.response.model == streamed.response.model


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_thinking_is_the_same_streamed_and_unstreamed(server: Running, dialect: str) -> None:
    whole = await told_by(server, dialect, "think first", stream=False)
    streamed = await told_by(server, dialect, "think first", stream=True)
    assert whole.response.thinking == streamed.response.thinking == THOUGHT
    assert whole.response.text == streamed.response.text == SAID


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_is_made_and_its_result_is_answered(server: Running, dialect: str, stream: bool) -> None:
    first = await told_by(server, dialect, "use the tool", stream=stream, tools=[WEATHER])
    (call,) = first.response.tool_calls
    assert (call.name, call.parsed, call.complete) == ("get_weather", ARGUMENTS, True)
    assert first.response.finish_reason is ms.FinishReason.TOOL_USE
    provider = DIALECTS[dialect]("key", server.origin + PATHS[dialect])
    history = [ms.Message.user("use the tool"), first.response.to_message(), ms.Message.tool_result(call.id, "Rain.")]
    second = await ask(provider, ms.Request(MODELS[dialect], history, tools=[WEATHER]), stream=stream)
    assert second.response.text == "Rain."


def assert_the_beginning_is_kept(told: Told) -> None:
    assert told.text
    assert LONG.startswith(told.text)
    assert told.response.text == told.text


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("fault", ["truncate", "disconnect"])
async def test_a_stream_that_is_cut_is_an_error_with_what_had_come(server: Running, dialect: str, fault: str) -> None:
    told = await told_by(server, dialect, fault, stream=True)
    assert told.error.category is ms.ErrorCategory.NETWORK
    assert_the_beginning_is_kept(told)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_stalled_stream_is_ended_by_a_clock(server: Running, dialect: str) -> None:
    told = await told_by(server, dialect, "stall", stream=True, first_byte=1.0)
    assert told.error.category is ms.ErrorCategory.TIMEOUT


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_malformed_answers_are_errors(chaos: Running, dialect: str, stream: bool) -> None:
    chaos.post("/__aimock/chaos", {"malformedRate": 1})
    told = await told_by(chaos, dialect, "say it", stream=stream)
    assert told.error.category is ms.ErrorCategory.SERVER
    assert told.error.body


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_dropped_connection_is_an_error(chaos: Running, dialect: str) -> None:
    chaos.post("/__aimock/chaos", {"disconnectRate": 1})
    told = await told_by(chaos, dialect, "say it", stream=True)
    assert told.error.category is ms.ErrorCategory.NETWORK
    assert told.error.retryable


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("words", "status", "category"),
    [("overload", 529, ms.ErrorCategory.SERVER), ("limit", 429, ms.ErrorCategory.RATE_LIMIT)],
)
async def test_an_error_has_its_category(
    server: Running, dialect: str, stream: bool, words: str, status: int, category: ms.ErrorCategory
) -> None:
    told = await told_by(server, dialect, words, stream=stream)
    assert (told.error.category, told.error.http_status) == (category, status)
    assert told.error.retryable
