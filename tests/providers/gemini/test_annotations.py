"""Citations of an answer."""

from __future__ import annotations

from typing import Any

import manystream as ms
from tests.providers.gemini.wire import (
    part_chunk,
    stream,
)


def test_citations_belong_to_the_last_text() -> None:
    cited = {"citationMetadata": {"citationSources": [{"endIndex": 3}]}}
    chunk: dict[str, Any] = {"candidates": [{"content": {"parts": []}, "finishReason": "STOP", **cited}]}
    parts: list[Any] = [
        {"text": "a"}, {"executableCode": {}}, {"text": "b"}, {"inlineData": {"mimeType": "a/b", "data": ""}},
    ]  # fmt: skip
    answer = stream(part_chunk(*parts), chunk)
    assert answer.response.content == [
        ms.Text("a"), ms.ProviderBlock("google", {"executableCode": {}}), ms.Text("b", citations=[{"endIndex": 3}]),
        ms.File(data=b"", media_type="a/b"),
    ]  # fmt: skip
    assert stream(chunk).response.content == []
