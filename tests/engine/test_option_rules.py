"""Invalid values are refused where they are given; the error names the field and the right form."""

# ruff: noqa: E501 (the tables have a row a line)
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import manystream as ms
from manystream.engine.option_rules import OPTIONS
from manystream.engine.request.value_rules import CERTIFICATE, LIMITS, POOL_LIMITS, TLS
from manystream.providers.catalog.profile_rules import PROFILE, QUIRKS
from manystream.providers.catalog.provider import PROVIDER
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.json.json_values import loads_object
from manystream.providers.model.message_rules import BLOCKS, MARK, MESSAGE, STATE
from manystream.providers.model.options import RETRY, TIMEOUTS
from manystream.providers.model.request_rules import REQUEST, THINKING, TOOL, validate_request
from manystream.providers.model.rules import Checker

KEY = "sk-canary-0123456789"
PROVIDERS: dict[str, ms.Provider] = {
    "gpt-5": ms.OpenAIChat(KEY, "http://127.0.0.1:9/v1", name="chat"),
    "gpt-5.1": ms.OpenAIResponses(KEY, "http://127.0.0.1:9/v1", name="responses"),
    "claude-sonnet-4-5": ms.Anthropic(KEY, "http://127.0.0.1:9", name="anthropic"),
    "gemini-2.5-pro": ms.Gemini(KEY, "http://127.0.0.1:9", name="gemini"),
}
USER = ms.Message.user("hello")
RESULT = [USER, ms.Message.tool_call("c1", "t", "{}")]


def made(kind: Any, **wrong: object) -> Any:
    """Return a value with a wrong member, as an assignment or a cast can create it."""
    members: dict[type, dict[str, object]] = {
        ms.Message: {"role": "user", "content": "hello"},
        ms.Text: {"text": "x"},
        ms.ToolCall: {"id": "c1", "name": "t", "arguments": "{}"},
        ms.ToolResult: {"tool_call_id": "c1", "content": "x"},
        ms.Thinking: {"text": "x"},
        ms.RedactedThinking: {"data": "x"},
        ms.Image: {"url": "https://host/a.png"},
        ms.File: {"url": "https://host/a.pdf", "media_type": "application/pdf"},
        ms.ProviderBlock: {"provider": "anthropic", "data": {}},
        ms.ProviderState: {"provider": "anthropic", "data": {}},
        ms.Tool: {"name": "t"},
    }
    value = kind(**members.get(kind, {}))
    for name, each in wrong.items():
        object.__setattr__(value, name, each)
    return value


def options(**given: object) -> dict[str, Any]:
    return {"messages": [USER], **given}


def user(block: object) -> dict[str, Any]:
    return {"messages": [made(ms.Message, content=[block])]}


def assistant(block: object) -> dict[str, Any]:
    return {"messages": [USER, made(ms.Message, role=ms.Role.ASSISTANT, content=[block]), USER]}


