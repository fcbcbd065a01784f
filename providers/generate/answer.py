"""An answer under construction: converts chunks with choices, or one whole body, to events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from ..catalog.dialect import TakeValue
from ..json.json_values import JSON, JSONObject, integer, mapping, required_objects, string
from ..model.events import Event, TextDelta
from ..model.tokens import Usage
from ..wire.accumulate import Accumulator, TextInProgress
from ..wire.finish_words import reason_of_word
from .wires import COUNTED

CHUNK_MEMBERS = frozenset({"id", "request_id", "object", "created", "model", "choices", "usage", "output_mode"})
CHOICE_MEMBERS = frozenset(
    {
        COUNTED,
        "index",
        "text",
        "token_ids",
        "prompt_token_ids",
        "logprobs",
        "finish_reason",
        "weight_versions",
        "weight_version",
    }
)
"""Members that are read, or mean nothing for the answer. All others with a value are kept in `provider_data`."""

NOTHING: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False, repr=False)
class Choice:
    """One choice of an answer."""

    answer: Accumulator  # its content
    keeps: bool = field(default=True, init=False)  # whether log probabilities are kept as the server sends them
    finish: str | None = field(default=None, init=False)  # its finish reason as received; None before it has come
    _text: TextInProgress | None = field(default=None, init=False)
    _logprobs: dict[str, list[JSON]] | None = field(default=None, init=False)

    def take(self, choice: JSONObject) -> TextDelta | None:
        """Read what is new. Returns its delta, whose text may be empty; None if nothing is new."""
        answer, keeps = self.answer, self.keeps
        tokens = answer.its_tokens()
        text, ids, finish = choice.get("text"), choice.get("token_ids"), choice.get("finish_reason")
        tokens.add_prompt(choice.get("prompt_token_ids"))
        if ids is not None:
            tokens.add_named(ids)
        logprobs = choice.get("logprobs")
        if type(logprobs) is dict:
            tokens.add_logprobs(logprobs)
            if keeps:
                self._keep(logprobs)
        if type(finish) is str and finish:
            self.finish = finish
            tokens.stopped(choice, ("stop_reason",))
        meta = mapping(choice, COUNTED) or mapping(choice, "meta_info")
        if meta:
            tokens.take_meta(meta)
        if choice.get("weight_versions") or choice.get("weight_version"):
            tokens.add_versions(choice.get("weight_versions"), choice.get("weight_version"))
        if not choice.keys() <= CHOICE_MEMBERS:
            for name, value in choice.items():
                if name == "top_logprobs" and type(value) is list:
                    if keeps:
                        self._keep({name: value})
                elif name not in CHOICE_MEMBERS and value:
                    answer.provider_data[name] = value
        delta: TextDelta | None = None
        if type(text) is str and text:
            if self._text is None:
                self._text = answer.text()
            delta = self._text.delta(text)
        elif tokens.waiting:
            delta = TextDelta(0, "")
        return delta

    def take_ids(self, value: JSON, text: bytes) -> None:
        """Take the ids of a chunk that matched the template."""
        self.answer.its_tokens().add_named(value)

    def take_logprobs(self, value: JSON, text: bytes) -> None:
        """Take the log probabilities of a chunk that matched the template."""
        if type(value) is dict:
            self.answer.its_tokens().add_logprobs(value)
            if self.keeps:
                self._keep(value)

    def _keep(self, logprobs: JSONObject) -> None:
        kept = self._logprobs
        if kept is None:
            kept = self._logprobs = {}
            self.answer.provider_data["logprobs"] = cast("JSONObject", kept)
        for name, values in logprobs.items():
            if type(values) is list:
                kept.setdefault(name, []).extend(values)

    def done(self) -> list[Event]:
        """Record the end. Returns the last events."""
        return self.answer.done(reason_of_word(self.finish), self.finish)


class GenerateAnswer:
    """The answer to one request, with all its choices.

    asked, unasked: as in `WireRequest`.
    """

    __slots__ = ("_choices", "_started", "answer", "asked", "unasked")

    def __init__(self, answer: Accumulator) -> None:
        self.answer: Accumulator = answer
        self.asked: frozenset[str] = NOTHING
        self.unasked: frozenset[str] = NOTHING
        self._choices: dict[int, Choice] = {0: Choice(answer)}
        self._started = False

    def take(self, chunk: JSONObject, events: list[Event]) -> None:
        """Read one chunk, or a whole body. Raises `MalformedJSONError` if it has another shape.

        events: gets the events of choice 0, in order.
        """
        answer = self.answer
        answer.model = answer.model or string(chunk, "model") or None
        answer.id = answer.id or string(chunk, "id") or string(chunk, "request_id") or None
        report = mapping(chunk, "usage")
        if report:
            answer.usage = read_usage(report)
        if chunk.get("prompt_token_ids"):
            answer.its_tokens().add_prompt(chunk["prompt_token_ids"])
        for name, value in chunk.items():
            if value and name not in CHUNK_MEMBERS and name != "prompt_token_ids":
                answer.provider_data[name] = value
        choices = required_objects(chunk.get("choices") or [], "choices")
        keeps = "logprobs" not in self.unasked
        for choice in choices:
            index = integer(choice, "index") or 0
            taking = self._choice(index)
            taking.keeps = keeps
            delta = taking.take(choice)
            tokens = taking.answer.tokens
            if tokens is not None and self.asked and delta is not None:
                tokens.attach(delta)
            if index or delta is None or not (delta.text or delta.tokens):
                continue
            if not self._started:
                self._started = True
                events.append(answer.start(answer.model, answer.id))
            events.append(delta)

    def reader(self, member: str) -> TakeValue:
        """Return what reads this member of the chunks of choice 0 that match a template."""
        choice = self._choices[0]
        return choice.take_ids if member == "token_ids" else choice.take_logprobs

    def _choice(self, index: int) -> Choice:
        choice = self._choices.get(index)
        if choice is None:
            count = self.answer.count
            count.check_choices(len(self._choices) + 1)
            choice = self._choices[index] = Choice(Accumulator(count.limits, count))
            self.answer.add_choice(index, choice.answer)
        return choice

    @property
    def finished(self) -> bool:
        """Whether every choice that came has a finish reason."""
        return all(choice.finish is not None for choice in self._choices.values())

    def done(self) -> list[Event]:
        """Read the end of the answer. Returns the last events."""
        events: list[Event] = []
        for index, choice in self._choices.items():
            last = choice.done()
            if not index:
                events = last
        if not self._started:
            self._started = True
            events.insert(0, self.answer.start(self.answer.model, self.answer.id))
        return events


def read_usage(report: JSONObject) -> Usage:
    """Return a server's report as `Usage`. Counts that it does not have are None."""
    prompt, completion = integer(report, "prompt_tokens"), integer(report, "completion_tokens")
    total = integer(report, "total_tokens")
    if total is None and prompt is not None and completion is not None:
        total = prompt + completion
    details = mapping(report, "prompt_tokens_details")
    return Usage(
        input_tokens=prompt,
        output_tokens=completion,
        cached_tokens=integer(details, "cached_tokens"),
        total_tokens=total,
        raw=report,
    )
