"""Lets the calls whose prompts begin alike wait for the one that writes the prefix to the server's cache.

A call waits for a prefix before it enters a queue: it holds no place, and its tenant is charged nothing.
`prefix_state.py` decides which calls may go.
"""

from __future__ import annotations

import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ...providers.catalog.dialect import WireRequest
from ...providers.errors import InvalidRequestError
from ...providers.json.json_values import JSONObject, mapping
from ...providers.limits.charging import charging_of
from ...providers.model.events import Event, Start
from ...providers.model.options import Priority
from ...providers.model.provider_error import ProviderError
from ...providers.model.request import Request
from ...providers.model.tokens import Usage
from ...providers.wire.cache_marks import (
    WirePrefix,
    asking_why,
    digest_of,
    in_order,
    system_prefix,
    why_missed,
    wire_prefixes,
)
from ...providers.wire.wire_head import sent_session
from ..call.attempt import Attempt
from ..call.call import RunningCall, TargetRequest
from ..call.completion import CacheUse, Completion
from ..call.next_step import Outlook
from ..call.runtime import Runtime
from ..call.timeouts import LEAST_WAIT
from ..request.noting import NoteLogger
from ..request.prepared import Prepared
from ..request.token_estimate import BYTES_PER_TOKEN
from .admission import Admission, Candidate
from .budgets.budgets import Spending
from .budgets.price import Price, ask_price
from .cache_keys import CacheKeys
from .options import CacheStatistics, Warm
from .prefix_state import OPEN, CacheFacts, PrefixState
from .queue.pump import Notification, Pump
from .routing.router import Access, Router
from .targets import MakeRequest, Targets

logger: NoteLogger = NoteLogger("manystream.traffic")

CACHE_KEY = "prompt_cache_key"
"""The member of a body by which OpenAI sends requests to one machine."""

MOST_PREFIXES = 10_000
"""The prefixes of one key and model that are known at a time. The one that was used least recently goes."""

RECENT = 8
"""The prefixes whose bytes are kept, to compare those of the next request with them in place of a digest."""

LARGEST_RECENT = 1 << 20


class PrefixLine(Pump):
    """The calls that wait for one prefix. state: decides which may go. log_name: for the log.

    read: the tokens that a call has read of it; 0: none has.
    """

    def __init__(self, runtime: Runtime, state: PrefixState[CachedAdmission], wait: float, log_name: str) -> None:
        super().__init__(runtime)
        self.state: PrefixState[CachedAdmission] = state
        self._wait = wait
        self._log_name = log_name
        self._is_logged = False
        self.read: int = 0
        self.answer_id: str = ""  # of the latest call, to ask why another one has missed

    def take(self, now: float) -> Notification | float:
        found = self.state.take(now, self._wait)
        self._note()
        return (found, found.released) if isinstance(found, CachedAdmission) else found

    def look(self) -> None:
        """Go on after a report."""
        if self.state.waiting:
            self.schedule()
        self._note()

    def _note(self) -> None:
        """Log once that a prefix is left alone."""
        if self.state.is_left_alone and not self._is_logged:
            self._is_logged = True
            tokens, name = self.state.tokens, self._log_name
            logger.info("%s does not cache a prefix of about %d tokens: calls do not wait for it", name, tokens)

    def report_figures(self, now: float) -> bool:
        return False


class ModelCache:
    """The cache of one key and model. facts: what was learned of it. The other attributes are figures."""

    def __init__(self, name: str, facts: CacheFacts) -> None:
        self.name: str = name
        self.facts: CacheFacts = facts
        self.lines: OrderedDict[bytes, PrefixLine] = OrderedDict()
        self.read: int = 0
        self.written: int = 0
        self.usd_saved: float | None = None
        self.waited: float = 0.0

    def line(self, digest: bytes, prefix: WirePrefix, runtime: Runtime, wait: float) -> PrefixLine:
        """Return the line of a prefix: a new one if the prefix is not known."""
        line = self.lines.pop(digest, None)
        if line is None:
            tokens = prefix.size / BYTES_PER_TOKEN
            line = PrefixLine(runtime, PrefixState(self.facts, tokens, prefix.lifetime), wait, self.name)
            for _ in range(2 if len(self.lines) >= MOST_PREFIXES else 0):
                oldest, other = self.lines.popitem(last=False)
                if not other.state.is_idle:  # it is in use
                    self.lines[oldest] = other
        self.lines[digest] = line
        return line


