"""The wire text of one answer in each dialect, as the providers send it. Each delta has a gap for the text.

This file knows the five wire formats as text. The sizes are those of real traffic: a chat delta of an OpenAI model has
about 300 bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

HOLE = "@TEXT@"
NUMBER, COUNT = "987654", "#COUNT"
"""The load source replaces COUNT by a number that grows with each event. A delta is built with NUMBER in its place."""
FIRST_COUNT = 100_000
SENT = "0" * 18
"""The text of an unstreamed answer. The load source writes the time of the send in its place."""
MODEL_NAMES = {
    "chat": "gpt-4o-mini", "responses": "gpt-4o-mini", "anthropic": "claude-haiku-4-5", "gemini": "gemini-2.5-flash",
    "interactions": "gemini-3-flash-preview",
}  # fmt: skip
DIALECTS = tuple(MODEL_NAMES)


@dataclass(frozen=True, slots=True)
class Wire:
    """One dialect as text.

    before, delta, after: the text before the deltas, one delta with a gap, and the text after them.
    match: the part of a request's path that identifies the dialect.
    base: what the base URL of a client has after the origin.
    """

    name: str
    match: str
    base: str
    first: str
    delta: str
    last: str
    answer: str

    def parts(self) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        """Return the parts: first, delta before the gap, delta after it, last, answer."""
        before, after = self.delta.replace(NUMBER, COUNT).split(HOLE)
        return tuple(part.encode() for part in (self.first, before, after, self.last, self.answer))  # type: ignore[return-value]


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def data(value: object, end: str = "\n\n") -> str:
    return f"data: {compact(value)}{end}"


def named(name: str, **members: object) -> str:
    return f"event: {name}\n{data({'type': name, **members})}"


def chat() -> Wire:
    common = {"id": "chatcmpl-CqX7nV2mWc0eR5tYu8iOp1aSdFgHj", "created": 1763760000, "model": "gpt-4o-mini-2024-07-18"}

    def chunk(choices: list[object], usage: object = None) -> str:
        return data(
            {
                **common,
                "object": "chat.completion.chunk",
                "service_tier": "default",
                "system_fingerprint": "fp_51db84afab",
                "choices": choices,
                "usage": usage,
                "obfuscation": "k3J9qLw0",
            }
        )

    def choice(delta: object, finish_reason: str | None = None) -> list[object]:
        return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]

    usage = {
        "prompt_tokens": 12, "completion_tokens": 250, "total_tokens": 262,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }  # fmt: skip
    message = {"role": "assistant", "content": SENT, "refusal": None}
    return Wire(
        "chat",
        "/chat/completions",
        "/v1",
        first=chunk(choice({"role": "assistant", "content": "", "refusal": None})),
        delta=chunk(choice({"content": HOLE})),
        last=chunk(choice({}, "stop")) + chunk([], usage) + "data: [DONE]\n\n",
        answer=compact(
            {
                **common,
                "object": "chat.completion",
                "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
                "usage": usage,
                "service_tier": "default",
                "system_fingerprint": "fp_51db84afab",
            }
        ),
    )


def responses() -> Wire:
    item_id = "msg_68f1c2d3e4a58192a7b6c5d4e3f2a1b0"

    def response(status: str, output: list[object], usage: object = None) -> dict[str, object]:
        return {
            "id": "resp_68f1c2d3e4a58192a7b6c5d4e3f2a1b0", "object": "response", "created_at": 1763760000,
            "status": status, "background": False, "error": None, "incomplete_details": None, "instructions": None,
            "max_output_tokens": None, "model": "gpt-4o-mini-2024-07-18", "output": output,
            "parallel_tool_calls": True, "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None}, "service_tier": "default", "store": True,
            "temperature": 1.0, "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [],
            "top_p": 1.0, "truncation": "disabled", "usage": usage, "user": None, "metadata": {},
        }  # fmt: skip

    def item(status: str, content: list[object]) -> dict[str, object]:
        return {"id": item_id, "type": "message", "status": status, "content": content, "role": "assistant"}

    def part(text: str) -> dict[str, object]:
        return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}

    usage = {
        "input_tokens": 12, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 250,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 262,
    }  # fmt: skip
    place: dict[str, object] = {"item_id": item_id, "output_index": 0, "content_index": 0}
    done = item("completed", [part("")])
    return Wire(
        "responses",
        "/responses",
        "/v1",
        first=named("response.created", sequence_number=0, response=response("in_progress", []))
        + named("response.in_progress", sequence_number=1, response=response("in_progress", []))
        + named("response.output_item.added", sequence_number=2, output_index=0, item=item("in_progress", []))
        + named("response.content_part.added", sequence_number=3, **place, part=part("")),
        delta=named(
            "response.output_text.delta", sequence_number=4, **place, delta=HOLE, logprobs=[], obfuscation="k3J9qLw0"
        ),
        last=named("response.output_text.done", sequence_number=5, **place, text="", logprobs=[])
        + named("response.content_part.done", sequence_number=6, **place, part=part(""))
        + named("response.output_item.done", sequence_number=7, output_index=0, item=done)
        + named("response.completed", sequence_number=8, response=response("completed", [done], usage)),
        answer=compact(response("completed", [item("completed", [part(SENT)])], usage)),
    )


def anthropic() -> Wire:
    usage = {
        "input_tokens": 12, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1,
        "service_tier": "standard",
    }  # fmt: skip
    message: dict[str, object] = {
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL", "type": "message", "role": "assistant",
        "model": "claude-haiku-4-5-20251001", "content": [], "stop_reason": None, "stop_sequence": None,
        "usage": usage,
    }  # fmt: skip
    return Wire(
        "anthropic",
        "/messages",
        "",
        first=named("message_start", message=message)
        + named("content_block_start", index=0, content_block={"type": "text", "text": ""})
        + named("ping"),
        delta=named("content_block_delta", index=0, delta={"type": "text_delta", "text": HOLE}),
        last=named("content_block_stop", index=0)
        + named(
            "message_delta",
            delta={"stop_reason": "end_turn", "stop_sequence": None},
            usage={**usage, "output_tokens": 250},
        )
        + named("message_stop"),
        answer=compact({**message, "content": [{"type": "text", "text": SENT}], "stop_reason": "end_turn"}),
    )


def gemini() -> Wire:
    def chunk(text: str, finish_reason: str | None = None) -> dict[str, object]:
        candidate: dict[str, object] = {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0}
        if finish_reason:
            candidate["finishReason"] = finish_reason
        return {
            "candidates": [candidate],
            "usageMetadata": {
                "promptTokenCount": 12,
                "candidatesTokenCount": 250,
                "totalTokenCount": 262,
                "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 12}],
            },
            "modelVersion": "gemini-2.5-flash",
            "responseId": "k3Ibad6yEsGZ-8YPrNuQmQ0",
        }

    return Wire(
        "gemini",
        "enerateContent",  # generateContent and streamGenerateContent
        "",
        first="",
        delta=data(chunk(HOLE), "\r\n\r\n"),
        last=data(chunk("", "STOP"), "\r\n\r\n"),
        answer=compact(chunk(SENT, "STOP")),
    )


def interactions() -> Wire:
    def event(kind: str, **members: object) -> str:
        return f"event: {kind}\n{data({**members, 'event_type': kind})}"

    begun = {
        "id": "v1_ChdUR3NIYXVyQkFlYVA2ZGtQajZERThBVRIXVEdzSGF1ckJBZWFQNmRrUGo2REU4QVU", "status": "in_progress",
        "object": "interaction", "model": "gemini-3-flash-preview",
    }  # fmt: skip
    usage = {"total_tokens": 262, "total_input_tokens": 12, "total_output_tokens": 250, "total_thought_tokens": 0}
    ended = {**begun, "status": "completed", "usage": usage, "created": "2026-05-15T18:51:57Z"}
    output = {"content": [{"text": SENT, "type": "text"}], "type": "model_output"}
    return Wire(
        "interactions",
        "interactions",
        "",
        first=event("interaction.created", interaction=begun)
        + event("step.start", index=0, step={"type": "model_output"}),
        delta=event("step.delta", index=0, delta={"text": HOLE, "type": "text"}),
        last=event("step.stop", index=0)
        + event("interaction.completed", interaction=ended)
        + "event: done\ndata: [DONE]\n\n",
        answer=compact({**ended, "steps": [output]}),
    )


WIRES: dict[str, Wire] = {wire.name: wire for wire in (chat(), responses(), anthropic(), gemini(), interactions())}


def form_of_chat(name: str, delta: str) -> Wire:
    """Return chat with deltas of another form. The load's path selects it, with `form=NAME`."""
    return replace(WIRES["chat"], name=f"chat-{name}", match=f"form={name}", delta=delta)


