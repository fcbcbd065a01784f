"""How each simulated server charges, reports and enforces its limits. The words are those of the servers' pages."""

from __future__ import annotations

from tests.support.tables import table

SERVERS: dict[str, tuple[object, ...]] = {
    # output, combined, settled, refused_counts, failed_counts, cached_counts, per_key, request_slice, daily_reset,
    # over_limit, report, error, too_large_status, concurrent_status
    "openai": ("reserved", "larger", False, True, True, True, True, 0.0, False, 0.0, "openai", "openai", 429, 429),
    "anthropic": (
        "produced",
        "sum",
        True,
        False,
        True,
        False,
        True,
        0.0,
        False,
        0.0,
        "anthropic",
        "anthropic",
        429,
        429,
    ),
    "gemini": ("free", "sum", True, False, True, True, False, 0.0, True, 0.0, "none", "gemini", 429, 429),
    "vertex": ("free", "sum", True, False, True, True, False, 0.0, False, 0.0, "none", "vertex", 429, 429),
    "azure": ("reserved", "sum", False, False, True, True, True, 10.0, False, 0.0, "azure", "openai", 429, 429),
    "groq": ("reserved", "sum", True, False, True, True, True, 0.0, False, 0.0, "groq", "openai", 413, 429),
    "cerebras": ("reserved", "sum", True, False, True, True, True, 0.0, False, 0.0, "cerebras", "openai", 429, 429),
    "mistral": ("reserved", "sum", True, False, True, True, True, 0.0, False, 0.0, "mistral", "mistral", 429, 429),
    "deepseek": ("free", "sum", True, False, True, True, True, 0.0, False, 0.0, "none", "openai", 429, 429),
    "openrouter": ("reserved", "sum", True, False, True, True, True, 0.0, False, 0.0, "openrouter", "openai", 429, 429),
    "together": ("reserved", "sum", True, False, True, True, True, 0.0, False, 0.0, "together", "openai", 429, 429),
    "fireworks": ("produced", "sum", True, False, True, True, True, 0.0, False, 0.25, "fireworks", "openai", 429, 429),
    "litellm": ("reserved", "larger", False, False, True, True, True, 0.0, False, 0.0, "litellm", "openai", 429, 429),
    "vllm": ("free", "sum", True, False, True, True, True, 0.0, False, 0.0, "none", "overloaded", 429, 503),
    "sglang": ("free", "sum", True, False, True, True, True, 0.0, False, 0.0, "none", "overloaded", 429, 503),
    "llama.cpp": ("free", "sum", True, False, True, True, True, 0.0, False, 0.0, "none", "overloaded", 429, 503),
    "tgi": ("free", "sum", True, False, True, True, True, 0.0, False, 0.0, "none", "overloaded", 429, 429),
}
"""Server → its rules."""