def result(block: object) -> dict[str, Any]:
    return {"messages": [*RESULT, made(ms.Message, role=ms.Role.TOOL, content=[block])]}


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (options(messages=iter([USER])), "messages", "must be a list of Message, not list_iterator; use list(…)"),
    (options(messages=ms.Conversation([USER])), "messages", "must be a list of Message, not Conversation; use list(…)"),
    (options(messages=None), "messages", "must be a list of Message, not None"),
    (options(messages=()), "messages", "must hold at least one message"),
    (options(messages=[1]), "messages[0]", "must be a Message, not int"),
    (options(system=3), "system", "must be text or a list of Text blocks, not 3"),
    (options(system=ms.Text("x")), "system", "must be text or a list of Text blocks, not Text; use [text]"),
    (options(system=["x"]), "system[0]", "must be a Text block, not 'x'; use Text(…)"),
    (options(system=[made(ms.Text, text=None)]), "system[0].text", "must be text, not None"),
    (options(tools=ms.Tool("t")), "tools", "must be a list of Tool, not Tool; use [tool]"),
    (options(tools={"t": 1}), "tools", "must be a list of Tool, not dict; use [Tool(…)]"),
    (options(tools=None), "tools", "must be a list of Tool, not None"),
    (options(tools=[made(ms.Tool, name="")]), "tools[0].name", "must be text that is not empty, not ''"),
    (options(tools=[made(ms.Tool, description=None)]), "tools[0].description", "must be text, not None"),
    (options(tools=[made(ms.Tool, parameters=str)]), "tools[0].parameters", "must be a JSON Schema (a dict), not the class str"),
    (options(tools=[made(ms.Tool, strict=1)]), "tools[0].strict", "must be True or False, not 1"),
    (options(tools=[made(ms.Tool, cache_control="5m")]), "tools[0].cache_control", "must be a CacheControl, not '5m'; use CacheControl('5m')"),
    (options(tools=[made(ms.Tool, cache_control=made(ms.CacheControl, ttl="2h"))]), "tools[0].cache_control.ttl", "must be one of '5m', '1h', not '2h'"),
    (options(tool_choice={"type": "tool"}), "tool_choice", "must be 'auto', 'none', 'required' or a tool's name, not dict; use tool_choice='name'"),
    (options(tool_choice=None), "tool_choice", "must be 'auto', 'none', 'required' or a tool's name, not None"),
    (options(thinking="much"), "thinking", "must be one of 'none', 'low', 'med', 'high', 'medium', not 'much'; use ThinkingConfig(effort='much') for a word of the provider's own"),
    (options(thinking=2000), "thinking", "must be a level's name, a ThinkingLevel or a ThinkingConfig, not 2000; use ThinkingConfig(budget_tokens=2000)"),
    (options(thinking=True), "thinking", "must be a level's name, a ThinkingLevel or a ThinkingConfig, not True; use 'med' or 'none'"),
    (options(thinking=made(ms.ThinkingConfig, level="much")), "thinking.level", "must be one of 'none', 'low', 'med', 'high', 'medium', not 'much'; use ThinkingConfig(effort='much') for a word of the provider's own"),
    (options(thinking=made(ms.ThinkingConfig, budget_tokens="9")), "thinking.budget_tokens", "must be a whole number of at least -1, not '9'"),
    (options(thinking=made(ms.ThinkingConfig, effort=3)), "thinking.effort", "must be text that is not empty, not 3"),
    (options(thinking=made(ms.ThinkingConfig, include_summary=1)), "thinking.include_summary", "must be True or False, not 1"),
    (options(max_output_tokens=-1), "max_output_tokens", "must be a whole number of at least 0 and at most 63 bits, not -1"),
    (options(max_output_tokens=True), "max_output_tokens", "must be a whole number of at least 0 and at most 63 bits, not True"),
    (options(max_output_tokens=2.0), "max_output_tokens", "must be a whole number of at least 0 and at most 63 bits, not 2.0"),
    (options(temperature="0.5"), "temperature", "must be a number of at least 0, not '0.5'"),
    (options(temperature=True), "temperature", "must be a number of at least 0, not True"),
    (options(temperature=math.nan), "temperature", "must be a number of at least 0, not nan"),
    (options(temperature=math.inf), "temperature", "must be a number of at least 0, not inf"),
    (options(temperature=-0.1), "temperature", "must be a number of at least 0, not -0.1"),
    (options(temperature=10**5000), "temperature", "must be a number of at least 0, not a larger int"),
    (options(top_p=1.1), "top_p", "must be a number from 0 to 1, not 1.1"),
    (options(stop="x"), "stop", "must be a list of texts, not 'x'; use stop=['x']"),
    (options(stop=[""]), "stop[0]", "must be text that is not empty, not ''"),
    (options(stop=[3]), "stop[0]", "must be text that is not empty, not 3"),
    (options(stop={"x"}), "stop", "must be a list of texts, not set"),
    (options(seed=1.5), "seed", "must be a whole number of 64 bits, not 1.5"),
    (options(seed=2**63), "seed", "must be a whole number of 64 bits, not 9223372036854775808"),
    (options(response_schema="{}"), "response_schema", "must be a JSON Schema (a dict) or a type, such as a pydantic model, a dataclass or list[…], not '{}'"),
    (options(response_schema=dict), "response_schema", "must be a JSON Schema (a dict) or a type, such as a pydantic model, a dataclass or list[…], not the class dict"),
    (options(parallel_tool_calls="no"), "parallel_tool_calls", "must be True or False, not 'no'"),
    (options(metadata=["x"]), "metadata", "must be a dict of texts, not list"),
    (options(metadata={"user_id": 3}), "metadata['user_id']", "must be text, not int"),
    (options(metadata={3: "x"}), "metadata", "must have text as names, not 3"),
    (options(timeouts=30), "timeouts", "must be a Timeouts, not 30; use Timeouts(total=30)"),
    (options(timeouts=2.5), "timeouts", "must be a Timeouts, not 2.5; use Timeouts(total=2.5)"),
    (options(retry=3), "retry", "must be a Retry, not 3; use Retry(max_attempts=3)"),
    (options(retry=False), "retry", "must be a Retry, not False; use Retry(max_attempts=1) for no retry"),
    (options(extra_body=[1]), "extra_body", "must be a dict, not list"),
    (options(extra_headers=["x"]), "extra_headers", "must be a dict of texts, not list"),
    (options(extra_headers={"x": None}), "extra_headers['x']", "must be text, not None"),
    (user(made(ms.Text, text=3)), "messages[0].content[0].text", "must be text, not 3"),
    (user(made(ms.Text, citations={})), "messages[0].content[0].citations", "must be a list of dicts, not dict"),
    (user(made(ms.Text, cache_control=True)), "messages[0].content[0].cache_control", "must be a CacheControl, not True"),
    (user(made(ms.Text, state={})), "messages[0].content[0].state", "must be a ProviderState, not dict"),
    (user(made(ms.Text, state=made(ms.ProviderState, data=3))), "messages[0].content[0].state.data", "must be a dict, not 3"),
    (user(made(ms.Image, url=3)), "messages[0].content[0].url", "must be text, not 3"),
    (user(made(ms.Image, url=None, data="eA==", media_type="image/png")), "messages[0].content[0].data", "must be bytes, not 'eA=='; use url=… for a URL, data=Path(…).read_bytes() for a file, from_base64(…) for base64 text"),
    (user(made(ms.Image, detail="sharp")), "messages[0].content[0].detail", "must be one of 'auto', 'low', 'high', 'original', not 'sharp'"),
    (user(made(ms.File, name=3)), "messages[0].content[0].name", "must be text, not 3"),
    (assistant(made(ms.ToolCall, arguments=None)), "messages[1].content[0].arguments", "must be JSON text, not None"),
    (assistant(made(ms.ToolCall, arguments={})), "messages[1].content[0].arguments", "must be JSON text, not dict"),
    (assistant(made(ms.ToolCall, id="")), "messages[1].content[0].id", "must be text that is not empty, not ''"),
    (assistant(made(ms.ToolCall, name=None)), "messages[1].content[0].name", "must be text that is not empty, not None"),
    (assistant(made(ms.ToolCall, complete=None)), "messages[1].content[0].complete", "must be True or False, not None"),
    (assistant(made(ms.Thinking, text=None)), "messages[1].content[0].text", "must be text, not None"),
    (assistant(made(ms.Thinking, signature=b"x")), "messages[1].content[0].signature", "must be text, not bytes"),
    (assistant(made(ms.RedactedThinking, data=b"x")), "messages[1].content[0].data", "must be text, not bytes"),
    (assistant(made(ms.ProviderBlock, data=None)), "messages[1].content[0].data", "must be a dict, not None"),
    (result(made(ms.ToolResult, content=None)), "messages[2].content[0].content", "must be text or a list of blocks, not None"),
    (result(made(ms.ToolResult, content={"a": 1})), "messages[2].content[0].content", "must be text or a list of blocks, not dict; use json.dumps(…)"),
    (result(made(ms.ToolResult, content=["x"])), "messages[2].content[0].content[0]", "must be a Text, Image or File block, not 'x'"),
    (result(made(ms.ToolResult, content=[ms.Image()])), "messages[2].content[0].content[0]", "needs exactly one of data, url and file_id, not 0"),
    (result(made(ms.ToolResult, is_error="no")), "messages[2].content[0].is_error", "must be True or False, not 'no'"),
    ({"messages": [made(ms.Message, role="user")]}, "messages[0].role", "must be a Role, not 'user'; use Role('user')"),
    ({"messages": [made(ms.Message, content="hello")]}, "messages[0].content", "must be a list of blocks, not str; use [Text(…)]"),
    ({"messages": [made(ms.Message, provider_metadata=None)]}, "messages[0].provider_metadata", "must be a dict, not None"),
]  # fmt: skip


