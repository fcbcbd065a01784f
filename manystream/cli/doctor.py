"""`manystream doctor`: whether each configured provider can be reached, and if not, at which step and what to do.

Knows the command line, and which providers are configured. Must not know how a step is taken (`connectivity` does).
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import trio

from ..engine.credentials import find_key
from ..providers.errors import InvalidRequestError
from ..providers.profile import Profile
from ..providers.profiles import PROFILES
from ..providers.provider import OpenAIChat, Provider
from .addresses import DIALECT_CLASSES
from .connectivity import Finding, Verdict, examine
from .errors import CommandError
from .run import provider_names
from .terminal import Paint

HELP = "check keys, DNS, TLS, proxy and reachability of each configured provider"
DESCRIPTION = """\
Check every provider that has a key here, or those that are named: the key, the proxy, DNS, the connection, TLS, and
whether the server answers and takes the key. No prompt is sent; the one request asks for the list of models.

  manystream doctor                                        every provider with a key
  manystream doctor --provider anthropic --provider groq
  manystream doctor --base-url http://127.0.0.1:8000/v1    a server of your own

Exit status: 0 all can be reached, 1 one cannot, 2 called wrongly, 130 interrupted (what was found is told).
"""

STYLES = {Verdict.OK: "green", Verdict.NOTE: "yellow", Verdict.FAIL: "red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--provider", action="append", default=[], metavar="PROVIDER", help="only this one; may be repeated"
    )
    parser.add_argument("--base-url", metavar="URL", help="a server of your own (OpenAI-compatible unless --provider)")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="S", help="seconds for each (default: 10)")


def run(arguments: argparse.Namespace) -> int:
    """Check, and say what was found; the exit status."""
    limit: float = arguments.timeout
    if not 0 < limit < math.inf:
        raise CommandError("--timeout must be a number of seconds above 0", status=2)
    providers = choose_providers(arguments.provider, arguments.base_url, os.environ)
    return trio.run(_examine_all, providers, os.environ, limit)


def choose_providers(names: Sequence[str], base_url: str | None, environment: Mapping[str, str]) -> list[Provider]:
    """Whom to check. Raises `CommandError` for an unknown name, and where nothing is configured."""
    if base_url is not None and len(names) > 1:
        raise CommandError("--base-url goes with one --provider at most", status=2)
    rows = [_known_row(name) for name in names]
    if base_url is not None and not rows:
        return [OpenAIChat(base_url=base_url)]
    if not rows:
        rows = configured_rows(environment)
    if not rows:
        raise CommandError(
            "no key found: set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY,"
            " or name a server with --provider or --base-url"
        )
    return [DIALECT_CLASSES[row.dialect_name](base_url=base_url, profile=row) for row in rows]


def _known_row(name: str) -> Profile:
    row = next((row for row in PROFILES if row.base_url and name in (row.name, *row.aliases)), None)
    if row is None:
        raise CommandError(f"unknown provider {name!r}; known are {', '.join(provider_names())}", status=2)
    return row


def configured_rows(environment: Mapping[str, str]) -> list[Profile]:
    """The rows that have a key; of several for one host and key, the first."""
    rows: dict[tuple[str | None, tuple[str, ...]], Profile] = {}
    for row in PROFILES:
        if row.base_url and _has_key(row, environment):
            rows.setdefault((urlsplit(row.base_url).hostname, row.key_variables), row)
    return list(rows.values())


def _has_key(row: Profile, environment: Mapping[str, str]) -> bool:
    if any(environment.get(variable) for variable in row.key_variables):
        return True  # even where it cannot be used: the check will say why
    try:
        return bool(find_key(DIALECT_CLASSES[row.dialect_name](profile=row), environment))
    except InvalidRequestError as error:
        if "credentials file" in str(error):
            raise CommandError(str(error)) from None
        return False


async def _examine_all(providers: Sequence[Provider], environment: Mapping[str, str], limit: float) -> int:
    """All at once, told in order; the exit status. Ctrl-C ends it with what was found until then."""
    found: dict[str, list[Finding]] = {}

    async def examine_one(provider: Provider) -> None:
        found[provider.name] = await examine(provider, environment, limit)

    async def stop_on_signal(scope: trio.CancelScope) -> None:
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            async for _ in signals:
                scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_on_signal, nursery.cancel_scope)
        async with trio.open_nursery() as checks:
            for provider in providers:
                checks.start_soon(examine_one, provider)
        nursery.cancel_scope.cancel()
    paint = Paint(sys.stdout)
    for provider in providers:
        print(paint(provider.name, "bold"))
        for finding in found.get(provider.name, ()):
            word = paint(f"{finding.verdict.value:4}", STYLES[finding.verdict])
            print(f"  {word}  {finding.step:8}  {finding.text}")
    if len(found) < len(providers):
        print(f"Interrupted: {len(providers) - len(found)} of {len(providers)} were not checked to the end.")
        return 130
    bad = [name for name, findings in found.items() if any(f.verdict is Verdict.FAIL for f in findings)]
    print(f"{len(providers) - len(bad)} of {len(providers)} can be used" + (f"; not: {', '.join(bad)}" if bad else ""))
    return 1 if bad else 0
