"""The batch interfaces of providers: many requests in one, answered within a day, at half the price.

`BatchInterface` writes the requests and reads the bodies, and does no I/O. What its kinds have in common is here, with
their paths as data; `OpenAI`, `Azure` and `OpenRouter` (openai/batches.py), `Anthropic` and `Gemini` add the forms of
lines, states and results. `interface_of` chooses one for a provider.

The lines of a batch have ids of the form `KEY-N`: the key of the batch, and the line's place in it from 0. So a result
shows which batch of whose run it belongs to, also where the interface keeps no metadata.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar
from urllib.parse import quote

from ..json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    integer,
    loads_object,
    mapping,
    objects,
    received_dumps,
    shown,
    string,
)
from ..model.provider_error import ErrorCategory, ProviderError
from ..wire.wire_head import path_with_query, request_headers
from .dialect import WireRequest
from .provider import Provider

UPLOADED = "manystream-{}.jsonl"
"""The name of an uploaded file, with the key of its batch."""

VERSION = re.compile(r"/v\d{1,3}(?:(?:alpha|beta)\d{0,3})?(?=/|$)", re.ASCII)
"""An API version in the path of a base URL."""


def id_in_path(id: str) -> str:
    """Return an id for the path of a request. Raises `ProviderError` for one that would lead to another path: it comes
    from a server or a file."""
    if not {".", ".."}.isdisjoint(id.split("/")):
        raise ProviderError(f"{id!r:.100} is no id of a batch or a file", category=ErrorCategory.INVALID_ARG)
    return quote(id)


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


@dataclass(slots=True, frozen=True, kw_only=True)
class BatchPaths:
    """The paths of an interface, below its version. `{}` stands for an id.

    batches: path and query of a page of all batches, newest first.
    after: the query's member with which a later page begins.
    results: path of a file of results; empty where results are in the state of a batch.
    """

    batches: str
    after: str
    one: str
    cancel: str
    cancel_body: bytes = b""
    results: str = ""


@dataclass(slots=True, frozen=True, kw_only=True)
class BatchFiles:
    """How the lines of a batch are uploaded as a file (RFC 2046, 5.1) and found again.

    path: where files are uploaded, from the base URL's beginning.
    kind: the content type of the upload, without its boundary.
    parts: the parts before the lines, and the headers of the lines' part. `{}` stands for the file's name.
    headers: further headers of the upload.
    all: path and query of the list of files.
    members: of a list of files: the list, and in it the name and the id of a file.
    """

    path: str
    kind: str
    parts: tuple[str, ...]
    headers: tuple[tuple[str, str], ...] = ()
    all: str
    one: str
    members: tuple[str, str, str]


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
    answered: the number of lines that have an answer; 0 where the interface does not report it.
    total: the number of lines; 0 if it is not known yet.
    key: the key in its metadata; None where the interface keeps none.
    created: when it was created, in Unix seconds on the provider's clock; None if it is not reported.
    results: names of the files with results.
    lines: the results themselves, where they are in the state of the batch, each for `BatchInterface.result`.
    problem: why the whole batch failed; empty if it did not.
    bad_lines: numbers from 1 of the lines for which it failed; empty if none is named.
    is_full: whether it failed because the key has too much in unfinished batches.
    """

    id: str
    status: str
    ended: bool
    done: int = 0
    answered: int = 0
    total: int = 0
    key: str | None = None
    created: float | None = None
    results: tuple[str, ...] = ()
    lines: Sequence[JSONObject] = ()
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
    version: the beginning of its paths, which the base URL may have already.
    keeps_key: whether the list of batches has their keys. Without it, only the results show whose a batch is.

    files: how lines are uploaded as a file before the batch is created; None if they are in the request.
    """

    terms: BatchTerms
    paths: ClassVar[BatchPaths]
    version: ClassVar[str] = ""
    keeps_key: ClassVar[bool] = False

    def __init__(self, provider: Provider, files: BatchFiles | None = None) -> None:
        self.provider: Provider = provider
        self.files: BatchFiles | None = files
        path = provider.base_url.partition("?")[0]
        self._version = "" if VERSION.search(path) else self.version

    # --- what the kinds have of their own ---

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
    def state(self, body: JSONObject) -> BatchState:
        """Read the state of a batch."""

    @abc.abstractmethod
    def result(self, value: JSONObject) -> BatchResult | None:
        """Read a result; None for one that names no line."""

    # --- what they have in common ---

    def group(self, model: str, wire: WireRequest) -> BatchGroup | None:
        """Return the group that a live request belongs to; None for one that cannot be sent in a batch."""
        usual = dict(self._headers())
        headers = tuple((name, value) for name, value in wire.headers if usual.get(name) != value)
        group = BatchGroup(model, wire.path.partition("?")[0], headers)
        return group if self.takes(group) else None

    def read(self, id: str) -> WireRequest:
        """Return the request for the state of a batch."""
        return self._get(self.paths.one.format(id_in_path(id)))

    def read_state(self, body: JSONObject) -> BatchState:
        """Read the answer to a request for one batch. Raises `MalformedJSONError` if it is no batch."""
        state = self.state(body)
        if not state.id:
            raise MalformedJSONError(f"{shown(received_dumps(body))} is no batch")
        return state

    def cancel(self, id: str) -> WireRequest:
        return self._post(self._version + self.paths.cancel.format(id_in_path(id)), self.paths.cancel_body)

    def list(self, after: str | None) -> WireRequest:
        """Return the request for a page of all batches, newest first. after: what `read_list` returned for the page
        before; None for the first page."""
        more = "" if after is None else f"&{self.paths.after}={quote(after, safe='')}"
        return self._get(self.paths.batches + more)

    def read_list(self, body: JSONObject) -> tuple[Sequence[BatchState], str | None]:
        """Return the batches of a page, and where the next page begins; None if this is the last one. Raises
        `MalformedJSONError` if it is no page."""
        if type(body.get("data")) is not list:
            raise MalformedJSONError(f"{shown(received_dumps(body))} is no list of batches")
        found = [self.state(batch) for batch in objects(body, "data")]
        more = body.get("has_more") is True
        return found, (string(body, "last_id") or (found[-1].id if found else None)) if more else None

    def results(self, name: str) -> WireRequest:
        """Return the request for a file of results, one of `BatchState.results`."""
        return self._get(self.paths.results.format(id_in_path(name)))

    def result_of_line(self, line: bytes) -> BatchResult | None:
        """Read a line of a file of results; None for an empty line, and for one that cannot be read."""
        if not line.strip():
            return None
        try:
            return self.result(loads_object(line))
        except MalformedJSONError:
            return None

    # --- files ---

    def upload(self, files: BatchFiles, key: str, lines: Sequence[bytes]) -> WireRequest:
        mark, name = f"manystream-{key}", UPLOADED.format(key)
        head = "".join(f"--{mark}\r\n{part.format(name)}\r\n" for part in files.parts).encode()
        body = b"".join([head, b"\r\n", b"\n".join(lines), f"\n\r\n--{mark}--\r\n".encode()])
        return self._post(files.path, body, [("content-type", f"{files.kind}; boundary={mark}"), *files.headers])

    def file_id(self, files: BatchFiles, body: JSONObject) -> str:
        """Return the id of a file, from the answer to its upload. Raises `MalformedJSONError` if it has none."""
        id = string(mapping(body, "file") or body, files.members[2])
        if not id:
            raise MalformedJSONError(f"{shown(received_dumps(body))} is no file")
        return id

    def list_files(self, files: BatchFiles) -> WireRequest:
        return self._get(files.all)

    def file_of(self, files: BatchFiles, body: JSONObject, key: str) -> str | None:
        """Return the id of the file that was uploaded for a batch, from the list of files; None if it has none."""
        (all, name, id), uploaded = files.members, UPLOADED.format(key)
        return next((string(file, id) for file in objects(body, all) if file.get(name) == uploaded), None)

    def delete_file(self, files: BatchFiles, file: str) -> WireRequest:
        wire = self._get(files.one.format(id_in_path(file)))
        wire.method = "DELETE"
        return wire

    # --- requests ---

    def _get(self, path: str) -> WireRequest:
        headers = [pair for pair in self._headers() if pair[0] != "content-type"]
        return WireRequest(path_with_query(self._version + path, self.provider.profile.quirks), headers, b"", "GET")

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
    kind = KINDS.get(provider.profile.name)
    if kind is None:
        return None
    module, _, name = kind.partition(":")
    made: BatchInterface = getattr(import_module(module, __package__), name)(provider)
    return made
