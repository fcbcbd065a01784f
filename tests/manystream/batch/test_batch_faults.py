"""Batches under faults: cancelled hosts, hostile lines and answers, full disks, and files of other programs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import trio

import manystream as ms
from manystream.batch import Batch, BatchError, Journal, JournalError, read_lines
from manystream.engine.request.limits import EngineLimits
from tests.support.batches import line, model, records, run, write
from tests.support.disk import room
from tests.support.peers import Line, Peer, answer, chat_answer, open_descriptors, open_peer, replies, until


def at(peer: Peer) -> ms.Provider:
    return ms.OpenAIChat("key", peer.url, name="sim")


def error_of(failure: dict[str, object]) -> dict[str, object]:
    return cast("dict[str, object]", failure["error"])


class Held:
    """The script of a server that answers no request until the test sets `allowed`. `asked` counts the requests."""

    def __init__(self) -> None:
        self.asked = 0
        self.allowed = trio.Event()

    async def script(self, line: Line) -> None:
        while await line.request():
            self.asked += 1
            await self.allowed.wait()
            await line.send(answer(chat_answer("late")))


# --- a host that cancels, fails or closes ---


@pytest.mark.parametrize("lines", [3, 9], ids=["while the last calls run", "while a line waits for its turn"])
async def test_after_a_cancelled_run_no_call_runs_or_is_recorded(tmp_path: Path, lines: int) -> None:
    prompts = write(tmp_path / "p.jsonl", [line(str(n)) for n in range(lines)])
    held = Held()
    async with open_peer(held.script) as peer, ms.open_engine([at(peer)]) as engine:
        with Journal(tmp_path / "a.jsonl") as journal:
            batch = Batch(engine, journal, model, concurrency=3)
            with trio.fail_after(20), trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(batch.run, read_lines(prompts))
                    await until(lambda: held.asked == 3)
                    scope.cancel()
            assert (batch.counters.running, sum(engine.statistics().calls.values())) == (0, 0)
        foreign = [os.open(tmp_path / f"foreign{n}", os.O_CREAT | os.O_WRONLY) for n in range(16)]
        held.allowed.set()
        await until(lambda: not engine.statistics().calls)
        for descriptor in foreign:
            os.close(descriptor)
    assert [path.name for path in tmp_path.glob("foreign*") if path.stat().st_size] == []
    assert records(tmp_path / "a.jsonl") == []
    assert not (tmp_path / "a.errors.jsonl").exists()


async def test_a_journal_closed_too_early_writes_to_no_file(tmp_path: Path) -> None:
    prompts = write(tmp_path / "p.jsonl", [line("a")])
    held = Held()
    failures: list[BatchError] = []

    async def ask(batch: Batch) -> None:
        try:
            await batch.run(read_lines(prompts))
        except BatchError as error:
            failures.append(error)

    async with open_peer(held.script) as peer, ms.open_engine([at(peer)]) as engine, trio.open_nursery() as nursery:
        with Journal(tmp_path / "a.jsonl") as journal:
            nursery.start_soon(ask, Batch(engine, journal, model))
            await until(lambda: held.asked == 1)
        foreign = [os.open(tmp_path / f"foreign{n}", os.O_CREAT | os.O_WRONLY) for n in range(16)]
        held.allowed.set()
        await until(lambda: bool(failures))
        for descriptor in foreign:
            os.close(descriptor)
    assert "the journal's block was left" in str(failures[0])
    assert [path.name for path in tmp_path.glob("foreign*") if path.stat().st_size] == []


async def test_a_closed_engine_fails_no_line(tmp_path: Path) -> None:
    prompts = write(tmp_path / "p.jsonl", [line(str(n)) for n in range(5)])
    held = Held()
    failures: list[BatchError] = []
    async with open_peer(held.script) as peer, trio.open_nursery() as nursery:
        with Journal(tmp_path / "a.jsonl") as journal:
            async with ms.open_engine([at(peer)]) as engine:
                batch = Batch(engine, journal, model, concurrency=3)

                async def ask() -> None:
                    try:
                        await batch.run(read_lines(prompts))
                    except BatchError as error:
                        failures.append(error)

                nursery.start_soon(ask)
                await until(lambda: held.asked == 3)
            await until(lambda: bool(failures))
    assert re.search("engine (is|was) closed", str(failures[0]))
    assert (batch.counters.failed, batch.counters.running) == (0, 0)
    assert not (tmp_path / "a.errors.jsonl").exists()


async def test_a_failing_input_lets_running_calls_end(tmp_path: Path) -> None:
    held = Held()

    async def lines() -> AsyncGenerator[list[tuple[int, bytes]], None]:
        yield [(1, json.dumps(line("a")).encode())]
        await until(lambda: held.asked == 1)
        held.allowed.set()
        raise OSError(5, "Input/output error")

    async with open_peer(held.script) as peer, ms.open_engine([at(peer)]) as engine:
        with Journal(tmp_path / "a.jsonl") as journal, pytest.raises(OSError, match="Input/output error"):
            await Batch(engine, journal, model).run(lines())
    assert [record["id"] for record in records(tmp_path / "a.jsonl")] == ["a"]


async def test_too_many_calls_end_the_batch_without_failed_lines(tmp_path: Path) -> None:
    prompts = write(tmp_path / "p.jsonl", [line(str(n)) for n in range(5)])
    held = Held()
    held.allowed.set()
    async with open_peer(held.script) as peer, ms.open_engine([at(peer)], limits=EngineLimits(max_calls=2)) as engine:
        with Journal(tmp_path / "a.jsonl") as journal, pytest.raises(BatchError, match="max_calls"):
            await Batch(engine, journal, model, concurrency=3).run(read_lines(prompts))
    assert len(records(tmp_path / "a.jsonl")) == 2
    assert not (tmp_path / "a.errors.jsonl").exists()


# --- a disk that fails when the files are closed ---


@pytest.mark.parametrize(
    ("failing", "words"),
    [(1, "cannot write {answers}: No space left on device"), (2, "cannot write {errors}: No space left on device")],
    ids=["answers", "failures"],
)
def test_a_failed_write_is_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int, words: str
) -> None:
    answers, errors = tmp_path / "a.jsonl", tmp_path / "a.errors.jsonl"
    synced: list[int] = []

    def fsync(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == failing:
            raise OSError(28, "No space left on device")

    before = open_descriptors()
    journal = Journal(answers).__enter__()
    journal.record_answer("a", {"id": "a", "text": "fine"})
    journal.record_failure({"id": "b", "error": {"category": "server", "message": "oops"}})
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(JournalError) as caught:
        journal.__exit__(None, None, None)
    assert str(caught.value) == words.format(answers=answers, errors=errors)
    assert open_descriptors() == before
    with pytest.raises(JournalError, match="the journal's block was left"):
        journal.record_answer("c", {"id": "c"})


async def test_a_batch_whose_answers_do_not_reach_the_disk_fails(
    provider: ms.Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    prompts = write(tmp_path / "p.jsonl", [line("a")])
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(JournalError, match=r"cannot write .*a\.jsonl: Input/output error"):
        await run(provider, prompts, tmp_path / "a.jsonl")


# --- a bad line fails alone ---

SOUND = {"type": "input_audio", "input_audio": {"data": "caf\u00e9", "format": "wav"}}
FILE = {"type": "file", "file": {"file_data": "data:text/plain;base64,caf\u00e9"}}
SOURCE = {"type": "base64", "media_type": "image/png", "data": "caf\u00e9"}
DEEP = "[" * 300 + "]" * 300
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


def batch_line(url: str, content: list[object], messages: str = "messages") -> dict[str, object]:
    body = {"model": "m", messages: [{"role": "user", "content": content}]}
    return {"custom_id": "bad", "method": "POST", "url": url, "body": body}


HOSTILE_LINES: dict[str, object] = {
    "our base64 is not ASCII": {"id": "bad", "messages": [{"role": "user", "content": [SOUND]}]},
    "a file's base64 is not ASCII": {"id": "bad", "messages": [{"role": "user", "content": [FILE]}]},
    "Chat's base64 is not ASCII": batch_line(CHAT, [SOUND]),
    "Responses' base64 is not ASCII": batch_line(RESPONSES,
        [{"type": "input_image", "image_url": "data:image/png;base64,caf\u00e9"}], "input"),
    "Anthropic's base64 is not ASCII": {"custom_id": "bad",
        "params": {"max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "image", "source": SOURCE}]}]}},
    "an id of 20 digits and an unknown member": '{"id": 99999999999999999999, "x": "\\ud800"}',
    "an id of 5,000 digits": json.dumps(line("bad")).replace('"bad"', "9" * 5000),
    "an id of 400 digits beside a lone surrogate": f'{{"id": {"9" * 400}, "x": "\\ud800"}}',
    "a clock of 400 digits beside a lone surrogate": json.dumps(line("\ud800", timeouts={"total": 10**400})),
    "an option nested deeply": f'{{"id": "bad", "messages": [], "extra_body": {{"x": {DEEP}}}}}',
    "a schema nested deeply": json.dumps(line("bad")).replace("}]}", f'}}], "response_schema": {{"x": {DEEP}}}}}'),
    "no object": "[1]",
    "no JSON": '{"id": "bad", ',
    "NUL": "\0",
    "bytes": "\ufeff{}",
}  # fmt: skip


@pytest.mark.parametrize("hostile", HOSTILE_LINES.values(), ids=HOSTILE_LINES.keys())
async def test_a_hostile_line_fails_alone(provider: ms.Provider, tmp_path: Path, hostile: object) -> None:
    prompts = write(tmp_path / "p.jsonl", [line("before"), hostile, line("after")])
    batch = await run(provider, prompts, tmp_path / "a.jsonl", concurrency=1)
    assert [record["id"] for record in records(tmp_path / "a.jsonl")] == ["before", "after"]
    (failure,) = records(tmp_path / "a.errors.jsonl")
    assert failure["line"] == 2
    assert str(error_of(failure)["message"]).startswith("p.jsonl line 2: ")
    assert (batch.counters.answered, batch.counters.invalid, batch.counters.failed) == (2, 1, 0)
    assert (await run(provider, prompts, tmp_path / "a.jsonl")).counters.answered_before == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_line_in_the_background_is_refused_by_name(provider: ms.Provider, tmp_path: Path, stream: bool) -> None:
    bad = batch_line(RESPONSES, [{"type": "input_text", "text": "Hi"}], "input")
    own = {"id": "own", "messages": [{"role": "user", "content": "Hi"}], "extra_body": {"background": True}}
    bad["body"] = {**bad["body"], "background": True}  # type: ignore[dict-item]
    prompts = write(tmp_path / "p.jsonl", [line("before"), bad, own])
    responses = ms.OpenAIResponses("key", provider.base_url, name=provider.name)
    batch = await run(responses, prompts, tmp_path / "a.jsonl", stream=stream)
    assert (batch.counters.answered, batch.counters.invalid) == (1, 2)
    for failure in records(tmp_path / "a.errors.jsonl"):
        assert "extra_body.background: is not supported" in str(error_of(failure)["message"])


async def test_an_id_of_many_digits_is_found_again(provider: ms.Provider, tmp_path: Path) -> None:
    lines = [json.dumps(line(int(digits), "\ud800")) for digits in ("9" * 20, "9" * 400)]
    prompts = write(tmp_path / "p.jsonl", [*lines, line("a")])
    assert (await run(provider, prompts, tmp_path / "a.jsonl")).counters.answered == 3
    assert (await run(provider, prompts, tmp_path / "a.jsonl")).counters.answered_before == 3


async def test_a_defect_that_a_line_triggers_fails_that_line_only(
    provider: ms.Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect of the library that one line triggers fails that line only. Here the model's name triggers it."""

    def choose(named: str | None) -> str:
        if named == "unread":
            raise RecursionError("too deep")
        return f"sim/{named or 'sim-text'}"

    start = ms.Engine.start_request

    def start_request(
        engine: ms.Engine, request: ms.Request, on_completion: Callable[[ms.Completion], object]
    ) -> ms.Call:
        if request.model == "sim/unsent":
            raise MemoryError
        return start(engine, request, on_completion)

    monkeypatch.setattr(ms.Engine, "start_request", start_request)
    prompts = write(tmp_path / "p.jsonl", [line("a"), line("b", model="unread"), line("c", model="unsent"), line("d")])
    with Journal(tmp_path / "a.jsonl") as journal:
        async with ms.open_engine([provider]) as engine:
            await Batch(engine, journal, choose, concurrency=1).run(read_lines(prompts))
    assert [record["id"] for record in records(tmp_path / "a.jsonl")] == ["a", "d"]
    failures = {failure["id"]: error_of(failure)["message"] for failure in records(tmp_path / "a.errors.jsonl")}
    assert failures == {
        "b": "input line 2: cannot be read: RecursionError('too deep')",
        "c": "input line 3: cannot be sent: MemoryError()",
    }


