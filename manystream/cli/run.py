"""The command `manystream run`: it sends one prompt to a provider or a base URL, and streams the answer.

Only the answer's text is written to standard output, so the output can be piped. Thinking, tool calls, usage and
timings are written to standard error, dimmed on a terminal.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import textwrap
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import trio

from .. import (
    Completion,
    Engine,
    ErrorCategory,
    InvalidRequestError,
    Message,
    Profile,
    Provider,
    ProviderError,
    Request,
    Retry,
    ThinkingLevel,
    open_engine,
)
from ..cost import PriceTable, price_response
from ..engine.request.addresses import NOWHERE, url_in
from ..engine.request.credentials import find_key
from ..providers.catalog.profiles import DEFAULT_PROFILES, PROFILES, profile_by_name
from ..providers.catalog.provider import DIALECT_CLASSES
from .addresses import provider_at, provider_of
from .answer import AnswerWriter, need_prices, read_prices
from .output.errors import CommandError
from .output.standard_streams import is_closed
from .output.terminal import duration, one_line

DESCRIPTION = """\
Send one prompt and stream the answer. The answer's text is written to standard output. Thinking, tool calls, usage and
timings are written to standard error.

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
    "google-interactions": "gemini-2.5-flash",
}
"""Provider → its default model. Without a provider and a model, the first of these providers with a key is used."""

NO_KEY = "no key found: set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY"
THINKING = {level.value: level for level in ThinkingLevel}

CATEGORY_WORDS: dict[ErrorCategory, str] = {
    ErrorCategory.AUTH: "the key was refused",
    ErrorCategory.RATE_LIMIT: "rate limit",
    ErrorCategory.INVALID_ARG: "the request was refused",
    ErrorCategory.NOT_FOUND: "not found",
    ErrorCategory.SERVER: "the server failed",
    ErrorCategory.TIMEOUT: "timeout",
    ErrorCategory.CONTENT_FILTER: "stopped by a content filter",
    ErrorCategory.NETWORK: "network",
    ErrorCategory.CANCELLED: "interrupted",
    ErrorCategory.CALLBACK: "internal error",
    ErrorCategory.UNKNOWN: "failed",
}
"""Category → the first words of its error message."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("prompt", metavar="PROMPT", help="the prompt; - reads it from standard input")
    add("--provider", metavar="PROVIDER", help="the provider: one of the names below")
    add("--model", metavar="MODEL", help="the model; without --provider, its name selects the provider")
    add("--base-url", metavar="URL", help="the base URL of another server (OpenAI-compatible unless --provider)")
    add("--system", metavar="TEXT", help="the system prompt")
    add("--thinking", choices=list(THINKING), help="how much the model thinks before the answer")
    add("--max-tokens", type=int, metavar="N", help="the longest answer, in tokens")
    add("--header", action="append", default=[], metavar="NAME=VALUE", help="an additional request header; repeatable")
    add("--attempts", type=int, default=2, metavar="N", help="attempts, until an event has arrived (default: 2)")
    add("--no-stream", action="store_true", help="show the answer when it is complete")
    add("--cost", action="store_true", help="show what the answer cost (needs the extra `cost`)")
    add("--prices", metavar="FILE", help="show the cost, by a JSON file with prices of your own")
    names = textwrap.fill(
        ", ".join(provider_names()), 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
    parser.epilog = f"""\
Without --provider, --base-url and --model, the prompt is sent to the first of these providers that has a key:
{", ".join(DEFAULT_MODELS)}.
A key is read from the provider's environment variable, or from ~/.config/manystream/credentials.json. Without
--base-url, the provider is at the address in OPENAI_BASE_URL, ANTHROPIC_BASE_URL or GOOGLE_GEMINI_BASE_URL, if set.

exit status:
  0    the answer is complete
  1    the call failed
  2    the command line is wrong
  130  interrupted; the part of the answer that had arrived is shown

