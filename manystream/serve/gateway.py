"""The gateway: a server on the engine's own loop, and its slots.

A request that comes in is checked, gets its slot by its key or its base URL, and becomes a call (`forwarding`).
"""

from __future__ import annotations

import hmac
import math
import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .. import Call, Engine, EngineClosedError, ErrorCategory, InvalidRequestError, ProviderError, TooManyCallsError
from ..engine.embedding import KeyFilter, calls_of
from ..engine.request.credentials import is_loopback, why_no_key
from ..engine.request.value_rules import PATH, SECONDS
from ..http_server import HTTPRequest, HTTPServer
from ..providers.catalog.selection import configured, select
from ..providers.json.exact_numbers import UnwritableError
from ..providers.json.json_values import JSON, MalformedJSONError
from ..providers.model.options import Priority, PriorityName
from ..providers.model.request import RequestOptions, Tags
from ..providers.model.request_rules import REQUEST
from ..providers.model.rules import Rule, check_arguments, flag, number, optional, whole
from ..providers.wire.retry_hints import retry_after_ms
from ..transport.timers import Timer
from .access import is_host, names_an_address, why_refused
from .dialects import (
    ALIVE,
    NO_WEBSOCKET,
    RESPONSES,
    SLOT_NAME,
    SLOT_PATH,
    Refusal,
    Served,
    asks_for_websocket,
    dialect_of_client,
    endpoint_of,
    served_by,
)
from .forwarding import Client, Forwarding, GatewayConnection, Passing
from .trace import Trace, TracedCall
from .websocket import ChainMemory, ResponsesSocket

if TYPE_CHECKING:
    from .. import Budget
    from ..engine.embedding import Calls
    from ..transport.loop import Loop
    from ..transport.timers import Timers

SLOT_KEY = "slot-"
"""The beginning of a slot's key. An unknown key that begins so is that of a slot that has ended."""

KEEP_ALIVE = 15.0
QUEUE = 60.0
"""Seconds after which a request that could not be sent is refused, where its client says no timeout of its own."""

GRACE = 25.0
"""Seconds for the answers that are under way when the gateway ends. Kubernetes kills a process 5 seconds later."""

FLUSH_SECONDS = 2.0
"""Seconds in which clients can read the error with which their answers end."""

SLOT_IDLE = 3600.0
LONGEST_PAUSE = 0.00025
"""The most seconds for which the loop gathers what arrives. A request and its answer both wait for it."""

HINTS_KEPT = 1000
ANSWERS_KEPT, LONGEST_ID = 10_000, 1000
"""The number of latest answers whose provider is known, and the longest id of one: a server may send any."""

KEYS_KEPT = 100
"""The number of keys whose filters are kept: a function may return another key for each call."""


