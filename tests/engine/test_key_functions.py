"""A key given as a function: it is called once per attempt; and the errors if it returns no key."""

import asyncio
import gc
import logging
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import trio

import manystream as ms
from manystream import aio
from manystream.portal import open_portal
from tests.support.peers import (
    NO_RETRY,
    STREAM_HEAD,
    Line,
    answer,
    chat_answer,
    chat_chunk,
    chunked,
    error_body,
    open_peer,
)

SOON = ms.Retry(base=0.001, cap=0.001, jitter=0.0)
FIRST, SECOND = "canary-token-1-abcdef", "canary-token-2-ghijkl"

PROVIDERS: dict[str, Callable[[str, ms.APIKey], ms.Provider]] = {
    "openai-chat": lambda origin, key: ms.OpenAIChat(key, f"{origin}/v1", name="peer"),
    "openai-responses": lambda origin, key: ms.OpenAIResponses(key, f"{origin}/v1", name="peer"),
    "anthropic": lambda origin, key: ms.Anthropic(key, origin, name="peer"),
    "gemini": lambda origin, key: ms.Gemini(key, origin, name="peer"),
}


class Tokens:
    """A key function that counts its calls. `values` are its results; the last one is repeated."""

    def __init__(self, *values: object) -> None:
        self.values = list(values)
        self.calls = 0

    def __call__(self) -> str:
        value = self.values[min(self.calls, len(self.values) - 1)]
        self.calls += 1
        if isinstance(value, BaseException):
            raise value
        return value  # type: ignore[return-value]


def hello(**options: object) -> ms.Request:
    return ms.Request("peer/m", [ms.Message.user("hello")], max_output_tokens=9, **options)  # type: ignore[arg-type]


def chat(origin: str, key: ms.APIKey) -> ms.Provider:
    return PROVIDERS["openai-chat"](origin, key)


class Server:
    """A server that sends these responses, one after the other, and keeps the requests."""

    def __init__(self, *responses: bytes) -> None:
        self.requests: list[bytes] = []
        self._responses: Iterator[bytes] = iter(responses)

    async def script(self, line: Line) -> None:
        while request := await line.request():
            self.requests.append(request)
            await line.send(next(self._responses))


BUSY = answer(error_body("busy"), status="503 Busy")
GOOD = answer(chat_answer("hi"))


