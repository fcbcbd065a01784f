"""Anthropic's SDK reads the simulator's answers, streamed and unstreamed."""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
import pytest
from anthropic.types import MessageParam, ToolParam

from manystream.simulator import HEADER, Knobs, Prompt, Scenario, Simulator, ToolDeclaration, combine, write_scenario

QUESTION = "What is the weather?"
CITY: dict[str, object] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: ToolParam = {"name": "weather", "input_schema": CITY}
MESSAGES: list[MessageParam] = [{"role": "user", "content": QUESTION}]


def scenario(model: str, directive: str = "events=8,text=unicode") -> Scenario:
    """The answer that the simulator gives to `QUESTION`."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    declared = (ToolDeclaration("weather", {**schema}),)
    kind = f"kind={model.removeprefix('sim-')}"
    return write_scenario(Prompt(model=model, text=QUESTION, tools=declared), combine(Knobs(), kind, directive))


@pytest.fixture(scope="module")
def client(simulator_process: Simulator) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        api_key="sk-test", base_url=simulator_process.base_urls["anthropic"], max_retries=0, timeout=20
    ) as opened:
        yield opened


@pytest.mark.parametrize("model", ["sim-text", "sim-thinking", "sim-tools", "sim-mixed"])
def test_a_stream_accumulates_to_the_unstreamed_message(client: anthropic.Anthropic, model: str) -> None:
    expected = scenario(model)
    with client.messages.stream(model=model, max_tokens=500, messages=MESSAGES, tools=[TOOL]) as stream:
        streamed = stream.get_final_message()
    whole = client.messages.create(model=model, max_tokens=500, messages=MESSAGES, tools=[TOOL])
    assert [block.model_dump() for block in streamed.content] == [block.model_dump() for block in whole.content]
    assert (streamed.id, streamed.stop_reason) == (whole.id, whole.stop_reason)
    assert (streamed.usage.input_tokens, streamed.usage.output_tokens) == (
        whole.usage.input_tokens,
        whole.usage.output_tokens,
    )
    assert "".join(block.text for block in whole.content if block.type == "text") == expected.text
    thinking = [block for block in whole.content if block.type == "thinking"]
    assert "".join(block.thinking for block in thinking) == expected.thinking
    assert all(block.signature == expected.signature for block in thinking)
    calls = [block for block in whole.content if block.type == "tool_use"]
    assert [call.name for call in calls] == [name for name, _ in expected.tool_calls]
    assert whole.stop_reason == ("tool_use" if calls else "end_turn")
    assert whole.usage.output_tokens_details is not None
    assert whole.usage.output_tokens_details.thinking_tokens == expected.tokens.thinking


def test_text_stream_gives_each_piece(client: anthropic.Anthropic) -> None:
    with client.messages.stream(model="sim-text", max_tokens=500, messages=MESSAGES) as stream:
        assert tuple(stream.text_stream) == scenario("sim-text").text_pieces


def test_redacted_thinking_is_a_block_of_its_own(client: anthropic.Anthropic) -> None:
    with client.messages.stream(
        model="sim-text", max_tokens=500, messages=MESSAGES, extra_headers={HEADER: "redacted=1"}
    ) as stream:
        message = stream.get_final_message()
    assert [block.type for block in message.content] == ["redacted_thinking", "text"]


def test_an_answer_that_is_filtered_is_a_refusal(client: anthropic.Anthropic) -> None:
    headers = {HEADER: "finish=content_filter"}
    whole = client.messages.create(model="sim-text", max_tokens=500, messages=MESSAGES, extra_headers=headers)
    with client.messages.stream(model="sim-text", max_tokens=500, messages=MESSAGES, extra_headers=headers) as stream:
        streamed = stream.get_final_message()
    for message in (whole, streamed):
        assert message.stop_reason == "refusal"
        assert message.stop_details is not None
        assert message.stop_details.to_dict() == {
            "type": "refusal",
            "category": None,
            "explanation": "The simulator was asked to refuse.",
        }


def test_cached_tokens_are_not_in_input_tokens(client: anthropic.Anthropic) -> None:
    def usage(directive: str) -> tuple[int, int | None]:
        message = client.messages.create(
            model="sim-text", max_tokens=500, messages=MESSAGES, extra_headers={HEADER: directive}
        )
        return message.usage.input_tokens, message.usage.cache_read_input_tokens

    plain, _ = usage("cached=0")
    assert usage("cached=3") == (plain - 3, 3)


def test_thinking_that_comes_back_changed_is_refused(client: anthropic.Anthropic) -> None:
    first = client.messages.create(model="sim-mixed", max_tokens=500, messages=MESSAGES, tools=[TOOL])
    calls = [block for block in first.content if block.type == "tool_use"]
    history: list[MessageParam] = [
        *MESSAGES, {"role": "assistant", "content": first.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id,
        "content": "Rain"} for call in calls]},
    ]  # fmt: skip
    second = client.messages.create(model="sim-mixed", max_tokens=500, messages=history, tools=[TOOL])
    assert second.stop_reason == "end_turn"
    assert "Rain" in "".join(block.text for block in second.content if block.type == "text")
    changed = first.content[0].model_copy(update={"thinking": "Something else."})
    history[1] = {"role": "assistant", "content": [changed, *first.content[1:]]}
    with pytest.raises(anthropic.BadRequestError, match="Invalid `signature`"):
        client.messages.create(model="sim-mixed", max_tokens=500, messages=history, tools=[TOOL])


def test_a_call_without_its_result_is_refused(client: anthropic.Anthropic) -> None:
    first = client.messages.create(model="sim-tools", max_tokens=500, messages=MESSAGES, tools=[TOOL])
    history: list[MessageParam] = [
        *MESSAGES,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": "Well?"},
    ]
    with pytest.raises(anthropic.BadRequestError, match="without `tool_result` blocks"):
        client.messages.create(model="sim-tools", max_tokens=500, messages=history, tools=[TOOL])


def test_the_output_limit_ends_the_answer(client: anthropic.Anthropic) -> None:
    with client.messages.stream(
        model="sim-text@events=50", max_tokens=5, messages=MESSAGES, extra_headers={HEADER: "finish=length"}
    ) as stream:
        assert stream.get_final_message().stop_reason == "max_tokens"


STATUS_ERRORS = [
    (400, anthropic.BadRequestError, "invalid_request_error"),
    (401, anthropic.AuthenticationError, "authentication_error"),
    (403, anthropic.PermissionDeniedError, "permission_error"),
    (404, anthropic.NotFoundError, "not_found_error"),
    (429, anthropic.RateLimitError, "rate_limit_error"),
    (500, anthropic.InternalServerError, "api_error"),
    (529, anthropic.APIStatusError, "overloaded_error"),
]


@pytest.mark.parametrize(("status", "error", "kind"), STATUS_ERRORS)
def test_error_statuses_raise_the_clients_own_errors(
    client: anthropic.Anthropic, status: int, error: type[anthropic.APIStatusError], kind: str
) -> None:
    with pytest.raises(error) as caught:
        client.messages.create(
            model="sim-text", max_tokens=500, messages=MESSAGES, extra_headers={HEADER: f"fail={status}"}
        )
    assert caught.value.status_code == status
    assert caught.value.type == kind
    assert caught.value.request_id
    assert caught.value.body["request_id"] == "req_simulator"  # type: ignore[index]


def test_an_overload_inside_a_stream_raises(client: anthropic.Anthropic) -> None:
    with (
        pytest.raises(anthropic.APIStatusError, match="overloaded_error"),
        client.messages.stream(
            model="sim-text", max_tokens=500, messages=MESSAGES, extra_headers={HEADER: "error=5,error-status=529"}
        ) as stream,
    ):
        stream.get_final_message()
