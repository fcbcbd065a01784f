"""A table of one's own prices: what it has, what the list has then, and what is wrong in it."""

import json
import pickle
from decimal import Decimal
from pathlib import Path

import pytest

import manystream as ms
from manystream.cost import (
    PriceTable,
    PriceTableError,
    price,
    price_response,
    price_usage,
)
from manystream.providers.anthropic.usage import read_usage as anthropic_usage
from manystream.providers.catalog.registry import DIALECTS
from tests.support.price_list import ANTHROPIC_REPORT, PLAIN, PROVIDERS, priced, reason, responses


def test_a_table_has_prices_of_uses(mill: ms.Provider) -> None:
    table = {"rye": {"input": 10, "output": 50, "search": 1, "file_search": 2, "social_search": 3, "code_execution": 4}}
    kinds = ("web_search_call", "file_search_call", "x_search_call", "code_interpreter_call")
    dialect, body = responses(*({"type": kind, "id": kind} for kind in kinds))
    response = DIALECTS[dialect].decode(json.dumps(body).encode(), PROVIDERS[dialect], lambda: "made")
    assert priced(price_response(response, mill, table=table)).other == Decimal("0.010")


# --- a price table of one's own ---

TABLE: dict[str, object] = {
    "Rye": {"input": 1, "cached": 0.5, "output": 2},
    "barley": {
        "input": 10, "cached": 1, "cache_write": 12, "cache_write_long": 20, "output": 50,
        "input_audio": 30, "search": 4,
        "above": {"1000": {"input": 20, "output": 60}, "2000": {"input": 40}},
        "when": {
            "service_tier=priority": {"input": 15, "output": 70, "above": {"1000": {"input": 25}}},
            "service_tier=batch": {"output": 20},
            "speed=fast": {"output": 300},
        },
    },
    "openai-compatible/own-*": {"input": 0, "output": 0},
    "own-*": {"input": 7, "output": 7},
}  # fmt: skip


LOCAL = ms.OpenAIChat("k", "http://127.0.0.1:8000/v1")


TABLE_PRICES: list[tuple[str, ms.Usage, str | None, int]] = [
    ("barley", ms.Usage(1000, 10), None, 1000 * 10 + 10 * 50),
    ("barley-2026-11-17", ms.Usage(1000, 10), None, 1000 * 10 + 10 * 50),
    ("BARLEY@20261117", ms.Usage(1000, 10), None, 1000 * 10 + 10 * 50),
    ("barley", ms.Usage(1001, 10), None, 1001 * 20 + 10 * 60),
    ("barley", ms.Usage(2001, 10), None, 2001 * 40 + 10 * 60),
    ("barley", ms.Usage(1000, 10, cached_tokens=600, cache_write_tokens=100), None, 300 * 10 + 600 + 100 * 12 + 500),
    ("barley", ms.Usage(100, 10), "priority", 100 * 15 + 10 * 70),
    ("barley", ms.Usage(1001, 10), "priority", 1001 * 25 + 10 * 70),
    ("barley", ms.Usage(100, 10), "batch", 100 * 10 + 10 * 20),
    ("barley", ms.Usage(100, 10, raw={"speed": "fast"}), None, 100 * 10 + 10 * 300),
    ("barley", ms.Usage(100, 10, raw={"prompt_tokens_details": {"audio_tokens": 40}}), None, 60 * 10 + 40 * 30 + 500),
    ("barley", anthropic_usage(ANTHROPIC_REPORT), None, 400 + 500 + 100 * 12 + 200 * 20 + 30 * 50 + 2 * 4 * 1000),
    ("rye", ms.Usage(100, 10), None, 100 + 20),
    ("rye", ms.Usage(100, 10, cache_write_tokens=50), None, 100 + 20),
    ("own-wheat", ms.Usage(100, 10), None, 0),
]


@pytest.mark.parametrize(("model", "usage", "tier", "expected"), TABLE_PRICES)
def test_a_table_has_prices_of_ones_own(
    mill: ms.Provider, model: str, usage: ms.Usage, tier: str | None, expected: int, tmp_path: Path
) -> None:
    file = tmp_path / "prices.json"
    file.write_text(json.dumps(TABLE), "utf-8")
    for table in (TABLE, PriceTable(TABLE), PriceTable.read(file), pickle.loads(pickle.dumps(PriceTable(TABLE)))):
        cost = priced(price_usage(usage, model, LOCAL, service_tier=tier, table=table))
        assert cost.total == Decimal(expected).scaleb(-6)
        assert cost.provider == "openai-compatible"
    named = ms.OpenAIChat("k", "http://127.0.0.1:8000/v1", name="other")
    if model == "own-wheat":
        assert price(named, model, usage, table=TABLE) == pytest.approx(110 * 7e-6)
    if tier is None:
        assert price(LOCAL, model, usage, table=TABLE) == pytest.approx(expected / 1e6)


