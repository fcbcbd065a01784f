"""Sound in an answer: its pieces, its type and its id."""

from __future__ import annotations

import base64

import pytest

import manystream as ms
from tests.providers.openai.chat.wire import OPENAI, SERVER, answer, deltas, encode


def test_sound_is_a_file_with_its_id_as_state() -> None:
    outcome = deltas(
        {"role": "assistant", "audio": {"id": "audio_1", "transcript": "Hi "}}, {"audio": {"data": "UklGRg=="}},
        {"audio": {"data": "AAEC"}}, {"audio": {"transcript": "there", "expires_at": 9}}, provider=OPENAI,
    )  # fmt: skip
    audio = {"id": "audio_1", "expires_at": 9, "transcript": "Hi there"}
    assert outcome.response.content == [
        ms.File(
            data=b"RIFF\x00\x01\x02", media_type="audio/wav", state=ms.ProviderState("openai-chat", {"audio": audio})
        )
    ]


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"RIFF$\x00\x00\x00WAVEfmt ", "audio/wav"),
        (b"ID3\x04\x00\x00", "audio/mpeg"),
        (b"\xff\xfb\x90\x64", "audio/mpeg"),
        (b"\xff\xf3\x40\xc4", "audio/mpeg"),
        (b"OggS\x00\x02", "audio/ogg"),
        (b"fLaC\x00\x00", "audio/flac"),
        (b"\x00\x01\x02\x03", "audio/pcm"),
    ],
)
def test_sound_gets_its_media_type_from_its_first_bytes(data: bytes, media_type: str) -> None:
    (block,) = answer({"audio": {"id": "a", "data": base64.b64encode(data).decode()}}).content
    assert isinstance(block, ms.File)
    assert (block.data, block.media_type) == (data, media_type)


def test_sound_in_one_encoding_cut_anywhere() -> None:
    outcome = deltas({"audio": {"id": "a", "data": "AAE"}}, {"audio": {"data": "CAwQ="}})
    (block,) = outcome.response.content
    assert isinstance(block, ms.File)
    assert (block.data, block.media_type) == (b"\x00\x01\x02\x03\x04", "audio/pcm")


def test_sound_whose_encoding_comes_without_padding() -> None:
    outcome = deltas({"audio": {"id": "a", "data": "UklGR"}}, {"audio": {"data": "gABAg"}})
    (block,) = outcome.response.content
    assert isinstance(block, ms.File)
    assert block.data == b"RIFF\x00\x01\x02"


def test_sound_that_is_not_base64_raises_nothing() -> None:
    outcome = deltas({"audio": {"id": "a", "data": "%"}}, {"audio": "text"}, {"audio": {"data": "é"}})
    (block,) = outcome.response.content
    assert isinstance(block, ms.File)
    assert block.data == b""


def test_sound_before_text_has_the_first_place() -> None:
    outcome = deltas({"audio": {"id": "a"}}, {"content": "x"}, {"audio": {"data": "AAEC", "transcript": "t"}})
    state = ms.ProviderState("openai-compatible", {"audio": {"id": "a", "transcript": "t"}})
    assert outcome.response.content == [ms.File(data=b"\0\1\2", media_type="audio/pcm", state=state), ms.Text("x")]


@pytest.mark.parametrize("value", [{"data": ""}, {}, "x", 5])
def test_sound_without_any_member_is_no_block(value: ms.JSON) -> None:
    assert deltas({"audio": value}, {"content": "x"}).response.content == [ms.Text("x")]


def test_an_answer_written_again_keeps_its_sound_by_its_id() -> None:
    response = answer({"content": None, "audio": {"id": "a1", "data": "AAEC", "transcript": "t"}}, provider_data=None)
    history = [ms.Message.user("x"), response.to_message()]
    assert encode(ms.Request("m", history), SERVER)["messages"] == [
        {"role": "user", "content": "x"},
        {"role": "assistant", "audio": {"id": "a1"}},
    ]
