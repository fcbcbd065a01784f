"""Answers in the form of another API than the one that was asked for.

They come from a base URL that belongs to the other API, and from gateways that pass an answer on as it is. Nothing in
them is read, and no further attempt brings another form.
"""

from __future__ import annotations

from ..json.json_values import JSON, MalformedJSONError, loads, shown
from ..model.provider_error import ProviderError, malformed
from .registry import ROWS


def foreign_answer(value: JSON, dialect: str, data: bytes) -> ProviderError | None:
    """Return the error for an answer, or an event of one, in the form of another API than the dialect's; or None.

    value: the answer. None: it is parsed from `data`.
    """
    if value is None:
        try:
            value = loads(data)
        except MalformedJSONError:
            return None
    own = ROWS.get(dialect)
    if type(value) is not dict or own is None or own.is_form_of is None:  # it may have any form
        return None
    for name, row in ROWS.items():
        if row.is_form_of is not None and row.is_form_of(value):
            return None if name == dialect else _error(row.api, f"{row.provider} reads it", data)
    if type(value.get("done")) is bool and ("message" in value or "response" in value):
        return _error("Ollama's own API", "OpenAIChat reads what Ollama sends below /v1", data)
    return None


def _error(api: str, reader: str, data: bytes) -> ProviderError:
    return malformed(f"the answer has the form of another API, {api} ({reader}): {shown(data)}", data)
