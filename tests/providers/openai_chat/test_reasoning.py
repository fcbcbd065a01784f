"""Reasoning in an answer: read once, whichever members repeat it, and kept in the form that has to go back."""

from __future__ import annotations

import pytest

from manystream.providers.events import ThinkingDelta
from manystream.providers.json_values import JSONObject
from manystream.providers.messages import Message, ProviderState, Text, Thinking, ToolCall
from manystream.providers.request import Request

from .wire import Told, answer, deltas, encode, known


def details_of(told: Told) -> object:
    (block,) = [block for block in told.response.content if isinstance(block, Thinking)]
    assert block.state is not None
    return block.state.data.get("reasoning_details")


@pytest.mark.parametrize("member", ["reasoning_content", "reasoning", "reasoning_text"])
def test_each_member(member: str) -> None:
    told = deltas({member: "Hm", "content": ""}, {member: "m.", "content": None}, {"content": "So."})
    state = ProviderState("openai-compatible", {"reasoning_member": member})
    assert told.response.content == [Thinking("Hmm.", state=state), Text("So.")]
    assert answer({member: "Hmm.", "content": "So."}).content == told.response.content


def test_the_same_text_under_several_names_is_read_once() -> None:
    detail = {"type": "reasoning.text", "text": "Hm", "index": 0}
    told = deltas(
        {"reasoning_content": "Hm", "reasoning": "Hm", "reasoning_details": [detail]},
        {"reasoning": "m.", "reasoning_content": "m.", "reasoning_details": [detail | {"text": "m."}]},
        {"reasoning_details": [detail | {"text": "Hmm.", "signature": "s"}]},
    )
    assert told.events[1:-1] == [ThinkingDelta(0, "Hm"), ThinkingDelta(0, "m.")]
    assert told.response.thinking == "Hmm."


def test_details_alone_are_read() -> None:
    told = deltas(
        {"content": "", "reasoning_details": [{"type": "reasoning.text", "text": "Hm", "index": 0, "id": "r"}]},
        {"content": "", "reasoning_details": [{"type": "reasoning.text", "text": "m.", "index": 0, "id": "r"}]},
        {"content": "So."},
    )
    assert (told.response.thinking, told.response.text) == ("Hmm.", "So.")
    assert details_of(told) == [{"type": "reasoning.text", "text": "Hmm.", "index": 0, "id": "r"}]


def test_fragments_of_details_are_joined_and_their_signature_kept() -> None:
    head: JSONObject = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1", "signature": None}
    told = deltas(
        {"reasoning": "a", "reasoning_details": [{**head, "text": "a"}]},
        {"reasoning": "b", "reasoning_details": [{**head, "text": "b"}]},
        {"reasoning": None, "reasoning_details": [{**head, "text": None, "signature": "sig"}]},
    )
    assert details_of(told) == [{**head, "text": "ab", "signature": "sig"}]
    assert told.response.thinking == "ab"


def test_encrypted_details_are_kept_whole_beside_summaries() -> None:
    told = deltas(
        {"reasoning": "a", "reasoning_details": [{"type": "reasoning.summary", "summary": "a", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "index": 0, "id": "rs_1"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "y", "index": 0, "id": "rs_2"}]},
        {"reasoning": "b", "reasoning_details": [{"type": "reasoning.summary", "summary": "b", "index": 0}, 5]},
    )
    assert details_of(told) == [
        {"type": "reasoning.summary", "summary": "ab", "index": 0},
        {"type": "reasoning.encrypted", "data": "x", "index": 0, "id": "rs_1"},
        {"type": "reasoning.encrypted", "data": "y", "index": 0, "id": "rs_2"},
    ]


