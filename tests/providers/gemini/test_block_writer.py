"""Content blocks as parts: files, results, and what goes back only to its maker."""

from __future__ import annotations

import base64
from typing import Any

import pytest

import manystream as ms
from manystream.providers.gemini.block_writer import MEDIA_TYPES
from manystream.providers.model.messages import File, Image, ProviderState, Thinking
from tests.providers.gemini.sent import OLD_MODEL, contents, warnings
from tests.providers.gemini.test_message_writer import HI, answer_part, call, call_part
from tests.providers.gemini.wire import decode, part_chunk, signed


def test_a_signature_is_sent_back_on_its_part() -> None:
    answer = decode(
        part_chunk(
            {"text": "Hm", "thought": True},
            {"text": "I look.", "thoughtSignature": "c2lnMQ=="},
            {"functionCall": {"name": "f", "args": {}, "id": "w1"}, "thoughtSignature": "c2lnMg=="},
            {"functionCall": {"name": "g", "args": {}, "id": "w2"}},
            {"text": "", "thoughtSignature": "c2lnMw=="},
            finish="STOP",
        )
    )
    results = ms.Message(ms.Role.TOOL, [ms.ToolResult("w1", "ok"), ms.ToolResult("w2", "ok")])
    sent = contents(HI, answer.to_message(), results)
    assert sent[1]["parts"] == [
        {"text": "Hm", "thought": True}, {"text": "I look.", "thoughtSignature": "c2lnMQ=="},
        call_part(signature="c2lnMg==", id="w1"), call_part("g", id="w2"), {"text": "", "thoughtSignature": "c2lnMw=="},
    ]  # fmt: skip


def test_state_of_another_provider_is_not_sent() -> None:
    foreign = ProviderState("anthropic", {"thoughtSignature": "c2ln", "id": "x"})
    history = (
        HI,
        ms.Message.assistant([ms.Text("a", state=foreign), call("x", state=foreign)]),
        ms.Message.tool_result("x", "ok"),
    )
    assert contents(*history, model=OLD_MODEL)[1]["parts"] == [{"text": "a"}, call_part()]


def test_thinking_is_sent_back_only_to_gemini() -> None:
    blocks = [
        Thinking("ours", state=ProviderState("google", {"thought": True})), Thinking("from somebody's own hand"),
        Thinking("theirs", "sig"), Thinking("theirs too", state=ProviderState("openai-chat", {})),
        ms.RedactedThinking("xyz"), ms.Text("a"),
    ]  # fmt: skip
    history = (HI, ms.Message.assistant(blocks), HI)
    assert contents(*history)[1]["parts"] == [
        {"text": "ours", "thought": True},
        {"text": "from somebody's own hand", "thought": True},
        {"text": "a"},
    ]
    assert warnings(*history) == ["messages: thinking that 'google' did not make is not sent to it"]


def test_a_provider_block_is_sent_back_only_to_its_provider() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "c2ln"}
    ours, theirs = ms.ProviderBlock("google", code), ms.ProviderBlock("anthropic", {"type": "server_tool_use"})
    history = (HI, ms.Message.assistant([ms.Text("a"), ours, theirs, ms.Text("b")]))
    assert contents(*history)[1]["parts"] == [{"text": "a"}, code, {"text": "b"}]
    assert warnings(*history) == [
        "messages: 'server_tool_use' of 'anthropic' is not sent; only its provider understands it"
    ]


PNG = b"\x89PNG"

PNG_PART = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(PNG).decode()}}


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (Image(data=PNG, media_type="image/png"), PNG_PART),
        (File(data=b"x", media_type="audio/wav"), {"inlineData": {"mimeType": "audio/wav", "data": "eA=="}}),
        (Image(url="https://h/a.JPG?x=1"), {"fileData": {"fileUri": "https://h/a.JPG?x=1", "mimeType": "image/jpeg"}}),
        (Image(url="gs://h", media_type="image/gif"), {"fileData": {"fileUri": "gs://h", "mimeType": "image/gif"}}),
        (File(url="https://youtu.be/abc"), {"fileData": {"fileUri": "https://youtu.be/abc"}}),
        (File(url="gs://bucket/x.pdf"), {"fileData": {"fileUri": "gs://bucket/x.pdf", "mimeType": "application/pdf"}}),
        (Image(url="data:image/png;base64,iVBORw=="), PNG_PART),
        (File(url="data:,a%20b"), {"inlineData": {"mimeType": "text/plain", "data": "YSBi"}}),
        (
            File(file_id="files/abc", media_type="video/mp4"),
            {
                "fileData": {
                    "fileUri": "https://generativelanguage.googleapis.com/v1beta/files/abc",
                    "mimeType": "video/mp4",
                }
            },
        ),
        (Image(data=PNG, media_type="image/png", state=signed("c2ln")), {**PNG_PART, "thoughtSignature": "c2ln"}),
    ],
)  # fmt: skip
def test_images_and_files_are_sent_inline_or_by_url(block: Image | File, part: dict[str, Any]) -> None:
    assert contents(ms.Message.user(block))[0]["parts"] == [part]


