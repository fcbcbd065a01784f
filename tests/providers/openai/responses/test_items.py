"""Servers that send an item twice under other ids, and servers whose final response differs from their items."""

import pytest

from manystream.providers.json.json_values import JSON, JSONObject
from manystream.providers.model.events import TextDelta, ToolCallDelta, ToolCallStart
from manystream.providers.model.messages import ProviderBlock, Text, Thinking
from manystream.providers.openai.responses.items import matched_places
from tests.providers.openai.responses.wire import Outcome, decode, stream_of

TEXT = "The weather in Paris is sunny, 21 °C, no wind."
REPEATED = "the server repeated a message under another id; it is reported once"
DIFFERS = "the server's final text differs from the deltas that were reported; the response holds the final text"


def message(id: str, text: JSON = TEXT, **members: JSON) -> JSONObject:
    content: list[JSON] = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": id, "type": "message", "role": "assistant", "status": "completed", "content": content, **members}


def call(id: str, call_id: str, arguments: str = '{"n":1}', name: str = "look") -> JSONObject:
    return {
        "id": id, "type": "function_call", "status": "completed", "call_id": call_id, "name": name,
        "arguments": arguments,
    }  # fmt: skip


def added(index: int, item: JSONObject) -> JSONObject:
    begun: JSONObject = {**item, "status": "in_progress"}
    if "content" in item:
        begun["content"] = []
    if "arguments" in item:
        begun["arguments"] = ""
    return {"type": "response.output_item.added", "output_index": index, "item": begun}


def delta(index: int, text: str, kind: str = "output_text") -> JSONObject:
    return {"type": f"response.{kind}.delta", "output_index": index, "content_index": 0, "delta": text}


def text_done(index: int, text: str = TEXT) -> JSONObject:
    return {"type": "response.output_text.done", "output_index": index, "content_index": 0, "text": text}


def done(index: int, item: JSONObject) -> JSONObject:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def spoken(index: int, id: str, text: str) -> tuple[JSONObject, ...]:
    """Return the events of a whole message."""
    item = message(id, text)
    return added(index, item), delta(index, text), text_done(index, text), done(index, item)


def thought(id: str, text: str, encrypted: str = "secret") -> JSONObject:
    summary: list[JSON] = [{"type": "summary_text", "text": text}]
    return {"id": id, "type": "reasoning", "summary": summary, "encrypted_content": encrypted}


def outcome_of(*events: JSONObject, output: tuple[JSONObject, ...] = ()) -> Outcome:
    response: JSONObject = {"id": "r", "model": "m", "status": "completed", "output": list(output)}
    return stream_of(*events, {"type": "response.completed", "response": response})


SPOKEN = (added(0, message("msg_1")), delta(0, TEXT[:20]), delta(0, TEXT[20:]), text_done(0), done(0, message("msg_1")))


@pytest.mark.parametrize(
    "again",
    [
        (done(0, message("msg_2")),),
        (done(1, message("msg_2")),),
        (added(1, message("msg_2")), done(1, message("msg_2"))),
        (added(1, message("msg_2")), text_done(1), done(1, message("msg_2"))),
    ],
    ids=["at its index", "at the next index", "with its beginning", "with its text"],
)
@pytest.mark.parametrize("final", [(), ("msg_1",), ("msg_2",), ("msg_3",), ("msg_1", "msg_2")])
def test_a_message_under_two_ids_is_delivered_once(again: tuple[JSONObject, ...], final: tuple[str, ...]) -> None:
    answer = outcome_of(*SPOKEN, *again, output=tuple(message(id) for id in final))
    assert answer.text_at(0) == TEXT
    assert answer.response.content == [Text(TEXT)]
    assert answer.response.warnings == [REPEATED]


def test_a_message_of_items_and_final_response_is_delivered_once() -> None:
    output = (message("msg_1"), message("msg_2"))
    answer = outcome_of(*SPOKEN, output=output)
    assert (answer.response.text, answer.response.warnings) == (TEXT, [REPEATED])
    unstreamed = decode({"id": "r", "model": "m", "status": "completed", "output": list(output)})
    assert (unstreamed.text, unstreamed.warnings) == (TEXT, [REPEATED])


def test_equal_messages_with_an_item_between_them_are_two() -> None:
    search: JSONObject = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search"}}
    answer = outcome_of(*SPOKEN, done(1, search), done(2, message("msg_2")))
    assert answer.response.text == TEXT + TEXT
    assert answer.response.warnings == []


