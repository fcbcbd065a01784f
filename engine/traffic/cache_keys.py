"""The `prompt_cache_key` of a request: the prompts of one kind of agent share a machine's cache at OpenAI.

A machine takes about 15 requests a minute with one key, and further ones go to others. So a prefix has several keys,
its shards, and as many as its requests need. A session keeps its shard, because that has its conversation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from hashlib import sha256

from ...providers.wire.wire_head import HASHED_SESSION

PER_MINUTE = 15
"""Requests that a machine takes with one key, as programs have measured it."""

MOST = 10_000
"""The sessions that are known. Those that were used least recently go."""


class CacheKeys:
    """The keys of all prefixes. The time is passed in."""

    def __init__(self) -> None:
        self._shards: dict[bytes, list[deque[float]]] = {}  # prefix → for each shard, the times of the latest requests
        self._kept: dict[Hashable, int] = {}  # prefix and session → shard

    def key(self, prefix: bytes, session: str, now: float) -> str:
        """Return the key of a request. prefix: the digest of its tools and system prompt."""
        shards = self._shards.setdefault(prefix, [])
        shard = self._kept.pop((prefix, session), len(shards))
        if shard >= len(shards):
            free = (n for n, times in enumerate(shards) if len(times) < PER_MINUTE or now - times[0] >= 60)
            shard = next(free, len(shards))
        if shard >= len(shards):
            shards.append(deque(maxlen=PER_MINUTE))
        shards[shard].append(now)
        self._kept[prefix, session] = shard
        if len(self._kept) > MOST:
            del self._kept[next(iter(self._kept))]
        if len(self._shards) > MOST:
            del self._shards[next(iter(self._shards))]
        return sha256(b"%b %d" % (prefix, shard)).hexdigest()[:HASHED_SESSION]