@pytest.mark.parametrize("model", PROVIDERS)
async def test_an_invalid_value_is_refused_with_the_right_form(model: str) -> None:
    async with ms.open_engine([PROVIDERS[model]], environment={}) as engine:
        for given, field, message in REFUSED:
            for start in (engine.start_stream, engine.start_request):
                with pytest.raises(ms.InvalidRequestError) as raised:
                    start(ms.Request(model, **given))
                assert str(raised.value) == f"{field}: {message}"
                assert raised.value.field == field
        assert engine.statistics().started == 0


@pytest.mark.parametrize("model", [None, "", " ", 3, b"gpt-5", ["gpt-5"]])
async def test_a_model_that_is_not_a_name_is_refused(model: Any) -> None:
    async with ms.open_engine(list(PROVIDERS.values()), environment={}) as engine:
        with pytest.raises(ms.InvalidRequestError, match="model: must be a model's name"):
            engine.start_stream(ms.Request(model, [USER]))


@pytest.mark.parametrize("model", PROVIDERS)
async def test_a_changed_value_in_a_conversation_is_checked_again(model: str) -> None:
    conversation = ms.Conversation([ms.Message.user("ask"), ms.Message.assistant("answer")] * 20 + [USER])
    async with ms.open_engine([PROVIDERS[model]], environment={}) as engine:
        engine.start_stream(conversation.request(model))
        for wrong in ([made(ms.Text, text=3)], None, "hello", []):
            conversation.messages[0] = made(ms.Message, content=wrong)
            with pytest.raises(ms.InvalidRequestError, match=r"messages\[0\]\.content"):
                engine.start_stream(conversation.request(model))


