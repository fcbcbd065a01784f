"""A request: its defaults, and options of other libraries."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from anthropic.resources.messages import Messages
from google.genai import types
from openai.resources.chat.completions import Completions
from openai.resources.responses import Responses

import manystream as ms
from tests.providers.model.test_request_rules import USER


def test_a_request_has_these_defaults() -> None:
    request = ms.Request("m", USER)
    shown = {
        name: getattr(request, name) for name in ms.Request.__dataclass_fields__ if name not in ("model", "messages")
    }
    assert shown == {
        "system": None, "tools": (), "tool_choice": "auto", "thinking": None, "max_output_tokens": None,
        "temperature": None, "top_p": None, "stop": (), "seed": None, "response_schema": None,
        "parallel_tool_calls": None, "metadata": None, "timeouts": None, "retry": None, "extra_body": None,
        "extra_headers": None, "priority": ms.Priority.NORMAL, "tenant": None, "session": None, "tags": None,
        "durable": False, "return_tokens": False, "logprobs": None, "prompt_token_ids": None,
        "continue_aborted": False, "cache": None, "keep_received": False, "_given": None,
    }  # fmt: skip
    assert (request.system_blocks, request.thinking_config) == ([], None)
    assert "extra_headers" not in repr(ms.Request("m", USER, extra_headers={"a": "secret"}))
    tool = ms.Tool("f")
    assert tool == ms.Tool("f", "", {"type": "object", "properties": {}}, None, None)
    assert tool.parameters is not ms.Tool("g").parameters


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("modle", "did you mean 'model'?"),
        ("temprature", "did you mean 'temperature'?"),
        ("max_tokens", "use max_output_tokens"),
        ("max_completion_tokens", "use max_output_tokens"),
        ("timeout", "use timeouts=ms.Timeouts(…)"),
        ("stream", "engine.stream streams, and engine.request does not"),
        ("max_retries", "use retry=ms.Retry(max_attempts=…)"),
        ("response_format", "use response_schema"),
        ("text", "use response_schema"),
        ("reasoning_effort", "use thinking"),
        ("stop_sequences", "use stop"),
        ("instructions", "use system"),
        ("functions", "use tools"),
        ("api_key", "it belongs to the provider, such as ms.OpenAIChat(…)"),
        ("top_k", "it is the server's: put it into extra_body"),
        ("n", "it is the server's: put it into extra_body"),
        ("zzz", "what only the server knows goes into extra_body"),
    ],
)
def test_an_option_of_another_library_is_answered_with_ours(name: str, hint: str) -> None:
    options: Any = {"seed": 1, name: 1}
    for make in (lambda: ms.Request("m", USER, **options), lambda: ms.Conversation().request("m", **options)):
        with pytest.raises(TypeError) as caught:
            make()
        assert str(caught.value) == f"Request() got an unexpected keyword argument {name!r}; {hint}"


def test_no_argument_of_an_sdk_is_taken_for_a_misspelt_option() -> None:
    creators = (Completions.create, Responses.create, Messages.create)
    names = {name for create in creators for name in inspect.signature(create).parameters}
    names |= types.GenerateContentConfig.model_fields.keys()
    for name in names - ms.RequestOptions.__annotations__.keys() - {"self", "model", "messages"}:
        options: Any = {name: 1}
        with pytest.raises(TypeError) as caught:
            ms.Request("m", USER, **options)
        assert "did you mean" not in str(caught.value)


def test_the_system_prompt_as_blocks() -> None:
    assert ms.Request("m", USER, system="s").system_blocks == [ms.Text("s")]
    blocks = [ms.Text("a"), ms.Text(""), ms.Text("b")]
    assert ms.Request("m", USER, system=blocks).system_blocks == [ms.Text("a"), ms.Text("b")]
    assert ms.Request("m", USER, system="").system_blocks == []


def test_the_thinking_option_as_a_config() -> None:
    high = ms.ThinkingConfig(ms.ThinkingLevel.HIGH)
    budget = ms.ThinkingConfig(budget_tokens=5)
    medium = ms.ThinkingConfig("medium", 5, "x", True)  # type: ignore[arg-type]
    for given in ("high", ms.ThinkingLevel.HIGH, high):
        assert ms.Request("m", USER, thinking=given).thinking_config == high
    assert ms.Request("m", USER, thinking=budget).thinking_config is budget
    assert ms.Request("m", USER, thinking=medium).thinking_config == ms.ThinkingConfig(
        ms.ThinkingLevel.MED, 5, "x", True
    )
