"""A conversation in Gemini's contents: whole contents, and what a later part of it needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import manystream as ms
from manystream.providers.gemini.block_writer import BlockWriter
from manystream.providers.gemini.message_writer import MessageWriter, WriterState
from manystream.providers.model.messages import Message
from manystream.providers.model.prefix_cache import Segment
from manystream.providers.wire.omission_warnings import OPENING
from tests.providers.gemini.sent import OLD_MODEL, contents, warnings
from tests.providers.gemini.wire import PROVIDER, decode, part_chunk, signed

HI = Message.user("Hi")

SKIP = "skip_thought_signature_validator"


def call(id: str, name: str = "f", arguments: str = "{}", state: ms.ProviderState | None = None) -> ms.ToolCall:
    return ms.ToolCall(id, name, arguments, state=state)


def answer_part(name: str = "f", output: str = "ok", **members: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": output}, **members}}


def call_part(name: str = "f", signature: str | None = None, **members: Any) -> dict[str, Any]:
    part: dict[str, Any] = {"functionCall": {"name": name, "args": {}, **members}}
    return part if signature is None else {**part, "thoughtSignature": signature}


def test_roles_are_user_and_model() -> None:
    assert contents(HI, Message.assistant("Hello"), Message.user([ms.Text("a"), ms.Text("b")])) == [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [{"text": "Hello"}]},
        {"role": "user", "parts": [{"text": "a"}, {"text": "b"}]},
    ]


def test_empty_texts_are_left_out_and_no_content_is_refused() -> None:
    assert contents(HI, Message.assistant(""), Message.user([ms.Text(""), ms.Text("b")])) == [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "user", "parts": [{"text": "b"}]},
    ]
    with pytest.raises(ms.InvalidRequestError, match="messages: contain nothing that can be sent to Gemini"):
        contents(Message.user(""))


def test_a_call_and_its_result() -> None:
    history = (HI, Message.tool_call("a", "now", '{"zone":"UTC"}'), Message.tool_result("a", "12:00"))
    assert contents(*history, model=OLD_MODEL)[1:] == [
        {"role": "model", "parts": [{"functionCall": {"name": "now", "args": {"zone": "UTC"}}}]},
        {"role": "user", "parts": [answer_part("now", "12:00")]},
    ]


def test_a_failed_result_is_an_error_in_the_response() -> None:
    sent = contents(HI, Message.tool_call("a", "now", ""), Message.tool_result("a", "no clock", is_error=True))
    assert sent[2]["parts"] == [{"functionResponse": {"name": "now", "response": {"error": "no clock"}}}]


def test_parallel_calls_are_one_content_and_so_are_results() -> None:
    history = (
        HI, Message.assistant("I look."), Message.assistant([call("a", "x"), call("b", "y")]),
        Message.tool_call("c", "z", "{}"), Message.tool_result("b", "2"), Message.tool_result("c", "3"),
        Message(ms.Role.TOOL, [ms.ToolResult("a", "1")]), Message.user("And?"),
    )  # fmt: skip
    assert contents(*history, model=OLD_MODEL)[1:] == [
        {"role": "model", "parts": [{"text": "I look."}, call_part("x"), call_part("y"), call_part("z")]},
        {"role": "user", "parts": [answer_part("x", "1"), answer_part("y", "2"), answer_part("z", "3")]},
        {"role": "user", "parts": [{"text": "And?"}]},
    ]


def test_consecutive_calls_are_separate_turns() -> None:
    history = (
        HI, Message.tool_call("a", "f", "{}"), Message.tool_result("a", "ok"), Message.tool_call("a", "f", "{}"),
        Message.tool_result("a", "ok"),
    )  # fmt: skip
    one = [{"role": "model", "parts": [call_part()]}, {"role": "user", "parts": [answer_part()]}]
    assert contents(*history, model=OLD_MODEL)[1:] == one + one


def test_a_result_is_moved_after_its_call() -> None:
    history = (HI, Message.tool_call("a", "f", "{}"), Message.user("Hurry!"), Message.user(ms.ToolResult("a", "ok")))
    assert [content["parts"] for content in contents(*history, model=OLD_MODEL)[1:]] == [
        [call_part()],
        [answer_part()],
        [{"text": "Hurry!"}],
    ]


def test_a_call_without_a_result_is_not_sent() -> None:
    history = (HI, Message.assistant([ms.Text("I look."), call("a"), call("b")]), Message.tool_result("b", "ok"))
    assert contents(*history, model=OLD_MODEL)[1]["parts"] == [{"text": "I look."}, call_part()]
    assert warnings(*history) == ["messages: call 'a' has no result and is not sent"]
    assert contents(HI, Message.tool_call("a", "f", "{}")) == [{"role": "user", "parts": [{"text": "Hi"}]}]


def test_a_result_without_a_call_is_not_sent() -> None:
    history = (HI, Message.tool_result("a", "ok"), Message.assistant("Yes."))
    assert contents(*history)[1:] == [{"role": "model", "parts": [{"text": "Yes."}]}]
    assert warnings(*history) == ["messages: result 'a' has no call and is not sent"]


def test_results_of_one_id_answer_the_calls_of_a_turn_in_order() -> None:
    history = (HI, Message.tool_call("a", "f", "{}"), Message.tool_call("a", "g", "{}"), Message.tool_result("a", "ok"))
    assert contents(*history, model=OLD_MODEL)[1]["parts"] == [call_part("f")]
    assert warnings(*history) == ["messages: call 'a' has no result and is not sent"]
    both = contents(*history, Message.tool_result("a", "fine"), model=OLD_MODEL)
    assert both[1]["parts"] == [call_part("f"), call_part("g")]
    responses = [part["functionResponse"] for part in both[2]["parts"]]
    assert [(one["name"], one["response"]["output"]) for one in responses] == [("f", "ok"), ("g", "fine")]


def test_a_reused_id_belongs_to_the_later_turn() -> None:
    history = (
        HI, Message.tool_call("a", "f", "{}"), HI, Message.tool_call("a", "g", "{}"), Message.tool_result("a", "ok"),
    )  # fmt: skip
    assert [
        part for content in contents(*history, model=OLD_MODEL) for part in content["parts"] if "functionCall" in part
    ] == [call_part("g")]


def test_only_ids_of_the_wire_are_sent_back() -> None:
    state = ms.ProviderState("google", {"id": "w1"})
    history = (HI, Message.assistant([call("w1", state=state), call("ours")]))
    results = (Message.tool_result("w1", "ok"), Message.tool_result("ours", "ok"))
    _, calls, answers = contents(*history, *results, model=OLD_MODEL)
    assert calls["parts"] == [call_part(id="w1"), call_part()]
    assert answers["parts"] == [answer_part(id="w1"), answer_part()]


def test_an_unsigned_first_call_gets_the_documented_value() -> None:
    history = (HI, Message.assistant([call("a", "x"), call("b", "y")]))
    results = (Message.tool_result("a", "ok"), Message.tool_result("b", "ok"))
    assert contents(*history, *results)[1]["parts"] == [call_part("x", SKIP), call_part("y")]
    # If the signed call is left out, the next one is the first.
    lost = Message.assistant([call("a", "x", state=signed("c2ln")), call("b", "y")])
    assert contents(HI, lost, results[1])[1]["parts"] == [call_part("y", SKIP)]


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", "null"])
def test_arguments_that_are_no_object_cause_a_warning(arguments: str) -> None:
    history = (HI, Message.tool_call("a", "f", arguments), Message.tool_result("a", "bad arguments", is_error=True))
    assert contents(*history)[1]["parts"][0]["functionCall"] == {"name": "f", "args": {"arguments": arguments}}
    assert warnings(*history) == ["messages[1].content[0].arguments: no JSON object, sent as text"]


def test_text_beside_results_in_a_tool_message_follows_them() -> None:
    tool = Message(ms.Role.TOOL, [ms.Text("Note."), ms.ToolResult("a", "ok")])
    assert [content["parts"] for content in contents(HI, Message.tool_call("a", "f", "{}"), tool, model=OLD_MODEL)] == [
        [{"text": "Hi"}], [call_part()], [answer_part()], [{"text": "Note."}],
    ]  # fmt: skip


def test_an_answer_sent_back_equals_its_wire_form() -> None:
    """An answer that is sent back in the next request equals its wire form."""
    parts: list[dict[str, Any]] = [
        {"text": "Hm", "thought": True},
        {"text": "Look:"},
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}, "thoughtSignature": "c2ln"},
        {"toolCall": {"id": "t", "toolType": "GOOGLE_SEARCH_WEB", "args": {}}, "thoughtSignature": "c2ln"},
        {"toolResponse": {"id": "t", "toolType": "GOOGLE_SEARCH_WEB", "response": {}}},
        {"text": "Done.", "thoughtSignature": "c2ln"},
    ]
    answer = decode(part_chunk(*parts, finish="STOP"))
    assert contents(HI, answer.to_message(), HI)[1] == {"role": "model", "parts": parts}


def test_a_users_turn_is_inserted_before_a_models_first_turn() -> None:
    assert contents(Message.assistant("Ask me."), HI) == [
        {"role": "user", "parts": [{"text": "(The conversation begins with the assistant's message.)"}]},
        {"role": "model", "parts": [{"text": "Ask me."}]},
        {"role": "user", "parts": [{"text": "Hi"}]},
    ]


USER, MODEL = Message.user("a"), Message.assistant("b")

CALL, RESULT = Message.tool_call("t", "look", "{}"), Message.tool_result("t", "x")

EMPTY = Message.user("")

NO_RESULT = "messages: call 't' has no result and is not sent"

A: ms.JSONObject = {"role": "user", "parts": [{"text": "a"}]}

B: ms.JSONObject = {"role": "model", "parts": [{"text": "b"}]}

USED: list[ms.JSONObject] = [
    {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "x"}}}]},
]

DONE, OPEN = WriterState(()), WriterState(("t",))

OPENED = f"messages: begin with the assistant, which Gemini refuses; sent with {OPENING!r} as the user's first"

FIRST: list[tuple[list[Message], Segment[WriterState]]] = [
    ([USER], Segment([A], DONE)),
    ([USER, MODEL], Segment([A, B], None)),
    ([USER, MODEL, USER], Segment([A, B, A], DONE)),
    ([USER, CALL, RESULT], Segment([A, *USED], DONE)),
    ([USER, CALL, USER], Segment([A, A], OPEN, [], [NO_RESULT])),
    ([USER, CALL], Segment([A], None, [], [NO_RESULT])),
    ([EMPTY], Segment([], None)),
    ([MODEL], Segment([{"role": "user", "parts": [{"text": OPENING}]}, B], None, [OPENED])),
]

LATER: list[tuple[list[Message], WriterState, Segment[WriterState] | None]] = [
    ([MODEL], DONE, Segment([B], None)),
    ([MODEL, USER], DONE, Segment([B, A], DONE)),
    ([USER], DONE, Segment([A], DONE)),
    ([USER], OPEN, Segment([A], OPEN, [], [NO_RESULT])),
    ([EMPTY], DONE, Segment([], DONE)),
    ([CALL, RESULT], DONE, Segment(USED, DONE)),
    ([CALL, RESULT], OPEN, Segment(USED, DONE, [NO_RESULT])),
    ([RESULT], OPEN, None),
]


def written(messages: Sequence[Message], first: int, before: WriterState | None) -> Segment[WriterState] | None:
    warnings: list[str] = []
    parts = BlockWriter(PROVIDER, warnings, media_in_results=True)
    return MessageWriter(parts, warnings, sign_calls=False).write(messages, first, before)


@pytest.mark.parametrize(("messages", "segment"), FIRST)
def test_the_first_messages_leave_their_state(messages: Sequence[Message], segment: Segment[WriterState]) -> None:
    assert written(messages, 0, None) == segment


@pytest.mark.parametrize(("messages", "before", "segment"), LATER)
def test_later_messages_continue_from_a_state(
    messages: Sequence[Message], before: WriterState, segment: Segment[WriterState] | None
) -> None:
    assert written(messages, 3, before) == segment
