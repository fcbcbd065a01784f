"""The values of the common history at their edges: whole errors, defaults, shared parts, and the converters' errors."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from inspect import signature
from typing import cast

import pytest

import manystream as ms
from manystream.providers.anthropic.converter import AnthropicConverter
from manystream.providers.gemini.converter import GeminiConverter
from manystream.providers.gemini.errors import parse_error
from manystream.providers.gemini.finish import finish_reason
from manystream.providers.gemini.response import parse_response
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
from manystream.providers.history.converter import HistoryConverter
from manystream.providers.history.view import PART_TYPES, finish_message
from manystream.providers.model.rows import messages_from_rows
from manystream.providers.openai import legacy
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter
from manystream.store import Row, message_from_row, rows_from_message

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
        ({"success": True, "output": "x"}, f"{RESULT}.output",
            f"{RESULT}.output: must be an object of type and content"),
        ({"success": True, "output": {"type": "text"}}, f"{RESULT}.output",
            f"{RESULT}.output: must be an object of type and content"),
        ({"success": True, "display_output": {"content": "x"}}, f"{RESULT}.display_output",
            f"{RESULT}.display_output: must be an object of type and content"),
    ],
)  # fmt: skip
def test_the_error_of_a_wrong_result(data: ms.JSONObject, where: str, words: str) -> None:
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
        TextPart("a"), ToolCallPart("c", "f"), ToolResultPart("c", "f", OK), UsagePart(), FinishReasonPart("stop"),
        OtherPart(ms.Thinking("hm")),
    ]  # fmt: skip
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
        {"role": "user", "content": [{"type": "text", "text": "context"}]},
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
        [ms.Message.user([ms.Text("a"), ms.ToolResult("c", "1"), ms.ToolResult("d", "2"), ms.Text("b")]),
        ms.Message.user("c"), ms.Message("tool", [ms.ToolResult("e", "3"), ms.Text("d")])], {"c": "f", "d": ""},
    )  # fmt: skip
    ok = ToolCallResult.ok
    assert items == [
        HistoryMessage("user", "a"), HistoryMessage("tool",
        [ToolResultPart("c", "f", ok("1")), ToolResultPart("d", "unknown", ok("2"))]), HistoryMessage("user", "b"),
        HistoryMessage("user", "c"), HistoryMessage("tool", [ToolResultPart("e", "unknown", ok("3")), TextPart("d")]),
    ]  # fmt: skip


WRITTEN = '{"success":true,"output":{"type":"table","content":[1]}}'
FAILED = '{"failure":true,"output":{"type":"text","content":"x"}}'


@pytest.mark.parametrize(
    ("block", "result"),
    [
        (ms.ToolResult("c", WRITTEN), ToolCallResult(True, None, ToolOutput("table", [1]))),
        (ms.ToolResult("c", WRITTEN, is_error=True), ToolCallResult.error(WRITTEN)),
        (ms.ToolResult("c", FAILED), ToolCallResult.error("x")),
        (ms.ToolResult("c", FAILED, is_error=True), ToolCallResult.error("x")),
        (ms.ToolResult("c", [ms.Text(WRITTEN[:9]), ms.Text(WRITTEN[9:])]),
            ToolCallResult(True, None, ToolOutput("table", [1]))),
        (ms.ToolResult("c", "[]"), ToolCallResult.ok("[]")),
        (ms.ToolResult("c", ""), ToolCallResult.ok("")),
        (ms.ToolResult("c", []), ToolCallResult.ok("")),
        (ms.ToolResult("c", '{"success": 1}', is_error=True), ToolCallResult.error('{"success": 1}')),
    ],
)  # fmt: skip
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
    data: ms.JSONObject = {"finishMessage": "g", "stop_details": {"explanation": "a"}}
    assert finish_message(ms.Response(refusal="r", provider_data=data)) == "r"
    assert finish_message(ms.Response(provider_data=data)) == "g"
    assert finish_message(ms.Response(provider_data={"stop_details": {"explanation": "a"}})) == "a"
    assert finish_message(ms.Response(provider_data={"stop_details": "a"})) is None


# --- the converters ---


def chat_chunk(delta: ms.JSONObject, reason: str | None = None) -> ms.JSONObject:
    return {
        "id": "i",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
    }


def test_calls_without_ids_are_numbered_from_1_per_converter() -> None:
    call: ms.JSONObject = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}
    converter = ChatConverter()
    for number in (1, 2):
        message = converter.message_from_chunks([chat_chunk(call)])
        assert [call.id for call in message.tool_calls] == [f"call_{number}"]
    message = ChatConverter(make_id=lambda: "mine").message_from_chunks([chat_chunk(call)])
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
    many: ms.JSONObject = dict.fromkeys("abcdef")
    assert message_of_error(wrap, many) == ("chunk", f"chunk: an object with 'a', 'b', 'c', 'd', 'e' {words}")
    assert message_of_error(wrap, 7) == ("chunk", "chunk: must be an object, not int")
    parts = ChatConverter().message_from_chunks
    assert message_of_error(parts, [chat_chunk({}), 7]) == ("chunks[1]", "chunks[1]: must be an object, not int")
    item: ms.JSONObject = {"type": "output_text", "text": "a"}
    assert message_of_error(ResponsesConverter().message_from_chunks, [item]) == (
        "chunks[0]",
        "chunks[0]: an object with 'type', 'text' is a part of a chunk: pass the whole chunk, or use wrap_chunk",
    )
    assert message_of_error(ChatConverter().to_history, [{"role": "user", "content": "a"}, 7]) == (
        "messages[1]",
        "messages[1]: must be an object, not int",
    )


def test_results_of_another_class_are_refused() -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"^results\[0\]: must be a ToolResultPart, not TextPart$"):
        ChatConverter().message_from_tool_results([TextPart("x")])  # type: ignore[list-item]
    assert ChatConverter().message_from_tool_results([]) is None
    assert ChatConverter().provider_messages_from_tool_results([]) == []


def test_leading_system_messages_stay_without_a_list_for_texts() -> None:
    wire: list[ms.JSONObject] = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    user = ms.Message.user("b")
    assert ChatConverter().decode_messages(wire) == [ms.Message.system("a"), user]
    system: list[str] = []
    assert ChatConverter().decode_messages(wire, system) == [user]
    assert system == ["a"]
    assert ChatConverter().decode_messages([wire[1], wire[0]], system) == [user, ms.Message.system("a")]
    assert system == ["a"]


def test_an_answer_of_several_messages_says_what_to_call() -> None:
    item: ms.JSONObject = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
    call: ms.JSONObject = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"}
    answer: ms.JSONObject = {"object": "response", "id": "r", "status": "completed", "output": [item, call]}
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
    wire: list[ms.JSONObject] = [
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function",
        "function": {"name": "f", "arguments": ""}}]}, {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "tool", "tool_call_id": "d", "content": "2"},
    ]  # fmt: skip
    items = ChatConverter().to_history(wire)
    results = [part for item in items for part in item.parts if isinstance(part, ToolResultPart)]
    assert [(part.id, part.name) for part in results] == [("c", "f"), ("d", "unknown")]
    assert [item.role for item in items] == [HistoryRole.MODEL, HistoryRole.TOOL]


# --- the parameters of all makers ---

NO_VALUES: list[object] = [None, 5, "", []]
"""What each parameter of each maker is given."""

CALL, RESPONSE = ms.ToolCall("c", "f", "{}"), ms.Response([ms.Text("a")])
SAID, ROW, TURN = ms.Message.user("a"), Row("user", "a"), HistoryMessage("user", "a")
HISTORY, REQUEST = History("s", None, [TURN]), ms.Request("m", [SAID])
RESULT_PART = ToolResultPart("c", "f", OK)
LEGACY = legacy.transform_request(REQUEST)
Maker = Callable[..., object]
Accepted = dict[str, list[object]]
OPTIONAL: list[object] = [None]
OPTIONAL_TEXT: list[object] = [None, ""]
TEXT_OR_LIST: list[object] = ["", []]


def talk() -> ms.Conversation:
    return ms.Conversation([SAID])


MAKERS: list[tuple[str, Maker, dict[str, object], Accepted]] = [
    ("Message", ms.Message, {"role": "user", "content": "a", "provider_metadata": {}},
     {"content": TEXT_OR_LIST, "provider_metadata": OPTIONAL}),
    *((f"Message.{role}", getattr(ms.Message, role), {"content": "a"}, {"content": TEXT_OR_LIST})
      for role in ("user", "assistant", "system")),
    ("tool_call", ms.Message.tool_call, {"id": "c", "name": "f", "arguments": "{}"}, {"arguments": [""]}),
    ("tool_result", ms.Message.tool_result, {"tool_call_id": "c", "content": "x", "is_error": False},
     {"content": TEXT_OR_LIST}),
    ("tool_call_with_thinking", ms.Message.tool_call_with_thinking,
     {"thinking_text": "t", "thinking_signature": "s", "redacted_data": "d", "tool_id": "c", "tool_name": "f",
      "tool_arguments": "{}"},
     {"thinking_text": OPTIONAL_TEXT, "thinking_signature": OPTIONAL_TEXT, "redacted_data": OPTIONAL_TEXT,
      "tool_arguments": [""]}),
    ("Image.from_base64", ms.Image.from_base64, {"data": "YQ==", "media_type": "image/png"}, {"data": [""]}),
    ("File.from_base64", ms.File.from_base64, {"data": "YQ==", "media_type": "a/b", "name": "n"},
     {"data": [""], "name": OPTIONAL}),
    # --- conversations
    ("Conversation", ms.Conversation, {"messages": [SAID]}, {"messages": [[]]}),
    ("add", lambda message: talk().add(message), {"message": SAID}, {}),
    ("extend", lambda messages: talk().extend(messages), {"messages": [SAID]}, {"messages": [[]]}),
    ("add_response", lambda response: talk().add_response(response), {"response": RESPONSE}, {}),
    ("keep_thinking", lambda response: talk().keep_thinking(response), {"response": RESPONSE}, {}),
    ("complete_tool", lambda call, output, is_error: talk().complete_tool(call, output, is_error=is_error),
     {"call": CALL, "output": "x", "is_error": False}, {"output": TEXT_OR_LIST}),
    # --- rows
    ("from_rows", ms.Conversation.from_rows, {"rows": [ROW], "strict": True}, {"rows": [[]]}),
    ("Row", lambda kind, content, data_json: message_from_row(Row(kind, content, data_json)),
     {"kind": "user", "content": "a", "data_json": "{}"}, {"content": [""], "data_json": OPTIONAL}),
    ("message_from_row", message_from_row, {"row": ROW, "position": 1}, {"position": [None, 5]}),
    ("messages_from_rows", messages_from_rows, {"rows": [ROW], "strict": True}, {"rows": [[]]}),
    ("rows_from_message", rows_from_message, {"message": SAID}, {}),
    # --- the common history
    ("TextPart", TextPart, {"text": "a", "origin": None}, {"text": [""], "origin": OPTIONAL}),
    ("ToolCallPart", ToolCallPart,
     {"id": "c", "name": "f", "arguments": {}, "malformed": None, "origin": None},
     {"malformed": OPTIONAL_TEXT, "origin": OPTIONAL}),
    ("ToolOutput", ToolOutput, {"type": "text", "content": "x"}, {"content": TEXT_OR_LIST}),
    ("ToolCallResult", ToolCallResult,
     {"success": True, "failure": None, "output": ToolOutput("text", "x"), "display_output": None},
     {"failure": OPTIONAL, "output": OPTIONAL, "display_output": OPTIONAL}),
    ("ToolCallResult.ok", ToolCallResult.ok, {"output": "x", "display_output": "y"},
     {"output": NO_VALUES, "display_output": NO_VALUES}),
    ("ToolCallResult.from_json", ToolCallResult.from_json, {"data": {"success": True}}, {}),
    ("ToolResultPart", ToolResultPart, {"id": "c", "name": "f", "result": OK}, {}),
    ("UsagePart", UsagePart, {"prompt_tokens": 1, "response_tokens": 2},
     {"prompt_tokens": [None, 5], "response_tokens": [None, 5]}),
    ("FinishReasonPart", FinishReasonPart, {"finish_reason": "stop", "finish_message": None},
     {"finish_message": OPTIONAL_TEXT}),
    ("OtherPart", OtherPart, {"block": ms.Thinking("a")}, {}),
    ("HistoryMessage", HistoryMessage, {"role": "user", "parts": "a"}, {"parts": TEXT_OR_LIST}),
    ("History", History, {"system_message": "s", "context": "c", "conversation": [TURN]},
     {"system_message": OPTIONAL_TEXT, "context": OPTIONAL_TEXT, "conversation": [[]]}),
    ("History.add", lambda message: History().add(message), {"message": TURN}, {}),
    ("from_messages", History.from_messages, {"messages": [SAID], "system_message": "s"},
     {"messages": [[]], "system_message": OPTIONAL_TEXT}),
    ("messages_of", messages_of, {"history": HISTORY}, {}),
    ("history_messages_of", history_messages_of, {"messages": [SAID], "names": {}},
     {"messages": [[]], "names": OPTIONAL}),
    ("message_from_response", message_from_response, {"response": RESPONSE}, {}),
    # --- OpenAI's older rows and Gemini's answers
    ("transform_request", legacy.transform_request, {"request": REQUEST, "stream": False, "thinking_models": {}}, {}),
    ("build_conversation", legacy.build_conversation, {"request": REQUEST}, {}),
    ("transform_message", legacy.transform_message, {"message": SAID, "earlier": [SAID]}, {"earlier": [[]]}),
    ("serialize", legacy.serialize, {"legacy": LEGACY}, {}),
    ("LegacyRequest",
     lambda **members: legacy.serialize(legacy.LegacyRequest(**members)),
     {"model": "m", "conversation": LEGACY.conversation, "temperature": 0.5, "max_completion_tokens": 9,
      "stream": False, "warnings": []},
     {"temperature": [5], "max_completion_tokens": [None, 5], "warnings": [[]]}),
    ("parse_response", parse_response,
     {"body": b'{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}', "make_id": None}, {"make_id": OPTIONAL}),
    ("finish_reason", finish_reason, {"raw": "STOP"}, {"raw": [None, 5, ""]}),
    ("parse_error", parse_error, {"status": 400, "body": b"{}"}, {"status": [5], "body": [""]}),
]  # fmt: skip
"""A maker's name, the maker, good arguments, and which of `NO_VALUES` a parameter accepts: none if it is not named."""