class PromptCaches:
    """The prompt caches of the servers of one engine."""

    def __init__(self, options: Warm, runtime: Runtime, price: Price | None, make_streamed: MakeRequest) -> None:
        """Create them without any prefix. make_streamed: prepares a request as a stream."""
        self.make_streamed: MakeRequest = make_streamed
        self.options: Warm = options
        self.price: Price | None = price
        self.runtime: Runtime = runtime
        self._models: dict[tuple[str, str], ModelCache] = {}
        self._keys = CacheKeys()
        self._homes: dict[tuple[Router, bytes], tuple[tuple[int, int], ...]] = {}  # targets and keys of prefixes
        self._recent: list[tuple[bytes, bytes, bytes]] = []  # tools, rest, digest

    def on_a_route(
        self, planned: Candidate, spending: Spending | None, request: Request, first: TargetRequest, targets: Targets
    ) -> tuple[Admission, TargetRequest]:
        """Return the same of a call on a route, or to one of several keys, and its request for the first target.

        A call without a session goes where the prefix of its prompt was sent before, if there is room.
        """
        found = self.prefixes(first.prepared)
        if found is not None and request.session is None:
            place = targets.route, self._digest(found[0], found[1][0])
            now = self.runtime.loop.clock()
            for home in self._homes.get(place, ()):
                candidate = targets.candidate_at(*home)
                if targets.has_room(candidate, now):
                    with contextlib.suppress(InvalidRequestError):
                        if candidate is not planned:
                            first, planned = targets.request_at(candidate), candidate
                            found = self.prefixes(first.prepared)
                        break
            homes = self._homes.pop(place, ())
            here = planned.target_index, planned.key
            self._homes[place] = homes if here in homes else (*homes, here)
            if len(self._homes) > MOST_PREFIXES:
                del self._homes[next(iter(self._homes))]
        if found is None:
            return Admission(planned, spending, targets), first
        access = targets.route.targets[planned.target_index].accesses[planned.key]
        return self.admission(planned, spending, request, first.prepared, access, found, targets), first

    def admission(
        self,
        candidate: Candidate,
        spending: Spending | None,
        request: Request,
        prepared: Prepared,
        access: Access,
        found: tuple[bytes, list[WirePrefix]],
        targets: Targets | None = None,
    ) -> Admission:
        """Return the admission control of a call, which waits for a prefix of its prompt.

        found: as `prefixes` has returned them.
        """
        body, prefixes = found
        key = access.name
        model = self._models.get((key, prepared.model))
        if model is None:
            one_server = charging_of(prepared.provider.profile.name).limited_by == "concurrency"
            facts = CacheFacts(0.0 if one_server else None)  # its cache can be read when the prompt was processed
            model = self._models[key, prepared.model] = ModelCache(f"{key}/{prepared.model}", facts)
        least = max(self.options.least_tokens, 2 * model.facts.uncached)
        lines = [
            (model.line(self._digest(body, prefix), prefix, self.runtime, self.options.wait), prefix.size)
            for prefix in prefixes
            if prefix.size / BYTES_PER_TOKEN >= least
        ]
        if self.options.diagnose and lines and lines[-1][0].answer_id:
            prepared.body = asking_why(prepared.body, prepared.shared.dialect.name, lines[-1][0].answer_id)
        may_wait = request.priority != Priority.INTERACTIVE.value
        streamed = None
        is_plain = prepared.forwarder is None and prepared.durable is None and not prepared.asked
        if is_plain and targets is None and not prepared.stream and request.max_output_tokens != 0:
            streamed = partial(self.make_streamed, request, access.preparer)
        cached = CachedAdmission(candidate, spending, self, model, prepared, lines, prefixes[-1], may_wait, streamed)
        cached.targets = targets
        return cached

    def set_key(self, request: Request, prepared: Prepared) -> None:
        """Let agents of one kind share a `prompt_cache_key`, where the session's own would keep them apart."""
        field, session, body = prepared.provider.profile.quirks.session, request.session, prepared.body
        prefix = system_prefix(body)
        if field is None or field.member != CACHE_KEY or session is None or prefix is None:
            return
        if prefix.size / BYTES_PER_TOKEN >= self.options.least_tokens:
            key = self._keys.key(self._digest(body, prefix), session, self.runtime.loop.clock())
            own = b'"%b":"%b"' % (CACHE_KEY.encode(), sent_session(field, session).encode())
            prepared.body = body.replace(own, b'"%b":"%b"' % (CACHE_KEY.encode(), key.encode()))

    def prefixes(self, prepared: Prepared) -> tuple[bytes, list[WirePrefix]] | None:
        """Return the prefixes of a prompt, and the body in which they are; None if it has none."""
        body, unmarked = prepared.body, self.options.unmarked
        if not unmarked and b'"cache_control"' not in body and b'"prompt_cache_breakpoint"' not in body:
            return None
        body = body if prepared.forwarder is None else in_order(body)
        found = wire_prefixes(body, unmarked=unmarked)
        return (body, found) if found else None

    def _digest(self, body: bytes, prefix: WirePrefix) -> bytes:
        (tools, tools_end), (rest, end) = prefix.tools, prefix.rest
        for known in self._recent:
            same_size = len(known[0]) == tools_end - tools and len(known[1]) == end - rest
            if same_size and body.startswith(known[1], rest) and body.startswith(known[0], tools):
                return known[2]
        parts = prefix.parts(body)
        digest = digest_of(*parts)
        if prefix.size <= LARGEST_RECENT:
            self._recent = [(*parts, digest), *self._recent[: RECENT - 1]]
        return digest

    def statistics(self) -> dict[str, CacheStatistics]:
        return {
            model.name: CacheStatistics(len(model.lines), model.read, model.written, model.usd_saved, model.waited)
            for model in self._models.values()
        }

    def saved(self, prepared: Prepared, usage: Usage) -> float | None:
        """Return the US dollars that a call has saved by the cache; None without a price."""
        if self.price is None:
            return None
        plain = Usage(usage.input_tokens, 0, cached_tokens=0, cache_write_tokens=0)
        used = replace(plain, cached_tokens=usage.cached_tokens, cache_write_tokens=usage.cache_write_tokens)
        used.raw = _of_caches(usage.raw or {})
        try:
            prices = [ask_price(self.price, prepared.provider, prepared.model, each) for each in (plain, used)]
        except InvalidRequestError:
            return None
        return None if prices[0] is None or prices[1] is None else prices[0] - prices[1]


