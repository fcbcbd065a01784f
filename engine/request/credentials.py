"""Finds API keys: in the argument, the environment or a credentials file, in this order.

Must not send a key anywhere, nor show one in any message.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from ...providers.catalog.provider import USE_BASE_URL, Provider, is_url
from ...providers.errors import InvalidRequestError
from ...providers.json.json_values import MalformedJSONError, loads_object
from ...transport.files import refuse_pipe

CREDENTIALS_VARIABLE = "MANYSTREAM_CREDENTIALS"
DEFAULT_FILE = "~/.config/manystream/credentials.json"


def find_key(provider: Provider, environment: Mapping[str, str]) -> str:
    """Return the provider's key, or "" if it needs none, as at an address of this machine.

    Returns "" also if the program gave a function, because a `KeySource` calls it for the attempts, or a signature and
    no key. Raises `InvalidRequestError`, whose message names what to set.
    """
    given = provider.api_key
    if callable(given) or (given is None and provider.sign is not None):
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


def why_no_key(key: object) -> str:
    """Return what a key function returned instead of a key, without quoting it; "" if it can be one."""
    if not isinstance(key, str):
        return f"{type(key).__name__}, not text"
    if not key:
        return "an empty text"
    unfit = _unfit(key)
    return unfit and f"a text that {unfit}"


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
    return USE_BASE_URL if is_url(key) else ""


def _stored_keys(environment: Mapping[str, str]) -> dict[str, str]:
    given = environment.get(CREDENTIALS_VARIABLE)
    path = Path(given or DEFAULT_FILE).expanduser()
    try:
        refuse_pipe(path)
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