def vllm_chunk(logprobs: object, usage: object) -> str:
    """Return a delta as vLLM sends it."""
    choice = {"index": 0, "delta": {"content": HOLE}, "logprobs": logprobs, "finish_reason": None, "token_ids": None}
    return data(
        {
            "id": "chatcmpl-1f0c7a6de1b84b0f9a3e6c2d4b5a7988",
            "object": "chat.completion.chunk",
            "created": 1763760000,
            "model": "Qwen/Qwen3-32B",
            "choices": [choice],
            **({"usage": usage} if usage else {}),
        }
    )


def growing_usage() -> str:
    """Return a delta with counts that grow: vLLM with `stream_options.continuous_usage_stats`."""
    count = int(NUMBER)
    return vllm_chunk(None, {"prompt_tokens": 12, "total_tokens": count, "completion_tokens": count})


def with_logprobs() -> str:
    """Return a delta with log probabilities: `"logprobs": true, "top_logprobs": 2`."""
    likely = -float(f"0.{NUMBER}")
    tops = [
        {"token": f" word{NUMBER}", "logprob": likely, "bytes": list(b" word123456")},
        {"token": " other", "logprob": -3.25, "bytes": list(b" other")},
    ]
    return vllm_chunk({"content": [{**tops[0], "top_logprobs": tops}]}, None)