def test_equal_messages_of_two_phases_are_two() -> None:
    first, second = message("msg_1", phase="commentary"), message("msg_2", phase="final_answer")
    assert outcome_of(done(0, first), done(1, second)).response.text == TEXT + TEXT


def test_equal_messages_that_were_both_streamed_are_two() -> None:
    answer = outcome_of(*SPOKEN, added(1, message("msg_2")), delta(1, TEXT), done(1, message("msg_2")))
    assert answer.response.text == TEXT + TEXT
    assert answer.response.warnings == []


def test_a_repeated_call_is_one_call() -> None:
    one = call("fc_1", "call_1")
    opened = (added(0, one), delta(0, '{"n":1}', "function_call_arguments"), done(0, one))
    answer = outcome_of(*opened, done(0, call("fc_2", "call_1")), output=(call("fc_3", "call_1"),))
    assert [(c.id, c.arguments) for c in answer.response.tool_calls] == [("call_1", '{"n":1}')]
    # The call id changes with the item's id. The one that was delivered first is kept.
    answer = outcome_of(*opened[:2], done(0, call("fc_2", "call_2")), output=(call("fc_3", "call_3"),))
    assert [(c.id, c.arguments, c.complete) for c in answer.response.tool_calls] == [("call_1", '{"n":1}', True)]
    assert sum(isinstance(event, ToolCallStart) for event in answer.events) == 1


def test_parallel_calls_that_share_an_index_are_separate() -> None:
    one, two = call("fc_1", "call_1"), call("fc_2", "call_2")
    answer = outcome_of(added(0, one), added(0, two), done(0, one), done(0, two), output=(one, two))
    assert [c.id for c in answer.response.tool_calls] == ["call_1", "call_2"]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (call("fc_2", "call_1"), []),
        (call("fc_2", "call_2"), [("call_2", '{"n":1}')]),
        (call("fc_1", "call_1", '{"n":2}'), [("call_1_2", '{"n":2}')]),
        (call("fc_2", "call_2", '{"n":2}'), [("call_2", '{"n":2}')]),
    ],
    ids=["another item id", "another call id", "other arguments", "another call"],
)
def test_a_whole_call_at_the_index_of_a_whole_one(second: JSONObject, expected: list[tuple[str, str]]) -> None:
    first = call("fc_1", "call_1")
    calls = outcome_of(added(0, first), done(0, first), done(0, second)).response.tool_calls
    assert [(c.id, c.arguments) for c in calls] == [("call_1", '{"n":1}'), *expected]


def test_repeated_reasoning_and_searches_are_read_once() -> None:
    search: JSONObject = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    answer = outcome_of(
        done(0, thought("rs_1", "Hm.", "a")), done(0, thought("rs_2", "Hm.", "b")), done(1, search),
        done(1, {**search, "id": "ws_2"}),
    )  # fmt: skip
    thinking, block = answer.response.content
    assert isinstance(thinking, Thinking)
    assert isinstance(block, ProviderBlock)
    assert thinking.text == "Hm."
    assert thinking.state.data["id"] == "rs_2"


@pytest.mark.parametrize(
    "final", [(text_done(0, "Goodbye"),), (done(0, message("msg_1", "Goodbye")),), ()], ids=["text", "item", "response"]
)
def test_a_final_text_replaces_its_deltas_with_a_warning(final: tuple[JSONObject, ...]) -> None:
    answer = outcome_of(delta(0, "Hel"), delta(0, "lo"), *final, output=(message("msg_1", "Goodbye"),))
    assert [event.text for event in answer.events if isinstance(event, TextDelta)] == ["Hel", "lo"]
    assert answer.response.text == "Goodbye"
    assert answer.response.warnings == [DIFFERS]


def test_final_arguments_thinking_and_refusals_replace_deltas() -> None:
    one = call("fc_1", "call_1", '{"n":2}')
    answer = outcome_of(added(0, one), delta(0, '{"n":1}', "function_call_arguments"), done(0, one))
    assert [event.arguments for event in answer.events if isinstance(event, ToolCallDelta)] == ['{"n":1}']
    assert answer.response.tool_calls[0].arguments == '{"n":2}'
    assert answer.response.warnings == [DIFFERS]

    thought: JSONObject = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "No."}]}
    answer = outcome_of(delta(0, "Yes.", "reasoning_summary_text"), done(0, thought))
    assert (answer.response.thinking, answer.response.warnings) == ("No.", [DIFFERS])

    refused: JSONObject = {"type": "message", "content": [{"type": "refusal", "refusal": "I will not."}]}
    answer = outcome_of(delta(0, "I cannot.", "refusal"), done(0, refused))
    assert (answer.response.refusal, answer.response.warnings) == ("I will not.", [DIFFERS])


