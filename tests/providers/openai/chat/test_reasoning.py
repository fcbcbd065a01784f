"""Reasoning in an answer: read once, even if several members repeat it, and kept in the form to send back."""

from __future__ import annotations

import pytest

import manystream as ms

from .wire import Outcome, decode, deltas, encode, known


def details_of(outcome: Outcome) -> object:
    (block,) = [block for block in outcome.response.content if isinstance(block, ms.Thinking)]
    return block.state.data.get("reasoning_details")


def test_the_same_text_under_several_names_is_read_once() -> None:
    detail = {"type": "reasoning.text", "text": "Hm", "index": 0}
    outcome = deltas(
        {"reasoning_content": "Hm", "reasoning": "Hm", "reasoning_details": [detail]},
        {"reasoning": "m.", "reasoning_content": "m.", "reasoning_details": [detail | {"text": "m."}]},
        {"reasoning_details": [detail | {"text": "Hmm.", "signature": "s"}]},
    )
    assert outcome.events[1:-1] == [ms.ThinkingDelta(0, "Hm"), ms.ThinkingDelta(0, "m.")]
    assert outcome.response.thinking == "Hmm."


def test_details_alone_are_read() -> None:
    outcome = deltas(
        {"content": "", "reasoning_details": [{"type": "reasoning.text", "text": "Hm", "index": 0, "id": "r"}]},
        {"content": "", "reasoning_details": [{"type": "reasoning.text", "text": "m.", "index": 0, "id": "r"}]},
        {"content": "So."},
    )
    assert (outcome.response.thinking, outcome.response.text) == ("Hmm.", "So.")
    assert details_of(outcome) == [{"type": "reasoning.text", "text": "Hmm.", "index": 0, "id": "r"}]


def test_fragments_of_details_are_joined() -> None:
    head: ms.JSONObject = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1", "signature": None}
    outcome = deltas(
        {"reasoning": "a", "reasoning_details": [{**head, "text": "a"}]},
        {"reasoning": "b", "reasoning_details": [{**head, "text": "b"}]},
        {"reasoning": None, "reasoning_details": [{**head, "text": None, "signature": "sig"}]},
    )
    assert details_of(outcome) == [{**head, "text": "ab", "signature": "sig"}]
    assert outcome.response.thinking == "ab"


def test_encrypted_details_are_kept_whole_beside_summaries() -> None:
    outcome = deltas(
        {"reasoning": "a", "reasoning_details": [{"type": "reasoning.summary", "summary": "a", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "index": 0, "id": "rs_1"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "y", "index": 0, "id": "rs_2"}]},
        {"reasoning": "b", "reasoning_details": [{"type": "reasoning.summary", "summary": "b", "index": 0}, 5]},
    )
    assert details_of(outcome) == [
        {"type": "reasoning.summary", "summary": "ab", "index": 0},
        {"type": "reasoning.encrypted", "data": "x", "index": 0, "id": "rs_1"},
        {"type": "reasoning.encrypted", "data": "y", "index": 0, "id": "rs_2"},
    ]


def test_details_of_another_id_or_index_are_their_own() -> None:
    outcome = deltas(
        {"reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0, "id": "1"}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "b", "index": 1, "id": "2"}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "c", "index": 0, "id": "3"}]},
    )
    details = details_of(outcome)
    assert isinstance(details, list)
    assert len(details) == 3


def test_a_late_signature_does_not_hide_a_cut_off_call() -> None:
    call: ms.JSONObject = {"index": 0, "id": "a", "function": {"name": "t", "arguments": '{"x'}}
    encrypted: ms.JSONObject = {"type": "reasoning.encrypted", "data": "x", "index": 0}
    outcome = deltas({"tool_calls": [call]}, {"reasoning_details": [encrypted]}, finish="length")
    assert not outcome.response.tool_calls[0].complete


@pytest.mark.parametrize("name", ["openrouter", "deepseek", "groq", "mistral", "fireworks"])
def test_reasoning_is_sent_back_as_received(name: str) -> None:
    """Reasoning of an answer with a call is in the next request to the same provider."""
    provider = known(name)
    members: dict[str, ms.JSONObject] = {
        "openrouter": {
            "reasoning": "Hmm.",
            "reasoning_details": [{"type": "reasoning.text", "text": "Hmm.", "signature": "s", "index": 0}],
        },
        "deepseek": {"reasoning_content": "Hmm."},
        "groq": {"reasoning": "Hmm."},
        "fireworks": {"reasoning_content": "Hmm."},
        "mistral": {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hmm."}]}]},
    }
    call: ms.JSONObject = {"index": 0, "id": "abcdefghi", "function": {"name": "t", "arguments": "{}"}}
    outcome = deltas(members[name], {"tool_calls": [call]}, finish="tool_calls", provider=provider)
    history = [ms.Message.user("hi"), outcome.response.to_message(), ms.Message.tool_result("abcdefghi", "ok")]
    sent = encode(ms.Request("m", history), provider)["messages"][1]  # type: ignore[index]
    expected = dict(members[name])
    if name == "openrouter":
        del expected["reasoning"]  # the signed details have the text as well
    assert {key: value for key, value in sent.items() if key in expected} == expected
    assert isinstance(outcome.response.content[-1], ms.ToolCall)


def whole(content: list[ms.JSON]) -> ms.Response:
    message: ms.JSONObject = {"role": "assistant", "content": content}
    return decode({"model": "m", "choices": [{"message": message, "finish_reason": "stop"}]}, known("mistral"))


def signed_part(text: str, signature: str) -> ms.JSONObject:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}], "signature": signature}


def test_a_signed_thinking_part_is_sent_back_with_its_signature() -> None:
    """Mistral's `ThinkChunk.signature`: a later turn replays the reasoning."""
    provider = known("mistral")
    content: list[ms.JSON] = [signed_part("Hmm.", "S1"), signed_part("Or?", "S2"), {"type": "text", "text": "So."}]
    response = whole(content)
    state = ms.ProviderState("mistral", {"reasoning_member": "content"})
    assert response.content == [ms.Thinking("Hmm.", "S1", state), ms.Thinking("Or?", "S2", state), ms.Text("So.")]
    history = [ms.Message.user("hi"), response.to_message(), ms.Message.user("more")]
    sent = encode(ms.Request("m", history), provider)["messages"][1]  # type: ignore[index]
    assert sent == {"role": "assistant", "content": content}


def test_a_signature_comes_after_the_streamed_thinking() -> None:
    pieces: list[ms.JSONObject] = [
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "m."}]}]},
        {"content": [{"type": "thinking", "thinking": [], "signature": "S1", "closed": True}]},
        {"content": "So."},
    ]
    expected = whole([signed_part("Hmm.", "S1"), {"type": "text", "text": "So."}])
    assert deltas(*pieces, provider=known("mistral")).response.content == expected.content


def test_a_signature_without_text_is_sent_back() -> None:
    provider = known("mistral")
    part: ms.JSONObject = {"type": "thinking", "thinking": [], "signature": "S1"}
    response = whole([part, {"type": "text", "text": "So."}])
    history = [ms.Message.user("hi"), response.to_message(), ms.Message.user("more")]
    sent = encode(ms.Request("m", history), provider)["messages"][1]  # type: ignore[index]
    assert sent == {"role": "assistant", "content": [part, {"type": "text", "text": "So."}]}
    other = encode(ms.Request("m", history), known("groq"))["messages"][1]  # type: ignore[index]
    assert other == {"role": "assistant", "content": "So."}
