"""Whole requests and whole errors of a batch's lines: defaults, each option's own member, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import manystream as ms
from manystream.batch.lines import CommonOptions, Line, LineError, read_item, read_line, read_prompt
from manystream.providers.json.json_values import dumps_text

HELLO = [{"role": "user", "content": "hello"}]


def read(value: object, default: str | None = "m") -> ms.Request:
    return read_item(read_line(json.dumps(value).encode(), 1), lambda named: named or default).request


def ours(**members: object) -> ms.Request:
    return read({"id": 1, "messages": HELLO, **members})


def test_a_line_without_options_has_the_defaults_of_a_request() -> None:
    plain = ms.Request("m", [ms.Message.user("hello")])
    assert ours() == replace(plain, tools=[], stop=[])
    assert read({"custom_id": "a", "messages": HELLO}) == ours()
    assert read({"custom_id": "a", "body": {"messages": HELLO}}) == ours()
    assert read({"custom_id": "a", "url": "/v1/responses", "body": {"input": "hello"}}) == replace(plain, tools=[])
    assert read({"custom_id": "a", "params": {"messages": HELLO}}) == ours()


def test_a_line_has_a_number_an_id_and_a_size() -> None:
    data = b'{"id": null, "custom_id": 7, "messages": [{"role": "user", "content": "hi"}]}\n'
    line = read_line(data, 3)
    assert line == Line(3, 7, json.loads(data), len(data))
    item = read_item(line, lambda named: "m")
    assert (item.number, item.id, item.size, item.request.messages) == (3, 7, 78, [ms.Message.user("hi")])
    assert read_line(b'{"id": "a", "custom_id": "b"}', 1).id == "a"
    assert read_line(b'{"id": 0}', 1).id == 0


def test_tools_may_be_a_text() -> None:
    """Data sets have them so, since the rows of a table have one schema."""
    tools = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]
    assert ours(tools=json.dumps(tools)) == ours(tools=tools)
    assert ours(tools="") == ours(tools="null") == ours()
    for wrong, complaint in (("{}", "must be an array, not an object"), ("[", "must be an array, or a text that is")):
        with pytest.raises(LineError, match=f"tools: {complaint}"):
            ours(tools=wrong)


CONVERSATION = [{"role": "system", "content": "brief"}, {"role": "user", "content": "hello", "tool_calls": None}]


def test_a_prompt_may_be_a_list_of_messages() -> None:
    """Data sets of training libraries have it so. With a column's name it is the same, if it alone is the prompt."""
    expected = ms.Request("m", [ms.Message.user("hello")], system="brief")
    for name in ("prompt", "messages"):
        assert read({"id": 1, name: CONVERSATION}) == replace(expected, tools=[], stop=[])
    row = {"id": 1, "question": CONVERSATION, "system": "a column"}
    for template, text in (("{question}", None), ("Judge: {question}", f"Judge: {dumps_text(CONVERSATION)}")):
        options: CommonOptions = {"prompt": read_prompt(template)}
        found = read_item(read_line(json.dumps(row).encode(), 1), lambda named: "m", options)
        assert found.request == (expected if text is None else ms.Request("m", [ms.Message.user(text)]))
        assert {"id": 1, **found.columns} == row
    plain: CommonOptions = {"prompt": read_prompt("{a}")}
    assert read_item(read_line(b'{"id": 1, "a": [{"b": 1}]}', 1), lambda named: "m", plain).request.messages == [
        ms.Message.user('[{"b":1}]')
    ]


@pytest.mark.parametrize("prefix", ["/v1", "", "/openai/v1"])
def test_a_url_needs_no_version(prefix: str) -> None:
    """Azure's lines have `/chat/completions`."""
    expected = replace(ms.Request("m", [ms.Message.user("hello")]), tools=[])
    for path, body in (("/chat/completions", {"messages": HELLO}), ("/responses", {"input": "hello"})):
        assert replace(read({"custom_id": "a", "url": f"{prefix}{path}", "body": body}), stop=()) == expected


