"""Where the environment says that a provider is: gateways, their keys, and addresses that are wrong."""

import dataclasses
import pickle

import pytest

import manystream as ms
from manystream.engine.request.addresses import addressed, located
from manystream.engine.request.credentials import find_key
from manystream.providers.wire.wire_head import key_headers
from tests.engine.request.test_credentials import OWN
from tests.support.peers import answer, chat_answer, open_peer, replies

REMOTE = "https://models.example/v1"


# --- addresses in the environment ---

GATEWAY = "http://127.0.0.1:9/v1"


ADDRESSES: list[tuple[ms.Provider, dict[str, str], str, str]] = [
    (ms.OpenAIChat(), {}, "https://api.openai.com/v1", "openai-chat"),
    (ms.OpenAIChat(), {"OPENAI_BASE_URL": GATEWAY}, GATEWAY, "openai-compatible"),
    (ms.OpenAIChat(), {"OPENAI_BASE_URL": f" {GATEWAY}/chat/completions/ "}, GATEWAY, "openai-compatible"),
    (ms.OpenAIChat(), {"OPENAI_BASE_URL": "https://openrouter.ai/api/v1"}, "https://openrouter.ai/api/v1",
     "openrouter"),
    (ms.OpenAIChat(), {"OPENAI_BASE_URL": ""}, "https://api.openai.com/v1", "openai-chat"),
    (ms.OpenAIChat(base_url="https://h.test/v1"), {"OPENAI_BASE_URL": GATEWAY}, "https://h.test/v1",
     "openai-compatible"),
    (ms.OpenAIChat(base_url="https://api.openai.com/v1"), {"OPENAI_BASE_URL": GATEWAY}, "https://api.openai.com/v1",
     "openai-chat"),
    (ms.OpenAIResponses(), {"OPENAI_BASE_URL": GATEWAY}, GATEWAY, "responses-compatible"),
    (ms.OpenAIChat(profile="openai-compatible"), {"OPENAI_BASE_URL": GATEWAY}, GATEWAY, "openai-compatible"),
    (ms.OpenAIChat(profile="vllm"), {"OPENAI_BASE_URL": GATEWAY}, "http://localhost:8000/v1", "vllm"),
    (ms.OpenAIChat(name="groq"), {"OPENAI_BASE_URL": GATEWAY}, "https://api.groq.com/openai/v1", "groq"),
    (ms.OpenAIChat(name="groq"), {"GROQ_BASE_URL": "https://h.test/"}, "https://h.test/openai/v1", "groq"),
    (ms.OpenAIChat(name="groq"), {"GROQ_BASE_URL": "https://h.test/openai/v1/?a=b"}, "https://h.test/openai/v1?a=b",
     "groq"),
    (ms.OpenAIChat(name="together"), {"TOGETHER_BASE_URL": "https://h.test"}, "https://h.test/v1", "together"),
    (ms.OpenAIChat(name="cerebras"), {"CEREBRAS_BASE_URL": "https://h.test"}, "https://h.test/v1", "cerebras"),
    (ms.OpenAIChat(name="fireworks"), {"FIREWORKS_BASE_URL": "https://h.test"}, "https://h.test/v1", "fireworks"),
    (ms.OpenAIChat(name="azure"), {"AZURE_OPENAI_ENDPOINT": "https://a.openai.azure.com/"},
     "https://a.openai.azure.com/openai/v1", "azure"),
    (ms.OpenAIResponses(name="azure"), {"AZURE_OPENAI_ENDPOINT": "https://a.openai.azure.com/openai/v1?v=1"},
     "https://a.openai.azure.com/openai/v1?v=1", "azure-responses"),
    (ms.OpenAIChat(name="bedrock-mantle"), {"AWS_BEDROCK_BASE_URL": "https://h.test/v1"}, "https://h.test/v1",
     "bedrock-mantle"),
    (ms.OpenAIChat(name="ollama"), {"OLLAMA_HOST": "0.0.0.0"}, "http://0.0.0.0:11434/v1", "ollama"),
    (ms.OpenAIChat(name="ollama"), {"OLLAMA_HOST": ":99"}, "http://localhost:99/v1", "ollama"),
    (ms.OpenAIChat(name="ollama"), {"OLLAMA_HOST": "[::1]"}, "http://[::1]:11434/v1", "ollama"),
    (ms.OpenAIChat(name="ollama"), {"OLLAMA_HOST": "h.test:99/a"}, "http://h.test:99/a/v1", "ollama"),
    (ms.OpenAIChat(name="ollama"), {"OLLAMA_HOST": "https://h.test"}, "https://h.test/v1", "ollama"),
    (ms.Anthropic(), {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}, "http://127.0.0.1:9", "anthropic-compatible"),
    (ms.Anthropic(name="mine"), {"ANTHROPIC_BASE_URL": "https://h.test/v1/messages"}, "https://h.test",
     "anthropic-compatible"),
    (ms.Gemini(), {"GOOGLE_GEMINI_BASE_URL": "https://h.test"}, "https://h.test", "google"),
    (ms.Provider(profile=OWN), {"OPENAI_BASE_URL": GATEWAY}, REMOTE, "own"),
    (ms.Provider(profile=dataclasses.replace(OWN, url_variables=("A", "B/v9"))), {"B": "https://h.test"},
     "https://h.test/v9", "own"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "environment", "url", "profile"), ADDRESSES)
