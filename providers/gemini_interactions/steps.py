"""Reads the steps of an interaction into the answer under construction.

A step is a thought, an output of the model with several contents, a call of the caller's function, or a call or result
of one of the server's own tools. Steps of the last two kinds, and of unknown kinds, are kept as received in a
`ProviderBlock`. So is an unknown content of an output, in a `model_output` step of its own: each `ProviderBlock` of
this dialect is one whole step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from ..catalog.dialect import MakeId
from ..gemini.stream import decoded_bytes
from ..json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    arguments_text,
    exact_or_text,
    objects,
    required_objects,
    string,
    without_nulls,
)
from ..model.events import Event
from ..model.messages import File, Image, ProviderBlock, ProviderState
from ..wire.accumulate import (
    Accumulator,
    CallInProgress,
    InProgress,
    OwnInProgress,
    Placed,
    TextInProgress,
    ThinkingInProgress,
    ToolCallInProgress,
    settle,
)
from ..wire.cut_pairs import join_pieces

OUTPUT, THOUGHT, CALL, RESULT, INPUT = "model_output", "thought", "function_call", "function_result", "user_input"
"""Types of steps that this library reads and writes."""

MEDIA = ("image", "audio", "video", "document")
"""Types of contents with a file."""

CALL_MEMBERS = frozenset({"type", "id", "name", "arguments"})
"""Members of a call that `ToolCall` has itself. The others (`signature`) are its state."""

FILE_MEMBERS = frozenset({"type", "data", "uri", "mime_type"})
"""Members of a file that `Image` and `File` have themselves. The others (`sample_rate`) are its state."""

APPENDED = frozenset({"arguments", "result", "text"})
"""Members of the deltas of a step whose texts are appended. A text of any other member replaces the one before."""

SUMMARY = "summary"
SIGNATURE = "signature"

NO_TEXT_TO_CITE = "the answer has an annotation without a text before it; it was dropped"
NOTHING_TO_SIGN = "the answer has a signature in a step that has none; it was dropped"
"""Warnings about deltas that have no place."""


@dataclass(slots=True, eq=False, repr=False)
class OutputInProgress:
    """An output of the model."""

    # the text that the next delta continues; None before the first, and after a file
    text: TextInProgress | None = field(default=None, init=False)
    sound: SoundInProgress | None = field(default=None, init=False)  # the sound that the next delta continues


class SoundInProgress(Placed):
    """A sound of the model's, which a stream sends in pieces.

    pieces: its bytes.
    """

    __slots__ = ("file", "pieces")

    def __init__(self, placed: Placed, file: File) -> None:
        super().__init__(placed.index, file)
        self.file: File = file
        self.pieces: list[bytes] = [file.data or b""]

    def block(self) -> File:
        """Return the sound so far."""
        return File(data=b"".join(self.pieces), media_type=self.file.media_type, state=self.file.state)


@dataclass(slots=True, eq=False, repr=False)
class StepInProgress(OwnInProgress):
    """A step of the server's own."""

    data: dict[str, JSON]  # the step in the answer
    # member → the texts of its deltas
    pieces: dict[str, list[str]] = field(default_factory=lambda: {}, init=False)

    def apply(self, delta: JSONObject) -> None:
        """Apply a delta: objects are merged, lists joined, texts appended or replaced (`APPENDED`), other values set.

        A list that the step has already comes again in deltas of some servers; it is kept once.
        """
        for member, value in delta.items():
            present = self.data.get(member)
            if member == "type" or value is None:
                continue
            if type(value) is str and member in APPENDED:
                first = [present] if type(present) is str and member not in self.pieces else []
                self.pieces.setdefault(member, first).append(value)
            elif type(value) is dict and type(present) is dict:
                self.data[member] = {**present, **value}
            elif type(value) is list and type(present) is list:
                if value != present:
                    present.extend(value)
            elif type(value) is list:
                self.data[member] = [*value]
            elif value != "" or member not in self.data:
                self.data[member] = value

    def settle(self) -> None:
        """Write the collected texts into the step. Arguments become JSON if they parse."""
        for member, pieces in self.pieces.items():
            text = join_pieces(pieces)
            self.data[member] = exact_or_text(text) if member == "arguments" else text


Opened: TypeAlias = OutputInProgress | ThinkingInProgress | CallInProgress | StepInProgress


