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
)
