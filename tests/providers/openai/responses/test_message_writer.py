"""A conversation on the wire: what is sent back to which provider, and in which order."""

from __future__ import annotations

import json

import pytest

from manystream.providers.json.json_values import JSON, JSONObject
from manystream.providers.model.messages import (
    Block,
    CacheControl,
    File,
    Image,
    Message,
    ProviderBlock,
    ProviderState,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from manystream.providers.model.request import Request, Tool
from manystream.providers.openai.responses.message_writer import OUTPUT_KIND
from tests.providers.openai.responses.wire import DIALECT, PROVIDER, body_of, decode, warnings_of

OURS = "openai-responses"

ENCRYPTED: JSONObject = {"id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


def items(*messages: Message, model: str = "gpt-5", **extra: JSON) -> list[JSONObject]:
    """Return the input items of a conversation."""
    sent = body_of(Request(model, messages, extra_body=extra))["input"]
    assert isinstance(sent, list)
    return [item for item in sent if isinstance(item, dict)]


def kinds(*messages: Message, **extra: JSON) -> list[JSON]:
    return [item["type"] for item in items(*messages, **extra)]


def warned(*messages: Message) -> list[str]:
    return warnings_of(Request("gpt-5", messages))


def user(*content: JSON) -> JSONObject:
    return {"type": "message", "role": "user", "content": [*content]}


def text(words: str) -> JSONObject:
    return {"type": "input_text", "text": words}


def call(call_id: str, name: str = "f", arguments: str = "{}") -> JSONObject:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str, result: JSON = "done") -> JSONObject:
    return {"type": "function_call_output", "call_id": call_id, "output": result}


def test_texts_of_a_user_are_parts_of_one_message_in_order() -> None:
    assert items(Message.user([Text("a"), Text("b")])) == [user(text("a"), text("b"))]


def test_an_assistants_texts_are_one_message_of_plain_text() -> None:
    sent = items(Message.user("q"), Message.assistant([Text("one, "), Text(""), Text("two")]), Message.user("q"))
    assert sent[1] == {"type": "message", "role": "assistant", "content": "one, two"}


def test_messages_are_never_merged() -> None:
    sent = items(Message.assistant("a"), Message.assistant("b"))
    assert [item["content"] for item in sent] == ["a", "b"]


def test_a_phase_is_sent_back_only_to_its_provider() -> None:
    def spoken(words: str, provider: str, phase: str) -> Text:
        return Text(words, state=ProviderState(provider, {"phase": phase}))

    sent = items(
        Message.assistant(
            [spoken("a", OURS, "commentary"), spoken("b", OURS, "final_answer"), spoken("c", "else", "x")]
        )
    )
    assert [(item["content"], item.get("phase")) for item in sent] == [
        ("a", "commentary"),
        ("b", "final_answer"),
        ("c", None),
    ]


def test_a_call_and_its_result() -> None:
    conversation = [
        Message.user("q"), Message.tool_call("c1", "look", '{"at":1}'), Message.tool_result("c1", "done"),
        Message.user("and?"),
    ]  # fmt: skip
    assert items(*conversation) == [user(text("q")), call("c1", "look", '{"at":1}'), output("c1"), user(text("and?"))]


def test_a_call_without_arguments_is_sent_with_an_empty_object() -> None:
    sent = items(Message.tool_call("c1", "now", ""), Message.tool_result("c1", "12:00"))
    assert sent[0]["arguments"] == "{}"


def test_long_ids_are_replaced_in_call_and_result() -> None:
    long, longer = "c" * 65, "c" * 66
    sent = items(
        Message.assistant([ToolCall(long, "f", "{}"), ToolCall(longer, "f", "{}")]),
        Message(Role.TOOL, [ToolResult(long, "1"), ToolResult(longer, "2")]),
    )
    ids = [item["call_id"] for item in sent]
    assert ids[:2] == ids[2:]
    assert ids[0] != ids[1]
    assert all(isinstance(call_id, str) and len(call_id) <= 64 for call_id in ids)


def test_reasoning_is_sent_back_before_the_item_it_led_to() -> None:
    conversation = [
        Message.user("q"),
        Message.assistant([Thinking("Hm.", state=ProviderState(OURS, ENCRYPTED)), ToolCall("c1", "f", "{}")]),
        Message.tool_result("c1", "done"),
    ]
    assert items(*conversation)[1:] == [{"type": "reasoning", **ENCRYPTED}, call("c1"), output("c1")]


FOREIGN = "messages: thinking that 'openai-responses' did not make is not sent to it"


@pytest.mark.parametrize(
    ("block", "warning"),
    [
        (Thinking("plain"), FOREIGN),
        (Thinking("signed", signature="sig"), FOREIGN),
        (Thinking("another's", state=ProviderState("anthropic", {"signature": "s"})), FOREIGN),
        (Thinking("another host's", state=ProviderState("somebody", ENCRYPTED)), FOREIGN),
        (RedactedThinking("data"), FOREIGN),
        (ProviderBlock("anthropic", {"type": "server_tool_use"}),
            "messages: 'server_tool_use' of 'anthropic' is not sent; only its provider understands it"),
        (Thinking("nothing to go by", state=ProviderState(OURS, {"id": "rs_1", "summary": []})),
            "messages: reasoning without its ciphertext is not sent; the server keeps none"),
    ],
)  # fmt: skip
def test_state_of_others_is_not_sent_and_causes_one_warning(block: Block, warning: str) -> None:
    assert kinds(Message.assistant([block, Text("answer")])) == ["message"]
    assert warned(Message.assistant([block, block, Text("answer")])) == [warning]


def test_a_server_that_stores_gets_the_reasonings_id() -> None:
    thinking = Thinking("", state=ProviderState(OURS, {"id": "rs_1", "summary": []}))
    assert kinds(Message.assistant([thinking, Text("answer")]), store=True) == ["reasoning", "message"]


def test_reasoning_text_is_sent_back_without_a_ciphertext() -> None:
    content: JSON = [{"type": "reasoning_text", "text": "Hm."}]
    thinking = Thinking("Hm.", state=ProviderState(OURS, {"id": "rs_1", "summary": [], "content": content}))
    assert items(Message.assistant([thinking, Text("answer")]))[0] == {
        "type": "reasoning", "id": "rs_1", "summary": [], "content": content,
    }  # fmt: skip


def test_reasoning_without_a_following_item_is_left_out() -> None:
    thinking = Thinking("Hm.", state=ProviderState(OURS, ENCRYPTED))
    assert kinds(Message.user("q"), Message.assistant([thinking, thinking])) == ["message"]
    assert kinds(Message.assistant([thinking, ToolCall("no result", "f", "{}")]), Message.user("q")) == ["message"]
    assert kinds(Message.assistant([thinking]), Message.user("q"), Message.assistant("a")) == ["message", "message"]
    assert kinds(Message.assistant([thinking, thinking, Text("a")])) == ["reasoning", "reasoning", "message"]


def test_a_thought_is_always_a_reasoning_item() -> None:
    thinking = Thinking("Hm.", state=ProviderState(OURS, {**ENCRYPTED, "type": "custom_tool_call"}))
    assert items(Message.user("q"), Message.assistant([thinking, Text("a")]))[1] == {"type": "reasoning", **ENCRYPTED}


def test_provider_blocks_are_sent_back_unchanged_in_order() -> None:
    search: JSONObject = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}  # fmt: skip  # noqa: E501
    assert items(Message.assistant([ProviderBlock(OURS, search), Text("a")]))[0] == search


