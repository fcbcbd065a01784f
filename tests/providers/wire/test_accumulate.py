"""The answer under construction: its events, its blocks and its response, fact by fact."""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.model.events import Start, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStart
from manystream.providers.wire.accumulate import Accumulator, events_of
from manystream.providers.wire.answer_limits import AnswerCount, AnswerLimits
from manystream.providers.wire.call_ids import separate_calls, unique_id
from tests.conformance.exchange import provider_for

STATE = ms.ProviderState("p", {"a": 1})


def test_an_empty_answer_is_an_empty_response() -> None:
    assert Accumulator().response() == ms.Response(
        content=[], finish_reason=ms.FinishReason.UNKNOWN, raw_finish_reason=None, usage=ms.Usage(), model=None,
        id=None, refusal=None, parsed=None, warnings=[], provider_data={},
    )  # fmt: skip


def test_an_answer_has_all_that_was_recorded() -> None:
    answer = Accumulator()
    events: list[ms.Event] = [answer.start("m", "r")]
    text = answer.text()
    events += [text.delta("a"), text.accept("b")]
    text.cite([])
    text.cite([{"n": 1}])
    text.cite([{"n": 2}, {"n": 3}])
    text.state = STATE
    thinking = answer.thinking()
    events += [thinking.delta("h"), thinking.accept("i")]
    thinking.signature_pieces += ["s", "t"]
    thinking.state = STATE
    call = answer.tool_call()
    events += [*call.delta("{"), *call.delta(""), *call.start("c", "f"), call.accept("}"), *call.delta("")]
    call.state = STATE
    placed = answer.place(ms.RedactedThinking("d"))
    nameless = answer.tool_call()
    events += [*nameless.delta("lost")]
    answer.refuse("no", "p")
    answer.refuse(" way", "p")
    answer.warn("w")
    answer.warn("v")
    answer.warn("w")
    answer.provider_data["k"] = 1
    answer.usage = ms.Usage(input_tokens=1)
    events += answer.done(ms.FinishReason.STOP, "end")
    assert events == [
        Start("m", "r"), TextDelta(0, "a"), TextDelta(0, "b"), ThinkingDelta(1, "h"), ThinkingDelta(1, "i"),
        ToolCallStart(2, "c", "f"), ToolCallDelta(2, "{"), ToolCallDelta(2, "}"), ms.ToolCallDone(2, True),
        ms.Done(ms.FinishReason.TOOL_USE, "end", ms.Usage(input_tokens=1), {"k": 1}),
    ]  # fmt: skip
    assert [block.index for block in (text, thinking, call, placed, nameless)] == [0, 1, 2, 3, 4]
    assert answer.response() == ms.Response(
        [
            ms.Text("ab", [{"n": 1}, {"n": 2}, {"n": 3}], state=ms.ProviderState("p", {"a": 1, "refusal": "no way"})),
            ms.Thinking("hi", "st", STATE),
            ms.ToolCall("c", "f", "{}", True, STATE),
            ms.RedactedThinking("d"),
        ],
        ms.FinishReason.TOOL_USE,
        "end",
        ms.Usage(input_tokens=1),
        "m",
        "r",
        refusal="no way",
        warnings=["w", "v"],
        provider_data={"k": 1},
    )


def test_an_empty_refusal_is_none() -> None:
    answer = Accumulator()
    answer.refusal_pieces = []
    assert answer.response().refusal is None


def test_a_thinking_block_without_a_signature_has_none() -> None:
    answer = Accumulator()
    answer.thinking().delta("h")
    assert answer.response().content == [ms.Thinking("h", None)]


def test_a_call_that_has_not_ended_is_incomplete() -> None:
    answer = Accumulator()
    call = answer.tool_call()
    call.start("c", "f")
    assert answer.response().content == [ms.ToolCall("c", "f", "", complete=False)]
    assert call.finish() == (ms.ToolCallDone(0, True),)
    assert answer.response().content == [ms.ToolCall("c", "f", "", complete=True)]
    assert call.finish(complete=False) == ()
    assert answer.response().content == [ms.ToolCall("c", "f", "", complete=True)]
    other = answer.tool_call()
    other.start("d", "f")
    assert other.finish(complete=False) == (ms.ToolCallDone(1, False),)
    assert answer.response().tool_calls[1].complete is False


