"""The lines of a batch's input: manystream's form, OpenAI's and Anthropic's, and the errors of invalid lines."""

from __future__ import annotations

import codecs
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import trio

import manystream as ms
from manystream.batch import count_lines, read_lines
from manystream.batch.lines import (
    CommonOptions,
    Line,
    LineError,
    ModelChoice,
    OneModel,
    read_item,
    read_line,
    read_prompt,
)
from manystream.providers.json.json_values import dumps_text


def line(id: str | int, text: str = "hello", **members: object) -> dict[str, object]:
    return {"id": id, "messages": [{"role": "user", "content": text}], **members}


def read(value: object) -> ms.Request:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return read_item(read_line(data, 1), lambda named: named).request


def test_manystreams_form_accepts_every_option_of_a_request() -> None:
    request = read(
        line(
            "a",
            model="m",
            system="Be brief.",
            tools=[{"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}],
            tool_choice="f",
            thinking="low",
            max_output_tokens=5,
            temperature=0.5,
            top_p=1,
            stop=["x"],
            seed=7,
            response_schema={"type": "object"},
            parallel_tool_calls=False,
            metadata={"k": "v"},
            timeouts={"total": 9},
            retry={"max_attempts": 2},
            extra_body={"a": 1},
            extra_headers={"x-a": "b"},
        )
    )
    assert request == ms.Request(
        "m", [ms.Message.user("hello")], system="Be brief.",
        tools=[ms.Tool("f", "d", {"type": "object"}, strict=True)], tool_choice="f", thinking=ms.ThinkingLevel.LOW,
        max_output_tokens=5, temperature=0.5, top_p=1, stop=["x"], seed=7, response_schema={"type": "object"},
        parallel_tool_calls=False, metadata={"k": "v"}, timeouts=ms.Timeouts(total=9), retry=ms.Retry(max_attempts=2),
        extra_body={"a": 1}, extra_headers={"x-a": "b"},
    )  # fmt: skip


def test_thinking_may_be_an_object() -> None:
    request = read(line("a", model="m", thinking={"level": "high", "budget_tokens": 2000, "effort": "max"}))
    assert request.thinking == ms.ThinkingConfig(ms.ThinkingLevel.HIGH, 2000, "max")


LATE = [{"role": "user", "content": "Hi"}, {"role": "system", "content": "Be long."}, {"role": "user", "content": "Go"}]


@pytest.mark.parametrize(
    "value",
    [
        {"id": "a", "model": "m", "messages": LATE},
        {"custom_id": "a", "url": "/v1/chat/completions", "body": {"model": "m", "messages": LATE}},
        {"custom_id": "a", "url": "/v1/responses", "body": {"model": "m", "input": LATE}},
        {"custom_id": "a", "params": {"model": "m", "max_tokens": 9, "messages": LATE}},
    ],
    ids=["ours", "chat", "responses", "anthropic"],
)
def test_a_system_message_after_the_first_turn_keeps_its_place(value: dict[str, object]) -> None:
    assert list(read(value).messages) == [ms.Message.user("Hi"), ms.Message.system("Be long."), ms.Message.user("Go")]


def test_messages_may_hold_images_calls_and_results() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    request = read(
        {
            "id": "a",
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": [{"type": "text", "text": "Look"}, picture]},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "42"},
            ],
        }
    )
    assert request.system == "Be kind."
    assert list(request.messages) == [
        ms.Message.user([ms.Text("Look"), ms.Image(url="https://example.org/a.png")]),
        ms.Message.tool_call("c1", "f", "{}"),
        ms.Message.tool_result("c1", "42"),
    ]


def test_openais_chat_line_becomes_the_same_request() -> None:
    request = read(
        {
            "custom_id": "a",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": "gpt-5-mini",
                "messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
                "max_completion_tokens": 9,
                "stop": "x",
                "stream": True,
                "reasoning_effort": "high",
                "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
                "tool_choice": {"type": "function", "function": {"name": "f"}},
                "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
                "logit_bias": {"1": 2},
            },
        }
    )
    assert request == ms.Request(
        "gpt-5-mini", [ms.Message.user("Hi")], system="Be brief.", tools=[ms.Tool("f", "", {"type": "object"})],
        tool_choice="f", thinking=ms.ThinkingConfig(effort="high"), max_output_tokens=9, stop=["x"],
        response_schema={"type": "object"}, extra_body={"logit_bias": {"1": 2}},
    )  # fmt: skip


