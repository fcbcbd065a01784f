"""Bodies of another shape."""

from __future__ import annotations

import pytest

from manystream.providers.model.provider_error import ProviderError
from tests.providers.generate.test_answer import PROVIDERS, decode

WRONG: list[object] = [[], {}, "a", None, {"choices": 1}, {"choices": [1]}, {"text": "a"}]


@pytest.mark.parametrize("dialect", PROVIDERS)
@pytest.mark.parametrize("body", WRONG, ids=str)
def test_a_body_of_another_shape_is_an_error(dialect: str, body: object) -> None:
    with pytest.raises(ProviderError):
        decode(dialect, body)
