"""Whole numbers of any size are unchanged in every dialect, in requests and answers.

A number that Python cannot represent is kept as text, and refused in a request.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.history import History, HistoryMessage, ToolCallPart, ToolCallResult, ToolResultPart
from manystream.providers.history.view import messages_of
from manystream.providers.json import json_values
from manystream.providers.json.exact_numbers import UnrepresentableNumber
from manystream.providers.json.json_values import (
    MalformedJSONError,
    arguments_text,
    dumps,
    exact_loads,
    integer,
    loads_object,
    representable_loads,
)
from manystream.providers.model.structured import parse_structured
from tests.conformance.exchange import provider_for

BIG = 123456789012345678901234567890
BELOW = -(2**63) - 1
ARGUMENTS = {"n": BIG, "deep": {"list": [BELOW, 2**64, 2**64 - 1, 1.5, "123456789012345678901234567890"]}}
OBJECT = json.dumps(ARGUMENTS)
QUOTED = json.dumps(OBJECT)

MODELS = {
    "openai-chat": "gpt-5", "openai-responses": "gpt-5", "anthropic": "claude-sonnet-4-5", "gemini": "gemini-2.5-flash",
}  # fmt: skip


def events(*data: str) -> bytes:
    return "".join(f"data: {event}\n\n" for event in data).encode()


RESPONSES_CALL = '{"type":"function_call","id":"f","call_id":"c","name":"look","status":"completed","arguments":%s}'
RESPONSES_WHOLE = '{"id":"r","status":"completed","model":"m","output":[%s]}'
CHAT_CALL = '{"index":0,"id":"c","type":"function","function":{"name":"look","arguments":%s}}'
GEMINI = '{"candidates":[{"content":{"parts":[{"functionCall":{"name":"look",%s}}]},"finishReason":"STOP"}]}'
LEGACY_CALL = '{"name":"look","arguments":%s}'
INPUT_DELTA = '{"type":"input_json_delta","partial_json":%s}'
TOOL_USE = '{"type":"tool_use","id":"c","name":"look","input":%s}'
MESSAGE = '{"type":"message","model":"m","content":[%s],"stop_reason":"tool_use","usage":{}}'
CHAT_END = '{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}'
ANTHROPIC_START = '{"type":"message_start","message":{"content":[],"usage":{}}}'
ANTHROPIC_END = ('{"type":"message_delta","delta":{"stop_reason":"tool_use"}}', '{"type":"message_stop"}')

ANSWERS: dict[str, tuple[str, bool, bytes]] = {
    "chat": ("openai-chat", False,
        ('{"choices":[{"message":{"tool_calls":[%s]},"finish_reason":"tool_calls"}]}' % (CHAT_CALL % QUOTED)).encode()),
    "chat, an object": ("openai-chat", False,
        ('{"choices":[{"message":{"tool_calls":[%s]},"finish_reason":"tool_calls"}]}' % (CHAT_CALL % OBJECT)).encode()),
    "chat stream": ("openai-chat", True,
        events('{"choices":[{"index":0,"delta":{"tool_calls":[%s]}}]}' % (CHAT_CALL % QUOTED), CHAT_END, "[DONE]")),
    "chat stream, an object": ("openai-chat", True,
        events('{"choices":[{"index":0,"delta":{"tool_calls":[%s]}}]}' % (CHAT_CALL % OBJECT), CHAT_END, "[DONE]")),
    "chat stream, an object beside text": ("openai-chat", True,
        events('{"choices":[{"index":0,"delta":{"content":"Look."}},{"index":0,"delta":{"tool_calls":[%s]}}]}'
        % (CHAT_CALL % OBJECT), CHAT_END, "[DONE]")),
    "chat stream, an object in a whole message": ("openai-chat", True,
        events('{"choices":[{"index":0,"message":{"tool_calls":[%s]}}]}' % (CHAT_CALL % OBJECT), CHAT_END, "[DONE]")),
    "chat stream, a legacy object": ("openai-chat", True,
        events('{"choices":[{"index":0,"delta":{"function_call":%s}}]}' % (LEGACY_CALL % OBJECT), CHAT_END, "[DONE]")),
    "responses": ("openai-responses", False, (RESPONSES_WHOLE % (RESPONSES_CALL % QUOTED)).encode()),
    "responses, an object": ("openai-responses", False, (RESPONSES_WHOLE % (RESPONSES_CALL % OBJECT)).encode()),
    "responses stream, an object": ("openai-responses", True,
        events('{"type":"response.output_item.done","output_index":0,"item":%s}' % (RESPONSES_CALL % OBJECT),
        '{"type":"response.completed","response":{"status":"completed"}}')),
    "responses stream, an object at the end": ("openai-responses", True,
        events('{"type":"response.completed","response":%s}' % (RESPONSES_WHOLE % (RESPONSES_CALL % OBJECT)))),
    "anthropic": ("anthropic", False, (MESSAGE % (TOOL_USE % OBJECT)).encode()),
    "anthropic stream": ("anthropic", True,
        events(ANTHROPIC_START, '{"type":"content_block_start","index":0,"content_block":%s}' % (TOOL_USE % "{}"),
        '{"type":"content_block_delta","index":0,"delta":%s}' % (INPUT_DELTA % QUOTED), *ANTHROPIC_END)),
    "anthropic stream, whole at the start": ("anthropic", True,
        events(ANTHROPIC_START, '{"type":"content_block_start","index":0,"content_block":%s}' % (TOOL_USE % OBJECT),
        *ANTHROPIC_END)),
    "anthropic stream, resumed": ("anthropic", True,
        events('{"type":"message_start","message":{"content":[%s],"usage":{}}}' % (TOOL_USE % OBJECT), *ANTHROPIC_END)),
    "gemini": ("gemini", False, (GEMINI % f'"args":{OBJECT}').encode()),
    "gemini, an array": ("gemini", False, ("[%s]" % (GEMINI % f'"args":{OBJECT}')).encode()),
    "gemini stream": ("gemini", True, events(GEMINI % f'"args":{OBJECT}')),
}  # fmt: skip


def read(dialect: str, stream: bool, body: bytes) -> ms.Response:
    numbers = itertools.count(1)
    provider = provider_for(dialect, "openai")
    if not stream:
        return DIALECTS[dialect].decode(body, provider, lambda: f"made-{next(numbers)}")
    machine = DIALECTS[dialect].machine(provider, lambda: f"made-{next(numbers)}")
    for event in body.decode().split("\n\n"):
        if event:
            machine.feed("", event.removeprefix("data: ").encode())
    machine.end()
    assert machine.ended
    return machine.response()


def sent(dialect: str, *messages: ms.Message, **options: Any) -> Any:
    """Return the body of a request, parsed by Python's own parser."""
    request = ms.Request(MODELS[dialect], messages, **options)
    return json.loads(
        DIALECTS[dialect].encode(request, MODELS[dialect], provider_for(dialect, "openai"), stream=False).body
    )


