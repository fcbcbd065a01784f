"""A Responses stream, event by event: the events, their order, and the response."""

# ruff: noqa: E501 (a wire line is one line)

import pytest

import manystream as ms
from manystream.providers.json import json_values
from manystream.providers.openai.responses.dialect import DIALECT
from tests.providers.openai.responses.wire import LENIENT, PROVIDER, Outcome, make_id, stream

CREATED = """
    {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","model":"gpt-5","status":"in_progress","output":[]}}
"""


def begun(text: str) -> Outcome:
    """Run a stream whose response is created before these events."""
    return stream(CREATED + text)


def test_a_text_answer_is_start_deltas_done() -> None:
    outcome = stream("""
        {"type":"response.created","response":{"id":"resp_1","model":"gpt-4.1","status":"in_progress"}}
        {"type":"response.in_progress","response":{"id":"resp_1","model":"gpt-4.1","status":"in_progress"}}
        {"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","content":[]}}
        {"type":"response.content_part.added","output_index":0,"content_index":0,"part":{"type":"output_text"}}
        {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Hel"}
        {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"lo"}
        {"type":"response.output_text.done","output_index":0,"content_index":0,"text":"Hello"}
        {"type":"response.content_part.done","output_index":0,"content_index":0,"part":{"type":"output_text","text":"Hello","annotations":[]}}
        {"type":"response.output_item.done","output_index":0,"item":{"id":"msg_1","type":"message","status":"completed","content":[{"type":"output_text","text":"Hello","annotations":[]}]}}
        {"type":"response.completed","response":{"id":"resp_1","model":"gpt-4.1","status":"completed","service_tier":"default","output":[{"id":"msg_1","type":"message","status":"completed","content":[{"type":"output_text","text":"Hello","annotations":[]}]}],"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":11}}}
    """)
    assert outcome.events[:3] == [ms.Start("gpt-4.1", "resp_1"), ms.TextDelta(0, "Hel"), ms.TextDelta(0, "lo")]
    done = outcome.events[3]
    assert isinstance(done, ms.Done)
    assert (done.finish_reason, done.raw_finish_reason) == (ms.FinishReason.STOP, "completed")
    assert (done.usage.input_tokens, done.usage.cached_tokens, done.usage.output_tokens) == (9, 4, 2)
    assert done.provider_data == {"status": "completed", "service_tier": "default"}
    assert outcome.response.content == [ms.Text("Hello")]
    assert (outcome.response.model, outcome.response.id) == ("gpt-4.1", "resp_1")


def test_reasoning_then_two_parallel_calls() -> None:
    outcome = begun("""
        {"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"begun"}}
        {"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"Look "}
        {"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":1,"delta":"twice."}
        {"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Look "},{"type":"summary_text","text":"twice."}],"encrypted_content":"whole"}}
        {"type":"response.output_item.added","output_index":1,"item":{"id":"fc_1","type":"function_call","call_id":"call_a","name":"look","arguments":""}}
        {"type":"response.output_item.added","output_index":2,"item":{"id":"fc_2","type":"function_call","call_id":"call_b","name":"look","arguments":""}}
        {"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\\"at\\":"}
        {"type":"response.function_call_arguments.delta","output_index":1,"delta":"{}"}
        {"type":"response.function_call_arguments.delta","output_index":2,"delta":"2}"}
        {"type":"response.function_call_arguments.done","output_index":2,"arguments":"{\\"at\\":2}"}
        {"type":"response.output_item.done","output_index":2,"item":{"id":"fc_2","type":"function_call","status":"completed","call_id":"call_b","name":"look","arguments":"{\\"at\\":2}"}}
        {"type":"response.output_item.done","output_index":1,"item":{"id":"fc_1","type":"function_call","status":"completed","call_id":"call_a","name":"look","arguments":"{}"}}
        {"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[]}}
    """)
    assert outcome.events[1:-1] == [
        ms.ThinkingDelta(0, "Look "), ms.ThinkingDelta(0, "twice."), ms.ToolCallStart(1, "call_a", "look"),
        ms.ToolCallStart(2, "call_b", "look"), ms.ToolCallDelta(2, '{"at":'), ms.ToolCallDelta(1, "{}"), ms.ToolCallDelta(2, "2}"),
        ms.ToolCallDone(2, True), ms.ToolCallDone(1, True),
    ]  # fmt: skip
    assert outcome.response.finish_reason is ms.FinishReason.TOOL_USE
    assert outcome.response.raw_finish_reason == "completed"
    summary = [{"type": "summary_text", "text": "Look "}, {"type": "summary_text", "text": "twice."}]
    state = ms.ProviderState("openai-responses", {"summary": summary, "id": "rs_1", "encrypted_content": "whole"})
    assert outcome.response.content == [
        ms.Thinking("Look twice.", state=state),
        ms.ToolCall("call_a", "look", "{}"),
        ms.ToolCall("call_b", "look", '{"at":2}'),
    ]


