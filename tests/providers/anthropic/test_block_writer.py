"""Content blocks on the wire: each kind, and what goes back only to its maker."""

from __future__ import annotations

from typing import Any

import pytest

import manystream as ms
from manystream.providers.anthropic.block_writer import CITATION_TYPES
from manystream.providers.errors import InvalidRequestError
from manystream.providers.model.messages import (
    CacheControl,
    File,
    Image,
    Message,
    ProviderBlock,
    ProviderState,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from tests.providers.anthropic.test_message_writer import encode, sent, use
from tests.providers.anthropic.test_message_writer import sent as sent_to_anthropic

PNG = b"\x89PNG"


def test_a_marked_text_stays_a_block() -> None:
    marked = Message.user(Text("Hi", cache_control=CacheControl("5m")))
    mark = {"type": "ephemeral", "ttl": "5m"}
    assert sent(marked)[0]["content"] == [{"type": "text", "text": "Hi", "cache_control": mark}]


def test_arguments_that_are_no_object_are_sent_as_text() -> None:
    for arguments in ('{"city": ', "[1]", "rain"):
        history = [Message.user("a"), Message.tool_call("t", "look", arguments), Message.tool_result("t", "no", True)]
        assert sent(*history)[1]["content"] == [use("t", INVALID_JSON=arguments)]
        assert len(encode(*history).warnings) == 1
    empty = [Message.user("a"), Message.tool_call("t", "look", ""), Message.tool_result("t", "ok")]
    assert sent(*empty)[1]["content"] == [use("t")]


def test_a_providers_own_blocks_are_sent_only_to_it() -> None:
    data: dict[str, Any] = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    own, foreign = ProviderBlock("anthropic", data), ProviderBlock("openai-responses", {"type": "web_search_call"})
    assert sent(Message.user("a"), Message.assistant([foreign, own, Text("b")]))[1]["content"] == [
        data,
        {"type": "text", "text": "b"},
    ]
    upload = ProviderBlock("anthropic", {"type": "container_upload", "file_id": "file_1"})
    assert sent(Message.user([upload, foreign]))[0]["content"] == [upload.data]


def test_a_calls_state_is_sent_only_to_its_provider() -> None:
    caller = {"caller": {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}}
    for maker, expected in (("anthropic", {**use("t"), **caller}), ("openai-chat", use("t"))):
        call = Message.assistant(ToolCall("t", "look", "{}", state=ProviderState(maker, caller)))
        assert sent(Message.user("a"), call, Message.tool_result("t", "rain"))[1]["content"] == [expected]


def test_only_anthropics_citations_are_sent_back() -> None:
    own: dict[str, Any] = {
        "type": "char_location", "cited_text": "a", "document_index": 0, "document_title": None, "start_char_index": 0,
        "end_char_index": 1,
    }  # fmt: skip
    cited = Text("b", citations=[own])
    assert sent(Message.user("a"), Message.assistant(cited))[1]["content"] == [
        {"type": "text", "text": "b", "citations": [own]}
    ]
    assert (
        sent(Message.user("a"), Message.assistant(Text("b", citations=[{"type": "url_citation"}])))[1]["content"] == "b"
    )
    assert sent(Message.user(cited))[0]["content"] == "b"


@pytest.mark.parametrize(
    ("given", "source"),
    [
        (Image(data=PNG, media_type="image/png"), {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}),
        (Image(data=PNG, media_type="image/JPG"), {"type": "base64", "media_type": "image/jpeg", "data": "iVBORw=="}),
        (Image(url="https://a.example/a.png"), {"type": "url", "url": "https://a.example/a.png"}),
        (Image(file_id="file_1"), {"type": "file", "file_id": "file_1"}),
        (File(data=PNG, media_type="image/png"), {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}),
        (File(url="https://a.example/a", media_type="image/png"), {"type": "url", "url": "https://a.example/a"}),
    ],
)
def test_images_have_a_source_of_their_kind(given: Image | File, source: dict[str, str]) -> None:
    assert sent(Message.user(given))[0]["content"] == [{"type": "image", "source": source}]


@pytest.mark.parametrize(
    ("given", "source"),
    [
        (File(data=b"%PDF", media_type="application/pdf"),
            {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}),
        (File(data="Grüße".encode(), media_type="text/markdown; charset=utf-8"),
            {"type": "text", "media_type": "text/plain", "data": "Grüße"}),
        *((File(data=b"{}", media_type=kind), {"type": "text", "media_type": "text/plain", "data": "{}"})
            for kind in ("application/json", "application/xml", "application/yaml", "application/x-yaml", "text/csv")),
        (File(url="https://a.example/a.pdf"), {"type": "url", "url": "https://a.example/a.pdf"}),
        (File(file_id="file_1"), {"type": "file", "file_id": "file_1"}),
    ],
)  # fmt: skip
def test_files_are_documents(given: File, source: dict[str, str]) -> None:
    assert sent(Message.user(given))[0]["content"] == [{"type": "document", "source": source}]


def test_a_files_name_is_its_title_and_cache_marks_are_kept() -> None:
    mark = CacheControl()
    wire = {"type": "ephemeral"}
    history = [
        Message.user([File(file_id="f", name="a.pdf", cache_control=mark), Image(file_id="g", cache_control=mark)]),
        Message.assistant(ToolCall("t", "look", "{}", cache_control=mark)),
        Message(Role.TOOL, ToolResult("t", "rain", cache_control=mark)),
    ]
    contents = [turn["content"] for turn in sent(*history)]
    assert contents[0][0]["title"] == "a.pdf"
    assert [part["cache_control"] for content in contents for part in content] == [wire] * 4


def test_a_tool_result_may_have_texts_images_and_files() -> None:
    parts = [Text("see"), Text(""), Image(data=PNG, media_type="image/png"), File(file_id="f")]
    wire = sent(Message.user("a"), Message.tool_call("t", "look", "{}"), Message(Role.TOOL, ToolResult("t", parts)))
    assert [part["type"] for part in wire[2]["content"][0]["content"]] == ["text", "image", "document"]


@pytest.mark.parametrize(
    ("block_given", "field"),
    [
        (Image(data=b"x", media_type="image/tiff"), "messages[0].content[0].media_type"),
        (File(data=b"x", media_type="audio/wav"), "messages[0].content[0].media_type"),
        (File(data=b"\xff", media_type="text/plain"), "messages[0].content[0].data"),
    ],
)
def test_an_unsupported_file_is_refused_naming_the_field(block_given: Image | File, field: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        encode(Message.user(block_given))
    assert raised.value.field == field


def test_an_images_detail_is_warned_about() -> None:
    assert encode(Message.user(Image(file_id="f", detail="high"))).warnings
    assert not encode(Message.user(Image(file_id="f", detail="auto"))).warnings


# --- what is sent ---
def test_image_jpg_is_sent_as_image_jpeg_to_anthropic() -> None:
    for block in (ms.Image(data=b"x", media_type="image/jpg"), ms.Image(data=b"x", media_type="image/jpeg")):
        (part,) = sent_to_anthropic(ms.Message.user(block))[0]["content"]
        assert part["source"]["media_type"] == "image/jpeg"


ANTHROPICS_CITATIONS: dict[str, ms.JSONObject] = {
    "char_location": {"document_index": 0, "document_title": None, "start_char_index": 0, "end_char_index": 1},
    "page_location": {"document_index": 0, "document_title": None, "start_page_number": 1, "end_page_number": 2},
    "content_block_location": {"document_index": 0, "document_title": None, "start_block_index": 0,
                               "end_block_index": 1},
    "search_result_location": {"search_result_index": 0, "source": "s", "title": None, "start_block_index": 0,
                               "end_block_index": 1},
    "web_search_result_location": {"encrypted_index": "e", "title": None, "url": "https://h"},
}  # fmt: skip


def test_the_citations_are_those_of_anthropics_sdk() -> None:
    assert ANTHROPICS_CITATIONS.keys() == CITATION_TYPES


@pytest.mark.parametrize("kind", ANTHROPICS_CITATIONS)
def test_every_citation_of_anthropic_is_sent_back(kind: str) -> None:
    citation: ms.JSONObject = {"type": kind, "cited_text": "a", **ANTHROPICS_CITATIONS[kind]}
    history = (ms.Message.user("q"), ms.Message.assistant(ms.Text("b", citations=[citation])))
    assert sent_to_anthropic(*history)[1]["content"] == [{"type": "text", "text": "b", "citations": [citation]}]
