"""A whole Responses object: statuses, usage, kept members; and equality with a stream of it."""

import json
from typing import get_args

import pytest
from openai.types.responses import ResponseStatus
from openai.types.responses.response import IncompleteDetails

import manystream as ms
from manystream.providers.openai.responses.dialect import DIALECT
from manystream.providers.openai.responses.response import ECHOED
from manystream.providers.wire.accumulate import events_of
from tests.providers.openai.responses.wire import PROVIDER, Outcome, decode, make_id, stream_of
from tests.support.event_order import OrderChecker

MESSAGE: ms.JSONObject = {
    "type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
    "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
}  # fmt: skip

CALL: ms.JSONObject = {
    "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": '{"at":1}',
    "status": "completed",
}  # fmt: skip

REASONING: ms.JSONObject = {
    "type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Let me "},
    {"type": "summary_text", "text": "see."}], "encrypted_content": "gAAA",
}  # fmt: skip

SEARCH: ms.JSONObject = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}


def answer(*output: ms.JSON, **members: ms.JSON) -> ms.JSONObject:
    return {"id": "resp_1", "object": "response", "model": "m", "status": "completed", "output": [*output], **members}


OUTPUTS: dict[str, list[ms.JSON]] = {
    "nothing": [],
    "text": [MESSAGE],
    "reasoning and text": [REASONING, MESSAGE],
    "reasoning without anything visible": [{"type": "reasoning", "id": "rs", "summary": []}, MESSAGE],
    "reasoning text": [{"type": "reasoning", "id": "rs", "content": [{"type": "reasoning_text", "text": "Hm."}]}],
    "reasoning and two calls": [REASONING, CALL, {**CALL, "call_id": "call_2", "id": "fc_2"}],
    "a call of a namespace": [{**CALL, "namespace": "crm", "caller": {"type": "program", "caller_id": "p"}}],
    "a call cut short": [{**CALL, "status": "incomplete", "arguments": '{"at'}],
    "a custom call": [{**CALL, "type": "custom_tool_call", "input": "SELECT 1"}],
    "a search between texts": [MESSAGE, SEARCH, {**MESSAGE, "phase": "final_answer"}],
    "several parts": [
        {
            "type": "message",
            "content": [
                {"type": "output_text", "text": "One", "annotations": [{"type": "file_citation", "file_id": "f"}]},
                {"type": "refusal", "refusal": "Not that."},
                {"type": "output_text", "text": ""},
                {"type": "output_text", "text": "Two", "logprobs": [{"token": "Two", "logprob": -0.1}]},
                {"type": "part_of_the_future"},
                7,
            ],
        }
    ],
    "text as a string": [{"type": "message", "content": "plain"}],
    "a compaction": [{"type": "compaction", "id": "cmp", "encrypted_content": "gAAA"}, MESSAGE],
    "what is no item": [None, 3, {"id": "no type"}],
}  # fmt: skip


def streamed(response: ms.JSONObject, *, with_items: bool, with_final: bool) -> Outcome:
    """Return the answer as a stream, with each item in one event, only in the terminal one, or in both."""
    output = response["output"]
    assert isinstance(output, list)
    items: list[ms.JSONObject] = [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate(output)
        if isinstance(item, dict)
    ]
    final = response if with_final else {**response, "output": []}
    return stream_of(
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
        *(items if with_items else []),
        {"type": "response.completed", "response": final},
    )


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS)
@pytest.mark.parametrize(("with_items", "with_final"), [(True, True), (True, False), (False, True)])
def test_streamed_equals_unstreamed(output: list[ms.JSON], with_items: bool, with_final: bool) -> None:
    response = answer(*output, usage={"input_tokens": 3, "output_tokens": 2}, service_tier="flex")
    assert streamed(response, with_items=with_items, with_final=with_final).response == decode(response)


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS)
def test_the_events_of_an_unstreamed_answer_keep_the_order(output: list[ms.JSON]) -> None:
    checker = OrderChecker()
    for event in events_of(decode(answer(*output))):
        checker.check(event)
    assert checker.stream == "ended"


