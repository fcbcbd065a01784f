"""Known equivalents of `engine`, but not of its traffic control: see `row.py`."""

from __future__ import annotations

from tests.mutants.equivalents.row import Equivalent

_ESCAPES = {
    "json": r'''r"\\{1,8}+(?:(?:u00|x)(?P<json>[0-9A-Fa-f]{2}))?|%(?:25){0,3}(?P<url>[0-9A-Fa-f]{2})"''',
    "url": r'''r"\\{1,8}+(?:(?:u00|x)(?P<json>[0-9A-Fa-f]{2}))?|%(?:25){0,3}(?P<url>[0-9A-Fa-f]{2})"''',
    "hex": r'''r"|&(?:#0{0,4}(?P<decimal>[0-9]{2,3})(?![0-9])|#[xX]0{0,4}(?P<hex>[0-9A-Fa-f]{2})(?![0-9A-Fa-f])"''',
}

_UNUSED_VALUES = {
    'self._closing = b""  # the bytes after an event\'s data': ('b""', "b'x'"),
    "self._start = b\"\"  # the template's first bytes, behind those before an event's data": ('b""', "b'x'"),
    'self._chunk_end = b""  # its last bytes, before those up to the end of a chunk': ('b""', "b'x'"),
    "self.one_event: bool = False": ("False", "True"),
}
"""First values of a fast path that are replaced before they are read: nothing reads them until a template is known."""

_FIRST_GUESSES = {
    "self._line = 0  # bytes of the latest size line; the next size line mostly has the same length": ("0", "1"),
    "self._line_inside = 0  # the same, for the size line inside an event that is cut across two chunks": ("0", "1"),
    "self._alone = True  # the latest bytes were at most one event, so it is tried first whether the next ones are": (
        "True",
        "False",
    ),
}
"""First guesses of a fast path. A wrong one is corrected in the same read, with the same result."""

_SET_BEFORE_READ = (
    ("engine/journey.py", "Journey", "self._started_at = 0.0  # when that began", "0.0", "1.0"),
    ("engine/journey.py", "Journey", "self._answered = False  # whether its first event came", "False", "True"),
    ("engine/journey.py", "Journey", "self._wanted = 0  # the target for which it waits for a budget", "0", "1"),
    (
        "engine/hedged_journey.py",
        "HedgedJourney",
        "self._pause = 0.0  # seconds until it looks again whether a second attempt can be made",
        "0.0",
        "1.0",
    ),
    (
        "engine/hedged_journey.py",
        "HedgedJourney",
        "self._is_admitted = False  # the second attempt, by its lane",
        "False",
        "True",
    ),
    ("engine/hedged_journey.py", "HedgedJourney", "self._was_beside = False", "False", "True"),
    ("engine/admission.py", "Admission", "self._slot_mark = 0.0", "0.0", "1.0"),
    ("engine/spending.py", "Spending", "self._claimed_at = 0.0", "0.0", "1.0"),
    ("engine/parking.py", "Parking", "self._since = 0.0", "0.0", "1.0"),
)
"""First values that are replaced when the wait or the attempt begins, and are read only after that."""

_ANY_NEGATIVE = (
    ("engine/admission.py", "Admission", "self._began = -1.0  # the time at which the call was started"),
    ("engine/itinerary.py", "Itinerary", "self._input_tokens = -1.0  # unknown until the request was checked"),
)

ROWS: tuple[Equivalent, ...] = (
    *(
        Equivalent(path, f"{name}.__init__", text, before, after, "set when its wait or attempt begins, and read later")
        for path, name, text, before, after in _SET_BEFORE_READ
    ),
    *(
        Equivalent(path, f"{name}.__init__", text, "1.0", "3.0", "any negative number means that it is not known yet")
        for path, name, text in _ANY_NEGATIVE
    ),
    *(
        Equivalent(
            "engine/listener.py",
            "Progress",
            f'{word.upper()} = "{word}"',
            f'"{word}"',
            f"'{word}x'",
            "is never printed",
        )
        for word in ("dialling", "connected", "head")
    ),
    Equivalent("engine/delivery.py", "Stage", "FINISHED = 3", "3", "4", "the last stage; only the order counts"),
    *(
        Equivalent("engine/fast_path.py", "FastPath.__init__", text, *change, "replaced before it is read")
        for text, change in _UNUSED_VALUES.items()
    ),
    *(
        Equivalent("engine/fast_path.py", "FastPath.__init__", text, *change, "a wrong guess is corrected at once")
        for text, change in _FIRST_GUESSES.items()
    ),
    Equivalent(
        "engine/fast_path.py",
        "FastPath._read_several",
        "self._alone = len(matches) < 2",
        "<",
        "<=",
        "decides only which of two ways is tried first for the next bytes; both have the same result",
    ),
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
    Equivalent(
        "engine/monitor.py",
        "_listen",
        'with tempfile.TemporaryDirectory(dir=path.parent, prefix=".m") as folder:',
        '".m"',
        "'.mx'",
        "the folder lives for a moment, and nobody is given its name",
    ),
    Equivalent(
        "engine/prepare.py",
        "_checked_headers",
        '("headers", [("User-Agent", USER_AGENT)]),',
        '"headers"',
        "'headersx'",
        "the name stands in the error of a wrong value, and the library's own value is right",
    ),
    Equivalent(
        "engine/body/stream.py",
        "StreamBody._ended",
        "if len(before) > STEP_EVENTS:",
        ">",
        ">=",
        "exactly `STEP_EVENTS` events are one step, which is delivered at once in both cases",
    ),
)
