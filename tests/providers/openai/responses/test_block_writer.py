"""Pictures and files of messages and results."""

from __future__ import annotations

import pytest

import manystream as ms
from tests.providers.openai.responses.test_message_writer import items, output, text, user
from tests.providers.openai.responses.test_request import input_of


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (ms.Image(url="https://a/b.png"), {"type": "input_image", "detail": "auto", "image_url": "https://a/b.png"}),
        (ms.Image(data=b"hi", media_type="image/png", detail="low"),
            {"type": "input_image", "detail": "low", "image_url": "data:image/png;base64,aGk="}),
        (ms.Image(file_id="file_1"), {"type": "input_image", "detail": "auto", "file_id": "file_1"}),
        (ms.File(data=b"hi", media_type="application/pdf"),
            {"type": "input_file", "filename": "file.pdf", "file_data": "data:application/pdf;base64,aGk="}),
        (ms.File(data=b"hi", media_type="text/plain; charset=utf-8", name="a.txt"),
            {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain; charset=utf-8;base64,aGk="}),
        (ms.File(url="https://a/b.pdf"), {"type": "input_file", "file_url": "https://a/b.pdf"}),
        (ms.File(file_id="file_1"), {"type": "input_file", "file_id": "file_1"}),
        (ms.File(data=b"hi", media_type="image/gif"),
            {"type": "input_image", "detail": "auto", "image_url": "data:image/gif;base64,aGk="}),
    ],
)  # fmt: skip
def test_images_and_files(block: ms.Image | ms.File, part: ms.JSONObject) -> None:
    assert items(ms.Message.user([ms.Text("see"), block])) == [user(text("see"), part)]


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
    part = items(ms.Message.user([ms.Text("see"), ms.File(data=b"hi", media_type=media_type)]))[0]["content"][1]  # type: ignore[index,call-overload]
    assert part["filename"] == name  # type: ignore[index,call-overload]


def test_results_may_have_images_and_files() -> None:
    result = ms.ToolResult("c1", [ms.Text("see"), ms.Image(file_id="f1")])
    sent = items(ms.Message.tool_call("c1", "shot", "{}"), ms.Message(ms.Role.TOOL, result))
    image: ms.JSON = {"type": "input_image", "detail": "auto", "file_id": "f1"}
    assert sent[1] == output("c1", [text("see"), image])
    assert items(ms.Message.tool_call("c1", "shot", "{}"), ms.Message.tool_result("c1", []))[1] == output("c1", "")


# --- parts ---
PARTS: list[tuple[ms.Image | ms.File, ms.JSONObject]] = [
    (ms.Image(url="u", detail="high"), {"type": "input_image", "detail": "high", "image_url": "u"}),
    (ms.File(url="u", media_type="image/png"), {"type": "input_image", "detail": "auto", "image_url": "u"}),
    (ms.File(file_id="f", media_type="image/png"), {"type": "input_image", "detail": "auto", "file_id": "f"}),
    (ms.File(data=b"abc", media_type="application/x-new"),
        {"type": "input_file", "filename": "file.x-new", "file_data": "data:application/x-new;base64,YWJj"}),
    (ms.File(data=b"abc", media_type=" Text/Plain ;a=b"),
        {"type": "input_file", "filename": "file.txt", "file_data": "data: Text/Plain ;a=b;base64,YWJj"}),
]  # fmt: skip


@pytest.mark.parametrize(("block", "part"), PARTS)
def test_parts(block: ms.Image | ms.File, part: ms.JSONObject) -> None:
    assert input_of(ms.Message.user(block)) == [{"type": "message", "role": "user", "content": [part]}]


def test_marks_of_pictures() -> None:
    block = ms.Image(url="u", cache_control=ms.CacheControl("1h"))
    part = {"type": "input_image", "detail": "auto", "image_url": "u",
            "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}  # fmt: skip
    assert input_of(ms.Message.user(block), model="gpt-6") == [{"type": "message", "role": "user", "content": [part]}]
