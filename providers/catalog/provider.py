"""A provider as configured: a base URL, a key, and the profile that names its dialect and its quirks. Values only."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import TYPE_CHECKING, ClassVar, TypeAlias, cast

from ..errors import InvalidRequestError
from ..model.rules import (
    Checker,
    Rule,
    described,
    flag,
    instance,
    is_coroutine_function,
    members,
    optional,
    text,
    why_deferred,
)
from .profile import Profile
from .profiles import DEFAULT_PROFILES, profile_by_host, profile_by_name
from .registry import ROWS

if TYPE_CHECKING:
    from ..model.messages import ProviderBlock


@dataclass(slots=True, frozen=True)
class AccessToken:
    """An access token, which a key function returns. It is sent as `Authorization: Bearer …` (RFC 6750), whatever
    header a key of the provider has.

    text: the token. No repr shows it.
    expires_at: Unix seconds. Calls use the token until then; from the last tenth of its life on, or the last five
        minutes, the function is called for the next one. None: it is used until the server refuses it (401).

    Raises `InvalidRequestError` for another time than Unix seconds, such as a `datetime`.
    """

    text: str = field(repr=False)
    expires_at: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.expires_at, (int, float, NoneType)) or self.expires_at != self.expires_at:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidRequestError("Token.expires_at", f"must be Unix seconds, not {described(self.expires_at)}")


APIKey: TypeAlias = str | Callable[[], str | AccessToken | Awaitable[str | AccessToken]]
"""A key, or a function that returns one: a plain function or a coroutine function."""

Sign: TypeAlias = Callable[[str, str, Mapping[str, str], bytes], Mapping[str, str]]
"""Signs one attempt: takes the method, the URL, the headers and the body, and returns headers."""


class Provider:
    """One provider, as configured. Each of the five dialects has a subclass, such as `OpenAIChat`; a plain `Provider`
    takes its dialect from the `Profile` that it is given.

    api_key: the key, or a function that returns it, for keys that expire. A plain function must not wait: the engine
        calls it on its thread when an attempt begins. A coroutine function may wait: one task of the engine's event
        loop calls it for all calls that need the key, whose timeouts `queue` and `total` count. Its result is kept
        until the server refuses it (401); an `AccessToken` of either kind of function, until it expires. After the 401
        the function is asked once more for that call. A list: several keys with limits of their own, for an engine with
        `traffic`.
        None: the key is looked up in the environment, then in the credentials file, when the first request needs it.
    base_url: where the provider is. The dialect's endpoint at its end, such as `/chat/completions`, is removed. None:
        the address that the environment of the engine has for it (`OPENAI_BASE_URL`, `ANTHROPIC_BASE_URL` and their
        kin, see `Profile.url_variables`), else the profile's own.
    name: the name that selects this provider in `"name/model"`. Default: the profile's name. One of several servers
        may have digits at its end: `vllm-0` has the row "vllm". For a server without a row of its own, the name also
        tells it from other such servers: see `maker`.
    headers: sent with every request.
    profile: a `Profile`, or the name of a row of `profiles`. Default: the row that `name` or the base URL's host
        belongs to, else the dialect's generic row. Replicas of one server should have one `Profile` of your own, or a
        row such as "vllm". With the generic row, each of their names is another `maker`.
    prices_as: whose prices a server has, by the provider's id in genai-prices, such as `openai`, `anthropic` or `x-ai`:
        for `manystream.cost`, if the address of the server is that of a gateway. Default: the prices of the address.
    idempotency_header: the name of a header, such as "Idempotency-Key", for servers that execute a request with a known
        key only once. Each call has its own key and sends it with each attempt. Default: no such header.
    sign: a plain function that signs each attempt when it is sent, such as AWS's SigV4. It takes the method, the URL,
        the headers by name and the body, and returns headers, which are added or replace those of the same name.
        Without an `api_key`, no key is looked up.
    websocket: whether a conversation keeps a WebSocket, over which its turns send only what is new. For OpenAI's
        Responses. A server that opens none gets the same turns over HTTP, and so do requests that belong to no
        `Conversation` and have no `session`.

    Raises `InvalidRequestError` for a wrong value, and for a plain `Provider` without a `Profile`.
    """

    __slots__ = (
        "api_key", "base_url", "headers", "idempotency_header", "name", "prices_as", "profile", "sign", "websocket",
    )  # fmt: skip
    dialect: ClassVar[str] = ""

    def __init__(
        self,
        api_key: APIKey | Sequence[APIKey] | None = None,
        base_url: str | None = None,
        *,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        profile: str | Profile | None = None,
        idempotency_header: str | None = None,
        prices_as: str | None = None,
        sign: Sign | None = None,
        websocket: bool = False,
    ) -> None:
        given = (api_key, base_url, name, headers, profile, idempotency_header, prices_as, sign, websocket)
        for (member, rule), value in zip(MADE_OF.items(), given, strict=True):
            rule.check(value, member)
        self.profile: Profile = self._choose_profile(name, base_url, profile)
        self.api_key: APIKey | tuple[APIKey, ...] | None = _one_or_several(api_key)
        where = without_endpoint(base_url if base_url is not None else self.profile.base_url, self.profile.dialect)
        self.base_url: str = where if base_url is not None else ProfileURL(where)
        self.name: str = name if name is not None else self.profile.name
        self.headers: dict[str, str] = dict(headers or {})
        self.idempotency_header: str | None = idempotency_header
        self.prices_as: str | None = prices_as
        self.sign: Sign | None = sign
        self.websocket: bool = websocket
        if websocket and self.profile.dialect_name != "openai-responses":
            raise InvalidRequestError("websocket", f"is for OpenAIResponses; {self.profile.dialect_name} has none")

    def _choose_profile(self, name: str | None, base_url: str | None, profile: str | Profile | None) -> Profile:
        if isinstance(profile, Profile):
            if self.dialect and isinstance(profile.dialect, str) and profile.dialect != self.dialect:
                raise InvalidRequestError(
                    "profile",
                    f"{type(self).__name__} speaks {self.dialect}, and the profile {profile.name!r} is for"
                    f" {profile.dialect}: use Provider(profile=…), which takes its dialect from the profile",
                )
            return profile
        if profile is not None and self.dialect:
            row = profile_by_name(profile, self.dialect)
            if row is None:
                raise InvalidRequestError("profile", f"no profile {profile!r} speaks {self.dialect}")
            return row
        row = profile_by_name(name, self.dialect) if name is not None else None
        if row is None and base_url is not None:
            row = profile_by_host(base_url, self.dialect)
        if not self.dialect:
            raise InvalidRequestError(
                "profile",
                "a plain Provider has no dialect: give it a Profile, or take OpenAIChat, OpenAIResponses, Anthropic"
                ", Gemini or GeminiInteractions",
            )
        first_party, generic = DEFAULT_PROFILES[self.dialect]
        return row or (first_party if base_url is None else generic)

    @property
    def maker(self) -> str:
        """The name that thinking, signatures and other state in this provider's answers are attributed to.

        State is sent back only to a provider with the same maker. It is the profile's name, but servers without a row
        of their own share the generic row. So a generic provider with a name of its own is a maker of its own:
        `profile:name`. The profile's name in it keeps it apart from rows, and from servers of other dialects.
        """
        profile = self.profile
        if not profile.generic or self.name == profile.name:
            return profile.name
        return _named_maker(profile.name, self.name)

    def __repr__(self) -> str:
        if not hasattr(self, "base_url"):  # `__init__` has raised, and a traceback shows its variables
            return f"<{type(self).__name__}>"
        where, mark, _ = str(self.base_url).partition("?")
        url = _without_user(where) + (mark and "?…")  # the query may contain a key
        return f"{type(self).__name__}(name={self.name!r}, base_url={url!r}, profile={self.profile.name!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Provider):
            return NotImplemented
        return type(self) is type(other) and all(
            getattr(self, member) == getattr(other, member) for member in Provider.__slots__
        )

    __hash__: ClassVar[None] = None  # type: ignore[assignment]


def _without_user(url: str) -> str:
    """Return a URL with `…` in place of a user and a password, also one that the engine refuses for its form."""
    scheme, mark, rest = url.partition("//") if "//" in url else ("", "", url)
    host, slash, path = rest.partition("/")
    if "@" in host:
        rest = "…@" + host.rpartition("@")[2] + slash + path
    elif "@" in rest and ":" in rest.partition("@")[0]:  # a slash in the password
        rest = "…@" + rest.rpartition("@")[2]
    return scheme + mark + rest


class ProfileURL(str):
    """The base URL of a provider that was given none: its profile's. The environment's precedes it."""

    __slots__ = ()


def placed(provider: Provider, url: str) -> Provider:
    """Return a provider at another address. It is found by the same names and models.

    A dialect's own provider gets the profile of the address, as if it had been made with that `base_url`. Any other
    keeps its profile.
    """
    moved, profile = copy.copy(provider), provider.profile
    own, generic = DEFAULT_PROFILES.get(provider.dialect, (None, profile))
    if profile == own:
        moved.profile = _with_names_of(profile, profile_by_host(url, provider.dialect) or generic)
    moved.base_url = without_endpoint(url, profile.dialect)
    return moved


def _with_names_of(old: Profile, new: Profile) -> Profile:
    """Return the new profile with the names, models and key variables of the old one before its own."""
    if new is old:
        return new
    return replace(
        new,
        key_variables=_joined(old.key_variables, new.key_variables),
        token_variables=_joined(old.token_variables, new.token_variables),
        aliases=_joined((old.name, *old.aliases), new.aliases),
        prefixes=_joined(old.prefixes, new.prefixes),
    )


def _joined(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


ENDPOINTS: dict[str, re.Pattern[str]] = {name: re.compile(row.endpoint) for name, row in ROWS.items()}
"""Dialect → what a URL of its endpoint has behind the base URL's path."""