async def test_a_call_that_ends_during_its_start_is_counted_once(tmp_path: Path) -> None:
    class Hasty:
        """An engine that completes a call before it returns it."""

        def start_request(self, request: ms.Request, on_completion: Callable[[ms.Completion], object]) -> object:
            response = ms.Response([ms.Text("yes")], ms.FinishReason.STOP)
            on_completion(ms.Completion(success=True, http_status=200, response=response, attempts=1))
            return object()

    prompts = write(tmp_path / "p.jsonl", [line(str(n)) for n in range(9)])
    with Journal(tmp_path / "a.jsonl") as journal, trio.fail_after(20):
        batch = Batch(cast("ms.Engine", Hasty()), journal, model, concurrency=2)
        await batch.run(read_lines(prompts))
    assert (batch.counters.answered, batch.counters.running) == (9, 0)


async def test_an_input_with_an_undecodable_name_can_be_reported(provider: ms.Provider, tmp_path: Path) -> None:
    prompts = write(Path(os.fsdecode(os.fsencode(tmp_path) + b"/p\xff.jsonl")), ["{oh", line("a")])
    await run(provider, prompts, tmp_path / "a.jsonl")
    assert [record["id"] for record in records(tmp_path / "a.jsonl")] == ["a"]
    assert len(records(tmp_path / "a.errors.jsonl")) == 1