ANSWERED: dict[type[HistoryConverter], ms.JSONObject] = {
    ChatConverter: chat_chunk({"content": "a"}),
    ResponsesConverter: {"object": "response", "output": [], "status": "completed"},
    AnthropicConverter: {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "a"}]},
    GeminiConverter: {"candidates": [{"content": {"parts": [{"text": "a"}]}}]},
}


def converter_makers(kind: type[HistoryConverter]) -> list[tuple[str, Maker, dict[str, object], Accepted]]:
    """Return the rows of one converter."""
    converter, name = kind(), kind.__name__
    wire, chunks = converter.from_history(HISTORY), [ANSWERED[kind]]
    lists: Accepted = {name: [None, []] for name in ("warnings", "system")}
    return [
        (name, kind, {"provider": None, "make_id": None, "content_lists": True},
         {"provider": OPTIONAL, "make_id": OPTIONAL}),
        (f"{name}.from_history", converter.from_history, {"history": HISTORY, "warnings": []}, lists),
        (f"{name}.system_parameter", converter.system_parameter, {"history": HISTORY}, {}),
        (f"{name}.to_history", converter.to_history, {"wire": wire}, {"wire": [[]]}),
        (f"{name}.encode_messages", converter.encode_messages, {"messages": [SAID], "warnings": []},
         {"messages": [[]], **lists}),
        (f"{name}.decode_messages", converter.decode_messages, {"wire": wire, "system": [], "warnings": []},
         {"wire": [[]], **lists}),
        *((f"{name}.{method}", getattr(converter, method), {"chunks": chunks}, {"chunks": [[]]}) for method in (
            "message_from_chunks", "provider_message_from_chunks", "provider_messages_from_chunks")),
        *((f"{name}.{method}", getattr(converter, method), {"results": [RESULT_PART]}, {"results": [[]]})
          for method in ("message_from_tool_results", "provider_messages_from_tool_results")),
        (f"{name}.wrap_chunk", converter.wrap_chunk, {"chunk": chunks[0]}, {}),
    ]  # fmt: skip


