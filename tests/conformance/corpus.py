"""Read a folder of recorded responses.

Each response has the files `<dialect>/<name>.body`, `.json` (its source, status and headers) and `.expect.json` (the
result of the reference reader).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import manystream as ms

DIALECT_FOLDERS: dict[str, str] = {
    "openai_chat": "openai-chat", "openai_responses": "openai-responses", "anthropic": "anthropic", "gemini": "gemini",
    "gemini_interactions": "gemini-interactions",
}  # fmt: skip
"""Folder → the dialect of its bodies."""

NOT_SENT_AGAIN = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-connection", "te", "trailer", "transfer-encoding",
        "upgrade", "content-encoding", "content-length",
    }
)  # fmt: skip
"""Headers of the connection, which are not replayed: the bodies are stored decoded."""


@dataclass(slots=True, frozen=True)
class Case:
    """One recorded response."""

    dialect: str
    name: str
    server: str
    model: str
    tags: tuple[str, ...]
    status: int
    headers: tuple[tuple[str, str], ...]
    stream: bool
    body: bytes
    reference: ms.JSONObject

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")


def read_corpus(folder: Path, names: Sequence[str] = ()) -> list[Case]:
    """Return all cases below the folder; with `names`, only those whose name contains one of them.

    Raises `FileNotFoundError` if the folder does not exist.
    """
    if not folder.is_dir():
        raise FileNotFoundError(folder)
    cases: list[Case] = []
    for subfolder, dialect in DIALECT_FOLDERS.items():
        for body in sorted((folder / subfolder).glob("*.body")):
            stem = body.name.removesuffix(".body")
            if not names or any(name in stem for name in names):
                cases.append(_read(body, stem, dialect))
    return cases


def _read(body: Path, stem: str, dialect: str) -> Case:
    metadata: ms.JSONObject = json.loads((body.parent / f"{stem}.json").read_text("utf-8"))
    reference: ms.JSONObject = json.loads((body.parent / f"{stem}.expect.json").read_text("utf-8"))
    tags = metadata.get("tags")
    status = metadata.get("http_status")
    assert isinstance(tags, list)
    assert isinstance(status, int)
    return Case(
        dialect=dialect, name=stem, server=str(metadata.get("server") or "unknown"),
        model=str(metadata.get("model") or "unknown"), tags=tuple(str(tag) for tag in tags), status=status,
        headers=_headers(metadata.get("response_headers")), stream=metadata.get("is_stream") is True,
        body=body.read_bytes(), reference=reference,
    )  # fmt: skip


def _headers(recorded: ms.JSON) -> tuple[tuple[str, str], ...]:
    headers = recorded if isinstance(recorded, dict) else {}
    return tuple((name, str(value)) for name, value in headers.items() if name.lower() not in NOT_SENT_AGAIN)