async def test_a_lines_own_wrong_key_does_not_end_the_batch(provider: ms.Provider, tmp_path: Path) -> None:
    bad = line("bad", "simulate: fail=401", extra_headers={"X-Key": "wrong"})
    await run(provider, write(tmp_path / "p.jsonl", [bad, line("a")]), tmp_path / "a.jsonl", concurrency=1)
    assert [record["id"] for record in records(tmp_path / "a.jsonl")] == ["a"]
    assert [error_of(failure)["category"] for failure in records(tmp_path / "a.errors.jsonl")] == ["auth"]


HOSTILE_ANSWERS = {
    "a count of 300 digits": {"usage": {"prompt_tokens": 1e300, "completion_tokens": 3}},
    "a count of 30 digits beside NaN": {"usage": {"prompt_tokens": 10**30, "completion_tokens": 3}, "x": float("nan")},
    "an id of 400 digits beside NaN": {"id": 10**400, "created": float("nan")},
}


@pytest.mark.parametrize("members", HOSTILE_ANSWERS.values(), ids=HOSTILE_ANSWERS.keys())
async def test_a_hostile_answer_is_recorded(tmp_path: Path, members: dict[str, object]) -> None:
    body = json.dumps({**json.loads(chat_answer("hello")), **members})

    prompts = write(tmp_path / "p.jsonl", [line("a"), line("b")])
    async with open_peer(replies(answer(body))) as peer:
        batch = await run(at(peer), prompts, tmp_path / "a.jsonl", concurrency=1)
    assert [(record["id"], record["text"]) for record in records(tmp_path / "a.jsonl")] == [
        ("a", "hello"),
        ("b", "hello"),
    ]
    assert batch.counters.answered == 2


