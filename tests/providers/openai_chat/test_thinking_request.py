"""Thinking options in the form of each kind of server."""

from __future__ import annotations

import pytest

import manystream as ms

from .wire import OPENAI, SERVER, encode, known, quirky, warnings

HELLO = [ms.Message.user("hello")]
NONE, LOW, MED, HIGH = ms.ThinkingLevel
MEMBERS = ("reasoning_effort", "reasoning", "thinking", "enable_thinking", "thinking_budget", "chat_template_kwargs")


def members(
    thinking: ms.ThinkingLevel | ms.ThinkingConfig | None, model: str, provider: ms.OpenAIChat = OPENAI
) -> dict[str, object]:
    body = encode(ms.Request(model, HELLO, thinking=thinking), provider)
    return {name: value for name, value in body.items() if name in MEMBERS}


@pytest.mark.parametrize(
    ("provider", "model", "expected"),
    [
        (OPENAI, "o3-mini", ["low", "low", "medium", "high"]),
        (OPENAI, "gpt-5", ["minimal", "low", "medium", "high"]),
        (OPENAI, "gpt-5.2", ["none", "low", "medium", "xhigh"]),
        (SERVER, "qwen3-32b", ["none", "low", "medium", "high"]),
        (known("groq"), "qwen/qwen3-32b", ["none", "low", "medium", "high"]),
        (known("groq"), "openai/gpt-oss-20b", ["low", "low", "medium", "high"]),
        (known("xai"), "grok-3-mini", ["low", "low", "high", "high"]),
        (known("mistral"), "magistral-medium", ["none", "high", "high", "high"]),
    ],
)
def test_efforts(provider: ms.OpenAIChat, model: str, expected: list[str]) -> None:
    assert [members(level, model, provider) for level in ms.ThinkingLevel] == [
        {"reasoning_effort": effort} for effort in expected
    ]


def test_a_model_without_reasoning_gets_no_effort() -> None:
    assert members(HIGH, "gpt-4o") == {}
    assert warnings(ms.Request("gpt-4o", HELLO, thinking=HIGH))
    assert not warnings(ms.Request("gpt-4o", HELLO, thinking=NONE))


def test_the_requests_own_effort_takes_precedence() -> None:
    assert members(ms.ThinkingConfig(level=LOW, effort="xhigh"), "gpt-5") == {"reasoning_effort": "xhigh"}


def test_a_budget_where_there_are_only_efforts() -> None:
    with pytest.raises(ms.InvalidRequestError, match="budget_tokens"):
        members(ms.ThinkingConfig(budget_tokens=5000), "gpt-5")
    both = ms.ThinkingConfig(level=LOW, budget_tokens=5000)
    assert members(both, "gpt-5") == {"reasoning_effort": "low"}
    assert warnings(ms.Request("gpt-5", HELLO, thinking=both))
    assert members(ms.ThinkingConfig(budget_tokens=0), "gpt-5.1") == {"reasoning_effort": "none"}


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        (NONE, {"reasoning": {"effort": "none"}}),
        (MED, {"reasoning": {"effort": "medium"}}),
        (ms.ThinkingConfig(budget_tokens=2000), {"reasoning": {"max_tokens": 2000}}),
        (ms.ThinkingConfig(level=LOW, include_summary=False), {"reasoning": {"effort": "low", "exclude": True}}),
        (ms.ThinkingConfig(include_summary=True), {"reasoning": {"enabled": True}}),
        (ms.ThinkingConfig(include_summary=False), {"reasoning": {"exclude": True}}),
        (ms.ThinkingConfig(), {}),
    ],
)
def test_the_reasoning_object(thinking: ms.ThinkingConfig, expected: object) -> None:
    assert members(thinking, "anthropic/claude-sonnet-4.5", known("openrouter")) == expected