_FORM_OF_STREAM = re.compile(r"(?:^|&)alt=[^&]*")


def without_endpoint(url: str, dialect: object) -> str:
    """Return a base URL without the endpoint at its end, if it is the whole URL of a dialect's requests.

    A query is kept, except Gemini's `alt`, which each request writes for itself. For a dialect of a program's own, the
    URL is returned as it is.
    """
    where, mark, query = url.partition("?")
    endpoint = ENDPOINTS.get(dialect) if isinstance(dialect, str) else None
    found = endpoint.search(where) if endpoint is not None else None
    if found is None:
        return url
    if dialect == "gemini":
        query = _FORM_OF_STREAM.sub("", query).removeprefix("&")
    return where[: found.start()] + (mark and query and f"?{query}")


FUNCTION = cast("type", Callable)


def keys_of(provider: Provider) -> tuple[APIKey, ...]:
    """Return a provider's keys, if it has several; else an empty tuple."""
    keys: object = provider.api_key
    return cast("tuple[APIKey, ...]", keys) if isinstance(keys, tuple) else ()


@functools.lru_cache(maxsize=256)
def _named_maker(profile: str, name: str) -> str:
    """Return the maker of a provider with a generic profile, as one object for all of its streams."""
    return f"{profile}:{name}"


def takes_block(provider: Provider, block: ProviderBlock) -> bool:
    """Return whether a block is sent to a provider: one that it made, or one that a program made for its profile."""
    return block.provider in (provider.maker, provider.profile.name)


