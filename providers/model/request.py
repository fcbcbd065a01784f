"""A request to a model, in the words that all dialects share. Values only: `request_rules.py` validates them.

Those modules are loaded at their first use.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict, Unpack, cast

from ..json.json_types import JSON, AnswerType, JSONObject
from .given_body import GivenBody, Sources, given_body, nothing_given
from .messages import SYSTEM, CacheControl, Message, Text
from .options import Durable, Priority, PriorityName, Retry, Timeouts

if TYPE_CHECKING:
    from .prefix_cache import PrefixCache

TOOL_CHOICE_MODES = ("auto", "none", "required")
"""Values of `Request.tool_choice` that are not a tool's name."""


class ThinkingLevel(enum.StrEnum):
    """How much the model should think. Each dialect has a table per model that maps a level to tokens or effort."""

    NONE = "none"
    LOW = "low"
    MED = "med"
    HIGH = "high"


LEVEL_PLACES: dict[ThinkingLevel, int] = {level: place for place, level in enumerate(ThinkingLevel)}
"""Level → its place in a table of words, and its budget in thirds of the way from the smallest one to the largest."""

LevelName: TypeAlias = Literal["none", "low", "med", "medium", "high"]
LEVEL_NAMES: dict[str, ThinkingLevel] = {**{level.value: level for level in ThinkingLevel}, "medium": ThinkingLevel.MED}
"""Name of a level → its `ThinkingLevel`. A request may have either."""


@dataclass(slots=True, frozen=True)
class ThinkingConfig:
    """Thinking in detail. A value given here replaces what the level's table would give.

    level: a `ThinkingLevel` or its name.
    budget_tokens: tokens, for models with a budget; -1 lets the model decide, if it can.
    effort: the provider's own word (`minimal`, `xhigh`, `max`, …).
    include_summary: whether the thinking's text should be returned. None: yes, if the dialect offers it.
    """

    level: ThinkingLevel | None = None
    budget_tokens: int | None = None
    effort: str | None = None
    include_summary: bool | None = None


@dataclass(slots=True, frozen=True)
class Tool:
    """A function that the model may call.

    name: the function's name.
    description: what it does, for the model.
    parameters: a JSON Schema of type `object`.
    strict: whether the server must enforce the schema, for dialects that can. None: the dialect's default.
    cache_control: marks the end of a part of the prompt that may be cached.
    """

    name: str
    description: str = ""
    parameters: JSONObject = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool | None = None
    cache_control: CacheControl | None = None

    def __post_init__(self) -> None:
        """Check the numbers of the schema here, because requests share a tool. `InvalidRequestError` names the path."""
        from ..errors import InvalidRequestError
        from ..json.exact_numbers import UnwritableNumberError
        from ..json.json_values import check_numbers, dumps

        try:
            if b"null" in dumps(self.parameters):  # NaN and infinity are written so
                check_numbers(self.parameters)
        except UnwritableNumberError as error:
            raise InvalidRequestError(f"parameters{error.path}", f"{error.number} cannot be written as JSON") from None
        except TypeError:
            pass  # no JSON; the error is raised where a call is started

    @classmethod
    def from_function(
        cls,
        function: Callable[..., object],
        *,
        name: str | None = None,
        description: str | None = None,
        strict: bool | None = None,
    ) -> Tool:
        """Return the tool that a function is: its name, its docstring, and the schema that pydantic makes of its
        signature.

        The beginning of the docstring describes the tool, its section with parameters (`Args:` or another common form)
        the parameters.

        name: the tool's name instead of the function's.
        description: the tool's description instead of the docstring's.

        Raises `InvalidRequestError` without pydantic, and for a function that has no such schema.
        """
        from .function_tools import description_of, schema_of_function  # few programs make tools of functions

        schema = schema_of_function(function)
        text = description_of(function) if description is None else description
        known: str = getattr(getattr(function, "func", function), "__name__", "")
        if name is None and not known.isidentifier():
            from ..errors import InvalidRequestError

            raise InvalidRequestError("name", "is missing, and the function has none")
        return cls(known if name is None else name, text, schema, strict)


Messages: TypeAlias = str | Message | Sequence[Message | Mapping[str, object]]
"""Messages as a caller may write them: a text is one user's message, and a dict is one in OpenAI's chat form."""

Tags: TypeAlias = Mapping[str, str | int | float | bool]
"""Names and values with which a program finds its calls again."""

Tools: TypeAlias = Sequence[Tool | Mapping[str, object]]
"""Tools as a caller may write them: a dict is one in OpenAI's form, `{"type": "function", "function": {…}}` or flat."""

_READY = frozenset({Message})