def test_items_become_blocks_in_order() -> None:
    response = decode(answer(REASONING, MESSAGE, SEARCH, CALL))
    state = ms.ProviderState(
        "openai-responses", {"summary": REASONING["summary"], "id": "rs_1", "encrypted_content": "gAAA"}
    )
    assert response.content == [
        ms.Thinking("Let me see.", state=state), ms.Text("Hello"), ms.ProviderBlock("openai-responses", SEARCH),
        ms.ToolCall("call_1", "look", '{"at":1}'),
    ]  # fmt: skip
    assert response.finish_reason is ms.FinishReason.TOOL_USE
    assert (response.id, response.model) == ("resp_1", "m")


def test_logprobs_of_all_parts_are_kept_in_order() -> None:
    parts: list[ms.JSON] = [
        {"type": "output_text", "text": "a", "logprobs": [{"token": "a"}]},
        {"type": "output_text", "text": "b", "logprobs": [{"token": "b"}]},
    ]
    response = decode(answer({"type": "message", "content": parts}))
    assert response.provider_data["logprobs"] == [{"token": "a"}, {"token": "b"}]


# The statuses of the API reference and of the SDK's types. Some other servers send `complete`.
STATUSES = {
    "completed": ms.FinishReason.STOP, "complete": ms.FinishReason.STOP, "incomplete": ms.FinishReason.LENGTH,
    "in_progress": ms.FinishReason.UNKNOWN, "queued": ms.FinishReason.UNKNOWN,
}  # fmt: skip

FAILED_STATUSES = {"failed": ms.ErrorCategory.SERVER, "cancelled": ms.ErrorCategory.CANCELLED}

INCOMPLETE_REASONS = {
    "max_output_tokens": ms.FinishReason.LENGTH, "max_messages": ms.FinishReason.LENGTH,
    "content_filter": ms.FinishReason.CONTENT_FILTER, "steered": ms.FinishReason.UNKNOWN,
}  # fmt: skip


def test_the_words_are_those_of_the_sdk() -> None:
    assert {*get_args(ResponseStatus)} == {*STATUSES, *FAILED_STATUSES} - {"complete"}
    reasons = IncompleteDetails.model_fields["reason"].annotation
    assert {word for option in get_args(reasons) for word in get_args(option)} == {*INCOMPLETE_REASONS}


@pytest.mark.parametrize(("status", "reason"), STATUSES.items())
def test_every_status_has_its_finish_reason(status: str, reason: ms.FinishReason) -> None:
    response = decode(answer(MESSAGE, status=status))
    assert (response.finish_reason, response.raw_finish_reason) == (reason, status)


@pytest.mark.parametrize(("word", "reason"), [*INCOMPLETE_REASONS.items(), ("some_new_limit", ms.FinishReason.LENGTH)])
def test_every_incomplete_reason_has_a_finish_reason(word: str, reason: ms.FinishReason) -> None:
    response = decode(answer(MESSAGE, status="incomplete", incomplete_details={"reason": word}))
    assert (response.finish_reason, response.raw_finish_reason) == (reason, "incomplete")
    assert response.provider_data["incomplete_details"] == {"reason": word}


def test_an_unknown_status_is_an_unknown_reason() -> None:
    assert decode(answer(MESSAGE, status="paused")).finish_reason is ms.FinishReason.UNKNOWN


def test_a_body_without_a_status_is_a_whole_answer() -> None:
    response = decode({"output": [MESSAGE]})
    assert (response.finish_reason, response.raw_finish_reason) == (ms.FinishReason.STOP, None)
    response = decode({"output": [MESSAGE], "incomplete_details": {"reason": "max_output_tokens"}})
    assert response.finish_reason is ms.FinishReason.LENGTH


@pytest.mark.parametrize("status", ["in_progress", None])
def test_the_last_call_of_a_cut_off_answer_is_not_complete(status: str | None) -> None:
    first, last = {**CALL, "status": status}, {**CALL, "status": status, "call_id": "call_2"}
    response = decode(answer(first, last, status="incomplete", incomplete_details={"reason": "max_output_tokens"}))
    assert [call.complete for call in response.tool_calls] == [status is None, False]


