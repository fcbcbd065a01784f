"""The Responses API's items in the common history and back."""

import pytest

import manystream as ms
from manystream.providers.history import HistoryError
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter
from tests.providers.openai.chat.test_converter import CALL, NEITHER, NO_BASE64, NO_TEXT, PICTURES, TEXT, user

INPUT: ms.JSONObject = {"type": "input_text", "text": "a"}

RESPONSES_ERRORS: list[tuple[ms.JSONObject, str]] = [
    ({"role": "robot", "content": "x"}, "input[1].role: unknown role 'robot'"),
    ({"type": "message"}, "input[1].role: unknown role None"),
    ({"type": "smell"}, "input[1].type: unknown item 'smell'"),
    ({"role": "user", "content": 5}, f"input[1].content: {NO_TEXT}"),
    ({"role": "developer"}, f"input[1].content: {NO_TEXT}"),
    (user(INPUT, {"type": "smell"}), "input[1].content[1].type: unknown part 'smell'"),
    (user(INPUT, 5), "input[1].content[1].type: unknown part None"),
    (user({"type": "input_image", "image_url": "data:image/png;base64,%"}), f"input[1].content[0]: {NO_BASE64}"),
    (user({"type": "input_file", "file_url": "data:a/b;base64,%"}), f"input[1].content[0]: {NO_BASE64}"),
    (user({"type": "input_file", "file_data": "%"}), f"input[1].content[0].file_data: {NEITHER}"),
    ({"type": "function_call_output", "call_id": "c", "output": [{"type": "smell"}]},
        "input[1].output.content[0].type: unknown part 'smell'"),
    ({"type": "function_call_output", "call_id": "c", "output": 5}, f"input[1].output.content: {NO_TEXT}"),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "text"), RESPONSES_ERRORS, ids=[row[1] for row in RESPONSES_ERRORS])
def test_a_responses_item_that_cannot_be_read(wire: ms.JSONObject, text: str) -> None:
    with pytest.raises(HistoryError) as caught:
        ResponsesConverter().decode_messages([{"role": "user", "content": "x"}, wire])
    assert str(caught.value) == text


def test_every_responses_part_is_read() -> None:
    parts: list[ms.JSON] = [
        INPUT,
        {"type": "output_text", "text": "b"},
        {"type": "text"},
        {"type": "input_image", "image_url": "https://x/a.png", "detail": "auto"},
        {"type": "input_image", "image_url": "https://x/a.png", "detail": "low"},
        {"type": "input_image", "file_id": "f1", "detail": "high"},
        {"type": "input_image", "file_id": "f1", "detail": "original"},
        {"type": "input_image", "image_url": "data:image/gif;base64,YWJj"},
        {"type": "input_file", "file_id": "f1", "filename": "a.pdf"},
        {"type": "input_file", "file_url": "https://x/a.pdf"},
        {"type": "input_file", "file_url": "YWJj"},
        {"type": "input_image", "image_url": "YWJj", "detail": "new"},
        {"type": "input_file", "file_data": "data:text/plain;base64,YWJj", "filename": "a.txt"},
        {"type": "input_file", "file_data": "YWJj", "filename": "a.md"},
    ]
    assert ResponsesConverter().decode_messages([user(*parts)]) == [
        ms.Message.user([
            ms.Text("a"),
            ms.Text("b"),
            ms.Text(""),
            ms.Image(url="https://x/a.png"),
            ms.Image(url="https://x/a.png", detail="low"),
            ms.Image(file_id="f1", detail="high"),
            ms.Image(file_id="f1", detail="original"),
            ms.Image(data=b"abc", media_type="image/gif"),
            ms.File(file_id="f1", name="a.pdf"),
            ms.File(url="https://x/a.pdf"),
            ms.File(url="YWJj"),
            ms.Image(url="YWJj"),
            ms.File(data=b"abc", media_type="text/plain", name="a.txt"),
            ms.File(data=b"abc", media_type="text/markdown", name="a.md"),
        ])
    ]  # fmt: skip


