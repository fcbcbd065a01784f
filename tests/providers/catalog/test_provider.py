"""Providers, requests and errors as values: defaults, the texts that show them, and the whole text of each refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

import manystream as ms
from manystream.providers.catalog.profiles import profile_by_host
from manystream.providers.catalog.provider import keys_of, takes_block
from manystream.providers.catalog.registry import check_dialect

MINE = ms.Profile(name="mine", dialect="openai-chat", base_url="https://mine.example/v1")


def refused(make: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(ms.InvalidRequestError) as caught:
        make()
    return caught.value.field, str(caught.value)


def key() -> str:
    return "k"


async def coroutine() -> str:
    return "k"


def generator() -> Iterator[str]:
    yield "k"


# --- providers ---
def test_a_provider_has_these_values() -> None:
    plain = ms.OpenAIChat()
    assert (plain.api_key, plain.base_url, plain.name) == (None, "https://api.openai.com/v1", "openai-chat")
    assert (plain.headers, plain.idempotency_header, plain.profile.name) == ({}, None, "openai-chat")
    given = ms.Anthropic(
        key, "https://h.example", name="n", headers={"a": "b"}, profile=None, idempotency_header="I", prices_as="openai"
    )
    assert (given.api_key, given.base_url, given.name) == (key, "https://h.example", "n")
    assert (plain.prices_as, given.prices_as) == (None, "openai")
    assert (given.headers, given.idempotency_header, given.profile.name) == ({"a": "b"}, "I", "anthropic-compatible")


def test_a_provider_finds_its_row() -> None:
    assert ms.OpenAIChat(name="groq").profile.name == "groq"
    assert ms.OpenAIChat(name="groq", base_url="https://api.x.ai/v1").profile.name == "groq"
    assert ms.OpenAIChat(name="other", base_url="https://api.x.ai/v1").profile.name == "xai"
    assert ms.OpenAIChat(name="other").profile.name == "openai-chat"
    assert ms.OpenAIChat(profile="vllm").base_url == "http://localhost:8000/v1"
    assert ms.OpenAIChat(profile=MINE).profile is MINE
    assert ms.Provider(profile=MINE).profile is MINE


def test_several_keys_are_kept_in_order() -> None:
    assert (ms.OpenAIChat(["a", key]).api_key, keys_of(ms.OpenAIChat(["a", key]))) == (("a", key), ("a", key))
    assert (ms.OpenAIChat(["a"]).api_key, keys_of(ms.OpenAIChat(["a"]))) == ("a", ())
    assert keys_of(ms.OpenAIChat(key)) == keys_of(ms.OpenAIChat()) == ()


def test_the_repr_of_a_provider_hides_its_query() -> None:
    assert repr(ms.OpenAIChat("k", profile=MINE)) == (
        "OpenAIChat(name='mine', base_url='https://mine.example/v1', profile='mine')"
    )
    shown = repr(ms.Anthropic("k", "https://h.example/a?key=secret?x", name="n"))
    assert shown == "Anthropic(name='n', base_url='https://h.example/a?…', profile='anthropic-compatible')"
    shown = repr(ms.Anthropic("k", "https://me:se@cret@h.example/a@2", name="n"))
    assert shown == "Anthropic(name='n', base_url='https://…@h.example/a@2', profile='anthropic-compatible')"
    for form in (
        "https://me:{}@h/v1",
        "https://me:{}/x@h/v1",
        "https:/me:{}@h",
        "me:{}@h/v1",
        "//me:{}@h",
        "https://{}@h",
    ):
        assert "secret" not in repr(ms.Anthropic("k", form.format("secret"), name="n")), form
    assert "'https://h:1/a'" in repr(ms.Anthropic("k", "https://h:1/a", name="n"))


def test_a_provider_that_was_not_made_can_be_shown() -> None:
    """A traceback with the variables of its frames shows it."""
    with pytest.raises(ms.InvalidRequestError) as raised:
        ms.OpenAIChat(b"secret")  # type: ignore[arg-type]
    shown = [repr(frame.locals.get("self")) for frame in raised.traceback]
    assert "<OpenAIChat>" in shown


def test_providers_are_equal_by_their_values() -> None:
    assert ms.OpenAIChat("a", profile=MINE) == ms.OpenAIChat("a", profile=MINE)
    assert ms.OpenAIChat("a", profile=MINE) != ms.OpenAIChat("b", profile=MINE)
    assert ms.OpenAIChat("a", profile=MINE) != ms.Provider("a", profile=MINE)
    assert ms.OpenAIChat("a") != "a"
    with pytest.raises(TypeError):
        hash(ms.OpenAIChat())


NO_DIALECT = (
    "profile: a plain Provider has no dialect: give it a Profile, or take OpenAIChat, OpenAIResponses, Anthropic,"
    " Gemini or GeminiInteractions"
)

REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: ms.Provider(), NO_DIALECT),
    (lambda: ms.Provider(profile="groq"), NO_DIALECT),
    (lambda: ms.Provider(name="groq", base_url="https://api.x.ai/v1"), NO_DIALECT),
    (lambda: ms.Gemini(profile="groq"), "profile: no profile 'groq' speaks gemini"),
    (
        lambda: ms.Gemini(profile=MINE),
        "profile: Gemini speaks gemini, and the profile 'mine' is for openai-chat: use Provider(profile=…), which takes"
        " its dialect from the profile",
    ),
    (lambda: ms.Gemini([]), "api_key: must hold at least one key"),
    *((partial(kind, key), "api_key: looks like a URL: give it as base_url=…")
      for key in ("http://127.0.0.1:8000/v1", "HTTPS://h.example", "localhost:8000", "127.0.0.1/v1", "localhost")
      for kind in (ms.OpenAIChat, ms.OpenAIResponses, ms.Anthropic, ms.Gemini, ms.GeminiInteractions,
                   ms.OpenAICompletions, ms.VLLMGenerate, ms.SGLangGenerate)),
    (lambda: ms.Gemini("http://h.example", "sk-key"), "api_key: looks like a URL: give it as base_url=…"),
    (lambda: ms.Gemini(["a", "https://h.example"]), "api_key[1]: looks like a URL: give it as base_url=…"),
    (lambda: ms.Gemini("k", name="https://h.example/v1"), "name: looks like a URL: give it as base_url=…"),
    (lambda: ms.Gemini(["a", ""]), "api_key[1]: must not be empty"),
    (lambda: ms.Gemini(["a", "b", "a"]), "api_key[2]: is given twice: each key has limits of its own"),
    (lambda: ms.Gemini([1]), "api_key[0]: must be text, or a function that returns it, not int"),  # type: ignore[list-item]
    (
        lambda: ms.Gemini(["a", generator]),  # type: ignore[list-item]
        "api_key[1]: generator is a generator function (yield), which returns no key. Give a plain function or a"
        " coroutine function that returns one",
    ),
    (
        lambda: ms.Gemini(sign=coroutine),  # type: ignore[arg-type]
        "sign: coroutine is a coroutine function (async def), which returns no headers when it is called. Give a plain"
        " function, which must not wait",
    ),
    (lambda: ms.Gemini(sign="key"), "sign: must be a function that returns headers, not str"),  # type: ignore[arg-type]
    (lambda: ms.Gemini(1), "api_key: must be text, or a function that returns it, not int"),  # type: ignore[arg-type]
    (lambda: ms.Gemini(base_url=1), "base_url: must be text, not int"),  # type: ignore[arg-type]
    (lambda: ms.Gemini(name=""), "name: must be text that is not empty, not ''"),
    (lambda: ms.Gemini(headers={"a": 1}), "headers['a']: must be text, not int"),  # type: ignore[dict-item]
    (lambda: ms.Gemini(headers=["a"]), "headers: must be a dict of texts, not list"),  # type: ignore[arg-type]
    (lambda: ms.Gemini(profile=1), "profile: must be a profile's name or a Profile, not 1"),  # type: ignore[arg-type]
    (
        lambda: ms.Gemini(prices_as=""),
        "prices_as: must be text that is not empty, not ''",
    ),
    (
        lambda: ms.Gemini(idempotency_header=1),  # type: ignore[arg-type]
        "idempotency_header: must be a header's name, not 1",
    ),
    (lambda: check_dialect(ms.Profile(name="p", dialect="d", base_url="")), "profile.dialect: no dialect is named 'd';"
     " known are openai-chat, openai-responses, anthropic, gemini, gemini-interactions, vllm-generate,"
     " sglang-generate, openai-completions; for another wire format give the Dialect itself:"
     " Profile(dialect=my_dialect)"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_a_wrong_provider_is_refused_in_these_words(make: Callable[[], object], words: str) -> None:
    field, shown = refused(make)
    assert shown == words
    assert words.startswith(f"{field}: ")


def test_the_maker_of_state() -> None:
    generic = ms.OpenAIChat(base_url="https://h.example/v1", name="n")
    assert generic.maker == "openai-compatible:n"
    assert generic.maker is ms.OpenAIChat(base_url="https://h.example/v1", name="n").maker
    assert ms.OpenAIChat(base_url="https://h.example/v1").maker == "openai-compatible"
    assert ms.OpenAIChat(profile=MINE, name="n").maker == "mine"
    blocks = [ms.ProviderBlock(maker, {}) for maker in ("openai-compatible:n", "openai-compatible", "n")]
    assert [takes_block(generic, block) for block in blocks] == [True, True, False]


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (" https://api.groq.com/openai/v1 ", "groq"),
        ("HTTPS://API.GROQ.COM:443/v1", "groq"),
        ("https://api.groq.com:444/v1", None),
        ("http://localhost:11434", "ollama"),
        ("http://localhost:1234", "lmstudio"),
        ("http://localhost:8080/v1", None),
        ("https://a@b@api.groq.com", "groq"),
        ("https://api.cloudflare.com/client/v4/accounts/1/ai", "cloudflare"),
        ("https://api.cloudflare.com/client/v5", None),
        ("https://api.cloudflare.com", None),
        ("https://x.services.ai.azure.com/models", "azure-models"),
        ("https://x.services.ai.azure.com/modelx", "azure"),
        ("https://api.eu.githubcopilot.com", "github-copilot"),
        ("https://", None),
    ],
)
def test_the_row_of_an_address(url: str, name: str | None) -> None:
    row = profile_by_host(url, "openai-chat")
    assert (row.name if row else None) == name
