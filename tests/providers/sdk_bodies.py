"""The bodies that the official SDKs send for the same arguments, and what a request of ours becomes. No network: each
SDK is given a client that keeps the body."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from typing import cast

import anthropic
import httpx2
import openai
from google import genai
from google.genai import _interactions_errors, errors, types

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.json.json_values import JSONObject

PROVIDERS: dict[str, ms.Provider] = {
    "openai": ms.OpenAIChat(), "openai_responses": ms.OpenAIResponses(), "anthropic": ms.Anthropic(),
    "gemini": ms.Gemini(), "interactions": ms.GeminiInteractions(),
}  # fmt: skip

READERS: dict[str, Callable[..., ms.Request]] = {
    "openai": ms.Request.from_openai, "openai_responses": ms.Request.from_openai_responses,
    "anthropic": ms.Request.from_anthropic, "gemini": ms.Request.from_gemini,
    "interactions": ms.Request.from_gemini_interactions,
}  # fmt: skip


def sent_by_sdk(sdk: str, arguments: dict[str, object], method: str = "create") -> JSONObject:
    """The body that the SDK sends."""
    bodies: list[JSONObject] = []

    def keep(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        return httpx2.Response(400, json={"error": {"message": "kept", "code": 400}})

    client = httpx2.Client(transport=httpx2.MockTransport(keep))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # models and forms that are deprecated are read all the same
        _send(_method(sdk, client, method), arguments)
    return cast("JSONObject", on_the_wire(bodies[0])) if sdk in GOOGLE else bodies[0]


def _send(method: Callable[..., object], arguments: dict[str, object]) -> None:
    try:
        method(**arguments)
    except (openai.APIStatusError, anthropic.APIStatusError, errors.APIError, _interactions_errors.APIStatusError):
        pass


def on_the_wire(value: ms.JSON) -> ms.JSON:
    """A body of google-genai's with one spelling: it sends some names in snake case, which the server takes as well,
    and an empty `generationConfig`, which says nothing."""
    if type(value) is list:
        return [on_the_wire(item) for item in value]
    if type(value) is not dict:
        return value
    members: JSONObject = {}
    for name, member in value.items():
        if name == "generationConfig" and not member:
            continue
        key = re.sub("_([a-z])", lambda found: found[1].upper(), name) if name in SNAKE else name
        members[key] = on_the_wire(member)
    tools = members.get("tools")
    if type(tools) is list:
        members["tools"] = sorted(tools, key=str)  # it puts functions last, we put them first
    return members


GOOGLE = ("gemini", "interactions")
SNAKE = (
    "parameters_json_schema", "thinking_level", "thinking_budget", "include_thoughts", "mime_type", "file_uri",
)  # fmt: skip
"""The names that it sends in snake case."""


def _method(sdk: str, client: httpx2.Client, method: str) -> Callable[..., object]:
    if sdk == "gemini":
        models = genai.Client(api_key="key", http_options=types.HttpOptions(httpx_client=client)).models
        return cast("Callable[..., object]", models.generate_content)  # pyright: ignore[reportUnknownMemberType]
    if sdk == "interactions":
        options = types.HttpOptions(httpx_client=client, retry_options=types.HttpRetryOptions(attempts=1))
        return cast("Callable[..., object]", genai.Client(api_key="key", http_options=options).interactions.create)
    if sdk == "anthropic":
        messages = anthropic.Anthropic(api_key="key", http_client=client, max_retries=0).messages
        return cast("Callable[..., object]", getattr(messages, method))
    chat = openai.OpenAI(api_key="key", http_client=client, max_retries=0)
    return cast("Callable[..., object]", getattr(chat.chat.completions if sdk == "openai" else chat.responses, method))


def sent_by_us(
    sdk: str, request: ms.Request, *, stream: bool = False, provider: ms.Provider | None = None
) -> JSONObject:
    """The body that a request becomes; by default for the SDK's own provider."""
    chosen = provider if provider is not None else PROVIDERS[sdk]
    dialect = DIALECTS[str(chosen.profile.dialect)]
    body = cast("JSONObject", json.loads(dialect.encode(request, request.model, chosen, stream=stream).body))
    return cast("JSONObject", on_the_wire(body)) if sdk in GOOGLE else body


def warnings_of(sdk: str, request: ms.Request) -> list[str]:
    provider = PROVIDERS[sdk]
    dialect = DIALECTS[str(provider.profile.dialect)]
    return dialect.encode(request, request.model, provider, stream=False).warnings
