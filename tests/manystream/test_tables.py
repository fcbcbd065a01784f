"""The words and numbers that the tables of the programs and doors have.

Those of servers, of OpenTelemetry and of clients are copied from their documentation. A new word needs a line here.
"""

from __future__ import annotations

from typing import Any

import pytest

from manystream import otel_traffic
from manystream.otel_traffic import Metric
from tests.support.tables import table

TABLES: dict[str, object] = {
    "batch.journal.NOT_FAILED": ("invalid_line", "cancelled"),
    "batch.journal.PROMPT_MEMBERS": ("messages", "body", "params"),
    "batch.lines.ID_NAMES": ("id", "custom_id"),
    "batch.lines.URLS": ("/v1/chat/completions", "/v1/responses"),
    "batch.lines.OUR_MEMBERS": (
        "id",
        "custom_id",
        "model",
        "messages",
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "max_output_tokens",
        "temperature",
        "top_p",
        "stop",
        "seed",
        "response_schema",
        "parallel_tool_calls",
        "metadata",
        "timeouts",
        "retry",
        "extra_body",
        "extra_headers",
        "priority",
        "tenant",
        "session",
    ),
    "bench.load.HOPELESS": {"ErrorCategory.AUTH", "ErrorCategory.INVALID_ARG", "ErrorCategory.NOT_FOUND"},
    "cli.batch_targets.PORTS": {"http": 80, "https": 443},
    "cli.connectivity.MODELS_PATH": "/(?:chat/completions|responses|messages|models/[^/]*)$",
    "cli.connectivity.STEPS": {
        "Phase.DNS": "DNS",
        "Phase.CONNECT": "connect",
        "Phase.PROXY": "tunnel",
        "Phase.TLS": "TLS",
        "Phase.SEND": "answer",
        "Phase.HEAD": "answer",
        "Phase.BODY": "answer",
    },
    "cli.run.DEFAULT_MODELS": {
        "anthropic": "claude-sonnet-4-5",
        "openai-chat": "gpt-5-mini",
        "openai-responses": "gpt-5-mini",
        "google": "gemini-2.5-flash",
    },
    "cli.simulate.ENDING_SIGNALS": ("Signals.SIGINT", "Signals.SIGTERM"),
    "client_transfer.PHASE_FAULTS": {
        "Phase.QUEUE": "Fault.CONNECT",
        "Phase.DNS": "Fault.CONNECT",
        "Phase.CONNECT": "Fault.CONNECT",
        "Phase.PROXY": "Fault.PROXY",
        "Phase.TLS": "Fault.CONNECT",
        "Phase.SEND": "Fault.WRITE",
        "Phase.HEAD": "Fault.READ",
        "Phase.BODY": "Fault.READ",
    },
    "client_transfer.DIAL_EVENTS": {
        "Phase.DNS": "connection.connect_tcp",
        "Phase.CONNECT": "connection.connect_tcp",
        "Phase.PROXY": "connection.connect_proxy",
        "Phase.TLS": "connection.start_tls",
    },
    "cost.STANDARD_TIERS": {"auto", "default", "on_demand", "standard"},
    "cost.DETAILS": {
        ("cache_creation", "ephemeral_5m_input_tokens"): "cache_write_5m_tokens",
        ("cache_creation", "ephemeral_1h_input_tokens"): "cache_write_1h_tokens",
        ("server_tool_use", "web_search_requests"): "web_searches",
        ("prompt_tokens_details", "audio_tokens"): "input_audio_tokens",
        ("completion_tokens_details", "audio_tokens"): "output_audio_tokens",
    },
    "cost.MODALITY_DETAILS": {
        "promptTokensDetails": "input_{}_tokens",
        "cacheTokensDetails": "cache_{}_read_tokens",
        "candidatesTokensDetails": "output_{}_tokens",
    },
    "cost.MODALITIES": {"TEXT": "text", "AUDIO": "audio", "IMAGE": "image", "DOCUMENT": "image", "VIDEO": "video"},
    "cost.CACHE_READ": ("cache_read", "cache_text_read", "cache_audio_read", "cache_image_read", "cache_video_read"),
    "cost.CACHE_WRITE": ("cache_write", "cache_write_5m", "cache_write_1h"),
    "otel.OPERATIONS": {"gemini": "generate_content"},
    "otel.PROVIDER_NAMES": {
        "openai-chat": "openai",
        "openai-responses": "openai",
        "anthropic": "anthropic",
        "anthropic-openai": "anthropic",
        "google": "gcp.gemini",
        "google-openai": "gcp.gemini",
        "azure": "azure.ai.openai",
        "azure-deployment": "azure.ai.openai",
        "azure-models": "azure.ai.inference",
        "azure-responses": "azure.ai.openai",
        "bedrock-mantle": "aws.bedrock",
        "groq-responses": "groq",
        "mistral": "mistral_ai",
        "xai": "x_ai",
        "xai-responses": "x_ai",
    },
    "otel.REQUEST_ATTRIBUTES": {
        "gen_ai.request.max_tokens": "max_output_tokens",
        "gen_ai.request.temperature": "temperature",
        "gen_ai.request.top_p": "top_p",
        "gen_ai.request.seed": "seed",
    },
    "otel.CHUNK_SECONDS": (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0),
    "otel.TOKENS": (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864),
    "simulator.anthropic.STOP_REASON": {
        "stop": "end_turn",
        "length": "max_tokens",
        "tool_use": "tool_use",
        "content_filter": "error",
    },
    "simulator.anthropic.TOOL_CHOICE": {"any": "required", "auto": "auto", "none": "none"},
    "simulator.control.PAGES": ("/sim/requests", "/sim/statistics", "/sim/limits"),
    "simulator.gemini.FINISH": {"stop": "STOP", "length": "MAX_TOKENS", "tool_use": "STOP", "content_filter": "SAFETY"},
    "simulator.gemini.OPAQUE": {
        "args",
        "parameters",
        "parametersJsonSchema",
        "response",
        "responseJsonSchema",
        "responseSchema",
    },
    "simulator.gemini.MODES": {"ANY": "required", "NONE": "none", "AUTO": "auto"},
    "simulator.journal.SECRET_HEADERS": {
        "api-key",
        "authorization",
        "cookie",
        "proxy-authorization",
        "x-api-key",
        "x-goog-api-key",
    },
    "simulator.knobs.KINDS": ("text", "thinking", "tools", "mixed"),
    "simulator.knobs.FINISHES": ("stop", "length", "content_filter"),
    "simulator.knobs.FAULTS": ("fail", "cut", "reset", "truncate", "stall", "malformed", "error"),
    "simulator.limits.limit.WINDOWS": {
        "requests_per_second": ("requests", 1.0),
        "requests_per_minute": ("requests", 60.0),
        "requests_per_day": ("requests", 86400.0),
        "tokens_per_minute": ("tokens", 60.0),
        "tokens_per_day": ("tokens", 86400.0),
        "input_tokens_per_minute": ("input_tokens", 60.0),
        "output_tokens_per_minute": ("output_tokens", 60.0),
    },
    "simulator.limits.limiter._DIMENSIONS": ("requests", "input_tokens", "output_tokens", "tokens"),
    "simulator.limits.refusals._OPENAI_UNITS": {
        ("requests", False): "requests per min (RPM)",
        ("requests", True): "requests per day (RPD)",
        ("tokens", False): "tokens per min (TPM)",
        ("tokens", True): "tokens per day (TPD)",
        ("input_tokens", False): "input tokens per min",
        ("output_tokens", False): "output tokens per min",
    },
    "simulator.limits.refusals._QUOTAS": {
        ("requests", False): ("generate_content_paid_tier_requests", "GenerateRequestsPerMinutePerProjectPerModel"),
        ("requests", True): ("generate_content_paid_tier_requests", "GenerateRequestsPerDayPerProjectPerModel"),
        ("input_tokens", False): (
            "generate_content_paid_tier_input_token_count",
            "GenerateContentPaidTierInputTokensPerModelPerMinute",
        ),
    },
    "simulator.limits.refusals._OTHER_QUOTA": (
        "generate_content_token_count",
        "GenerateContentTokensPerModelPerMinute",
    ),
    "simulator.limits.refusals.REFUSALS": {
        "openai": "_openai",
        "anthropic": "_anthropic",
        "gemini": "_gemini",
        "vertex": "_vertex",
        "mistral": "_mistral",
        "overloaded": "_overloaded",
    },
    "simulator.limits.servers.DIALECT_SERVERS": {
        "openai-chat": "openai",
        "openai-responses": "openai",
        "anthropic": "anthropic",
        "gemini": "gemini",
    },
    "simulator.openai_chat.ROLES": ("system", "developer", "user", "assistant", "tool", "function"),
    "simulator.openai_chat.FINISH": {
        "stop": "stop",
        "length": "length",
        "tool_use": "tool_calls",
        "content_filter": "content_filter",
    },
    "simulator.openai_responses.INCOMPLETE": {"length": "max_output_tokens", "content_filter": "content_filter"},
    "simulator.program.ENDINGS": (
        ("cut", "Ending.CLOSE"),
        ("reset", "Ending.RESET"),
        ("stall", "Ending.STALL"),
        ("truncate", "Ending.KEEP"),
    ),
    "simulator.replay.ENDINGS": {"whole": "Ending.KEEP", "broken": "Ending.CLOSE", "left": "Ending.STALL"},
    "simulator.replica.OUTAGES": ("503", "hang", "close"),
    "simulator.service.GEMINI_METHODS": (":generateContent", ":streamGenerateContent"),
    "simulator.service.BASE_PATHS": {"openai-chat": "/v1", "openai-responses": "/v1", "anthropic": "", "gemini": ""},
}
"""Module and name of a table → its whole content."""


