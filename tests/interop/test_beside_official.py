"""Call each third-party server with the library and with the official SDK: both must give the same result.

A route is a server, the dialect of the request, and the dialect that the server uses with aimock behind it. `DEFECTS`
lists wrong responses of the servers; for these, our result is only compared with the SDK's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest
import trio

import manystream as ms
from manystream.providers.catalog.provider import Provider

from .asking import DIALECTS, MODELS, WEATHER, Answer, ask
from .official import OFFICIAL, Heard, Official, joined
from .processes import MissingServerError, Running, aimock, litellm, router
from .upstream import (
    ANSWERED,
    ARGUMENTS,
    CALLED,
    CUT_CHUNK,
    LONG,
    OVERLOADED,
    SAID,
    THOUGHT,
    TOO_FAST,
    WHOLE_CHUNK,
    fixtures,
    pieces,
)

pytestmark = [pytest.mark.servers, pytest.mark.trio, pytest.mark.timeout(1800)]  # the first one installs a server

TIMEOUTS = ms.Timeouts(total=30, first_byte=30, idle=10)


@dataclass(slots=True, frozen=True)
class Route:
    """A server, the dialect of the request, and the model."""

    name: str
    server: str
    dialect: str
    model: str


COMPARED = ("openai-chat", "openai-responses", "anthropic", "gemini")
"""The dialects whose official client is asked beside ours."""

VERSIONED = {"openai-chat": "/v1", "openai-responses": "/v1"}

ROUTES = [
    *(Route(f"aimock {dialect}", "aimock", dialect, MODELS[dialect]) for dialect in COMPARED),
    Route("router anthropic>chat", "router", "anthropic", "chat,gpt-4o"),
    Route("router anthropic>gemini", "router", "anthropic", "gemini,gemini-2.5-flash"),
    *(Route(f"litellm {dialect}>{behind}", "litellm", dialect, behind) for dialect in COMPARED
        for behind in ("chat", "anthropic", "gemini")),
]  # fmt: skip
DELIVERIES = {"unstreamed": (False, "whole"), "streamed": (True, "whole"), "cut": (True, "cut")}
"""Forms of delivery. `cut` is streamed, with surrogate pairs cut between two deltas."""

DEFECTS: list[tuple[str, str, str]] = [
    ("router *>chat", "streamed usage", "claude-code-router asks for no usage and reports 0"),
    ("router *>chat", "cut usage", "claude-code-router asks for no usage and reports 0"),
    ("router *>chat", "* thinking", "claude-code-router passes over reasoning_content"),
    ("router *>gemini", "unstreamed thinking", "claude-code-router drops the thinking"),
    ("router *>gemini", "* thinking", "claude-code-router drops the text that follows thinking"),
    ("litellm openai-*", "cut text", "LiteLLM cannot write half a surrogate pair: an error ends its stream"),
    ("litellm openai-*", "cut thinking", "LiteLLM cannot write half a surrogate pair: an error ends its stream"),
    ("litellm openai-*>chat", "cut tool", "LiteLLM cannot write half a surrogate pair: an error ends its stream"),
    ("litellm openai-*>anthropic", "cut tool", "LiteLLM cannot write half a surrogate pair: an error ends its stream"),
    ("litellm gemini>[ac]*", "* thinking", "LiteLLM drops the thinking on its way to the Gemini dialect"),
    ("litellm gemini>[ac]*", "streamed usage", "LiteLLM reports 0 in a Gemini stream"),
    ("litellm gemini>[ac]*", "cut usage", "LiteLLM reports 0 in a Gemini stream"),
    ("litellm openai-*>gemini", "* result", "aimock does not know LiteLLM's spelling of a function response"),
    ("litellm anthropic>gemini", "* result", "aimock does not know LiteLLM's spelling of a function response"),
    ("litellm *>anthropic", "* overload", "LiteLLM answers 500 for Anthropic's 529"),
    ("litellm gemini>chat", "* overload", "LiteLLM answers 500 for a 529"),
    ("litellm gemini>anthropic", "* limit", "LiteLLM answers 500 for a 429"),
]
"""Route, question and the error in the server's answer. The official SDK returns the same wrong answer."""


def defect_of(route: Route, question: str) -> str | None:
    """Return the known error in the server's answer; None if the answer must be correct."""
    return next(
        (why for routes, questions, why in DEFECTS if fnmatch(route.name, routes) and fnmatch(question, questions)),
        None,
    )


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@contextmanager
def or_skip(name: str, starting: AbstractContextManager[Running]) -> Iterator[Running]:
    """Start a server; skip the tests with the reason if it cannot be installed or started."""
    try:
        with starting as running:
            yield running
    except MissingServerError as missing:
        pytest.skip(f"{name}: {missing}")


