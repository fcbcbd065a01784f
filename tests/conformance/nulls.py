"""Serialise recorded responses again with the official libraries, which add null members.

`model_dump_json(by_alias=True)` writes null for each member that the response does not have, and orders the members as
in the library's type. A proxy that parses and serialises responses with these libraries sends such bodies. A null
member means the same as an absent one, so both bodies must be read as the same response.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anthropic.types.beta
import pydantic
from anthropic._models import construct_type as anthropic_type
from google.genai.types import GenerateContentResponse
from openai._models import construct_type as openai_type
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response as ResponseObject
from openai.types.responses import ResponseStreamEvent

from manystream.transport.sse import BARE_LINES, SSEParser

from .corpus import Case
from .exchange import provider_for
from .replay import Reading, is_event_stream, read_body

Value: TypeAlias = "Any"
"""A JSON value of these libraries."""

UNREADABLE = (ValueError, TypeError, AttributeError)
"""The exceptions that these libraries, and `json`, raise for a response that they cannot read."""


@dataclass(slots=True)
class NullsReport:
    """The result of the comparison.

    restated: the number of responses that were written with nulls.
    nulls: the number of null members that were added.
    not_read: the responses that their library cannot read.
    faults: the responses that are read differently with nulls.
    """

    restated: int = 0
    nulls: int = 0
    not_read: int = 0
    faults: list[str] = field(default_factory=list[str])


def compare_nulls(cases: Sequence[Case]) -> NullsReport:
    """Read each successful response as recorded and as its library writes it, and compare."""
    report = NullsReport()
    for case in cases:
        if case.status != 200 or case.dialect not in MODELS:
            continue
        try:
            body, nulls = with_nulls(case)
        except UNREADABLE:
            report.not_read += 1
            continue
        report.restated += 1
        report.nulls += nulls
        provider = provider_for(case.dialect, case.server)
        recorded = read_body(case, provider, _events(case.body) if is_event_stream(case) else case.body)
        for member in _differences(recorded, read_body(case, provider, body)):
            report.faults.append(f"{case.dialect} {case.name}: written with nulls, it differs in {member}")
    return report


def with_nulls(case: Case) -> tuple[bytes, int]:
    """Return the body with the null members that the dialect's library writes, and their number.

    Raises one of `UNREADABLE` if the library cannot read the body.
    """
    if not is_event_stream(case):
        value = json.loads(case.body)
        return _written(value, MODELS[case.dialect][1], case)
    pieces: list[bytes] = []
    count = 0
    for name, data in _parsed_events(case.body):
        if data.strip() != b"[DONE]":
            data, added = _written(json.loads(data), MODELS[case.dialect][0], case)
            count += added
        pieces.append(_event(name, data))
    return b"".join(pieces), count


def overlaid(value: Value, written: Value) -> tuple[Value, int]:
    """Return `value` with the null members of `written`, in the order of `written`, and the number of added members.

    Nothing else is copied: the library also adds defaults, and omits members that it does not know.
    """
    if isinstance(value, dict) and isinstance(written, dict):
        merged: dict[str, Value] = {}
        count = 0
        for name, member in written.items():
            if name in value:
                merged[name], added = overlaid(value[name], member)
                count += added
            elif member is None:
                merged[name] = None
                count += 1
        return {**merged, **{name: member for name, member in value.items() if name not in merged}}, count
    if isinstance(value, list) and isinstance(written, list) and len(value) == len(written):
        pairs = [overlaid(*pair) for pair in zip(value, written, strict=True)]
        return [item for item, _ in pairs], sum(added for _, added in pairs)
    return value, 0


def _written(value: Value, model: Value, case: Case) -> tuple[bytes, int]:
    if isinstance(value, list):  # Gemini without `alt=sse`
        pairs = [_written(item, MODELS[case.dialect][0], case) for item in value]
        return b"[" + b",".join(item for item, _ in pairs) + b"]", sum(added for _, added in pairs)
    if not isinstance(value, dict) or "error" in value:
        return json.dumps(value).encode(), 0
    if case.dialect == "gemini":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about finish reasons that the library does not know
            parsed = model.model_validate(copy.deepcopy(value))  # the library changes its argument
    else:
        parsed = (anthropic_type if case.dialect == "anthropic" else openai_type)(value=value, type_=model)
    if not isinstance(parsed, pydantic.BaseModel):
        return json.dumps(value).encode(), 0
    merged, added = overlaid(value, json.loads(parsed.model_dump_json(by_alias=True, warnings=False)))
    return json.dumps(merged).encode(), added


MODELS: dict[str, tuple[Value, Value]] = {
    "openai-chat": (ChatCompletionChunk, ChatCompletion),
    "openai-responses": (ResponseStreamEvent, ResponseObject),
    "anthropic": (anthropic.types.beta.BetaRawMessageStreamEvent, anthropic.types.beta.BetaMessage),
    "gemini": (GenerateContentResponse, GenerateContentResponse),
}
"""Dialect → the library's types of a stream's event and of an unstreamed response.

google-genai writes no null members of interactions.
"""


def _parsed_events(body: bytes) -> list[tuple[str, bytes]]:
    parser = SSEParser()
    events = [*parser.feed(body), *parser.end()]
    if any(name == BARE_LINES for name, _ in events):
        raise ValueError("the body has lines that are no server-sent events")
    return [(name, data) for name, data in events if data.strip()]


def _events(body: bytes) -> bytes:
    """Return only the body's events, so that comments and a missing last blank line make no difference."""
    return b"".join(_event(name, data) for name, data in _parsed_events(body))


def _event(name: str, data: bytes) -> bytes:
    lines = b"".join(b"data: %b\n" % line for line in data.splitlines())
    return (b"event: %b\n" % name.encode() if name else b"") + lines + b"\n"


def _differences(recorded: Reading, restated: Reading) -> list[str]:
    found: list[str] = []
    if _plain(recorded.events) != _plain(restated.events):
        found.append("events")
    if str(recorded.error) != str(restated.error):
        found.append("error")
    one, other = recorded.response, restated.response
    if one is None or other is None:
        return found if one is other else [*found, "response"]
    names = [
        name for name in type(one).__dataclass_fields__ if _plain(getattr(one, name)) != _plain(getattr(other, name))
    ]
    return [*found, *names]


def _plain(value: Value) -> Value:
    """Return a value without its null members, which are part of values that are kept as received."""
    if hasattr(value, "__dataclass_fields__"):
        return type(value).__name__, _plain({name: getattr(value, name) for name in value.__dataclass_fields__})
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items() if member is not None}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return str(value) if isinstance(value, Exception) else value