FINISHES = {"stop": "stop", "abort": "aborted"}
VLLM = {
    "id": "c",
    "model": "m",
    "prompt_token_ids": [1, 2],
    "choices": [{"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": "stop",
        "token_ids": [11, 12 + index], "logprobs": {"content": [{"token": text, "logprob": -0.25,
        "top_logprobs": [{"token": "", "logprob": low}]}]}} for index, text,
        low in ((1, "other", -1.0), (0, "hello", float("-inf")))],
}  # fmt: skip


@pytest.mark.parametrize("stop", ["stop", "abort"])
async def test_an_answer_keeps_what_its_line_asked_for(tmp_path: Path, stop: str) -> None:

    asked: dict[str, object] = {"n": 2, "logprobs": True, "top_logprobs": 1, "return_token_ids": True}
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], **asked}
    openai = {"custom_id": "openai", "method": "POST", "url": "/v1/chat/completions", "body": body}
    lines = [line("ours", extra_body=asked), json.dumps(openai), line("plain")]
    prompts = write(tmp_path / "p.jsonl", lines)
    async with open_peer(replies(answer(json.dumps(VLLM).replace('"stop"', f'"{stop}"')))) as peer:
        await run(at(peer), prompts, tmp_path / "a.jsonl", concurrency=1)
    found = records(tmp_path / ("a.jsonl" if stop == "stop" else "a.errors.jsonl"))
    assert [(record["id"], record["text"]) for record in found] == [(id, "hello") for id in ("ours", "openai", "plain")]
    for record in found[:2]:
        kept: Any = record["provider_data"]
        tokens: Any = record["tokens"]
        assert (tokens["ids"], tokens["prompt_ids"]) == ([11, 12], [1, 2])
        (token,) = kept["logprobs"]["content"]
        assert (token["logprob"], token["top_logprobs"]) == (-0.25, [{"token": "", "logprob": None}])
        other: Any
        (other,) = record["choices"]  # type: ignore[misc]
        assert (other["text"], other["finish_reason"], other["tokens"]["ids"]) == ("other", FINISHES[stop], [11, 13])
        assert other["provider_data"]["logprobs"]["content"][0]["logprob"] == -0.25
    assert "provider_data" not in found[2]


