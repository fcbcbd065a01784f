"""Known equivalents of `manystream/simulator`: see `row.py`."""

from __future__ import annotations

from tests.mutants.equivalents.row import Equivalent

ROWS: tuple[Equivalent, ...] = (
    Equivalent(
        "manystream/simulator/schema_example.py",
        "TYPES",
        '"string": _text,',
        '"string"',
        "'stringx'",
        "a type that is not in the table gives a text, too",
    ),
    Equivalent(
        "manystream/simulator/example_values.py",
        "TEXTS",
        '"units": "celsius",',
        '"units"',
        "'unitsx'",
        "a word that is not in the table is looked up without its s, and `unit` has the same text",
    ),
    Equivalent(
        "manystream/simulator/schema_example.py",
        "_type",
        'return "object" if "properties" in schema else "array" if "items" in schema else "string"',
        '"string"',
        "'stringx'",
        "a type that is not in the table gives a text, too",
    ),
    Equivalent(
        "manystream/simulator/http_request.py",
        "RequestReader._expect_body",
        'self.expects_continue = headers.get("expect", "").lower() == "100-continue"',
        '""',
        "'x'",
        "neither is the word that is looked for",
    ),
    Equivalent(
        "manystream/simulator/http_request.py",
        "_parsed_head",
        'connection = headers.get("connection", "").lower()',
        '""',
        "'x'",
        "neither holds a word that is looked for",
    ),
    Equivalent(
        "manystream/simulator/anthropic.py",
        "AnthropicWire.check_headers",
        'if not (headers.get("x-api-key") or headers.get("authorization", "").lower().startswith("bearer ")):',
        '""',
        "'x'",
        "neither begins with the scheme",
    ),
    Equivalent(
        "manystream/simulator/openai_chat.py",
        "check_bearer",
        'scheme, _, key = request.headers.get("authorization", "").partition(" ")',
        '""',
        "'x'",
        "neither is the scheme",
    ),
    Equivalent(
        "manystream/simulator/service.py",
        "_key_of",
        'scheme, _, token = headers.get("authorization", "").partition(" ")',
        '""',
        "'x'",
        "neither is the scheme",
    ),
    Equivalent(
        "manystream/simulator/service.py",
        "Service._program",
        'key = (request.target, request.headers.get(HEADER, ""), request.body, request.keep_alive)',
        '""',
        "'x'",
        "the cache's key for a request without the header; a header with that text is an error, which is not cached",
    ),
    Equivalent(
        "manystream/simulator/limits/limiter.py",
        "_buckets",
        "if limit.by_second and window > 1.0:",
        ">",
        ">=",
        "the second bucket of a limit by the second holds at least as much as the first, refills as fast and is charged"
        " the same, so it refuses nothing that the first accepts",
    ),
    *(
        Equivalent(
            "manystream/simulator/connection.py",
            "Connection.__init__",
            f"self.{name}: {kind} = {before}",
            before,
            after,
            "set by `start` before it is read",
        )
        for name, kind, before, after in (
            ("position", "int", "0", "1"),
            ("end", "int", "0", "1"),
            ("interval", "float", "0.0", "1.0"),
            ("due", "float", "0.0", "1.0"),
        )
    ),
)
