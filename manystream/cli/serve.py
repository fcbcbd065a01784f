"""The command `manystream serve`: a local endpoint for harnesses and programs in other languages."""

from __future__ import annotations

import argparse
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import trio

from .. import Budget, InvalidRequestError, Profile, Provider, RateLimit, Retry, Route, Traffic, open_engine
from ..cost import price
from ..http_server import allow_many_sockets
from ..providers.catalog.profiles import PROFILES
from ..serve.gateway import GRACE, KEEP_ALIVE, QUEUE, open_gateway
from .addresses import provider_at, provider_of, with_any_key
from .answer import need_prices
from .options import add_address, listening
from .output.errors import CommandError
from .run import NO_KEY, provider_names, rows_with_key

Made = TypeVar("Made")

DESCRIPTION = """\
Serve the providers that have a key, for programs that speak their dialects: Claude Code, Codex, an evaluation in
another language. Nothing is translated: a request goes on as it came, and waits for the provider's limits.

  manystream serve --provider anthropic --port 8080
  manystream serve --traffic "openai requests-per-minute=500 tokens-per-minute=200000" --trace traces
  manystream serve --base-url http://127.0.0.1:8000/v1 --traffic "* concurrent=64"
  manystream serve --base-url http://127.0.0.1:8000/v1 --provider vllm --provider openai --provider anthropic
  manystream serve --route best=anthropic/claude-sonnet-4-5,openrouter/anthropic/claude-sonnet-4.5
"""

EPILOG = """\
The base URL is the same for every dialect: ANTHROPIC_BASE_URL, OPENAI_BASE_URL and GOOGLE_GEMINI_BASE_URL of a client
take it. A client needs no key of a provider. http://127.0.0.1:8080/slots/NAME is a slot: a tenant, a session and a file
of --trace of its own.

SIGTERM and Ctrl-C end the gateway: new requests get a 503, and it waits for the answers that are under way (--grace).
Those that are not complete then end with an error of the client's dialect. A second signal ends them at once.

exit status:
  0    ended by SIGTERM
  1    it cannot listen at this address and port, or no provider has a key
  2    the command line is wrong
  130  interrupted

LIMIT: what it covers, then NAME=VALUE pairs of requests-per-second, requests-per-minute, requests-per-day,
tokens-per-minute, input-tokens-per-minute, output-tokens-per-minute, concurrent. It covers a provider (openai), a model
(openai/gpt-5), a beginning (openai/gpt-5*) or every call (*).

BUDGET: NAME=VALUE pairs of usd, input-tokens, output-tokens, calls, and every=SECONDS."""