PAIRS = {
    "function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output", "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output", "apply_patch_call": "apply_patch_call_output",
    "mcp_approval_request": "mcp_approval_response",
}  # fmt: skip
"""Types of items with a request to the caller, and types of the items that answer them."""


def test_every_pair_of_the_table_is_tested() -> None:
    assert OUTPUT_KIND == PAIRS


CLICK: JSONObject = {"type": "click", "button": "left", "x": 1, "y": 2}

SCREEN: JSONObject = {"type": "computer_screenshot", "file_id": "f"}

LINES: list[JSON] = [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]

ASKED_AND_ANSWERED: list[tuple[JSONObject, JSONObject]] = [
    (
        {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "y"},
    ),
    (
        {"type": "computer_call", "id": "i1", "call_id": "c1", "action": CLICK, "status": "completed",
         "pending_safety_checks": []},
        {"type": "computer_call_output", "call_id": "c1", "output": SCREEN},
    ),
    (
        {"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "c1", "output": LINES},
    ),
    (
        {"type": "apply_patch_call", "call_id": "c1", "status": "completed",
         "operation": {"type": "delete_file", "path": "a"}},
        {"type": "apply_patch_call_output", "call_id": "c1", "status": "completed"},
    ),
    (
        {"type": "mcp_approval_request", "id": "i1", "name": "f", "server_label": "s", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "i1", "approve": True},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "answer"), ASKED_AND_ANSWERED, ids=lambda item: item["type"])
def test_an_item_is_sent_back_with_its_answer(asked: JSONObject, answer: JSONObject) -> None:
    conversation = [Message.assistant(ProviderBlock(OURS, asked)), Message.user(ProviderBlock(OURS, answer))]
    assert items(*conversation) == [asked, answer]
    assert not warned(*conversation)


@pytest.mark.parametrize("kind", [kind for kind in PAIRS if kind != "function_call"])
def test_a_provider_call_is_sent_back_only_with_its_output(kind: str) -> None:
    conversation = [
        Message.user("q"),
        Message.assistant(ProviderBlock(OURS, {"type": kind, "id": "i1", "call_id": "c1"})),
    ]
    assert kinds(*conversation) == ["message"]
    assert warned(*conversation)


def test_a_shell_call_is_sent_back_with_its_output() -> None:
    shell: JSONObject = {"type": "local_shell_call", "id": "sh", "call_id": "c1", "status": "completed"}
    shell["action"] = {"type": "exec", "command": ["ls"], "env": {}}
    answer: JSONObject = {"type": "local_shell_call_output", "id": "c1", "output": "a.txt"}
    conversation = [Message.assistant(ProviderBlock(OURS, shell)), Message.user(ProviderBlock(OURS, answer))]
    assert items(*conversation) == [shell, answer]
    assert warned(*conversation) == []


def test_provider_blocks_of_a_user_keep_their_position() -> None:
    approval: JSONObject = {"type": "mcp_approval_response", "approval_request_id": "ap", "approve": True}
    sent = items(Message.user([Text("a"), ProviderBlock(OURS, approval), Text("b"), ProviderBlock("else", {"x": 1})]))
    assert sent == [user(text("a")), approval, user(text("b"))]


@pytest.mark.parametrize("block", [Image(url="https://a/b.png"), File(url="https://a/b.pdf")])
def test_unsupported_blocks_of_an_assistant_cause_warnings(block: Image | File) -> None:
    message = Message.assistant([Text("see"), block])
    assert kinds(message) == ["message"]
    assert type(block).__name__ in warned(message)[0]


def test_a_custom_call_and_its_output_keep_their_kind() -> None:
    answer = decode(
        {"status": "completed", "output": [{"type": "custom_tool_call", "call_id": "c1", "name": "sql",
        "input": "SELECT"}]}
    )  # fmt: skip
    sent = items(answer.to_message(), Message.tool_result("c1", "1"))
    assert sent == [
        {"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "SELECT"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "1"},
    ]


def test_a_kept_call_of_an_unknown_kind_is_a_function_call() -> None:
    state = ProviderState("openai-responses", {"type": "relay_call", "id": "rc_1"})
    called = Message("assistant", [ToolCall("c1", "f", "{}", state=state)])
    request = Request("gpt-5", [called, Message.tool_result("c1", "done")])
    wire = DIALECT.encode(request, "gpt-5", PROVIDER, stream=False)
    assert json.loads(wire.body)["input"] == [
        {"type": "relay_call", "call_id": "c1", "name": "f", "arguments": "{}", "id": "rc_1"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
    ]


def test_a_call_by_a_program_is_sent_back_with_its_caller() -> None:
    caller: JSON = {"type": "program", "caller_id": "prog_1"}
    wire: JSONObject = {**call("c1"), "namespace": "crm", "caller": caller}
    sent = items(decode({"status": "completed", "output": [wire]}).to_message(), Message.tool_result("c1", "1"))
    assert sent == [wire, {**output("c1", "1"), "caller": caller}]


def test_an_answer_is_sent_back_as_received() -> None:
    reasoning: JSONObject = {"type": "reasoning", **ENCRYPTED}
    spoken: JSONObject = {
        "type": "message",
        "phase": "commentary",
        "content": [{"type": "output_text", "text": "Wait."}],
    }
    answer = decode({"status": "completed", "output": [reasoning, spoken, call("c1")]})
    assert items(answer.to_message(), Message.tool_result("c1", "done")) == [
        reasoning, {"type": "message", "role": "assistant", "content": "Wait.", "phase": "commentary"}, call("c1"),
        output("c1"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("control", "mark"),
    [
        (CacheControl(), {"mode": "explicit"}),
        (CacheControl("5m"), {"mode": "explicit", "ttl": "30m"}),
        (CacheControl("1h"), {"mode": "explicit", "ttl": "12h"}),
    ],
)
def test_cache_marks_are_sent_to_models_that_accept_them(control: CacheControl, mark: JSONObject) -> None:
    conversation = [
        Message.user([Text("long", cache_control=control), Text("short")]),
        Message.tool_call("c1", "f", "{}"),
        Message(Role.TOOL, ToolResult("c1", "done", cache_control=control)),
    ]
    sent = items(*conversation, model="gpt-5.6-sol")
    assert sent[0] == user({**text("long"), "prompt_cache_breakpoint": mark}, text("short"))
    assert sent[2]["output"] == [{**text("done"), "prompt_cache_breakpoint": mark}]
    assert "prompt_cache_breakpoint" not in str(items(*conversation, model="gpt-5.5"))
    assert "prompt_cache_breakpoint" not in str(items(*conversation, model="grok-4"))


def test_a_failed_result_is_sent_with_a_warning() -> None:
    failed = Message(Role.TOOL, ToolResult("c1", "no", is_error=True))
    (warning,) = warned(Message.user("go"), Message.tool_call("c1", "f", "{}"), failed)
    assert "is_error" in warning


@pytest.mark.parametrize(
    "request_",
    [
        Request("gpt-5", [Message.user(Text("long", cache_control=CacheControl()))]),
        Request("gpt-5", [Message.user("go")], system=[Text("long", cache_control=CacheControl())]),
        Request("gpt-5", [Message.user("go")], tools=[Tool("f", cache_control=CacheControl())]),
    ],
)
def test_cache_marks_without_a_place_cause_warnings(request_: Request) -> None:
    (warning,) = warnings_of(request_)
    assert warning.startswith("cache_control")
