"""A chat answer under construction: converts chunks, or one whole body, to events.

Both forms go through the same code (a body's `message` is one large `delta`), so a streamed answer equals an unstreamed
one.

A chat answer has one text and one thinking block, however its deltas alternate, because the wire's unstreamed form
has one string for each. Only content that is an array of parts (Mistral) has its own order.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from ...json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    exactly_object,
    integer,
    items,
    mapping,
    objects,
    required_objects,
    string,
)
from ...model.events import Event, TextDelta, ThinkingDelta
from ...model.messages import File, ProviderBlock, ProviderState
from ...wire.accumulate import Accumulator, Placed, TextInProgress, ThinkingInProgress, events_of
from ...wire.answer_tokens import AnswerTokens
from ...wire.finish_words import reason_of_word
from ..file_data import image_of_url
from .reasoning import DETAILS, STATE_MEMBER, ReasoningDetails, details_text, plain_text
from .tool_calls import LEGACY_INDEX, ToolCallMatcher
from .usage import read_usage
from .values import (
    CALL_MEMBERS,
    LOGPROBS,
    PADDING,
    PROMPT_IDS,
    TOKEN_IDS,
    TOP_LOGPROBS,
    ChunkValues,
    arguments_of,
    as_text,
    has_content,
    has_object_arguments,
    is_probability,
    usage_report,
)

CHUNK_MEMBERS = frozenset(
    {"id", "object", "model", "choices", "usage", "error", "obfuscation", "p", PROMPT_IDS, "sglext"}
)
"""Members of a chunk that are read or are padding. All others are kept in `provider_data`."""

TOKEN_MEMBERS = frozenset({TOKEN_IDS, "response_token_ids", PROMPT_IDS})
"""Members of a choice with ids of tokens: vLLM's, and SGLang's of whole answers."""

CHOICE_MEMBERS = TOKEN_MEMBERS | {"index", "delta", "message", "finish_reason", "logprobs", "usage", "error", "text"}
"""Members of a choice that are read or ignored. `text` is the content, or repeats it for clients of an older API."""

STOPS = ("stop_reason", "matched_stop")
"""Members of a choice that say what stopped it, in vLLM and SGLang: an id, a text, or null for the model's own end."""

NO_CHOICE_0 = "the server sent other choices, but no choice 0"
"""The warning for an answer of several choices whose first never came."""

TEXT_PARTS = frozenset({"text", "output_text"})


