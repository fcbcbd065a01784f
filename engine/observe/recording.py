"""Record exchanges to a file: the bytes on the wire with their timing and without secrets, one JSON line each.

A recording is used for replay (`manystream simulate --replay FILE`) and for bug reports. It has requests and responses,
and no key: only headers and query parameters that are known to be harmless are written, and `[key]` replaces a secret
in a body. Prompts and answers are written unchanged, or not at all: then a line has their sizes.

A line is written when its exchange ends, so that an interrupted program leaves complete lines. That of an answer waits
for the end of the call, which knows its usage. A call that was never sent has a line without request and response.
"""

from __future__ import annotations

import base64
import os
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import TextIO

from ...providers.json.json_values import JSON, dumps_printable
from ...providers.model.request import Request
from ...providers.model.rules import flag
from ...transport.exchange import RawHeaders
from ..call.completion import Completion
from ..request.noting import NoteLogger, Notes
from ..request.prepared import Prepared
from ..request.redaction import HARMLESS_QUERY
from ..request.value_rules import PATH
from . import private_file

logger: NoteLogger = NoteLogger("manystream.record")

VERSION = 2
"""The form of a line. The first one had neither the call nor its usage."""

MERGED_SECONDS = 0.1
"""Without content, what was received within this time counts as received at once: a line stays short."""

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

SIZE_HEADERS = frozenset({"content-type", "date", "retry-after", "retry-after-ms"})
"""The headers that are written without content, beside those of limits."""


class CallNote:
    """What a recording knows of a call.

    members: its members of the lines of its exchanges.
    attempts: the number of its exchanges.
    usage: that of its answer, once it has one.
    waits: the line of its answer, until the call has ended.
    """

    __slots__ = ("attempts", "has_ended", "members", "usage", "waits")

    def __init__(self, members: dict[str, JSON]) -> None:
        self.members: dict[str, JSON] = members
        self.attempts: int = 0
        self.usage: JSON = None
        self.has_ended: bool = False
        self.waits: dict[str, JSON] | None = None


