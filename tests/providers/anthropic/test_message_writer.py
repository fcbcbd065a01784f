"""A conversation in Anthropic's messages: whole messages, their parts, and what a later part of it needs."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import manystream as ms
from manystream.providers.anthropic import DIALECT
from manystream.providers.anthropic.converter import AnthropicConverter
from manystream.providers.anthropic.message_writer import MessageWriter, WriterState
from manystream.providers.catalog.dialect import WireRequest
from manystream.providers.model.messages import Message, Role, ToolCall, ToolResult
from manystream.providers.model.prefix_cache import Segment
from manystream.providers.wire.omission_warnings import OPENING
from tests.providers.anthropic.wire import LENIENT, START, STOP, STRICT, block, finish, run, text
from tests.providers.anthropic.wire_types import check_body
from tests.providers.sdk_bodies import sent_by_us

ELSEWHERE = ms.ProviderState("openai-chat", {})


def encode(*messages: Message, provider: ms.Provider = STRICT) -> WireRequest:
    return DIALECT.encode(ms.Request("claude-sonnet-4-5", messages), "claude-sonnet-4-5", provider, stream=False)


def sent(*messages: Message, provider: ms.Provider = STRICT) -> list[dict[str, Any]]:
    """Return the wire messages. Checks them against Anthropic's types, and that turns alternate."""
    body = json.loads(encode(*messages, provider=provider).body)
    check_body(body, stream=False)
    roles = [turn["role"] for turn in body["messages"]]
    assert all(role != following for role, following in pairwise(roles))
    found: list[dict[str, Any]] = body["messages"]
    return found


def use(id: str, name: str = "look", **input: object) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def result(id: str, content: object = "rain") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def test_a_message_of_one_plain_text_is_a_string() -> None:
    assert sent(Message.user("Hi"), Message.assistant("Ho"), Message.user([ms.Text("a"), ms.Text("b")])) == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Ho"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]


def test_results_and_the_users_text_are_one_message() -> None:
    wire = sent(
        Message.user("Weather?"), Message(Role.ASSISTANT,
        [ToolCall("t1", "look", "{}"), ToolCall("t2", "look", "{}")]), Message.tool_result("t1", "rain"),
        Message.tool_result("t2", "sun", is_error=True), Message.user("And?"),
    )  # fmt: skip
    assert wire[1:] == [
        {"role": "assistant", "content": [use("t1"), use("t2")]},
        {"role": "user", "content": [result("t1"), {**result("t2", "sun"), "is_error": True},
        {"type": "text", "text": "And?"}]},
    ]  # fmt: skip


def test_a_late_result_is_moved_to_its_call() -> None:
    wire = sent(
        Message.user("a"), Message.tool_call("t1", "look", "{}"), Message.user("b"), Message.assistant("c"),
        Message.tool_result("t1", "rain"), Message.user("d"),
    )  # fmt: skip
    assert [turn["content"] for turn in wire] == [
        "a", [use("t1")], [result("t1"), {"type": "text", "text": "b"}], "c", "d",
    ]  # fmt: skip


def test_unpaired_calls_and_results_are_left_out_with_a_warning() -> None:
    history = [
        Message.user("a"), Message(Role.ASSISTANT, [ms.Text("I look."), ToolCall("lost", "look", "{}"),
        ToolCall("t1", "look", "{}")]), Message(Role.TOOL, [ToolResult("t1", "rain"), ToolResult("unasked", "x")]),
        Message.tool_result("t1", "again"), Message.tool_call("pending", "look", "{}"),
    ]  # fmt: skip
    assert sent(*history)[1:] == [
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, use("t1")]},
        {"role": "user", "content": [result("t1")]},
    ]
    assert encode(*history).warnings == [
        "messages: result 'unasked' has no call and is not sent", "messages: result 't1' has no call and is not sent",
        "messages: call 'lost' has no result and is not sent", "messages: call 'pending' has no result and is not sent",
    ]  # fmt: skip


def test_a_reused_id_belongs_to_the_latest_call() -> None:
    wire = sent(
        Message.user("a"), Message.tool_call("call_0", "look", "{}"), Message.tool_result("call_0", "rain"),
        Message.tool_call("call_0", "look", "{}"), Message.tool_result("call_0", "sun"),
    )  # fmt: skip
    assert [turn["content"] for turn in wire[1:]] == [
        [use("call_0")], [result("call_0")], [use("call_0_2")], [result("call_0_2", "sun")],
    ]  # fmt: skip