OF_OPENAI = ("openai-chat", "openai-responses", "openai-completions")
OUR_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add, many = parser.add_argument, partial(parser.add_argument, action="append", default=[])
    many(
        "--provider",
        metavar="PROVIDER",
        help="a provider, in each of its dialects; repeatable (default: every provider with a key). With --base-url,"
        " the dialects that this server speaks",
    )
    add("--base-url", metavar="URL", help="the base URL of a server (OpenAI-compatible unless --provider)")
    many("--traffic", metavar="LIMIT", help="a limit on calls; repeatable; see below")
    many(
        "--route",
        metavar="NAME=MODEL,MODEL…",
        help="a model name for several models: if one fails, a call goes to the next; repeatable",
    )
    many("--budget", metavar="BUDGET", help="what all calls may use; repeatable; see below")
    add_address(parser)
    add(
        "--key",
        metavar="VARIABLE",
        help="the environment variable with the key that clients must send; another address than loopback needs one",
    )
    add(
        "--attempts", type=int, default=6, metavar="N", help="attempts, until the client has got something (default: 6)"
    )
    add(
        "--keep-alive",
        type=float,
        default=KEEP_ALIVE,
        metavar="SECONDS",
        help=f"after how long a stream that waits gets a keep-alive (default: {KEEP_ALIVE:g}; inf: never)",
    )
    add(
        "--queue",
        type=float,
        default=QUEUE,
        metavar="SECONDS",
        help="after how long a request that waits for a limit is refused, where its client says no timeout of its own"
        f" (default: {QUEUE:g}; inf: never)",
    )
    add(
        "--grace",
        type=float,
        default=GRACE,
        metavar="SECONDS",
        help=f"how long to wait for the answers under way after SIGTERM or Ctrl-C (default: {GRACE:g}; 0: not at all)",
    )
    add(
        "--websocket",
        action="store_true",
        help="keep a WebSocket to a provider of OpenAI's Responses for each client's",
    )
    add("--trace", metavar="DIR", help="write each call to a file of JSON lines in this folder")
    add("--record", metavar="FILE", help="write the bytes on the wire, for `manystream simulate --replay`")
    add("--monitor", action="store_true", help="allow `manystream top` to show this process")
    parser.epilog = EPILOG


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal arrives, and return the exit status."""
    try:
        key = None
        if arguments.key is not None:
            key = os.environ.get(arguments.key)
            if not key:
                is_name = re.fullmatch("[A-Z_][A-Z0-9_]*", arguments.key)  # else it may be the key itself
                named = arguments.key if is_name else "that was given"
                raise CommandError(f"--key: the environment variable {named} is not set", status=2)
        traffic, providers = _traffic(arguments), _providers(arguments.provider, arguments.base_url, os.environ)
        for provider in providers if arguments.websocket else ():
            provider.websocket = provider.profile.dialect_name == "openai-responses"
        allow_many_sockets()  # each client needs two
        return trio.run(_serve, arguments, providers, traffic, key)
    except InvalidRequestError as error:
        raise CommandError(str(error), status=2) from None


def _traffic(given: argparse.Namespace) -> Traffic:
    """Return the engine's traffic control. Raises `CommandError`."""
    budgets = [_made("--budget", text, _budget) for text in given.budget]
    is_priced = any(budget.limits("usd") for budget in budgets)
    if is_priced:
        need_prices("--budget")
    rates: dict[str, RateLimit] = {}
    for text in given.traffic:
        covered, limit = _made("--traffic", text, _rate)
        if covered in rates:
            raise CommandError(f"--traffic: {covered!r} is given twice: write all its limits in one text", status=2)
        rates[covered] = limit
    routes = [_made("--route", text, _route) for text in given.route]
    return Traffic(rates=rates, routes=routes, budgets=budgets, price=price if is_priced else None)


def _providers(names: Sequence[str], url: str | None, environment: Mapping[str, str]) -> list[Provider]:
    """Return the providers, each in all of its dialects. Raises `CommandError`."""
    if url is not None and not names:
        return [provider_at(url, dialect, environment) for dialect in ("openai-chat", "openai-responses")]
    rows = {row.name: row for row in ([] if names else rows_with_key(environment))}
    for name in names:
        found = [row for row in PROFILES if name in (row.name, *row.aliases)]
        if not found:
            raise CommandError(f"unknown provider {name!r}; the names are {', '.join(provider_names())}", status=2)
        rows |= {row.name: row for row in found}
    if not rows:
        raise CommandError(f"{NO_KEY}, or name a server with --provider or --base-url")
    if url is None:
        return [provider_of(row, None, environment) for row in rows.values()]
    dialects: dict[str, Profile] = {}
    for row in rows.values():
        dialects.setdefault(row.dialect_name, row)
    places = {name: url if len(dialects) == 1 else _place(url, name) for name in dialects}
    made = ((provider_of(row, places[name], environment), places[name]) for name, row in dialects.items())
    return [with_any_key(provider, place, environment) for provider, place in made]


