"""What every stream machine does with cut bodies, the end, failures within a chunk, and members sent in pieces."""

import json
from collections.abc import Sequence
from typing import Any

import anthropic.types.beta
import pytest
from google.genai import types as google
from openai.types.chat import chat_completion_chunk
from openai.types.responses import ResponseStreamEvent

import manystream as ms
from manystream.providers.catalog.dialect import (
    NO_TARGET,
    StreamMachine,
    TakeValue,
    ValuesTarget,
    WireRequest,
    bearer_token,
)
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.json.json_values import JSONObject, dumps
from manystream.providers.model.events import ErrorEvent, Event, FinishReason, ToolCallDone
from manystream.providers.model.provider_error import ErrorCategory, ProviderError
from manystream.providers.model.response import Response
from manystream.providers.openai.chat import DIALECT
from manystream.providers.wire.answer_limits import AnswerLimits
from manystream.providers.wire.delta_template import DeltaTemplate, ValuesTemplate, VolatileMembers, learn, shared_bytes
from manystream.transport.sse import SSEParser
from tests.conformance.exchange import provider_for
from tests.conformance.official import union_members
from tests.support.dialects import DIALECTS as WORDINGS
from tests.support.dialects import Wording


def machine() -> StreamMachine:
    return DIALECT.machine(ms.OpenAIChat("k", "https://h.example/v1"), lambda: "id")


def chunk(text: str, reason: str = "null") -> bytes:
    body = '{"model":"m","id":"r","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":%s}]}'
    return (body % (text, reason)).encode()


def test_the_last_event_of_a_cut_body_counts_only_if_it_is_whole() -> None:
    whole = machine()
    assert list(whole.feed_last("", chunk("a"))) == [ms.Start("m", "r"), ms.TextDelta(0, "a")]
    assert list(whole.feed_last("", chunk("b")[:-1])) == []
    assert list(whole.feed_last("", chunk("c")[:40])) == []
    finished = machine()
    finished.feed("", chunk("a", '"stop"'))
    (done,) = finished.feed_last("", b" [DONE]")
    assert done.type is ms.EventType.DONE
    assert list(machine().feed_last("", b"[DONE")) == []


def test_nothing_follows_the_terminal_event() -> None:
    ended = machine()
    error = ms.ProviderError("m", category=ms.ErrorCategory.SERVER)
    assert list(ended.fail(error)) == [ms.ErrorEvent(error)]
    assert ended.ended
    assert list(ended.fail(error)) == list(ended.end()) == list(ended.feed("", chunk("a"))) == []


def test_a_delta_without_a_template_is_a_defect() -> None:
    with pytest.raises(AssertionError, match=r"^a delta was accepted without a template$"):
        NO_TARGET.accept("a")
    assert (NO_TARGET.pieces, machine().matched, machine().target) == ([], False, NO_TARGET)


class Block:
    def __init__(self) -> None:
        self.pieces: list[str] = ["a"]

    def accept(self, delta: object, /) -> ms.Event:
        self.pieces.append(str(delta))
        return ms.TextDelta(0, str(delta))


def test_values_beside_the_text_are_read() -> None:
    seen: list[tuple[str, ms.JSON, bytes]] = []
    block = Block()

    def reader(name: str) -> TakeValue:
        return lambda value, raw: seen.append((name, value, raw))

    target = ValuesTarget(block, [(2, reader("usage")), (0, reader("n"))])
    assert target.accept(("b", [1, "b", {"t": 3}], [b"1", b'"b"', b'{"t": 3}'])) == ms.TextDelta(0, "b")
    assert seen == [("usage", {"t": 3}, b'{"t": 3}'), ("n", 1, b"1")]
    assert target.pieces is block.pieces
    assert target.pieces == ["a", "b"]


# --- templates ---

PATH = ("d", "t")
NONE = VolatileMembers()
SOME = VolatileMembers(counter="n", padding=("p", "q"), values=(("u",), ("l", 0)))