@pytest.mark.parametrize("ids", [("fc.1|ü", "fc_1_ü"), ("fc\ud800", "fc\udfff")], ids=["accents", "surrogates"])
def test_foreign_ids_are_always_replaced_by_the_same_id(ids: tuple[str, str]) -> None:
    history = [
        Message.user("a"),
        Message(Role.ASSISTANT, [ToolCall(id, "look", "{}") for id in ids]),
        Message(Role.TOOL, [ToolResult(ids[0], "rain"), ToolResult(ids[1], "sun")]),
    ]
    wire = sent(*history)
    first, second = (part["id"] for part in wire[1]["content"])
    assert first != second
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", found) for found in (first, second))
    assert [part["tool_use_id"] for part in wire[2]["content"]] == [first, second]
    assert sent(*history) == wire


def test_thinking_goes_back_unchanged_before_its_call() -> None:
    call = Message.tool_call_with_thinking(
        thinking_text="hm", thinking_signature="c2ln", redacted_data="ZW5j", tool_id="t1", tool_name="look",
        tool_arguments="{}",
    )  # fmt: skip
    assert sent(Message.user("a"), call, Message.tool_result("t1", "rain"))[1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "ZW5j"},
        use("t1"),
    ]


@pytest.mark.parametrize(
    "thinking",
    [
        ms.Thinking("hm", state=ELSEWHERE),
        ms.Thinking("hm", "c2ln", state=ELSEWHERE),
        ms.RedactedThinking("x", state=ELSEWHERE),
        ms.Thinking("hm"),
        ms.Thinking("hm", ""),
    ],
    ids=["foreign", "foreign and signed", "foreign and redacted", "without signature", "with an empty one"],
)
def test_thinking_that_anthropic_did_not_sign_is_not_sent(thinking: ms.Thinking | ms.RedactedThinking) -> None:
    assert sent(Message.user("a"), Message.assistant([thinking, ms.Text("b")]), Message.user("c"))[1]["content"] == "b"


def test_a_compatible_server_gets_only_its_own_thinking() -> None:
    own = ms.Thinking("hm", state=ms.ProviderState("lookalike", {}))
    history = [Message.user("a"), Message.assistant([own, ms.Thinking("x", "c2ln"), ms.Text("b")]), Message.user("c")]
    assert sent(*history, provider=LENIENT)[1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "b"},
    ]


def test_thinking_never_ends_a_message() -> None:
    signed = ms.Thinking("hm", "c2ln")
    assert sent(Message.user("a"), Message.assistant([ms.Text("b"), signed]), Message.user("c"))[1]["content"] == "b"
    assert sent(Message.user("a"), Message.assistant([signed, ms.RedactedThinking("x")]), Message.user("c")) == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "c"}]}
    ]
    with pytest.raises(ms.InvalidRequestError, match="messages"):
        encode(Message.assistant(signed))


def test_thinking_left_out_at_the_end_causes_one_warning() -> None:
    cut = Message.assistant([ms.Text("b"), ms.Thinking("hm", "c2ln"), ms.RedactedThinking("x")])
    history = [Message.user("a"), cut, Message.user("go on"), cut, Message.user("go on")]
    assert encode(*history).warnings == [
        "messages: thinking at the end of an assistant's message is not sent; Anthropic refuses it"
    ]


def test_a_server_call_that_was_cut_off_is_not_sent() -> None:
    cut: dict[str, Any] = {
        "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": '{"query": "riv',
    }  # fmt: skip
    history = [
        Message.user("a"),
        Message.assistant([ms.Text("b"), ms.ProviderBlock("anthropic", cut)]),
        Message.user("c"),
    ]
    assert sent(*history)[1]["content"] == "b"
    assert encode(*history).warnings == [
        "messages: 'server_tool_use' that was cut off is not sent; its input is incomplete"
    ]


def test_an_answer_is_sent_back_as_received() -> None:
    wire = (
        START + block(0, {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "c2ln"})
        + block(1, {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "rain"}})
        + block(2, {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}) + text(3, "Wet.")
        + finish("pause_turn") + STOP
    )  # fmt: skip
    answer = run(wire).response.to_message()
    assert sent(Message.user("a"), answer)[1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "rain"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "text", "text": "Wet."},
    ]


