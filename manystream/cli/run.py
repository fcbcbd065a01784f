"""`manystream run`: one prompt to a provider or to any base URL, its answer streamed to the terminal.

The answer's text goes to standard output and nothing else does, so it can be piped; thinking, tool calls, usage and
timings go to standard error, dim where that is a terminal. Knows the command line and the eight events. Must not know
any dialect.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import trio

from ..cost import CostExtraError, check_installed, price_response
from ..engine import Completion, Engine, open_engine
from ..providers.errors import ErrorCategory, InvalidRequestError, ProviderError
from ..providers.messages import Message
from ..providers.options import Retry
from ..providers.profile import Profile
from ..providers.profiles import PROFILES, profile_by_name
from ..providers.provider import Provider
from ..providers.request import Request, ThinkingLevel
from .addresses import DIALECT_CLASSES, provider_at
from .answer import AnswerWriter
from .errors import CommandError
from .terminal import duration, harmless

HELP = "a prompt to a provider or any base URL, streamed to the terminal"
DESCRIPTION = """\
Send one prompt and stream the answer. Text goes to standard output; thinking, tool calls, usage and timings go to
standard error.

  manystream run "Why is the sky blue?"
  manystream run --model claude-sonnet-4-5 --thinking high "Prove that there are infinitely many primes."
  manystream run --base-url http://127.0.0.1:11434/v1 --model llama3.2 "Hello"
  git diff | manystream run --system "Review this change." -
"""

DEFAULT_MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai-chat": "gpt-5-mini",
    "openai-responses": "gpt-5-mini",
    "google": "gemini-2.5-flash",
}
"""Provider → the model that is asked where none is named. The first one that has a key is asked where neither is."""

THINKING = {level.value: level for level in ThinkingLevel}

CATEGORY_WORDS: dict[ErrorCategory, str] = {
    ErrorCategory.AUTH: "the key was refused",
    ErrorCategory.RATE_LIMIT: "rate limit",
    ErrorCategory.INVALID_ARG: "the request was refused",
    ErrorCategory.NOT_FOUND: "not found",
    ErrorCategory.SERVER: "the server failed",
    ErrorCategory.TIMEOUT: "time-out",
    ErrorCategory.CONTENT_FILTER: "stopped by a content filter",
    ErrorCategory.NETWORK: "network",
    ErrorCategory.CANCELLED: "interrupted",
    ErrorCategory.CALLBACK: "internal error",
    ErrorCategory.UNKNOWN: "failed",
}
"""Category → what a person is told first."""


@dataclass(slots=True, frozen=True)
class RunOptions:
    """The command line, checked."""

    provider: str | None
    model: str | None
    base_url: str | None
    system: str | None
    thinking: ThinkingLevel | None
    max_output_tokens: int | None
    headers: Mapping[str, str]
    attempts: int
    stream: bool
    prompt: str
    cost: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("prompt", metavar="PROMPT", help="what to ask; - reads it from standard input")
    parser.add_argument("--provider", metavar="PROVIDER", help="who to ask: one of those below")
    parser.add_argument("--model", metavar="MODEL", help="which model; its name also tells the provider")
    parser.add_argument("--base-url", metavar="URL", help="a server of your own (OpenAI-compatible unless --provider)")
    parser.add_argument("--system", metavar="TEXT", help="the system prompt")
    parser.add_argument("--thinking", choices=list(THINKING), help="how much to think before the answer")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="the longest answer, in tokens")
    parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE", help="a further request header")
    parser.add_argument(
        "--attempts", type=int, default=2, metavar="N", help="how often to try, while nothing has come (default: 2)"
    )
    parser.add_argument("--no-stream", action="store_true", help="wait for the whole answer")
    parser.add_argument("--cost", action="store_true", help="say what the answer cost (extra: manystream[cost])")
    names = textwrap.fill(
        ", ".join(provider_names()), 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
    parser.epilog = f"""\
Without --provider, --base-url and --model, the first provider that has a key is asked, of
{", ".join(DEFAULT_MODELS)}.
Keys come from its environment variable, or from ~/.config/manystream/credentials.json.

Exit status: 0 the answer is whole, 1 it failed, 2 called wrongly, 130 interrupted (what had arrived is shown).

