"""Gemini's contents as common messages and back: each part as a whole, and each refusal with its place."""

import datetime
from typing import Any, Literal

import pytest
from google.genai import types

import manystream as ms
from manystream.providers.gemini.converter import GeminiConverter
from manystream.providers.history import HistoryError


def state(**members: Any) -> ms.ProviderState:
    return ms.ProviderState("google", members)


def converter() -> GeminiConverter:
    """Return a converter that numbers the ids that it makes."""
    found = GeminiConverter()
    numbers = iter(range(1, 100))
    found.make_id = lambda: f"made-{next(numbers)}"
    return found


def read(*wire: Any) -> list[ms.Message]:
    return converter().decode_messages(list(wire))


CLIP = {"videoMetadata": {"startOffset": "1s"}, "partMetadata": {"a": 1}, "mediaResolution": {"level": "LOW"}}


def test_contents_are_read_whole() -> None:
    code: dict[str, Any] = {"executableCode": {"language": "PYTHON", "code": "1"}}
    film = {"fileData": {"fileUri": "https://a.example/a", "mimeType": "video/mp4"}}
    contents: list[Any] = [
        {
            "role": "user",
            "parts": [
                {"text": "a", "functionCall": None},
                {"text": "b", "partMetadata": {"a": 1}},
                {**film, **CLIP, "thoughtSignature": "s"},
                {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}, "mediaResolution": {"level": "LOW"}},
            ],
        },
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True, "thoughtSignature": "s"},
                {"text": "c"},
                {"text": "d"},
                {"functionCall": {"name": "look", "args": {"n": 1}, "id": "w1"}, "thoughtSignature": "t"},
                {"functionCall": {"name": "look"}},
                code,
                {"thoughtSignature": "u"},
            ],
        },
        {"parts": [{"text": "e"}]},
        {"role": "model", "parts": [{"text": ""}]},
        {"role": "", "parts": []},
        {"role": "tool", "parts": [{"text": "f"}]},
    ]
    assert read(*contents) == [
        ms.Message.user(
            [
                ms.Text("a"),
                ms.Text("b", state=state(partMetadata={"a": 1})),
                ms.File(url="https://a.example/a", media_type="video/mp4", state=state(thoughtSignature="s", **CLIP)),
                ms.Image(b"\x89PNG", "image/png", state=state(mediaResolution={"level": "LOW"})),
            ]
        ),
        ms.Message.assistant(
            [
                ms.Thinking("hm", "s", state(thought=True, thoughtSignature="s")),
                ms.Text("c"),
                ms.Text("d"),
                ms.ToolCall("w1", "look", '{"n":1}', state=state(id="w1", thoughtSignature="t")),
                ms.ToolCall("made-1", "look", "{}"),
                ms.ProviderBlock("google", code),
                ms.Text("", state=state(thoughtSignature="u")),
            ]
        ),
        ms.Message.user("e"),
        ms.Message.user("f"),
    ]


def response(name: str | None, value: Any, call_id: str | None = None, **members: Any) -> dict[str, Any]:
    """Return a part with a result."""
    names = {"name": name, "response": value, "id": call_id, **members}
    return {"functionResponse": {key: member for key, member in names.items() if member is not None}}


def test_results_are_read_whole_and_paired_with_their_calls() -> None:
    png = {"inlineData": {"mimeType": "image/png", "data": "iVBORw==", "displayName": None}}
    asked = {
        "role": "model",
        "parts": [{"functionCall": {"name": name, "id": call_id}} for name, call_id in (("f", "a"), ("g", "b"))],
    }
    answered = {
        "role": "function",
        "parts": [
            response("g", {"output": "wet"}),
            {"text": "note"},
            response("f", {"error": "no"}, "a", parts=[png, {"text": "x"}]),
            response("f", {"output": 5}),
            response("f", {"error": {"code": 1}}, "zzz"),
            response(None, {"output": "x", "more": 1}, "n"),
            response("h", {"error": "x", "more": 1}, "o"),
            response("h", {"rain": [1, 2]}, "p"),
            response("h", None, "q"),
        ],
    }
    _, *messages = read(asked, answered)
    assert messages == [
        ms.Message(ms.Role.TOOL, [ms.ToolResult("b", "wet")]),
        ms.Message.user("note"),
        ms.Message(
            ms.Role.TOOL,
            [
                ms.ToolResult("a", [ms.Text("no"), ms.Image(b"\x89PNG", "image/png")], is_error=True),
                ms.ToolResult("made-1", "5"),
                ms.ToolResult("zzz", '{"code":1}', is_error=True),
                ms.ToolResult("n", '{"output":"x","more":1}'),
                ms.ToolResult("o", '{"error":"x","more":1}', is_error=True),
                ms.ToolResult("p", '{"rain":[1,2]}'),
                ms.ToolResult("q", "{}"),
            ],
        ),
    ]


