"""The content of an answer, before it has a wire format: thinking, text, tool calls, usage and finish reason.

It is deterministic: the same prompt and knobs give the same scenario in every dialect, streamed or not, in any
process. So the test of a client calls `write_scenario(prompt, knobs)` itself and compares what the client received with
`text`, `thinking` and `tool_calls`. This module knows no wire format and no clock.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from .json_text import JSON, dumps, dumps_text
from .knobs import Knobs
from .prompt import Prompt, ToolDeclaration
from .schema_example import example
from .wording import WORDINGS, Wording

DEFAULT_EVENTS = 24
INVENTED_TOOLS: tuple[ToolDeclaration, ...] = (
    ToolDeclaration("get_weather", {"type": "object", "properties": {"city": {"type": "string"}}}),
    ToolDeclaration("search", {"type": "object", "properties": {"query": {"type": "string"}}}),
)
"""The tools of an answer that must hold calls where the request declares no tools."""

STAMP_WIDTH = 20
STAMP_MARK = "stamp-"
SIGNATURE_MARK = "sims"
"""The beginning of all signatures of the simulator: a changed one is recognised by it. The rest is hexadecimal, and the
length is a multiple of four: Google's SDK decodes a signature as base64."""


@dataclass(slots=True, frozen=True)
class ScriptedCall:
    """A tool call of the answer.

    fragments: the pieces of `arguments`, the text of a JSON object.
    complete: False if the output limit cut the arguments off.
    """

    id: str
    name: str
    fragments: tuple[str, ...]
    complete: bool = True

    @property
    def arguments(self) -> str:
        return "".join(self.fragments)


@dataclass(slots=True, frozen=True)
class Tokens:
    """The token counts of an answer's usage.

    input: all input tokens.
    cached: input tokens that were read from a cache; a part of `input`.
    output: tokens of text and tool calls.
    thinking: tokens of thinking; not a part of `output`.
    written: input tokens that were written to a cache, a part of `input`; None if the server does not report them.
    written_long: the part of `written` with the longer of the server's two lifetimes.
    """

    input: int
    cached: int
    output: int
    thinking: int
    written: int | None = None
    written_long: int = 0


@dataclass(slots=True, frozen=True, kw_only=True)
class Scenario:
    """One answer.

    identity: hexadecimal digits from which all ids of the answer are made; from those after 32 its own id alone.
    redacted: encrypted thinking, instead of `thinking_pieces`.
    finish: `stop`, `length`, `tool_use` or `content_filter`.
    """

    identity: str
    model: str
    thinking_pieces: tuple[str, ...] = ()
    redacted: str | None = None
    text_pieces: tuple[str, ...] = ()
    calls: tuple[ScriptedCall, ...] = ()
    finish: str = "stop"
    tokens: Tokens = field(default=Tokens(0, 0, 0, 0))

    @property
    def text(self) -> str:
        """The visible text, without the thinking."""
        return "".join(self.text_pieces)

    @property
    def thinking(self) -> str:
        """The visible thinking."""
        return "".join(self.thinking_pieces)

    @property
    def signature(self) -> str:
        """The signature of the thinking."""
        return sign(self.thinking)

    @property
    def tool_calls(self) -> list[tuple[str, str]]:
        """Name and arguments of each call, in order."""
        return [(call.name, call.arguments) for call in self.calls]

    def id(self, prefix: str, digits: int = 24, which: str = "") -> str:
        """An id of the answer or of one of its parts; the same at each call."""
        identity = self.identity if prefix == "resp_" else self.identity[:32]
        return prefix + hashlib.blake2b(f"{identity}/{prefix}/{which}".encode()).hexdigest()[:digits]


def sign(text: str) -> str:
    """The signature of thinking or of a call. It is a checksum, not a secret."""
    return SIGNATURE_MARK + hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def is_forged(signature: str, text: str) -> bool:
    """Whether a signature was made by the simulator, but for another text."""
    return signature.startswith(SIGNATURE_MARK) and signature != sign(text)