CUT = [
    (ms.FinishReason.STOP, True, ms.FinishReason.TOOL_USE),
    (ms.FinishReason.LENGTH, False, ms.FinishReason.LENGTH),
    (ms.FinishReason.CONTENT_FILTER, False, ms.FinishReason.CONTENT_FILTER),
    (ms.FinishReason.TOOL_USE, True, ms.FinishReason.TOOL_USE),
    (ms.FinishReason.UNKNOWN, True, ms.FinishReason.TOOL_USE),
]


@pytest.mark.parametrize(("reason", "complete", "reported"), CUT)
def test_only_the_last_block_may_be_cut_off(reason: ms.FinishReason, complete: bool, reported: ms.FinishReason) -> None:
    answer = Accumulator()
    for id in "ab":
        answer.tool_call().start(id, "f")
    assert answer.done(reason, "raw") == [
        ms.ToolCallDone(0, True),
        ms.ToolCallDone(1, complete),
        ms.Done(reported, "raw", ms.Usage(), {}),
    ]
    answer = Accumulator()
    answer.tool_call().start("a", "f")
    answer.text()
    assert answer.done(reason, None) == [ms.ToolCallDone(0, True), ms.Done(reported, None, ms.Usage(), {})]


def test_a_stop_without_calls_stays_a_stop() -> None:
    answer = Accumulator()
    answer.text().delta("a")
    answer.tool_call().delta("lost")
    assert answer.done(ms.FinishReason.STOP, "stop") == [ms.Done(ms.FinishReason.STOP, "stop", ms.Usage(), {})]


CHAT = '{"choices":[{"index":0,"delta":%s,"finish_reason":%s}]}'
CHAT_WHOLE = '{"choices":[{"message":%s,"finish_reason":%s}]}'
CALLS = '{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}'
NO_CALLS = '{"content":"Hi","tool_calls":[]}'
NAMELESS = '{"content":"Hi","tool_calls":[{"index":0,"id":"c","function":{"arguments":"{}"}}]}'
MESSAGE = '{"type":"message","content":[%s],"stop_reason":%s}'
TOOL_USE = '{"type":"tool_use","id":"c","name":"f","input":{}}'
SERVER_TOOL = '{"type":"server_tool_use","id":"s","name":"web_search","input":{}}'
GEMINI = '{"candidates":[{"content":{"parts":[%s]},"finishReason":%s}]}'
GEMINI_CALL = '{"functionCall":{"name":"f","args":{}}}'
OUTPUT = '{"status":%s,"output":[%s]}'
ITEM = '{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}'
SEARCH = '{"type":"web_search_call","id":"s","status":"completed"}'


def anthropic_events(content: str, reason: str) -> list[str]:
    opened = [f'{{"type":"content_block_start","content_block":{content}}}', '{"type":"content_block_stop"}']
    end = [f'{{"type":"message_delta","delta":{{"stop_reason":{reason}}}}}', '{"type":"message_stop"}']
    return ['{"type":"message_start","message":{}}', *(opened if content else []), *end]


def chat_events(delta: str, reason: str) -> list[str]:
    return [CHAT % (delta, reason), "[DONE]"]


