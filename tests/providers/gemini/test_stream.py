"""A Gemini stream, chunk by chunk: the events, their order, and the response."""

from __future__ import annotations

import json
from typing import Any

import manystream as ms
from manystream.providers.catalog.dialect import BARE_LINES
from manystream.providers.gemini import DIALECT
from manystream.providers.model.events import Done, FinishReason, TextDelta
from manystream.providers.model.tokens import Usage
from tests.providers.gemini.wire import (
    PROVIDER,
    START,
    Ids,
    cuts,
    part_chunk,
    run,
    signed,
    stream,
    stream_bytes,
    stream_text,
    text_chunk,
)


def test_text_in_pieces_is_one_block() -> None:
    answer = stream(text_chunk("Hel"), text_chunk("lo"), text_chunk("!"), part_chunk(finish="STOP"))
    assert answer.events == [
        START, TextDelta(0, "Hel"), TextDelta(0, "lo"), TextDelta(0, "!"), Done(FinishReason.STOP, "STOP", Usage()),
    ]  # fmt: skip
    assert answer.response.content == [ms.Text("Hello!")]


def test_nothing_is_done_before_the_body_ends() -> None:
    machine = DIALECT.machine(PROVIDER, Ids())
    events = machine.feed("", b'{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}')
    assert [type(event) for event in events] == [ms.Start, TextDelta]
    assert not machine.ended
    assert [type(event) for event in machine.end()] == [Done]
    assert machine.feed("", b"{}") == ()
    assert machine.end() == ()


def test_a_body_without_any_event_is_truncated() -> None:
    answer = run([b""])
    assert answer.error.error.category is ms.ErrorCategory.NETWORK
    assert "no event" in answer.error.error.message


def test_thoughts_and_text_are_separate_blocks_in_order() -> None:
    answer = stream(
        part_chunk({"text": "Hm", "thought": True}), part_chunk({"text": "m.", "thought": True}), text_chunk("Yes"),
        text_chunk("."), part_chunk({"text": "Wait", "thought": True}), part_chunk({"text": "No."}, finish="STOP"),
    )  # fmt: skip
    assert answer.events == [
        START, ms.ThinkingDelta(0, "Hm"), ms.ThinkingDelta(0, "m."), TextDelta(1, "Yes"), TextDelta(1, "."),
        ms.ThinkingDelta(2, "Wait"), TextDelta(3, "No."), Done(FinishReason.STOP, "STOP", Usage()),
    ]  # fmt: skip
    thought = ms.ProviderState("google", {"thought": True})
    assert answer.response.content == [
        ms.Thinking("Hmm.", state=thought), ms.Text("Yes."), ms.Thinking("Wait", state=thought), ms.Text("No."),
    ]  # fmt: skip


def test_a_signature_on_an_empty_last_text_belongs_to_the_text() -> None:
    answer = stream_text("""
        data: {"candidates":[{"content":{"parts":[{"text":"4"}],"role":"model"},"index":0}],"modelVersion":"gemini-3.8-flash"}

        data: {"candidates":[{"content":{"parts":[{"text":"","thoughtSignature":"c2ln"}],"role":"model"},"finishReason":"STOP","index":0}],"modelVersion":"gemini-3.8-flash"}
    """)  # noqa: E501
    assert [type(event) for event in answer.events] == [ms.Start, TextDelta, Done]
    assert answer.response.content == [ms.Text("4", state=signed("c2ln"))]


def test_a_signature_on_an_empty_text_after_thoughts_is_a_block() -> None:
    answer = stream(part_chunk({"text": "Hm", "thought": True}), part_chunk({"text": "", "thoughtSignature": "s"}))
    assert answer.response.content[1:] == [ms.Text("", state=signed("s"))]


def test_a_part_with_only_a_signature_is_kept() -> None:
    answer = stream(part_chunk({"thoughtSignature": "s"}, finish="STOP"))
    assert answer.response.content == [ms.Text("", state=signed("s"))]
    assert [type(event) for event in answer.events] == [ms.Start, Done]


def test_signed_texts_are_not_merged() -> None:
    answer = stream(
        part_chunk({"text": "a", "thoughtSignature": "s1"}),
        part_chunk({"text": "b", "thoughtSignature": "s2"}),
        part_chunk({"text": "c"}, finish="STOP"),
    )
    assert answer.response.content == [ms.Text("a", state=signed("s1")), ms.Text("b", state=signed("s2")), ms.Text("c")]


def test_an_empty_text_changes_nothing() -> None:
    answer = stream(text_chunk("a"), text_chunk(""), text_chunk("b"), part_chunk({"text": ""}, finish="STOP"))
    assert answer.response.content == [ms.Text("ab")]
    assert stream(part_chunk({"text": ""}, finish="STOP")).response.content == []