def test_details_of_another_id_or_index_are_their_own() -> None:
    told = deltas(
        {"reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0, "id": "1"}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "b", "index": 1, "id": "2"}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "c", "index": 0, "id": "3"}]},
    )
    details = details_of(told)
    assert isinstance(details, list)
    assert len(details) == 3


def test_a_signature_without_text_has_a_block_without_text() -> None:
    encrypted: JSONObject = {"type": "reasoning.encrypted", "data": "x", "index": 0}
    told = deltas({"content": "So."}, {"content": "", "reasoning": None, "reasoning_details": [encrypted]})
    assert told.response.text == "So."
    assert details_of(told) == [encrypted]
    assert not [event for event in told.events if isinstance(event, ThinkingDelta)]


def test_a_late_signature_does_not_hide_the_call_that_was_cut_off() -> None:
    call: JSONObject = {"index": 0, "id": "a", "function": {"name": "t", "arguments": '{"x'}}
    encrypted: JSONObject = {"type": "reasoning.encrypted", "data": "x", "index": 0}
    told = deltas({"tool_calls": [call]}, {"reasoning_details": [encrypted]}, finish="length")
    assert not told.response.tool_calls[0].complete


def test_an_object_around_the_text() -> None:
    assert answer({"reasoning": {"content": "Hmm."}, "content": "So."}).thinking == "Hmm."
    assert answer({"reasoning": {"text": "Hmm."}, "content": "So."}).thinking == "Hmm."
    assert answer({"reasoning": ["Hmm."], "reasoning_details": "?", "content": "So."}).thinking == ""


@pytest.mark.parametrize("name", ["openrouter", "deepseek", "groq", "mistral", "fireworks"])
def test_what_came_goes_back(name: str) -> None:
    """An answer with reasoning and a call, put into the next request to the same provider, has its reasoning again."""
    provider = known(name)
    members: dict[str, JSONObject] = {
        "openrouter": {
            "reasoning": "Hmm.",
            "reasoning_details": [{"type": "reasoning.text", "text": "Hmm.", "signature": "s", "index": 0}],
        },
        "deepseek": {"reasoning_content": "Hmm."},
        "groq": {"reasoning": "Hmm."},
        "fireworks": {"reasoning_content": "Hmm."},
        "mistral": {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hmm."}]}]},
    }
    call: JSONObject = {"index": 0, "id": "abcdefghi", "function": {"name": "t", "arguments": "{}"}}
    told = deltas(members[name], {"tool_calls": [call]}, finish="tool_calls", provider=provider)
    history = [Message.user("hi"), told.response.to_message(), Message.tool_result("abcdefghi", "ok")]
    sent = encode(Request("m", history), provider)["messages"][1]  # type: ignore[index]
    expected = dict(members[name])
    if name == "openrouter":
        del expected["reasoning"]  # the signed details hold the text, too
    assert {key: value for key, value in sent.items() if key in expected} == expected
    assert isinstance(told.response.content[-1], ToolCall)


@pytest.mark.parametrize(
    ("text", "state", "member"),
    [
        ("Hmm.", {"reasoning_member": "reasoning"}, "reasoning"),
        ("Hmm.", {"reasoning_member": "reasoning_content"}, "reasoning_content"),
        ("", {"reasoning_member": "reasoning_content"}, None),
        ("Hmm.", {"reasoning_member": "content"}, None),
        ("Hmm.", {"reasoning_member": ["reasoning"]}, None),
        ("Hmm.", {}, None),
    ],
)
def test_reasoning_goes_back_under_the_name_it_came_by(text: str, state: JSONObject, member: str | None) -> None:
    provider = known("fireworks")
    thought = Thinking(text, state=ProviderState("fireworks", state))
    history = [
        Message.user("hi"),
        Message.assistant([thought, ToolCall("abcdefghi", "t", "{}")]),
        Message.tool_result("abcdefghi", "ok"),
    ]
    sent = encode(Request("m", history), provider)["messages"][1]  # type: ignore[index]
    assert {name: value for name, value in sent.items() if name not in ("role", "content", "tool_calls")} == (
        {} if member is None else {member: text}
    )
