"""What the programs of this package need of an engine beyond the public names: the one door through which a batch, a
gateway, a benchmark, the command line and a cluster reach into it.

`EmbeddedEngine` prepares requests and sends what is no call, reserves and settles money that no call reserves, and
reads an answer again for the request that created it. The names below it are what a gateway taps bytes with, and what
another process leases parts of limits with.

A program may also import the few modules that load no engine, such as `request/credentials`: see
`tests/test_architecture.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..providers.catalog.dialect import WireRequest
from ..providers.catalog.provider import Provider
from ..providers.errors import InvalidRequestError
from ..providers.model.messages import Message
from ..providers.model.options import Timeouts
from ..providers.model.provider_error import ProviderError
from ..providers.model.request import Request
from ..providers.model.response import Response
from ..providers.model.rules import described
from ..providers.model.tokens import Usage
from ..providers.wire.answer_tokens import drop_unasked
from .call.attempt import Attempt as Attempt
from .call.body import content_coding as content_coding
from .call.callbacks import OnCompletion
from .call.callbacks import check_callback as check_callback
from .call.completion import Completion
from .call.error_body import add_address as add_address
from .call.error_body import is_wrong_address
from .call.handle import Call
from .call.plain_request import PlainRequest as PlainRequest
from .call.plain_request import fetch
from .call.runtime import KeptAnswer as KeptAnswer
from .call.runtime import Note as Note
from .call.sockets import ConversationSocket as ConversationSocket
from .call.timeouts import effective
from .calls import make_id, response_finisher
from .gate import CONCURRENCY as CONCURRENCY
from .gate import Calls as Calls
from .option_rules import OPTIONS as OPTIONS
from .request.addresses import Addressed
from .request.durable import read_token as read_token
from .request.forwarded import ForwardedBody as ForwardedBody
from .request.forwarded import forwarded_request as forwarded_request
from .request.limits import EngineLimits
from .request.noting import NoteLogger as NoteLogger
from .request.noting import Notes as Notes
from .request.prepared import Prepared as Prepared
from .request.preparer import Preparer
from .request.redaction import KeyFilter as KeyFilter
from .request.redaction import Redaction as Redaction
from .request.redaction import redacted
from .request.token_estimate import BYTES_PER_TOKEN as BYTES_PER_TOKEN
from .traffic.admission import OK as OK
from .traffic.budgets.amounts import NOTHING, Amounts
from .traffic.budgets.budgets import REFUSAL_CODE as REFUSAL_CODE
from .traffic.budgets.budgets import Reservation as Reservation
from .traffic.budgets.leases import UNITS_PER_USD as UNITS_PER_USD
from .traffic.budgets.leases import AmountHolder as AmountHolder
from .traffic.budgets.leases import LeasedBudget as LeasedBudget
from .traffic.budgets.price import ask_price as ask_price
from .traffic.limits.bucket import Bucket as Bucket
from .traffic.limits.host import AWAY as AWAY
from .traffic.limits.leases import EntryLease as EntryLease
from .traffic.limits.leases import LeasedRateLimit as LeasedRateLimit
from .traffic.limits.limiter import REFUSAL_CODES as REFUSAL_CODES
from .traffic.limits.rate_limit import EVERY_CALL as EVERY_CALL
from .traffic.limits.rate_limit import find_entries as find_entries
from .traffic.limits.rate_limit import limits_of as limits_of
from .traffic.options import OUTAGE as OUTAGE
from .traffic.routing.options import Balance as Balance

if TYPE_CHECKING:
    from . import Engine


def calls_of(engine: Engine) -> Calls:
    """Return the calls of an open engine. Raises `InvalidRequestError` for anything else."""
    calls: Calls | None = getattr(engine, "_calls", None)
    if calls is None:
        raise InvalidRequestError("engine", f"must be the engine of an open_engine block, not {described(engine)}")
    return calls


class EmbeddedEngine:
    """An engine, as a program uses it that also sends what is no call.

    providers: its providers, in their order.
    """

    __slots__ = ("_calls", "_starter", "providers")

    def __init__(self, engine: Engine) -> None:
        self._calls = calls_of(engine)
        self._starter = starter = self._calls.starter
        self.providers: Sequence[Provider] = starter.providers

    # --- requests ---

    def provider_named(self, name: str) -> Provider:
        """Return the provider with this name. Raises `InvalidRequestError`."""
        return self._starter.preparer.provider_named(name)

    def prepare(self, request: Request) -> tuple[Prepared, WireRequest]:
        """Prepare an unstreamed request without starting a call. Raises `InvalidRequestError`."""
        return self._starter.preparer.prepare(request, stream=False)

    async def send(
        self, provider: Provider, wire: WireRequest, timeouts: Timeouts, on_data: Callable[[bytes], object] | None
    ) -> bytes:
        """Send a request that is no call, once at the most, and return its answer's body. Raises as `fetch` does.

        on_data: gets the body's pieces as they come; then nothing is returned.
        """
        prepared = self._starter.preparer.prepare_wire(provider, wire)
        clocks = effective(timeouts, None, stream=False)
        return await fetch(prepared, self._starter.runtime, clocks, on_data, idempotent=False)

    def completion_of(self, request: Request, status: int, body: bytes) -> Completion:
        """Return the completion that an unstreamed call with this status and body has. Nothing is sent: the answer came
        another way, such as in a provider's batch."""
        prepared, wire = self.prepare(request)
        shared = prepared.shared
        response: Response | None = None
        try:
            if not 200 <= status < 300:
                raise shared.dialect.decode_error(status, {}, body, time.time())
            response = shared.dialect.decode(body, shared.provider, shared.make_id, shared.limits)
            drop_unasked(response, prepared.asked, prepared.unasked)
            finish = response_finisher(wire.warnings, request, wire.asked)
            if finish is not None:
                finish(response)
        except ProviderError as error:
            partial, error.partial = error.partial or response, None  # a whole answer that was checked in vain, too
            error.provider, error.model = prepared.provider.name, prepared.model
            error.host = prepared.origin.host_header
            return Completion(False, status, partial, redacted(error, prepared.secrets), attempts=1)
        return Completion(True, status, response, attempts=1)

    def read_again(self, token: str, on_completion: OnCompletion, created_by: Request) -> Call:
        """Read an answer again, as the call of the unstreamed request that created it. Raises as `Engine.attach`."""
        return self._calls.attach(token, None, on_completion, None, created_by)

    # --- money ---

    @property
    def has_traffic(self) -> bool:
        return self._starter.traffic is not None

    def price(self, provider: Provider, model: str, usage: Usage) -> float | None:
        """Return the US dollars of an answer; None without a price. Raises as `ask_price` does."""
        traffic = self._starter.traffic
        price = None if traffic is None or traffic.budgets is None else traffic.budgets.price
        return None if price is None else ask_price(price, provider, model, usage)

    def reserve(
        self, request: Request, prepared: Prepared, wire: WireRequest, part: float
    ) -> Reservation | bool | None:
        """Reserve the most that a request may cost, at a part of the list price. Returns None without a budget; False
        if it does not fit now, and True if it never does."""
        traffic = self._starter.traffic
        if traffic is None or traffic.budgets is None:
            return None
        try:
            need = traffic.budgets.need(request, prepared, wire)
        except InvalidRequestError:
            return None  # the start of its call reports it
        amounts = need.amounts._replace(usd=need.amounts.usd * part)
        found = traffic.budgets.reserve(need, amounts, self._starter.runtime.loop.clock())
        return True if isinstance(found, ProviderError) else found if isinstance(found, Reservation) else False

    def settle(self, reserved: Reservation | None, dollars: float) -> None:
        """Replace what is reserved by what was used, if anything is reserved."""
        traffic = self._starter.traffic
        if reserved is not None and traffic is not None and traffic.budgets is not None:
            used = NOTHING if not dollars else Amounts(dollars, 0.0, 0.0, 1.0)
            traffic.budgets.settle(reserved, used, self._starter.runtime.loop.clock())


def when_named(call: Call, on_named: Callable[[str], None]) -> None:
    """Call `on_named` with the resume token of a durable call as soon as its server has named the answer."""
    durable = call._running.prepared.durable  # pyright: ignore[reportPrivateUsage]
    if durable is not None:
        durable.on_named = on_named


def prepare_alone(provider: Addressed, environment: Mapping[str, str]) -> Prepared:
    """Prepare a call to a provider without an engine, to look at its address and key. Raises `InvalidRequestError`."""
    preparer = Preparer([provider], environment, EngineLimits(), make_id, time.time)
    return preparer.prepare(Request(f"{provider[0].name}/any", [Message.user("never sent")]), stream=False)[0]


def error_of(prepared: Prepared, status: int, body: bytes) -> tuple[ProviderError, bool]:
    """Return the error that an answer reports, without keys, and whether it says that the address is wrong."""
    hidden = prepared.secrets.hide_bytes(body)
    error = redacted(prepared.shared.dialect.decode_error(status, {}, hidden, time.time()), prepared.secrets)
    return error, is_wrong_address(status, body, error.message)