def text_template(start: bytes, to_text: bytes, to_padding: bytes, end: bytes) -> DeltaTemplate:
    return DeltaTemplate("e", True, start, to_text, to_padding, end)


LEARNED: list[tuple[bytes, ms.JSON, VolatileMembers, object]] = [
    (b'{"d":{"t":"x"}}', {"d": {"t": "x"}}, NONE, text_template(b'{"d":{"t":', b"", b"", b"}}")),
    (b'{"n":12,"d":{"t":"x"},"p":"ab9"}', {"n": 12, "d": {"t": "x"}, "p": "ab9"}, SOME,
        text_template(b'{"n":', b'"d":{"t":', b'},"p":"', b'"}')),
    (b'{"n": 0,"d":{"t":"x"},"q": "Z"}', {"n": 0, "d": {"t": "x"}, "q": "Z"}, SOME,
        text_template(b'{"n": 0,"d":{"t":', b"", b'},"q": "', b'"}')),
    (b'{"d":{"t":"\\u00e9"}}', {"d": {"t": "é"}}, NONE, text_template(b'{"d":{"t":', b"", b"", b"}}")),
    (b'{"d":{"t":"x","o":"x"}}', {"d": {"t": "x", "o": "x"}}, NONE, None),
    (b'{"d":{"t":"x"}}', {"d": {"t": "y"}}, NONE, None),
    (b'{"d":{"t":"x"}}', {"d": ["x"]}, NONE, None),
    (b'{"o":"\\"","d":{"t":"x"}}', {"o": '"', "d": {"t": "x"}}, NONE,
        text_template(b'{"o":"\\"","d":{"t":', b"", b"", b"}}")),
    (b'{"d":{"t":"x"},"u":{"a":1},"n":3}', {"d": {"t": "x"}, "u": {"a": 1}, "n": 3}, SOME,
        ValuesTemplate("e", True, b'{"d":{"t":', (b'},"u":', b',"n":'), b"}", 0, ((1, "u"),))),
    (b'{"l":[5],"d" : {"t" : "x"}}', {"l": [5], "d": {"t": "x"}}, SOME, None),
    (b'{"u": true, "d": {"u": "x", "t": "u"}}', {"u": True, "d": {"u": "x", "t": "u"}}, SOME,
        ValuesTemplate("e", True, b'{"u": ', (b', "d": {"u": "x", "t": ',), b"}}", 1, ((0, "u"),))),
]  # fmt: skip


@pytest.mark.parametrize(("data", "value", "volatile", "template"), LEARNED)
def test_the_template_of_a_delta(data: bytes, value: ms.JSON, volatile: VolatileMembers, template: object) -> None:
    text = "é" if b"u00e9" in data else "u" if b'"t": "u"' in data else "x"
    assert learn("e", data, value, PATH, text, volatile) == template


OF_TOKENS: list[tuple[bytes, ms.JSON, tuple[str | int, ...], object]] = [
    (b'{"d":{"t":"x"},"u":[1]}', {"d": {"t": "x"}, "u": [1]}, PATH,
        ValuesTemplate("e", True, b'{"d":', (b',"u":',), b"}", 0, ((1, "u"),), True, "t")),
    (b'{"d":{"t":"x","o":1},"u":[1]}', {"d": {"t": "x", "o": 1}, "u": [1]}, PATH,
        ValuesTemplate("e", True, b'{"d":{"t":', (b',"o":1},"u":',), b"}", 0, ((1, "u"),), True)),
    (b'{"d":{},"u":[1]}', {"d": {}, "u": [1]}, (),
        ValuesTemplate("e", True, b'{"d":{},"u":', (), b"}", -1, ((0, "u"),), True)),
    (b'{"d":{},"u":[]}', {"d": {}, "u": []}, (), None),
]  # fmt: skip


@pytest.mark.parametrize(("data", "value", "path", "template"), OF_TOKENS)
def test_a_template_with_tokens(data: bytes, value: ms.JSON, path: tuple[str | int, ...], template: object) -> None:
    assert learn("e", data, value, path, "x" if path else "", SOME, tokens=True) == template


