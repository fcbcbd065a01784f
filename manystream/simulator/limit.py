"""What a limit is, and how it is written: `server=openai model=gpt-5* requests-per-minute=60`."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase

from .knobs import KnobError, read_options, readers_of
from .server_rules import SERVERS

DEFAULT_BUCKET = 60.0
DAY = 86_400.0
SECONDS = {"second": 1.0, "minute": 60.0, "day": DAY}


@dataclass(slots=True, frozen=True, kw_only=True)
class Limit:
    """A limit of the simulator. All requests that it covers share it, for each key (of Gemini: for each model).

    key: the API keys that it covers; `*` is any text.
    model: the models that it covers; `*` is any text.
    server: the server whose accounting, headers and errors are simulated; by default the one that the request's path
        belongs to.
    requests_per_second, requests_per_minute, requests_per_day: requests.
    tokens_per_minute, tokens_per_day: input and output together.
    input_tokens_per_minute, output_tokens_per_minute: each by itself.
    concurrent: calls at a time.
    bucket: seconds of the rate that a bucket holds.
    by_second: each rate is enforced in every second, too.
    """

    key: str = "*"
    model: str = "*"
    server: str = ""
    requests_per_second: float | None = None
    requests_per_minute: float | None = None
    requests_per_day: float | None = None
    tokens_per_minute: float | None = None
    tokens_per_day: float | None = None
    input_tokens_per_minute: float | None = None
    output_tokens_per_minute: float | None = None
    concurrent: int | None = None
    bucket: float = DEFAULT_BUCKET
    by_second: bool = False

    def __post_init__(self) -> None:
        if self.server and self.server not in SERVERS:
            raise KnobError(f"limit: server={self.server!r}: server is one of {', '.join(SERVERS)}")
        for name in ("bucket", "concurrent", *WINDOWS):
            value = getattr(self, name)
            if value is not None and not (0 < value < math.inf):
                raise KnobError(f"limit: {name}={value}: {name} is a number above 0")

    def covers(self, key: str, model: str) -> bool:
        """Whether a request with this key and model counts against the limit."""
        return fnmatchcase(key, self.key) and fnmatchcase(model, self.model)

    @property
    def text(self) -> str:
        """The limit as `read_limit` reads it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = {name: value for name, value in values.items() if value != DEFAULTS[name]}
        return " ".join(
            f"{name.replace('_', '-')}={int(value) if isinstance(value, bool) else value}"
            for name, value in changed.items()
        )


DEFAULTS = {field.name: field.default for field in fields(Limit)}
WINDOWS = {name: (name.partition("_per_")[0], SECONDS[name.rpartition("_")[2]]) for name in DEFAULTS if "_per_" in name}
"""Option of a limit → the dimension that it limits, and the window in seconds."""


def read_limit(text: str) -> Limit:
    """A limit from text: `name=value` pairs, separated by spaces or commas. Raises `KnobError`."""
    options = read_options("limit", text, readers_of(Limit), called="a limit")
    if not options:
        raise KnobError(f"limit: {text!r} is not a limit; write name=value, with a name of: {', '.join(DEFAULTS)}")
    return Limit(**dict(options))  # type: ignore[arg-type]