def test_a_whole_number_may_be_stored_with_a_fraction_of_0() -> None:
    assert (ours(max_output_tokens=256.0).max_output_tokens, ours(seed=7.0).seed) == (256, 7)
    with pytest.raises(LineError, match="max_output_tokens: must be a whole number"):
        ours(max_output_tokens=0.5)


@pytest.mark.parametrize("name", ["connect", "first_byte", "idle", "total", "queue"])
def test_each_timeout_is_its_own(name: str) -> None:
    assert ours(timeouts={name: 2.5}).timeouts == ms.Timeouts(**{name: 2.5})


def test_retries_and_thinking_of_a_line() -> None:
    assert (ours(retry={}).retry, ours(retry={"max_attempts": 1}).retry) == (None, ms.Retry(max_attempts=1))
    assert ours(timeouts={}).timeouts == ms.Timeouts()
    assert [ours(thinking=level.value).thinking for level in ms.ThinkingLevel] == list(ms.ThinkingLevel)
    assert ours(thinking={}).thinking == ms.ThinkingConfig()
    assert ours(thinking={"effort": "max", "include_summary": True}).thinking == ms.ThinkingConfig(
        None, None, "max", True
    )
    assert ours(thinking={"level": "low", "budget_tokens": 9, "include_summary": False}).thinking == ms.ThinkingConfig(
        ms.ThinkingLevel.LOW, 9, None, False
    )


def test_systems_are_joined_and_the_batch_decides_how_to_stream() -> None:
    messages = [{"role": "system", "content": "two"}, {"role": "developer", "content": "three"}, *HELLO]
    assert read({"id": 1, "system": "one", "messages": messages}).system == "one\n\ntwo\n\nthree"
    assert ours(system="").system is None
    for form in ({"body": {"messages": HELLO, "stream": True, "stream_options": {}, "n": 1}},
                 {"params": {"messages": HELLO, "stream": True, "stream_options": {}}}):  # fmt: skip
        assert (read({"id": 1, **form}).extra_body or {}).keys().isdisjoint({"stream", "stream_options"})
    assert read({"id": 1, "body": {"messages": HELLO, "model": "own"}}).model == "own"
    assert read({"id": 1, "params": {"messages": HELLO, "model": "own"}}).model == "own"


OPTIONS: dict[str, object] = {
    "system": "Answer briefly.",
    "tools": [{"name": "now", "description": "The time.", "parameters": {"type": "object"}}],
    "tool_choice": "required",
    "thinking": "low",
    "max_output_tokens": 9,
    "temperature": 0.5,
    "top_p": 0.5,
    "stop": ["end"],
    "seed": 1,
    "response_schema": {"type": "object"},
    "parallel_tool_calls": False,
    "metadata": {"a": "b"},
    "timeouts": {"queue": 1},
    "retry": {"max_attempts": 2},
    "extra_body": {"a": 1},
    "extra_headers": {"x-a": "b"},
    "priority": "batch",
    "tenant": "acme",
    "session": "s-1",
    "tags": {"agent": "planner", "step": 3, "retry": False},
    "durable": {"window": "2h"},
    "return_tokens": True,
    "logprobs": 0,
    "prompt_token_ids": [1, 2],
    "continue_aborted": True,
    "cache": "auto",
}


def test_a_line_may_have_each_option_of_a_request() -> None:
    without_records = {"keep_received"}  # the record of a line has the fields of an answer
    assert OPTIONS.keys() == ms.RequestOptions.__annotations__.keys() - without_records
    for name, value in OPTIONS.items():
        assert getattr(ours(**{name: value}), name) != getattr(ours(), name), name


def test_a_prompt_and_a_text_are_one_message_of_the_user() -> None:
    assert read({"id": 1, "prompt": "hello"}) == read({"id": 1, "messages": "hello"}) == ours()
    assert read({"id": 1, "prompt": "hello", "system": "one", "seed": 2}) == ours(system="one", seed=2)


COLUMNS: dict[str, object] = {"label": "x", "topic": ["a"], "user_id": 7, "expected": None, "Text": {"a": 1}}


