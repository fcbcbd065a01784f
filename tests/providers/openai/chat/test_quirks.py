"""Departures of servers from the dialect: each in its wire text, shortened and renamed."""

from __future__ import annotations

import json

import pytest

import manystream as ms
from manystream.providers.model.messages import ProviderBlock, Text, Thinking
from tests.providers.openai.chat.wire import answer, decode, deltas, known, run, stream


def test_azure_begins_with_a_chunk_of_filter_results() -> None:
    outcome = stream(
        """
        data: {"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"hate":{"filtered":false}}}]}
        data: {"choices":[{"content_filter_results":{},"delta":{"content":"","refusal":null,"role":"assistant"},"finish_reason":null,"index":0,"logprobs":null}],"created":1,"id":"c-1","model":"gpt-4o","object":"chat.completion.chunk","system_fingerprint":"fp"}
        data: {"choices":[{"content_filter_results":{"hate":{"filtered":false}},"delta":{"content":"Hi"},"finish_reason":null,"index":0,"logprobs":null}],"created":1,"id":"c-1","model":"gpt-4o","object":"chat.completion.chunk","system_fingerprint":"fp"}
        data: {"choices":[{"content_filter_offsets":{"check_offset":1},"content_filter_results":{"hate":{"filtered":false}},"finish_reason":null,"index":0}],"created":1,"id":"c-1","model":"gpt-4o","object":"chat.completion.chunk"}
        data: {"choices":[{"content_filter_results":{},"delta":{},"finish_reason":"stop","index":0,"logprobs":null}],"created":1,"id":"c-1","model":"gpt-4o","object":"chat.completion.chunk","system_fingerprint":"fp"}
        data: [DONE]
        """,  # noqa: E501
        known("azure"),
    )
    assert outcome.start == ms.Start("gpt-4o", "c-1")
    assert outcome.response.text == "Hi"
    data = outcome.response.provider_data
    assert data["content_filter_results"] == {"hate": {"filtered": False}}
    assert data["system_fingerprint"] == "fp"
    assert "prompt_filter_results" in data
    assert "content_filter_offsets" in data
    assert outcome.done.provider_data is data


def test_openrouter_repeats_the_role_and_the_finish_reason() -> None:
    outcome = stream(
        """
        data: {"id":"g","provider":"P","model":"x/y","choices":[{"index":0,"delta":{"role":"assistant","content":"a"},"finish_reason":null,"native_finish_reason":null}]}
        data: {"id":"g","provider":"P","model":"x/y","choices":[{"index":0,"delta":{"role":"assistant","content":"b"},"finish_reason":null,"native_finish_reason":null}]}
        data: {"id":"g","provider":"P","model":"x/y","choices":[{"index":0,"delta":{"role":"assistant","content":"c"},"finish_reason":null,"native_finish_reason":null}]}
        data: {"id":"g","provider":"P","model":"x/y","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop","native_finish_reason":"completed"}]}
        data: {"id":"g","provider":"P","model":"x/y","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop","native_finish_reason":"completed"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"cost":0.1}}
        data: [DONE]
        """,  # noqa: E501
        known("openrouter"),
    )
    assert outcome.response.text == "abc"
    assert outcome.response.provider_data == {"provider": "P", "native_finish_reason": "completed"}
    assert outcome.done.usage.raw == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "cost": 0.1}


def test_zero_values_instead_of_absent_ones() -> None:
    outcome = stream(
        """
        data: {"choices":[{"delta":{"content":"","refusal":"","role":"assistant","tool_calls":null,"function_call":{"arguments":"","name":""},"audio":{"data":"","expires_at":0,"id":"","transcript":""}},"finish_reason":"","index":0,"logprobs":{"content":null,"refusal":null}}],"created":0,"id":"","model":"claude","service_tier":"","system_fingerprint":""}
        data: {"choices":[{"delta":{"content":"4","refusal":"","role":"assistant","tool_calls":null},"finish_reason":"","index":0,"logprobs":{"content":null,"refusal":null}}],"created":0,"id":"","model":"claude","service_tier":"","system_fingerprint":""}
        data: {"choices":[],"created":0,"id":"","model":"claude","usage":{"completion_tokens":1,"prompt_tokens":2,"total_tokens":3}}
        data: [DONE]
        """,  # noqa: E501
        known("snowflake"),
    )
    assert outcome.response.content == [Text("4")]
    assert outcome.response.refusal is None
    assert outcome.response.id is None
    assert outcome.response.provider_data == {}
    assert (outcome.done.finish_reason, outcome.done.raw_finish_reason) == (ms.FinishReason.UNKNOWN, None)


def test_ids_that_change_midway() -> None:
    outcome = stream("""
        data: {"id":"first","model":"m","choices":[{"delta":{"content":"a"}}]}
        data: {"id":"second","model":"n","choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}
    """)
    assert (outcome.response.id, outcome.response.model) == ("first", "m")
    assert outcome.response.text == "ab"


