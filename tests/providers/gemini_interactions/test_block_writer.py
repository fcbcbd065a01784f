"""Files on the wire."""

from __future__ import annotations

from typing import Any

import pytest

import manystream as ms
from tests.providers.gemini_interactions.test_request import HELLO, MODEL
from tests.providers.gemini_interactions.wire import (
    MAKER,
    sent,
    text,
)


@pytest.mark.parametrize(
    ("block", "content"),
    [
        (ms.Image(data=b"\0", media_type="image/png"), {"type": "image", "data": "AA==", "mime_type": "image/png"}),
        (ms.Image(url="https://a.example/b.jpg", detail="high"),
            {"type": "image", "uri": "https://a.example/b.jpg", "mime_type": "image/jpeg", "resolution": "high"}),
        (ms.File(data=b"\0", media_type="audio/wav"), {"type": "audio", "data": "AA==", "mime_type": "audio/wav"}),
        (ms.File(url="https://a.example/b.mp4"),
            {"type": "video", "uri": "https://a.example/b.mp4", "mime_type": "video/mp4"}),
        (ms.File(data=b"\0", media_type="application/pdf"),
            {"type": "document", "data": "AA==", "mime_type": "application/pdf"}),
        (ms.File(file_id="files/x", media_type="text/csv"),
            {"type": "document", "uri": "https://generativelanguage.googleapis.com/v1beta/files/x",
            "mime_type": "text/csv"}),
        (ms.File(url="data:text/plain;base64,YQ=="), {"type": "document", "data": "YQ==", "mime_type": "text/plain"}),
        (ms.Image(data=b"\0", media_type="image/png", state=ms.ProviderState(MAKER, {"resolution": "low"})),
            {"type": "image", "data": "AA==", "mime_type": "image/png", "resolution": "low"}),
        (ms.ProviderBlock(MAKER, {"type": "document", "processing": "static"}),
            {"type": "document", "processing": "static"}),
    ],
)  # fmt: skip
def test_files_of_the_user_and_of_results(block: Any, content: dict[str, Any]) -> None:
    request = ms.Request(MODEL, [ms.Message(ms.Role.USER, [ms.Text("See"), block])])
    assert sent(request)["input"] == [{"type": "user_input", "content": [text("See"), content]}]
    if not isinstance(block, ms.ProviderBlock):
        result = ms.ToolResult("c", [ms.Text("See"), block])
        history = [
            *HELLO,
            ms.Message(ms.Role.ASSISTANT, [ms.ToolCall("c", "look", "{}")]),
            ms.Message(ms.Role.TOOL, [result]),
        ]
        assert sent(ms.Request(MODEL, history))["input"][-1]["result"] == [text("See"), content]
