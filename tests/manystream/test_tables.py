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
    "client_faults.PHASE_FAULTS": {
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
    "cost.TRAFFIC_TIERS": {
        "TRAFFIC_TYPE_UNSPECIFIED": "standard",
        "ON_DEMAND": "standard",
        "ON_DEMAND_FLEX": "flex",
        "ON_DEMAND_PRIORITY": "priority",
    },
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
    "bench.load.FIRST_DELAY": 0.05,
    "bench.load.LONGEST_DELAY": 2.0,
    "client_transport.REFUSED_OPTIONS": {
        "http1": "this transport always speaks HTTP/1.1",
        "http2": "this transport speaks HTTP/1.1 only",
        "verify": "pass tls=manystream.TLSConfig(ca_file=…); verification cannot be switched off",
        "cert": "pass tls=manystream.TLSConfig(client_certificate=…)",
        "retries": "the SDK's own max_retries applies",
        "uds": "a Unix socket is not supported",
        "local_address": "a local address is not supported",
        "socket_options": "the transport sets the socket options itself",
    },
    "httpx.EXCEPTIONS": {
        "Fault.POOL_TIMEOUT": "PoolTimeout",
        "Fault.CONNECT_TIMEOUT": "ConnectTimeout",
        "Fault.WRITE_TIMEOUT": "WriteTimeout",
        "Fault.READ_TIMEOUT": "ReadTimeout",
        "Fault.CONNECT": "ConnectError",
        "Fault.PROXY": "ProxyError",
        "Fault.WRITE": "WriteError",
        "Fault.READ": "ReadError",
        "Fault.REMOTE": "RemoteProtocolError",
        "Fault.LOCAL": "LocalProtocolError",
        "Fault.UNSUPPORTED": "UnsupportedProtocol",
        "Fault.DEFECT": "TransportError",
    },
    "httpx2.EXCEPTIONS": {
        "Fault.POOL_TIMEOUT": "PoolTimeout",
        "Fault.CONNECT_TIMEOUT": "ConnectTimeout",
        "Fault.WRITE_TIMEOUT": "WriteTimeout",
        "Fault.READ_TIMEOUT": "ReadTimeout",
        "Fault.CONNECT": "ConnectError",
        "Fault.PROXY": "ProxyError",
        "Fault.WRITE": "WriteError",
        "Fault.READ": "ReadError",
        "Fault.REMOTE": "RemoteProtocolError",
        "Fault.LOCAL": "LocalProtocolError",
        "Fault.UNSUPPORTED": "UnsupportedProtocol",
        "Fault.DEFECT": "TransportError",
    },
    "otel.SECONDS": (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
    "ray.asker.NOT_RECORDED": {"ErrorCategory.AUTH", "ErrorCategory.BUDGET", "ErrorCategory.CANCELLED"},
    "ray.ray_answers.KEEPER_OPTIONS": {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1},
    "ray.ray_cluster.ACTOR_OPTIONS": {
        "num_cpus": 1,
        "max_restarts": 0,
        "max_task_retries": 0,
        "max_concurrency": 2,
        "scheduling_strategy": "SPREAD",
        "enable_task_events": False,
    },
    "ray.ray_rates.RATE_OPTIONS": {
        "num_cpus": 0,
        "max_restarts": -1,
        "max_task_retries": 0,
        "enable_task_events": False,
    },
    "ray.rows.ERROR": "error",
    "ray.rows.FINISH_REASON": "finish_reason",
    "ray.rows.ID": "id",
    "ray.rows.MESSAGES": "messages",
    "ray.rows.PROMPT": "prompt",
    "ray.rows.TEXT": "text",
    "ray.rows.USAGE": "usage",
    "ray.rows.USAGE_MEMBERS": (
        "input_tokens",
        "output_tokens",
        "thinking_tokens",
        "cached_tokens",
        "cache_write_tokens",
        "total_tokens",
    ),
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
    "client_transport._OUTER": (b"\n ", b"\n\t", b" \n", b"\t\n"),
    "client_transport._SPECIAL": {b"connection", b"content-length", b"host", b"transfer-encoding", b"upgrade"},
}
"""Module and name of a table → its whole content."""


@pytest.mark.parametrize("place", TABLES)
def test_a_table_has_these_words_and_no_others(place: str) -> None:
    assert table(place) == TABLES[place]


METRICS: dict[str, list[tuple[str, str, str, bool]]] = {
    "SCOPE_METRICS": [
        ("manystream.traffic.waiting", "{call}", "Calls that wait.", False),
        ("manystream.traffic.running", "{call}", "Calls sent and not ended.", False),
        ("manystream.traffic.window", "{call}", "Most unconfirmed calls.", False),
        ("manystream.traffic.concurrent", "{call}", "Most running calls.", False),
        ("manystream.traffic.held", "s", "Time until the pause ends.", False),
        ("manystream.traffic.sent", "{request}", "Requests sent.", True),
        ("manystream.traffic.refused", "{request}", "Refused.", True),
    ],
    "LIMIT_METRICS": [
        ("manystream.traffic.limit.rate", "", "What may be sent per second.", False),
        ("manystream.traffic.limit.level", "", "What may be sent now.", False),
    ],
    "ROUTE_METRICS": [
        ("manystream.route.waiting", "{call}", "Calls that wait for a target.", False),
        ("manystream.route.hedged", "{call}", "Calls sent twice.", True),
    ],
    "TARGET_METRICS": [
        ("manystream.route.outstanding", "{call}", "Calls under way.", False),
        ("manystream.route.sessions", "{session}", "Sessions bound to it.", False),
        ("manystream.route.open", "1", "1: it gets no call.", False),
        ("manystream.route.score", "s", "Time that a call is expected to take.", False),
        ("manystream.route.first_event", "s", "Smoothed time to the first event.", False),
        ("manystream.route.failures", "1", "Smoothed share of failures.", False),
    ],
    "BUDGET_METRICS": [("manystream.budget.waiting", "{call}", "Calls that wait for it.", False)],
    "AMOUNT_METRICS": [
        ("manystream.budget.spent", "", "Used by ended calls, in this window.", False),
        ("manystream.budget.reserved", "", "Reserved by calls under way.", False),
        ("manystream.budget.limit", "", "Allowed in a window.", False),
    ],
}
"""Name of a table → name, unit and description of each metric, and whether it only grows."""


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_of_traffic_keeps_its_name_and_unit(name: str) -> None:
    metrics: list[Metric[Any]] = [*getattr(otel_traffic, name)]
    assert [(each.name, each.unit, each.description, each.grows) for each in metrics] == METRICS[name]
