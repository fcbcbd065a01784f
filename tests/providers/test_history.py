"""The common history: its parts and their rules, and its conversion to and from the message model."""

import pytest

import manystream as ms
from manystream.providers.history import (
    FinishReasonPart,
    History,
    HistoryError,
    HistoryMessage,
    HistoryRole,
    OtherPart,
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

CALL = ToolCallPart("c1", "weather", {"city": "Oslo"})
OK = ToolCallResult.ok("rain")


# --- tool outputs and results ---


@pytest.mark.parametrize(
    ("value", "output"),
    [
        (None, None),
        (ToolOutput("table", [1]), ToolOutput("table", [1])),
        ("text", ToolOutput("text", "text")),
        ([1, 2], ToolOutput("text", [1, 2])),
        ({"a": 1}, ToolOutput("text", {"a": 1})),
        (42, ToolOutput("text", "42")),
        (1.5, ToolOutput("text", "1.5")),
    ],
)
def test_an_output_is_made_of_anything(value: object, output: ToolOutput | None) -> None:
    assert ToolOutput.from_any(value) == output


def test_an_outputs_type_is_not_empty() -> None:
    with pytest.raises(HistoryError, match=r"ToolOutput\.type"):
        ToolOutput("", "x")


@pytest.mark.parametrize(("success", "failure"), [(True, None), (True, False), (None, True), (False, True)])
def test_a_result_has_exactly_one_of_success_and_failure_true(success: bool | None, failure: bool | None) -> None:
    ToolCallResult(success, failure)


@pytest.mark.parametrize(
    ("success", "failure"), [(True, True), (False, False), (None, None), (None, False), (False, None)]
)
def test_any_other_result_is_refused(success: bool | None, failure: bool | None) -> None:
    with pytest.raises(HistoryError, match="exactly one of success and failure must be true"):
        ToolCallResult(success, failure)


def test_outputs_of_tools() -> None:
    # Ok and error make results.
    assert (OK.success, OK.failure, OK.output) == (True, None, ToolOutput("text", "rain"))
    failed = ToolCallResult.error("boom", "It broke.")
    assert (failed.success, failed.failure, failed.output) == (None, True, ToolOutput("text", "boom"))
    # The display output defaults to the output.
    assert OK.get_display_output() == ToolOutput("text", "rain")
    assert ToolCallResult.ok("rain", "It rains.").get_display_output() == ToolOutput("text", "It rains.")


@pytest.mark.parametrize("result", [OK, ToolCallResult.error({"a": [1]}, "x"), ToolCallResult.ok(None)])
def test_a_result_survives_its_json(result: ToolCallResult) -> None:
    assert ToolCallResult.from_json(result.to_json()) == result


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"success": "yes"},
        {"success": True, "output": "x"},
        {"success": True, "output": {"type": "text", "content": 5}},
        {"success": True, "failure": True},
        {"success": True, "temperature": 21},
    ],
)
def test_json_that_is_no_result_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(HistoryError, match="ToolCallResult"):
        ToolCallResult.from_json(data)  # type: ignore[arg-type]


# --- parts and messages ---


@pytest.mark.parametrize("make", [lambda: ToolCallPart("c", ""), lambda: ToolResultPart("c", "", OK)])
def test_a_tools_name_has_at_least_one_character(make: object) -> None:
    with pytest.raises(HistoryError, match="name: must be text that is not empty"):
        make()  # type: ignore[operator]


def test_roles_and_parts_that_are_unknown() -> None:
    # An unknown role is a clear error.
    with pytest.raises(HistoryError, match="role: unknown role 'robot'; known are system, user, model, tool, context"):
        HistoryMessage("robot", "x")
    # An unknown part is a clear error.
    with pytest.raises(HistoryError, match=r"parts\[1\]: unknown part dict"):
        HistoryMessage("user", [TextPart("x"), {"text": "y"}])  # type: ignore[list-item]


def test_only_messages_are_added_and_an_empty_one_adds_nothing() -> None:
    history = History()
    history.add(HistoryMessage("user", []))
    assert history.conversation == []
    history.add(HistoryMessage("user", "x"))
    assert len(history.conversation) == 1
    with pytest.raises(HistoryError, match="message: must be a HistoryMessage, not Message"):
        history.add(ms.Message.user("x"))  # type: ignore[arg-type]


# --- the view ---

ROLES = [("user", "user"), ("model", "assistant"), ("context", "user")]


@pytest.mark.parametrize(("role", "message_role"), ROLES)
def test_every_history_role_has_a_role_in_the_message_model(role: str, message_role: str) -> None:
    assert messages_of(History(conversation=[HistoryMessage(role, "x")])) == [ms.Message(message_role, "x")]


def test_parts_that_only_one_side_has() -> None:
    # The context is the first message.
    history = History("Be brief.", "Files: a.py", [HistoryMessage("system", "more"), HistoryMessage("user", "hi")])
    assert messages_of(history) == [ms.Message.user("Files: a.py"), ms.Message.user("hi")]
    # Usage and finish reason are not sent back.
    spoken = HistoryMessage("model", [TextPart("x"), UsagePart(1, 2), FinishReasonPart("stop")])
    assert messages_of(History(conversation=[spoken])) == [ms.Message.assistant("x")]


