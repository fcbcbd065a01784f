"""Limits on tokens of a request, and on choices, content blocks and tool calls of an answer, in every dialect."""

import base64
import zlib
from typing import Any

import pytest

import manystream as ms
from manystream.providers.catalog.registry import dialect_of
from manystream.providers.json.json_values import loads_object
from manystream.providers.limits.input_limits import ANY_IMAGE, Media, media_of, row_of, unpriced_member

PROVIDERS: dict[str, tuple[ms.Provider, str, int]] = {
    "chat": (ms.OpenAIChat("k"), "gpt-4o", 1_445), "responses": (ms.OpenAIResponses("k"), "gpt-4o", 1_445),
    "anthropic": (ms.Anthropic("k"), "claude-sonnet-4-5", 1_640), "gemini": (ms.Gemini("k"), "gemini-2.5-flash", 4_128),
}  # fmt: skip

PNG = ms.Image(data=b"\x89PNG" * 30, media_type="image/png")

LINK = ms.Image(url="https://pictures.example/1.png")

TWO_PAGES = b"%PDF-1.4 << /Type /Pages /Kids [] /Count 2 >> << /Type /Page >> <</Type/Page/Parent 1 0 R>>"

COMPRESSED = (
    b"%PDF-1.7 1 0 obj << /Type /ObjStm /N 3 /Filter /FlateDecode /DecodeParms << /Columns 4 >> >>\nstream\r\n"
    + zlib.compress(b"<</Type/Pages/Count 3>> <</Type/Page>> << /Type /Page >> <</Type /Page/Parent 1 0 R>>")
    + b"\nendstream endobj"
)


def pdf(data: bytes) -> ms.File:
    return ms.File(data=data, media_type="application/pdf", name="a.pdf")


def body_of(name: str, *blocks: Any, **options: Any) -> dict[str, Any]:
    provider, model, _ = PROVIDERS[name]
    request = ms.Request(model, [ms.Message.user([ms.Text("t"), *blocks])], max_output_tokens=5, **options)
    return loads_object(dialect_of(provider.profile).encode(request, model, provider, stream=False).body)


def counted(name: str, *blocks: Any) -> Media:
    return media_of(body_of(name, *blocks), PROVIDERS[name][1])


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize(
    ("blocks", "images", "text"),
    [([], 0, 0), ([PNG], 1, 0), ([LINK, LINK], 2, 0), ([pdf(TWO_PAGES)], 2, 2), ([pdf(COMPRESSED), PNG], 4, 3)],
)
def test_an_image_costs_what_the_largest_one_does(name: str, blocks: list[Any], images: int, text: int) -> None:
    media = counted(name, *blocks)
    assert (media.tokens, media.sound) == (images * PROVIDERS[name][2] + text * 3_000, "")
    inline = [block for block in blocks if block.data is not None]
    assert len("".join(base64.b64encode(block.data).decode() for block in inline)) <= media.encoded
    assert media.encoded <= sum(len(block.data) * 4 // 3 + 30 for block in inline)


@pytest.mark.parametrize("name", PROVIDERS)
def test_images_in_results_of_tools_count(name: str) -> None:
    provider, model, image = PROVIDERS[name]
    messages = [
        ms.Message.user("a"),
        ms.Message.tool_call("c", "f", '{"type":"document","source":{"type":"url"},"file":{"file_id":"x"}}'),
        ms.Message.tool_result("c", [PNG]),
    ]
    request = ms.Request(model, messages, max_output_tokens=5)
    body = loads_object(dialect_of(provider.profile).encode(request, model, provider, stream=False).body)
    assert media_of(body, model).tokens == image


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize("block", [ms.File(file_id="f"), pdf(b"%PDF-1.4"), pdf(COMPRESSED[:-60])])
def test_files_without_countable_pages_are_refused(name: str, block: ms.File) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"a budget limits the input") as raised:
        counted(name, block)
    assert raised.value.field.split("[")[0] in ("messages", "input", "contents")


@pytest.mark.parametrize("name", ["responses", "anthropic", "gemini"])
def test_documents_by_url_are_refused(name: str) -> None:
    with pytest.raises(ms.InvalidRequestError):
        counted(name, ms.File(url="https://files.example/a.pdf", media_type="application/pdf"))


