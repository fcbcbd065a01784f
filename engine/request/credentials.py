"""Finds API keys: in the argument, the environment or a credentials file, in this order; or calls the key function.

Must not send a key anywhere, nor show one in any message.
"""

from __future__ import annotations

import inspect
import ipaddress
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from ...providers.catalog.provider import Provider
from ...providers.errors import ErrorCategory, InvalidRequestError, ProviderError
from ...providers.json.json_values import MalformedJSONError, loads_object
from .errors import ends_engine

CREDENTIALS_VARIABLE = "MANYSTREAM_CREDENTIALS"
DEFAULT_FILE = "~/.config/manystream/credentials.json"


def find_key(provider: Provider, environment: Mapping[str, str]) -> str:
    """Return the provider's key, or "" if it needs none, as at an address of this machine.

    Returns "" also if the program gave a function, because `ask_key` calls the function for each attempt. Raises
    `InvalidRequestError`, whose message names what to set.
    """
    given = provider.api_key
    if callable(given):
        return ""
    assert not isinstance(given, tuple), "each of several keys has a provider of its own"
    if given:
        return _checked(given, f"the api_key of {provider.name!r}")
    variables = provider.profile.key_variables
    for variable in variables:
        value = environment.get(variable)
        if value:
            return _checked(value, variable)
    stored = _stored_keys(environment)
    for name in (provider.name, provider.profile.name, *provider.profile.aliases, *variables):
        value = stored.get(name)
        if value:
            return _checked(value, f"the credentials file's {name!r}")
    if not provider.profile.needs_key or is_loopback(provider.base_url):
        return ""
    where = " or ".join(variables)
    raise InvalidRequestError(
        "api_key", f"{provider.name!r} has no key: pass api_key=…" + (f" or set {where}" if where else "")
    )


def ask_key(provider: Provider) -> str:
    """Call the provider's key function and return the key.

    Raises `ProviderError` (category AUTH) if the function raises or returns no key. The message names the provider and
    shows nothing of the returned value. Exceptions that end the engine, such as `KeyboardInterrupt`, are not caught.
    """
    function = provider.api_key
    assert callable(function)
    try:
        key: object = function()
    except BaseException as error:
        if ends_engine(error):
            raise
        raise _no_key(provider, f"raised {type(error).__name__}") from error
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        if inspect.iscoroutine(key):
            key.close()  # otherwise Python warns that the coroutine was never awaited
        hint = (
            ", which the engine does not await: it must return the key itself"
            if inspect.isawaitable(key)
            else ", not text"
        )
        raise _no_key(provider, f"returned {type(key).__name__}{hint}")
    if not key:
        raise _no_key(provider, "returned an empty text")
    unfit = _unfit(key)
    if unfit:
        raise _no_key(provider, f"returned a text that {unfit}")
    return key


def _no_key(provider: Provider, why: str) -> ProviderError:
    return ProviderError(
        f"the api_key function of {provider.name!r} {why}", category=ErrorCategory.AUTH, retryable=False
    )


def is_loopback(url: str) -> bool:
    """Return True if the host of `url` is `localhost` or a loopback address."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked(key: str, where: str) -> str:
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidRequestError("api_key", f"{where} must be text, not {type(key).__name__}")
    unfit = _unfit(key)
    if unfit:
        raise InvalidRequestError("api_key", f"{where} {unfit}")
    return key


def _unfit(key: str) -> str:
    """Return why `key` cannot be a key, without quoting it; "" if it can be one."""
    for position, character in enumerate(key):
        if not ("!" <= character <= "~"):
            return (
                f"contains a character that is invalid in a key (code {ord(character)} at position {position});"
                " a line break at the end of a key file is a common cause"
            )
    return ""


def _stored_keys(environment: Mapping[str, str]) -> dict[str, str]:
    given = environment.get(CREDENTIALS_VARIABLE)
    path = Path(given or DEFAULT_FILE).expanduser()
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise InvalidRequestError(
                    "api_key", f"the credentials file {path} can be read by others: run chmod 600 on it"
                )
            content = file.read()
    except (FileNotFoundError, NotADirectoryError):
        if given:
            raise InvalidRequestError("api_key", f"the credentials file {path} does not exist") from None
        return {}
    except OSError as error:
        raise InvalidRequestError("api_key", f"the credentials file {path}: {error.strerror}") from None
    try:
        keys = loads_object(content)
    except MalformedJSONError:
        raise InvalidRequestError("api_key", f"the credentials file {path} is not a JSON object") from None
    return {name: key for name, key in keys.items() if isinstance(key, str)}
