"""Headers that name a request."""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.anthropic import DIALECT as ANTHROPIC
from manystream.providers.gemini import DIALECT as GEMINI
from manystream.providers.openai.chat import DIALECT as CHAT
from manystream.providers.wire.error_bodies import (
    decode_error,
)
from tests.providers.wire.test_error_bodies import NOW


def test_the_first_header_with_a_request_id_counts() -> None:
    names = [
        "request-id", "x-goog-request-id", "mistral-correlation-id", "x-ds-trace-id", "x-request-id",
        "apim-request-id", "x-ms-request-id", "x-amzn-requestid", "x-correlation-id", "cf-ray",
    ]  # fmt: skip
    while names:
        headers = {name: f"id of {name}" for name in reversed(names)}
        assert decode_error(500, {**headers, "other-id": "o"}, b"", NOW).request_id == f"id of {names[0]}"
        assert decode_error(500, {names.pop(0): ""}, b'{"request_id": "b"}', NOW).request_id == "b"


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (ANTHROPIC, b'{"type": "error", "error": {"type": "api_error", "message": "m"}, "request_id": "b"}'),
        (GEMINI, b'{"error": {"code": 500, "message": "m", "status": "INTERNAL"}}'),
    ],
    ids=["anthropic", "gemini"],
)
def test_the_other_dialects_read_the_same_headers(dialect: ms.Dialect, body: bytes) -> None:
    gateway = {"x-amzn-requestid": "aws", "cf-ray": "ray"}
    assert dialect.decode_error(500, gateway, body, NOW).request_id == "aws"
    assert dialect.decode_error(500, {**gateway, "x-request-id": "x"}, body, NOW).request_id == "x"
    assert dialect.decode_error(500, {"x-request-id": "x", "x-goog-request-id": "g"}, body, NOW).request_id == "g"


# --- errors ---
@pytest.mark.parametrize("header", ["x-request-id", "request-id", "apim-request-id", "x-ms-request-id", "cf-ray"])
def test_every_header_that_names_a_request_is_read(header: str) -> None:
    assert CHAT.decode_error(500, {header: "r-1"}, b"", NOW).request_id == "r-1"
