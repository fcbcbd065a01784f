"""The price of a call: what a function of the program may return, and when it is asked."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest

import manystream as ms
from manystream.engine.traffic.budgets.price import ask_price
from tests.engine.traffic.budgets.test_budgets_state import INF

# --- the price of a call ---


class NoPrice(ms.ManystreamError):
    """An error of the library, whose words are shown."""


def raises(error: Exception) -> Callable[..., float]:
    def price(*_: object) -> float:
        raise error

    return price


@pytest.mark.parametrize(
    ("price", "words"),
    [
        (raises(KeyError("secret")), "traffic.price: raised KeyError for p/m"),
        (raises(NoPrice("no table")), "traffic.price: raised NoPrice for p/m: no table"),
        (lambda *_: -1, "traffic.price: must return a number of US dollars, at least 0, or None, not -1 (for p/m)"),
        (lambda *_: INF, "traffic.price: must return a number of US dollars, at least 0, or None, not inf (for p/m)"),
    ],
)
def test_a_price_that_is_none_is_an_error_in_words(price: Callable[..., float], words: str) -> None:
    provider = ms.OpenAIChat("secret", "http://127.0.0.1:9/v1", name="p")
    with pytest.raises(ms.InvalidRequestError) as caught:
        ask_price(price, provider, "m", ms.Usage())
    assert str(caught.value) == words


def test_a_price_is_a_float_or_not_known() -> None:
    provider, seen = ms.OpenAIChat("secret", "http://127.0.0.1:9/v1", name="p"), list[object]()

    def price(*given: object) -> Decimal:
        seen.extend(given)
        return Decimal("0.25")

    assert ask_price(price, provider, "m", ms.Usage(input_tokens=3)) == 0.25  # type: ignore[arg-type]
    assert seen == [provider, "m", ms.Usage(input_tokens=3)]
    assert ask_price(lambda *_: None, provider, "m", ms.Usage()) is None
    assert ask_price(lambda *_: 0, provider, "m", ms.Usage()) == 0
