"""Whole errors of answers that cannot be read, whole other choices, and details of the members of an answer."""

from __future__ import annotations

import json

import pytest

import manystream as ms
from manystream.providers.model.events import FinishReason
from tests.providers.openai.chat.wire import OPENAI, SERVER, answer, chunk, decode, deltas, encode, known, run, stream

MALFORMED: list[tuple[str, str]] = [
    ('{"choices": 5}', "choices is no array"),
    ('{"choices": [5]}', "choices contains a value that is no object"),
    ('{"choices": [{"delta": "text"}]}', "delta is no object"),
    ('{"choices": [{"message": 5}]}', "message is no object"),
    ('{"choices": [{"delta": {"content": 5}}]}', "content is neither text nor parts"),
    ('{"choices": [{"delta": {"tool_calls": 5}}]}', "tool_calls is no array"),
    ('{"choices": [{"delta": {"tool_calls": [5]}}]}', "tool_calls contains a value that is no object"),
]


@pytest.mark.parametrize(("data", "reason"), MALFORMED, ids=[row[1] for row in MALFORMED])
def test_the_error_of_an_answer_that_cannot_be_read(data: str, reason: str) -> None:
    error = run([("", data.encode())]).error.error
    assert (error.message, error.body) == (f"malformed event: {reason}", data.encode())
    with pytest.raises(ms.ProviderError) as caught:
        decode(data.encode())
    assert (caught.value.message, caught.value.body) == (f"malformed answer: {reason}", data.encode())


@pytest.mark.parametrize("data", ["7", "[1]", '"x"', "true"])
def test_an_event_that_is_no_object(data: str) -> None:
    error = run([("", data.encode())]).error.error
    assert (error.message, error.body) == (f"malformed event: expected an object, got {data!r}", data.encode())
    with pytest.raises(ms.ProviderError) as caught:
        decode(data.encode())
    assert caught.value.message == f"malformed answer: expected a JSON object, got {data!r}"


@pytest.mark.parametrize(
    ("members", "retryable"),
    [({"id": "1", "object": "chat.completion"}, True), ({"usage": {"n": 1}}, True), ({"hello": 1, "id": None}, False)],
)
def test_a_body_without_choices(members: ms.JSONObject, retryable: bool) -> None:
    for body in (members, {**members, "choices": None}):
        with pytest.raises(ms.ProviderError) as caught:
            decode(body)
        assert caught.value.message == "malformed answer: a chat completion must have choices"
        assert (caught.value.category, caught.value.retryable) == (ms.ErrorCategory.SERVER, retryable)


def test_events_before_the_fault_in_a_chunk_are_delivered() -> None:
    data = b'{"id":"i","model":"m","choices":[{"delta":{"reasoning":"a","content":5}}]}'
    outcome = run([("", data)])
    assert outcome.events[:-1] == [ms.Start("m", "i"), ms.ThinkingDelta(0, "a")]
    assert outcome.error.error.message == "malformed event: content is neither text nor parts"


def test_an_end_without_a_finish_reason_is_named() -> None:
    assert run([]).error.error.message == "truncated stream"


NAMELESS: ms.JSONObject = {"id": "x", "function": {"arguments": "{}"}}


def test_calls_that_never_got_a_name_are_counted() -> None:
    response = answer({"content": "a", "tool_calls": [NAMELESS, {**NAMELESS, "id": "y"}]})
    assert response.warnings == ["2 tool call(s) that never got a name were dropped"]


