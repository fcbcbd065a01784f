"""What calls ask: prompts that are made, files of prompts, prefixes, and the turns of a session."""

import json
import random
import statistics
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import manystream as ms
from manystream.bench.arrivals import Arrival
from manystream.bench.work import Conversation, Length, PromptsError, Session, Work, WorkPlan, read_length, read_prompts

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(*lines: Any) -> Path:
        path = tmp_path / "prompts"
        path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), "utf-8")
        return path

    return write


def texts(session: Session) -> list[str]:
    return [message.text for message in session.request.messages if isinstance(message, ms.Message)]


def answer(text: str = "yes") -> ms.Response:
    return ms.Response([ms.Text(text)])


# Lengths.


@pytest.mark.parametrize(
    ("text", "mean", "deviation"), [("512", 512, 0), ("normal:512,128", 512, 128), ("uniform:100,500", 300, 115.5)]
)
def test_lengths_have_their_distribution(text: str, mean: float, deviation: float) -> None:
    length, numbers = read_length(text), random.Random(1)
    drawn = [length.draw(numbers) for _ in range(5000)]
    assert statistics.mean(drawn) == pytest.approx(mean, rel=0.02)
    assert statistics.pstdev(drawn) == pytest.approx(deviation, rel=0.05, abs=0.01)


def test_a_length_is_at_least_one() -> None:
    numbers = random.Random(2)
    assert min(Length("normal", (2.0, 50.0)).draw(numbers) for _ in range(200)) == 1


@pytest.mark.parametrize(
    "text", ["", "0", "-5", "nan", "inf", "1e9", "x", "normal:5", "normal:5,x", "uniform:1,2,3", "zipf:2", "normal:0,5"]
)
def test_other_lengths_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"length|float"):
        read_length(text)


# Prompts that are made.


def test_without_anything_every_call_has_the_same_prompt() -> None:
    work = Work(WorkPlan("m", "Hi", headers={"x": "1"}))
    for _ in range(2):
        session = work.session()
        assert (texts(session), session.request.max_output_tokens) == (["Hi"], None)
        assert (session.request.extra_headers, session.request.retry) == ({"x": "1"}, ms.Retry(max_attempts=1))


def test_prompts_have_their_length_their_prefix_and_a_seed() -> None:
    plan = WorkPlan("m", input=read_length("uniform:5,9"), output=read_length("uniform:10,20"), prefix=3, seed=4)
    works = [Work(plan), Work(plan)]
    one, two = ([work.session().request for _ in range(50)] for work in works)
    assert one == two
    made = [texts(Session(works[0], request))[0].split() for request in one]
    assert len({" ".join(words[:3]) for words in made}) == 1
    assert {len(words) - 3 for words in made} == {5, 6, 7, 8, 9}
    assert len({" ".join(words[3:]) for words in made}) > 45
    assert {request.max_output_tokens for request in one} <= set(range(10, 21))
    other = Work(WorkPlan("m", input=read_length("uniform:5,9"), seed=5)).session()
    assert texts(other) != [" ".join(made[0][3:])]


def test_a_prompt_may_be_longer_than_all_words_that_are_known() -> None:
    (text,) = texts(Work(WorkPlan("m", input=read_length("200000"))).session())
    assert len(text.split()) == 200_000


def test_calls_of_a_trace_share_the_blocks_with_the_same_ids() -> None:
    work = Work(WorkPlan("m"))
    arrivals = [Arrival(0.0, 1100, 7, (1, 2, 3)), Arrival(0.0, 1100, 9, (1, 2, 4)), Arrival(0.0, 600, 9, (5, 2))]
    one, two, other = (texts(work.session(arrival))[0].split() for arrival in arrivals)
    assert [len(words) for words in (one, two, other)] == [1100, 1100, 600]
    assert one[:1024] == two[:1024]
    assert one[1024:] != two[1024:]
    assert one[:512] != other[:512]
    assert work.session(arrivals[1]).request.max_output_tokens == 9


def test_a_call_makes_no_more_text_than_its_prompt_has() -> None:
    work, arrival = Work(WorkPlan("m")), Arrival(0.0, 5, 1, tuple(range(20_000)))
    tracemalloc.start()
    try:
        (text,) = texts(work.session(arrival))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(text.split()) == 5
    assert peak < 1_000_000


def test_a_trace_with_a_file_of_prompts_keeps_its_lengths() -> None:
    work = Work(WorkPlan("m", prompts=(Conversation(ms.Request("m", "a")),)))
    found = [texts(work.session(arrival))[0] for arrival in (Arrival(0.0, 7), Arrival(0.0), Arrival(0.0, 0))]
    assert ([len(text.split()) for text in found], found[1]) == ([7, 1, 1], "a")


