"""Where servers depart from the dialect, as seen in their traffic: each departure must read right."""

# ruff: noqa: E501 (a wire line is one line)

from __future__ import annotations

import pytest

from manystream.providers.errors import ErrorCategory
from manystream.providers.events import Done, EventType, FinishReason, Start, TextDelta, ToolCallDelta, ToolCallStart
from manystream.providers.messages import ProviderBlock, ProviderState, Text, Thinking, ToolCall
from tests.providers.openai_responses.wire import MADE_ID, decode, stream

CREATED = 'data: {"type":"response.created","response":{"id":"resp_1","model":"m","status":"in_progress"}}\n\n'


def test_no_event_lines_comments_and_done_at_the_end() -> None:
    told = stream("""
        : SOMEBODY PROCESSING

        data: {"type":"response.created","response":{"id":"gen-1","model":"m","status":"in_progress"}}

        data: {"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[]}}

        : SOMEBODY PROCESSING

        data: {"type":"response.reasoning_text.delta","output_index":0,"content_index":0,"delta":"Four"}

        data: {"type":"response.output_item.added","output_index":1,"item":{"type":"message","id":"msg_1","content":[]}}

        data: {"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"4"}

        data: {"type":"response.output_item.done","output_index":1,"item":{"type":"message","id":"msg_1","content":[{"type":"output_text","text":"4"}]}}

        data: {"type":"response.reasoning_text.done","output_index":0,"content_index":0,"text":"Four"}

        data: {"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"Four"}]}}

        data: {"type":"response.completed","response":{"id":"gen-1","model":"m","status":"completed","output":[{"type":"reasoning","id":"rs_9","summary":[],"content":[{"type":"reasoning_text","text":"Four"}]},{"type":"message","id":"msg_9","content":[{"type":"output_text","text":"4"}]}]}}

        data: [DONE]
    """)
    assert [event.type for event in told.events] == [
        EventType.START,
        EventType.THINKING_DELTA,
        EventType.TEXT_DELTA,
        EventType.DONE,
    ]
    content = [{"type": "reasoning_text", "text": "Four"}]
    state = ProviderState("openai-responses", {"summary": [], "id": "rs_9", "content": content})
    assert told.response.content == [Thinking("Four", state=state), Text("4")]


def test_keepalive_events_change_nothing() -> None:
    told = stream(
        CREATED
        + """
        event: keepalive
        data: {"type":"keepalive","sequence_number":3}

        event: response.output_text.delta
        data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Hi"}

        data: {"type":"keepalive","sequence_number":5}

        data: {"type":"response.completed","response":{"status":"completed"}}
    """
    )
    assert [event.type for event in told.events] == [EventType.START, EventType.TEXT_DELTA, EventType.DONE]


@pytest.mark.parametrize("first", ["created", "queued", "in_progress"])
def test_the_first_event_of_the_response_is_the_start(first: str) -> None:
    told = stream(
        f"""
        data: {{"type":"response.{first}","response":{{"id":"resp_1","model":"m","status":"queued"}}}}

        data: {{"type":"response.in_progress","response":{{"id":"resp_1","model":"m","status":"in_progress"}}}}

        data: {{"type":"response.completed","response":{{"id":"resp_1","model":"m","status":"completed"}}}}
    """
    )
    assert told.events[0] == Start("m", "resp_1")
    assert [event.type for event in told.events] == [EventType.START, EventType.DONE]


def test_a_stream_resumed_in_the_middle_leaves_the_whole_text_behind() -> None:
    told = stream("""
        data: {"type":"response.queued","response":{"id":"resp_1","model":"m","status":"queued"}}

        data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"second half"}

        data: {"type":"response.completed","response":{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"First half, second half"}]}]}}
    """)
    assert told.text_at(0) == "second half"
    assert told.response.text == "First half, second half"