ALL_MAKERS = [*MAKERS, *(row for kind in ANSWERED for row in converter_makers(kind))]


@pytest.mark.parametrize(
    ("maker", "good", "accepted"), [row[1:] for row in ALL_MAKERS], ids=[row[0] for row in ALL_MAKERS]
)
def test_a_parameter_of_the_wrong_kind_is_named(maker: Maker, good: dict[str, object], accepted: Accepted) -> None:
    maker(**good)
    for name in good:
        for value in copy.deepcopy(NO_VALUES):
            arguments = {**good, name: value}
            if any(value == each for each in accepted.get(name, [])):
                maker(**arguments)
                continue
            with pytest.raises(ms.ManystreamError) as caught:
                maker(**arguments)
            if (name, value) != ("body", ""):  # a body of nothing is an error of the server
                assert name in str(caught.value), (name, value)


def test_the_table_of_makers_has_every_parameter() -> None:
    for name, maker, good, _ in ALL_MAKERS:
        if getattr(maker, "__name__", "") != "<lambda>":
            assert list(good) == [each for each in signature(maker).parameters if each != "self"], name


WRONG_PARTS: list[tuple[str, Part, str]] = [
    ("user", ToolCallPart("c", "f"), "ToolCallPart"), ("context", ToolCallPart("c", "f"), "ToolCallPart"),
    ("tool", ToolCallPart("c", "f"), "ToolCallPart"), ("system", ToolResultPart("c", "f", OK), "ToolResultPart"),
    ("user", OtherPart(ms.Thinking("a")), "Thinking"), ("user", UsagePart(1), "UsagePart"),
    ("tool", FinishReasonPart("stop"), "FinishReasonPart"),
]  # fmt: skip