def test_text_files_and_sound_count_by_their_size() -> None:
    text = ms.File(data=b"hello " * 100, media_type="text/plain", name="a.txt")
    assert counted("responses", text).tokens == counted("gemini", text).tokens == 301
    assert counted("anthropic", text).tokens == 0  # it is text in the body
    sound = ms.File(data=b"x" * 3000, media_type="audio/wav")
    assert counted("chat", sound) == Media(301, 4000, "messages[0].content[1].input_audio")
    assert counted("gemini", sound) == Media(301, 4000, "contents[0].parts[1].inlineData")


DOCUMENT = {
    "type": "document",
    "source": {"type": "content", "content": [{"type": "image", "source": {"data": "eA=="}}]},
}

FILM = {"fileData": {"fileUri": "https://films.example/1", "mimeType": "video/mp4"}}

PARTS: list[tuple[dict[str, Any], int | str]] = [
    ({"messages": [{"content": [{"type": "image_url", "image_url": "https://p/1"}]}]}, 1),
    ({"messages": [{"content": [DOCUMENT]}]}, 1),
    ({"messages": [{"content": [{"type": "tool_use", "input": {"type": "file", "file": {"file_id": "f"}}}]}]}, 0),
    ({"input": [{"type": "computer_call_output", "output": {"type": "computer_screenshot", "file_id": "f"}}]}, 1),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f", "detail": "low"}]}]}, 1),
    ({"input": "text", "prompt": "text", "tools": [], "container": None}, 0),
    ({"contents": [{"parts": [{"inline_data": {"mime_type": "image/png", "data": "eA=="}}]}]}, 1),
    ({"tools": [{"type": "function", "name": "web_search"}, {"name": "f"}, {"type": "custom", "name": "c"}]}, 0),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}, {"type": "text_editor_20250728", "name": "e"}]}, 0),
    ({"tools": [{"functionDeclarations": [{"name": "f"}]}]}, 0),
    ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, 0),
    ({"contents": [{"parts": [{"text": "a"}, FILM]}]}, "contents[0].parts[1].fileData"),
    ({"messages": [{"content": [{"type": "video_url", "video_url": {"url": "https://v/1"}}]}]},
        "messages[0].content[0]"),
    ({"messages": [{"role": "assistant", "audio": {"id": "a"}}]}, "messages[0].audio.id"),
    ({"messages": [{"content": [{"type": "container_upload", "file_id": "f"}]}]}, "messages[0].content[0]"),
    ({"input": [{"type": "item_reference", "id": "i"}]}, "input[0]"),
    ({"conversation": "c"}, "conversation"),
    ({"prompt": {"id": "p"}}, "prompt"),
    ({"cachedContent": "cachedContents/1"}, "cachedContent"),
    ({"mcp_servers": [{"url": "https://m"}]}, "mcp_servers"),
    ({"tools": [{"name": "f"}, {"type": "web_search_20250305", "name": "web_search"}]}, "tools[1]"),
    ({"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}, "tools[0]"),
    ({"tools": [{"googleSearch": {}}]}, "tools[0]"),
    ({"context_management": {"edits": [{"type": "compact_20260112"}]}}, "context_management"),
    ({"context_management": [{"type": "compaction"}]}, "context_management"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), PARTS)
def test_each_form_of_a_part_is_counted_or_refused(body: dict[str, Any], expected: int | str) -> None:
    if isinstance(expected, int):
        assert media_of(body, "claude-opus-4-8").tokens == expected * 5_000
        return
    with pytest.raises(ms.InvalidRequestError) as raised:
        media_of(body, "claude-opus-4-8")
    assert raised.value.field.startswith(expected)


def test_a_model_without_a_row_costs_as_much_as_the_dearest() -> None:
    assert row_of("mine").most == ANY_IMAGE == 48_169
    assert row_of("openai/GPT-4o-2024-08-06").most == 1_445
    assert (row_of("gpt-5-nano").most, row_of("gpt-5.4-mini").most, row_of("gpt-5-2025-08-07").most) == (
        3_779, 16_200, 1_844
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "member"),
    [
        ({"model": "m", "modalities": ["text"]}, ""),
        ({"model": "m", "modalities": ["text", "audio"]}, "modalities"),
        ({"generationConfig": {"responseModalities": ["TEXT", "IMAGE"]}}, "generationConfig.responseModalities"),
        ({"model": "other"}, "model"),
        ({"fallbacks": [{"model": "x"}]}, "fallbacks"),
    ],
)
def test_what_may_have_another_price_is_named(body: dict[str, Any], member: str) -> None:
    assert unpriced_member(body, "m", Media()) == member
    assert unpriced_member(body, "m", Media(sound="messages[0]")) == "messages[0]"