def test_ids_rotate_and_the_output_index_decides() -> None:
    told = stream("""
        data: {"type":"response.created","response":{"id":"x1","model":"m"}}

        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"x2","type":"reasoning","summary":[]}}

        data: {"type":"response.reasoning_summary_text.delta","item_id":"x3","output_index":0,"summary_index":0,"delta":"Count"}

        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"x4","type":"reasoning","summary":[{"type":"summary_text","text":"Count"}]}}

        data: {"type":"response.output_item.added","output_index":1,"item":{"id":"x5","type":"message","content":[]}}

        data: {"type":"response.output_text.delta","item_id":"x6","output_index":1,"content_index":0,"delta":"3"}

        data: {"type":"response.output_item.done","output_index":1,"item":{"id":"x7","type":"message","content":[{"type":"output_text","text":"3"}]}}

        data: {"type":"response.completed","response":{"id":"x8","model":"m","status":"completed","output":[{"id":"x9","type":"reasoning","summary":[{"type":"summary_text","text":"Count"}]},{"id":"x10","type":"message","content":[{"type":"output_text","text":"3"}]}]}}
    """)
    assert told.response.thinking == "Count"
    assert told.response.text == "3"
    assert len(told.response.content) == 2
    assert told.response.id == "x8"


def test_a_server_that_gives_every_item_index_zero_is_followed() -> None:
    told = stream(
        CREATED
        + """
        data: {"type":"response.output_item.added","output_index":0,"item":{"type":"message","content":[]}}

        data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Both."}

        data: {"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"Both."}]}}

        data: {"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"a","name":"f","arguments":""}}

        data: {"type":"response.function_call_arguments.delta","output_index":0,"delta":"{}"}

        data: {"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"b","name":"g","arguments":""}}

        data: {"type":"response.function_call_arguments.delta","output_index":0,"delta":"[]"}

        data: {"type":"response.completed","response":{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"Both."}]},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call","call_id":"b","name":"g","arguments":"[]"}]}}
    """
    )
    assert told.response.content == [Text("Both."), ToolCall("a", "f", "{}"), ToolCall("b", "g", "[]")]
    assert [told.text_at(index) for index in range(3)] == ["Both.", "{}", "[]"]


def test_indexes_left_out_are_zero() -> None:
    told = stream(
        CREATED
        + """
        data: {"type":"response.output_item.added","item":{"type":"message","content":[]}}

        data: {"type":"response.output_text.delta","delta":"a"}

        data: {"type":"response.output_text.delta","delta":"b"}

        data: {"type":"response.completed","response":{"status":"completed"}}
    """
    )
    assert told.response.content == [Text("ab")]


def test_a_nested_error_event_then_response_failed_is_one_error() -> None:
    told = stream(
        CREATED
        + """
        event: error
        data: {"type":"error","sequence_number":2,"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"You have spent it.","param":null}}

        event: response.failed
        data: {"type":"response.failed","response":{"status":"failed","error":{"code":"insufficient_quota","message":"You have spent it."}}}
    """
    )
    assert [event.type for event in told.events] == [EventType.START, EventType.ERROR]
    error = told.error.error
    assert (error.category, error.retryable, error.provider_code) == (
        ErrorCategory.RATE_LIMIT,
        False,
        "insufficient_quota",
    )
    assert error.message == "You have spent it."


def test_a_call_without_deltas_takes_its_arguments_from_the_item() -> None:
    told = stream(
        CREATED
        + """
        data: {"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"call_1","name":"weather","arguments":""}}

        data: {"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","status":"completed","call_id":"call_1","name":"weather","arguments":"{\\"at\\":\\"Rome\\"}"}}

        data: {"type":"response.completed","response":{"status":"completed","output":[]}}
    """
    )
    assert told.events[1:3] == [ToolCallStart(0, "call_1", "weather"), ToolCallDelta(0, '{"at":"Rome"}')]
    assert told.response.tool_calls == [ToolCall("call_1", "weather", '{"at":"Rome"}')]


def test_a_call_whose_arguments_are_only_in_its_announcement_has_them() -> None:
    told = stream(
        CREATED
        + """
        data: {"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"call_1","name":"weather","arguments":"{\\"at\\":1}"}}

        data: {"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","status":"completed","call_id":"call_1","name":"weather"}}

        data: {"type":"response.completed","response":{"status":"completed","output":[]}}
    """
    )
    assert told.response.tool_calls == [ToolCall("call_1", "weather", '{"at":1}')]


def test_an_empty_final_output_leaves_what_came() -> None:
    told = stream(
        CREATED
        + """
        data: {"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","status":"completed","call_id":"call_1","name":"weather","arguments":"{}"}}

        data: {"type":"response.completed","response":{"status":"completed","output":[]}}
    """
    )
    assert told.response.tool_calls == [ToolCall("call_1", "weather", "{}")]
    assert told.response.finish_reason is FinishReason.TOOL_USE