def test_openais_responses_line_becomes_the_same_request() -> None:
    request = read(
        {
            "custom_id": "a",
            "url": "/v1/responses",
            "body": {
                "model": "gpt-5-mini",
                "input": "Hi",
                "instructions": "Be brief.",
                "max_output_tokens": 9,
                "reasoning": {"effort": "low"},
                "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
                "truncation": "auto",
            },
        }
    )
    assert request == ms.Request(
        "gpt-5-mini", [ms.Message.user("Hi")], system="Be brief.", tools=[ms.Tool("f", "", {"type": "object"})],
        thinking=ms.ThinkingConfig(effort="low"), max_output_tokens=9, extra_body={"truncation": "auto"},
    )  # fmt: skip


def test_anthropics_line_becomes_the_same_request() -> None:
    request = read(
        {
            "custom_id": "a",
            "params": {
                "model": "claude-sonnet-4-5",
                "max_tokens": 9,
                "system": [{"type": "text", "text": "Be brief."}],
                "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
                "tools": [{"name": "f", "input_schema": {"type": "object"}}],
                "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
                "thinking": {"type": "enabled", "budget_tokens": 1024},
                "stop_sequences": ["x"],
                "top_k": 3,
            },
        }
    )
    assert request == ms.Request(
        "claude-sonnet-4-5", [ms.Message.user("Hi")], system="Be brief.", tools=[ms.Tool("f", "", {"type": "object"})],
        tool_choice="required", thinking=ms.ThinkingConfig(budget_tokens=1024), max_output_tokens=9, stop=["x"],
        parallel_tool_calls=False, extra_body={"top_k": 3},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (b"{oh", "malformed JSON"),
        (b"[1]", "expected a JSON object"),
        ({"messages": []}, "id: is missing"),
        ({"id": "", "messages": []}, "id: must be text that is not empty"),
        ({"id": 1.5, "messages": []}, "id: must be text"),
        ({"id": "a"}, "messages: must hold at least one message"),
        ({"id": "a", "messages": 5}, "messages: must be an array, not a number"),
        ({"id": "a", "messages": ["hi"]}, r"messages\[0\]: must be an object, not text"),
        ({"id": "a", "model": "m", "messages": [{"role": "sailor", "content": "x"}]}, "unknown role 'sailor'"),
        ({"id": "a", "model": "m", "messages": [{"role": "user"}]}, r"messages\[0\]\.content: must be text"),
        (line("a"), "model: is missing"),
        (line("a", model="m", temperature="hot"), "temperature: must be a number, not text"),
        (line("a", model="m", max_output_tokens=True), "max_output_tokens: must be a whole number, not true or false"),
        (line("a", model="m", max_tokens=5), "max_tokens: is not a member of this form; did you mean"),
        (line("a", model="m", thinking="hard"), "thinking: must be one of none, low, med, high"),
        (line("a", model="m", thinking={"levle": "low"}), "thinking.levle: is not a member"),
        (line("a", model="m", tools=[{"description": "x"}]), r"tools\[0\]\.name: is missing"),
        (line("a", model="m", stop=[1]), r"stop\[0\]: must be text, not a number"),
        (line("a", model="m", timeouts={"idle": -1}), "timeouts.idle: must be a number of seconds above 0"),
        ({"custom_id": "a", "url": "/v1/embeddings", "body": {}}, "url: must be one of /v1/chat/completions"),
        ({"custom_id": "a", "body": {"n": 0, "messages": []}}, "body.n: must be a whole number above 0"),
        ({"custom_id": "a", "body": 5}, "body: must be an object, not a number"),
        ({"custom_id": "a", "params": {"model": "m"}}, "params.messages: must hold at least one"),
        ({"custom_id": "a", "params": {"model": "m", "messages": [{"role": "user", "content": "q"}],
            "thinking": {"type": "enabled", "budget_tokens": "much"}}},
            r"params\.thinking\.budget_tokens: must be a whole number, not text"),
    ],
)  # fmt: skip
def test_an_invalid_line_is_refused_and_the_member_named(value: object, complaint: str) -> None:
    with pytest.raises(LineError, match=complaint):
        read(value)


@pytest.mark.parametrize(
    ("member", "value", "known"),
    [
        ("thinking", {"zz": 1}, "level, budget_tokens, effort, include_summary"),
        ("timeouts", {"zz": 1}, "connect, first_byte, idle, total, queue"),
        ("retry", {"zz": 1}, "max_attempts"),
        ("tools", [{"name": "f", "zz": 1}], "name, description, parameters, strict"),
    ],
)
def test_an_unknown_member_is_refused_with_the_known_ones(member: str, value: object, known: str) -> None:
    with pytest.raises(LineError, match=rf"\.zz: is not a member of this form; its members are {known}$"):
        read(line("a", model="m", **{member: value}))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b'{"id": "a", "messages": [{"role": "user", "content": "caf\xe9"}]}',
            r"is not UTF-8 text \(byte 0xe9 at 57\)"),
        (b'{"id": "caf\xe9"}', "is not UTF-8 text"),
        ('{"id": "a"}'.encode("utf-16"), "is not UTF-8 text .*: save the file as UTF-8"),
    ],
)  # fmt: skip
def test_a_line_in_another_encoding_is_refused(data: bytes, complaint: str) -> None:
    """Replacement characters would change the prompt, and nobody would notice."""
    with pytest.raises(LineError, match=complaint):
        read(data)


