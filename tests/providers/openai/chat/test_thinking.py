"""What a request says about thinking, and the warnings for what is not sent."""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.model.messages import File, Image, Message, Text
from manystream.providers.model.request import Request, Tool

from .wire import OPENAI, SERVER, encode, known, quirky, warnings

HELLO = [Message.user("hello")]
HIGH = ms.ThinkingLevel.HIGH
PDF = File(url="https://x/y.pdf", name="y.pdf")
NO_FILMS = File(data=b"x", media_type="video/mp4")
OPEN: ms.JSONObject = {"type": "object", "additionalProperties": {"type": "integer"}}
CLOSED = "strict mode needs every property by its name; must be false or absent"
NO_BUDGET = "thinking.budget_tokens: the server takes no budget; give a level or an effort"

ERRORS: list[tuple[ms.OpenAIChat, Request, str]] = [
    (OPENAI, Request("m", [Message.tool_call("a", "t", "{}")]),
        "messages: contain nothing that can be sent: no text, no call, no file"),
    (quirky(named_tool_choice=False), Request("m", HELLO, tools=[Tool("f")], tool_choice="f"),
        "tool_choice: the server cannot be made to call 'f'; use 'required'"),
    (OPENAI, Request("m", HELLO, tools=[Tool("f"), Tool("g", parameters=OPEN, strict=True)]),
        f"tools[1].parameters.additionalProperties: {CLOSED}"),
    (OPENAI, Request("gpt-5", HELLO, thinking=ms.ThinkingConfig(budget_tokens=1)), NO_BUDGET),
    (OPENAI, Request("m", [*HELLO, Message.user([Text("a"), Image(file_id="f")])]),
        "messages[1].content[1].file_id: a chat request takes a picture as data or url only"),
    (OPENAI, Request("m", [Message.user([Text("a"), File(url="https://x/a.mp3", media_type="audio/mpeg")])]),
        "messages[0].content[1].url: a chat request takes sound as data only"),
    (OPENAI, Request("m", [Message.user([Text("a"), File(data=b"x", media_type="Audio/X-New; rate=1")])]),
        "messages[0].content[1].media_type: no format is known for 'audio/x-new'"),
    (OPENAI, Request("m", [Message.user([Text("a"), NO_FILMS])]), "messages[0].content[1]: the server takes no films"),
    (quirky(file_parts=False), Request("m", [Message.user(PDF)]), "messages[0].content[0]: the server takes no files"),
    (OPENAI, Request("m", [Message.user(PDF)]),
        "messages[0].content[0].url: the server takes a file as data or file_id, not by its URL"),
    (OPENAI, Request("m", [Message.tool_call("a", "t", "{}"), Message.tool_result("a", [Text("r"), NO_FILMS])]),
        "messages[1].content[0].content[1]: the server takes no films"),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "request_", "text"), ERRORS, ids=[row[2] for row in ERRORS])
