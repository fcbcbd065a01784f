"""Departures of servers from the dialect, as in their traffic. Each must be read correctly."""

# ruff: noqa: E501 (a wire line is one line)

import pytest

import manystream as ms
from tests.providers.openai.responses.wire import MADE_ID, Outcome, decode, stream

CREATED = 'data: {"type":"response.created","response":{"id":"resp_1","model":"m","status":"in_progress"}}\n'


def begun(text: str) -> Outcome:
    """Run a stream whose response is created before these events."""
    return stream(CREATED + text)


def test_a_stream_without_event_lines_is_read() -> None:
    outcome = stream("""
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
    assert [event.type for event in outcome.events] == [
        ms.EventType.START, ms.EventType.THINKING_DELTA, ms.EventType.TEXT_DELTA, ms.EventType.DONE,
    ]  # fmt: skip
    content = [{"type": "reasoning_text", "text": "Four"}]
    state = ms.ProviderState("openai-responses", {"summary": [], "id": "rs_9", "content": content})
    assert outcome.response.content == [ms.Thinking("Four", state=state), ms.Text("4")]


def test_keepalive_events_change_nothing() -> None:
    outcome = begun("""
        {"type":"keepalive","sequence_number":3}
        {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Hi"}
        data: {"type":"keepalive","sequence_number":5}
        data: {"type":"response.completed","response":{"status":"completed"}}
    """)
    assert [event.type for event in outcome.events] == [ms.EventType.START, ms.EventType.TEXT_DELTA, ms.EventType.DONE]


@pytest.mark.parametrize("first", ["created", "queued", "in_progress"])
def test_the_first_event_of_the_response_is_the_start(first: str) -> None:
    outcome = stream(
        f"""
        data: {{"type":"response.{first}","response":{{"id":"resp_1","model":"m","status":"queued"}}}}
        data: {{"type":"response.in_progress","response":{{"id":"resp_1","model":"m","status":"in_progress"}}}}
        data: {{"type":"response.completed","response":{{"id":"resp_1","model":"m","status":"completed"}}}}
    """
    )
    assert outcome.events[0] == ms.Start("m", "resp_1")
    assert [event.type for event in outcome.events] == [ms.EventType.START, ms.EventType.DONE]


def test_a_resumed_stream_leaves_the_whole_text() -> None:
    outcome = stream("""
        data: {"type":"response.queued","response":{"id":"resp_1","model":"m","status":"queued"}}
        data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"second half"}
        data: {"type":"response.completed","response":{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"First half, second half"}]}]}}
    """)
    assert outcome.text_at(0) == "second half"
    assert outcome.response.text == "First half, second half"


def test_items_with_changing_ids_are_found_by_index() -> None:
    outcome = stream("""
        data: {"type":"response.created","response":{"id":"x1","model":"m"}}
        data: {"type":"response.output_item.added","output_index":0,"item":{"id":"x2","type":"reasoning","summary":[]}}
        data: {"type":"response.reasoning_summary_text.delta","item_id":"x3","output_index":0,"summary_index":0,"delta":"Count"}
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"x4","type":"reasoning","summary":[{"type":"summary_text","text":"Count"}]}}
        data: {"type":"response.output_item.added","output_index":1,"item":{"id":"x5","type":"message","content":[]}}
        data: {"type":"response.output_text.delta","item_id":"x6","output_index":1,"content_index":0,"delta":"3"}
        data: {"type":"response.output_item.done","output_index":1,"item":{"id":"x7","type":"message","content":[{"type":"output_text","text":"3"}]}}
        data: {"type":"response.completed","response":{"id":"x8","model":"m","status":"completed","output":[{"id":"x9","type":"reasoning","summary":[{"type":"summary_text","text":"Count"}]},{"id":"x10","type":"message","content":[{"type":"output_text","text":"3"}]}]}}
    """)
    assert outcome.response.thinking == "Count"
    assert outcome.response.text == "3"
    assert len(outcome.response.content) == 2
    assert outcome.response.id == "x8"


def test_items_that_all_have_index_zero_are_separated() -> None:
    outcome = begun("""
        data: {"type":"response.output_item.added","output_index":0,"item":{"type":"message","content":[]}}
        data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Both."}
        data: {"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"Both."}]}}
        data: {"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"a","name":"f","arguments":""}}
        data: {"type":"response.function_call_arguments.delta","output_index":0,"delta":"{}"}
        data: {"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"b","name":"g","arguments":""}}
        data: {"type":"response.function_call_arguments.delta","output_index":0,"delta":"[]"}
        data: {"type":"response.completed","response":{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"Both."}]},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call","call_id":"b","name":"g","arguments":"[]"}]}}
    """)
    assert outcome.response.content == [ms.Text("Both."), ms.ToolCall("a", "f", "{}"), ms.ToolCall("b", "g", "[]")]
    assert [outcome.text_at(index) for index in range(3)] == ["Both.", "{}", "[]"]


def test_a_missing_index_is_zero() -> None:
    outcome = begun("""
        data: {"type":"response.output_item.added","item":{"type":"message","content":[]}}
        data: {"type":"response.output_text.delta","delta":"a"}
        data: {"type":"response.output_text.delta","delta":"b"}
        data: {"type":"response.completed","response":{"status":"completed"}}
    """)
    assert outcome.response.content == [ms.Text("ab")]


def test_a_nested_error_event_then_response_failed_is_one_error() -> None:
    outcome = begun("""
        {"type":"error","sequence_number":2,"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"You have spent it.","param":null}}
        {"type":"response.failed","response":{"status":"failed","error":{"code":"insufficient_quota","message":"You have spent it."}}}
    """)
    assert [event.type for event in outcome.events] == [ms.EventType.START, ms.EventType.ERROR]
    error = outcome.error.error
    assert (error.category, error.retryable, error.provider_code) == (
        ms.ErrorCategory.RATE_LIMIT,
        False,
        "insufficient_quota",
    )
    assert error.message == "You have spent it."


def test_a_call_without_deltas_has_the_items_arguments() -> None:
    outcome = begun("""
        data: {"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"call_1","name":"weather","arguments":""}}
        data: {"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","status":"completed","call_id":"call_1","name":"weather","arguments":"{\\"at\\":\\"Rome\\"}"}}
        data: {"type":"response.completed","response":{"status":"completed","output":[]}}
    """)
    assert outcome.events[1:3] == [ms.ToolCallStart(0, "call_1", "weather"), ms.ToolCallDelta(0, '{"at":"Rome"}')]
    assert outcome.response.tool_calls == [ms.ToolCall("call_1", "weather", '{"at":"Rome"}')]


def test_arguments_may_come_only_in_the_added_event() -> None:
    outcome = begun("""
        data: {"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"call_1","name":"weather","arguments":"{\\"at\\":1}"}}
        data: {"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","status":"completed","call_id":"call_1","name":"weather"}}
        data: {"type":"response.completed","response":{"status":"completed","output":[]}}
    """)
    assert outcome.response.tool_calls == [ms.ToolCall("call_1", "weather", '{"at":1}')]


def test_an_empty_final_output_keeps_the_items() -> None:
    outcome = begun("""
        data: {"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","status":"completed","call_id":"call_1","name":"weather","arguments":"{}"}}
        data: {"type":"response.completed","response":{"status":"completed","output":[]}}
    """)
    assert outcome.response.tool_calls == [ms.ToolCall("call_1", "weather", "{}")]
    assert outcome.response.finish_reason is ms.FinishReason.TOOL_USE


def test_additional_final_output_is_delivered() -> None:
    outcome = begun("""
        data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Hello"}
        data: {"type":"response.completed","response":{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"Hello, you."}]},{"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"Late"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}","status":"completed"}]}}
    """)
    assert outcome.text_at(0) == "Hello, you."
    assert outcome.text_at(1) == "Late"
    assert outcome.text_at(2) == "{}"
    assert outcome.response.finish_reason is ms.FinishReason.TOOL_USE


SEARCHING = """
    data: {"type":"response.created","response":{"id":"r","model":"m","tools":[{"type":"x_search"}]}}
    data: {"type":"response.output_item.added","output_index":0,"item":{"type":"custom_tool_call","call_id":"xs_1","name":"keyword_search","input":"","status":"in_progress"}}
    data: {"type":"response.custom_tool_call_input.delta","output_index":0,"delta":"{\\"query\\":1}"}
    data: {"type":"response.custom_tool_call_input.done","output_index":0,"input":"{\\"query\\":1}"}
    data: {"type":"response.output_item.done","output_index":0,"item":{"type":"custom_tool_call","call_id":"xs_1","name":"keyword_search","input":"{\\"query\\":1}","status":"completed"}}
    data: {"type":"response.completed","response":{"status":"completed"}}
