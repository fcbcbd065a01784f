"""Where `manystream batch` sends the lines: the options `--model`, `--route`, `--provider` and `--base-url`."""

from __future__ import annotations

import argparse
import copy
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from .. import InvalidRequestError, OpenAIChat, Provider, Route
from ..batch.lines import ChooseModel, ModelChoice, OneModel
from ..engine.embedding import Balance
from ..engine.request.credentials import find_key
from ..providers.catalog.profiles import PROFILES
from .addresses import addresses_in, provider_of
from .output.errors import CommandError
from .run import choose_provider, find_row, rows_with_key

SIMULATOR = "simulator"
SIMULATED_MODEL = "sim-text"
SIMULATED_ANSWERS = 32
"""The number of events of a simulated answer."""

ROUTE = "batch"
"""The name of the route between several targets."""

PORTS = {"http": 80, "https": 443}


@dataclass(slots=True, frozen=True)
class TargetOptions:
    """The options that name where lines are sent, checked.

    model: the model for all lines, or None.
    route: models for all lines, in the order in which a line tries them; empty for none.
    base_urls: the servers' base URLs. Several are replicas of one server.
    simulated: whether the built-in simulator answers.
    """

    model: str | None
    route: tuple[str, ...]
    provider: str | None
    base_urls: tuple[str, ...]
    simulated: bool = False

    @property
    def by_lines(self) -> bool:
        """Whether the model that a line names decides where the line goes, since nothing else was named."""
        return not (self.model or self.route or self.provider or self.base_urls or self.simulated)


@dataclass(slots=True, frozen=True)
class Destination:
    """Where the lines of a batch are sent.

    choose_model: maps the model that a line names (or None) to the model of its request.
    routes: the route between several targets; empty if there is one target.
    """

    providers: tuple[Provider, ...]
    choose_model: ChooseModel
    routes: tuple[Route, ...] = ()

    @property
    def name(self) -> str:
        """The name of the first provider."""
        return self.providers[0].name


def add_target_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that name where lines are sent."""
    add = parser.add_argument
    add("--model", metavar="MODEL", help="the model of all lines (default: the one that a line names)")
    add("--route", metavar="MODEL,MODEL…", help="models in place of --model: if one fails, a line goes to the next")
    add("--provider", metavar="PROVIDER", help="the provider; see `manystream run --help`")
    add(
        "--base-url",
        metavar="URL",
        action="append",
        default=[],
        help="the base URL of another server (OpenAI-compatible unless --provider); several are replicas, and each line"
        " goes to the fastest",
    )
    add("--simulate", action="store_true", help="let the built-in simulator answer: without a key, and without cost")


def read_target_options(arguments: argparse.Namespace) -> TargetOptions:
    """Return the options. Raises `CommandError` where they contradict each other."""
    options = TargetOptions(
        model=arguments.model,
        route=() if arguments.route is None else tuple(part.strip() for part in arguments.route.split(",")),
        provider=arguments.provider,
        base_urls=tuple(arguments.base_url),
        simulated=arguments.simulate,
    )
    problem = _problem(options)
    if problem:
        raise CommandError(problem, status=2)
    return options


def _problem(options: TargetOptions) -> str:
    """Return why the options cannot be used together; empty if they can."""
    route, urls = options.route, options.base_urls
    if options.simulated and (options.model or route or options.provider or urls):
        return "--simulate is the built-in simulator: leave out --model, --route, --provider and --base-url"
    if options.model is not None and route:
        return "give --model or --route, not both: --route is several models, in the order in which a line tries them"
    if not all(route):
        return "--route: a name is empty; write models with commas between them, such as gpt-5,claude-sonnet-4-5"
    again = _first_twice(list(route))
    if again is not None:
        return f"--route names {route[again]!r} twice"
    again = _first_twice([_address(url) for url in urls])
    if again is not None:
        return f"--base-url number {again + 1} is the same server as an earlier one; give each replica once"
    if len(urls) > 1 and route:
        return "--route allows at most one --base-url: several are replicas that serve one --model"
    if len(urls) > 1 and options.model is None:
        return "several --base-url need --model: the model that every one of these servers has"
    return ""


def _first_twice(values: list[object] | list[str]) -> int | None:
    """Return the position of the first value that is equal to an earlier one; None if all differ."""
    return next((position for position, value in enumerate(values) if value in values[:position]), None)


def _address(url: str) -> object:
    """Return a value that is equal for two spellings of one base URL."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or PORTS.get(parts.scheme), parts.path.rstrip("/"), parts.query
    except ValueError:
        return url  # the engine refuses it


