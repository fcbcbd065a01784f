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
    from .engine import Call as Call
    from .engine import CallMap as CallMap
    from .engine import CallStart as CallStart
    from .engine import CallState as CallState
    from .engine import Completion as Completion
    from .engine import Engine as Engine
    from .engine import EngineClosedError as EngineClosedError
    from .engine import EventStream as EventStream
    from .engine import Limits as Limits
    from .engine import Observer as Observer
    from .engine import OriginStatistics as OriginStatistics
    from .engine import ProviderStatistics as ProviderStatistics
    from .engine import Recording as Recording
    from .engine import Statistics as Statistics
    from .engine import Timings as Timings
    from .engine import TooManyCallsError as TooManyCallsError
    from .engine import open_engine as open_engine
    from .engine.callbacks import OnCompletion as OnCompletion
    from .engine.callbacks import OnEvent as OnEvent
    from .engine.completion import AttemptRecord as AttemptRecord
    from .engine.options import EngineOptions as EngineOptions
    from .engine.portal import Portal as Portal
    from .engine.traffic.amounts import Amounts as Amounts
    from .engine.traffic.amounts import Budget as Budget
    from .engine.traffic.hedge import Hedge as Hedge
    from .engine.traffic.options import Traffic as Traffic
    from .engine.traffic.price import Price as Price
    from .engine.traffic.rate_limit import RateLimit as RateLimit
    from .engine.traffic.route_options import Route as Route
    from .engine.traffic.route_options import Target as Target
    from .engine.traffic.statistics import BudgetStatistics as BudgetStatistics
    from .engine.traffic.statistics import LimitStatistics as LimitStatistics
    from .engine.traffic.statistics import RouteStatistics as RouteStatistics
    from .engine.traffic.statistics import ScopeStatistics as ScopeStatistics
    from .engine.traffic.statistics import TargetStatistics as TargetStatistics
    from .engine.traffic.statistics import TrafficStatistics as TrafficStatistics
    from .providers.conversation import Conversation as Conversation
    from .providers.dialect import Dialect as Dialect
    from .providers.errors import ErrorCategory as ErrorCategory
    from .providers.errors import InvalidRequestError as InvalidRequestError
    from .providers.errors import ManystreamError as ManystreamError
    from .providers.errors import ProviderError as ProviderError
    from .providers.events import Done as Done
    from .providers.events import Error as Error
    from .providers.events import Event as Event
    from .providers.events import EventType as EventType
    from .providers.events import FinishReason as FinishReason
    from .providers.events import Start as Start
    from .providers.events import TextDelta as TextDelta
    from .providers.events import ThinkingDelta as ThinkingDelta
    from .providers.events import ToolCallDelta as ToolCallDelta
    from .providers.events import ToolCallDone as ToolCallDone
    from .providers.events import ToolCallStart as ToolCallStart
    from .providers.json_types import JSON as JSON
    from .providers.json_types import JSONObject as JSONObject
    from .providers.messages import Block as Block
    from .providers.messages import CacheControl as CacheControl
    from .providers.messages import File as File
    from .providers.messages import Image as Image
    from .providers.messages import Message as Message
    from .providers.messages import ProviderBlock as ProviderBlock
    from .providers.messages import ProviderState as ProviderState
    from .providers.messages import RedactedThinking as RedactedThinking
    from .providers.messages import Role as Role
    from .providers.messages import Text as Text
    from .providers.messages import Thinking as Thinking
    from .providers.messages import ToolCall as ToolCall
    from .providers.messages import ToolResult as ToolResult
    from .providers.options import Priority as Priority
    from .providers.options import Retry as Retry
    from .providers.options import Timeouts as Timeouts
    from .providers.partial_json import LiveCalls as LiveCalls
    from .providers.partial_json import PartialJSON as PartialJSON
    from .providers.profile import Profile as Profile
    from .providers.profile import Quirks as Quirks
    from .providers.provider import Anthropic as Anthropic
    from .providers.provider import APIKey as APIKey
    from .providers.provider import Gemini as Gemini
    from .providers.provider import OpenAIChat as OpenAIChat
    from .providers.provider import OpenAIResponses as OpenAIResponses
    from .providers.provider import Provider as Provider
    from .providers.request import Request as Request
    from .providers.request import RequestOptions as RequestOptions
    from .providers.request import ThinkingConfig as ThinkingConfig
    from .providers.request import ThinkingLevel as ThinkingLevel
    from .providers.request import Tool as Tool
    from .providers.response import Response as Response
    from .providers.rows import Row as Row
    from .providers.rows import RowError as RowError
    from .providers.rows import message_from_row as message_from_row
    from .providers.rows import rows_from_message as rows_from_message
    from .providers.usage import Usage as Usage
    from .store import ConversationStore as ConversationStore
    from .store import StoreError as StoreError
    from .transport.pool import PoolLimits as PoolLimits
    from .transport.tls import ClientCertificate as ClientCertificate
    from .transport.tls import TLSConfig as TLSConfig

__version__ = "0.1.0"

