"""Prices of your own, as a JSON file or a mapping: for models that genai-prices does not have, or for your own rates.
`manystream.cost` reads them before the list of genai-prices.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, TypeAlias

from . import ManystreamError
from .engine.request.value_rules import PATH
from .providers.json.json_values import JSON, JSONObject, mapping
from .providers.model.rules import described
from .transport.files import read_file

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

PRICES: Final[dict[str, str]] = {
    "input": "input_mtok",
    "cached": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_long": "cache_write_1h_mtok",
    "output": "output_mtok",
    "input_audio": "input_audio_mtok",
    "cached_audio": "cache_audio_read_mtok",
    "output_audio": "output_audio_mtok",
    "output_image": "output_image_mtok",
    "search": "web_searches_kcount",
    "file_search": "storage_searches_kcount",
    "social_search": "social_searches_kcount",
    "code_execution": "code_executions_kcount",
}
"""Name of a price in a table → its name in genai-prices."""

SOUND_IN_CACHES: Final[dict[str, str]] = {
    "cached": "cache_audio_read_mtok",
    "cache_write": "cache_audio_write_mtok",
    "cache_write_long": "cache_audio_write_1h_mtok",
}
"""Price of input at a cache → its name in genai-prices for sound, which must have one if both are priced."""

CONDITIONS = ("service_tier", "speed")
"""What may stand before `=` in a key of `when`."""

_SNAPSHOT = re.compile(r"[-@]\d{4}-?\d{2}-?\d{2}$", re.ASCII)
"""The date at the end of a snapshot's name."""


class PriceTableError(ManystreamError, ValueError):
    """A price table cannot be read. The message names the place and what must be there."""


