"""The answer under construction. Each method records one fact and returns the event that reports it.

So the delivered events and the final `Response` cannot differ. Stream machines and decoders of unstreamed answers both
build their answer here, so a streamed answer equals an unstreamed one.

Pieces are appended and joined once: nothing here is quadratic.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TypeAlias

from ..json.json_values import (
    CONTAINER_ENDS,
    JSON,
    JSONObject,
    as_object,
    exact_loads,
    same_text,
    says_nothing,
    without_repetition,
)
from ..model.events import (
    STOP,
    UNKNOWN,
    Done,
    ErrorEvent,
    Event,
    FinishReason,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStart,
)
from ..model.messages import Block, ProviderState, Text, Thinking, ToolCall
from ..model.provider_error import BODY_LIMIT, NO_ANSWER_CODE, aborted, broken, no_answer
from ..model.response import Response, arrived
from ..model.tokens import Tokens, Usage
from .answer_limits import ANSWER_LIMITS, AnswerCount, AnswerLimits
from .answer_tokens import AnswerTokens, check_counts
from .call_ids import TakenIds, unique_id

CUT_SHORT = frozenset({FinishReason.LENGTH, FinishReason.CONTENT_FILTER, FinishReason.ERROR, FinishReason.ABORTED})
"""Finish reasons after which the answer's last block may be incomplete."""

MOST_REPEATED = 16
"""Arguments so many times as long as a fragment are not compared with it. The same value may be written with more
whitespace, or with escapes of up to six characters for one.
"""

REPEATED_ARGUMENTS = "the server sent the arguments of a call more than once; the call has them once"
"""The warning for arguments that were left out because they came before."""

NO_CALL_TO_RUN = "the server's finish reason announces tool calls, and the answer has none"
"""The warning for a finish reason that contradicts the content."""

FINAL_TEXT_WINS = (
    "the server's final text differs from the deltas that were reported; the response holds the final text"
)
"""The warning for deltas whose joined text is not that of the response."""

REFUSAL = "refusal"
"""Member of a text's state: the refusal that came with it."""


class TextInProgress:
    """A text block under construction.

    index: its position in the response's `content`.
    pieces: the texts of its deltas, in order.
    citations: the provider's own objects, in order; None before the first.
    state: what the provider wants back with the block, or None.
    """

    __slots__ = ("citations", "index", "pieces", "state")

    def __init__(self, index: int) -> None:
        self.index: int = index
        self.pieces: list[str] = []
        self.citations: list[JSONObject] | None = None
        self.state: ProviderState | None = None

    def delta(self, text: str) -> TextDelta:
        """Append text that is not empty. Returns its event."""
        self.pieces.append(text)
        return TextDelta(self.index, text)

    accept = delta

    def cite(self, citations: Sequence[JSONObject]) -> None:
        """Append citations."""
        if citations:
            if self.citations is None:
                self.citations = []
            self.citations.extend(citations)

    def is_empty(self) -> bool:
        """Return whether no text has come."""
        return not self.pieces

    def block(self) -> Text:
        """Return the block as it is so far."""
        return Text("".join(self.pieces), citations=list(self.citations or ()), state=self.state)


class ThinkingInProgress:
    """A thinking block under construction.

    index: its position in the response's `content`.
    pieces: the texts of its deltas.
    signature_pieces: the fragments of its signature.
    state: what the provider wants back with the block, or None.
    """

    __slots__ = ("index", "pieces", "signature_pieces", "state")

    def __init__(self, index: int) -> None:
        self.index: int = index
        self.pieces: list[str] = []
        self.signature_pieces: list[str] = []
        self.state: ProviderState | None = None

    def delta(self, text: str) -> ThinkingDelta:
        """Append thinking that is not empty. Returns its event."""
        self.pieces.append(text)
        return ThinkingDelta(self.index, text)

    accept = delta

    def is_empty(self) -> bool:
        """Return whether neither thinking nor a signature has come."""
        return not self.pieces and not self.signature_pieces

    def block(self) -> Thinking:
        """Return the block as it is so far."""
        signature = "".join(self.signature_pieces) if self.signature_pieces else None
        return Thinking("".join(self.pieces), signature, state=self.state)