@pytest.mark.parametrize(("value", "text"), [
    (b'{"t":"y"}', "y"), (b'{"t":""}', ""), (b"{}", ""), (b'{"s":"y"}', None), (b'{"t":"y","s":1}', None),
    (b'{"t":5}', None), (b'"y"', None), (b"null", None), (b"[]", None),
])  # fmt: skip
def test_a_delta_of_tokens_may_have_no_text(value: bytes, text: str | None) -> None:
    template = ValuesTemplate("", True, b'{"d":', (b',"u":',), b"}", 0, ((1, "u"),), True, "t")
    found = template.match(b'{"d":' + value + b',"u":[7]}', template.start, template.end)
    assert (found and found[0]) == text
    without = ValuesTemplate("", True, b'{"u":', (), b"}", -1, ((0, "u"),), True)
    found = without.match(b'{"u":[7]}', without.start, without.end)
    assert (found[0], list(found[1])) == ("", [[7]])


MATCHED: list[tuple[bytes, str | None]] = [
    (b'{"n":7,"d":{"t":"y"},"p":"k0"}', "y"),
    (b'{"n":70,"d":{"t":"\\u00e9\\n"},"p":"k"}', "é\n"),
    (b'{"n":7,"d":{"t":""},"p":"k"}', ""),
    (b'{"n":07,"d":{"t":"y"},"p":"k"}', None),
    (b'{"n":0,"d":{"t":"y"},"p":"k"}', None),
    (b'{"n":-7,"d":{"t":"y"},"p":"k"}', None),
    (b'{"n":,"d":{"t":"y"},"p":"k"}', None),
    (b'{"m":7,"d":{"t":"y"},"p":"k"}', None),
    (b'{"n":7,"d":{"s":"y"},"p":"k"}', None),
    (b'{"n":7,"d":{"t":"y"},"p":"k-"}', None),
    (b'{"n":7,"d":{"t":"y"},"p":""}', None),
    (b'{"n":7,"d":{"t":"y"},"p":"k"]', None),
    (b'{"n":7,"d":{"t":5},"p":"k"}', None),
    (b'{"n":7,"d":{"t":"y","o":1},"p":"k"}', None),
    (b'{"n":7,"d":{"t":"\\ud83d"},"p":"k"}', None),
]


@pytest.mark.parametrize(("data", "text"), MATCHED)
def test_what_matches_a_template(data: bytes, text: str | None) -> None:
    template = text_template(b'{"n":', b'"d":{"t":', b'},"p":"', b'"}')
    assert template.match(data, template.start, template.end) == text
    framed = b"data: " + data + b"\n\n"
    assert template.match(framed, b"data: " + template.start, template.end + b"\n\n") == text


VALUES: list[tuple[bytes, object]] = [
    (b'{"t":"y","u":1}', ("y", ["y", 1], [b'"y"', b"1"])),
    (b'{"t":"y","u":{"a": [1, null]}}', ("y", ["y", {"a": [1, None]}], [b'"y"', b'{"a": [1, null]}'])),
    (b'{"t":"y","u":"x,\\"u\\":1"}', ("y", ["y", 'x,"u":1'], [b'"y"', b'"x,\\"u\\":1"'])),
    (b'{"t":"","u":1}', None),
    (b'{"t":5,"u":1}', None),
    (b'{"t":"y","u":}', None),
    (b'{"t":"y","u":\n1}', None),
    (b'{"t":"y","u":\r1}', None),
    (b'{"t":"y","v":1}', None),
    (b'{"s":"y","u":1}', None),
    (b'{"t":"y","u":1]', None),
]


