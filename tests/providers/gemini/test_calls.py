"""Parts that are no text: calls, whole and in pieces; files; and what the server executes itself."""

from __future__ import annotations

from typing import Any

import pytest

import manystream as ms
from manystream.providers.gemini import DIALECT
from manystream.providers.gemini.stream import has_only_text
from manystream.providers.model.events import ToolCallDelta, ToolCallDone, ToolCallStart
from tests.providers.gemini.wire import (
    PROVIDER,
    Ids,
    decode,
    part_chunk,
    signed,
    stream,
    stream_text,
    text_chunk,
)


def test_parallel_calls_are_blocks_and_only_the_first_is_signed() -> None:
    answer = stream_text("""
        data: {"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"add","args":{"a":1,"b":2},"id":"w1"},"thoughtSignature":"c2ln"}]}}]}

        data: {"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"mul","args":{"a":3},"id":"w2"}}]}}]}

        data: {"candidates":[{"content":{"role":"model","parts":[{"text":""}]},"finishReason":"STOP"}]}
    """)  # noqa: E501
    assert answer.events[1:] == [
        ToolCallStart(0, "w1", "add"), ToolCallDelta(0, '{"a":1,"b":2}'), ToolCallDone(0),
        ToolCallStart(1, "w2", "mul"), ToolCallDelta(1, '{"a":3}'), ToolCallDone(1),
        ms.Done(ms.FinishReason.TOOL_USE, "STOP", ms.Usage()),
    ]  # fmt: skip
    assert answer.response.tool_calls == [
        ms.ToolCall("w1", "add", '{"a":1,"b":2}', state=signed("c2ln", id="w1")),
        ms.ToolCall("w2", "mul", '{"a":3}', state=ms.ProviderState("google", {"id": "w2"})),
    ]


def test_a_call_without_an_id_gets_a_made_id() -> None:
    answer = stream(
        part_chunk({"functionCall": {"name": "f"}}, {"functionCall": {"name": "f", "args": None}}, finish="STOP")
    )
    assert answer.response.tool_calls == [ms.ToolCall("id-1", "f", "{}"), ms.ToolCall("id-2", "f", "{}")]


def partial(*pieces: dict[str, Any], more: bool = True, **members: Any) -> dict[str, Any]:
    call = {**members, **({"partialArgs": list(pieces)} if pieces else {}), **({"willContinue": True} if more else {})}
    return part_chunk({"functionCall": call})


def test_streamed_arguments_are_delivered_as_they_grow() -> None:
    answer = stream(
        partial(name="weather"),
        partial({"jsonPath": "$.place", "stringValue": "Bos", "willContinue": True}),
        partial({"jsonPath": "$.place", "stringValue": 'ton "MA"', "willContinue": True}),
        partial({"jsonPath": "$.place", "stringValue": ""}),
        partial({"jsonPath": "$.days[0].n", "numberValue": 1}, {"jsonPath": "$.days[0].wet", "boolValue": True}),
        partial({"jsonPath": "$.days[1].n", "numberValue": 2.5}, {"jsonPath": "$.unit", "nullValue": "NULL_VALUE"}),
        partial(more=False),
        part_chunk({"text": ""}, finish="STOP"),
    )
    assert answer.events[1:] == [
        ToolCallStart(0, "id-1", "weather"), ToolCallDelta(0, '{"place":"Bos'), ToolCallDelta(0, 'ton \\"MA\\"'),
        ToolCallDelta(0, '"'), ToolCallDelta(0, ',"days":[{"n":1'), ToolCallDelta(0, ',"wet":true'),
        ToolCallDelta(0, '},{"n":2.5'), ToolCallDelta(0, '}],"unit":null'), ToolCallDelta(0, "}"), ToolCallDone(0),
        ms.Done(ms.FinishReason.TOOL_USE, "STOP", ms.Usage()),
    ]  # fmt: skip
    assert answer.response.tool_calls[0].parsed == {
        "place": 'Boston "MA"',
        "days": [{"n": 1, "wet": True}, {"n": 2.5}],
        "unit": None,
    }


def test_streamed_calls_without_arguments_and_calls_in_a_row() -> None:
    answer = stream(
        part_chunk({"functionCall": {"name": "now"}, "thoughtSignature": "s"}), partial(name="read"),
        partial({"jsonPath": "$.id", "stringValue": "A"}), partial(more=False), partial(name="read"), partial(),
        partial(more=False), part_chunk({"text": ""}, finish="STOP"),
    )  # fmt: skip
    assert [(call.name, call.arguments, call.complete) for call in answer.response.tool_calls] == [
        ("now", "{}", True),
        ("read", '{"id":"A"}', True),
        ("read", "{}", True),
    ]


