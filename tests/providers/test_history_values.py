"""The values of the common history at their edges: whole errors, defaults, shared parts, and the converters' errors."""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.anthropic.converter import AnthropicConverter
from manystream.providers.gemini.converter import GeminiConverter
from manystream.providers.history import (
    FinishReasonPart,
    History,
    HistoryError,
    HistoryMessage,
    HistoryRole,
    OtherPart,
    Part,
    TextPart,
    ToolCallPart,
    ToolCallResult,
    ToolOutput,
    ToolResultPart,
    UsagePart,
    history_messages_of,
    message_from_response,
    messages_of,
)
from manystream.providers.history.view import PART_TYPES, finish_message
from manystream.providers.json.json_values import JSONObject
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter

OK = ToolCallResult.ok("rain")
STATE = ms.ProviderState("google", {"x": 1})


def message_of_error(make: object, *arguments: object) -> tuple[str, str]:
    with pytest.raises(HistoryError) as caught:
        make(*arguments)  # type: ignore[operator]
    return caught.value.where, str(caught.value)


@pytest.mark.parametrize(
    ("make", "where", "value"),
    [
        (lambda: ToolCallPart("", "f"), "ToolCallPart.id", "''"),
        (lambda: ToolCallPart(7, "f"), "ToolCallPart.id", "7"),  # type: ignore[arg-type]
        (lambda: ToolCallPart("c", ""), "ToolCallPart.name", "''"),
        (lambda: ToolOutput("", "x"), "ToolOutput.type", "''"),
        (lambda: ToolResultPart("", "f", OK), "ToolResultPart.id", "''"),
        (lambda: ToolResultPart("c", "", OK), "ToolResultPart.name", "''"),
    ],
)
def test_a_text_that_is_needed_is_named(make: object, where: str, value: str) -> None:
    assert message_of_error(make) == (where, f"{where}: must be text that is not empty, not {value}")


RESULT = "ToolCallResult"
EITHER = f"{RESULT}: exactly one of success and failure must be true, not"


@pytest.mark.parametrize(
    ("data", "where", "words"),
    [
        ({}, RESULT, f"{EITHER} None and None"),
        ({"success": True, "failure": True}, RESULT, f"{EITHER} True and True"),
        ({"success": 1}, RESULT, f"{RESULT}: success and failure must be true, false or absent"),
        ({"failure": "no"}, RESULT, f"{RESULT}: success and failure must be true, false or absent"),
        ({"success": True, "b": 1, "a": 2}, RESULT, f"{RESULT}: has no 'a'"),
        (
            {"success": True, "output": "x"},
            f"{RESULT}.output",
            f"{RESULT}.output: must be an object of type and content",
        ),
        (
            {"success": True, "output": {"type": "text"}},
            f"{RESULT}.output",
            f"{RESULT}.output: must be an object of type and content",
        ),
        (
            {"success": True, "display_output": {"content": "x"}},
            f"{RESULT}.display_output",
            f"{RESULT}.display_output: must be an object of type and content",
        ),
    ],
)
def test_the_error_of_a_wrong_result(data: JSONObject, where: str, words: str) -> None:
    assert message_of_error(ToolCallResult.from_json, data) == (where, words)


def test_a_result_as_json() -> None:
    shown = ToolOutput("table", [1])
    assert ToolCallResult(success=True).to_json() == {"success": True}
    assert ToolCallResult.error({"a": 1}, shown).to_json() == {
        "failure": True,
        "output": {"type": "text", "content": {"a": 1}},
        "display_output": {"type": "table", "content": [1]},
    }
    assert ToolCallResult.from_json({"success": False, "failure": True, "output": None}) == ToolCallResult(False, True)
    assert ToolCallResult.from_json(
        {"success": True, "display_output": {"type": "text", "content": ""}}
    ) == ToolCallResult(True, None, None, ToolOutput("text", ""))


