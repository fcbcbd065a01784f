"""The common history: its parts and their rules, and its conversion to and from the message model."""

import pytest

import manystream as ms
from manystream.providers.history import (
    FinishReasonPart,
    History,
    HistoryError,
    HistoryMessage,
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


def test_ok_and_error_make_results() -> None:
    assert (OK.success, OK.failure, OK.output) == (True, None, ToolOutput("text", "rain"))
    failed = ToolCallResult.error("boom", "It broke.")
    assert (failed.success, failed.failure, failed.output) == (None, True, ToolOutput("text", "boom"))


def test_the_display_output_defaults_to_the_output() -> None:
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


def test_an_unknown_role_is_a_clear_error() -> None:
    with pytest.raises(HistoryError, match="role: unknown role 'robot'; known are system, user, model, tool, context"):
        HistoryMessage("robot", "x")


def test_an_unknown_part_is_a_clear_error() -> None:
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


def test_the_context_is_the_first_message() -> None:
    history = History("Be brief.", "Files: a.py", [HistoryMessage("system", "more"), HistoryMessage("user", "hi")])
    assert messages_of(history) == [ms.Message.user("Files: a.py"), ms.Message.user("hi")]


def test_usage_and_finish_reason_are_not_sent_back() -> None:
    spoken = HistoryMessage("model", [TextPart("x"), UsagePart(1, 2), FinishReasonPart("stop")])
    assert messages_of(History(conversation=[spoken])) == [ms.Message.assistant("x")]


def test_tool_names_are_inferred_from_earlier_calls() -> None:
    items = history_messages_of(
        [ms.Message.tool_call("c", "f", "{}"), ms.Message.tool_result("c", "1"), ms.Message.tool_result("x", "2")]
    )
    assert [part.name for item in items for part in item.parts if isinstance(part, ToolResultPart)] == ["f", "unknown"]


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


def test_a_changed_part_replaces_its_block() -> None:
    (item,) = history_messages_of([ms.Message.assistant(ms.Text("a", state=ms.ProviderState("google", {"x": 1})))])
    assert isinstance(item.parts[0], TextPart)
    item.parts[0].text = "b"
    assert messages_of(History(conversation=[item])) == [ms.Message.assistant("b")]


# --- answers ---


def test_an_answer_is_content_then_usage_then_finish_reason() -> None:
    response = ms.Response(
        [ms.Text("I look."), ms.ToolCall("c1", "weather", '{"city":"Oslo"}')], ms.FinishReason.TOOL_USE, "tool_use",
        ms.Usage(input_tokens=5, output_tokens=7, thinking_tokens=2),
    )  # fmt: skip
    assert message_from_response(response) == HistoryMessage(
        "model", [TextPart("I look."), CALL, UsagePart(5, 9), FinishReasonPart("tool_use")]
    )


def test_partial_usage_keeps_unknown_apart_from_zero() -> None:
    item = message_from_response(ms.Response([ms.Text("x")], usage=ms.Usage(output_tokens=0)))
    assert item == HistoryMessage("model", [TextPart("x"), UsagePart(None, 0)])
    item = message_from_response(ms.Response([ms.Text("x")], usage=ms.Usage(input_tokens=7)))
    assert item == HistoryMessage("model", [TextPart("x"), UsagePart(7, None)])


def test_without_usage_and_finish_reason_there_are_no_such_parts() -> None:
    assert message_from_response(ms.Response([ms.Text("x")])) == HistoryMessage("model", "x")


def test_an_empty_answer_is_no_message() -> None:
    assert message_from_response(ms.Response()) is None


def test_a_refusal_is_the_text_and_the_finish_message() -> None:
    item = message_from_response(ms.Response(raw_finish_reason="stop", refusal="I will not."))
    assert item == HistoryMessage("model", [TextPart("I will not."), FinishReasonPart("stop", "I will not.")])


def test_a_refusal_beside_text_is_the_finish_message() -> None:
    item = message_from_response(ms.Response([ms.Text("Well.")], raw_finish_reason="stop", refusal="I will not."))
    assert item == HistoryMessage("model", [TextPart("Well."), FinishReasonPart("stop", "I will not.")])