def _place(url: str, dialect: str) -> str:
    """Return the base URL of a dialect at a server that speaks several: OpenAI's have `/v1` in it."""
    root = re.sub(r"/(?:v1/*)?\Z", "", url)
    if root == url and urlsplit(url).path:
        return url  # it has another path, which nothing is known of
    return f"{root}/v1" if dialect in OF_OPENAI else root


def _made(option: str, text: str, make: Callable[[str], Made]) -> Made:
    """Return what the text of an option means. Raises `CommandError` that names the option."""
    try:
        return make(text)
    except InvalidRequestError as error:
        raise CommandError(f"{option} {text!r}: {error}", status=2) from None


def _budget(text: str) -> Budget:
    return Budget(**_pairs("--budget", text.split()))  # type: ignore[arg-type]


def _rate(text: str) -> tuple[str, RateLimit]:
    covered, *pairs = text.split() or [""]
    if not covered or "=" in covered:
        raise CommandError(
            f"--traffic {text!r}: write what the limit covers first: openai, openai/gpt-5 or *", status=2
        )
    return covered, RateLimit(**_pairs("--traffic", pairs))  # type: ignore[arg-type]


def _route(text: str) -> Route:
    name, equals, targets = text.partition("=")
    if not equals:
        raise CommandError(f"--route {text!r}: write NAME=MODEL,MODEL", status=2)
    return Route(name, [target.strip() for target in targets.split(",")])


def _pairs(option: str, pairs: Sequence[str]) -> dict[str, float]:
    """Return NAME=VALUE pairs, with the names of our options. Raises `CommandError`."""
    found: dict[str, float] = {}
    kind = RateLimit if option == "--traffic" else Budget
    known = [name for name in kind.__dataclass_fields__ if name != "per"]
    for pair in pairs:
        name, _, value = pair.partition("=")
        member = name.replace("-", "_")
        if member in found:
            raise CommandError(f"{option}: {name} is given twice", status=2)
        if member not in known:
            names = ", ".join(each.replace("_", "-") for each in known)
            raise CommandError(f"{option}: {pair!r} is not NAME=VALUE, with a name of {names}", status=2)
        try:
            number = float(value)
        except ValueError:
            raise CommandError(f"{option}: {pair!r}: {name} is a number", status=2) from None
        found[member] = int(number) if number.is_integer() else number
    return found


async def _serve(given: argparse.Namespace, providers: Sequence[Provider], traffic: Traffic, key: str | None) -> int:
    with trio.open_signal_receiver(*OUR_SIGNALS) as signals, ExitStack() as stack:
        async with open_engine(
            providers, traffic=traffic, retry=Retry(max_attempts=given.attempts), monitor=given.monitor
        ) as engine:
            if given.record is not None:
                stack.enter_context(engine.record(Path(given.record)))
            with listening(given):
                gateway = open_gateway(
                    engine,
                    host=given.host,
                    port=given.port,
                    key=key,
                    keep_alive=given.keep_alive,
                    queue=given.queue,
                    grace=given.grace,
                    trace=None if given.trace is None else Path(given.trace),
                )
            async with gateway:
                print(f"base URL   {gateway.base_url}")
                dialects = dict.fromkeys(provider.profile.dialect_name for provider in providers)
                if not dialects.keys().isdisjoint(OF_OPENAI):
                    print(f"           {gateway.base_url}/v1 for OpenAI's clients")
                print(f"providers  {', '.join(provider.name for provider in providers)}")
                print(f"dialects   {', '.join(dialects)}")
                print("Ctrl-C ends the gateway.", flush=True)
                number = await anext(signals)
                if gateway.http.answering:
                    print(f"requests under way: {gateway.http.answering}. Another Ctrl-C ends them.", flush=True)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_cancel_at_signal, signals, nursery.cancel_scope)
                    await gateway.drain(given.grace)
                    nursery.cancel_scope.cancel()
            return 130 if number == signal.SIGINT else 0


async def _cancel_at_signal(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    await anext(signals)
    scope.cancel()
