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
    Equivalent(
        "manystream/simulator/http_request.py",
        "RequestReader._read_head",
        "end = self._buffer.find(_BLANK_LINE, max(0, self._searched - 3))",
        "0",
        "1",
        "no blank line is at the start: it was skipped before",
    ),
    *(
        Equivalent("manystream/simulator/http_request.py", f"RequestReader.{scope}", text, "0", "1", reason)
        for scope, text, reason in (
            ("__init__", "self._searched = 0", "up to three bytes are searched again"),
            ("_read_head", "self._searched = 0", "up to three bytes are searched again"),
            ("__init__", "self._length = 0", "set by `_expect_body` before it is read; chunks do not need it"),
            (
                "next_request",
                "self._request, self._chunks, self._length = None, None, 0",
                "set by `_expect_body` before it is read; chunks do not need it",
            ),
        )
    ),
    *(
        Equivalent("manystream/simulator/http_request.py", f"RequestReader.{scope}", text, "<", "<=", reason)
        for scope, text, reason in (
            (
                "_read_head",
                "if end > HEAD_LIMIT or (end < 0 and len(self._buffer) > HEAD_LIMIT):",
                "no blank line is at the start: it was skipped before",
            ),
            ("_read_head", "if end < 0:", "no blank line is at the start: it was skipped before"),
            ("_read_trailers", "if end < 0:", "the blank line is behind the size, which has a digit at least"),
        )
    ),
    Equivalent(
        "manystream/simulator/sentences.py",
        "_endless",
        "orders = zip(_endless_order(len(naming), source), _endless_order(len(general), source), strict=False)",
        "False",
        "True",
        "neither series ends",
    ),
    Equivalent(
        "manystream/simulator/service.py",
        "Service._program",
        "failed = Usage(model=prompt.model, input_tokens=0, cached_tokens=0, output_tokens=0, max_tokens=0)",
        "0",
        "1",
        "only the model of a request that failed is read: it counts as one request",
    ),
    Equivalent(
        "manystream/simulator/limits/limiter.py",
        "_excess",
        "return Excess(bucket=None, limit=limit.concurrent, cost=1, wait=1.0, too_large=False, model=usage.model)",
        "1",
        "2",
        "no refusal of a call at a time names the cost",
    ),
    Equivalent(
        "manystream/simulator/limits/bucket.py",
        "Bucket.__init__",
        "self.ends: float = 0.0 if ends is None else ends",
        "0.0",
        "1.0",
        "only read of a bucket without a rate, which is given its end",
    ),
    Equivalent(
        "manystream/simulator/connection.py",
        "Connection.stamped",
        "if last - first == 1:",
        "-",
        "+",
        "a shortcut for one frame: without it, the general case joins the same frame",
    ),
    Equivalent(
        "manystream/simulator/limits/refusals.py",
        "_in_words",
        'return f"{math.ceil(seconds * 1000)}ms" if seconds < 1 else f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"',
        '"."',
        "'.x'",
        "a number has no x",
    ),
)
