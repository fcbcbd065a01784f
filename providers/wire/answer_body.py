"""The body of an unstreamed answer, and answers in the form of another API than the one that was asked for.

Those come from a base URL that belongs to the other API, and from gateways that pass an answer on as it is. Nothing in
them is read, and no further attempt brings another form.
"""

from __future__ import annotations

from ..json.json_values import JSON, JSONObject, MalformedJSONError, as_object, exact_loads, loads, says_nothing, shown
from ..model.provider_error import ProviderError, malformed, no_answer


def answer_loads(body: bytes) -> JSON:
    """Parse the body of an unstreamed answer, with whole numbers of any size.

    Raises `MalformedJSONError`, and `ProviderError` (`no_answer`) for a body that is blank or says nothing.
    """
    value = exact_loads(body) if body.strip() else None
    if says_nothing(value):
        raise no_answer(body)
    return value


def answer_object(body: bytes) -> JSONObject:
    """Parse the body of an unstreamed answer, which must be an object, as `answer_loads` does."""
    return as_object(answer_loads(body), body)


_CHAT, _RESPONSES, _ANTHROPIC, _GEMINI, _OLLAMA = "openai-chat", "openai-responses", "anthropic", "gemini", "ollama"
_INTERACTIONS = "gemini-interactions"

_NAMES: dict[str, tuple[str, str]] = {
    _CHAT: ("OpenAI's Chat Completions", "OpenAIChat reads it"),
    _RESPONSES: ("OpenAI's Responses", "OpenAIResponses reads it"),
    _ANTHROPIC: ("Anthropic's Messages", "Anthropic reads it"),
    _GEMINI: ("Gemini's generateContent", "Gemini reads it"),
    _INTERACTIONS: ("Gemini's Interactions", "GeminiInteractions reads it"),
    _OLLAMA: ("Ollama's own API", "OpenAIChat reads what Ollama sends below /v1"),
}
"""Form → the name of its API, and what reads it."""


def foreign_answer(value: JSON, dialect: str, data: bytes) -> ProviderError | None:
    """Return the error for an answer, or an event of one, in the form of another API than the dialect's; or None.

    value: the answer. None: it is parsed from `data`.
    """
    if value is None:
        try:
            value = loads(data)
        except MalformedJSONError:
            return None
    form = _form_of(value) if type(value) is dict else None
    if form is None or form == dialect or dialect not in _NAMES:  # a dialect of the user's own may have any form
        return None
    api, reader = _NAMES[form]
    return malformed(f"the answer has the form of another API, {api} ({reader}): {shown(data)}", data)


def _form_of(value: JSONObject) -> str | None:
    kind, of = value.get("type"), value.get("object")
    if type(kind) is str and kind.startswith("response."):
        return _RESPONSES
    if type(kind) is str and kind.startswith(("message_", "content_block_")):
        return _ANTHROPIC
    if of == "response" and type(value.get("output")) is list:
        return _RESPONSES
    if type(value.get("choices")) is list:
        return _CHAT
    if kind == "message" and type(value.get("content")) is list:
        return _ANTHROPIC
    if of == "interaction" or type(value.get("event_type")) is str:
        return _INTERACTIONS
    if type(value.get("candidates")) is list:
        return _GEMINI
    if type(value.get("done")) is bool and ("message" in value or "response" in value):
        return _OLLAMA
    return None