@pytest.mark.parametrize(
    "content", [{"city": "Paris"}, [{"type": "output_text", "text": {"city": "Paris"}}]], ids=["content", "text"]
)
def test_an_object_instead_of_text_is_its_json_text(content: JSON) -> None:
    item: JSONObject = {"id": "msg_1", "type": "message", "content": content}
    assert outcome_of(done(0, item), output=(item,)).response.text == '{"city":"Paris"}'
    assert decode({"status": "completed", "output": [item]}).text == '{"city":"Paris"}'


@pytest.mark.parametrize("id", ["msg_2", "other"], ids=["known id", "new id"])
@pytest.mark.parametrize("between", [(), (done(1, call("fc_1", "call_1")),)], ids=["adjacent", "with a call"])
def test_a_final_output_may_leave_out_earlier_messages(id: str, between: tuple[JSONObject, ...]) -> None:
    calls = (call("fc_1", "call_1"),) if between else ()
    answer = outcome_of(
        *spoken(0, "msg_1", "Let me look."), *between, *spoken(2, "msg_2", "It is sunny."),
        output=(*calls, message(id, "It is sunny.")),
    )  # fmt: skip
    assert [event.text for event in answer.events if isinstance(event, TextDelta)] == ["Let me look.", "It is sunny."]
    assert answer.response.text == "Let me look.It is sunny."
    assert answer.response.warnings == []


def test_a_final_output_may_have_items_in_another_order() -> None:
    answer = outcome_of(
        *spoken(0, "msg_1", "One."),
        *spoken(1, "msg_2", "Two."),
        output=(message("msg_2", "Two."), message("msg_1", "One.")),
    )
    assert answer.response.content == [Text("One."), Text("Two.")]
    assert answer.response.warnings == []


def test_a_new_item_takes_no_other_items_place() -> None:
    answer = outcome_of(
        *spoken(0, "msg_1", "One."),
        *spoken(1, "msg_2", "Two."),
        output=(message("msg_0", "Zero."), message("msg_1", "One."), message("msg_2", "Two.")),
    )
    assert answer.response.content == [Text("One."), Text("Two."), Text("Zero.")]
    assert answer.response.warnings == []


def test_a_final_text_of_a_known_id_replaces_its_own_deltas() -> None:
    answer = outcome_of(*spoken(0, "msg_1", "One."), *spoken(1, "msg_2", "Two."), output=(message("msg_2", "Second."),))
    assert answer.response.content == [Text("One."), Text("Second.")]
    assert answer.response.warnings == [DIFFERS]


@pytest.mark.parametrize("id", ["rs_2", "other"], ids=["known id", "new id"])
def test_a_final_output_may_leave_out_earlier_reasoning(id: str) -> None:
    answer = outcome_of(
        done(0, thought("rs_1", "First.")), done(1, thought("rs_2", "Then.")), output=(thought(id, "Then."),)
    )
    first, second = answer.response.content
    assert isinstance(first, Thinking)
    assert isinstance(second, Thinking)
    assert first.state is not None
    assert second.state is not None
    assert (first.text, first.state.data["id"]) == ("First.", "rs_1")
    assert (second.text, second.state.data["id"]) == ("Then.", id)
    assert answer.response.warnings == []


def test_a_final_output_may_leave_out_an_earlier_search() -> None:
    one: JSONObject = {"id": "ws_1", "type": "web_search_call", "action": {"type": "search", "query": "a"}}
    two: JSONObject = {"id": "ws_2", "type": "web_search_call", "action": {"type": "search", "query": "b"}}
    answer = outcome_of(done(0, one), done(1, two), output=(two,))
    assert [block.data for block in answer.response.content if isinstance(block, ProviderBlock)] == [one, two]


def without_index(event: JSONObject) -> JSONObject:
    return {name: value for name, value in event.items() if name != "output_index"}