def test_the_parts_defaults() -> None:
    assert ToolCallPart("c", "f") == ToolCallPart("c", "f", {}, None, None)
    assert UsagePart() == UsagePart(None, None)
    assert FinishReasonPart("stop") == FinishReasonPart("stop", None)
    assert History() == History(None, None, [])
    assert ToolCallResult.ok("x").display_output is None
    assert TextPart("x", ms.Text("y")) == TextPart("x")
    assert repr(TextPart("x", ms.Text("y"))) == "TextPart(text='x')"
    assert repr(ToolCallPart("c", "f", origin=ms.ToolCall("c", "f", ""))) == (
        "ToolCallPart(id='c', name='f', arguments={}, malformed=None)"
    )


def test_every_kind_of_part_is_accepted() -> None:
    parts: list[Part] = [
        TextPart("a"),
        ToolCallPart("c", "f"),
        ToolResultPart("c", "f", OK),
        UsagePart(),
        FinishReasonPart("stop"),
        OtherPart(ms.Thinking("hm")),
    ]
    assert [type(part) for part in parts] == [*PART_TYPES]
    item = HistoryMessage("model", [*parts, TextPart("b")])
    assert (item.text, item.tool_calls) == ("ab", [ToolCallPart("c", "f")])


# --- a history as messages ---


def test_system_messages_at_the_beginning_are_the_system_prompt() -> None:
    items = [HistoryMessage("system", "b"), HistoryMessage("system", ""), HistoryMessage("user", "c")]
    history = History("a", "context", items)
    assert messages_of(history) == [ms.Message.user("context"), ms.Message.user("c")]
    assert ChatConverter().from_history(history)[:2] == [
        {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "context"},
    ]
    assert AnthropicConverter().system_parameter(history) == "a\n\nb"
    assert AnthropicConverter().system_parameter(History("", None, [HistoryMessage("system", "")])) is None
    assert messages_of(History(conversation=items[:2])) == []


def test_a_later_system_message_is_named_by_its_place() -> None:
    late = [HistoryMessage("system", "a"), HistoryMessage("user", "b"), HistoryMessage("system", "c")]
    reason = (
        "a system message after the first turn has no place here: put its text into the system prompt, or into a"
        " user's message at the same place"
    )
    from_history = GeminiConverter().from_history
    assert message_of_error(from_history, History(conversation=late)) == ("turns[1]", f"turns[1]: {reason}")
    assert message_of_error(from_history, History(None, "x", late)) == ("turns[2]", f"turns[2]: {reason}")


def test_messages_without_content_are_left_out() -> None:
    items = [HistoryMessage("model", [UsagePart(1)]), HistoryMessage("user", "a"), HistoryMessage("model", [])]
    assert messages_of(History(conversation=items)) == [ms.Message.user("a")]


def test_an_unchanged_part_is_written_as_its_block() -> None:
    call = ms.ToolCall("c", "f", '{ "a": 1 }', state=STATE)
    for change in ("id", "name", "arguments", "malformed"):
        part = history_messages_of([ms.Message.assistant(call)])[0].parts[0]
        assert isinstance(part, ToolCallPart)
        assert messages_of(History(conversation=[HistoryMessage("model", [part])]))[0].content == [call]
        setattr(part, change, {"b": 2} if change == "arguments" else "new")
        (written,) = messages_of(History(conversation=[HistoryMessage("model", [part])]))[0].content
        expected = {"id": "c", "name": "f", "arguments": '{"a":1}'}
        if change == "arguments":
            expected["arguments"] = '{"b":2}'
        elif change == "malformed":
            expected["arguments"] = "new"
        else:
            expected[change] = "new"
        assert written == ms.ToolCall(**expected)  # type: ignore[arg-type]


# --- messages as a history ---


def test_neighbouring_blocks_of_one_role_are_one_item() -> None:
    items = history_messages_of(
        [
            ms.Message.user([ms.Text("a"), ms.ToolResult("c", "1"), ms.ToolResult("d", "2"), ms.Text("b")]),
            ms.Message.user("c"),
            ms.Message("tool", [ms.ToolResult("e", "3"), ms.Text("d")]),
        ],
        {"c": "f", "d": ""},
    )
    ok = ToolCallResult.ok
    assert items == [
        HistoryMessage("user", "a"),
        HistoryMessage("tool", [ToolResultPart("c", "f", ok("1")), ToolResultPart("d", "unknown", ok("2"))]),
        HistoryMessage("user", "b"),
        HistoryMessage("user", "c"),
        HistoryMessage("tool", [ToolResultPart("e", "unknown", ok("3")), TextPart("d")]),
    ]