def test_a_final_output_that_holds_more_is_told_in_full() -> None:
    told = stream(
        CREATED
        + """
        data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Hello"}

        data: {"type":"response.completed","response":{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"Hello, you."}]},{"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"Late"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}","status":"completed"}]}}
    """
    )
    assert told.text_at(0) == "Hello, you."
    assert told.text_at(1) == "Late"
    assert told.text_at(2) == "{}"
    assert told.response.finish_reason is FinishReason.TOOL_USE


SEARCHING = """
    data: {"type":"response.created","response":{"id":"r","model":"m","tools":[{"type":"x_search"}]}}

    data: {"type":"response.output_item.added","output_index":0,"item":{"type":"custom_tool_call","call_id":"xs_1","name":"keyword_search","input":"","status":"in_progress"}}

    data: {"type":"response.custom_tool_call_input.delta","output_index":0,"delta":"{\\"query\\":1}"}

    data: {"type":"response.custom_tool_call_input.done","output_index":0,"input":"{\\"query\\":1}"}

    data: {"type":"response.output_item.done","output_index":0,"item":{"type":"custom_tool_call","call_id":"xs_1","name":"keyword_search","input":"{\\"query\\":1}","status":"completed"}}

    data: {"type":"response.completed","response":{"status":"completed"}}
"""


def test_a_server_side_search_reported_as_a_custom_call_is_not_the_callers() -> None:
    told = stream(SEARCHING)
    assert [event.type for event in told.events] == [EventType.START, EventType.DONE]
    assert told.response.tool_calls == []
    assert told.response.finish_reason is FinishReason.STOP
    block = told.response.content[0]
    assert isinstance(block, ProviderBlock)
    assert (block.kind, block.data["input"]) == ("custom_tool_call", '{"query":1}')


@pytest.mark.parametrize(
    "tools",
    [
        '[{"type":"custom","name":"keyword_search"}]',
        '[{"type":"x_search"},{"type":"namespace","name":"n","tools":[{"type":"custom","name":"keyword_search"}]}]',
        '[{"type":"tool_search"}]',
        "[]",
        "null",
    ],
)
def test_a_custom_call_is_the_callers_where_the_request_defined_it_or_nothing_is_known(tools: str) -> None:
    told = stream(SEARCHING.replace('[{"type":"x_search"}]', tools))
    state = ProviderState("openai-responses", {"type": "custom_tool_call"})
    assert told.response.tool_calls == [ToolCall("xs_1", "keyword_search", '{"query":1}', state=state)]
    assert told.response.finish_reason is FinishReason.TOOL_USE


def test_unknown_kinds_of_items_are_kept_whole() -> None:
    item = {"type": "kind_of_the_future", "id": "k_1", "status": "completed", "content": [{"type": "odd"}]}
    response = decode({"id": "r", "model": "m", "status": "completed", "output": [item]})
    assert response.content == [ProviderBlock("openai-responses", item)]
    assert response.finish_reason is FinishReason.STOP


def test_of_two_ciphertexts_the_final_one_is_kept_with_its_id() -> None:
    told = stream(
        CREATED
        + """
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"one"}}

        data: {"type":"response.completed","response":{"status":"completed","output":[{"id":"rs_2","type":"reasoning","summary":[],"encrypted_content":"two"}]}}
    """
    )
    state = ProviderState("openai-responses", {"summary": [], "id": "rs_2", "encrypted_content": "two"})
    assert told.response.content == [Thinking("", state=state)]


def test_a_ciphertext_is_not_given_up_for_an_item_without_one() -> None:
    told = stream(
        CREATED
        + """
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"one"}}

        data: {"type":"response.completed","response":{"status":"completed","output":[{"id":"rs_2","type":"reasoning","summary":[]}]}}
    """
    )
    block = told.response.content[0]
    assert isinstance(block, Thinking)
    assert block.state is not None
    assert (block.state.data["id"], block.state.data["encrypted_content"]) == ("rs_1", "one")


def test_a_ciphertext_that_has_only_begun_is_no_state() -> None:
    told = stream(
        CREATED
        + 'data: {"type":"response.output_item.added","output_index":0,"item":{"id":"rs","type":"reasoning","encrypted_content":"beg"}}'
    )
    assert told.response.content == [Thinking("", state=ProviderState("openai-responses", {}))]


