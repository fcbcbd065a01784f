"""Record exchanges to a file: the bytes on the wire with their timing and without secrets, one JSON line each.

A recording is used for replay (`manystream simulate --replay FILE`) and for bug reports. It has requests and responses,
and no key: only headers and query parameters that are known to be harmless are written, and `[key]` replaces a secret
in a body. Prompts and answers are written unchanged.

A line is written when its exchange ends, so that an interrupted program leaves complete lines.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TextIO

from ...providers.json.json_values import JSON, dumps_printable
from ...providers.model.rules import flag
from ...transport.exchange import RawHeaders
from ..request.noting import NoteLogger, Notes
from ..request.prepared import Prepared
from ..request.redaction import HARMLESS_QUERY
from ..request.value_rules import PATH
from . import private_file

logger: NoteLogger = NoteLogger("manystream.record")

VERSION = 1

REQUEST_HEADERS = frozenset(
    {"accept", "anthropic-beta", "anthropic-version", "content-type", "openai-beta", "user-agent"}
)
RESPONSE_HEADERS = frozenset(
    {"cf-ray", "content-encoding", "content-type", "date", "request-id", "retry-after", "retry-after-ms", "server"}
    | {"x-request-id", "x-goog-request-id", "x-should-retry"}
)
RESPONSE_HEADER_PREFIXES = (
    *("anthropic-ratelimit-", "ratelimit-", "x-ratelimit-", "x-rate-limit-"),
    *("llm_provider-anthropic-ratelimit-", "llm_provider-retry-after", "llm_provider-x-ratelimit-"),
)
"""The headers that are written. Any other header may contain a secret."""


class RecordingFile:
    """The file of a recording. Programs use a `Recording`.

    Raises `InvalidRequestError` for arguments of other types.

    clock: returns seconds since an arbitrary start.
    replace: an existing file of that name may be replaced.
    """

    def __init__(self, path: str | os.PathLike[str], clock: Callable[[], float], *, replace: bool = False) -> None:
        PATH.check(path, "path")
        flag().check(replace, "replace")
        descriptor = private_file.open_replacement(path) if replace else private_file.open_new(path)
        self._file: TextIO | None = os.fdopen(descriptor, "w", encoding="utf-8", newline="\n")
        self._path = Path(path)
        self._process = os.getpid()
        self._clock = clock
        self._began = clock()
        self._open: dict[ExchangeNote, None] = {}
        self.notes: Notes = Notes(logger, f"the recording {self._path} lacks exchanges")
        self.exchanges: int = 0

    def __repr__(self) -> str:
        return f"<Recording {self._path.name}, {self.exchanges} exchanges{'' if self._file else ', closed'}>"

    @property
    def closed(self) -> bool:
        """Whether the recording was closed."""
        return self._file is None

    def close(self) -> None:
        """Write the known part of running exchanges, and close the file. Idempotent."""
        if os.getpid() == self._process:  # else the parent records them
            for note in list(self._open):
                self.notes.take(note.ended, "left")
        if self._file is not None:
            self._file.close()
            self._file = None

    def note(self, prepared: Prepared) -> ExchangeNote | None:
        """Return what records the exchange of an attempt; None after the recording was closed."""
        if self._file is None:
            return None
        note = ExchangeNote(self, prepared)
        self._open[note] = None
        return note

    def elapsed(self) -> float:
        """Return the seconds since the recording began, rounded to a tenth of a millisecond."""
        return round(self._clock() - self._began, 4)

    def write(self, note: ExchangeNote, line: JSON) -> None:
        """Write the line of an exchange that has ended."""
        if note in self._open and self._file is not None:
            del self._open[note]
            self.exchanges += 1
            try:
                self._file.write(dumps_printable(line).decode() + "\n")
                self._file.flush()
            except OSError as error:  # a full disk ends the recording, and no call
                logger.error("the recording %s ends here: %s", self._path, error.strerror)
                file, self._file = self._file, None
                try:
                    file.close()
                except OSError:
                    pass


class Recording:
    """A running recording, as `engine.record` returns it: `with engine.record(path): …`."""

    __slots__ = ("_file",)

    def __init__(self, file: RecordingFile) -> None:
        self._file = file

    def __repr__(self) -> str:
        return repr(self._file)

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether the recording was closed."""
        return self._file.closed

    @property
    def exchanges(self) -> int:
        """The number of exchanges that were written."""
        return self._file.exchanges

    def close(self) -> None:
        """Write the known part of running exchanges, and close the file. Idempotent."""
        self._file.close()


