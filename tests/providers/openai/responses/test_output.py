"""Whole errors of answers that cannot be read, and whole answers in the rare forms that servers send."""

import pytest

import manystream as ms
from manystream.providers.openai.responses.dialect import DIALECT
from tests.providers.openai.responses.wire import LENIENT, MADE_ID, PROVIDER, decode, make_id, stream, stream_of

NAME = "openai-responses"

CHANGED = "the server's final text differs from the deltas that were reported; the response holds the final text"


def done(index: int, item: ms.JSONObject) -> ms.JSONObject:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def added(index: int, item: ms.JSONObject) -> ms.JSONObject:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def delta(kind: str, index: int, text: str, **members: ms.JSON) -> ms.JSONObject:
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": text, **members}


def completed(*output: ms.JSON, **members: ms.JSON) -> ms.JSONObject:
    return {"type": "response.completed", "response": {"id": "r", "model": "m", "output": [*output], **members}}


def message(*parts: ms.JSON, **members: ms.JSON) -> ms.JSONObject:
    return {"type": "message", "content": [*parts], **members}


def text_part(text: ms.JSON, **members: ms.JSON) -> ms.JSONObject:
    return {"type": "output_text", "text": text, **members}


UNREADABLE: list[tuple[str, str]] = [
    ("[1]", "malformed event: expected an object, got '[1]'"),
    ("x", "malformed JSON 'x': Expecting value: line 1 column 1 (char 0)"),
    ('{"type":"response.created"}', "an event of type 'response.created' without its response: {0!r}"),
    ('{"type":"response.queued","response":5}', "an event of type 'response.queued' without its response: {0!r}"),
    ('{"type":"response.output_item.added"}', "an event of type 'response.output_item.added' without its item: {0!r}"),
    ('{"type":"response.output_item.done"}', "an event of type 'response.output_item.done' without its item: {0!r}"),
    ('{"type":"response.content_part.done"}', "an event of type 'response.content_part.done' without its part: {0!r}"),
    *(
        (f'{{"type":"response.{kind}.delta","delta":5}}', "a delta that is no text: {0!r}")
        for kind in (
            "output_text", "refusal", "reasoning_summary_text", "reasoning_text", "function_call_arguments",
            "custom_tool_call_input", "audio", "audio.transcript",
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("data", "text"), UNREADABLE, ids=[row[0] for row in UNREADABLE])
def test_the_error_of_an_event_that_cannot_be_read(data: str, text: str) -> None:
    outcome = stream(f"data: {data}")
    error = outcome.error.error
    assert outcome.events == [outcome.error]
    assert (error.message, error.body, error.category) == (text.format(data), data.encode(), ms.ErrorCategory.SERVER)


def test_the_error_of_a_body_that_cannot_be_read() -> None:
    for body, text in (
        (b"x", "the answer cannot be read: malformed JSON 'x': Expecting value: line 1 column 1 (char 0)"),
        (b"[1]", "the answer cannot be read: expected a JSON object, got '[1]'"),
        (b'{"id":"r"}', 'the answer is no response object: \'{"id":"r"}\''),
    ):
        with pytest.raises(ms.ProviderError) as caught:
            DIALECT.decode(body, PROVIDER, make_id)
        assert (caught.value.message, caught.value.body) == (text, body)


def test_a_truncated_stream_names_what_is_missing() -> None:
    text = "truncated stream: it ended without a terminal event such as response.completed"
    assert stream("").error.error.message == text


FAILED: list[tuple[str, str, ms.ErrorCategory]] = [
    ("failed", "the response failed without a reason", ms.ErrorCategory.SERVER),
    ("cancelled", "the response was cancelled", ms.ErrorCategory.CANCELLED),
]


@pytest.mark.parametrize(("status", "text", "category"), FAILED, ids=["failed", "cancelled"])
def test_a_failure_without_a_reason(status: str, text: str, category: ms.ErrorCategory) -> None:
    with pytest.raises(ms.ProviderError) as caught:
        decode({"status": status, "output": []})
    streamed = stream_of({"type": f"response.{status}", "response": {}}).error.error
    for error in (caught.value, streamed):
        assert (error.message, error.category, error.http_status) == (text, category, 200)
        assert error.provider_code == status
        assert error.body


def test_an_error_beside_an_unknown_status_is_a_failure() -> None:
    error: ms.JSONObject = {"message": "No.", "code": "server_error"}
    with pytest.raises(ms.ProviderError, match=r"HTTP 200: No\.$"):
        decode({"status": "paused", "output": [], "error": error})
    assert decode({"status": "queued", "output_text": "a", "error": error}).text == "a"


def test_a_body_with_an_error_of_another_form() -> None:
    with pytest.raises(ms.ProviderError) as caught:
        decode({"detail": "Not found"})
    assert (caught.value.message, caught.value.http_status) == ("Not found", 200)


def test_unnamed_events_with_an_error_end_the_stream() -> None:
    error = stream('data: {"error":{"message":"No.","code":"server_error"}}').error.error
    assert (error.message, error.body) == ("No.", b'{"error":{"message":"No.","code":"server_error"}}')
    error = stream('event: error\ndata: "No."').error.error
    assert (error.message, error.http_status) == ("No.", 200)
    error = stream("event: error\ndata: No.").error.error
    assert (error.message, error.body, error.http_status) == ("No.", b"No.", 200)


def test_a_flat_error_has_no_member_of_its_envelope() -> None:
    event = '{"type":"error","sequence_number":3,"event_id":"e","code":"rate_limit_exceeded","message":"Slow."}'
    error = stream(f"data: {event}").error.error
    assert (error.message, error.provider_code, error.category) == (
        "Slow.", "rate_limit_exceeded", ms.ErrorCategory.RATE_LIMIT,
    )  # fmt: skip
    named = '{"type":"overloaded_error","message":"Busy."}'
    error = stream(f"event: error\ndata: {named}").error.error
    assert (error.message, error.provider_code, error.category) == (
        "Busy.",
        "overloaded_error",
        ms.ErrorCategory.SERVER,
    )


# --- text ---
def test_content_that_is_text_or_an_object() -> None:
    assert decode({"output": [{"type": "message", "content": "a"}]}).content == [ms.Text("a")]
    assert decode({"output": [{"type": "message", "content": {"a": 1}}]}).content == [ms.Text('{"a":1}')]
    assert decode({"output": [{"type": "message", "content": text_part("b")}]}).content == [ms.Text("b")]
    assert decode({"output": [message(text_part({"a": 1}))]}).content == [ms.Text('{"a":1}')]
    assert decode({"output": [message(text_part(5), {"type": "text", "text": "c"}, 7)]}).content == [ms.Text("c")]


def test_an_empty_part_is_no_block_and_keeps_no_place() -> None:
    response = decode({"output": [message(text_part(""), text_part("a")), message(text_part(None))]})
    assert response.content == [ms.Text("a")]


def test_log_probabilities_of_deltas_and_parts() -> None:
    outcome = stream_of(
        delta("output_text", 0, "a", logprobs=[1]), delta("output_text", 0, "b", logprobs=[2]),
        delta("output_text", 0, "x", content_index=1), done(0, message(text_part("ab"), text_part("x", logprobs=[3]))),
        completed(),
    )  # fmt: skip
    assert outcome.response.provider_data == {"logprobs": [1, 2, 3]}
    outcome = stream_of(delta("output_text", 0, "a", logprobs=[1]), done(0, message(text_part("a", logprobs=[7]))),
                        completed())  # fmt: skip
    assert outcome.response.provider_data == {"logprobs": [7]}


def test_members_beside_the_content_keep_the_order_of_its_parts() -> None:
    other: ms.JSONObject = {"type": "x", "n": 0}
    later: ms.JSONObject = {"type": "x", "n": 1}
    outcome = stream_of(
        delta("output_text", 0, "b", content_index=1, logprobs=[2]),
        delta("output_text", 0, "a", content_index=0, logprobs=[1]),
        done(0, message(text_part("a"), text_part("b"), later)),
        completed(message(text_part("a"), other)),
    )
    assert outcome.response.content == [ms.Text("b"), ms.Text("a")]
    assert outcome.response.provider_data == {"logprobs": [1, 2], "content_parts": [other, later]}


def test_items_that_the_final_response_leaves_out_are_kept() -> None:
    first, second = message(text_part("a")), message(text_part("b"))
    search: ms.JSONObject = {"type": "web_search_call", "id": "w"}
    outcome = stream_of(done(0, first), done(1, search), done(2, second), completed(first, 5))
    assert outcome.response.content == [ms.Text("a"), ms.ProviderBlock(NAME, search), ms.Text("b")]


def test_the_final_response_has_the_items_in_another_order() -> None:
    calls: list[ms.JSONObject] = [{**CALL, "call_id": id, "arguments": id} for id in "abc"]
    begun = [added(index, {**call, "arguments": ""}) for index, call in enumerate(calls)]
    outcome = stream_of(*begun, completed(calls[2], calls[0], calls[1]))
    assert [(call.id, call.arguments) for call in outcome.response.tool_calls] == [("a", "a"), ("b", "b"), ("c", "c")]


def test_a_final_call_with_another_id_is_found_by_what_it_asks() -> None:
    one, two = {**CALL, "call_id": "a", "arguments": "[1]"}, {**CALL, "call_id": "b", "arguments": "[2]"}
    outcome = stream_of(
        done(0, one), done(1, two), completed({**two, "call_id": "y"}, {**one, "call_id": "x"}, {**one, "call_id": "z"})
    )
    assert [(call.id, call.arguments) for call in outcome.response.tool_calls] == [
        ("a", "[1]"), ("b", "[2]"), ("z", "[1]"),
    ]  # fmt: skip


def test_a_streamed_call_is_found_by_all_of_its_arguments() -> None:
    pieces = [delta("function_call_arguments", 0, text) for text in ("[", "1]")]
    begun = added(0, {**CALL, "arguments": ""})
    again = {**CALL, "call_id": "x", "arguments": "[1]"}
    assert stream_of(begun, *pieces, completed(again)).response.content == [ms.ToolCall("c", "f", "[1]")]
    other = {**CALL, "call_id": "x", "arguments": "[2]"}
    calls = stream_of(begun, *pieces, done(0, other), completed()).response.tool_calls
    assert [(call.id, call.arguments) for call in calls] == [("c", "[1]"), ("x", "[2]")]


def test_annotations_of_a_part_replace_those_of_the_stream() -> None:
    event: ms.JSONObject = {
        "type": "response.output_text.annotation.added", "output_index": 0, "content_index": 1, "annotation": {"a": 1},
    }  # fmt: skip
    first = delta("output_text", 0, "a", content_index=1)
    outcome = stream_of(event, first, event, {**event, "annotation": 5}, {**event, "content_index": 0}, completed())
    assert outcome.response.content == [ms.Text("a", citations=[{"a": 1}])]
    outcome = stream_of(first, event, done(0, message({}, text_part("a", annotations=[{"b": 2}]))), completed())
    assert outcome.response.content == [ms.Text("a", citations=[{"b": 2}])]
    outcome = stream_of(first, event, done(0, message({}, text_part("a", annotations=[]))), completed())
    assert outcome.response.content == [ms.Text("a", citations=[{"a": 1}])]


def test_the_phase_of_a_whole_item_is_the_texts_state() -> None:
    state = ms.ProviderState(NAME, {"phase": "final_answer"})
    outcome = stream_of(
        delta("output_text", 0, "a"),
        done(0, message(text_part("a"), text_part("b"), phase="final_answer")),
        completed(),
    )
    assert outcome.response.content == [ms.Text("a", state=state), ms.Text("b", state=state)]
    outcome = stream_of(
        added(0, message(phase="final_answer")), delta("output_text", 0, "a"), done(0, message(text_part("a"))),
        completed(),
    )  # fmt: skip
    assert outcome.response.content == [ms.Text("a", state=state)]


def test_a_final_text_that_differs_replaces_the_deltas() -> None:
    outcome = stream_of(delta("output_text", 0, "ab"), done(0, message(text_part("ac"))), completed())
    assert [event for event in outcome.events if isinstance(event, ms.TextDelta)] == [ms.TextDelta(0, "ab")]
    assert (outcome.response.content, outcome.response.warnings) == ([ms.Text("ac")], [CHANGED])


def test_an_empty_final_text_changes_nothing() -> None:
    outcome = stream_of(delta("output_text", 0, "ab"), done(0, message(text_part(""))), completed())
    assert (outcome.response.content, outcome.response.warnings) == ([ms.Text("ab")], [])


def test_the_rest_of_a_text_is_delivered() -> None:
    part: ms.JSONObject = {"type": "response.content_part.done", "output_index": 0, "part": text_part("abc")}
    text: ms.JSONObject = {"type": "response.output_text.done", "output_index": 0, "text": "ab"}
    outcome = stream_of(delta("output_text", 0, "a"), text, part, done(0, message(text_part("abcd"))), completed())
    deltas = [event.text for event in outcome.events if isinstance(event, ms.TextDelta)]
    assert deltas == ["a", "b", "c", "d"]


def test_a_done_part_that_is_no_text_is_ignored() -> None:
    part: ms.JSONObject = {"type": "response.content_part.done", "output_index": 0, "part": {"type": "reasoning_text"}}
    assert stream_of(part, completed()).response.content == []


def test_refusals_of_several_parts_are_joined() -> None:
    refusal: ms.JSONObject = {"type": "refusal", "refusal": "c"}
    outcome = stream_of(
        delta("refusal", 0, "a"), delta("refusal", 0, "b"),
        done(0, message({"type": "refusal", "refusal": "abx"}, refusal)), completed(),
    )  # fmt: skip
    assert (outcome.response.refusal, outcome.response.content) == ("abxc", [])
    outcome = stream_of(
        delta("refusal", 0, "a"), done(0, message({"type": "refusal", "refusal": ""}, refusal)), completed()
    )
    assert outcome.response.refusal == "ac"
    assert decode({"status": "completed", "output": [message({"type": "refusal"})]}).refusal is None


def test_the_name_of_an_event_is_enough() -> None:
    outcome = stream("""
        event: response.output_text.delta
        data: {"delta":"a"}
        event: response.output_text.delta
        data: {"type":"response.refusal.delta","delta":"b"}
        event: message
        data: {"type":"response.output_text.delta","delta":"c"}
        event: response.output_text.delta.new
        data: {"delta":"d"}
        event: response.completed
        data: {"response":{"model":"m"}}
    """)
    assert outcome.events == [
        ms.Start(None, None), ms.TextDelta(0, "a"), ms.TextDelta(0, "b"), ms.TextDelta(0, "c"),
        ms.Done(ms.FinishReason.STOP, "completed", ms.Usage(), {}),
    ]  # fmt: skip


@pytest.mark.parametrize("data", ["", "  ", "[DONE]", " [DONE] "])
def test_data_without_content_changes_nothing(data: str) -> None:
    machine = DIALECT.machine(PROVIDER, make_id)
    assert list(machine.feed("", data.encode())) == []
    assert not machine.ended


# --- reasoning ---
def test_reasoning_whose_item_comes_whole() -> None:
    item: ms.JSONObject = {
        "type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "s"}, {"type": "x"}],
        "content": [{"type": "reasoning_text", "text": "c"}], "status": "completed",
    }  # fmt: skip
    state = {"summary": item["summary"], "id": "rs", "content": item["content"]}
    assert decode({"output": [item]}).content == [ms.Thinking("s", state=ms.ProviderState(NAME, state))]
    hidden = {**item, "encrypted_content": "e", "summary": []}
    assert decode({"output": [hidden]}).content == [
        ms.Thinking("c", state=ms.ProviderState(NAME, {"summary": [], "id": "rs", "encrypted_content": "e"}))
    ]


def test_deltas_of_both_places_of_reasoning() -> None:
    outcome = stream_of(
        delta("reasoning_summary_text", 0, "s"), delta("reasoning_text", 0, "c"),
        delta("reasoning_summary_text", 0, "t"), completed(),
    )  # fmt: skip
    assert [event for event in outcome.events if isinstance(event, ms.ThinkingDelta)] == [
        ms.ThinkingDelta(0, "s"), ms.ThinkingDelta(0, "t"),
    ]  # fmt: skip


# --- calls ---
CALL: ms.JSONObject = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


def test_the_events_of_a_call() -> None:
    outcome = stream_of(
        added(0, {**CALL, "arguments": "ignored"}), delta("function_call_arguments", 0, "{"),
        {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": "{}"},
        done(0, {**CALL, "status": "completed"}), completed(status="completed"),
    )  # fmt: skip
    assert outcome.events == [
        ms.Start(None, None), ms.ToolCallStart(0, "c", "f"), ms.ToolCallDelta(0, "{"), ms.ToolCallDelta(0, "}"),
        ms.ToolCallDone(0, True), ms.Done(ms.FinishReason.TOOL_USE, "completed", ms.Usage(), {"status": "completed"}),
    ]  # fmt: skip


def test_arguments_of_the_beginning_are_used_if_none_follow() -> None:
    outcome = stream_of(added(0, CALL), done(0, {**CALL, "arguments": ""}), completed())
    assert outcome.response.tool_calls == [ms.ToolCall("c", "f", "{}")]
    # Neither is the item sent again, nor is it in the final output.
    outcome = stream_of(added(0, CALL), completed())
    assert outcome.response.tool_calls == [ms.ToolCall("c", "f", "{}")]
    assert [event for event in outcome.events if isinstance(event, ms.ToolCallDelta)] == [ms.ToolCallDelta(0, "{}")]
    outcome = stream_of(added(0, CALL), delta("function_call_arguments", 0, "[]"), completed())
    assert outcome.response.tool_calls == [ms.ToolCall("c", "f", "[]")]


def test_ids_of_a_call_in_order_of_preference() -> None:
    plain: ms.JSONObject = {"type": "function_call", "name": "f", "arguments": "{}"}
    for given, expected in (({"call_id": "c", "id": "i"}, "c"), ({"id": "i"}, "i"), ({}, MADE_ID)):
        assert [call.id for call in decode({"output": [{**plain, **given}]}).tool_calls] == [expected]


def test_the_members_that_a_call_needs_back() -> None:
    item: ms.JSONObject = {**CALL, "namespace": "n", "caller": {"type": "x"}, "async": False, "other": 1}
    state = ms.ProviderState(NAME, {"namespace": "n", "caller": {"type": "x"}, "async": False})
    assert decode({"output": [item]}).tool_calls == [ms.ToolCall("c", "f", "{}", state=state)]
    custom: ms.JSONObject = {"type": "custom_tool_call", "call_id": "c", "name": "g", "input": "raw"}
    state = ms.ProviderState(NAME, {"type": "custom_tool_call"})
    assert decode({"output": [custom]}).tool_calls == [ms.ToolCall("c", "g", "raw", state=state)]


def test_deltas_after_the_end_of_a_call_are_ignored() -> None:
    outcome = stream_of(
        added(0, CALL), done(0, {**CALL, "status": "completed"}), delta("function_call_arguments", 0, "x"),
        {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": "{}x"}, completed(),
    )  # fmt: skip
    assert (outcome.response.tool_calls, outcome.response.warnings) == ([ms.ToolCall("c", "f", "{}")], [])


def test_a_call_that_is_still_in_progress_is_not_complete() -> None:
    calls = [{**CALL, "status": "in_progress"}, {**CALL, "call_id": "d"}]
    response = decode({"status": "incomplete", "output": [*calls, message(text_part("a"))]})
    assert [(call.id, call.complete) for call in response.tool_calls] == [("c", False), ("d", True)]


def test_a_second_call_at_the_same_index_takes_it_over() -> None:
    other: ms.JSONObject = {**CALL, "call_id": "d", "name": "g"}
    outcome = stream_of(
        added(0, {**CALL, "arguments": ""}), added(0, {**other, "arguments": ""}),
        delta("function_call_arguments", 0, "[1]"), done(0, CALL), done(0, {**other, "arguments": "[1]"}), completed(),
    )  # fmt: skip
    assert outcome.response.content == [ms.ToolCall("c", "f", "{}"), ms.ToolCall("d", "g", "[1]")]


def test_events_for_an_item_of_another_type_are_ignored() -> None:
    search: ms.JSONObject = {"type": "web_search_call", "id": "w"}
    outcome = stream_of(
        added(0, search), delta("output_text", 0, "a"), delta("refusal", 0, "a"), delta("reasoning_text", 0, "a"),
        delta("function_call_arguments", 0, "a"), delta("function_call_arguments", 5, "a"), completed(),
    )  # fmt: skip
    assert (outcome.response.content, outcome.response.refusal) == ([ms.ProviderBlock(NAME, search)], None)


# --- the end ---
def test_every_event_of_the_beginning_describes_the_response() -> None:
    outcome = stream_of(
        {"type": "response.created", "response": {"id": "a", "model": "m"}},
        {"type": "response.in_progress", "response": {"id": "b"}},
        {"type": "response.completed", "response": {"model": "n"}},
    )
    assert outcome.events[0] == ms.Start("m", "a")
    assert (outcome.response.id, outcome.response.model) == ("b", "n")


def test_members_of_the_terminal_event_are_kept() -> None:
    event: ms.JSONObject = {
        "type": "response.completed", "sequence_number": 1, "event_id": "e", "copilot_usage": {"n": 1}, "none": None,
        "empty": {}, "nothing": [], "zero": 0, "response": {"status": "completed", "service_tier": "flex"},
    }  # fmt: skip
    outcome = stream_of(event)
    assert outcome.response.provider_data == {
        "copilot_usage": {"n": 1}, "zero": 0, "status": "completed", "service_tier": "flex",
    }  # fmt: skip


def test_reasons_and_raw_words() -> None:
    ends: list[tuple[ms.JSONObject, str, str | None]] = [
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter", "incomplete"),
        ({"status": "incomplete"}, "length", "incomplete"),
        ({"incomplete_details": {"reason": "max_output_tokens"}}, "length", "max_output_tokens"),
        ({"status": "in_progress"}, "unknown", "in_progress"),
        ({"output": [message({"type": "output_text", "text": "a"})]}, "stop", None),
    ]
    for response, reason, raw in ends:
        answer = decode({"output": [], **response})
        assert (answer.finish_reason.value, answer.raw_finish_reason) == (reason, raw)


def test_a_lenient_server_ends_with_its_mark() -> None:
    item = '{"type":"response.output_item.done","item":{"type":"message","content":[{"type":"text","text":"a"}]}}'
    outcome = stream(f"data: {item}\n\ndata:  [DONE] ", provider=LENIENT)
    assert outcome.events == [
        ms.Start(None, None),
        ms.TextDelta(0, "a"),
        ms.Done(ms.FinishReason.UNKNOWN, None, ms.Usage(), {}),
    ]
