"""The streams of the five dialects as wire text: a first part with the text "one", the rest, and error events."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import manystream as ms


def frame(payload: object, name: str = "") -> str:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(payload)}\n\n"


@dataclass(frozen=True)
class Wording:
    """The wire texts of one dialect.

    beginning: the stream up to a text delta "one".
    rest: the stream from there to its end.
    overload: an error event after which a retry may succeed.
    spent: an error event after which no retry can succeed.
    whole: the same answer unstreamed.
    malformed: an event that is not JSON.
    """

    name: str
    provider: Callable[[str], ms.Provider]
    beginning: str
    rest: str
    overload: str
    spent: str
    whole: str
    malformed: str = 'data: {"choices": [\n\n'


def _chat(content: str | None, finish: str | None = None) -> str:
    delta = {} if content is None else {"content": content}
    return frame({"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _responses(kind: str, **members: object) -> str:
    return frame({"type": kind, **members}, kind)


def _anthropic(kind: str, **members: object) -> str:
    return frame({"type": kind, **members}, kind)


def _gemini(text: str, **members: object) -> str:
    return frame(
        {"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": text}]}, **members}]}
    ).replace("\n\n", "\r\n\r\n")


def _interactions(kind: str, **members: object) -> str:
    return frame({"event_type": kind, **members}, kind)


_INTERACTION = {"id": "v1_1", "object": "interaction", "model": "m"}
_OUTPUT = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "one"}]}
_RESPONSE = {"id": "resp_1", "model": "m", "status": "completed", "output": [_OUTPUT]}
_MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
    "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip

CHAT = Wording(
    "chat",
    lambda url: ms.OpenAIChat(api_key="k", base_url=f"{url}/v1"),
    _chat("one"),
    _chat(None, "stop") + "data: [DONE]\n\n",
    frame({"error": {"message": "we are overloaded", "type": "server_error", "code": None}}),
    frame({"error": {"message": "quota spent", "type": "insufficient_quota", "code": "insufficient_quota"}}),
    json.dumps(
        {
            "id": "c1",
            "object": "chat.completion",
            "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "one"}, "finish_reason": "stop"}],
        }
    ),
)
RESPONSES = Wording(
    "responses",
    lambda url: ms.OpenAIResponses(api_key="k", base_url=f"{url}/v1"),
    _responses("response.created", response={**_RESPONSE, "status": "in_progress", "output": []})
    + _responses("response.output_item.added", output_index=0, item={**_OUTPUT, "content": []})
    + _responses("response.output_text.delta", output_index=0, content_index=0, item_id="msg_1", delta="one"),
    _responses("response.output_item.done", output_index=0, item=_OUTPUT)
    + _responses("response.completed", response=_RESPONSE),
    _responses("error", code="server_error", message="we are overloaded", param=None),
    _responses("error", code="insufficient_quota", message="quota spent", param=None),
    json.dumps({"object": "response", **_RESPONSE}),
)
ANTHROPIC = Wording(
    "anthropic",
    lambda url: ms.Anthropic(api_key="k", base_url=url),
    _anthropic("message_start", message=_MESSAGE)
    + _anthropic("content_block_start", index=0, content_block={"type": "text", "text": ""})
    + _anthropic("content_block_delta", index=0, delta={"type": "text_delta", "text": "one"}),
    _anthropic("content_block_stop", index=0)
    + _anthropic("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2})
    + _anthropic("message_stop"),
    _anthropic("error", error={"type": "overloaded_error", "message": "we are overloaded"}),
    _anthropic("error", error={"type": "invalid_request_error", "message": "quota spent"}),
    json.dumps(
        {
            **_MESSAGE,
            "content": [{"type": "text", "text": "one"}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 1, "output_tokens": 2},
        }
    ),
)
GEMINI = Wording(
    "gemini",
    lambda url: ms.Gemini(api_key="k", base_url=url),
    _gemini("one"),
    _gemini("", finishReason="STOP"),
    frame({"error": {"code": 503, "message": "we are overloaded", "status": "UNAVAILABLE"}}),
    frame({"error": {"code": 403, "message": "quota spent", "status": "PERMISSION_DENIED"}}),
    json.dumps(
        {"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": "one"}]}, "finishReason": "STOP"}]}
    ),
)

INTERACTIONS = Wording(
    "interactions",
    lambda url: ms.GeminiInteractions(api_key="k", base_url=url),
    _interactions("interaction.created", interaction={**_INTERACTION, "status": "in_progress"})
    + _interactions("step.start", index=0, step={"type": "model_output"})
    + _interactions("step.delta", index=0, delta={"text": "one", "type": "text"}),
    _interactions("step.stop", index=0)
    + _interactions("interaction.completed", interaction={**_INTERACTION, "status": "completed"})
    + "event: done\ndata: [DONE]\n\n",
    _interactions("error", error={"message": "we are overloaded", "code": "unavailable"}),
    _interactions("error", error={"message": "quota spent", "code": "permission_denied"}),
    json.dumps(
        {
            **_INTERACTION,
            "status": "completed",
            "steps": [{"type": "model_output", "content": [{"type": "text", "text": "one"}]}],
        }
    ),
)

DIALECTS = (CHAT, RESPONSES, ANTHROPIC, GEMINI, INTERACTIONS)