@dataclass(slots=True, eq=False, repr=False)
class ToolCallInProgress:
    """A tool call under construction. No event is delivered until its name is known; earlier arguments are kept."""

    index: int  # its position in the response's `content`
    taken: TakenIds | None  # ids of the answer's other calls; None if ids need not be unique
    wire_id: str = field(default="", init=False)  # the id as received
    # the id as delivered. It differs from `wire_id` if another call of the answer has that id.
    id: str = field(default="", init=False)
    name: str = field(default="", init=False)  # the tool's name; empty until it is known
    pieces: list[str] = field(default_factory=lambda: [], init=False)  # fragments of the arguments
    started: bool = field(default=False, init=False)  # whether `start` was called
    done: bool = field(default=False, init=False)  # whether `finish` was called
    complete: bool = field(default=False, init=False)  # False if the answer was cut off inside the call
    # whether the arguments are any text of the model (a custom tool), and no JSON
    free_text: bool = field(default=False, init=False)
    repeated: bool = field(default=False, init=False)  # whether the server sent the whole arguments again
    state: ProviderState | None = field(default=None, init=False)  # what the provider wants back with the call, or None

    def start(self, id: str, name: str) -> Sequence[Event]:
        """Set the id and the name. Returns the events: the call's start, and the arguments that came before it.

        An id that another call of the answer has gets a number.
        """
        self.wire_id = id
        self.id, self.name, self.started = id, name, True
        if self.taken is not None:
            self.id = unique_id(id, self.taken)
            self.taken[self.id] = 1
        start = ToolCallStart(self.index, self.id, name)
        waiting = "".join(self.pieces)
        return (start, ToolCallDelta(self.index, waiting)) if waiting else (start,)

    def accept(self, arguments: str) -> ToolCallDelta | None:
        """Append arguments that are not empty. Returns their event.

        Some servers send the whole arguments once more at the end. They are left out, and None is returned.
        """
        if arguments[-1] in CONTAINER_ENDS and self.repeats(arguments):
            self.repeated = True
            return None
        self.pieces.append(arguments)
        return ToolCallDelta(self.index, arguments)

    def delta(self, arguments: str) -> Sequence[Event]:
        """Append arguments, which may be empty. Returns their event if the call has started."""
        event = self.accept(arguments) if arguments else None
        return (event,) if event is not None and self.started else ()

    def repeats(self, arguments: str) -> bool:
        """Return whether these arguments are the ones so far again: both one JSON object or array, of equal value.

        The time is linear in their length: what is much longer than they are is not compared.
        """
        pieces = self.pieces
        text = arguments.strip()
        if not pieces or self.free_text or text[:1] not in ("{", "[") or text[-1:] not in ("}", "]"):
            return False
        most = MOST_REPEATED * len(arguments)
        if len(pieces) > most or sum(map(len, pieces)) > most:
            return False
        return same_text("".join(pieces), arguments)

    def settle(self) -> None:
        """Reduce arguments that the server sent several times in a row to one time. Their events may be delivered."""
        if not self.free_text:
            text = "".join(self.pieces)
            once = without_repetition(text)
            if len(once) < len(text):
                self.pieces[:] = [once]
                self.repeated = True

    def finish(self, complete: bool = True) -> Sequence[Event]:
        """End the call. Returns its event, or nothing if the call has ended before or never got a name."""
        if self.done:
            return ()
        self.done, self.complete = True, complete
        return (ToolCallDone(self.index, complete),) if self.started else ()

    def is_empty(self) -> bool:
        """Return whether the call has no name yet, so that it is not in the response."""
        return not self.started

    def block(self) -> ToolCall:
        """Return the call as it is so far. It is complete only if `finish` has marked it so."""
        return ToolCall(
            self.id, self.name, "".join(self.pieces), complete=self.done and self.complete, state=self.state
        )


@dataclass(slots=True, eq=False, repr=False)
class Placed:
    """A block that came whole and has no events: redacted thinking, an image, a provider's own block."""

    index: int  # its position in the response's `content`
    value: Block  # the block

    def is_empty(self) -> bool:
        """Return False: the block came whole."""
        return False

    def block(self) -> Block:
        return self.value