class RequestOptions(TypedDict, total=False):
    """The options of a `Request`, for functions that pass them on: `**options: Unpack[ms.RequestOptions]`.

    `Request` documents each option.
    """

    system: str | Sequence[Text] | None
    tools: Tools
    tool_choice: Literal["auto", "none", "required"] | str
    thinking: LevelName | ThinkingLevel | ThinkingConfig | None
    max_output_tokens: int | None
    temperature: float | None
    top_p: float | None
    stop: Sequence[str]
    seed: int | None
    response_schema: JSONObject | AnswerType | None
    parallel_tool_calls: bool | None
    metadata: Mapping[str, str] | None
    timeouts: Timeouts | None
    retry: Retry | None
    extra_body: Mapping[str, JSON] | None
    extra_headers: Mapping[str, str] | None
    priority: PriorityName | Priority
    tenant: str | None
    session: str | None
    tags: Tags | None
    durable: bool | Durable
    return_tokens: bool
    logprobs: int | None
    prompt_token_ids: Sequence[int] | None
    continue_aborted: bool
    cache: Literal["auto"] | None
    keep_received: bool


class _CachedForm:
    """The cache of a conversation's wire form, which a request has beside its value.

    It is not compared, shown or copied.
    """

    __slots__ = ("_prefix_cache",)