def everywhere(value: Any) -> list[Any]:
    """Return every value inside a value, and inside text that is JSON."""
    if isinstance(value, str) and value[:1] == "{":
        value = json.loads(value)
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(inner for member in members for inner in everywhere(member))]


def strings(value: Any) -> list[str]:
    """Return every text inside a value."""
    if isinstance(value, str):
        return [value]
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for member in members for text in strings(member)]


def asked(call: ms.ToolCall) -> tuple[ms.Message, ms.Message, ms.Message]:
    return ms.Message.user("Look."), ms.Message.assistant(call), ms.Message.tool_result(call.id, "seen")


@pytest.mark.parametrize("name", ANSWERS)
def test_a_call_s_whole_numbers_are_exact(name: str) -> None:
    (call,) = read(*ANSWERS[name]).tool_calls
    assert call.parsed == ARGUMENTS
    assert json.loads(call.arguments) == ARGUMENTS
    assert [type(value) for value in call.parsed["deep"]["list"]] == [int, int, int, float, str]  # type: ignore[index,call-overload]


@pytest.mark.parametrize("target", MODELS)
@pytest.mark.parametrize("name", ["chat", "responses", "anthropic stream", "gemini"])
def test_they_are_exact_when_sent_to_another_provider(name: str, target: str) -> None:
    (call,) = read(*ANSWERS[name]).tool_calls
    assert ARGUMENTS in everywhere(sent(target, *asked(call)))