class RecordingFile:
    """The file of a recording. Programs use a `Recording`.

    Raises `InvalidRequestError` for arguments of other types.

    clock: returns seconds since an arbitrary start.
    replace: an existing file of that name may be replaced.
    content: prompts, answers and tags are written; else their sizes.
    """

    def __init__(
        self, path: str | os.PathLike[str], clock: Callable[[], float], *, replace: bool = False, content: bool = True
    ) -> None:
        PATH.check(path, "path")
        flag().check(replace, "replace")
        flag().check(content, "content")
        descriptor = private_file.open_replacement(path) if replace else private_file.open_new(path)
        self._file: TextIO | None = os.fdopen(descriptor, "w", encoding="utf-8", newline="\n")
        self._path = Path(path)
        self._process = os.getpid()
        self._clock = clock
        self._began = clock()
        self.began_at: float = round(time.time(), 3)
        self.has_content: bool = content
        self._salt = secrets.token_bytes(16)  # a session may be a user's name, which a bare hash would show
        self._keys: dict[tuple[str, str], int] = {}
        self._calls: dict[object, CallNote] = {}
        self._open: dict[ExchangeNote, None] = {}
        self.notes: Notes = Notes(logger, f"the recording {self._path} lacks exchanges")
        self.exchanges: int = 0

    def __repr__(self) -> str:
        return f"<Recording {self._path.name}, {self.exchanges} exchanges{'' if self._file else ', closed'}>"

    @property
    def closed(self) -> bool:
        return self._file is None

    def close(self) -> None:
        """Write the known part of running exchanges, and close the file. Idempotent."""
        if os.getpid() == self._process:  # else the parent records them
            for note in list(self._open):
                self.notes.take(note.ended, "left")
            for call in self._calls.values():
                self._write_waiting(call)
        self._calls.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def note(self, prepared: Prepared, call: object) -> ExchangeNote | None:
        """Return what records the exchange of an attempt; None after the recording was closed."""
        if self._file is None:
            return None
        known = self._calls.get(call)
        if known is not None:
            known.attempts += 1
        note = ExchangeNote(self, prepared, known)
        self._open[note] = None
        return note

    def call_started(self, call: object, number: int, request: Request, prepared: Prepared) -> None:
        """Note a call, before its first attempt."""
        if self._file is None:
            return
        session = request.session
        self._calls[call] = CallNote({
            "began": self.began_at,
            "call": number,
            "asked": self.elapsed(),
            "requested": prepared.secrets.hide(request.model),
            "stream": prepared.stream,
            "session": session and blake2b(ascii(session).encode(), digest_size=8, key=self._salt).hexdigest(),
            "tenant": request.tenant and prepared.secrets.hide(request.tenant),
            "priority": str(request.priority),
            "caps": request.max_output_tokens,
            "bytes": len(prepared.body),
            **self.target(prepared),
        })  # fmt: skip

    def call_ended(self, call: object, completion: Completion) -> None:
        """Write the line of the call's answer, or of a call that was never sent."""
        known = self._calls.pop(call, None)
        if known is None:
            return
        known.has_ended = True
        if completion.success and completion.response is not None:
            known.usage = {name: value for name, value in asdict(completion.response.usage).items() if name != "raw"}
        self._write_waiting(known)
        if not completion.attempts:
            nothing: dict[str, JSON] = {"request": None, "response": None, "chunks": [], "end": "unsent"}
            started = known.members["asked"]
            self._write({"version": VERSION, "started": started, "ended": self.elapsed(), **known.members, **nothing})

    def target(self, prepared: Prepared) -> dict[str, JSON]:
        """Return where a request goes. A key is written as its number among the keys of its provider."""
        name = prepared.provider.name
        if prepared.secrets.key:
            same = sum(provider == name for provider, _ in self._keys)
            self._keys.setdefault((name, prepared.secrets.key), same + 1)
        return {
            "origin": str(prepared.origin),
            "provider": name,
            "dialect": prepared.shared.dialect.name,
            "model": prepared.secrets.hide(prepared.model),
            "key": self._keys.get((name, prepared.secrets.key)),
        }

    def elapsed(self) -> float:
        """Return the seconds since the recording began, rounded to a tenth of a millisecond."""
        return round(self._clock() - self._began, 4)

    def write(self, note: ExchangeNote, call: CallNote | None, line: dict[str, JSON]) -> None:
        """Write the line of an exchange that has ended; that of an answer when its call has ended, too."""
        if note not in self._open or self._file is None:
            return
        del self._open[note]
        self.exchanges += 1
        if call is None or line["end"] != "whole" or not note.is_answer:
            self._write(line)
            return
        self._write_waiting(call)
        call.waits = line
        if call.has_ended:  # a forwarded answer ends after its call
            self._write_waiting(call)

    def _write_waiting(self, call: CallNote) -> None:
        if call.waits is not None:
            line, call.waits = call.waits, None
            self._write({**line, "usage": call.usage})

    def _write(self, line: JSON) -> None:
        if self._file is not None:
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

    __slots__ = (
        "_call", "_chunks", "_ended", "_head", "_prepared", "_recording", "_request_body", "_sizes", "_started",
        "is_answer",
    )  # fmt: skip

    def __init__(self, recording: RecordingFile, prepared: Prepared, call: CallNote | None) -> None:
        self._recording = recording
        self._prepared = prepared
        self._call = call
        self._request_body = prepared.body  # the call drops it once it can make no other attempt
        self._started = recording.elapsed()
        self._head: JSON = None
        self._chunks: list[tuple[float, bytes]] = []
        self._sizes: list[list[JSON]] = []
        self._ended = False
        self.is_answer: bool = False

    def head(self, status: int, headers: RawHeaders) -> None:
        known = RESPONSE_HEADERS if self._recording.has_content else SIZE_HEADERS
        written = [
            (name, value)
            for name, value in _decoded(headers)
            if name in known or name.startswith(RESPONSE_HEADER_PREFIXES)
        ]
        self.is_answer = 200 <= status < 300
        self._head = {"at": self._since(), "status": status, "headers": self._clean_headers(written)}

    def body(self, data: bytes) -> None:
        since, sizes = self._since(), self._sizes
        if self._recording.has_content:
            self._chunks.append((since, data))
        elif len(sizes) > 1 and since - _number(sizes[-1][0]) < MERGED_SECONDS:
            sizes[-1][1] = _number(sizes[-1][1]) + len(data)
        else:  # the first one is alone: its time is that of the first event
            sizes.append([since, len(data)])

    def accepted(self) -> None:
        """Do nothing: an answer that failed is recorded as well."""

    def _since(self) -> float:
        return round(self._recording.elapsed() - self._started, 4)

    def ended(self, how: str) -> None:
        if self._ended:
            return
        self._ended = True
        prepared = self._prepared
        head = prepared.head
        content = self._recording.has_content
        headers = [(name, value) for name, value in _decoded(head.headers) if name in REQUEST_HEADERS and content]
        line: dict[str, JSON] = {
            "version": VERSION,
            "started": self._started,
            **({"call": None} if self._call is None else self._call.members),
            "attempt": None if self._call is None else self._call.attempts,
            **self._recording.target(prepared),
            "bytes": len(self._request_body),
            "usage": None,
            "request": {
                "method": head.method.decode(),
                "target": self._clean(_known_query(head.target.decode())),
                "headers": self._clean_headers(headers),
                "body": _text(self._clean_bytes(self._request_body)) if content else None,
            },
            "response": self._head,
            "chunks": [[at, _text(data)] for at, data in self._clean_chunks()] if content else [*self._sizes],
            "end": how,
            "ended": self._since(),
        }
        if prepared.tags and content:
            line["tags"] = {
                self._clean(name): self._clean(value) if isinstance(value, str) else value
                for name, value in prepared.tags.items()
            }
        self._chunks = []
        self._recording.write(self, self._call, line)

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


def _number(value: JSON) -> float:
    return value if isinstance(value, (int, float)) else 0.0


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
