"""The parts of responses besides text, thinking and calls, per dialect: their wire form, and where they are kept.

Each row has a response in two forms, unstreamed and as a stream, and an expression on `response` that must give the
same value for both. The documentation shows the expressions; the test evaluates them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.transport.sse import SSEParser

from .exchange import PROVIDERS
from .replay import counting_ids, read_events

Wire = dict[str, Any]


@dataclass(slots=True, frozen=True)
class Phenomenon:
    """One kind of content.

    where: the expression on `response`.
    value: the value of the expression.
    chunks: the stream's events.
    """

    what: str
    dialect: str
    where: str
    value: object
    body: Wire
    chunks: Sequence[Wire]

    def stream(self) -> bytes:
        """Return the stream as server-sent events."""
        named = self.dialect in ("anthropic", "openai-responses")
        events = [
            (f"event: {chunk['type']}\n" if named else "") + f"data: {json.dumps(chunk)}\n\n" for chunk in self.chunks
        ]
        return "".join([*events, "data: [DONE]\n\n"] if self.dialect == "openai-chat" else events).encode()


def found(where: str, response: ms.Response) -> object:
    """Evaluate an expression of this module on a response."""
    return eval(where, {"response": response})


def unstreamed(row: Phenomenon) -> ms.Response:
    """Decode the unstreamed form."""
    provider = PROVIDERS[row.dialect]("key")
    return DIALECTS[row.dialect].decode(json.dumps(row.body).encode(), provider, counting_ids())


def streamed(row: Phenomenon, cut: int | None = None) -> ms.Response:
    """Decode the stream, with its bytes in one piece or cut in two at `cut`."""
    wire, parser = row.stream(), SSEParser()
    events = [*parser.feed(wire[:cut]), *(parser.feed(wire[cut:]) if cut is not None else ())]
    reading = read_events(DIALECTS[row.dialect], PROVIDERS[row.dialect]("key"), events, parser.end())
    assert reading.error is None
    assert reading.response is not None
    return reading.response


# --- Chat Completions ---

CHAT_USAGE = {
    "prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1}, "completion_tokens": 7,
    "total_tokens": 12,
}  # fmt: skip
CACHE_SPLITS = "(response.usage.cached_tokens, response.usage.cache_write_tokens)"


def _chat(
    what: str, where: str, value: object, message: Wire, *, choice: Wire | None = None, **members: Any
) -> Phenomenon:
    """Build a row from a message; the stream has its members in one delta."""
    envelope: Wire = {"id": "chatcmpl-1", "model": "m", **members}
    rest: Wire = {"index": 0, "finish_reason": "stop", **(choice or {})}
    first = {"index": 0, "delta": {"role": "assistant", "content": "", **message}, "finish_reason": None}
    last = {"index": 0, "delta": {}, **{name: rest[name] for name in rest}}
    return Phenomenon(
        what,
        "openai-chat",
        where,
        value,
        {"object": "chat.completion", **envelope, "choices": [{**rest, "message": message}], "usage": CHAT_USAGE},
        [
            {"object": "chat.completion.chunk", **envelope, "choices": [first]},
            {"object": "chat.completion.chunk", **envelope, "choices": [last]},
            {"object": "chat.completion.chunk", **envelope, "choices": [], "usage": CHAT_USAGE},
        ],
    )


URL_CITATION: Wire = {"type": "url_citation", "url_citation": {"url": "https://example.com", "title": "Example"}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
TOKEN: Wire = {"token": "Hi", "logprob": -0.1, "bytes": [72, 105], "top_logprobs": []}
EXECUTED: Wire = {"index": 0, "type": "search", "arguments": "{}", "output": "Found."}
HIDDEN: Wire = {"type": "reasoning.encrypted", "data": "opaque", "index": 0}


def _second_choice() -> Phenomenon:
    plain = _chat("", "", None, {"content": "One"})
    second = {"index": 1, "message": {"role": "assistant", "content": "Two"}, "finish_reason": "stop"}
    delta = {"index": 1, "delta": {"content": "Two"}, "finish_reason": "stop"}
    return Phenomenon(
        "several choices", "openai-chat", "response.choices[1].text", "Two",
        {**plain.body, "choices": [*plain.body["choices"], second]},
        [plain.chunks[0], {**plain.chunks[0], "choices": [delta]}, *plain.chunks[1:]],
    )  # fmt: skip


CHAT: tuple[Phenomenon, ...] = (
    _chat("refusal", "response.refusal", "I cannot.", {"content": None, "refusal": "I cannot."}),
    _chat("citations", "response.content[0].citations", [URL_CITATION],
        {"content": "See.", "annotations": [URL_CITATION]}),
    _chat("sources", 'response.provider_data["citations"]', ["https://example.com"], {"content": "See."},
        citations=["https://example.com"]),
    _chat("server-side tools", 'response.provider_data["executed_tools"]', [EXECUTED],
        {"content": "So.", "executed_tools": [EXECUTED]}),
    _chat("images", "response.content[1].media_type", "image/png", {"content": "Here.", "images": [PICTURE]}),
    _chat("sound", "response.content[0].media_type", "audio/wav",
        {"content": None, "audio": {"id": "a", "data": "UklGRg==", "transcript": "Hi"}}),
    _chat("log probabilities", 'response.provider_data["logprobs"]["content"]', [TOKEN], {"content": "Hi"},
        choice={"logprobs": {"content": [TOKEN]}}),
    _second_choice(),
    _chat("encrypted reasoning", 'response.content[1].state.data["reasoning_details"]', [HIDDEN],
        {"content": "So.", "reasoning_details": [HIDDEN]}),
    _chat("response id", "response.id", "chatcmpl-1", {"content": "Hi"}),
    _chat("service tier", 'response.provider_data["service_tier"]', "flex", {"content": "Hi"}, service_tier="flex"),
    _chat("cache splits", CACHE_SPLITS, (3, 1), {"content": "Hi"}),
    _chat("safety results", 'response.provider_data["content_filter_results"]', {"hate": {"filtered": False}},
        {"content": "Hi"}, choice={"content_filter_results": {"hate": {"filtered": False}}}),
    _chat("what is not known yet", 'response.provider_data["telepathy"]', {"a": 1},
        {"content": "Hi", "telepathy": {"a": 1}}),
)  # fmt: skip


# --- Responses ---

RESPONSES_USAGE = {
    "input_tokens": 5, "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1}, "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 12,
}  # fmt: skip


def _responses(what: str, where: str, value: object, *items: Wire, **members: Any) -> Phenomenon:
    """Build a row from items; the stream announces and completes each."""
    body: Wire = {
        "id": "resp_1", "object": "response", "model": "m", "status": "completed", "output": list(items),
        "usage": RESPONSES_USAGE, **members,
    }  # fmt: skip
    chunks: list[Wire] = [{"type": "response.created", "response": {**body, "status": "in_progress", "output": []}}]
    for index, item in enumerate(items):
        begun = {**item, "content": []} if item["type"] == "message" else item
        chunks.append({"type": "response.output_item.added", "output_index": index, "item": begun})
        chunks.append({"type": "response.output_item.done", "output_index": index, "item": item})
    chunks.append({"type": f"response.{body['status']}", "response": body})
    return Phenomenon(what, "openai-responses", where, value, body, chunks)


def _message(*parts: Wire) -> Wire:
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": list(parts)}


SOURCE: Wire = {
    "type": "url_citation", "url": "https://example.com", "title": "Example", "start_index": 0, "end_index": 4,
}  # fmt: skip
HI: Wire = {"type": "output_text", "text": "Hi", "annotations": []}
SEARCH: Wire = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
PAINTED: Wire = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBORw=="}
MCP: Wire = {
    "type": "mcp_call", "id": "mcp_1", "name": "roll", "server_label": "dice", "arguments": "{}", "output": "4",
}  # fmt: skip
COMPACTED: Wire = {"type": "compaction", "id": "cmp_1", "encrypted_content": "opaque"}
REASONED: Wire = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "opaque"}
FUTURE: Wire = {"type": "telepathy_call", "id": "tp_1"}

RESPONSES: tuple[Phenomenon, ...] = (
    _responses("refusal", "response.refusal", "I cannot.", _message({"type": "refusal", "refusal": "I cannot."})),
    _responses("citations", "response.content[0].citations", [SOURCE],
        _message({"type": "output_text", "text": "See.", "annotations": [SOURCE]})),
    _responses("server-side tools", "response.content[0].data", SEARCH, SEARCH, _message(HI)),
    _responses("MCP", "response.content[0].data", MCP, MCP, _message(HI)),
    _responses("images", 'response.content[0].data["result"]', "iVBORw==", PAINTED),
    _responses("log probabilities", 'response.provider_data["logprobs"]', [TOKEN],
        _message({**HI, "logprobs": [TOKEN]})),
    _responses("encrypted reasoning", 'response.content[0].state.data["encrypted_content"]', "opaque", REASONED,
        _message(HI)),
    _responses("compaction", "response.content[0].data", COMPACTED, COMPACTED, _message(HI)),
    _responses("why it is incomplete", 'response.provider_data["incomplete_details"]', {"reason": "max_output_tokens"},
        _message(HI), status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
    _responses("response id", "response.id", "resp_1", _message(HI)),
    _responses("service tier", 'response.provider_data["service_tier"]', "flex", _message(HI), service_tier="flex"),
    _responses("cache splits", CACHE_SPLITS, (3, 1), _message(HI)),
    _responses("what is not known yet", "response.content[0].data", FUTURE, FUTURE, _message(HI)),
)  # fmt: skip


# --- Anthropic ---

ANTHROPIC_USAGE: Wire = {
    "input_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 1, "output_tokens": 7,
    "service_tier": "standard",
}  # fmt: skip


def _anthropic(what: str, where: str, value: object, *blocks: Wire, **members: Any) -> Phenomenon:
    """Build a row from blocks; the stream starts each block whole, and its message_delta has the other members."""
    ended: Wire = {"stop_reason": "end_turn", "stop_sequence": None, **members}
    head: Wire = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    begun = {
        **head, "content": [], "stop_reason": None, "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 1},
    }  # fmt: skip
    chunks: list[Wire] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(blocks):
        chunks.append({"type": "content_block_start", "index": index, "content_block": block})
        chunks.append({"type": "content_block_stop", "index": index})
    chunks += [{"type": "message_delta", "delta": ended, "usage": ANTHROPIC_USAGE}, {"type": "message_stop"}]
    body = {**head, "content": list(blocks), **ended, "usage": ANTHROPIC_USAGE}
    return Phenomenon(what, "anthropic", where, value, body, chunks)


SAID: Wire = {"type": "text", "text": "Hi"}
CITED: Wire = {
    "type": "web_search_result_location", "url": "https://example.com", "cited_text": "See.", "encrypted_index": "x",
}  # fmt: skip
SEARCHES: Wire = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND: Wire = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
ROLLS: Wire = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "roll", "server_name": "dice", "input": {}}
UPLOAD: Wire = {"type": "container_upload", "file_id": "file_1"}
SUMMED: Wire = {"type": "compaction", "content": "So far."}
LATER: Wire = {"type": "telepathy", "of": "you"}

ANTHROPIC: tuple[Phenomenon, ...] = (
    _anthropic("refusal", 'response.provider_data["stop_details"]', {"type": "refusal", "category": "cyber"},
        stop_reason="refusal", stop_details={"type": "refusal", "category": "cyber"}),
    _anthropic("citations", "response.content[0].citations", [CITED], {**SAID, "citations": [CITED]}),
    _anthropic("server-side tools", "[block.data for block in response.content[:2]]", [SEARCHES, FOUND], SEARCHES,
        FOUND, SAID),
    _anthropic("MCP", "response.content[0].data", ROLLS, ROLLS, SAID),
    _anthropic("images", "response.content[0].data", UPLOAD, UPLOAD),
    _anthropic("encrypted reasoning", "response.content[0].data", "opaque",
        {"type": "redacted_thinking", "data": "opaque"}, SAID),
    _anthropic("compaction", "response.content[0].data", SUMMED, SUMMED, SAID),
    _anthropic("container", 'response.provider_data["container"]', {"id": "c_1"}, SAID, container={"id": "c_1"}),
    _anthropic("stop sequence", 'response.provider_data["stop_sequence"]', "END", SAID, stop_reason="stop_sequence",
        stop_sequence="END"),
    _anthropic("response id", "response.id", "msg_1", SAID),
    _anthropic("service tier", 'response.provider_data["service_tier"]', "standard", SAID),
    _anthropic("cache splits", CACHE_SPLITS, (3, 1), SAID),
    _anthropic("what is not known yet", "response.content[0].data", LATER, LATER, SAID),
)  # fmt: skip


# --- Gemini ---

GEMINI_USAGE = {
    "promptTokenCount": 5, "cachedContentTokenCount": 3, "candidatesTokenCount": 7, "totalTokenCount": 12,
    "serviceTier": "flex",
}  # fmt: skip


def _gemini(
    what: str, where: str, value: object, *parts: Wire, others: Sequence[Wire] = (), **members: Any
) -> Phenomenon:
    """Build a row from parts; the stream has each in a chunk, and the last chunk has the candidate's members."""
    envelope: Wire = {"modelVersion": "m", "responseId": "r_1", "usageMetadata": GEMINI_USAGE}
    ended: Wire = {"finishReason": "STOP", "index": 0, **members}

    def chunk(candidate: Wire, *more: Wire) -> Wire:
        return {**envelope, "candidates": [candidate, *more]}

    def content(*some: Wire) -> Wire:
        return {"role": "model", "parts": list(some)}

    chunks = [chunk({"content": content(part), "index": 0}) for part in parts]
    chunks.append(chunk({"content": content({"text": ""}), **ended}, *others))
    return Phenomenon(what, "gemini", where, value, chunk({"content": content(*parts), **ended}, *others), chunks)