def test_another_choice_has_all_of_its_own() -> None:
    call: ms.JSONObject = {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    first: ms.JSONObject = {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}
    message: ms.JSONObject = {
        "reasoning_text": "hm", "content": "x", "refusal": "no", "tool_calls": [call], "seen": [1],
    }  # fmt: skip
    logprobs: ms.JSONObject = {"content": [{"token": "x"}]}
    other: ms.JSONObject = {"index": 2, "delta": message, "finish_reason": "length", "logprobs": logprobs}
    third: ms.JSONObject = {"index": 1, "delta": {"content": [{"type": "thinking", "thinking": "t"}]}}
    response = run([("", json.dumps({"choices": [first, other, third]}).encode()), ("", b"[DONE]")]).response
    assert response.content == [ms.Text("a")]
    assert response.provider_data == {}
    second, last = response.others
    assert (second.thinking, second.text, second.finish_reason) == ("t", "", FinishReason.UNKNOWN)
    assert (last.thinking, last.text, last.refusal, last.finish_reason) == ("hm", "x", "no", FinishReason.LENGTH)
    assert [made.id for made in last.tool_calls] == ["t"]
    assert last.provider_data == {"seen": [1], "logprobs": logprobs}


def test_lists_of_unknown_members_grow_and_others_are_replaced() -> None:
    given: list[ms.JSON] = [1]
    outcome = deltas({"ids": given, "mood": "a"}, {"ids": [2], "mood": "b"}, {"ids": "c"})
    assert outcome.response.provider_data == {"created": 1, "ids": "c", "mood": "b"}
    outcome = deltas({"ids": given}, {"ids": [2]}, {"ids": []}, {"ids": [3]})
    assert outcome.response.provider_data == {"created": 1, "ids": [1, 2, 3]}
    assert given == [1]


def test_reasoning_in_the_forms_of_servers() -> None:
    assert deltas({"reasoning": {"content": "a"}}, {"reasoning": {"text": "b"}}).response.thinking == "ab"
    assert deltas({"reasoning": {"other": "a"}}, {"reasoning": 5}, {"content": "x"}).response.content == [ms.Text("x")]
    assert deltas({"reasoning": {"content": "", "text": "b"}}).response.thinking == "b"


def test_the_member_that_reasoning_came_in_is_its_state() -> None:
    for member in ("reasoning_content", "reasoning", "reasoning_text"):
        state = ms.ProviderState("openai-compatible", {"reasoning_member": member})
        assert deltas({member: "a"}).response.content == [ms.Thinking("a", state=state)]


def test_details_are_merged_by_type_and_index() -> None:
    def details(*values: ms.JSONObject) -> ms.JSONObject:
        return {"reasoning_details": [*values]}

    text, summary = "reasoning.text", "reasoning.summary"
    outcome = deltas(
        details({"type": text, "index": 0, "text": "a", "id": None, "format": "f"}),
        details({"type": text, "index": 0, "text": "b", "signature": None}, {"type": text, "index": 1, "text": "c"}),
        details({"type": summary, "summary": "s"}, {"type": summary, "summary": "t"}, {"type": summary}),
        details({"type": "reasoning.encrypted", "data": "x"}, {"type": "reasoning.encrypted", "data": "y"}),
        details({"type": text, "index": 0, "id": "1", "text": None, "signature": "sig"}),
        details({"type": text, "index": 0, "id": "2", "text": "d"}),
        {"reasoning_details": [5, {"data": "z"}]},
        {"reasoning_details": "odd"},
    )
    (block,) = outcome.response.content
    assert block == ms.Thinking(
        "abcstd",
        state=ms.ProviderState(
            "openai-compatible",
            {
                "reasoning_member": "reasoning_details",
                "reasoning_details": [
                    {"type": text, "index": 0, "format": "f", "signature": "sig", "id": "1", "text": "ab"},
                    {"type": text, "index": 1, "text": "c"},
                    {"type": summary, "summary": "st"},
                    {"type": "reasoning.encrypted", "data": "x"},
                    {"type": "reasoning.encrypted", "data": "y"},
                    {"type": text, "index": 0, "id": "2", "text": "d"},
                    {"data": "z"},
                ],
            },
        ),
    )


def test_encrypted_details_alone_are_a_block_without_text() -> None:
    response = answer({"content": "x", "reasoning_details": [{"type": "reasoning.encrypted", "data": "e"}]})
    state = ms.ProviderState("openai-compatible", {"reasoning_details": [{"type": "reasoning.encrypted", "data": "e"}]})
    assert response.content == [ms.Text("x"), ms.Thinking("", state=state)]


def test_thinking_before_and_after_text_has_its_own_states() -> None:
    parts: list[ms.JSON] = [
        {"type": "thinking", "thinking": "a"}, {"type": "text", "text": "b"}, {"type": "reasoning", "text": "c"},
        {"type": "thinking", "summary": [{"text": "d"}, {"other": 1}, 5]}, {"type": "thinking"},
        {"type": "thinking", "thinking": {}},
    ]  # fmt: skip
    state = ms.ProviderState("openai-compatible", {"reasoning_member": "content"})
    assert answer({"content": parts}).content == [
        ms.Thinking("a", state=state),
        ms.Text("b"),
        ms.Thinking("cd", state=state),
    ]


def test_a_reference_before_any_text_is_kept_as_it_is() -> None:
    part: ms.JSONObject = {"type": "reference", "reference_ids": [1]}
    assert answer({"content": [part, {"type": "output_text", "text": "a"}]}).content == [
        ms.ProviderBlock("openai-compatible", part),
        ms.Text("a"),
    ]


def test_a_signed_call_of_a_custom_tool_keeps_its_signature() -> None:
    extra: ms.JSONObject = {"google": {"thought_signature": "sig"}}
    call: ms.JSONObject = {"id": "a", "custom": {"name": "t", "input": "x"}}
    signed = answer({"tool_calls": [{**call, "extra_content": extra}]}).content
    assert signed == [ms.ToolCall("a", "t", "x", state=ms.ProviderState("openai-compatible", {"extra_content": extra}))]
    plain = answer({"tool_calls": [call]}).content
    assert plain == [ms.ToolCall("a", "t", "x", state=ms.ProviderState("openai-compatible", {"type": "custom"}))]


def test_details_do_not_hide_which_call_was_cut_off() -> None:
    call: ms.JSONObject = {"id": "a", "function": {"name": "f", "arguments": "{"}}
    details: ms.JSON = [{"type": "reasoning.encrypted", "data": "e"}]
    response = answer({"tool_calls": [call], "reasoning_details": details}, "length")
    assert [type(block) for block in response.content] == [ms.ToolCall, ms.Thinking]
    assert response.tool_calls == [ms.ToolCall("a", "f", "{", complete=False)]


@pytest.mark.parametrize("finish", ["stop", None])
def test_the_last_of_many_token_reports_counts(finish: str | None) -> None:
    def report(number: int, finish: str | None = None) -> dict[str, object]:
        choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": finish}
        return chunk(
            choices=[choice], usage={"prompt_tokens": 5, "completion_tokens": number, "total_tokens": 5 + number}
        )

    chunks = [*(report(number) for number in range(1, 5)), report(7, finish)]
    outcome = run([*(("", json.dumps(value).encode()) for value in chunks), ("", b"[DONE]")])
    assert outcome.response.text == "aaaaa"
    assert (outcome.done.usage.output_tokens, outcome.done.usage.total_tokens) == (7, 12)


def test_a_name_after_whole_arguments_begins_another_call() -> None:
    def named(arguments: str, **members: ms.JSON) -> ms.JSONObject:
        return {"tool_calls": [{"index": 0, **members, "function": {"name": "f", "arguments": arguments}}]}

    whole = [named("{}") for _ in range(3)]
    assert deltas(*whole).calls == [("made-1", "f", "{}"), ("made-2", "f", "{}"), ("made-3", "f", "{}")]
    assert deltas(named("{"), named("}"), named("x")).calls == [("made-1", "f", "{}x")]
    assert deltas(*(named("{}", id="a") for _ in range(3))).calls == [("a", "f", "{}")]


def test_the_older_call_with_arguments_alone() -> None:
    outcome = deltas({"function_call": {"arguments": "{"}}, {"function_call": {"name": "f", "arguments": "}"}})
    assert outcome.calls == [("made-1", "f", "{}")]


def test_a_citation_is_in_the_last_text() -> None:
    cite: ms.JSONObject = {"type": "url_citation", "url": "u"}
    parts: list[ms.JSON] = ["a", {"type": "x"}, "b"]
    response = answer({"content": parts, "annotations": [cite, 5, {"type": "other"}]})
    assert [block.citations for block in response.content if isinstance(block, ms.Text)] == [[], [cite]]


def test_citations_that_come_in_pieces_are_each_added_once() -> None:
    cites: list[ms.JSONObject] = [{"type": "url_citation", "url": url} for url in "abc"]
    outcome = deltas({"content": "x"}, *(dict[str, ms.JSON](annotations=[cite]) for cite in cites))
    assert outcome.response.content == [ms.Text("x", citations=cites)]


def test_numbers_in_arguments_that_are_an_object_are_exact() -> None:
    data = b'{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":{"n":1e400}}}]}}]}'
    older = b'{"choices":[{"message":{"function_call":{"name":"f","arguments":{"n":1e400}}},"finish_reason":"stop"}]}'
    assert run([("", data), ("", b"[DONE]")]).calls == [("a", "f", '{"n":1e400}')]
    assert run([("", older), ("", b"[DONE]")]).calls == [("made-1", "f", '{"n":1e400}')]


def test_a_cut_stream_has_what_came_so_far() -> None:
    cite: ms.JSON = {"type": "url_citation", "url": "u"}
    outcome = stream(f"""
        data: {{"choices":[{{"delta":{{"content":"a","annotations":[{json.dumps(cite)}]}},"logprobs":{{"content":[1]}}}}]}}
        data: {{"choices":[{{"delta":{{"audio":{{"data":"AAEC"}}}}}}]}}
    """)  # noqa: E501
    assert isinstance(outcome.events[-1], ms.ErrorEvent)
    text, sound = outcome.response.content
    assert text == ms.Text("a", citations=[cite])  # type: ignore[list-item]
    assert isinstance(sound, ms.File)
    assert sound.data == b"\0\1\2"
    assert outcome.response.provider_data["logprobs"] == {"content": [1]}


def test_stray_lines_of_a_server_that_does_not_stream() -> None:
    body = b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}'
    for stray in (b"x\n" + body, b"error: {\n" + body, b"  " + body + b"  \nx"):
        assert run([], SERVER, stray).response.text == "a"


