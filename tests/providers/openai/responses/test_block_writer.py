"""Pictures and files of messages and results."""

from __future__ import annotations

import pytest

from manystream.providers.json.json_values import JSON, JSONObject
from manystream.providers.model.messages import (
    CacheControl,
    File,
    Image,
    Message,
    Role,
    Text,
    ToolResult,
)
from tests.providers.openai.responses.test_message_writer import items, output, text, user
from tests.providers.openai.responses.test_request import input_of


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (Image(url="https://a/b.png"), {"type": "input_image", "detail": "auto", "image_url": "https://a/b.png"}),
        (Image(data=b"hi", media_type="image/png", detail="low"),
            {"type": "input_image", "detail": "low", "image_url": "data:image/png;base64,aGk="}),
        (Image(file_id="file_1"), {"type": "input_image", "detail": "auto", "file_id": "file_1"}),
        (File(data=b"hi", media_type="application/pdf"),
            {"type": "input_file", "filename": "file.pdf", "file_data": "data:application/pdf;base64,aGk="}),
        (File(data=b"hi", media_type="text/plain; charset=utf-8", name="a.txt"),
            {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain; charset=utf-8;base64,aGk="}),
        (File(url="https://a/b.pdf"), {"type": "input_file", "file_url": "https://a/b.pdf"}),
        (File(file_id="file_1"), {"type": "input_file", "file_id": "file_1"}),
        (File(data=b"hi", media_type="image/gif"),
            {"type": "input_image", "detail": "auto", "image_url": "data:image/gif;base64,aGk="}),
    ],
)  # fmt: skip
def test_images_and_files(block: Image | File, part: JSONObject) -> None:
    assert items(Message.user([Text("see"), block])) == [user(text("see"), part)]


@pytest.mark.parametrize(
    ("media_type", "name"),
    [
        ("application/json", "file.json"),
        ("application/pdf", "file.pdf"),
        ("text/csv", "file.csv"),
        ("text/html", "file.html"),
        ("text/markdown", "file.md"),
        ("text/plain", "file.txt"),
        ("application/rtf", "file.rtf"),
    ],
)
def test_a_file_without_a_name_gets_one_with_its_extension(media_type: str, name: str) -> None:
    part = items(Message.user([Text("see"), File(data=b"hi", media_type=media_type)]))[0]["content"][1]  # type: ignore[index,call-overload]
    assert part["filename"] == name  # type: ignore[index,call-overload]


def test_results_may_have_images_and_files() -> None:
    result = ToolResult("c1", [Text("see"), Image(file_id="f1")])
    sent = items(Message.tool_call("c1", "shot", "{}"), Message(Role.TOOL, result))
    image: JSON = {"type": "input_image", "detail": "auto", "file_id": "f1"}
    assert sent[1] == output("c1", [text("see"), image])
    assert items(Message.tool_call("c1", "shot", "{}"), Message.tool_result("c1", []))[1] == output("c1", "")


# --- parts ---
PARTS: list[tuple[Image | File, JSONObject]] = [
    (Image(url="u", detail="high"), {"type": "input_image", "detail": "high", "image_url": "u"}),
    (File(url="u", media_type="image/png"), {"type": "input_image", "detail": "auto", "image_url": "u"}),
    (File(file_id="f", media_type="image/png"), {"type": "input_image", "detail": "auto", "file_id": "f"}),
    (File(data=b"abc", media_type="application/x-new"),
        {"type": "input_file", "filename": "file.x-new", "file_data": "data:application/x-new;base64,YWJj"}),
    (File(data=b"abc", media_type=" Text/Plain ;a=b"),
        {"type": "input_file", "filename": "file.txt", "file_data": "data: Text/Plain ;a=b;base64,YWJj"}),
]  # fmt: skip


@pytest.mark.parametrize(("block", "part"), PARTS)
def test_parts(block: Image | File, part: JSONObject) -> None:
    assert input_of(Message.user(block)) == [{"type": "message", "role": "user", "content": [part]}]


def test_marks_of_pictures() -> None:
    block = Image(url="u", cache_control=CacheControl("1h"))
    part = {"type": "input_image", "detail": "auto", "image_url": "u",
            "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}  # fmt: skip
    assert input_of(Message.user(block), model="gpt-6") == [{"type": "message", "role": "user", "content": [part]}]