@pytest.mark.parametrize("provider", [known("deepseek"), known("moonshot"), known("zai")])
@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        (NONE, {"thinking": {"type": "disabled"}}),
        (LOW, {"thinking": {"type": "enabled"}}),
        (HIGH, {"thinking": {"type": "enabled"}}),
        (ms.ThinkingConfig(budget_tokens=0), {"thinking": {"type": "disabled"}}),
        (ms.ThinkingConfig(effort="max"), {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}),
        (ms.ThinkingConfig(include_summary=True), {}),
    ],
)
def test_on_and_off(provider: ms.OpenAIChat, thinking: ms.ThinkingConfig, expected: object) -> None:
    assert members(thinking, "m", provider) == expected


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        (NONE, {"thinking": {"type": "disabled"}}),
        (LOW, {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
        (MED, {"thinking": {"type": "enabled", "budget_tokens": 12288}}),
        (HIGH, {"thinking": {"type": "enabled", "budget_tokens": 32768}}),
        (ms.ThinkingConfig(budget_tokens=2000), {"thinking": {"type": "enabled", "budget_tokens": 2000}}),
        (ms.ThinkingConfig(effort="low"), {"reasoning_effort": "low"}),
        (ms.ThinkingConfig(include_summary=True), {}),
    ],
)
def test_claude_behind_a_chat_server(thinking: ms.ThinkingConfig, expected: object) -> None:
    assert members(thinking, "databricks-claude", known("databricks")) == expected


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        (NONE, {"enable_thinking": False}),
        (LOW, {"enable_thinking": True, "thinking_budget": 4096}),
        (HIGH, {"enable_thinking": True}),
        (ms.ThinkingConfig(budget_tokens=700), {"enable_thinking": True, "thinking_budget": 700}),
        (ms.ThinkingConfig(effort="none"), {"enable_thinking": False}),
        (ms.ThinkingConfig(include_summary=True), {}),
    ],
)
def test_alibaba(thinking: ms.ThinkingConfig, expected: object) -> None:
    assert members(thinking, "qwen3-max", known("alibaba")) == expected


@pytest.mark.parametrize(
    ("model", "thinking", "expected"),
    [
        ("Qwen/Qwen3-8B", NONE, {"chat_template_kwargs": {"enable_thinking": False}}),
        ("Qwen/Qwen3-8B", HIGH, {"chat_template_kwargs": {"enable_thinking": True}}),
        ("openai/gpt-oss-20b", HIGH, {"reasoning_effort": "high"}),
        ("Qwen/Qwen3-8B", ms.ThinkingConfig(budget_tokens=9), {"chat_template_kwargs": {"enable_thinking": True}}),
        ("Qwen/Qwen3-8B", ms.ThinkingConfig(include_summary=True), {}),
    ],
)
def test_chat_templates(model: str, thinking: ms.ThinkingConfig, expected: object) -> None:
    assert members(thinking, model, known("vllm")) == expected


def test_a_server_without_a_switch_causes_a_warning() -> None:
    provider = quirky(thinking="none")
    assert members(HIGH, "m", provider) == {}
    assert warnings(ms.Request("m", HELLO, thinking=HIGH), provider) == [
        "thinking: not sent; the server has no such setting"
    ]


def test_an_option_sent_only_in_part_causes_a_warning() -> None:
    for provider, thinking in (
        (known("deepseek"), ms.ThinkingConfig(budget_tokens=100)),
        (known("alibaba"), ms.ThinkingConfig(effort="high")),
        (known("vllm"), ms.ThinkingConfig(budget_tokens=100)),
        (known("openrouter"), ms.ThinkingConfig(budget_tokens=100, effort="high")),
        (OPENAI, ms.ThinkingConfig(level=LOW, include_summary=True)),
    ):
        assert warnings(ms.Request("gpt-5", HELLO, thinking=thinking), provider), thinking


def test_no_option_sends_no_member() -> None:
    assert members(None, "gpt-5") == {}
    assert members(ms.ThinkingConfig(), "gpt-5") == {}
