"""OpenAI's own messages in the common history and back: whole conversations, whole errors, whole warnings."""

import pytest

import manystream as ms
from manystream.providers.catalog.provider import OpenAIChat
from manystream.providers.history import History, HistoryError, HistoryMessage
from manystream.providers.history.converter import HistoryConverter
from manystream.providers.json.json_values import JSON, JSONObject
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter


def user(*parts: JSON) -> JSONObject:
    return {"role": "user", "content": [*parts]}


TEXT: JSONObject = {"type": "text", "text": "a"}
INPUT: JSONObject = {"type": "input_text", "text": "a"}
NO_TEXT = "must be text or a list of parts"
NO_BASE64 = "is not base64 text"
NEITHER = "is neither a URL nor base64 text"
IMAGE: JSONObject = {"type": "image_url", "image_url": {"url": "u"}}

CHAT_ERRORS: list[tuple[JSONObject, str]] = [
    ({"role": "robot", "content": "x"}, "messages[1].role: unknown role 'robot'"),
    ({"content": "x"}, "messages[1].role: unknown role None"),
    ({"role": "user", "content": 5}, f"messages[1].content: {NO_TEXT}"),
    ({"role": "user"}, f"messages[1].content: {NO_TEXT}"),
    ({"role": "system", "content": {}}, f"messages[1].content: {NO_TEXT}"),
    (user(TEXT, {"type": "smell"}), "messages[1].content[1].type: unknown part 'smell'"),
    (user(TEXT, 5), "messages[1].content[1].type: unknown part None"),
    (user({"type": "text", "text": 5}), "messages[1].content[0].text: must be text"),
    (user({"type": "image_url", "image_url": {}}), "messages[1].content[0].image_url: must have a url"),
    (user({"type": "image_url"}), "messages[1].content[0].image_url: must have a url"),
    (user({"type": "image_url", "image_url": {"url": "data:image/png;base64,@@"}}),
        f"messages[1].content[0].image_url.url: {NO_BASE64}"),
    (user({"type": "input_audio", "input_audio": {}}), "messages[1].content[0].input_audio: must have data"),
    (user({"type": "video_url", "video_url": {}}), "messages[1].content[0].video_url: must have a url"),
    (user({"type": "file", "file": {}}), "messages[1].content[0].file: must have file_data or file_id"),
    (user({**TEXT, "cache_control": {"type": "ephemeral", "ttl": "2h"}}),
        "messages[1].content[0].cache_control.ttl: must be '5m' or '1h', not '2h'"),
    (user({"type": "input_audio", "input_audio": {"data": "§", "format": "wav"}}),
        f"messages[1].content[0].input_audio.data: {NO_BASE64}"),
    (user({"type": "video_url", "video_url": {"url": "data:video/mp4;base64,%"}}),
        f"messages[1].content[0].video_url.url: {NO_BASE64}"),
    (user({"type": "file", "file": {"file_data": "%"}}), f"messages[1].content[0].file.file_data: {NEITHER}"),
    (user({"type": "file", "file": {"file_data": "data:a/b;base64,%"}}),
        f"messages[1].content[0].file.file_data: {NO_BASE64}"),
    ({"role": "assistant", "tool_calls": "x"}, "messages[1]: tool_calls is no array"),
    ({"role": "assistant", "content": 5}, "messages[1]: content is neither text nor parts"),
    ({"role": "assistant", "tool_calls": [{"id": "c"}]},
        "messages[1]: 1 tool call(s) that never got a name were dropped"),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "text"), CHAT_ERRORS, ids=[row[1] for row in CHAT_ERRORS])
def test_a_chat_message_that_cannot_be_read(wire: JSONObject, text: str) -> None:
    with pytest.raises(HistoryError) as caught:
        ChatConverter().decode_messages([{"role": "user", "content": "x"}, wire])
    assert str(caught.value) == text