def test_refusals_have_no_events_and_are_on_the_response() -> None:
    outcome = begun("""
        {"type":"response.refusal.delta","output_index":0,"content_index":0,"delta":"I can"}
        {"type":"response.refusal.delta","output_index":0,"content_index":0,"delta":"not."}
        {"type":"response.refusal.done","output_index":0,"content_index":0,"refusal":"I cannot."}
        {"type":"response.completed","response":{"status":"completed","output":[{"type":"message","content":[{"type":"refusal","refusal":"I cannot."}]}]}}
    """)
    assert [event.type for event in outcome.events] == [ms.EventType.START, ms.EventType.DONE]
    assert outcome.response.refusal == "I cannot."
    assert outcome.response.content == []


def test_citations_come_with_the_text_and_the_final_ones_count() -> None:
    outcome = begun("""
        {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"See there."}
        {"type":"response.output_text.annotation.added","output_index":0,"content_index":0,"annotation":{"type":"url_citation","url":"https://a.example/"}}
        {"type":"response.completed","response":{"status":"completed","output":[]}}
    """)
    assert outcome.response.content == [
        ms.Text("See there.", citations=[{"type": "url_citation", "url": "https://a.example/"}])
    ]


def test_each_content_part_is_a_block() -> None:
    outcome = begun("""
        data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"one"}
        data: {"type":"response.output_text.delta","output_index":0,"content_index":1,"delta":"two"}
        data: {"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"three"}
        data: {"type":"response.output_text.delta","output_index":0,"content_index":1,"delta":"!"}
        data: {"type":"response.completed","response":{"status":"completed"}}
    """)
    assert [block.text for block in outcome.response.content if isinstance(block, ms.Text)] == ["one", "two!", "three"]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("max_output_tokens", ms.FinishReason.LENGTH), ("content_filter", ms.FinishReason.CONTENT_FILTER)],
)
def test_an_incomplete_response_has_an_incomplete_open_call(reason: str, finish: ms.FinishReason) -> None:
    outcome = begun(f"""
        {{"type":"response.output_item.added","output_index":0,"item":{{"type":"function_call","call_id":"call_1","name":"look","arguments":""}}}}
        {{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{{}}"}}
        {{"type":"response.incomplete","response":{{"status":"incomplete","incomplete_details":{{"reason":"{reason}"}},"output":[]}}}}
    """)
    assert outcome.events[-2] == ms.ToolCallDone(0, False)
    assert (outcome.response.finish_reason, outcome.response.raw_finish_reason) == (finish, "incomplete")
    assert outcome.response.tool_calls == [ms.ToolCall("call_1", "look", "{}", complete=False)]


def test_a_failed_response_is_one_error_and_keeps_what_came() -> None:
    outcome = begun("""
        {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Half"}
        {"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"Slow down."},"usage":{"input_tokens":3,"output_tokens":1}}}
    """)
    assert [event.type for event in outcome.events] == [ms.EventType.START, ms.EventType.TEXT_DELTA, ms.EventType.ERROR]
    assert outcome.error.error.category is ms.ErrorCategory.RATE_LIMIT
    assert outcome.error.error.message == "Slow down."
    assert outcome.response.text == "Half"
    assert outcome.response.usage.total_tokens == 4


def test_a_cancelled_response_is_an_error() -> None:
    outcome = begun('data: {"type":"response.cancelled","response":{"id":"resp_1","status":"cancelled","output":[]}}')
    assert outcome.error.error.category is ms.ErrorCategory.CANCELLED
    assert not outcome.error.error.retryable


@pytest.mark.parametrize(
    "data",
    [
        '{"type":"error","code":"server_error","message":"Try later.","param":null,"sequence_number":0}',
        '{"type":"error","error":{"type":"server_error","code":"server_error","message":"Try later."}}',
        '{"error":{"type":"server_error","message":"Try later."}}',
        '{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"Try later."}}}',
    ],
)
def test_an_error_within_a_stream_has_the_status_of_the_stream(data: str) -> None:
    error = stream(f"data: {data}").error.error
    assert (error.category, error.message, error.http_status) == (ms.ErrorCategory.SERVER, "Try later.", 200)


def test_a_body_that_ends_without_a_terminal_event_is_truncated() -> None:
    outcome = begun('data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Half"}')
    assert outcome.error.error.category is ms.ErrorCategory.NETWORK
    assert "truncated stream" in outcome.error.error.message
    assert outcome.response.text == "Half"
    assert outcome.response.finish_reason is ms.FinishReason.UNKNOWN


FINISHED_WITHOUT_TERMINAL = (
    CREATED
    + """
    data: {"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"Hi"}]}}
    data: [DONE]
"""
)


def test_a_lenient_profile_ends_at_done_after_finished_items() -> None:
    outcome = stream(FINISHED_WITHOUT_TERMINAL, provider=LENIENT)
    assert outcome.response.text == "Hi"
    assert outcome.response.finish_reason is ms.FinishReason.UNKNOWN
    assert stream(FINISHED_WITHOUT_TERMINAL).error.error.category is ms.ErrorCategory.NETWORK


