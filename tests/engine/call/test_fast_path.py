"""The fast path: chunks that match the delta template give the same events as decoder, parser and machine."""

from collections.abc import Sequence

import pytest

import manystream as ms
from manystream.engine.call.fast_path import FastPath
from manystream.engine.request.limits import EngineLimits
from manystream.transport.sse import usual_framing
from tests.engine.one_stream import CASES, END, HEAD, VARIANTS, Case, Stream, both, cases, chunk, cuts, delta, wire
from tests.support.peers import Line, Recorder, hello, open_peer, until


@cases
def test_repeated_chunks_use_the_fast_path(case: Case) -> None:
    texts = [f"word {number} " for number in range(50)]
    short = both(case, wire(case, (delta(case, text) for text in texts)))
    assert sum("Delta" in event for event in short.events) == 50
    assert "STOP" in short.outcome or "'stop'" in short.outcome
    assert short.by_machine <= len(case.begin) + 3 + len(case.finish)


@cases
def test_many_chunks_in_one_read_are_processed_at_once(case: Case) -> None:
    texts = [f"word {number} " for number in range(50)]
    first, second, *rest = (delta(case, text) for text in texts)
    pieces = [HEAD, *map(chunk, case.begin), first, second, b"".join([*rest, *map(chunk, case.finish), END])]
    both(case, pieces)  # the first chunk of a new size takes the slow path
    short = both(case, pieces)
    assert sum("Delta" in event for event in short.events) == 50
    assert short.by_machine <= len(case.begin) + 3 + len(case.finish)


@cases
def test_every_cut_delivers_the_same_events(case: Case) -> None:
    pieces = wire(case, (delta(case, text) for text in ("Once", " upon", ' a "time"', "\n", " wö")))
    whole = b"".join(pieces)
    expected = both(case, pieces).delivered
    start = len(HEAD)
    for place in cuts(case, start, len(whole)):
        assert both(case, [whole[:start], whole[start:place], whole[place:]]).delivered == expected
    # Deltas as servers send them, then a cut.
    before = len(b"".join([HEAD, *map(chunk, case.begin), *pieces[1 + len(case.begin) :][:2]]))
    opening = pieces[: 1 + len(case.begin) + 2]
    for place in cuts(case, before, len(whole)):
        assert both(case, [*opening, whole[before:place], whole[place:]]).delivered == expected


@cases
def test_a_chunk_that_differs_leaves_the_fast_path(case: Case) -> None:
    """Each byte of a chunk is changed, removed or doubled: the events must be those of the slow path.

    Every change at every place for the fullest form of a dialect; else a third of the changes at each place, in turn.
    """
    usual = delta(case, 'some "text" here')
    opening = [HEAD, *map(chunk, case.begin), delta(case, "Once"), delta(case, " upon"), delta(case, " a")]
    closing = b"".join([delta(case, " time"), *map(chunk, case.finish), END])
    for place in range(len(usual)):
        changes = (b"", usual[place : place + 1] * 2, b'"', b"\\", b"7", b"\n", b"\r", b"\x01", b"\xff")
        for byte in changes[place % 3 :: 3] if case in VARIANTS else changes:
            both(case, [*opening, usual[:place] + byte + usual[place + 1 :], closing])


@cases
@pytest.mark.parametrize("events", range(1, 9))
def test_a_stream_cancelled_in_a_read_keeps_delivered_events(case: Case, events: int) -> None:
    deltas = [delta(case, f"{number} ") for number in range(8)]
    pieces = [HEAD, *map(chunk, case.begin), *deltas[:2], b"".join(deltas[2:])]
    short = both(case, pieces, cancel_after=events)
    assert len(short.events) == events


@cases
@pytest.mark.parametrize("size", [77, 300, 1_000, 10_000, 10**9])
def test_the_limit_on_a_response_s_size_holds_on_both_paths(case: Case, size: int) -> None:
    deltas = [delta(case, f"{number} ") for number in range(500)]
    whole = wire(case, deltas)
    first, body = whole[: len(case.begin) + 6], b"".join(whole[len(case.begin) + 6 :])  # until the template is known
    reads = [*first, *(body[begin : begin + size] for begin in range(0, len(body), size))]
    for limit in (1_000, 10_000, 30_000):
        outcomes: list[str] = []
        for fast in (True, False):
            stream = Stream(case, fast, limits=EngineLimits(max_response_bytes=limit)).read(reads)
            assert "larger than" in stream.outcome
            outcomes.append(stream.outcome)
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("whole", [True, False], ids=["ended", "broken"])
@pytest.mark.parametrize("per_read", [1, 3, 50])
def test_the_latest_usage_of_matched_chunks_is_kept(per_read: int, whole: bool) -> None:
    """Gemini sends the usage so far with every chunk; the last one counts on both paths."""
    case = CASES[-1]
    deltas = [
        chunk((case.delta % b'"more "').replace(b'Count":777}', b'Count":%d}' % (100 + number))) for number in range(50)
    ]
    reads = [b"".join(deltas[begin : begin + per_read]) for begin in range(3, len(deltas), per_read)]
    finish = [*map(chunk, case.finish), END] if whole else []
    fast = both(case, [HEAD, *deltas[:3], *reads, *finish])
    assert "'totalTokenCount': 149" in fast.outcome
    assert fast.by_machine < 6


@cases
def test_an_error_after_matched_chunks_names_its_place(case: Case) -> None:
    pieces = wire(case, (delta(case, f"{number} ") for number in range(9)))[: -1 - len(case.finish)]
    assert "NETWORK" in both(case, pieces).outcome.upper()


