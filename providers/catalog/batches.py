"""The batch interfaces of providers: many requests in one, answered within a day, at half the price.

`BatchInterface` is what they have in common: it writes the requests and reads the bodies, and does no I/O. `OpenAI` and
`OpenRouter` (openai/batches.py), `Anthropic` and `Gemini` are the kinds; `interface_of` chooses one for a provider.

The lines of a batch have ids of the form `KEY-N`: the key of the batch, and the line's place in it from 0. So a result
shows which batch of whose run it belongs to, also where the interface keeps no metadata.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar

from ..json.json_values import JSON, JSONObject, MalformedJSONError, integer, loads_object, string
from ..wire.wire_head import path_with_query, request_headers
from .dialect import WireRequest
from .provider import Provider

UPLOADED = "manystream-{}.jsonl"
"""The name of an uploaded file, with the key of its batch."""


@dataclass(slots=True, frozen=True, kw_only=True)
class BatchTerms:
    """The limits of an interface, what it costs and how long it takes.

    lines: the most lines of one batch.
    bytes: the most bytes of one batch: of the file, or of the request's body.
    price: what an answer costs, as a part of the list price.
    prior: how long a batch takes: (share of the batches, seconds), rising. The last one is the time after which the
        provider ends a batch.
    stop: seconds from the request to cancel a batch until its partial results can be read, at most; infinite where a
        batch cannot be cancelled.
    """

    lines: int
    bytes: int
    price: float = 0.5
    prior: tuple[tuple[float, float], ...]
    stop: float


@dataclass(slots=True, frozen=True)
class BatchGroup:
    """What the lines of one batch have in common.

    model: the model's name at the provider.
    path: the path of the live request, below the base URL.
    headers: the headers of the live request that others do not have, such as `anthropic-beta`.
    """

    model: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class BatchState:
    """What a provider reports of one batch.

    id: the provider's id.
    status: the provider's word.
    ended: whether it has ended, and all its results can be read.
    done: the number of lines that have an answer or an error; 0 where the interface does not report progress.
    total: the number of lines; 0 if it is not known yet.
    key: the key in its metadata; None where the interface keeps none.
    created: when it was created, in Unix seconds on the provider's clock; None if it is not reported.
    results: names of the files with results; empty if they are in the body, or if there are none.
    problem: why the whole batch failed; empty if it did not.
    bad_lines: numbers from 1 of the lines for which it failed; empty if none is named.
    is_full: whether it failed because the key has too much in unfinished batches.
    """

    id: str
    status: str
    ended: bool
    done: int = 0
    total: int = 0
    key: str | None = None
    created: float | None = None
    results: tuple[str, ...] = ()
    problem: str = ""
    bad_lines: tuple[int, ...] = ()
    is_full: bool = False


@dataclass(slots=True)
class BatchResult:
    """The result of one line, as the live way would have had it.

    id: the line's id in the batch.
    status: the HTTP status; 0 for a line that was not answered: the batch was cancelled or has expired.
    body: the body of the live answer or error. For a line that was not answered, why, as text.
    request_id: the provider's id of the request, if it is named.
    """

    id: str
    status: int
    body: bytes
    request_id: str | None = None


class BatchInterface(abc.ABC):
    """One batch interface of one provider.

    terms: its limits, price and times.
    has_files: whether the lines are uploaded as a file before the batch is created.
    keeps_key: whether the list of batches has their keys. Without it, only the results show whose a batch is.
    """

    terms: ClassVar[BatchTerms]
    has_files: ClassVar[bool] = False
    keeps_key: ClassVar[bool] = False

    def __init__(self, provider: Provider) -> None:
        self.provider: Provider = provider

    def group(self, model: str, wire: WireRequest) -> BatchGroup | None:
        """Return the group that a live request belongs to; None for one that cannot be sent in a batch."""
        usual = dict(self._headers())
        headers = tuple((name, value) for name, value in wire.headers if usual.get(name) != value)
        group = BatchGroup(model, wire.path.partition("?")[0], headers)
        return group if self.takes(group) else None

    @abc.abstractmethod
    def takes(self, group: BatchGroup) -> bool:
        """Return whether requests of this group can be sent in a batch."""

    @abc.abstractmethod
    def line(self, id: str, body: bytes, group: BatchGroup) -> bytes:
        """Return a line of the batch. body: that of the live request."""

    @abc.abstractmethod
    def create(self, key: str, lines: Sequence[bytes], file: str | None, group: BatchGroup) -> WireRequest:
        """Return the request that creates a batch. file: the id of the uploaded file; `lines` is not used then."""

    @abc.abstractmethod
    def read(self, id: str) -> WireRequest:
        """Return the request for the state of a batch."""

    @abc.abstractmethod
    def cancel(self, id: str) -> WireRequest:
        """Return the request that cancels a batch."""

    @abc.abstractmethod
    def list(self, after: str | None) -> WireRequest:
        """Return the request for a page of all batches, newest first. after: what `read_list` returned for the page
        before; None for the first page."""

    @abc.abstractmethod
    def read_list(self, body: JSONObject) -> tuple[Sequence[BatchState], str | None]:
        """Return the batches of a page, and where the next page begins; None if this is the last one."""

    @abc.abstractmethod
    def state(self, body: JSONObject) -> BatchState:
        """Read the state of a batch."""

    def inline_results(self, body: JSONObject) -> Iterator[BatchResult]:
        """Yield the results that the state of a batch contains."""
        return iter(())

    def results(self, name: str) -> WireRequest:
        """Return the request for a file of results, one of `BatchState.results`."""
        raise NotImplementedError

    @abc.abstractmethod
    def result(self, value: JSONObject) -> BatchResult | None:
        """Read a result; None for one that names no line."""

    def result_of_line(self, line: bytes) -> BatchResult | None:
        """Read a line of a file of results; None for an empty line, and for one that cannot be read."""
        if not line.strip():
            return None
        try:
            return self.result(loads_object(line))
        except MalformedJSONError:
            return None

    # --- files ---

    def upload(self, key: str, lines: Sequence[bytes]) -> WireRequest:
        """Return the request that uploads the lines."""
        raise NotImplementedError

    def list_files(self) -> WireRequest:
        """Return the request for the uploaded files, newest first."""
        raise NotImplementedError

    def file_of(self, body: JSONObject, key: str) -> str | None:
        """Return the id of the file that was uploaded for a batch, from the list of files; None if it has none."""
        raise NotImplementedError

    def delete_file(self, file: str) -> WireRequest:
        """Return the request that deletes a file."""
        raise NotImplementedError

    # --- for the kinds ---

    def _get(self, path: str) -> WireRequest:
        headers = [pair for pair in self._headers() if pair[0] != "content-type"]
        return WireRequest(path_with_query(path, self.provider.profile.quirks), headers, b"", "GET")

    def _post(self, path: str, body: bytes, headers: Sequence[tuple[str, str]] = ()) -> WireRequest:
        merged = dict(self._headers()) | dict(headers)
        return WireRequest(path_with_query(path, self.provider.profile.quirks), [*merged.items()], body)

    def _headers(self) -> Sequence[tuple[str, str]]:
        return request_headers(self.provider.profile.quirks, None, stream=False)


def count(value: JSON) -> int:
    """Return a number of lines, which Gemini sends as text; 0 for anything else."""
    if type(value) is str and value.isdecimal() and len(value) < 16:
        return int(value)
    return value if type(value) is int and value > 0 else 0


def later_page(body: JSONObject, last: str = "last_id") -> str | None:
    """Return where the next page of a list begins, in the form that OpenAI, OpenRouter and Anthropic have."""
    return string(body, last) if body.get("has_more") is True else None


def status_of(value: JSONObject, name: str) -> int:
    """Return an HTTP status; 0 for what is none."""
    status = integer(value, name) or 0
    return status if 100 <= status < 600 else 0


KINDS: dict[str, str] = {
    "openrouter": "..openai.batches:OpenRouter",
    "openrouter-responses": "..openai.batches:OpenRouter",
    "azure": "..openai.batches:Azure",
    "azure-responses": "..openai.batches:Azure",
    "azure-deployment": "..openai.batches:Azure",
    "openai-chat": "..openai.batches:OpenAI",
    "openai-compatible": "..openai.batches:OpenAI",
    "openai-responses": "..openai.batches:OpenAI",
    "responses-compatible": "..openai.batches:OpenAI",
    "groq": "..openai.batches:OpenAI",
    "anthropic": "..anthropic.batches:Anthropic",
    "anthropic-compatible": "..anthropic.batches:Anthropic",
    "google": "..gemini.batches:Gemini",
}
"""Profile → module and class of its batch interface. A generic row may stand for a server that has none: such a server
refuses the first batch, and its lines go live."""


def interface_of(provider: Provider) -> BatchInterface | None:
    """Return the batch interface of a provider; None if it has none."""
    kind = KINDS.get(provider.profile.name)
    if kind is None:
        return None
    module, _, name = kind.partition(":")
    made: BatchInterface = getattr(import_module(module, __package__), name)(provider)
    return made
