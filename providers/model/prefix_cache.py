"""The wire form of a conversation's earlier messages, cached: appending a turn costs that turn, not the whole history.

Every dialect writes messages in order into one array. Its writer can write them as two segments. The later segment gets
the state that the earlier one left (`Segment.state`: which call ids are taken, which calls wait for a result). The
writer refuses where it would have to know more. So two segments are, byte for byte, what one would have been.

A `CachedPrefix` is such an earlier segment: its bytes, and a snapshot of its messages (`snapshot.py`). It ends before
the last round, because agents still change that one. When the next request begins with messages that equal the
snapshot, only the messages after them are checked and written, and the cached bytes are copied. In any other case (a
message was changed, removed or inserted, another model's rules apply, a result comes for a call that seemed lost)
everything is written again. Cached bytes are never sent for messages that are not proven to be unchanged.

A `PrefixCache` belongs to one conversation. It holds the prefixes for the last `MAX_PREFIXES` cache keys, so at most
that many times the size of the conversation's wire form. Short conversations are not cached.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar, cast

from ..errors import InvalidRequestError
from ..json.exact_numbers import UnwritableNumberError
from ..json.json_values import JSON, JSONObject, check_numbers, dumps, fragment
from .message_rules import validate_messages
from .messages import Message, Role
from .snapshot import Snapshot

WriterState = TypeVar("WriterState")

MAX_PREFIXES = 2
"""Prefixes that a conversation keeps: enough for two providers or models that alternate."""

MIN_MESSAGES = 16
"""Conversations with fewer messages are not cached: writing them is as fast as caching them."""


CHECKED_BEFORE = frozenset({"messages", "input", "contents", "tools"})
"""Members of a body that are not searched for NaN and infinity. Numbers in messages come from JSON, and a `Tool` checks
its own.
"""


@dataclass(slots=True)
class Segment(Generic[WriterState]):
    """Some messages in their wire form.

    items: the array's elements.
    state: what the writer of the next segment must know of all messages so far; None where no segment can follow.
    warnings: about these messages.
    unanswered: warnings about calls that no message so far has answered, those of earlier segments included. A later
        segment may answer them.
    """

    items: list[JSONObject]
    state: WriterState | None
    warnings: list[str] = field(default_factory=lambda: [])
    unanswered: list[str] = field(default_factory=lambda: [])


Write: TypeAlias = Callable[[Sequence[Message], int, WriterState | None], Segment[WriterState] | None]
"""A dialect's writer: messages, the position of the first, and the state that earlier ones left (None: there are none).