def test_a_call_without_a_status_is_complete_if_the_answer_is() -> None:
    assert decode(answer({**CALL, "status": None})).tool_calls[0].complete


@pytest.mark.parametrize(("status", "category"), FAILED_STATUSES.items())
def test_a_response_that_failed_is_raised(status: str, category: ms.ErrorCategory) -> None:
    with pytest.raises(ms.ProviderError) as raised:
        decode(answer(status=status, error=None))
    assert (raised.value.category, raised.value.provider_code) == (category, status)
    with pytest.raises(ms.ProviderError) as raised:
        decode(answer(status=status, error={"code": "content_policy_violation", "message": "Blocked."}))
    assert (raised.value.category, raised.value.message) == (ms.ErrorCategory.CONTENT_FILTER, "Blocked.")


@pytest.mark.parametrize("error", [{"message": "No.", "code": "server_error"}, "No."])
def test_an_error_inside_a_200_is_raised(error: ms.JSON) -> None:
    with pytest.raises(ms.ProviderError, match=r"No\."):
        decode({"error": error})


def test_an_error_beside_a_completed_status_is_no_failure() -> None:
    assert decode(answer(MESSAGE, error={"message": "a warning"})).text == "Hello"


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b"7", b'{"id":"c","choices":[]}'])
def test_a_body_that_is_no_response_is_an_error_that_quotes_it(body: bytes) -> None:
    with pytest.raises(ms.ProviderError) as raised:
        DIALECT.decode(body, PROVIDER, make_id)
    assert raised.value.category is ms.ErrorCategory.SERVER
    assert not raised.value.retryable
    assert raised.value.body == body


def test_white_space_before_the_body_is_no_matter() -> None:
    assert DIALECT.decode(b"\n\n  " + json.dumps(answer(MESSAGE)).encode(), PROVIDER, make_id).text == "Hello"


ECHOED_MEMBERS = (
    "id", "object", "model", "output_text", "tools", "tool_choice", "input", "instructions", "prompt", "text",
    "temperature", "top_p", "top_k", "top_logprobs", "presence_penalty", "frequency_penalty", "truncation",
    "max_output_tokens", "max_tool_calls", "parallel_tool_calls", "store", "stream", "stream_options", "include",
    "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",
    "context_management",
)  # fmt: skip
"""Members of a response that repeat the request, or that the response has in members of its own."""


def test_the_members_that_are_not_kept_are_the_ones_tested() -> None:
    assert {*ECHOED_MEMBERS, "output", "usage", "error"} == ECHOED


def test_what_repeats_the_request_is_not_kept_and_all_else_is() -> None:
    kept: ms.JSONObject = {"service_tier": "priority", "moderation": {"flagged": False}, "thing_of_the_future": 1}
    echoed: ms.JSONObject = dict.fromkeys(ECHOED_MEMBERS, "echo")
    response = decode(answer(MESSAGE, **echoed, **kept, metadata={}, conversation=None) | {"output": [MESSAGE]})
    assert response.provider_data == {"status": "completed", **kept}


def test_parts_of_an_unknown_kind_are_kept_raw_and_once() -> None:
    part: ms.JSONObject = {"type": "output_hologram", "data": "x"}
    message: ms.JSONObject = {"type": "message", "content": [{"type": "output_text", "text": "See."}, part]}
    outcome = stream_of(
        {"type": "response.output_item.done", "output_index": 0, "item": message},
        {"type": "response.completed", "response": answer(message)},
    )
    assert outcome.response.text == "See."
    assert outcome.response.provider_data["content_parts"] == [part]
    assert decode(answer(message)).provider_data["content_parts"] == [part]


def test_sound_that_belongs_to_no_item_is_kept() -> None:
    outcome = stream_of(
        {"type": "response.audio.delta", "delta": "UklG"}, {"type": "response.audio.transcript.delta", "delta": "Hi"},
        {"type": "response.audio.delta", "delta": "Rg=="}, {"type": "response.completed", "response": answer()},
    )  # fmt: skip
    assert outcome.response.provider_data["audio"] == {"data": "UklGRg==", "transcript": "Hi"}