def test_a_new_name_ends_the_call_before_it() -> None:
    answer = stream(
        partial(name="a"), partial({"jsonPath": "$.x", "stringValue": "1", "willContinue": True}), partial(name="b"),
        part_chunk(finish="STOP"),
    )  # fmt: skip
    assert [(call.name, call.arguments, call.complete) for call in answer.response.tool_calls] == [
        ("a", '{"x":"1"}', True),
        ("b", "{}", True),
    ]


def test_a_repeated_name_beside_arguments_continues_the_call() -> None:
    answer = stream(
        partial({"jsonPath": "$.x", "stringValue": "1"}, name="a"),
        partial({"jsonPath": "$.y", "stringValue": "2"}, name="a", more=False),
        part_chunk(finish="STOP"),
    )
    assert [call.arguments for call in answer.response.tool_calls] == ['{"x":"1","y":"2"}']


def test_calls_with_ids_may_be_streamed_at_the_same_time() -> None:
    answer = stream(
        partial(name="a", id="1"),
        partial(name="b", id="2"),
        partial({"jsonPath": "$.x", "stringValue": "one", "willContinue": True}, id="1"),
        partial({"jsonPath": "$.y", "numberValue": 2}, id="2"),
        partial({"jsonPath": "$.x", "stringValue": "!"}, id="1", more=False),
        partial(id="2", more=False),
        part_chunk(finish="STOP"),
    )
    assert [(call.id, call.name, call.arguments) for call in answer.response.tool_calls] == [
        ("1", "a", '{"x":"one!"}'),
        ("2", "b", '{"y":2}'),
    ]
    assert [event.index for event in answer.events if isinstance(event, ToolCallDone)] == [0, 1]


def test_a_repeated_name_with_another_id_is_another_call() -> None:
    answer = stream(
        partial({"jsonPath": "$.x", "stringValue": "1"}, name="a", id="1"),
        partial({"jsonPath": "$.x", "stringValue": "2"}, name="a", id="2", more=False),
        part_chunk(finish="STOP"),
    )
    calls = [(call.id, call.arguments) for call in answer.response.tool_calls]
    assert calls == [("1", '{"x":"1"}'), ("2", '{"x":"2"}')]


def test_a_call_that_repeats_its_name_and_id_at_its_end_is_one() -> None:
    answer = stream(
        partial(name="a", id="1"), partial({"jsonPath": "$.x", "stringValue": "1"}, name="a", id="1"),
        partial(name="a", id="1", more=False), part_chunk(finish="STOP"),
    )  # fmt: skip
    assert [(call.id, call.arguments) for call in answer.response.tool_calls] == [("1", '{"x":"1"}')]


def test_a_piece_of_a_call_that_has_ended_goes_to_no_other_call() -> None:
    late: dict[str, Any] = {"id": "1", "partialArgs": [{"jsonPath": "$.z", "numberValue": 3}]}
    answer = stream(
        part_chunk({"functionCall": {"name": "a", "id": "1", "args": {"x": 1}}}), partial(name="b", id="2"),
        part_chunk({"functionCall": late}), partial({"jsonPath": "$.y", "numberValue": 2}, more=False),
        part_chunk(finish="STOP"),
    )  # fmt: skip
    assert [(call.id, call.arguments) for call in answer.response.tool_calls] == [("1", '{"x":1}'), ("2", '{"y":2}')]
    assert answer.response.content[-1] == ms.ProviderBlock("google", {"functionCall": late})


@pytest.mark.parametrize("more", [{"willContinue": False}, {"willContinue": True}, {}], ids=str)
def test_whole_arguments_beside_an_empty_list_are_read(more: dict[str, Any]) -> None:
    call: dict[str, Any] = {"name": "f", "args": {"n": 12345678901234567890123}, "partialArgs": [], **more}
    answer = stream(part_chunk({"functionCall": call}), part_chunk({"functionCall": {}}, finish="STOP"))
    assert answer.response.tool_calls == [ms.ToolCall("id-1", "f", '{"n":12345678901234567890123}')]


@pytest.mark.parametrize(
    ("sent", "arguments"),
    [
        ('{"city": "Oslo", "n": 1.50}', '{"city": "Oslo", "n": 1.50}'),
        ([1, 2], "[1,2]"),
        (7, "7"),
        ("", "{}"),
        ([], "{}"),
        (None, "{}"),
    ],
)
def test_arguments_that_are_no_object_are_not_lost(sent: object, arguments: str) -> None:
    body = part_chunk({"functionCall": {"name": "f", "args": sent}}, finish="STOP")
    assert stream(body).response.tool_calls == [ms.ToolCall("id-1", "f", arguments)]
    assert decode(body).tool_calls == [ms.ToolCall("id-1", "f", arguments)]


