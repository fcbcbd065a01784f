"""Find the differences of two outcomes, and the faults in the record of one call."""

from __future__ import annotations

from dataclasses import dataclass

import manystream as ms

from .corpus import Case
from .exchange import CallRecord, without_made_ids
from .outcome import Call, Failure, Outcome

SHOWN = 90


@dataclass(slots=True, frozen=True)
class Difference:
    """One member on which we and the reference differ."""

    case: Case
    member: str
    ours: object
    reference: object

    def __str__(self) -> str:
        return f"{self.member}: ours {shown(self.ours)}, reference {shown(self.reference)}"


def shown(value: object) -> str:
    """Return a value as text: its beginning and its end if it is long."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN * 2 // 3]}…{text[-SHOWN // 3 :]}"


def differences(case: Case, ours: Outcome, reference: Outcome) -> list[Difference]:
    """Return the members in which the two outcomes differ."""
    found: list[Difference] = []

    def compare(member: str, mine: object, theirs: object) -> None:
        if mine != theirs:
            found.append(Difference(case, member, mine, theirs))

    compare("text", ours.text, reference.text)
    compare("thinking", ours.thinking, reference.thinking)
    compare("signatures", ours.signatures, reference.signatures)
    compare("redacted", ours.redacted, reference.redacted)
    compare("tool calls", _calls(ours.calls), _calls(reference.calls))
    compare("finish reason", ours.finish_reason, reference.finish_reason)
    compare("usage", _without_nulls(ours.usage), _without_nulls(reference.usage))
    compare("model", ours.model, reference.model)
    compare("refusal", ours.refusal, reference.refusal)
    if ours.error is not None and reference.error is not None:
        found.extend(_error_differences(case, ours.error, reference.error))
    else:
        compare("error", ours.error, reference.error)
    return found


def _calls(calls: list[Call]) -> list[tuple[str | None, str, ms.JSON]]:
    return [(call.id, call.name, call.arguments) for call in calls]


def _without_nulls(usage: ms.JSON) -> ms.JSON:
    """Remove the null members: null and absent mean the same, and the reference keeps both forms."""
    if isinstance(usage, dict):
        return {key: _without_nulls(value) for key, value in usage.items() if value is not None}
    return usage


def _error_differences(case: Case, ours: Failure, reference: Failure) -> list[Difference]:
    found: list[Difference] = []
    if reference.category is not None and ours.category != reference.category:
        found.append(Difference(case, "error category", ours.category, reference.category))
    if reference.code is not None and ours.code != reference.code:
        found.append(Difference(case, "error code", ours.code, reference.code))
    if reference.message is not None and not _holds(ours.message or "", reference.message):
        found.append(Difference(case, "error message", ours.message, reference.message))
    return found


def _holds(message: str, sentence: str) -> bool:
    """Return whether our message contains the provider's sentence, without regard to white space and truncation."""
    message, sentence = " ".join(message.split()), " ".join(sentence.split())
    return sentence in message or (message.endswith("…") and message[:-1] in sentence)


def faults(record: CallRecord, whole: CallRecord) -> list[str]:
    """Return the faults in the record of one call that do not depend on the reference.

    They are logged defects, a wrong number of completions, contradictions, and differences from the same body sent in
    one piece.
    """
    found = list(record.defects)
    if record.completions != 1 or record.completion is None:
        return [*found, f"{record.completions} completions"]
    completion = record.completion
    if completion.success == (completion.error is not None):
        found.append("success and error contradict each other")
    if record.case.stream:
        found.extend(_stream_faults(record, completion))
    if record is not whole and _comparable_record(record) != _comparable_record(whole):
        found.append(f"cut {record.cut.name!r} delivers something else than the whole body")
    return found


def _comparable_record(record: CallRecord) -> tuple[object, ...]:
    events, response = without_made_ids(record)
    assert record.completion is not None
    return (
        events, response, record.completion.error, record.completion.http_status,
        record.completion.headers.keys() - FRAMING,
    )  # fmt: skip


FRAMING = {"content-length", "transfer-encoding"}


def _stream_faults(record: CallRecord, completion: ms.Completion) -> list[str]:
    terminal = [event for event in record.events if isinstance(event, ms.Done | ms.ErrorEvent)]
    if len(terminal) != 1 or record.events[-1] is not terminal[0]:
        return [f"{len(terminal)} terminal events"]
    if isinstance(terminal[0], ms.Done) != completion.success:
        return ["the terminal event and the completion contradict each other"]
    return []


def events_disagree(record: CallRecord) -> list[str]:
    """Return the blocks whose deltas do not add up to the content of the response."""
    completion = record.completion
    if not record.case.stream or completion is None or completion.response is None:
        return []
    pieces: dict[int, list[str]] = {}
    for event in record.events:
        if isinstance(event, ms.TextDelta | ms.ThinkingDelta):
            pieces.setdefault(event.index, []).append(event.text)
        elif isinstance(event, ms.ToolCallDelta):
            pieces.setdefault(event.index, []).append(event.arguments)
    said = ["".join(told_pieces) for _, told_pieces in sorted(pieces.items())]
    held = [_content(block) for block in completion.response.content]
    return [] if said == [text for text in held if text] else ["the events and the response have different content"]


def _content(block: ms.Block) -> str:
    if isinstance(block, ms.Text | ms.Thinking):
        return block.text
    return block.arguments if isinstance(block, ms.ToolCall) else ""