def test_the_list_has_what_a_table_lacks(mill: ms.Provider) -> None:
    assert price_usage(PLAIN, "oats", mill, table=TABLE) == price_usage(PLAIN, "oats", mill)
    assert "'flex'" in reason(price_usage(PLAIN, "barley", mill, service_tier="flex", table=TABLE))
    assert "the price table has no price of 'rye' for searches" in reason(
        price_usage(anthropic_usage({**ANTHROPIC_REPORT, "cache_creation": None}), "rye", mill, table=TABLE)
    )
    assert "longer lifetime" in reason(price_usage(anthropic_usage(ANTHROPIC_REPORT), "rye", mill, table=TABLE))


def test_a_table_may_have_the_requested_name_only(mill: ms.Provider) -> None:
    answer = ms.Response(usage=PLAIN, model="some-build-of-barley")
    assert priced(price_response(answer, mill, model="barley", table=TABLE)).model == "barley"
    known = ms.Response(usage=PLAIN, model="rye")
    assert priced(price_response(known, mill, model="barley", table=TABLE)).model == "rye"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ([1], "the whole must be an object, not list"),
        ({"m": 3}, "'m' must be an object, not 3"),
        ({"m": {"input": 1}}, "'m' has no price 'output'"),
        ({"m": {"input": "1", "output": 1}}, "'m'['input'] must be a number from 0 on, not '1'"),
        ({"m": {"input": -1, "output": 1}}, "'m'['input'] must be a number from 0 on, not -1"),
        ({"m": {"input": True, "output": 1}}, "'m'['input'] must be a number from 0 on, not True"),
        ({"m": {"input": float("nan"), "output": 1}}, "'m'['input'] must be a number"),
        ({"m": {"input": 1, "output": 1, "cache": 1}}, "'m'['cache'] is not known; there are input, cached"),
        ({"m": {"input": 1, "output": 1, "above": 4}}, "'m'['above'] must be an object, not 4"),
        ({"m": {"input": 1, "output": 1, "above": {"many": {}}}}, "a key of 'm'['above'] must be a number of tokens"),
        ({"m": {"input": 1, "output": 1, "above": {"9": {"x": 1}}}}, "'m'['above']['9']['x'] is not known"),
        ({"m": {"input": 1, "output": 1, "when": {"flex": {}}}}, "a key of 'm'['when'] must be `service_tier=…`"),
        ({"m": {"input": 1, "output": 1, "when": {"speed=": {}}}}, "a key of 'm'['when'] must be `service_tier=…`"),
        ({"m": {"input": 1, "output": 1, "when": {"speed=x": {"when": {}}}}}, "['when'] is not known"),
        ({"m": {1, 2}}, "must be a mapping of JSON values"),
    ],
)
def test_a_table_that_is_wrong_names_the_place(table: dict[str, object], words: str, tmp_path: Path) -> None:
    with pytest.raises(PriceTableError) as raised:
        PriceTable(table)
    assert words in str(raised.value)
    with pytest.raises(PriceTableError):
        price_usage(PLAIN, "m", "openai", table=table)


def test_a_file_that_is_no_table_is_named(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    with pytest.raises(PriceTableError, match=r"prices\.json: No such file"):
        PriceTable.read(file)
    file.write_text("{", "utf-8")
    with pytest.raises(PriceTableError, match=r"prices\.json is no JSON: "):
        PriceTable.read(file)
    file.write_bytes(b"\xff")
    with pytest.raises(PriceTableError, match=r"prices\.json is no JSON: "):
        PriceTable.read(file)
    file.write_text('{"m": {}}', "utf-8")
    with pytest.raises(PriceTableError, match=r"prices\.json: 'm' has no price 'input'"):
        PriceTable.read(file)
    assert repr(PriceTable({"m": {"input": 1, "output": 1}})) == "PriceTable(1 models, source='the price table')"
