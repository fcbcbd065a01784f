"""Gemini's contents as common messages and back: each part as a whole, and each refusal with its place."""

from typing import Any

import pytest

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