@pytest.mark.parametrize("url", ["data:image/png", "data:image/png;base64,%%%", "data:image/png;base64,a"])
def test_a_malformed_data_url_is_refused_naming_its_place(url: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"messages\[0\]\.content\[0\]\.url"):
        contents(ms.Message.user(Image(url=url)))


def test_options_that_a_part_cannot_have_cause_warnings() -> None:
    blocks = [
        Image(data=PNG, media_type="image/png", detail="low", cache_control=ms.CacheControl()),
        Image(data=PNG, media_type="image/png", detail="auto"),
        File(data=b"x", media_type="text/plain", name="notes.txt"),
    ]
    assert [warning.partition(":")[0] for warning in warnings(ms.Message.user(blocks))] == [
        "messages[0].content[0].cache_control",
        "messages[0].content[0].detail",
        "messages[0].content[2].name",
    ]


def media_result() -> tuple[ms.Message, ...]:
    result = ms.ToolResult("a", [ms.Text("two "), Image(data=PNG, media_type="image/png"), ms.Text("files")])
    return HI, ms.Message.tool_call("a", "f", "{}"), ms.Message(ms.Role.TOOL, [result])


def test_files_of_a_result_are_sent_inside_it_to_new_models() -> None:
    assert contents(*media_result())[2:] == [
        {"role": "user", "parts": [answer_part(output="two files", parts=[PNG_PART])]}
    ]
    assert warnings(*media_result()) == []


def test_files_of_a_result_are_sent_beside_it_to_old_models() -> None:
    assert contents(*media_result(), model=OLD_MODEL)[2:] == [
        {"role": "user", "parts": [answer_part(output="two files")]},
        {"role": "user", "parts": [PNG_PART]},
    ]
    assert warnings(*media_result(), model=OLD_MODEL) == [
        "messages[2].content[0].content[1]: sent beside the result, which cannot contain it"
    ]
    by_address = ms.ToolResult("a", [Image(url="https://h/a.png")])
    history = (HI, ms.Message.tool_call("a", "f", "{}"), ms.Message(ms.Role.TOOL, [by_address]))
    assert contents(*history)[3]["parts"] == [{"fileData": {"fileUri": "https://h/a.png", "mimeType": "image/png"}}]


# File extensions, and their media types according to IANA and Gemini's page on files.
ENDINGS = {
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "webp": "image/webp", "heic": "image/heic",
    "heif": "image/heif", "gif": "image/gif", "pdf": "application/pdf", "txt": "text/plain", "md": "text/markdown",
    "html": "text/html", "csv": "text/csv", "json": "application/json", "mp3": "audio/mpeg", "wav": "audio/wav",
    "flac": "audio/flac", "ogg": "audio/ogg", "aac": "audio/aac", "mp4": "video/mp4", "mpeg": "video/mpeg",
    "mov": "video/quicktime", "webm": "video/webm",
}  # fmt: skip


def test_every_extension_of_the_table_is_tested() -> None:
    assert MEDIA_TYPES.keys() == ENDINGS.keys()


@pytest.mark.parametrize(("ending", "media_type"), ENDINGS.items())
def test_a_urls_extension_gives_its_media_type(ending: str, media_type: str) -> None:
    for address in (f"https://h/a.b.{ending}", f"gs://bucket/a.{ending.upper()}"):
        part = {"fileData": {"fileUri": address, "mimeType": media_type}}
        assert contents(ms.Message.user(File(url=address)))[0]["parts"] == [part]


@pytest.mark.parametrize("media_type", ["image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"])
def test_these_media_types_are_sent_inside_a_response(media_type: str) -> None:
    result = ms.Message.tool_result("c", [File(data=b"x", media_type=media_type)])
    call = ms.Message.assistant(ms.ToolCall("c", "f", "{}"))
    answer = contents(HI, call, result, model="gemini-3-pro")[2]["parts"][0]["functionResponse"]
    assert answer["parts"] == [{"inlineData": {"mimeType": media_type, "data": "eA=="}}]