@pytest.mark.parametrize(("word", "complete"), [("STOP", True), ("MAX_TOKENS", False), ("SAFETY", False)])
def test_a_call_that_is_cut_off_is_not_complete(word: str, complete: bool) -> None:
    answer = stream(
        partial(name="a"),
        partial({"jsonPath": "$.x", "stringValue": "1", "willContinue": True}),
        part_chunk(finish=word),
    )
    assert answer.of(ToolCallDone) == [ToolCallDone(0, complete)]
    assert answer.response.tool_calls[0].complete is complete


def test_a_truncated_stream_leaves_its_call_incomplete() -> None:
    answer = stream(partial(name="a"), partial({"jsonPath": "$.x", "stringValue": "1", "willContinue": True}))
    assert answer.error is not None
    assert answer.response.tool_calls == [ms.ToolCall("id-1", "a", '{"x":"1', complete=False)]


def test_arguments_without_a_valid_path_make_a_call_incomplete() -> None:
    answer = stream(partial({"jsonPath": "$..x", "stringValue": "1"}, name="a", more=False), part_chunk(finish="STOP"))
    assert answer.of(ToolCallDone) == [ToolCallDone(0, False)]


def test_a_whole_call_is_complete_whatever_ends_the_answer() -> None:
    call = {"functionCall": {"name": "f", "args": {"a": 1}}}
    assert stream(part_chunk(call, finish="MAX_TOKENS")).response.tool_calls[0].complete


def test_a_call_without_a_name_is_kept_as_a_provider_block() -> None:
    answer = stream(part_chunk({"functionCall": {"args": {"a": 1}}}, {"functionCall": {}}, finish="STOP"))
    assert answer.response.content == [ms.ProviderBlock("google", {"functionCall": {"args": {"a": 1}}})]
    assert answer.response.finish_reason is ms.FinishReason.STOP


@pytest.mark.parametrize("kind", ["executableCode", "codeExecutionResult", "toolCall", "toolResponse", "brandNew"])
def test_server_side_parts_keep_their_position(kind: str) -> None:
    part = {kind: {"id": "x"}, "thoughtSignature": "s"}
    answer = stream(text_chunk("a"), part_chunk(part), part_chunk({"text": "b"}, finish="STOP"))
    assert answer.response.content == [ms.Text("a"), ms.ProviderBlock("google", part), ms.Text("b")]
    assert answer.of(ms.TextDelta) == [ms.TextDelta(0, "a"), ms.TextDelta(2, "b")]
    assert answer.response.tool_calls == []


