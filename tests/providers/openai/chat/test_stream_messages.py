"""Messages in a stream in place of deltas, or after them."""

from __future__ import annotations

import manystream as ms
from tests.providers.openai.chat.wire import known, stream


def test_perplexity_repeats_the_whole_message_in_every_chunk() -> None:
    outcome = stream(
        """
        data: {"id":"p","model":"sonar","object":"chat.completion.chunk","citations":["u1"],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6},"choices":[{"index":0,"message":{"role":"assistant","content":"Ru"},"delta":{"role":"assistant","content":"Ru"}}]}
        data: {"id":"p","model":"sonar","object":"chat.completion.chunk","citations":["u1"],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7},"choices":[{"index":0,"message":{"role":"assistant","content":"Ruby"},"delta":{"role":"assistant","content":"by"}}]}
        data: {"id":"p","model":"sonar","object":"chat.completion.done","citations":["u1","u2"],"search_results":[{"url":"u1"}],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8},"choices":[{"index":0,"message":{"role":"assistant","content":"Ruby"},"delta":{"role":"assistant","content":""},"finish_reason":"stop"}]}
        """,  # noqa: E501
        known("perplexity"),
    )
    assert outcome.response.text == "Ruby"
    assert outcome.done.finish_reason is ms.FinishReason.STOP
    assert outcome.done.usage.total_tokens == 8
    assert outcome.response.provider_data["citations"] == ["u1", "u2"]
    assert outcome.response.provider_data["search_results"] == [{"url": "u1"}]


def test_a_message_instead_of_a_delta() -> None:
    outcome = stream("""
        data: {"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"whole"},"finish_reason":"stop"}]}
    """)  # noqa: E501
    assert outcome.response.text == "whole"