def test_empty_texts_are_left_out_and_a_prefill_is_stripped() -> None:
    assert sent(Message.user([ms.Text(""), ms.Text("a "), ms.Text(" \n")]), Message.assistant("So: \n")) == [
        {"role": "user", "content": "a "},
        {"role": "assistant", "content": "So:"},
    ]


def test_an_assistants_picture_is_left_out_with_a_warning() -> None:
    history = [Message.user("Draw."), Message.assistant([ms.Text("There."), ms.Image(file_id="f")])]
    assert sent(*history)[1]["content"] == "There."
    assert encode(*history).warnings == ["messages: an assistant's Image is not sent; Anthropic takes none"]


ids = st.sampled_from(["a", "b", "c.d", "e|f"])

words = st.sampled_from(["", " ", "hi", "so "])

assistant_blocks = st.one_of(
    words.map(ms.Text),
    st.builds(ToolCall, ids, st.just("look"), st.sampled_from(["{}", "{", ""])),
    st.builds(ms.Thinking, st.just("hm"), st.sampled_from([None, "c2ln"])),
    st.just(ms.ProviderBlock("anthropic", {"type": "container_upload", "file_id": "f"})),
)

user_blocks = st.one_of(words.map(ms.Text), st.builds(ToolResult, ids, words))

conversations = st.lists(
    st.one_of(st.builds(Message, st.just(Role.ASSISTANT), st.lists(assistant_blocks, min_size=1, max_size=4)),
    st.builds(Message, st.just(Role.USER), st.lists(user_blocks, min_size=1, max_size=3)),
    st.builds(Message, st.just(Role.TOOL), st.lists(user_blocks, min_size=1, max_size=3))), min_size=1, max_size=8,
)  # fmt: skip


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(conversations)
def test_calls_of_any_history_are_answered_directly_and_once(messages: list[Message]) -> None:
    try:
        turns = sent(*messages)
    except ms.InvalidRequestError:
        return
    seen: set[str] = set()
    asked: list[str] = []
    for turn in turns:
        parts = turn["content"] if isinstance(turn["content"], list) else []
        assert turn["content"]
        answered = [part["tool_use_id"] for part in parts if part["type"] == "tool_result"]
        assert sorted(answered) == sorted(asked)
        assert [part["type"] for part in parts[: len(answered)]] == ["tool_result"] * len(answered)
        asked = [part["id"] for part in parts if part["type"] == "tool_use"]
        assert not seen.intersection(asked)
        seen.update(asked)
    assert not asked


def test_a_foreign_block_of_a_user_is_left_out_with_a_warning() -> None:
    block = ms.ProviderBlock("openai-responses", {"type": "input_file", "file_id": "f"})
    request = encode(Message(Role.USER, [ms.Text("q"), block]))
    assert json.loads(request.body)["messages"] == [{"role": "user", "content": "q"}]
    assert request.warnings == [
        "messages: 'input_file' of 'openai-responses' is not sent; only its provider understands it"
    ]


USER, MODEL = Message.user("a"), Message.assistant("b")

CALL, RESULT = Message.tool_call("t", "look", "{}"), Message.tool_result("t", "x")

EMPTY = Message.user("")

NO_RESULT = "messages: call 't' has no result and is not sent"

A: ms.JSONObject = {"role": "user", "content": "a"}

B: ms.JSONObject = {"role": "assistant", "content": "b"}


def used(call_id: str = "t") -> list[ms.JSONObject]:
    """Return a call and its result in wire form."""
    return [
        {"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": "x"}]},
    ]


def state(*taken: str, open_calls: tuple[str, ...] = ()) -> WriterState:
    return WriterState(frozenset(taken), open_calls)


OPEN = state(open_calls=("t",))

OPENED = f"messages: begin with the assistant, which Anthropic refuses; sent with {OPENING!r} as the user's first"

BOTH: ms.JSONObject = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "a"}]}