def test_images_and_files_are_blocks() -> None:
    answer = stream(
        part_chunk(
            {"inlineData": {"mimeType": "image/png", "data": "iVBO"}, "thoughtSignature": "s"},
            {"inlineData": {"mimeType": "audio/L16", "data": "-_8="}},
            {"inlineData": {"mimeType": "audio/L16", "data": "-_8"}},
            {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://files/1"}},
            {"fileData": {"fileUri": "https://files/2"}},
            finish="STOP",
        )
    )
    assert answer.response.content == [
        ms.Image(data=b"\x89PN", media_type="image/png", state=signed("s")),
        ms.File(data=b"\xfb\xff", media_type="audio/L16"), ms.File(data=b"\xfb\xff", media_type="audio/L16"),
        ms.Image(url="https://files/1", media_type="image/jpeg"), ms.File(url="https://files/2"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "part",
    [
        {"inlineData": {"mimeType": "image/png", "data": "not base64!"}},
        {"inlineData": {"data": "iVBO"}},
        {"inlineData": {"mimeType": "image/png", "data": "iVBO"}, "thought": True},
        {"fileData": {"mimeType": "image/png"}},
    ],
)
def test_an_unreadable_file_or_a_thought_image_is_kept_raw(part: dict[str, Any]) -> None:
    assert stream(part_chunk(part, finish="STOP")).response.content == [ms.ProviderBlock("google", part)]


FILE_ANNOTATIONS: dict[str, Any] = {
    "audioMetadata": {"startOffset": "1s"}, "audioTranscription": {"text": "Hello."},
    "documentMetadata": {"startPage": 2}, "mediaProcessing": "AGENTIC", "mediaResolution": {"level": "LOW"},
    "partMetadata": {"a": 1}, "spreadsheetMetadata": {"sheetIndex": 1}, "thoughtSignature": "s",
    "videoMetadata": {"fps": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", FILE_ANNOTATIONS)
def test_what_describes_a_file_stays_with_the_file(name: str) -> None:
    described = {name: FILE_ANNOTATIONS[name]}
    inline = {"inlineData": {"mimeType": "image/png", "data": "iVBO"}, **described}
    linked = {"fileData": {"mimeType": "audio/wav", "fileUri": "https://files/1"}, **described}
    state = ms.ProviderState("google", described)
    assert stream(part_chunk(inline, linked, finish="STOP")).response.content == [
        ms.Image(data=b"\x89PN", media_type="image/png", state=state),
        ms.File(url="https://files/1", media_type="audio/wav", state=state),
    ]


def test_what_describes_a_text_stays_with_the_text() -> None:
    answer = stream(
        part_chunk({"text": "a", "speechMetadata": {"speaker": "Ann"}, "thoughtSignature": "s"}),
        part_chunk({"text": "b", "partMetadata": {"a": 1}, "speechMetadata": None}),
        part_chunk({"text": "c", "speechMetadata": {}}, finish="STOP"),
    )
    assert answer.response.content == [
        ms.Text("a", state=signed("s", speechMetadata={"speaker": "Ann"})),
        ms.Text("bc", state=ms.ProviderState("google", {"partMetadata": {"a": 1}})),
    ]


def test_a_thought_beside_another_kind_stays_a_thought() -> None:
    answer = stream(part_chunk({"text": "hm", "thought": True, "newKind": 1}, finish="STOP"))
    assert (answer.response.thinking, answer.response.text) == ("hm", "")


THOUGHT: dict[str, Any] = {"text": "a", "thought": True}


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        (text_chunk("a"), True),
        (text_chunk("a", usageMetadata={"promptTokenCount": 1}, createTime="now"), True),
        (part_chunk(THOUGHT), True),
        ({"candidates": [{"content": {"parts": [{"text": "a"}]}}]}, True),
        (text_chunk("a", promptFeedback={}), False),
        (part_chunk({"text": "a"}, finish="STOP"), False),
        (part_chunk({"text": "a"}, {"text": "b"}), False),
        (part_chunk(), False),
        (part_chunk({"text": "a", "thoughtSignature": "s"}), False),
        (part_chunk({"functionCall": {}}), False),
        ({"candidates": [{"content": {"parts": [{"text": "a"}]}, "index": 1}]}, False),
        ({"candidates": text_chunk("a")["candidates"] * 2}, False),
        ({"candidates": []}, False),
        ({}, False),
    ],
)
def test_a_chunk_with_one_text_is_known_as_such(chunk: dict[str, Any], expected: bool) -> None:
    assert has_only_text(chunk) is expected


def test_a_call_of_several_parts_keeps_its_id_and_signature() -> None:
    def partial(**members: Any) -> dict[str, Any]:
        return part_chunk({"functionCall": {"willContinue": True, **members}})

    first = partial(name="f", id="w1", partialArgs=[{"jsonPath": "$.a", "numberValue": 1}])
    first["candidates"][0]["content"]["parts"][0]["thoughtSignature"] = "s"
    answer = stream(
        first, partial(id="w1"), partial(name="f", partialArgs=[{"jsonPath": "$.b", "numberValue": 2}]),
        part_chunk({"functionCall": {}}, finish="STOP"),
    )  # fmt: skip
    assert answer.response.content == [ms.ToolCall("w1", "f", '{"a":1,"b":2}', state=signed("s", id="w1"))]


def test_a_late_signature_is_added_to_its_call() -> None:
    begin = {"functionCall": {"name": "f", "willContinue": True}}
    end = {"functionCall": {"willContinue": False}, "thoughtSignature": "s"}
    answer = stream(part_chunk(begin), part_chunk(end), part_chunk(finish="STOP"))
    assert answer.response.content == [ms.ToolCall("id-1", "f", "{}", state=signed("s"))]


def test_arguments_nested_too_deeply_are_dropped_with_a_warning() -> None:
    nested = "[" * 1010 + "]" * 1010
    call = '{"functionCall": {"name": "f", "args": {"a": ' + nested + "}}}"
    body = '{"candidates": [{"content": {"parts": [' + call + "]}}]}"
    response = DIALECT.decode(body.encode(), PROVIDER, Ids())
    assert [(call.name, call.arguments, call.complete) for call in response.tool_calls] == [("f", "", False)]
    assert response.warnings == ["the arguments of call 'id-1' are nested too deeply and were dropped"]
