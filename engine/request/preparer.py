"""Prepare a request for its attempts: find provider and key, encode the wire body, build the head.

All checks are made here, before any byte is sent. Each error is an `InvalidRequestError` that names the field.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from ...providers.catalog.dialect import MakeId, StoredAnswers, WireRequest
from ...providers.catalog.provider import AccessToken, APIKey, Provider, keys_of
from ...providers.catalog.registry import DURABLE_DIALECTS, dialect_of
from ...providers.catalog.selection import configured, named, select
from ...providers.errors import InvalidRequestError
from ...providers.model.cached_requests import NO_PREWARM, PREWARMING, with_marks
from ...providers.model.request import Request, given_of
from ...providers.openai.thinking import takes_breakpoints
from ...providers.wire.cache_marks import BREAKPOINT, CACHE_CONTROL
from ...providers.wire.quirks import SessionField
from ...providers.wire.wire_head import bearer, sent_session
from ...transport.backend import Backend
from ...transport.errors import URLError
from ...transport.exchange import RawHeaders, WireHead
from ...transport.headers import HeaderError, validate_headers
from ...transport.proxy import ProxyConfig, choose_proxy
from ...transport.url import BaseURL, Origin, target
from .addresses import OWN_HEADERS, Addressed
from .continued import ContinuedAnswer
from .credentials import find_key
from .durable import DurableAnswer, ResumeToken
from .forwarded import forwarded_of
from .fresh_key import FreshKey, Key, KeySource, text_of
from .limits import EngineLimits
from .prepared import Prepared, PreparedTurn, Shared, WallClock
from .redaction import Redaction
from .turn import ConversationTurn, Sockets

USER_AGENT = "manystream"

COPIED_BELOW = 65_536
"""Bodies of at most this many bytes are copied. The serializer's buffer has an unused end of 4 KiB or more, which would
stay allocated until the call ends. For a larger buffer, the system does not allocate the unused pages."""

HEADS_KEPT = 256
"""The number of checked heads that an engine caches. A larger cache does not help requests with an id in a header."""

MODELS_KEPT = 256
"""The number of models whose provider an engine caches."""


Head: TypeAlias = tuple[WireHead, Redaction, FreshKey | None]
"""A checked head, its secrets, and the object that writes the key into it if the key comes from a function."""


class Preparer:
    """Prepares the requests of one engine, and caches the heads and addresses that requests share."""

    def __init__(
        self,
        providers: Sequence[Addressed],
        environment: Mapping[str, str],
        limits: EngineLimits,
        make_id: MakeId,
        wall_clock: WallClock,
        proxy: ProxyConfig | None = None,
        backend: Backend | None = None,
        sockets: Sockets | None = None,
    ) -> None:
        """Create the cache. `proxy` is the engine's, which takes precedence over the environment's; only its password
        is used. `backend` starts the tasks that wait for keys. `sockets`: those of conversations.
        """
        self._providers = tuple(provider for provider, _ in providers)
        self._environment = environment
        self._limits = limits
        self._make_id = make_id
        self._wall_clock = wall_clock
        self._proxy = proxy
        self._backend = backend
        self._sockets = sockets
        self._position: int | None = None  # the position of the key among several of its provider
        self._sources: dict[str, KeySource] = {}
        self._keys: dict[str, str] = {}
        self._heads: dict[tuple[object, ...], Head] = {}
        self._selected: dict[str, tuple[Shared, str]] = {}
        self._bases: dict[str, BaseURL] = {provider.name: base for provider, base in providers}
        self._shared: dict[str, Shared] = {one.name: self._shared_by_requests(one) for one in self._providers}

    def _shared_by_requests(self, provider: Provider) -> Shared:
        return Shared(
            origin=self._bases[provider.name].origin,
            provider=provider,
            dialect=dialect_of(provider.profile),
            make_id=self._make_id,
            limits=self._limits,
            wall_clock=self._wall_clock,
        )

    def prepare(self, request: Request, *, stream: bool) -> tuple[Prepared, WireRequest]:
        """Check and encode a request. Raises `InvalidRequestError`."""
        if not isinstance(request, Request):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidRequestError("request", f"must be a Request, not {type(request).__name__}")
        shared, model = self._select(request.model)
        provider = shared.provider
        stored = _stored(shared) if request.durable else None
        forwarded = None if given_of(request) is None else forwarded_of(request)
        if forwarded is not None:
            forwarded.check(shared.dialect.name, request.model)
        if (
            request.return_tokens
            or request.logprobs is not None
            or request.prompt_token_ids is not None
            or request.continue_aborted
            or request.cache is not None
            or request.max_output_tokens == 0
        ):
            request = _with_options(request, shared, model)
        conversation = None
        if provider.websocket and stored is None and self._sockets is not None:
            conversation = self._sockets.conversation(request) if forwarded is None else forwarded.conversation
        encode_turn = shared.dialect.encode_turn
        if conversation is None or encode_turn is None or self._sockets is None or forwarded is not None:
            try:
                wire = shared.dialect.encode(request, model, provider, stream=stream)
            except UnicodeEncodeError:  # in a path; JSON has an escape for it
                raise InvalidRequestError("model", "has half of a surrogate pair, which no URL can hold") from None
        else:
            chain = self._sockets.chain(conversation, shared.origin)
            wire = encode_turn(request, model, provider, stream=stream, chain=chain)
        if forwarded is not None:
            forwarded.replace(wire, model)
        head, secrets, fresh_key = self._head(request, wire, shared)
        if request.session is not None:
            head = _with_session(head, request.session, provider.profile.quirks.session)
        if provider.idempotency_header is not None:
            head = head.with_header(provider.idempotency_header.encode(), self._make_id().encode())
        body = b"".join((wire.body, b"")) if len(wire.body) < COPIED_BELOW else wire.body
        # By position: each start would pay for the names.
        prepared = (Prepared if wire.write_body is None else PreparedTurn)(
            shared.origin, provider, shared, model, head, body, secrets, stream, fresh_key, wire.unasked, wire.choices,
            request.tags, wire.asked,
        )  # fmt: skip
        if wire.turn is not None and conversation is not None:
            prepared.turn = ConversationTurn(conversation, wire.turn)
            if isinstance(prepared, PreparedTurn):
                prepared.write_body = wire.write_body
        if forwarded is not None:
            prepared.forwarder = forwarded.forwarder
        if request.keep_received:
            prepared.keep_received = True
        if request.continue_aborted:
            prepared.continued = self._continued(request, wire, stream)
        if stored is not None:
            following = partial(self._following, dict(request.extra_headers or {}))
            prepared.durable = DurableAnswer(stored, following, stream=stream, key=self._position)
        return prepared, wire

    def _continued(self, request: Request, wire: WireRequest, stream: bool) -> ContinuedAnswer:
        if request.prompt_token_ids is None:
            raise InvalidRequestError("continue_aborted", "needs prompt_token_ids: the ids so far are appended to them")
        if wire.choices > 1:
            raise InvalidRequestError("continue_aborted", "is for one choice, and the body asks for several")
        if wire.max_output_tokens != request.max_output_tokens:
            raise InvalidRequestError("extra_body", "has another limit than max_output_tokens, which counts all parts")
        return ContinuedAnswer(request, lambda rest: self.prepare(rest, stream=stream)[0])

    def attach(self, token: ResumeToken) -> Prepared:
        """Prepare the request that reads an answer which another call has created. Raises `InvalidRequestError`."""
        shared = self._shared.get(token.provider)
        if shared is None:
            made = f"its answer was made by the provider {token.provider!r}, which this engine does not have"
            raise InvalidRequestError("token", f"{made}; it has {', '.join(self._shared) or 'none'}")
        if shared.dialect.name != token.dialect:
            dialect = shared.dialect.name
            raise InvalidRequestError("token", f"{token.provider!r} has the dialect {dialect}, not {token.dialect}")
        stored, following = _stored(shared), partial(self._following, {})
        durable = DurableAnswer(stored, following, stream=token.stream, key=self._position, answer_id=token.answer_id)
        prepared = self.prepare_wire(shared.provider, durable.read_request(shared.provider))
        prepared.model, prepared.stream, prepared.durable = token.model, True, durable
        return prepared

    def prepare_wire(self, provider: Provider, wire: WireRequest) -> Prepared:
        """Prepare a request that is no call, such as one to a batch interface. Of several keys, it has the first.

        Raises `InvalidRequestError`.
        """
        keys = keys_of(provider)
        if keys:
            preparer, single = self.with_key(provider, keys[0], 0)
            return preparer.prepare_wire(single, wire)
        shared = self._shared[provider.name]
        head, secrets, fresh_key = self._new_head(wire, shared, {})
        return Prepared(shared.origin, shared.provider, shared, "", head, wire.body, secrets, False, fresh_key)

    def _following(self, extra: Mapping[str, str], prepared: Prepared, wire: WireRequest) -> Prepared:
        """Prepare a request without a body that follows another one. extra: the headers of the request's own."""
        shared = self._shared[prepared.provider.name]
        head, secrets, fresh_key = self._new_head(wire, shared, extra)
        before = prepared.fresh_key
        if fresh_key is not None and before is not None and not before.asks_again:
            fresh_key = fresh_key.for_last_time()
        for name, value in prepared.head.added:
            if name.decode() != shared.provider.idempotency_header:  # this is another request, not the same again
                head = head.with_header(name, value)
        following = copy.copy(prepared)
        following.head, following.body, following.fresh_key = head, b"", fresh_key
        following.secrets = secrets if fresh_key is None else prepared.secrets  # until the function returns a key
        return following

    def provider_named(self, name: str) -> Provider:
        """Return the provider with this name. Raises `InvalidRequestError`."""
        provider = named(name, self._providers)
        if provider is None:
            raise InvalidRequestError("provider", f"no provider is named {name!r}; {configured(self._providers)}")
        return provider

    def origin(self, provider: Provider) -> Origin:
        return self._bases[provider.name].origin

    def account(self, provider: Provider) -> tuple[Origin, Hashable]:
        """Return the account whose limits apply to the provider's calls: the address, and the key or the key function.

        Raises `InvalidRequestError`.
        """
        key = self._key(provider)
        return self._bases[provider.name].origin, provider.api_key if callable(
            provider.api_key
        ) else key or provider.sign

    def with_key(self, provider: Provider, key: APIKey, position: int | None = None) -> tuple[Preparer, Provider]:
        """Return a preparer that sends one of a provider's several keys, and the provider with this key alone."""
        single = copy.copy(provider)
        single.api_key = key
        shared = (self._environment, self._limits, self._make_id, self._wall_clock, self._proxy, self._backend)
        preparer = Preparer([(single, self._bases[provider.name])], *shared, self._sockets)
        preparer._position = position
        return preparer, single

    def _select(self, model: str) -> tuple[Shared, str]:
        """Return what the requests to the model's provider share, and the model's name there. Raises
        `InvalidRequestError` for no such model, and for a provider that needs a key and has none."""
        known = self._selected.get(model) if type(model) is str else None
        if known is None:
            provider, name = select(model, self._providers)
            self._key(provider)
            known = self._shared[provider.name], name
            if len(self._selected) < MODELS_KEPT:
                self._selected[model] = known
        return known

    def _key(self, provider: Provider) -> str:
        key = self._keys.get(provider.name)
        if key is None:
            key = self._keys[provider.name] = find_key(provider, self._environment)
        return key

    def _head(self, request: Request, wire: WireRequest, shared: Shared) -> Head:
        # Requests to one provider share a head: to check it takes four times as long as to look it up.
        provider, extra = shared.provider, request.extra_headers
        seen = (
            provider.name,
            wire.method,
            wire.path,
            tuple(wire.headers),
            tuple(provider.headers.items()) if provider.headers else (),
            tuple(extra.items()) if extra else (),
        )
        try:
            known = self._heads.get(seen)
        except TypeError:
            known = None  # an unhashable value is not text
        if known is None:
            known = self._new_head(wire, shared, dict(extra or {}))
            if len(self._heads) < HEADS_KEPT:
                self._heads[seen] = known
        return known

    def _new_head(self, wire: WireRequest, shared: Shared, extra: Mapping[str, str]) -> Head:
        provider, dialect, key = shared.provider, shared.dialect, self._key(shared.provider)
        base = self._bases[provider.name]
        if wire.unversioned:
            base = base._replace(path=base.path.removesuffix("/v1"))
        try:
            path = target(base, wire.path).encode()
        except URLError as error:
            raise InvalidRequestError("model", str(error)) from None
        host = (b"Host", base.origin.host_header.encode())
        method, wire_headers, headers = wire.method.encode(), wire.headers, dict(provider.headers)

        def write_head(key: Key) -> tuple[WireHead, Redaction]:
            auth = bearer(key.text) if isinstance(key, AccessToken) else dialect.auth_headers(provider, key)
            head = WireHead(method, path, [host, *_checked_headers(wire_headers, auth, headers, extra)])
            return head, Redaction(text_of(key), head, self._proxy_secret(base.origin))

        return *write_head(key), FreshKey(self._source(provider), write_head) if callable(provider.api_key) else None

    def _source(self, provider: Provider) -> KeySource:
        """Return what calls a provider's key function, which all its heads share."""
        source = self._sources.get(provider.name)
        if source is None:
            source = self._sources[provider.name] = KeySource(provider, self._wall_clock, self._backend)
        return source

    def _proxy_secret(self, origin: Origin) -> bytes | None:
        try:
            proxy = self._proxy or choose_proxy(origin, self._environment)
        except URLError:
            return None  # nothing is sent to this proxy: the call will fail with the error
        return proxy.authorization if proxy is not None else None


