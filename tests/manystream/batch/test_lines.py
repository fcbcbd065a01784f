"""The lines of a batch's input: manystream's form, OpenAI's and Anthropic's, and the errors of invalid lines."""

from __future__ import annotations

import codecs
import io
import json
from pathlib import Path

import pytest
import trio

import manystream as ms
from manystream.batch import count_lines, read_lines
from manystream.batch.lines import LineError, read_item, read_line


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
