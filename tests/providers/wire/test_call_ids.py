"""Two parallel calls with one id remain two calls, each with its own result, in every dialect and both directions."""

import itertools
import json
from typing import Any

import pytest

from manystream.providers.anthropic.converter import AnthropicConverter
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.gemini.converter import GeminiConverter
from manystream.providers.history import ToolResultPart
from manystream.providers.history.converter import HistoryConverter
from manystream.providers.model.conversation import Conversation
from manystream.providers.model.messages import Message, Role, ToolCall, ToolResult
from manystream.providers.model.request import Request
from manystream.providers.model.response import Response
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter
from manystream.providers.wire.call_ids import TakenIds, unique_id
from tests.conformance.exchange import provider_for

MODELS = {
    "openai-chat": "gpt-5", "openai-responses": "gpt-5", "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-flash", "gemini-interactions": "gemini-3.5-flash",
}  # fmt: skip


def chat_call(number: int, name: str) -> Any:
    return {
        "index": number, "id": "x", "type": "function", "function": {"name": name, "arguments": f'{{"n":{number}}}'},
    }  # fmt: skip


def responses_call(number: int, name: str) -> Any:
    return {
        "type": "function_call", "id": f"fc_{number}", "call_id": "x", "name": name, "arguments": f'{{"n":{number}}}',
        "status": "completed",
    }  # fmt: skip


def tool_use(number: int, name: str) -> Any:
    return {"type": "tool_use", "id": "x", "name": name, "input": {"n": number}}


def gemini_call(number: int, name: str) -> Any:
    return {"functionCall": {"id": "x", "name": name, "args": {"n": number}}}


def two(make: Any) -> list[Any]:
    return [make(0, "rain"), make(1, "wind")]


def responses_events() -> list[Any]:
    items = two(responses_call)
    added = [
        {"type": "response.output_item.added", "output_index": index, "item": {**item, "arguments": ""}}
        for index, item in enumerate(items)
    ]
    deltas = [
        {"type": "response.function_call_arguments.delta", "output_index": index, "delta": item["arguments"]}
        for index, item in enumerate(items)
    ]
    done = [
        {"type": "response.output_item.done", "output_index": index, "item": item} for index, item in enumerate(items)
    ]
    return [
        *added, *deltas, *done, {"type": "response.completed", "response": {"status": "completed", "output": items}},
    ]  # fmt: skip


def interactions_call(number: int, name: str) -> Any:
    return {"type": "function_call", "id": "x", "name": name, "arguments": {"n": number}}


def interactions_events() -> list[Any]:
    events: list[Any] = [{"event_type": "interaction.created", "interaction": {"status": "in_progress"}}]
    for index, call in enumerate(two(interactions_call)):
        delta = {"type": "arguments_delta", "arguments": json.dumps(call["arguments"], separators=(",", ":"))}
        events += [
            {"event_type": "step.start", "index": index, "step": {**call, "arguments": {}}},
            {"event_type": "step.delta", "index": index, "delta": delta},
            {"event_type": "step.stop", "index": index},
        ]
    return [*events, {"event_type": "interaction.completed", "interaction": {"status": "requires_action"}}]


def anthropic_events() -> list[Any]:
    events: list[Any] = [{"type": "message_start", "message": {"content": [], "usage": {}}}]
    for index, block in enumerate(two(tool_use)):
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events += [
            {"type": "content_block_start", "index": index, "content_block": {**block, "input": {}}},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]  # fmt: skip
    stop = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}
    return [*events, stop, {"type": "message_stop"}]


WHOLE: dict[str, Any] = {
    "openai-chat": {"choices": [{"message": {"tool_calls": two(chat_call)}, "finish_reason": "tool_calls"}]},
    "openai-responses": {"status": "completed", "output": two(responses_call)},
    "anthropic": {"type": "message", "content": two(tool_use), "stop_reason": "tool_use"},
    "gemini": {"candidates": [{"content": {"parts": two(gemini_call)}, "finishReason": "STOP"}]},
    "gemini-interactions": {"object": "interaction", "status": "requires_action", "steps": two(interactions_call)},
}

