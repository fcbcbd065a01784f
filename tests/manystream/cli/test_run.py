"""The command `manystream run`: the request that it sends, all that it prints, and each of its complaints."""

from __future__ import annotations

import contextlib
import io
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, TypeAlias

import pytest
import trio

import manystream as ms
from manystream.cli import main
from manystream.cli import run as run_command
from manystream.cli.command_line import command_parser
from manystream.cli.output.errors import CommandError
from manystream.cli.run import choose_provider, describe_error, provider_names, read_headers
from manystream.engine import Completion, Timings
from manystream.providers.catalog.provider import Anthropic, OpenAIChat, Provider
from manystream.providers.errors import InvalidRequestError
from manystream.providers.model.events import Event, FinishReason, TextDelta, ThinkingDelta
from manystream.providers.model.messages import Message, Text
from manystream.providers.model.options import Retry
from manystream.providers.model.provider_error import ErrorCategory, ProviderError
from manystream.providers.model.request import Request, ThinkingLevel
from manystream.providers.model.response import Response
from manystream.providers.model.tokens import Usage
from tests.support.commands import remove_keys
from tests.support.profile_rows import ROWS

URL = "http://127.0.0.1:1/v1"


RESPONSE = Response(
    content=[Text("It is sunny.")], finish_reason=FinishReason.STOP, usage=Usage(input_tokens=12, output_tokens=5),
    model="claude-test",
)  # fmt: skip


ANSWER = Completion(
    success=True, response=RESPONSE, attempts=1, timings=Timings(queued=0.0, first_token=0.25, finished=1.5)
)


SUMMARY = "[claude-test · stop · 12 in, 5 out tokens · first token after 250.0 ms, complete after 1.50 s]\n"


Run: TypeAlias = "Callable[..., tuple[int, str, str]]"


class Engine:
    """An engine whose only call ends at once as the test says, and which keeps what it was given."""

    def __init__(self) -> None:
        self.completion = ANSWER
        self.events: Sequence[Event] = [ThinkingDelta(0, "Hm"), TextDelta(1, "It is "), TextDelta(1, "sunny.")]
        self.providers: Sequence[Provider] = ()
        self.requests: list[tuple[bool, Request]] = []
        self.refusal: InvalidRequestError | None = None

    @contextlib.asynccontextmanager
    async def open(self, *, providers: Sequence[Provider]) -> AsyncGenerator[Engine, None]:
        self.providers = providers
        yield self

    def start_stream(self, request: Request, on_event: Callable[[Event], None], on_completion: Any) -> Engine:
        if self.refusal is not None:
            raise self.refusal
        self.requests.append((True, request))
        for event in self.events:
            on_event(event)
        on_completion(self.completion)
        return self

    def start_request(self, request: Request, on_completion: Any) -> Engine:
        self.requests.append((False, request))
        on_completion(self.completion)
        return self

    async def wait(self) -> Completion:
        return self.completion


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine = Engine()
    monkeypatch.setattr(run_command, "open_engine", engine.open)
    remove_keys(monkeypatch)
    return engine


