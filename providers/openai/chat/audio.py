"""Sound in a chat answer: joins base64 fragments to one file."""

from __future__ import annotations

import base64
import binascii

from ...json.json_values import JSONObject, string
from ...model.messages import File, ProviderState

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"RIFF", "audio/wav"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)
"""The first bytes of a sound file → its media type. The answer does not name its format; PCM has no such bytes."""


class AudioInProgress:
    """The sound of one answer. Its id and transcript are state, because the next request refers to the sound by id."""

    __slots__ = ("_members", "_pieces", "_transcript")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._transcript: list[str] = []
        self._members: JSONObject = {}

    def add(self, audio: JSONObject) -> None:
        """Add the `audio` member of a message or a delta."""
        self._pieces.append(string(audio, "data") or "")
        self._transcript.append(string(audio, "transcript") or "")
        for name, value in audio.items():
            if value and name not in ("data", "transcript"):
                self._members[name] = value

    def file(self, provider: str) -> File:
        """Return the sound so far."""
        data = _decoded(self._pieces)
        kind = next((kind for magic, kind in _MAGIC if data.startswith(magic)), "audio/pcm")
        members: JSONObject = {**self._members, "transcript": "".join(self._transcript)}
        return File(data=data, media_type=kind, state=ProviderState(provider, {"audio": members}))


def _decoded(pieces: list[str]) -> bytes:
    """Decode base64 fragments: a stream may encode each one separately, or cut one encoding anywhere."""
    try:
        return b"".join(base64.b64decode(piece, validate=True) for piece in pieces)
    except (binascii.Error, ValueError):
        pass
    try:
        whole = "".join(pieces)
        return base64.b64decode(whole + "=" * (-len(whole) % 4))
    except (binascii.Error, ValueError):
        return b""
