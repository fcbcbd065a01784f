"""A server's chat template as a dialect: a conversation in Chat's form in, the ids of its prompt out.

Sources: vLLM 0.32 (`/tokenize`), SGLang 0.5 (`/v1/tokenize`). They answer with `tokens`, a list of ids.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from ..catalog.dialect import Dialect, MakeId, WireRequest
from ..catalog.profiles import profile_by_name
from ..catalog.provider import APIKey, Provider
from ..errors import InvalidRequestError
from ..json.json_values import MalformedJSONError, loads, shown
from ..model.message_rules import TEXT
from ..model.provider_error import malformed
from ..model.request import Request
from ..model.response import Response
from ..model.tokens import Tokens, Usage
from ..openai.chat.request import encode_request
from ..openai.chat.stream import ChatStream
from ..wire.answer_limits import ANSWER_LIMITS, AnswerLimits
from ..wire.answer_tokens import AnswerTokens


def _encode(request: Request, model: str, provider: Provider, *, stream: bool) -> WireRequest:
    if stream:
        raise InvalidRequestError("stream", "the ids of a prompt come whole: use engine.request")
    wire = encode_request(request, model, provider, stream=False)
    wire.path = "/tokenize"
    return wire


def _decode(body: bytes, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> Response:
    reader = AnswerTokens()
    with suppress(MalformedJSONError):
        value = loads(body)
        reader.add_prompt(value.get("tokens") if type(value) is dict else None)
    ids = reader.tokens.prompt_ids
    if not ids:
        raise malformed(f"malformed answer: {shown(body)} has no ids in a list named tokens", body)
    return Response(usage=Usage(input_tokens=len(ids), output_tokens=0), tokens=Tokens(prompt_ids=ids))


DIALECT = Dialect(name="chat-template", encode=_encode, decode=_decode, machine=ChatStream)


def chat_template(
    api_key: APIKey | None = None, base_url: str = "http://localhost:8000", *, name: str = ""
) -> Provider:
    """Return the chat template of a vLLM or SGLang server as a provider.

    A request to it has messages, and tools if the conversation has any. Its response has no content: its
    `tokens.prompt_ids` are the ids of the prompt.

    base_url: what is before `/tokenize`: vLLM's address, or SGLang's with `/v1`.
    name: the provider's name in `"name/model"`. Default: `chat-template`.
    """
    TEXT.check(base_url, "base_url")
    TEXT.check(name, "name")
    row = profile_by_name("vllm", "openai-chat")
    assert row is not None
    profile = replace(row, name="chat-template", dialect=DIALECT, base_url=base_url, aliases=())
    return Provider(api_key, base_url, profile=profile, name=name or None)
