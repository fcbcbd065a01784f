"""OpenAI's own messages in the common history and back: whole conversations, whole errors, whole warnings."""

import pytest

import manystream as ms
from manystream.providers.history import HistoryError
from manystream.providers.history.converter import HistoryConverter
from manystream.providers.json.json_values import JSON, JSONObject
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter


def user(*parts: JSON) -> JSONObject:
    return {"role": "user", "content": [*parts]}


TEXT: JSONObject = {"type": "text", "text": "a"}

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


def test_a_users_texts_around_a_result_are_two_messages() -> None:
    message = ms.Message("tool", [ms.Text("a"), ms.ToolResult("c", "r"), ms.Text("b")])
    said = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]} for text in "ab"]
    result = {"type": "function_call_output", "call_id": "c", "output": "r"}
    assert ResponsesConverter().encode_messages([message]) == [said[0], result, said[1]]


def test_a_delta_of_a_role_alone_is_empty() -> None:
    converter = ChatConverter()
    deltas: list[JSONObject] = [{"role": "assistant"}, {}, {"role": "assistant", "other": 1}]
    for delta in deltas:
        assert converter.wrap_chunk(delta).get_text() == ""
    with pytest.raises(HistoryError):
        converter.wrap_chunk({"role": "user"})
    event: JSONObject = {"type": "chunk", "chunk": {"choices": [{"delta": {"content": "a"}}]}}
    assert converter.wrap_chunk(event).get_text() == "a"


def test_a_whole_completion_is_a_chunk() -> None:
    choices: list[JSONObject] = [{"message": {"content": "a"}}, {"delta": {"content": "a"}}]
    for choice in choices:
        assert ChatConverter().wrap_chunk({"choices": [choice]}).get_text() == "a"
    for kind in ("chat.completion", "chat.completion.chunk"):
        assert ChatConverter().wrap_chunk({"object": kind}).get_text() == ""
    assert ChatConverter().wrap_chunk({"usage": {"prompt_tokens": 1}}).get_text() == ""


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