RESPONSES_ERRORS: list[tuple[JSONObject, str]] = [
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
def test_a_responses_item_that_cannot_be_read(wire: JSONObject, text: str) -> None:
    with pytest.raises(HistoryError) as caught:
        ResponsesConverter().decode_messages([{"role": "user", "content": "x"}, wire])
    assert str(caught.value) == text


def test_every_chat_part_is_read() -> None:
    parts: list[JSON] = [
        "as text",
        TEXT,
        {"type": "text"},
        {"type": "image_url", "image_url": {"url": "https://x/a.png"}},
        {"type": "image_url", "image_url": {"url": "https://x/a.png", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://x/a.png", "detail": "high"}},
        {"type": "image_url", "image_url": {"url": "data:image/gif;base64,YW Jj\n", "detail": "new"}},
        {"type": "image_url", "image_url": {"url": "https://x/a.png", "detail": "original"}},
        {"type": "image_url", "image_url": "https://x/a.png"},
        {"type": "image_url", "image_url": {"url": "data:image/svg+xml,%3Csvg%3E"}},
        {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "mp3"}},
        {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "new"}},
        {"type": "video_url", "video_url": {"url": "https://x/a.mp4"}},
        {"type": "video_url", "video_url": {"url": "YWJj"}},
        {"type": "video_url", "video_url": "https://x/a.mp4"},
        {"type": "file", "file": {"file_id": "f1", "filename": "a.pdf"}},
        {"type": "file", "file": {"file_data": "data:text/plain;base64,YWJj", "filename": "a.txt"}},
        {"type": "file", "file": {"file_data": "YWJj", "filename": "a.CSV"}},
        {"type": "file", "file": {"file_data": "YWJj"}},
        {"type": "file", "file": {"file_data": "JVBERi0="}},
        {"type": "file", "file": {"file_data": "https://x/a.pdf"}},
        {**TEXT, "cache_control": {"type": "ephemeral"}},
        {**IMAGE, "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ]
    assert ChatConverter().decode_messages([user(*parts)]) == [
        ms.Message.user([
            ms.Text("as text"),
            ms.Text("a"),
            ms.Text(""),
            ms.Image(url="https://x/a.png"),
            ms.Image(url="https://x/a.png", detail="low"),
            ms.Image(url="https://x/a.png", detail="high"),
            ms.Image(data=b"abc", media_type="image/gif", detail="auto"),
            ms.Image(url="https://x/a.png", detail="original"),
            ms.Image(url="https://x/a.png"),
            ms.Image(url="data:image/svg+xml,%3Csvg%3E"),
            ms.File(data=b"abc", media_type="audio/wav"),
            ms.File(data=b"abc", media_type="audio/mpeg"),
            ms.File(data=b"abc", media_type="audio/new"),
            ms.File(url="https://x/a.mp4", media_type="video/mp4"),
            ms.File(url="YWJj", media_type="video/mp4"),
            ms.File(url="https://x/a.mp4", media_type="video/mp4"),
            ms.File(file_id="f1", name="a.pdf"),
            ms.File(data=b"abc", media_type="text/plain", name="a.txt"),
            ms.File(data=b"abc", media_type="text/csv", name="a.CSV"),
            ms.File(data=b"abc", media_type="application/octet-stream"),
            ms.File(data=b"%PDF-", media_type="application/pdf"),
            ms.File(url="https://x/a.pdf"),
            ms.Text("a", cache_control=ms.CacheControl()),
            ms.Image(url="u", cache_control=ms.CacheControl("1h")),
        ])
    ]  # fmt: skip


def test_a_file_with_a_scheme_is_a_url() -> None:
    def read(data: str) -> list[ms.Message]:
        return ChatConverter().decode_messages([user({"type": "file", "file": {"file_data": data}})])

    for url in ("a" * 31 + ":x", "data:x", "gs://x"):
        assert read(url) == [ms.Message.user(ms.File(url=url))]
    with pytest.raises(HistoryError, match=NEITHER):
        read("a" * 32 + ":x")


def test_every_responses_part_is_read() -> None:
    parts: list[JSON] = [
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


CALL = ms.ToolCall("c1", "f", '{"a":1}')
ANSWER = ms.Message.assistant([ms.Text("A"), ms.Text(""), ms.Text("B"), CALL])
PICTURES = ms.Message.tool_result("c1", [ms.Text("r"), ms.Text("s"), ms.Image(url="u")])


def test_a_whole_conversation_in_chats_form() -> None:
    warnings: list[str] = []
    messages = [
        ms.Message.user("x"), ms.Message.user([ms.Text("x"), ms.Text("y")]), ANSWER, PICTURES,
        ms.Message.assistant([ms.Image(url="u"), ms.File(file_id="f"), ms.ProviderBlock("openai-chat", {"type": "x"})]),
    ]  # fmt: skip
    wire = ChatConverter(content_lists=False).encode_messages(messages, warnings)
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    assert wire == [
        {"role": "user", "content": "x"},
        {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}],
         "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "rs"},
    ]  # fmt: skip
    assert warnings == [
        "messages[3]: a tool message holds text only; pictures and files of a result are not written",
        "messages[4]: an assistant's Image is not written; there is no form for it",
        "messages[4]: an assistant's File is not written; there is no form for it",
        "messages[4]: an assistant's ProviderBlock is not written; there is no form for it",
    ]


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


def test_a_users_texts_around_a_result_are_two_messages() -> None:
    message = ms.Message("tool", [ms.Text("a"), ms.ToolResult("c", "r"), ms.Text("b")])
    said = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]} for text in "ab"]
    result = {"type": "function_call_output", "call_id": "c", "output": "r"}
    assert ResponsesConverter().encode_messages([message]) == [said[0], result, said[1]]