class PriceTable:
    """Prices of your own, by model.

        {
          "gpt-6.2-astra": {
            "input": 8, "cached": 0.4, "cache_write": 10, "output": 40,
            "above": {"272000": {"input": 16, "cached": 0.8, "cache_write": 20, "output": 60}},
            "when": {"service_tier=priority": {"input": 16, "cached": 0.8, "cache_write": 20, "output": 80}}
          },
          "vllm/*": {"input": 0, "output": 0}
        }

    A key is the name of a model, or the name of a provider, a slash and the name of a model. `*` stands for any text.
    An exact name precedes a pattern, and an earlier pattern a later one. A key without a date applies to the model's
    snapshots, too.

    The prices are US dollars per million tokens: `input` and `output`, which are required; `cached` and `cache_write`,
    without which such input costs as much as other input; `cache_write_long`, for writes with the longer lifetime (an
    hour at Anthropic, twelve hours at OpenAI); `input_audio`; `cached_audio`, without which such input costs as
    much as other sound; `output_audio` and `output_image`. The prices `search`, `file_search`, `social_search` and
    `code_execution` are US dollars per thousand uses of the provider's own tools.

    `above` has the prices of requests with more input tokens than its keys say, `when` those of requests with a
    `service_tier` or a `speed`. Both leave out prices that stay the same.

    source: where the table comes from, for errors.
    """

    __slots__ = ("_infos", "_models", "source")

    def __init__(self, models: Mapping[str, object], source: str = "the price table") -> None:
        try:
            given: JSON = json.loads(json.dumps(models))
        except (TypeError, ValueError, RecursionError) as error:
            raise PriceTableError(f"{source} must be a mapping of JSON values: {error}") from None
        self.source: str = source
        self._infos: dict[str, ModelInfo] = {}
        self._models: dict[str, JSONObject] = {}
        for name, prices in self._object(given, "the whole").items():
            self._check(prices, f"{name!r}", ("above", "when"))
            checked = self._object(prices, f"{name!r}")
            missing = [price for price in ("input", "output") if price not in checked]
            if missing:
                raise PriceTableError(f"{source}: {name!r} has no price {missing[0]!r}")
            self._models[name.lower()] = checked

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> PriceTable:
        """Read a table from a JSON file. Raises `PriceTableError`."""
        PATH.check(path, "path")
        source = os.fspath(path)
        try:
            return cls(json.loads(read_file(path).decode()), source)
        except OSError as error:
            raise PriceTableError(f"{source}: {error.strerror}") from None
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise PriceTableError(f"{source} is no JSON: {error}") from None

    def __repr__(self) -> str:
        return f"PriceTable({len(self._models)} models, source={self.source!r})"

    def find(self, provider: str, model: str) -> str | None:
        """Return the key that applies to a model, or None. provider: the provider's name."""
        model = model.lower()
        bare = dict.fromkeys((model, _SNAPSHOT.sub("", model)))
        names = [name for part in bare for name in (f"{provider.lower()}/{part}", part)]
        exact = next((name for name in names if name in self._models), None)
        if exact is not None:
            return exact
        return next((key for key in self._models if any(fnmatchcase(name, key) for name in names)), None)

    def info(self, key: str) -> ModelInfo:
        """Return the prices of a key in the form of genai-prices."""
        info = self._infos.get(key)
        if info is None:
            from genai_prices.types import ClauseEquals, ModelInfo, PriceVariant

            prices = self._models[key]
            variants = [PriceVariant(_condition(name), _prices(part)) for name, part in _parts(prices, "when")]
            info = ModelInfo(id=key, match=ClauseEquals(key), prices=_prices(prices), price_variants=variants)
            self._infos[key] = info
        return info

    def _check(self, value: JSON, where: str, parts: tuple[str, ...]) -> None:
        """Check the prices of a model, or of a part of `above` or `when`. parts: the members that have further ones."""
        for name, given in self._object(value, where).items():
            place = f"{where}[{name!r}]"
            if name in PRICES:
                if (type(given) is not int and type(given) is not float) or not 0 <= given < 1e300:
                    raise PriceTableError(f"{self.source}: {place} must be a number from 0 on, not {described(given)}")
            elif name in parts:
                for key, prices in self._object(given, place).items():
                    self._check_key(name, key, place)
                    self._check(prices, f"{place}[{key!r}]", ("above",) if name == "when" else ())
            else:
                known = ", ".join((*PRICES, *parts))
                raise PriceTableError(f"{self.source}: {place} is not known; there are {known}")

    def _check_key(self, part: str, key: str, where: str) -> None:
        condition, _, word = key.partition("=")
        fits = (key.isascii() and key.isdigit()) if part == "above" else (condition in CONDITIONS and word != "")
        if not fits:
            must = "a number of tokens" if part == "above" else "`service_tier=…` or `speed=…`"
            raise PriceTableError(f"{self.source}: a key of {where} must be {must}, not {described(key)}")

    def _object(self, value: JSON, where: str) -> JSONObject:
        if type(value) is not dict:
            raise PriceTableError(f"{self.source}: {where} must be an object, not {described(value)}")
        return value


Table: TypeAlias = PriceTable | Mapping[str, object]
"""A price table, or a mapping of its form."""


def _parts(prices: JSONObject, name: str) -> list[tuple[str, JSONObject]]:
    part = mapping(prices, name)
    return [(key, mapping(part, key)) for key in part]


def _condition(key: str) -> dict[str, str]:
    """Return a condition under the name that genai-prices has for it."""
    name, _, word = key.partition("=")
    return {"processing": word} if (name, word) == ("service_tier", "batch") else {name: word}


def _prices(prices: JSONObject) -> ModelPrice:
    from genai_prices.types import ModelPrice, Tier, TieredPrices

    found: dict[str, Decimal | TieredPrices] = {}
    above = sorted((int(start), part) for start, part in _parts(prices, "above"))
    for name, listed in PRICES.items():
        if name in prices:
            base = Decimal(str(prices[name]))
            tiers = [Tier(start, Decimal(str(part[name]))) for start, part in above if name in part]
            found[listed] = TieredPrices(base, tiers) if tiers else base
    if "input_audio" in prices:
        for name, listed in SOUND_IN_CACHES.items():
            if name in prices:
                found.setdefault(listed, found["input_audio_mtok"])
    return ModelPrice(**found)
