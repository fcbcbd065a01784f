"""Cache marks that a request gets by `cache="auto"`, and the marks of a body as prefixes of its prompt."""

from __future__ import annotations

import json

import pytest

import manystream as ms
from manystream.providers.model.cached_requests import warming, with_marks
from manystream.providers.wire.cache_marks import LIFETIME, asking_why, in_order, why_missed, wire_prefixes

TOOL = ms.Tool("search")


def turn(results: int) -> list[ms.Message]:
    calls = [ms.ToolCall(f"c{number}", "search", "{}") for number in range(results)]
    return [
        ms.Message.user("Hello"), ms.Message("assistant", [ms.Thinking("so"), *calls]),
        *(ms.Message.tool_result(call.id, "found") for call in calls),
    ]  # fmt: skip


def marked(request: ms.Request) -> list[int]:
    """The number of blocks behind each mark in the messages, the last mark first."""
    blocks = [block for message in request.messages for block in message.content]
    return [n for n, block in enumerate(reversed(blocks)) if getattr(block, "cache_control", None) is not None]


@pytest.mark.parametrize(
    ("results", "places"), [(1, [0]), (7, [0]), (10, [0, 15]), (40, [0, 15, 30])], ids=["1", "7", "10", "40"]
)
def test_a_wide_turn_has_a_mark_each_15_blocks(results: int, places: list[int]) -> None:
    request = ms.Request("m", turn(results), system="rules", tools=[TOOL], cache="auto")
    found = with_marks(request)
    assert marked(found) == places
    assert [block.cache_control for block in found.system_blocks] == [ms.CacheControl()]
    assert [tool.cache_control for tool in found.tools] == [None]
    assert marked(request) == [], "the request of the program is as it was"


def test_tools_are_marked_without_a_system_prompt() -> None:
    found = with_marks(ms.Request("m", [ms.Message.user("Hello")], tools=[TOOL]))
    assert [tool.cache_control for tool in found.tools] == [ms.CacheControl()]
    assert marked(found) == [0]
    own = ms.Request("m", [ms.Message.user("Hello")], system=[ms.Text("rules", cache_control=ms.CacheControl("1h"))])
    assert with_marks(own) is own, "a request with marks keeps its own"


def test_a_request_that_warms_asks_for_no_answer() -> None:
    request = ms.Request("m", [ms.Message.user("Hello")], thinking="high", tool_choice="search", tools=[TOOL])
    found = warming(request)
    assert (found.max_output_tokens, found.thinking, found.tool_choice) == (0, None, "auto")
    assert warming(ms.Request("m", [], system="rules")).messages


def test_the_marks_of_a_body_are_prefixes_of_its_prompt() -> None:
    def mark(text: str, **more: str) -> dict[str, object]:
        return {"type": "text", "text": text, "cache_control": {"type": "ephemeral", **more}}

    def body(question: str, tools: str = "find", **more: object) -> bytes:
        members = {
            "model": "m", "max_tokens": 5, "system": [mark('rules "cache_control":{}', ttl="1h")],
            "messages": [{"role": "user", "content": [mark(question)]}],
            "tools": [{"name": tools, "cache_control": {"type": "ephemeral"}}, {"name": "other"}],
            "tool_choice": {"type": "auto"}, **more,
        }  # fmt: skip
        return json.dumps(members, separators=(",", ":")).encode()

    def texts(wire: bytes) -> list[bytes]:
        found = wire_prefixes(wire, unmarked=False)
        return [wire[slice(*prefix.tools)] + wire[slice(*prefix.rest)] for prefix in found]

    one, two = texts(body("one")), texts(body("two", temperature=1))
    assert len(one) == len(two) == 3, "one that ends in the tools, one in the system prompt, one in the messages"
    assert one[:2] == two[:2]
    assert one[2] != two[2]
    assert one[2].startswith(one[1])
    assert not set(one) & set(texts(body("one", tools="look")))
    assert [prefix.lifetime for prefix in wire_prefixes(body("one"), unmarked=False)] == [LIFETIME, 3600, LIFETIME]
    shuffled = json.dumps(dict(sorted(json.loads(body("one")).items())), indent=1).encode()
    assert texts(in_order(shuffled)) == one, "a client's body may have another order, and white space"
    for text in (b"{", b'{"messages":' + b"[" * 600 + b"]" * 600 + b"}"):
        assert in_order(text) == text


def test_a_body_without_marks_has_a_prefix_where_that_is_asked() -> None:
    wire = b'{"model":"m","messages":[{"role":"system","content":"r"},{"role":"user","content":"q"}]}'
    assert wire_prefixes(wire, unmarked=False) == []
    [prefix] = wire_prefixes(wire, unmarked=True)
    assert wire[slice(*prefix.rest)] == b'"messages":[{"role":"system","content":"r"},{'
    assert wire_prefixes(b'{"prompt":"text"}', unmarked=True) == []
    gemini = (
        b'{"contents":[{"role":"user"}],"tools":[{"functionDeclarations":[]}],"toolConfig":{},"generationConfig":{}}'
    )
    [prefix] = wire_prefixes(gemini, unmarked=True)
    assert gemini[slice(*prefix.tools)] == b'"tools":[{"functionDeclarations":[]}]'


def test_why_a_prompt_missed_is_asked_and_read() -> None:
    assert json.loads(asking_why(b'{"a":1}', "anthropic", "m")) == {"a": 1, "diagnostics": {"previous_message_id": "m"}}
    for body, dialect in ((b'{"diagnostics":{}}', "anthropic"), (b'{"a":1}', "gemini"), (b"[]", "anthropic")):
        assert asking_why(body, dialect, "m") == body
    assert why_missed({"diagnostics": {"cache_miss_reason": {"type": "tools_changed"}}}) == "tools_changed"
    assert why_missed({"prompt_cache_diagnostics": {"cache_miss": "prefix_changed"}}) == "prefix_changed"
    assert why_missed({"diagnostics": None}) == why_missed({}) == ""
