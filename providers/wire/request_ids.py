"""The provider's id for a request, from the headers of a response."""

from __future__ import annotations

from collections.abc import Mapping

REQUEST_ID_HEADERS = (
    "request-id",  # Anthropic
    "x-goog-request-id",
    "mistral-correlation-id",
    "x-ds-trace-id",  # DeepSeek
    "x-request-id",  # OpenAI and most gateways
    "apim-request-id",  # Azure
    "x-ms-request-id",
    "x-amzn-requestid",  # Bedrock
    "x-correlation-id",
    "cf-ray",
)
"""Header names in lower case, in order of precedence. A gateway in front of a provider adds an `x-request-id` of its
own, so the names that only providers use come first.
"""


def request_id_in(headers: Mapping[str, str]) -> str | None:
    """Return the provider's id for a request, or None if no header has one.

    headers: the response's headers, names in lower case.
    """
    return next((headers[name] for name in REQUEST_ID_HEADERS if headers.get(name)), None)