InProgress: TypeAlias = TextInProgress | ThinkingInProgress | ToolCallInProgress | Placed


@dataclass(slots=True, eq=False, repr=False)
class CallInProgress:
    """A tool call of a stream whose blocks begin and stop by events of their own."""

    call: ToolCallInProgress  # the call in the answer
    given: str  # the arguments of its first event, used if no delta follows
    stopped: bool = field(default=False, init=False)  # whether its stop event has come
    beside: object = field(default=None, init=False)  # the block of text or thinking that a server sent inside the call

    def settle(self) -> list[Event]:
        """End the arguments. Returns the event for those of the first event, if none were streamed."""
        return [] if self.call.pieces or self.call.done else list(self.call.delta(self.given))


class OwnInProgress(abc.ABC):
    """A block of the provider's own, which is in the answer already. `settle` writes its deltas into it."""

    __slots__ = ()

    @abc.abstractmethod
    def settle(self) -> None:
        """Write the collected deltas into the block. May be called at any time."""


@dataclass(slots=True, eq=False, repr=False)
class Accumulator(AnswerCount):
    """One answer under construction. A block gets its index when it first appears, and keeps it.

    Thousands of answers are under construction at the same time, and most are plain text. So what few answers have is
    None before the first, and an answer counts its own parts (`AnswerCount`).
    """

    limits: AnswerLimits = ANSWER_LIMITS  # the limits on its parts, if none are counted elsewhere
    # A counter that several choices of one answer share. None: in this object, which must not refer to itself.
    _counted_in: AnswerCount | None = None
    _: KW_ONLY
    keep_ids: bool = False  # two calls may have one id, because their results, outside this answer, have it as well
    blocks: list[InProgress] = field(default_factory=lambda: [], init=False)
    # the ids of its tool calls; None before the first, and if they need not be unique
    call_ids: TakenIds | None = field(default=None, init=False)
    model: str | None = field(default=None, init=False)
    id: str | None = field(default=None, init=False)
    finish_reason: FinishReason = field(default=UNKNOWN, init=False)
    raw_finish_reason: str | None = field(default=None, init=False)
    usage: Usage | None = field(default=None, init=False)  # the token counts; None before the first report
    # the tokens with their ids and log probabilities; None before the first
    tokens: AnswerTokens | None = field(default=None, init=False)
    # the other choices of the answer, by index; None before the second one
    choices: dict[int, Accumulator] | None = field(default=None, init=False)
    refusal_pieces: list[str] | None = field(default=None, init=False)  # the texts of a refusal; None before the first
    refused_by: str = field(default="", init=False)  # the provider that the refusal is sent back to
    warnings: dict[str, None] | None = field(default=None, init=False)  # as keys, in order; None before the first
    provider_data: dict[str, JSON] = field(default_factory=lambda: {}, init=False)

    @property
    def count(self) -> AnswerCount:
        """Counts the answer's parts, those of its other choices included. A block beyond the limits raises
        `ProviderError`."""
        return self if self._counted_in is None else self._counted_in

    def warn(self, warning: str) -> None:
        """Add a warning to the response, once."""
        if self.warnings is None:
            self.warnings = {}
        self.warnings[warning] = None

    def refuse(self, text: str, provider: str) -> None:
        """Append to a refusal of this provider. It has no event; the response contains it."""
        if self.refusal_pieces is None:
            self.refusal_pieces = []
            self.refused_by = provider
        self.refusal_pieces.append(text)

    def start(self, model: str | None, response_id: str | None) -> Start:
        """Record the beginning of the answer. Returns its event."""
        self.model, self.id = model, response_id
        return Start(model, response_id)

    def text(self) -> TextInProgress:
        """Add a text block at the next index. Raises `ProviderError` beyond the limit."""
        self.count.add_block()
        block = TextInProgress(len(self.blocks))
        self.blocks.append(block)
        return block

    def thinking(self, *, counted: bool = True) -> ThinkingInProgress:
        """Add a thinking block at the next index. Raises `ProviderError` beyond the limit.

        counted: False for thinking that was counted before. Then nothing is raised.
        """
        if counted:
            self.count.add_block()
        block = ThinkingInProgress(len(self.blocks))
        self.blocks.append(block)
        return block

    def tool_call(self) -> ToolCallInProgress:
        """Add a tool call at the next index. Its `start` returns the first event. Raises `ProviderError` beyond the
        limit.
        """
        self.count.add_tool_call()
        if self.call_ids is None and not self.keep_ids:
            self.call_ids = {}
        block = ToolCallInProgress(len(self.blocks), self.call_ids)
        self.blocks.append(block)
        return block

    def call_in_place_of(self, block: Placed) -> ToolCallInProgress:
        """Replace a block that came whole by a tool call. It is counted already."""
        if self.call_ids is None and not self.keep_ids:
            self.call_ids = {}
        call = self.blocks[block.index] = ToolCallInProgress(block.index, self.call_ids)
        return call

    def place(self, value: Block) -> Placed:
        """Add a whole block without events at the next index. Raises `ProviderError` beyond the limit."""
        self.count.add_block()
        block = Placed(len(self.blocks), value)
        self.blocks.append(block)
        return block

    def done(self, reason: FinishReason, raw: str | None, *, elsewhere: bool = False, details: str = "") -> list[Event]:
        """Record the terminal marker. Closes open calls, sets the finish reason and returns the last events.

        The last event is `Done`, or `ErrorEvent` for an end without an answer, and for one that was aborted or broke.

        reason: the finish reason of the provider's word. What is reported agrees with the content (`_agreeing`).
        raw: the provider's own word for it, or None if the provider gave no reason.
        elsewhere: the server said something that is not in this answer, such as another choice.
        details: what the provider says about the reason.
        """
        events: list[Event] = []
        calls = False
        for block in self.blocks:
            if isinstance(block, ToolCallInProgress):
                cut = reason in CUT_SHORT and block is self.blocks[-1]
                events.extend(block.finish(complete=not cut))
                block.settle()
                if block.repeated:
                    self.warn(REPEATED_ARGUMENTS)
                calls = calls or block.started
        reason = self._agreeing(reason, calls=calls)
        self.finish_reason, self.raw_finish_reason = reason, raw
        if self.usage is None:
            self.usage = Usage()
        if reason is FinishReason.ABORTED:
            events.append(ErrorEvent(aborted(raw)))
        elif reason is FinishReason.ERROR:
            events.append(ErrorEvent(broken(raw, details)))
        elif raw is None and not elsewhere and self.is_empty():
            events.append(ErrorEvent(no_answer()))
        else:
            events.append(Done(reason, raw, self.usage, self.provider_data))
        return events

    def is_empty(self) -> bool:
        """Return whether the answer has neither content nor a call nor a refusal."""
        return not self.refusal_pieces and all(block.is_empty() for block in self.blocks)

    def _agreeing(self, reason: FinishReason, *, calls: bool) -> FinishReason:
        """Return the finish reason that agrees with the content: TOOL_USE if and only if there are calls to run.

        A program that runs calls while the reason is TOOL_USE would else miss calls, or never end. Calls of an answer
        that was cut short are not to be run. Calls that the server runs are provider blocks, and do not count.
        """
        if reason in CUT_SHORT:
            return reason
        if calls:
            return FinishReason.TOOL_USE
        if reason is FinishReason.TOOL_USE:
            self.warn(NO_CALL_TO_RUN)
            return STOP
        return reason

    def response(self) -> Response:
        """Return the answer so far. It is complete after `done`."""
        content = [block.block() for block in self.blocks if not isinstance(block, ToolCallInProgress) or block.started]
        refusal = "".join(self.refusal_pieces) if self.refusal_pieces else None
        texts = [block for block in content if isinstance(block, Text)] if refusal else ()
        if texts:
            # It is no block, so it is sent back with the last text.
            state = texts[-1].state
            members = {} if state is None else state.data
            texts[-1].state = ProviderState(self.refused_by, {**members, REFUSAL: refusal})
        response = Response(
            content=content,
            finish_reason=self.finish_reason,
            raw_finish_reason=self.raw_finish_reason,
            usage=Usage() if self.usage is None else self.usage,
            model=self.model,
            id=self.id,
            refusal=refusal,
            warnings=list(self.warnings or ()),
            provider_data=self.provider_data,
        )
        if self.tokens is not None:
            response.tokens = self.tokens.whole(response)
        if self.choices:
            response.others = [choice.response() for _, choice in sorted(self.choices.items())]
        if self.tokens is not None or self.choices:
            check_counts(response)
        return response

    def add_choice(self, index: int, choice: Accumulator) -> None:
        """Add another choice of the answer."""
        if self.choices is None:
            self.choices = {}
        self.choices[index] = choice

    def adopt(self, choice: Accumulator) -> None:
        """Take over the content of another choice, which is the only one that came. It has ended."""
        self.blocks, self.call_ids, self.tokens = choice.blocks, choice.call_ids, choice.tokens
        self.refusal_pieces, self.refused_by, self.warnings = choice.refusal_pieces, choice.refused_by, choice.warnings
        self.provider_data.update(choice.provider_data)

    def its_tokens(self) -> AnswerTokens:
        """Return the answer's tokens. The first call makes the object: most answers have none."""
        if self.tokens is None:
            self.tokens = AnswerTokens()
        return self.tokens


