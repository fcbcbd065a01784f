"""A request with every option and every kind of block: the whole body and all warnings, as they are sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from manystream.providers.anthropic import DIALECT
from manystream.providers.catalog.provider import Anthropic
from manystream.providers.errors import InvalidRequestError
from manystream.providers.model.messages import (
    File,
    Image,
    Message,
    ProviderBlock,
    ProviderState,
    Text,
    ToolResult,
)
from manystream.providers.model.request import Request, ThinkingConfig, Tool
from tests.providers.whole_history import MARK, whole_history

OWN = ProviderState("anthropic", {})
NATIVE = ProviderBlock("anthropic", {"type": "container_upload", "file_id": "f"})

HISTORY = whole_history(OWN, NATIVE)

TIFF = Image(data=b"x", media_type="image/tiff")
READS_IMAGES = "Anthropic reads image/gif, image/jpeg, image/png, image/webp, not"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([Text("a"), TIFF], f"messages[1].content[1].media_type: {READS_IMAGES} 'image/tiff'"),
        (
            [File(data=b"x", media_type="image/x-icon")],
            f"messages[1].content[0].media_type: {READS_IMAGES} 'image/x-icon'",
        ),
        (
            [File(data=b"x", media_type="Audio/WAV; a=b")],
            "messages[1].content[0].media_type: Anthropic reads PDF, text and images, not 'audio/wav'",
        ),
        (
            [File(data=b"a\xff", media_type="text/plain")],
            "messages[1].content[0].data: a text file must be UTF-8: invalid start byte",
        ),
        (
            [ToolResult("t", [Text("a"), TIFF])],
            f"messages[1].content[0].content[1].media_type: {READS_IMAGES} 'image/tiff'",
        ),
    ],
)
def test_a_block_that_cannot_be_sent_is_named(content: list[Any], message: str) -> None:
    request = Request("claude-opus-4-6", [Message.tool_call("t", "look", "{}"), Message.user(content)])
    with pytest.raises(InvalidRequestError) as raised:
        DIALECT.encode(request, request.model, Anthropic(api_key="k"), stream=True)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    "messages", [[Message.user("")], [Message.assistant(" ")], [Message.tool_call("a", "b", "{}")]]
)
def test_a_conversation_without_content_is_refused(messages: list[Message]) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        DIALECT.encode(Request("m", messages), "m", Anthropic(api_key="k"), stream=True)
    assert str(raised.value) == "messages: contain nothing that Anthropic accepts: no text, no call, no file"


OPTIONS: dict[str, Any] = {
    "system": [Text("Be"), Text("brief", cache_control=MARK)],
    "tools": [
        Tool(
            "look", "Look.", {"properties": {"a": {"type": "integer", "minimum": 1}}}, strict=True, cache_control=MARK
        ),
        Tool("wait"),
    ],
    "tool_choice": "look",
    "max_output_tokens": 9,
    "temperature": 0.5,
    "top_p": 0.5,
    "stop": ["A"],
    "seed": 3,
    "response_schema": {"type": "object", "properties": {"n": {"type": "string", "pattern": "a"}}},
    "parallel_tool_calls": False,
    "metadata": {"user_id": "u", "Team": "a"},
}


def test_a_request_with_everything_is_sent_whole() -> None:
    request = Request(
        "claude-opus-4-6", HISTORY, thinking=ThinkingConfig(effort="high"), extra_body={"x": 1}, **OPTIONS
    )
    wire = DIALECT.encode(request, request.model, Anthropic(api_key="k"), stream=True)
    assert (wire.path, wire.max_output_tokens) == ("/v1/messages", 9)
    assert wire.headers == [
        ("content-type", "application/json"),
        ("accept", "text/event-stream"),
        ("anthropic-version", "2023-06-01"),
    ]
    assert json.loads(wire.body) == {
        "model": "claude-opus-4-6",
        "max_tokens": 9,
        "system": [
            {"type": "text", "text": "Be"},
            {"type": "text", "text": "brief", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ],
        "messages": [
            {"role": "user", "content": "(The conversation begins with the assistant's message.)"},
            {"role": "assistant", "content": "Hello."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "One", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "iVBORw=="}},
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "Grüße"},
                        "title": "a.csv",
                        "cache_control": {"type": "ephemeral"},
                    },
                    {"type": "container_upload", "file_id": "f"},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "call_1_e8b7b7b3", "name": "look", "input": {"city": "Oslo"}},
                    {"type": "tool_use", "id": "call_2", "name": "look", "input": {"INVALID_JSON": '{"city"'}},
                    {"type": "container_upload", "file_id": "f"},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_2",
                        "content": "none",
                        "is_error": True,
                        "cache_control": {"type": "ephemeral", "ttl": "1h"},
                    },
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_1_e8b7b7b3",
                        "content": [
                            {"type": "text", "text": "wet"},
                            {
                                "type": "image",
                                "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="},
                            },
                            {"type": "document", "source": {"type": "url", "url": "https://a.example/a.mp3?x=1"}},
                        ],
                    },
                    {"type": "text", "text": "Wait."},
                ],
            },
            {"role": "assistant", "content": "So:"},
        ],
        "tools": [
            {
                "name": "look",
                "description": "Look.",
                "input_schema": {
                    "type": "object",
                    "properties": {"a": {"type": "integer", "description": '{"minimum":1}'}},
                    "additionalProperties": False,
                },
                "strict": True,
                "cache_control": {"type": "ephemeral", "ttl": "1h"},
            },
            {"name": "wait", "input_schema": {"type": "object", "properties": {}}},
        ],
        "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": True},
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {
            "effort": "high",
            "format": {
                "type": "json_schema",
                "schema": {
                    "type": "object",
                    "properties": {"n": {"type": "string", "description": '{"pattern":"a"}'}},
                    "additionalProperties": False,
                },
            },
        },
        "stop_sequences": ["A"],
        "metadata": {"user_id": "u"},
        "stream": True,
        "x": 1,
    }
    assert wire.warnings == [
        "messages: result 'unasked' has no call and is not sent",
        "messages: an image's detail is not sent; Anthropic has no such setting",
        "messages: 'thing' of 'elsewhere' is not sent; only its provider understands it",
        "messages: thinking that 'anthropic' did not make is not sent to it",
        "messages: the arguments of call 'call_2' are no JSON object; sent as text inside one",
        "messages: an assistant's Image is not sent; Anthropic takes none",
        "messages: thinking at the end of an assistant's message is not sent; Anthropic refuses it",
        'messages: begin with the assistant, which Anthropic refuses; sent with "(The conversation begins '
        "with the assistant's message.)\" as the user's first",
        "messages: call 'lost' has no result and is not sent",
        "tools[0].parameters.properties.a: minimum not enforced by Anthropic; sent to the model in the description",
        "response_schema.properties.n: pattern not enforced by Anthropic; sent to the model in the description",
        "temperature: not sent; with thinking Anthropic takes only 1",
        "top_p: not sent; with thinking Anthropic takes 0.95 to 1",
        "metadata.Team: not sent; Anthropic takes only user_id",
        "seed: not sent; Anthropic has no such setting",
    ]
