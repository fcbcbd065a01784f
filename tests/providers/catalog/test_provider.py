"""Providers, requests and errors as values: defaults, the texts that show them, and the whole text of each refusal."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from anthropic.resources.messages import Messages
from google.genai import types
from openai.resources.chat.completions import Completions
from openai.resources.responses import Responses

import manystream as ms
from manystream.providers.catalog.profiles import is_row, profile_by_host, profile_by_name
from manystream.providers.catalog.provider import keys_of, takes_block
from manystream.providers.catalog.registry import DIALECTS, check_dialect, dialect_of
from manystream.providers.catalog.selection import configured, named, select
from manystream.providers.model.provider_error import malformed, truncated
from manystream.providers.model.request_rules import validate_model, validate_options, validate_request
from tests.support.event_order import OrderChecker, OrderError

MINE = ms.Profile(name="mine", dialect="openai-chat", base_url="https://mine.example/v1")


def refused(make: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(ms.InvalidRequestError) as caught:
        make()
    return caught.value.field, str(caught.value)


def key() -> str:
    return "k"


async def coroutine() -> str:
    return "k"


def generator() -> Iterator[str]:
    yield "k"


# --- providers ---


def test_a_provider_has_these_values() -> None:
    plain = ms.OpenAIChat()
    assert (plain.api_key, plain.base_url, plain.name) == (None, "https://api.openai.com/v1", "openai-chat")
    assert (plain.headers, plain.idempotency_header, plain.profile.name) == ({}, None, "openai-chat")
    given = ms.Anthropic(
        key, "https://h.example", name="n", headers={"a": "b"}, profile=None, idempotency_header="I", prices_as="openai"
    )
    assert (given.api_key, given.base_url, given.name) == (key, "https://h.example", "n")
    assert (plain.prices_as, given.prices_as) == (None, "openai")
    assert (given.headers, given.idempotency_header, given.profile.name) == ({"a": "b"}, "I", "anthropic-compatible")


def test_a_provider_finds_its_row() -> None:
    assert ms.OpenAIChat(name="groq").profile.name == "groq"
    assert ms.OpenAIChat(name="groq", base_url="https://api.x.ai/v1").profile.name == "groq"
    assert ms.OpenAIChat(name="other", base_url="https://api.x.ai/v1").profile.name == "xai"
    assert ms.OpenAIChat(name="other").profile.name == "openai-chat"
    assert ms.OpenAIChat(profile="vllm").base_url == "http://localhost:8000/v1"
    assert ms.OpenAIChat(profile=MINE).profile is MINE
    assert ms.Provider(profile=MINE).profile is MINE


def test_several_keys_are_kept_in_order() -> None:
    assert (ms.OpenAIChat(["a", key]).api_key, keys_of(ms.OpenAIChat(["a", key]))) == (("a", key), ("a", key))
    assert (ms.OpenAIChat(["a"]).api_key, keys_of(ms.OpenAIChat(["a"]))) == ("a", ())
    assert keys_of(ms.OpenAIChat(key)) == keys_of(ms.OpenAIChat()) == ()


def test_the_repr_of_a_provider_hides_its_query() -> None:
    assert repr(ms.OpenAIChat("k", profile=MINE)) == (
        "OpenAIChat(name='mine', base_url='https://mine.example/v1', profile='mine')"
    )
    shown = repr(ms.Anthropic("k", "https://h.example/a?key=secret?x", name="n"))
    assert shown == "Anthropic(name='n', base_url='https://h.example/a?…', profile='anthropic-compatible')"
    shown = repr(ms.Anthropic("k", "https://me:se@cret@h.example/a@2", name="n"))
    assert shown == "Anthropic(name='n', base_url='https://…@h.example/a@2', profile='anthropic-compatible')"
    for form in (
        "https://me:{}@h/v1",
        "https://me:{}/x@h/v1",
        "https:/me:{}@h",
        "me:{}@h/v1",
        "//me:{}@h",
        "https://{}@h",
    ):
        assert "secret" not in repr(ms.Anthropic("k", form.format("secret"), name="n")), form
    assert "'https://h:1/a'" in repr(ms.Anthropic("k", "https://h:1/a", name="n"))


def test_a_provider_that_was_not_made_can_be_shown() -> None:
    """A traceback with the variables of its frames shows it."""
    with pytest.raises(ms.InvalidRequestError) as raised:
        ms.OpenAIChat(b"secret")  # type: ignore[arg-type]
    shown = [repr(frame.locals.get("self")) for frame in raised.traceback]
    assert "<OpenAIChat>" in shown


def test_providers_are_equal_by_their_values() -> None:
    assert ms.OpenAIChat("a", profile=MINE) == ms.OpenAIChat("a", profile=MINE)
    assert ms.OpenAIChat("a", profile=MINE) != ms.OpenAIChat("b", profile=MINE)
    assert ms.OpenAIChat("a", profile=MINE) != ms.Provider("a", profile=MINE)
    assert ms.OpenAIChat("a") != "a"
    with pytest.raises(TypeError):
        hash(ms.OpenAIChat())


NO_DIALECT = (
    "profile: a plain Provider has no dialect: give it a Profile, or take OpenAIChat, OpenAIResponses, Anthropic,"
    " Gemini or GeminiInteractions"
)
REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: ms.Provider(), NO_DIALECT),
    (lambda: ms.Provider(profile="groq"), NO_DIALECT),
    (lambda: ms.Provider(name="groq", base_url="https://api.x.ai/v1"), NO_DIALECT),
    (lambda: ms.Gemini(profile="groq"), "profile: no profile 'groq' speaks gemini"),
    (
        lambda: ms.Gemini(profile=MINE),
        "profile: Gemini speaks gemini, and the profile 'mine' is for openai-chat: use Provider(profile=…), which takes"
        " its dialect from the profile",
    ),
    (lambda: ms.Gemini([]), "api_key: must hold at least one key"),
    *((partial(kind, key), "api_key: looks like a URL: give it as base_url=…")
      for key in ("http://127.0.0.1:8000/v1", "HTTPS://h.example", "localhost:8000", "127.0.0.1/v1", "localhost")
      for kind in (ms.OpenAIChat, ms.OpenAIResponses, ms.Anthropic, ms.Gemini, ms.GeminiInteractions,
                   ms.OpenAICompletions, ms.VLLMGenerate, ms.SGLangGenerate)),
    (lambda: ms.Gemini("http://h.example", "sk-key"), "api_key: looks like a URL: give it as base_url=…"),
    (lambda: ms.Gemini(["a", "https://h.example"]), "api_key[1]: looks like a URL: give it as base_url=…"),
    (lambda: ms.Gemini("k", name="https://h.example/v1"), "name: looks like a URL: give it as base_url=…"),
    (lambda: ms.Gemini(["a", ""]), "api_key[1]: must not be empty"),
    (lambda: ms.Gemini(["a", "b", "a"]), "api_key[2]: is given twice: each key has limits of its own"),
    (lambda: ms.Gemini([1]), "api_key[0]: must be text, or a function that returns it, not int"),  # type: ignore[list-item]
    (
        lambda: ms.Gemini(["a", generator]),  # type: ignore[list-item]
        "api_key[1]: generator is a generator function (yield), which returns no key. Give a plain function or a"
        " coroutine function that returns one",
    ),
    (
        lambda: ms.Gemini(sign=coroutine),  # type: ignore[arg-type]
        "sign: coroutine is a coroutine function (async def), which returns no headers when it is called. Give a plain"
        " function, which must not wait",
    ),
    (lambda: ms.Gemini(sign="key"), "sign: must be a function that returns headers, not str"),  # type: ignore[arg-type]
    (lambda: ms.Gemini(1), "api_key: must be text, or a function that returns it, not int"),  # type: ignore[arg-type]
    (lambda: ms.Gemini(base_url=1), "base_url: must be text, not int"),  # type: ignore[arg-type]
    (lambda: ms.Gemini(name=""), "name: must be text that is not empty, not ''"),
    (lambda: ms.Gemini(headers={"a": 1}), "headers['a']: must be text, not int"),  # type: ignore[dict-item]
    (lambda: ms.Gemini(headers=["a"]), "headers: must be a dict of texts, not list"),  # type: ignore[arg-type]
    (lambda: ms.Gemini(profile=1), "profile: must be a profile's name or a Profile, not 1"),  # type: ignore[arg-type]
    (
        lambda: ms.Gemini(prices_as=""),
        "prices_as: must be text that is not empty, not ''",
    ),
    (
        lambda: ms.Gemini(idempotency_header=1),  # type: ignore[arg-type]
        "idempotency_header: must be a header's name, not 1",
    ),
    (lambda: check_dialect(ms.Profile(name="p", dialect="d", base_url="")), "profile.dialect: no dialect is named 'd';"
     " known are openai-chat, openai-responses, anthropic, gemini, gemini-interactions, vllm-generate,"
     " sglang-generate, openai-completions; for another wire format give the Dialect itself:"
     " Profile(dialect=my_dialect)"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_a_wrong_provider_is_refused_in_these_words(make: Callable[[], object], words: str) -> None:
    field, shown = refused(make)
    assert shown == words
    assert words.startswith(f"{field}: ")


def test_the_maker_of_state() -> None:
    generic = ms.OpenAIChat(base_url="https://h.example/v1", name="n")
    assert generic.maker == "openai-compatible:n"
    assert generic.maker is ms.OpenAIChat(base_url="https://h.example/v1", name="n").maker
    assert ms.OpenAIChat(base_url="https://h.example/v1").maker == "openai-compatible"
    assert ms.OpenAIChat(profile=MINE, name="n").maker == "mine"
    blocks = [ms.ProviderBlock(maker, {}) for maker in ("openai-compatible:n", "openai-compatible", "n")]
    assert [takes_block(generic, block) for block in blocks] == [True, True, False]


def test_the_dialect_of_a_profile() -> None:
    chat = DIALECTS["openai-chat"]
    assert dialect_of(MINE) is chat
    assert dialect_of(ms.Profile(name="p", dialect=chat, base_url="")) is chat
    assert ms.Profile(name="p", dialect=chat, base_url="").dialect_name == MINE.dialect_name == "openai-chat"
    assert (len(DIALECTS), [*DIALECTS]) == (
        5,
        ["openai-chat", "openai-responses", "anthropic", "gemini", "gemini-interactions"],
    )
    with pytest.raises(KeyError):
        DIALECTS["none"]


def test_rows_are_told_from_profiles_of_a_program() -> None:
    groq = profile_by_name("groq", "openai-chat")
    assert is_row(groq)
    assert is_row(ms.Gemini(base_url="https://h.example").profile)
    assert not is_row(copy.deepcopy(groq))
    assert not is_row(MINE)
    assert profile_by_name("openai", "openai-chat") is profile_by_name("openai-chat", "openai-chat")
    assert profile_by_name("none", "openai-chat") is None


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (" https://api.groq.com/openai/v1 ", "groq"),
        ("HTTPS://API.GROQ.COM:443/v1", "groq"),
        ("https://api.groq.com:444/v1", None),
        ("http://localhost:11434", "ollama"),
        ("http://localhost:1234", "lmstudio"),
        ("http://localhost:8080/v1", None),
        ("https://a@b@api.groq.com", "groq"),
        ("https://api.cloudflare.com/client/v4/accounts/1/ai", "cloudflare"),
        ("https://api.cloudflare.com/client/v5", None),
        ("https://api.cloudflare.com", None),
        ("https://x.services.ai.azure.com/models", "azure-models"),
        ("https://x.services.ai.azure.com/modelx", "azure"),
        ("https://api.eu.githubcopilot.com", "github-copilot"),
        ("https://", None),
    ],
)
def test_the_row_of_an_address(url: str, name: str | None) -> None:
    row = profile_by_host(url, "openai-chat")
    assert (row.name if row else None) == name


# --- selection ---

FIRST, SECOND = ms.OpenAIChat("a", profile=MINE, name="one"), ms.OpenAIChat("b", profile="groq", name="two")


def test_the_errors_of_selection() -> None:
    both = [FIRST, SECOND]
    assert refused(lambda: select("x", both)) == (
        "model",
        "model: no provider is known for 'x'; configured are one, two: write 'one/…' to name one",
    )
    assert refused(lambda: select("x", [])) == (
        "model",
        "model: no provider is known for 'x'; no provider is configured",
    )
    assert refused(lambda: select("one/ ", both)) == ("model", "model: 'one/ ' names a provider and no model")
    assert configured(both[1:]) == "configured are two: write 'two/…' to name one"
    wrong = "model: must be a model's name, such as 'gpt-5' or 'anthropic/claude-sonnet-4-5', not"
    for model in ("", " ", None, 7):
        assert refused(lambda model=model: validate_model(model)) == ("model", f"{wrong} {model!r}")  # type: ignore[misc]
    validate_model(" x ")


def test_a_name_precedes_a_row_and_a_row_a_generic_one() -> None:
    generic = ms.OpenAIChat("c", base_url="https://h.example/v1", name="three")
    known = ms.OpenAIChat("d", name="four")
    assert named("two", [FIRST, SECOND]) is SECOND
    assert named("groq", [FIRST, SECOND]) is SECOND
    assert named("openai", [generic, known]) is known
    assert named("openai", [generic]) is generic
    assert named("none", [FIRST, SECOND]) is None
    assert select("gpt-5", [generic, known]) == (known, "gpt-5")
    assert select("gpt-5", [generic, FIRST]) == (generic, "gpt-5")
    assert select("groq/a/b", [FIRST, SECOND]) == (SECOND, "a/b")


# --- requests ---

USER = [ms.Message.user("a")]
TOOL = ms.Tool("f")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tools": [TOOL, TOOL]}, "tools[1].name: 'f' appears twice"),
        ({"tool_choice": "g"}, "tool_choice: 'g' is neither auto, none, required nor a tool's name"),
        ({"tools": [TOOL], "tool_choice": "g"}, "tool_choice: 'g' is neither auto, none, required nor a tool's name"),
        ({"tool_choice": "required"}, "tool_choice: is 'required', but the request has no tools"),
        ({"temperature": -0.1}, "temperature: must be a number of at least 0, not -0.1"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_each_other(options: dict[str, object], words: str) -> None:
    request = ms.Request("m", USER, **options)  # type: ignore[arg-type]
    for check in (validate_options, validate_request):
        assert refused(lambda check=check: check(request))[1] == words  # type: ignore[misc]
    assert refused(lambda: validate_request(ms.Request("m", [])))[0] == "messages"


def test_options_that_fit_each_other() -> None:
    for choice in ("auto", "none", "required", "f"):
        validate_request(ms.Request("m", USER, tools=[TOOL, ms.Tool("g")], tool_choice=choice))
    for choice in ("auto", "none"):
        validate_request(ms.Request("m", USER, tool_choice=choice))


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


def test_timeouts_and_retries_have_these_values() -> None:
    assert ms.Timeouts() == ms.Timeouts(None, None, None, None, None)
    assert ms.Retry() == ms.Retry(max_attempts=4, base=1.0, cap=30.0, jitter=1.0, max_hint=120.0)
    over = ms.Timeouts(connect=1, total=2).over(ms.Timeouts(3, 4, 5, 6, 7))
    assert over == ms.Timeouts(connect=1, first_byte=4, idle=5, total=2, queue=7)
    assert ms.Quirks() == MINE.quirks


# --- errors ---


def test_an_error_has_these_defaults() -> None:
    error = ms.ProviderError("m", category=ms.ErrorCategory.UNKNOWN)
    facts = (error.http_status, error.provider_code, error.retry_after_ms, error.retryable, error.request_id)
    assert facts == (0, None, -1, False, None)
    assert (error.body, error.context_overflow, error.provider, error.model, error.host) == (b"", False, "", "", "")
    assert error.args == ("m",)
    for category in ms.ErrorCategory:
        retryable = category.value in ("rate_limit", "server", "timeout", "network")
        assert ms.ProviderError("m", category=category).retryable is retryable
        assert ms.ProviderError("m", category=category, retryable=not retryable).retryable is not retryable
    assert malformed("w", b"b") == ms.ProviderError("w", category=ms.ErrorCategory.SERVER, retryable=False, body=b"b")
    assert truncated() == ms.ProviderError("truncated stream", category=ms.ErrorCategory.NETWORK)
    assert truncated("w").message == "w"


def test_an_error_is_shown_in_one_line() -> None:
    error = ms.ProviderError(
        "a\n b", category=ms.ErrorCategory.SERVER, http_status=503, retry_after_ms=0, provider_code="c"
    )
    assert str(error) == "server, HTTP 503: a b (retry after 0 s)"
    error.provider, error.model, error.host, error.retry_after_ms = "p", "m", "h", 1500
    assert str(error) == "server, HTTP 503, provider p, model m, host h: a b (retry after 1.5 s)"
    assert repr(error) == (
        r"ProviderError('a\n b', category=SERVER, http_status=503, provider_code='c', retryable=True)"
    )
    plain = ms.ProviderError("a", category=ms.ErrorCategory.AUTH)
    assert (str(plain), repr(plain)) == ("auth: a", "ProviderError('a', category=AUTH, http_status=0, retryable=False)")


VALUES: dict[str, object] = {
    "category": ms.ErrorCategory.AUTH, "http_status": 1, "provider_code": "c", "retry_after_ms": 5, "retryable": True,
    "request_id": "r", "body": b"b", "context_overflow": True,
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_errors_are_compared_by_every_fact(name: str) -> None:
    def make(**facts: object) -> ms.ProviderError:
        return ms.ProviderError("m", **{"category": ms.ErrorCategory.UNKNOWN, **facts})  # type: ignore[arg-type]

    assert make() == make()
    assert hash(make()) == hash(make())
    assert make(**{name: VALUES[name]}) != make()
    assert make() != "m"
    assert ms.ProviderError("n", category=ms.ErrorCategory.UNKNOWN) != make()


def test_errors_can_be_sent_to_another_process() -> None:
    error = ms.ProviderError("m", category=ms.ErrorCategory.AUTH, http_status=1, body=b"b")
    error.provider, error.model, error.host = "p", "m", "h"
    copied = pickle.loads(pickle.dumps(error))
    assert (copied, str(copied), copied.host) == (error, str(error), "h")
    wrong = pickle.loads(pickle.dumps(ms.InvalidRequestError("f", "w")))
    assert (wrong.field, str(wrong)) == ("f", "f: w")


# --- the order of events ---

START, DONE = ms.Start(), ms.Done(ms.FinishReason.STOP, None, ms.Usage())
ERROR = ms.ErrorEvent(truncated())
CALL = ms.ToolCallStart(0, "c", "f")


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([ms.TextDelta(0, "a")], "text_delta is not allowed while the stream is 'before'"),
        ([START, START], "start is not allowed while the stream is 'open'"),
        ([START, DONE, DONE], "done is not allowed while the stream is 'ended'"),
        ([ERROR, ERROR], "error is not allowed while the stream is 'ended'"),
        ([START, CALL, ms.TextDelta(0, "a")], "text_delta is not allowed while block 0 is 'call'"),
        ([START, ms.ToolCallDelta(0, "a")], "tool_call_delta is not allowed while block 0 is 'new'"),
        ([START, CALL, ms.ToolCallDone(0), ms.ToolCallDelta(0, "a")],
            "tool_call_delta is not allowed while block 0 is 'closed'"),
        ([START, CALL, DONE], "DONE while a tool call is open"),
        ([START, CALL, ms.ToolCallDelta(0, "a"), DONE], "DONE while a tool call is open"),
    ],
)  # fmt: skip
def test_events_in_a_wrong_order_are_named(events: list[ms.Event], words: str) -> None:
    checker = OrderChecker()
    for event in events[:-1]:
        checker.check(event)
    with pytest.raises(OrderError) as caught:
        checker.check(events[-1])
    assert str(caught.value) == words


def test_events_in_their_order_are_accepted() -> None:
    checker = OrderChecker()
    for event in (
        START,
        ms.TextDelta(0, "a"),
        ms.ToolCallStart(1, "c", "f"),
        ms.TextDelta(0, "b"),
        ms.ToolCallDone(1),
        DONE,
    ):
        checker.check(event)
    assert checker.stream == "ended"
    checker = OrderChecker()
    events: list[ms.Event] = [START, CALL, ERROR]
    for each in events:
        checker.check(each)
