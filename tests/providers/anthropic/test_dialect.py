"""The dialect as a value, and the headers of its requests."""

from __future__ import annotations

import manystream as ms
from manystream.providers.anthropic import DIALECT
from tests.providers.anthropic.test_request import encode
from tests.providers.anthropic.wire import STRICT


def test_dialect_is_a_dialect() -> None:
    dialect: ms.Dialect = DIALECT
    assert dialect.name == "anthropic"
    assert dialect.auth_headers(STRICT, "sk-key") == [("x-api-key", "sk-key")]


def test_the_headers_have_the_version_and_the_accepted_type() -> None:
    assert encode().headers == [
        ("content-type", "application/json"),
        ("accept", "application/json"),
        ("anthropic-version", "2023-06-01"),
    ]
    assert ("accept", "text/event-stream") in encode(stream=True).headers


def test_the_key_is_nowhere_in_the_wire_request() -> None:
    assert "sk-secret" not in repr(encode())