@pytest.fixture
def run(engine: Engine, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(["run", *arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run


# What is sent.


def test_a_prompt_is_sent_with_the_defaults(run: Run, engine: Engine) -> None:
    assert run("--provider", "anthropic", "Hello")[0] == 0
    ((streamed, request),) = engine.requests
    (provider,) = engine.providers
    assert type(provider) is Anthropic
    assert (streamed, request.model, request.messages) == (True, "anthropic/claude-sonnet-4-5", [Message.user("Hello")])
    assert (request.system, request.thinking, request.max_output_tokens, request.extra_headers) == (None,) * 4
    assert request.retry == Retry(max_attempts=2)


def test_every_option_is_sent(run: Run, engine: Engine) -> None:
    status, out, err = run(
        "--base-url", URL, "--model", "m", "--system", "Be brief.", "--thinking", "high", "--max-tokens", "7",
        "--header", "a = 1", "--header", "b=2=3", "--attempts", "5", "--no-stream", "Hello",
    )  # fmt: skip
    assert (status, out, err) == (0, "It is sunny.\n", SUMMARY)
    ((streamed, request),) = engine.requests
    (provider,) = engine.providers
    assert (type(provider), provider.base_url, provider.api_key) == (OpenAIChat, URL, "any")
    assert (streamed, request.model, request.system) == (False, "openai-compatible/m", "Be brief.")
    assert (request.thinking, request.max_output_tokens) == (ThinkingLevel.HIGH, 7)
    assert (request.extra_headers, request.retry) == ({"a": "1", "b": "2=3"}, Retry(max_attempts=5))


def test_a_dash_sends_all_of_the_standard_input(run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\n"))
    assert run("--provider", "anthropic", "-")[0] == 0
    assert engine.requests[0][1].messages == [Message.user("one\ntwo\n")]


# What is printed.


def test_the_answer_and_the_rest_are_on_two_streams(run: Run) -> None:
    assert run("--provider", "anthropic", "Hello") == (0, "It is sunny.\n", "thinking: Hm\n" + SUMMARY)


def failure(category: ErrorCategory, **members: Any) -> Completion:
    error = ProviderError("no\x1b\n way", category=category, **members)
    return Completion(success=False, error=error, attempts=1)


def test_a_failure_is_one_line(run: Run, engine: Engine) -> None:
    engine.completion = failure(ErrorCategory.SERVER, http_status=503, retry_after_ms=1500)
    engine.events = []
    status, out, err = run("--provider", "anthropic", "Hello")
    assert (status, out) == (1, "")
    assert err == (
        "manystream run: the server failed (HTTP 503), anthropic at api.anthropic.com: no\ufffd way;"
        " try again in 1.50 s\n"
    )


def test_an_interrupted_answer_is_shown_without_an_error(run: Run, engine: Engine) -> None:
    error = ProviderError("cancelled", category=ErrorCategory.CANCELLED)
    engine.completion = Completion(success=False, response=Response(model="m"), error=error, attempts=1)
    engine.events = [TextDelta(0, "It")]
    assert run("--provider", "anthropic", "Hello") == (130, "It\n", "[m]\n")


def test_a_request_that_cannot_be_sent_is_one_line(run: Run, engine: Engine) -> None:
    engine.refusal = InvalidRequestError("max_output_tokens", "is wrong")
    error = "manystream run: max_output_tokens: is wrong\n"
    assert run("--provider", "anthropic", "--max-tokens", "0", "Hello") == (1, "", error)


# Errors.


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ProviderError("x", category=ErrorCategory.NETWORK), "network, openai-compatible at h:1: x"),
        (ProviderError("x  y\n z", category=ErrorCategory.TIMEOUT), "timeout, openai-compatible at h:1: x y z"),
        (ProviderError("x", category=ErrorCategory.RATE_LIMIT, http_status=429, retry_after_ms=0),
            "rate limit (HTTP 429), openai-compatible at h:1: x"),
        (ProviderError("x", category=ErrorCategory.RATE_LIMIT, retry_after_ms=1),
            "rate limit, openai-compatible at h:1: x; try again in 1.0 ms"),
    ],
)  # fmt: skip
def test_an_error_is_described_in_one_line(error: ProviderError, text: str) -> None:
    assert describe_error(error, OpenAIChat("k", "http://user:canary@h:1/v1")) == text


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ((" \n",), 2, "the prompt is empty"),
        (("--attempts", "0", "--base-url", URL, "--model", "m", "x"), 2,
            "--attempts: retry.max_attempts: must be a whole"),
        (("--header", "a", "x"), 2, "--header number 1: write NAME=VALUE"),
        (("--header", "a=", "--header", " =secret", "x"), 2, "--header number 2: write NAME=VALUE"),
        (("x",), 1,
            "no key found: set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or add --base-url and --model"),
        (("--model", "mystery", "x"), 1, "unknown model 'mystery': add --provider or --base-url"),
        (("--model", "nobody/m", "x"), 1, "unknown model 'nobody/m': add --provider or --base-url"),
        (("--base-url", URL, "x"), 1, "no model was named: add --model"),
        (("--provider", "groq", "x"), 1, "no model was named: add --model"),
    ],
)  # fmt: skip
def test_each_complaint_is_one_line(run: Run, arguments: tuple[str, ...], status: int, words: str) -> None:
    found, out, err = run(*arguments)
    assert (found, out) == (status, "")
    assert err.startswith(f"manystream run: {words}")
    assert err.count("\n") == 1