@pytest.mark.parametrize("has_index", [True, False], ids=["one index for all", "no index"])
def test_deltas_of_calls_that_share_an_index_stay_apart(has_index: bool) -> None:
    one, two = call("fc_1", "call_1", '{"n":1}'), call("fc_2", "call_2", '{"n":2}')

    def piece(id: str, text: str) -> JSONObject:
        return {**delta(0, text, "function_call_arguments"), "item_id": id}

    events = [
        added(0, one), added(0, two), piece("fc_1", '{"n"'), piece("fc_2", '{"n"'), piece("fc_1", ":1}"),
        piece("fc_2", ":2}"), done(0, one), done(0, two),
    ]  # fmt: skip
    answer = outcome_of(*(events if has_index else map(without_index, events)), output=(one, two))
    assert (answer.text_at(0), answer.text_at(1)) == ('{"n":1}', '{"n":2}')
    assert [c.arguments for c in answer.response.tool_calls] == ['{"n":1}', '{"n":2}']
    assert answer.response.warnings == []


@pytest.mark.parametrize("ids", [("rs_1", "msg_1"), (None, None)], ids=["with ids", "without ids"])
@pytest.mark.parametrize("kind", ["reasoning_text", "reasoning_summary_text"])
def test_text_after_reasoning_at_one_index_is_a_message(kind: str, ids: tuple[str | None, ...]) -> None:
    first = {**delta(0, "Hm.", kind), "item_id": ids[0]}
    answer = outcome_of(first, {**delta(0, "Sun", "output_text"), "item_id": ids[1]}, delta(0, "ny."))
    assert (answer.response.thinking, answer.response.text) == ("Hm.", "Sunny.")
    assert [event.text for event in answer.events if isinstance(event, TextDelta)] == ["Sun", "ny."]


def test_reasoning_after_text_at_one_index_is_a_thought() -> None:
    first = {**delta(0, "Let me look."), "item_id": "msg_1"}
    second = {**delta(0, "Hm.", "reasoning_text"), "item_id": "rs_1"}
    answer = outcome_of(first, second, done(0, thought("rs_1", "Hm.")), done(0, message("msg_1", "Let me look.")))
    assert (answer.response.text, answer.response.thinking) == ("Let me look.", "Hm.")
    assert answer.response.warnings == []


def test_deltas_after_a_whole_item_begin_another_one() -> None:
    one, two = message("msg_1", "One."), message("msg_2", "Two.")
    answer = outcome_of(
        {**delta(0, "One."), "item_id": "msg_1"}, done(0, one), {**delta(0, "Two."), "item_id": "msg_2"}, done(0, two),
        output=(one, two),
    )  # fmt: skip
    assert [event.text for event in answer.events if isinstance(event, TextDelta)] == ["One.", "Two."]
    assert (answer.response.text, answer.response.warnings) == ("One.Two.", [])


# --- parts that the deltas number otherwise than the whole message ---


def part_delta(place: int, text: str, kind: str = "output_text") -> JSONObject:
    return {**delta(0, text, kind), "content_index": place, "item_id": "m"}


def part_done(place: int, text: str, kind: str = "output_text") -> JSONObject:
    member = "text" if kind == "output_text" else "refusal"
    return {"type": f"response.{kind}.done", "output_index": 0, "content_index": place, member: text, "item_id": "m"}


def part_end(place: int, text: str) -> JSONObject:
    part: JSONObject = {"type": "output_text", "text": text}
    return {"type": "response.content_part.done", "output_index": 0, "content_index": place, "part": part}


def contents(*texts: str, kind: str = "output_text") -> list[JSON]:
    member = "text" if kind == "output_text" else "refusal"
    return [{"type": kind, member: text} for text in texts]


def said(*texts: str, kind: str = "output_text") -> JSONObject:
    return {"id": "m", "type": "message", "content": contents(*texts, kind=kind)}


def ended(*items: JSONObject) -> JSONObject:
    response: JSONObject = {"id": "r", "model": "m", "status": "completed", "output": [*items]}
    return {"type": "response.completed", "response": response}