def _one_or_several(given: APIKey | Sequence[APIKey] | None) -> APIKey | tuple[APIKey, ...] | None:
    if given is None or isinstance(given, str) or callable(given):
        return given
    return given[0] if len(given) == 1 else tuple(given)


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|(?:localhost|\d{1,3}(?:\.\d{1,3}){3})(?:[:/]|\Z)")

USE_BASE_URL = "looks like a URL: give it as base_url=…"


def is_url(text: object) -> bool:
    """Return whether a text is a URL, or the address of a server without its scheme: no key or name begins so."""
    return isinstance(text, str) and _URL.match(text) is not None


def _is_no_url(text: object) -> bool:
    return text != "" and not is_url(text)


def _is_name(text: str) -> bool:
    return text != "" and "://" not in text


def _check_name(name: str, where: str) -> None:
    if not name:
        raise InvalidRequestError(where, "must be text that is not empty, not ''")
    if "://" in name:  # a host and a port may be a name: replicas of a server have such names
        raise InvalidRequestError(where, USE_BASE_URL)


def _check_key(key: object, where: str) -> None:
    """Raise `InvalidRequestError` for a URL, a function that returns no key, such as a generator function, and a list
    that is empty or holds something else than keys.

    where: the field's name.
    """
    if isinstance(key, str):
        if is_url(key):
            raise InvalidRequestError(where, f"{USE_BASE_URL}")
        return
    if isinstance(key, (list, tuple)):
        _check_keys(cast("Sequence[object]", key), where)
        return
    if not callable(key) or is_coroutine_function(key):
        return
    deferred = why_deferred(key)
    if deferred:
        raise InvalidRequestError(
            where, f"{deferred}, which returns no key. Give a plain function or a coroutine function that returns one"
        )