def test_an_unknown_provider_is_answered_with_all_names(run: Run) -> None:
    status, _, err = run("--provider", "nobody", "x")
    assert status == 1
    assert err.startswith("manystream run: unknown provider 'nobody'; the names are ")
    assert {"anthropic", "google", "openai-chat", "groq"} <= set(err.rstrip().partition(" are ")[2].split(", "))


def test_headers_are_stripped_and_may_be_empty() -> None:
    assert read_headers([]) == {}
    assert read_headers([" a = b ", "c=", "a=d"]) == {"a": "d", "c": ""}
    with pytest.raises(CommandError) as caught:
        read_headers(["a=b", "c"])
    assert (str(caught.value), caught.value.status) == ("--header number 2: write NAME=VALUE", 2)


def test_the_help_ends_with_all_providers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "anthropic, openai-chat, openai-responses, google, google-interactions." in " ".join(shown.split())
    *_, statuses, names = shown.split("\n\n")
    assert statuses.splitlines()[-1] == "  130  interrupted; the part of the answer that had arrived is shown"
    heading, *lines = names.splitlines()
    assert heading == "providers:"
    assert len(lines) > 1
    assert all(line.startswith("  ") and len(line) <= 100 for line in lines)
    assert all(len(line) > 80 for line in lines[:-1])
    listed = " ".join(lines).replace(" ", "").split(",")
    assert {"anthropic", "google", "openai-chat", "openrouter-responses", "github-copilot-responses"} <= set(listed)