def test_only_the_usual_framing_is_learned() -> None:
    assert usual_framing("", b"", b"data: \n\n") is None
    assert usual_framing("", b"{}", b"data: {}\n\n") == (b"data: ", b"\n\n")
    assert usual_framing("", b"{}", b"data: {}\r\n\r\n") == (b"data: ", b"\r\n\r\n")
    assert usual_framing("", b"{}", b": a comment\n\ndata: {}\n\n") == (b"data: ", b"\n\n")
    assert usual_framing("", b"{}", b"data: 1\n\ndata: {}\n\n") == (b"data: ", b"\n\n")
    assert usual_framing("e", b"{}", b"event: e\ndata: {}\n\n") == (b"event: e\ndata: ", b"\n\n")
    # The end of an event that came in pieces.
    assert usual_framing("", b"{}", b"{}\n\n") == (b"data: ", b"\n\n")
    assert usual_framing("e", b"{}", b"data: {}\n\n") == (b"event: e\ndata: ", b"\n\n")
    assert usual_framing("e", b"{}", b"}\r\n\r\n") == (b"event: e\ndata: ", b"\r\n\r\n")
    for name, wire_text in (
        ("", b"data:{}\n\n"),
        ("", b"id: 1\ndata: {}\n\n"),
        ("", b"data: {}\n\n: a comment\n\n"),
        ("", b"id: 1\n\nid: 2\ndata: {}\n\n"),
        ("", b"data: {}\n"),
        ("", b"[]\n\n"),
        ("", b"\n"),
        ("e", b"data: {}\nevent: e\n\n"),
        ("e", b"event: f\ndata: {}\n\n"),
    ):
        assert usual_framing(name, b"{}", wire_text) is None


@cases
@pytest.mark.parametrize("empty", [b"data: \n\n", b"data:\n\n", b"event: ping\ndata: \n\n", b": ping\n\n"])
def test_an_event_without_data_after_two_deltas_is_ignored(case: Case, empty: bytes) -> None:
    """A server writes two deltas at once, and then an empty event to keep the connection open."""
    two = chunk(b"".join(case.delta % text for text in (b'"Once"', b'" upon"')))
    fast = both(case, wire(case, [two, chunk(empty), *(delta(case, text) for text in (" a", " time"))]))
    assert "Once upon a time" in fast.outcome


async def test_an_engine_uses_the_fast_path_and_ends_normally() -> None:
    case = CASES[1]

    async def script(line: Line) -> None:
        for _ in range(3):
            await line.request()
            *pieces, last, end = wire(case, (delta(case, f"{number} ") for number in range(40)))
            for piece in (*pieces, last + end):  # the call ends with `last`; the connection is free after `end`
                await line.send(piece)

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        for _ in range(3):
            recorder = Recorder()
            completion = await engine.start_stream(hello(), recorder.on_event).wait()
            assert completion.success
            assert recorder.text == "".join(f"{number} " for number in range(40))
        assert (engine.statistics().opened, engine.statistics().reused) == (1, 2)


class Quiet(ms.Observer):
    """An observer with a hook for events. `every_event` decides whether the engine calls it."""

    chunks = 0

    def events_received(self, call: ms.Call, events: Sequence[ms.Event]) -> None:
        self.chunks += 1


@pytest.mark.parametrize("every_event", [False, True])
async def test_an_observer_of_some_keeps_the_fast_path(every_event: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case, read = CASES[0], 0
    by_bytes = FastPath.read

    def counted(self: FastPath, data: bytes) -> int:
        nonlocal read
        taken = by_bytes(self, data)
        read += taken
        return taken

    monkeypatch.setattr(FastPath, "read", counted)

    recorder = Recorder()

    async def script(line: Line) -> None:
        await line.request()
        deltas = [delta(case, f"{number} ") for number in range(40)]
        await line.send(b"".join([HEAD, *map(chunk, case.begin), deltas[0]]))
        for number, piece in enumerate(deltas[1:], 1):
            await until(lambda number=number: recorder.text.count(" ") == number)  # type: ignore[misc]
            await line.send(piece)
        await line.send(b"".join([*map(chunk, case.finish), END]))

    observer = Quiet()
    observer.every_event = every_event
    async with open_peer(script) as peer, ms.open_engine([peer.chat], observer=observer) as engine:
        assert (await engine.start_stream(hello(), recorder.on_event).wait()).success
    assert recorder.text == "".join(f"{number} " for number in range(40))
    assert (read > 0, observer.chunks > 0) == (not every_event, every_event)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    "asked", [{"logprobs": True, "top_logprobs": 0}, {"return_logprob": True}, {}, {"logprobs": False}]
)
async def test_log_probabilities_are_kept_if_they_were_asked_for(asked: dict[str, ms.JSON], streamed: bool) -> None:
    case = next(case for case in CASES if str(case) == "openai-chat logprobs")
    message = b'{"choices":[{"index":0,"message":{"content":"a"},"logprobs":{"content":[{"token":"a"}]}}]}'
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(message) + message

    async def script(line: Line) -> None:
        await line.request()
        for piece in wire(case, (delta(case, f"{number} ") for number in range(40))) if streamed else [answer]:
            await line.send(piece)

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        request = hello(extra_body=asked)
        completion = await (engine.start_stream(request) if streamed else engine.start_request(request)).wait()
    kept = completion.response.provider_data.get("logprobs")
    if any(asked.values()):
        assert isinstance(kept, dict)
        assert isinstance(kept["content"], list)
        assert len(kept["content"]) == (40 if streamed else 1)
    else:
        assert kept is None