@pytest.mark.parametrize("body", [CREATED, CREATED + "data: [DONE]", FINISHED_WITHOUT_TERMINAL.replace("[DONE]", "{}")])
def test_a_lenient_profile_still_needs_finished_items_and_a_mark(body: str) -> None:
    assert stream(body, provider=LENIENT).error.error.category is ms.ErrorCategory.NETWORK


@pytest.mark.parametrize(
    "stray",
    [
        b'{"error":{"message":"Too busy.","type":"overloaded_error"}}',
        b'error: {"message":"Too busy.","type":"overloaded"}',
    ],
)
def test_an_error_in_lines_that_are_no_fields_is_read(stray: bytes) -> None:
    error = stream(CREATED, stray=stray).error.error
    assert (error.category, error.message) == (ms.ErrorCategory.SERVER, "Too busy.")


@pytest.mark.parametrize("stray", [b"<html>", b"[1]", b'{"answer":42}'])
def test_other_stray_lines_leave_the_stream_truncated(stray: bytes) -> None:
    assert stream(CREATED, stray=stray).error.error.category is ms.ErrorCategory.NETWORK


@pytest.mark.parametrize(
    "data",
    [
        "{not json", "[1, 2]", '{"type":"response.output_text.delta","output_index":0,"delta":7}',
        '{"type":"response.output_item.added","output_index":0}',
        '{"type":"response.output_item.done","output_index":0,"item":[]}',
        '{"type":"response.content_part.done","output_index":0,"part":"text"}',
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_an_error_that_quotes_it(data: str) -> None:
    outcome = begun(f"data: {data}")
    assert outcome.error.error.category is ms.ErrorCategory.SERVER
    assert not outcome.error.error.retryable
    assert data[:20] in outcome.error.error.message
    assert outcome.error.error.body == data.encode()


def test_an_error_without_a_type_is_a_gateways() -> None:
    outcome = begun('data: {"error":{"message":"upstream is unavailable"}}')
    assert outcome.error.error.category is ms.ErrorCategory.SERVER


@pytest.mark.parametrize("name", ["ping", "keepalive", "heartbeat"])
def test_pings_tell_nothing_whatever_their_data(name: str) -> None:
    machine = DIALECT.machine(PROVIDER, make_id)
    for data in (b"", b"now", b"{}", b'"2026-01-01"', b'{"type":"%s"}' % name.encode()):
        assert list(machine.feed(name, data)) == []
    assert not machine.ended


def test_nothing_is_told_after_the_end() -> None:
    machine = DIALECT.machine(PROVIDER, make_id)
    end = b'{"type":"response.completed","response":{"status":"completed"}}'
    assert isinstance(machine.feed("", end)[-1], ms.Done)
    assert list(machine.feed("", b'{"type":"response.completed","response":{}}')) == []
    assert list(machine.feed("", b"{not json")) == []
    assert list(machine.end()) == []


def test_a_stream_without_a_beginning_is_given_one() -> None:
    outcome = stream('data: {"type":"response.completed","response":{"id":"resp_1","model":"m","status":"completed"}}')
    assert outcome.events[0] == ms.Start("m", "resp_1")
    assert [event.type for event in outcome.events] == [ms.EventType.START, ms.EventType.DONE]


def test_empty_deltas_tell_nothing() -> None:
    outcome = begun("""
        data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":""}
        data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":null}
        data: {"type":"response.function_call_arguments.delta","output_index":4,"delta":""}
        data: {"type":"response.completed","response":{"status":"completed"}}
    """)
    assert [event.type for event in outcome.events] == [ms.EventType.START, ms.EventType.DONE]
    assert outcome.response.content == []


def test_the_partial_response_is_there_while_the_stream_runs() -> None:
    machine = DIALECT.machine(PROVIDER, make_id)
    machine.feed("", b'{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Ha"}')
    assert machine.response().text == "Ha"
    machine.feed("", b'{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"lf"}')
    assert machine.response().text == "Half"


def test_an_error_is_told_once() -> None:
    outcome = begun("""
        data: {"type":"error","error":{"type":"server_error","code":"server_error","message":"broken"}}
        data: {"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"broken"}}}
    """)
    assert sum(isinstance(event, ms.ErrorEvent) for event in outcome.events) == 1


def test_an_unreadable_final_response_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_depth(value: object) -> str:
        raise RecursionError  # from CPython 3.11 for a thousand levels; newer versions accept more than the parser

    monkeypatch.setattr(json_values, "_compact_encode", refuse_depth)
    deep = '{"a":' * 300 + "1" + "}" * 300  # more levels than orjson writes
    item = '{"type":"function_call","call_id":"c","name":"f","arguments":' + deep + "}"
    machine = DIALECT.machine(PROVIDER, make_id)
    data = ('{"type":"response.completed","response":{"status":"completed","output":[' + item + "]}}").encode()
    (event,) = machine.feed("", data)
    assert isinstance(event, ms.ErrorEvent)
    assert machine.ended