providers:
{names}"""


def run(arguments: argparse.Namespace) -> int:
    """Send the prompt, show the answer, and return the exit status."""
    prompt: str = _read_prompt() if arguments.prompt == "-" else arguments.prompt
    if not prompt.strip():
        raise CommandError("the prompt is empty", status=2)
    prices = read_prices(arguments.prices)
    if arguments.cost or prices is not None:
        need_prices("--cost" if prices is None else "--prices")
    return trio.run(_ask, arguments, prompt, read_headers(arguments.header), prices)


def provider_names() -> list[str]:
    """Return every name that `--provider` accepts, without aliases."""
    return [row.name for row in PROFILES if row.base_url]


def _read_prompt() -> str:
    """Return the text of standard input. Raises `CommandError`."""
    if is_closed(sys.stdin):
        raise CommandError("cannot read standard input: it is closed", status=2)
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        wrong = error.object[error.start]
        raise CommandError(
            f"standard input is not {error.encoding} text (byte {wrong:#04x} at {error.start}): convert it"
        ) from None
    except OSError as error:
        raise CommandError(f"cannot read standard input: {error.strerror}") from None


def read_headers(pairs: Sequence[str]) -> dict[str, str]:
    """Parse `NAME=VALUE` pairs. Raises `CommandError`, whose message does not show the pair: it may hold a key."""
    headers: dict[str, str] = {}
    for place, pair in enumerate(pairs, 1):
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise CommandError(f"--header number {place}: write NAME=VALUE", status=2)
        headers[name.strip()] = value.strip()
    return headers


def choose_provider(
    name: str | None, model: str | None, url: str | None, environment: Mapping[str, str]
) -> tuple[Provider, str]:
    """Return the provider and its name of the model. Raises `CommandError`, which names the missing option.

    name, model, url: the options --provider, --model and --base-url.
    """
    if name is None and model is not None and "/" in model and _row_by_name(model.partition("/")[0]):
        name, _, model = model.partition("/")
    row = _row_by_name(name) if name is not None else None
    if name is not None and row is None:
        raise CommandError(f"unknown provider {name!r}; the names are {', '.join(provider_names())}")
    if row is None and url is None:
        row = _row_by_model(model, environment) if model is not None else _row_with_key(environment)
    if row is None and url is None:
        if model is not None:
            raise CommandError(f"unknown model {model!r}: add --provider or --base-url")
        raise CommandError(f"{NO_KEY}, or add --base-url and --model")
    if model is None:
        model = DEFAULT_MODELS.get(row.name) if row is not None else None
    if model is None:
        raise CommandError("no model was named: add --model")
    if row is None:
        return provider_at(url or "", "openai-chat", environment), model
    return provider_of(row, url, environment), model


def find_row(model: str, environment: Mapping[str, str]) -> tuple[Profile, str]:
    """Return the provider that a model's name stands for, and its name of the model. Raises `CommandError`.

    environment: the environment variables. A model of no known provider is one of the server whose address they have.
    """
    name, slash, rest = model.partition("/")
    row = _row_by_name(name) if slash else None
    if row is not None and rest:
        return row, rest
    row = _row_by_model(model, environment)
    if row is None:
        raise CommandError(f"unknown model {model!r}: add --provider or --base-url")
    return row, model


def rows_with_key(environment: Mapping[str, str]) -> list[Profile]:
    """Return the profiles that have a key, or an address in the environment. Raises `CommandError` for a credentials
    file that cannot be read.
    """
    return [row for row in PROFILES if row.base_url and (_is_named(row, environment) or _has_key(row, environment))]


def _is_named(row: Profile, environment: Mapping[str, str]) -> bool:
    """Return whether the environment has a key, a token or an address of the provider."""
    variables = (*row.key_variables, *row.token_variables)
    # A malformed key is a key: its use reports that.
    return any(environment.get(variable) for variable in variables) or url_in(environment, row) != NOWHERE


def _has_key(row: Profile, environment: Mapping[str, str]) -> bool:
    try:
        return bool(find_key(DIALECT_CLASSES[row.dialect_name](profile=row), environment))
    except InvalidRequestError as error:
        if "credentials file" in str(error):
            raise CommandError(str(error)) from None
        return False


def _row_by_name(name: str) -> Profile | None:
    rows = (profile_by_name(name, dialect) for dialect in DIALECT_CLASSES)
    return next((row for row in rows if row is not None), None)


def _row_by_model(model: str, environment: Mapping[str, str]) -> Profile | None:
    at_gateway = (row for row, _ in DEFAULT_PROFILES.values() if url_in(environment, row) != NOWHERE)
    return next((row for row in PROFILES if model.startswith(row.prefixes)), next(at_gateway, None))


def _row_with_key(environment: Mapping[str, str]) -> Profile | None:
    for name in DEFAULT_MODELS:
        row = _row_by_name(name)
        if row is not None and _is_named(row, environment):
            return row
    return None


async def _ask(given: argparse.Namespace, prompt: str, headers: Mapping[str, str], prices: PriceTable | None) -> int:
    provider, model = choose_provider(given.provider, given.model, given.base_url, os.environ)
    try:
        retry = Retry(max_attempts=given.attempts)
    except InvalidRequestError as error:
        raise CommandError(f"--attempts: {error}", status=2) from None
    request = Request(
        f"{provider.name}/{model}",
        [Message.user(prompt)],
        system=given.system,
        thinking=given.thinking and THINKING[given.thinking],
        max_output_tokens=given.max_tokens,
        extra_headers=headers or None,
        retry=retry,
    )
    writer = AnswerWriter(sys.stdout, sys.stderr)
    try:
        async with open_engine(providers=[provider]) as engine:
            completion = await _complete(engine, request, writer, stream=not given.no_stream)
    except InvalidRequestError as error:
        raise CommandError(str(error)) from None
    cost = None
    if (given.cost or prices is not None) and completion.response is not None:
        cost = price_response(completion.response, provider, model=model, table=prices)
    writer.finish(completion, streamed=not given.no_stream, cost=cost)
    if completion.error is None:
        return 0
    if completion.error.category is ErrorCategory.CANCELLED:
        return 130
    if isinstance(completion.error.__cause__, OSError) and completion.error.category is ErrorCategory.CALLBACK:
        raise completion.error.__cause__  # the answer's text could not be written
    raise CommandError(describe_error(completion.error, provider))


async def _complete(engine: Engine, request: Request, writer: AnswerWriter, *, stream: bool) -> Completion:
    """Make the call and return its completion. Ctrl-C cancels the call; its completion holds what had arrived."""
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
    """Return an error as one line: the kind of failure, the provider and host, and the server's message."""
    status = f" (HTTP {error.http_status})" if error.http_status else ""
    words = CATEGORY_WORDS[error.category]
    message = one_line(error.message)
    hint = f"; try again in {duration(error.retry_after_ms / 1000)}" if error.retry_after_ms > 0 else ""
    host = urlsplit(provider.base_url).netloc.rpartition("@")[2]  # without a password
    return f"{words}{status}, {provider.name} at {host}: {message}{hint}"