def write_scenario(prompt: Prompt, knobs: Knobs) -> Scenario:
    """The answer to a prompt."""
    seed = knobs.seed if knobs.seed is not None else _number(prompt.text)
    identity = hashlib.blake2b(
        repr((seed, prompt.model, prompt.rounds, prompt.tool_results)).encode(), digest_size=16
    ).hexdigest()
    source = random.Random(_number(f"{seed}/{prompt.rounds}"))
    wording = WORDINGS[knobs.text](prompt.text, source)
    kind = knobs.kind or "text"
    called = _called_tools(prompt, knobs, kind)
    thinks = kind in ("thinking", "mixed") or knobs.redacted
    events = DEFAULT_EVENTS if knobs.events is None else knobs.events
    thinking = wording.text(max(1, events // 4), "thought") if thinks and events else ()
    if prompt.tool_results:
        text = _repeat_results(prompt)
    elif called and kind != "mixed":
        text = ()
    elif prompt.schema is not None:
        text = fragments(dumps_text(example(prompt.schema, wording.values(0))), source)
    else:
        text = _stamps(events - len(thinking)) if knobs.stamp else wording.text(events - len(thinking), "answer")
    calls = _calls(called, identity, source, wording)
    tokens = Tokens(
        input=prompt.characters // 4 + 1 + 8 * len(prompt.tools),
        cached=min(knobs.cached, prompt.characters // 4 + 1 + 8 * len(prompt.tools)),
        output=len(text) + sum(len(call.fragments) for call in calls),
        thinking=len(thinking),
    )
    scenario = Scenario(
        identity=identity,
        model=prompt.model,
        thinking_pieces=() if knobs.redacted else thinking,
        redacted=sign("redacted " + "".join(thinking)) if knobs.redacted else None,
        text_pieces=text,
        calls=calls,
        finish="tool_use" if calls else "stop",
        tokens=tokens,
    )
    limit = None if knobs.events is not None and not prompt.prewarm else prompt.max_tokens
    if limit is not None and tokens.output + tokens.thinking > limit:
        return _limited(scenario, limit)
    if knobs.finish == "length":
        return _limited(scenario, max(0, tokens.output + tokens.thinking - 1) if calls else None)
    if knobs.finish == "content_filter":
        return _ended(scenario, thinking=scenario.thinking_pieces, text=text, calls=(), finish="content_filter")
    return scenario


def fragments(text: str, source: random.Random) -> tuple[str, ...]:
    """Split a text into pieces of one to twelve characters; a text of two or more into at least two pieces."""
    longest = min(12, max(1, len(text) // 2))
    pieces: list[str] = []
    start = 0
    while start < len(text):
        end = start + source.randint(1, longest)
        pieces.append(text[start:end])
        start = end
    return tuple(pieces)


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _stamps(count: int) -> tuple[str, ...]:
    digits = STAMP_WIDTH - len(STAMP_MARK)
    return tuple(f"{STAMP_MARK}{number:0{digits}d} " for number in range(max(0, count)))


def _repeat_results(prompt: Prompt) -> tuple[str, ...]:
    said = "".join(f"The tool {answer.name} answered: {answer.text} " for answer in prompt.tool_results)
    return tuple(piece + " " for piece in said.split(" ") if piece)


def _called_tools(prompt: Prompt, knobs: Knobs, kind: str) -> Sequence[ToolDeclaration]:
    choice = prompt.tool_choice
    if choice == "none" or knobs.calls == 0:
        return ()
    if choice == "auto" and (kind not in ("tools", "mixed") or prompt.rounds >= knobs.steps):
        return ()
    offered = prompt.tools or INVENTED_TOOLS
    named = [tool for tool in offered if tool.name == choice] if choice not in ("auto", "required") else offered
    if not named or (choice != "auto" and prompt.tool_results and prompt.rounds >= knobs.steps):
        return ()
    count = knobs.calls if knobs.calls is not None else 2 if kind == "mixed" else 1
    return list(itertools.islice(itertools.cycle(named), count if prompt.parallel else min(count, 1)))


def _calls(
    called: Sequence[ToolDeclaration], identity: str, source: random.Random, wording: Wording
) -> tuple[ScriptedCall, ...]:
    calls: list[ScriptedCall] = []
    for position, tool in enumerate(called):
        arguments: JSON = example(tool.schema, wording.values(position)) if tool.schema else {}
        text = dumps(arguments if isinstance(arguments, dict) else {}).decode()
        id = hashlib.blake2b(f"{identity}/call/{position}".encode()).hexdigest()[:22]
        calls.append(ScriptedCall(id, tool.name, fragments(text, source)))
    return tuple(calls)


def _limited(scenario: Scenario, limit: int | None) -> Scenario:
    """The first `limit` pieces of the answer (None: all of them), ended by the output limit."""
    left = limit if limit is not None else scenario.tokens.output + scenario.tokens.thinking
    thinking = scenario.thinking_pieces[:left]
    left -= len(thinking)
    text = scenario.text_pieces[:left]
    left -= len(text)
    calls: list[ScriptedCall] = []
    for call in scenario.calls:
        if left <= 0:
            break
        kept = call.fragments[:left]
        left -= len(kept)
        calls.append(ScriptedCall(call.id, call.name, kept, complete=kept == call.fragments))
    return _ended(scenario, thinking=thinking, text=text, calls=tuple(calls), finish="length")


def _ended(
    scenario: Scenario,
    *,
    thinking: tuple[str, ...],
    text: tuple[str, ...],
    calls: tuple[ScriptedCall, ...],
    finish: str,
) -> Scenario:
    output = len(text) + sum(len(call.fragments) for call in calls)
    hidden = scenario.tokens.thinking if scenario.redacted else len(thinking)
    tokens = Tokens(scenario.tokens.input, scenario.tokens.cached, output, hidden)
    return replace(scenario, thinking_pieces=thinking, text_pieces=text, calls=calls, finish=finish, tokens=tokens)