class StepReader:
    """Reads steps into one answer.

    maker: attributes thoughts and signatures to the provider. One object for all blocks of the answer.
    """

    __slots__ = ("answer", "make_id", "maker")

    def __init__(self, answer: Accumulator, maker: str, make_id: MakeId) -> None:
        self.answer: Accumulator = answer
        self.maker: ProviderState = ProviderState(maker, {})
        self.make_id: MakeId = make_id

    def open(self, step: JSONObject, events: list[Event]) -> Opened | None:
        """Begin a step with the content of its start. Adds the events for that content to `events`.

        None for a step that is no part of the answer: a stored interaction repeats the input.
        """
        kind = string(step, "type") or ""
        opener = OPENERS.get(kind)
        if opener is not None:
            return opener(self, step, events)
        return None if kind == INPUT else self.open_other(step)

    def take_rest(self, whole: Accumulator, events: list[Event]) -> None:
        """Read the answer again, which has come whole after a part of its stream. Adds the events for the other part.

        The n-th block of a kind in the one is the n-th in the other. Only the last block of the part may differ from
        what comes now, because the stream was cut inside it: the others are left as they are.
        """
        parts: dict[type, deque[InProgress]] = {}
        for part in self.answer.blocks:
            parts.setdefault(_kind(part), deque()).append(part)
        last = self.answer.blocks[-1]
        for block in whole.blocks:
            same = parts.get(_kind(block))
            part = same.popleft() if same else self._begin_again(block, events)
            if isinstance(part, Placed) or isinstance(block, Placed):
                if part is last and type(part.block()) is type(block.block()):
                    self.answer.blocks[part.index] = Placed(part.index, block.block())
                continue
            text, so_far = "".join(block.pieces), "".join(part.pieces)
            if part is last or text.startswith(so_far):
                part.state = block.state or part.state
                if isinstance(part, TextInProgress) and isinstance(block, TextInProgress):
                    part.citations = block.citations
                elif isinstance(part, ThinkingInProgress) and isinstance(block, ThinkingInProgress):
                    part.signature_pieces = block.signature_pieces or part.signature_pieces
                if not isinstance(part, ToolCallInProgress) or not (part.done or part.repeats(text)):
                    rest = settle(part.pieces, text, self.answer)
                    event = part.accept(rest) if rest else None
                    events.extend(() if event is None else (event,))
            if isinstance(part, ToolCallInProgress) and block is not whole.blocks[-1]:
                events.extend(part.finish())

    def _begin_again(self, block: InProgress, events: list[Event]) -> InProgress:
        """Begin a block that is not in the stream."""
        if isinstance(block, ToolCallInProgress):
            call = self.answer.tool_call()
            events.extend(call.start(block.wire_id, block.name))
            return call
        if isinstance(block, Placed):
            return self.answer.place(block.block())
        return self.answer.text() if isinstance(block, TextInProgress) else self.answer.thinking()

    def open_output(self, step: JSONObject, events: list[Event]) -> Opened:
        output = OutputInProgress()
        contents = required_objects(step.get("content"), "content")
        self.answer.count.check_parts(len(contents))
        for content in contents:
            self.content(output, content, events)
        failure = step.get("error")
        if failure:
            self.answer.provider_data["error"] = failure
        return output

    def open_thought(self, step: JSONObject, events: list[Event]) -> Opened:
        thought = self.answer.thinking()
        thought.state = self.maker
        for content in required_objects(step.get(SUMMARY), SUMMARY):
            self.summary(thought, content, events)
        self.sign(thought, string(step, SIGNATURE))
        return thought

    def open_call(self, step: JSONObject, events: list[Event]) -> Opened:
        """Begin a call. A call without a name is kept as the server's own step."""
        name = string(step, "name")
        if not name:
            return self.open_other(step)
        given = _arguments_text(step.get("arguments"))
        call = self.answer.tool_call()
        extra: JSONObject = {key: value for key, value in step.items() if key not in CALL_MEMBERS and value}
        if extra:
            call.state = ProviderState(self.maker.provider, extra)
        events.extend(call.start(string(step, "id") or self.make_id(), name))
        return CallInProgress(call, given)

    def open_other(self, step: JSONObject) -> Opened:
        """Add a step of the server's own."""
        data = {key: [*value] if type(value) is list else value for key, value in step.items()}
        self.answer.place(ProviderBlock(self.maker.provider, data))
        return StepInProgress(data)

    def content(self, output: OutputInProgress, content: JSONObject, events: list[Event]) -> None:
        """Add a content to an output: a text, a file, or one of an unknown type."""
        kind = string(content, "type")
        sound, output.sound = output.sound, None
        if kind == "text":
            text = string(content, "text")
            if output.text is None:
                output.text = self.answer.text()
            if text:
                events.append(output.text.delta(text))
            self.cite(output, content)
            return
        output.text = None
        file = self.file(content) if kind in MEDIA else None
        if file is None:
            self.answer.place(ProviderBlock(self.maker.provider, {"type": OUTPUT, "content": [content]}))
        elif kind != "audio" or not isinstance(file, File) or file.data is None:
            self.answer.place(file)
        elif sound is not None and sound.file.media_type == file.media_type:
            sound.pieces.append(file.data)
            output.sound = sound
        else:
            output.sound = SoundInProgress(self.answer.place(file), file)
            self.answer.blocks[-1] = output.sound

    def cite(self, output: OutputInProgress, content: JSONObject) -> None:
        """Add annotations to the last text of an output. They are sent back with it, to their maker."""
        annotations = objects(content, "annotations")
        if annotations and output.text is not None:
            output.text.cite(annotations)
            output.text.state = self.maker
        elif annotations:
            self.answer.warn(NO_TEXT_TO_CITE)

    def summary(self, thought: ThinkingInProgress, content: JSONObject, events: list[Event]) -> None:
        """Add a content to a thought's summary. One that is no text is kept in the thought's state."""
        text = string(content, "text")
        if string(content, "type") == "text" or (text and "type" not in content):
            if text:
                events.append(thought.delta(text))
        elif content:
            kept = [] if thought.state is None else objects(thought.state.data, SUMMARY)
            thought.state = ProviderState(self.maker.provider, {SUMMARY: [*kept, content]})

    def sign(self, opened: object, signature: str | None) -> None:
        """Add a signature to a step. One that is sent twice is kept once."""
        if not signature:
            return
        if isinstance(opened, ThinkingInProgress):
            if opened.signature_pieces != [signature]:
                opened.signature_pieces.append(signature)
        elif isinstance(opened, CallInProgress):
            state = opened.call.state
            known = {} if state is None else state.data
            opened.call.state = ProviderState(self.maker.provider, {**known, SIGNATURE: signature})
        else:
            self.answer.warn(NOTHING_TO_SIGN)

    def file(self, content: JSONObject) -> Image | File | None:
        """Return the image or file of a content; None if it has neither bytes that can be decoded nor a URL."""
        media_type, address = string(content, "mime_type"), string(content, "uri")
        text = string(content, "data")
        data = decoded_bytes(text) if text else None
        if not address and (data is None or not media_type):
            return None
        extra = without_nulls({key: value for key, value in content.items() if key not in FILE_MEMBERS})
        state = ProviderState(self.maker.provider, extra) if extra else None
        kind = Image if string(content, "type") == "image" else File
        if data is not None:
            return kind(data=data, media_type=media_type, state=state)
        return kind(url=address, media_type=media_type, state=state)


OPENERS: dict[str, Callable[[StepReader, JSONObject, list[Event]], Opened]] = {
    OUTPUT: StepReader.open_output,
    THOUGHT: StepReader.open_thought,
    CALL: StepReader.open_call,
}
"""Type of a step → the method that begins it. Steps of other types are kept as received."""


def _kind(block: InProgress) -> type:
    return Placed if isinstance(block, Placed) else type(block)


def own_steps(steps: list[JSONObject]) -> list[JSONObject]:
    """Return the steps of the answer. A stored interaction repeats its input before them, results of calls included."""
    kinds = [string(step, "type") for step in steps]
    if INPUT not in kinds:
        return steps
    return steps[max(place for place, kind in enumerate(kinds) if kind in (INPUT, RESULT)) + 1 :]


def _arguments_text(value: JSON) -> str:
    """Return a call's arguments as text, written without spaces, as Google streams them."""
    if type(value) is str:
        return value or "{}"
    try:
        return arguments_text(value) if value else "{}"
    except TypeError:
        raise MalformedJSONError("a call's arguments are nested too deeply") from None
