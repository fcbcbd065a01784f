"""The fast path, read by read: how many bytes it takes, what it keeps, and what it leaves to the usual path."""

import json
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

import manystream as ms
from manystream.engine.call.fast_path import FastPath
from manystream.engine.request.limits import EngineLimits
from manystream.providers.catalog.registry import DIALECTS
from manystream.transport.chunked import size_line_length
from manystream.transport.sse import SSEParser
from tests.engine.one_stream import chunk

PLENTY = 1 << 40


def event(text: str) -> bytes:
    members = {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return b"data: " + json.dumps(members, separators=(",", ":")).encode() + b"\n\n"


class Reader:
    """A fast path that knows the template, and the texts that it delivered. read: events that were read before."""

    def __init__(self, *, max_event_bytes: int = 1 << 20, alone: bool = True) -> None:
        provider = ms.OpenAIChat("key")
        self.machine = DIALECTS["openai-chat"].machine(provider, lambda: "id", EngineLimits())
        self.body = SimpleNamespace(bytes_left=PLENTY)
        self.path = FastPath(self.machine, cast(Any, self.body), max_event_bytes)
        self.sse = SSEParser()
        self.texts: list[str] = []
        self.reads: list[int] = []
        assert self.path.read(chunk(event("a"))) == 0
        assert self.path.read_events(event("a")) == 0
        assert self.usual(event("a")) in (None, self.path)
        assert self.usual(event("b") if alone else event("b") + event("c")) is self.path

    def usual(self, data: bytes) -> FastPath | None:
        """Read events on the usual path."""
        events = self.sse.feed(data)
        for name, payload in events:
            self.machine.feed(name, payload)
        return self.path.follow(events, data, self)

    def deliver_matches(self, target: Any, matches: Iterable[Any]) -> None:
        events = [target.accept(match) for match in matches]
        self.reads.append(len(events))
        self.texts += [event.text for event in events]

    @property
    def counted(self) -> int:
        """The bytes that were counted by the fast path."""
        return PLENTY - self.body.bytes_left


def test_a_template_is_known_after_two_events_of_one_form() -> None:
    reader = Reader()
    assert reader.path.one_event
    assert not reader.path.cut
    assert not Reader(alone=False).path.one_event
    assert reader.path.read(chunk(event("x"))) == len(chunk(event("x")))
    assert (reader.texts, reader.reads, reader.counted) == (["x"], [1], len(event("x")))


def test_whole_chunks_of_any_size_are_taken() -> None:
    reader = Reader()
    texts = ["one", "a much longer text " * 20, "", "2", "x" * 3000]
    data = b"".join(chunk(event(text)) for text in texts if text)
    assert reader.path.read(data) == len(data)
    assert reader.texts == [text for text in texts if text]
    assert (reader.reads, reader.counted) == ([4], sum(len(event(text)) for text in texts if text))


@pytest.mark.parametrize("cut", [1, 2, 5, 60, -1, -2, -5])
def test_an_incomplete_chunk_is_left(cut: int) -> None:
    reader = Reader()
    whole, part = chunk(event("one")), chunk(event("two"))[:cut]
    assert reader.path.read(whole + part) == len(whole)
    assert (reader.texts, reader.counted) == (["one"], len(event("one")))
    assert reader.path.read(part) == 0
    assert reader.path.read(chunk(event("two"))) == len(chunk(event("two")))
    assert reader.texts == ["one", "two"]


OTHERS = {
    "the last chunk": b"0\r\n\r\n", "no size": b"zz\r\n\r\n", "another form": chunk(b'data: {"choices":[]}\n\n'),
    "two events": chunk(event("a") + event("b")), "a comment": chunk(b": ping\n\n"),
    "two frames": chunk(event("a").strip() + event("b")[6:]),
    "no end": b"%x\r\n%b--" % (len(event("a")), event("a")),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_chunks_are_left(name: str) -> None:
    reader = Reader()
    whole = chunk(event("one"))
    assert reader.path.read(whole + OTHERS[name] + chunk(event("two"))) == len(whole)
    assert reader.texts == ["one"]


def test_a_read_beyond_the_size_that_is_left_is_not_taken() -> None:
    reader = Reader()
    data = chunk(event("one"))
    reader.body.bytes_left = len(data) - 1
    assert (reader.path.read(data), reader.texts) == (0, [])
    reader.body.bytes_left = len(data)
    assert (reader.path.read(data), reader.body.bytes_left) == (len(data), len(data) - len(event("one")))
    body = event("two")
    for left, taken in ((len(body) - 1, 0), (len(body), len(body))):
        reader.body.bytes_left = left
        assert (reader.path.read_events(body), reader.body.bytes_left) == (taken, left - taken)


def cut_event(text: str, place: int) -> bytes:
    whole = event(text)
    return chunk(whole[:place]) + chunk(whole[place:])


@pytest.mark.parametrize("place", [1, 16, 50, 90])
def test_events_that_are_cut_across_two_chunks_are_taken(place: int) -> None:
    reader = Reader()
    reader.path.cut = True
    data = b"".join(cut_event(text, place) for text in ("one", "a much longer text " * 20, "2"))
    assert reader.path.read(data) == len(data)
    assert reader.texts == ["one", "a much longer text " * 20, "2"]
    assert reader.counted == sum(len(event(text)) for text in reader.texts)
    again = cut_event("four", place)
    for end in (3, 10, len(again) - 1):
        assert reader.path.read(again[:end]) == 0
    assert reader.path.read(again + again[:30]) == len(again)
    assert reader.texts[3:] == ["four"]
    reader.body.bytes_left = len(again) - 1
    assert reader.path.read(again) == 0
    reader.body.bytes_left = len(again)
    assert reader.path.read(again) == len(again)


def test_cut_events_of_another_form_are_left() -> None:
    whole = event("one")
    first, second = chunk(whole[:50]), chunk(whole[50:])
    for data in (
        chunk(whole),
        first.replace(b"\r\n", b"\n\n", 1) + second,
        first[:-2] + b"--" + second,
        first[:-2] + b"\r-" + second,
        first[:-2] + b"-\n" + second,
        first + b"0\r\n\r\n",
        first + b"zz\r\n" + second,
        chunk(whole[:50]) + chunk(whole[51:]),
    ):
        reader = Reader()
        reader.path.cut = True
        good = cut_event("good", 50)
        assert (reader.path.read(good + data), reader.texts) == (len(good), ["good"]), data
        assert reader.counted == len(event("good"))


def test_body_bytes_are_taken_event_by_event() -> None:
    reader = Reader()
    assert reader.path.read_events(event("one")) == len(event("one"))
    assert (reader.path.one_event, reader.texts, reader.counted) == (True, ["one"], len(event("one")))
    three = b"".join(map(event, ("two", "three", "four")))
    assert reader.path.read_events(three) == len(three)
    assert (reader.path.one_event, reader.reads) == (False, [1, 3])
    assert reader.counted == len(event("one")) + len(three)
    assert reader.path.read_events(event("five")) == len(event("five"))
    assert (reader.path.one_event, reader.texts) == (True, ["one", "two", "three", "four", "five"])


@pytest.mark.parametrize("cut", [1, 3, 6, 7, 30, 60, 80])
def test_the_beginning_of_an_event_is_kept_and_joined(cut: int) -> None:
    reader = Reader()
    whole, last = event("one"), event("two")
    assert reader.path.read_events(whole + last[:cut]) == len(whole) + cut
    assert (reader.texts, reader.path.beginning_bytes, reader.path.one_event) == (["one"], cut, False)
    assert reader.counted == len(whole)
    assert reader.path.read_events(last[cut:]) == len(last) - cut
    assert (reader.texts, reader.path.beginning_bytes, reader.counted) == (["one", "two"], 0, len(whole) + len(last))
    assert not reader.path.one_event
    assert reader.path.take_beginning() == b""


def test_a_beginning_that_another_event_follows_is_given_back() -> None:
    reader = Reader()
    part = event("two")[:60]
    assert reader.path.read_events(part) == 60
    assert reader.path.read_events(b'"other":1}\n\n') == 0
    assert reader.path.beginning_bytes == 60
    assert (reader.path.take_beginning(), reader.path.beginning_bytes) == (part, 0)
    assert reader.texts == []


def test_a_beginning_is_joined_once() -> None:
    reader = Reader()
    whole = event("one")
    assert reader.path.read_events(whole[:40]) == 40
    assert reader.path.read_events(whole[40:60]) == 0
    assert reader.path.take_beginning() == whole[:40]


def test_a_beginning_that_may_hold_an_event_is_not_kept() -> None:
    for rest in (b"data: {\n", b"data: {\r", b": ping", b"id: 1", b"data:{"):
        reader = Reader()
        assert reader.path.read_events(event("one") + rest) == len(event("one")), rest
        assert (reader.path.beginning_bytes, reader.texts) == (0, ["one"])
        assert reader.path.read_events(rest) == 0


def test_a_beginning_has_the_size_of_an_event_at_most() -> None:
    for most, kept in ((69, 0), (70, 70)):
        reader = Reader(max_event_bytes=most)
        part = event("x" * 100)[:70]
        assert reader.path.read_events(event("one") + part) == len(event("one")) + kept
        assert reader.path.beginning_bytes == kept


def test_events_behind_another_form_are_left() -> None:
    reader = Reader()
    other = b'data: {"choices":[]}\n\n'
    assert reader.path.read_events(event("one") + other + event("two")) == len(event("one"))
    assert reader.path.read_events(other + event("two")) == 0
    assert reader.texts == ["one"]


def test_a_new_form_needs_a_new_template() -> None:
    reader = Reader()
    assert reader.path.follow([], b"", reader) in (None, reader.path)
    other = event("x").replace(b'"model":"m"', b'"model":"n"')
    assert reader.path.read(chunk(other)) == 0
    assert reader.usual(other) is reader.path
    assert reader.path.read(chunk(other)) == len(chunk(other))
    assert reader.path.read(chunk(event("x"))) == 0


@pytest.mark.parametrize("cut", [False, True])
def test_the_length_of_a_size_line_is_found_once(cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly all size lines of a stream have one length, and to find it takes longer than to look the size up."""
    found: list[int] = []

    def find(data: bytes, position: int) -> int:
        found.append(position)
        return size_line_length(data, position)

    monkeypatch.setattr("manystream.engine.call.fast_path.size_line_length", find)
    reader = Reader()
    reader.path.cut = cut
    one, long = ((cut_event(text, 50) if cut else chunk(event(text))) for text in ("one", "x" * 300))
    found.clear()
    assert reader.path.read(one * 3) == 3 * len(one)
    assert len(found) == 1 + cut
    assert reader.path.read(one * 3) == 3 * len(one)
    assert len(found) == 1 + cut
    assert reader.path.read(one + long) == len(one + long)
    assert len(found) == 2 + cut  # one of the size lines has another length
    assert reader.path.read(long * 2) == 2 * len(long)
    assert len(found) == 2 + cut
