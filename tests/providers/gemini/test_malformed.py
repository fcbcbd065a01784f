"""Bodies that no server should send, and limits on an answer: an answer or a typed error, never another exception."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import manystream as ms
from manystream.providers.gemini import DIALECT
from manystream.providers.wire.answer_limits import AnswerLimits
from tests.providers.gemini.wire import PROVIDER, Ids, decode, part_chunk, run, stream_bytes, text_chunk

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""No deadline, because the machine may be busy."""


@pytest.mark.parametrize(
    "data", [b"{", b"nonsense", b'{"candidates": [', b"5", b'"text"', b"[[{}]]", b"\xff\xfe", b"true"]
)
def test_an_event_that_is_no_chunk_is_an_error_that_quotes_it(data: bytes) -> None:
    machine = DIALECT.machine(PROVIDER, Ids())
    (event,) = machine.feed("", data)
    error = getattr(event, "error", None)
    assert isinstance(error, ms.ProviderError)
    assert (error.category, error.retryable, error.body) == (ms.ErrorCategory.SERVER, False, data)
    assert data.decode("utf-8", "replace")[:4] in error.message
    assert machine.ended


UNREADABLE: dict[str, tuple[Any, str]] = {
    "candidates": ({"candidates": {"index": 1}}, "candidates is no array"),
    "a candidate": ({"candidates": ["hello"]}, "candidates contains a value that is no object"),
    "content": ({"candidates": [{"content": "hello", "finishReason": "STOP"}]}, "content is no object"),
    "parts": ({"candidates": [{"content": {"parts": {"text": "hello"}}}]}, "parts is no array"),
    "a part": ({"candidates": [{"content": {"parts": ["hello"]}}]}, "parts contains a value that is no object"),
    "a text": ({"candidates": [{"content": {"parts": [{"text": 5}]}}]}, "a text is no string"),
}


@pytest.mark.parametrize(("chunk", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_content_of_another_form_is_an_error(chunk: Any, reason: str) -> None:
    answer = run([stream_bytes(text_chunk("a"), chunk)])
    assert answer.error.error.message.startswith(f"{reason} in Gemini's answer: ")
    assert answer.response.text == "a"
    with pytest.raises(ms.ProviderError, match=f"{reason} in Gemini's answer: "):
        decode(chunk)


@pytest.mark.parametrize("empty", [None, "", [], {}], ids=str)
def test_an_empty_content_of_any_form_has_no_blocks(empty: object) -> None:
    for candidate in ({"content": empty}, {"content": {"parts": empty}}):
        answer = decode({"candidates": [{**candidate, "finishReason": "MAX_TOKENS"}]})
        assert (answer.content, answer.raw_finish_reason) == ([], "MAX_TOKENS")


@pytest.mark.parametrize(
    "body",
    [{"id": "c", "object": "chat.completion"}, {"response": {"id": 1}}, {"status": "ok"}],
    ids=["nothing of an answer", "a wrapper", "another service"],
)
def test_an_object_without_an_answers_members_is_an_error(body: Any) -> None:
    with pytest.raises(ms.ProviderError, match="the answer is no GenerateContentResponse: "):
        decode(body)


def test_the_quote_is_bounded() -> None:
    machine = DIALECT.machine(PROVIDER, Ids())
    (event,) = machine.feed("", b"x" * 100_000)
    error = getattr(event, "error", None)
    assert isinstance(error, ms.ProviderError)
    assert len(error.message) < 1000
    assert len(error.body) == 4096


MEMBERS = [
    "candidates", "content", "parts", "text", "thought", "thoughtSignature", "functionCall", "name", "args", "id",
    "partialArgs", "willContinue", "jsonPath", "stringValue", "numberValue", "inlineData", "fileData", "mimeType",
    "data", "fileUri", "finishReason", "index", "usageMetadata", "promptTokenCount", "candidatesTokenCount",
    "thoughtsTokenCount", "totalTokenCount", "promptFeedback", "blockReason", "error", "code", "status", "message",
    "details", "modelVersion", "responseId", "citationMetadata", "citations", "logprobsResult", "chosenCandidates",
    "executableCode", "groundingMetadata", "role", "safetyRatings", "retryDelay", "violations", "quotaId",
]  # fmt: skip
VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["STOP", "MAX_TOKENS", "$.a", "$.a[1]", "image/png", "iVBORw==", "f", "UNAVAILABLE", "1s"])
)  # fmt: skip
WRONG = st.recursive(
    VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=5),
    max_leaves=25,
)


def members(**strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=strategies)


PART = WRONG | members(
    text=st.text(max_size=3) | WRONG,
    thought=st.booleans(),
    thoughtSignature=st.text(max_size=2) | WRONG,
    functionCall=WRONG
    | members(
        name=st.sampled_from(["f", "g", ""]) | WRONG,
        args=WRONG,
        id=st.sampled_from(["i", "j"]) | WRONG,
        willContinue=st.booleans() | WRONG,
        partialArgs=st.lists(
            members(
                jsonPath=st.sampled_from(["$.a", "$.b[0]", "$.b[1].c", "$", "$.a.b"]) | WRONG,
                stringValue=st.text(max_size=2) | WRONG,
                numberValue=WRONG,
                willContinue=st.booleans(),
            ),
            max_size=3,
        )
        | WRONG,
    ),
    inlineData=WRONG,
    fileData=WRONG,
    executableCode=WRONG,
)
CHUNK = WRONG | members(
    candidates=WRONG
    | st.lists(
        members(
            content=WRONG | members(parts=WRONG | st.lists(PART, max_size=3)),
            finishReason=st.sampled_from(["STOP", "MAX_TOKENS", "SAFETY", 1]) | WRONG,
            index=st.integers(0, 2) | WRONG,
            citationMetadata=WRONG,
            logprobsResult=WRONG,
        ),
        max_size=2,
    ),
    usageMetadata=WRONG,
    promptFeedback=WRONG,
    error=WRONG,
    modelVersion=WRONG,
)