class CutText(str):
    """A piece whose last character is U+FFFD for half a surrogate pair that was not delivered (`cut_pairs.py`)."""

    __slots__ = ()


def settle(pieces: list[str], whole: str, answer: Accumulator) -> str:
    """Return the part of the whole text that follows the pieces delivered so far, to be delivered now.

    If the text does not begin with the pieces (a stream that was resumed in the middle, or a server that changed the
    text), nothing can be delivered, because events cannot be taken back. Then the final text replaces the pieces, so
    the response is the same as unstreamed, with a warning. An empty text has no meaning and changes nothing.
    """
    if not whole:
        return ""  # before the join, because an empty text may come any number of times
    delivered = "".join(pieces)
    if whole.startswith(delivered):
        return whole[len(delivered) :]
    if type(pieces[-1]) is CutText and whole.startswith(delivered[:-1]):
        pieces[:] = [delivered[:-1]]
        return whole[len(delivered) - 1 :]  # with the whole pair
    pieces[:] = [whole]
    answer.warn(FINAL_TEXT_WINS)
    return ""


def concluded(response: Response, end: Event, body: bytes) -> Response:
    """Return the response of a whole answer. If the answer ended with an error, raise that error, which keeps the
    response as its `partial`, or the body of an answer that says nothing.
    """
    if isinstance(end, ErrorEvent):
        if end.error.provider_code == NO_ANSWER_CODE:
            end.error.body = body[:BODY_LIMIT]
        end.error.partial = arrived(response)
        raise end.error
    return response


def events_of(response: Response) -> list[Event]:
    """Return the events of a stream with this answer, for a server that answers a stream request unstreamed."""
    events: list[Event] = [Start(response.model, response.id)]
    for index, block in enumerate(response.content):
        if isinstance(block, Text) and block.text:
            events.append(TextDelta(index, block.text))
        elif isinstance(block, Thinking) and block.text:
            events.append(ThinkingDelta(index, block.text))
        elif isinstance(block, ToolCall):
            events.append(ToolCallStart(index, block.id, block.name))
            if block.arguments:
                events.append(ToolCallDelta(index, block.arguments))
            events.append(ToolCallDone(index, block.complete))
    tokens = response.tokens
    delta = next((event for event in events if isinstance(event, (TextDelta, ThinkingDelta))), None)
    if tokens is not None and delta is None and tokens.ids and not response.tool_calls:
        delta = TextDelta(len(response.content), "")
        events.append(delta)
    if tokens is not None and delta is not None:
        delta.tokens = Tokens(tokens.ids, tokens.logprobs)
    events.append(Done(response.finish_reason, response.raw_finish_reason, response.usage, response.provider_data))
    return events


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