def test_an_error_names_the_field_and_the_reason(provider: ms.OpenAIChat, request_: Request, text: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        encode(request_, provider)
    assert str(caught.value) == text


NOT_STRICT = (
    f"response_schema: sent as not strict, so the server may not enforce it; "
    f"response_schema.additionalProperties: {CLOSED}"
)
IN_PROMPT = "response_schema: the server guarantees only a JSON object; the schema was put into the prompt"
OWN_CACHE = "the server caches by itself, or not at all"
MARK = ms.CacheControl()
CALL = Message.tool_call("a", "t", "{}")

WARNINGS: list[tuple[ms.OpenAIChat, Request, list[str]]] = [
    (OPENAI, Request("m", HELLO, response_schema=OPEN), [NOT_STRICT]),
    (known("deepseek"), Request("m", HELLO, response_schema=OPEN), [IN_PROMPT]),
    (
        OPENAI,
        Request("m", HELLO, parallel_tool_calls=True),
        ["parallel_tool_calls: not sent; the request has no tools"],
    ),
    (
        quirky(parallel_tool_calls=False, tool_strict=False),
        Request("m", HELLO, tools=[Tool("f"), Tool("g", strict=True)], parallel_tool_calls=True),
        [
            "tools[1].strict: not sent; the server has no such setting",
            "parallel_tool_calls: not sent; the server has no such setting",
        ],
    ),
    (quirky(tool_strict=False), Request("m", HELLO, tools=[Tool("g", strict=False)]), []),
    (
        OPENAI,
        Request("m", HELLO, system=[Text("s", cache_control=MARK)], tools=[Tool("f"), Tool("g", cache_control=MARK)]),
        [f"system: cache_control not sent; {OWN_CACHE}", f"tools[1].cache_control: not sent; {OWN_CACHE}"],
    ),
    (
        OPENAI,
        Request("m", [*HELLO, Message.user([Text("a", cache_control=MARK)])]),
        [f"messages[1].content[0]: cache_control not sent; {OWN_CACHE}"],
    ),
    (
        OPENAI,
        Request("m", [Message.user([Image(url="u", cache_control=MARK), Text("a", cache_control=MARK)])]),
        [f"messages[0].content[{place}]: cache_control not sent; {OWN_CACHE}" for place in (0, 1)],
    ),
    (
        OPENAI,
        Request("o3", HELLO, temperature=0.5, top_p=0.5),
        [f"{name}: not sent; o3 takes it only without reasoning" for name in ("temperature", "top_p")],
    ),
    (OPENAI, Request("o3", HELLO, top_p=0.5), ["top_p: not sent; o3 takes it only without reasoning"]),
    (quirky(seed_member=""), Request("m", HELLO, seed=0), ["seed: not sent; the server has no such setting"]),
    (quirky(metadata=False), Request("m", HELLO, metadata={}), ["metadata: not sent; the server has no such member"]),
    (OPENAI, Request("m", [*HELLO, CALL]), ["messages[1].content[0]: call 'a' has no result and is not sent"]),
    (
        OPENAI,
        Request("m", [CALL, Message.tool_result("a", "no", is_error=True)]),
        ["messages[1].content[0].is_error: not sent; this dialect has no mark for failed results"],
    ),
    (
        OPENAI,
        Request("m", [CALL, Message.tool_result("a", [Text("r"), Image(url="u")])]),
        ["messages[1].content[0]: its pictures and files are sent in a user's message after the results"],
    ),
    (
        OPENAI,
        Request("m", [*HELLO, Message.assistant([Text("a"), Image(url="u"), File(file_id="f")])]),
        [
            f"messages[1].content[{place}]: an assistant's {kind!r} is not sent; this dialect has no form for it"
            for place, kind in ((1, "Image"), (2, "File"))
        ],
    ),
    (
        OPENAI,
        Request("m", [*HELLO, Message.assistant([Text("a"), ms.ProviderBlock("openai-chat", {"type": "x"})])]),
        ["messages[1].content[1]: an assistant's 'x' is not sent; this dialect has no form for it"],
    ),
    (
        OPENAI,
        Request("m", [Message.user([Text("a"), ms.ProviderBlock("openai-chat", {"type": "x"})])]),
        ["messages[0].content[1]: 'x' is not sent"],
    ),
    (OPENAI, Request("gpt-4o", HELLO, thinking=HIGH), ["thinking: not sent; gpt-4o takes no reasoning effort"]),
    (
        OPENAI,
        Request("gpt-5", HELLO, thinking=ms.ThinkingConfig(level=HIGH, budget_tokens=0)),
        ["thinking.budget_tokens: not sent; the server takes no budget"],
    ),
    (
        OPENAI,
        Request("gpt-5.1", HELLO, thinking=ms.ThinkingConfig(budget_tokens=0)),
        ["thinking.budget_tokens: not sent; the server takes no budget"],
    ),
    (
        OPENAI,
        Request("gpt-4o", HELLO, thinking=ms.ThinkingConfig(budget_tokens=0)),
        ["thinking.budget_tokens: not sent; the server takes no budget"],
    ),
    (
        known("deepseek"),
        Request("m", HELLO, thinking=ms.ThinkingConfig(budget_tokens=1, include_summary=False)),
        [
            "thinking.include_summary: not sent; the server shows its reasoning, or not, by itself",
            "thinking.budget_tokens: only on or off is sent; the server takes no budget",
        ],
    ),
    (
        known("alibaba"),
        Request("m", HELLO, thinking=ms.ThinkingConfig(effort="low")),
        ["thinking.effort: only on or off is sent; the server takes a budget"],
    ),
    (
        known("vllm"),
        Request("m", HELLO, thinking=ms.ThinkingConfig(budget_tokens=1)),
        ["thinking.budget_tokens: only on or off is sent; the server takes no budget"],
    ),
    (
        known("openrouter"),
        Request("m", HELLO, thinking=ms.ThinkingConfig(budget_tokens=1, effort="low", include_summary=True)),
        ["thinking.effort: not sent; the server takes a budget or an effort, and a budget is given"],
    ),
    (SERVER, Request("m", HELLO, thinking=ms.ThinkingConfig(include_summary=True)), [
        "thinking.include_summary: not sent; the server shows its reasoning, or not, by itself"]),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "request_", "texts"), WARNINGS)
