"""The arguments of `client.models.generate_content` as a request: the whole request, and the whole error."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import pytest
from google.genai import types

import manystream as ms
from tests.providers.sdk_bodies import sent_by_us

MODEL = "gemini-2.5-flash"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
LOOK: dict[str, Any] = {"name": "look", "description": "Look.", "parametersJsonSchema": SCHEMA}
TOOLS: list[Any] = [{"functionDeclarations": [LOOK]}]
TOOL = ms.Tool("look", "Look.", SCHEMA)
SEARCH: dict[str, Any] = {"google_search": {}}


def read(contents: object = "Which river?", **config: object) -> ms.Request:
    return ms.Request.from_gemini(model=MODEL, contents=contents, config=config)


def request(*messages: ms.Message, **options: Any) -> ms.Request:
    """Return the expected request. `from_gemini` gives lists where `Request` has empty tuples."""
    defaults: dict[str, Any] = {"tools": [], "stop": []}
    return ms.Request(MODEL, list(messages) or [ms.Message.user("Which river?")], **{**defaults, **options})


def test_each_option_becomes_its_field() -> None:
    assert read(
        system_instruction="Be brief.",
        tools=[{"function_declarations": [{**LOOK, "parametersJsonSchema": SCHEMA}, {"name": "wait"}]}],
        tool_config={"function_calling_config": {"mode": "ANY", "allowed_function_names": ["look"]}},
        thinking_config={"thinking_budget": 256, "include_thoughts": True},
        max_output_tokens=9,
        temperature=0.5,
        top_p=0.25,
        top_k=4,
        stop_sequences=["A", "B"],
        seed=3,
        response_mime_type="application/json",
        response_json_schema=SCHEMA,
        labels={"team_name": "a"},
        cached_content="cachedContents/a",
        model_selection_config={"feature_selection_preference": "BALANCED"},
        automatic_function_calling={"disable": True},
        presence_penalty=None,
        http_options={"timeout": 2500, "headers": {"x-a": "b"}, "extra_body": {"store": False}},
    ) == request(
        system="Be brief.",
        tools=[TOOL, ms.Tool("wait")],
        tool_choice="look",
        thinking=ms.ThinkingConfig(None, 256, None, True),
        max_output_tokens=9,
        temperature=0.5,
        top_p=0.25,
        stop=["A", "B"],
        seed=3,
        response_schema=SCHEMA,
        metadata={"team_name": "a"},
        timeouts=ms.Timeouts(connect=2.5, first_byte=2.5, idle=2.5),
        extra_headers={"x-a": "b"},
        extra_body={
            "cachedContent": "cachedContents/a",
            "generationConfig": {"topK": 4, "modelConfig": {"featureSelectionPreference": "BALANCED"}},
            "store": False,
        },
    )


class Mood(enum.StrEnum):
    GLAD = "glad"
    SAD = "sad"


SPECIAL: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "nothing": ({}, {}),
    "system texts": ({"system_instruction": ["a", "b"]}, {"system": [ms.Text("a"), ms.Text("b")]}),
    "a system content": ({"system_instruction": {"parts": [{"text": "a"}]}}, {"system": "a"}),
    "a system content without parts": ({"system_instruction": {"parts": []}}, {"system": None}),
    "a tool of the server beside functions": ({"tools": [*TOOLS, {"google_search": {}}]},
        {"tools": [TOOL], "extra_body": {"tools": [{"googleSearch": {}}]}}),
    "a function with another member": ({"tools": [{"function_declarations": [{**LOOK, "behavior": "BLOCKING"}]}]},
        {"extra_body": {"tools": [{"functionDeclarations": [{**LOOK, "behavior": "BLOCKING"}]}]}}),
    "a schema whose type is a number": ({"tools": [{"function_declarations": [{"name": "look",
        "parameters": {"type": 6}}]}]}, {"extra_body": {"tools": [{"functionDeclarations": [{"name": "look",
        "parameters": {"type": 6}}]}]}}),
    "a schema of OpenAPI's form": (
        {
            "tools": [
                {
                    "function_declarations": [
                        {
                            "name": "look",
                            "parameters": {
                                "type": "OBJECT",
                                "nullable": False,
                                "properties": {
                                    "the_city": {
                                        "type": "STRING",
                                        "nullable": True,
                                        "default": {"type": "X", "a": {"type": "Y"}},
                                    },
                                    "days": {"any_of": [{"type": "INTEGER"}, {"type": "NUMBER"}]},
                                },
                            },
                        }
                    ]
                }
            ]
        },
        {
            "tools": [
                ms.Tool(
                    "look",
                    "",
                    {
                        "type": "object",
                        "properties": {
                            "the_city": {"type": ["string", "null"], "default": {"type": "X", "a": {"type": "Y"}}},
                            "days": {"anyOf": [{"type": "integer"}, {"type": "number"}]},
                        },
                    },
                )
            ]
        },
    ),
    "any function": ({"tools": TOOLS, "tool_config": {"function_calling_config": {"mode": "ANY"}}},
        {"tools": [TOOL], "tool_choice": "required"}),
    "no function": ({"tools": TOOLS, "tool_config": {"function_calling_config": {"mode": "NONE"}}},
        {"tools": [TOOL], "tool_choice": "none"}),
    "one of two functions": ({"tools": [{"function_declarations": [LOOK, {"name": "wait"}]}],
        "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["wait"]}}},
        {"tools": [TOOL, ms.Tool("wait")], "tool_choice": "wait"}),
    **{
        f"a choice that no field holds: {config}": (
            {"tools": TOOLS, "tool_config": config},
            {"tools": [TOOL], "extra_body": {"toolConfig": config}},
        )
        for config in (
            {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look", "wait"]}},
            {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["hear"]}},
            {"functionCallingConfig": {"mode": "AUTO", "allowedFunctionNames": ["look"]}},
            {"functionCallingConfig": {"mode": "VALIDATED"}},
            {"functionCallingConfig": {"mode": "AUTO", "streamFunctionCallArguments": True}},
            {"functionCallingConfig": {"mode": "AUTO"}, "retrievalConfig": {"languageCode": "de"}},
            {"retrievalConfig": {"languageCode": "de"}},
        )
    },
    "a choice without functions": ({"tool_config": {"function_calling_config": {"mode": "ANY"}}},
        {"extra_body": {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}}),
    "a level": ({"thinking_config": {"thinking_level": "HIGH"}},
        {"thinking": ms.ThinkingConfig(None, None, "high", None)}),
    "no thoughts": ({"thinking_config": {"include_thoughts": False}},
        {"thinking": ms.ThinkingConfig(None, None, None, False)}),
    "thinking with another member": ({"thinking_config": {"thinking_budget": 1, "depth": 2}},
        {"extra_body": {"generationConfig": {"thinkingConfig": {"thinkingBudget": 1, "depth": 2}}}}),
    "thoughts that are no flag": ({"thinking_config": {"include_thoughts": "yes"}},
        {"extra_body": {"generationConfig": {"thinkingConfig": {"includeThoughts": "yes"}}}}),
    "a media type alone": ({"response_mime_type": "text/x.enum"},
        {"extra_body": {"generationConfig": {"responseMimeType": "text/x.enum"}}}),
    "a cache by its id": ({"cached_content": "abc"}, {"extra_body": {"cachedContent": "cachedContents/abc"}}),
    "a cache by its name": ({"cached_content": "projects/p/locations/l/cachedContents/abc"},
        {"extra_body": {"cachedContent": "projects/p/locations/l/cachedContents/abc"}}),
    "a voice by its name": (
        {"speech_config": "Kore"},
        {
            "extra_body": {
                "generationConfig": {
                    "speechConfig": {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Kore"}}},
                }
            }
        },
    ),
    "a list of a type": ({"response_mime_type": "application/json", "response_schema": list[int]},
        {"response_schema": {"type": "array", "items": {"type": "integer"}}}),
    "an enum": ({"response_mime_type": "text/x.enum", "response_schema": Mood},
        {"extra_body": {"generationConfig": {"responseMimeType": "text/x.enum",
        "responseSchema": {"type": "STRING", "enum": ["glad", "sad"]}}}}),
    "no time-out": ({"http_options": {"timeout": None}}, {}),
    "a member given twice": ({"labels": {"a": "b"}, "http_options": {"extra_body": {"cachedContent": "x"}},
        "cached_content": "y"}, {"metadata": {"a": "b"}, "extra_body": {"cachedContent": "x"}}),
}  # fmt: skip


@pytest.mark.parametrize(("config", "fields"), SPECIAL.values(), ids=SPECIAL)
def test_a_special_form_becomes_fields_or_extra_body(config: dict[str, object], fields: dict[str, object]) -> None:
    assert read(**config) == request(**fields)


CALL: dict[str, object] = {"function_call": {"name": "look", "args": {}, "id": "c"}}
RESULT: dict[str, object] = {"function_response": {"name": "look", "response": {"output": "wet"}, "id": "c"}}
CALLED = ms.ToolCall("c", "look", "{}", state=ms.ProviderState("google", {"id": "c"}))

CONTENTS: dict[str, tuple[object, list[ms.Message]]] = {
    "a text": ("a", [ms.Message.user("a")]),
    "texts": (["a", "b"], [ms.Message.user([ms.Text("a"), ms.Text("b")])]),
    "lists of texts": ([["a", "b"], "c"], [ms.Message.user([ms.Text("a"), ms.Text("b")]), ms.Message.user("c")]),
    "texts around a list": (["a", ["b"], "c"], [ms.Message.user("a"), ms.Message.user("b"), ms.Message.user("c")]),
    "a content between texts": (["a", {"role": "model", "parts": [{"text": "b"}]}, "c"],
        [ms.Message.user("a"), ms.Message.assistant("b"), ms.Message.user("c")]),
    "a list with a call": (["a", [CALL]], [ms.Message.user("a"), ms.Message.user(CALLED)]),
    "a content without a role": ({"parts": [{"text": "a"}]}, [ms.Message.user("a")]),
    "a part": ({"text": "a"}, [ms.Message.user("a")]),
    "calls and results are roles of their own": (["a", CALL, RESULT, "b"],
        [ms.Message.user("a"), ms.Message.assistant(CALLED), ms.Message.tool_result("c", "wet"), ms.Message.user("b")]),
    "an uploaded file": (types.File(uri="https://host.example/files/a", mime_type="application/pdf", name="files/a"),
        [ms.Message.user(ms.File(url="https://host.example/files/a", media_type="application/pdf"))]),
    "bytes": (types.Part.from_bytes(data=b"\xff\xfe\xfd", mime_type="image/png"),
        [ms.Message.user(ms.Image(data=b"\xff\xfe\xfd", media_type="image/png"))]),
}  # fmt: skip


@pytest.mark.parametrize(("contents", "messages"), CONTENTS.values(), ids=CONTENTS)
def test_contents_of_any_form_are_messages(contents: object, messages: list[ms.Message]) -> None:
    assert read(contents) == request(*messages)


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"contents": []}, "contents: are missing"),
    ({"contents": ["a", 3]}, "contents[1]: must be text, a part, a content or a file"),
    ({"contents": [["a", 3]]}, "contents[0]: must be text, a part, a content or a file"),
    ({"contents": ["a", print]}, "contents[1]: cannot be carried: a function"),
    ({"model": 3}, "model: must be text"),
    ({"config": 3}, "config: must be a dict or the SDK's own object, not int"),
    ({"config": {"temprature": 1}},
        "config.temprature: is no argument of google-genai's client.models.generate_content; "
        "did you mean 'config.temperature'?"),
    ({"config": {"temperature": "warm"}}, "generationConfig.temperature: must be a number, not text"),
    ({"config": {"http_options": 3}}, "config.http_options: must be a dict or the SDK's own object, not int"),
    ({"config": {"http_options": {"timeout": "5"}}}, "config.http_options.timeout: must be milliseconds"),
    ({"config": {"http_options": {"timeout": True}}}, "config.http_options.timeout: must be milliseconds"),
    ({"config": {"http_options": {"timeout": 0}}}, "config.http_options.timeout: must be seconds above 0"),
    ({"config": {"http_options": {"headers": [1]}}}, "config.http_options.headers: must be a dict of texts"),
    ({"config": {"http_options": {"extra_body": {"a": print}}}}, "config.http_options.extra_body.a: cannot be"),
    ({"config": {"http_options": {"api_version": "v1"}}},
        "config.http_options.apiVersion: cannot be carried: it belongs to the provider or to open_engine"),
    ({"config": {"system_instruction": {"parts": [{"text": "a"}, {"inline_data": {"data": "", "mime_type": "a/b"}}]}}},
        "systemInstruction.parts[1]: must be text"),
    ({"config": {"system_instruction": 3}}, "config.systemInstruction: must be text, a part, a content or a file"),
    ({"config": {"tools": [{"function_declarations": [LOOK, {"description": "a"}]}]}},
        "tools[].functionDeclarations[1].name: is missing"),
    ({"config": {"response_schema": dict}}, "config.response_schema: must be a class with model_json_schema()"),
    ({"config": {"response_schema": list[object]}}, "config.response_schema[…]: must be a class with"),
    ({"config": {"response_schema": list[list[object]]}}, "config.response_schema[…][…]: must be a class with"),
    ({"contents": print}, "contents: cannot be carried: a function"),
    ({"config": {"labels": {"a": 3}}}, "labels.a: must be text, not a number"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_an_argument_that_cannot_be_read_is_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as raised:
        ms.Request.from_gemini(**{"model": MODEL, "contents": "Hi", **arguments})
    assert str(raised.value).startswith(message)


def test_a_changed_function_keeps_the_servers_tools() -> None:
    given = read(tools=[SEARCH, *TOOLS])
    changed = dataclasses.replace(given, tools=[ms.Tool("wait")])
    assert sent_by_us("gemini", changed)["tools"] == [
        {"functionDeclarations": [{"name": "wait"}]},
        {"googleSearch": {}},
    ]


SENT: dict[str, tuple[object, list[dict[str, Any]]]] = {
    "a text": ("a", [{"role": "user", "parts": [{"text": "a"}]}]),
    "a list of texts": ([["a", "b"], "c"], [{"role": "user", "parts": [{"text": "a"}, {"text": "b"}]},
        {"role": "user", "parts": [{"text": "c"}]}]),
    "a call and its result": ([CALL, RESULT], [{"role": "model",
        "parts": [{"functionCall": {"name": "look", "args": {}, "id": "c"}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "wet"}, "id": "c"}}]}]),
    "a content of its own": ({"parts": [{"text": "a", "video_metadata": {"start_offset": "1s"}}]},
        [{"parts": [{"text": "a", "videoMetadata": {"startOffset": "1s"}}]}]),
    "an uploaded file": (types.File(uri="https://host.example/files/a", mime_type="application/pdf"),
        [{"role": "user", "parts": [{"fileData": {"fileUri": "https://host.example/files/a",
        "mimeType": "application/pdf"}}]}]),
}  # fmt: skip


@pytest.mark.parametrize(("contents", "sent"), SENT.values(), ids=SENT)
def test_contents_are_sent_as_the_sdk_writes_them(contents: object, sent: list[dict[str, Any]]) -> None:
    assert sent_by_us("gemini", read(contents)) == {"contents": sent}


def test_tools_and_options_are_sent_as_given() -> None:
    declared: dict[str, Any] = {
        "name": "look",
        "parameters": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}},
    }
    given = read(
        tools=[SEARCH, {"function_declarations": [declared]}],
        tool_config={"function_calling_config": {"mode": "AUTO"}}, system_instruction="Be brief.", temperature=0.5,
        top_k=3, labels={"A": "b"},
    )  # fmt: skip
    assert sent_by_us("gemini", given) == {
        "contents": [{"role": "user", "parts": [{"text": "Which river?"}]}],
        "systemInstruction": {"role": "user", "parts": [{"text": "Be brief."}]},
        "tools": [{"functionDeclarations": [declared]}, {"googleSearch": {}}],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "generationConfig": {"temperature": 0.5, "topK": 3},
        "labels": {"A": "b"},
    }
