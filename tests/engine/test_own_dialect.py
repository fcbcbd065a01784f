"""A program's own dialect: the accepted values, and the errors for all others."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

import manystream as ms
from manystream.providers.catalog.dialect import Dialect, MakeId, StreamMachine, WireRequest, bearer_token
from manystream.providers.catalog.registry import DIALECTS


def encode(request: ms.Request, model: str, provider: ms.Provider, *, stream: bool) -> WireRequest:
    return WireRequest("/", [], b"{}")


def decode(body: bytes, provider: ms.Provider, make_id: MakeId, limits: object = None) -> ms.Response:
    return ms.Response()


class Silent(StreamMachine):
    """A stream machine that ignores every event."""

    def take_event(self, event: str, data: bytes) -> Sequence[ms.Event]:
        return ()

    def take_end(self) -> Sequence[ms.Event]:
        return ()


OWN = Dialect(name="own", encode=encode, decode=decode, machine=Silent)


def profile_of(dialect: str | Dialect) -> ms.Profile:
    return ms.Profile(name="mine", dialect=dialect, base_url="http://127.0.0.1:9")


async def opened(provider: ms.Provider) -> None:
    async with ms.open_engine([provider]):
        pass


async def test_a_profile_accepts_a_dialect_or_its_name() -> None:
    assert profile_of(OWN).dialect_name == "own"
    assert profile_of("gemini").dialect_name == "gemini"
    await opened(ms.Provider(profile=profile_of(OWN)))
    await opened(ms.OpenAIChat(profile=profile_of(OWN)))
    await opened(ms.Provider(profile=profile_of(DIALECTS["anthropic"])))


async def test_an_unknown_dialect_error_lists_the_known_ones() -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        await opened(ms.Provider(profile=profile_of("telepathy")))
    assert caught.value.field == "profile.dialect"
    assert str(caught.value) == (
        "profile.dialect: no dialect is named 'telepathy'; known are openai-chat, openai-responses, anthropic, gemini,"
        " gemini-interactions, vllm-generate, sglang-generate, openai-completions; for another wire format give the"
        " Dialect itself: Profile(dialect=my_dialect)"
    )


@pytest.mark.parametrize("wrong", [None, 5, "", " ", Dialect, {"name": "own"}], ids=repr)
async def test_an_invalid_dialect_is_refused_at_open_engine(wrong: object) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"profile\.dialect: "):
        await opened(ms.Provider(profile=profile_of(wrong)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (("Host", "sk-canary"), "'Host' is decided by the transport; leave it out"),
        (("x-key", b"sk-canary"), "names and values must be text"),
    ],
    ids=["of the transport", "no text"],
)
async def test_a_key_s_header_is_checked(header: tuple[str, str], words: str) -> None:
    dialect = replace(OWN, auth_headers=lambda provider, key: [header])
    async with ms.open_engine([ms.Provider("sk-canary", profile=profile_of(dialect))]) as engine:
        with pytest.raises(ms.InvalidRequestError) as caught:
            engine.start_stream(ms.Request("m", [ms.Message.user("hello")]))
    assert str(caught.value) == f"api_key: {words}"


async def test_a_key_that_a_dialect_cannot_write_fails_its_call() -> None:
    """The key function is called after the call's own headers were checked: it is the key that is wrong."""
    dialect = replace(OWN, auth_headers=lambda provider, key: [("x-key", f"{key}\n")] if key else [])
    provider = ms.Provider(lambda: "sk-canary", profile=profile_of(dialect))
    async with ms.open_engine([provider]) as engine:
        completion = await engine.start_stream(ms.Request("m", [ms.Message.user("hello")])).wait()
    error = completion.error
    assert (error.category, error.retryable) == (ms.ErrorCategory.AUTH, False)
    assert error.message == "the key that the api_key function of 'mine' returned fits into no header"
    assert error.__cause__ is None


def test_a_plain_provider_needs_a_profile() -> None:
    cases: tuple[dict[str, str], ...] = ({}, {"profile": "groq"}, {"base_url": "http://127.0.0.1:9"})
    for given in cases:
        with pytest.raises(ms.InvalidRequestError, match=r"profile: a plain Provider has no dialect: .*OpenAIChat"):
            ms.Provider("key", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("member", ["encode", "decode", "machine", "auth_headers", "decode_error"])
def test_a_dialect_s_member_must_be_a_function(member: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=rf"Dialect\.{member}: must be a function, not 'x'"):
        replace(OWN, **{member: "x"})


@pytest.mark.parametrize("name", ["", "  ", None, 3])
def test_a_dialect_has_a_name(name: object) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"Dialect\.name: must be text that is not empty"):
        replace(OWN, name=name)  # type: ignore[arg-type]


def test_a_minimal_dialect_has_useful_defaults() -> None:
    assert OWN.auth_headers is bearer_token
    assert OWN.auth_headers(ms.Provider(profile=profile_of(OWN)), "k") == [("authorization", "Bearer k")]
    error = OWN.decode_error(429, {"retry-after": "2"}, b'{"error": {"message": "slower"}}', 0.0)
    assert (error.category, error.message, error.retry_after_ms) == (ms.ErrorCategory.RATE_LIMIT, "slower", 2000)


def test_a_dialect_is_a_value_with_a_short_repr() -> None:
    assert repr(OWN) == "Dialect(name='own')"
    assert replace(OWN) == OWN
    assert {OWN: 1}[replace(OWN)] == 1
    with pytest.raises(AttributeError):
        OWN.name = "other"  # type: ignore[misc]