def test_messages_are_written_whole() -> None:
    png = {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}
    messages = [
        ms.Message.user(
            [ms.Text("a", cache_control=ms.CacheControl()), ms.Text(""), ms.Image(b"\x89PNG", "image/png")]
        ),
        ms.Message.assistant(
            [
                ms.Thinking("hm", "s", state(thought=True, thoughtSignature="s")),
                ms.Thinking("x", "y", ms.ProviderState("elsewhere", {})),
                ms.ToolCall("a", "look", "{}", state=state(id="a", thoughtSignature="t")),
                ms.ToolCall("a", "hear", '{"n"'),
                ms.ToolResult("a", "wet"),
                ms.Text("b"),
                ms.ProviderBlock("google", {"executableCode": {}}),
            ]
        ),
        ms.Message(
            ms.Role.TOOL,
            [
                ms.ToolResult("a", [ms.Text("loud"), ms.Image(b"\x89PNG", "image/png"), ms.Image(url="https://a/b")]),
                ms.ToolResult("zzz", "?", is_error=True),
            ],
        ),
        ms.Message.user(""),
    ]
    assert converter().encode_messages(messages) == [
        {"role": "user", "parts": [{"text": "a"}, png]},
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True, "thoughtSignature": "s"},
                {"functionCall": {"name": "look", "args": {}, "id": "a"}, "thoughtSignature": "t"},
                {"functionCall": {"name": "hear", "args": {"arguments": '{"n"'}, "id": "a"}},
            ],
        },
        {"role": "user", "parts": [response("look", {"output": "wet"}, "a")]},
        {"role": "model", "parts": [{"text": "b"}, {"executableCode": {}}]},
        {
            "role": "user",
            "parts": [
                response("hear", {"output": "loud"}, "a", parts=[png]),
                {"fileData": {"fileUri": "https://a/b"}},
                response("unknown", {"error": "?"}, "zzz"),
            ],
        },
    ]


REFUSED: list[tuple[Any, str]] = [
    ({"role": "system", "parts": []}, "contents[1].role: unknown role 'system'"),
    ({"role": "user", "parts": [{"text": "a"}, {"smell": 1, "x": 2}]},
        "contents[1].parts[1]: unknown part 'smell', 'x'"),
    ({"role": "user", "parts": [response("f", {}, "a", parts=[{"smell": 1}])]},
        "contents[1].parts[0].functionResponse.parts[0]: unknown part 'smell'"),
    ({"role": "user", "parts": "hello"}, "contents[1]: parts is no array"),
    ({"role": "user", "parts": ["hello"]}, "contents[1]: parts contains a value that is no object"),
    ({"role": "user", "parts": [{"text": 5}]}, "contents[1].parts[0]: a text is no string"),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_content_that_cannot_be_read_is_named(wire: Any, message: str) -> None:
    with pytest.raises(HistoryError) as raised:
        read({"role": "user", "parts": [{"text": "a"}]}, wire)
    assert str(raised.value) == message


def test_two_results_of_one_call_have_its_name() -> None:
    messages = [
        ms.Message.assistant(ms.ToolCall("a", "look", "{}")),
        ms.Message(ms.Role.TOOL, [ms.ToolResult("a", "1"), ms.ToolResult("a", "2")]),
    ]
    assert converter().encode_messages(messages)[1:] == [
        {"role": "user", "parts": [response("look", {"output": "1"}, "a"), response("look", {"output": "2"}, "a")]}
    ]


TEXT = {"text": "a"}
CONTENT = {"parts": [TEXT], "role": "model"}
CANDIDATE = {"content": CONTENT}
CHUNKS: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
    (CANDIDATE, {"candidates": [CANDIDATE]}),
    ({"finishReason": "STOP"}, {"candidates": [{"finishReason": "STOP"}]}),
    (CONTENT, {"candidates": [CANDIDATE]}),
    (TEXT, {"candidates": [{"content": {"parts": [TEXT]}}]}),
    ({"toolCall": {}}, {"candidates": [{"content": {"parts": [{"toolCall": {}}]}}]}),
    ({"name": "f", "args": {}, "id": "c"}, {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f",
        "args": {}, "id": "c"}}]}}]}),
    ({"name": "f"}, None),
    ({"thought": True}, None),
]  # fmt: skip