PLACES: dict[str, tuple[list[JSONObject], list[str], list[str]]] = {
    "one higher": ([part_delta(1, "a"), done(0, said("a")), ended(said("a"))], ["a"], []),
    "one higher, without a whole item before": ([part_delta(1, "a"), ended(said("a"))], ["a"], []),
    "one higher, and cut": ([part_delta(1, "a"), ended(said("ab"))], ["ab"], []),
    "one higher, and changed": ([part_delta(1, "a"), ended(said("b"))], ["b"], [DIFFERS]),
    "both one higher": ([part_delta(1, "a"), part_delta(2, "b"), ended(said("a", "b"))], ["a", "b"], []),
    "both one higher, and equal": ([part_delta(1, "a"), part_delta(2, "a"), ended(said("a", "a"))], ["a", "a"], []),
    "both one higher, one cut": ([part_delta(1, "a"), part_delta(2, "b"), ended(said("a", "bc"))], ["a", "bc"], []),
    "far higher": ([part_delta(7, "a"), part_delta(9, "b"), ended(said("a", "b"))], ["a", "b"], []),
    "lower": ([part_delta(0, "a"), ended({**said(), "content": [{"type": "odd"}, *contents("a")]})], ["a"], []),
    "higher, with a part that is new": ([part_delta(1, "a"), ended(said("a", "b"))], ["a", "b"], []),
    "higher in the deltas only": ([part_delta(1, "a"), part_done(0, "a"), ended(said("a"))], ["a"], []),
    "higher until its end": ([part_delta(1, "a"), part_done(1, "a"), part_end(0, "a"), ended()], ["a"], []),
    "both higher until their ends": ([part_delta(1, "a"), part_done(1, "a"), part_end(0, "a"), part_delta(2, "b"),
        part_done(2, "b"), part_end(1, "b"), ended(said("a", "b"))], ["a", "b"], []),
    "equal parts that end": ([part_delta(0, "a"), part_done(0, "a"), part_end(0, "a"), part_done(1, "a"),
        part_end(1, "a"), ended()], ["a", "a"], []),
    "lower in the deltas only": ([part_delta(0, "a"), part_done(1, "a"), done(0, said("a")), ended()], ["a"], []),
    "a part that is left out": ([part_delta(0, "a"), part_delta(1, "b"), ended(said("b"))], ["a", "b"], []),
    "in another order": ([part_delta(0, "a"), part_delta(1, "b"), ended(said("b", "a"))], ["a", "b"], []),
    "equal parts": ([part_delta(0, "a"), part_done(0, "a"), part_done(1, "a"), ended(said("a", "a"))], ["a", "a"], []),
    "equal parts, one whole": ([part_delta(0, "a"), part_done(0, "a"), part_done(1, "a"), ended()], ["a", "a"], []),
    "equal parts, one without deltas": ([part_delta(0, "a"), done(0, said("a", "a")), ended()], ["a", "a"], []),
    "a part that goes on": ([part_delta(0, "a"), part_delta(1, "b"), ended(said("ab", "b"))], ["ab", "b"], []),
    "a part that changes": ([part_delta(0, "a"), part_delta(1, "b"), ended(said("x", "b"))], ["x", "b"], [DIFFERS]),
    "an empty part": ([part_delta(1, "a"), ended(said("", "a"))], ["a"], []),
}  # fmt: skip


@pytest.mark.parametrize(("events", "texts", "warnings"), PLACES.values(), ids=PLACES)
def test_a_part_is_delivered_once(events: list[JSONObject], texts: list[str], warnings: list[str]) -> None:
    outcome = stream_of(*events)
    assert [block.text for block in outcome.response.content if isinstance(block, Text)] == texts
    assert outcome.response.warnings == warnings
    if not warnings:
        assert [outcome.text_at(place) for place in range(len(texts))] == texts


@pytest.mark.parametrize("refused", [["No."], ["No.", "Never."], ["No.", "No."]], ids=str)
def test_a_refusal_is_kept_once_whatever_its_number(refused: list[str]) -> None:
    deltas = [part_delta(place, text, "refusal") for place, text in enumerate(refused, 1)]
    whole = said(*refused, kind="refusal")
    for events in ([ended(whole)], [done(0, whole), ended(whole)], [done(0, whole), ended()]):
        assert stream_of(*deltas, *events).response.refusal == "".join(refused)
    assert stream_of(*deltas[:1], part_done(0, "No.", "refusal"), ended()).response.refusal == "No."


def test_matching_many_parts_takes_linear_time() -> None:
    many = {place: str(place) for place in range(20_000)}
    shifted = {place + 1: text + "x" for place, text in many.items()}
    assert len(matched_places(many, shifted)) == len(many)
    assert len({*matched_places({**many, 30_000: "new"}, shifted).values()}) == len(many) + 1
