"""Anthropic's messages as common messages and back: each block as a whole, and each refusal with its place."""

from __future__ import annotations

from typing import Any

import pytest

import manystream as ms
from manystream.providers.anthropic.converter import AnthropicConverter
from manystream.providers.history import HistoryError

PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}
MARK: ms.JSONObject = {"type": "ephemeral", "ttl": "1h"}
HOUR = ms.CacheControl("1h")


def state(**members: Any) -> ms.ProviderState:
    return ms.ProviderState("anthropic", members)


def read(*wire: Any) -> list[ms.Message]:
    return AnthropicConverter().decode_messages(list(wire))


def test_a_users_blocks_are_read_whole() -> None:
    words = [{"type": "text", "text": "found"}]
    search: dict[str, Any] = {"type": "search_result", "source": "https://a.example", "title": "t", "content": words}
    wire: dict[str, Any] = {
        "role": "user",
        "content": [
            {"type": "text", "text": "a", "cache_control": MARK},
            {"type": "image", "source": PNG, "cache_control": MARK},
            {"type": "image", "source": {"type": "url", "url": "https://a.example/a"}},
            {"type": "image", "source": {"type": "file", "file_id": "f"}},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Grüße"}, "title": "t"},
            {
                "type": "document",
                "source": {
                    "type": "content",
                    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                },
                "context": "c",
                "citations": {"enabled": True},
                "cache_control": MARK,
            },
            {"type": "document", "source": {"type": "content", "content": "whole"}, "context": None},
            search,
            {"type": "container_upload", "file_id": "f"},
        ],
    }
    source = wire["content"][5]["source"]
    assert read(wire) == [
        ms.Message.user(
            [
                ms.Text("a", cache_control=HOUR),
                ms.Image(b"\x89PNG", "image/png", cache_control=HOUR),
                ms.Image(url="https://a.example/a"),
                ms.Image(file_id="f"),
                ms.File("Grüße".encode(), "text/plain", name="t"),
                ms.File(
                    b"a\n\nb",
                    "text/plain",
                    cache_control=HOUR,
                    state=state(context="c", citations={"enabled": True}, source=source),
                ),
                ms.File(b"whole", "text/plain", state=state(source={"type": "content", "content": "whole"})),
                ms.Text("t\nhttps://a.example\n\nfound", state=state(**search)),
                ms.ProviderBlock("anthropic", {"type": "container_upload", "file_id": "f"}),
            ]
        )
    ]


def test_results_and_texts_of_one_message_are_separate() -> None:
    searched = {
        "type": "search_result", "title": "t", "source": "s",
        "content": [{"type": "text", "text": "a"}, {"type": "text"}, "b"], "cache_control": MARK,
    }  # fmt: skip
    referred = {"type": "tool_reference", "tool_name": "look"}
    wire = [
        {"type": "tool_result", "tool_use_id": "a", "content": "wet", "is_error": True, "cache_control": MARK},
        {"type": "tool_result", "tool_use_id": "b"},
        {"type": "text", "text": "x"},
        {"type": "text", "text": "y"},
        {
            "type": "tool_result",
            "tool_use_id": "c",
            "content": [{"type": "text", "text": "z"}, {"type": "image", "source": PNG}, searched, referred],
            "is_error": "no",
        },
    ]
    assert read({"role": "user", "content": wire}, {"role": "user", "content": "end"}) == [
        ms.Message(ms.Role.TOOL, [ms.ToolResult("a", "wet", True, cache_control=HOUR), ms.ToolResult("b", "")]),
        ms.Message.user([ms.Text("x"), ms.Text("y")]),
        ms.Message(
            ms.Role.TOOL,
            [
                ms.ToolResult(
                    "c",
                    [
                        ms.Text("z"),
                        ms.Image(b"\x89PNG", "image/png"),
                        ms.Text("t\ns\n\na", cache_control=HOUR, state=state(**searched)),
                        ms.Text("look", state=state(**referred)),
                    ],
                )
            ],
        ),
        ms.Message.user("end"),
    ]


def test_an_assistants_blocks_are_read_whole() -> None:
    used: dict[str, Any] = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    wire: list[Any] = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "enc"},
        {"type": "text", "text": "a", "cache_control": MARK, "citations": [{"type": "char_location"}]},
        {"type": "tool_use", "id": "t", "name": "look", "input": {"n": 1}, "cache_control": MARK},
        {"type": "tool_use", "id": "u", "name": "look", "input": {"INVALID_JSON": '{"n"'}},
        {"type": "tool_use", "id": "v", "name": "look", "input": {"INVALID_JSON": "x", "n": 1}},
        {"type": "tool_use", "name": "look"},
        used,
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "compaction", "content": "c"},
    ]
    made = iter(["made"])
    converter = AnthropicConverter()
    converter.make_id = lambda: next(made)
    (message,) = converter.decode_messages([{"role": "assistant", "content": wire}])
    assert message == ms.Message.assistant(
        [
            ms.Thinking("hm", "sig"),
            ms.RedactedThinking("enc"),
            ms.Text("a", citations=[{"type": "char_location"}], cache_control=HOUR),
            ms.ToolCall("t", "look", '{"n": 1}', cache_control=HOUR),
            ms.ToolCall("u", "look", '{"n"'),
            ms.ToolCall("v", "look", '{"INVALID_JSON": "x", "n": 1}'),
            ms.ToolCall("made", "look", "{}"),
            ms.ProviderBlock("anthropic", used),
            ms.ProviderBlock("anthropic", {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}),
            ms.ProviderBlock("anthropic", {"type": "compaction", "content": "c"}),
        ]
    )