@pytest.mark.parametrize(("data", "found"), VALUES)
def test_what_matches_a_template_of_values(data: bytes, found: object) -> None:
    template = ValuesTemplate("", True, b'{"t":', (b',"u":',), b"}", 0, ((1, "u"),))
    result = template.match(data, template.start, template.end)
    assert (result if result is None else (result[0], list(result[1]), list(result[2]))) == found
    three = ValuesTemplate("", True, b'{"t":', (b',"u":', b',"w":'), b"}", 0, ((1, "u"), (2, "w")))
    longer = data[:-1] + b',"w":[2]' + data[-1:]
    result = three.match(longer, three.start, three.end)
    if found is None:
        assert result is None
    else:
        assert (result[0], result[1][2], result[2][2]) == ("y", [2], b"[2]")


def test_short_equal_bytes_are_one_object() -> None:
    assert shared_bytes(b"x" * 1024, True) is shared_bytes(bytes([120] * 1024), True)
    long = bytes([120] * 1025)
    assert shared_bytes(long, True) is long
    assert shared_bytes(long[:9], False) is not shared_bytes(long[:9], False)


# --- dialects and their requests ---


def test_a_request_on_the_wire_has_these_defaults() -> None:
    assert WireRequest("/p", [], b"") == WireRequest("/p", [], b"", "POST", [], None, frozenset())


def test_the_key_is_a_bearer_token_without_a_profile_s_header() -> None:
    assert bearer_token(ms.OpenAIChat(), "k") == [("authorization", "Bearer k")]
    assert bearer_token(ms.OpenAIChat(), "") == []
    row = ms.Profile(name="p", dialect="openai-chat", base_url="", quirks=ms.Quirks(auth_header="api-key"))
    assert bearer_token(ms.OpenAIChat(profile=row), "k") == [("api-key", "k")]
    row = ms.Profile(name="p", dialect="openai-chat", base_url="", quirks=ms.Quirks(auth_header="Authorization"))
    assert bearer_token(ms.OpenAIChat(profile=row), "k") == [("Authorization", "Bearer k")]


MEMBERS = {"name": "d", "encode": print, "decode": print, "machine": print}


@pytest.mark.parametrize("name", ["name", "encode", "decode", "machine", "auth_headers", "decode_error"])
def test_a_dialect_is_made_of_a_name_and_functions(name: str) -> None:
    ms.Dialect(**MEMBERS)  # type: ignore[arg-type]
    for wrong in (" ", "", None, 7):
        with pytest.raises(ms.InvalidRequestError) as caught:
            ms.Dialect(**{**MEMBERS, name: wrong})  # type: ignore[arg-type]
        kind = "text that is not empty" if name == "name" else "a function"
        assert str(caught.value) == f"Dialect.{name}: must be {kind}, not {wrong!r}"
        assert caught.value.field == f"Dialect.{name}"
    assert repr(ms.Dialect(**MEMBERS)) == "Dialect(name='d')"  # type: ignore[arg-type]


CALL: JSONObject = {"functionCall": {"name": "look", "args": {"x": 1}}}
CHAT_CALL: JSONObject = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
ITEM_CALL: JSONObject = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
MESSAGE: JSONObject = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}

CHUNKS: dict[str, tuple[ms.Provider, JSONObject]] = {
    "chat, a malformed choice": (ms.OpenAIChat(api_key="k"),
        {"choices": [{"index": 0, "delta": {"content": "Hello"}}, {"index": 0, "delta": ["Hello"]}]}),
    "chat, malformed tool calls": (ms.OpenAIChat(api_key="k"),
        {"choices": [{"index": 0, "delta": {"content": "Hello", "tool_calls": "look"}}]}),
    "chat, too many tool calls": (ms.OpenAIChat(api_key="k"),
        {"choices": [{"index": 0, "delta": {"content": "Hello",
        "tool_calls": [{**CHAT_CALL, "index": index, "id": f"call_{index}"} for index in range(3)]}}]}),
    "gemini, too many tool calls": (ms.Gemini(api_key="k"),
        {"candidates": [{"content": {"parts": [{"text": "Hello"}, CALL, CALL, CALL]}}]}),
    "responses, too many tool calls": (ms.OpenAIResponses(api_key="k"),
        {"type": "response.completed", "response": {"status": "completed",
        "output": [MESSAGE, *({**ITEM_CALL, "call_id": f"call_{index}"} for index in range(3))]}}),
}  # fmt: skip