@pytest.mark.parametrize("place", TABLES)
def test_a_table_has_these_words_and_no_others(place: str) -> None:
    assert table(place) == TABLES[place]


METRICS: dict[str, list[tuple[str, str, bool]]] = {
    "SCOPE_METRICS": [
        ("manystream.traffic.waiting", "{call}", False),
        ("manystream.traffic.running", "{call}", False),
        ("manystream.traffic.window", "{call}", False),
        ("manystream.traffic.concurrent", "{call}", False),
        ("manystream.traffic.held", "s", False),
        ("manystream.traffic.sent", "{request}", True),
        ("manystream.traffic.refused", "{request}", True),
    ],
    "LIMIT_METRICS": [
        ("manystream.traffic.limit.rate", "", False),
        ("manystream.traffic.limit.level", "", False),
    ],
    "ROUTE_METRICS": [
        ("manystream.route.waiting", "{call}", False),
        ("manystream.route.hedged", "{call}", True),
    ],
    "TARGET_METRICS": [
        ("manystream.route.outstanding", "{call}", False),
        ("manystream.route.sessions", "{session}", False),
        ("manystream.route.open", "1", False),
        ("manystream.route.score", "s", False),
        ("manystream.route.first_event", "s", False),
        ("manystream.route.failures", "1", False),
    ],
    "BUDGET_METRICS": [("manystream.budget.waiting", "{call}", False)],
    "AMOUNT_METRICS": [
        ("manystream.budget.spent", "", False),
        ("manystream.budget.reserved", "", False),
        ("manystream.budget.limit", "", False),
    ],
}
"""Name of a table → name and unit of each metric, and whether it only grows."""


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_of_traffic_keeps_its_name_and_unit(name: str) -> None:
    metrics: list[Metric[Any]] = [*getattr(otel_traffic, name)]
    assert [(metric.name, metric.unit, metric.grows) for metric in metrics] == METRICS[name]
