"""What the calls of a load test ask: prompts of a file or of given lengths, in sessions of one or several turns.

Prompts that are made consist of short common words, each of which is about one token of most models. A server counts
the tokens exactly; its report of input tokens shows the difference.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from .. import Message, Request, Response, Retry, Role, Text
from ..batch.lines import Line, LineError, OneModel, read_item
from ..providers.json.json_values import JSON, MalformedJSONError, loads, objects, string
from ..transport.files import read_file
from .arrivals import LARGEST_LENGTH, Arrival

_WORDS = (
    "the of and to in is you that it he was for on are as with his they at be this have from or one had by word but not"
    " what all were we when your can said there use each which she do how their if will up other about out many then"
    " them these so some her would make like him into time has look two more write go see number no way could people my"
    " than first water been call who oil its now find long down day did get come made may part"
)
WORDS = _WORDS.split(" ")
"""Words that most tokenizers encode as one token each, with the space before it."""
POOL_WORDS = 1 << 16
BLOCK_TOKENS = 512
"""The tokens of one block of a trace with `hash_ids` (Mooncake)."""
USERS = ("human", "user")
"""The names of a user in the conversations of ShareGPT."""

PROMPT = "Describe the rivers of Europe in about 300 words."


class PromptsError(ValueError):
    """A file of prompts that cannot be used. The message names the file and the line."""


@dataclass(slots=True, frozen=True)
class Length:
    """A distribution of lengths in tokens.

    kind: a key of `DISTRIBUTIONS`.
    """

    kind: str
    parameters: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.kind}:{','.join(f'{parameter:g}' for parameter in self.parameters)}"

    def draw(self, numbers: random.Random) -> int:
        """Return a length of at least 1."""
        return max(1, min(LARGEST_LENGTH, round(DISTRIBUTIONS[self.kind][1](numbers, *self.parameters))))


def _fixed(_: random.Random, value: float) -> float:
    return value


DISTRIBUTIONS: Mapping[str, tuple[int, Callable[..., float]]] = {
    "fixed": (1, _fixed),
    "normal": (2, random.Random.gauss),  # mean, standard deviation
    "uniform": (2, random.Random.uniform),
}
"""Name → the number of its parameters, and the function that draws a length. A number alone is `fixed`."""


def read_length(text: str) -> Length:
    """Parse a distribution, such as `128`, `normal:512,128` or `uniform:100,500`. Raises `ValueError`."""
    kind, colon, rest = text.partition(":")
    if not colon:
        kind, rest = "fixed", text
    parameters = tuple(float(number) for number in rest.split(","))
    if kind not in DISTRIBUTIONS or len(parameters) != DISTRIBUTIONS[kind][0]:
        raise ValueError("a length has other parameters")
    if not all(0 <= number <= LARGEST_LENGTH for number in parameters) or not parameters[0]:
        raise ValueError("a length is above 0")
    return Length(kind, parameters)


@dataclass(slots=True, frozen=True)
class WorkPlan:
    """What the calls ask.

    prompt: the prompt of every call, if neither a file nor a length is given.
    prompts: the conversations of a file, one for each session: the first request, and the users' further messages.
    input: the length of a prompt that is made, without the prefix; None for none.
    output: the most tokens of an answer; None for the server's own limit.
    prefix: the tokens that all prompts begin with.
    turns: the calls of a session.
    think: seconds from an answer to the next call of its session.
    seed: prompts and lengths are the same for the same seed.
    headers: additional request headers.
    """

    model: str
    prompt: str = PROMPT
    prompts: tuple[Conversation, ...] = ()
    input: Length | None = None
    output: Length | None = None
    prefix: int = 0
    turns: int = 1
    think: float = 0.0
    seed: int = 0
    headers: Mapping[str, str] | None = None


@dataclass(slots=True, frozen=True)
class Conversation:
    """A conversation of a file of prompts.

    further: the user's further messages, for sessions of several turns.
    """

    request: Request
    further: tuple[str, ...] = ()


class Work:
    """Makes the sessions of a run, one after the other."""

    def __init__(self, plan: WorkPlan) -> None:
        self.plan: WorkPlan = plan
        self._random = random.Random(plan.seed)
        self._pool = random.Random(plan.seed + 1).choices(WORDS, k=POOL_WORDS)
        self._prefix = self._text(plan.prefix, 0) + " " if plan.prefix else ""
        self._taken = 0

    def session(self, arrival: Arrival | None = None) -> Session:
        """Return the next session. arrival: the call of a trace that begins it; it may have lengths."""
        headers, retry = self.plan.headers, Retry(max_attempts=1)
        prompt, output = self._prompt(arrival), self.output(arrival)
        if not self.plan.prompts or (arrival is not None and arrival.input is not None):
            request = Request(
                self.plan.model,
                self._prefix + prompt,
                max_output_tokens=output,
                extra_headers=headers or None,
                retry=retry,
            )
            return Session(self, request)
        conversation = self._conversation()
        given = conversation.request
        request = replace(
            given,
            messages=_after_prefix(self._prefix, given.messages),
            max_output_tokens=output or given.max_output_tokens,
            extra_headers={**(given.extra_headers or {}), **(headers or {})} or None,
            retry=retry,
        )
        return Session(self, request, list(conversation.further))

    def further(self) -> str:
        """Return the user's next message in a session whose file has none for it."""
        if self.plan.input is not None or not self.plan.prompts:
            return self._prompt(None)
        messages = self._conversation().request.messages
        return next((message.text for message in messages if message.role is Role.USER), PROMPT)

    def output(self, arrival: Arrival | None = None) -> int | None:
        """Return the most tokens of the next answer; None for the server's own limit."""
        if arrival is not None and arrival.output:
            return arrival.output
        return self.plan.output.draw(self._random) if self.plan.output is not None else None

    def _conversation(self) -> Conversation:
        self._taken += 1
        return self.plan.prompts[(self._taken - 1) % len(self.plan.prompts)]

    def _prompt(self, arrival: Arrival | None) -> str:
        if arrival is not None and arrival.input is not None:
            # The blocks of a trace are the same text for the same id.
            needed = arrival.blocks[: -(-arrival.input // BLOCK_TOKENS)]  # a foreign file may name any number
            starts = (hash((self.plan.seed, block)) % POOL_WORDS for block in needed)
            words = " ".join(self._text(BLOCK_TOKENS, start) for start in starts).split()[: arrival.input]
            rest = max(0 if words else 1, arrival.input - len(words))
            return " ".join([*words, *self._text(rest, self._random.randrange(POOL_WORDS)).split()])
        if self.plan.input is None:
            return self.plan.prompt
        return self._text(self.plan.input.draw(self._random), self._random.randrange(POOL_WORDS))

    def _text(self, words: int, start: int) -> str:
        found = self._pool[start : start + words]
        while len(found) < words:
            found += self._pool[: words - len(found)]
        return " ".join(found)


@dataclass(slots=True)
class Session:
    """One user's calls, of which each has the whole conversation so far."""

    _work: Work
    request: Request
    _further: list[str] = field(default_factory=list[str])
    _turn: int = 1

    def advance(self, response: Response | None) -> bool:
        """Take the answer of a call, and make the next request. Returns False if the session is over."""
        if response is None or self._turn >= self._work.plan.turns:
            return False
        self._turn += 1
        request = self.request
        message = Message.user(self._further.pop(0) if self._further else self._work.further())
        tokens = self._work.output() or request.max_output_tokens
        self.request = replace(
            request, messages=[*request.messages, response.to_message(), message], max_output_tokens=tokens
        )
        return True


def _after_prefix(prefix: str, messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages of which the first one by the user begins with the prefix."""
    place = next((place for place, message in enumerate(messages) if message.role is Role.USER), None)
    if not prefix:
        return messages
    if place is None:
        return [Message.user(prefix), *messages]
    first = Message.user([Text(prefix), *messages[place].content])
    return [*messages[:place], first, *messages[place + 1 :]]


# --- files of prompts ---


def read_prompts(path: Path, model: str) -> tuple[Conversation, ...]:
    """Read a file of prompts: lines of a batch, which need no id here, or conversations of ShareGPT.

    model: the model of every request, whatever a line names. Raises `PromptsError`.
    """
    try:
        data = read_file(path).removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise PromptsError(f"{path}: {error.strerror}") from None
    found: list[Conversation] = []
    place = str(path)
    try:
        if data.lstrip()[:1] == b"[":
            entries = loads(data)
            for number, entry in enumerate(entries if isinstance(entries, list) else [], 1):
                place = f"{path}: entry {number}"
                found += _conversation(entry, model)
        else:
            for number, line in enumerate(data.split(b"\n"), 1):
                place = f"{path}:{number}"
                if line.strip():
                    line.decode()
                    found += _conversation(loads(line), model)
    except (MalformedJSONError, UnicodeDecodeError, LineError) as error:
        raise PromptsError(f"{place}: {error}") from None
    if not found:
        raise PromptsError(f"{path}: has no prompt")
    return tuple(found)


def _conversation(entry: JSON, model: str) -> list[Conversation]:
    """Return the conversation of an entry; none for one of ShareGPT in which no user speaks. Raises `LineError`."""
    if not isinstance(entry, dict):
        raise LineError("is no JSON object")
    if "conversations" not in entry:
        return [Conversation(read_item(Line(1, 1, entry, 0), OneModel(model)).request)]
    turns = [string(turn, "value") or "" for turn in objects(entry, "conversations") if turn.get("from") in USERS]
    texts = [text for text in turns if text.strip()]
    return [Conversation(Request(model, texts[0]), tuple(texts[1:]))] if texts else []