@dataclass(slots=True, frozen=True)
class Request(_CachedForm):
    """One request. Only `model` and `messages` (or `prompt_token_ids`) are required. None leaves a setting to the
    server.

    model: the model's name, with or without the provider's (`"anthropic/claude-sonnet-4-5"`).
    messages: the conversation so far, as `Message` values. A text is one user's message. A dict is a message in
        OpenAI's chat form: it becomes a `Message`. System messages at the beginning become `system`.
    system: the system prompt, as text or text blocks.
    tools: functions that the model may call, as `Tool` values; a dict in OpenAI's form becomes one.
    tool_choice: `auto`, `none`, `required`, or a tool's name.
    thinking: a level, its name (`"high"`), or a `ThinkingConfig`.
    max_output_tokens: the most tokens that the model may generate. 0 writes the prompt to the server's cache and asks
        for no answer, as `engine.warm` does.
    temperature: randomness of the output, 0 or more; the upper end depends on the provider.
    top_p: the part of the probability mass that tokens are chosen from, 0 to 1.
    stop: texts at which the model stops.
    seed: a number for reproducible output, for servers that support it.
    response_schema: a JSON Schema that the answer's text must match; the value is then on `response.parsed`. Or a type:
        a pydantic model, or where pydantic is installed a dataclass, a TypedDict, an enum, `list[…]` or a union. Then
        `response.parsed` is an instance of it, or `response.parse_error` says why there is none.
    parallel_tool_calls: whether the model may make several calls in one answer.
    metadata: names and values that are stored with the request, for providers that support it.
    timeouts: replaces the engine's timeouts where given.
    retry: replaces the engine's retry policy.
    extra_body: members that are merged into the wire body last.
    extra_headers: headers that are added last. No repr shows them.
    priority: which calls are sent first where calls wait for a limit: `"interactive"`, `"normal"` or `"batch"`.
    tenant: the name of the customer or user that the call is made for. Tenants with waiting calls get the same number
        of tokens.
    session: the conversation that the call belongs to. It is sent to a server that keeps a conversation at one machine
        by it (`Quirks.session`), hashed where others could read it.
    tags: names and values for the program's own logs, such as `{"agent": "planner", "step": 3}`. The call, its
        completion, its span of OpenTelemetry and recordings have them.
    durable: True or a `Durable`: the answer survives the loss of its connection, and of the process
        (`Call.resume_token`). Only for dialects whose servers keep answers: OpenAI Responses and Gemini Interactions.
    return_tokens: the ids of the answer's tokens and of the prompt's are on `Response.tokens`, and new ones on each
        delta. Only from servers that send ids, such as vLLM, SGLang and llama.cpp. A call that gets none fails.
    logprobs: the log probability of each token is on `Response.tokens`; of the answer's tokens alone (0), or with so
        many others at each position, which are in `Response.provider_data["logprobs"]` as the server sends them.
    prompt_token_ids: the prompt as ids, in place of messages: for `ms.VLLMGenerate`, `ms.SGLangGenerate` and
        `ms.OpenAICompletions`.
    continue_aborted: an answer that the server stopped before its end, for new weights or because it was killed, goes
        on with the prompt and the ids so far as the new prompt, and is joined to one. For `ms.VLLMGenerate` and
        `ms.SGLangGenerate`, with ids.
    cache: `"auto"` sets cache marks where they pay: behind tools and system prompt, behind the last message, and each
        15 blocks in a last round with many results. For servers that take marks; a request with marks keeps its own.
    keep_received: the provider's own JSON of the answer is on `Response.received`, unchanged. A stream takes more CPU
        with it, because each of its events is parsed whole.

    `priority`, `tenant` and `tags` are never sent. The first two have no effect in an engine without `traffic`.
    """

    model: str
    messages: Sequence[Message]
    system: str | Sequence[Text] | None = field(default=None, kw_only=True)
    tools: Sequence[Tool] = field(default=(), kw_only=True)
    tool_choice: Literal["auto", "none", "required"] | str = field(default="auto", kw_only=True)
    thinking: LevelName | ThinkingLevel | ThinkingConfig | None = field(default=None, kw_only=True)
    max_output_tokens: int | None = field(default=None, kw_only=True)
    temperature: float | None = field(default=None, kw_only=True)
    top_p: float | None = field(default=None, kw_only=True)
    stop: Sequence[str] = field(default=(), kw_only=True)
    seed: int | None = field(default=None, kw_only=True)
    response_schema: JSONObject | AnswerType | None = field(default=None, kw_only=True)
    parallel_tool_calls: bool | None = field(default=None, kw_only=True)
    metadata: Mapping[str, str] | None = field(default=None, kw_only=True)
    timeouts: Timeouts | None = field(default=None, kw_only=True)
    retry: Retry | None = field(default=None, kw_only=True)
    extra_body: Mapping[str, JSON] | None = field(default=None, kw_only=True)
    extra_headers: Mapping[str, str] | None = field(default=None, kw_only=True, repr=False)
    priority: PriorityName | Priority = field(default=Priority.NORMAL, kw_only=True)
    tenant: str | None = field(default=None, kw_only=True)
    session: str | None = field(default=None, kw_only=True)
    tags: Tags | None = field(default=None, kw_only=True)
    durable: bool | Durable = field(default=False, kw_only=True)
    return_tokens: bool = field(default=False, kw_only=True)
    logprobs: int | None = field(default=None, kw_only=True)
    prompt_token_ids: Sequence[int] | None = field(default=None, kw_only=True)
    continue_aborted: bool = field(default=False, kw_only=True)
    cache: Literal["auto"] | None = field(default=None, kw_only=True)
    keep_received: bool = field(default=False, kw_only=True)
    # The body as an SDK's arguments wrote it. A field, so that `dataclasses.replace` keeps it.
    _given: GivenBody | None = field(default=None, kw_only=True, repr=False, compare=False)

    def __init__(
        self, model: str, messages: Messages = (), *, _given: GivenBody | None = None, **options: Unpack[RequestOptions]
    ) -> None:
        """Take the options by name. Written by hand, because `messages` and `tools` take more types than the fields."""
        values: dict[str, object] = {**_DEFAULTS, **options}
        if len(values) > len(_DEFAULTS):
            raise _unknown_option(next(name for name in values if name not in _DEFAULTS))
        ready = isinstance(messages, (list, tuple)) and _READY.issuperset(map(type, messages))
        if not ready or (messages and cast("Sequence[Message]", messages)[0].role is SYSTEM):
            left_out: list[str] = []
            messages, values["system"] = _read_messages(messages, options.get("system"), left_out)
            if left_out and _given is None:
                _given = nothing_given(messages, left_out)
        if tools := options.get("tools"):
            values["tools"] = _read_tools(tools)
        put = object.__setattr__
        put(self, "model", model)
        put(self, "messages", messages)
        for name, value in values.items():
            put(self, name, value)
        put(self, "_given", _given)
        put(self, "_prefix_cache", None)

    @classmethod
    def from_openai(cls, **arguments: object) -> Request:
        """A request from the arguments of openai's `client.chat.completions.create`, `parse` or `stream`.

        Dicts and the SDK's objects are taken. What has no field here goes into `extra_body`. Sent to a provider of the
        same dialect, the body is the same as the SDK's; any other dialect writes it from the fields. `stream` and
        `stream_options` choose nothing: `engine.stream` and `engine.request` do. Raises `InvalidRequestError` that
        names what cannot be carried by its path, such as `messages[2].content[0].type`.
        """
        return _from_arguments("..openai.chat.arguments", arguments)

    @classmethod
    def from_openai_responses(cls, **arguments: object) -> Request:
        """A request from the arguments of openai's `client.responses.create`, `parse` or `stream`. As `from_openai`."""
        return _from_arguments("..openai.responses.arguments", arguments)

    @classmethod
    def from_anthropic(cls, **arguments: object) -> Request:
        """A request from the arguments of anthropic's `client.messages.create`, `parse` or `stream`, those of
        `client.beta.messages` included. As `from_openai`."""
        return _from_arguments("..anthropic.arguments", arguments)

    @classmethod
    def from_gemini(cls, **arguments: object) -> Request:
        """A request from the arguments of google-genai's `client.models.generate_content`: `model`, `contents` and
        `config`. As `from_openai`."""
        return _from_arguments("..gemini.arguments", arguments)

    @classmethod
    def from_gemini_interactions(cls, **arguments: object) -> Request:
        """A request from the arguments of google-genai's `client.interactions.create` for a model. As
        `from_openai`."""
        return _from_arguments("..gemini_interactions.arguments", arguments)

    @property
    def system_blocks(self) -> list[Text]:
        """The system prompt as blocks, without empty ones."""
        system = self.system
        if not system:
            return []
        return [Text(system)] if isinstance(system, str) else [block for block in system if block.text]

    @property
    def thinking_config(self) -> ThinkingConfig | None:
        """The thinking option as a `ThinkingConfig`, with a level that is a `ThinkingLevel`; None if not given."""
        thinking = self.thinking
        if isinstance(thinking, ThinkingConfig):
            level = thinking.level
            return thinking if level is None else replace(thinking, level=LEVEL_NAMES[level])
        return None if thinking is None else ThinkingConfig(level=LEVEL_NAMES[thinking])

    @property
    def durable_option(self) -> Durable | None:
        """The durable option as a `Durable`; None if the answer need not survive anything."""
        durable = self.durable
        return durable if isinstance(durable, Durable) else Durable() if durable else None


