"""An unstreamed answer of each dialect, member by member.

A program that is tested against the simulator may compare with literals: the same question and knobs give the same
answer in every release.
"""

from __future__ import annotations

import itertools
import json

import pytest

from manystream.http_server import http_head
from manystream.simulator import Knobs, Prompt, Simulator, write_scenario

from .raw_client import ask, connected, request_bytes

QUESTION = "What is the weather?"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
KNOBS = "events=4,calls=1,cached=2,seed=7,text=unicode"
MESSAGES = [{"role": "user", "content": QUESTION}]

REQUESTS: dict[str, tuple[str, dict[str, object]]] = {
    "openai-chat": ("/v1/chat/completions", {"model": "sim-mixed", "messages": MESSAGES,
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": CITY}}]}),
    "openai-responses": ("/v1/responses", {"model": "sim-mixed", "input": QUESTION,
        "tools": [{"type": "function", "name": "weather", "parameters": CITY}],
        "include": ["reasoning.encrypted_content"]}),
    "anthropic": ("/v1/messages", {"model": "sim-mixed", "max_tokens": 500, "messages": MESSAGES,
        "tools": [{"name": "weather", "input_schema": CITY}]}),
    "gemini": ("/v1beta/models/sim-mixed:generateContent",
        {"contents": [{"role": "user", "parts": [{"text": QUESTION}]}],
        "tools": [{"functionDeclarations": [{"name": "weather", "parameters": CITY}]}]}),
    "gemini-interactions": ("/v1beta/interactions", {"model": "sim-mixed", "input": QUESTION,
        "tools": [{"type": "function", "name": "weather", "parameters": CITY}]}),
}  # fmt: skip

CHAT_ANSWER: dict[str, object] = {
    "id": "chatcmpl-4ac611171b8fde2eef3d8359ed83d",
    "object": "chat.completion",
    "created": 1700000000,
    "model": "sim-mixed",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "pieces façade others ",
                "refusal": None,
                "annotations": [],
                "reasoning_content": "crosses ",
                "tool_calls": [
                    {
                        "id": "call_ed5881ce8a4070bff58c46",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city":"under"}'},
                    }
                ],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 14, "completion_tokens": 8, "total_tokens": 22,
        "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 1, "audio_tokens": 0, "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0}},
    "service_tier": "default",
    "system_fingerprint": "fp_simulator",
}  # fmt: skip

RESPONSES_ANSWER: dict[str, object] = {
    "id": "resp_fc56921e1a3560184841877e3490c94fcc209b88f0f3ed0d",
    "object": "response",
    "created_at": 1700000000,
    "completed_at": 1700000000,
    "status": "completed",
    "background": False,
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "model": "sim-mixed",
    "output": [
        {
            "id": "rs_e3cda3029908250d473ea37090fce7438cb988188221f4be",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "crosses "}],
            "encrypted_content": "simsd148ee8fb2c6ba78ff86c63fe82dc912fce6953544084c98795fb84f95dc4a13",
        },
        {
            "id": "msg_b0477fab062c7c10d2b2f901c4097d44a254549bb7fe0903",
            "type": "message",
            "status": "completed",
            "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": "pieces façade others "}],
            "role": "assistant",
        },
        {
            "id": "fc_3aeab1580771bec63238be192760e6ccaddf6eeaab5d9b69",
            "type": "function_call",
            "status": "completed",
            "arguments": '{"city":"under"}',
            "call_id": "call_ed5881ce8a4070bff58c46",
            "name": "weather",
        },
    ],
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [{"type": "function", "name": "weather", "parameters": CITY}],
    "top_p": 1.0,
    "truncation": "disabled",
    "usage": {"input_tokens": 14, "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 8, "output_tokens_details": {"reasoning_tokens": 1}, "total_tokens": 22},
    "user": None,
    "metadata": {},
}  # fmt: skip

