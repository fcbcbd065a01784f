"""The keys of a provider: what prepares requests with each, and which one a call is sent with."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ....providers.catalog.provider import Provider, keys_of
from ...request.preparer import Preparer
from .sessions import Sessions

ASIDE_FOR = 60.0
"""Seconds for which a key that the server refused is not used. Then one call tries it again."""


@dataclass(slots=True, frozen=True)
class Access:
    """One key of one provider.

    name: the provider's name; with several keys also the key's position, such as `openai[1]`.
    provider: the provider with this key alone.
    preparer: prepares requests with this key.
    """

    name: str
    provider: Provider
    preparer: Preparer


def accesses_of(provider: Provider, preparer: Preparer) -> tuple[Access, ...]:
    """Return one access for each key of a provider. preparer: the engine's, which knows the provider."""
    keys = keys_of(provider)
    if not keys:
        return (Access(provider.name, provider, preparer),)
    found: list[Access] = []
    for position, key in enumerate(keys):
        own, single = preparer.with_key(provider, key)
        found.append(Access(f"{provider.name}[{position}]", single, own))
    return tuple(found)


class KeyRing:
    """The keys of one provider, for one model.

    model: the model's name, which names its sessions in `sessions`.
    count: how many keys there are.
    sessions: the keys of the sessions of all models.
    """

    __slots__ = ("_aside_until", "_model", "_sessions", "count")

    def __init__(self, model: str, count: int, sessions: Sessions) -> None:
        self.count: int = count
        self._model = model
        self._aside_until = [0.0] * count
        self._sessions = sessions

    def usable(self, now: float, without: Collection[int] = ()) -> list[int]:
        """Return the positions of the keys that may be used: those that are not put aside, else all.

        without: keys that have failed the call.
        """
        left = [key for key in range(self.count) if key not in without]
        return [key for key in left if now >= self._aside_until[key]] or left

    def best(self, keys: Sequence[int], room: Mapping[int, float], session: str | None, now: float) -> int:
        """Return the key that a call should be sent with: the session's, else the one with the most room.

        keys: the ones that can send it now. room: key → how many such calls it could send.
        """
        if session is not None:
            kept = self._sessions.place((self._model, session), now)
            if kept is not None and kept in keys:
                return kept
        return max(keys, key=room.__getitem__)

    def begin(self, key: int, session: str | None, now: float) -> None:
        """A call of a session is sent with a key, which the session keeps."""
        if session is not None and self.count > 1:
            self._sessions.keep((self._model, session), key, now)

    def put_aside(self, key: int, now: float) -> None:
        """The server refused the key."""
        self._aside_until[key] = now + ASIDE_FOR

    def restore(self, key: int) -> None:
        """The server accepted the key."""
        self._aside_until[key] = 0.0

    def end_session(self, session: str) -> None:
        """Forget which key a session has."""
        self._sessions.end((self._model, session))