def test_summaries_and_reasoning_text_are_never_both_shown() -> None:
    item = {
        "type": "reasoning",
        "id": "rs",
        "summary": [{"type": "summary_text", "text": "Short."}],
        "content": [{"type": "reasoning_text", "text": "The long way."}],
    }
    assert decode({"status": "completed", "output": [item]}).thinking == "Short."
    told = stream(
        CREATED
        + """
        data: {"type":"response.reasoning_text.delta","output_index":0,"content_index":0,"delta":"The long way."}

        data: {"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"Short."}

        data: {"type":"response.completed","response":{"status":"completed"}}
    """
    )
    assert told.text_at(0) == "The long way."


def test_an_id_is_made_where_a_call_has_none() -> None:
    response = decode(
        {"status": "completed", "output": [{"type": "function_call", "name": "f", "arguments": {"a": [1, "é"]}}]}
    )
    assert response.tool_calls == [ToolCall(MADE_ID, "f", '{"a":[1,"é"]}')]


def test_a_call_announced_without_its_name_waits_for_it() -> None:
    told = stream(
        CREATED
        + """
        data: {"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"call_1","arguments":""}}

        data: {"type":"response.function_call_arguments.delta","output_index":0,"delta":"{}"}

        data: {"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","status":"completed","call_id":"call_1","name":"late","arguments":"{}"}}

        data: {"type":"response.completed","response":{"status":"completed"}}
    """
    )
    assert told.events[1:3] == [ToolCallStart(0, "call_1", "late"), ToolCallDelta(0, "{}")]


def test_a_completed_event_may_carry_an_incomplete_response() -> None:
    told = stream(
        CREATED
        + 'data: {"type":"response.completed","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}'
    )
    assert told.response.finish_reason is FinishReason.LENGTH


def test_a_terminal_event_is_believed_over_a_response_that_says_it_runs() -> None:
    told = stream(CREATED + 'data: {"type":"response.completed","response":{"status":"in_progress","output":[]}}')
    assert (told.response.finish_reason, told.response.raw_finish_reason) == (FinishReason.STOP, "completed")


def test_a_failed_event_is_a_failure_whatever_its_response_says() -> None:
    told = stream(
        CREATED + 'data: {"type":"response.failed","response":{"status":"completed","error":{"message":"No."}}}'
    )
    assert told.error.error.message == "No."


def test_items_at_an_index_that_is_taken_are_new_items() -> None:
    told = stream(
        CREATED
        + """
        data: {"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"One"}]}}

        data: {"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"Two"}]}}

        data: {"type":"response.completed","response":{"status":"completed","output":[]}}
    """
    )
    assert told.response.content == [Text("One"), Text("Two")]


def test_text_outside_ascii_and_line_separators_pass_unchanged() -> None:
    told = stream(
        CREATED
        + """
        data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"\\u2028é"}

        data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"\\ud83d\\ude00"}

        data: {"type":"response.completed","response":{"status":"completed"}}
    """
    )
    assert told.response.text == "\u2028é😀"


def test_a_whole_text_that_comes_only_in_its_done_event_is_told() -> None:
    told = stream(
        CREATED
        + """
        data: {"type":"response.output_text.done","output_index":0,"content_index":0,"text":"All at once."}

        data: {"type":"response.completed","response":{"status":"completed","output":[]}}
    """
    )
    assert told.events[1] == TextDelta(0, "All at once.")


@pytest.mark.parametrize(
    ("part", "text", "refusal"),
    [
        ('{"type":"output_text","text":"All at once."}', "All at once.", None),
        ('{"type":"refusal","refusal":"I cannot."}', "", "I cannot."),
    ],
)
def test_a_whole_part_that_comes_only_in_its_done_event_is_told(part: str, text: str, refusal: str | None) -> None:
    told = stream(
        CREATED
        + f"""
        data: {{"type":"response.content_part.done","output_index":0,"content_index":0,"part":{part}}}

        data: {{"type":"response.completed","response":{{"status":"completed","output":[]}}}}
    """
    )
    assert (told.response.text, told.response.refusal) == (text, refusal)


def test_members_beside_the_response_are_kept() -> None:
    told = stream(
        CREATED
        + 'data: {"type":"response.completed","sequence_number":9,"reseller_usage":{"cost":3},"response":{"status":"completed"}}'
    )
    done = told.events[-1]
    assert isinstance(done, Done)
    assert done.provider_data == {"reseller_usage": {"cost": 3}, "status": "completed"}