@pytest.mark.parametrize("dialect", PROVIDERS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_token_that_expires_between_attempts_is_replaced(dialect: str, stream: bool) -> None:
    tokens = Tokens(FIRST, SECOND)
    server = Server(BUSY, answer(error_body(f"refused {FIRST} and {SECOND}"), status="400 No"))
    async with open_peer(server.script) as peer:
        provider = PROVIDERS[dialect](peer.origin, tokens)
        async with ms.open_engine([provider], retry=SOON) as engine:
            call = (engine.start_stream if stream else engine.start_request)(hello())
            completion = await call.wait()
    assert tokens.calls == completion.attempts == 2
    sent = [[key for key in (FIRST, SECOND) if key.encode() in request] for request in server.requests]
    assert sent == [[FIRST], [SECOND]]
    assert completion.error is not None
    assert completion.error.category is ms.ErrorCategory.INVALID_ARG
    assert "canary" not in f"{completion!r} {completion.error!r} {completion.error.body!r}"


async def test_each_call_uses_the_key_of_its_start() -> None:
    tokens = Tokens(FIRST, FIRST, SECOND)
    server = Server(GOOD, GOOD, GOOD)
    async with open_peer(server.script) as peer, ms.open_engine([chat(peer.origin, tokens)]) as engine:
        for _ in range(3):
            await engine.request(hello())
        assert len(peer.lines) == 1
    keys = [request.partition(b"Bearer ")[2].partition(b"\r\n")[0].decode() for request in server.requests]
    assert keys == [FIRST, FIRST, SECOND]


async def test_the_idempotency_key_stays_if_the_api_key_changes() -> None:
    tokens = Tokens(FIRST, SECOND)
    server = Server(BUSY, GOOD)
    async with open_peer(server.script) as peer:
        provider = ms.OpenAIChat(tokens, peer.url, name="peer", idempotency_header="Idempotency-Key")
        async with ms.open_engine([provider], retry=SOON) as engine:
            await engine.request(hello())
    first, second = (request.partition(b"Idempotency-Key: ")[2][:22] for request in server.requests)
    assert first == second != b""


async def test_a_refused_key_is_not_retried() -> None:
    tokens = Tokens(FIRST, SECOND)
    server = Server(answer(error_body("no"), status="401 No"))
    async with open_peer(server.script) as peer, ms.open_engine([chat(peer.origin, tokens)], retry=SOON) as engine:
        completion = await engine.start_request(hello()).wait()
    assert (completion.error_category, completion.attempts, tokens.calls) == (ms.ErrorCategory.AUTH, 1, 1)


async def test_no_connection_is_opened_without_a_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    cause = RuntimeError("the token server is down")
    tokens = Tokens(cause)
    server = Server()
    async with open_peer(server.script) as peer, ms.open_engine([chat(peer.origin, tokens)], retry=SOON) as engine:
        events: list[ms.Event] = []
        completions: list[ms.Completion] = []
        call = engine.start_stream(hello(), events.append, completions.append)
        assert not completions, "no callback runs before the caller has the call"
        completion = await call.wait()
        assert peer.lines == []
    error = completion.error
    assert error is not None
    assert (error.category, error.retryable, tokens.calls) == (ms.ErrorCategory.AUTH, False, 1)
    assert error.message == "the api_key function of 'peer' raised RuntimeError"
    assert error.__cause__ is cause
    assert cause.__traceback__ is not None, "the program's own frames show where it failed"
    assert [event.type for event in events] == [ms.EventType.ERROR]
    assert completions == [completion]


async def _fetch() -> str:
    return FIRST


@types.coroutine
def _old_style() -> Iterator[str]:
    yield FIRST


RETURNED: dict[str, tuple[object, str]] = {
    "nothing": (None, "returned NoneType, not text"), "bytes": (FIRST.encode(), "returned bytes, not text"),
    "empty": ("", "returned an empty text"), "line break": (f"{FIRST}\r\nX-Evil: 1", "(code 13 at position 21)"),
    "letters beyond ASCII": ("canary-ключ", "(code 1082 at position 7)"),
}  # fmt: skip


@pytest.mark.parametrize(("returned", "words"), RETURNED.values(), ids=list(RETURNED))
async def test_an_invalid_key_is_never_sent_or_shown(
    returned: object, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = Server()
    async with open_peer(server.script) as peer, ms.open_engine([chat(peer.origin, Tokens(returned))]) as engine:
        completion = await engine.start_request(hello()).wait()
        assert peer.lines == []
    error = completion.error
    assert error is not None
    assert error.category is ms.ErrorCategory.AUTH
    assert "'peer'" in error.message
    assert words in error.message
    assert "canary" not in f"{error!r} {caplog.text} {''.join(traceback.format_exception(error))}"


async def test_a_key_function_that_returns_a_coroutine_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with ms.open_engine([chat("http://127.0.0.1:9", lambda: _fetch())]) as engine:  # type: ignore[arg-type,return-value]
            completion = await engine.start_request(hello()).wait()
        gc.collect()
    assert completion.error_message is not None
    assert "returned coroutine, which the engine does not await" in completion.error_message


@pytest.mark.parametrize("function", [_fetch, partial(_fetch), _old_style], ids=["async def", "partial", "generator"])
def test_a_function_that_cannot_return_a_key_is_refused_at_once(function: Callable[[], str]) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"api_key: .*returns no key when it is called.*plain function"):
        ms.Anthropic(function)


async def test_an_earlier_key_is_redacted_in_the_function_s_error() -> None:
    tokens = Tokens(FIRST, ValueError(f"{FIRST} has expired"))
    async with (
        open_peer(Server(BUSY).script) as peer,
        ms.open_engine([chat(peer.origin, tokens)], retry=SOON) as engine,
    ):
        completion = await engine.start_request(hello()).wait()
    error = completion.error
    assert error is not None
    assert (error.category, completion.attempts) == (ms.ErrorCategory.AUTH, 2)
    assert "canary" not in "".join(traceback.format_exception_only(error))
    assert str(error.__cause__) == "[key] has expired"


async def test_an_earlier_key_is_redacted_in_a_group_of_errors() -> None:
    """A key function that tries several sources raises what all of them said."""
    inner = ExceptionGroup(f"stores that refused {FIRST}", [ValueError(f"{FIRST} has expired")])
    missing = FileNotFoundError(2, f"no file for {FIRST}", f"/keys/{FIRST}")
    group = ExceptionGroup(f"no source has a key after {FIRST}", [inner, missing, OSError(5, "Input/output error")])
    group.add_note(f"tried {FIRST} first")
    tokens = Tokens(FIRST, group)
    async with (
        open_peer(Server(BUSY).script) as peer,
        ms.open_engine([chat(peer.origin, tokens)], retry=SOON) as engine,
    ):
        completion = await engine.start_request(hello()).wait()
    error = completion.error
    assert error is not None
    shown = "".join(traceback.format_exception(error))
    assert "no source has a key after [key] (3 sub-exceptions)" in shown
    assert "tried [key] first" in shown
    assert "stores that refused [key] (1 sub-exception)" in shown
    assert "[key] has expired" in shown
    assert "[Errno 2] no file for [key]: '/keys/[key]'" in shown
    assert "[Errno 5] Input/output error\n" in shown
    assert "canary" not in shown


async def test_keys_of_earlier_attempts_are_redacted_in_streams() -> None:
    body = chunked(chat_chunk("x"), f"data: {error_body(f'keys {FIRST} {SECOND}')}\n\n")
    server = Server(BUSY, STREAM_HEAD.encode() + body)
    tokens = Tokens(FIRST, SECOND)
    async with open_peer(server.script) as peer, ms.open_engine([chat(peer.origin, tokens)], retry=SOON) as engine:
        completion = await engine.start_stream(hello()).wait()
    assert completion.error_message == "keys [key] [key]"


async def test_ctrl_c_in_a_key_function_is_raised_from_start() -> None:
    completions: list[ms.Completion] = []
    async with ms.open_engine([chat("http://127.0.0.1:9", Tokens(KeyboardInterrupt()))], retry=NO_RETRY) as engine:
        with pytest.raises(KeyboardInterrupt):
            engine.start_request(hello(), completions.append)
        assert engine.statistics().calls == {}
    assert completions == []


async def test_ctrl_c_in_a_key_function_of_a_retry_ends_the_engine() -> None:
    completions: list[ms.Completion] = []

    async def run_until_interrupted(provider: ms.Provider) -> None:
        async with ms.open_engine([provider], retry=SOON) as engine:
            engine.start_request(hello(), completions.append)
            await trio.sleep_forever()

    async with open_peer(Server(BUSY).script) as peer:
        with pytest.raises(KeyboardInterrupt):
            await run_until_interrupted(chat(peer.origin, Tokens(FIRST, KeyboardInterrupt())))
    assert [completion.error_category for completion in completions] == [ms.ErrorCategory.CANCELLED]


async def test_a_cancellation_raised_by_a_key_function_ends_the_call() -> None:
    async with ms.open_engine([chat("http://127.0.0.1:9", Tokens(asyncio.CancelledError()))]) as engine:
        completion = await engine.start_request(hello()).wait()
        assert completion.error_category is ms.ErrorCategory.AUTH


async def test_a_key_function_can_cancel_its_own_call() -> None:
    calls: list[ms.Call] = []

    def key() -> str:
        if calls:
            calls[0].cancel()
        return FIRST

    async with open_peer(Server(BUSY).script) as peer, ms.open_engine([chat(peer.origin, key)], retry=SOON) as engine:
        calls.append(engine.start_request(hello()))
        completion = await calls[0].wait()
        assert len(peer.lines) == 1
    assert completion.error_category is ms.ErrorCategory.CANCELLED


def test_asyncio_and_portal_engines_call_the_key_function() -> None:
    async def main() -> None:
        async with open_peer(Server(GOOD, GOOD).script) as peer:
            tokens = Tokens(FIRST)
            with_thread = partial(_ask_from_a_thread, peer.origin, tokens)
            assert await trio.to_thread.run_sync(with_thread) == "hi"
            with_asyncio = partial(asyncio.run, _ask_from_asyncio(peer.origin, tokens))
            assert await trio.to_thread.run_sync(with_asyncio) == "hi"
            assert tokens.calls == 2

    trio.run(main)


def _ask_from_a_thread(origin: str, key: ms.APIKey) -> str:
    with open_portal([chat(origin, key)]) as portal:
        return portal.request(hello()).text


async def _ask_from_asyncio(origin: str, key: ms.APIKey) -> str:
    async with aio.open_engine([chat(origin, key)]) as engine:
        return (await engine.request(hello())).text