def _with_session(head: WireHead, session: str, field: SessionField | None) -> WireHead:
    """Return a head with the request's session, if the server reads it there and the program has set no such header.

    The heads of all sessions are one head in the cache, which the session is added to.
    """
    if field is None or not field.header:
        return head
    name = field.header.encode()
    if any(other.lower() == name.lower() for other, _ in head.headers):
        return head
    return head.with_header(name, sent_session(field, session).encode())


def _stored(shared: Shared) -> StoredAnswers:
    """Return how the provider's answers are read again. Raises `InvalidRequestError` where its server keeps none."""
    stored = shared.dialect.stored
    if stored is None:
        name, dialect = shared.provider.name, shared.dialect.name
        raise InvalidRequestError(
            "durable", f"{name!r} speaks {dialect}, which cannot read an answer again; {DURABLE_DIALECTS} can"
        )
    return stored


def _with_options(request: Request, shared: Shared, model: str) -> Request:
    """Return the request with cache marks, if it asks for them. Raises `InvalidRequestError` for an option of the
    request that only other dialects have.
    """
    for name, value in (
        ("prompt_token_ids", request.prompt_token_ids is not None),
        ("return_tokens", request.return_tokens),
        ("logprobs", request.logprobs is not None),
        ("continue_aborted", request.continue_aborted),
    ):
        if value and name not in shared.dialect.options:
            raise InvalidRequestError(
                name, f"{shared.provider.name!r} speaks {shared.dialect.name}, which has no such option"
            )
    if request.max_output_tokens == 0 and shared.dialect.name not in PREWARMING:
        raise InvalidRequestError("max_output_tokens", f"must be at least 1 for {shared.provider.name!r}{NO_PREWARM}")
    takes_marks = shared.dialect.name == "anthropic" or shared.provider.profile.quirks.cache_mark == CACHE_CONTROL
    if shared.dialect.name == "openai-chat" and request.system and takes_breakpoints(model):
        takes_marks = takes_marks or shared.provider.profile.quirks.cache_mark == BREAKPOINT
    return with_marks(request) if request.cache == "auto" and takes_marks else request


def _checked_headers(
    wire: Sequence[tuple[str, str]],
    auth: Sequence[tuple[str, str]],
    provider: Mapping[str, str],
    extra: Mapping[str, str],
) -> RawHeaders:
    """Return all headers except `Host` and `Content-Length`."""
    headers: dict[str, tuple[str, str]] = {}
    for field, pairs in (
        ("headers", [("User-Agent", USER_AGENT)]),
        ("extra_headers", wire),  # the dialect's headers, then the request's extra headers
        ("api_key", auth),
        ("headers", list(provider.items())),
        ("extra_headers", list(extra.items())),
    ):
        for name, value in pairs:
            if not isinstance(name, str) or not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidRequestError(field, "names and values must be text")
            if name.lower() in OWN_HEADERS:
                raise InvalidRequestError(field, f"{name!r} is decided by the transport; leave it out")
            headers[name.lower()] = (name, value)  # the later one wins
    # Compressed events could not be separated as they arrive.
    fixed = ("Accept-Encoding", "identity")
    try:
        return validate_headers([fixed, *headers.values()])
    except HeaderError as error:
        raise InvalidRequestError("extra_headers" if extra else "headers", str(error)) from None