@pytest.mark.parametrize(("role", "part", "shown"), WRONG_PARTS)
def test_a_part_that_its_role_cannot_have_is_named(role: str, part: Part, shown: str) -> None:
    words = f"parts[1]: a message with the role '{role}' cannot have a {shown}"
    assert message_of_error(HistoryMessage, role, [TextPart("a"), part]) == ("parts[1]", words)
    later = HistoryMessage(role, "a")
    later.parts.append(part)
    assert message_of_error(ChatConverter().from_history, History(None, "x", [later])) == ("parts[1]", words)


def test_arguments_of_json_text_are_not_written_twice() -> None:
    words = "ToolCallPart.arguments: must be a dict, not str; use json.loads(…)"
    wrong: object = '{"x":1}'
    assert message_of_error(ToolCallPart, "c", "f", wrong) == ("ToolCallPart.arguments", words)


CYCLE: ms.JSONObject = {}
CYCLE["a"] = CYCLE


@pytest.mark.parametrize("value", [{"a": object()}, {"a": b"x"}, {"a": {1, 2}}, CYCLE])
@pytest.mark.parametrize("converter", ANSWERED)
def test_a_value_that_is_no_json_is_named(converter: type[HistoryConverter], value: ms.JSONObject) -> None:
    call = HistoryMessage("model", [ToolCallPart("c", "f", value)])
    result = HistoryMessage("tool", [ToolResultPart("c", "f", ToolCallResult.ok(value))])
    for turn, where in ((call, "ToolCallPart.arguments"), (result, "ToolResultPart.result")):
        named, words = message_of_error(converter().from_history, History(conversation=[turn]))
        assert named == where
        assert words.startswith(f"{where}: cannot be written as JSON: ")


