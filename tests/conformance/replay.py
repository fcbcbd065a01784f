"""Read a body in memory with parser and stream machine, or with the decoder, as the engine does without its sockets."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import manystream as ms
from manystream.providers.catalog.dialect import StreamMachine
from manystream.providers.catalog.registry import DIALECTS
from manystream.transport.sse import ServerSentEvent, SSEParser
from tests.support.event_order import OrderChecker

from .corpus import Case

EVENT_STREAM = "text/event-stream"
NOW = 1_750_000_000.0


class DefectError(AssertionError):
    """The library violated a rule that must hold for any response."""


@dataclass(slots=True)
class Reading:
    """The result of a body: a response or an error, and the events of a stream. A failed stream has both."""

    events: list[ms.Event] = field(default_factory=list[ms.Event])
    response: ms.Response | None = None
    error: ms.ProviderError | None = None


def counting_ids() -> Callable[[], str]:
    """Return a generator of ids that are the same in every replay."""
    numbers = itertools.count(1)
    return lambda: f"made-{next(numbers)}"


def is_event_stream(case: Case) -> bool:
    """Return whether the engine would read this response as server-sent events."""
    media_type = next((value for name, value in case.headers if name.lower() == "content-type"), "")
    return case.status == 200 and (
        media_type.startswith(EVENT_STREAM) or (case.stream and "application/json" not in media_type)
    )


def read_body(case: Case, provider: ms.Provider, body: bytes) -> Reading:
    """Read a body as a response with the case's status and headers.

    Raises `DefectError`, or the exception that the library raised.
    """
    dialect = DIALECTS[case.dialect]
    if case.status != 200:
        headers = {name.lower(): value for name, value in case.headers}
        return Reading(error=dialect.decode_error(case.status, headers, body, NOW))
    if is_event_stream(case):
        parser = SSEParser()
        events = parser.feed(body)
        return read_events(dialect, provider, events, parser.end())
    try:
        return Reading(response=dialect.decode(body, provider, counting_ids()))
    except ms.ProviderError as error:
        return Reading(error=error)


def read_events(
    dialect: ms.Dialect, provider: ms.Provider, events: Sequence[ServerSentEvent], last: Sequence[ServerSentEvent] = ()
) -> Reading:
    """Read server-sent events.

    last: the events that the end of the body left without its blank line, if any.
    """
    machine = dialect.machine(provider, counting_ids())
    reading, order = Reading(), OrderChecker()

    def take(delivered: Sequence[ms.Event]) -> None:
        for event in delivered:
            order.check(event)
            reading.events.append(event)

    for name, data in events:
        if data:
            take(machine.feed(name, data))
    for name, data in last:
        if data:
            take(machine.feed_last(name, data))
    take(machine.end())
    take(machine.end())  # a second call of `end` must return nothing
    return _ended(machine, reading)


def _ended(machine: StreamMachine, reading: Reading) -> Reading:
    terminal = reading.events[-1] if reading.events else None
    if not machine.ended or not isinstance(terminal, ms.Done | ms.ErrorEvent):
        raise DefectError("the stream has ended without a terminal event")
    reading.response = machine.response()
    if isinstance(terminal, ms.ErrorEvent):
        reading.error = terminal.error
    return reading
