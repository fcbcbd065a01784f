"""Frames that are joined in one event."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.transport.sse import SSEParser
from tests.providers.catalog.test_dialect import chunk, machine
from tests.support.dialects import DIALECTS as WORDINGS
from tests.support.dialects import Wording


def feed(wording: Wording, wire: Sequence[tuple[str, bytes]], *, last: bool = False) -> list[ms.Event]:
    """Return the events of a stream, given as names and data. last: its last event has no blank line."""
    provider = wording.provider("https://h.example")
    whole = DIALECTS[provider.profile.dialect_name].machine(provider, lambda: "id")
    events = [event for name, data in wire[: -1 if last else None] for event in whole.feed(name, data)]
    events += whole.feed_last(*wire[-1]) if last else ()
    return [*events, *whole.end()]


@pytest.mark.parametrize("between", [b"", b"\n", b" \r\n", b",", b"\ndata: "])
@pytest.mark.parametrize("wording", WORDINGS, ids=lambda wording: wording.name)
def test_frames_that_are_joined_in_one_event_are_all_read(wording: Wording, between: bytes) -> None:
    wire = [(name, data) for name, data in SSEParser().feed(f"{wording.beginning}{wording.rest}".encode())]
    more = wording.beginning.rpartition("data: ")[0].count("data: ")
    wire[more:more] = [wire[more]] * 3
    expected = feed(wording, wire)
    assert expected[-1].type is ms.EventType.DONE
    for start in range(len(wire)):
        for end in range(start + 2, len(wire) + 1):
            joined = between.join(data for _, data in wire[start:end])
            for name in {wire[start][0], wire[end - 1][0], ""}:
                glued = [*wire[:start], (name, joined), *wire[end:]]
                assert feed(wording, glued) == expected, (start, end, name)
                assert feed(wording, glued, last=True) == expected, (start, end, name)


@pytest.mark.parametrize("between", ["", "\ndata: "])
def test_joined_frames_may_be_cut_anywhere(between: str) -> None:
    two = between.join(chunk(text).decode() for text in ("a", "b"))
    last = chunk("d", '"stop"').decode() + between + "[DONE]"
    wire = "".join(f"data: {data}\n\n" for data in (two, chunk("c").decode(), last))
    for cut in range(len(wire)):
        parser, whole = SSEParser(), machine()
        parts = [*parser.feed(wire[:cut].encode()), *parser.feed(wire[cut:].encode())]
        events = [event for name, data in parts for event in whole.feed(name, data)]
        assert events[1:-1] == [ms.TextDelta(0, text) for text in "abcd"], cut
        assert isinstance(events[-1], ms.Done)


@pytest.mark.parametrize(("rest", "said"), [("nonsense", "nonsense"), ("{", "{"), ("{}" * 1000, "Extra data")])
def test_what_follows_a_frame_and_cannot_be_read_is_an_error(rest: str, said: str) -> None:
    (*before, failed) = machine().feed("", chunk("a") + rest.encode())
    assert isinstance(failed, ms.ErrorEvent)
    assert said in failed.error.message
    assert before == ([] if len(rest) > 1000 else [ms.Start("m", "r"), ms.TextDelta(0, "a")])
    assert list(machine().feed_last("", chunk("a") + b'{"choices"')) == [ms.Start("m", "r"), ms.TextDelta(0, "a")]


def test_a_template_does_not_outlive_its_frame() -> None:
    def part(**members: Any) -> bytes:
        return json.dumps({"candidates": [{"index": 0, "content": {"parts": [members]}}]}).encode()

    whole = DIALECTS["gemini"].machine(ms.Gemini("k"), lambda: "id")
    for data in (part(text="a"), part(text="b") + part(functionCall={"name": "f"}), part(text="c")):
        whole.feed("", data)
    assert [type(block) for block in whole.response().content] == [ms.Text, ms.ToolCall, ms.Text]