@dataclass(slots=True, eq=False, repr=False)
class ChatAnswer:
    """The answer to one request, and the state that its parts are built from."""

    answer: Accumulator
    provider: str
    _make_id: Callable[[], str]
    _: KW_ONLY
    whole: bool = False  # whether the chunk is an unstreamed body; its tool calls are then a list of whole calls
    started: bool = field(default=False, init=False)
    # whether log probabilities are kept as the server sends them
    keeps_logprobs: bool = field(default=True, init=False)
    # what the request asks for of the answer's tokens (`WireRequest.asked`)
    asked: frozenset[str] = field(default=frozenset(), init=False)
    # the number of choices that the request asked for; 0 if that is not known
    choices: int = field(default=0, init=False)
    # until the first log probabilities, or template with values
    _values: ChunkValues | None = field(default=None, init=False)
    # the index of the choice that is the answer: 0, or that of an only choice; None before it has come
    choice_index: int | None = field(default=None, init=False)
    finish: str | None = field(default=None, init=False)
    text: TextInProgress | None = field(default=None, init=False)
    thinking: ThinkingInProgress | None = field(default=None, init=False)
    reasoning_member: str | None = field(default=None, init=False)
    _tools: ToolCallMatcher | None = field(default=None, init=False)  # until the first call
    _cited: int = field(default=0, init=False)
    _details: ReasoningDetails | None = field(default=None, init=False)
    _message_state: JSONObject | None = field(default=None, init=False)
    _messages: bool = field(default=False, init=False)  # whether the stream has messages in place of deltas
    _audio: AudioInProgress | None = field(default=None, init=False)
    _audio_place: Placed | None = field(default=None, init=False)
    _others: dict[int, ChatAnswer] | None = field(default=None, init=False)  # until a second choice
    _sources: dict[str, str] | None = field(default=None, init=False)  # until the first call, refusal or image

    def take(self, chunk: JSONObject, events: list[Event], data: bytes = b"") -> None:
        """Read one chunk, or a whole body. Raises `MalformedJSONError` if content would otherwise be lost.

        events: gets the events that the chunk contains, in order; those before the error, too, if it raises.
        data: the chunk's JSON, if its whole numbers may have become floats.
        """
        if data and any(map(has_object_arguments, objects(chunk, "choices"))):
            chunk = exactly_object(chunk, data)
        answer = self.answer
        # Azure's first chunk has neither model nor id, and ids may change within a stream: the first of each is kept.
        answer.model = answer.model or string(chunk, "model") or None
        answer.id = answer.id or string(chunk, "id") or None
        self.take_usage(chunk)
        for name, value in chunk.items():
            if name not in CHUNK_MEMBERS and value:
                answer.provider_data[name] = value
        if PROMPT_IDS in chunk and chunk[PROMPT_IDS] is not None:
            answer.its_tokens().add_prompt(chunk[PROMPT_IDS])
        try:
            if chunk.get("choices") is not None:
                self._take_choices(required_objects(chunk["choices"], "choices"), events)
            if "sglext" in chunk or "metadata" in chunk:
                self._take_sglang(mapping(chunk, "sglext"), mapping(chunk, "metadata"))
        finally:
            self._begin(events)

    def _take_sglang(self, tokens: JSONObject, metadata: JSONObject) -> None:
        """Read what SGLang sends beside the choices: the ids of a stream, for all choices, and the weights' version."""
        versions = (metadata.get("weight_versions"), metadata.get("weight_version"))
        answers = {0: self, **(self._others or {})}
        for index, ids in enumerate(items(tokens, "output_ids")):
            if index in answers:
                answers[index].answer.its_tokens().add_named(ids)
        if tokens.get("input_ids"):
            self.answer.its_tokens().add_prompt(tokens["input_ids"])
        if any(versions) and self.answer.tokens is not None:
            self.answer.tokens.add_versions(*versions)

    def take_usage(self, chunk: JSONObject) -> None:
        """Read a chunk's token report, if it has one. Reports are totals, so the last one counts."""
        report = usage_report(chunk)
        if report:
            self.answer.usage = read_usage(report)
            if self._values is not None:
                self._values.forget_report()

    def values(self) -> ChunkValues:
        """Return the values that are kept as text. The first call makes the object: most answers have none."""
        if self._values is None:
            keeps, asked = self.keeps_logprobs, bool(self.asked)
            self._values = ChunkValues(self.answer, keeps_logprobs=keeps, reads_logprobs=asked)
        return self._values

    def done(self) -> list[Event]:
        """Read the terminal marker. Returns the last events."""
        if self._values is not None:
            self._values.settle_usage()
        events: list[Event] = []
        if self.choice_index is None and self._others:
            self._without_choice_0(events)
        elsewhere = self.choice_index is None and bool(self._others)
        for other in (self._others or {}).values():
            other.done()
        reason = reason_of_word(self.finish)
        events += [*self.release(), *self.answer.done(reason, self.finish, elsewhere=elsewhere)]
        self._begin(events)
        # After `done`: a block that is placed earlier would hide which one the length limit cut off.
        self.settle()
        nameless = 0 if self._tools is None else self._tools.nameless
        if nameless:
            self.answer.warn(f"{nameless} tool call(s) that never got a name were dropped")
        return events

    def release(self) -> Sequence[Event]:
        """Deliver a call whose name may still grow. Returns its events, with `Start` if they are the first ones."""
        events = [*self._tools.release()] if self._tools is not None else []
        self._begin(events)
        return events

    @property
    def finished(self) -> bool:
        """Whether the answer has a finish reason, or another choice has one and no choice 0 has come."""
        others = self._others.values() if self._others and self.choice_index is None else ()
        return self.finish is not None or any(other.finish is not None for other in others)

    def settle(self) -> None:
        """Move what was collected besides the blocks into the answer. May be called any number of times."""
        answer, values = self.answer, self._values
        if values is not None:
            values.settle_usage()
            logprobs = values.logprobs()
            if logprobs:
                answer.provider_data[LOGPROBS] = logprobs
        if self._details is not None or self._message_state or self.thinking is not None:
            self._settle_thinking()
        if self._audio is not None and self._audio_place is not None:
            self._audio_place.value = self._audio.file(self.provider)
        for other in (self._others or {}).values():
            other.release()
            other.settle()
        self._cite()

    def _cite(self) -> None:
        """Add annotations that cite a source to the text, which may come after them."""
        annotations = self.answer.provider_data.get("annotations")
        texts = [block for block in self.answer.blocks if isinstance(block, TextInProgress)]
        if type(annotations) is list and texts:
            new = annotations[self._cited :]
            texts[-1].cite([item for item in new if type(item) is dict and item.get("type") == "url_citation"])
            self._cited = len(annotations)

    def _begin(self, events: list[Event]) -> None:
        """Put `Start` before the very first events. A stream that fails at once has no `Start`."""
        if events and not self.started:
            self.started = True
            events.insert(0, self.answer.start(self.answer.model, self.answer.id))

    def _take_choices(self, choices: Sequence[JSONObject], events: list[Event]) -> None:
        indexes = self._indexes_of(choices)
        if self.whole and indexes:
            self.choice_index = 0 if 0 in indexes else min(indexes)
        for choice, index in zip(choices, indexes, strict=True):
            self._choice(choice, index, events)

    def _choice(self, choice: JSONObject, index: int, events: list[Event]) -> None:
        if self.choice_index is None and (index == 0 or self.choices == 1):
            self.choice_index = index
        if index != self.choice_index:
            self._other(index).take({"choices": [{**choice, "index": 0}]}, [])
            return
        finish = choice.get("finish_reason")
        if type(finish) is dict:  # SGLang's own form: a type, and what belongs to it
            self._keep("finish_reason", finish)
            finish = finish.get("type")
        if type(finish) is str and finish:
            self.finish = finish
        if not choice.keys() <= CHOICE_MEMBERS:
            for name, value in choice.items():
                if name == TOP_LOGPROBS and type(value) is dict and not self.whole:
                    self.values().add_logprobs({name: [value]})
                elif name not in CHOICE_MEMBERS and value:
                    self._keep(name, value)
        if TOKEN_IDS in choice or PROMPT_IDS in choice or "response_token_ids" in choice:
            tokens = self.answer.its_tokens()
            tokens.add_prompt(choice.get(PROMPT_IDS))
            for name in (TOKEN_IDS, "response_token_ids"):
                if choice.get(name) is not None:
                    tokens.add_named(choice[name])
        if LOGPROBS in choice and (self.keeps_logprobs or self.asked) and is_probability(choice[LOGPROBS]):
            self.values().add_logprobs(choice[LOGPROBS])
        meta = mapping(choice, "meta_info") if "meta_info" in choice else {}
        if "output_token_logprobs" in meta:
            self.answer.its_tokens().take_meta(meta)
        message, before = self._message_of(choice), len(events) if self.asked else 0
        if message:
            if self.whole and message.get("content") == {}:
                message = {**message, "content": "{}"}  # JSON mode: the answer is the empty object
            self._message(message, events)
        if self.answer.tokens is not None:
            if finish:
                self.answer.tokens.stopped(choice, STOPS)
            if self.asked:
                self._attach_tokens(self.answer.tokens, message, events, before, ends=bool(finish))

    def _attach_tokens(
        self, tokens: AnswerTokens, message: JSONObject, events: list[Event], before: int, *, ends: bool
    ) -> None:
        """Give the tokens of a choice to the first delta that came with them; else to one with an empty text.

        Tokens without a text wait for the next delta if it is not clear yet to which kind of block they belong, such as
        the one that opens the thinking. Those of tool calls are in the response alone.

        before: the number of the events that came before those of the choice.
        ends: whether the choice ends here.
        """
        new = events[before:]
        delta = next((event for event in new if isinstance(event, (TextDelta, ThinkingDelta))), None)
        if delta is None and tokens.waiting and not new:
            latest = self.answer.blocks[-1] if self.answer.blocks else None
            is_text = latest is self.text if latest is not None else ends
            if message.get("content") == "" or is_text:
                delta = TextDelta(len(self.answer.blocks) if self.text is None else self.text.index, "")
            elif latest is not None and latest is self.thinking:
                delta = ThinkingDelta(latest.index, "")
            elif latest is None:
                return
            if delta is not None:
                events.append(delta)
        tokens.attach(delta)

    def _indexes_of(self, choices: Sequence[JSONObject]) -> Sequence[int]:
        """Return the index of each choice of a chunk.

        The choices of a whole body need no index, and not every server sends one, or different ones. Their positions
        count then.
        """
        indexes = [integer(choice, "index") for choice in choices]
        if self.whole and (None in indexes or len({*indexes}) < len(indexes)):
            return range(len(indexes))
        return [index or 0 for index in indexes]

    def _without_choice_0(self, events: list[Event]) -> None:
        """Read the first other choice as the answer, unless the request asked for several choices: then the answer is
        the choice 0, which never came.
        """
        others = self._others or {}
        if self.choices > 1:
            self.answer.warn(NO_CHOICE_0)
            return
        first = min(others)
        assert self.answer.choices is not None
        del self.answer.choices[first]
        other = others.pop(first)
        other.done()
        self.choice_index, self.finish = first, other.finish
        self.answer.adopt(other.answer)
        events.extend(events_of(self.answer.response())[1:-1])

    def _other(self, index: int) -> ChatAnswer:
        self._others = self._others or {}
        other = self._others.get(index)
        if other is None:
            count = self.answer.count
            count.check_choices(len(self._others) + 2)  # with the answer's own
            part = Accumulator(count.limits, count)
            other = self._others[index] = ChatAnswer(part, self.provider, self._make_id, whole=self.whole)
            other.keeps_logprobs, other.asked = self.keeps_logprobs, self.asked
            self.answer.add_choice(index, part)
        return other

    def _message_of(self, choice: JSONObject) -> JSONObject:
        """Return the delta, else the message. After deltas, a message repeats their content (Perplexity)."""
        delta, message = choice.get("delta"), choice.get("message")
        for name, value in (("delta", delta), ("message", message)):
            if value and type(value) is not dict:
                raise MalformedJSONError(f"{name} is no object")
        text = choice.get("text")
        if text and type(text) is str and not has_content(delta) and not has_content(message):
            self._sources = self._sources or {}
            if self._sources.setdefault("text", "text" if self.text is None else "content") == "text":
                return {"content": text}
        if type(message) is dict and (self.whole or not has_content(delta)):
            if not self.answer.blocks:
                self._messages = not self.whole
                return message
            if self._messages:
                texts = {"content": self.text, self.reasoning_member or "": self.thinking}
                return next_message(message, texts, has_calls=self._tools is not None)
        self._messages = self._messages and not has_content(delta)
        return delta if type(delta) is dict else {}

    def _message(self, message: JSONObject, events: list[Event]) -> None:
        """Read a message's members: almost always one, otherwise in the order of the table."""
        present = [name for name, value in message.items() if value and name not in PADDING]
        if len(present) > 1:
            present.sort(key=_order)
        for name in present:
            method = MESSAGE_METHODS.get(name)
            if method is None:
                self._keep(name, message[name])
                continue
            if self._tools is not None and name not in CALL_MEMBERS:
                events += self._tools.release()
            method(self, message[name], events)

    def _keep(self, name: str, value: JSON) -> None:
        """Keep an unknown member. Each chunk has only the new elements of a list (vLLM's `routed_experts`), so it
        grows.
        """
        kept = self.answer.provider_data.get(name)
        if type(kept) is list and type(value) is list:
            kept.extend(value)
        else:
            self.answer.provider_data[name] = list(value) if type(value) is list else value

    def _is_source(self, kind: str, member: str) -> bool:
        """Return whether content of this kind is read from this member, the first with any. Others repeat it."""
        self._sources = self._sources or {}
        return self._sources.setdefault(kind, member) == member

    def _reasoning(self, member: str, text: str, events: list[Event]) -> None:
        """Append thinking from the first member that has any. Other members repeat it."""
        if not text or self.reasoning_member not in (None, member):
            return
        self.reasoning_member = member
        if self.thinking is None:
            self.thinking = self.answer.thinking()
        events.append(self.thinking.delta(text))

    def _reasoning_content(self, value: JSON, events: list[Event]) -> None:
        self._reasoning("reasoning_content", plain_text(value), events)

    def _reasoning_plain(self, value: JSON, events: list[Event]) -> None:
        self._reasoning("reasoning", plain_text(value), events)

    def _reasoning_text(self, value: JSON, events: list[Event]) -> None:
        self._reasoning("reasoning_text", plain_text(value), events)

    def _reasoning_details(self, value: JSON, events: list[Event]) -> None:
        if type(value) is list:
            if self._details is None:
                self._details = ReasoningDetails(self.answer.count)
            self._details.add(value)
            self._reasoning(DETAILS, details_text(value), events)

    def _content(self, content: JSON, events: list[Event]) -> None:
        if type(content) is str:
            self._append_text(content, events)
        elif type(content) is list:
            self.answer.count.check_parts(len(content))
            for part in content:
                if type(part) is str and part:
                    self._append_text(part, events)
                elif type(part) is dict:
                    self._part(part, events)
        elif type(content) is dict:
            if string(content, "type") in TEXT_PARTS and string(content, "text") is not None:
                self._part(content, events)
            else:
                self._append_text(as_text(content, "content"), events)  # JSON mode: the object itself
        else:
            raise MalformedJSONError("content is neither text nor parts")

    def _append_text(self, text: str, events: list[Event]) -> None:
        if self.text is None:
            self.text = self.answer.text()
        events.append(self.text.delta(text))

    def _part(self, part: JSONObject, events: list[Event]) -> None:
        kind = string(part, "type") or ""
        if kind in TEXT_PARTS:
            text = string(part, "text")
            if text:
                self._append_text(text, events)
        elif kind in ("thinking", "reasoning"):
            self._thinking_part(part, events)
        elif kind == "refusal":
            self._refuse("content", part.get("refusal"))
        elif kind == "reference" and self.text is not None:
            self.text.cite((part,))
        elif kind == "image_url":
            self.text = None
            self._show("content", [part])
        else:
            self.text = None
            self.answer.place(ProviderBlock(self.provider, part))

    def _thinking_part(self, part: JSONObject, events: list[Event]) -> None:
        """Read a thinking part: Mistral's `thinking` is a list of texts, Databricks's `summary` another one.

        Mistral may sign a part. A part after a signature is another block.
        """
        pieces = part.get("thinking") or part.get("summary") or part.get("text") or ""
        if type(pieces) is list:
            pieces = "".join(string(piece, "text") or "" for piece in pieces if type(piece) is dict)
        text, signature = pieces if type(pieces) is str else "", string(part, "signature")
        if not (text or signature) or self.reasoning_member not in (None, "content"):
            return
        self.reasoning_member = "content"
        block = self.thinking
        if block is None or (text and (block.signature_pieces or self.answer.blocks[-1] is not block)):
            if block is not None:
                block.state = ProviderState(self.provider, self._thinking_state(block))
            block = self.thinking = self.answer.thinking()
            self.text = None
        if text:
            events.append(block.delta(text))
        if signature:
            block.signature_pieces.append(signature)

    def _settle_thinking(self) -> None:
        if self.thinking is None:
            if self._details is None and not self._message_state:
                return
            # Only encrypted or signed reasoning came. It is sent back from a block without text.
            self.thinking = self.answer.thinking(counted=False)
        data = self._thinking_state(self.thinking)
        data.update(self._message_state or {})
        if self._details is not None:
            data[DETAILS] = self._details.values()
        self.thinking.state = ProviderState(self.provider, data)

    def _thinking_state(self, thinking: ThinkingInProgress) -> dict[str, JSON]:
        """Return the state of every thinking block. Details are sent back once, with the last block."""
        return {STATE_MEMBER: self.reasoning_member or "content"} if thinking.pieces else {}

    # --- tool calls ---

    def _calls(self, value: JSON, events: list[Event]) -> None:
        calls = required_objects(value, "tool_calls")
        if not calls or not self._is_source("calls", "tool_calls"):
            return
        self.answer.count.check_call_pieces(len(calls))
        for place, call in enumerate(calls):
            custom = mapping(call, "custom")
            function = mapping(call, "function")
            is_custom = string(call, "type") == "custom" or (bool(custom) and not function)
            source, member = (custom, "input") if is_custom else (function, "arguments")
            name = string(source, "name") or ""
            arguments = arguments_of(source.get(member))
            id = string(call, "id") or ""
            if self.whole:
                block, call_events = self._matcher().whole(id, name, arguments, free_text=is_custom)
            else:
                index = integer(call, "index")
                block, call_events = self._matcher().fragment(
                    id, index, name, arguments, place=place if len(calls) > 1 else None, free_text=is_custom
                )
            events.extend(call_events)
            extra = mapping(call, "extra_content")
            if extra:
                # Gemini signs its calls here, if it is used through this dialect.
                block.state = ProviderState(self.provider, {"extra_content": extra})
            elif is_custom and block.state is None:
                block.state = ProviderState(self.provider, {"type": "custom"})

    def _matcher(self) -> ToolCallMatcher:
        """Return the matcher of the answer's tool calls. It is made for the first one."""
        self._tools = self._tools or ToolCallMatcher(self.answer, self._make_id)
        return self._tools

    def _legacy_call(self, value: JSON, events: list[Event]) -> None:
        if type(value) is not dict:
            return
        name, arguments = string(value, "name") or "", arguments_of(value.get("arguments"))
        # Some servers send the empty object if there is no call.
        if (name or arguments) and self._is_source("calls", "function_call"):
            events.extend(self._matcher().fragment("", LEGACY_INDEX, name, arguments)[1])

    def _refusal(self, value: JSON, events: list[Event]) -> None:
        self._refuse("refusal", value)

    def _refuse(self, member: str, value: JSON) -> None:
        if type(value) is str and value and self._is_source("refusal", member):
            self.answer.refuse(value, self.provider)

    def _audio_delta(self, value: JSON, events: list[Event]) -> None:
        if type(value) is not dict or not any(value.values()):
            return
        if self._audio is None:
            self._audio = AudioInProgress()
            self._audio_place = self.answer.place(self._audio.file(self.provider))
        self._audio.add(value)

    def _images(self, value: JSON, events: list[Event]) -> None:
        self._show("images", value)

    def _show(self, member: str, value: JSON) -> None:
        if not self._is_source("images", member):
            return
        for image in value if type(value) is list else [value]:
            source = image if type(image) is dict else {}
            url = string(mapping(source, "image_url"), "url") or string(source, "image_url") or string(source, "url")
            if url:
                self.answer.place(image_of_url(url))
            elif source:
                self.answer.place(ProviderBlock(self.provider, source))

    def _extra_content(self, value: JSON, events: list[Event]) -> None:
        if type(value) is dict:
            self._message_state = {"extra_content": value}