FORMS: dict[str, tuple[object, ...]] = {
    # rows, reset, token_step, per_second, on, retry, over_limit, repeated
    "none": ((), "_go_duration", 1, False, "all", (), "", ""),
    "openai": (
        (
            (
                ("requests",),
                "x-ratelimit-limit-requests",
                "x-ratelimit-remaining-requests",
                "x-ratelimit-reset-requests",
                0.0,
            ),
            (
                ("tokens",),
                "x-ratelimit-limit-tokens",
                "x-ratelimit-remaining-tokens",
                "x-ratelimit-reset-tokens",
                0.0,
            ),
        ),
        "_go_duration",
        1,
        False,
        "all",
        (("retry-after-ms", "_milliseconds"), ("retry-after", "_whole_seconds")),
        "",
        "",
    ),
    "anthropic": (
        (
            (
                ("requests",),
                "anthropic-ratelimit-requests-limit",
                "anthropic-ratelimit-requests-remaining",
                "anthropic-ratelimit-requests-reset",
                0.0,
            ),
            (
                ("input_tokens", "output_tokens"),
                "anthropic-ratelimit-tokens-limit",
                "anthropic-ratelimit-tokens-remaining",
                "anthropic-ratelimit-tokens-reset",
                0.0,
            ),
            (
                ("input_tokens",),
                "anthropic-ratelimit-input-tokens-limit",
                "anthropic-ratelimit-input-tokens-remaining",
                "anthropic-ratelimit-input-tokens-reset",
                0.0,
            ),
            (
                ("output_tokens",),
                "anthropic-ratelimit-output-tokens-limit",
                "anthropic-ratelimit-output-tokens-remaining",
                "anthropic-ratelimit-output-tokens-reset",
                0.0,
            ),
        ),
        "_moment",
        1000,
        False,
        "all",
        (("retry-after", "_whole_seconds"),),
        "",
        "",
    ),
    "azure": (
        (
            (("requests",), "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "", 0.0),
            (
                ("tokens",),
                "x-ratelimit-limit-tokens",
                "x-ratelimit-remaining-tokens",
                "x-ratelimit-reset-tokens",
                0.0,
            ),
        ),
        "_whole_seconds",
        1,
        False,
        "all",
        (("retry-after-ms", "_milliseconds"), ("retry-after", "_whole_seconds")),
        "",
        "",
    ),
    "groq": (
        (
            (
                ("requests",),
                "x-ratelimit-limit-requests",
                "x-ratelimit-remaining-requests",
                "x-ratelimit-reset-requests",
                86400.0,
            ),
            (
                ("tokens",),
                "x-ratelimit-limit-tokens",
                "x-ratelimit-remaining-tokens",
                "x-ratelimit-reset-tokens",
                60.0,
            ),
        ),
        "_go_duration",
        1,
        False,
        "all",
        (("retry-after", "_whole_seconds"),),
        "",
        "",
    ),
    "cerebras": (
        (
            (
                ("requests",),
                "x-ratelimit-limit-requests-day",
                "x-ratelimit-remaining-requests-day",
                "x-ratelimit-reset-requests-day",
                86400.0,
            ),
            (
                ("tokens",),
                "x-ratelimit-limit-tokens-minute",
                "x-ratelimit-remaining-tokens-minute",
                "x-ratelimit-reset-tokens-minute",
                60.0,
            ),
        ),
        "_plain_seconds",
        1,
        False,
        "all",
        (("retry-after", "_whole_seconds"),),
        "",
        "",
    ),
    "mistral": (
        (
            (("requests",), "x-ratelimit-limit-req-second", "x-ratelimit-remaining-req-second", "", 1.0),
            (("requests",), "x-ratelimit-limit-req-minute", "x-ratelimit-remaining-req-minute", "", 60.0),
            (("tokens",), "x-ratelimit-limit-tokens-minute", "x-ratelimit-remaining-tokens-minute", "", 60.0),
        ),
        "_go_duration",
        1,
        False,
        "all",
        (),
        "",
        "",
    ),
    "openrouter": (
        ((("requests",), "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", 0.0),),
        "_epoch_milliseconds",
        1,
        False,
        "refused",
        (),
        "",
        "",
    ),
    "together": (
        (
            (("requests",), "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", 0.0),
            (("tokens",), "x-tokenlimit-limit", "x-tokenlimit-remaining", "", 0.0),
        ),
        "_whole_seconds",
        1,
        True,
        "all",
        (("retry-after", "_whole_seconds"),),
        "",
        "",
    ),
    "fireworks": (
        (
            (("requests",), "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "", 0.0),
            (("input_tokens",), "x-ratelimit-limit-tokens-prompt", "x-ratelimit-remaining-tokens-prompt", "", 0.0),
            (
                ("output_tokens",),
                "x-ratelimit-limit-tokens-generated",
                "x-ratelimit-remaining-tokens-generated",
                "",
                0.0,
            ),
        ),
        "_go_duration",
        1,
        False,
        "all",
        (),
        "x-ratelimit-over-limit",
        "",
    ),
    "litellm": (
        (
            (
                ("requests",),
                "x-ratelimit-limit-requests",
                "x-ratelimit-remaining-requests",
                "x-ratelimit-reset-requests",
                0.0,
            ),
            (
                ("tokens",),
                "x-ratelimit-limit-tokens",
                "x-ratelimit-remaining-tokens",
                "x-ratelimit-reset-tokens",
                0.0,
            ),
        ),
        "_go_duration",
        1,
        False,
        "unstreamed",
        (("retry-after", "_whole_seconds"),),
        "",
        "llm_provider-",
    ),
}
"""Form → its rows and how it is written."""


def test_each_server_has_these_rules() -> None:
    assert table("simulator.limits.servers.SERVERS") == SERVERS


def test_each_form_has_these_headers() -> None:
    assert table("simulator.limits.reports.FORMS") == FORMS