def test_candidate_0_is_the_answer_and_the_others_are_kept() -> None:
    answer = stream(
        {"candidates": [{"content": {"parts": [{"text": "a"}]}}, {"content": {"parts": [{"text": "x"}]}, "index": 1}]},
        {"candidates": [{"content": {"parts": [{"text": "y"}], "role": "model"}, "index": 1, "finishReason": "STOP"}]},
        {"candidates": [{"content": {"parts": [{"text": "b"}]}, "finishReason": "STOP"}]},
    )
    assert answer.response.content == [ms.Text("ab")]
    assert answer.response.provider_data["candidates"] == [
        {"index": 1, "content": {"role": "model", "parts": [{"text": "xy"}]}, "finishReason": "STOP"}
    ]


def test_other_candidates_keep_parts_of_every_kind_in_order() -> None:
    call: ms.JSON = {"functionCall": {"name": "f", "args": {}}}
    thought: ms.JSON = {"text": "Hm.", "thought": True}
    parts: list[list[ms.JSON]] = [[thought, {"text": "x"}], [{"text": "y"}, call, {"text": "z"}]]
    answer = stream(
        *({"candidates": [{"content": {"parts": some}, "index": 1}]} for some in parts),
        {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}]},
    )
    assert answer.response.provider_data["candidates"] == [
        {"index": 1, "content": {"parts": [thought, {"text": "xy"}, call, {"text": "z"}]}}
    ]


def test_other_members_go_to_provider_data() -> None:
    rating = [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "LOW"}]
    answer = stream(
        text_chunk("a", createTime="2026-05-04T20:01:02Z", promptFeedback={"safetyRatings": rating}),
        {
            "candidates": [
                {
                    "content": {"parts": [{"text": "b"}]},
                    "finishReason": "STOP",
                    "finishMessage": "done",
                    "safetyRatings": rating,
                    "groundingMetadata": {"webSearchQueries": ["q"]},
                    "avgLogprobs": -0.25,
                    "tokenCount": 3,
                    "urlContextMetadata": {"urlMetadata": []},
                }
            ],
            "modelStatus": {"modelStage": "STABLE"},
        },
    )
    assert answer.response.provider_data == {
        "createTime": "2026-05-04T20:01:02Z", "promptFeedback": {"safetyRatings": rating}, "finishMessage": "done",
        "safetyRatings": rating, "groundingMetadata": {"webSearchQueries": ["q"]}, "avgLogprobs": -0.25,
        "tokenCount": 3, "urlContextMetadata": {"urlMetadata": []}, "modelStatus": {"modelStage": "STABLE"},
    }  # fmt: skip
    done = answer.events[-1]
    assert isinstance(done, Done)
    assert done.provider_data == answer.response.provider_data