@pytest.mark.parametrize("dialect", MODELS)
def test_they_are_exact_in_schemas_results_and_extra_members(dialect: str) -> None:
    property_schema = {"type": "integer", "description": "n", "enum": [BIG, BELOW]}
    schema = {"type": "object", "properties": {"n": property_schema}, "required": ["n"], "additionalProperties": False}
    result = json.dumps({"n": BIG})
    body = sent(
        dialect, ms.Message.user("Look."), ms.Message.assistant(ms.ToolCall("c", "look", "{}")),
        ms.Message.tool_result("c", result), tools=[ms.Tool("look", parameters=schema)], response_schema=schema,
        extra_body={"extra": {"n": [BIG]}},
    )  # fmt: skip
    found = everywhere(body)
    assert found.count([BIG, BELOW]) == 2
    assert {"n": [BIG]} in found
    assert {"n": BIG} in found


@pytest.mark.parametrize("dialect", MODELS)
def test_they_are_exact_in_a_conversation_of_several_segments(dialect: str) -> None:
    conversation = ms.Conversation()
    for turn in range(20):
        for message in asked(ms.ToolCall(f"c{turn}", "look", OBJECT)):
            conversation.add(message)
    for _ in range(2):
        conversation.add(ms.Message.user("And now?"))
        request = conversation.request(MODELS[dialect], extra_body={"extra": BIG})
        wire = DIALECTS[dialect].encode(request, MODELS[dialect], provider_for(dialect, "openai"), stream=True)
        found = everywhere(json.loads(wire.body))
        assert found.count(ARGUMENTS) == 20
        assert BIG in found


def test_they_are_exact_in_a_structured_answer() -> None:
    response = ms.Response(content=[ms.Text(f'{{"n": {BIG}}}')])
    assert parse_structured(response, {"type": "object", "properties": {"n": {"type": "integer"}}}) == {"n": BIG}


def test_they_are_exact_while_arguments_are_still_arriving() -> None:
    parser = ms.PartialJSON()
    parser.feed(f'{{"n": {str(BIG)[:20]}')
    parser.feed(f"{str(BIG)[20:]}, ")
    assert parser.value == {"n": BIG}


HUGE = "9" * 5000
UNREPRESENTABLE = ["1e400", "-1E+0400", HUGE, f"{'9' * 300}e10"]


def with_number(number: str) -> str:
    return f'{{"a": 1, "deep": {{"list": [true, {number}]}}}}'


@pytest.mark.parametrize("number", UNREPRESENTABLE, ids=["exponent", "negative", "digits", "both"])
@pytest.mark.parametrize("name", ANSWERS)
def test_arguments_keep_a_number_that_python_cannot_hold_as_text(name: str, number: str) -> None:
    dialect, stream, body = ANSWERS[name]
    text = with_number(number)
    body = body.replace(QUOTED.encode(), json.dumps(text).encode()).replace(OBJECT.encode(), text.encode())
    (call,) = read(dialect, stream, body).tool_calls
    assert call.arguments.replace(" ", "") == text.replace(" ", "")
    with pytest.raises(MalformedJSONError, match=r"deep\.list\[1\] is -?[19]"):
        call.parsed  # noqa: B018


NOT_JSON = ["NaN", "Infinity", "-Infinity"]


@pytest.mark.parametrize("number", [*UNREPRESENTABLE, *NOT_JSON], ids=lambda number: number[:10])
@pytest.mark.parametrize("dialect", MODELS)
def test_a_history_with_such_arguments_is_sent_with_their_text(dialect: str, number: str) -> None:
    text = with_number(number)
    with pytest.raises(MalformedJSONError, match=r"deep\.list\[1\] is -?[19NI]"):
        ms.ToolCall("c", "look", text).parsed  # noqa: B018
    body = sent(dialect, *asked(ms.ToolCall("c", "look", text)))
    assert text in strings(body)