class Slot:
    """One task of one client: a tenant, a session, a budget and a trace. `Gateway.slot` makes it.

    It ends when `end` is called, when its `with` block is left, or after a time without a call.

    name: its name; also the tenant and the session of its calls.
    key: the key that a client sends, in the way of its dialect.
    base_url: the base URL for a client of any dialect. It names no slot: the key does.
    tags: the tags of its calls: the given ones, and `slot`.
    priority: the priority of its calls.
    extra_body: members that each body gets.
    cost: US dollars of its calls so far; None if the price of one of them is not known.
    calls: the number of its calls that have ended.
    ended: whether it takes no more calls.
    """

    __slots__ = (
        "_gateway", "_idle", "_is_traced", "_timer", "_trace", "_used_at", "base_url", "calls", "cost", "ended",
        "extra_body", "key", "name", "options", "priority", "running", "tags",
    )  # fmt: skip

    def __init__(
        self, gateway: Gateway, name: str, options: RequestOptions, extra: Mapping[str, JSON], idle: float, trace: bool
    ) -> None:
        self._gateway = gateway
        self._idle = idle
        self._is_traced = trace
        self._trace: Trace | None = None
        path = None if gateway.traces is None else gateway.traces / f"{name}.jsonl"
        if trace or path is not None:
            self._trace = Trace(path, name, keeps=trace)
        self._used_at = gateway.loop.clock()
        self._timer: Timer | None = None
        self.name: str = name
        self.key: str = SLOT_KEY + secrets.token_urlsafe(24)
        self.base_url: str = gateway.base_url
        self.tags: Tags | None = options.get("tags")
        self.priority: PriorityName | Priority = options.get("priority", "normal")
        self.options: RequestOptions = options
        self.extra_body: dict[str, JSON] = dict(extra)
        self.cost: float | None = 0.0
        self.calls: int = 0
        self.ended: bool = False
        self.running: dict[Call, None] = {}
        self._arm()

    def __repr__(self) -> str:
        state = "ended" if self.ended else f"{len(self.running)} running"
        return f"<Slot {self.name!r}, {self.calls} calls, {state}>"

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.end()

    def trace(self) -> Trace:
        """Return the calls that have ended so far, and how they continue each other.

        Raises `RuntimeError` for a slot that was made with `trace=False`.
        """
        if self._trace is None or not self._is_traced:
            raise RuntimeError(f"the slot {self.name!r} was made with trace=False")
        return self._trace

    def end(self) -> None:
        """Cancel the calls that run, and take no more. The trace stays. Idempotent."""
        if self.ended:
            return
        self.ended = True
        if self._timer is not None:
            self._timer.cancel()
        for call in list(self.running):
            call.cancel()
        self._gateway.forget(self)

    def add(self, call: TracedCall) -> None:
        """Account for a call that has ended."""
        self._used_at = self._gateway.loop.clock()
        self.calls += 1
        cost = call.completion.cost
        self.cost = None if cost is None or self.cost is None else self.cost + cost
        if self._trace is not None:
            self._trace.add(call)

    def _arm(self) -> None:
        self._timer = self._gateway.timers.at(self._used_at + self._idle, self._look)

    def _look(self) -> None:
        """End the slot if it had no call for its time. A call that runs is a use."""
        if self.running:
            self._used_at = self._gateway.loop.clock()
        if self._used_at + self._idle <= self._gateway.loop.clock():
            self.end()
        else:
            self._arm()


def _check_key(key: str, where: str) -> None:
    if why := why_no_key(key):
        raise InvalidRequestError(where, f"must not be {why}")


_ABOVE_0 = number(0, must="a number of seconds above 0", above=True, infinite=True)

OPTIONS: dict[str, Rule] = {
    "host": Rule("an address or a name, without a port", (str,), is_host),
    "port": whole(0, 65535, must="a port from 0 to 65535"),
    "key": optional(Rule("text", (str,), inside=_check_key, secret=True)),
    "keep_alive": _ABOVE_0,
    "queue": _ABOVE_0,
    "grace": SECONDS,
    "trace": optional(PATH),
}

SLOT_OPTIONS: dict[str, Rule] = {
    "name": Rule("1 to 100 letters, digits and ._~-", (str,), re.compile(SLOT_NAME).fullmatch),
    **{name: REQUEST.rules[name] for name in ("tags", "priority", "extra_body")},
    "idle": _ABOVE_0,
    "trace": flag(),
}
"""Argument of `Gateway.slot` → its rule. The traffic control checks the budget."""