def test_an_error_in_a_stray_line_quotes_that_line() -> None:
    error = run([], SERVER, b'x\nerror: {"message":"why"}').error.error
    assert (error.message, error.body, error.http_status) == ("why", b'{"message":"why"}', 200)
    error = run([], SERVER, b"error: why").error.error
    assert (error.message, error.body, error.http_status) == ("why", b"why", 200)


def test_text_as_an_error_event() -> None:
    error = run([("error", b"wh\xffy")]).error.error
    assert (error.message, error.body, error.http_status) == ("wh\ufffdy", b"wh\xffy", 200)


@pytest.mark.parametrize("part", ["", " ", "[", "[DO", "[DONE", " [DONE"])
def test_a_part_of_the_end_marker_is_no_event(part: str) -> None:
    events = [("", b'{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}'), ("", part.encode())]
    assert run(events).done.finish_reason is FinishReason.STOP


def test_a_servers_extra_content_is_sent_back() -> None:
    extra: ms.JSONObject = {"google": {"thought_signature": "sig"}}
    server = known("google-openai")
    outcome = deltas({"content": "a", "extra_content": extra}, provider=server)
    body = encode(ms.Request("m", [ms.Message.user("x"), outcome.response.to_message()]), server)
    assert body["messages"][1] == {"role": "assistant", "extra_content": extra, "content": "a"}  # type: ignore[index]
    assert outcome.response.to_message().content[1] == ms.Thinking(
        "", state=ms.ProviderState("google-openai", {"extra_content": extra})
    )
    assert OPENAI.maker == "openai-chat"