Returns their segment, or None where these messages cannot be written apart from the earlier ones."""


@dataclass(slots=True, frozen=True)
class CachedPrefix(Generic[WriterState]):
    """The first messages of a conversation in their wire form.

    key: what the wire form depends on besides the messages, such as the dialect and the profile.
    snapshot: the messages' values when they were written.
    wire: the array's elements, with commas between them.
    state: what the writer of the next segment must know.
    warnings: about these messages.
    """

    key: Hashable
    snapshot: Snapshot
    wire: bytes
    state: WriterState | None
    warnings: tuple[str, ...]

    def extended(self, messages: Sequence[Message], write: Write[WriterState]) -> CachedPrefix[WriterState] | None:
        """Return the prefix with more messages, or None where they cannot be written apart or have no snapshot."""
        if not messages:
            return self
        segment = write(messages, len(self.snapshot), self.state)
        if segment is None or segment.state is None:
            return None
        snapshot = self.snapshot.extended(messages)
        if snapshot is None:
            return None
        wire = b",".join(filter(None, (self.wire, elements(segment.items))))
        return CachedPrefix(self.key, snapshot, wire, segment.state, (*self.warnings, *segment.warnings))


class Tie:
    """Ends what is open for a conversation: when the conversation is cleared, or when nothing refers to it any more.

    name: the session of the conversation's requests; an object of its own for requests without one.
    on_end: called with the name, on any thread.
    """

    __slots__ = ("name", "on_end")

    def __init__(self, session: str | None, on_end: Callable[[Hashable], None]) -> None:
        self.name: Hashable = object() if session is None else session
        self.on_end: Callable[[Hashable], None] = on_end

    def end(self) -> None:
        self.on_end(self.name)

    def __del__(self) -> None:
        if not isinstance(self.name, str):  # another conversation may go on with the session
            self.on_end(self.name)


class PrefixCache:
    """The cached prefixes of one conversation. A prefix in it is replaced, never changed.

    tie: what an engine keeps open for the conversation; None: nothing.
    """

    __slots__ = ("_prefixes", "tie")

    def __init__(self) -> None:
        self._prefixes: tuple[CachedPrefix[object], ...] = ()
        self.tie: Tie | None = None

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(prefix.snapshot)} messages" for prefix in self._prefixes)
        return f"<PrefixCache: {sizes or 'empty'}>"

    def __reduce__(self) -> tuple[type[PrefixCache], tuple[()]]:
        """A deep copy, or a copy in another process, is empty."""
        return PrefixCache, ()

    def copy(self) -> PrefixCache:
        """Return a cache for a copy of the conversation, with the same prefixes."""
        copied = PrefixCache()
        copied._prefixes = self._prefixes
        return copied

    def clear(self) -> None:
        """Drop all prefixes, and end what is open for the conversation."""
        self._prefixes = ()
        tie, self.tie = self.tie, None
        if tie is not None:
            tie.end()

    def find(self, key: Hashable, messages: Sequence[Message]) -> CachedPrefix[object] | None:
        """Return the prefix for this key if its messages still begin these messages."""
        for prefix in self._prefixes:
            if prefix.key == key:
                return prefix if prefix.snapshot.matches(messages[: len(prefix.snapshot)]) else None
        return None

    def keep(self, prefix: CachedPrefix[object]) -> None:
        """Store a prefix. It replaces the one with the same key, or the oldest."""
        others = [other for other in self._prefixes if other.key != prefix.key]
        self._prefixes = (prefix, *others[: MAX_PREFIXES - 1])

    def forget(self, key: Hashable) -> None:
        self._prefixes = tuple(other for other in self._prefixes if other.key != key)


def write_messages(
    messages: Sequence[Message],
    cache: PrefixCache | None,
    key: Hashable,
    write: Write[WriterState],
    warnings: list[str],
    lead: Sequence[JSONObject] = (),
) -> JSON:
    """Check and write a conversation. Returns the array of its elements; an empty list where there is nothing to send.

    cache: of the conversation; None where the messages belong to none.
    key: what the wire form depends on besides the messages; not read if `cache` is None.
    write: the dialect's writer.
    lead: elements before the messages, which are not cached.

    Raises `InvalidRequestError` and leaves the cache as it was.
    """
    if cache is None or len(messages) < MIN_MESSAGES:
        validate_messages(messages)
        return [*lead, *_whole(messages, write, warnings)]
    found = cache.find(key, messages)
    nothing: CachedPrefix[WriterState] = CachedPrefix(key, Snapshot(), b"", None, ())
    # A key belongs to one dialect, so the state is of that dialect's type.
    prefix = cast("CachedPrefix[WriterState]", found) if found is not None else nothing
    known = len(prefix.snapshot)
    validate_messages(messages[known:], known)
    cut = max(last_round(messages), known)
    grown = prefix.extended(messages[known:cut], write)
    rest = write(messages[cut:], cut, grown.state) if grown is not None else None
    if grown is None or rest is None:
        cache.forget(key)
        return [*lead, *_whole(messages, write, warnings)]
    wire = b",".join(filter(None, (elements(lead), grown.wire, elements(rest.items))))
    if cut:
        cache.keep(cast("CachedPrefix[object]", grown))
    warnings += (*grown.warnings, *rest.warnings, *rest.unanswered)
    return fragment(b"[%b]" % wire) if wire else []


def serialised(body: JSONObject) -> bytes:
    """A request's body as bytes. Raises `InvalidRequestError` naming the member that is no JSON."""
    try:
        wire = dumps(body)
    except TypeError:
        pass
    else:
        if b"null" in wire:
            _check_nulls(body)
        return wire
    for name, value in body.items():
        try:
            dumps(value)
        except UnwritableNumberError as error:
            raise InvalidRequestError(f"{name}{error.path}", f"{error.number} cannot be written as JSON") from None
        except TypeError as error:
            raise InvalidRequestError(name, f"cannot be written as JSON: {error}") from None
    raise InvalidRequestError("extra_body", "has a name that is no string")


def _check_nulls(body: JSONObject) -> None:
    """Check that no null was a number: orjson writes NaN and infinity, which JSON does not have, as null.

    Raises `InvalidRequestError` naming the number's path.
    """
    for name, value in body.items():
        if name not in CHECKED_BEFORE and type(value) in (dict, list, float) and b"null" in dumps(value):
            try:
                check_numbers(value)
            except UnwritableNumberError as error:
                raise InvalidRequestError(f"{name}{error.path}", f"{error.number} cannot be written as JSON") from None


def last_round(messages: Sequence[Message]) -> int:
    """Return the position of the first message of the last round: the model's last run of messages and what follows it.

    The next request adds such a round. 0 where there is none.
    """
    for number in range(len(messages) - 1, 0, -1):
        if messages[number].role is Role.ASSISTANT and messages[number - 1].role is not Role.ASSISTANT:
            return number
    return 0


def _whole(messages: Sequence[Message], write: Write[WriterState], warnings: list[str]) -> list[JSONObject]:
    segment = write(messages, 0, None)
    assert segment is not None, "messages without earlier ones can always be written"
    warnings += segment.warnings
    warnings += segment.unanswered
    return segment.items


def elements(items: Sequence[JSONObject]) -> bytes:
    """Return an array's elements, with commas between them. Raises `InvalidRequestError` for what is no JSON."""
    try:
        return dumps(items)[1:-1] if items else b""
    except TypeError as error:
        raise InvalidRequestError("messages", f"hold a value that JSON cannot carry: {error}") from None
