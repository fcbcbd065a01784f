"""How many live streams does one core carry?

The figure is the largest number of concurrent streams, each with an event every 20 ms, that meets two conditions. Every
stream ends complete, and 99 of 100 events reach the user's callback within 50 ms of the source's send. A bracketing
search finds it for each client. After all clients had their search, those of OpenAI Chat get a second search above
their result, because a shared machine is slower at times.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .answers import Answer, Row, Series, number
from .clients import AIOHTTP, CURL, FLOOR, OPENAI, OURS, SDK_OF, Client
from .runs import Measured, Run, RunError, measure

P99_LIMIT_MS = 50.0
PROBES = 9
FINE = 1.05
"""How near a search comes to the limit. A quick search stops earlier."""
TARGET = 2500
CHAT_FACTORS = {OPENAI: 40.0, AIOHTTP: 3.5, CURL: 1.5}
CHAT_PEERS = (OPENAI, AIOHTTP, CURL, FLOOR)
OTHERS = (("chat", True), ("responses", False), ("anthropic", False), ("gemini", False), ("interactions", False))
"""Dialect, and whether over TLS."""
TLS_SHARE = 0.9
"""Our streams over TLS, as a share of those of the floor over a memory BIO."""
DIALECT_SHARE = 0.6
DIALECT_FACTOR = 30.0


@dataclass(slots=True)
class Search:
    """The search of one client.

    carried: the largest number of streams that it carried.
    failed: the smallest number that it did not carry; 0: none.
    """

    run: Run
    client: Client
    dialect: str
    tls: bool
    carried: int = 0
    failed: int = 0
    points: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    source_bound: bool = False
    disturbed: int = 0

    def probe(self, streams: int) -> bool:
        """Whether the client carries this many streams. A failure is tried once more."""
        for _ in range(1 if self.run.quick else 2):
            measured = self._measure(streams)
            if measured is None:
                continue
            self.disturbed += measured.disturbed
            if measured.result["events"]:
                self.points.append((streams, measured.result["p99_ms"]))
            carried = measured.complete and measured.result["p99_ms"] <= P99_LIMIT_MS
            if carried and not measured.source_was_late:
                return True
            self.source_bound = carried or (self.source_bound and not carried)
        return False

    def _measure(self, streams: int) -> Measured | None:
        try:
            return measure(
                self.run,
                self.client,
                streams=streams,
                events=75 if self.run.quick else 250,
                dialect=self.dialect,
                tls=self.tls,
                spread=500 if self.run.quick else 1000,
            )
        except RunError:
            return None

    def limit(self, guess: int) -> None:
        """Bracket the limit from the guess, then halve the interval until it is within 5 % (quick: 15 %)."""
        fine = 1.15 if self.run.quick else FINE
        streams = guess
        for _ in range(4 if self.run.quick else PROBES):
            if self.probe(streams):
                self.carried = max(self.carried, streams)
            else:
                self.failed = min(self.failed or streams, streams)
            if self.carried and self.failed and self.failed <= self.carried * fine:
                break
            if not self.failed:
                streams = int(self.carried * 1.4)
            elif not self.carried:
                streams = max(1, int(self.failed / 1.6))
            else:
                streams = int((self.carried * self.failed) ** 0.5)

    def limit_later(self) -> None:
        """Search again, upwards from the result: the machine may have been slower before."""
        self.failed = 0
        self.limit(max(self.carried + 1, int(self.carried * FINE)) if self.carried else self.client.guess)

    def report(self, answer: Answer) -> None:
        """Add the curve for the plot, and a note if the figure is not the client's own limit."""
        where = self.dialect + (" over TLS" if self.tls else "")
        label = self.client.label
        if self.points:
            answer.series.append(Series(f"p99 over live streams, {where}", label, sorted(self.points)))
        if not self.carried:
            answer.notes.append(f"{label}, {where}: no run was complete, with {self.failed} streams or more")
        if self.source_bound:
            answer.notes.append(f"{label}, {where}: above {self.carried} the load source was late, not the client")
        if self.disturbed:
            answer.notes.append(
                f"{label}, {where}: other work on this machine disturbed {self.disturbed} of its runs, so the figure"
                " may be too low"
            )


