"""Known equivalents of `providers` that all dialects share: see `row.py`."""

from __future__ import annotations

from tests.mutants.equivalents.row import Equivalent

_TRY_AGAIN = (
    r'r"(?:try again|retry) (?:in|after) ((?:\d+(?:\.\d+)?(?:ms|h|m|s))+|\d+(?:\.\d+)?)'
    r'\s*(seconds?|ms|milliseconds?)?",'
)

ROWS: tuple[Equivalent, ...] = (
    Equivalent(
        "providers/retry_hints.py",
        "retry_after_ms",
        'hint = _bounded(_milliseconds(unrepeated(headers.get("retry-after-ms", ""))))',
        '""',
        "'x'",
        "an absent header and an unreadable one both give no hint",
    ),
    Equivalent(
        "providers/json_values.py",
        "_largest_string",
        """largest, start = (0, 0), data.find(b'"') + 1""",
        "+",
        "-",
        "the first string of an object is a name, never the large one; a bare string is then read by the parser",
    ),
    Equivalent(
        "providers/json_values.py",
        "exactly_object",
        "return exact if type(exact) is dict else value",
        "type(exact) is dict",
        "True",
        "both parsers read an object from the text of an object; the condition is for the type checkers",
    ),
    Equivalent(
        "providers/profiles.py",
        "_address",
        'return "", ""',
        '""',
        "'x'",
        "neither text is the address of a row",
    ),
    Equivalent(
        "providers/error_bodies.py",
        "_TRY_AGAIN",
        _TRY_AGAIN,
        "seconds",
        "secondsx",
        "a number without a unit is one of seconds, too",
    ),
    Equivalent(
        "providers/error_bodies.py",
        "reported_in_text",
        'return reported_error(ERROR if named else "", value)',
        '""',
        "'x'",
        "the event's name is only compared with `error`",
    ),
    Equivalent(
        "providers/error_bodies.py",
        "decode_error",
        'if headers.get("x-should-retry", "").strip().lower() == "false":',
        '""',
        "'x'",
        "the header's value is only compared with `false`",
    ),
    *(
        Equivalent(
            "providers/error_bodies.py",
            "_category",
            "return ErrorCategory.SERVER if facts.status >= 500 else ErrorCategory.UNKNOWN",
            before,
            after,
            "500 itself has a row in the table of statuses, which is read before",
        )
        for before, after in ((">=", ">"), ("500", "501"))
    ),
)