TEXT: Wire = {"text": "Hi"}
PLACE: Wire = {"startIndex": 0, "endIndex": 2, "uri": "https://example.com"}
CODE: Wire = {"executableCode": {"language": "PYTHON", "code": "print(1)"}}
RAN: Wire = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}}
NEWS: Wire = {"webSearchQueries": ["x"], "groundingChunks": [{"web": {"uri": "https://example.com"}}]}
CHANCES: Wire = {"chosenCandidates": [{"token": "Hi", "logProbability": -0.1}]}
RATINGS: list[Wire] = [{"category": "HARM_CATEGORY_HATE_SPEECH", "probability": "NEGLIGIBLE"}]
SECOND: Wire = {"index": 1, "content": {"role": "model", "parts": [{"text": "Two"}]}, "finishReason": "STOP"}
SOON: Wire = {"telepathy": {"of": "you"}}

GEMINI: tuple[Phenomenon, ...] = (
    _gemini("refusal", 'response.provider_data["finishMessage"]', "Unsafe.", finishReason="SAFETY",
        finishMessage="Unsafe."),
    _gemini("citations", "response.content[0].citations", [PLACE], TEXT, citationMetadata={"citations": [PLACE]}),
    _gemini("sources", 'response.provider_data["groundingMetadata"]', NEWS, TEXT, groundingMetadata=NEWS),
    _gemini("server-side tools", "[block.data for block in response.content[:2]]", [CODE, RAN], CODE, RAN, TEXT),
    _gemini("images", "response.content[0].media_type", "image/png",
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}),
    _gemini("sound", "response.content[0].media_type", "audio/wav",
        {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}}),
    _gemini("log probabilities", 'response.provider_data["logprobsResult"]', CHANCES, TEXT, logprobsResult=CHANCES),
    _gemini("several choices", 'response.provider_data["candidates"][0]["content"]["parts"]', [{"text": "Two"}], TEXT,
        others=[SECOND]),
    _gemini("encrypted reasoning", 'response.content[0].state.data["thoughtSignature"]', "opaque",
        {**TEXT, "thoughtSignature": "opaque"}),
    _gemini("response id", "response.id", "r_1", TEXT),
    _gemini("safety results", 'response.provider_data["safetyRatings"]', RATINGS, TEXT, safetyRatings=RATINGS),
    _gemini("service tier", 'response.usage.raw["serviceTier"]', "flex", TEXT),
    _gemini("cache splits", "response.usage.cached_tokens", 3, TEXT),
    _gemini("what is not known yet", "response.content[0].data", SOON, SOON, TEXT),
)  # fmt: skip