@pytest.mark.parametrize("dialect", MODELS)
def test_such_a_number_outside_arguments_is_refused_by_its_path(dialect: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as refused:
        sent(dialect, ms.Message.user("Look."), extra_body={"extra": {"n": [1, 10**5000]}})
    assert refused.value.field == "extra.n[1]"


@pytest.mark.parametrize("number", NOT_JSON)
def test_a_history_with_such_a_number_keeps_it(number: str) -> None:
    """Python's parser makes floats of them, in a history that a program has read itself."""
    value: Any = {"a": None, "b": [float(number)]}
    parts = [ToolCallPart("c", "look", value), ToolResultPart("c", "look", ToolCallResult.ok(value))]
    history = History(None, None, [HistoryMessage("model", parts[:1]), HistoryMessage("tool", parts[1:])])
    call, result = [message.content[0] for message in messages_of(history)]
    assert isinstance(call, ms.ToolCall)
    assert call.arguments == f'{{"a":null,"b":[{number}]}}'
    assert number in str(result)


NO_JSON = [float("nan"), float("inf"), float("-inf")]


@pytest.mark.parametrize("number", NO_JSON)
@pytest.mark.parametrize("dialect", MODELS)
def test_an_option_that_json_does_not_have_is_refused(dialect: str, number: float) -> None:
    """orjson writes such a number as null, which is another option."""
    for place, option in (("extra.maximum", {"extra": {"maximum": number}}), ("maximum", {"maximum": number})):
        with pytest.raises(ms.InvalidRequestError, match=f"^{place}: {number!r} cannot be written as JSON$"):
            sent(dialect, ms.Message.user("Look."), extra_body=option)


@pytest.mark.parametrize("number", NO_JSON)
def test_a_schema_that_json_does_not_have_is_refused(number: float) -> None:
    schema: Any = {"type": "object", "properties": {"size": {"type": "number", "enum": [None, number]}}}
    with pytest.raises(
        ms.InvalidRequestError, match=r"^parameters\.properties\.size\.enum\[1\]: .* cannot be written as"
    ):
        ms.Tool("look", "", schema)
    with pytest.raises(
        ms.InvalidRequestError, match=r"^tools\[0\]\.parameters\.properties\.size\.enum\[1\]: JSON cannot"
    ):
        ms.Request("m", "Look.", tools=[{"name": "look", "parameters": schema}])


@pytest.mark.parametrize("dialect", MODELS)
def test_null_in_an_option_is_sent(dialect: str) -> None:
    body = sent(dialect, ms.Message.user("null"), extra_body={"extra": {"n": [1, None], "m": "null"}, "last": None})
    assert (body["extra"], body["last"]) == ({"n": [1, None], "m": "null"}, None)


@pytest.mark.parametrize("text", ['{"n": "1e400"}', '{"n": "' + HUGE + '"}', '{"n": 1e400', '{"n": 1e300}'])
@pytest.mark.parametrize("dialect", MODELS)
def test_text_that_resembles_such_a_number_is_sent(dialect: str, text: str) -> None:
    body = sent(dialect, *asked(ms.ToolCall("c", "look", text)))
    assert "look" in json.dumps(body)


def test_such_a_number_in_a_structured_answer_is_an_error() -> None:
    response = ms.Response(content=[ms.Text('{"n": [1e400]}')])
    with pytest.raises(ms.ProviderError, match=r"n\[0\] is 1e400"):
        parse_structured(response, {"type": "object"})


def test_nan_in_arguments_is_kept_as_text() -> None:
    body = (GEMINI % '"args":{"n":NaN}').encode()
    (call,) = read("gemini", False, body).tool_calls
    assert call.arguments == '{"n":NaN}'
    for target in MODELS:
        assert '{"n":NaN}' in strings(sent(target, *asked(call)))


def test_the_exact_writer_refuses_what_the_serialiser_refuses() -> None:
    for wrong in ({"n": BIG, "x": object()}, {"n": BIG, 1: 2}):
        with pytest.raises(TypeError):
            dumps(wrong)
    circle: list[Any] = [BIG]
    circle.append(circle)
    with pytest.raises(TypeError):
        dumps(circle)
    assert dumps({"é": [BIG, None, True, "\n", 0.5, ()]}) == f'{{"é":[{BIG},null,true,"\\n",0.5,[]]}}'.encode()


def test_a_number_that_python_cannot_hold_has_a_short_name() -> None:
    number = exact_loads(HUGE)
    assert isinstance(number, UnrepresentableNumber)
    assert repr(number) == f"UnrepresentableNumber({'9' * 20}… (5000 characters))"
    assert arguments_text([number]) == f"[{HUGE}]"
    assert loads_object(f'{{"n": {BIG}}}') == {"n": BIG}
    assert representable_loads(str(BIG)) == BIG


@pytest.mark.parametrize("depth", [200, 300, 600, 1000, 5000])
@pytest.mark.parametrize("name", [name for name in ANSWERS if "stream" in name])
def test_deep_arguments_with_such_numbers_are_read_or_refused(name: str, depth: int) -> None:
    dialect, stream, body = ANSWERS[name]
    text = f'{{"a": {"[" * depth}{BIG}, 1e400{"]" * depth}}}'
    body = body.replace(QUOTED.encode(), json.dumps(text).encode()).replace(OBJECT.encode(), text.encode())
    for call in read(dialect, stream, body).tool_calls:
        if not call.complete or not call.arguments:
            continue
        with pytest.raises(MalformedJSONError):
            call.parsed  # noqa: B018
        for target in MODELS:
            try:
                sent(target, *asked(call))
            except ms.InvalidRequestError:
                pass


@pytest.mark.parametrize(
    ("number", "read"),
    [
        ("-9223372036854775808", -9223372036854775808),
        ("-9223372036854775809", None),
        ("18446744073709551615", 18446744073709551615),
        ("18446744073709551616", None),
        ("12.0", 12),
        ("1e300", None),
        ("12.5", None),
        ("true", None),
    ],
)
def test_a_whole_number_of_an_answer_has_at_most_64_bits(number: str, read: int | None) -> None:
    assert integer({"n": json.loads(number)}, "n") == read


def test_an_id_that_looks_like_a_number_is_not_parsed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(data: bytes | str, note_half: object = None) -> object:
        raise AssertionError(data)

    monkeypatch.setattr(json_values, "_loads_leniently", refuse)
    text = b'{"id": "chatcmpl-7e4124fa", "created": 1, "said": "\\"9e999 12345678901234567890"}'
    assert json_values.loads_object(text)["id"] == "chatcmpl-7e4124fa"
    assert json_values.representable_loads(text.decode()) == json_values.loads(text)
    with pytest.raises(AssertionError):
        json_values.loads_object(b'{"id": "a", "n": 1e400}')


PROBABILITY = "-0.1234567890123456789"
TOKEN = f'{{"token":"a","logprob":{PROBABILITY},"top_logprobs":[{{"token":"b","logprob":-1.7976931348623157e+308}}]}}'
TOKENS = ",".join([TOKEN] * 5000)
LARGEST = '{"n":18446744073709551615,"m":-9223372036854775808,"o":1234567890123456789012.5}'
BESIDE = f'{{"type":"other","logprobs":[{TOKENS}]}}'
LOGPROBS = {
    "openai-chat": f'{{"choices":[{{"message":{{"tool_calls":[{CHAT_CALL % LARGEST}]}},"logprobs":{BESIDE}}}]}}',
    "openai-responses": RESPONSES_WHOLE % f"{RESPONSES_CALL % LARGEST},{BESIDE}",
    "anthropic": MESSAGE % f"{TOOL_USE % LARGEST},{BESIDE}",
    "gemini": (GEMINI % f'"args":{LARGEST}').removesuffix("}]}") + f',"logprobsResult":{BESIDE}}}]}}',
}
"""Answers with many numbers that a slower parser would read no better."""


@pytest.mark.parametrize("dialect", LOGPROBS)
def test_long_fractions_do_not_send_a_body_to_the_slow_parser(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slow: list[int] = []
    leniently = json_values._loads_leniently

    def count(data: bytes | str, note_half: Any = None) -> Any:
        slow.append(len(data))
        return leniently(data, note_half)

    monkeypatch.setattr(json_values, "_loads_leniently", count)
    response = read(dialect, False, LOGPROBS[dialect].encode())
    assert slow == []
    assert str(float(PROBABILITY)) in str(response)
    assert response.tool_calls[0].parsed == json.loads(LARGEST)
    exact = LOGPROBS[dialect].replace(PROBABILITY, str(BIG), 1)
    assert str(BIG) in str(read(dialect, False, exact.encode()))
    assert slow == [len(exact)]
