"""Read an answer that a program has in a provider's own form, with the decoder or the stream machine of its dialect."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ...providers.catalog.dialect import BARE_LINES
from ...providers.catalog.profiles import DEFAULT_PROFILES
from ...providers.catalog.provider import Provider
from ...providers.catalog.registry import dialect_of
from ...providers.convert.sdk_arguments import Dumpable, plain
from ...providers.json.json_values import arguments_text, leading_json
from ...providers.model.events import ErrorEvent, Event
from ...providers.model.provider_error import ProviderError
from ...providers.model.response import arrived
from ...transport.sse import SSEParser
from .body import Form, content_of, form_of

if TYPE_CHECKING:
    from .completion import Completion

CHAT = "openai-chat"
"""The dialect whose end marker is no JSON, so that what an SDK returns has none."""


def make_id() -> str:
    """Return an id for a tool call that has none: 22 characters of `A-Z a-z 0-9 - _`."""
    return secrets.token_urlsafe(16)


def completion_of(make: type[Completion], dialect_name: str, received: object) -> Completion:
    """Return the completion that a call with this answer has. Raises `InvalidRequestError` for what is no JSON."""
    profile, _ = DEFAULT_PROFILES[dialect_name]
    provider = Provider(profile=replace(profile, quirks=replace(profile.quirks, strict_end=dialect_name != CHAT)))
    dialect = dialect_of(profile)
    one = isinstance(received, (str, bytes, bytearray, Mapping, Dumpable)) or not isinstance(received, Iterable)
    given: list[object] = [received] if one else list(cast("Iterable[object]", received))
    texts = [_text(item, "received" if one else f"received[{place}]") for place, item in enumerate(given)]
    content = content_of(b"".join(texts))
    last: Sequence[tuple[str, bytes]] = ()
    if form_of(content) is Form.EVENTS:
        parser = SSEParser(len(content) + 1)
        wire_events, last = parser.feed(content), parser.end()
    elif len(texts) == 1:
        try:
            return make(True, response=dialect.decode(content, provider, make_id))
        except ProviderError as error:
            if one and leading_json(content) is None:
                partial, error.partial = error.partial, None
                return make(False, response=partial, error=error)
        wire_events = [(BARE_LINES if one else "", content)]
    else:
        wire_events = [("", text) for text in texts]
    machine = dialect.machine(provider, make_id)
    events: Sequence[Event] = ()
    for feed, wire in ((machine.feed, wire_events), (machine.feed_last, last)):
        for name, data in wire:
            events = (data and not machine.ended and feed(name, data)) or events
    terminal = [*events, *machine.end()][-1]
    if isinstance(terminal, ErrorEvent):
        return make(False, response=arrived(machine.response()), error=terminal.error)
    return make(True, response=machine.response())


def _text(value: object, where: str) -> bytes:
    """Return JSON, or the text of a body, as bytes."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    return arguments_text(plain(value, where, base64_bytes=True)).encode()
