"""Ray Data: a model's answers as columns of a data set.

ds.map_batches(manystream.ray.Ask, **manystream.ray.ask_options(
    "gpt-5-mini", actors=4, concurrency=1000, providers=[ms.OpenAIChat()], journal="answers.jsonl"))
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from .. import InvalidRequestError, Request, RequestOptions, Traffic
from ..engine.embedding import OPTIONS
from ..engine.request.credentials import find_key
from ..providers.catalog.provider import Provider, keys_of
from ..providers.catalog.selection import select
from ..providers.model.request_rules import validate_request
from ..providers.model.rules import whole
from .asker import Asker, Journal
from .divided import divided
from .ray_answers import compute_strategy, start_journal
from .ray_rates import start_rates
from .shared_rates import SharedRates
from .tables import Tables, import_pyarrow

CALLS_PER_ACTOR = 16
"""The blocks that an actor has at a time."""


class Ask:
    """The class for `map_batches`, with the arguments that `ask_options` returns.

    A call takes a block and returns it with the columns `text`, `error`, `usage` and `finish_reason`. Any thread may
    call it. All rows of a block are asked at the same time, and returned in their order. An error of a row is in the
    row.

    model: the model's name, with or without the provider's.
    providers: the providers, with their keys.
    concurrency: the most calls that run or wait at a time in this actor.
    traffic: the engine's traffic control, or None.
    shared: limits that the actors share, or None.
    journal: keeps the answers, or None.
    options: the options of each `Request`.

    Raises `AskError` and `InvalidRequestError`.
    """

    def __init__(
        self,
        *,
        model: str,
        providers: Sequence[Provider],
        concurrency: int,
        traffic: Traffic | None = None,
        shared: SharedRates | None = None,
        journal: Journal | None = None,
        options: RequestOptions | None = None,
    ) -> None:
        self._model = model
        self._options: RequestOptions = options or {}
        self._tables = Tables()
        self._has_journal = journal is not None
        self._asker = Asker(providers, concurrency, journal, {"traffic": traffic}, shared)

    def __repr__(self) -> str:
        return f"<Ask {self._model}>"

    def __call__(self, table: Any) -> Any:
        """Return a `pyarrow.Table` with the answers to its rows. Raises `AskError` if the rows cannot be asked."""
        rows = self._tables.read(table, self._request, needs_id=self._has_journal)
        self._asker.ask(rows)
        return self._tables.add_columns(table, rows)

    def close(self) -> None:
        """Close the engine. Ray ends the process of an actor and needs no call of this."""
        self._asker.close()

    def _request(self, content: Any) -> Request:
        return Request(self._model, content, **self._options)


def ask_options(
    model: str,
    *,
    actors: int,
    concurrency: int,
    providers: Sequence[Provider],
    traffic: Traffic | None = None,
    journal: str | os.PathLike[str] | None = None,
    retry_failed: bool = False,
    **options: Unpack[RequestOptions],
) -> dict[str, Any]:
    """Return the arguments of `map_batches` for `Ask`: `ds.map_batches(Ask, **ask_options(…))`.

    A block is one call of Ray, and an actor has at most 16 at a time. So 16 × `actors` × the rows of a block should be
    at least 1.25 × `concurrency`; `ds.repartition` sets the rows of a block.

    model: the model's name, with or without the provider's (`"openai/gpt-5-mini"`).
    actors: the number of actors. Each uses one CPU of the cluster.
    concurrency: the most calls that run or wait at a time, of all actors together.
    providers: the providers that the model's name may select. Keys are looked up here, and sent to the actors.
    traffic: when calls are sent. The actors share the declared `rates`: each leases what it can use. An entry for
        several API keys, and the concurrent calls, are divided into equal parts. `budgets` need a single actor.
    journal: a file of answers on this machine. A row whose `id` is in it is not asked again, also in later runs. The
        failures go to a file beside it, such as `answers.errors.jsonl`.
    retry_failed: whether to ask rows again that failed in earlier runs.
    options: the options of each `Request`, such as `system` and `max_output_tokens`.

    A journal and shared rates start an actor each on this machine, so they connect to Ray if the program has not.
    Raises `InvalidRequestError`, and `AskError` if Ray is not installed or the journal cannot be used.
    """
    whole(1).check(actors, "actors")
    whole(1).check(concurrency, "concurrency")
    if concurrency < actors:
        raise InvalidRequestError("concurrency", f"must be at least 1 for each of {actors} actors, not {concurrency}")
    _check(model, providers, traffic, options)
    part, limits = divided(traffic, providers, actors)
    with_keys = [_with_key(provider) for provider in providers]
    compute = compute_strategy(actors, CALLS_PER_ACTOR)
    import_pyarrow()
    path = str(Path(journal).absolute()) if journal is not None else None
    return {
        "fn_constructor_kwargs": {
            "model": model,
            "providers": with_keys,
            "concurrency": concurrency // actors,
            "traffic": part,
            "shared": start_rates(limits) if limits else None,
            "journal": start_journal(path, retry_failed=retry_failed) if path is not None else None,
            "options": options,
        },
        "compute": compute,
        "batch_size": None,
        "batch_format": "pyarrow",
        "zero_copy_batch": True,
    }


def _check(model: str, providers: Sequence[Provider], traffic: Traffic | None, options: RequestOptions) -> None:
    """Check what all actors would refuse. Raises `InvalidRequestError`, and `TypeError` for an unknown option."""
    OPTIONS["providers"].check(providers, "providers")
    OPTIONS["traffic"].check(traffic, "traffic")
    try:
        validate_request(Request(model, "any", **options))
    except TypeError as error:
        raise TypeError(str(error).replace("Request()", "ask_options()")) from None
    if traffic is None or all(route.name != model for route in traffic.routes):
        provider, _ = select(model, providers)
        if not keys_of(provider):
            find_key(provider, os.environ)


def _with_key(provider: Provider) -> Provider:
    """Return the provider with the key that is found on this machine, if one is found."""
    if provider.api_key is not None:
        return provider
    with_key = copy.copy(provider)
    try:
        with_key.api_key = find_key(provider, os.environ) or None
    except InvalidRequestError:
        pass  # the model is not this provider's, or a route goes on without it
    return with_key
