"""Values of chunks: forms that few servers use, and log probabilities."""

import json

import pytest

import manystream as ms
from manystream.providers.json.json_values import JSON, MAX_VALUES
from tests.providers.openai.chat.wire import Outcome, answer, decode, deltas, run


def plain(blocks: list[ms.Block]) -> list[object]:
    """Return the content of blocks, without the state that is sent back to the server."""
    content: list[object] = []
    for block in blocks:
        assert isinstance(block, ms.Text | ms.Thinking | ms.ToolCall)
        content.append((block.name, block.arguments) if isinstance(block, ms.ToolCall) else (type(block), block.text))
    return content


def thinking(text: JSON, member: str = "thinking") -> ms.JSONObject:
    return {"type": "thinking", member: text}


def words(*texts: str) -> list[JSON]:
    return [{"type": "text", "text": text} for text in texts]


PARTS: list[tuple[str, list[JSON], list[object]]] = [
    ("Mistral: a list of texts", [thinking(words("Hm", "m."))], [(ms.Thinking, "Hmm.")]),
    ("a text where the list is expected", [thinking("Hmm.")], [(ms.Thinking, "Hmm.")]),
    ("the text under `text`", [thinking("Hmm.", "text")], [(ms.Thinking, "Hmm.")]),
    ("`text` beside an empty list", [{"type": "thinking", "thinking": [], "text": "Hmm."}], [(ms.Thinking, "Hmm.")]),
    ("`thinking` goes before `text`", [{**thinking("Hmm."), "text": "not this"}], [(ms.Thinking, "Hmm.")]),
    ("Databricks: a summary", [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hmm."}]}],
        [(ms.Thinking, "Hmm.")]),
    ("two thinking parts in a row", [thinking("One. "), thinking("Two.")], [(ms.Thinking, "One. Two.")]),
    ("two thinking parts with text between", [thinking("One."), {"type": "text", "text": "a"}, thinking("Two."),
        {"type": "text", "text": "b"}], [(ms.Thinking, "One."), (ms.Text, "a"), (ms.Thinking, "Two."), (ms.Text, "b")]),
    ("a thinking part without text", [thinking([]), {"type": "text", "text": "a"}], [(ms.Text, "a")]),
    ("what is no text in the list", [thinking([7, None, {"type": "text"}, *words("Hmm.")])], [(ms.Thinking, "Hmm.")]),
    ("output_text, as in Responses", [{"type": "output_text", "text": "a"}], [(ms.Text, "a")]),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "expected"), [case[1:] for case in PARTS], ids=[case[0] for case in PARTS])
def test_parts_of_the_content_are_read(parts: list[JSON], expected: list[object]) -> None:
    whole = answer({"content": parts})
    assert plain(whole.content) == expected
    assert whole.finish_reason is ms.FinishReason.STOP
    streamed = deltas({"content": parts})
    assert plain(streamed.response.content) == expected
    one_by_one = deltas(*({"content": [part]} for part in parts))
    assert plain(one_by_one.response.content) == expected
    deltas_of = [event for event in streamed.events if isinstance(event, ms.TextDelta | ms.ThinkingDelta)]
    assert "".join(event.text for event in deltas_of) == "".join(text for _, text in expected)  # type: ignore[misc]


EMPTY_CALLS: list[JSON] = [
    {}, {"name": "", "arguments": ""}, {"name": None, "arguments": None}, {"arguments": ""}, None,
]  # fmt: skip


@pytest.mark.parametrize("call", EMPTY_CALLS, ids=repr)
def test_an_empty_function_call_is_no_call(call: JSON) -> None:
    whole = answer({"content": "a", "function_call": call})
    assert whole.content == [ms.Text("a")]
    assert whole.finish_reason is ms.FinishReason.STOP
    streamed = deltas({"content": "a", "function_call": call}, {"function_call": call})
    assert streamed.response.content == [ms.Text("a")]
    assert streamed.done.finish_reason is ms.FinishReason.STOP
    assert not [event for event in streamed.events if isinstance(event, ms.ToolCallStart)]


def test_a_function_call_without_arguments_is_a_call() -> None:
    whole = answer({"content": None, "function_call": {"name": "look"}}, "function_call")
    assert plain(whole.content) == [("look", "")]
    assert whole.tool_calls[0].parsed == {}
    streamed = deltas({"function_call": {"name": "look"}}, finish="function_call")
    assert plain(streamed.response.content) == [("look", "")]
    assert streamed.done.finish_reason is ms.FinishReason.TOOL_USE


def test_arguments_may_be_the_object_itself() -> None:
    call: ms.JSONObject = {"name": "look", "arguments": {"at": [1, None]}}
    assert plain(answer({"function_call": call}, "function_call").content) == [("look", '{"at":[1,null]}')]


def stream(*choices: ms.JSONObject) -> Outcome:
    chunks: list[ms.JSONObject] = [{"id": "c", "model": "m", "choices": [{"index": 0, **choice}]} for choice in choices]
    return run([*(("", json.dumps(chunk).encode()) for chunk in chunks), ("", b"[DONE]")])


def test_a_number_per_chunk_becomes_a_list() -> None:
    numbers: list[JSON] = [-0.25, 0, -1.5, -2.75, 0.0]
    choices: list[ms.JSONObject] = [
        {"delta": {"content": text}, "logprobs": number, "finish_reason": None}
        for text, number in zip("abcde", numbers, strict=True)
    ]
    response = stream(*choices, {"delta": {}, "logprobs": None, "finish_reason": "stop"}).response
    assert response.text == "abcde"
    assert response.provider_data["logprobs"] == {"token_logprobs": numbers}


def test_top_log_probabilities_of_all_chunks_are_kept() -> None:
    choices: list[ms.JSONObject] = [
        {"delta": {"content": text}, "logprobs": -0.5, "top_logprobs": {text: -0.5}, "finish_reason": None}
        for text in "abc"
    ]
    response = stream(*choices, {"delta": {}, "finish_reason": "eos"}).response
    assert response.provider_data["logprobs"] == {
        "token_logprobs": [-0.5, -0.5, -0.5],
        "top_logprobs": [{"a": -0.5}, {"b": -0.5}, {"c": -0.5}],
    }


def test_an_unstreamed_answer_has_the_lists_as_received() -> None:
    logprobs: ms.JSONObject = {"tokens": ["a"], "token_ids": [7], "token_logprobs": [-0.5]}
    choice: ms.JSONObject = {"index": 0, "message": {"content": "a"}, "logprobs": logprobs, "finish_reason": "eos"}
    assert decode({"choices": [choice]}).provider_data["logprobs"] == logprobs


def test_a_long_stream_may_have_more_values_than_one_body() -> None:
    """20,000 tokens, each with 20 alternatives and their bytes, have more than the most values of one JSON text."""
    entry: ms.JSONObject = {"token": "a", "logprob": -0.5, "bytes": [97] * 12_000, "top_logprobs": []}
    choice: ms.JSONObject = {"delta": {"content": "a"}, "logprobs": {"content": [entry]}, "finish_reason": None}
    count = MAX_VALUES // 12_000 + 2
    outcome = stream(*[choice] * count, {"delta": {}, "finish_reason": "stop"})
    assert outcome.done.finish_reason is ms.FinishReason.STOP
    logprobs = outcome.response.provider_data["logprobs"]
    assert isinstance(logprobs, dict)
    assert logprobs["content"] == [entry] * count
    assert outcome.response.tokens is not None
    assert len(outcome.response.tokens.logprobs or ()) == count
