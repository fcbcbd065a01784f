"""Messages and blocks: makers, their texts, and what they refuse."""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.json.json_values import MalformedJSONError

CALL = {"tool_id": "t1", "tool_name": "weather", "tool_arguments": '{"city": "Oslo"}'}

MADE = ms.ToolCall("t1", "weather", '{"city": "Oslo"}')


@pytest.mark.parametrize("role", [ms.Role.USER, ms.Role.ASSISTANT, "user", "assistant"])
def test_text_gives_a_message_of_one_text_block_without_metadata(role: ms.Role | str) -> None:
    message = ms.Message(role, "hello")
    assert (message.role, message.content, message.provider_metadata) == (ms.Role(role), [ms.Text("hello")], {})


def test_user_and_assistant_are_the_same_with_their_role() -> None:
    assert ms.Message.user("x") == ms.Message(ms.Role.USER, "x")
    assert ms.Message.assistant("x") == ms.Message(ms.Role.ASSISTANT, "x")


def test_tool_call_makes_an_assistants_message() -> None:
    message = ms.Message.tool_call("t1", "weather", '{"city": "Oslo"}')
    assert (message.role, message.content, message.provider_metadata) == (ms.Role.ASSISTANT, [MADE], {})


@pytest.mark.parametrize("is_error", [False, True])
def test_tool_result_makes_a_tool_message(is_error: bool) -> None:
    message = ms.Message.tool_result("t1", "rain", is_error)
    result = ms.ToolResult("t1", "rain", is_error)
    assert (message.role, message.content, message.provider_metadata) == (ms.Role.TOOL, [result], {})


WITH_THINKING: list[tuple[dict[str, str], list[ms.Block]]] = [
    ({"thinking_text": "hm", "thinking_signature": "sig"}, [ms.Thinking("hm", "sig"), MADE]),
    ({"thinking_text": "hm"}, [ms.Thinking("hm"), MADE]),
    ({"thinking_text": ""}, [ms.Thinking(""), MADE]),
    ({"redacted_data": "xyz"}, [ms.RedactedThinking("xyz"), MADE]),
    ({}, [MADE]),
    ({"thinking_text": "hm", "thinking_signature": "sig", "redacted_data": "xyz"},
        [ms.Thinking("hm", "sig"), ms.RedactedThinking("xyz"), MADE]),
]  # fmt: skip


@pytest.mark.parametrize(("given", "blocks"), WITH_THINKING)
def test_thinking_and_redacted_thinking_precede_the_call(given: dict[str, str], blocks: list[ms.Block]) -> None:
    message = ms.Message.tool_call_with_thinking(**given, **CALL)
    assert (message.role, message.content) == (ms.Role.ASSISTANT, blocks)


def test_a_signature_without_text_has_nothing_to_sign() -> None:
    assert ms.Message.tool_call_with_thinking(thinking_signature="sig", **CALL).content == [MADE]


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(ValueError, match="robot"):
        ms.Message("robot", "x")


def test_arguments_are_read_as_an_object() -> None:
    assert MADE.parsed == {"city": "Oslo"}
    assert ms.ToolCall("a", "f", " ").parsed == {}


@pytest.mark.parametrize("arguments", ["{", "[1]", '"x"', "nonsense"])
def test_arguments_that_are_no_object_are_an_error(arguments: str) -> None:
    call = ms.ToolCall("a", "add", arguments)
    with pytest.raises(MalformedJSONError):
        _ = call.parsed
    assert call.arguments == arguments


def test_the_text_of_a_message_is_all_its_text_blocks() -> None:
    message = ms.Message.assistant([ms.Thinking("hm"), ms.Text("a"), MADE, ms.Text("b")])
    assert (message.text, message.tool_calls) == ("ab", [MADE])


def test_the_text_of_a_result_is_that_of_its_blocks() -> None:
    result = ms.ToolResult("a", [ms.Text("x"), ms.Image(url="https://host/i.png"), ms.Text("y")])
    assert result.text == "xy"


def test_base64_is_decoded_once_and_checked() -> None:
    assert ms.Image.from_base64("AAE=", "image/png").data == b"\x00\x01"
    assert ms.File.from_base64("AAE=", "application/pdf", "a.pdf").name == "a.pdf"
    with pytest.raises(ValueError, match=r"base64|padding|Incorrect"):
        ms.Image.from_base64("A", "image/png")


WRONG_CALLS = [
    ({"tool_id": None}, "tool_id: must be text, not NoneType"),
    ({"tool_name": None}, "tool_name: must be text, not NoneType"),
    ({"tool_arguments": None}, "tool_arguments: must be text, not NoneType"),
    ({"tool_arguments": {"city": "Oslo"}}, "tool_arguments: must be text, not dict"),
    ({"tool_id": ""}, "tool_id: must not be empty"),
    ({"tool_name": ""}, "tool_name: must not be empty"),
]


@pytest.mark.parametrize(("wrong", "complaint"), WRONG_CALLS)
def test_a_call_needs_its_id_its_name_and_its_arguments(wrong: dict[str, object], complaint: str) -> None:
    given: dict[str, object] = {**CALL, **wrong}
    with pytest.raises(ms.InvalidRequestError, match=complaint):
        ms.Message.tool_call_with_thinking(thinking_text="hm", **given)  # type: ignore[arg-type]
    with pytest.raises(ms.InvalidRequestError, match=complaint.removeprefix("tool_")):
        ms.Message.tool_call(given["tool_id"], given["tool_name"], given["tool_arguments"])  # type: ignore[arg-type]


@pytest.mark.parametrize("id", [None, "", 5])
def test_a_result_needs_the_id_of_its_call(id: object) -> None:
    with pytest.raises(ms.InvalidRequestError, match="tool_call_id: must"):
        ms.Message.tool_result(id, "rain")  # type: ignore[arg-type]


def test_a_call_may_have_no_arguments() -> None:
    assert ms.Message.tool_call_with_thinking(tool_id="t", tool_name="f", tool_arguments="").tool_calls[0].parsed == {}