@pytest.mark.parametrize(
    "form",
    [
        {"id": 1, "prompt": "hello"},
        {"id": 1, "messages": HELLO},
        {"custom_id": "a", "method": "POST", "body": {"messages": HELLO}},
        {"custom_id": "a", "params": {"messages": HELLO}},
    ],
)
def test_other_members_are_columns(form: dict[str, object]) -> None:
    item = read_item(read_line(json.dumps(form | COLUMNS).encode(), 1), lambda named: "m")
    assert item.columns == COLUMNS
    assert item.request == read(form)
    assert read_item(read_line(json.dumps(form).encode(), 1), lambda named: "m").columns == {}
    with pytest.raises(LineError, match="text: is a member of answers, so no column of the input may have this name"):
        read(form | {"text": "mine"})


@pytest.mark.parametrize(
    ("member", "ours"),
    [
        ("max_tokens", "max_output_tokens"),
        ("max_output_token", "max_output_tokens"),
        ("response_format", "response_schema"),
        ("temprature", "temperature"),
        ("stream", "extra_body"),
        ("return_token_ids", "return_tokens"),
        ("top_logprobs", "logprobs"),
        ("message", "messages"),
    ],
)
def test_an_option_under_another_name_is_no_column(member: str, ours: str) -> None:
    with pytest.raises(LineError) as caught:
        read({"id": 1, "messages": HELLO, member: 1})
    assert str(caught.value) == f"{member}: is not a member of this form; did you mean {ours!r}?"


def test_options_of_all_lines_precede_those_of_a_line() -> None:
    options: CommonOptions = {
        "system": "all", "max_output_tokens": 7, "temperature": 0.0, "response_schema": {"type": "object"},
    }  # fmt: skip
    own: dict[str, object] = {"max_tokens": 99, "temperature": 1, "messages": HELLO}
    for form in (
        {"id": 1, "prompt": "hello", "system": "own", "temperature": 1},
        {"id": 1, "body": own},
        {"id": 1, "params": own},
    ):
        request = read_item(read_line(json.dumps(form).encode(), 1), lambda named: "m", options).request
        assert (request.system, request.max_output_tokens, request.temperature) == ("all", 7, 0.0)
        assert request.response_schema == {"type": "object"}
        assert request.messages == [ms.Message.user("hello")]


ID = "must be text that is not empty, or a whole number"
MODEL = "is missing, and no model was given for the whole batch"
WRONG: list[tuple[dict[str, object], str]] = [
    ({"id": 1, "prompt": "a", "messages": "b"}, "prompt: is another name of `messages`: leave out one of them"),
    ({"id": 1, "prompt": ["a"]}, "prompt[0]: must be an object, not text"),
    ({"id": ""}, f"id: {ID}"),
    ({"id": False}, f"id: {ID}"),
    ({"custom_id": []}, f"custom_id: {ID}"),
    ({}, "id: is missing; each line needs one, to find its answer and to resume the batch"),
    ({"id": 1, "messages": HELLO}, f"model: {MODEL}"),
    ({"id": 1, "body": {"messages": HELLO}}, f"body.model: {MODEL}"),
    ({"id": 1, "params": {"messages": HELLO}}, f"params.model: {MODEL}"),
    ({"id": 1, "messages": []}, "messages: must hold at least one message"),
    ({"id": 1, "body": None}, "body: must be an object"),
    ({"id": 1, "params": None}, "params: must be an object"),
    ({"id": 1, "url": "/v1/x", "body": {}}, "url: must be one of /v1/chat/completions, /v1/responses, not '/v1/x'"),
    ({"id": 1, "body": {"n": 0}}, "body.n: must be a whole number above 0"),
    ({"id": 1, "body": {"n": "2"}}, "body.n: must be a whole number above 0"),
    ({"id": 1, "model": "m", "messages": HELLO, "thinking": 3},
        "thinking: must be one of none, low, med, high, or an object"),
    ({"id": 1, "model": "m", "messages": HELLO, "thinking": {"level": "x"}},
        "thinking.level: must be one of none, low, med, high, not 'x'"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "words"), WRONG, ids=repr)
def test_a_wrong_line_is_refused_in_words(value: dict[str, object], words: str) -> None:
    with pytest.raises(LineError) as caught:
        read(value, None)
    assert str(caught.value) == words
    assert caught.value.id == (1 if "id" in value and value["id"] == 1 else None)
