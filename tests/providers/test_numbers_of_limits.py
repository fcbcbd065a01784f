"""The limits on memory and work that every answer and request has, as the documentation of each module states them."""

from __future__ import annotations

import pytest

from tests.support.tables import table

LIMITS: dict[str, object] = {
    "delta_template.LARGEST_DELTA": 65_536,
    "delta_template.LARGEST_SHARED": 1024,
    "delta_template.MOST_SEARCHED": 8,
    "delta_template.BACKSLASH": 92,
    "delta_template.ZERO": 48,
    "dialect.MAX_UNMATCHED_TEMPLATES": 8,
    "dialect.MAX_SHARED_TEMPLATES": 4,
    "error_bodies.MESSAGE_LIMIT": 1000,
    "error_bodies._LOOKED_AT": 64_000,
    "errors.BODY_LIMIT": 4096,
    "exact_numbers.DEEPEST": 254,
    "exact_numbers.LOOKED_AT": 65_536,
    "exact_numbers._LARGE_EXPONENT": b"0e000",
    "exact_numbers._LONGEST": 18,
    "exact_numbers._LONG_NUMBER": b"0000000000000000000",
    "json_values.LARGE": 1_048_576,
    "json_values.LARGE_QUOTES": 1000,
    "json_values.MAX_VALUES": 4_000_000,
    "json_values.SHOWN_BYTES": 200,
    "json_values._LOOKED_AT": 65_536,
    "page.LONGEST_TAG": 500,
    "partial_json.DEEPEST": 1024,
    "prefix_cache.MAX_PREFIXES": 2,
    "prefix_cache.MIN_MESSAGES": 16,
    "quota_report.DAY": 86_400.0,
    "quota_report.MINUTE": 60.0,
    "quota_report.MONTH": 2_592_000.0,
    "quota_report.SECOND": 1.0,
    "rate_headers.LARGEST": 1e15,
    "rate_headers.LARGEST_SKEW": 86_400.0,
    "rate_headers.LONGEST_MINUTE": 600.0,
    "rate_headers.MILLISECOND": 0.001,
    "retry_hints.LONGEST_HINT_MS": 2_678_400_000,
    "rules.LARGEST_SHOWN": 10**30,
    "rules.LONGEST_SHOWN": 60,
    "sdk_arguments.DEEPEST": 200,
    "snapshot.PLAIN_FORMAT": 2,
    "structured.MAX_CHECKS": 100_000,
    "structured.MAX_DEPTH": 100,
    "tool_names.NAMES_REMEMBERED": 1024,
}


@pytest.mark.parametrize("place", LIMITS)
def test_a_limit_has_its_documented_value(place: str) -> None:
    assert table(f"providers.{place}") == LIMITS[place]
