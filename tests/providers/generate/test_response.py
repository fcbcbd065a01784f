"""Bodies of another shape."""

from __future__ import annotations

import pytest

import manystream as ms
from tests.providers.generate.test_answer import PROVIDERS, decode

WRONG: list[object] = [[], {}, "a", None, {"choices": 1}, {"choices": [1]}, {"text": "a"}]


@pytest.mark.parametrize("dialect", PROVIDERS)
@pytest.mark.parametrize("body", WRONG, ids=str)
def test_a_body_of_another_shape_is_an_error(dialect: str, body: object) -> None:
    with pytest.raises(ms.ProviderError):
        decode(dialect, body)