def _of_caches(report: JSONObject) -> JSONObject:
    """Return what a report of usage says of caches: writes with a longer lifetime have a price of their own."""
    inner = (
        (name, each if name.startswith("cache_") else _of_caches(mapping(report, name)))
        for name, each in report.items()
    )
    return {name: each for name, each in inner if each}


class FirstEvents:
    """Receives the first events of an attempt, for what they say of the cache, and gives them to the attempt."""

    __slots__ = ("_attempt", "_call")

    def __init__(self, attempt: Attempt, call: CachedAdmission) -> None:
        self._attempt = attempt
        self._call = call

    def deliver(self, events: Sequence[Event]) -> None:
        """Receive events, none of them terminal."""
        attempt = self._attempt
        if attempt.receiver is self and self._call.heard(attempt, any(type(event) is not Start for event in events)):
            attempt.receiver = attempt
        attempt.deliver(events)


class CachedAdmission(Admission):
    """Admission control of a call whose prompt has a prefix that its server may cache."""

    __slots__ = (
        "_caches", "_deadline", "_home", "_is_heard", "_line", "_lines", "_longest", "_make_streamed", "_may_wait",
        "_model", "_prepared", "_size", "_waited",
    )  # fmt: skip

    def __init__(
        self,
        candidate: Candidate,
        spending: Spending | None,
        caches: PromptCaches,
        model: ModelCache,
        prepared: Prepared,
        lines: list[tuple[PrefixLine, int]],
        longest: WirePrefix,
        may_wait: bool,
        make_streamed: Callable[[], tuple[TargetRequest, WireRequest]] | None,
    ) -> None:
        """Create it. lines: those of its prefixes that are long enough, with their bytes, the shortest first.

        make_streamed: makes a stream of the request, whose usage comes first; None if it is one, or cannot be.
        """
        super().__init__(candidate, spending)
        self._caches = caches
        self._home = candidate.limiter
        self._model = model
        self._prepared = prepared
        self._size = len(prepared.body)
        self._lines = lines
        self._longest = longest
        self._may_wait = may_wait
        self._make_streamed = make_streamed
        self._line: PrefixLine | None = None  # where it waits
        self._deadline = math.inf
        self._waited = 0.0
        self._is_heard = False  # the server has said whether the attempt under way has read

    @property
    def call_number(self) -> int | None:
        """The number of the call in its engine; None if it does not run."""
        return None if self._call is None else self._call.number

    @property
    def waiting_for(self) -> str:
        if self._line is None:
            return super().waiting_for
        state = self._line.state
        writer = None if state.writer is None else state.writer.call_number
        whose = "another call" if writer is None else f"call {writer}"
        return f"a prompt prefix of {state.tokens:,.0f} tokens that {whose} is writing"

    def waited(self, seconds: float) -> dict[str, float]:
        by_reason = super().waited(seconds - self._waited)
        if self._waited > LEAST_WAIT:
            by_reason["prefix"] = self._waited
        return by_reason

    # --- before an attempt ---

    def enter(self, call: RunningCall, deadline: float, now: float, *, again: bool) -> None:
        if again:  # no call waits twice for a prefix
            super().enter(call, deadline, now, again=True)
            return
        self._call, self._deadline, self._started = call, deadline, now
        known = [line for line, _ in self._lines if line.state.is_known(now)]
        if known and not known[-1].state.enter(self, now, may_wait=self._may_wait):
            self._line = known[-1]
            self._line.schedule()
        else:
            self._go(call, now)

    def released(self) -> None:
        """Go on: the call need not wait for a prefix any longer."""
        self._end_wait()
        if self._call is not None:
            self._go(self._call, self._now)

    def _end_wait(self) -> None:
        if self._line is not None:
            self._line = None
            self._waited = self._now - self._started

    def _go(self, call: RunningCall, now: float) -> None:
        for line, _ in self._lines:
            line.state.sent(self, now)
        if self._make_streamed is not None and any(line.state.phase is not OPEN for line, _ in self._lines):
            call.send_streamed(self._make_streamed()[0])
        last, spending, need = self._lines[-1][0] if self._lines else None, self.spending, self._candidate.need
        if last is not None and last.read and last.state.is_readable and spending is not None and need is not None:
            self._candidate.need = spending.reading(need, last.read, self._prepared.body)
        super().enter(call, self._deadline, now, again=False)

    def _begin(self, candidate: Candidate, now: float) -> None:
        self._is_heard = False
        if candidate.limiter is not self._home:  # another cache
            self._leave_lines()
            self._lines = []
        for line, _ in self._lines:
            line.state.sent(self, now)
        super()._begin(candidate, now)

    # --- what the server says ---

    def confirm(self, attempt: Attempt) -> None:
        if self._lines and attempt.prepared.stream and not self._is_heard:
            attempt.receiver = FirstEvents(attempt, self)
        super().confirm(attempt)

    def heard(self, attempt: Attempt, has_content: bool) -> bool:
        """Take what the first events say. Returns False if the next ones may say more."""
        response = attempt.partial_response()
        usage = Usage() if response is None else response.usage
        if usage.cached_tokens is not None or usage.cache_write_tokens is not None:
            self._report(usage)
            return True
        if has_content:
            for line, _ in self._lines:
                line.state.begun(self, self._now)
                line.look()
        return has_content

    def _report(self, usage: Usage) -> None:
        """Let the prefixes know which of them the call has read. It reads whole prefixes, and reports tokens."""
        self._is_heard = True
        read, written, shorter = usage.cached_tokens or 0, usage.cache_write_tokens, 0
        longest: PrefixLine | None = None
        per_byte = (usage.input_tokens or self._size / BYTES_PER_TOKEN) / self._size
        for line, size in self._lines:
            has_read = read > 0 and read >= per_byte * (shorter + size) / 2
            has_written = None if written is None else written > 0
            line.state.report(self, self._now, has_read=has_read, has_written=has_written)
            line.look()
            shorter, longest = size, line if has_read else longest
        if longest is not None:
            longest.read = read

    def _leave_lines(self) -> None:
        for line, _ in self._lines:
            line.state.leave(self)
            line.look()

    # --- after an attempt ---

    def failed(self, attempt: Attempt, error: ProviderError, *, left: int, may_wait: bool) -> Outlook:
        self._leave_lines()
        return super().failed(attempt, error, left=left, may_wait=may_wait)

    def end(self, outcome: Completion | None, attempt: Attempt | None) -> None:
        if outcome is not None and outcome.success and outcome.response is not None and not self._is_heard:
            self._report(outcome.response.usage)
        self._end_wait()
        self._leave_lines()
        super().end(outcome, attempt)

    def complete(self, completion: Completion) -> None:
        super().complete(completion)
        if completion.cache is not None:
            return  # it is counted
        model, tokens = self._model, self._longest.size / BYTES_PER_TOKEN
        shared = f"{'the prompt' if self._longest.rest[1] else 'tools'} up to a mark, about {tokens:,.0f} tokens"
        completion.cache = use = CacheUse(waited=self._waited, shared=shared)
        model.waited += self._waited
        if completion.response is None:
            return
        usage = completion.response.usage
        use.read, use.written = usage.cached_tokens, usage.cache_write_tokens
        use.miss = why_missed(completion.response.provider_data)
        for line, _ in self._lines:
            line.answer_id = completion.response.id or line.answer_id
        model.read += use.read or 0
        model.written += use.written or 0
        saved = self._caches.saved(self._prepared, usage)
        if saved is not None:
            model.usd_saved = (model.usd_saved or 0.0) + saved