AGREEING: dict[str, tuple[str, str, list[str], ms.FinishReason]] = {
    "chat, an empty list": ("openai-chat", CHAT_WHOLE % (NO_CALLS, '"tool_calls"'),
        chat_events(NO_CALLS, '"tool_calls"'), ms.FinishReason.STOP),
    "chat, no name": ("openai-chat", CHAT_WHOLE % (NAMELESS, '"tool_calls"'), chat_events(NAMELESS, '"tool_calls"'),
        ms.FinishReason.STOP),
    "chat, no reason": ("openai-chat", CHAT_WHOLE % (CALLS, "null"), chat_events(CALLS, "null"),
        ms.FinishReason.TOOL_USE),
    "chat, an unknown reason": ("openai-chat", CHAT_WHOLE % (CALLS, '"done"'), chat_events(CALLS, '"done"'),
        ms.FinishReason.TOOL_USE),
    "chat, cut": ("openai-chat", CHAT_WHOLE % (CALLS, '"length"'), chat_events(CALLS, '"length"'),
        ms.FinishReason.LENGTH),
    "anthropic, no block": ("anthropic", MESSAGE % ("", '"tool_use"'), anthropic_events("", '"tool_use"'),
        ms.FinishReason.STOP),
    "anthropic, a call of the server": ("anthropic", MESSAGE % (SERVER_TOOL, '"tool_use"'),
        anthropic_events(SERVER_TOOL, '"tool_use"'), ms.FinishReason.STOP),
    "anthropic, no reason": ("anthropic", MESSAGE % (TOOL_USE, "null"), anthropic_events(TOOL_USE, "null"),
        ms.FinishReason.TOOL_USE),
    "anthropic, a pause beside a call": ("anthropic", MESSAGE % (TOOL_USE, '"pause_turn"'),
        anthropic_events(TOOL_USE, '"pause_turn"'), ms.FinishReason.TOOL_USE),
    "anthropic, a refusal beside a call": ("anthropic", MESSAGE % (TOOL_USE, '"refusal"'),
        anthropic_events(TOOL_USE, '"refusal"'), ms.FinishReason.CONTENT_FILTER),
    "gemini, no call": ("gemini", GEMINI % ('{"text":"Hi"}', '"FUNCTION_CALL"'),
        [GEMINI % ('{"text":"Hi"}', '"FUNCTION_CALL"')], ms.FinishReason.STOP),
    "gemini, an unknown reason": ("gemini", GEMINI % (GEMINI_CALL, '"OTHER"'), [GEMINI % (GEMINI_CALL, '"OTHER"')],
        ms.FinishReason.TOOL_USE),
    "responses, an unknown status": ("openai-responses", OUTPUT % ('"steered"', ITEM),
        ['{"type":"response.completed","response":%s}' % (OUTPUT % ('"steered"', ITEM))], ms.FinishReason.TOOL_USE),
    "responses, a call of the server": ("openai-responses", OUTPUT % ('"completed"', SEARCH),
        ['{"type":"response.completed","response":%s}' % (OUTPUT % ('"completed"', SEARCH))], ms.FinishReason.STOP),
    "responses, cut": ("openai-responses", OUTPUT % ('"incomplete"', ITEM),
        ['{"type":"response.incomplete","response":%s}' % (OUTPUT % ('"incomplete"', ITEM))], ms.FinishReason.LENGTH),
}  # fmt: skip


@pytest.mark.parametrize("name", AGREEING)
def test_the_finish_reason_agrees_with_the_content(name: str) -> None:
    dialect, body, events, reason = AGREEING[name]
    whole = DIALECTS[dialect].decode(body.encode(), provider_for(dialect, "openai"), lambda: "made")
    machine = DIALECTS[dialect].machine(provider_for(dialect, "openai"), lambda: "made")
    *_, done = [each for event in events for each in machine.feed("", event.encode())] + [*machine.end()]
    assert isinstance(done, ms.Done)
    assert machine.response() == whole
    assert done.finish_reason is whole.finish_reason is reason
    assert reason is not ms.FinishReason.TOOL_USE or whole.tool_calls
    announced = whole.raw_finish_reason in ("tool_calls", "tool_use", "FUNCTION_CALL")
    contradicted = announced and reason is ms.FinishReason.STOP
    assert any("announces tool calls" in warning for warning in whole.warnings) is contradicted


def test_equal_ids_are_numbered_unless_they_are_kept() -> None:
    answer = Accumulator()
    for _ in range(3):
        answer.tool_call().start("c", "f")
    assert [call.id for call in answer.response().tool_calls] == ["c", "c_2", "c_3"]
    assert [block.wire_id for block in answer.blocks] == ["c", "c", "c"]  # type: ignore[union-attr]
    answer = Accumulator(keep_ids=True)
    for _ in range(2):
        answer.tool_call().start("c", "f")
    assert [call.id for call in answer.response().tool_calls] == ["c", "c"]


def test_a_number_is_added_to_an_id_until_it_is_free() -> None:
    taken = {"a": 1, "a_2": 1, "b": 7}
    assert unique_id("c", taken) == "c"
    assert unique_id("a", taken) == "a_3"
    assert unique_id("a", taken) == "a_4"
    assert unique_id("b", taken) == "b_8"
    assert unique_id("long", {"lon": 1}, lambda id: id[:3] + id[4:]) == "lon_2"
    assert taken == {"a": 4, "a_2": 1, "b": 8}


