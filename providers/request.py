"""What is asked of a model, in the words all dialects share, and the checks that need no dialect."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .errors import InvalidRequestError
from .json_values import JSON, JSONObject
from .message_checks import validate_messages
from .messages import CacheControl, Message, Text
from .options import Retry, Timeouts
from .written import WrittenMessages

TOOL_CHOICE_MODES = ("auto", "none", "required")


class ThinkingLevel(enum.StrEnum):
    """How much to think. What a level means in tokens or effort is a table per model, in each dialect."""

    NONE = "none"
    LOW = "low"
    MED = "med"
    HIGH = "high"


@dataclass(slots=True, frozen=True)
class ThinkingConfig:
    """Thinking in detail; what is given here wins over the level's table.

    level: as `ThinkingLevel`. budget_tokens: tokens, for models with a budget. effort: the provider's own word
    (`minimal`, `xhigh`, `max`, …). include_summary: whether thinking text is wanted back (None: yes, where the
    dialect offers it).
    """

    level: ThinkingLevel | None = None
    budget_tokens: int | None = None
    effort: str | None = None
    include_summary: bool | None = None


@dataclass(slots=True, frozen=True)
class Tool:
    """A function that the model may ask for. `parameters` is a JSON Schema object.

    strict: hold the model to the schema, for dialects that can (None: the dialect's default).
    """

    name: str
    description: str = ""
    parameters: JSONObject = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool | None = None
    cache_control: CacheControl | None = None


@dataclass(slots=True, frozen=True)
class Request:
    """One request. Only `model` and `messages` are needed; None leaves a setting to the server.

    system: the system prompt, text or text blocks. tool_choice: `auto`, `none`, `required`, or a tool's name.
    response_schema: a JSON Schema that the answer's text must fit; the object is then on `response.parsed`.
    extra_body: members merged into the wire body last; extra_headers: headers added last.
    written: what is written already of these messages, where they are a conversation's; no part of the value.
    """

    model: str
    messages: Sequence[Message]
    system: str | Sequence[Text] | None = field(default=None, kw_only=True)
    tools: Sequence[Tool] = field(default=(), kw_only=True)
    tool_choice: Literal["auto", "none", "required"] | str = field(default="auto", kw_only=True)
    thinking: ThinkingLevel | ThinkingConfig | None = field(default=None, kw_only=True)
    max_output_tokens: int | None = field(default=None, kw_only=True)
    temperature: float | None = field(default=None, kw_only=True)
    top_p: float | None = field(default=None, kw_only=True)
    stop: Sequence[str] = field(default=(), kw_only=True)
    seed: int | None = field(default=None, kw_only=True)
    response_schema: JSONObject | None = field(default=None, kw_only=True)
    parallel_tool_calls: bool | None = field(default=None, kw_only=True)
    metadata: Mapping[str, str] | None = field(default=None, kw_only=True)
    timeouts: Timeouts | None = field(default=None, kw_only=True)
    retry: Retry | None = field(default=None, kw_only=True)
    extra_body: Mapping[str, JSON] | None = field(default=None, kw_only=True)
    extra_headers: Mapping[str, str] | None = field(default=None, kw_only=True)
    written: WrittenMessages | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def system_blocks(self) -> list[Text]:
        """The system prompt as blocks, empty ones left out."""
        if self.system is None:
            return []
        blocks = [Text(self.system)] if isinstance(self.system, str) else list(self.system)
        return [block for block in blocks if block.text]

    @property
    def thinking_config(self) -> ThinkingConfig | None:
        """The thinking option in its long form."""
        return ThinkingConfig(level=self.thinking) if isinstance(self.thinking, ThinkingLevel) else self.thinking


def sharing(request: Request, written: WrittenMessages) -> Request:
    """A request that a conversation has just made, with what is written of that conversation already."""
    object.__setattr__(request, "written", written)
    return request


def validate_request(request: Request) -> None:
    """Check what every dialect needs. Raises `InvalidRequestError` naming the field; changes nothing."""
    validate_options(request)
    validate_messages(request.messages)


def validate_options(request: Request) -> None:
    """The same without a look into the messages, which dialects check where they write them."""
    validate_model(request.model)
    if not request.messages:
        raise InvalidRequestError("messages", "must hold at least one message")
    if request.system is not None and not isinstance(request.system, str):
        for position, block in enumerate(request.system):
            if not isinstance(block, Text):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidRequestError(f"system[{position}]", f"must be a Text block, not {type(block).__name__}")
    if request.tools or request.tool_choice != "auto":
        _validate_tools(request)
    _validate_numbers(request)


def validate_model(model: str) -> None:
    """Check that it can be a name. Raises `InvalidRequestError`."""
    if not isinstance(model, str) or not model.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidRequestError("model", "must be a model's name, such as 'gpt-5' or 'anthropic/claude-sonnet-4-5'")


def _validate_tools(request: Request) -> None:
    names: set[str] = set()
    for position, tool in enumerate(request.tools):
        if not isinstance(tool, Tool) or not tool.name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidRequestError(f"tools[{position}]", "must be a Tool with a name")
        if tool.name in names:
            raise InvalidRequestError(f"tools[{position}].name", f"{tool.name!r} is there twice")
        if not isinstance(tool.parameters, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidRequestError(f"tools[{position}].parameters", "must be a JSON Schema object")
        names.add(tool.name)
    choice = request.tool_choice
    if choice not in TOOL_CHOICE_MODES and choice not in names:
        raise InvalidRequestError("tool_choice", f"{choice!r} is neither auto, none, required nor a tool's name")
    if choice == "required" and not names:
        raise InvalidRequestError("tool_choice", "is 'required', but the request has no tools")


def _validate_numbers(request: Request) -> None:
    limit = request.max_output_tokens
    if limit is not None and (isinstance(limit, bool) or limit < 1):
        raise InvalidRequestError("max_output_tokens", f"must be at least 1, not {limit!r}")
    for name in ("temperature", "top_p"):
        value: float | None = getattr(request, name)
        if value is not None and (isinstance(value, bool) or not math.isfinite(value) or value < 0):
            raise InvalidRequestError(name, f"must be a number of 0 or more, not {value!r}")
    if isinstance(request.stop, str):
        raise InvalidRequestError("stop", "must be a sequence of strings, not one string")
    for position, stop in enumerate(request.stop):
        if not stop:
            raise InvalidRequestError(f"stop[{position}]", "must not be empty")