# --- Interactions ---


def _interactions(what: str, where: str, value: object, *steps: Wire, **members: Any) -> Phenomenon:
    """Build a row from steps; the stream has each in its start, and the contents of an output in deltas."""
    begun: Wire = {"id": "v1_1", "object": "interaction", "model": "m"}
    usage = {"total_input_tokens": 5, "total_cached_tokens": 3, "total_output_tokens": 7, "total_tokens": 12}
    whole: Wire = {**begun, "status": "completed", "usage": usage, **members}
    chunks: list[Wire] = [{"event_type": "interaction.created", "interaction": {**begun, "status": "in_progress"}}]
    for index, step in enumerate(steps):
        start = {name: member for name, member in step.items() if name != "content"}
        chunks.append({"event_type": "step.start", "index": index, "step": start})
        for content in step.get("content", ()):
            chunks.append({"event_type": "step.delta", "index": index, "delta": content})
        chunks.append({"event_type": "step.stop", "index": index})
    chunks.append({"event_type": "interaction.completed", "interaction": whole})
    return Phenomenon(what, "gemini-interactions", where, value, {**whole, "steps": list(steps)}, chunks)


def _said(*contents: Wire) -> Wire:
    return {"type": "model_output", "content": list(contents)}


HI: Wire = {"type": "text", "text": "Hi"}
CITED: Wire = {"type": "url_citation", "url": "https://example.com", "title": "Example"}
SEARCH: Wire = {"type": "google_search_call", "id": "g", "arguments": {"queries": ["x"]}, "signature": "opaque"}
FOUND: Wire = {"type": "google_search_result", "call_id": "g", "result": [{"url": "https://example.com"}]}
MEMORY: Wire = {"type": "memory_write", "key": "k"}