@pytest.mark.parametrize("name", CHUNKS)
def test_events_before_a_failure_are_delivered(name: str) -> None:
    provider, chunk = CHUNKS[name]
    machine = DIALECTS[provider.profile.dialect_name].machine(provider, lambda: "id", AnswerLimits(max_tool_calls=2))
    events = [*machine.feed("", dumps(chunk))]
    assert isinstance(events[-1], ms.ErrorEvent), events
    assert "".join(event.text for event in events if isinstance(event, ms.TextDelta)) == "Hello"
    assert machine.response().text == "Hello"
    started = [event for event in events if isinstance(event, ms.ToolCallStart)]
    assert len(started) == len(machine.response().tool_calls)
    assert machine.ended


def read(dialect: str, *events: Any) -> Response:
    machine = DIALECTS[dialect].machine(provider_for(dialect, "openai"), lambda: "made")
    for event in events:
        machine.feed("", json.dumps(event).encode())
    if dialect == "openai-chat":
        machine.feed("", b"[DONE]")
    machine.end()
    return machine.response()


def decode(dialect: str, body: Any) -> Response:
    return DIALECTS[dialect].decode(json.dumps(body).encode(), provider_for(dialect, "openai"), lambda: "made")


def chunk_member(index: int, text: str, *, finish: str | None = None, **members: Any) -> Any:
    return {"id": "c", "choices": [{"index": index, "delta": {"content": text}, "finish_reason": finish, **members}]}


VLLM = [
    {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": [1, 2]},
    chunk_member(0, "Hel", token_ids=[11, 12], stop_reason=None, logprobs={"content": [{"token": "Hel"}]}),
    chunk_member(1, "Sal", token_ids=[21], logprobs={"content": [{"token": "Sal"}]}),
    chunk_member(0, "lo", token_ids=[13], logprobs={"content": [{"token": "lo"}]}),
    chunk_member(1, "ut", token_ids=[22, 23], logprobs={"content": [{"token": "ut"}]}),
    chunk_member(0, "", token_ids=[14], finish="stop", stop_reason=7),
    chunk_member(1, "", token_ids=[24], finish="stop", stop_reason="\n"),
]


def test_every_choice_keeps_its_token_ids_and_logprobs() -> None:
    response = read("openai-chat", *VLLM)
    data, tokens = response.provider_data, response.tokens
    assert tokens.prompt_ids is not None
    assert ([*tokens.ids], [*tokens.prompt_ids]) == ([11, 12, 13, 14], [1, 2])
    assert data["stop_reason"] == 7
    assert data["logprobs"] == {"content": [{"token": "Hel"}, {"token": "lo"}]}
    (choice,) = response.others
    assert (choice.text, choice.finish_reason, [*choice.tokens.ids]) == ("Salut", FinishReason.STOP, [21, 22, 23, 24])
    assert [each.text for each in response.choices] == ["Hello", "Salut"]
    assert choice.provider_data == {
        "stop_reason": "\n", "logprobs": {"content": [{"token": "Sal"}, {"token": "ut"}]},
    }  # fmt: skip


def test_the_same_answer_unstreamed_keeps_the_same() -> None:
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop",
            "token_ids": ids,
            "stop_reason": stop,
            "logprobs": {"content": [{"token": piece} for piece in tokens]},
        }
        for index, text, ids, stop, tokens in (
            (0, "Hello", [11, 12, 13, 14], 7, ("Hel", "lo")),
            (1, "Salut", [21, 22, 23, 24], "\n", ("Sal", "ut")),
        )
    ]
    whole = decode("openai-chat", {"id": "c", "choices": choices, "prompt_token_ids": [1, 2]})
    assert whole == read("openai-chat", *VLLM)


