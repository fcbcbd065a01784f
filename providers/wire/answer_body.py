"""The body of an unstreamed answer."""

from __future__ import annotations

from ..json.json_values import JSON, JSONObject, as_object, exact_loads, says_nothing
from ..model.provider_error import no_answer


def answer_loads(body: bytes) -> JSON:
    """Parse the body of an unstreamed answer, with whole numbers of any size.

    Raises `MalformedJSONError`, and `ProviderError` (`no_answer`) for a body that is blank or says nothing.
    """
    value = exact_loads(body) if body.strip() else None
    if says_nothing(value):
        raise no_answer(body)
    return value


def answer_object(body: bytes) -> JSONObject:
    """Parse the body of an unstreamed answer, which must be an object, as `answer_loads` does."""
    return as_object(answer_loads(body), body)
