"""The provider for a base URL and a dialect: its class, and the key that it gets."""

import pytest

from manystream.cli.addresses import provider_at
from manystream.cli.output.errors import CommandError
from manystream.providers.catalog.provider import (
    Anthropic,
    Gemini,
    GeminiInteractions,
    OpenAIChat,
    OpenAIResponses,
    Provider,
)

HOME = {"HOME": "/nonexistent", "MANYSTREAM_CREDENTIALS": ""}


@pytest.mark.parametrize(
    ("dialect", "kind"),
    [
        ("openai-chat", OpenAIChat),
        ("openai-responses", OpenAIResponses),
        ("anthropic", Anthropic),
        ("gemini", Gemini),
        ("gemini-interactions", GeminiInteractions),
    ],
)
@pytest.mark.parametrize(
    ("url", "environment", "key"),
    [
        ("http://127.0.0.1:1/v1", HOME, "any"),
        ("http://localhost/v1", HOME | {"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": "", "GEMINI_API_KEY": ""}, "any"),
        ("http://127.0.0.1:1/v1", HOME | {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "GEMINI_API_KEY": "k"},
            None),
        ("http://127.0.0.1:1/v1", HOME | {"OPENAI_API_KEY": "a\nb", "ANTHROPIC_API_KEY": "a\nb",
            "GEMINI_API_KEY": "a\nb"}, "any"),
        ("http://10.0.0.5/v1", HOME, None),
    ],
)  # fmt: skip
def test_a_server_on_this_machine_gets_any_key(
    dialect: str, kind: type[Provider], url: str, environment: dict[str, str], key: str | None
) -> None:
    provider = provider_at(url, dialect, environment)
    assert (type(provider), provider.base_url, provider.api_key) == (kind, url, key)


def test_an_error_of_a_command_is_status_1_by_default() -> None:
    assert (CommandError("x").status, CommandError("x", status=2).status, str(CommandError("x"))) == (1, 2, "x")