def test_values_that_json_cannot_hold_are_replaced(tmp_path: Path) -> None:
    deep: object = 1
    for _ in range(400):
        deep = [deep]
    record = {"id": "a", "text": "lone \ud800 surrogate", "parsed": {"big": 10**30, "deep": deep}}
    with Journal(tmp_path / "a.jsonl") as journal:
        journal.record_answer("a", record)  # type: ignore[arg-type]
    (kept,) = records(tmp_path / "a.jsonl")
    assert kept["text"] == "lone \ufffd surrogate"
    assert kept["parsed"]["big"] == 10**30  # type: ignore[index]
    assert kept["warnings"] == ["parts of this record could not be written as JSON and were replaced"]
    with Journal(tmp_path / "a.jsonl") as journal:
        assert set(journal.answered) == {"a"}


# --- a full disk ---


async def test_a_full_disk_ends_the_batch_and_leaves_whole_lines(provider: ms.Provider, tmp_path: Path) -> None:
    answers = tmp_path / "a.jsonl"
    prompts = write(tmp_path / "p.jsonl", [line(str(n)) for n in range(50)])
    async with ms.open_engine([provider]) as engine:
        with Journal(answers) as journal:
            batch = Batch(engine, journal, model, concurrency=4)
            with room(2000), pytest.raises(BatchError, match=r"cannot write .*a\.jsonl: File too large"):
                await batch.run(read_lines(prompts))
    assert answers.read_bytes().endswith(b"}\n")
    assert len(records(answers)) == batch.counters.answered > 0
    batch = await run(provider, prompts, answers)
    assert sorted(str(record["id"]) for record in records(answers)) == sorted(str(n) for n in range(50))


async def test_failures_that_cannot_be_written_are_not_counted(provider: ms.Provider, tmp_path: Path) -> None:
    errors = tmp_path / "a.errors.jsonl"
    prompts = write(tmp_path / "p.jsonl", [line(str(n), "simulate: fail=404") for n in range(50)])
    async with ms.open_engine([provider]) as engine:
        with Journal(tmp_path / "a.jsonl") as journal:
            batch = Batch(engine, journal, model, concurrency=4)
            with room(2000), pytest.raises(BatchError, match=r"cannot write .*errors\.jsonl: File too large"):
                await batch.run(read_lines(prompts))
    assert len(records(errors)) == batch.counters.failed == batch.counters.failures["not_found"] > 0


def test_a_full_disk_keeps_superseded_failures(tmp_path: Path) -> None:
    errors = write(tmp_path / "a.errors.jsonl", [{"id": str(n % 30), "error": {"category": "x"}} for n in range(40)])
    before = errors.read_bytes()
    with room(1000), Journal(tmp_path / "a.jsonl"):
        pass
    assert errors.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.errors.jsonl", "a.jsonl"]


# --- files of other programs ---


@contextmanager
def kept(path: Path) -> Generator[None]:
    """Assert that the block does not change the file."""
    before, inode = path.read_bytes(), path.stat().st_ino
    yield
    assert (path.read_bytes(), path.stat().st_ino) == (before, inode)