FIRST: ms.JSONObject = {"role": "assistant", "content": "a"}

PICTURE: ms.JSONObject = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}

MESSAGES: dict[str, ms.JSONObject] = {
    "a call of a custom tool": {"content": None,
        "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}]},
    "a call that Google signed": {"content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "S1"}}}]},
    "sound": {"content": None, "audio": {"id": "audio_1", "data": "AAAA", "expires_at": 99, "transcript": "Hi"}},
    "a picture": {"content": "b", "images": [PICTURE]},
    "a picture at an address": {"content": None,
        "images": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]},
    "encrypted reasoning": {"content": "b", "reasoning_details": [{"type": "reasoning.encrypted", "data": "E1",
        "index": 0}]},
    "signed reasoning": {"content": "b", "reasoning_content": "hm",
        "reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "S1"}]},
    "parts of an unknown type": {"content": [{"type": "text", "text": "b"}, {"type": "chart", "points": [1, 2]},
        {"type": "text", "text": "c"}]},
    "references": {"content": [{"type": "text", "text": "b"}, {"type": "reference", "reference_ids": [1]}]},
}  # fmt: skip
"""Members of the second choice's message."""


def streamed(message: ms.JSONObject) -> ms.Response:
    calls = message.get("tool_calls")
    delta = dict(message)
    if type(calls) is list:
        delta["tool_calls"] = [{**call, "index": n} for n, call in enumerate(calls) if type(call) is dict]
    chunks: list[ms.JSONObject] = [
        {"choices": [{"index": 0, "delta": FIRST}, {"index": 1, "delta": delta}]},
        {"choices": [{"index": n, "delta": {}, "finish_reason": "stop"} for n in (0, 1)]},
    ]
    return run([*(("", json.dumps(chunk).encode()) for chunk in chunks), ("", b"[DONE]")]).response


def whole(message: ms.JSONObject) -> ms.Response:
    choices: list[ms.JSONObject] = [
        {"index": n, "message": given, "finish_reason": "stop"} for n, given in enumerate((FIRST, message))
    ]
    return decode({"choices": [*choices]})


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_a_second_choice_has_what_an_only_one_would_have(message: ms.JSONObject) -> None:
    alone = decode({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    for response in (whole(message), streamed(message)):
        (other,) = response.others
        assert (other.content, other.finish_reason, other.provider_data) == (
            alone.content, alone.finish_reason, alone.provider_data,
        )  # fmt: skip


def chunks(*choices: ms.JSONObject) -> list[tuple[str, bytes]]:
    """Return a stream with one choice per chunk."""
    return [*(("", json.dumps({"choices": [choice]}).encode()) for choice in choices), ("", b"[DONE]")]


def piece(index: int, text: str) -> ms.JSONObject:
    return {"index": index, "delta": {"content": text}, "finish_reason": None}


def end(index: int, reason: str = "stop") -> ms.JSONObject:
    return {"index": index, "delta": {}, "finish_reason": reason}


ORDERS: dict[str, tuple[list[ms.JSONObject], str, FinishReason, list[str]]] = {
    "the second first": ([piece(1, "b"), piece(0, "a"), piece(1, "B"), piece(0, "A"), end(1), end(0, "length")], "aA",
        FinishReason.LENGTH, ["bB"]),
    "the second whole before the first": ([piece(1, "b"), end(1), piece(0, "a"), end(0)], "a", FinishReason.STOP,
        ["b"]),
    "three, backwards": ([piece(2, "c"), piece(1, "b"), piece(0, "a"), end(2), end(1), end(0)], "a", FinishReason.STOP,
        ["b", "c"]),
    "the first has only a finish": ([piece(1, "b"), end(1), end(0, "content_filter")], "", FinishReason.CONTENT_FILTER,
        ["b"]),
    "the first never comes": ([piece(1, "b"), end(1)], "", FinishReason.UNKNOWN, ["b"]),
}  # fmt: skip


@pytest.mark.parametrize("asked", [0, 2])
@pytest.mark.parametrize("name", [name for name in ORDERS if "never" not in name])
def test_the_answer_is_the_choice_with_index_0(name: str, asked: int) -> None:
    choices, text, reason, others = ORDERS[name]
    outcome = run(chunks(*choices), choices=asked)
    assert (outcome.response.text, outcome.response.finish_reason) == (text, reason)
    assert [choice.text for choice in outcome.response.others] == others


def test_the_choice_0_of_several_that_never_comes_is_empty() -> None:
    choices, text, reason, others = ORDERS["the first never comes"]
    outcome = run(chunks(*choices), choices=2)
    response = outcome.response
    assert (response.text, response.finish_reason, outcome.done.finish_reason) == (text, reason, reason)
    assert [choice.text for choice in response.others] == others
    assert response.warnings == ["the server sent other choices, but no choice 0"]


CALL: ms.JSONObject = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize("asked", [0, 1])
def test_an_only_choice_is_the_answer_with_any_index(asked: int) -> None:
    thought: ms.JSONObject = {"index": 3, "delta": {"reasoning": "hm", "tool_calls": [CALL]}, "finish_reason": None}
    ids: ms.JSONObject = {"index": 3, "delta": {}, "token_ids": [1, 2], "finish_reason": "stop"}
    outcome = run(chunks(piece(3, "a"), thought, piece(3, "b"), ids), choices=asked)
    response = outcome.response
    assert (response.text, response.thinking, response.finish_reason) == ("ab", "hm", FinishReason.TOOL_USE)
    assert [(call.id, call.name, call.arguments, call.complete) for call in response.tool_calls] == [
        ("c", "f", "{}", True)
    ]
    assert ([*response.tokens.ids], response.provider_data) == ([1, 2], {})


@pytest.mark.parametrize("indexes", [(1, 0), (0, 0), (None, None), (None, 0), (3, 1)])
def test_a_whole_body_s_answer_is_its_lowest_index_or_first(indexes: tuple[int | None, ...]) -> None:
    given: list[ms.JSONObject] = [
        {"index": index, "message": {"content": text}, "finish_reason": "stop"}
        for index, text in zip(indexes, "ab", strict=True)
    ]
    response = decode({"choices": [*given]})
    texts = ["b", "a"] if indexes in ((1, 0), (3, 1)) else ["a", "b"]
    assert [choice.text for choice in response.choices] == texts