@pytest.fixture(scope="module")
def aimock_server(scratch: Path) -> Iterator[Running]:
    with or_skip("aimock", aimock(fixtures(), scratch, CUT_CHUNK)) as running:
        yield running


@pytest.fixture(scope="module")
def router_server(aimock_server: Running, scratch: Path) -> Iterator[Running]:
    with or_skip("claude-code-router", router(aimock_server, scratch)) as running:
        yield running


@pytest.fixture(scope="module")
def litellm_server(aimock_server: Running, scratch: Path) -> Iterator[Running]:
    with or_skip("LiteLLM", litellm(aimock_server, scratch)) as running:
        yield running


@pytest.fixture
def server(route: Route, request: pytest.FixtureRequest) -> Running:
    running: Running = request.getfixturevalue(f"{route.server}_server")
    return running


def provider(server: Running, route: Route, key: str | None = None) -> Provider:
    return DIALECTS[route.dialect](key or server.key, server.origin + VERSIONED.get(route.dialect, ""))


def official(server: Running, route: Route, key: str | None = None) -> Official:
    base = server.origin + VERSIONED.get(route.dialect, "")
    return OFFICIAL[route.dialect](base, route.model, key or server.key)


def ask_official(server: Running, route: Route, words: str, *, stream: bool, tools: bool = False) -> Heard:
    """Make a call with the official SDK."""
    client = official(server, route)
    return client.ask(client.user(words), stream=stream, tools=tools)


async def ask_us(server: Running, route: Route, words: str, *, stream: bool, tools: bool = False) -> Answer:
    """Make a call with the library."""
    request = ms.Request(route.model, [ms.Message.user(words)], tools=[WEATHER] if tools else [])
    return await ask(provider(server, route), request, stream=stream, timeouts=TIMEOUTS)


def assert_both_read(answer: Answer, heard: Heard, true: tuple[object, ...], defect: str | None) -> None:
    """Check that both results have the same text, thinking and calls, and that these are correct.

    defect: the known error in the server's answer. The answer must then be wrong, so that its row in `DEFECTS` is
        removed once the server is repaired.
    """
    if heard.error is not None:
        assert answer.completion.error is not None, heard.error
        assert defect is not None, heard.error
        return
    assert answer.completion.success, answer.completion.error
    ours = answer.response
    if answer.events:
        assert answer.text == ours.text
    read = (ours.text, ours.thinking, [(call.name, call.parsed) for call in ours.tool_calls])
    assert read == (joined(heard.text), joined(heard.thinking), heard.calls)
    assert (ours.usage.input_tokens or 0) == (heard.input_tokens or 0)
    # Our output is without the thinking; in every dialect but Gemini's, the SDK's is with it.
    visible, thinking = ours.usage.output_tokens or 0, ours.usage.thinking_tokens or 0
    assert (heard.output_tokens or 0) in (visible, visible + thinking)
    assert (read == true) is (defect is None), defect


every_route = pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name.replace(" ", ":"))
every_delivery = pytest.mark.parametrize("delivery", DELIVERIES)


async def test_surrogate_pairs_are_cut_only_as_intended() -> None:
    for text in (SAID, THOUGHT, CALLED["arguments"]):
        for piece in pieces(text, WHOLE_CHUNK):
            piece.encode()
        with pytest.raises(UnicodeEncodeError):
            "\n".join(pieces(text, CUT_CHUNK)).encode()


@every_delivery
@every_route
async def test_text_and_usage(server: Running, route: Route, delivery: str) -> None:
    stream, word = DELIVERIES[delivery]
    heard = ask_official(server, route, f"{word} text", stream=stream)
    answer = await ask_us(server, route, f"{word} text", stream=stream)
    assert_both_read(answer, heard, (SAID, "", []), defect_of(route, f"{delivery} text"))
    if answer.completion.success:
        counted = (answer.response.usage.input_tokens, answer.response.usage.output_tokens)
        assert (counted == (17, 29)) is (defect_of(route, f"{delivery} usage") is None), counted


@every_delivery
@every_route
async def test_thinking(server: Running, route: Route, delivery: str) -> None:
    stream, word = DELIVERIES[delivery]
    heard = ask_official(server, route, f"{word} thinking", stream=stream)
    answer = await ask_us(server, route, f"{word} thinking", stream=stream)
    assert_both_read(answer, heard, (SAID, THOUGHT, []), defect_of(route, f"{delivery} thinking"))