def with_tokens() -> str:
    """Return a delta with its token: `"return_token_ids": true, "logprobs": true, "top_logprobs": 0`."""
    entry = {"token": " word", "logprob": -float(f"0.{NUMBER}"), "bytes": list(b" word"), "top_logprobs": []}
    chunk = vllm_chunk({"content": [entry]}, None)
    return chunk.replace('"token_ids":null', f'"token_ids":[{NUMBER}]')


def generated(finish: str | None, text: str) -> str:
    """Return a chunk of vLLM's `/inference/v1/generate`, with one token and its text: `"output_mode": "text"`."""
    entry = {"token_id": int(NUMBER), "logprob": -float(f"0.{NUMBER}"), "rank": 1}
    choice = {
        "index": 0, "finish_reason": finish, "stop_reason": None, "token_ids": [] if finish else [int(NUMBER)],
        "routed_experts": None, "sampling_mask": None, "weight_versions": None, "text": text,
        "logprobs": None if finish else {"content": [{**entry, "top_logprobs": [entry]}]},
    }  # fmt: skip
    return data(
        {"request_id": "generate-tokens-a02377320562475b", "usage": None, "output_mode": "text", "choices": [choice]}
    )


FORMS: dict[str, Wire] = {
    "usage": form_of_chat("usage", growing_usage()),
    "logprobs": form_of_chat("logprobs", with_logprobs()),
    "tokens": form_of_chat("tokens", with_tokens()),
    "generate": replace(
        form_of_chat("generate", generated(None, HOLE)), first="", last=generated("length", "") + "data: [DONE]\n\n"
    ),
}
"""Form of chat's deltas → its text."""


def tool_call() -> Wire:
    """Return a chat stream with one tool call, whose arguments have one member. Each delta is a part of its value."""
    chat = WIRES["chat"]

    def chunk(delta: object) -> str:
        return chat.delta.replace(compact({"content": HOLE}), compact(delta))

    def arguments(part: str) -> dict[str, object]:
        return {"tool_calls": [{"index": 0, "function": {"arguments": part}}]}

    call = {"index": 0, "id": "call_62136354", "type": "function", "function": {"name": "get_weather", "arguments": ""}}
    return replace(
        chat,
        name="chat-tool",
        match="form=tool",
        first=chunk({"role": "assistant", "content": None, "tool_calls": [call]}) + chunk(arguments('{"city":"')),
        delta=chunk(arguments(HOLE)),
        last=chunk(arguments('"}')) + chat.last.replace('"finish_reason":"stop"', '"finish_reason":"tool_calls"'),
    )


def chunks_of(wire: Wire, events: int) -> list[bytes]:
    """Return a stream's body with this many deltas, one server-sent event per chunk."""
    first, before, after, last, _ = wire.parts()
    deltas = [b"%b%d%b" % (before, number, after) for number in range(events)]
    count = COUNT.encode()
    if count in after:
        deltas = [delta.replace(count, b"%d" % (FIRST_COUNT + number)) for number, delta in enumerate(deltas)]
    return [part for part in (first, *deltas, last) if part]


def template_file() -> bytes:
    """Return all dialects in the form that the load source reads; see `load_templates` in source/template.c."""
    blocks: list[bytes] = []
    for wire in (*FORMS.values(), tool_call(), *WIRES.values()):  # the first whose `match` is in the path
        parts = wire.parts()
        sizes = " ".join(str(len(part)) for part in parts)
        blocks.append(f"{wire.name} {wire.match} {sizes}\n".encode() + b"".join(parts) + b"\n")
    return b"".join(blocks)
