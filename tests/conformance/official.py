"""The official libraries' types, name by name, and how each is handled here.

The result is computed from those tables, so it always agrees with the code.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any

import anthropic.types.beta
from anthropic.types import StopReason
from anthropic.types.beta.message_create_params import MessageCreateParamsBase
from google.genai import types as google
from google.genai._gaos.types.interactions.content import Content as InteractionContent
from google.genai._gaos.types.interactions.createmodelinteraction import CreateModelInteraction
from google.genai._gaos.types.interactions.interactionsseevent import InteractionSSEEvent
from google.genai._gaos.types.interactions.interactionstatusupdate import InteractionStatusUpdateStatus
from google.genai._gaos.types.interactions.step import Step
from google.genai._gaos.types.interactions.stepdeltadata import StepDeltaData
from openai.types.chat import chat_completion_chunk
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.responses import ResponseOutputItem, ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParamsBase

import manystream as ms
from manystream.providers.anthropic.arguments import HEADERS as ANTHROPIC_HEADERS
from manystream.providers.anthropic.blocks import OPENERS
from manystream.providers.anthropic.response import FINISH_REASONS as ANTHROPIC_REASONS
from manystream.providers.anthropic.stream import DELTAS
from manystream.providers.anthropic.stream import EVENTS as ANTHROPIC_EVENTS
from manystream.providers.gemini.finish import FINISH_REASONS as GEMINI_REASONS
from manystream.providers.gemini.json_names import ANNOTATIONS
from manystream.providers.gemini.stream import PARTS, READ_IN_CANDIDATE, READ_IN_CHUNK
from manystream.providers.gemini_interactions.steps import MEDIA
from manystream.providers.gemini_interactions.steps import OPENERS as STEP_OPENERS
from manystream.providers.gemini_interactions.stream import DELTAS as STEP_DELTAS
from manystream.providers.gemini_interactions.stream import EVENTS as INTERACTIONS_EVENTS
from manystream.providers.gemini_interactions.stream import FINISH_REASONS as INTERACTIONS_REASONS
from manystream.providers.openai.chat.answer import CHUNK_MEMBERS, MESSAGE_METHODS
from manystream.providers.openai.responses.items import CALL_KINDS
from manystream.providers.openai.responses.stream import EVENTS as RESPONSES_EVENTS
from manystream.providers.wire.finish_words import FINISH_REASONS as CHAT_REASONS

from .feature_requests import top_level_members

READ, RAW, PASSED = "read", "kept raw", "passed over"
OPTION, EXTRA, HEADER, CLIENT = "sent by an option", "`extra_body`", "`extra_headers`", "the library's own affair"

LIBRARY_ONLY = frozenset(
    {"http_options", "should_return_http_response", "automatic_function_calling", "automatic_continuation"}
)
"""Members of Gemini's configuration that are never sent."""

SENT_AS_HEADERS = frozenset({"betas", *ANTHROPIC_HEADERS})
ITEMS_READ = frozenset({"message", "reasoning", *CALL_KINDS})
PART_MARKS = ("thought", "thoughtSignature")
PADDING = frozenset({"obfuscation", "role", "object", "index"})


@dataclass(slots=True, frozen=True)
class Wire:
    """One kind of names. `what` returns how a name is handled."""

    title: str
    names: Sequence[str]
    what: Callable[[str], str]


def wires() -> list[Wire]:
    """Return all kinds of names, dialect by dialect."""
    return [*_chat(), *_responses(), *_anthropic(), *_gemini(), *_interactions()]


def _chat() -> list[Wire]:
    members = ["choices." + name for name in chat_completion_chunk.Choice.model_fields]
    members += ["choices.delta." + name for name in chat_completion_chunk.ChoiceDelta.model_fields]
    reasons = _literals(chat_completion_chunk.Choice.model_fields["finish_reason"].annotation)
    return [
        _request("Chat: request members", CompletionCreateParamsBase, "openai-chat"),
        Wire("Chat: members of a chunk", [*chat_completion_chunk.ChatCompletionChunk.model_fields, *members],
        _chat_member), Wire("Chat: finish reasons", reasons, lambda name: _reason(CHAT_REASONS, name)),
    ]  # fmt: skip


def _chat_member(name: str) -> str:
    last = name.rpartition(".")[2]
    if last in PADDING:
        return PASSED
    if name.startswith("choices.delta."):
        return READ if last in MESSAGE_METHODS else RAW
    if name == "choices.logprobs":
        return RAW
    return READ if name.startswith("choices.") or name in CHUNK_MEMBERS else RAW


def _responses() -> list[Wire]:
    return [
        _request("Responses: request members", ResponseCreateParamsBase, "openai-responses"),
        Wire("Responses: stream events", _kinds(ResponseStreamEvent),
        lambda name: READ if name in RESPONSES_EVENTS else PASSED),
        Wire("Responses: output items", _kinds(ResponseOutputItem), lambda name: READ if name in ITEMS_READ else RAW),
    ]  # fmt: skip