@pytest.mark.parametrize(("part", "chunk"), CHUNKS)
def test_a_part_of_a_chunk_is_made_a_whole_one(part: dict[str, Any], chunk: dict[str, Any] | None) -> None:
    assert converter().chunk_around(frozenset(part), part) == chunk
    assert not converter().is_chunk(frozenset(part), part)
    for name in ("candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId"):
        assert converter().is_chunk(frozenset({name}), {name: None})


def test_several_system_texts_are_parts() -> None:
    written = converter()._system_parameter(["a", "b"])  # pyright: ignore[reportPrivateUsage]
    assert written == {"parts": [{"text": "a"}, {"text": "b"}]}


def of_the_sdk() -> tuple[list[types.Content], types.GenerateContentResponse]:
    """Return a history and an answer of google-genai, with bytes, enums, dates and members that are None."""
    signed: dict[str, Any] = {"thought_signature": b"\xff\xfe\x00sig\xfb"}
    called = types.Part(function_call=types.FunctionCall(id="c", name="look", args={"a_b": 1, "n": None}), **signed)
    code = types.Part(executable_code=types.ExecutableCode(code="1", language=types.Language.PYTHON))
    answer = types.Content(role="model", parts=[types.Part(text="hm", thought=True, **signed), called, code])
    image = types.Blob(data=b"\xff\xfe\xfb", mime_type="image/png")
    found = types.FunctionResponse(id="c", name="look", response={"out_put": {"x_y": None}})
    film = types.FileData(file_uri="gs://a/b.mp4", mime_type="video/mp4")
    question = types.Content(role="user", parts=[types.Part(text="a"), types.Part(inline_data=image)])
    results = types.Content(
        role="user",
        parts=[types.Part(function_response=found), types.Part(file_data=film, part_metadata={"a_b": {"c_d": 1}})],
    )
    whole = types.GenerateContentResponse(
        candidates=[types.Candidate(content=answer, finish_reason=types.FinishReason.STOP, index=0)],
        create_time=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        model_version="gemini",
    )
    return [question, answer, results], whole


@pytest.mark.parametrize("by_alias", [False, True])
@pytest.mark.parametrize("mode", ["python", "json"])
@pytest.mark.parametrize("left_out", ["", "exclude_none", "exclude_unset"])
def test_what_the_sdk_dumps_is_read(mode: Literal["python", "json"], left_out: str, by_alias: bool) -> None:
    contents, whole = of_the_sdk()
    options: Any = {"mode": mode, "by_alias": by_alias, **({left_out: True} if left_out else {})}
    dumped: list[Any] = [content.model_dump(**options) for content in contents]
    wire: list[Any] = [content.model_dump(mode="json", by_alias=True, exclude_none=True) for content in contents]
    messages = read(*wire)
    assert read(*dumped) == messages == read(*contents)
    assert ms.Request.from_gemini(model="gemini", contents=dumped).messages == messages
    assert converter().to_history(dumped) == converter().to_history(wire)
    parts: list[Any] = contents[1].parts or []
    chunks: list[Any] = [whole, *(whole.candidates or []), contents[1], parts[1]]
    for chunk in chunks:
        assert converter().wrap_chunk(chunk.model_dump(**options)).response == converter().wrap_chunk(chunk).response
    answer: Any = whole.model_dump(**options)
    assert converter().message_from_chunks([answer]) == converter().message_from_chunks([whole])


def test_a_value_that_json_does_not_have_is_named() -> None:
    with pytest.raises(HistoryError, match=r"^messages\[0\].parts\[0\].text: cannot be carried: object is neither"):
        read({"parts": [{"text": object()}]})
