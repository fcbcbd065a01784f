"""A request with every option and every kind of block: the whole body and all warnings, as they are sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from manystream.providers.catalog.provider import Gemini
from manystream.providers.errors import InvalidRequestError
from manystream.providers.gemini import DIALECT
from manystream.providers.model.messages import (
    File,
    Image,
    Message,
    ProviderBlock,
    ProviderState,
    Text,
    ToolResult,
)
from manystream.providers.model.request import Request, Tool
from manystream.providers.wire.dialect import WireRequest
from tests.providers.whole_history import MARK, whole_history

OWN = ProviderState("google", {"thoughtSignature": "sig"})
NATIVE = ProviderBlock("google", {"executableCode": {"code": "1"}})

HISTORY = whole_history(OWN, NATIVE)

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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            [Text("a"), Image(url="data:image/png;base64,%")],
            "messages[1].content[1].url: is no data URL that can be read: data:<type>;base64,<data>",
        ),
        (
            [ToolResult("t", [Text("a"), File(url="data:x")])],
            "messages[1].content[0].content[1].url: is no data URL that can be read: data:<type>;base64,<data>",
        ),
    ],
)
def test_a_block_that_cannot_be_sent_is_named(content: list[Any], message: str) -> None:
    request = Request("m", [Message.tool_call("t", "look", "{}"), Message.user(content)])
    with pytest.raises(InvalidRequestError) as raised:
        DIALECT.encode(request, request.model, Gemini(api_key="k"), stream=True)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("block", "part", "warnings"),
    [
        (Image(data=b"", media_type="image/png"), None, ["messages[0].content[1]: left out, the file has no bytes"]),
        (Image(file_id="abc"), {"fileData": {"fileUri": "abc"}}, []),
        (File(url="https://h/a", media_type="a/b"), {"fileData": {"fileUri": "https://h/a", "mimeType": "a/b"}}, []),
        (File(url="data:;base64,eA=="), {"inlineData": {"mimeType": "text/plain", "data": "eA=="}}, []),
        (
            File(url="data:a/b;c=d;base64,eA==", media_type="e/f"),
            {"inlineData": {"mimeType": "e/f", "data": "eA=="}},
            [],
        ),
        (File(url="data:a/b,base64"), {"inlineData": {"mimeType": "a/b", "data": "YmFzZTY0"}}, []),
        (
            File(file_id="files/a", state=ProviderState("google", {"videoMetadata": {"fps": 1}, "other": 2})),
            {"fileData": {"fileUri": "https://user-host.example:8443/v1beta/files/a"}, "videoMetadata": {"fps": 1}},
            [],
        ),
        (
            File(file_id="files/a", state=ProviderState("elsewhere", {"videoMetadata": {"fps": 1}})),
            {"fileData": {"fileUri": "https://user-host.example:8443/v1beta/files/a"}},
            ["messages: the 'videoMetadata' of a file is not sent; only 'elsewhere' takes it"],
        ),
        (
            Image(data=b"x", media_type="image/png", detail="high", cache_control=MARK),
            {"inlineData": {"mimeType": "image/png", "data": "eA=="}},
            [
                "messages[0].content[1].cache_control: left out, Gemini caches by itself or by cachedContent",
                "messages[0].content[1].detail: left out, Gemini sets it for the whole request (mediaResolution)",
            ],
        ),
    ],
)
def test_a_file_is_one_part(block: Image | File, part: dict[str, Any] | None, warnings: list[str]) -> None:
    provider = Gemini(api_key="k", base_url="https://user:pass@user-host.example:8443/v1beta")
    wire = DIALECT.encode(Request("m", [Message.user([Text("a"), block])]), "m", provider, stream=False)
    assert json.loads(wire.body)["contents"][0]["parts"] == [{"text": "a"}, *([part] if part else [])]
    assert wire.warnings == warnings


def encoded(model: str) -> WireRequest:
    extra: dict[str, Any] = {"x": 1, "tools": [{"googleSearch": {}}]}
    request = Request(model, HISTORY, thinking="high", extra_body=extra, **OPTIONS)
    return DIALECT.encode(request, model, Gemini(api_key="k"), stream=True)


def test_a_request_with_everything_is_sent_whole() -> None:
    wire = encoded("gemini-3-flash")
    assert wire.path == "/v1beta/models/gemini-3-flash:streamGenerateContent?alt=sse"
    assert wire.max_output_tokens == 9
    assert wire.headers == [("content-type", "application/json"), ("accept", "text/event-stream")]
    assert json.loads(wire.body) == {
        "systemInstruction": {"parts": [{"text": "Be"}, {"text": "brief"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "(The conversation begins with the assistant's message.)"}]},
            {"role": "model", "parts": [{"text": "Hello."}]},
            {
                "role": "user",
                "parts": [
                    {"text": "One"},
                    {"inlineData": {"mimeType": "image/jpg", "data": "iVBORw=="}},
                    {"inlineData": {"mimeType": "text/csv; charset=utf-8", "data": "R3LDvMOfZQ=="}},
                    {"executableCode": {"code": "1"}},
                ],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "hm", "thought": True, "thoughtSignature": "sig"},
                    {"text": "I look."},
                    {
                        "functionCall": {"name": "look", "args": {"city": "Oslo"}},
                        "thoughtSignature": "skip_thought_signature_validator",
                    },
                    {"functionCall": {"name": "look", "args": {"arguments": '{"city"'}}},
                    {"executableCode": {"code": "1"}},
                    {"fileData": {"fileUri": "f"}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {
                        "functionResponse": {
                            "name": "look",
                            "response": {"output": "wet "},
                            "parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}],
                        }
                    },
                    {"functionResponse": {"name": "look", "response": {"error": "none"}}},
                ],
            },
            {
                "role": "user",
                "parts": [{"fileData": {"fileUri": "https://a.example/a.mp3?x=1", "mimeType": "audio/mpeg"}}],
            },
            {"role": "user", "parts": [{"text": "Wait."}]},
            {
                "role": "model",
                "parts": [{"text": "So: \n"}, {"text": "end", "thought": True, "thoughtSignature": "sig"}],
            },
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "look",
                        "description": "Look.",
                        "parametersJsonSchema": {
                            "properties": {"a": {"type": "integer", "minimum": 1}},
                            "type": "object",
                        },
                    },
                    {"name": "wait"},
                ]
            },
            {"googleSearch": {}},
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}},
        "generationConfig": {
            "maxOutputTokens": 9,
            "temperature": 0.5,
            "topP": 0.5,
            "stopSequences": ["A"],
            "seed": 3,
            "responseMimeType": "application/json",
            "responseJsonSchema": {"type": "object", "properties": {"n": {"type": "string", "pattern": "a"}}},
            "thinkingConfig": {"thinkingLevel": "HIGH", "includeThoughts": True},
        },
        "labels": {"user_id": "u"},
        "x": 1,
    }
    assert wire.warnings == [
        "system.cache_control: left out, Gemini caches by itself or by cachedContent",
        "messages[1].content[0].cache_control: left out, Gemini caches by itself or by cachedContent",
        "messages[1].content[2].detail: left out, Gemini sets it for the whole request (mediaResolution)",
        "messages[1].content[3].cache_control: left out, Gemini caches by itself or by cachedContent",
        "messages[1].content[3].name: left out, Gemini takes no names of files",
        "messages: 'thing' of 'elsewhere' is not sent; only its provider understands it",
        "messages: thinking that 'google' did not make is not sent to it",
        "messages[2].content[5].arguments: no JSON object, sent as text",
        "messages[4].content[0].cache_control: left out, Gemini caches by itself or by cachedContent",
        "messages[4].content[1].content[3]: sent beside the result, which cannot contain it",
        "messages: result 'unasked' has no call and is not sent",
        'messages: begin with the assistant, which Gemini refuses; sent with "(The conversation begins '
        "with the assistant's message.)\" as the user's first",
        "messages: call 'lost' has no result and is not sent",
        "tools[0].cache_control: left out, Gemini caches by itself or by cachedContent",
        "response_schema.properties.n.pattern: Gemini does not enforce it",
        "metadata.Team: left out, Google takes labels of lower-case letters, digits, _ and - only",
        "parallel_tool_calls: left out, Gemini has no such switch",
    ]


def test_an_older_model_gets_files_beside_the_results() -> None:
    wire = encoded("gemini-2.5-flash")
    body, newer = json.loads(wire.body), json.loads(encoded("gemini-3-flash").body)
    assert body["generationConfig"]["thinkingConfig"] == {"thinkingBudget": 24576, "includeThoughts": True}
    assert body["contents"][3:6] == [
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True, "thoughtSignature": "sig"},
                {"text": "I look."},
                {"functionCall": {"name": "look", "args": {"city": "Oslo"}}},
                {"functionCall": {"name": "look", "args": {"arguments": '{"city"'}}},
                {"executableCode": {"code": "1"}},
                {"fileData": {"fileUri": "f"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "look", "response": {"output": "wet "}}},
                {"functionResponse": {"name": "look", "response": {"error": "none"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}},
                {"fileData": {"fileUri": "https://a.example/a.mp3?x=1", "mimeType": "audio/mpeg"}},
            ],
        },
    ]
    assert (body["contents"][:3], body["contents"][6:]) == (newer["contents"][:3], newer["contents"][6:])
    assert wire.warnings[9:11] == [
        "messages[4].content[1].content[2]: sent beside the result, which cannot contain it",
        "messages[4].content[1].content[3]: sent beside the result, which cannot contain it",
    ]