def test_a_model_that_is_named_late() -> None:
    outcome = stream("""
        data: {"choices":[{"delta":{"content":"a"}}]}
        data: {"id":"c","model":"m","choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}
    """)
    assert outcome.start == ms.Start(None, None)
    assert (outcome.response.id, outcome.response.model) == ("c", "m")


def test_content_as_an_array_with_thinking_parts() -> None:
    text = """
        data: {"model":"magistral","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}
        data: {"model":"magistral","choices":[{"index":0,"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm"}]}]},"finish_reason":null}]}
        data: {"model":"magistral","choices":[{"index":0,"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"m"}],"closed":true},{"type":"text","text":"4"}]},"finish_reason":null}]}
        data: {"model":"magistral","choices":[{"index":0,"delta":{"content":" is"},"finish_reason":null}]}
        data: {"model":"magistral","choices":[{"index":0,"delta":{"content":" it"},"finish_reason":"stop"}]}
        data: [DONE]
    """  # noqa: E501
    outcome = stream(text, known("mistral"))
    state = ms.ProviderState("mistral", {"reasoning_member": "content"})
    assert outcome.response.content == [Thinking("Hmm", state=state), Text("4 is it")]


def test_an_array_keeps_the_order_of_its_parts() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "one"}]},
        {"type": "text", "text": "two"},
        {"type": "reference", "reference_ids": [1]},
        {"type": "text", "text": "!"},
        {"type": "thinking", "thinking": "three"},
        {"type": "text", "text": "four"},
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        {"type": "text", "text": "five"},
        {"type": "tool_reference", "tool": "web_search"},
        "six",
        {"type": "refusal", "refusal": "no"},
        {"type": "text", "text": ""},
        7,
    ]
    response = answer({"content": parts})
    kinds = [type(block).__name__ for block in response.content]
    assert kinds == ["Thinking", "Text", "Thinking", "Text", "Image", "Text", "ProviderBlock", "Text"]
    assert response.content[1] == Text("two!", citations=[{"type": "reference", "reference_ids": [1]}])
    assert response.text == "two!fourfivesix"
    assert response.thinking == "onethree"
    assert response.content[6] == ProviderBlock("openai-compatible", {"type": "tool_reference", "tool": "web_search"})
    assert response.refusal == "no"


def test_databricks_shows_reasoning_as_a_part_with_a_summary() -> None:
    parts = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hmm.", "signature": "s"}]},
        {"type": "text", "text": "So."},
    ]
    response = answer({"content": parts})
    assert (response.thinking, response.text) == ("Hmm.", "So.")


def test_refusals_are_kept_apart_from_text() -> None:
    outcome = deltas({"role": "assistant", "content": None, "refusal": "I "}, {"refusal": "won't."})
    assert outcome.response.refusal == "I won't."
    assert outcome.response.content == []
    assert outcome.done.finish_reason is ms.FinishReason.STOP


def test_annotations_are_citations_of_the_text() -> None:
    cite = {"type": "url_citation", "url_citation": {"url": "https://x", "start_index": 0, "end_index": 3}}
    other = {"type": "file", "file": {"hash": "h"}}
    outcome = deltas({"annotations": [other]}, {"content": "See x."}, {"annotations": [cite]})
    assert outcome.response.content == [Text("See x.", citations=[cite])]
    assert outcome.response.provider_data["annotations"] == [other, cite]
    whole = answer({"content": "See x.", "annotations": [other, cite]})
    assert whole.content == outcome.response.content


def test_log_probabilities_are_collected() -> None:
    outcome = stream("""
        data: {"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a"}],"refusal":null},"finish_reason":null}]}
        data: {"choices":[{"index":0,"delta":{"content":"b"},"logprobs":{"content":[{"token":"b"}],"refusal":null},"finish_reason":null}]}
        data: {"choices":[{"index":0,"delta":{"content":"c"},"logprobs":null,"finish_reason":"stop"}]}
    """)  # noqa: E501
    assert outcome.response.provider_data["logprobs"] == {"content": [{"token": "a"}, {"token": "b"}]}
    assert outcome.response.text == "abc"


@pytest.mark.parametrize("member", ["delta", "message"])
def test_members_read_from_a_choice_are_not_kept_again(member: str) -> None:
    outcome = stream(f"""
        data: {{"choices":[{{"index":3,"{member}":{{"content":"a"}},"finish_reason":"stop","text":"a","usage":{{"prompt_tokens":1}},"seen":true}}]}}
    """)  # noqa: E501
    assert (outcome.response.text, outcome.response.raw_finish_reason) == ("a", "stop")
    assert outcome.response.provider_data == {"seen": True}


def test_padding_members_of_a_delta_are_not_kept() -> None:
    outcome = stream("""
        data: {"choices":[{"index":0,"delta":{"role":"assistant","name":"bot","index":3,"token_id":5,"thought_signature":"c2ln","content":"a","seen":true},"finish_reason":"stop"}]}
    """)  # noqa: E501
    assert outcome.response.content == [Text("a")]
    assert outcome.response.provider_data == {"seen": True}