INTERACTIONS: tuple[Phenomenon, ...] = (
    _interactions("citations", "response.content[0].citations", [CITED], _said({**HI, "annotations": [CITED]})),
    _interactions("server-side tools", "[block.data for block in response.content[:2]]", [SEARCH, FOUND], SEARCH,
        FOUND, _said(HI)),
    _interactions("images", "response.content[0].media_type", "image/png",
        _said({"type": "image", "mime_type": "image/png", "data": "iVBORw=="})),
    _interactions("sound", "response.content[0].media_type", "audio/wav",
        _said({"type": "audio", "mime_type": "audio/wav", "data": "UklGRg=="})),
    _interactions("encrypted reasoning", "response.content[0].signature", "opaque",
        {"type": "thought", "signature": "opaque"}, _said(HI)),
    _interactions("response id", "response.id", "v1_1", _said(HI)),
    _interactions("service tier", 'response.provider_data["service_tier"]', "flex", _said(HI), service_tier="flex"),
    _interactions("cache splits", "response.usage.cached_tokens", 3, _said(HI)),
    _interactions("what is not known yet", "response.content[0].data", MEMORY, MEMORY, _said(HI)),
)  # fmt: skip

PHENOMENA: tuple[Phenomenon, ...] = (*CHAT, *RESPONSES, *ANTHROPIC, *GEMINI, *INTERACTIONS)
