"""Run each recorded response through the engine over real sockets, and record what each call delivers."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import trio

import manystream as ms
from manystream.providers.catalog.profiles import profile_by_name
from tests.support.event_order import OrderChecker, OrderError
from tests.support.peers import open_peer

from .corpus import Case
from .cuts import Cut
from .server import WHICH, Answer, recorded

AT_ONCE = 24
"""The number of concurrent calls: enough to interleave their bytes in the engine's loop."""

CALL_SECONDS = 120.0
"""The timeout of each call, in seconds. The server sends each response at once."""

PROVIDERS: dict[str, type[ms.Provider]] = {
    "openai-chat": ms.OpenAIChat, "openai-responses": ms.OpenAIResponses, "anthropic": ms.Anthropic,
    "gemini": ms.Gemini, "gemini-interactions": ms.GeminiInteractions,
}  # fmt: skip

PROFILE_OF_SERVER: dict[tuple[str, str], str] = {("openai-chat", "openai"): "openai-chat"}
"""Dialect and kind of server → profile, for kinds that are not named like a profile."""


@dataclass(slots=True)
class CallRecord:
    """The record of one call.

    case: the recorded response.
    cut: how the server cut the body.
    events: the delivered events.
    completion: the latest completion.
    completions: the number of completions.
    defects: errors that the library logged, and events out of order.
    """

    case: Case
    cut: Cut
    events: list[ms.Event] = field(default_factory=list[ms.Event])
    completion: ms.Completion | None = None
    completions: int = 0
    defects: list[str] = field(default_factory=list[str])


class DefectLog(logging.Handler):
    """A log handler that records errors. The library logs an error only for a defect of its own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(self.format(record))

    def __enter__(self) -> DefectLog:
        logging.getLogger("manystream").addHandler(self)
        return self

    def __exit__(self, *exception: object) -> None:
        logging.getLogger("manystream").removeHandler(self)

    def take(self) -> list[str]:
        """Return and clear the errors that were logged since the last call."""
        taken, self.records = self.records, []
        return taken


def provider_for(dialect: str, server: str, base_url: str = "http://127.0.0.1:9") -> ms.Provider:
    """Return the provider that a program would configure for this kind of server."""
    known = PROFILE_OF_SERVER.get((dialect, server), server.partition("/")[0])
    profile = known if profile_by_name(known, dialect) is not None else None
    return PROVIDERS[dialect]("key", base_url, name=f"{dialect}.{server}".replace("/", "-"), profile=profile)


async def exchange(plan: Sequence[tuple[Case, Cut]]) -> list[CallRecord]:
    """Run each response of the plan. Returns the records in the plan's order."""
    script = recorded([Answer(case.status, case.headers, case.body, cut) for case, cut in plan])
    records = [CallRecord(case, cut) for case, cut in plan]
    async with open_peer(script) as peer:
        kinds = sorted({(case.dialect, case.server) for case, _ in plan})
        providers = [provider_for(*kind, peer.origin) for kind in kinds]
        with DefectLog() as log:
            async with ms.open_engine(
                providers, retry=ms.Retry(max_attempts=1), timeouts=ms.Timeouts(total=CALL_SECONDS), proxy=""
            ) as engine:
                await _run_all(engine, records)
            if log.records and records:
                records[-1].defects.extend(log.take())
    return records


async def _run_all(engine: ms.Engine, records: Sequence[CallRecord]) -> None:
    limit = trio.CapacityLimiter(AT_ONCE)

    async def one(place: int) -> None:
        async with limit:
            await _run(engine, place, records[place])

    async with trio.open_nursery() as calls:
        for place in range(len(records)):
            calls.start_soon(one, place)


async def _run(engine: ms.Engine, place: int, record: CallRecord) -> None:
    case, order = record.case, OrderChecker()
    provider = provider_for(case.dialect, case.server)
    request = ms.Request(f"{provider.name}/recorded", [ms.Message.user("?")], extra_headers={WHICH: str(place)})

    def on_event(event: ms.Event) -> None:
        record.events.append(event)
        try:
            order.check(event)
        except OrderError as error:
            record.defects.append(str(error))

    def on_completion(completion: ms.Completion) -> None:
        record.completions += 1
        record.completion = completion

    call = (
        engine.start_stream(request, on_event, on_completion)
        if case.stream
        else engine.start_request(request, on_completion)
    )
    await call.wait()


def without_made_ids(record: CallRecord) -> tuple[list[ms.Event], ms.Response | None]:
    """Return events and response with one constant in place of generated ids, which differ from call to call."""
    body, made = record.case.text, "(made here)"
    events = [
        replace(event, id=made) if isinstance(event, ms.ToolCallStart) and event.id not in body else event
        for event in record.events
    ]
    response = record.completion.response if record.completion is not None else None
    if response is not None:
        response = copy.copy(response)
        response.content = [
            replace(block, id=made) if isinstance(block, ms.ToolCall) and block.id not in body else block
            for block in response.content
        ]
    return events, response