ANTHROPIC_ANSWER: dict[str, object] = {
    "model": "sim-mixed",
    "id": "msg_01f68f5df2710bc5ca299d72",
    "type": "message",
    "role": "assistant",
    "content": [{"type": "thinking", "thinking": "crosses ",
        "signature": "simscb4cee485a8cf4be768f5ce6786579bab9400a0dde0fb7bd8bb1d2fd58e36f6d"},
        {"type": "text", "text": "pieces façade others "},
        {"type": "tool_use", "id": "toolu_01ed5881ce8a4070bff58c46", "name": "weather", "input": {"city": "under"}}],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 12, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 2,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}, "output_tokens": 8,
        "output_tokens_details": {"thinking_tokens": 1}, "service_tier": "standard"},
}  # fmt: skip

GEMINI_ANSWER: dict[str, object] = {
    "candidates": [{"content": {"parts": [{"text": "crosses ", "thought": True}, {"text": "pieces façade others "},
        {"functionCall": {"name": "weather", "args": {"city": "under"}, "id": "ed5881ce"},
        "thoughtSignature": "simsa95ef8fe9b1c999ec5cc16c50d1cb95d139c7148d35d63b48b1ec68c53e841f8"}], "role": "model"},
        "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 14, "cachedContentTokenCount": 2, "candidatesTokenCount": 7,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 14}], "thoughtsTokenCount": 1,
        "totalTokenCount": 22},
    "modelVersion": "sim-mixed",
    "responseId": "f10850ad684cf42fc717bd",
}  # fmt: skip

INTERACTION: dict[str, object] = {
    "id": "v1_1b9b785c7cc6f7a535a755fc4ea411659bddd546",
    "status": "requires_action",
    "object": "interaction",
    "model": "sim-mixed",
    "usage": {"total_tokens": 22, "total_input_tokens": 14,
        "input_tokens_by_modality": [{"modality": "text", "tokens": 14}], "total_cached_tokens": 2,
        "total_output_tokens": 7, "total_tool_use_tokens": 0, "total_thought_tokens": 1},
    "created": "2023-11-14T22:13:20Z",
    "updated": "2023-11-14T22:13:20Z",
    "service_tier": "standard",
    "steps": [
        {
            "signature": "simscb4cee485a8cf4be768f5ce6786579bab9400a0dde0fb7bd8bb1d2fd58e36f6d",
            "type": "thought",
            "summary": [{"text": "crosses ", "type": "text"}],
        },
        {"content": [{"text": "pieces façade others ", "type": "text"}], "type": "model_output"},
        {"id": "fc_ed5881ce8a4070bff58c46", "name": "weather", "arguments": {"city": "under"}, "type": "function_call"},
    ],
}  # fmt: skip

ANSWERS = {
    "openai-chat": CHAT_ANSWER, "openai-responses": RESPONSES_ANSWER, "anthropic": ANTHROPIC_ANSWER,
    "gemini": GEMINI_ANSWER,
    "gemini-interactions": INTERACTION,
}  # fmt: skip


@pytest.mark.parametrize("dialect", REQUESTS)
def test_an_unstreamed_answer_has_these_members(simulator: Simulator, dialect: str) -> None:
    path, body = REQUESTS[dialect]
    with connected(simulator) as line:
        line.send(request_bytes(path, body, directive=KNOBS))
        answer = line.read()
    assert answer.status == 200
    assert answer.json() == ANSWERS[dialect]


EVENTS: dict[str, list[str]] = {
    "openai-responses": [
        "response.created",
        "response.in_progress",
        "response.output_item.added",  # reasoning
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",  # a message
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",  # a call
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ],
    "anthropic": [
        "message_start",
        "content_block_start",  # thinking
        "ping",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",  # a text
        "content_block_delta",
        "content_block_stop",
        "content_block_start",  # a call
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ],
    "gemini-interactions": [
        "interaction.created",
        "interaction.status_update",
        "step.start",  # a thought
        "step.delta",
        "step.stop",
        "step.start",  # an output
        "step.delta",
        "step.stop",
        "step.start",  # a call
        "step.delta",
        "step.stop",
        "interaction.completed",
    ],
}
"""The names of a stream's events. Of several equal names in a row only the first is listed."""


@pytest.mark.parametrize("dialect", EVENTS)
def test_a_streams_events_have_these_names_in_this_order(simulator: Simulator, dialect: str) -> None:
    answer = ask(simulator, dialect, "kind=mixed,events=4,calls=1")
    lines = [event.partition(b"\ndata: ") for event in answer.events if not event.endswith(b"[DONE]")]
    names = [name.removeprefix(b"event: ").decode() for name, _, _ in lines]
    kind = "event_type" if dialect == "gemini-interactions" else "type"
    assert [json.loads(data)[kind] for _, _, data in lines] == names
    assert [name for name, _ in itertools.groupby(names)] == EVENTS[dialect]
    member = "output_index" if dialect == "openai-responses" else "index"
    places = [place for _, _, data in lines if (place := json.loads(data).get(member)) is not None]
    assert [place for place, _ in itertools.groupby(places)] == [0, 1, 2]


def test_every_event_of_gemini_counts_its_tokens(simulator: Simulator) -> None:
    answer = ask(simulator, "gemini", "kind=mixed,events=4,calls=1")
    counts = [json.loads(event.removeprefix(b"data: "))["usageMetadata"] for event in answer.events]
    names = ("promptTokenCount", "thoughtsTokenCount", "candidatesTokenCount", "totalTokenCount")
    assert [tuple(count.get(name) for name in names) for count in counts] == [
        (2, 1, None, 3), (2, 1, 1, 4), (2, 1, 2, 5), (2, 1, 3, 6), (2, 1, 7, 10), (2, 1, 7, 10),
    ]  # fmt: skip


@pytest.mark.parametrize("dialect", ["openai-chat", "gemini"])
@pytest.mark.parametrize("directive", ["kind=mixed,events=4,calls=1", "events=4,error=2,error-status=429"])
def test_these_dialects_events_have_no_name(simulator: Simulator, dialect: str, directive: str) -> None:
    answer = ask(simulator, dialect, directive)
    assert len(answer.events) > 2
    assert all(event.startswith(b"data: ") for event in answer.events)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (200, "OK"), (400, "Bad Request"), (401, "Unauthorized"), (402, "Payment Required"), (403, "Forbidden"),
        (404, "Not Found"), (405, "Method Not Allowed"), (408, "Request Timeout"), (409, "Conflict"),
        (413, "Content Too Large"), (422, "Unprocessable Content"), (429, "Too Many Requests"),
        (431, "Request Header Fields Too Large"), (500, "Internal Server Error"), (501, "Not Implemented"),
        (502, "Bad Gateway"), (503, "Service Unavailable"), (504, "Gateway Timeout"), (529, "Site Overloaded"),
        (599, "Unknown"),
    ],
)  # fmt: skip
def test_a_status_line_names_the_reason(status: int, reason: str) -> None:
    expected = f"HTTP/1.1 {status} {reason}\r\nA: b\r\n\r\n"
    assert http_head(status, [("A", "b")]) == expected.encode()


def test_text_is_made_of_these_words() -> None:
    text = write_scenario(
        Prompt(model="sim-text", text="Hello.", characters=6), Knobs(kind="text", text="unicode", events=3000)
    ).text
    assert set(text[:-1].split(" ")) == {
        "the", "stream", "carries", "many", "small", "pieces", "and", "each", "of", "them", "arrives", "in", "order",
        "while", "others", "wait", "a", "river", "crosses", "plain", "under", "stone", "bridges", "where", "boats",
        "move", "slowly", "towards", "Zürich", "naïve", "façade", "Łódź", "Ελλάδα", "москва", "東京", "서울", "🙂",
        "👩\u200d🚀", "line\u2028break", 'quote"d', "back\\slash", "tab\tbed", "new\nline",
    }  # fmt: skip