def test_provider_names_are_not_divided(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(run_command, "provider_names", lambda: ["a-b"] * 21)
    assert main(["run", "--help"]) == 0
    _, _, names = capsys.readouterr().out.partition("\nproviders:\n")
    assert names.splitlines() == ["  " + "a-b, " * 18 + "a-b,", "  a-b, a-b"]


def test_thinking_has_the_levels_of_requests() -> None:
    values = [command_parser().parse_args(["run", "--thinking", level, "x"]).thinking for level in ("none", "low")]
    assert values == ["none", "low"]
    assert run_command.THINKING["none"] is ThinkingLevel.NONE


def test_a_call_that_waits_is_cancelled_by_ctrl_c(run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = Completion(success=False, error=ProviderError("stopped", category=ErrorCategory.CANCELLED))

    class WaitingCall:
        def __init__(self) -> None:
            self.ended = trio.Event()

        def cancel(self) -> None:
            self.ended.set()

        async def wait(self) -> Completion:
            signal.raise_signal(signal.SIGINT)
            await self.ended.wait()
            return cancelled

    monkeypatch.setattr(engine, "start_stream", lambda *_: WaitingCall())
    assert run("--provider", "anthropic", "Hello") == (130, "", "")


Given: TypeAlias = tuple[str | None, str | None, str | None]
"""Provider, model and base URL."""


LOCAL = "http://127.0.0.1:1/v1"


def options(provider: str | None = None, model: str | None = None, base_url: str | None = None) -> Given:
    return provider, model, base_url


@pytest.mark.parametrize(
    ("given", "kind", "model"),
    [
        (options(provider="anthropic"), ms.Anthropic, "claude-sonnet-4-5"),
        (options(provider="claude", model="x"), ms.Anthropic, "x"),
        (options(provider="openai"), ms.OpenAIChat, "gpt-5-mini"),
        (options(provider="openai-responses"), ms.OpenAIResponses, "gpt-5-mini"),
        (options(provider="gemini"), ms.Gemini, "gemini-2.5-flash"),
        (options(model="claude-opus-4-5"), ms.Anthropic, "claude-opus-4-5"),
        (options(model="gpt-5.2"), ms.OpenAIChat, "gpt-5.2"),
        (options(model="gemini-3-pro"), ms.Gemini, "gemini-3-pro"),
        (options(model="anthropic/claude-next"), ms.Anthropic, "claude-next"),
        (options(model="llama3.2", base_url=LOCAL), ms.OpenAIChat, "llama3.2"),
        (options(model="meta/llama", base_url=LOCAL), ms.OpenAIChat, "meta/llama"),
        (options(provider="anthropic", model="x", base_url=LOCAL), ms.Anthropic, "x"),
    ],
)
def test_name_model_and_url_choose_the_provider(given: Given, kind: type[ms.Provider], model: str) -> None:
    provider, chosen = choose_provider(*given, {})
    assert type(provider) is kind
    assert chosen == model
    assert given[2] is None or provider.base_url == given[2]


@pytest.mark.parametrize(
    ("given", "environment", "kind", "url", "model"),
    [
        (options(model="gpt-5"), {"OPENAI_BASE_URL": LOCAL}, ms.OpenAIChat, LOCAL, "gpt-5"),
        (options(model="llama3.2"), {"OPENAI_BASE_URL": LOCAL}, ms.OpenAIChat, LOCAL, "llama3.2"),
        (options(model="llama3.2"), {"ANTHROPIC_BASE_URL": LOCAL}, ms.Anthropic, LOCAL, "llama3.2"),
        (options(model="openai/llama3.2"), {"OPENAI_BASE_URL": LOCAL}, ms.OpenAIChat, LOCAL, "llama3.2"),
        (options(), {"OPENAI_BASE_URL": LOCAL}, ms.OpenAIChat, LOCAL, "gpt-5-mini"),
        (options(provider="groq", model="m"), {"GROQ_BASE_URL": "http://127.0.0.1:1"}, ms.OpenAIChat,
         "http://127.0.0.1:1/openai/v1", "m"),
        (options(provider="azure", model="m"), {"AZURE_OPENAI_ENDPOINT": "https://a.openai.azure.com"}, ms.OpenAIChat,
         "https://a.openai.azure.com/openai/v1", "m"),
        (options(model="gpt-5", base_url="http://127.0.0.1:2/v1"), {"OPENAI_BASE_URL": LOCAL}, ms.OpenAIChat,
         "http://127.0.0.1:2/v1", "gpt-5"),
        (options(model="claude-opus-4-5"), {"OPENAI_BASE_URL": LOCAL}, ms.Anthropic, "https://api.anthropic.com",
         "claude-opus-4-5"),
    ],
)  # fmt: skip
def test_the_environment_has_the_address(
    given: Given, environment: dict[str, str], kind: type[ms.Provider], url: str, model: str
) -> None:
    provider, chosen = choose_provider(*given, environment)
    assert (type(provider), provider.base_url, chosen) == (kind, url, model)


def test_a_server_of_the_environment_has_its_profile() -> None:
    provider, _ = choose_provider(*options(model="gpt-5"), {"OPENAI_BASE_URL": LOCAL})
    assert (provider.name, provider.profile.name) == ("openai-chat", "openai-compatible")


def test_without_a_name_the_first_provider_with_a_key_is_asked() -> None:
    provider, model = choose_provider(*options(), {"GEMINI_API_KEY": "k", "OPENAI_API_KEY": ""})
    assert type(provider) is ms.Gemini
    assert model == "gemini-2.5-flash"


OTHER_DIALECTS = {
    "anthropic": ms.Anthropic, "google": ms.Gemini, "google-interactions": ms.GeminiInteractions,
    "openai-responses": ms.OpenAIResponses, "openrouter-responses": ms.OpenAIResponses,
    "vercel-responses": ms.OpenAIResponses, "xai-responses": ms.OpenAIResponses, "groq-responses": ms.OpenAIResponses,
    "github-copilot-responses": ms.OpenAIResponses, "huggingface-responses": ms.OpenAIResponses,
    "vllm-generate": ms.VLLMGenerate, "sglang-generate": ms.SGLangGenerate, "openai-completions": ms.OpenAICompletions,
    "vllm-completions": ms.OpenAICompletions, "sglang-completions": ms.OpenAICompletions,
}  # fmt: skip
"""Provider → its class, for the providers that do not speak OpenAI Chat."""


def test_every_provider_with_a_base_url_has_a_name() -> None:
    assert provider_names() == [name for name, row in ROWS.items() if row.base_url]
    assert {"openai-chat", "groq", "ollama", *OTHER_DIALECTS} <= {*provider_names()}


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.base_url])
def test_every_provider_name_is_accepted(name: str) -> None:
    provider, model = choose_provider(*options(provider=name, model="m"), {})
    assert type(provider) is OTHER_DIALECTS.get(name, ms.OpenAIChat)
    assert (provider.name, provider.base_url, model) == (name, ROWS[name].base_url, "m")