class Gateway:
    """A server for clients that speak a provider's dialect. `open_gateway` makes it.

    host, port: where it listens.
    base_url: the base URL for a client of any dialect.
    keep_alive: seconds without an answer after which a stream's client gets a keep-alive.
    queue: seconds after which a request that waits is refused, where its client says no timeout of its own.
    grace: seconds for the answers that are under way when the block is left.
    traces: the folder for the calls of all slots, or None.
    """

    __slots__ = (
        "_answers", "_default", "_ends_at", "_hints", "_key", "_key_filters", "_names", "_slots", "base_url", "calls",
        "chains", "grace", "host", "http", "keep_alive", "loop", "port", "queue", "served", "timers", "traces",
    )  # fmt: skip

    def __init__(
        self,
        engine: Engine,
        host: str,
        port: int,
        key: str | None,
        keep_alive: float,
        queue: float,
        grace: float,
        trace: str | os.PathLike[str] | None,
    ) -> None:
        """Listen. Raises `InvalidRequestError` and `OSError`."""
        self.calls: Calls = calls_of(engine)
        check_arguments(
            OPTIONS, host=host, port=port, key=key, keep_alive=keep_alive, queue=queue, grace=grace, trace=trace
        )
        if not is_loopback(f"http://[{host}]" if ":" in host else f"http://{host}") and not key:
            raise InvalidRequestError("key", f"is needed: {host!r} can be reached by others, who would use your keys")
        self.calls.check_here()
        self.served: Served = served_by(self.calls.starter.providers)
        runtime = self.calls.starter.runtime
        self.loop: Loop = runtime.loop
        self.timers: Timers = runtime.timers
        self.keep_alive: float = keep_alive
        self.queue: float = queue
        self.grace: float = grace
        self._ends_at = math.inf
        self.traces: Path | None = None if trace is None else Path(trace)
        if self.traces is not None:
            self.traces.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.traces.is_symlink():
                raise InvalidRequestError("trace", f"{self.traces} is a link: name the folder that it leads to")
        self._key = key
        self._slots: dict[str, Slot] = {}
        self._names: dict[str, Slot] = {}
        self._answers: dict[str, tuple[str, str]] = {}  # the id of an answer → its provider's name, its slot's key
        self._key_filters: dict[frozenset[str], KeyFilter] = {}
        self.chains: ChainMemory = ChainMemory()
        self._hints: dict[str, float] = {}  # a target → until when its latest refusal asks to wait
        at = partial(self.timers.at, is_timeout=True)
        self.http: HTTPServer = HTTPServer(self.loop, host, port, partial(GatewayConnection, self), at)
        self.host: str = self.http.host
        self.port: int = self.http.port
        shown = f"[{self.host}]" if ":" in self.host else self.host
        self.base_url: str = f"http://{shown}:{self.port}"
        self.loop.limit_pauses(LONGEST_PAUSE)
        self._default = Slot(self, "default", {}, {}, math.inf, trace=False)

    def __repr__(self) -> str:
        return f"<Gateway {self.base_url}, {len(self._names)} slots, {len(self.http.connections)} connections>"

    async def __aenter__(self) -> Gateway:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_exception: object) -> None:
        await self.drain(self.grace if kind is None else 0.0)

    @property
    def slots(self) -> Mapping[str, Slot]:
        """The slots that have not ended, by name."""
        return dict(self._names)

    def slot(
        self,
        name: str,
        *,
        tags: Tags | None = None,
        budget: Budget | None = None,
        priority: PriorityName | Priority = "normal",
        extra_body: Mapping[str, JSON] | None = None,
        idle: float = SLOT_IDLE,
        trace: bool = True,
    ) -> Slot:
        """Make a slot for one task of a client.

        name: letters, digits and `._~-`, at most 100. A slot of this name that has not ended is an error.
        tags: names and values that its calls have, beside `slot`.
        budget: what its calls may use in total. The engine needs `traffic`, and a budget in `usd` its prices.
        priority: the priority of its calls.
        extra_body: members that each body gets, such as `{"logprobs": True}`. They replace the client's.
        idle: seconds without a call after which the slot ends by itself; `math.inf` for never.
        trace: whether `Slot.trace` is kept. It holds every body until the slot is no longer used.

        Raises `InvalidRequestError` for a wrong value.
        """
        check_arguments(
            SLOT_OPTIONS, name=name, tags=tags, priority=priority, extra_body=extra_body, idle=idle, trace=trace
        )
        if name in self._names or name == "default":
            raise InvalidRequestError("name", f"there is a slot {name!r} already: end it, or choose another name")
        traffic = self.calls.starter.traffic
        if budget is not None and traffic is None:
            raise InvalidRequestError("budget", "needs traffic control: open the engine with traffic=Traffic()")
        if budget is not None and traffic is not None:
            traffic.add_budget(name, budget)
        options: RequestOptions = {"tags": {"slot": name, **(tags or {})}, "priority": priority}
        options |= {"tenant": name, "session": name}
        slot = Slot(self, name, options, extra_body or {}, idle, trace)
        self._slots[slot.key] = self._names[name] = slot
        return slot

    async def drain(self, grace: float) -> None:
        """Refuse new requests, with a 503 and Retry-After, and close when those that are being answered have ended.

        Leaving the block does this. A cancellation closes at once.

        grace: seconds to wait for them. Then the calls are cancelled, and their clients get an error of their dialect.
        """
        self._ends_at = self.loop.clock() + grace
        try:
            for seconds in (grace, FLUSH_SECONDS):
                quiet = self.calls.backend.event()
                self.http.drain(quiet.set)
                await self.calls.backend.wait_at_most(quiet, seconds)
                self._end_answers()
        finally:
            self.close()

    def _end_answers(self) -> None:
        error = ProviderError("the gateway has ended", category=ErrorCategory.CANCELLED, retryable=True)
        for connection in list(self.http.connections):
            if isinstance(connection, GatewayConnection) and connection.forwarding is not None:
                connection.forwarding.end(error)

    def close(self) -> None:
        """End all slots, cancel their calls, and close all connections. Their clients get an error."""
        self._end_answers()
        for slot in [*self._names.values(), self._default]:
            slot.end()
        for connection in list(self.http.connections):
            connection.client_left()
        self.http.close()

    # --- for connections and slots ---

    def begin(self, connection: Client, request: HTTPRequest) -> None:
        """Answer a request. Raises `Refusal`."""
        if request.method in ("GET", "HEAD") and ALIVE.fullmatch(request.path):
            status, text = (503, b'{"status":"ending"}') if self.http.is_draining else (200, b'{"status":"ok"}')
            connection.respond(status, [("content-type", "application/json")], text)
            return
        slot, path = self.slot_of(request)
        endpoint = endpoint_of(request, path, self.served)
        if self.http.is_draining:
            wait = math.ceil(1000 * max(1.0, self._ends_at - self.loop.clock()))
            raise Refusal(endpoint.dialect, 503, "the gateway is ending: send the request again when it is back", wait)
        if asks_for_websocket(request):
            if endpoint.dialect.name != RESPONSES or endpoint.rest is not None:
                raise Refusal(endpoint.dialect, 426, NO_WEBSOCKET)
            assert isinstance(connection, GatewayConnection), "a turn is a POST"
            ResponsesSocket.open(self, connection, request)
            return
        try:
            (Forwarding if endpoint.rest is None else Passing)(self, connection, request, slot, endpoint).start()
        except InvalidRequestError as error:
            status = 500 if error.field.startswith("api_key") else 400
            raise Refusal(endpoint.dialect, status, str(error)) from None
        except MalformedJSONError:
            raise Refusal(endpoint.dialect, 400, "the request's body is not a JSON object") from None
        except UnwritableError as error:
            raise Refusal(endpoint.dialect, 400, f"the request's body cannot be written again: {error}") from None
        except (EngineClosedError, TooManyCallsError) as error:
            raise Refusal(endpoint.dialect, 503, str(error)) from None

    def remember(self, answer: str, target: str, slot: Slot) -> None:
        """Remember which provider has an answer, and whose it is, for the requests that name it. Of a longer id, a slot
        gets no answer."""
        if len(answer) <= LONGEST_ID:
            self._answers[answer] = target.partition("/")[0], slot.key
        if len(self._answers) > ANSWERS_KEPT:
            del self._answers[next(iter(self._answers))]

    def keeper_of(self, answers: Sequence[str], slot: Slot, key: str) -> str | None:
        """Return the name of the provider that keeps the answers that a request names; None if it is not known.

        key: the client's. With that of a slot, it gets the answers of this slot alone.

        Raises `LookupError` with the id of an answer that the client does not get.
        """
        keeper = None
        for answer in answers:
            name, owner = self._answers.get(answer, (None, None))
            if owner != slot.key and (owner is not None or key == slot.key):
                raise LookupError(answer)
            keeper = keeper or name
        return keeper

    def hint(self, target: str, headers: Mapping[str, str]) -> None:
        """Remember the hint of a provider's refusal. headers: those of the refusal."""
        hint = retry_after_ms(headers, time.time(), status=429)
        if hint >= 0:
            self._hints[target] = self.loop.clock() + hint / 1000
            if len(self._hints) > HINTS_KEPT:
                del self._hints[next(iter(self._hints))]

    def hint_ms(self, target: str) -> int:
        """Return the milliseconds that are left of the latest hint; -1 if there is none."""
        left = self._hints.get(target, 0.0) - self.loop.clock()
        return math.ceil(left * 1000) if left > 0 else -1

    def key_filter(self, keys: frozenset[str]) -> KeyFilter:
        """Return what removes keys of a provider from its answers."""
        found = self._key_filters.get(keys)
        if found is None:
            if len(self._key_filters) >= KEYS_KEPT:
                self._key_filters.clear()
            found = self._key_filters[keys] = KeyFilter(keys)
        return found

    def model_of(self, dialect: str, model: str | None, keeper: str | None = None) -> str:
        """Return the model's name for the engine: that of a route, or with the name of a provider that speaks the
        dialect. None: any model of the provider named `keeper`, or of the first one.

        Raises `InvalidRequestError`."""
        traffic = self.calls.starter.traffic
        if traffic is not None and model in traffic.routes:
            return model
        providers = [each for each in self.calls.starter.providers if each.profile.dialect_name == dialect]
        if not providers:
            known = configured(self.calls.starter.providers).partition(":")[0]
            raise InvalidRequestError("model", f"no provider of this gateway speaks {dialect}; {known}")
        if model is None:
            return f"{keeper or providers[0].name}/any"
        provider, name = select(model, providers)
        return f"{provider.name}/{name}"

    def forget(self, slot: Slot) -> None:
        """Forget a slot that has ended. Its name may be used again."""
        self._slots.pop(slot.key, None)
        if self._names.get(slot.name) is slot:
            del self._names[slot.name]
            starter = self.calls.starter
            if starter.traffic is not None:
                starter.traffic.remove_budget(slot.name)
            starter.end_session(slot.name)

    def slot_of(self, request: HTTPRequest) -> tuple[Slot, str]:
        """Return the slot of a request, and its path without the slot's. Raises `Refusal`."""
        dialect = dialect_of_client(request)
        path, key = request.path, request.key
        if refused := why_refused(request):
            raise Refusal(dialect, *refused)
        slot = self._slots.get(key)
        if slot is not None:
            return slot, path
        if key.startswith(SLOT_KEY):
            raise Refusal(dialect, 401, "the slot of this key has ended")
        if self._key is not None and not hmac.compare_digest(key.encode(), self._key.encode()):
            raise Refusal(dialect, 401, "the key is not that of this gateway, nor of one of its slots")
        if self._key is None and not names_an_address(request):
            raise Refusal(dialect, 403, "without a key, the gateway answers to localhost and to addresses only")
        in_path = SLOT_PATH.fullmatch(path)
        if in_path is None:
            return self._default, path
        name, path = in_path.groups()
        if name == "default":
            return self._default, path
        endpoint_of(request, path, self.served)  # a path that leads nowhere makes no slot
        return self._names.get(name) or self.slot(name, trace=False), path