_DEFAULTS: Final[Mapping[str, object]] = {
    option.name: option.default for option in fields(Request) if option.name in RequestOptions.__annotations__
}
"""Option → its value if it is not given. The fields of `Request` define them."""


def with_prefix_cache(request: Request, cache: PrefixCache) -> Request:
    """Give a request that a conversation has just made the conversation's cache. Returns the request itself."""
    object.__setattr__(request, "_prefix_cache", cache)
    return request


def prefix_cache_of(request: Request) -> PrefixCache | None:
    """The cache of the conversation that made the request; None for any other request."""
    cache: PrefixCache | None = getattr(request, "_prefix_cache", None)  # a copied request has no such slot yet
    return cache


def given_of(request: Request) -> GivenBody | None:
    """The body as an SDK's arguments wrote it; None for any other request."""
    return request._given  # pyright: ignore[reportPrivateUsage]


def with_given(
    request: Request,
    dialect: str,
    body: JSONObject,
    sources: Sources,
    written: frozenset[str] = frozenset(),
    left_out: Sequence[str] = (),
) -> Request:
    """Give a request that was just read from a body those members of it that fields hold. Returns the same request.

    body: member, or its path with dots → its value. written: members that are written from the fields all the same.
    left_out: warnings about members of the messages that the fields do not hold.
    """
    members = {name: value for name, value in body.items() if name in sources}
    object.__setattr__(request, "_given", given_body(dialect, members, request, sources, written, left_out))
    return request


def _read_messages(
    given: object, system: str | Sequence[Text] | None, warnings: list[str]
) -> tuple[Sequence[Message], str | Sequence[Text] | None]:
    """Messages in another form, and the system prompt. `warnings` gets one for each kind of member that is left out.

    Raises `InvalidRequestError`.
    """
    read: Callable[[object, object, list[str]], tuple[Sequence[Message], str | Sequence[Text] | None]] = _reader(
        "..openai.chat.arguments"
    ).read_messages
    return read(given, system, warnings)


def _read_tools(given: Tools) -> Sequence[Tool]:
    """Tools, those in another form as `Tool` values. Raises `InvalidRequestError`."""
    if type(given) in (list, tuple) and all(type(tool) is Tool for tool in given):
        return cast("Sequence[Tool]", given)
    read: Callable[[object], Sequence[Tool]] = _reader("..convert.plain_forms").read_tools
    return read(given)


def _unknown_option(name: str) -> TypeError:
    """Return the error for an option that there is not. It names ours for the names of other libraries."""
    hint: Callable[[str, Iterable[str]], str] = _reader("..convert.plain_forms").hint_for_option
    return TypeError(
        f"Request() got an unexpected keyword argument {name!r}; {hint(name, ('model', 'messages', *_DEFAULTS))}"
    )


def _from_arguments(module: str, arguments: Mapping[str, object]) -> Request:
    read: Callable[[Mapping[str, object]], Request] = _reader(module).read_arguments
    return read(arguments)


def _reader(module: str) -> ModuleType:
    """Return a module that reads another form of a request.

    Dialects have these modules, and dialects are built on this one. So they are loaded by name at the first use, as the
    registry loads dialects.
    """
    return import_module(module, __package__)