def _check_keys(keys: Sequence[object], where: str) -> None:
    """Raise `InvalidRequestError` that shows no key."""
    if not keys:
        raise InvalidRequestError(where, "must hold at least one key")
    for position, key in enumerate(keys):
        place = f"{where}[{position}]"
        if not (isinstance(key, str) or callable(key)):
            raise InvalidRequestError(place, f"must be text, or a function that returns it, not {type(key).__name__}")
        if not key:
            raise InvalidRequestError(place, "must not be empty")
        if key in keys[:position]:
            raise InvalidRequestError(place, "is given twice: each key has limits of its own")
        _check_key(key, place)


def _check_signer(sign: object, where: str) -> None:
    """Raise `InvalidRequestError` for a function that returns no headers when it is called."""
    deferred = why_deferred(cast("Callable[..., object]", sign))
    if deferred:
        raise InvalidRequestError(
            where, f"{deferred}, which returns no headers when it is called. Give a plain function, which must not wait"
        )


NAMED = Rule("text that is not empty", (str,), _is_name, inside=_check_name)

MADE_OF: dict[str, Rule] = {
    "api_key": optional(
        Rule(
            "text, or a function that returns it",
            (str, FUNCTION, list, tuple),
            _is_no_url,
            inside=_check_key,
            secret=True,
        )
    ),
    "base_url": optional(text(secret=True)),
    "name": optional(NAMED),
    "headers": optional(members(text(secret=True), "a dict of texts")),
    "profile": optional(instance(str, Profile, must="a profile's name or a Profile")),
    "idempotency_header": optional(text("a header's name")),
    "prices_as": optional(text("text that is not empty", empty=False)),
    "sign": optional(Rule("a function that returns headers", (FUNCTION,), inside=_check_signer, secret=True)),
    "websocket": flag(),
}
"""Field of a provider, in order → its rule at construction. The engine checks the provider again when it opens, because
its attributes may have changed.
"""

PROVIDER = Checker(
    Provider,
    {
        **MADE_OF,
        "base_url": text(secret=True),
        "name": NAMED,
        "headers": members(text(secret=True), "a dict of texts"),
        "profile": instance(Profile),
    },
)


class OpenAIChat(Provider):
    """OpenAI's Chat Completions, and every compatible server. `base_url` includes the `/v1`; the whole URL of a request
    works as well.
    """

    __slots__ = ()
    dialect = "openai-chat"


class OpenAIResponses(Provider):
    """OpenAI's Responses, and compatible servers. `base_url` includes the `/v1`; the whole URL of a request works as
    well.
    """

    __slots__ = ()
    dialect = "openai-responses"


class Anthropic(Provider):
    """Anthropic's Messages, and compatible servers. `base_url` ends before `/v1`; with `/v1` or `/v1/messages` it works
    as well.
    """

    __slots__ = ()
    dialect = "anthropic"


class Gemini(Provider):
    """Google's Gemini (generateContent). `base_url` ends before `/v1beta`; with `/v1beta`, or as the whole URL of a
    request, it works as well.
    """

    __slots__ = ()
    dialect = "gemini"


class GeminiInteractions(Provider):
    """Google's Interactions API. `base_url` ends before `/v1beta`; with `/v1beta` or `/v1beta/interactions` it works as
    well.
    """

    __slots__ = ()
    dialect = "gemini-interactions"


class VLLMGenerate(Provider):
    """vLLM's own endpoint with ids in and ids out (`/inference/v1/generate`), for a server that was started with
    `--enable-scale-out`. `base_url` ends before `/v1`; with `/v1` it works as well.
    """

    __slots__ = ()
    dialect = "vllm-generate"


class SGLangGenerate(Provider):
    """SGLang's own endpoint with ids or a text in and ids out (`/generate`). `base_url` ends before `/generate`."""

    __slots__ = ()
    dialect = "sglang-generate"


class OpenAICompletions(Provider):
    """OpenAI's older Completions with a text or ids in, as vLLM, SGLang and others have it. `base_url` includes the
    `/v1`.
    """

    __slots__ = ()
    dialect = "openai-completions"


DIALECT_CLASSES: dict[str, type[Provider]] = {
    kind.dialect: kind
    for kind in (
        OpenAIChat, OpenAIResponses, Anthropic, Gemini, GeminiInteractions, VLLMGenerate, SGLangGenerate,
        OpenAICompletions,
    )
}  # fmt: skip
