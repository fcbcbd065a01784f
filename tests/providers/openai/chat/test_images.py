"""Pictures in an answer, and their URLs."""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.model.messages import (
    Image,
    ProviderBlock,
    Text,
)
from manystream.providers.openai.file_data import data_url, image_of_url
from tests.providers.openai.chat.wire import answer, deltas


def test_pictures_in_every_form() -> None:
    url = "https://x/y.png"
    images: list[ms.JSON] = [{"image_url": {"url": url}}, {"image_url": url}, {"url": url}, {"url": ""}, {}, "x"]
    assert answer({"images": images}).content == [
        Image(url=url), Image(url=url), Image(url=url), ProviderBlock("openai-compatible", {"url": ""}),
    ]  # fmt: skip
    assert answer({"images": {"url": url}}).content == [Image(url=url)]


def test_text_after_a_picture_is_a_block_of_its_own() -> None:
    parts: list[ms.JSON] = ["a", {"type": "image_url", "image_url": {"url": "u"}}, "b", {"type": "x"}, "c"]
    assert answer({"content": parts}).content == [
        Text("a"), Image(url="u"), Text("b"), ProviderBlock("openai-compatible", {"type": "x"}), Text("c"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("url", "image"),
    [
        ("data:image/png;base64,YWJj", Image(data=b"abc", media_type="image/png")),
        ("data:image/png;charset=x;base64,YWJj", Image(data=b"abc", media_type="image/png")),
        ("data:;base64,YWJj", Image(data=b"abc", media_type="image/png")),
        ("data:image/gif;base64", Image(url="data:image/gif;base64")),
        ("data:image/gif;base64,a", Image(url="data:image/gif;base64,a")),
        ("date:image/gif;base64,YWJj", Image(url="date:image/gif;base64,YWJj")),
        ("data:image/gif,YWJj", Image(url="data:image/gif,YWJj")),
        ("", Image(url="")),
    ],
)
def test_urls_of_pictures(url: str, image: Image) -> None:
    assert image_of_url(url) == image
    assert data_url(b"abc", "a/b") == "data:a/b;base64,YWJj"


def test_pictures_in_the_answer() -> None:
    outcome = deltas(
        {"content": "Here:", "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}}]},
        {"images": [{"type": "image_url", "image_url": "https://x/y.png"}, {"type": "unheard", "of": 1}, 5]},
    )
    assert outcome.response.content == [
        Text("Here:"), Image(data=b"abc", media_type="image/png"), Image(url="https://x/y.png"),
        ProviderBlock("openai-compatible", {"type": "unheard", "of": 1}),
    ]  # fmt: skip


def test_data_urls_are_read_back() -> None:
    assert image_of_url(data_url(b"abc", "image/webp")) == ms.Image(data=b"abc", media_type="image/webp")
    assert image_of_url("https://x/y.png") == ms.Image(url="https://x/y.png")
    assert image_of_url("data:image/png;base64,%%%") == ms.Image(url="data:image/png;base64,%%%")
    assert image_of_url("data:image/png;base64,YW\nJj") == ms.Image(data=b"abc", media_type="image/png")
    assert image_of_url("data:image/svg+xml,<svg/>") == ms.Image(url="data:image/svg+xml,<svg/>")
