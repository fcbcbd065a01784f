"""The names that programs are written against. A change here is a change for everybody who embeds the library."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import manystream as ms
from manystream import aio, portal

from .public_api import SNAPSHOT, describe

CALLS = {"open_engine", "Engine", "Call", "Completion", "Timings", "Statistics", "InvalidRequestError", "ProviderError"}
PROVIDERS = {"OpenAIChat", "OpenAIResponses", "Anthropic", "Gemini"}
REQUESTS = {"Request", "Tool", "ThinkingLevel", "ThinkingConfig", "Timeouts", "Retry", "Priority", "Durable"}
TRAFFIC = {"Traffic", "RateLimit", "TrafficStatistics", "LimiterStatistics", "LimitStatistics"}
MESSAGES = {"Message", "Role", "Text", "Thinking", "RedactedThinking", "ToolCall", "ToolResult", "Image", "File"}
EVENTS = {
    "Event", "EventType", "Start", "TextDelta", "ThinkingDelta", "ToolCallStart", "ToolCallDelta", "ToolCallDone",
    "Done", "Error",
}  # fmt: skip
ANSWERS = {"Response", "FinishReason", "Usage", "ErrorCategory"}
STATE = {"Conversation", "Row", "RowError", "message_from_row", "rows_from_message"}
CONTRACT = TRAFFIC | STATE | CALLS | PROVIDERS | REQUESTS | MESSAGES | EVENTS | ANSWERS

MEMBERS = {
    "Role": "USER ASSISTANT TOOL SYSTEM",
    "ThinkingLevel": "NONE LOW MED HIGH",
    "EventType": "START TEXT_DELTA THINKING_DELTA TOOL_CALL_START TOOL_CALL_DELTA TOOL_CALL_DONE DONE ERROR",
    "FinishReason": "STOP LENGTH TOOL_USE CONTENT_FILTER ERROR ABORTED UNKNOWN",
    "ErrorCategory": "AUTH RATE_LIMIT INVALID_ARG NOT_FOUND SERVER TIMEOUT CONTENT_FILTER NETWORK CANCELLED"
    " CALLBACK BUDGET UNKNOWN",
    "Priority": "INTERACTIVE NORMAL BATCH",
}

EVENT_FIELDS = {
    "Start": "model response_id", "TextDelta": "index text", "ThinkingDelta": "index text",
    "ToolCallStart": "index id name", "ToolCallDelta": "index arguments", "ToolCallDone": "index complete",
    "Done": "finish_reason raw_finish_reason usage provider_data", "Error": "error",
}  # fmt: skip

REQUEST_OPTIONS = (
    "system tools tool_choice thinking max_output_tokens temperature top_p stop seed response_schema"
    " parallel_tool_calls metadata timeouts retry extra_body extra_headers priority tenant session tags durable"
    " return_tokens logprobs prompt_token_ids continue_aborted"
)

ATTRIBUTES = {
    "Call": "cancel wait target waiting_for",
    "Engine": "start_stream start_request request stream statistics",
    "Completion": "success http_status response error error_category error_message retry_after_ms attempts timings"
    " request_id",
    "Conversation": "messages add clear clone request",
    "Row": "kind content data_json",
    "Response": "content text thinking tool_calls finish_reason raw_finish_reason usage model id provider_data"
    " to_message",
    "Usage": "input_tokens output_tokens thinking_tokens cached_tokens cache_write_tokens total_tokens raw",
    "Timeouts": "connect first_byte idle total queue",
    "Retry": "max_attempts base cap jitter",
    "Message": "user assistant tool_call tool_result tool_call_with_thinking",
    "ToolCall": "id name arguments parsed",
    "ToolResult": "tool_call_id content is_error",
    "RedactedThinking": "data",
    "ThinkingConfig": "level budget_tokens effort include_summary",
}


def test_every_name_of_the_contract_is_there() -> None:
    assert not sorted(name for name in CONTRACT if not hasattr(ms, name))


EXCEPTIONS_OF_MODULES = {
    "manystream.aio": "EventLoopError", "manystream.batch": "BatchError JournalError LineError",
    "manystream.cost": "CostExtraError", "manystream.engine.monitor": "MonitorError",
    "manystream.providers.history": "HistoryError", "manystream.store": "StoreError",
}  # fmt: skip
"""Module → the exceptions it raises."""


def test_every_exception_has_the_one_base() -> None:
    values = [getattr(ms, name) for name in ms.__all__]
    found = [value for value in values if isinstance(value, type) and issubclass(value, BaseException)]
    assert {found_class.__name__ for found_class in found} >= {
        "EngineClosedError", "InvalidRequestError", "ProviderError", "RowError", "StoreError", "TooManyCallsError",
    }  # fmt: skip
    for module, names in EXCEPTIONS_OF_MODULES.items():
        found += [getattr(importlib.import_module(module), name) for name in names.split()]
    assert [each for each in found if not issubclass(each, ms.ManystreamError)] == []


def test_all_lists_exactly_what_the_package_offers() -> None:
    assert set(ms.__all__) >= CONTRACT
    loaded = [getattr(ms, name) for name in ms.__all__]
    assert loaded
    machinery = {"annotations", "import_module", "TYPE_CHECKING", "HOMES"}
    offered = {name for name, value in vars(ms).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert (offered - machinery) | {"__version__"} == set(ms.__all__)


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_enumerations_have_exactly_their_members(name: str) -> None:
    assert [member.name for member in getattr(ms, name)] == MEMBERS[name].split()


@pytest.mark.parametrize("name", sorted(EVENT_FIELDS))
def test_events_have_exactly_their_fields_and_know_their_type(name: str) -> None:
    event = getattr(ms, name)
    assert [field.name for field in dataclasses.fields(event)] == EVENT_FIELDS[name].split()
    assert isinstance(event.type, ms.EventType)
    assert event.type.name.replace("_", "") == name.upper()


@pytest.mark.parametrize("name", sorted(ATTRIBUTES))
def test_values_have_the_attributes_of_the_contract(name: str) -> None:
    owner = getattr(ms, name)
    slots = {slot for base in owner.__mro__ for slot in getattr(base, "__slots__", ())}
    missing = [name for name in ATTRIBUTES[name].split() if name not in slots and not hasattr(owner, name)]
    assert not missing


CALL = "cancel completion number pause request resume resume_token state tags target wait waiting_for"
STREAM = "call"  # and `completion`, of each object
RECORDING = "close closed exchanges"
ENGINE = "attach drain end_session map pause record request resume start_request start_stream statistics stream"
OFFERED: dict[type, str] = {
    ms.Call: CALL, ms.Engine: f"{ENGINE} close from_thread", ms.EventStream: STREAM, ms.CallMap: "",
    ms.Recording: RECORDING, aio.Call: CALL, aio.Engine: ENGINE, aio.EventStream: STREAM, portal.Portal: ENGINE,
    portal.PortalCall: CALL, portal.PortalMap: "", portal.PortalStream: STREAM, portal.PortalRecording: RECORDING,
}  # fmt: skip
"""Class → every public name in its `dir`."""


@pytest.mark.parametrize("owner", OFFERED, ids=lambda owner: f"{owner.__module__}.{owner.__name__}")
def test_what_an_engine_hands_out_shows_only_what_a_user_may_use(owner: type) -> None:
    assert [name for name in dir(owner) if not name.startswith("_")] == sorted(OFFERED[owner].split())


async def test_an_engine_has_a_door_for_other_threads() -> None:
    async with ms.open_engine(providers=[ms.OpenAIChat(api_key="k", base_url="http://127.0.0.1:1/v1")]) as engine:
        assert hasattr(engine, "from_thread")


def test_a_request_takes_its_options_by_name_only() -> None:
    assert list(ms.RequestOptions.__annotations__) == REQUEST_OPTIONS.split()
    hello = [ms.Message.user("Hello")]
    with pytest.raises(TypeError, match="positional"):
        ms.Request("m", hello, "Answer in one sentence.")  # type: ignore[misc]  # pyright: ignore[reportCallIssue]
    hint = r"^Request\(\) got an unexpected keyword argument 'temprature'; did you mean 'temperature'\?$"
    with pytest.raises(TypeError, match=hint):
        ms.Request("m", hello, temprature=0.5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_the_options_are_the_fields_of_a_request() -> None:
    """The options of functions that pass them on have the types of the fields; `tools` takes more forms."""
    fields = {field.name: field.type for field in dataclasses.fields(ms.Request) if field.kw_only}
    options = {name: annotation.__forward_arg__ for name, annotation in ms.RequestOptions.__annotations__.items()}
    assert {"_given": fields["_given"], **options, "tools": "Sequence[Tool]"} == fields
    assert options["tools"] == "Tools"
    text = inspect.getdoc(ms.Request)  # Python 3.13 removes the indentation from `__doc__`
    assert text is not None
    assert [name for name in options if f"\n{name}: " not in text] == [], "one line each in a hover"


READERS = ("from_openai", "from_openai_responses", "from_anthropic", "from_gemini", "from_gemini_interactions")


def test_a_request_shows_its_value_alone() -> None:
    shown = {name for name in dir(ms.Request("m", [])) if not name.startswith("_")}
    computed = {"durable_option", "system_blocks", "thinking_config"}
    assert shown == {"model", "messages", *REQUEST_OPTIONS.split(), *computed, *READERS}


CHAT_PROFILE = ms.Profile(name="chat-server", dialect="openai-chat", base_url="http://127.0.0.1:9/v1")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (ms.Provider, "a plain Provider has no dialect: give it a Profile, or take OpenAIChat"),
        (lambda: ms.Provider(name="groq"), "a plain Provider has no dialect"),
        (lambda: ms.Anthropic(profile=CHAT_PROFILE), "openai-chat"),
        (lambda: ms.OpenAIResponses(profile=CHAT_PROFILE), "openai-chat"),
        (lambda: ms.Gemini(profile="groq"), "no profile 'groq' speaks gemini"),
    ],
)
def test_a_provider_without_a_dialect_of_its_own_is_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=re.escape(words)) as raised:
        make()
    assert raised.value.field == "profile"


def test_an_error_carries_what_a_caller_decides_by() -> None:
    error = ms.ProviderError("busy", category=ms.ErrorCategory.RATE_LIMIT)
    attributes = "category http_status message provider_code retry_after_ms retryable request_id body"
    assert not [name for name in attributes.split() if not hasattr(error, name)]
    assert (error.http_status, error.retry_after_ms, error.retryable) == (0, -1, True)


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_a_provider_never_shows_its_key(name: str) -> None:
    provider = getattr(ms, name)(api_key="canary-key", headers={"x-extra": "canary-header"})
    assert "canary" not in repr(provider)
    assert "canary" not in str(provider)


def test_every_public_name_has_one_home_and_comes_from_it() -> None:
    homes = [name for names in ms.HOMES.values() for name in names]
    assert sorted([*homes, "__version__"]) == sorted(ms.__all__)
    for home, names in ms.HOMES.items():
        module = importlib.import_module(home, "manystream")
        assert all(getattr(ms, name) is getattr(module, name) for name in names)
    assert set(ms.__all__) <= set(dir(ms))


def test_type_checkers_see_the_names_that_programs_get() -> None:
    assert ms.__file__ is not None
    source = Path(ms.__file__).read_text()
    pairs = re.findall(r"^    from (\.[\w.]+) import (\w+) as \2$", source, re.MULTILINE)
    assert {name: home for home, name in pairs} == {name: home for home, names in ms.HOMES.items() for name in names}


def test_names_and_signatures_are_those_on_record() -> None:
    on_record, found = SNAPSHOT.read_text("utf-8").splitlines(), describe().splitlines()
    changes = "\n".join(difflib.unified_diff(on_record, found, "on record", "in the code", n=0, lineterm=""))
    assert not changes, (
        f"{changes}\nIf that is meant: `python -m tests.public_api` records it, and CHANGELOG.md names it"
    )