class ExchangeNote:
    """Records what an attempt receives from its connection."""

    __slots__ = ("_chunks", "_ended", "_head", "_prepared", "_recording", "_request_body", "_started")

    def __init__(self, recording: RecordingFile, prepared: Prepared) -> None:
        self._recording = recording
        self._prepared = prepared
        self._request_body = prepared.body  # the call drops it once it can make no other attempt
        self._started = recording.elapsed()
        self._head: JSON = None
        self._chunks: list[tuple[float, bytes]] = []
        self._ended = False

    def head(self, status: int, headers: RawHeaders) -> None:
        written = [
            (name, value)
            for name, value in _decoded(headers)
            if name in RESPONSE_HEADERS or name.startswith(RESPONSE_HEADER_PREFIXES)
        ]
        self._head = {"at": self._since(), "status": status, "headers": self._clean_headers(written)}

    def body(self, data: bytes) -> None:
        self._chunks.append((self._since(), data))

    def accepted(self) -> None:
        """Do nothing: an answer that failed is recorded as well."""

    def _since(self) -> float:
        return round(self._recording.elapsed() - self._started, 4)

    def ended(self, how: str) -> None:
        """Write the exchange."""
        if self._ended:
            return
        self._ended = True
        prepared = self._prepared
        head = prepared.head
        headers = [(name, value) for name, value in _decoded(head.headers) if name in REQUEST_HEADERS]
        line: dict[str, JSON] = {
            "version": VERSION,
            "started": self._started,
            "origin": str(prepared.origin),
            "request": {
                "method": head.method.decode(),
                "target": self._clean(_known_query(head.target.decode())),
                "headers": self._clean_headers(headers),
                "body": _text(self._clean_bytes(self._request_body)),
            },
            "response": self._head,
            "chunks": [[at, _text(data)] for at, data in self._clean_chunks()],
            "end": how,
            "ended": self._since(),
        }
        if prepared.tags:
            line["tags"] = {
                self._clean(name): self._clean(value) if isinstance(value, str) else value
                for name, value in prepared.tags.items()
            }
        self._chunks = []
        self._recording.write(self, line)

    # --- secrets ---

    def _clean_headers(self, headers: Iterable[tuple[str, str]]) -> list[JSON]:
        return [[name, self._clean(value)] for name, value in headers]

    def _clean(self, text: str) -> str:
        return self._prepared.secrets.hide(text)

    def _clean_bytes(self, data: bytes) -> bytes:
        return self._prepared.secrets.hide_bytes(data)

    def _clean_chunks(self) -> list[tuple[float, bytes]]:
        """Return the redacted chunks. If the body contains a secret, possibly over several chunks, it is one chunk."""
        whole = b"".join(data for _, data in self._chunks)
        clean = self._clean_bytes(whole)
        return self._chunks if clean == whole else [(self._chunks[0][0], clean)]


def _decoded(headers: RawHeaders) -> list[tuple[str, str]]:
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]


def _known_query(target: str) -> str:
    path, _, query = target.partition("?")
    known = [pair for pair in query.split("&") if pair.partition("=")[0] in HARMLESS_QUERY]
    return path + ("?" + "&".join(known) if known else "")


def _text(data: bytes) -> JSON:
    """Return bytes as a JSON value: text, or base64 if a chunk was cut inside a character."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