providers:
{names}"""


def run(arguments: argparse.Namespace) -> int:
    """Ask, and show the answer; the exit status."""
    options = _read_options(arguments)
    return trio.run(_ask, options)


def provider_names() -> list[str]:
    """Every name that `--provider` takes, without aliases."""
    return [row.name for row in PROFILES if row.base_url]


def _read_options(arguments: argparse.Namespace) -> RunOptions:
    prompt: str = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    if not prompt.strip():
        raise CommandError("the prompt is empty", status=2)
    if arguments.cost:
        try:
            check_installed()
        except CostExtraError as error:
            raise CommandError(f"--cost: {error}", status=2) from None
    return RunOptions(
        provider=arguments.provider,
        model=arguments.model,
        base_url=arguments.base_url,
        system=arguments.system,
        thinking=THINKING[arguments.thinking] if arguments.thinking else None,
        max_output_tokens=arguments.max_tokens,
        headers=read_headers(arguments.header),
        attempts=arguments.attempts,
        stream=not arguments.no_stream,
        prompt=prompt,
        cost=arguments.cost,
    )


def read_headers(pairs: Sequence[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for place, pair in enumerate(pairs, 1):
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            # The pair is not shown: what stands in a header may be a key.
            raise CommandError(f"--header number {place}: write NAME=VALUE", status=2)
        headers[name.strip()] = value.strip()
    return headers


def choose_provider(options: RunOptions, environment: Mapping[str, str]) -> tuple[Provider, str]:
    """The provider and the model's name as it knows it. Raises `CommandError` naming what to add."""
    name, model = options.provider, options.model
    if name is None and model is not None and "/" in model and _row_by_name(model.partition("/")[0]):
        name, _, model = model.partition("/")
    row = _row_by_name(name) if name is not None else None
    if name is not None and row is None:
        raise CommandError(f"unknown provider {name!r}; known are {', '.join(provider_names())}")
    if row is None and options.base_url is None:
        row = _row_by_model(model) if model is not None else _row_with_key(environment)
    if row is None and options.base_url is None:
        if model is not None:
            raise CommandError(f"unknown model {model!r}: add --provider or --base-url to say who has it")
        raise CommandError(
            "no key found: set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or add --base-url and --model"
        )
    if model is None:
        model = DEFAULT_MODELS.get(row.name) if row is not None else None
    if model is None:
        raise CommandError("which model? add --model")
    if row is None:
        return provider_at(options.base_url or "", "openai-chat", environment), model
    return DIALECT_CLASSES[row.dialect_name](base_url=options.base_url, profile=row), model


def _row_by_name(name: str) -> Profile | None:
    rows = (profile_by_name(name, dialect) for dialect in DIALECT_CLASSES)
    return next((row for row in rows if row is not None), None)


def _row_by_model(model: str) -> Profile | None:
    return next((row for row in PROFILES if model.startswith(row.prefixes)), None)


def _row_with_key(environment: Mapping[str, str]) -> Profile | None:
    for name in DEFAULT_MODELS:
        row = _row_by_name(name)
        if row is not None and any(environment.get(variable) for variable in row.key_variables):
            return row
    return None


async def _ask(options: RunOptions) -> int:
    provider, model = choose_provider(options, os.environ)
    try:
        retry = Retry(max_attempts=options.attempts)
    except InvalidRequestError as error:
        raise CommandError(f"--attempts: {error}", status=2) from None
    request = Request(
        f"{provider.name}/{model}",
        [Message.user(options.prompt)],
        system=options.system,
        thinking=options.thinking,
        max_output_tokens=options.max_output_tokens,
        extra_headers=options.headers or None,
        retry=retry,
    )
    writer = AnswerWriter(sys.stdout, sys.stderr)
    try:
        async with open_engine(providers=[provider]) as engine:
            completion = await _complete(engine, request, writer, stream=options.stream)
    except InvalidRequestError as error:
        raise CommandError(str(error)) from None
    cost = None
    if options.cost and completion.response is not None:
        cost = price_response(completion.response, provider, model=model)
    writer.finish(completion, streamed=options.stream, cost=cost)
    if completion.error is None:
        return 0
    if completion.error.category is ErrorCategory.CANCELLED:
        return 130
    raise CommandError(describe_error(completion.error, provider))


async def _complete(engine: Engine, request: Request, writer: AnswerWriter, *, stream: bool) -> Completion:
    """Make the call and wait for its end. Ctrl-C cancels it, so that what has arrived is still there."""
    with trio.open_signal_receiver(signal.SIGINT) as signals:
        if stream:
            call = engine.start_stream(request, writer.on_event, lambda completion: None)
        else:
            call = engine.start_request(request, lambda completion: None)

        async def cancel_on_signal() -> None:
            async for _ in signals:
                call.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_on_signal)
            completion = await call.wait()
            nursery.cancel_scope.cancel()
    return completion


def describe_error(error: ProviderError, provider: Provider) -> str:
    """One line for a person: what kind of failure, where, and the server's own words."""
    status = f" (HTTP {error.http_status})" if error.http_status else ""
    words = CATEGORY_WORDS[error.category]
    message = harmless(" ".join(error.message.split()))
    hint = f"; try again in {duration(error.retry_after_ms / 1000)}" if error.retry_after_ms > 0 else ""
    host = urlsplit(provider.base_url).netloc.rpartition("@")[2]  # a URL may hold a password, which is not shown
    return f"{words}{status}, {provider.name} at {host}: {message}{hint}"