def test_results_that_follow_each_other_are_one_message() -> None:
    chat: list[JSONObject] = [
        {"role": "tool", "tool_call_id": "a", "content": "1"}, {"role": "tool", "content": [TEXT, TEXT]},
        {"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "c", "content": "3"},
    ]  # fmt: skip
    expected = [
        ms.Message("tool", [ms.ToolResult("a", "1"), ms.ToolResult("", "aa")]),
        ms.Message.user("x"),
        ms.Message.tool_result("c", "3"),
    ]
    assert ChatConverter().decode_messages(chat) == expected
    items: list[JSONObject] = [
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


def test_system_items_are_the_system_prompt() -> None:
    items: list[JSONObject] = [
        {"role": "system", "content": "s"},
        {"type": "message", "role": "developer", "content": [INPUT, INPUT]},
        {"role": "user", "content": "x"},
    ]
    system: list[str] = []
    assert ResponsesConverter().decode_messages(items, system) == [ms.Message.user("x")]
    assert system == ["s", "a", "a"]


def test_a_system_item_with_a_picture_is_a_message() -> None:
    content: list[JSON] = [INPUT, {"type": "input_image", "image_url": "u"}]
    items: list[JSONObject] = [{"type": "message", "role": "developer", "content": content}]
    system: list[str] = []
    messages = ResponsesConverter().decode_messages(items, system)
    assert [type(block) for block in messages[0].content] == [ms.Text, ms.Image]
    assert system == []
    content[1] = {"type": "input_image", "detail": "auto", "image_url": "u"}
    assert ResponsesConverter().encode_messages(messages) == items


def test_a_result_after_a_system_message_is_a_message_of_its_own() -> None:
    chat: list[JSONObject] = [{"role": "system", "content": "s"}, {"role": "tool", "tool_call_id": "a", "content": "1"}]
    system: list[str] = []
    assert ChatConverter().decode_messages(chat, system) == [ms.Message.tool_result("a", "1")]
    assert system == ["s"]


def test_an_output_of_a_server_tool_is_kept_as_it_is() -> None:
    wire: JSONObject = {"type": "shell_call_output", "call_id": "s", "output": []}
    block = ms.ProviderBlock("openai-responses", wire)
    assert ResponsesConverter().decode_messages([wire]) == [ms.Message.user(block)]


def test_adjacent_items_of_the_assistant_are_one_message() -> None:
    items: list[JSONObject] = [
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


def test_a_delta_of_a_role_alone_is_empty() -> None:
    converter = ChatConverter()
    deltas: list[JSONObject] = [{"role": "assistant"}, {}, {"role": "assistant", "other": 1}]
    for delta in deltas:
        assert converter.wrap_chunk(delta).get_text() == ""
    with pytest.raises(HistoryError):
        converter.wrap_chunk({"role": "user"})
    event: JSONObject = {"type": "chunk", "chunk": {"choices": [{"delta": {"content": "a"}}]}}
    assert converter.wrap_chunk(event).get_text() == "a"


@pytest.mark.parametrize("kind", ["reasoning_text", "summary_text"])
def test_a_part_of_reasoning_is_no_text(kind: str) -> None:
    assert ResponsesConverter().wrap_chunk({"type": kind, "text": "a"}).get_text() == ""


@pytest.mark.parametrize("kind", ["output_text", "text"])
def test_a_whole_response_is_a_chunk(kind: str) -> None:
    part: JSONObject = {"type": kind, "text": "a"}
    wire: JSONObject = {"object": "response", "output": [{"type": "message", "content": [part]}]}
    assert ResponsesConverter().wrap_chunk(wire).get_text() == "a"
    message = ResponsesConverter().message_from_chunks([wire])
    assert message.text == "a"


def test_a_whole_completion_is_a_chunk() -> None:
    choices: list[JSONObject] = [{"message": {"content": "a"}}, {"delta": {"content": "a"}}]
    for choice in choices:
        assert ChatConverter().wrap_chunk({"choices": [choice]}).get_text() == "a"
    for kind in ("chat.completion", "chat.completion.chunk"):
        assert ChatConverter().wrap_chunk({"object": kind}).get_text() == ""
    assert ChatConverter().wrap_chunk({"usage": {"prompt_tokens": 1}}).get_text() == ""


@pytest.mark.parametrize("wire", [{"type": "error", "message": "No."}, {"type": "keepalive"}])
def test_events_without_content_are_chunks(wire: JSONObject) -> None:
    converter = ResponsesConverter()
    if wire["type"] == "error":
        with pytest.raises(ms.ProviderError, match=r"No\."):
            converter.wrap_chunk(wire)
    else:
        assert converter.wrap_chunk(wire).get_text() == ""


LATE = History(system_message=None, conversation=[HistoryMessage("user", "x"), HistoryMessage("system", "s")])


def test_a_late_system_message_keeps_its_place() -> None:
    said: JSONObject = {"role": "user", "content": "x"}
    assert ChatConverter(content_lists=False).from_history(LATE) == [said, {"role": "system", "content": "s"}]
    part = {"type": "input_text", "text": "s"}
    late = {"type": "message", "role": "system", "content": [part]}
    assert ResponsesConverter().from_history(LATE)[1:] == [late]


def test_the_system_role_of_a_server_is_used() -> None:
    converter = ChatConverter(OpenAIChat("key", profile="openai-chat"))
    role = converter.provider.profile.quirks.system_role
    history = History("s", conversation=LATE.conversation)
    assert [message["role"] for message in converter.from_history(history)] == [role, "user", role]


def test_several_system_texts() -> None:
    history = History("a", conversation=[HistoryMessage("system", "b"), HistoryMessage("user", "x")])
    texts = [{"type": "text", "text": text} for text in "ab"]
    assert ChatConverter().from_history(history)[0] == {"role": "system", "content": texts}
    assert ResponsesConverter().system_parameter(history) == "a\n\nb"


def test_an_assistants_message_without_anything_is_an_empty_text() -> None:
    assert ChatConverter().decode_messages([{"role": "assistant", "content": None}]) == [ms.Message.assistant("")]
    assert ResponsesConverter().decode_messages([{"role": "assistant", "content": ""}]) == []


def test_thinking_comes_before_the_text_that_was_read_first() -> None:
    wire: JSONObject = {"role": "assistant", "content": [TEXT, TEXT], "reasoning_content": "hm"}
    thought = ms.Thinking("hm", state=ms.ProviderState("openai-chat", {"reasoning_member": "reasoning_content"}))
    assert ChatConverter().decode_messages([wire]) == [ms.Message.assistant([thought, ms.Text("a"), ms.Text("a")])]


CONVERTERS: list[HistoryConverter] = [ChatConverter(), ResponsesConverter()]


@pytest.mark.parametrize("converter", CONVERTERS, ids=["chat", "responses"])
def test_calls_without_ids_are_numbered(converter: HistoryConverter) -> None:
    wire: JSONObject = (
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
        if isinstance(converter, ChatConverter)
        else {"type": "function_call", "name": "f", "arguments": "{}"}
    )
    ids = [call.id for message in converter.decode_messages([wire]) for call in message.tool_calls]
    assert ids == ["call_1"]


def test_results_without_ids_belong_to_calls_without_ids() -> None:
    """Data sets have no ids: a result is that of the first open call, of its name if it has one."""

    def calls(*names: str, id: str | None = None) -> JSONObject:
        made: list[JSON] = [
            {"type": "function", "id": id, "function": {"name": name, "arguments": {}}} for name in names
        ]
        return {"role": "assistant", "tool_calls": made}

    wire: list[JSONObject] = [
        calls("f", "g", "f"), {"role": "tool", "name": "g", "content": "1"}, {"role": "tool", "content": "2"},
        {"role": "tool", "name": "f", "content": "3"}, calls("g"), {"role": "tool", "tool_call_id": "", "content": "4"},
    ]  # fmt: skip
    read = ChatConverter().decode_messages(wire)
    blocks = [block for message in read for block in message.content]
    ids = {block.content: block.tool_call_id for block in blocks if isinstance(block, ms.ToolResult)}
    assert ids == {"1": "call_2", "2": "call_1", "3": "call_3", "4": "call_4"}
    for call in (calls("f", id="a"), calls("other")):  # a missing id may be a mistake
        (block,) = ChatConverter().decode_messages([call, {"role": "tool", "name": "f", "content": "x"}])[1].content
        assert isinstance(block, ms.ToolResult)
        assert not block.tool_call_id


def test_an_assistants_sound_is_written_as_its_id() -> None:
    converter = ChatConverter()
    warnings: list[str] = []
    messages = converter.decode_messages([{"role": "assistant", "content": None, "audio": {"id": "a1"}}])
    assert converter.encode_messages(messages, warnings) == [{"role": "assistant", "audio": {"id": "a1"}}]
    assert warnings == []


def test_the_mark_of_a_results_last_part_is_the_results() -> None:
    content: JSON = [TEXT, {**TEXT, "cache_control": {"type": "ephemeral"}}]
    (message,) = ChatConverter().decode_messages([{"role": "tool", "tool_call_id": "c", "content": content}])
    assert message.content == [ms.ToolResult("c", "aa", cache_control=ms.CacheControl())]


def test_a_picture_in_a_result_is_read() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    for content in ([TEXT, IMAGE], [{**TEXT, **mark}, IMAGE], [TEXT, {**IMAGE, **mark}]):
        wire: JSONObject = {"role": "tool", "tool_call_id": "c", "content": [*content]}
        (message,) = ChatConverter().decode_messages([wire])
        marked = ms.CacheControl() if any("cache_control" in part for part in content) else None
        assert message.content == [ms.ToolResult("c", [ms.Text("a"), ms.Image(url="u")], cache_control=marked)]
