"""Pictures, files, sound and films of a message."""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.model.messages import File
from manystream.providers.openai.chat.block_writer import AUDIO_FORMATS
from tests.providers.openai.chat.wire import OPENAI, encode, known, quirky


def part(block: ms.Block, provider: ms.OpenAIChat = OPENAI) -> object:
    body = encode(ms.Request("m", [ms.Message.user([ms.Text("look:"), block])]), provider)
    return body["messages"][0]["content"][1]  # type: ignore[index]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (ms.Image(url="https://x/y.png"), {"url": "https://x/y.png"}),
        (ms.Image(url="https://x/y.png", detail="low"), {"url": "https://x/y.png", "detail": "low"}),
        (ms.Image(data=b"abc", media_type="image/png"), {"url": "data:image/png;base64,YWJj"}),
        (ms.File(data=b"abc", media_type="image/webp"), {"url": "data:image/webp;base64,YWJj"}),
        (ms.File(url="https://x/y.gif", media_type="image/gif"), {"url": "https://x/y.gif"}),
    ],
)
def test_pictures(block: ms.Block, expected: object) -> None:
    assert part(block) == {"type": "image_url", "image_url": expected}


def test_a_picture_alone_is_an_array_of_one() -> None:
    body = encode(ms.Request("m", [ms.Message.user(ms.Image(url="https://x/y.png"))]))
    assert body["messages"][0]["content"] == [  # type: ignore[index]
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
    ]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (ms.File(data=b"abc", media_type="application/pdf", name="a.pdf"),
            {"filename": "a.pdf", "file_data": "data:application/pdf;base64,YWJj"}),
        (ms.File(data=b"abc", media_type="application/pdf"),
            {"filename": "file.pdf", "file_data": "data:application/pdf;base64,YWJj"}),
        (ms.File(file_id="file-1"), {"file_id": "file-1"}),
        (ms.File(url="data:application/pdf;base64,YWJj", name="b.pdf"),
            {"filename": "b.pdf", "file_data": "data:application/pdf;base64,YWJj"}),
    ],
)  # fmt: skip
def test_files(block: ms.Block, expected: object) -> None:
    assert part(block) == {"type": "file", "file": expected}


def test_a_file_by_url_is_sent_to_servers_that_fetch_it() -> None:
    block = ms.File(url="https://x/y.pdf", name="y.pdf")
    assert part(block, known("openrouter")) == {
        "type": "file",
        "file": {"filename": "y.pdf", "file_data": "https://x/y.pdf"},
    }
    with pytest.raises(ms.InvalidRequestError, match="url"):
        part(block)


SOUNDS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/vnd.wave": "wav",  # RFC 2361
    "audio/mpeg": "mp3",  # RFC 3003
    "audio/mp3": "mp3",
    "audio/ogg": "ogg",
    "audio/flac": "flac",
    "audio/x-flac": "flac",
    "audio/aac": "aac",
    "audio/mp4": "m4a",
    "audio/x-m4a": "m4a",
    "audio/webm": "webm",
    "audio/pcm": "pcm16",
}


def test_every_sound_format_of_the_table_is_tested() -> None:
    assert AUDIO_FORMATS == SOUNDS


@pytest.mark.parametrize(("media_type", "form"), SOUNDS.items())
def test_sound(media_type: str, form: str) -> None:
    provider = OPENAI if form in ("wav", "mp3") else known("openrouter")
    assert part(ms.File(data=b"abc", media_type=media_type), provider) == {
        "type": "input_audio",
        "input_audio": {"data": "YWJj", "format": form},
    }


def test_films_are_sent_to_servers_that_accept_them() -> None:
    block = ms.File(url="https://x/y.mp4", media_type="video/mp4")
    assert part(block, known("openrouter")) == {"type": "video_url", "video_url": {"url": "https://x/y.mp4"}}


@pytest.mark.parametrize(
    ("url", "media_type"),
    [
        ("https://x/a.mp4", "video/mp4"),
        ("https://x/a.WebM", "video/webm"),
        ("https://x/a.mov?size=1.mp4", "video/quicktime"),
        ("https://x/a.mpeg#t=1", "video/mpeg"),
        ("https://x/a.mpg", "video/mpeg"),
        ("https://youtu.be/abc", "video/mp4"),
        ("https://[x/a", "video/mp4"),
        ("data:video/webm;base64,YWJj", "video/webm"),
    ],
)
def test_a_film_of_another_program_is_sent_as_it_was(url: str, media_type: str) -> None:
    wire = [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": url}}]}]
    request = ms.Request.from_openai(model="m", messages=wire)
    (block,) = request.messages[0].content
    assert isinstance(block, ms.File)
    assert block.media_type == media_type
    assert part(block, known("vllm")) == wire[0]["content"][0]
    with pytest.raises(ms.InvalidRequestError, match=r"messages\[0\]\.content\[1\]: the server takes no films"):
        part(block, OPENAI)


@pytest.mark.parametrize(
    ("block", "provider"),
    [
        (ms.Image(file_id="file-1"), OPENAI),
        (ms.File(url="https://x/y.mp3", media_type="audio/mpeg"), OPENAI),
        (ms.File(data=b"x", media_type="audio/x-unheard"), OPENAI),
        (ms.File(data=b"x", media_type="video/mp4"), OPENAI),
        (ms.File(data=b"x", media_type="application/pdf"), quirky(file_parts=False)),
    ],
)
def test_an_unsupported_block_is_refused_naming_its_place(block: ms.Block, provider: ms.OpenAIChat) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        part(block, provider)
    assert caught.value.field.startswith("messages[0].content[1]")


@pytest.mark.parametrize(
    ("file", "part"),
    [
        (File(data=b"abc", media_type="text/x-new"), {"filename": "file", "file_data": "data:text/x-new;base64,YWJj"}),
        (File(data=b"abc", media_type="text/csv; a=b"),
         {"filename": "file.csv", "file_data": "data:text/csv; a=b;base64,YWJj"}),
        (File(file_id="f", media_type="image/png"), {"file_id": "f"}),
        (File(file_id="f", media_type="audio/wav"), {"file_id": "f"}),
        (File(file_id="f", media_type="video/mp4"), {"file_id": "f"}),
        (File(url="data:,x"), {"filename": "file", "file_data": "data:,x"}),
    ],
)  # fmt: skip
def test_files_of_every_kind(file: File, part: ms.JSONObject) -> None:
    body = encode(ms.Request("m", [ms.Message.user(file)]), OPENAI)
    assert body["messages"] == [{"role": "user", "content": [{"type": "file", "file": part}]}]
