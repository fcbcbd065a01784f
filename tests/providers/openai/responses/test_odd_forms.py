"""Answers of other forms than the API's: they are read, or they are an error with the server's bytes."""

import pytest

import manystream as ms
from manystream.providers.history import HistoryError
from manystream.providers.openai.responses.converter import ResponsesConverter
from tests.providers.openai.responses.wire import body_of, decode, stream_of

NAMELESS = "1 tool call(s) that never got a name were dropped"


def completed(output: ms.JSON, **members: ms.JSON) -> ms.JSONObject:
    return {"id": "r", "model": "m", "status": "completed", "output": output, **members}


def item_done(item: ms.JSONObject) -> ms.JSONObject:
    return {"type": "response.output_item.done", "output_index": 0, "item": item}


UNREADABLE: dict[str, tuple[ms.JSON, str]] = {
    "a text": ("hello", "the output is no array"),
    "an object": ({"type": "message", "content": "hello"}, "the output is no array"),
    "texts": (["hello"], "the output contains a value that is no item"),
    "lists": ([[{"type": "message", "content": "hello"}]], "the output contains a value that is no item"),
}


@pytest.mark.parametrize(("output", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_output_that_cannot_be_read_is_an_error(output: ms.JSON, reason: str) -> None:
    with pytest.raises(ms.ProviderError, match=reason) as raised:
        decode(completed(output))
    assert raised.value.category is ms.ErrorCategory.SERVER
    answer = stream_of({"type": "response.completed", "response": completed(output)})
    assert answer.error.error.message.startswith(f"{reason}: ")


@pytest.mark.parametrize("output", [None, "", {}, [], [None, 3]], ids=str)
def test_output_without_content_is_empty(output: ms.JSON) -> None:
    assert decode(completed(output)).content == []


def test_a_text_instead_of_a_part_is_read() -> None:
    item: ms.JSONObject = {"type": "message", "content": ["One ", {"type": "output_text", "text": "two"}]}
    assert decode(completed([item])).content == [ms.Text("One "), ms.Text("two")]
    assert stream_of(item_done(item), {"type": "response.completed"}).response.text == "One two"


def test_the_text_of_a_response_without_items_is_read() -> None:
    assert decode(completed([], output_text="hello")).content == [ms.Text("hello")]
    assert decode(completed(None, output_text="hello")).content == [ms.Text("hello")]
    message: ms.JSONObject = {"type": "message", "content": [{"type": "output_text", "text": "hello"}]}
    assert decode(completed([message], output_text="hello")).content == [ms.Text("hello")]
    final: ms.JSONObject = {"type": "response.completed", "response": completed([], output_text="hello")}
    assert stream_of(item_done(message), final).response.content == [ms.Text("hello")]


@pytest.mark.parametrize("member", ["summary", "content"])
@pytest.mark.parametrize("value", ["Hm.", ["Hm."], [{"text": "H"}, "m."]], ids=str)
def test_reasoning_in_plain_text_is_read(member: str, value: ms.JSON) -> None:
    item: ms.JSONObject = {"type": "reasoning", "id": "rs", member: value}
    for response in (
        decode(completed([item])),
        stream_of(item_done(item), {"type": "response.completed", "response": completed([item])}).response,
    ):
        (block,) = response.content
        assert isinstance(block, ms.Thinking)
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
def test_arguments_that_are_no_text_are_not_lost(sent: ms.JSON, arguments: str) -> None:
    item: ms.JSONObject = {"type": "function_call", "call_id": "c", "name": "f", "arguments": sent}
    assert decode(completed([item])).content == [ms.ToolCall("c", "f", arguments)]
    assert stream_of(item_done(item), {"type": "response.completed"}).response.content == [
        ms.ToolCall("c", "f", arguments)
    ]


@pytest.mark.parametrize(
    "members", [{"arguments": "{}"}, {"function": {"name": "f", "arguments": "{}"}}], ids=["no name", "chat's form"]
)
def test_a_call_without_a_name_has_a_warning(members: ms.JSONObject) -> None:
    item: ms.JSONObject = {"type": "function_call", "id": "fc", "call_id": "c", **members}
    response = decode(completed([item]))
    assert (response.content, response.finish_reason, response.warnings) == ([], ms.FinishReason.STOP, [NAMELESS])
    with pytest.raises(HistoryError, match=NAMELESS.replace("(", "[(]").replace(")", "[)]")):
        ResponsesConverter().decode_messages([item])


def test_arguments_without_their_call_have_a_warning() -> None:
    arguments: list[ms.JSONObject] = [
        {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc", "delta": "{}"},
        {"type": "response.function_call_arguments.done", "output_index": 0, "item_id": "fc", "arguments": "{}"},
    ]
    item: ms.JSONObject = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}

    def answer(*output: ms.JSON) -> ms.JSONObject:
        return {"type": "response.completed", "response": completed([*output])}

    assert stream_of(*arguments, answer()).response.warnings == [NAMELESS]
    for response in (
        stream_of(*arguments, answer(item)).response,
        stream_of(*arguments, item_done(item), answer()).response,
    ):
        assert (response.content, response.warnings) == ([ms.ToolCall("c", "f", "{}")], [])


def arguments(text: str, index: int | None = 0, id: str | None = "fc", kind: str = "delta") -> ms.JSONObject:
    """Return an event with arguments: the next piece, or all of them (`done`)."""
    event: ms.JSONObject = {"type": f"response.function_call_arguments.{kind}"}
    event |= {"output_index": index} if index is not None else {}
    event |= {"item_id": id} if id is not None else {}
    return event | ({"delta": text} if kind == "delta" else {"arguments": text})


def call(id: str = "fc", call_id: str = "c", whole: str | None = None, **members: ms.JSON) -> ms.JSONObject:
    item: ms.JSONObject = {"type": "function_call", "id": id, "call_id": call_id, "name": "f", **members}
    return item if whole is None else {**item, "arguments": whole}


def added(item: ms.JSONObject, index: int = 0) -> ms.JSONObject:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def final(*items: ms.JSONObject) -> ms.JSONObject:
    return {"type": "response.completed", "response": completed([*items])}


SAID: ms.JSONObject = {"type": "message", "id": "msg", "content": [{"type": "output_text", "text": "hi"}]}
X, Y = '{"x":1}', '{"y":2}'
EARLY: dict[str, tuple[list[ms.JSONObject], list[tuple[str, str]]]] = {
    "one piece": ([arguments('{"x":'), added(call()), arguments("1}"), final(call())], [("c", X)]),
    "all pieces": ([arguments('{"x":'), arguments("1}"), added(call()), final(call())], [("c", X)]),
    "all pieces, and the end": (
        [arguments('{"x":'), arguments("1}"), arguments(X, kind="done"), added(call()), final(call())], [("c", X)],
    ),
    "the end only": ([arguments(X, kind="done"), added(call()), final(call())], [("c", X)]),
    "an end that differs": ([arguments('{"x"'), arguments(Y, kind="done"), added(call()), final(call())], [("c", Y)]),
    "before a whole item": ([arguments('{"x":'), arguments("1}"), item_done(call()), final(call())], [("c", X)]),
    "before the final response": ([arguments('{"x":'), arguments("1}"), final(call())], [("c", X)]),
    "with final arguments": ([arguments('{"x":'), added(call()), arguments("1}"), final(call(whole=X))], [("c", X)]),
    "with a new id in each event": (
        [arguments('{"x":', 0, "a"), arguments("1}", 0, "b"), arguments(X, 0, "d", "done"), added(call()), final()],
        [("c", X)],
    ),
    "without ids": ([arguments('{"x":', id=None), added(call()), arguments("1}", id=None), final()], [("c", X)]),
    "of two calls": (
        [arguments('{"x":', 0), arguments('{"y":', 1, "fd"), added(call("fd", "d"), 1), added(call(), 0),
         arguments("1}", 0), arguments("2}", 1, "fd"), final(call(), call("fd", "d"))],
        [("d", Y), ("c", X)],
    ),
    "of two calls with one index": (
        [arguments(X), arguments(Y, 0, "fd"), added(call()), added(call("fd", "d")), final()], [("c", X), ("d", Y)],
    ),
    "of a call after another with one index": (
        [added(call()), arguments(X), item_done(call(whole=X)), arguments(Y, 0, "fd"), added(call("fd", "d")), final()],
        [("c", X), ("d", Y)],
    ),
    "of a call after a message with one index": (
        [added(SAID), item_done(SAID), arguments(X), added(call()), final()], [("c", X)],
    ),
    "of a custom tool": (
        [{"type": "response.custom_tool_call_input.delta", "output_index": 0, "item_id": "fc", "delta": "go"},
         added(call(type="custom_tool_call")), final()],
        [("c", "go")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("events", "calls"), EARLY.values(), ids=EARLY)
def test_arguments_before_their_call_belong_to_it(events: list[ms.JSONObject], calls: list[tuple[str, str]]) -> None:
    outcome = stream_of(*events)
    blocks = [block for block in outcome.response.content if isinstance(block, ms.ToolCall)]
    assert [(block.id, block.arguments) for block in blocks] == calls
    assert [outcome.text_at(outcome.response.content.index(block)) for block in blocks] == [text for _, text in calls]
    assert all(block.complete for block in blocks)
    assert outcome.response.finish_reason is ms.FinishReason.TOOL_USE
    assert outcome.response.warnings == []


def test_arguments_of_a_server_s_tool_belong_to_no_call() -> None:
    search: ms.JSONObject = {"type": "web_search_call", "id": "ws"}
    outcome = stream_of(added(search), arguments('{"q":', id="ws"), added(call(), 1), arguments(X, 1), final())
    assert [block.arguments for block in outcome.response.tool_calls] == [X]


def test_arguments_of_many_calls_that_never_come_are_bounded() -> None:
    events = [arguments("{}", index, f"fc_{index}") for index in range(200)]
    response = stream_of(*events, final(SAID)).response
    assert response.text == "hi"
    assert response.warnings == ["63 tool call(s) that never got a name were dropped"]


def test_an_error_beside_a_completed_status_is_kept() -> None:
    error: ms.JSONObject = {"code": "odd", "message": "Not all of it."}
    response = decode(completed([{"type": "message", "content": "a"}], error=error))
    assert (response.text, response.provider_data["error"]) == ("a", error)


BESIDE: dict[str, tuple[ms.JSONObject, str | None, ms.ErrorCategory]] = {
    "an object": ({"error": {"message": "broke", "code": "upstream_error"}}, "upstream_error", ms.ErrorCategory.SERVER),
    "with its status": ({"error": {"message": "broke"}, "status_code": 429}, None, ms.ErrorCategory.RATE_LIMIT),
    "a text": ({"error": "broke", "code": "rate_limit_exceeded"}, "rate_limit_exceeded", ms.ErrorCategory.RATE_LIMIT),
    "flat": ({"message": "broke", "code": "rate_limit_exceeded"}, "rate_limit_exceeded", ms.ErrorCategory.RATE_LIMIT),
}


@pytest.mark.parametrize(("members", "code", "category"), BESIDE.values(), ids=BESIDE)
@pytest.mark.parametrize("end", ["response.failed", "response.done"])
def test_an_error_beside_a_failed_response_is_its_error(
    end: str, members: ms.JSONObject, code: str | None, category: ms.ErrorCategory
) -> None:
    response: ms.JSONObject = {"id": "r", "status": "failed", "error": None, "output": []}
    error = stream_of({"type": end, "response": response, **members}).error.error
    assert (error.message, error.provider_code, error.category) == ("broke", code, category)
    own = {**response, "error": {"message": "its own", "code": "server_error"}}
    assert stream_of({"type": end, "response": own, **members}).error.error.message == "its own"


def test_the_end_may_be_called_done() -> None:
    message: ms.JSONObject = {"type": "message", "content": [{"type": "output_text", "text": "hello"}]}
    ends: list[tuple[ms.JSONObject, ms.FinishReason]] = [
        (completed([message]), ms.FinishReason.STOP),
        ({**completed([message]), "status": None}, ms.FinishReason.STOP),
        ({**completed([message]), "status": "incomplete"}, ms.FinishReason.LENGTH),
    ]
    for response, reason in ends:
        answer = stream_of(item_done(message), {"type": "response.done", "response": response})
        assert (answer.response.text, answer.response.finish_reason) == ("hello", reason)
    assert stream_of(item_done(message), {"type": "response.done"}).response.text == "hello"


@pytest.mark.parametrize("part", ["response.steer.failed", "response.inject.failed", "response.mcp_call.failed"])
def test_the_failure_of_a_part_does_not_end_the_response(part: str) -> None:
    response = stream_of(
        {"type": "response.created", "response": {"id": "r"}},
        {"type": part, "stream_id": "s", "error": {"code": "x", "message": "late"}},
        {"type": "response.output_text.delta", "stream_id": "s", "delta": "a"},
        {"type": "response.completed", "stream_id": "s", "response": {"id": "r", "status": "completed"}},
    ).response
    assert (response.text, response.finish_reason) == ("a", ms.FinishReason.STOP)
    assert "stream_id" not in response.provider_data


PATCH: ms.JSON = {"type": "update_file", "path": "a.py", "diff": "+1"}
CLICK: ms.JSON = [{"type": "click", "button": "left", "x": 1, "y": 2}]
EXEC: ms.JSON = {"type": "exec", "command": ["ls"], "env": {}}
LISTED: ms.JSON = [{"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
PICTURE = ms.Image(url="https://h.example/s.png")
OWN_CALLS: dict[str, tuple[ms.JSONObject, str, ms.JSON, ms.ToolResult, ms.JSONObject]] = {
    "apply_patch": (
        {"type": "apply_patch_call", "id": "i", "call_id": "c", "status": "completed", "operation": PATCH},
        "apply_patch", PATCH, ms.ToolResult("c", "done"),
        {"type": "apply_patch_call_output", "call_id": "c", "status": "completed", "output": "done"},
    ),
    "shell": (
        {"type": "shell_call", "id": "i", "call_id": "c", "action": {"commands": ["ls"]}},
        "shell", {"commands": ["ls"]}, ms.ToolResult("c", "x"),
        {"type": "shell_call_output", "call_id": "c", "output": LISTED},
    ),
    "local shell": (
        {"type": "local_shell_call", "id": "i", "call_id": "c", "status": "completed", "action": EXEC},
        "local_shell", EXEC, ms.ToolResult("c", "x"),
        {"type": "local_shell_call_output", "id": "c", "output": "x"},
    ),
    "computer": (
        {"type": "computer_call", "id": "i", "call_id": "c", "actions": CLICK, "status": "completed",
         "pending_safety_checks": []},
        "computer", {"actions": CLICK}, ms.ToolResult("c", [PICTURE]),
        {"type": "computer_call_output", "call_id": "c",
         "output": {"type": "computer_screenshot", "image_url": PICTURE.url}},
    ),
    "approval": (
        {"type": "mcp_approval_request", "id": "c", "server_label": "s", "name": "f", "arguments": "{}"},
        "mcp_approval_request", {"server_label": "s", "name": "f", "arguments": "{}"}, ms.ToolResult("c", "yes"),
        {"type": "mcp_approval_response", "approval_request_id": "c", "approve": True},
    ),
    "approval, refused": (
        {"type": "mcp_approval_request", "id": "c", "server_label": "s", "name": "f", "arguments": "{}"},
        "mcp_approval_request", {"server_label": "s", "name": "f", "arguments": "{}"}, ms.ToolResult("c", "never"),
        {"type": "mcp_approval_response", "approval_request_id": "c", "approve": False, "reason": "never"},
    ),
}  # fmt: skip
"""The item, the call's name and arguments, a result, and the item that it goes back as."""


@pytest.mark.parametrize("name", OWN_CALLS)
def test_a_call_of_the_apis_own_tool_is_to_be_run(name: str) -> None:
    item, tool, arguments, result, output = OWN_CALLS[name]
    whole = decode(completed([item]))
    added = {"type": "response.output_item.added", "output_index": 0, "item": item}
    streamed = stream_of(added, item_done(item), {"type": "response.completed", "response": completed([item])})
    assert streamed.response == whole
    assert [type(event) for event in streamed.events[-3:]] == [ms.ToolCallDelta, ms.ToolCallDone, ms.Done]
    (call,) = whole.tool_calls
    assert (whole.finish_reason, call.id, call.name, call.parsed) == (ms.FinishReason.TOOL_USE, "c", tool, arguments)
    messages = [ms.Message.user("Hi"), whole.to_message(), ms.Message(ms.Role.TOOL, [result])]
    assert body_of(ms.Request("gpt-5", messages))["input"][1:] == [item, output]  # type: ignore[index, call-overload]
    assert ResponsesConverter().encode_messages(messages)[1:] == [item, output]
    assert ResponsesConverter().encode_messages(ResponsesConverter().decode_messages([item, output])) == [item, output]


def test_a_call_that_the_server_has_run_is_not_to_be_run() -> None:
    shell: ms.JSONObject = {"type": "shell_call", "id": "i", "call_id": "c", "action": {"commands": ["ls"]}}
    output: ms.JSONObject = {"type": "shell_call_output", "call_id": "c", "output": []}
    in_container = {**shell, "environment": {"type": "container_reference", "container_id": "k"}}
    cut = {**shell, "status": "incomplete"}
    for items in ([shell, output], [in_container], [cut]):
        response = decode(completed([*items]))
        assert (response.finish_reason, response.tool_calls) == (ms.FinishReason.STOP, [])
        assert response.content == [ms.ProviderBlock("openai-responses", item) for item in items]
    unfinished = decode({**completed([shell]), "status": "incomplete"})
    assert (unfinished.finish_reason, unfinished.tool_calls) == (ms.FinishReason.LENGTH, [])


@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call"])
def test_calls_and_their_outputs_keep_their_types(kind: str) -> None:
    member = "arguments" if kind == "function_call" else "input"
    call: ms.JSONObject = {"type": kind, "call_id": "c", "name": "f", member: "{}"}
    items: list[ms.JSONObject] = [call, {"type": f"{kind}_output", "call_id": "c", "output": "r"}]
    assert ResponsesConverter().encode_messages(ResponsesConverter().decode_messages(items)) == items
