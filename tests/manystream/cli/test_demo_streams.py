"""The checks of `manystream demo`: they find every kind of difference, and none in a correct stream."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

import manystream as ms
from manystream.bench.histogram import bucket_of
from manystream.cli import demo_streams
from manystream.cli.demo_streams import (
    MIXTURE,
    DemoStream,
    Recipe,
    plan_streams,
    shortened,
    stamp_differences,
)

EVENTS = 12


def stream_of(recipe: Recipe) -> DemoStream:
    all_counters, _ = plan_streams(1, ["anthropic"], seconds=1, rate=EVENTS)
    return DemoStream(0, recipe, all_counters[0], events=EVENTS, rate=EVENTS, limit=1)


def events_of(stream: DemoStream) -> list[ms.Event]:
    """Return the events of a correct stream."""
    scenario = stream.expected()
    stamps = (f"{time.monotonic_ns():020d} " for _ in scenario.text_pieces)
    pieces = stamps if stream.recipe.stamped else scenario.text_pieces
    events: list[ms.Event] = [ms.Start("m", "id")]
    events += [ms.ThinkingDelta(0, piece) for piece in scenario.thinking_pieces]
    events += [ms.TextDelta(1, piece) for piece in pieces]
    for index, call in enumerate(scenario.calls, 2):
        events.append(ms.ToolCallStart(index, call.id, call.name))
        events += [ms.ToolCallDelta(index, piece) for piece in call.fragments]
        events.append(ms.ToolCallDone(index))
    finish = ms.FinishReason.TOOL_USE if scenario.calls else ms.FinishReason.STOP
    return [*events, ms.Done(finish, "end", ms.Usage())]


def play(stream: DemoStream, events: list[ms.Event], *, completions: int = 1) -> list[str]:
    """Deliver events and a matching completion to a stream, and return the differences that it finds."""
    on_event = stream.on_stamped_event if stream.recipe.stamped else stream.on_event
    for event in events:
        on_event(event)
    scenario = stream.expected()
    text = "".join(event.text for event in events if isinstance(event, ms.TextDelta))
    response = ms.Response(
        content=[ms.Thinking(scenario.thinking), ms.Text(text),
        *(ms.ToolCall(call.id, call.name, call.arguments) for call in scenario.calls)],
        finish_reason=ms.FinishReason.TOOL_USE if scenario.calls else ms.FinishReason.STOP,
    )  # fmt: skip
    for _ in range(completions):
        stream.on_completion(ms.Completion(success=True, response=response))
    return stream.differences()


@pytest.mark.parametrize("recipe", MIXTURE, ids=repr)
def test_a_correct_stream_has_no_differences(recipe: Recipe) -> None:
    stream = stream_of(recipe)
    events = events_of(stream)
    assert play(stream, events) == []
    assert stream.counters.events == len(events)
    assert bool(sum(stream.counters.window.values())) is recipe.stamped


@pytest.mark.parametrize("recipe", MIXTURE, ids=repr)
def test_every_missing_event_is_found(recipe: Recipe) -> None:
    for place, event in enumerate(events_of(stream_of(recipe))):
        if isinstance(event, ms.Start | ms.ToolCallStart | ms.ToolCallDone):
            continue
        stream = stream_of(recipe)
        events = events_of(stream)
        del events[place]
        assert play(stream, events), f"without {event}"


@pytest.mark.parametrize("recipe", MIXTURE, ids=repr)
def test_a_repeated_text_event_is_found(recipe: Recipe) -> None:
    stream = stream_of(recipe)
    events = events_of(stream)
    place = next(place for place, event in enumerate(events) if isinstance(event, ms.TextDelta))
    assert play(stream, [*events[:place], events[place], *events[place:]])


@pytest.mark.parametrize("completions", [0, 2])
def test_exactly_one_completion_is_required(completions: int) -> None:
    stream = stream_of(MIXTURE[0])
    assert play(stream, events_of(stream), completions=completions) == [f"{completions} completions instead of one"]


def test_a_failure_and_a_second_ending_are_found() -> None:
    stream = stream_of(MIXTURE[0])
    error = ms.ProviderError("cut", category=ms.ErrorCategory.NETWORK)
    stream.on_completion(ms.Completion(success=False, error=error))
    assert stream.differences() == ["failed: cut"]
    assert stream.counters.errors == 1
    stream = stream_of(MIXTURE[0])
    events = events_of(stream)
    assert "1 events after it" in play(stream, [*events, events[-1]])[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{1:020d} {2:020d} ", None),
        (f"{2:020d} {1:020d} ", "out of order"),
        (f"{1:020d} ", "1 stamps instead of 2"),
        (f"{1:020d} {2:020d}", "not consist of complete stamps"),
        (f"{1:020d}x{2:020d} ", "not consist of complete stamps"),
    ],
)
def test_stamps_must_be_complete_and_in_order(text: str, words: str | None) -> None:
    found = stamp_differences(text, 2)
    assert not found if words is None else words in found[0]


def test_streams_are_spread_over_dialects_recipes_and_texts() -> None:
    dialects = ["a", "b", "c", "d"]
    all_counters, streams = plan_streams(1000, dialects, seconds=10, rate=50)
    assert [counters.dialect for counters in all_counters] == dialects
    for counters in all_counters:
        own = [stream for stream in streams if stream.counters is counters]
        assert len(own) == 250
        assert {stream.recipe for stream in own} == set(MIXTURE)
        pairs = zip(own, own[len(MIXTURE) :], strict=False)
        assert all(one.prompt != other.prompt for one, other in pairs), "neighbours need different prompts"
    assert sum(stream.recipe.stamped for stream in streams) == 500


def test_neighbouring_streams_have_different_texts() -> None:
    _, streams = plan_streams(48, ["a", "b"], seconds=1, rate=50)
    plain = [stream for stream in streams if stream.recipe == replace(MIXTURE[3])]
    assert len({stream.expected().text for stream in plain}) == len({stream.prompt for stream in plain}) > 1


def test_the_request_of_a_stream() -> None:
    (counters, _), streams = plan_streams(6, ["anthropic", "gemini"], seconds=2, rate=12.5)
    stream = streams[4]
    assert (stream.name, stream.counters, stream.recipe) == ("anthropic stream 2", counters, MIXTURE[2])
    assert stream.request == ms.Request(
        "anthropic/demonstration", [ms.Message.user("demonstration 0")],
        extra_headers={"x-simulate": "kind=mixed,calls=2,events=25,rate=12.5,stamp=1"},
        timeouts=ms.Timeouts(first_byte=30.0, idle=30.0, total=32.0), retry=ms.Retry(max_attempts=1),
    )  # fmt: skip
    assert streams[2].directive == "kind=thinking,calls=0,events=25,rate=12.5,text=unicode"
    assert (stream.text, stream.thinking, stream.calls, stream.ended) == ([], [], [], None)
    assert (stream.events_after_end, stream.completions) == (0, [])


def test_a_stream_has_at_least_one_event_and_one_of_five_texts() -> None:
    _, streams = plan_streams(36, ["a"], seconds=0.1, rate=1)
    assert streams[0].directive == "kind=text,calls=0,events=1,rate=1,stamp=1"
    assert [streams[number].prompt[-1] for number in (0, 5, 6, 23, 24, 29, 30, 35)] == [*"00134400"]


@pytest.mark.parametrize("age", [0, 999, 1000, 5_000_000, 9_000_000_000])
def test_a_latency_is_counted_in_its_bucket(age: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_streams, "time", SimpleNamespace(monotonic_ns=lambda: 10**12 + age))
    stream = stream_of(Recipe("text", stamped=True))
    stream.on_stamped_event(ms.TextDelta(0, f"{10**12:020d} "))
    assert dict(stream.counters.window) == {bucket_of(age // 1000): 1}
    assert (stream.counters.events, stream.text) == (1, [f"{10**12:020d} "])


@pytest.mark.parametrize(
    ("kind", "begin"),
    [
        ("thinking", "thinking: received '"),
        ("tool calls", "tool calls: received ["),
        ("text of the response", "the response's text: received '"),
        ("thinking of the response", "the response's thinking: received 'else', but '"),
        ("tool calls of the response", "the response's tool calls: received [], but ["),
        ("finish reason", "the finish reason: received <FinishReason.STOP: 'stop'>, but <FinishReason.TOOL_USE: '"),
    ],
)
def test_one_difference_is_one_line(kind: str, begin: str) -> None:
    stream = stream_of(MIXTURE[5])
    assert play(stream, events_of(stream)) == []
    (completion,) = stream.completions
    thinking, text, *calls = completion.response.content
    if kind == "thinking":
        stream.thinking.append("x")
    elif kind == "tool calls":
        stream.calls[0][1].append("x")
    elif kind == "text of the response":
        completion.response.content = [thinking, ms.Text("else"), *calls]
    elif kind == "thinking of the response":
        completion.response.content = [ms.Thinking("else"), text, *calls]
    elif kind == "tool calls of the response":
        completion.response.content = [thinking, text]
    else:
        completion.response.finish_reason = ms.FinishReason.STOP
    (found,) = stream.differences()
    assert found.startswith(begin)
    assert found.endswith(" was sent")


def test_a_wrong_text_differs_from_what_was_sent_alone() -> None:
    stream = stream_of(MIXTURE[3])
    events = [
        ms.TextDelta(event.index, "x") if isinstance(event, ms.TextDelta) else event for event in events_of(stream)
    ]
    (found,) = play(stream, events)
    assert found.startswith("text: received 'xxxxxxxxxxxx', but '")


def test_stamps_out_of_order_are_listed_with_other_differences() -> None:
    stream = stream_of(Recipe("text", stamped=True))
    events = events_of(stream)
    events[1], events[2] = events[2], events[1]
    del events[-1]
    assert play(stream, events) == ["ended with None and 0 events after it", "stamps are out of order"]


def test_a_stream_without_an_answer_has_failed() -> None:
    stream = stream_of(MIXTURE[0])
    stream.on_completion(ms.Completion(success=True))
    assert stream.differences() == ["failed: without an answer"]
    assert (stream.counters.completed, stream.counters.errors) == (1, 0)


def test_an_error_is_the_end_of_a_stream() -> None:
    stream = stream_of(MIXTURE[3])
    error = ms.ErrorEvent(ms.ProviderError("cut", category=ms.ErrorCategory.NETWORK))
    stream.on_event(error)
    stream.on_event(ms.ToolCallDelta(0, "{}"))
    assert (stream.ended, stream.events_after_end, stream.counters.events) == (error, 1, 2)


def test_arguments_of_an_unknown_call_are_a_defect() -> None:
    stream = stream_of(MIXTURE[5])
    stream.on_event(ms.ToolCallStart(3, "id", "name"))
    stream.on_event(ms.ToolCallDelta(3, "{}"))
    assert stream.calls == [(ms.ToolCallStart(3, "id", "name"), ["{}"])]
    with pytest.raises(ValueError, match=r"^arguments for block 4, which is not a tool call$"):
        stream.on_event(ms.ToolCallDelta(4, "{}"))


def test_long_values_are_cut() -> None:
    assert shortened("x" * 118) == "'" + "x" * 118 + "'"
    assert shortened("x" * 119) == "'" + "x" * 99 + "… (121 characters)"