def test_a_list_of_the_whole_chunk_is_replaced() -> None:
    # Perplexity repeats its sources in every chunk.
    first, second = chunk_member(0, "a"), chunk_member(0, "b", finish="stop")
    first["citations"], second["citations"] = ["u1"], ["u1", "u2"]
    assert read("openai-chat", first, second).provider_data["citations"] == ["u1", "u2"]


STOPPED = {"type": "abort", "message": "new weights", "status_code": None}


@pytest.mark.parametrize("word", ["abort", "ABORT", "aborted", "cancelled", STOPPED], ids=str)
def test_an_aborted_answer_is_an_error_that_keeps_the_answer(word: Any) -> None:
    call = {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a":'}}
    members: Any = {"token_ids": [11, 12], "logprobs": {"content": [{"token": "Hel"}]}, "finish_reason": word}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    machine = DIALECTS["openai-chat"].machine(provider_for("openai-chat", "vllm"), lambda: "made")
    machine.feed("", json.dumps(chunk_member(0, "Hel")).encode())
    machine.feed("", json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}).encode())
    machine.feed("", json.dumps({"choices": [{"index": 0, "delta": {}, **members}], "usage": usage}).encode())
    done, end = machine.feed("", b"[DONE]")
    assert done == ToolCallDone(1, complete=False)
    assert isinstance(end, ErrorEvent)
    assert (end.error.category, end.error.provider_code) == (ErrorCategory.SERVER, "aborted")
    assert not end.error.retryable
    response = machine.response()
    raw = word["type"] if isinstance(word, dict) else word
    assert (response.text, response.finish_reason, response.raw_finish_reason) == ("Hel", FinishReason.ABORTED, raw)
    assert [call.complete for call in response.tool_calls] == [False]
    assert (response.usage.output_tokens, [*response.tokens.ids]) == (2, [11, 12])
    message = {"content": "Hel", "tool_calls": [call]}
    with pytest.raises(ProviderError, match="stopped the answer before its end") as failed:
        decode("openai-chat", {"id": "c", "choices": [{"message": message, **members}], "usage": usage})
    assert failed.value == end.error
    assert failed.value.partial == response


def test_an_aborted_answer_of_another_dialect_keeps_its_answer() -> None:
    message = {"type": "message", "id": "r", "content": [{"type": "text", "text": "Hel"}], "stop_reason": "abort"}
    cancelled = {"id": "r", "status": "cancelled", "output": [MESSAGE_MEMBER]}
    for dialect, body, raw in (("anthropic", message, "abort"), ("openai-responses", cancelled, "cancelled")):
        with pytest.raises(ProviderError) as failed:
            decode(dialect, body)
        assert not failed.value.retryable
        partial = failed.value.partial
        assert (partial.text, partial.finish_reason, partial.raw_finish_reason) == ("Hel", FinishReason.ABORTED, raw)


