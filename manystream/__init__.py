"""An engine that carries thousands of live language-model streams on one core.

    import manystream as ms

    async with ms.open_engine(providers=[ms.Anthropic()]) as engine:
        response = await engine.request(ms.Request("claude-sonnet-4-5", [ms.Message.user("Hello")]))

This module holds the public names only. Their code is in `store` and in the packages `engine`, `providers` and
`transport`.

Each name is imported from its module when it is first used. So `import manystream` takes about a millisecond, and the
dialects and the engine are loaded when a program opens an engine. Type checkers read the plain imports.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cache import AnswerCache as AnswerCache
    from .engine import Call as Call
    from .engine import CallMap as CallMap
    from .engine import CallStart as CallStart
    from .engine import CallState as CallState
    from .engine import Completion as Completion
    from .engine import Engine as Engine
    from .engine import EngineClosedError as EngineClosedError
    from .engine import EngineLimits as EngineLimits
    from .engine import EventLoopError as EventLoopError
    from .engine import EventStream as EventStream
    from .engine import LazyEngine as LazyEngine
    from .engine import Observer as Observer
    from .engine import Recording as Recording
    from .engine import Statistics as Statistics
    from .engine import Timings as Timings
    from .engine import TooManyCallsError as TooManyCallsError
    from .engine import open_engine as open_engine
    from .engine.call.callbacks import OnCompletion as OnCompletion
    from .engine.call.callbacks import OnEvent as OnEvent
    from .engine.call.completion import AttemptRecord as AttemptRecord
    from .engine.call.completion import CacheUse as CacheUse
    from .engine.frontends.portal import Portal as Portal
    from .engine.options import EngineOptions as EngineOptions
    from .engine.traffic.budgets.amounts import Amounts as Amounts
    from .engine.traffic.budgets.amounts import Budget as Budget
    from .engine.traffic.budgets.price import Price as Price
    from .engine.traffic.limits.rate_limit import RateLimit as RateLimit
    from .engine.traffic.options import Traffic as Traffic
    from .engine.traffic.options import Warm as Warm
    from .engine.traffic.routing.options import Hedge as Hedge
    from .engine.traffic.routing.options import Route as Route
    from .engine.traffic.routing.options import Target as Target
    from .partial_json import LiveCalls as LiveCalls
    from .partial_json import PartialJSON as PartialJSON
    from .providers.catalog.dialect import Dialect as Dialect
    from .providers.catalog.profile import Profile as Profile
    from .providers.catalog.provider import AccessToken as AccessToken
    from .providers.catalog.provider import Anthropic as Anthropic
    from .providers.catalog.provider import APIKey as APIKey
    from .providers.catalog.provider import Gemini as Gemini
    from .providers.catalog.provider import GeminiInteractions as GeminiInteractions
    from .providers.catalog.provider import OpenAIChat as OpenAIChat
    from .providers.catalog.provider import OpenAICompletions as OpenAICompletions
    from .providers.catalog.provider import OpenAIResponses as OpenAIResponses
    from .providers.catalog.provider import Provider as Provider
    from .providers.catalog.provider import SGLangGenerate as SGLangGenerate
    from .providers.catalog.provider import Sign as Sign
    from .providers.catalog.provider import VLLMGenerate as VLLMGenerate
    from .providers.errors import InvalidRequestError as InvalidRequestError
    from .providers.errors import ManystreamError as ManystreamError
    from .providers.json.json_types import JSON as JSON
    from .providers.json.json_types import JSONObject as JSONObject
    from .providers.limits.server_load import ServerLoad as ServerLoad
    from .providers.model.conversation import Conversation as Conversation
    from .providers.model.events import Done as Done
    from .providers.model.events import ErrorEvent as ErrorEvent
    from .providers.model.events import Event as Event
    from .providers.model.events import EventType as EventType
    from .providers.model.events import FinishReason as FinishReason
    from .providers.model.events import Start as Start
    from .providers.model.events import TextDelta as TextDelta
    from .providers.model.events import ThinkingDelta as ThinkingDelta
    from .providers.model.events import ToolCallDelta as ToolCallDelta
    from .providers.model.events import ToolCallDone as ToolCallDone
    from .providers.model.events import ToolCallStart as ToolCallStart
    from .providers.model.messages import Block as Block
    from .providers.model.messages import CacheControl as CacheControl
    from .providers.model.messages import File as File
    from .providers.model.messages import Image as Image
    from .providers.model.messages import Message as Message
    from .providers.model.messages import ProviderBlock as ProviderBlock
    from .providers.model.messages import ProviderState as ProviderState
    from .providers.model.messages import RedactedThinking as RedactedThinking
    from .providers.model.messages import Role as Role
    from .providers.model.messages import Text as Text
    from .providers.model.messages import Thinking as Thinking
    from .providers.model.messages import ToolCall as ToolCall
    from .providers.model.messages import ToolResult as ToolResult
    from .providers.model.options import Durable as Durable
    from .providers.model.options import Priority as Priority
    from .providers.model.options import Retry as Retry
    from .providers.model.options import Timeouts as Timeouts
    from .providers.model.provider_error import ErrorCategory as ErrorCategory
    from .providers.model.provider_error import ProviderError as ProviderError
    from .providers.model.request import Request as Request
    from .providers.model.request import RequestOptions as RequestOptions
    from .providers.model.request import ThinkingConfig as ThinkingConfig
    from .providers.model.request import ThinkingLevel as ThinkingLevel
    from .providers.model.request import Tool as Tool
    from .providers.model.response import Response as Response
    from .providers.model.tokens import Tokens as Tokens
    from .providers.model.tokens import Usage as Usage
    from .providers.model.turns import Turns as Turns
    from .providers.wire.quirks import LoadReport as LoadReport
    from .providers.wire.quirks import Quirks as Quirks
    from .providers.wire.quirks import SessionField as SessionField
    from .serve import open_gateway as open_gateway
    from .store import ConversationStore as ConversationStore
    from .store import StoreError as StoreError
    from .transport.pool import PoolLimits as PoolLimits
    from .transport.tls import ClientCertificate as ClientCertificate
    from .transport.tls import TLSConfig as TLSConfig

__version__ = "0.1.0"

HOMES: dict[str, tuple[str, ...]] = {
    ".engine": (
        "Call", "CallMap", "CallStart", "CallState", "Completion", "Engine", "EngineClosedError", "EngineLimits",
        "EventLoopError", "EventStream", "LazyEngine", "Observer", "Recording", "Statistics", "Timings",
        "TooManyCallsError", "open_engine",
    ),
    ".engine.call.callbacks": ("OnCompletion", "OnEvent"),
    ".engine.call.completion": ("AttemptRecord", "CacheUse"),
    ".engine.options": ("EngineOptions",),
    ".engine.frontends.portal": ("Portal",),
    ".engine.traffic.budgets.amounts": ("Amounts", "Budget"),
    ".engine.traffic.options": ("Traffic", "Warm"),
    ".engine.traffic.budgets.price": ("Price",),
    ".engine.traffic.limits.rate_limit": ("RateLimit",),
    ".engine.traffic.routing.options": ("Hedge", "Route", "Target"),
    ".providers.model.conversation": ("Conversation",),
    ".providers.catalog.dialect": ("Dialect",),
    ".providers.errors": ("InvalidRequestError", "ManystreamError"),
    ".providers.model.provider_error": ("ErrorCategory", "ProviderError"),
    ".providers.model.events": (
        "Done", "ErrorEvent", "Event", "EventType", "FinishReason", "Start", "TextDelta", "ThinkingDelta",
        "ToolCallDelta", "ToolCallDone", "ToolCallStart",
    ),
    ".providers.json.json_types": ("JSON", "JSONObject"),
    ".providers.model.messages": (
        "Block", "CacheControl", "File", "Image", "Message", "ProviderBlock", "ProviderState", "RedactedThinking",
        "Role", "Text", "Thinking", "ToolCall", "ToolResult",
    ),
    ".providers.model.options": ("Durable", "Priority", "Retry", "Timeouts"),
    ".cache": ("AnswerCache",),
    ".serve": ("open_gateway",),
    ".partial_json": ("LiveCalls", "PartialJSON"),
    ".providers.catalog.profile": ("Profile",),
    ".providers.limits.server_load": ("ServerLoad",),
    ".providers.wire.quirks": ("LoadReport", "Quirks", "SessionField"),
    ".providers.catalog.provider": (
        "APIKey", "AccessToken", "Anthropic", "Gemini", "GeminiInteractions", "OpenAIChat", "OpenAICompletions",
        "OpenAIResponses", "Provider", "SGLangGenerate", "Sign", "VLLMGenerate",
    ),
    ".providers.model.request": ("Request", "RequestOptions", "ThinkingConfig", "ThinkingLevel", "Tool"),
    ".providers.model.response": ("Response",),
    ".providers.model.tokens": ("Tokens", "Usage"),
    ".providers.model.turns": ("Turns",),
    ".store": ("ConversationStore", "StoreError"),
    ".transport.pool": ("PoolLimits",),
    ".transport.tls": ("ClientCertificate", "TLSConfig"),
}  # fmt: skip
"""Module → the public names that it defines. Type checkers see them as the imports above."""

_HOME_OF = {name: module for module, names in HOMES.items() for name in names}

__all__: list[str]
if not TYPE_CHECKING:
    __all__ = [*sorted(_HOME_OF), "__version__"]

    def __getattr__(name: str) -> object:
        home = _HOME_OF.get(name)
        if home is None:
            if name in ("engine", "providers", "transport"):
                return import_module(f".{name}", __name__)
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(home, __name__), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