def open_gateway(
    engine: Engine,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    key: str | None = None,
    keep_alive: float = KEEP_ALIVE,
    queue: float = QUEUE,
    grace: float = GRACE,
    trace: str | os.PathLike[str] | None = None,
) -> Gateway:
    """Open a server for clients that speak a provider's dialect: `async with open_gateway(engine) as gateway`.

    It listens at once, and runs on the engine's loop. Leaving the block closes it.

    engine: the engine whose providers, traffic control, routes and budgets the clients use.
    host: the address. Another one than loopback needs a `key`.
    port: 0 takes a free one.
    key: the key that clients must send, unless they send a slot's. None: every key is accepted.
    keep_alive: seconds without an answer after which the client of a stream gets a keep-alive of its dialect, and again
        after as many; `math.inf` for none. From the first one on, a refusal comes as an event of the stream.
    queue: seconds after which a request that still waits to be sent, or to be sent again, is refused; `math.inf` for
        never. A client whose SDK says its timeout in a header is refused shortly before that timeout instead.
    grace: seconds for the answers that are under way when the block is left. New requests get a 503 meanwhile. What is
        not answered then ends with an error of the client's dialect. 0 if an exception leaves the block.
    trace: a folder for the calls of every slot, one file of JSON lines for each.

    Raises `InvalidRequestError` for a wrong value, `EngineClosedError`, and `OSError` if it cannot listen there.
    """
    return Gateway(engine, host, port, key, keep_alive, queue, grace, trace)