# --- what is accepted ---


class Weather:
    """A class that creates its own schema, as pydantic's models do."""

    @classmethod
    def model_json_schema(cls) -> dict[str, object]:
        return {"title": "Weather", "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def encoded(model: str, **given: Any) -> Mapping[str, Any]:
    provider = PROVIDERS[model]
    wire = DIALECTS[provider.dialect].encode(ms.Request(model, [USER], **given), model, provider, stream=False)
    return loads_object(wire.body)


@pytest.mark.parametrize("model", PROVIDERS)
@pytest.mark.parametrize(
    ("name", "level"),
    [("low", ms.ThinkingLevel.LOW), ("med", ms.ThinkingLevel.MED), ("medium", ms.ThinkingLevel.MED),
     ("high", ms.ThinkingLevel.HIGH)],
)  # fmt: skip
def test_a_level_may_be_given_by_its_name(model: str, name: Any, level: ms.ThinkingLevel) -> None:
    expected = encoded(model, thinking=level)
    assert expected != encoded(model)
    assert encoded(model, thinking=name) == expected
    assert encoded(model, thinking=ms.ThinkingConfig(level=name)) == expected


@pytest.mark.parametrize("model", PROVIDERS)
def test_a_class_with_a_schema_is_accepted(model: str) -> None:
    expected = encoded(model, response_schema=Weather.model_json_schema())
    assert expected != encoded(model)
    assert encoded(model, response_schema=Weather) == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: 1 / 0, "Broken.model_json_schema() raised ZeroDivisionError: division by zero"),
        (lambda _: "{}", "Broken.model_json_schema() must return a dict, not str"),
    ],
)
def test_a_class_without_a_schema_is_refused(make: Callable[[object], object], message: str) -> None:
    broken = type("Broken", (), {"model_json_schema": classmethod(make)})
    with pytest.raises(ms.InvalidRequestError) as raised:
        encoded("gpt-5", response_schema=broken)
    assert str(raised.value) == f"response_schema: {message}"