@contextmanager
def open_destination(options: TargetOptions, models: Sequence[str] = ()) -> Generator[Destination, None, None]:
    """Yield where the lines are sent; the simulator runs meanwhile if it answers them. Raises `CommandError`.

    models: models that lines name. Where nothing else names one, at least one of them must have a provider with a key.
    """
    if options.simulated:
        from ..simulator import SimulatorError, open_simulator

        try:
            with open_simulator(f"events={SIMULATED_ANSWERS}", journal=0) as simulator:
                simulated = OpenAIChat("simulated", simulator.base_urls["openai-chat"], name=SIMULATOR)
                yield Destination((simulated,), ModelChoice(SIMULATOR, default=SIMULATED_MODEL))
        except SimulatorError as error:
            raise CommandError(str(error)) from None
    elif options.by_lines:
        local = [row for row in PROFILES if row.base_url and not row.needs_key]
        rows = list({row.name: row for row in (*rows_with_key(os.environ), *local)}.values())
        choose_model = ModelOfLine(frozenset(row.name for row in rows), addresses_in(os.environ))
        _check_models(models, choose_model)
        yield Destination(tuple(provider_of(row, None, os.environ) for row in rows), choose_model)
    elif options.route:
        yield _in_order(options, os.environ)
    elif len(options.base_urls) > 1:
        yield _replicas(options, os.environ)
    else:
        provider, model = _choose(options, options.model or SIMULATED_MODEL, os.environ)
        yield Destination((provider,), ModelChoice(provider.name, model if options.model is not None else None))


@dataclass(slots=True, frozen=True)
class ModelOfLine:
    """The model of each line where only the lines name models. It can be sent to another process.

    providers: the names of the providers that have a key, or need none.
    addresses: the environment variables with addresses of providers.
    """

    providers: frozenset[str]
    addresses: Mapping[str, str]

    def __call__(self, named: str | None) -> str | None:
        """Return the request's model for a line that names this model; None for a line that names none.

        Raises `InvalidRequestError` if no provider is known for the model, or if it has no key.
        """
        if named is None:
            return None
        try:
            row, model = find_row(named, self.addresses)
        except CommandError as error:
            raise InvalidRequestError("model", str(error)) from None
        if row.name not in self.providers:
            raise InvalidRequestError("model", f"{row.name!r} has no key for {model!r}: set {row.key_variables[0]}")
        return f"{row.name}/{model}"


def _check_models(models: Sequence[str], choose_model: ModelOfLine) -> None:
    """Raise `CommandError` if none of the models can be used: then it is the key that is missing, and not a line."""
    reasons: list[str] = []
    for model in models:
        try:
            choose_model(model)
        except InvalidRequestError as error:
            reasons.append(str(error))
        else:
            return
    if reasons:
        raise CommandError(f"{reasons[0]}; --base-url names a server, --simulate the built-in simulator")


def _in_order(options: TargetOptions, environment: Mapping[str, str]) -> Destination:
    """Return a route that sends a line to the first model, and after a failure to the next."""
    providers: dict[str, Provider] = {}
    targets: list[str] = []
    for name in options.route:
        try:
            provider, model = _choose(options, name, environment)
            find_key(provider, environment)  # else a line would pass over the target without a word
        except (CommandError, InvalidRequestError) as error:
            raise CommandError(f"--route, {name!r}: {error}") from None
        known = providers.setdefault(provider.name, provider)
        if known != provider:
            raise CommandError(f"--route: {provider.name!r} would be two providers; add --provider")
        targets.append(f"{provider.name}/{model}")
    again = _first_twice(targets)
    if again is not None:
        raise CommandError(f"--route names {targets[again]!r} twice", status=2)
    return Destination(tuple(providers.values()), OneModel(ROUTE), (Route(ROUTE, targets),))


def _replicas(options: TargetOptions, environment: Mapping[str, str]) -> Destination:
    """Return a route that sends each line to the fastest of several servers with one model."""
    providers: list[Provider] = []
    targets: list[str] = []
    for url in options.base_urls:
        provider, model = _choose(options, options.model or "", environment, url)
        provider = copy.copy(provider)
        provider.name = _replica_name(url, {each.name for each in providers})
        providers.append(provider)
        targets.append(f"{provider.name}/{model}")
    route = Route(ROUTE, targets, balance=Balance.FASTEST.value)
    return Destination(tuple(providers), OneModel(ROUTE), (route,))


def _replica_name(url: str, taken: set[str]) -> str:
    """Return a name for a server: its host and port, without a password."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or "server"
        port = parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        host, port = "server", 0
    name = base = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    number = 2
    while name in taken:
        name, number = f"{base} ({number})", number + 1
    return name


def _choose(
    options: TargetOptions, model: str, environment: Mapping[str, str], url: str | None = None
) -> tuple[Provider, str]:
    """Return the provider of a model, and its name of the model. Raises `CommandError`.

    url: the server's base URL; None for the only one that was given, if any.
    """
    base_url = url or next(iter(options.base_urls), None)
    return choose_provider(options.provider, model, base_url, environment)
