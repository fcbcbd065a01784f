"""The data of files in OpenAI's forms."""

from __future__ import annotations

import pytest

import manystream as ms
from tests.providers.sdk_bodies import READERS, sent_by_sdk, sent_by_us
from tests.providers.sdk_examples import BASES

PDF = "JVBERi0xLjQ="  # %PDF-1.4

CHAT_FILE: dict[str, object] = {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}}

RESPONSES_FILE: dict[str, object] = {"type": "input_file", "filename": "a.pdf", "file_data": PDF}

PLAIN_BASE64 = {"openai": ("messages", CHAT_FILE), "openai_responses": ("input", RESPONSES_FILE)}


@pytest.mark.parametrize("sdk", PLAIN_BASE64)
def test_a_file_may_be_plain_base64_text(sdk: str) -> None:
    """The SDK's own words: "The base64 encoded file data"."""
    member, part = PLAIN_BASE64[sdk]
    arguments = {**BASES[sdk], member: [{"role": "user", "content": [part]}]}
    request = READERS[sdk](**arguments)
    assert sent_by_us(sdk, request) == sent_by_sdk(sdk, arguments)
    assert request.messages[0].content == [ms.File(b"%PDF-1.4", "application/pdf", name="a.pdf")]


@pytest.mark.parametrize(
    ("name", "data", "media_type"),
    [("a.txt", "SGk=", "text/plain"), ("A.CSV", "SGk=", "text/csv"), (None, PDF, "application/pdf")],
)
def test_the_name_tells_the_type_of_plain_base64(name: str | None, data: str, media_type: str) -> None:
    part = {"type": "input_file", "file_data": data, **({"filename": name} if name else {})}
    request = ms.Request.from_openai_responses(model="gpt-5", input=[{"role": "user", "content": [part]}])
    (block,) = request.messages[0].content
    assert isinstance(block, ms.File)
    assert block.media_type == media_type


@pytest.mark.parametrize(
    ("sdk", "place"),
    [("openai", r"messages\[0\]\.content\[0\]\.file"), ("openai_responses", r"input\[0\]\.content\[0\]")],
)
def test_file_data_that_cannot_be_read_is_named(sdk: str, place: str) -> None:
    part = {"type": "file", "file": {"file_data": "not base64!"}}
    part = part if sdk == "openai" else {"type": "input_file", "file_data": "not base64!"}
    with pytest.raises(ms.InvalidRequestError, match=rf"{place}\.file_data: is neither a URL nor base64 text"):
        READERS[sdk](model="gpt-5", **{PLAIN_BASE64[sdk][0]: [{"role": "user", "content": [part]}]})


def test_a_file_s_url_stays_a_url() -> None:
    part = {"type": "input_file", "file_url": "https://example.org/a.pdf"}
    request = ms.Request.from_openai_responses(model="gpt-5", input=[{"role": "user", "content": [part]}])
    assert request.messages[0].content == [ms.File(url="https://example.org/a.pdf")]