"""


def test_a_servers_search_as_a_custom_call_is_not_the_callers() -> None:
    outcome = stream(SEARCHING)
    assert [event.type for event in outcome.events] == [ms.EventType.START, ms.EventType.DONE]
    assert outcome.response.tool_calls == []
    assert outcome.response.finish_reason is ms.FinishReason.STOP
    block = outcome.response.content[0]
    assert isinstance(block, ms.ProviderBlock)
    assert (block.kind, block.data["input"]) == ("custom_tool_call", '{"query":1}')


@pytest.mark.parametrize(
    "tools",
    [
        '[{"type":"custom","name":"keyword_search"}]',
        '[{"type":"x_search"},{"type":"namespace","name":"n","tools":[{"type":"custom","name":"keyword_search"}]}]',
        '[{"type":"tool_search"}]', "[]", "null",
    ],
)  # fmt: skip
def test_a_custom_call_is_the_callers_if_its_tool_is_defined(tools: str) -> None:
    outcome = stream(SEARCHING.replace('[{"type":"x_search"}]', tools))
    state = ms.ProviderState("openai-responses", {"type": "custom_tool_call"})
    assert outcome.response.tool_calls == [ms.ToolCall("xs_1", "keyword_search", '{"query":1}', state=state)]
    assert outcome.response.finish_reason is ms.FinishReason.TOOL_USE


def test_unknown_kinds_of_items_are_kept_whole() -> None:
    item = {"type": "kind_of_the_future", "id": "k_1", "status": "completed", "content": [{"type": "odd"}]}
    response = decode({"id": "r", "model": "m", "status": "completed", "output": [item]})
    assert response.content == [ms.ProviderBlock("openai-responses", item)]
    assert response.finish_reason is ms.FinishReason.STOP


def test_the_last_of_two_ciphertexts_is_kept_with_its_id() -> None:
    outcome = begun("""
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"one"}}
        data: {"type":"response.completed","response":{"status":"completed","output":[{"id":"rs_2","type":"reasoning","summary":[],"encrypted_content":"two"}]}}
    """)
    state = ms.ProviderState("openai-responses", {"summary": [], "id": "rs_2", "encrypted_content": "two"})
    assert outcome.response.content == [ms.Thinking("", state=state)]


def test_a_ciphertext_is_kept_if_the_final_item_has_none() -> None:
    outcome = begun("""
        data: {"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"one"}}
        data: {"type":"response.completed","response":{"status":"completed","output":[{"id":"rs_2","type":"reasoning","summary":[]}]}}
    """)
    block = outcome.response.content[0]
    assert isinstance(block, ms.Thinking)
    assert (block.state.data["id"], block.state.data["encrypted_content"]) == ("rs_1", "one")


def test_an_incomplete_ciphertext_is_no_state() -> None:
    outcome = begun(
        'data: {"type":"response.output_item.added","output_index":0,"item":{"id":"rs","type":"reasoning","encrypted_content":"beg"}}'
    )
    assert outcome.response.content == [ms.Thinking("", state=ms.ProviderState("openai-responses", {}))]


def test_only_one_of_summary_and_reasoning_text_is_delivered() -> None:
    item = {
        "type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Short."}],
        "content": [{"type": "reasoning_text", "text": "The long way."}],
    }  # fmt: skip
    assert decode({"status": "completed", "output": [item]}).thinking == "Short."
    outcome = begun("""
        data: {"type":"response.reasoning_text.delta","output_index":0,"content_index":0,"delta":"The long way."}
        data: {"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"Short."}
        data: {"type":"response.completed","response":{"status":"completed"}}
    """)
    assert outcome.text_at(0) == "The long way."


def test_a_call_without_an_id_gets_a_made_id() -> None:
    response = decode(
        {"status": "completed", "output": [{"type": "function_call", "name": "f", "arguments": {"a": [1, "é"]}}]}
    )
    assert response.tool_calls == [ms.ToolCall(MADE_ID, "f", '{"a":[1,"é"]}')]


def test_a_call_is_delivered_once_its_name_is_known() -> None:
    outcome = begun("""
        data: {"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"call_1","arguments":""}}
        data: {"type":"response.function_call_arguments.delta","output_index":0,"delta":"{}"}
        data: {"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","status":"completed","call_id":"call_1","name":"late","arguments":"{}"}}
        data: {"type":"response.completed","response":{"status":"completed"}}
    """)
    assert outcome.events[1:3] == [ms.ToolCallStart(0, "call_1", "late"), ms.ToolCallDelta(0, "{}")]


def test_a_completed_event_may_have_an_incomplete_response() -> None:
    outcome = begun(
        'data: {"type":"response.completed","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}'
    )
    assert outcome.response.finish_reason is ms.FinishReason.LENGTH


def test_a_terminal_event_overrides_an_unfinished_status() -> None:
    outcome = begun('data: {"type":"response.completed","response":{"status":"in_progress","output_text":"a"}}')
    assert (outcome.response.finish_reason, outcome.response.raw_finish_reason) == (ms.FinishReason.STOP, "completed")


def test_a_failed_event_overrides_the_responses_status() -> None:
    outcome = begun('data: {"type":"response.failed","response":{"status":"completed","error":{"message":"No."}}}')
    assert outcome.error.error.message == "No."


def test_a_second_item_at_an_index_is_a_new_item() -> None:
    outcome = begun("""
        data: {"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"One"}]}}
        data: {"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"Two"}]}}
        data: {"type":"response.completed","response":{"status":"completed","output":[]}}
    """)
    assert outcome.response.content == [ms.Text("One"), ms.Text("Two")]


def test_non_ascii_text_is_unchanged() -> None:
    outcome = begun("""
        data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"\\u2028é"}
        data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"\\ud83d\\ude00"}
        data: {"type":"response.completed","response":{"status":"completed"}}
    """)
    assert outcome.response.text == "\u2028é😀"


def test_text_that_comes_only_in_its_done_event_is_delivered() -> None:
    outcome = begun("""
        data: {"type":"response.output_text.done","output_index":0,"content_index":0,"text":"All at once."}
        data: {"type":"response.completed","response":{"status":"completed","output":[]}}
    """)
    assert outcome.events[1] == ms.TextDelta(0, "All at once.")


@pytest.mark.parametrize(
    ("part", "text", "refusal"),
    [
        ('{"type":"output_text","text":"All at once."}', "All at once.", None),
        ('{"type":"refusal","refusal":"I cannot."}', "", "I cannot."),
    ],
)
def test_a_part_that_comes_only_in_its_done_event_is_delivered(part: str, text: str, refusal: str | None) -> None:
    outcome = begun(f"""
        data: {{"type":"response.content_part.done","output_index":0,"content_index":0,"part":{part}}}
        data: {{"type":"response.completed","response":{{"status":"completed","output":[]}}}}
    """)
    assert (outcome.response.text, outcome.response.refusal) == (text, refusal)


def test_other_members_of_the_terminal_event_are_kept() -> None:
    outcome = begun(
        'data: {"type":"response.completed","sequence_number":9,"reseller_usage":{"cost":3},"response":{"status":"completed"}}'
    )
    done = outcome.events[-1]
    assert isinstance(done, ms.Done)
    assert done.provider_data == {"reseller_usage": {"cost": 3}, "status": "completed"}