@every_delivery
@every_route
async def test_a_tool_and_its_result(server: Running, route: Route, delivery: str) -> None:
    stream, word = DELIVERIES[delivery]
    words = f"{word} tool"
    client = official(server, route)
    heard = client.ask(client.user(words), stream=stream, tools=True)
    answer = await ask_us(server, route, words, stream=stream, tools=True)
    assert_both_read(answer, heard, ("", "", [(WEATHER.name, ARGUMENTS)]), defect_of(route, f"{delivery} tool"))
    if heard.error is not None:
        return
    (call,) = answer.response.tool_calls
    assert answer.response.finish_reason is ms.FinishReason.TOOL_USE
    history = [ms.Message.user(words), answer.response.to_message(), ms.Message.tool_result(call.id, "Rain.")]
    request = ms.Request(route.model, history, tools=[WEATHER])
    answer = await ask(provider(server, route), request, stream=stream, timeouts=TIMEOUTS)
    client = official(server, route)
    heard = client.ask([*client.user(words), *client.result(heard, "Rain.")], stream=stream, tools=True)
    assert_both_read(answer, heard, (ANSWERED, "", []), defect_of(route, f"{delivery} result"))


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])
@pytest.mark.parametrize(
    ("words", "said", "status", "category"),
    [("overload", OVERLOADED, 529, ms.ErrorCategory.SERVER), ("limit", TOO_FAST, 429, ms.ErrorCategory.RATE_LIMIT)],
)
@every_route
async def test_an_error(
    server: Running, route: Route, words: str, said: str, status: int, category: ms.ErrorCategory, stream: bool
) -> None:
    heard = ask_official(server, route, words, stream=stream)
    answer = await ask_us(server, route, words, stream=stream)
    assert heard.error is not None
    assert said in answer.error.message
    assert answer.error.retryable
    if heard.status is not None and heard.status >= 400:
        assert answer.error.http_status == heard.status
    if not defect_of(route, f"{'streamed' if stream else 'unstreamed'} {words}"):
        assert answer.error.category is category
        assert heard.status in (status, 200, None)  # within a stream, the SDKs report 200 or nothing


@pytest.mark.parametrize("route", [route for route in ROUTES if route.server != "aimock"],
                         ids=lambda route: route.name.replace(" ", ":"))  # fmt: skip
async def test_a_key_that_is_refused(server: Running, route: Route) -> None:
    client = official(server, route, "sk-another")
    heard = client.ask(client.user("whole text"), stream=True)
    request = ms.Request(route.model, [ms.Message.user("whole text")])
    answer = await ask(provider(server, route, "sk-another"), request, stream=True, timeouts=TIMEOUTS)
    assert answer.error.http_status == heard.status
    assert answer.error.message not in ("", f"HTTP {heard.status}")
    assert "sk-another" not in str(answer.error)


@pytest.mark.parametrize("fault", ["truncate", "disconnect"])
@every_route
async def test_a_stream_that_is_cut(server: Running, route: Route, fault: str) -> None:
    heard = ask_official(server, route, fault, stream=True)
    answer = await ask_us(server, route, fault, stream=True)
    assert heard.error is not None
    assert answer.error.category in (ms.ErrorCategory.NETWORK, ms.ErrorCategory.SERVER)
    for text in (answer.text, answer.response.text, heard.text):
        assert text
        assert LONG.startswith(text)
    assert answer.response.text == answer.text


@every_route
async def test_a_stream_that_is_cancelled(server: Running, route: Route) -> None:
    assert LONG.startswith(official(server, route).beginning("slowly"))
    pieces: list[str] = []
    begun = trio.Event()

    def on_event(event: ms.Event) -> None:
        if isinstance(event, ms.TextDelta):
            pieces.append(event.text)
            begun.set()

    async with ms.open_engine([provider(server, route)], timeouts=TIMEOUTS, proxy="") as engine:
        call = engine.start_stream(ms.Request(route.model, [ms.Message.user("slowly")]), on_event)
        await begun.wait()
        call.cancel()
        completion = await call.wait()
        again = engine.start_request(ms.Request(route.model, [ms.Message.user("whole text")]))
        answered = await again.wait()
    assert completion.error is not None
    assert completion.error.category is ms.ErrorCategory.CANCELLED
    assert completion.response is not None
    assert completion.response.text == "".join(pieces)
    assert LONG.startswith(completion.response.text)
    assert answered.success
    assert answered.response is not None
    assert answered.response.text == SAID