PART = {"type": "text", "text": "Hel"}
GEMINI_PART = {"content": {"parts": [{"text": "Hel"}]}}
INCOMPLETE = {
    "id": "r", "status": "incomplete", "incomplete_details": {"reason": "server_error"},
    "output": [{"type": "message", "content": "Hel"}],
}  # fmt: skip
CHAT_WORDS = (
    "error", "ERROR", "insufficient_system_resource", "engine_failure", "MALFORMED_FUNCTION_CALL", "upstream_timeout",
    "rate_limit_exceeded", "repetition",
)  # fmt: skip
BROKEN: dict[str, tuple[str, Any, list[Any], str]] = {
    **{
        f"chat, {word}": (
            "openai-chat",
            {"id": "c", "choices": [{"message": {"content": "Hel"}, "finish_reason": word}]},
            [chunk_member(0, "Hel"), chunk_member(0, "", finish=word)],
            word,
        )
        for word in CHAT_WORDS
    },
    "anthropic": (
        "anthropic",
        {"type": "message", "id": "r", "content": [PART], "stop_reason": "error"},
        [{"type": "message_start", "message": {"id": "r"}},
         {"type": "content_block_start", "index": 0, "content_block": PART},
         {"type": "message_delta", "delta": {"stop_reason": "error"}}, {"type": "message_stop"}],
        "error",
    ),
    "gemini": (
        "gemini",
        {"responseId": "r", "candidates": [{**GEMINI_PART, "finishReason": "MALFORMED_RESPONSE"}]},
        [{"responseId": "r", "candidates": [GEMINI_PART]}, {"candidates": [{"finishReason": "MALFORMED_RESPONSE"}]}],
        "MALFORMED_RESPONSE",
    ),
    "responses": (
        "openai-responses", INCOMPLETE, [{"type": "response.incomplete", "response": INCOMPLETE}], "server_error",
    ),
    "interactions": (
        "gemini-interactions",
        {"id": "r", "status": "failed", "object": "interaction",
         "steps": [{"type": "model_output", "content": [PART]}]},
        [{"event_type": "interaction.created", "interaction": {"id": "r"}},
         {"event_type": "step.start", "index": 0, "step": {"type": "model_output", "content": [PART]}},
         {"event_type": "interaction.completed", "interaction": {"id": "r", "status": "failed"}}],
        "failed",
    ),
}  # fmt: skip
"""Dialect, whole answer, events of a stream, and the word that says that the generation broke."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_generation_that_broke_is_an_error_that_keeps_the_text(name: str) -> None:
    dialect, whole, events, word = BROKEN[name]
    with pytest.raises(ProviderError) as failed:
        decode(dialect, whole)
    error = failed.value
    assert (error.category, error.retryable, error.provider_code) == (ErrorCategory.SERVER, True, word)
    machine = DIALECTS[dialect].machine(provider_for(dialect, "openai"), lambda: "made")
    mark = [b"[DONE]"] if dialect == "openai-chat" else []
    sent = [*(json.dumps(data).encode() for data in events), *mark]
    *_, end = [event for data in sent for event in machine.feed("", data)] + [*machine.end()]
    assert end == ErrorEvent(error)
    partial = machine.response()
    assert partial == error.partial
    assert (partial.text, partial.raw_finish_reason, partial.finish_reason) == ("Hel", word, FinishReason.ERROR)


def test_an_answer_that_repeated_itself_is_not_to_be_trusted() -> None:
    call = {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a":["b","b","b"'}}
    whole = {"id": "c", "choices": [{"message": {"tool_calls": [call]}, "finish_reason": "repetition"}]}
    with pytest.raises(ProviderError, match="repetition") as failed:
        decode("openai-chat", whole)
    response = failed.value.partial
    assert (response.finish_reason, response.raw_finish_reason) == (FinishReason.ERROR, "repetition")
    assert [call.complete for call in response.tool_calls] == [False]


MESSAGE_MEMBER = {"type": "message", "content": "Hel"}

FAILURES: dict[str, tuple[str, Any]] = {
    "chat": ("openai-chat", {"id": "r", "choices": [{"message": {"content": "Hel"},
        "error": {"code": 502, "message": "gone"}}]}),
    "responses, failed": ("openai-responses", {"id": "r", "status": "failed",
        "output": [{"type": "message", "content": "Hel"}], "error": {"message": "gone"}}),
    "responses, cancelled": ("openai-responses", {"id": "r", "status": "cancelled", "output": [MESSAGE_MEMBER]}),
    "gemini": ("gemini", [{"responseId": "r", "candidates": [{"content": {"parts": [{"text": "Hel"}]}}]},
        {"error": {"code": 503}}]),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_a_whole_answer_that_failed_keeps_what_came(name: str) -> None:
    with pytest.raises(ProviderError) as failed:
        decode(*FAILURES[name])
    assert (failed.value.partial.text, failed.value.partial.id) == ("Hel", "r")


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("openai-chat", {"error": {"message": "gone"}, "request_id": "q"}),
        ("openai-responses", {"error": {"message": "gone"}}),
        ("anthropic", {"type": "error", "error": {"type": "overloaded_error"}}),
        ("gemini", {"error": {"code": 503}}),
    ],
)
def test_an_error_alone_keeps_nothing(dialect: str, body: Any) -> None:
    with pytest.raises(ProviderError) as failed:
        decode(dialect, body)
    assert failed.value.partial is None


def gemini_chunk(index: int, token: str, **members: Any) -> Any:
    candidate = {
        "index": index, "content": {"parts": [{"text": token}]},
        "logprobsResult": {"chosenCandidates": [{"token": token}], "topCandidates": [{"candidates": []}]},
        "citationMetadata": {"citations": [{"uri": token}]}, **members,
    }  # fmt: skip
    return {"candidates": [candidate]}


def test_other_gemini_candidates_are_merged_like_the_first() -> None:
    events = [gemini_chunk(index, token) for token in ("a", "b") for index in (0, 1)]
    events.append({"candidates": [{"index": index, "finishReason": "STOP"} for index in (0, 1)]})
    data = read("gemini", *events).provider_data
    (other,) = data["candidates"]  # type: ignore[misc,union-attr]
    for name in ("logprobsResult", "citationMetadata"):
        assert other[name] == data[name]  # type: ignore[index,call-overload]
    assert data["logprobsResult"]["chosenCandidates"] == [{"token": "a"}, {"token": "b"}]  # type: ignore[index,call-overload]


def test_log_probabilities_that_only_the_deltas_have_are_kept() -> None:
    def delta(text: str) -> Any:
        return {
            "type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text,
            "logprobs": [{"token": text, "logprob": -0.5}],
        }  # fmt: skip

    end = {"type": "response.completed", "response": {"status": "completed"}}
    # Equal events, as for a repeated word: each has its own log probabilities.
    response = read("openai-responses", *map(delta, ["ha", "ha", "ha", "!"]), end)
    assert response.text == "hahaha!"
    tokens = [token["token"] for token in response.provider_data["logprobs"]]  # type: ignore[index,union-attr,call-overload]
    assert tokens == ["ha", "ha", "ha", "!"]


def lists_of(model: Any) -> set[str]:
    return {name for name, field in model.model_fields.items() if "list[" in str(field.annotation).lower()}


EXTENDED = {"citations", "citation_sources", "chosen_candidates", "top_candidates"}
"""Gemini's lists of which each chunk has only the new elements."""


