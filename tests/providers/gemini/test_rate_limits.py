"""Limits that Google's errors name."""

import json

import pytest

from manystream.providers.limits.quota_report import QuotaReport, ReportedLimit, Unit
from tests.providers.limit_reports import report
from tests.providers.limits.test_limit_reports import INPUT, MINUTE, OUTPUT, RATE, REQUESTS, TOKENS


@pytest.mark.parametrize(
    ("quota", "unit", "name"),
    [
        ("GenerateContentInputTokensPerMinute", INPUT, "input tokens"),
        ("generate_content_input_token_count_PerMinute", INPUT, "input tokens"),
        ("GenerateContentOutputTokensPerMinute", OUTPUT, "output tokens"),
        ("generate_content_output_token_count_PerMinute", OUTPUT, "output tokens"),
        ("TokensPerMinute", TOKENS, "tokens"),
        ("GenerateRequestsPerMinute", REQUESTS, "requests"),
    ],
)
def test_geminis_quota_names_a_limit(quota: str, unit: Unit, name: str) -> None:
    details = [{"violations": [{"quotaId": quota, "quotaValue": 90}]}]
    body = json.dumps({"error": {"code": 429, "message": "Resource exhausted", "details": details}})
    assert report("google", {}, 429, body) == QuotaReport((ReportedLimit(name, unit, MINUTE, 90, 0),), RATE, unit)