def linked(path: Path, how: str) -> Path:
    """Return another path of the same file."""
    if how == "itself":
        return path
    if how == "another spelling":
        (path.parent / "folder").mkdir()
        return path.parent / "folder" / ".." / path.name
    other = path.with_name("link.jsonl")
    if how == "a symbolic link":
        other.symlink_to(path.name)
    else:
        other.hardlink_to(path)
    return other


LINKS = ("itself", "another spelling", "a symbolic link", "a hard link")
INPUTS = {
    "ours": json.dumps(line("a")) + "\n",
    "ours, the last line without its end": json.dumps(line("a")) + "\n" + json.dumps(line("b")),
    "ours, written compactly and torn": '{"id":"a","messages":[]}\n{"id":"b","mess',
    "OpenAI's": json.dumps(batch_line(CHAT, [])) + "\n",
    "Anthropic's": '{"custom_id":"a","params":{}}\n',
}


@pytest.mark.parametrize("text", INPUTS.values(), ids=INPUTS.keys())
@pytest.mark.parametrize("role", ["answers", "errors"])
@pytest.mark.parametrize("how", LINKS)
def test_an_input_file_is_refused_as_an_output_file(tmp_path: Path, text: str, role: str, how: str) -> None:
    prompts = tmp_path / "p.jsonl"
    prompts.write_text(text)
    path = linked(prompts, how)
    journal = Journal(path) if role == "answers" else Journal(tmp_path / "a.jsonl", path)
    with kept(prompts), pytest.raises(JournalError, match=r"line 1 was not written by a batch: it has '\w+'"), journal:
        raise AssertionError


@pytest.mark.parametrize("how", LINKS)
def test_answers_and_failures_need_two_files(tmp_path: Path, how: str) -> None:
    answers = write(tmp_path / "a.jsonl", [{"id": "a"}])
    with kept(answers), pytest.raises(JournalError, match="need two files"), Journal(answers, linked(answers, how)):
        raise AssertionError


@pytest.mark.parametrize(
    "text", [b"milk\neggs", b"milk", b"\n", b'{"id":"a"}\nmilk', b"{}\nmilk", b"\x00" * 9, b'{"slot":1}\n']
)
@pytest.mark.parametrize("role", ["answers", "errors"])
def test_a_file_of_another_program_keeps_its_last_line(tmp_path: Path, text: bytes, role: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(text)
    journal = Journal(path) if role == "answers" else Journal(tmp_path / "a.jsonl", path)
    with kept(path), pytest.raises(JournalError, match=r"notes\.txt line \d was not written by a batch"), journal:
        raise AssertionError


@pytest.mark.parametrize("role", ["answers", "errors"])
@pytest.mark.parametrize("kind", ["device", "pipe", "folder"])
def test_a_special_file_is_refused_and_kept(tmp_path: Path, role: str, kind: str) -> None:
    path = tmp_path / "odd"
    terminal = os.openpty()
    if kind == "device":
        path = Path(os.ttyname(terminal[1]))
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    journal = Journal(path) if role == "answers" else Journal(tmp_path / "a.jsonl", path)
    with pytest.raises(JournalError, match=r"is not a regular file|Is a directory"), journal:
        raise AssertionError
    assert path.exists()
    for descriptor in terminal:
        os.close(descriptor)


def test_two_batches_cannot_write_one_file_of_failures(tmp_path: Path) -> None:
    errors = write(tmp_path / "e.jsonl", [{"id": "a", "error": {"category": "x"}}])
    first, second = Journal(tmp_path / "a.jsonl", errors), Journal(tmp_path / "b.jsonl", errors)
    with first, pytest.raises(JournalError, match="another batch is writing this file"), second:
        raise AssertionError


def test_lines_recorded_as_cancelled_are_sent_again(tmp_path: Path) -> None:
    cancelled = {"id": "a", "error": {"category": "cancelled", "message": "the engine was closed"}}
    errors = write(tmp_path / "a.errors.jsonl", [cancelled, {"id": "b", "error": {"category": "server"}}])
    with Journal(tmp_path / "a.jsonl") as journal:
        assert set(journal.failed) == {"b"}
    assert [failure["id"] for failure in records(errors)] == ["b"]