@pytest.mark.parametrize("name", ["system_message", "context", "conversation"])
def test_a_value_that_is_put_into_a_history_later_is_named(name: str) -> None:
    history = History()
    setattr(history, name, 5)
    for function in (messages_of, ChatConverter().from_history, ChatConverter().system_parameter):
        assert message_of_error(function, history)[0] == name


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (ms.Message.user(ms.Text(cast("str", None))), "content[0].text"),
        (ms.Message.user(ms.ToolCall("c", "f", "{}")), "content[0]"),
        (ms.Message.assistant(ms.ToolCall("", "f", "{}")), "content[0].id"),
        (ms.Message("tool", ms.ToolResult("", "x")), "content[0].tool_call_id"),
    ],
)
@pytest.mark.parametrize("converter", ANSWERED)
def test_a_block_of_wrong_values_is_not_written(
    converter: type[HistoryConverter], message: ms.Message, place: str
) -> None:
    with pytest.raises(ms.InvalidRequestError, match=rf"^messages\[1\]\.{re.escape(place)}: "):
        converter().encode_messages([SAID, message])


@pytest.mark.parametrize("text", [" ", "\n\n"])
def test_anthropic_warns_of_a_blank_text(text: str) -> None:
    warnings: list[str] = []
    words = "a text without any characters but white space is not sent; Anthropic refuses it"
    assert AnthropicConverter().from_history(History(None, None, [HistoryMessage("user", text)]), warnings) == []
    answer = ms.Message.assistant([ms.Text(text), CALL])
    (wire,) = AnthropicConverter().encode_messages([answer], warnings)
    assert [block["type"] for block in wire["content"]] == ["tool_use"]  # type: ignore[union-attr, index, call-overload]
    assert warnings == [f"messages[0].content[0]: {words}"] * 2
    AnthropicConverter().encode_messages([ms.Message.assistant("")], warnings)
    assert len(warnings) == 2  # an answer without text loses nothing