WRITTEN = '{"success":true,"output":{"type":"table","content":[1]}}'
FAILED = '{"failure":true,"output":{"type":"text","content":"x"}}'


@pytest.mark.parametrize(
    ("block", "result"),
    [
        (ms.ToolResult("c", WRITTEN), ToolCallResult(True, None, ToolOutput("table", [1]))),
        (ms.ToolResult("c", WRITTEN, is_error=True), ToolCallResult.error(WRITTEN)),
        (ms.ToolResult("c", FAILED), ToolCallResult.error("x")),
        (ms.ToolResult("c", FAILED, is_error=True), ToolCallResult.error("x")),
        (
            ms.ToolResult("c", [ms.Text(WRITTEN[:9]), ms.Text(WRITTEN[9:])]),
            ToolCallResult(True, None, ToolOutput("table", [1])),
        ),
        (ms.ToolResult("c", "[]"), ToolCallResult.ok("[]")),
        (ms.ToolResult("c", ""), ToolCallResult.ok("")),
        (ms.ToolResult("c", []), ToolCallResult.ok("")),
        (ms.ToolResult("c", '{"success": 1}', is_error=True), ToolCallResult.error('{"success": 1}')),
    ],
)
def test_the_result_of_a_tool_message(block: ms.ToolResult, result: ToolCallResult) -> None:
    (item,) = history_messages_of([ms.Message("tool", block)], {"c": "f"})
    assert item == HistoryMessage("tool", [ToolResultPart("c", "f", result)])


def test_a_result_with_an_image_is_another_part() -> None:
    block = ms.ToolResult("c", [ms.Text("a"), ms.Image(url="u")])
    assert history_messages_of([ms.Message("user", block)]) == [HistoryMessage("tool", [OtherPart(block)])]


def test_a_history_is_made_of_messages() -> None:
    assert History.from_messages([ms.Message.user("a")], "s") == History("s", None, [HistoryMessage("user", "a")])
    assert History.from_messages([]) == History()


# --- answers ---


def test_usage_and_finish_reason_of_an_answer_without_content() -> None:
    usage = ms.Usage(thinking_tokens=3)
    assert message_from_response(ms.Response(usage=usage)) is None
    usage = ms.Usage(input_tokens=1, thinking_tokens=3)
    assert message_from_response(ms.Response(usage=usage)) == HistoryMessage("model", [UsagePart(1, 3)])
    assert message_from_response(ms.Response(raw_finish_reason="end")) == HistoryMessage(
        "model", [FinishReasonPart("end")]
    )


def test_the_explanation_of_an_answers_end() -> None:
    data: JSONObject = {"finishMessage": "g", "stop_details": {"explanation": "a"}}
    assert finish_message(ms.Response(refusal="r", provider_data=data)) == "r"
    assert finish_message(ms.Response(provider_data=data)) == "g"
    assert finish_message(ms.Response(provider_data={"stop_details": {"explanation": "a"}})) == "a"
    assert finish_message(ms.Response(provider_data={"stop_details": "a"})) is None


# --- the converters ---


def chat_chunk(delta: JSONObject, reason: str | None = None) -> JSONObject:
    return {
        "id": "i",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
    }


def test_calls_without_ids_are_numbered_from_1_per_converter() -> None:
    call: JSONObject = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}
    converter = ChatConverter()
    for number in (1, 2):
        message = converter.message_from_chunks([chat_chunk(call)])
        assert message is not None
        assert [call.id for call in message.tool_calls] == [f"call_{number}"]
    message = ChatConverter(make_id=lambda: "mine").message_from_chunks([chat_chunk(call)])
    assert message is not None
    assert [call.id for call in message.tool_calls] == ["mine"]


