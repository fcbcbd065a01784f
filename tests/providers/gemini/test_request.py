"""Requests: every option's wire form, checked against the official client's types, and warnings for the others."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

import manystream as ms
from manystream.providers.catalog.dialect import WireRequest
from manystream.providers.gemini import DIALECT
from tests.providers.gemini.sent import body_of, sent, warnings, wire
from tests.providers.whole_history import MARK, whole_history

WEATHER = ms.Tool("weather", "Returns it.", {"type": "object", "properties": {"place": {"type": "string"}}})

NOW = ms.Tool("now")


def test_the_smallest_request() -> None:
    request = wire(ms.Message.user("Hi"))
    assert body_of(request) == {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    assert request.path == "/v1beta/models/gemini-3.8-flash:generateContent"
    assert request.headers == [("content-type", "application/json"), ("accept", "application/json")]
    assert (request.method, request.warnings) == ("POST", [])


def test_the_key_is_in_a_header_and_nowhere_else() -> None:
    provider = ms.Gemini("very-secret")
    request = DIALECT.encode(ms.Request("m", [ms.Message.user("Hi")]), "m", provider, stream=True)
    assert DIALECT.auth_headers(provider, "very-secret") == [("x-goog-api-key", "very-secret")]
    assert "very-secret" not in repr(request)


def test_ignored_sampling_causes_a_warning() -> None:
    sampling = {"temperature": 0.5, "top_p": 0.9}
    assert warnings(model="gemini-3.6-flash", **sampling) == [
        "temperature: sent, but gemini-3.6-flash ignores it",
        "top_p: sent, but gemini-3.6-flash ignores it",
    ]
    for model in ("gemini-2.5-pro", "gemini-3.5-flash", "gemini-flash-latest", "tunedModels/mine"):
        assert warnings(model=model, **sampling) == []


def test_the_system_prompt_is_an_instruction_of_its_own() -> None:
    assert sent(system="Be brief.")["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    blocks = [ms.Text("One."), ms.Text(""), ms.Text("Two.")]
    assert sent(system=blocks)["systemInstruction"] == {"parts": [{"text": "One."}, {"text": "Two."}]}
    assert "systemInstruction" not in sent(system="")


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ("now", {"mode": "ANY", "allowedFunctionNames": ["now"]}),
    ],
)
def test_each_tool_choice_has_its_mode(choice: str, config: dict[str, Any]) -> None:
    assert sent(tools=[WEATHER, NOW], tool_choice=choice)["toolConfig"] == {"functionCallingConfig": config}


def test_strict_tools_are_validated() -> None:
    strict = ms.Tool("now", strict=True)
    assert sent(tools=[strict])["toolConfig"]["functionCallingConfig"] == {"mode": "VALIDATED"}
    forced = sent(tools=[strict], tool_choice="required")
    assert forced["toolConfig"]["functionCallingConfig"] == {"mode": "ANY"}


@pytest.mark.parametrize("name", ["1st", "with space", "ö", "x" * 129, "-a"])
def test_a_tool_name_that_gemini_refuses_is_refused_here(name: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"tools\[1\]\.name"):
        wire(tools=[NOW, ms.Tool(name)])


@pytest.mark.parametrize("name", ["a", "_a", "mcp.server:tool-1", "x" * 128])
def test_a_tool_name_that_gemini_takes_is_sent(name: str) -> None:
    assert sent(tools=[ms.Tool(name)])["tools"][0]["functionDeclarations"] == [{"name": name}]


@pytest.mark.parametrize(
    ("model", "thinking", "config"),
    [
        ("gemini-2.5-pro", ms.ThinkingLevel.LOW, {"thinkingBudget": 11008, "includeThoughts": True}),
        ("gemini-3.8-flash", ms.ThinkingLevel.MED, {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
        ("models/gemini-2.5-flash", ms.ThinkingLevel.NONE, {"thinkingBudget": 0}),
        (
            "gemini-3.8-flash",
            ms.ThinkingConfig(effort="xhigh", include_summary=False),
            {"thinkingLevel": "XHIGH", "includeThoughts": False},
        ),
        ("gemini-2.5-flash", ms.ThinkingConfig(budget_tokens=-1), {"thinkingBudget": -1, "includeThoughts": True}),
    ],
)  # fmt: skip
def test_thinking_is_part_of_the_generation_config(model: str, thinking: Any, config: dict[str, Any]) -> None:
    assert sent(model=model, thinking=thinking)["generationConfig"] == {"thinkingConfig": config}


def test_thinking_that_a_model_refuses_is_an_error() -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"thinking: gemini-2\.5-pro"):
        wire(model="gemini-2.5-pro", thinking=ms.ThinkingLevel.NONE)


@pytest.mark.parametrize(
    ("name", "value", "valid"),
    [
        ("a", "", True),
        ("a" * 63, "b" * 63, True),
        ("a" * 64, "b", False),
        ("a", "b" * 64, False),
        ("a-b_1", "1-_b", True),
        ("1a", "b", False),
        ("a", "b\n", False),
        ("é", "b", False),
        ("a", "é", False),
    ],
)
def test_a_label_has_letters_and_digits_up_to_63(name: str, value: str, valid: bool) -> None:
    request = wire(metadata={name: value})
    assert body_of(request).get("labels") == ({name: value} if valid else None)
    reason = "left out, Google takes labels of lower-case letters, digits, _ and - only"
    assert request.warnings == ([] if valid else [f"metadata.{name}: {reason}"])


def test_a_request_has_at_most_64_labels() -> None:
    labels = {f"a{number}": "b" for number in range(65)}
    request = wire(metadata=labels)
    assert body_of(request)["labels"] == {f"a{number}": "b" for number in range(64)}
    assert [warning.partition(":")[0] for warning in request.warnings] == ["metadata.a64"]


def test_the_output_limit_counts_for_each_candidate() -> None:
    assert wire(max_output_tokens=9).max_output_tokens == 9
    assert wire(max_output_tokens=9, extra_body={"generationConfig": {"candidateCount": 3}}).max_output_tokens == 27
    assert wire(extra_body={"generationConfig": {"maxOutputTokens": 5}}).max_output_tokens == 5
    assert wire().max_output_tokens is None


def test_a_conversation_without_content_is_refused() -> None:
    with pytest.raises(ms.InvalidRequestError) as raised:
        wire(ms.Message.user(""))
    assert str(raised.value) == "messages: contain nothing that can be sent to Gemini: no text, no call, no file"


def test_extra_body_is_merged_last_and_deep() -> None:
    extra = {
        "generationConfig": {"topK": 5, "temperature": 1},
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
        "tools": [{"googleSearch": {}}],
        "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}},
    }
    request = wire(tools=[NOW], temperature=0.1, seed=1, extra_body=extra)
    body = json.loads(request.body)
    assert body["generationConfig"] == {"temperature": 1, "seed": 1, "topK": 5}
    assert body["tools"] == [{"functionDeclarations": [{"name": "now"}]}, {"googleSearch": {}}]
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "VALIDATED"}}
    assert body["safetySettings"] == extra["safetySettings"]
    assert extra["generationConfig"] == {"topK": 5, "temperature": 1}


def test_lists_in_extra_body_replace_those_of_the_request() -> None:
    extra = {"generationConfig": {"stopSequences": ["b"]}, "contents": [{"parts": [{"text": "c"}]}], "labels": {}}
    body = json.loads(wire(stop=["a"], metadata={"d": "e"}, extra_body=extra).body)
    assert body == {
        "contents": [{"parts": [{"text": "c"}]}],
        "generationConfig": {"stopSequences": ["b"]},
        "labels": {"d": "e"},
    }
    assert json.loads(wire(tools=[NOW], extra_body={"tools": None}).body)["tools"] is None


def test_only_a_strict_tools_constraints_cause_warnings() -> None:
    parameters: Any = {"type": "object", "properties": {"a": {"type": "string", "pattern": "b"}}}
    assert warnings(tools=[ms.Tool("now", parameters=parameters)]) == []
    assert warnings(tools=[NOW, ms.Tool("now_2", parameters=parameters, strict=True)]) == [
        "tools[1].parameters.properties.a.pattern: Gemini does not enforce it"
    ]


def test_a_value_that_is_no_json_is_an_error_naming_its_member() -> None:
    with pytest.raises(ms.InvalidRequestError, match="store: cannot be written as JSON"):
        wire(extra_body={"store": object()})


def test_encoding_does_not_change_the_request() -> None:
    request = ms.Request(
        "gemini-3.8-flash", [ms.Message.user("Hi"), ms.Message.tool_call("a", "now", "{}"),
        ms.Message.tool_result("a", "12:00")], tools=[WEATHER],
        response_schema={"$defs": {"A": {"type": "STRING"}}, "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}}}, extra_body={"generationConfig": {"topK": 1}},
    )  # fmt: skip
    before = copy.deepcopy(request)
    first = DIALECT.encode(request, "gemini-3.8-flash", ms.Gemini("key"), stream=False)
    assert request == before
    assert DIALECT.encode(request, "gemini-3.8-flash", ms.Gemini("key"), stream=False) == first


def test_an_invalid_request_is_refused() -> None:
    with pytest.raises(ms.InvalidRequestError, match="messages"):
        DIALECT.encode(ms.Request("m", []), "m", ms.Gemini("key"), stream=False)


# --- a request with every option and every kind of block: the whole body and all warnings, as they are sent ---
OWN = ms.ProviderState("google", {"thoughtSignature": "sig"})

NATIVE = ms.ProviderBlock("google", {"executableCode": {"code": "1"}})

HISTORY = whole_history(OWN, NATIVE)

OPTIONS: dict[str, Any] = {
    "system": [ms.Text("Be"), ms.Text("brief", cache_control=MARK)],
    "tools": [ms.Tool("look", "Look.", {"properties": {"a": {"type": "integer", "minimum": 1}}}, strict=True,
        cache_control=MARK), ms.Tool("wait")],
    "tool_choice": "look",
    "max_output_tokens": 9,
    "temperature": 0.5,
    "top_p": 0.5,
    "stop": ["A"],
    "seed": 3,
    "response_schema": {"type": "object", "properties": {"n": {"type": "string", "pattern": "a"}}},
    "parallel_tool_calls": False,
    "metadata": {"user_id": "u", "Team": "a"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([ms.Text("a"), ms.Image(url="data:image/png;base64,%")],
            "messages[1].content[1].url: is no data URL that can be read: data:<type>;base64,<data>"),
        ([ms.ToolResult("t", [ms.Text("a"), ms.File(url="data:x")])],
            "messages[1].content[0].content[1].url: is no data URL that can be read: data:<type>;base64,<data>"),
    ],
)  # fmt: skip
def test_a_block_that_cannot_be_sent_is_named(content: list[Any], message: str) -> None:
    request = ms.Request("m", [ms.Message.tool_call("t", "look", "{}"), ms.Message.user(content)])
    with pytest.raises(ms.InvalidRequestError) as raised:
        DIALECT.encode(request, request.model, ms.Gemini(api_key="k"), stream=True)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("block", "part", "warnings"),
    [
        (ms.Image(data=b"", media_type="image/png"), None, ["messages[0].content[1]: left out, the file has no bytes"]),
        (ms.Image(file_id="abc"), {"fileData": {"fileUri": "abc"}}, []),
        (ms.File(url="https://h/a", media_type="a/b"), {"fileData": {"fileUri": "https://h/a", "mimeType": "a/b"}}, []),
        (ms.File(url="data:;base64,eA=="), {"inlineData": {"mimeType": "text/plain", "data": "eA=="}}, []),
        (ms.File(url="data:a/b;c=d;base64,eA==", media_type="e/f"), {"inlineData": {"mimeType": "e/f", "data": "eA=="}},
            []),
        (ms.File(url="data:a/b,base64"), {"inlineData": {"mimeType": "a/b", "data": "YmFzZTY0"}}, []),
        (ms.File(file_id="files/a", state=ms.ProviderState("google", {"videoMetadata": {"fps": 1}, "other": 2})),
            {"fileData": {"fileUri": "https://user-host.example:8443/v1beta/files/a"}, "videoMetadata": {"fps": 1}},
            []),
        (ms.File(file_id="files/a", state=ms.ProviderState("elsewhere", {"videoMetadata": {"fps": 1}})),
            {"fileData": {"fileUri": "https://user-host.example:8443/v1beta/files/a"}},
            ["messages: the 'videoMetadata' of a file is not sent; only 'elsewhere' takes it"]),
        (ms.Image(data=b"x", media_type="image/png", detail="high", cache_control=MARK),
            {"inlineData": {"mimeType": "image/png", "data": "eA=="}},
            ["messages[0].content[1].cache_control: left out, Gemini caches by itself or by cachedContent",
            "messages[0].content[1].detail: left out, Gemini sets it for the whole request (mediaResolution)"]),
    ],
)  # fmt: skip
def test_a_file_is_one_part(block: ms.Image | ms.File, part: dict[str, Any] | None, warnings: list[str]) -> None:
    provider = ms.Gemini(api_key="k", base_url="https://user:pass@user-host.example:8443/v1beta")
    wire = DIALECT.encode(ms.Request("m", [ms.Message.user([ms.Text("a"), block])]), "m", provider, stream=False)
    assert json.loads(wire.body)["contents"][0]["parts"] == [{"text": "a"}, *([part] if part else [])]
    assert wire.warnings == warnings


def encoded(model: str) -> WireRequest:
    extra: dict[str, Any] = {"x": 1, "tools": [{"googleSearch": {}}]}
    request = ms.Request(model, HISTORY, thinking="high", extra_body=extra, **OPTIONS)
    return DIALECT.encode(request, model, ms.Gemini(api_key="k"), stream=True)


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