# These methods are private to the answer, and only this table uses them.
# pyright: reportPrivateUsage=false
MESSAGE_METHODS: dict[str, Callable[[ChatAnswer, JSON, list[Event]], None]] = {
    "reasoning_content": ChatAnswer._reasoning_content,
    "reasoning": ChatAnswer._reasoning_plain,
    "reasoning_text": ChatAnswer._reasoning_text,
    "reasoning_details": ChatAnswer._reasoning_details,
    "content": ChatAnswer._content,
    "refusal": ChatAnswer._refusal,
    "tool_calls": ChatAnswer._calls,
    "function_call": ChatAnswer._legacy_call,
    "audio": ChatAnswer._audio_delta,
    "images": ChatAnswer._images,
    "extra_content": ChatAnswer._extra_content,
}
"""Member of a message or delta → the method that reads it, in reading order. Any other member is kept as it is."""

_ORDER = {name: place for place, name in enumerate(MESSAGE_METHODS)}


def _order(name: str) -> int:
    return _ORDER.get(name, len(_ORDER))


def next_message(
    message: JSONObject, texts: Mapping[str, TextInProgress | ThinkingInProgress | None], *, has_calls: bool
) -> JSONObject:
    """Return what a message adds to those before it, in a stream that has messages in place of deltas.

    A text in it is the next piece, or the whole text so far. Calls come whole, and once.

    texts: member → the block of its text, if there is one.
    has_calls: whether calls came before.
    """
    added: dict[str, JSON] = {**message}
    for name, block in texts.items():
        text = message.get(name)
        if type(text) is str and block is not None:
            added[name] = _after(block.pieces, text)
    if has_calls:
        added.pop("tool_calls", None)
    return added