def test_calls_with_the_same_ids_have_the_same_prompt() -> None:
    """Mooncake's last block is shorter than the others: the length says how much of it the prompt has."""
    work = Work(WorkPlan("m"))
    one, two = (texts(work.session(Arrival(0.0, 700, 9, (1, 2)))) for _ in range(2))
    assert one == two


# Sessions.


def test_a_session_goes_on_until_its_turns_are_made() -> None:
    work = Work(WorkPlan("m", input=read_length("4"), turns=3))
    session = work.session()
    first = texts(session)
    assert session.advance(answer("one"))
    assert texts(session)[:2] == [*first, "one"]
    assert session.advance(answer("two"))
    assert [len(text.split()) for text in texts(session)] == [4, 1, 4, 1, 4]
    assert not session.advance(answer("three"))


def test_a_session_without_an_answer_is_over() -> None:
    assert not Work(WorkPlan("m", turns=3)).session().advance(None)


def test_a_session_of_a_file_has_the_words_of_its_user() -> None:
    prompts = (Conversation(ms.Request("m", "a"), ("b",)), Conversation(ms.Request("m", "c")))
    work = Work(WorkPlan("m", prompts=prompts, turns=4))
    session = work.session()
    for said in ("b", "c", "a"):
        assert session.advance(answer())
        assert texts(session)[-1] == said
    assert texts(session) == ["a", "yes", "b", "yes", "c", "yes", "a"]


# Files of prompts.


def test_a_file_has_requests_in_the_forms_of_a_batch(write: Write) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    path = write(
        {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "one"}], "tools": [tool]},
        "",
        {"id": "x", "model": "other", "prompt": "two", "response_schema": {"type": "object"}, "max_output_tokens": 5},
        {"custom_id": "y", "body": {"model": "other", "messages": [{"role": "user", "content": "three"}]}},
    )
    found = [one.request for one in read_prompts(path, "m")]
    assert [request.model for request in found] == ["m"] * 3
    assert (found[0].system, [tool.name for tool in found[0].tools if isinstance(tool, ms.Tool)]) == ("S", ["f"])
    assert (found[1].response_schema, found[1].max_output_tokens) == ({"type": "object"}, 5)
    work = Work(WorkPlan("m", prompts=tuple(map(Conversation, found)), prefix=2, output=read_length("9")))
    sessions = [work.session() for _ in range(4)]
    assert [texts(session)[-1].split()[2:] for session in sessions] == [["one"], ["two"], ["three"], ["one"]]
    assert sessions[0].request.tools == found[0].tools
    assert {session.request.max_output_tokens for session in sessions} == {9}


@pytest.mark.parametrize("as_lines", [True, False])
def test_a_file_of_sharegpt(write: Write, *, as_lines: bool) -> None:
    def said(*turns: tuple[str, str]) -> dict[str, Any]:
        return {"id": "x", "conversations": [{"from": who, "value": text} for who, text in turns]}

    entries = [
        said(("human", "one"), ("gpt", "no"), ("human", "two")),
        said(("gpt", "nobody asked")),
        said(("system", "S"), ("user", "three"), ("gpt", "")),
    ]
    path = write(*entries) if as_lines else write(json.dumps(entries, indent=1))
    assert [(one.request.messages[0], one.further) for one in read_prompts(path, "m")] == [
        (ms.Message.user("one"), ("two",)),
        (ms.Message.user("three"), ()),
    ]


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([], ": has no prompt"),
        (["[]"], ": has no prompt"),
        (['{"prompt": "a"}', '{"prompt"'], ":2: "),
        (['{"prompt": "a"}', "5"], ":2: is no JSON object"),
        (['{"prompt": "a"}', '{"prompt": 5}'], ":2: prompt"),
        (['{"prompt": "a", "temperature": "hot"}'], ":1: temperature"),
        (['[{"prompt": "a"}, 5]'], ": entry 2: is no JSON object"),
        (['[{"prompt": "a"}'], ": "),
        (['{"conversations": [{"from": "gpt", "value": "a"}]}'], ": has no prompt"),
    ],
)
def test_each_wrong_file_names_the_line(write: Write, lines: list[str], complaint: str) -> None:
    path = write(*lines)
    with pytest.raises(PromptsError) as raised:
        read_prompts(path, "m")
    assert str(raised.value).startswith(f"{path}{complaint}")


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(PromptsError, match="No such file"):
        read_prompts(tmp_path / "missing", "m")
    (tmp_path / "prompts").write_bytes(b'{"prompt": "a"}\n{"prompt": "\xff"}\n')
    with pytest.raises(PromptsError, match=r"prompts:2: "):
        read_prompts(tmp_path / "prompts", "m")
