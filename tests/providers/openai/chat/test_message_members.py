"""Content that a server sends twice, in two members, is read once."""

import json
from typing import Any

import pytest

import manystream as ms
from manystream.providers.openai.chat.converter import ChatConverter
from tests.providers.openai.chat.wire import answer, run

FUNCTION = {"name": "pay", "arguments": '{"sum":1}'}

CALL = {"index": 0, "id": "c", "type": "function", "function": FUNCTION}

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}}

THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}


def stream(*deltas: Any, finish: str = "stop") -> Any:
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})  # type: ignore[dict-item]
    return run([*(("", json.dumps(chunk).encode()) for chunk in chunks), ("", b"[DONE]")])


def piece(text: str, **names: str) -> Any:
    """Return a fragment of the call in both of its members, as llama-cpp-python streams it."""
    function = {**names, "arguments": text}
    return {
        "tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function}],
        "function_call": function,
    }


@pytest.mark.parametrize("first", ["tool_calls", "function_call"])
def test_a_call_and_its_legacy_mirror_are_one_call(first: str) -> None:
    message = {"content": None, "tool_calls": [CALL], "function_call": FUNCTION}
    message = {first: message[first], **message}
    response = answer(message, "tool_calls")
    assert [(call.id, call.name, call.arguments) for call in response.tool_calls] == [("c", "pay", '{"sum":1}')]


def test_fragments_and_their_legacy_mirror_are_one_call() -> None:
    outcome = stream(piece("", name="pay"), piece('{"sum"'), piece(":1}"), finish="tool_calls")
    assert outcome.calls == [("c", "pay", '{"sum":1}')]
    assert outcome.done.finish_reason is ms.FinishReason.TOOL_USE


def test_a_mirror_in_a_separate_chunk_is_no_second_call() -> None:
    outcome = stream({"tool_calls": [CALL]}, {"function_call": FUNCTION}, finish="tool_calls")
    assert outcome.calls == [("c", "pay", '{"sum":1}')]


def test_the_legacy_member_is_read_without_tool_calls() -> None:
    for nothing in (None, []):
        response = answer({"tool_calls": nothing, "function_call": FUNCTION}, "function_call")
        assert [(call.name, call.arguments) for call in response.tool_calls] == [("pay", '{"sum":1}')]


def test_a_history_with_the_mirror_has_one_call() -> None:
    wire = [{"role": "assistant", "content": None, "tool_calls": [CALL], "function_call": FUNCTION}]
    (message,) = ChatConverter().decode_messages(wire)
    assert [call.name for call in message.tool_calls] == ["pay"]


MIRRORED: list[dict[str, Any]] = [
    {"reasoning_content": "Hm.", "reasoning": "Hm."},
    {"reasoning": "Hm.", "reasoning_text": "Hm."},
    {"reasoning": "Hm.", "reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]},
    {"reasoning_content": "Hm.", "content": [THOUGHT]},
    {"content": [THOUGHT], "reasoning_details": [{"type": "reasoning.summary", "summary": "Hm."}]},
]


@pytest.mark.parametrize("mirrored", MIRRORED, ids=lambda members: "+".join(members))
def test_mirrored_thinking_is_delivered_once(mirrored: dict[str, Any]) -> None:
    assert answer(mirrored, "stop").thinking == "Hm."
    outcome = stream(mirrored, mirrored)
    assert outcome.response.thinking == "Hm.Hm."
    one_by_one = stream(*({name: value} for _ in range(2) for name, value in mirrored.items()))
    assert one_by_one.response.thinking == "Hm.Hm."


def test_a_mirrored_refusal_is_read_once() -> None:
    part = {"type": "refusal", "refusal": "No."}
    assert answer({"content": [part], "refusal": "No."}, "stop").refusal == "No."
    assert stream({"refusal": "N"}, {"refusal": "o."}).response.refusal == "No."


def test_a_refusal_beside_the_same_content_is_not_added_to_it() -> None:
    response = answer({"content": "No.", "refusal": "No."}, "stop")
    assert (response.text, response.refusal) == ("No.", "No.")


def test_a_picture_is_kept_once() -> None:
    response = answer({"content": [PICTURE], "images": [PICTURE]}, "stop")
    assert response.content == [ms.Image(data=b"\0\1\2", media_type="image/png")]
    both = stream({"images": [PICTURE]}, {"images": [PICTURE]}).response.content
    assert len(both) == 2


def test_the_other_choices_are_read_by_the_same_rule() -> None:
    chunk = {"index": 1, "delta": {"content": [THOUGHT], "tool_calls": [CALL], "function_call": FUNCTION}}
    first = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}
    outcome = run([("", json.dumps({"choices": [first, chunk]}).encode()), ("", b"[DONE]")])
    (other,) = outcome.response.others
    assert other.thinking == "Hm."
    assert len(other.tool_calls) == 1
