"""Answers of other forms than the API's: they are read, or they are an error with the server's bytes."""

from __future__ import annotations

import pytest

from manystream.providers.errors import ErrorCategory, ProviderError
from manystream.providers.history import HistoryError
from manystream.providers.json.json_values import JSON, JSONObject
from manystream.providers.model.events import FinishReason
from manystream.providers.model.messages import Text, Thinking, ToolCall
from manystream.providers.openai.responses.converter import ResponsesConverter
from tests.providers.openai_responses.wire import decode, stream_of

NAMELESS = "1 tool call(s) that never got a name were dropped"


def completed(output: JSON, **members: JSON) -> JSONObject:
    return {"id": "r", "model": "m", "status": "completed", "output": output, **members}


def item_done(item: JSONObject) -> JSONObject:
    return {"type": "response.output_item.done", "output_index": 0, "item": item}


UNREADABLE: dict[str, tuple[JSON, str]] = {
    "a text": ("hello", "the output is no array"),
    "an object": ({"type": "message", "content": "hello"}, "the output is no array"),
    "texts": (["hello"], "the output contains a value that is no item"),
    "lists": ([[{"type": "message", "content": "hello"}]], "the output contains a value that is no item"),
}


@pytest.mark.parametrize(("output", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_output_that_cannot_be_read_is_an_error(output: JSON, reason: str) -> None:
    with pytest.raises(ProviderError, match=reason) as raised:
        decode(completed(output))
    assert raised.value.category is ErrorCategory.SERVER
    answer = stream_of({"type": "response.completed", "response": completed(output)})
    assert answer.error.error.message.startswith(f"{reason}: ")


@pytest.mark.parametrize("output", [None, "", {}, [], [None, 3]], ids=str)
def test_output_without_content_is_empty(output: JSON) -> None:
    assert decode(completed(output)).content == []


def test_a_text_instead_of_a_part_is_read() -> None:
    item: JSONObject = {"type": "message", "content": ["One ", {"type": "output_text", "text": "two"}]}
    assert decode(completed([item])).content == [Text("One "), Text("two")]
    assert stream_of(item_done(item), {"type": "response.completed"}).response.text == "One two"


def test_the_text_of_a_response_without_items_is_read() -> None:
    assert decode(completed([], output_text="hello")).content == [Text("hello")]
    assert decode(completed(None, output_text="hello")).content == [Text("hello")]
    message: JSONObject = {"type": "message", "content": [{"type": "output_text", "text": "hello"}]}
    assert decode(completed([message], output_text="hello")).content == [Text("hello")]
    final: JSONObject = {"type": "response.completed", "response": completed([], output_text="hello")}
    assert stream_of(item_done(message), final).response.content == [Text("hello")]


@pytest.mark.parametrize("member", ["summary", "content"])
@pytest.mark.parametrize("value", ["Hm.", ["Hm."], [{"text": "H"}, "m."]], ids=str)
def test_reasoning_in_plain_text_is_read(member: str, value: JSON) -> None:
    item: JSONObject = {"type": "reasoning", "id": "rs", member: value}
    for response in (
        decode(completed([item])),
        stream_of(item_done(item), {"type": "response.completed", "response": completed([item])}).response,
    ):
        (block,) = response.content
        assert isinstance(block, Thinking)
        assert block.text == "Hm."


@pytest.mark.parametrize(
    ("sent", "arguments"),
    [
        ([{"n": 1.50}], '[{"n":1.5}]'),
        ({"n": 2**70}, '{"n":1180591620717411303424}'),
        ([], "{}"),
        ({}, "{}"),
        (None, ""),
    ],
)
def test_arguments_that_are_no_text_are_not_lost(sent: JSON, arguments: str) -> None:
    item: JSONObject = {"type": "function_call", "call_id": "c", "name": "f", "arguments": sent}
    assert decode(completed([item])).content == [ToolCall("c", "f", arguments)]
    assert stream_of(item_done(item), {"type": "response.completed"}).response.content == [
        ToolCall("c", "f", arguments)
    ]


@pytest.mark.parametrize(
    "members", [{"arguments": "{}"}, {"function": {"name": "f", "arguments": "{}"}}], ids=["no name", "chat's form"]
)
def test_a_call_without_a_name_has_a_warning(members: JSONObject) -> None:
    item: JSONObject = {"type": "function_call", "id": "fc", "call_id": "c", **members}
    response = decode(completed([item]))
    assert (response.content, response.finish_reason, response.warnings) == ([], FinishReason.STOP, [NAMELESS])
    with pytest.raises(HistoryError, match=NAMELESS.replace("(", "[(]").replace(")", "[)]")):
        ResponsesConverter().decode_messages([item])


def test_arguments_without_their_call_have_a_warning() -> None:
    arguments: list[JSONObject] = [
        {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc", "delta": "{}"},
        {"type": "response.function_call_arguments.done", "output_index": 0, "item_id": "fc", "arguments": "{}"},
    ]
    item: JSONObject = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}

    def answer(*output: JSON) -> JSONObject:
        return {"type": "response.completed", "response": completed([*output])}

    assert stream_of(*arguments, answer()).response.warnings == [NAMELESS]
    for response in (
        stream_of(*arguments, answer(item)).response,
        stream_of(*arguments, item_done(item), answer()).response,
    ):
        assert (response.content, response.warnings) == ([ToolCall("c", "f", "{}")], [])


def test_an_error_beside_a_completed_status_is_kept() -> None:
    error: JSONObject = {"code": "odd", "message": "Not all of it."}
    response = decode(completed([{"type": "message", "content": "a"}], error=error))
    assert (response.text, response.provider_data["error"]) == ("a", error)
