"""aimock, a third-party server: all five dialects, streamed and unstreamed, and its faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import manystream as ms
from manystream.providers.catalog.provider import Provider

from .asking import DIALECTS, MODELS, WEATHER, Answer, ask
from .processes import MissingServerError, Running, aimock

pytestmark = [pytest.mark.servers, pytest.mark.trio, pytest.mark.timeout(900)]  # the first one installs a server

PATHS = {"openai-chat": "/v1", "openai-responses": "/v1", "anthropic": "", "gemini": "", "gemini-interactions": ""}

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


async def ask_us(
    server: Running, dialect: str, words: str, *, stream: bool, first_byte: float = 30.0, **options: object
) -> Answer:
    provider: Provider = DIALECTS[dialect]("key", server.origin + PATHS[dialect])
    request = ms.Request(MODELS[dialect], [ms.Message.user(words)], **options)  # type: ignore[arg-type]
    return await ask(provider, request, stream=stream, timeouts=ms.Timeouts(total=30, first_byte=first_byte, idle=1.0))


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_text_is_equal_streamed_and_unstreamed(server: Running, dialect: str) -> None:
    whole = await ask_us(server, dialect, "say it", stream=False)
    streamed = await ask_us(server, dialect, "say it", stream=True)
    assert whole.response.text == streamed.response.text == streamed.text == SAID
    assert whole.response.finish_reason is streamed.response.finish_reason is ms.FinishReason.STOP
    assert whole.response.model == streamed.response.model


@pytest.mark.parametrize(
    "dialect", [name for name in DIALECTS if name != "gemini-interactions"]
)  # aimock sends no thoughts there
async def test_thinking_is_equal_streamed_and_unstreamed(server: Running, dialect: str) -> None:
    whole = await ask_us(server, dialect, "think first", stream=False)
    streamed = await ask_us(server, dialect, "think first", stream=True)
    assert whole.response.thinking == streamed.response.thinking == THOUGHT
    assert whole.response.text == streamed.response.text == SAID


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_tool_call_and_its_result_are_processed(server: Running, dialect: str, stream: bool) -> None:
    first = await ask_us(server, dialect, "use the tool", stream=stream, tools=[WEATHER])
    (call,) = first.response.tool_calls
    assert (call.name, call.parsed, call.complete) == ("get_weather", ARGUMENTS, True)
    assert first.response.finish_reason is ms.FinishReason.TOOL_USE
    provider = DIALECTS[dialect]("key", server.origin + PATHS[dialect])
    history = [ms.Message.user("use the tool"), first.response.to_message(), ms.Message.tool_result(call.id, "Rain.")]
    second = await ask(provider, ms.Request(MODELS[dialect], history, tools=[WEATHER]), stream=stream)
    assert second.response.text == "Rain."


def assert_the_beginning_is_kept(answer: Answer) -> None:
    assert answer.text
    assert LONG.startswith(answer.text)
    assert answer.response.text == answer.text


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("fault", ["truncate", "disconnect"])
async def test_a_truncated_stream_is_an_error_with_its_partial_text(server: Running, dialect: str, fault: str) -> None:
    answer = await ask_us(server, dialect, fault, stream=True)
    assert answer.error.category is ms.ErrorCategory.NETWORK
    assert_the_beginning_is_kept(answer)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_timeout_ends_a_stalled_stream(server: Running, dialect: str) -> None:
    answer = await ask_us(server, dialect, "stall", stream=True, first_byte=1.0)
    assert answer.error.category is ms.ErrorCategory.TIMEOUT


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_malformed_answers_are_errors(chaos: Running, dialect: str, stream: bool) -> None:
    chaos.post("/__aimock/chaos", {"malformedRate": 1})
    answer = await ask_us(chaos, dialect, "say it", stream=stream)
    assert answer.error.category is ms.ErrorCategory.SERVER
    assert answer.error.body


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_dropped_connection_is_an_error(chaos: Running, dialect: str) -> None:
    chaos.post("/__aimock/chaos", {"disconnectRate": 1})
    answer = await ask_us(chaos, dialect, "say it", stream=True)
    assert answer.error.category is ms.ErrorCategory.NETWORK
    assert answer.error.retryable


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("words", "status", "category"),
    [("overload", 529, ms.ErrorCategory.SERVER), ("limit", 429, ms.ErrorCategory.RATE_LIMIT)],
)
async def test_an_error_has_its_category(
    server: Running, dialect: str, stream: bool, words: str, status: int, category: ms.ErrorCategory
) -> None:
    answer = await ask_us(server, dialect, words, stream=stream)
    assert (answer.error.category, answer.error.http_status) == (category, status)
    assert answer.error.retryable
