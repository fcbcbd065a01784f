"""Reads what one response reports about limits, in the same way as the engine."""

from collections.abc import Callable

from manystream.providers.anthropic import errors as anthropic_errors
from manystream.providers.anthropic import rate_limits as anthropic
from manystream.providers.gemini import errors as gemini_errors
from manystream.providers.gemini import rate_limits as gemini
from manystream.providers.limits.quota_report import QuotaReport
from manystream.providers.openai import rate_limits as openai
from manystream.providers.wire import error_bodies as openai_errors

NOW = 1_790_000_000.0
"""2026-09-21T14:13:20Z, in Unix seconds."""


def report(provider: str, headers: dict[str, str], status: int = 200, body: str = "") -> QuotaReport:
    """Return the report of one response, read as by the engine: first the error, then the limits."""
    read: Callable[..., QuotaReport] = openai.read_report
    decode = openai_errors.decode_error
    if provider == "anthropic":
        read, decode = anthropic.read_report, anthropic_errors.decode_error
    elif provider == "google":
        read, decode = gemini.read_report, gemini_errors.decode_error
    error = decode(status, headers, body.encode(), NOW) if status >= 400 else None
    return read(provider, headers, NOW, error, body.encode())