def _anthropic() -> list[Wire]:
    beta = anthropic.types.beta
    return [
        _request("Anthropic: request members", MessageCreateParamsBase, "anthropic"),
        Wire(
            "Anthropic: stream events",
            _kinds(beta.BetaRawMessageStreamEvent),
            lambda name: READ if name in ANTHROPIC_EVENTS else PASSED,
        ),
        Wire(
            "Anthropic: deltas",
            _kinds(beta.BetaRawContentBlockDelta),
            lambda name: READ if name in DELTAS else f"{RAW}, in the block it belongs to",
        ),
        Wire(
            "Anthropic: content blocks",
            _kinds(beta.BetaContentBlock),
            lambda name: READ if name in OPENERS else f"{RAW}, a `ProviderBlock`",
        ),
        Wire("Anthropic: stop reasons", _literals(StopReason), lambda name: _reason(ANTHROPIC_REASONS, name)),
    ]


def _gemini() -> list[Wire]:
    def member(read: Iterable[str]) -> Callable[[str], str]:
        known = frozenset(read)
        return lambda name: READ if name in known else f"{RAW}, in `provider_data`"

    parts = {
        **dict.fromkeys(ANNOTATIONS, f"{RAW}, in the block's `state`"),
        **dict.fromkeys((*PARTS, *PART_MARKS), READ),
    }
    return [
        _request("Gemini: request members", google.GenerateContentConfig, "gemini"),
        Wire("Gemini: members of a chunk", _camel(google.GenerateContentResponse, _NOT_IN_CHUNK),
             member({*READ_IN_CHUNK, "promptFeedback"})),
        Wire("Gemini: members of a candidate", _camel(google.Candidate),
             member({*READ_IN_CANDIDATE, "citationMetadata"})),
        Wire("Gemini: members of a part", _camel(google.Part),
             lambda name: parts.get(name, f"{RAW}, a `ProviderBlock`")),
        Wire("Gemini: finish reasons", [reason.value for reason in google.FinishReason],
             lambda name: _reason(GEMINI_REASONS, name)),
    ]  # fmt: skip


def _interactions() -> list[Wire]:
    def kind(read: Iterable[str]) -> Callable[[str], str]:
        known = frozenset(read)
        return lambda name: READ if name in known else f"{RAW}, a `ProviderBlock`"

    return [
        _request("Interactions: request members", CreateModelInteraction, "gemini-interactions"),
        Wire("Interactions: stream events", _kinds(InteractionSSEEvent, "event_type"),
             lambda name: READ if name in (*INTERACTIONS_EVENTS, "error") else PASSED),
        Wire("Interactions: steps", _kinds(Step), kind(STEP_OPENERS)),
        Wire("Interactions: deltas", _kinds(StepDeltaData), kind(STEP_DELTAS)),
        Wire("Interactions: contents", _kinds(InteractionContent), kind(("text", *MEDIA))),
        Wire("Interactions: statuses", _literals(InteractionStatusUpdateStatus),
             lambda name: _reason(INTERACTIONS_REASONS, name)),
    ]  # fmt: skip


_NOT_IN_CHUNK = frozenset({"sdk_http_response", "automatic_function_calling_history", "parsed"})


def _request(title: str, parameters: Any, dialect: str) -> Wire:
    sent = top_level_members(dialect)
    hints = parameters.model_fields if hasattr(parameters, "model_fields") else typing.get_type_hints(parameters)

    def what(name: str) -> str:
        if name in SENT_AS_HEADERS:
            return HEADER
        if name in LIBRARY_ONLY and dialect == "gemini":
            return CLIENT
        return OPTION if name in sent or _camel_case(name) in sent else EXTRA

    return Wire(title, sorted(hints), what)


def _reason(table: dict[str, ms.FinishReason], name: str) -> str:
    return f"`FinishReason.{table.get(name, ms.FinishReason.UNKNOWN).name}`"


def _kinds(union: Any, member: str = "type") -> list[str]:
    """Return the `type` of each member of a union of models. `member`: the name of that member."""
    names: list[str] = []
    for model in union_members(union):
        names += _literals(model.model_fields[member].annotation)
    return [name for name in dict.fromkeys(names) if name != "UNKNOWN"]


def union_members(union: Any) -> list[Any]:
    origin = typing.get_origin(union)
    if origin is typing.Annotated:
        return union_members(typing.get_args(union)[0])
    if origin is typing.Union or origin is UnionType:
        return [member for part in typing.get_args(union) for member in union_members(part)]
    return [union]


def _literals(annotation: Any) -> list[str]:
    values: list[str] = []
    for part in union_members(annotation):
        values += [str(value) for value in typing.get_args(part)]
    return values


def _camel(model: Any, without: frozenset[str] = frozenset()) -> list[str]:
    return [_camel_case(name) for name in model.model_fields if name not in without]


def _camel_case(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)
