"""The words and numbers of the simulator's tables.

Those of servers are copied from their documentation, those of HTTP from RFC 9110. A new word needs a line here.
"""

from __future__ import annotations

import pytest

from manystream.simulator.example_values import QuestionValues
from manystream.simulator.knobs import READERS
from manystream.simulator.schema_example import example
from tests.support.tables import table

TABLES: dict[str, object] = {
    "simulator.anthropic.ERRORS": {
        400: ("invalid_request_error", "The request is invalid."),
        401: ("authentication_error", "invalid x-api-key"),
        402: ("billing_error", "Your credit balance is too low."),
        403: ("permission_error", "Your API key does not have permission to use the specified resource."),
        404: ("not_found_error", "The requested resource could not be found."),
        413: ("request_too_large", "Request exceeds the maximum size"),
        429: ("rate_limit_error", "This request would exceed your organization's rate limit."),
        500: ("api_error", "Internal server error"),
        504: ("timeout_error", "Request timed out"),
        529: ("overloaded_error", "Overloaded"),
    },
    "simulator.gemini.STATUS": {
        400: ("INVALID_ARGUMENT", "Request contains an invalid argument."),
        401: ("UNAUTHENTICATED", "Request had invalid authentication credentials."),
        403: ("PERMISSION_DENIED", "The caller does not have permission"),
        404: ("NOT_FOUND", "The model is not found for API version v1beta, or is not supported for generateContent."),
        429: ("RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan and billing details."),
        500: ("INTERNAL", "An internal error has occurred."),
        503: ("UNAVAILABLE", "The model is overloaded. Please try again later."),
        504: ("DEADLINE_EXCEEDED", "Deadline expired before operation could complete."),
    },
    "simulator.openai_chat.ERRORS": {
        400: ("invalid_request_error", None, "The request is invalid."),
        401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
        403: ("invalid_request_error", "unsupported_country_region_territory", "Access denied."),
        404: ("invalid_request_error", "model_not_found", "The model does not exist or you do not have access to it."),
        429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests."),
        500: ("server_error", None, "The server had an error while processing your request. Sorry about that!"),
        503: ("server_error", None, "The engine is currently overloaded, please try again later."),
    },
    "simulator.program.REASONS": {
        200: "OK",
        400: "Bad Request",
        401: "Unauthorized",
        402: "Payment Required",
        403: "Forbidden",
        404: "Not Found",
        405: "Method Not Allowed",
        408: "Request Timeout",
        409: "Conflict",
        413: "Content Too Large",
        422: "Unprocessable Content",
        429: "Too Many Requests",
        431: "Request Header Fields Too Large",
        500: "Internal Server Error",
        501: "Not Implemented",
        502: "Bad Gateway",
        503: "Service Unavailable",
        504: "Gateway Timeout",
        529: "Site Overloaded",
    },
    "simulator.scenario.INVENTED_TOOLS": (
        ("get_weather", {"type": "object", "properties": {"city": {"type": "string"}}}),
        ("search", {"type": "object", "properties": {"query": {"type": "string"}}}),
    ),
    "simulator.anthropic.STOP_REASON": {
        "stop": "end_turn",
        "length": "max_tokens",
        "tool_use": "tool_use",
        "content_filter": "refusal",
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
    "simulator.limits.refusals._WINDOWS": {1.0: "second", 60.0: "minute", 86400.0: "day"},
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
    "simulator.server.READ": 1,
    "simulator.server.WRITE": 2,
    "simulator.service.GEMINI_METHODS": (":generateContent", ":streamGenerateContent"),
    "simulator.service.BASE_PATHS": {"openai-chat": "/v1", "openai-responses": "/v1", "anthropic": "", "gemini": ""},
    "simulator.wire.JSON_MODE": {"type": "object", "properties": {"answer": {"type": "string"}}},
    "simulator.openai_responses.SUMMARY_EVENT": "response.reasoning_summary_text.delta",
    "simulator.openai_responses.TEXT_EVENT": "response.output_text.delta",
}
"""Module and name of a table → its whole content."""


@pytest.mark.parametrize("place", TABLES)
def test_a_table_has_these_words_and_no_others(place: str) -> None:
    assert table(place) == TABLES[place]


# --- values of arguments ---

TEXTS: dict[str, str] = {
    "address": "1 Example Street",
    "author": "Ada Lovelace",
    "code": "print(1)",
    "command": "ls",
    "content": "An example.",
    "country": "Italy",
    "currency": "EUR",
    "date": "2024-05-17",
    "day": "Friday",
    "email": "ada@example.org",
    "end": "2024-05-18",
    "file": "notes.txt",
    "filename": "notes.txt",
    "id": "example-1",
    "key": "example",
    "lang": "en",
    "language": "en",
    "month": "May",
    "name": "Ada Lovelace",
    "path": "notes.txt",
    "phone": "+44 20 7946 0000",
    "start": "2024-05-17",
    "time": "12:30",
    "timezone": "UTC",
    "unit": "celsius",
    "units": "celsius",
    "url": "https://example.org/",
}
"""Last word of a property's name → its text."""

FIXED_NUMBERS: dict[str, float] = {
    "hour": 12,
    "lat": 41.9,
    "latitude": 41.9,
    "lng": 12.5,
    "lon": 12.5,
    "longitude": 12.5,
    "minute": 30,
    "month": 5,
    "year": 2024,
}
"""Last word of a property's name → its number, whatever number the question mentions."""

NUMBERS: dict[str, float] = {
    "age": 36,
    "amount": 19.5,
    "limit": 10,
    "page": 1,
    "price": 19.5,
    "temperature": 21.5,
    "total": 19.5,
}
"""Last word of a property's name → its number, where the question mentions none."""

FORMATS: dict[str, str] = {
    "date": "2024-05-17",
    "date-time": "2024-05-17T12:30:00Z",
    "time": "12:30:00Z",
    "email": "ada@example.org",
    "uri": "https://example.org/",
    "uuid": "0b6f0a52-6c1e-4c5e-9d57-5a0b1c2d3e4f",
    "ipv4": "192.0.2.1",
}
"""Format of a text → an example of it."""


def value(name: str, schema: dict[str, object], question: str) -> object:
    whole = {"type": "object", "properties": {name: schema}}
    return example(whole, QuestionValues(question))[name]  # type: ignore[arg-type, call-overload, index]


def test_a_property_gets_the_text_that_its_name_suggests() -> None:
    for name, text in TEXTS.items():
        assert value(name, {"type": "string"}, "Hello") == text
        assert value(f"my_{name}", {"type": "string"}, "Hello") == text


def test_a_property_gets_the_number_that_its_name_suggests() -> None:
    for name, number in FIXED_NUMBERS.items():
        assert value(name, {"type": "number"}, "Buy 7 apples.") == number
    for name, number in NUMBERS.items():
        assert value(name, {"type": "number"}, "Hello") == number
        assert value(name, {"type": "number"}, "Buy 7 apples.") == 7


def test_a_text_with_a_format_has_that_format() -> None:
    for name, text in FORMATS.items():
        assert value("x", {"type": "string", "format": name}, "Hello") == text
    assert value("x", {"type": "string", "format": "regex"}, "Hello") == "streamed answers"


def test_the_places_that_a_question_does_not_name() -> None:
    places = [QuestionValues("Hello", position).text("city") for position in range(6)]
    assert places == ["Rome", "Zürich", "Łódź", "Lyon", "Porto", "Rome"]


PLACES: dict[str, tuple[str, str]] = {
    "cities": ("at Lyon", "Lyon"),
    "city": ("near Lyon", "Lyon"),
    "location": ("in Lyon", "Lyon"),
    "place": ("for Lyon", "Lyon"),
    "town": ("to Lyon", "Lyon"),
    "origin": ("to Lyon from Porto", "Porto"),
    "destination": ("from Lyon to Porto", "Porto"),
}
"""Last word of a property's name → words of a question, and the place in them that belongs to the property."""


@pytest.mark.parametrize("name", PLACES)
def test_a_property_gets_the_place_that_the_question_names(name: str) -> None:
    words, place = PLACES[name]
    assert value(name, {"type": "string"}, f"The way {words}") == place
    assert value(name, {"type": "string"}, "Hello") == "Rome"


# --- knobs ---

BOUNDS: dict[str, tuple[list[str], list[str]]] = {
    "kind": (["text", "thinking", "tools", "mixed"], ["", "tool"]),
    "text": (["sentences", "unicode"], ["words"]),
    "events": (["0", "1000000"], ["-1", "1000001", "1.5"]),
    "calls": (["0", "1000"], ["-1", "1001"]),
    "steps": (["0", "1000"], ["-1", "1001"]),
    "finish": (["stop", "length", "content_filter"], ["tool_use"]),
    "cached": (["0", "1000000000"], ["-1", "1000000001"]),
    "redacted": (["1", "true", "yes", "0", "false", "no"], ["2"]),
    "seed": (["0", "9223372036854775807"], ["-1", "9223372036854775808"]),
    "stamp": (["1", "0", "TRUE"], ["on"]),
    "rate": (["0", "1000000"], ["-0.1", "1000000.1", "nan"]),
    "delay": (["0", "3600"], ["-0.1", "3600.1"]),
    "chunk": (["0", "1048576"], ["-1", "1048577"]),
    "ping": (["0", "3600"], ["-0.1", "3600.1"]),
    "fail": (["400", "599"], ["399", "600"]),
    "retry_after": (["0", "86400"], ["-0.1", "86400.1"]),
    "code": (["rate_limit_exceeded"], []),
    "drop": (["1", "0"], ["-1"]),
    "cut": (["-1000000", "1000000"], ["-1000001", "1000001"]),
    "reset": (["-1000000", "1000000"], ["-1000001", "1000001"]),
    "truncate": (["-1000000", "1000000"], ["-1000001", "1000001"]),
    "stall": (["-1000000", "1000000"], ["-1000001", "1000001"]),
    "malformed": (["-1000000", "1000000"], ["-1000001", "1000001"]),
    "error": (["-1000000", "1000000"], ["-1000001", "1000001"]),
    "error_status": (["400", "599"], ["399", "600"]),
    "times": (["0", "1000000"], ["-1", "1000001"]),
    "key": (["run-1"], []),
}
"""Knob → texts that it accepts, and texts that it refuses."""


def test_each_knob_has_these_bounds() -> None:
    assert list(READERS) == list(BOUNDS)
    for name, (accepted, refused) in BOUNDS.items():
        read, _ = READERS[name]
        for text in accepted:
            read(text)
        for text in refused:
            with pytest.raises((ValueError, KeyError)):
                read(text)


SWITCHES = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def test_a_switch_is_one_of_six_words() -> None:
    assert {text: READERS["drop"][0](text) for text in SWITCHES} == SWITCHES