def _after(pieces: Sequence[str], text: str) -> str:
    """Return a text without the pieces that it begins with; the text itself, if it does not begin with all of them."""
    place = 0
    for piece in pieces:
        if not text.startswith(piece, place):
            return text
        place += len(piece)
    return text[place:]


_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"RIFF", "audio/wav"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)
"""The first bytes of a sound file → its media type. The answer does not name its format; PCM has no such bytes."""


class AudioInProgress:
    """The sound of one answer. Its id and transcript are state, because the next request refers to the sound by id."""

    __slots__ = ("_members", "_pieces", "_transcript")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._transcript: list[str] = []
        self._members: JSONObject = {}

    def add(self, audio: JSONObject) -> None:
        """Add the `audio` member of a message or a delta."""
        self._pieces.append(string(audio, "data") or "")
        self._transcript.append(string(audio, "transcript") or "")
        for name, value in audio.items():
            if value and name not in ("data", "transcript"):
                self._members[name] = value

    def file(self, provider: str) -> File:
        """Return the sound so far."""
        data = _decoded(self._pieces)
        kind = next((kind for magic, kind in _MAGIC if data.startswith(magic)), "audio/pcm")
        members: JSONObject = {**self._members, "transcript": "".join(self._transcript)}
        return File(data=data, media_type=kind, state=ProviderState(provider, {"audio": members}))


def _decoded(pieces: list[str]) -> bytes:
    """Decode base64 fragments: a stream may encode each one separately, or cut one encoding anywhere."""
    try:
        return b"".join(base64.b64decode(piece, validate=True) for piece in pieces)
    except (binascii.Error, ValueError):
        pass
    try:
        whole = "".join(pieces)
        return base64.b64decode(whole + "=" * (-len(whole) % 4))
    except (binascii.Error, ValueError):
        return b""
