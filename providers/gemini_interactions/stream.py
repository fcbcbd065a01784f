"""The stream machine for the Interactions API.

A stream has `interaction.created`, status updates, then for each step `step.start`, deltas and `step.stop`, then
`interaction.completed`, the terminal marker, with the status and the usage. `error` may come anywhere. The index
identifies a step; indexes need not be in order.

The `event_type` in the data selects the method. If it is missing, the event's name selects it.

`EVENTS` maps each event to its method, `DELTAS` each type of delta. The events of before June 2026, which had contents
in place of steps, have rows as well. A delta that matches the one before does not come here (`delta_template.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..catalog.dialect import MakeId
from ..catalog.json_stream import BlockStream, index_of, object_in
from ..catalog.provider import Provider
from ..gemini.errors import read_error
from ..json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    dumps,
    exactly_object,
    mapping,
    objects,
    required_objects,
    shown,
    string,
)
from ..model.events import ErrorEvent, Event, FinishReason
from ..model.provider_error import ErrorCategory, ProviderError, malformed
from ..wire.accumulate import CUT_SHORT, CallInProgress, ThinkingInProgress
from ..wire.answer_limits import ANSWER_LIMITS, AnswerLimits
from ..wire.delta_template import Path
from ..wire.error_bodies import reported_error
from ..wire.finish_words import reason_of_word
from .steps import (
    CALL,
    MEDIA,
    OUTPUT,
    THOUGHT,
    Opened,
    OutputInProgress,
    StepInProgress,
    StepReader,
    own_steps,
)
from .usage import read_usage

COMPLETED = "completed"

FINISH_REASONS: dict[str, FinishReason] = {
    COMPLETED: FinishReason.STOP,
    "requires_action": FinishReason.TOOL_USE,
    "incomplete": FinishReason.LENGTH,
    # The limit of one request, not of the model. `continuation_token` (in provider_data) requests the rest.
    "requires_continuation": FinishReason.LENGTH,
    "budget_exceeded": FinishReason.LENGTH,
    "failed": FinishReason.ERROR,
    "cancelled": FinishReason.ABORTED,
}

UNFINISHED = frozenset({"in_progress", "queued", "idle"})
"""Status of an interaction that has not ended. An unstreamed answer has one if it runs in the background."""


def finish_reason(status: str | None) -> FinishReason:
    return reason_of_word(status, FINISH_REASONS)


READ_OR_ECHOED = frozenset(
    {
        "id", "object", "status", "model", "steps", "outputs", "usage", "event_id", "role", "output_text", "input",
        "system_instruction", "tools", "generation_config", "response_format", "response_mime_type",
        "response_modalities", "safety_settings", "labels", "previous_interaction_id", "cached_content",
        "agent_config", "webhook_config", "store", "stream", "background",
    }
)  # fmt: skip
"""Members of an interaction that are read elsewhere or that repeat the request. Others are kept in `provider_data`."""

WITHOUT_NUMBERS = frozenset(
    {"text", "thought_summary", "thought_signature", "arguments_delta", OUTPUT, THOUGHT, "text_annotation_delta"}
)
"""Types of steps and deltas whose numbers need not be exact."""


def is_interaction(value: JSONObject) -> bool:
    """Return whether a body, or an event, is a whole interaction."""
    return value.get("object") == "interaction" or type(value.get("steps") or value.get("outputs")) is list


class InteractionsStream(BlockStream):
    """Converts one stream.

    reader: reads steps into the answer.
    """

    __slots__ = ("reader", "status")

    def __init__(self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> None:
        super().__init__(provider, make_id, limits)
        self.reader: StepReader = StepReader(self.answer, provider.maker, make_id)
        self.status: str | None = None

    # --- input ---

    def take_object(self, event: str, value: JSONObject, data: bytes) -> Sequence[Event]:
        kind = value.get("event_type")
        if type(kind) is not str:
            kind = "interaction" if event not in EVENTS and is_interaction(value) else event
        events = self._dispatch(kind, value, data)
        if len(events) == 1 and kind == "step.delta":
            delta = mapping(value, "delta")
            path = REPEATED.get(string(delta, "type") or "")
            if path is not None and len(delta) == len(mapping(delta, "content") or delta) == PLAIN:
                self.expect_more(event, data, value, path, events[0])
        return events

    def _dispatch(self, kind: str, payload: JSONObject, data: bytes) -> Sequence[Event]:
        handle = EVENTS.get(kind)
        try:
            if handle is not None:
                return handle(self, exactly_object(payload, data) if _may_hold_numbers(payload) else payload)
            if kind == "error" or reported_error(kind, payload) is not None:
                return self.fail(read_error(payload, data))
        except MalformedJSONError as error:
            return self.fail(malformed(f"{kind}: {error} in {shown(data)}", data))
        return ()

    def take_mark(self) -> Sequence[Event]:
        return () if self.status is None or self.status in UNFINISHED else self._finish(self.status)

    def take_end(self) -> Sequence[Event]:
        return self.truncated("truncated stream: it ended without interaction.completed")

    def error_of(self, reported: JSON, data: bytes) -> ProviderError:
        return read_error(reported, data)

    def whole(self, interaction: JSONObject) -> Sequence[Event]:
        """Read an unstreamed answer. Returns its events; the last one is terminal. Raises `MalformedJSONError`."""
        return self.completed({"interaction": interaction})

    # --- events ---

    def created(self, payload: JSONObject) -> Sequence[Event]:
        """Read the interaction as it is at its start: model and id. A resumed stream repeats the event."""
        self._describe(mapping(payload, "interaction"))
        return self.begin()

    def status_update(self, payload: JSONObject) -> Sequence[Event]:
        """Read the status so far. The interaction may be in the event, or its members directly."""
        self._describe(mapping(payload, "interaction") or {"status": payload.get("status")})
        self._count(mapping(payload, "usage"))
        token = string(payload, "continuation_token")
        if token:
            self.answer.provider_data["continuation_token"] = token
        return ()

    def step_start(self, payload: JSONObject) -> Sequence[Event]:
        """Begin the step at an index. A gateway sends a content of the older form with the newer name."""
        if "step" not in payload and "content" in payload:
            return self.content_start(payload)
        index, step = index_of(payload, self.latest + 1), object_in(payload, "step")
        events = self.begin()
        events.extend(self.finish_stopped())
        self._open(index, step, events)
        return events

    def step_delta(self, payload: JSONObject) -> Sequence[Event]:
        """Apply a delta to the step at its index. One of an unknown type in an output is a content of that output."""
        delta, index = object_in(payload, "delta"), index_of(payload, self.latest)
        self._count(mapping(mapping(payload, "metadata"), "total_usage"))
        opened, kind = self.opened.get(index), string(delta, "type")
        if isinstance(opened, StepInProgress):
            opened.apply(delta if self._cut_pairs is None else self._cut_pairs.as_sent(delta))
            return ()
        handle = DELTAS.get(kind or "")
        if handle is not None:
            return handle(self, index, delta)
        if isinstance(opened, OutputInProgress) and kind and not kind.endswith("_delta"):
            return self.output_delta(index, delta)
        return ()

    def step_stop(self, payload: JSONObject) -> Sequence[Event]:
        """End the step at an index. Returns the events for arguments that were not streamed."""
        self._count(mapping(payload, "usage"))
        return self.stop(index_of(payload, self.latest))

    def completed(self, payload: JSONObject) -> Sequence[Event]:
        """Read the interaction as it is at its end. Its steps count if none were streamed."""
        interaction = mapping(payload, "interaction")
        if self.status in UNFINISHED:
            self.status = None
        self._describe(interaction)
        events = self.begin()
        if not self.answer.blocks:
            steps = required_objects(interaction.get("steps"), "steps")
            steps = own_steps(steps or [_as_step(content) for content in objects(interaction, "outputs")])
            self.answer.count.check_items(len(steps))
            try:
                for index, step in enumerate(steps):
                    events.extend(self.finish_stopped())
                    self._open(index, step, events)
                    events.extend(self.step_stop({"index": index}))
            except ProviderError as error:  # beyond a limit; the events before it are delivered
                return [*events, *self.fail(error.with_traceback(None))]
        events.extend(self._finish(self.status or COMPLETED))
        return events

    def interaction(self, payload: JSONObject) -> Sequence[Event]:
        """Read an unstreamed answer in place of events, or of the rest of them: the stream was cut."""
        events: list[Event] = []
        if self.answer.blocks:
            whole = InteractionsStream(self.provider, self.make_id, self.answer.limits)
            whole.whole(payload)
            try:
                self.reader.take_rest(whole.answer, events)
            except ProviderError as error:  # beyond a limit
                return [*events, *self.fail(error.with_traceback(None))]
        return [*events, *self.whole(payload)]

    def content_start(self, payload: JSONObject) -> Sequence[Event]:
        """Begin a content of the older form as a step. A call has no name yet: its delta has all of it."""
        content = object_in(payload, "content")
        if string(content, "type") == CALL and not string(content, "name"):
            return self.begin()
        return self.step_start({**payload, "step": _as_step(content)})

    # --- deltas ---

    def output_delta(self, index: int, delta: JSONObject) -> Sequence[Event]:
        """Append a text or another content to the output at an index, which begins with it if there is none."""
        if string(delta, "type") == "text" and delta.get("text") is not None and string(delta, "text") is None:
            raise MalformedJSONError("a text that is no text")
        events: list[Event] = []
        output = self.opened.get(index)
        if not isinstance(output, OutputInProgress):
            events.extend(self.begin())
            output = OutputInProgress()
            self._put(index, output, events)
        self.reader.content(output, delta, events)
        return events

    def annotations(self, index: int, delta: JSONObject) -> Sequence[Event]:
        """Add annotations to the last text of the output at an index."""
        output = self.opened.get(index)
        self.reader.cite(output if isinstance(output, OutputInProgress) else OutputInProgress(), delta)
        return ()

    def thought_summary(self, index: int, delta: JSONObject) -> Sequence[Event]:
        """Append to the summary of the thought at an index, which begins with it if there is none."""
        content = mapping(delta, "content")
        if content.get("text") is not None and string(content, "text") is None:
            raise MalformedJSONError("a summary that is no text")
        events: list[Event] = []
        thought = self.opened.get(index)
        if not isinstance(thought, ThinkingInProgress):
            events.extend(self.begin())
            thought = self.answer.thinking()
            thought.state = self.reader.maker
            self._put(index, thought, events)
        self.reader.summary(thought, content, events)
        return events

    def signature(self, index: int, delta: JSONObject) -> Sequence[Event]:
        self.reader.sign(self.opened.get(index), string(delta, "signature"))
        return ()

    def arguments(self, index: int, delta: JSONObject) -> Sequence[Event]:
        """Append arguments to the call at an index. Raises `MalformedJSONError` if no call can have them: a call
        without a part of its arguments must not be executed.
        """
        value = delta.get("arguments")
        if value is not None and type(value) is not str:
            raise MalformedJSONError("arguments that are no text")
        opened = self.opened.get(index)
        if not value:
            return ()
        if not isinstance(opened, CallInProgress):
            raise MalformedJSONError(f"arguments for step {index}, which is no call,")
        if opened.call.done and not opened.call.repeats(value):
            raise MalformedJSONError(f"arguments for call {opened.call.id!r}, which has ended,")
        return opened.call.delta(value)

    def whole_call(self, index: int, delta: JSONObject) -> Sequence[Event]:
        """Read a call of the older form, which comes whole."""
        events = self.begin()
        events.extend(self.finish_stopped())
        self._open(index, delta, events)
        return events

    # --- steps ---

    def _describe(self, interaction: JSONObject) -> None:
        """Read the members of an interaction beside its steps. It may lack any of them at its start."""
        answer = self.answer
        answer.model = string(interaction, "model") or answer.model
        answer.id = string(interaction, "id") or answer.id
        self.status = string(interaction, "status") or self.status
        answer.raw_finish_reason = None if self.status in UNFINISHED else self.status
        self._count(mapping(interaction, "usage"))
        for name, value in interaction.items():
            if name not in READ_OR_ECHOED and value is not None and value != {} and value != []:
                answer.provider_data[name] = value

    def _count(self, usage: JSONObject) -> None:
        """Read a usage report. Each has the totals so far."""
        if usage:
            self.answer.usage = read_usage(usage)

    def _open(self, index: int, step: JSONObject, events: list[Event]) -> None:
        opened = self.reader.open(step, events)
        if opened is not None:
            self._put(index, opened, events)

    def _put(self, index: int, opened: Opened, events: list[Event]) -> None:
        self.latest = index
        self.release(index, events)
        self.opened[index] = opened

    def _finish(self, status: str) -> Sequence[Event]:
        events, reason = self.begin(), finish_reason(status)
        for opened in self.opened.values():
            if isinstance(opened, CallInProgress):
                events.extend(opened.settle())
                if reason in CUT_SHORT and not opened.stopped:
                    events.extend(opened.call.finish(complete=False))
        self.ended = True
        failure = _failure(self.answer.provider_data, status) if reason is FinishReason.ERROR else None
        events.extend(self.answer.done(reason, status))
        if failure is not None:
            events[-1] = ErrorEvent(failure)
        return events


EVENTS: dict[str, Callable[[InteractionsStream, JSONObject], Sequence[Event]]] = {
    "interaction.created": InteractionsStream.created,
    "interaction.status_update": InteractionsStream.status_update,
    "interaction.in_progress": InteractionsStream.status_update,
    "interaction.requires_action": InteractionsStream.status_update,
    "step.start": InteractionsStream.step_start,
    "step.delta": InteractionsStream.step_delta,
    "step.stop": InteractionsStream.step_stop,
    "interaction.completed": InteractionsStream.completed,
    "interaction": InteractionsStream.interaction,
    # The form of before June 2026.
    "interaction.start": InteractionsStream.created,
    "content.start": InteractionsStream.content_start,
    "content.delta": InteractionsStream.step_delta,
    "content.stop": InteractionsStream.step_stop,
    "interaction.complete": InteractionsStream.completed,
}
"""Type of an event → its method. `error` needs the event's bytes and is handled before. Unknown types are ignored."""

