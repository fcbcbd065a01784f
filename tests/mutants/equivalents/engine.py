"""Known equivalents of `engine`, but not of its traffic control: see `row.py`."""

from __future__ import annotations

from tests.mutants.equivalents.row import Equivalent

_ESCAPES = {
    "json": r'''r"\\{1,8}+(?:(?:u00|x)(?P<json>[0-9A-Fa-f]{2}))?|%(?:25){0,3}(?P<url>[0-9A-Fa-f]{2})"''',
    "url": r'''r"\\{1,8}+(?:(?:u00|x)(?P<json>[0-9A-Fa-f]{2}))?|%(?:25){0,3}(?P<url>[0-9A-Fa-f]{2})"''',
    "hex": r'''r"|&(?:#0{0,4}(?P<decimal>[0-9]{2,3})(?![0-9])|#[xX]0{0,4}(?P<hex>[0-9A-Fa-f]{2})(?![0-9A-Fa-f])"''',
}

ROWS: tuple[Equivalent, ...] = (
    Equivalent(
        "engine/redaction.py",
        "Redaction.hide_parts",
        "for place in range(len(plain) - size + 1):",
        "-",
        "+",
        "a slice beyond the last place is shorter than the parts, so it is none of them",
    ),
    Equivalent(
        "engine/body/stream.py",
        "StreamBody._take",
        "return False",
        "False",
        "True",
        "no fast path follows either way: a terminal event, and one that is many, leave no template; an attempt that is"
        " over reads no more",
    ),
    *(
        Equivalent(
            "engine/redaction.py",
            "_ESCAPE",
            _ESCAPES[kind],
            kind,
            f"{kind}x",
            "groups of hexadecimal digits need no names",
        )
        for kind in ("json", "url", "hex")
    ),
)
