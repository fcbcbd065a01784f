"""The command `manystream doctor`: it checks whether each configured provider can be reached, and which step fails."""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import trio

from .. import OpenAIChat, Profile, Provider
from ..providers.catalog.profiles import PROFILES
from .addresses import provider_of
from .connectivity import Finding, Verdict, check_provider
from .output.errors import CommandError
from .output.terminal import Paint
from .run import NO_KEY, provider_names, rows_with_key

DESCRIPTION = """\
Check every provider that has a key or an address on this machine, or the named ones: the key, the proxy, DNS, the
connection, TLS, and whether the server answers and accepts the key. No prompt is sent. The request asks for the list of
models. A server without such a list gets a call without a model and a prompt, which shows whether the base URL is
right.

  manystream doctor                                        every provider with a key
  manystream doctor --provider anthropic --provider groq
  manystream doctor --base-url http://127.0.0.1:8000/v1    a server on this machine

exit status:
  0    every provider can be used
  1    at least one provider cannot be used
  2    the command line is wrong
  130  interrupted; the results so far are shown
"""

STYLES = {Verdict.OK: "green", Verdict.NOTE: "yellow", Verdict.FAIL: "red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--provider",
        action="append",
        default=[],
        metavar="PROVIDER",
        help="check this provider only; repeatable (default: every provider with a key)",
    )
    add("--base-url", metavar="URL", help="the base URL of another server (OpenAI-compatible unless --provider)")
    add("--timeout", type=float, default=10.0, metavar="S", help="seconds for each provider (default: 10)")


def run(arguments: argparse.Namespace) -> int:
    """Check the providers, print the findings, and return the exit status."""
    limit: float = arguments.timeout
    if not 0 < limit < math.inf:
        raise CommandError("--timeout must be a number of seconds above 0", status=2)
    providers = choose_providers(arguments.provider, arguments.base_url, os.environ)
    return trio.run(_check_all, providers, os.environ, limit)


def choose_providers(names: Sequence[str], base_url: str | None, environment: Mapping[str, str]) -> list[Provider]:
    """Return the providers to check. Raises `CommandError` for an unknown name, and if no provider has a key.

    names: the values of `--provider`; if empty, every provider with a key.
    """
    if base_url is not None and len(names) > 1:
        raise CommandError("--base-url allows at most one --provider", status=2)
    rows = list({row.name: row for row in map(_known_row, names)}.values())  # each once, also if named by an alias
    if base_url is not None and not rows:
        return [OpenAIChat(base_url=base_url)]
    if not rows:
        rows = configured_rows(environment)
    if not rows:
        raise CommandError(f"{NO_KEY}, or name a server with --provider or --base-url")
    return [provider_of(row, base_url, {}) for row in rows]  # the check finds the addresses of the environment


def _known_row(name: str) -> Profile:
    known = (row for row in PROFILES if row.base_url or row.url_variables)
    row = next((row for row in known if name in (row.name, *row.aliases)), None)
    if row is None:
        raise CommandError(f"unknown provider {name!r}; the names are {', '.join(provider_names())}", status=2)
    return row


def configured_rows(environment: Mapping[str, str]) -> list[Profile]:
    """Return the profiles that have a key, or an address in the environment. Of several profiles with the same host and
    key, return the first: an address of the environment is for it, and the key belongs to that address.
    """
    rows: dict[tuple[str | None, tuple[str, ...]], Profile] = {}
    for row in rows_with_key(environment):
        rows.setdefault((urlsplit(row.base_url).hostname, row.key_variables), row)
    return list(rows.values())


async def _check_all(providers: Sequence[Provider], environment: Mapping[str, str], limit: float) -> int:
    """Check all providers at the same time, print the findings in order, and return the exit status.

    Ctrl-C ends the checks; the findings so far are printed.
    """
    found: dict[str, list[Finding]] = {}

    async def check_one(provider: Provider) -> None:
        found[provider.name] = await check_provider(provider, environment, limit)

    async def stop_on_signal(scope: trio.CancelScope) -> None:
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            async for _ in signals:
                scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_on_signal, nursery.cancel_scope)
        async with trio.open_nursery() as checks:
            for provider in providers:
                checks.start_soon(check_one, provider)
        nursery.cancel_scope.cancel()
    paint = Paint(sys.stdout)
    for provider in providers:
        print(paint(provider.name, "bold"))
        for finding in found.get(provider.name, ()):
            word = paint(f"{finding.verdict.value:4}", STYLES[finding.verdict])
            print(f"  {word}  {finding.step:8}  {finding.text}")
    if len(found) < len(providers):
        print(f"Interrupted: {len(providers) - len(found)} of {len(providers)} checks did not finish.")
        return 130
    bad = [name for name, findings in found.items() if any(f.verdict is Verdict.FAIL for f in findings)]
    print(f"{len(providers) - len(bad)} of {len(providers)} can be used" + (f"; not: {', '.join(bad)}" if bad else ""))
    return 1 if bad else 0