@pytest.mark.parametrize("stream", [False, True], ids=["file", "pipe"])
def test_a_byte_order_mark_before_the_first_line_is_skipped(tmp_path: Path, stream: bool) -> None:
    """Editors and shells on Windows write it."""
    path = tmp_path / "p"
    path.write_bytes(codecs.BOM_UTF8 + b'{"id": "a"}\r\n{"id": "b"}\r\n')

    async def main() -> None:
        source = io.BytesIO(path.read_bytes()) if stream else path
        found = [entry async for some in read_lines(source) for entry in some]
        assert found == [(1, b'{"id": "a"}\r\n'), (2, b'{"id": "b"}\r\n')]

    trio.run(main)


def test_a_file_of_a_byte_order_mark_alone_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_bytes(codecs.BOM_UTF8)

    async def main() -> None:
        assert [entry async for some in read_lines(path) for entry in some] == []

    trio.run(main)


def test_lines_are_read_with_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_bytes(b"a\n\n  \nb\r\n" + b"x" * 200_000 + b"\nlast")

    async def main() -> None:
        found = [entry async for some in read_lines(path) for entry in some]
        assert [(number, len(data)) for number, data in found] == [(1, 2), (4, 3), (5, 200_001), (6, 4)]

    trio.run(main)
    assert count_lines(path) == 6


HELLO = [{"role": "user", "content": "hello"}]


def read_form(value: object, default: str | None = "m") -> ms.Request:
    return read_item(read_line(json.dumps(value).encode(), 1), lambda named: named or default).request


def ours(**members: object) -> ms.Request:
    return read_form({"id": 1, "messages": HELLO, **members})


def test_a_line_without_options_has_the_defaults_of_a_request() -> None:
    plain = ms.Request("m", [ms.Message.user("hello")])
    assert ours() == replace(plain, tools=[], stop=[])
    assert read_form({"custom_id": "a", "messages": HELLO}) == ours()
    assert read_form({"custom_id": "a", "body": {"messages": HELLO}}) == ours()
    assert read_form({"custom_id": "a", "url": "/v1/responses", "body": {"input": "hello"}}) == replace(plain, tools=[])
    assert read_form({"custom_id": "a", "params": {"messages": HELLO}}) == ours()


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
        assert read_form({"id": 1, name: CONVERSATION}) == replace(expected, tools=[], stop=[])
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
        assert replace(read_form({"custom_id": "a", "url": f"{prefix}{path}", "body": body}), stop=()) == expected


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
    assert read_form({"id": 1, "system": "one", "messages": messages}).system == "one\n\ntwo\n\nthree"
    assert ours(system="").system is None
    for form in ({"body": {"messages": HELLO, "stream": True, "stream_options": {}, "n": 1}},
                 {"params": {"messages": HELLO, "stream": True, "stream_options": {}}}):  # fmt: skip
        assert (read_form({"id": 1, **form}).extra_body or {}).keys().isdisjoint({"stream", "stream_options"})
    assert read_form({"id": 1, "body": {"messages": HELLO, "model": "own"}}).model == "own"
    assert read_form({"id": 1, "params": {"messages": HELLO, "model": "own"}}).model == "own"


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
    assert read_form({"id": 1, "prompt": "hello"}) == read_form({"id": 1, "messages": "hello"}) == ours()
    assert read_form({"id": 1, "prompt": "hello", "system": "one", "seed": 2}) == ours(system="one", seed=2)


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
    assert item.request == read_form(form)
    assert read_item(read_line(json.dumps(form).encode(), 1), lambda named: "m").columns == {}
    with pytest.raises(LineError, match="text: is a member of answers, so no column of the input may have this name"):
        read_form(form | {"text": "mine"})


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
        read_form({"id": 1, "messages": HELLO, member: 1})
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
        read_form(value, None)
    assert str(caught.value) == words
    assert caught.value.id == (1 if "id" in value and value["id"] == 1 else None)


# --- models and lines ---


def test_the_model_of_a_line() -> None:
    rules = (
        ModelChoice("p"), ModelChoice("p", "all"), ModelChoice("p", default="else"), ModelChoice("p", "all", "else"),
    )  # fmt: skip
    assert [(rule("own"), rule(None)) for rule in rules] == [
        ("p/own", None), ("p/all", "p/all"), ("p/own", "p/else"), ("p/all", "p/all"),
    ]  # fmt: skip
    assert [OneModel("route")(named) for named in ("own", None)] == ["route", "route"]