DELTAS: dict[str, Callable[[InteractionsStream, int, JSONObject], Sequence[Event]]] = {
    "text": InteractionsStream.output_delta,
    **dict.fromkeys(MEDIA, InteractionsStream.output_delta),
    "text_annotation_delta": InteractionsStream.annotations,
    "thought_summary": InteractionsStream.thought_summary,
    "thought_signature": InteractionsStream.signature,
    "arguments_delta": InteractionsStream.arguments,
    CALL: InteractionsStream.whole_call,
}
"""Type of a delta → its method. The deltas of the server's own steps are applied to the step, whatever their type."""

REPEATED: dict[str, Path] = {
    "text": ("delta", "text"),
    "thought_summary": ("delta", "content", "text"),
    "arguments_delta": ("delta", "arguments"),
}
"""Type of a delta → the path to its text, for deltas that contain nothing else."""

PLAIN = 2
"""The number of members of such a delta, and of the content in it: the type and the text."""


def _failure(provider_data: JSONObject, status: str) -> ProviderError:
    """Return the error of a failed interaction: that which it or an output of it has, if any."""
    reported = next(iter(objects(provider_data, "errors")), None) or mapping(provider_data, "error")
    if not reported:
        what = "the interaction failed without a reason"
        return ProviderError(what, category=ErrorCategory.SERVER, http_status=200, provider_code=status)
    failure = read_error(reported, dumps(reported))
    if failure.category is ErrorCategory.UNKNOWN:
        failure.category = ErrorCategory.SERVER
    return failure


def _as_step(content: JSONObject) -> JSONObject:
    """Return a content of the older form as a step: files and texts were no part of a step."""
    if string(content, "type") in ("text", *MEDIA):
        return {"type": OUTPUT, "content": [content]}
    return content


def _may_hold_numbers(payload: JSONObject) -> bool:
    """Return whether an event contains a step or a delta of another type than text: arguments may come whole."""
    found = payload.get("step") or payload.get("delta") or payload.get("content")
    if type(found) is dict:
        return string(found, "type") not in WITHOUT_NUMBERS
    return is_interaction(mapping(payload, "interaction") or payload)
