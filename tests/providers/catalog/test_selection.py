"""How a request selects its provider."""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.catalog.selection import configured, named, select
from manystream.providers.model.request_rules import validate_model
from tests.providers.catalog.test_provider import MINE, refused

# --- selection ---
FIRST, SECOND = ms.OpenAIChat("a", profile=MINE, name="one"), ms.OpenAIChat("b", profile="groq", name="two")


def test_the_errors_of_selection() -> None:
    both = [FIRST, SECOND]
    assert refused(lambda: select("x", both)) == (
        "model",
        "model: no provider is known for 'x'; configured are one, two: write 'one/…' to name one",
    )
    assert refused(lambda: select("x", [])) == (
        "model",
        "model: no provider is known for 'x'; no provider is configured",
    )
    assert refused(lambda: select("one/ ", both)) == ("model", "model: 'one/ ' names a provider and no model")
    assert configured(both[1:]) == "configured are two: write 'two/…' to name one"
    wrong = "model: must be a model's name, such as 'gpt-5' or 'anthropic/claude-sonnet-4-5', not"
    for model in ("", " ", None, 7):
        assert refused(lambda model=model: validate_model(model)) == ("model", f"{wrong} {model!r}")  # type: ignore[misc]
    validate_model(" x ")


def test_a_name_precedes_a_row_and_a_row_a_generic_one() -> None:
    generic = ms.OpenAIChat("c", base_url="https://h.example/v1", name="three")
    known = ms.OpenAIChat("d", name="four")
    assert named("two", [FIRST, SECOND]) is SECOND
    assert named("groq", [FIRST, SECOND]) is SECOND
    assert named("openai", [generic, known]) is known
    assert named("openai", [generic]) is generic
    assert named("none", [FIRST, SECOND]) is None
    assert select("gpt-5", [generic, known]) == (known, "gpt-5")
    assert select("gpt-5", [generic, FIRST]) == (generic, "gpt-5")
    assert select("groq/a/b", [FIRST, SECOND]) == (SECOND, "a/b")


# --- selecting a provider ---
OPENAI = ms.OpenAIChat("key")

RESPONSES = ms.OpenAIResponses("key")

CLAUDE = ms.Anthropic("key")

GEMINI = ms.Gemini("key")

ROUTER = ms.OpenAIChat("key", base_url="https://openrouter.ai/api/v1")

TOGETHER = ms.OpenAIChat("key", base_url="https://api.together.xyz/v1")

LOCAL = ms.OpenAIChat("key", base_url="http://127.0.0.1:43210/v1", name="local")

GROQ = ms.OpenAIChat("key", name="groq")

MINE = ms.OpenAIChat("key", name="mine")


@pytest.mark.parametrize(
    ("model", "providers", "expected"),
    [
        # By name.
        ("anthropic/claude-opus-4-5", [OPENAI, CLAUDE], (CLAUDE, "claude-opus-4-5")),
        ("openai-chat/gpt-5", [OPENAI, RESPONSES], (OPENAI, "gpt-5")),
        ("openai-responses/gpt-5", [OPENAI, RESPONSES], (RESPONSES, "gpt-5")),
        ("local/llama", [OPENAI, LOCAL], (LOCAL, "llama")),
        ("local/gpt-5", [OPENAI, LOCAL], (LOCAL, "gpt-5")),
        # By alias, in the order configured. A name takes precedence over another provider's alias.
        ("openai/gpt-5", [OPENAI, RESPONSES], (OPENAI, "gpt-5")),
        ("openai/gpt-5", [RESPONSES, OPENAI], (RESPONSES, "gpt-5")),
        ("openai/x", [RESPONSES, ms.OpenAIChat("key", name="openai")], (ms.OpenAIChat("key", name="openai"), "x")),
        ("gemini/gemini-3", [CLAUDE, GEMINI], (GEMINI, "gemini-3")),
        ("openai-chat/gpt-5", [MINE], (MINE, "gpt-5")),
        # By prefix.
        ("gpt-5", [CLAUDE, OPENAI], (OPENAI, "gpt-5")),
        ("o3-mini", [CLAUDE, RESPONSES, OPENAI], (RESPONSES, "o3-mini")),
        ("claude-opus-4-5", [OPENAI, CLAUDE], (CLAUDE, "claude-opus-4-5")),
        ("gemini-3-pro", [OPENAI, GEMINI], (GEMINI, "gemini-3-pro")),
        # The only provider.
        ("llama-3", [LOCAL], (LOCAL, "llama-3")),
        ("gpt-5", [LOCAL], (LOCAL, "gpt-5")),
        ("claude-opus-4-5", [ROUTER], (ROUTER, "claude-opus-4-5")),
        # Slashes in a model's own name.
        ("meta-llama/Llama-3", [TOGETHER], (TOGETHER, "meta-llama/Llama-3")),
        ("meta-llama/Llama-3", [ROUTER], (ROUTER, "meta-llama/Llama-3")),
        ("openrouter/meta-llama/Llama-3", [ROUTER], (ROUTER, "meta-llama/Llama-3")),
        ("openrouter/meta-llama/Llama-3", [ROUTER, TOGETHER], (ROUTER, "meta-llama/Llama-3")),
        ("openai/gpt-5", [ROUTER], (ROUTER, "openai/gpt-5")),
        ("openai/gpt-oss-20b", [GROQ], (GROQ, "openai/gpt-oss-20b")),
        ("groq/openai/gpt-oss-20b", [GROQ, OPENAI], (GROQ, "openai/gpt-oss-20b")),
        ("openai/gpt-5", [ROUTER, OPENAI], (OPENAI, "gpt-5")),
        ("/leading", [LOCAL], (LOCAL, "/leading")),
    ],
)
def test_selection(model: str, providers: list[ms.Provider], expected: tuple[ms.Provider, str]) -> None:
    assert select(model, providers) == expected


def test_the_longest_prefix_wins() -> None:
    def owner(name: str, *prefixes: str) -> ms.OpenAIChat:
        row = ms.Profile(name=name, dialect="openai-chat", base_url="https://x.example", prefixes=prefixes)
        return ms.OpenAIChat("key", profile=row)

    short, long = owner("short", "gpt-"), owner("long", "gpt-5-special")
    assert select("gpt-5-special-2", [short, long])[0] is long
    assert select("gpt-5", [short, long])[0] is short
    assert select("gpt-5", [owner("other", "gpt-"), short])[0].name == "other"


@pytest.mark.parametrize(
    ("model", "providers", "words"),
    [
        ("llama-3", [OPENAI, CLAUDE], ["llama-3", "openai-chat", "anthropic"]),
        ("meta-llama/Llama-3", [ROUTER, TOGETHER], ["openrouter", "together"]),
        ("gpt-5", [], ["no provider is configured"]),
        ("anthropic/", [CLAUDE], ["names a provider and no model"]),
        ("anthropic/ ", [CLAUDE], ["names a provider and no model"]),
    ],
)
def test_an_unknown_model_lists_the_providers(model: str, providers: list[ms.Provider], words: list[str]) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        select(model, providers)
    assert caught.value.field == "model"
    assert all(word in str(caught.value) for word in words)