def test_a_warning_names_the_field_and_the_reason(provider: ms.OpenAIChat, request_: Request, texts: list[str]) -> None:
    assert warnings(request_, provider) == texts


HELLO_THINKING = [ms.Message.user("hello")]
NONE, LOW, MED, HIGH_THINKING = ms.ThinkingLevel
MEMBERS = ("reasoning_effort", "reasoning", "thinking", "enable_thinking", "thinking_budget", "chat_template_kwargs")


def members(
    thinking: ms.ThinkingLevel | ms.ThinkingConfig | None, model: str, provider: ms.OpenAIChat = OPENAI
) -> dict[str, object]:
    body = encode(ms.Request(model, HELLO_THINKING, thinking=thinking), provider)
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


def test_a_budget_where_there_are_only_efforts() -> None:
    with pytest.raises(ms.InvalidRequestError, match="budget_tokens"):
        members(ms.ThinkingConfig(budget_tokens=5000), "gpt-5")
    both = ms.ThinkingConfig(level=LOW, budget_tokens=5000)
    assert members(both, "gpt-5") == {"reasoning_effort": "low"}
    assert warnings(ms.Request("gpt-5", HELLO_THINKING, thinking=both))
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
        (HIGH_THINKING, {"thinking": {"type": "enabled"}}),
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
        (HIGH_THINKING, {"thinking": {"type": "enabled", "budget_tokens": 32768}}),
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
        (HIGH_THINKING, {"enable_thinking": True}),
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
        ("Qwen/Qwen3-8B", HIGH_THINKING, {"chat_template_kwargs": {"enable_thinking": True}}),
        ("openai/gpt-oss-20b", HIGH_THINKING, {"reasoning_effort": "high"}),
        ("Qwen/Qwen3-8B", ms.ThinkingConfig(budget_tokens=9), {"chat_template_kwargs": {"enable_thinking": True}}),
        ("Qwen/Qwen3-8B", ms.ThinkingConfig(include_summary=True), {}),
    ],
)
def test_chat_templates(model: str, thinking: ms.ThinkingConfig, expected: object) -> None:
    assert members(thinking, model, known("vllm")) == expected


def test_a_server_without_a_switch_causes_a_warning() -> None:
    provider = quirky(thinking="none")
    assert members(HIGH_THINKING, "m", provider) == {}
    assert warnings(ms.Request("m", HELLO_THINKING, thinking=HIGH_THINKING), provider) == [
        "thinking: not sent; the server has no such setting"
    ]