def test_several_choices() -> None:
    text = """
        data: {"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"a"},"finish_reason":null}]}
        data: {"model":"m","choices":[{"index":1,"delta":{"role":"assistant","content":"x"},"finish_reason":null}]}
        data: {"model":"m","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":null}]}
        data: {"model":"m","choices":[{"index":1,"delta":{"content":"y"},"finish_reason":null}]}
        data: {"model":"m","choices":[{"index":0,"delta":{"content":"c"},"finish_reason":null}]}
        data: {"model":"m","choices":[{"index":1,"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":"{}"}}]},"finish_reason":null}]}
        data: {"model":"m","choices":[{"index":1,"delta":{},"finish_reason":"tool_calls"}]}
        data: {"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}
        data: [DONE]
    """  # noqa: E501
    outcome = stream(text)
    assert outcome.response.text == "abc"
    assert outcome.done.finish_reason is ms.FinishReason.STOP
    assert outcome.response.tool_calls == []
    (other,) = outcome.response.others
    assert (other.text, other.finish_reason) == ("xy", ms.FinishReason.TOOL_USE)
    assert [(call.id, call.name, call.arguments, call.complete) for call in other.tool_calls] == [
        ("t", "f", "{}", True)
    ]


def test_several_whole_choices_without_an_index() -> None:
    choices = [{"message": {"content": text}, "finish_reason": "stop"} for text in ("a", "b")]
    response = decode({"id": "c", "choices": choices})
    assert response.text == "a"
    assert [choice.text for choice in response.choices] == ["a", "b"]


def test_an_index_that_does_not_begin_with_0() -> None:
    outcome = stream("""
        data: {"choices":[{"index":1,"delta":{"content":"a"},"finish_reason":null}]}
        data: {"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"stop"}]}
    """)
    assert outcome.response.text == "ab"


def test_groq_reports_usage_in_a_member_of_its_own() -> None:
    outcome = stream(
        """
        data: {"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"a","channel":"final"},"finish_reason":null}],"x_groq":{"id":"req_1"}}
        data: {"id":"c","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"req_1","usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}}
        data: [DONE]
        """,  # noqa: E501
        known("groq"),
    )
    assert outcome.done.usage.total_tokens == 3
    assert outcome.response.provider_data["channel"] == "final"


def test_usage_in_the_choice() -> None:
    outcome = stream("""
        data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}
        data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":1,"completion_tokens":2}}]}
    """)  # noqa: E501
    assert outcome.done.usage.total_tokens == 3


def test_usage_in_every_chunk_is_not_added_up() -> None:
    outcome = stream("""
        data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}
        data: {"choices":[{"delta":{"content":"b"}}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}
        data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}
    """)
    assert outcome.done.usage.output_tokens == 2
    assert outcome.done.usage.total_tokens == 7


def test_unknown_members_are_kept() -> None:
    outcome = deltas({"content": "a", "executed_tools": [{"n": 1}]}, {"executed_tools": [{"n": 2}], "mood": "good"})
    assert outcome.response.provider_data == {"created": 1, "executed_tools": [{"n": 1}, {"n": 2}], "mood": "good"}


def test_white_space_before_an_unstreamed_answer() -> None:
    body = b'\n   \n\n {"id":"c","choices":[{"index":0,"message":{"content":"a"},"finish_reason":"eos"}]}'
    response = decode(body)
    assert (response.text, response.finish_reason) == ("a", ms.FinishReason.STOP)


def test_a_whole_body_where_a_stream_was_expected() -> None:
    body = b'{\n"id":"c",\n"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}'
    outcome = run([], stray=body)
    assert outcome.response.text == "a"
    assert outcome.done.finish_reason is ms.FinishReason.STOP


def test_a_signature_of_the_message_is_kept() -> None:
    extra = {"google": {"thought_signature": "sig"}}
    response = answer({"content": "a", "extra_content": extra, "thought_signature": "sig"})
    assert response.text == "a"
    (signed,) = [block for block in response.content if isinstance(block, Thinking)]
    assert signed == Thinking("", state=ms.ProviderState("openai-compatible", {"extra_content": extra}))


def test_members_that_are_read_elsewhere_are_not_kept_as_unknown() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    logprobs = {"content": [{"token": "a"}]}
    head = {"id": "1", "object": "chat.completion.chunk", "model": "m", "obfuscation": "x", "p": "y", "later": 1}
    choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop", "logprobs": logprobs, "text": "a"}
    data = {**head, "usage": usage, "choices": [{**choice, "usage": usage, "unheard": "of"}]}
    outcome = run([("", json.dumps(data).encode()), ("", b"[DONE]")])
    assert outcome.response.text == "a"
    assert outcome.response.provider_data == {"later": 1, "unheard": "of", "logprobs": logprobs}