FIRST: list[tuple[list[Message], Segment[WriterState]]] = [
    ([USER], Segment([A], state())),
    ([USER, MODEL], Segment([A, B], None)),
    ([USER, CALL, RESULT], Segment([A, *used()], state("t"))),
    ([USER, CALL, USER], Segment([BOTH], OPEN, [], [NO_RESULT])),
    ([USER, CALL], Segment([A], OPEN, [], [NO_RESULT])),
    ([EMPTY], Segment([], None)),
    ([MODEL], Segment([{"role": "user", "content": OPENING}, B], None, [OPENED])),
]

LATER: list[tuple[list[Message], WriterState, Segment[WriterState] | None]] = [
    ([MODEL], state("t"), Segment([B], None)),
    ([MODEL, USER], state("t"), Segment([B, A], state("t"))),
    ([USER], state("t"), None),
    ([EMPTY], state("t"), Segment([], None)),
    ([CALL, RESULT], state("t"), Segment(used("t_2"), state("t", "t_2"))),
    ([CALL, RESULT], state("t", open_calls=("t",)), Segment(used("t_2"), state("t", "t_2"), [NO_RESULT])),
    ([RESULT], state("t", open_calls=("t",)), None),
]


@pytest.mark.parametrize(("messages", "segment"), FIRST)
def test_the_first_messages_leave_their_state(messages: Sequence[Message], segment: Segment[WriterState]) -> None:
    assert MessageWriter(STRICT).write(messages, 0, None) == segment


@pytest.mark.parametrize(("messages", "before", "segment"), LATER)
def test_later_messages_continue_from_a_state(
    messages: Sequence[Message], before: WriterState, segment: Segment[WriterState] | None
) -> None:
    assert MessageWriter(STRICT).write(messages, 3, before) == segment


QUESTION: ms.JSONObject = {"role": "user", "content": "Which river?"}

CALL_TOOLSET: ms.JSONObject = {"type": "tool_use", "id": "t1", "name": "read", "input": {}, "toolset_name": "files"}

RESULT_TOOLSET: ms.JSONObject = {"type": "tool_result", "tool_use_id": "t1", "content": "Elbe", "toolset_name": "files"}

PICTURE: ms.JSONObject = {
    "type": "image",
    "source": {"type": "url", "url": "https://example.org/a.png"},
    "transformations": {"oversized_image": "downsize"},
}


def answer() -> ms.Response:
    usage: ms.JSONObject = {"input_tokens": 1, "output_tokens": 1}
    message: ms.JSONObject = {"type": "message", "role": "assistant", "content": [CALL_TOOLSET], "usage": usage}
    return DIALECT.decode(json.dumps(message).encode(), ms.Anthropic(), lambda: "made")


def test_a_result_names_the_toolset_of_its_call() -> None:
    """As the tool runner of Anthropic's library does."""
    history = [ms.Message.user("Which river?"), answer().to_message(), ms.Message.tool_result("t1", "Elbe")]
    body = sent_by_us("anthropic", ms.Request("claude-opus-4-6", history))
    expected: list[ms.JSON] = [
        QUESTION,
        {"role": "assistant", "content": [CALL_TOOLSET]},
        {"role": "user", "content": [RESULT_TOOLSET]},
    ]
    assert body["messages"] == expected
    assert AnthropicConverter().encode_messages(history)[1:] == expected[1:]


def test_a_result_for_another_server_names_no_toolset() -> None:
    history = [ms.Message.user("Which river?"), answer().to_message(), ms.Message.tool_result("t1", "Elbe")]
    other = ms.Anthropic(profile="anthropic-compatible", base_url="https://example.org")
    body = sent_by_us("anthropic", ms.Request("m", history), provider=other)
    assert "toolset_name" not in json.dumps(body)


def test_toolsets_and_transformations_stay_in_a_longer_request() -> None:
    messages: list[ms.JSONObject] = [
        {"role": "user", "content": [PICTURE]},
        {"role": "assistant", "content": [CALL_TOOLSET]},
        {"role": "user", "content": [RESULT_TOOLSET]},
    ]
    request = ms.Request.from_anthropic(model="claude-opus-4-6", max_tokens=9, messages=messages)
    more = [*request.messages, ms.Message.assistant("The Elbe."), ms.Message.user("And now?")]
    body = sent_by_us("anthropic", dataclasses.replace(request, messages=more))
    assert body["messages"][:3] == messages  # type: ignore[index,call-overload]