def test_a_whole_conversation_in_responses_form() -> None:
    warnings: list[str] = []
    custom = ms.ToolCall("c2", "g", "raw", state=ms.ProviderState("openai-responses", {"type": "custom_tool_call"}))
    own = ms.ProviderBlock("openai-responses", {"type": "web_search_call", "id": "w"})
    messages = [
        ms.Message.user([ms.Text("x"), ms.Text("y")]), ms.Message.assistant([ms.Text("A"), CALL, custom, own]),
        PICTURES, ms.Message("tool", [ms.ToolResult("c2", "r"), ms.Text("x")]),
        ms.Message.assistant([ms.Image(url="u"), ms.Thinking("t"), ms.ProviderBlock("elsewhere", {"type": "x"})]),
    ]  # fmt: skip
    wire = ResponsesConverter().encode_messages(messages, warnings)
    output = [
        {"type": "input_text", "text": "r"},
        {"type": "input_text", "text": "s"},
        {"type": "input_image", "detail": "auto", "image_url": "u"},
    ]
    assert wire == [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "x"}, {"type": "input_text", "text": "y"}],
        },
        {"type": "message", "role": "assistant", "content": "A"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "raw"},
        {"type": "web_search_call", "id": "w"},
        {"type": "function_call_output", "call_id": "c1", "output": output},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "r"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
    ]
    assert warnings == [
        f"messages: an assistant's {kind} is not written; there is no form for it"
        for kind in ("Image", "Thinking", "ProviderBlock")
    ]


def test_results_that_follow_each_other_are_one_message() -> None:
    chat: list[ms.JSONObject] = [
        {"role": "tool", "tool_call_id": "a", "content": "1"}, {"role": "tool", "content": [TEXT, TEXT]},
        {"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "c", "content": "3"},
    ]  # fmt: skip
    expected = [
        ms.Message("tool", [ms.ToolResult("a", "1"), ms.ToolResult("", "aa")]),
        ms.Message.user("x"),
        ms.Message.tool_result("c", "3"),
    ]
    assert ChatConverter().decode_messages(chat) == expected
    items: list[ms.JSONObject] = [
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "custom_tool_call_output", "call_id": "b"},
        {"role": "user", "content": "x"},
        {"type": "function_call_output", "output": [INPUT]},
    ]
    assert ResponsesConverter().decode_messages(items) == [
        ms.Message("tool", [ms.ToolResult("a", "1"), ms.ToolResult("b", "")]),
        ms.Message.user("x"),
        ms.Message("tool", [ms.ToolResult("", [ms.Text("a")])]),
    ]


def test_a_system_item_with_a_picture_is_a_message() -> None:
    content: list[ms.JSON] = [INPUT, {"type": "input_image", "image_url": "u"}]
    items: list[ms.JSONObject] = [{"type": "message", "role": "developer", "content": content}]
    system: list[str] = []
    messages = ResponsesConverter().decode_messages(items, system)
    assert [type(block) for block in messages[0].content] == [ms.Text, ms.Image]
    assert system == []
    content[1] = {"type": "input_image", "detail": "auto", "image_url": "u"}
    assert ResponsesConverter().encode_messages(messages) == items


def test_adjacent_items_of_the_assistant_are_one_message() -> None:
    items: list[ms.JSONObject] = [
        {"role": "assistant", "content": "A"},
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
        {"type": "web_search_call", "id": "w"},
        {"role": "user", "content": "x"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "B"}]},
    ]
    maker = "openai-responses"
    thought = ms.Thinking("", state=ms.ProviderState(maker, {"summary": [], "id": "r"}))
    own = ms.ProviderBlock(maker, {"type": "web_search_call", "id": "w"})
    assert ResponsesConverter().decode_messages(items) == [
        ms.Message.assistant([ms.Text("A"), thought, ms.ToolCall("c1", "f", '{"a":1}', complete=True), own]),
        ms.Message.user("x"),
        ms.Message.assistant([ms.Text("B")]),
    ]


@pytest.mark.parametrize("kind", ["reasoning_text", "summary_text"])
def test_a_part_of_reasoning_is_no_text(kind: str) -> None:
    assert ResponsesConverter().wrap_chunk({"type": kind, "text": "a"}).get_text() == ""
