"""The conversation as steps."""

from __future__ import annotations

from typing import Any

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from tests.providers.gemini_interactions.test_request import HELLO, MODEL
from tests.providers.gemini_interactions.wire import (
    MAKER,
    TAG,
    decode,
    interaction,
    sent,
    text,
    warned,
)


def said(*blocks: ms.Block) -> list[ms.Message]:
    return [*HELLO, ms.Message(ms.Role.ASSISTANT, list(blocks)), ms.Message(ms.Role.USER, [ms.Text("Go on.")])]


def steps(*blocks: ms.Block) -> Any:
    """Return the steps of an assistant's message, without those of the user's around it."""
    return sent(ms.Request(MODEL, said(*blocks)))["input"][1:-1]


def test_calls_and_their_results_are_steps_in_order() -> None:
    history = [
        *HELLO,
        ms.Message(
            ms.Role.ASSISTANT,
            [
                ms.Thinking("hm", "s", state=TAG),
                ms.Text("Two."),
                ms.ToolCall("a", "look", '{"n": 1}', state=ms.ProviderState(MAKER, {"signature": "t"})),
                ms.ToolCall("b", "look", "no JSON"),
                ms.ToolCall("c", "look", "{}"),
            ],
        ),
        ms.Message(
            ms.Role.TOOL, [ms.ToolResult("b", "no", is_error=True), ms.ToolResult("a", "yes"), ms.ToolResult("x", "?")]
        ),
        ms.Message(ms.Role.USER, [ms.Text("Well?")]),
    ]
    assert sent(ms.Request(MODEL, history))["input"] == [
        {"type": "user_input", "content": [text("Hello")]},
        {"type": "thought", "signature": "s", "summary": [text("hm")]},
        {"type": "model_output", "content": [text("Two.")]},
        {"type": "function_call", "id": "a", "name": "look", "arguments": {"n": 1}, "signature": "t"},
        {"type": "function_call", "id": "b", "name": "look", "arguments": {"arguments": "no JSON"}},
        {"type": "function_result", "call_id": "a", "name": "look", "result": "yes"},
        {"type": "function_result", "call_id": "b", "name": "look", "result": "no", "is_error": True},
        {"type": "user_input", "content": [text("Well?")]},
    ]
    assert len(warned(ms.Request(MODEL, history))) == 3  # the arguments, the call and the result that stand alone


ANSWER: list[dict[str, Any]] = [
    {"type": "thought", "signature": "s1", "summary": [text("a"),
        {"type": "image", "mime_type": "image/png", "data": "AA=="}]},
    {"type": "google_search_call", "id": "g", "arguments": {"queries": ["q"], "n": 12345678901234567890},
        "signature": "s2"},
    {"type": "google_search_result", "call_id": "g", "result": [{"url": "u"}], "signature": "s3"},
    {"type": "memory_write", "key": "k"},
    {"type": "model_output", "content": [{**text("a"), "annotations": [{"type": "url_citation", "url": "u"}]},
        {"type": "image", "data": "AAEC", "mime_type": "image/png"}]},
    {"type": "thought", "signature": "s4"},
    {"type": "function_call", "id": "f1", "name": "list_files", "arguments": {}, "signature": "s5"},
    {"type": "function_result", "call_id": "f1", "result": [text("a.txt")]},
]  # fmt: skip


def test_an_answer_is_sent_back_to_its_maker_as_it_came() -> None:
    response = decode(interaction("completed", steps=ANSWER))
    assert steps(*response.content) == ANSWER
    assert warned(ms.Request(MODEL, said(*response.content))) == []


def test_thoughts_and_signatures_of_others_are_not_sent() -> None:
    foreign = ms.ProviderState("google", {"thoughtSignature": "s"})
    blocks: list[ms.Block] = [
        ms.Thinking("a", "s", state=foreign),
        ms.Thinking("b", "sig"),
        ms.ProviderBlock("google", {"executableCode": {}}),
        ms.Text("c", citations=[{"type": "char_location"}], state=foreign),
    ]
    assert steps(*blocks) == [{"type": "model_output", "content": [text("c")]}]
    assert len(warned(ms.Request(MODEL, said(*blocks)))) == 2
    own = decode(interaction("completed", steps=ANSWER)).content
    other = ms.Gemini("k")
    dialect = ms.Request("gemini-2.5-flash", said(*own))
    body = DIALECTS["gemini"].encode(dialect, dialect.model, other, stream=False).body
    assert not [mark for mark in (b"s1", b"s2", b"s3", b"s4", b"s5") if b'"%b"' % mark in body]


def test_thinking_that_nobody_signed_is_sent() -> None:
    assert steps(ms.Thinking("hm"), ms.Text("a"))[0] == {"type": "thought", "summary": [text("hm")]}


def test_a_conversation_begun_by_the_assistant_gets_an_opening() -> None:
    request = ms.Request(MODEL, [ms.Message(ms.Role.ASSISTANT, [ms.Text("Hi")]), *HELLO])
    assert [step["type"] for step in sent(request)["input"]] == ["user_input", "model_output", "user_input"]
    assert "begin with the assistant" in warned(request)[0]
