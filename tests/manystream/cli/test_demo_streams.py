"""The checks of `manystream demo`: they find every kind of difference, and none in a correct stream."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

import manystream as ms
from manystream.bench.latency import SHIFT
from manystream.cli.demo_streams import MIXTURE, DemoStream, Recipe, plan_streams, stamp_differences

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
        content=[
            ms.Thinking(scenario.thinking),
            ms.Text(text),
            *(ms.ToolCall(call.id, call.name, call.arguments) for call in scenario.calls),
        ],
        finish_reason=ms.FinishReason.TOOL_USE if scenario.calls else ms.FinishReason.STOP,
    )
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


def test_the_latency_is_the_time_since_the_stamp() -> None:
    stream = stream_of(Recipe("text", stamped=True))
    stream.on_stamped_event(ms.TextDelta(0, f"{time.monotonic_ns() - 50_000_000:020d} "))
    ((bucket, count),) = stream.counters.window.items()
    assert count == 1
    assert 0.05 <= (bucket + 1) * (1 << SHIFT) / 1e9 < 5


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


def test_each_dialect_has_every_kind_of_stream() -> None:
    assert [(recipe.kind, recipe.stamped, recipe.calls) for recipe in MIXTURE] == [
        ("text", True, 0),
        ("thinking", False, 0),
        ("mixed", True, 2),
        ("text", False, 0),
        ("thinking", True, 0),
        ("mixed", False, 3),
    ]


def test_neighbouring_streams_have_different_texts() -> None:
    _, streams = plan_streams(48, ["a", "b"], seconds=1, rate=50)
    plain = [stream for stream in streams if stream.recipe == replace(MIXTURE[3])]
    assert len({stream.expected().text for stream in plain}) == len({stream.prompt for stream in plain}) > 1