def test_the_environment_has_addresses(given: ms.Provider, environment: dict[str, str], url: str, profile: str) -> None:
    found = located(given, environment)
    assert (found.base_url, found.profile.name, found.name) == (url, profile, given.name)
    assert type(found) is type(given)
    assert set(given.profile.prefixes) <= set(found.profile.prefixes)
    assert set(given.profile.aliases) <= set(found.profile.aliases)
    assert located(found, environment) == found
    assert located(pickle.loads(pickle.dumps(given)), environment) == found


def test_a_gateway_of_the_environment_gets_its_key() -> None:
    environment = {
        "OPENAI_BASE_URL": "https://openrouter.ai/api/v1",
        "OPENAI_API_KEY": "first",
        "OPENROUTER_API_KEY": "second",
    }
    assert find_key(located(ms.OpenAIChat(), environment), environment) == "first"
    del environment["OPENAI_API_KEY"]
    assert find_key(located(ms.OpenAIChat(), environment), environment) == "second"
    assert find_key(located(ms.OpenAIChat("given"), environment), environment) == "given"


def test_a_token_goes_in_a_header_of_its_own() -> None:
    def sent(provider: ms.Provider, environment: dict[str, str]) -> list[tuple[str, str]]:
        found = located(provider, environment)
        return key_headers(found.profile.quirks, find_key(found, environment), "x-api-key")

    both = {"ANTHROPIC_AUTH_TOKEN": "token", "ANTHROPIC_API_KEY": "key"}
    assert sent(ms.Anthropic(), {"ANTHROPIC_AUTH_TOKEN": "token"}) == [("authorization", "Bearer token")]
    assert sent(ms.Anthropic(), both) == [("x-api-key", "key")]
    assert sent(ms.Anthropic("given"), {"ANTHROPIC_AUTH_TOKEN": "token"}) == [("x-api-key", "given")]
    gateway = {"ANTHROPIC_AUTH_TOKEN": "token", "ANTHROPIC_BASE_URL": "https://h.test"}
    assert sent(ms.Anthropic(), gateway) == [("authorization", "Bearer token")]


def test_a_wrong_address_is_refused_with_its_variable() -> None:
    with pytest.raises(ms.InvalidRequestError) as raised:
        addressed([ms.OpenAIChat()], {"OPENAI_BASE_URL": "gateway/v1"})
    assert str(raised.value) == (
        "base_url: of 'openai-chat', from OPENAI_BASE_URL: base URL: has no scheme; begin it with https:// or http://"
    )
    with pytest.raises(ms.InvalidRequestError) as raised:
        addressed([ms.OpenAIChat(name="azure")])
    assert str(raised.value) == (
        "base_url: 'azure' needs one, such as 'https://host/v1', or the variable AZURE_OPENAI_ENDPOINT"
    )


async def test_an_engine_sends_to_the_address_of_its_environment() -> None:
    async with open_peer(replies(answer(chat_answer("hi")))) as peer:
        environment = {"OPENAI_BASE_URL": peer.url, "OPENAI_API_KEY": "sk-gateway"}
        async with ms.open_engine([ms.OpenAIChat(), ms.Anthropic("k")], environment=environment) as engine:
            for model in ("gpt-5-mini", "openai/any", "openai-chat/any"):
                response = await engine.request(ms.Request(model, [ms.Message.user("hello")]))
                assert response.text == "hi"
    assert len(peer.requests) == 3
    assert all(request.startswith(b"POST /v1/chat/completions ") for request in peer.requests)
    assert all(b"authorization: Bearer sk-gateway\r\n" in request for request in peer.requests)