def test_metadata_of_later_chunks_is_merged() -> None:
    def chunk(finish: str | None = None, **members: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": finish, **members}]}

    answer = stream(
        chunk(groundingMetadata={"webSearchQueries": ["q"], "groundingChunks": [1]}, avgLogprobs=-1),
        chunk(groundingMetadata={"groundingChunks": [1, 2], "webSearchQueries": None}),
        chunk(citationMetadata={"citations": [{"endIndex": 1}]}, logprobsResult={"chosenCandidates": ["x"]}),
        chunk("STOP", citationMetadata={"citations": [{"endIndex": 2}]}, logprobsResult={"chosenCandidates": ["y"]}),
    )
    assert answer.response.provider_data == {
        "groundingMetadata": {"webSearchQueries": ["q"], "groundingChunks": [1, 2]},
        "avgLogprobs": -1,
        "citationMetadata": {"citations": [{"endIndex": 1}, {"endIndex": 2}]},
        "logprobsResult": {"chosenCandidates": ["x", "y"]},
    }
    assert answer.response.content == [ms.Text("aaaa", citations=[{"endIndex": 1}, {"endIndex": 2}])]


def test_a_later_model_version_is_taken_and_an_earlier_one_kept() -> None:
    answer = stream(
        {"candidates": [{"content": {"parts": [{"text": "a"}]}}]},
        {"candidates": [{"content": {"parts": [{"text": "b"}]}}], "modelVersion": "m", "responseId": "r"},
        {"candidates": [{"finishReason": "STOP"}], "modelVersion": "n"},
    )
    assert answer.events[0] == ms.Start(None, None)
    assert (answer.response.model, answer.response.id) == ("m", "r")


def test_an_answer_cut_anywhere_gives_the_same_events() -> None:
    body = stream_bytes(
        part_chunk({"text": "Hm", "thought": True}),
        text_chunk("Ä 日本 \u2028 x"),
        part_chunk({"functionCall": {"name": "f", "args": {"s": "ü"}}, "thoughtSignature": "s"}),
        part_chunk({"text": ""}, finish="STOP", usageMetadata={"promptTokenCount": 1}),
    )
    whole = run([body])
    for pieces in cuts(body):
        cut = run(pieces)
        assert cut.events == whole.events
        assert cut.response == whole.response


def test_the_template_and_the_parser_give_the_same_events() -> None:
    usage = {"promptTokenCount": 1}
    plain = [text_chunk(letter, usageMetadata=usage) for letter in "abcdef"]
    # A member that is new in each chunk keeps the machine from using a template.
    noted = [text_chunk(letter, usageMetadata=usage, note=1) for letter in "abcdef"]
    end = part_chunk(finish="STOP")
    fast, slow = stream(*plain, end), stream(*noted, end)
    assert fast.events[:-1] == slow.events[:-1]
    assert fast.response.content == slow.response.content
    assert fast.response.usage == slow.response.usage


def events_at_the_end(stray: bytes) -> list[ms.Event]:
    machine = DIALECT.machine(PROVIDER, Ids())
    machine.feed("", b'{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}')
    return [*machine.feed(BARE_LINES, stray), *machine.end()]


def test_a_bare_json_error_after_the_events_is_the_error() -> None:
    answer = run(
        [stream_bytes(part_chunk({"text": "First"}, finish="STOP")),
        b'{\n  "error": {\n    "code": 499,\n    "message": "The operation was cancelled.",\n'
        b'    "status": "CANCELLED"\n  }\n}\n']
    )  # fmt: skip
    assert answer.error.error.message == "CANCELLED: The operation was cancelled."
    assert answer.error.error.http_status == 499
    assert answer.response.text == "First"
    assert answer.response.raw_finish_reason == "STOP"


def test_other_stray_lines_after_a_finish_reason_are_ignored() -> None:
    assert [type(event) for event in events_at_the_end(b"]\n")] == [Done]
    assert [type(event) for event in events_at_the_end(b"3")] == [Done]


def test_a_json_array_instead_of_events_is_read() -> None:
    answer = run(
        [b'[{\n  "candidates": [\n    {\n      "content": {"parts": [{"text": "Hel"}]},\n      "index": 0\n    }\n'
        b'  ]\n}\n,\n{"candidates": [{"content": {"parts": [{"text": "lo"}]}, "finishReason": 1}]}\n]\n']
    )  # fmt: skip
    assert answer.response.text == "Hello"
    assert answer.response.finish_reason is FinishReason.STOP


def test_the_whole_elements_of_an_array_that_was_cut_are_read() -> None:
    """The first one stands in the line of the bracket, as the server writes them."""
    elements = [json.dumps(text_chunk("Hel")), json.dumps(part_chunk({"text": "lo"}, finish="STOP"))]
    whole = f"[{elements[0]}\n,\r\n{elements[1]}".encode()
    answer = run([whole])
    assert (answer.response.text, answer.response.finish_reason) == ("Hello", FinishReason.STOP)
    cut = run([whole[:-1]])
    assert cut.error.error.category is ms.ErrorCategory.NETWORK
    assert cut.response.text == "Hel"


def test_a_page_instead_of_events_is_quoted() -> None:
    answer = run([b"<html>\n<body>Bad gateway</body>\n</html>\n"])
    assert "Bad gateway" in answer.error.error.message


def test_an_array_inside_an_event_is_read_chunk_by_chunk() -> None:
    answer = run([stream_bytes([text_chunk("a"), part_chunk({"text": "b"}, finish="STOP")])])
    assert answer.response.text == "ab"


def test_another_dialects_marker_is_no_chunk() -> None:
    answer = run([stream_bytes(part_chunk({"text": "a"}, finish="STOP")), b"data: [DONE]\n\n"])
    assert answer.events[-1] == Done(FinishReason.STOP, "STOP", Usage())


def test_a_stream_error_has_the_category_of_its_http_status() -> None:
    answer = stream(
        text_chunk("a", usageMetadata={"promptTokenCount": 2}),
        {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}},
    )
    error = answer.error.error
    assert (error.category, error.http_status, error.retryable) == (ms.ErrorCategory.SERVER, 503, True)
    assert answer.response.text == "a"
    assert answer.response.usage.input_tokens == 2


def test_a_refused_prompt_is_a_content_filter_error() -> None:
    answer = stream({"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "not that"}, "responseId": "r"})
    error = answer.error.error
    assert error.category is ms.ErrorCategory.CONTENT_FILTER
    assert error.message == "prompt blocked: SAFETY: not that"
    assert (error.provider_code, error.retryable) == ("SAFETY", False)