def chat(searches: dict[Client, Search], answer: Answer) -> int:
    """Report OpenAI Chat for every peer. Returns our own figure."""
    limits = {client: found.carried for client, found in searches.items()}
    ours = limits[OURS]
    for client in CHAT_PEERS:
        factor = CHAT_FACTORS.get(client)
        ratio = ours / limits[client] if limits[client] else None
        met = ratio >= factor if factor and ratio is not None else None
        target = f"manystream ≥ {factor:g} ×" if factor else ""
        answer.add(
            f"chat, {client.label}", limits[client], "streams", ratio=ratio, against="for us", target=target, met=met
        )
    answer.add("chat, manystream", ours, "streams", target=f"≥ {TARGET:,} streams", met=ours >= TARGET, shown=True)
    bars = [(float(place), float(limits[client])) for place, client in enumerate(limits)]
    for (place, limit), client in zip(bars, limits, strict=True):
        answer.series.append(Series("live streams per client", client.label, [(place, limit)]))
    return ours


def others(searches: list[tuple[Search, Search]], answer: Answer, plain: int) -> None:
    """Report TLS and the other dialects, against the provider's own library."""
    for library_found, ours_found in searches:
        where = ours_found.dialect + (" over TLS" if ours_found.tls else "")
        library, theirs, ours = library_found.client, library_found.carried, ours_found.carried
        answer.add(f"{where}, {library.label}", theirs, "streams")
        share = ours / plain if plain else 0.0
        answer.add(
            f"{where}, manystream",
            ours,
            "streams",
            ratio=ours / theirs if theirs else None,
            against=library.label,
            target=f"≥ {DIALECT_SHARE:.0%} of plain chat, ≥ {DIALECT_FACTOR:g} ×",
            met=share >= DIALECT_SHARE and bool(theirs) and ours >= DIALECT_FACTOR * theirs,
        )


def over_tls(floor: Search, ours: int, answer: Answer) -> None:
    """Report TLS against the floor over TLS."""
    theirs = floor.carried
    answer.add(f"chat over TLS, {floor.client.label}", theirs, "streams")
    answer.add(
        "chat over TLS, manystream beside the floor",
        ours,
        "streams",
        ratio=ours / theirs if theirs else None,
        against="floor over a memory BIO",
        target=f"≥ {TLS_SHARE:g} × floor",
        met=bool(theirs) and ours >= TLS_SHARE * theirs,
    )


def reason(row: Row, rows: list[Row], notes: list[str]) -> str:
    """Return why a target is missed, by the rows and notes of the same answer. Empty: they do not explain it."""
    where, _, label = row.what.partition(", ")
    carried = {each.what: each.value for each in rows}
    late = [note.casefold().partition(": above ")[0] for note in notes if "the load source was late" in note]
    plain = f"chat, {FLOOR.label}"
    bare = f"chat over TLS, {FLOOR.label}" if "TLS" in where else plain
    floor = carried.get(bare, 0.0)
    factors = {client.label: factor for client, factor in CHAT_FACTORS.items()}
    asked = row.value * factors.get(label, 0.0)
    if label == OURS.label and row.ratio:
        asked = row.value / row.ratio * DIALECT_FACTOR
    if floor and asked > floor:
        limit = " (above that the load source was late)" if bare.casefold() in late else ""
        return f"it asks for {number(asked)} streams; the bare loop carried {number(floor)} in chat{limit}"
    if f"{OURS.label}, {where}".casefold() in late:
        return "the load source was late above this figure of ours, so it may be too low"
    if floor and asked:
        return (
            f"it asks for {asked / floor:.2f} of the streams of the bare loop, which has no dialect, no timeouts and no"
            " accounting; what an event costs ours in its tick is in the table of CPU per event"
        )
    if ours := carried.get(f"chat, {OURS.label}", 0.0):
        return f"without TLS, too, ours carries {ours / carried[plain]:.2f} of the streams of the bare loop"
    return ""


def answer(run: Run) -> Answer:
    """Answer the question. A quick run omits TLS and the other dialects, and searches once."""
    result = Answer("Live streams on one core, 50 events/s each, p99 ≤ 50 ms")
    chats = {client: Search(run, client, "chat", False) for client in (*CHAT_PEERS, OURS)}
    pairs = [
        (Search(run, SDK_OF[dialect], dialect, tls), Search(run, OURS, dialect, tls))
        for dialect, tls in (() if run.quick else OTHERS)
    ]
    floors = [] if run.quick else [Search(run, FLOOR, "chat", True)]
    searches = [*chats.values(), *(found for pair in pairs for found in pair), *floors]
    for found in searches:
        found.limit(found.client.guess)
    for found in () if run.quick else chats.values():
        found.limit_later()
    if not run.quick:
        result.notes.append("a figure of chat is the higher of two searches, the others searched in between")
    for found in searches:
        found.report(result)
    plain = chat(chats, result)
    others(pairs, result, plain)
    for floor in floors:
        over_tls(floor, sum(found.carried for _, found in pairs if found.tls), result)
    return result