def test_results_follow_the_calls_whose_ids_are_separated() -> None:
    def call(id: str) -> ms.Message:
        return ms.Message.tool_call(id, "f", "{}")

    def result(id: str, text: str) -> ms.Message:
        return ms.Message.tool_result(id, text)

    messages = [call("a"), call("a"), result("a", "1"), result("a", "2"), result("a", "3"), result("x", "4")]
    messages += [call("a"), result("a", "5"), call("a"), call("a"), ms.Message.user("u"), call("a"), result("a", "6")]
    separate_calls(messages)
    ids = [getattr(block, "id", getattr(block, "tool_call_id", "")) for m in messages for block in m.content]
    assert ids == ["a", "a_2", "a", "a_2", "a", "x", "a", "a", "a", "a_3", "", "a", "a"]


# --- limits ---

LIMITS = AnswerLimits(max_choices=2, max_blocks=3, max_tool_calls=2)


def test_the_default_limits() -> None:
    assert AnswerLimits() == AnswerLimits(max_choices=1024, max_blocks=16_384, max_tool_calls=4096)


@pytest.mark.parametrize(
    ("method", "most", "words"),
    [
        ("check_choices", 2, "the answer has more than 2 choices (limits.max_choices)"),
        ("check_parts", 3, "the answer has more than 3 content parts in one event (limits.max_blocks)"),
        ("check_items", 3, "the answer has more than 3 output items (limits.max_blocks)"),
        ("check_call_pieces", 2,
            "the answer has more than 2 pieces of tool calls in one event (limits.max_tool_calls)"),
    ],
)  # fmt: skip
def test_a_number_above_its_limit_is_an_error(method: str, most: int, words: str) -> None:
    check = getattr(AnswerCount(LIMITS), method)
    check(most)
    with pytest.raises(ms.ProviderError) as caught:
        check(most + 1)
    assert caught.value == ms.ProviderError(words, category=ms.ErrorCategory.SERVER, retryable=False)


@pytest.mark.parametrize("add", ["text", "thinking", "place"])
def test_every_kind_of_block_is_counted(add: str) -> None:
    answer = Accumulator(LIMITS)
    answer.tool_call()
    answer.tool_call()
    arguments = [ms.Text("a")] if add == "place" else []
    getattr(answer, add)(*arguments)
    with pytest.raises(
        ms.ProviderError, match=r"^server: the answer has more than 3 content blocks \(limits\.max_blocks"
    ):
        getattr(answer, add)(*arguments)
    assert len(answer.blocks) == 3
    answer.thinking(counted=False)
    assert len(answer.blocks) == 4


def test_tool_calls_are_counted_as_calls_and_as_blocks() -> None:
    answer = Accumulator(LIMITS)
    answer.tool_call()
    answer.tool_call()
    with pytest.raises(
        ms.ProviderError, match=r"^server: the answer has more than 2 tool calls \(limits\.max_tool_calls"
    ):
        answer.tool_call()
    answer = Accumulator(LIMITS)
    for _ in range(3):
        answer.text()
    with pytest.raises(ms.ProviderError, match=r"^server: the answer has more than 3 content blocks"):
        answer.tool_call()


def test_choices_of_one_answer_share_a_counter() -> None:
    first = Accumulator(LIMITS)
    second = Accumulator(AnswerLimits(max_blocks=1), first.count)
    assert second.count is first.count is first
    first.text()
    second.text()
    second.text()
    with pytest.raises(ms.ProviderError, match="more than 3 content blocks"):
        first.text()


# --- an unstreamed answer as events ---


def test_the_events_of_an_unstreamed_answer() -> None:
    usage = ms.Usage(output_tokens=1)
    response = ms.Response(
        [ms.Text("a"), ms.Text(""), ms.Thinking("h"), ms.Thinking(""), ms.RedactedThinking("d"),
        ms.ToolCall("c", "f", "{}"), ms.ToolCall("d", "g", "", complete=False)], ms.FinishReason.TOOL_USE, "raw",
        usage, "m", "r", provider_data={"k": 1},
    )  # fmt: skip
    assert events_of(response) == [
        Start("m", "r"), TextDelta(0, "a"), ThinkingDelta(2, "h"), ToolCallStart(5, "c", "f"), ToolCallDelta(5, "{}"),
        ms.ToolCallDone(5, True), ToolCallStart(6, "d", "g"), ms.ToolCallDone(6, False),
        ms.Done(ms.FinishReason.TOOL_USE, "raw", usage, {"k": 1}),
    ]  # fmt: skip