STREAMS: dict[str, list[Any]] = {
    "openai-chat": [*({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]} for call in two(chat_call)),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}],
    "openai-responses": responses_events(),
    "anthropic": anthropic_events(),
    "gemini-interactions": interactions_events(),
    "gemini": [*({"candidates": [{"content": {"parts": [part]}}]} for part in two(gemini_call)),
        {"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}]}],
}  # fmt: skip


def read(dialect: str, *, stream: bool) -> Response:
    numbers = itertools.count(1)
    provider = provider_for(dialect, "openai")
    if not stream:
        body = json.dumps(WHOLE[dialect]).encode()
        return DIALECTS[dialect].decode(body, provider, lambda: f"made-{next(numbers)}")
    machine = DIALECTS[dialect].machine(provider, lambda: f"made-{next(numbers)}")
    for event in STREAMS[dialect]:
        machine.feed("", json.dumps(event).encode())
    if dialect == "openai-chat":
        machine.feed("", b"[DONE]")
    machine.end()
    return machine.response()


def pairs(dialect: str, messages: Any) -> list[tuple[str, str]]:
    """Return (name, result) of every call that a request sends, matched by the ids on the wire."""
    request = Request(MODELS[dialect], messages)
    wire = DIALECTS[dialect].encode(request, MODELS[dialect], provider_for(dialect, "openai"), stream=False)
    body = json.loads(wire.body)
    if dialect == "openai-chat":
        # A result belongs to the last assistant's message before it.
        turn, calls, results = 0, [], []
        for message in body["messages"]:
            turn += message["role"] == "assistant"
            calls += [(f"{turn} {call['id']}", call["function"]["name"]) for call in message.get("tool_calls", [])]
            if message["role"] == "tool":
                results.append((f"{turn} {message['tool_call_id']}", message["content"]))
    elif dialect == "openai-responses":
        calls = [(item["call_id"], item["name"]) for item in body["input"] if item["type"] == "function_call"]
        results = [
            (item["call_id"], item["output"]) for item in body["input"] if item["type"] == "function_call_output"
        ]
    elif dialect == "gemini-interactions":
        calls = [(step["id"], step["name"]) for step in body["input"] if step["type"] == "function_call"]
        results = [(step["call_id"], step["result"]) for step in body["input"] if step["type"] == "function_result"]
    elif dialect == "anthropic":
        blocks = [block for m in body["messages"] if isinstance(m["content"], list) for block in m["content"]]
        calls = [(block["id"], block["name"]) for block in blocks if block["type"] == "tool_use"]
        results = [(block["tool_use_id"], block["content"]) for block in blocks if block["type"] == "tool_result"]
    else:
        parts = [part for content in body["contents"] for part in content["parts"]]
        asked = [part["functionCall"] for part in parts if "functionCall" in part]
        answered = [part["functionResponse"] for part in parts if "functionResponse" in part]
        # Gemini matches by position, and by id if there is one.
        calls = [(f"{place}{call.get('id')}", call["name"]) for place, call in enumerate(asked)]
        results = [(f"{place}{part.get('id')}", part["response"]["output"]) for place, part in enumerate(answered)]
        assert [part["name"] for part in answered] == [call["name"] for call in asked]
    assert len({id for id, _ in calls}) == len(calls)
    found = dict(results)
    assert len(found) == len(results) == len(calls)
    return [(name, found[id]) for id, name in calls]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("dialect", MODELS)
def test_an_answers_calls_get_unique_ids(dialect: str, stream: bool) -> None:
    calls = read(dialect, stream=stream).tool_calls
    assert [(call.id, call.name, call.parsed, call.complete) for call in calls] == [
        ("x", "rain", {"n": 0}, True),
        ("x_2", "wind", {"n": 1}, True),
    ]


@pytest.mark.parametrize("target", MODELS)
@pytest.mark.parametrize("dialect", MODELS)
def test_results_are_matched_to_their_calls_in_any_order(dialect: str, target: str) -> None:
    first, second = read(dialect, stream=True).tool_calls
    conversation = Conversation([Message.user("Weather?")])
    conversation.add(Message.assistant([first, second]))
    conversation.add(Message(Role.TOOL, [ToolResult(second.id, "windy"), ToolResult(first.id, "rainy")]))
    assert pairs(target, conversation.messages) == [("rain", "rainy"), ("wind", "windy")]


FIRST, SECOND = ToolCall("x", "rain", '{"n":0}'), ToolCall("x", "wind", '{"n":1}')


@pytest.mark.parametrize("together", [True, False], ids=["one message", "two messages"])
@pytest.mark.parametrize("target", MODELS)
def test_a_callers_calls_with_one_id_are_answered_in_order(target: str, together: bool) -> None:
    asked = [Message.assistant([FIRST, SECOND])] if together else [Message.assistant(FIRST), Message.assistant(SECOND)]
    results = (Message.tool_result("x", "rainy"), Message.tool_result("x", "windy"))
    assert pairs(target, [Message.user("Weather?"), *asked, *results]) == [("rain", "rainy"), ("wind", "windy")]


@pytest.mark.parametrize("target", MODELS)
def test_an_id_reused_by_every_turn_is_not_shared(target: str) -> None:
    history = [
        *(Message.user("Rain?"), Message.assistant(FIRST), Message.tool_result("x", "rainy")),
        *(Message.user("Wind?"), Message.assistant(SECOND), Message.tool_result("x", "windy")),
    ]
    request = Request(MODELS[target], history)
    wire = DIALECTS[target].encode(request, MODELS[target], provider_for(target, "openai"), stream=False)
    assert wire.warnings == []
    assert pairs(target, history) == [("rain", "rainy"), ("wind", "windy")]


@pytest.mark.parametrize("swapped", [False, True])
def test_complete_tool_gives_each_call_its_own_result(swapped: bool) -> None:
    conversation = Conversation([Message.user("Weather?")])
    conversation.keep_thinking(Response(content=[FIRST, SECOND]))
    for call, output in [(SECOND, "windy"), (FIRST, "rainy")] if swapped else [(FIRST, "rainy"), (SECOND, "windy")]:
        conversation.complete_tool(call, output)
    assert pairs("anthropic", conversation.messages) == [("rain", "rainy"), ("wind", "windy")]


CONVERTERS: dict[str, tuple[type[HistoryConverter], list[Any]]] = {
    "chat": (ChatConverter, [{"role": "assistant", "tool_calls": two(chat_call)},
        {"role": "tool", "tool_call_id": "x", "content": "rainy"},
        {"role": "tool", "tool_call_id": "x", "content": "windy"}]),
    "responses": (ResponsesConverter, [*two(responses_call),
        {"type": "function_call_output", "call_id": "x", "output": "rainy"},
        {"type": "function_call_output", "call_id": "x", "output": "windy"}]),
    "anthropic": (AnthropicConverter, [{"role": "assistant", "content": two(tool_use)},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "rainy"},
        {"type": "tool_result", "tool_use_id": "x", "content": "windy"}]}]),
    "gemini": (GeminiConverter, [{"role": "model", "parts": two(gemini_call)},
        {"role": "user", "parts": [{"functionResponse": {"id": "x", "name": "rain", "response": {"output": "rainy"}}},
        {"functionResponse": {"id": "x", "name": "wind", "response": {"output": "windy"}}}]}]),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVERTERS)
def test_a_providers_messages_are_read_with_unique_ids(name: str) -> None:
    converter, wire = CONVERTERS[name]
    messages = converter().decode_messages(wire)
    calls = [call for message in messages for call in message.tool_calls]
    results = [block for message in messages for block in message.content if isinstance(block, ToolResult)]
    assert [call.id for call in calls] == ["x", "x_2"]
    assert [(result.tool_call_id, result.text) for result in results] == [("x", "rainy"), ("x_2", "windy")]
    history = converter().to_history(wire)
    parts = [part for item in history for part in item.parts if isinstance(part, ToolResultPart)]
    assert [(part.id, part.name) for part in parts] == [("x", "rain"), ("x_2", "wind")]


def test_a_thousand_calls_with_one_id_take_linear_time() -> None:
    taken: TakenIds = {}
    tried = 0

    def form(id: str) -> str:
        nonlocal tried
        tried += 1
        return id

    ids = []
    for _ in range(1000):
        ids.append(unique_id("a", taken, form))
        taken[ids[-1]] = 1
    assert ids == ["a", *(f"a_{number}" for number in range(2, 1001))]
    assert tried < 2001
