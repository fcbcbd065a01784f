"""The rows of a data set: what is asked for a row, and what its answer adds to it.

A row has `messages` or `prompt`, and an `id` if there is a journal. It gains `text`, `error`, `usage` and
`finish_reason`, which are read from the record of its answer: the record that a batch writes for a line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from .. import ErrorCategory, InvalidRequestError, ManystreamError, Request
from ..batch.intake import RECORDED_TEXT
from ..batch.lines import USAGE_MEMBERS, LineId
from ..batch.tables import without_nulls
from ..providers.json.json_values import JSONObject, integer, mapping, string

ID, MESSAGES, PROMPT = "id", "messages", "prompt"
TEXT, ERROR, USAGE, FINISH_REASON = "text", "error", "usage", "finish_reason"
GAINED = (TEXT, ERROR, USAGE, FINISH_REASON)
"""The columns that a data set gains."""

LARGEST = 2**63 - 1
"""The largest number that a column of whole numbers holds."""

NO_ID = "is missing; a row needs one where there is a journal, to find its answer in it"

MakeRequest: TypeAlias = Callable[[object], Request]
"""Makes the request of a row's messages or prompt. Raises `InvalidRequestError`."""


class AskError(ManystreamError, RuntimeError):
    """The rows of a data set cannot be asked. The message states the reason and what to do."""


@dataclass(slots=True)
class AskedRow:
    """A row of a block.

    number: the row's position in its block, from 0.
    id: the row's id; empty if it has none and needs none.
    request: what is asked; None if the row cannot be asked.
    record: the record of the row's end; None until it has ended.
    """

    number: int
    id: LineId
    request: Request | None = None
    record: JSONObject | None = None


@dataclass(slots=True, frozen=True)
class Gained:
    """What a row gains, in plain values.

    text: the answer; of a failed call the part that had arrived. None if nothing had arrived.
    error: the members `category`, `message`, `http_status`, `provider_code` and `retryable`; None without an error.
    usage: `USAGE_MEMBERS`; None if the call failed.
    finish_reason: why the model stopped; None if the call failed.
    """

    text: str | None
    error: dict[str, object] | None
    usage: dict[str, object] | None
    finish_reason: str | None


def check_columns(names: Sequence[str], *, needs_id: bool) -> None:
    """Check the names of a table's columns. Raises `AskError`, because each row would fail for the same reason."""
    if MESSAGES not in names and PROMPT not in names:
        raise AskError(f"the rows have neither {MESSAGES!r} nor {PROMPT!r}: {_listed(names)}; rename the column to ask")
    if needs_id and ID not in names:
        raise AskError(f"the rows have no {ID!r}, and the journal needs one to find their answers: {_listed(names)}")
    taken = [name for name in GAINED if name in names]
    if taken:
        raise AskError(
            f"the rows have {' and '.join(map(repr, taken))} already, which answers add: rename or drop the column"
        )


def _listed(names: Sequence[str]) -> str:
    return f"they have {', '.join(map(repr, names))}" if names else "they have no columns"


def read_rows(
    columns: Mapping[str, Sequence[object]], count: int, make_request: MakeRequest, *, needs_id: bool
) -> list[AskedRow]:
    """Return the rows of a block. A row that cannot be asked has a record that states why.

    columns: the values of `id`, `messages` and `prompt`, of those that the table has.
    """
    rows: list[AskedRow] = []
    seen: dict[LineId, int] = {}
    nothing: Sequence[object] = [None] * count
    ids, messages, prompts = (columns.get(name, nothing) for name in (ID, MESSAGES, PROMPT))
    for number in range(count):
        row = AskedRow(number, "")
        rows.append(row)
        try:
            if needs_id:
                row.id = _line_id(ids[number])
                first = seen.setdefault(row.id, number)
                if first != number:
                    raise InvalidRequestError(ID, f"{row.id!r} is used twice in this block, first in row {first}")
            row.request = make_request(_content(messages[number], prompts[number]))
        except InvalidRequestError as error:
            row.record = unsent_record(row.id, str(error))
        except Exception as error:  # a defect that one row triggers must not end the data set
            row.record = unsent_record(row.id, f"cannot be read: {error!r}")
    return rows


def _line_id(value: object) -> LineId:
    """Return a row's id. Raises `InvalidRequestError`."""
    if value is None:
        raise InvalidRequestError(ID, NO_ID)
    if type(value) is int or (type(value) is str and value):
        return value
    raise InvalidRequestError(ID, f"must be text that is not empty, or a whole number, not {type(value).__name__}")


def _content(messages: object, prompt: object) -> object:
    """Return what a row asks, for `Request`. Raises `InvalidRequestError`."""
    if messages is not None and prompt is not None:
        raise InvalidRequestError(MESSAGES, f"and {PROMPT!r} are both given: a row asks one of them")
    if messages is None and isinstance(without_nulls(prompt), list):
        messages = prompt
    if messages is not None:
        found = without_nulls(messages)
        if not isinstance(found, list) or not found:
            given = "an empty list" if found == [] else type(messages).__name__
            raise InvalidRequestError(
                MESSAGES, f"must be a list with at least one message, not {given}; a text is a {PROMPT!r}"
            )
        return cast("object", found)
    if prompt is None:
        raise InvalidRequestError(MESSAGES, f"and {PROMPT!r} are both null: a row asks one of them")
    if not isinstance(prompt, str):
        raise InvalidRequestError(PROMPT, f"must be text, not {type(prompt).__name__}")
    return prompt


def unsent_record(id: LineId, message: str) -> JSONObject:
    """Return the record of a row that was not sent."""
    return {"id": id, "error": {"category": ErrorCategory.INVALID_ARG.value, "message": message[:RECORDED_TEXT]}}


def gained_of(record: JSONObject) -> Gained:
    """Return what a record adds to its row."""
    text = _storable(string(record, TEXT))
    error = record.get(ERROR)
    if type(error) is not dict:
        usage = mapping(record, USAGE)
        counts: dict[str, object] = {name: _whole(usage, name) for name in USAGE_MEMBERS}
        return Gained(text, None, counts, _storable(string(record, FINISH_REASON)))
    reason: dict[str, object] = {
        "category": _storable(string(error, "category")),
        "message": _storable(string(error, "message")),
        "http_status": _whole(error, "http_status"),
        "provider_code": _storable(string(error, "provider_code")),
        "retryable": error.get("retryable") is True,
    }
    return Gained(text, reason, None, None)


def _whole(record: JSONObject, name: str) -> int | None:
    value = integer(record, name)
    return value if value is not None and value <= LARGEST else None


def _storable(text: str | None) -> str | None:
    """Return the text with U+FFFD for lone surrogates, which no column holds."""
    if text is None or text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