def test_a_result_is_its_json_text_and_a_failure_is_an_error() -> None:
    items = [
        HistoryMessage("tool", [ToolResultPart("c", "f", OK), ToolResultPart("d", "f", ToolCallResult.error("!"))])
    ]
    (message,) = messages_of(History(conversation=items))
    assert message.content == [
        ms.ToolResult("c", '{"success":true,"output":{"type":"text","content":"rain"}}'),
        ms.ToolResult("d", '{"failure":true,"output":{"type":"text","content":"!"}}', is_error=True),
    ]


def test_calls_and_results_of_messages() -> None:
    # Malformed arguments are kept as raw text and flagged.
    (item,) = history_messages_of([ms.Message.tool_call("c", "f", '{"a": ')])
    assert item.tool_calls == [ToolCallPart("c", "f", {}, malformed='{"a": ')]
    assert messages_of(History(conversation=[item])) == [ms.Message.tool_call("c", "f", '{"a": ')]
    # Tool names are inferred from earlier calls.
    items = history_messages_of(
        [ms.Message.tool_call("c", "f", "{}"), ms.Message.tool_result("c", "1"), ms.Message.tool_result("x", "2")]
    )
    assert [part.name for item in items for part in item.parts if isinstance(part, ToolResultPart)] == ["f", "unknown"]
    # Plain results of the message model are outputs.
    items = history_messages_of([ms.Message.tool_result("c", "1"), ms.Message.tool_result("d", "!", is_error=True)])
    results = [part.result for item in items for part in item.parts if isinstance(part, ToolResultPart)]
    assert results == [ToolCallResult.ok("1"), ToolCallResult.error("!")]


def test_blocks_without_a_part_are_unchanged() -> None:
    """Signatures as well: the history is a view, so nothing of the message model is lost."""
    state = ms.ProviderState("google", {"thoughtSignature": "s"})
    message = ms.Message.assistant(
        [ms.Thinking("hm", "sig"), ms.RedactedThinking("xyz"), ms.Text("a", state=state),
        ms.ToolCall("c", "f", '{ "a": 1 }', state=state), ms.ProviderBlock("anthropic", {"type": "server_tool_use"})]
    )  # fmt: skip
    (item,) = history_messages_of([message])
    assert [type(part) for part in item.parts] == [OtherPart, OtherPart, TextPart, ToolCallPart, OtherPart]
    assert messages_of(History(conversation=[item])) == [message]


def test_changed_parts_and_results() -> None:
    # A changed part replaces its block.
    (item,) = history_messages_of([ms.Message.assistant(ms.Text("a", state=ms.ProviderState("google", {"x": 1})))])
    assert isinstance(item.parts[0], TextPart)
    item.parts[0].text = "b"
    assert messages_of(History(conversation=[item])) == [ms.Message.assistant("b")]
    # A users message with results becomes two.
    items = history_messages_of([ms.Message.user([ms.ToolResult("c", "1"), ms.Text("go on")])])
    assert [item.role for item in items] == [HistoryRole.TOOL, HistoryRole.USER]


# --- answers ---


def test_an_answer_is_content_then_usage_then_finish_reason() -> None:
    response = ms.Response(
        [ms.Text("I look."), ms.ToolCall("c1", "weather", '{"city":"Oslo"}')], ms.FinishReason.TOOL_USE, "tool_use",
        ms.Usage(input_tokens=5, output_tokens=7, thinking_tokens=2),
    )  # fmt: skip
    assert message_from_response(response) == HistoryMessage(
        "model", [TextPart("I look."), CALL, UsagePart(5, 9), FinishReasonPart("tool_use")]
    )


def test_the_message_of_a_response() -> None:
    # Partial usage keeps unknown apart from zero.
    item = message_from_response(ms.Response([ms.Text("x")], usage=ms.Usage(output_tokens=0)))
    assert item == HistoryMessage("model", [TextPart("x"), UsagePart(None, 0)])
    item = message_from_response(ms.Response([ms.Text("x")], usage=ms.Usage(input_tokens=7)))
    assert item == HistoryMessage("model", [TextPart("x"), UsagePart(7, None)])
    # Without usage and finish reason there are no such parts.
    assert message_from_response(ms.Response([ms.Text("x")])) == HistoryMessage("model", "x")
    # An empty answer is no message.
    assert message_from_response(ms.Response()) is None
    # A refusal is the text and the finish message.
    item = message_from_response(ms.Response(raw_finish_reason="stop", refusal="I will not."))
    assert item == HistoryMessage("model", [TextPart("I will not."), FinishReasonPart("stop", "I will not.")])
    # A refusal beside text is the finish message.
    item = message_from_response(ms.Response([ms.Text("Well.")], raw_finish_reason="stop", refusal="I will not."))
    assert item == HistoryMessage("model", [TextPart("Well."), FinishReasonPart("stop", "I will not.")])
