"""A limit as text: what is read, and what is refused."""

from __future__ import annotations

import pytest

from manystream.simulator import (
    KnobError,
    Limit,
)
from manystream.simulator.limit import read_limit


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("true", True), ("TRUE", True), ("0", False), ("False", False)]
)
def test_a_switch_of_a_limit_is_read_as_a_switch(text: str, value: bool) -> None:
    assert read_limit(f"concurrent=1 by-second={text}").by_second is value


# --- a limit ---


def test_a_limits_text_has_what_is_not_the_default() -> None:
    limit = Limit(
        key="a", model="b", server="groq", requests_per_second=1, requests_per_minute=2, requests_per_day=3,
        tokens_per_minute=4, tokens_per_day=5, input_tokens_per_minute=6, output_tokens_per_minute=7.5, concurrent=8,
        bucket=9, by_second=True,
    )  # fmt: skip
    text = (
        "key=a model=b server=groq requests-per-second=1 requests-per-minute=2 requests-per-day=3 tokens-per-minute=4"
        " tokens-per-day=5 input-tokens-per-minute=6 output-tokens-per-minute=7.5 concurrent=8 bucket=9 by-second=1"
    )
    assert limit.text == text
    assert (
        read_limit(text.upper().replace("A MODEL=B SERVER=GROQ", "a model=b server=groq").replace(" ", ", ")) == limit
    )
    assert Limit().text == ""
    assert limit.covers("a", "b")
    assert not limit.covers("a", "c")
    assert not limit.covers("c", "b")


NAMES = (
    "key, model, server, requests_per_second, requests_per_minute, requests_per_day, tokens_per_minute, tokens_per_day,"
    " input_tokens_per_minute, output_tokens_per_minute, concurrent, bucket, by_second"
)


WRONG_LIMITS: list[tuple[str, str]] = [
    ("rpm=6", f"limit: 'rpm=6' is not a limit; write name=value, with a name of: {NAMES}"),
    ("", f"limit: '' is not a limit; write name=value, with a name of: {NAMES}"),
    ("concurrent", f"limit: 'concurrent' is not a limit; write name=value, with a name of: {NAMES}"),
    ("requests-per-minute=-1", "limit: requests_per_minute=-1.0: requests_per_minute is a number above 0"),
    ("tokens-per-minute=nan", "limit: tokens_per_minute=nan: tokens_per_minute is a number above 0"),
    ("bucket=0", "limit: bucket=0.0: bucket is a number above 0"),
    ("concurrent=0", "limit: concurrent=0: concurrent is a number above 0"),
    ("requests-per-day=inf", "limit: requests_per_day=inf: requests_per_day is a number above 0"),
    ("by-second=2", "limit: by_second='2': by_second is 0 or 1"),
    ("concurrent=1.5", "limit: concurrent='1.5': concurrent is a number"),
    ("tokens-per-day=x", "limit: tokens_per_day='x': tokens_per_day is a number"),
    ("server=x",
        "limit: server='x': server is one of openai, anthropic, gemini, vertex, azure, groq, cerebras, mistral,"
        " deepseek, openrouter, together, fireworks, litellm, vllm, sglang, llama.cpp, tgi"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG_LIMITS)
def test_a_wrong_limit_is_told_why(text: str, message: str) -> None:
    with pytest.raises(KnobError) as caught:
        read_limit(text)
    assert str(caught.value) == message