@pytest.mark.parametrize(
    "given",
    [
        {"temperature": 0}, {"temperature": 2}, {"top_p": 1}, {"max_output_tokens": 1}, {"seed": -1}, {"stop": ("\n",)},
        {"system": [ms.Text("x")]}, {"system": ()}, {"metadata": {}}, {"extra_body": {}}, {"tools": [ms.Tool("t")]},
        {"messages": (USER,)}, {"messages": [ms.Message.user(ms.Image(data=bytearray(b"x"), media_type="image/png"))]},  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_every_valid_value_is_accepted(given: dict[str, Any]) -> None:
    validate_request(ms.Request("m", **options(**given)))


def test_subclasses_are_taken() -> None:
    class Name(str): ...

    class Number(float): ...

    class Words(list[str]): ...

    class MyTool(ms.Tool): ...

    class MyRequest(ms.Request): ...

    tools = [MyTool("t")]
    validate_request(MyRequest(Name("m"), [USER], temperature=Number(1), stop=Words(["x"]), tools=tools))


# --- messages, options and providers as they are made ---


@pytest.mark.parametrize("content", [None, 3, b"hello", {"type": "text"}])
def test_a_message_consists_of_blocks(content: Any) -> None:
    with pytest.raises(ms.InvalidRequestError, match="content: must be text, a block or a list of blocks, not "):
        ms.Message.user(content)


def test_a_system_message_error_names_the_right_place() -> None:
    with pytest.raises(ms.InvalidRequestError) as raised:
        ms.Message("developer", "Be brief.")
    expected = "must be one of 'user', 'assistant', 'tool', 'system', not 'developer'; use 'system'"
    assert str(raised.value) == f"role: {expected}"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ms.Timeouts(total="3"), "timeouts.total: must be a number of seconds above 0, not '3'"),  # type: ignore[arg-type]
        (lambda: ms.Timeouts(idle=0), "timeouts.idle: must be a number of seconds above 0, not 0"),
        (lambda: ms.Timeouts(idle=math.nan), "timeouts.idle: must be a number of seconds above 0, not nan"),
        (lambda: ms.Timeouts(connect=True), "timeouts.connect: must be a number of seconds above 0, not True"),
        (lambda: ms.Timeouts(total=10**400), "timeouts.total: must be a number of seconds above 0, not a larger int"),
        (lambda: ms.Retry(cap=10**400), "retry.cap: must be a number of seconds of at least 0, not a larger int"),
        (lambda: ms.Retry(max_attempts=0), "retry.max_attempts: must be a whole number of at least 1, not 0"),
        (lambda: ms.Retry(max_attempts="3"), "retry.max_attempts: must be a whole number of at least 1, not '3'"),  # type: ignore[arg-type]
        (lambda: ms.Retry(max_attempts=2.5), "retry.max_attempts: must be a whole number of at least 1, not 2.5"),  # type: ignore[arg-type]
        (lambda: ms.Retry(base=math.inf), "retry.base: must be a number of seconds of at least 0, not inf"),
        (lambda: ms.Retry(jitter=-1), "retry.jitter: must be a number of seconds of at least 0, not -1"),
        (lambda: ms.Retry(cap=None), "retry.cap: must be a number of seconds of at least 0, not None"),  # type: ignore[arg-type]
        (lambda: ms.Image("https://a.example/a.png"), "data: must be bytes, not str; use url=…"),  # type: ignore[arg-type]
        (lambda: ms.File("gs://bucket/a.pdf"), "data: must be bytes, not str; use url=…"),  # type: ignore[arg-type]
        (lambda: ms.Image("/tmp/a.png"), "data: must be bytes, not str; use url=… for a URL, data=Path(…).read_bytes() for a file, from_base64(…) for base64 text"),  # type: ignore[arg-type]
        (lambda: ms.Image(Path("a.png")), "data: must be bytes, not PosixPath; use data=path.read_bytes()"),  # type: ignore[arg-type]
        (lambda: ms.File(BytesIO(b"a")), "data: must be bytes, not BytesIO; use data=file.read()"),  # type: ignore[arg-type]
        (lambda: ms.Image(url=Path("a.png")), "url: must be text, not a path; use data=path.read_bytes()"),  # type: ignore[arg-type]
        (lambda: ms.OpenAIChat(3), "api_key: must be text, or a function that returns it, not int"),  # type: ignore[arg-type]
        (lambda: ms.OpenAIChat("k", 3), "base_url: must be text, not int"),  # type: ignore[arg-type]
        (lambda: ms.OpenAIChat("k", name=3), "name: must be text that is not empty, not 3"),  # type: ignore[arg-type]
        (lambda: ms.OpenAIChat("k", headers=["x"]), "headers: must be a dict of texts, not list"),  # type: ignore[arg-type]
        (lambda: ms.OpenAIChat("k", headers={"x": 3}), "headers['x']: must be text, not int"),  # type: ignore[dict-item]
        (lambda: ms.OpenAIChat("k", profile=3), "profile: must be a profile's name or a Profile, not 3"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_options_and_providers_are_checked_at_construction(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as raised:
        make()
    assert str(raised.value) == message


def test_infinity_switches_optional_limits_off() -> None:
    ms.Timeouts(connect=math.inf, first_byte=math.inf, idle=math.inf, total=math.inf)
    ms.Retry(cap=math.inf, max_hint=math.inf)


def changed(**wrong: object) -> ms.Provider:
    provider = ms.OpenAIChat(KEY, "http://127.0.0.1:9/v1")
    for name, each in wrong.items():
        setattr(provider, name, each)
    return provider


def profile(**given: Any) -> ms.Profile:
    return ms.Profile(**{"name": "mine", "dialect": "openai-chat", "base_url": "http://127.0.0.1:9", **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"providers": changed()}, "providers: must be a list of providers, not OpenAIChat; use [provider]"),
        ({"providers": "openai"}, "providers: must be a list of providers, not str"),
        ({"providers": ["openai"]}, "providers[0]: must be a Provider, not 'openai'"),
        ({"providers": [ms.OpenAIChat]}, "providers[0]: must be a Provider, not the class OpenAIChat"),
        ({"providers": [changed(api_key=3)]}, "providers[0].api_key: must be text, or a function that returns it, not int"),
        ({"providers": [changed(headers=None)]}, "providers[0].headers: must be a dict of texts, not None"),
        ({"providers": [changed(profile="openai-chat")]}, "providers[0].profile: must be a Profile, not 'openai-chat'"),
        ({"providers": [changed(profile=profile(key_variables="KEY"))]}, "providers[0].profile.key_variables: must be a tuple of texts, not 'KEY'; use ('KEY',)"),
        ({"providers": [changed(profile=profile(needs_key="no"))]}, "providers[0].profile.needs_key: must be True or False, not 'no'"),
        ({"providers": [changed(profile=profile(quirks=ms.Quirks(thinking="loud")))]}, "providers[0].profile.quirks.thinking: must be one of 'reasoning_effort', 'reasoning', 'thinking_type', 'thinking_budget', 'enable_thinking', 'chat_template_kwargs', 'none', not 'loud'"),  # type: ignore[arg-type]
        ({"timeouts": 30}, "timeouts: must be a Timeouts, not 30; use Timeouts(total=30)"),
        ({"retry": 3}, "retry: must be a Retry, not 3; use Retry(max_attempts=3)"),
        ({"limits": 3}, "limits: must be an EngineLimits, not 3; use EngineLimits(max_calls=3)"),
        ({"limits": ms.EngineLimits(max_calls=0)}, "limits.max_calls: must be a whole number of at least 1, not 0"),
        ({"limits": ms.EngineLimits(max_event_bytes=1e6)}, "limits.max_event_bytes: must be a whole number of at least 1, not 1000000.0"),  # type: ignore[arg-type]
        ({"limits": ms.EngineLimits(pool=3)}, "limits.pool: must be a PoolLimits, not 3; use PoolLimits(max_connections=3)"),  # type: ignore[arg-type]
        ({"limits": ms.EngineLimits(pool=ms.PoolLimits(max_connections=0))}, "limits.pool.max_connections: must be a whole number of at least 1, not 0"),
        ({"limits": ms.EngineLimits(pool=ms.PoolLimits(idle_expiry=math.nan))}, "limits.pool.idle_expiry: must be a number of seconds of at least 0, not nan"),
        ({"tls": "ca.pem"}, "tls: must be a TLSConfig, not 'ca.pem'; use TLSConfig(ca_file='ca.pem')"),
        ({"tls": False}, "tls: must be a TLSConfig, not False; TLS cannot be switched off"),
        ({"tls": ms.TLSConfig(ca_file=3)}, "tls.ca_file: must be a path, not 3"),  # type: ignore[arg-type]
        ({"tls": ms.TLSConfig(ca_file="")}, "tls.ca_file: must be a path, not ''"),
        ({"tls": ms.TLSConfig(ca_data="")}, "tls.ca_data: must be PEM text with a certificate, not str"),
        ({"tls": ms.TLSConfig(client_certificate="a.pem")}, "tls.client_certificate: must be a ClientCertificate, not 'a.pem'; use ClientCertificate('a.pem')"),  # type: ignore[arg-type]
        ({"tls": ms.TLSConfig(client_certificate=ms.ClientCertificate("a.pem", password=b"secret"))}, "tls.client_certificate.password: must be text, not bytes"),  # type: ignore[arg-type]
        ({"tls": ms.TLSConfig(lenient=1)}, "tls.lenient: must be True or False, not 1"),  # type: ignore[arg-type]
        ({"proxy": 3}, "proxy: must be the URL of a proxy, '' for none, or None for the environment's, not int"),
        ({"proxy": False}, "proxy: must be the URL of a proxy, '' for none, or None for the environment's, not bool; use '' for none"),
        ({"proxy": {"https": "http://h"}}, "proxy: must be the URL of a proxy, '' for none, or None for the environment's, not dict; it is one URL for all origins; `environment` has one per scheme"),
        ({"limits": ms.EngineLimits(retry_reserve=-1)}, "limits.retry_reserve: must be a number of at least 0, not -1"),
        ({"limits": ms.EngineLimits(retry_reserve=None)}, "limits.retry_reserve: must be a number of at least 0, not None"),  # type: ignore[arg-type]
        ({"limits": ms.EngineLimits(max_blocks=0)}, "limits.max_blocks: must be a whole number of at least 1, not 0"),
        ({"limits": ms.EngineLimits(pool=ms.PoolLimits(max_age="5 min"))}, "limits.pool.max_age: must be a number of seconds of at least 0, not '5 min'"),  # type: ignore[arg-type]
        ({"dial": "socks5://127.0.0.1"}, "dial: must be an async function of a host and a port, not 'socks5://127.0.0.1'"),
        ({"environment": ["A=1"]}, "environment: must be a dict of texts, not list"),
        ({"environment": {"HTTP_PROXY": 3}}, "environment['HTTP_PROXY']: must be text, not int"),
        ({"observer": ms.Observer}, "observer: must be an Observer, not the class Observer; use an instance of it"),
        ({"monitor": 3}, "monitor: must be True, False or a path, not 3"),
        ({"monitor": ""}, "monitor: must be True, False or a path, not ''"),
        ({"providers": [changed(profile=profile(quirks=ms.Quirks(headers=(("a",),))))]}, "providers[0].profile.quirks.headers[0]: must be a pair of texts, not 1"),  # type: ignore[arg-type]
        ({"providers": [changed(profile=profile(quirks=ms.Quirks(efforts=("low", "high"))))]}, "providers[0].profile.quirks.efforts: must be four texts, one for each thinking level, not 2"),  # type: ignore[arg-type]
        ({"providers": [changed(profile=profile(quirks=ms.Quirks(efforts=("a", "b", 3, "d"))))]}, "providers[0].profile.quirks.efforts[2]: must be text, not 3"),  # type: ignore[arg-type]
        ({"providers": [changed(profile=profile(quirks=ms.Quirks(load=(ms.LoadReport(path=""),))))]}, "providers[0].profile.quirks.load[0].path: must be text that is not empty, not ''"),
        ({"providers": [changed(profile=profile(quirks=ms.Quirks(query="a b")))]}, "providers[0].profile.quirks.query: must be a percent-encoded query, such as 'a=1&b=2', not str"),
    ],
)  # fmt: skip
async def test_an_engine_s_options_are_checked_at_open_engine(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as raised:
        async with ms.open_engine(**{"providers": [changed()], **given}):
            pass
    assert str(raised.value) == message


async def test_path_objects_are_accepted_as_paths(tmp_path: Path) -> None:
    async with ms.open_engine([changed()], tls=ms.TLSConfig(ca_file=tmp_path / "ca.pem")):  # type: ignore[arg-type]
        pass


async def test_an_unknown_option_error_lists_the_known_ones() -> None:
    with pytest.raises(TypeError, match="open_engine has no option 'timeout': there are cache, dial, environment, "):
        async with ms.open_engine([changed()], timeout=30):  # type: ignore[call-arg]
            pass


# --- the table itself ---

CHECKERS: Sequence[Checker] = [
    REQUEST, THINKING, TOOL, MESSAGE, MARK, STATE, PROFILE, QUIRKS, TIMEOUTS, RETRY, *BLOCKS.values(),
    LIMITS, POOL_LIMITS, TLS, CERTIFICATE,
]  # fmt: skip


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker.kind.__name__)
def test_every_field_has_its_row(checker: Checker) -> None:
    fields = {field.name for field in dataclasses.fields(checker.kind) if field.init}
    assert set(checker.rules) == fields


def test_every_field_of_a_provider_has_its_row() -> None:
    assert set(PROVIDER.rules) == set(ms.Provider.__slots__)


def test_every_option_of_an_engine_has_its_row() -> None:
    assert set(OPTIONS) == {"providers", *ms.EngineOptions.__annotations__}
