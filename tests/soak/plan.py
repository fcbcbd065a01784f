"""The plan of each stream of a soak, computed from its number: both processes compute it without communication."""

from __future__ import annotations

import enum
import json
import random
from dataclasses import dataclass
from functools import cached_property, lru_cache

SEED = 20_260_101
MARK = "soak-"
"""The text before the number in a request."""

DIALECTS = ("chat", "responses", "anthropic", "gemini", "interactions")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Fault(enum.Enum):
    """The fault of a response."""

    NONE = "none"
    DRIBBLE = "dribble"
    CUT = "cut"
    RESET = "reset"
    STALL = "stall"
    CORRUPT = "corrupt"
    CANCEL = "cancel"
    RAISE = "raise"


WEIGHTS = {
    Fault.NONE: 40, Fault.DRIBBLE: 10, Fault.CUT: 12, Fault.RESET: 12, Fault.STALL: 2, Fault.CORRUPT: 8,
    Fault.CANCEL: 8, Fault.RAISE: 4,
}  # fmt: skip
"""CANCEL and RAISE happen in the caller, the other faults in the proxy."""


def _frame(payload: object, name: str = "") -> str:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(payload)}\n\n"


def _typed(kind: str, **members: object) -> str:
    return _frame({"type": kind, **members}, kind)


def _chat(words: list[str]) -> list[tuple[str, str]]:
    def chunk(delta: dict[str, str], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _frame({"id": "c", "model": "m", "choices": [choice]})

    events = [(chunk({"content": word}), word) for word in words]
    return [*events, (chunk({}, "stop"), ""), ("data: [DONE]\n\n", "")]


def _responses(words: list[str]) -> list[tuple[str, str]]:
    part = {"type": "output_text", "text": "".join(words)}
    item = {"type": "message", "id": "m1", "role": "assistant", "content": [part]}
    response = {"id": "r1", "model": "m", "status": "completed", "output": [item]}
    created = {**response, "status": "in_progress", "output": []}
    place = {"output_index": 0, "content_index": 0, "item_id": "m1"}
    return [
        (_typed("response.created", response=created), ""),
        (_typed("response.output_item.added", output_index=0, item={**item, "content": []}), ""),
        *((_typed("response.output_text.delta", **place, delta=word), word) for word in words),
        (_typed("response.completed", response=response), ""),
    ]


def _anthropic(words: list[str]) -> list[tuple[str, str]]:
    message = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": {}}
    return [
        (_typed("message_start", message=message), ""),
        (_typed("content_block_start", index=0, content_block={"type": "text", "text": ""}), ""),
        *((_typed("content_block_delta", index=0, delta={"type": "text_delta", "text": word}), word) for word in words),
        (_typed("content_block_stop", index=0), ""),
        (_typed("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 1}), ""),
        (_typed("message_stop"), ""),
    ]


def _gemini(words: list[str]) -> list[tuple[str, str]]:
    def chunk(text: str, **members: str) -> str:
        content = {"role": "model", "parts": [{"text": text}]}
        return _frame({"candidates": [{"index": 0, "content": content, **members}]})

    return [*((chunk(word), word) for word in words), (chunk("", finishReason="STOP"), "")]


def _interactions(words: list[str]) -> list[tuple[str, str]]:
    def event(kind: str, **members: object) -> str:
        return _frame({**members, "event_type": kind}, kind)

    interaction = {"id": "v1_1", "object": "interaction", "model": "m"}
    return [
        (event("interaction.created", interaction={**interaction, "status": "in_progress"}), ""),
        (event("step.start", index=0, step={"type": "model_output"}), ""),
        *((event("step.delta", index=0, delta={"text": word, "type": "text"}), word) for word in words),
        (event("step.stop", index=0), ""),
        (event("interaction.completed", interaction={**interaction, "status": "completed"}), ""),
    ]


WRITERS = {
    "chat": _chat, "responses": _responses, "anthropic": _anthropic, "gemini": _gemini, "interactions": _interactions,
}  # fmt: skip
"""Dialect → a function that returns its events, each with the text that it adds."""


@dataclass(frozen=True)
class Plan:
    """The plan of one stream.

    at: the byte of the response at which a fault of the proxy happens.
    until: the number of texts after which a fault of the caller happens.
    seconds: the time in which the server sends the response, at an even pace.
    """

    number: int
    dialect: str
    words: tuple[str, ...]
    fault: Fault
    share: float
    seconds: float

    @property
    def text(self) -> str:
        return "".join(self.words)

    @cached_property
    def frames(self) -> list[tuple[str, str]]:
        return WRITERS[self.dialect](list(self.words))

    @cached_property
    def wire(self) -> bytes:
        """The whole response."""
        bodies = (frame.encode() for frame, _ in self.frames)
        return HEAD + b"".join(b"%x\r\n%b\r\n" % (len(body), body) for body in bodies) + b"0\r\n\r\n"

    @property
    def at(self) -> int:
        return int(self.share * len(self.wire))

    @property
    def until(self) -> int:
        return int(self.share * len(self.words))

    def text_bounds(self, sent: int) -> tuple[str, str]:
        """Return the least and the most text that can be delivered from the first `sent` bytes.

        An event without its blank line may be delivered if its JSON is complete.
        """
        place = len(HEAD)
        least = most = ""
        for frame, text in self.frames:
            size = len(frame.encode())
            start = place + len(b"%x\r\n" % size)
            if start + size <= sent:
                least += text
            if start + size - 2 <= sent:
                most += text
            place = start + size + 2
        return least, most

    def is_whole(self, sent: int) -> bool:
        """Return whether the first `sent` bytes contain the event that ends the answer.

        For Chat servers other than OpenAI's, the finish reason is enough; Gemini has no other end.
        """
        behind = sum(len(frame.encode()) + len(b"%x\r\n\r\n" % len(frame)) for frame, _ in self.frames[self._last :])
        end = len(self.wire) - len(b"0\r\n\r\n") - behind
        return sent >= end - len(b"\n\n\r\n")  # complete JSON counts, even without its blank line and its chunk's end

    @property
    def _last(self) -> int:
        """The index after the event that ends the answer."""
        return len(self.frames) - (self.dialect == "chat")


@lru_cache(maxsize=1024)
def plan(number: int) -> Plan:
    """Return the plan of one number. It is the same in every process."""
    chance = random.Random(SEED + number)
    fault = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    words = tuple(f"{number}:{place} " for place in range(chance.randint(1, 60)))
    return Plan(number, DIALECTS[number % len(DIALECTS)], words, fault, chance.random(), chance.uniform(0.5, 5.0))