def test_messages_are_written_whole() -> None:
    search: dict[str, Any] = {"type": "search_result", "source": "s", "title": "t", "content": []}
    messages = [
        ms.Message.user([ms.Text("a", cache_control=HOUR), ms.Text(" "), ms.Image(b"\x89PNG", "image/png")]),
        ms.Message.assistant(
            [
                ms.Thinking("hm", "sig"),
                ms.Thinking("x", "y", ms.ProviderState("elsewhere", {})),
                ms.Text("b", citations=[{"type": "char_location"}]),
                ms.ToolCall("c.1", "look", "{}"),
                ms.ToolResult("c.1", [ms.Text("t", state=state(**search))]),
                ms.ProviderBlock("elsewhere", {"type": "x"}),
                ms.ProviderBlock("anthropic", {"type": "fallback"}),
            ]
        ),
        ms.Message(ms.Role.TOOL, [ms.ToolResult("c.1", "wet", is_error=True)]),
        ms.Message.user(""),
    ]
    call_id = "c_1_255b58d8"
    assert AnthropicConverter().encode_messages(messages) == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "a", "cache_control": MARK}, {"type": "image", "source": PNG}],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "text", "text": "b", "citations": [{"type": "char_location"}]},
                {"type": "tool_use", "id": call_id, "name": "look", "input": {}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": [search]}]},
        {"role": "assistant", "content": [{"type": "fallback"}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": call_id, "content": "wet", "is_error": True}],
        },
    ]


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


TEXT = {"type": "text", "text": "a"}
REFUSED: list[tuple[Any, str]] = [
    (user(TEXT, "a"), "messages[1].content: must be text or a list of blocks"),
    ({"role": "assistant", "content": None}, "messages[1].content: must be text or a list of blocks"),
    (user(TEXT, {"type": "thinking"}), "messages[1].content[1].type: unknown block 'thinking' in a user's message"),
    (user({}), "messages[1].content[0].type: unknown block '' in a user's message"),
    ({"role": "assistant", "content": [TEXT, {"type": "image"}]},
        "messages[1].content[1].type: unknown block 'image' in an assistant's message"),
    (user(TEXT, {"type": "tool_result", "content": [TEXT, {"type": "smell"}]}),
        "messages[1].content[1].content[1].type: unknown block 'smell' in a tool's result"),
    (user({"type": "tool_result", "content": 3}), "messages[1].content[0].content: must be text or a list of blocks"),
    (user({"type": "image", "source": {"type": "x"}}), 'messages[1].content[0].source: cannot be read: {"type":"x"}'),
    (user({"type": "image", "source": {"type": "base64", "data": "§"}}),
        "messages[1].content[0].source.data: is not base64 text"),
    (user({"type": "document", "source": PNG, "cache_control": {"ttl": 5}}),
        "messages[1].content[0].cache_control.ttl: must be '5m' or '1h', not 5"),
    ({"role": "assistant", "content": [{**TEXT, "cache_control": {"ttl": "2h"}}]},
        "messages[1].cache_control.ttl: must be '5m' or '1h', not '2h'"),
    ({"role": "tool", "content": "x"}, "messages[1].role: unknown role 'tool'"),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_message_that_cannot_be_read_is_named(wire: Any, message: str) -> None:
    with pytest.raises(HistoryError) as raised:
        read({"role": "user", "content": "a"}, wire)
    assert str(raised.value) == message


def test_the_quotation_of_a_source_is_bounded() -> None:
    with pytest.raises(HistoryError) as raised:
        read(user({"type": "image", "source": {"x": "y" * 500}}))
    assert str(raised.value) == "messages[0].content[0].source: cannot be read: " + ('{"x":"' + "y" * 500)[:200]


def test_messages_and_ids_are_kept_apart() -> None:
    call: dict[str, Any] = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
    assert read(user(TEXT), user(TEXT), {"role": "assistant", "content": [call, call]}, user(result, result)) == [
        ms.Message.user("a"),
        ms.Message.user("a"),
        ms.Message.assistant([ms.ToolCall("t", "look", "{}"), ms.ToolCall("t_2", "look", "{}")]),
        ms.Message(ms.Role.TOOL, [ms.ToolResult("t", "x"), ms.ToolResult("t_2", "x")]),
    ]


def test_a_call_that_is_nested_too_deeply_is_named() -> None:
    nested: list[Any] = []
    for _ in range(2000):
        nested = [nested]
    call: dict[str, Any] = {"type": "tool_use", "id": "t", "name": "look", "input": {"a": nested}}
    with pytest.raises(HistoryError) as raised:
        read({"role": "assistant", "content": [TEXT, call]})
    assert str(raised.value) == "messages[0].content[1]: a call's input is nested too deeply"


def test_missing_members_of_blocks_are_empty() -> None:
    parts: list[Any] = [
        {"type": "tool_reference"}, {"type": "search_result", "source": "s"},
        {"type": "search_result", "content": "c"}, {"type": "text"},
    ]  # fmt: skip
    (result,) = read(user({"type": "tool_result", "content": parts}))
    (block,) = result.content
    assert isinstance(block, ms.ToolResult)
    assert block.tool_call_id == ""
    assert [part.text for part in block.content if isinstance(part, ms.Text)] == ["", "s", "\n\nc", ""]
    (answer,) = read({"role": "assistant", "content": [{"type": "redacted_thinking"}, {"type": "text"}]})
    assert answer.content == [ms.RedactedThinking(""), ms.Text("")]


def test_a_cache_mark_without_a_lifetime_is_one() -> None:
    for mark in ({"type": "ephemeral"}, {"type": "ephemeral", "ttl": None}):
        (message,) = read(user({**TEXT, "cache_control": mark}))
        assert message.content == [ms.Text("a", cache_control=ms.CacheControl())]
    (message,) = read(user({**TEXT, "cache_control": {}}))
    assert message.content == [ms.Text("a")]


def test_a_mark_that_is_taken_off_a_call_is_not_sent() -> None:
    call = {"type": "tool_use", "id": "t", "name": "look", "input": {}, "cache_control": MARK}
    (message,) = read({"role": "assistant", "content": [call]})
    (block,) = message.tool_calls
    assert AnthropicConverter().encode_messages([message]) == [{"role": "assistant", "content": [call]}]
    block.cache_control = None
    del call["cache_control"]
    assert AnthropicConverter().encode_messages([message]) == [{"role": "assistant", "content": [call]}]


CHUNKS: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
    ({"stop_reason": "end_turn"}, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
    ({"text": "a"}, None),
    ({"type": "text_delta", "text": "a"}, {"type": "content_block_delta", "index": 0,
        "delta": {"type": "text_delta", "text": "a"}}),
    ({"type": "compaction_delta", "content": "a"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "compaction_delta", "content": "a"}}),
    ({"type": "text", "text": "a", "snapshot": "ba"}, {"type": "ping"}),
    ({"type": "web_search_tool_result", "content": []},
        {"type": "message_start", "message": {"role": "assistant",
        "content": [{"type": "web_search_tool_result", "content": []}]}}),
    ({"type": "mcp_tool_listing"}, {"type": "message_start",
        "message": {"role": "assistant", "content": [{"type": "mcp_tool_listing"}]}}),
    ({"type": "image"}, None),
]  # fmt: skip


@pytest.mark.parametrize(("part", "chunk"), CHUNKS)
def test_a_part_of_a_chunk_is_made_a_whole_one(part: dict[str, Any], chunk: dict[str, Any] | None) -> None:
    assert AnthropicConverter().chunk_around(frozenset(part), part) == chunk


@pytest.mark.parametrize(
    ("wire", "chunk", "whole"),
    [
        ({"type": "message"}, True, True),
        ({"type": "message_delta"}, True, False),
        ({"type": "ping"}, True, False),
        ({"type": "text_delta"}, False, False),
        ({}, False, False),
    ],
)
def test_chunks_and_whole_messages_are_told_apart(wire: dict[str, Any], chunk: bool, whole: bool) -> None:
    converter = AnthropicConverter()
    assert (converter.is_chunk(frozenset(wire), wire), converter.is_whole(wire)) == (chunk, whole)


def test_several_system_texts_are_one_with_empty_lines_between() -> None:
    texts = ["a", "b"]
    assert AnthropicConverter()._system_parameter(texts) == "a\n\nb"  # pyright: ignore[reportPrivateUsage]


def test_a_listing_of_mcp_tools_is_a_block_of_the_answer() -> None:
    listing: ms.JSONObject = {"type": "mcp_tool_listing", "mcp_server_name": "files", "tools": []}
    wire: list[ms.JSONObject] = [{"role": "user", "content": "a"}, {"role": "assistant", "content": [listing]}]
    message = AnthropicConverter().decode_messages(wire)[1]
    assert message.content == [ms.ProviderBlock("anthropic", listing)]