@PATIENT
@given(st.lists(CHUNK, max_size=4), st.binary(max_size=20))
def test_arbitrary_json_never_raises_and_keeps_the_order(chunks: list[Any], stray: bytes) -> None:
    answer = run([stream_bytes(*chunks), stray])
    assert answer.events
    answer.response.to_message()


@PATIENT
@given(CHUNK)
def test_an_arbitrary_body_is_an_answer_or_a_provider_error(body: Any) -> None:
    try:
        response = DIALECT.decode(json.dumps(body).encode(), PROVIDER, Ids())
    except ms.ProviderError:
        return
    assert all(isinstance(call.parsed, dict) for call in response.tool_calls if call.complete)


@PATIENT
@given(st.binary(max_size=60))
def test_arbitrary_bytes_never_raise(body: bytes) -> None:
    assert run([body]).events
    assert DIALECT.decode_error(400, {}, body, 0.0).category is ms.ErrorCategory.INVALID_ARG


@PATIENT
@given(CHUNK, st.integers(0, 600))
def test_an_arbitrary_error_body_never_raises(body: Any, status: int) -> None:
    data = json.dumps(body).encode()
    error = DIALECT.decode_error(status, {"retry-after": "x"}, data, 0.0)
    assert error.message
    assert error.http_status == status or status < 400
    assert error.retry_after_ms >= -1
    assert error.body == data[:4096]
    # No body of this kind has a reason that takes precedence over these statuses.
    expected = {400: ms.ErrorCategory.INVALID_ARG, 401: ms.ErrorCategory.AUTH, 404: ms.ErrorCategory.NOT_FOUND}
    assert error.category is expected.get(status, error.category)
    if status in (400, 401, 404):
        assert not error.retryable


def test_whole_numbers_beyond_64_bits_are_kept() -> None:
    # A lone surrogate sends the event to another parser.
    for text, read in ((rb"hi", "hi"), (rb"\ud800", "\N{REPLACEMENT CHARACTER}")):
        data = (
            rb'{"candidates":[{"content":{"parts":[{"text":"' + text + rb'"},{"functionCall":{"name":"f",'
            rb'"args":{"n":123456789012345678901234567890}}}]},"finishReason":"STOP"}]}'
        )
        answer = run([b"data: " + data + b"\r\n\r\n"])
        assert answer.response.text == read
        assert answer.response.tool_calls[0].arguments == '{"n":123456789012345678901234567890}'


LIMITS = AnswerLimits(max_choices=3, max_blocks=3, max_tool_calls=3)


def candidate(index: int) -> dict[str, Any]:
    return {"index": index, "finishReason": "STOP"}


def outcome(*chunks: dict[str, Any]) -> str:
    """Return the message of the error that ends the stream; empty if there is none."""
    machine = DIALECT.machine(PROVIDER, Ids(), LIMITS)
    events = [event for chunk in chunks for event in machine.feed("", json.dumps(chunk).encode())]
    errors = [event.error.message for event in events if isinstance(event, ms.ErrorEvent)]
    return errors[0] if errors else ""


CHOICES = "the answer has more than 3 choices (limits.max_choices)"
PARTS = "the answer has more than 3 content parts in one event (limits.max_blocks)"
BLOCKS = "the answer has more than 3 content blocks (limits.max_blocks)"


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([{"candidates": [candidate(0)] * 3}], ""),
        ([{"candidates": [candidate(0)] * 4}], CHOICES),
        ([{"candidates": [candidate(index)]} for index in (1, 2, 1, 0, 2)], ""),
        ([{"candidates": [candidate(index)]} for index in (1, 2, 3)], CHOICES),
        ([part_chunk(*[{"text": "a"}] * 3)], ""),
        ([part_chunk(*[{"text": "a"}] * 4)], PARTS),
        ([part_chunk(*[{"text": "a"}] * 3)] * 3, ""),
        ([part_chunk({"executableCode": {}})] * 3, ""),
        ([part_chunk({"executableCode": {}})] * 4, BLOCKS),
    ],
)
def test_an_answer_has_at_most_so_many_candidates_and_parts(chunks: list[dict[str, Any]], message: str) -> None:
    assert outcome(*chunks) == message


def test_a_call_has_at_most_so_many_pieces_in_one_part() -> None:
    piece = {"jsonPath": "$.a", "stringValue": "b", "willContinue": True}
    for number, message in ((3, ""), (4, PARTS)):
        call = {"functionCall": {"name": "f", "partialArgs": [piece] * number, "willContinue": True}}
        assert outcome(part_chunk(call)) == message


def test_what_came_before_a_limit_is_delivered() -> None:
    machine = DIALECT.machine(PROVIDER, Ids(), LIMITS)
    parts: list[dict[str, Any]] = [{"text": "a"}, {"executableCode": {}}, {"text": "b"}]
    events = [*machine.feed("", json.dumps(part_chunk(*parts)).encode())]
    events += machine.feed("", json.dumps(part_chunk({"text": "c"}, {"executableCode": {}})).encode())
    assert [event.type for event in events] == ["start", "text_delta", "text_delta", "text_delta", "error"]
    assert machine.response().text == "abc"