HOMES: dict[str, tuple[str, ...]] = {
    ".engine": (
        "Call",
        "CallMap",
        "CallStart",
        "CallState",
        "Completion",
        "Engine",
        "EngineClosedError",
        "EventStream",
        "Limits",
        "Observer",
        "OriginStatistics",
        "ProviderStatistics",
        "Recording",
        "Statistics",
        "Timings",
        "TooManyCallsError",
        "open_engine",
    ),
    ".engine.callbacks": (
        "OnCompletion",
        "OnEvent",
    ),
    ".engine.completion": ("AttemptRecord",),
    ".engine.options": ("EngineOptions",),
    ".engine.portal": ("Portal",),
    ".engine.traffic.amounts": (
        "Amounts",
        "Budget",
    ),
    ".engine.traffic.hedge": ("Hedge",),
    ".engine.traffic.options": ("Traffic",),
    ".engine.traffic.price": ("Price",),
    ".engine.traffic.rate_limit": ("RateLimit",),
    ".engine.traffic.route_options": (
        "Route",
        "Target",
    ),
    ".engine.traffic.statistics": (
        "BudgetStatistics",
        "LimitStatistics",
        "RouteStatistics",
        "ScopeStatistics",
        "TargetStatistics",
        "TrafficStatistics",
    ),
    ".providers.conversation": ("Conversation",),
    ".providers.dialect": ("Dialect",),
    ".providers.errors": (
        "ErrorCategory",
        "InvalidRequestError",
        "ManystreamError",
        "ProviderError",
    ),
    ".providers.events": (
        "Done",
        "Error",
        "Event",
        "EventType",
        "FinishReason",
        "Start",
        "TextDelta",
        "ThinkingDelta",
        "ToolCallDelta",
        "ToolCallDone",
        "ToolCallStart",
    ),
    ".providers.json_types": (
        "JSON",
        "JSONObject",
    ),
    ".providers.messages": (
        "Block",
        "CacheControl",
        "File",
        "Image",
        "Message",
        "ProviderBlock",
        "ProviderState",
        "RedactedThinking",
        "Role",
        "Text",
        "Thinking",
        "ToolCall",
        "ToolResult",
    ),
    ".providers.options": (
        "Priority",
        "Retry",
        "Timeouts",
    ),
    ".providers.partial_json": (
        "LiveCalls",
        "PartialJSON",
    ),
    ".providers.profile": (
        "Profile",
        "Quirks",
    ),
    ".providers.provider": (
        "APIKey",
        "Anthropic",
        "Gemini",
        "OpenAIChat",
        "OpenAIResponses",
        "Provider",
    ),
    ".providers.request": (
        "Request",
        "RequestOptions",
        "ThinkingConfig",
        "ThinkingLevel",
        "Tool",
    ),
    ".providers.response": ("Response",),
    ".providers.rows": (
        "Row",
        "RowError",
        "message_from_row",
        "rows_from_message",
    ),
    ".providers.usage": ("Usage",),
    ".store": (
        "ConversationStore",
        "StoreError",
    ),
    ".transport.pool": ("PoolLimits",),
    ".transport.tls": (
        "ClientCertificate",
        "TLSConfig",
    ),
}
"""Module → the public names that it defines. A test compares them with `__all__`."""

_HOME_OF = {name: module for module, names in HOMES.items() for name in names}

if not TYPE_CHECKING:

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


__all__ = [
    "JSON",
    "APIKey",
    "Amounts",
    "Anthropic",
    "AttemptRecord",
    "Block",
    "Budget",
    "BudgetStatistics",
    "CacheControl",
    "Call",
    "CallMap",
    "CallStart",
    "CallState",
    "ClientCertificate",
    "Completion",
    "Conversation",
    "ConversationStore",
    "Dialect",
    "Done",
    "Engine",
    "EngineClosedError",
    "EngineOptions",
    "Error",
    "ErrorCategory",
    "Event",
    "EventStream",
    "EventType",
    "File",
    "FinishReason",
    "Gemini",
    "Hedge",
    "Image",
    "InvalidRequestError",
    "JSONObject",
    "LimitStatistics",
    "Limits",
    "LiveCalls",
    "ManystreamError",
    "Message",
    "Observer",
    "OnCompletion",
    "OnEvent",
    "OpenAIChat",
    "OpenAIResponses",
    "OriginStatistics",
    "PartialJSON",
    "PoolLimits",
    "Portal",
    "Price",
    "Priority",
    "Profile",
    "Provider",
    "ProviderBlock",
    "ProviderError",
    "ProviderState",
    "ProviderStatistics",
    "Quirks",
    "RateLimit",
    "Recording",
    "RedactedThinking",
    "Request",
    "RequestOptions",
    "Response",
    "Retry",
    "Role",
    "Route",
    "RouteStatistics",
    "Row",
    "RowError",
    "ScopeStatistics",
    "Start",
    "Statistics",
    "StoreError",
    "TLSConfig",
    "Target",
    "TargetStatistics",
    "Text",
    "TextDelta",
    "Thinking",
    "ThinkingConfig",
    "ThinkingDelta",
    "ThinkingLevel",
    "Timeouts",
    "Timings",
    "TooManyCallsError",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallDone",
    "ToolCallStart",
    "ToolResult",
    "Traffic",
    "TrafficStatistics",
    "Usage",
    "__version__",
    "message_from_row",
    "open_engine",
    "rows_from_message",
]
