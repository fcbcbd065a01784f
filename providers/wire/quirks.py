"""How a server departs from its dialect, as a value: a provider's row of data has one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..errors import InvalidRequestError

MaxTokensMember: TypeAlias = Literal["max_completion_tokens", "max_tokens", "by_model"]
ThinkingMember: TypeAlias = Literal[
    "reasoning_effort",
    "reasoning",
    "thinking_type",
    "thinking_budget",
    "enable_thinking",
    "chat_template_kwargs",
    "none",
]
ReasoningReturn: TypeAlias = Literal[
    "none", "as_received", "reasoning_content", "reasoning", "reasoning_details", "thinking_parts"
]
ToolNameForm: TypeAlias = Literal["any", "word_64", "word_128", "gemini"]
CacheMarkMember: TypeAlias = Literal["", "cache_control", "prompt_cache_breakpoint"]
TokenIdsForm: TypeAlias = Literal["none", "return_token_ids", "sglang", "logprobs"]
ToolCallIdForm: TypeAlias = Literal["any", "at_most_40", "nine_alphanumerics"]


@dataclass(slots=True, frozen=True, kw_only=True)
class SessionField:
    """Where a server reads which conversation a request belongs to: in a header, or in a member of the body.

    header: the header's name; empty if it is a member.
    member: the member's name; empty if it is a header.
    hashed: whether the first 32 hexadecimal digits of the SHA-256 of `Request.session` are sent in its place. False is
        for a server of your own, whose logs then show the sessions by their names. A session that is longer than 128
        characters, or has others than visible ASCII, is hashed in any case.

    Raises `InvalidRequestError` unless there is exactly one of `header` and `member`.
    """

    header: str = ""
    member: str = ""
    hashed: bool = True

    def __post_init__(self) -> None:
        if bool(self.header) == bool(self.member):
            raise InvalidRequestError("SessionField", "takes a header or a member of the body: give one of them")


@dataclass(slots=True, frozen=True, kw_only=True)
class LoadReport:
    """How an inference server says how many calls run there and how many wait, of all its clients.

    path: is asked with GET. The base URL without its `/v1` comes before it.
    running: the name of the figure of running calls, in Prometheus' text or in JSON. Figures of one name are added up.
    waiting: the same for the calls that wait.
    slots: the same for the calls that can run at a time, where nothing better is reported.
    header: the header of answers that says how many calls wait, as JSON; empty if there is none.
    """

    path: str
    running: str = ""
    waiting: str = ""
    slots: str = ""
    header: str = ""


@dataclass(slots=True, frozen=True, kw_only=True)
class Quirks:
    """How a server departs from its dialect. The defaults are the dialect's own behaviour.

    Every dialect reads `auth_header`, `query`, `headers` and `session`. OpenAI's two dialects and Anthropic's read
    `strict_end`; in Gemini's a finish reason always ends the answer. Only OpenAI Chat reads the other attributes,
    unless noted.

    The end of the stream, and access:

    strict_end: whether the stream must end with its terminal marker. If False, a finish reason and the end of the body
        are enough.
    auth_header: the header with the key. `authorization` sends it as `Bearer …`, any other header sends the key alone.
        None: the dialect's own, which is `authorization` (OpenAI), `x-api-key` (Anthropic) or `x-goog-api-key`
        (Gemini).
    query: the query of every request, without `?` (`api-version=…`).
    headers: sent with every request.
    raw_predict: whether the path has the model's name, `/publishers/anthropic/models/{model}:rawPredict`, and the body
        has `anthropic_version` in its place, as for Claude on Google's Vertex AI (Anthropic's dialect).
    session: where the server reads `Request.session`, with which it sends the requests of one conversation to one
        machine, whose cache has the conversation. None: the session is not sent.
    load: how the server reports its queue; of several ways, the first one that it answers. Traffic control asks it.
    tool_name: the form of tool names that the server accepts, in every dialect (Gemini has one form for all its
        servers). `word_64` and `word_128`: up to 64 or 128 letters, digits, `_` and `-`. A tool of the request with
        another name is an error. In the conversation such a name is replaced by one derived from it.

    How a request is written:

    max_tokens_member: the member for `max_output_tokens`. `by_model`: `max_completion_tokens` for OpenAI's reasoning
        models, which refuse the other member, and `max_tokens` for all others, which every server accepts.
    stream_usage: whether `stream_options.include_usage` may be sent. Some servers refuse it and report usage anyway.
    system_role: the role of the system prompt.
    thinking: the member that asks for thinking.
        `reasoning_effort`: a word.
        `reasoning`: `{effort | max_tokens, exclude}` (OpenRouter).
        `thinking_type`: `thinking: {type: enabled | disabled}` (DeepSeek, Z.ai, Moonshot).
        `thinking_budget`: `thinking` with `budget_tokens` (Claude behind a chat server).
        `enable_thinking`: with `thinking_budget` (Alibaba).
        `chat_template_kwargs`: `{enable_thinking}` (servers that run open models).
        `none`: thinking cannot be asked for.
    efforts: the effort words for the levels NONE, LOW, MED and HIGH, for models that are not in OpenAI's table. The
        Responses dialect reads them as well.
    tool_call_id: the form of ids that the server accepts. Another id is replaced, in the call and in its result, by one
        derived from it.
    required_tool_choice: the word for "call at least one tool".
    named_tool_choice: whether one tool can be required by name.
    reasoning_refuses_sampling: whether OpenAI's reasoning models refuse `temperature` and `top_p` here, as at OpenAI.
    seed_member: the member for `seed`; empty if there is none.
    parallel_tool_calls: whether the member of this name is accepted.
    metadata: whether the member of this name is accepted.
    tool_strict: whether a tool's `strict` is accepted.
    structured_output: `json_schema`, or `json_object` for servers that guarantee only some JSON object.
    cache_mark: the member for a cache mark of a content part; empty if the server takes none. `cache_control` is
        Anthropic's, which gateways take on tools as well. `prompt_cache_breakpoint` is OpenAI's; it is sent to models
        that accept it only.
    file_parts: whether documents and sound may be sent as content parts.
    file_urls: whether they may be sent by URL.
    video_parts: whether films may be sent as content parts.
    token_ids: how the server is asked for the ids of tokens, for `Request(return_tokens=True)`.
        `return_token_ids`: by the member of this name (vLLM).
        `sglang`: by this member, and by others in a stream, where the ids come at the end.
        `logprobs`: they come with log probabilities (llama.cpp).
        `none`: it sends none.

    What is sent back with the history:

    reasoning_return: the member that returns the model's own reasoning with its tool calls. `as_received`: the member
        that it came in. `reasoning_details`: OpenRouter's signed list, else its `reasoning`. `thinking_parts`: parts of
        the content (Mistral).
    reasoning_required: whether the member must be present with every tool call, empty if there is no reasoning.
    signed_thinking_only: whether thinking without a signature is refused, so that it is not sent (Anthropic's dialect).
        A server that signs nothing gets its own thinking back.
    """

    strict_end: bool = False
    auth_header: str | None = None
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    raw_predict: bool = False
    session: SessionField | None = None
    load: tuple[LoadReport, ...] = ()
    tool_name: ToolNameForm = "any"

    max_tokens_member: MaxTokensMember = "max_completion_tokens"
    stream_usage: bool = True
    system_role: Literal["system", "developer"] = "system"
    thinking: ThinkingMember = "reasoning_effort"
    efforts: tuple[str, str, str, str] = ("none", "low", "medium", "high")
    tool_call_id: ToolCallIdForm = "any"
    required_tool_choice: Literal["required", "any"] = "required"
    named_tool_choice: bool = True
    reasoning_refuses_sampling: bool = False
    seed_member: str = "seed"
    parallel_tool_calls: bool = True
    metadata: bool = True
    tool_strict: bool = True
    structured_output: Literal["json_schema", "json_object"] = "json_schema"
    cache_mark: CacheMarkMember = ""
    file_parts: bool = True
    file_urls: bool = False
    video_parts: bool = False
    token_ids: TokenIdsForm = "return_token_ids"

    reasoning_return: ReasoningReturn = "none"
    reasoning_required: bool = False
    signed_thinking_only: bool = False
