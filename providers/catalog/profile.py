"""A provider's row of data: its address, the variables of its key, and where it departs from its dialect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..wire.quirks import Quirks

if TYPE_CHECKING:
    from .dialect import Dialect


@dataclass(slots=True, frozen=True, kw_only=True)
class Profile:
    """One provider's row of data.

    name: the row's name, and the tag on state that only this provider gets back (`Provider.maker`). No two rows share a
        name.
    dialect: the name of one of the five dialects, or a `Dialect` of your own.
    base_url: where the provider is; empty if every customer has an address of their own.
    key_variables: environment variables with the key. The first one that is set is used.
    token_variables: environment variables with a token that is sent as `authorization: Bearer …`, whatever header a key
        has. They are looked up after those with a key.
    url_variables: environment variables with the address of a provider that was given none, each with the path that the
        provider's own SDK appends to it, such as `GROQ_BASE_URL/openai/v1`.
    aliases: other names for `"name/model"`.
    prefixes: beginnings of the names of its models.
    needs_key: False for servers that run without a key.
    generic: whether the row stands for servers without a row, which may be of different makers. Then a provider's own
        name is a part of the tag on state. Aliases and prefixes of known rows take precedence.
    addresses: patterns of `host[:port]` or `host[:port]/path` that belong to the row, besides its base URL's host. `*`
        matches anything.
    quirks: how the server departs from its dialect.
    """

    name: str
    dialect: str | Dialect
    base_url: str
    key_variables: tuple[str, ...] = ()
    token_variables: tuple[str, ...] = ()
    url_variables: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    needs_key: bool = True
    generic: bool = False
    addresses: tuple[str, ...] = ()
    quirks: Quirks = field(default_factory=Quirks)

    @property
    def dialect_name(self) -> str:
        """The name of the profile's dialect."""
        return self.dialect if isinstance(self.dialect, str) else self.dialect.name
