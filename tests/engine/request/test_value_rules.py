"""The bounds and words of every field with a range: the last accepted value and the first refused one.

They are those of the documentation. A wrong value that may be a secret is not shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import manystream as ms
from manystream.engine.option_rules import OPTIONS
from manystream.engine.request.value_rules import CERTIFICATE, LIMITS, POOL_LIMITS, TLS
from manystream.providers.catalog.profile_rules import PROFILE, QUIRKS
from manystream.providers.catalog.provider import MADE_OF, PROVIDER
from manystream.providers.model.message_rules import BLOCKS, IMAGE, MARK, MESSAGE
from manystream.providers.model.options import RETRY, TIMEOUTS
from manystream.providers.model.request_rules import REQUEST, THINKING
from manystream.providers.model.rules import Checker

SMALL = 1e-9


def request() -> ms.Request:
    return ms.Request("gpt-5", [ms.Message.user("hello")])


def profile() -> ms.Profile:
    return ms.Profile(name="p", dialect="openai-chat", base_url="http://127.0.0.1/v1", key_variables=("KEY",))


BOUNDS: dict[str, tuple[Checker, Callable[[], object], list[object], list[object]]] = {
    "temperature": (REQUEST, request, [0, 2.5, None], [-SMALL, math.inf, math.nan]),
    "top_p": (REQUEST, request, [0, 1, 0.5, None], [-SMALL, 1 + SMALL]),
    "seed": (REQUEST, request, [-(2**63), 2**63 - 1, 0, None], [-(2**63) - 1, 2**63]),
    "max_output_tokens": (REQUEST, request, [1, None], [-1]),
    "priority": (REQUEST, request, ["interactive", "normal", "batch"], ["", "high"]),
    "tool_choice": (REQUEST, request, ["auto", "none", "required", "search"], [""]),
    "tenant": (REQUEST, request, ["t", None], [""]),
    "session": (REQUEST, request, ["s", None], [""]),
    "tags": (REQUEST, request, [{}, {"a": "b", "n": 1, "x": 0.5, "f": False}, None],
        ["a", [("a", "b")], {"a": None}, {"a": ["b"]}, {1: "b"}, {"a": math.nan}, {"a": math.inf}]),
    "stop": (REQUEST, request, [["a"], []], [[""]]),
    "budget_tokens": (THINKING, ms.ThinkingConfig, [-1, 0, None], [-2]),
    "level": (THINKING, ms.ThinkingConfig, ["none", "low", "med", "high", "medium"], ["max"]),
    "effort": (THINKING, ms.ThinkingConfig, ["xhigh", None], [""]),
    "max_tokens_member": (QUIRKS, ms.Quirks, ["max_tokens", "max_completion_tokens", "by_model"], ["max"]),
    "system_role": (QUIRKS, ms.Quirks, ["system", "developer"], ["user"]),
    "required_tool_choice": (QUIRKS, ms.Quirks, ["required", "any"], ["auto"]),
    "structured_output": (QUIRKS, ms.Quirks, ["json_schema", "json_object"], ["json"]),
    "auth_header": (QUIRKS, ms.Quirks, ["x-key", None], [""]),
    "name": (PROFILE, profile, ["p"], [""]),
    "connect": (TIMEOUTS, ms.Timeouts, [SMALL, math.inf, None], [0, -1, math.nan]),
    "max_attempts": (RETRY, ms.Retry, [1, 100], [0]),
    "base": (RETRY, ms.Retry, [0, 1.5], [-SMALL, math.inf]),
    "cap": (RETRY, ms.Retry, [0, math.inf], [-SMALL]),
    "jitter": (RETRY, ms.Retry, [0, 1.5], [-SMALL, math.inf]),
    "max_hint": (RETRY, ms.Retry, [0, math.inf], [-SMALL]),
    "max_connections": (POOL_LIMITS, ms.PoolLimits, [1], [0]),
    "max_per_origin": (POOL_LIMITS, ms.PoolLimits, [1], [0]),
    "max_idle": (POOL_LIMITS, ms.PoolLimits, [0], [-1]),
    "idle_expiry": (POOL_LIMITS, ms.PoolLimits, [0, math.inf], [-SMALL]),
    "drain_seconds": (POOL_LIMITS, ms.PoolLimits, [0, math.inf], [-SMALL]),
    "max_age": (POOL_LIMITS, ms.PoolLimits, [0, math.inf], [-SMALL]),
    "max_event_bytes": (LIMITS, ms.EngineLimits, [1], [0]),
    "max_response_bytes": (LIMITS, ms.EngineLimits, [1], [0]),
    "max_error_bytes": (LIMITS, ms.EngineLimits, [0], [-1]),
    "max_calls": (LIMITS, ms.EngineLimits, [1], [0]),
    "max_buffered_bytes": (LIMITS, ms.EngineLimits, [1], [0]),
    "max_choices": (LIMITS, ms.EngineLimits, [1], [0]),
    "max_blocks": (LIMITS, ms.EngineLimits, [1], [0]),
    "max_tool_calls": (LIMITS, ms.EngineLimits, [1], [0]),
    "ttl": (MARK, ms.CacheControl, ["5m", "1h", None], ["1d"]),
    "detail": (IMAGE, lambda: ms.Image(url="https://host/a.png"), ["auto", "low", "high", None], ["medium"]),
}  # fmt: skip
"""Field → its rules, a function that makes a value with this field, accepted values, refused values."""


@pytest.mark.parametrize("field", BOUNDS)
def test_a_field_takes_its_bounds_and_nothing_beyond(field: str) -> None:
    checker, make, accepted, refused = BOUNDS[field]
    for value in accepted:
        checker.check(changed(make(), field, value), "it")
    for value in refused:
        with pytest.raises(ms.InvalidRequestError, match=rf"it\.{field}"):
            checker.check(changed(make(), field, value), "it")


def changed(made: Any, field: str, value: object) -> object:
    """Return the object with one field set, as an assignment or a cast can set it."""
    object.__setattr__(made, field, value)
    return made


SECRET_VALUES: list[object] = ["sk-canary-9182736455", b"sk-canary-9182736455", 9182736455]
"""Values of three types. A field that takes one of them refuses the others."""

SECRETS: dict[str, Callable[[object], object]] = {
    "messages": lambda value: REQUEST.check(changed(request(), "messages", value), "it"),
    "metadata": lambda value: REQUEST.check(changed(request(), "metadata", {"user": value}), "it"),
    "extra_headers": lambda value: REQUEST.check(changed(request(), "extra_headers", {"x-key": value}), "it"),
    "content": lambda value: MESSAGE.check(changed(ms.Message.user("x"), "content", value), "it"),
    "result": lambda value: BLOCKS[ms.ToolResult].check(changed(ms.ToolResult("c", "x"), "content", value), "it"),
    "quirks' headers": lambda value: QUIRKS.check(changed(ms.Quirks(), "headers", (("x-key", value),)), "it"),
    "api_key": lambda value: MADE_OF["api_key"].check(value, "it"),
    "base_url when made": lambda value: MADE_OF["base_url"].check(value, "it"),
    "headers when made": lambda value: MADE_OF["headers"].check({"x-key": value}, "it"),
    "base_url": lambda value: PROVIDER.check(changed(ms.OpenAIChat("k"), "base_url", value), "it"),
    "headers": lambda value: PROVIDER.check(changed(ms.OpenAIChat("k"), "headers", {"x-key": value}), "it"),
    "ca_data": lambda value: TLS.check(changed(ms.TLSConfig(), "ca_data", value), "it"),
    "password": lambda value: CERTIFICATE.check(changed(ms.ClientCertificate("c.pem"), "password", value), "it"),
    "providers": lambda value: OPTIONS["providers"].check(value, "it"),
    "proxy": lambda value: OPTIONS["proxy"].check(value, "it"),
}


@pytest.mark.parametrize("place", SECRETS)
def test_a_wrong_value_that_may_be_a_secret_is_not_shown(place: str) -> None:
    errors: list[str] = []
    for value in SECRET_VALUES:
        try:
            SECRETS[place](value)
        except ms.InvalidRequestError as error:
            errors.append(str(error))
    assert errors
    assert not [error for error in errors if "9182736455" in error]


def test_a_provider_s_name_is_not_empty() -> None:
    with pytest.raises(ms.InvalidRequestError, match="not empty"):
        MADE_OF["name"].check("", "it")
    with pytest.raises(ms.InvalidRequestError, match="not empty"):
        PROVIDER.check(changed(ms.OpenAIChat("k"), "name", ""), "it")