def test_a_chunks_finish_message() -> None:
    converter = ChatConverter()
    assert converter.wrap_chunk(chat_chunk({"content": "a"})).get_finish_message() is None
    assert converter.wrap_chunk(chat_chunk({}, "stop")).get_finish_message() == "stop"
    assert converter.wrap_chunk(chat_chunk({"refusal": "no"}, "stop")).get_finish_message() == "stop: no"
    assert converter.wrap_chunk(chat_chunk({"refusal": "no"})).get_finish_message() is None


def test_a_value_that_is_no_chunk_is_described() -> None:
    wrap = ChatConverter().wrap_chunk
    words = "is no chunk of this dialect, and no part of one"
    many: JSONObject = dict.fromkeys("abcdef")
    assert message_of_error(wrap, many) == ("chunk", f"chunk: an object with 'a', 'b', 'c', 'd', 'e' {words}")
    assert message_of_error(wrap, 7) == ("chunk", "chunk: must be an object, not int")
    parts = ChatConverter().message_from_chunks
    assert message_of_error(parts, [chat_chunk({}), 7]) == ("chunks[1]", "chunks[1]: must be an object, not int")
    assert message_of_error(parts, [chat_chunk({}), {"content": "a", "role": "assistant"}]) == (
        "chunks[1]",
        "chunks[1]: an object with 'content', 'role' is a part of a chunk: pass the whole chunk, or use wrap_chunk",
    )
    assert message_of_error(ChatConverter().to_history, [{"role": "user", "content": "a"}, 7]) == (
        "messages[1]",
        "messages[1]: must be an object, not int",
    )


def test_results_of_another_class_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^must be ToolResultPart values, not TextPart$"):
        ChatConverter().message_from_tool_results([TextPart("x")])  # type: ignore[list-item]
    assert ChatConverter().message_from_tool_results([]) is None
    assert ChatConverter().provider_messages_from_tool_results([]) == []


def test_leading_system_messages_are_messages_without_a_list_for_their_texts() -> None:
    wire: list[JSONObject] = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    user = ms.Message.user("b")
    assert ChatConverter().decode_messages(wire) == [ms.Message.system("a"), user]
    system: list[str] = []
    assert ChatConverter().decode_messages(wire, system) == [user]
    assert system == ["a"]
    assert ChatConverter().decode_messages([wire[1], wire[0]], system) == [user, ms.Message.system("a")]
    assert system == ["a"]


def test_an_answer_of_several_messages_says_what_to_call() -> None:
    item: JSONObject = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
    call: JSONObject = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"}
    answer: JSONObject = {"object": "response", "id": "r", "status": "completed", "output": [item, call]}
    converter = ResponsesConverter()
    assert message_of_error(converter.provider_message_from_chunks, [answer]) == (
        "chunks",
        "chunks: make 2 of the provider's messages: use provider_messages_from_chunks",
    )
    assert len(converter.provider_messages_from_chunks([answer])) == 2
    assert ChatConverter().provider_message_from_chunks([chat_chunk({"content": "a"})]) == {
        "role": "assistant",
        "content": [{"type": "text", "text": "a"}],
    }
    assert ChatConverter().provider_message_from_chunks([]) is None


def test_a_converter_keeps_its_provider_s_address_and_name() -> None:
    given = ms.OpenAIChat("key", "https://h.example/v1", name="mine")
    kept = ChatConverter(given).provider
    assert (kept.base_url, kept.name, kept.api_key) == ("https://h.example/v1", "mine", None)
    assert (ChatConverter().provider.name, ChatConverter().provider.profile.quirks.strict_end) == ("openai-chat", False)


def test_names_of_calls_in_an_earlier_turn_are_used_for_results() -> None:
    wire: list[JSONObject] = [
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "tool", "tool_call_id": "d", "content": "2"},
    ]
    items = ChatConverter().to_history(wire)
    results = [part for item in items for part in item.parts if isinstance(part, ToolResultPart)]
    assert [(part.id, part.name) for part in results] == [("c", "f"), ("d", "unknown")]
    assert [item.role for item in items] == [HistoryRole.MODEL, HistoryRole.TOOL]