def test_every_list_of_the_sdks_is_merged_or_replaced() -> None:
    chat = chat_completion_chunk
    assert lists_of(chat.ChatCompletionChunk) == {"choices"}
    assert lists_of(chat.Choice) == set()
    assert lists_of(chat.ChoiceDelta) == {"tool_calls"}
    assert lists_of(chat.ChoiceLogprobs) == {"content", "refusal"}
    assert lists_of(google.LogprobsResult) | lists_of(google.CitationMetadata) <= EXTENDED
    # These come whole, in one chunk or in each.
    assert lists_of(google.Candidate) == {"safety_ratings"}
    assert lists_of(google.UrlContextMetadata) == {"url_metadata"}
    deltas = union_members(anthropic.types.beta.BetaRawContentBlockDelta)
    assert [model.__name__ for model in deltas if lists_of(model)] == []
    with_lists = {model.__name__: lists_of(model) for model in union_members(ResponseStreamEvent) if lists_of(model)}
    assert with_lists == {
        "ResponseTextDeltaEvent": {"logprobs"},
        "ResponseTextDoneEvent": {"logprobs"},
        # The progress of a tool that the server runs. Its item comes whole.
        "ResponseShellCallOutputContentDoneEvent": {"output"},
    }


def feed(wording: Wording, wire: Sequence[tuple[str, bytes]], *, last: bool = False) -> list[Event]:
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
    assert isinstance(failed, ErrorEvent)
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
