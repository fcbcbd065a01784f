"""One conversation through five dialects, with tools, a file, another process, forks, and all wire requests.

The simulator makes the same checks as the services (calls and results in pairs, unchanged signatures). The tests read
the content of each request from the simulator's journal.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import trio

import manystream as ms
from manystream.providers.anthropic.converter import AnthropicConverter
from manystream.providers.gemini.converter import GeminiConverter
from manystream.providers.gemini.message_writer import SKIP_SIGNATURE
from manystream.providers.gemini_interactions.converter import InteractionsConverter
from manystream.providers.history import History, TextPart, ToolCallPart, ToolResultPart
from manystream.providers.history.converter import HistoryConverter
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter
from manystream.simulator import Simulator, open_simulator

from . import agent as agent_module
from .agent import LOST, ROUTE, Agent, providers

JSONDict = dict[str, Any]

FIRST = "anthropic/claude-sonnet-4-5"
DIALECT_OF = {
    "/v1/messages": "anthropic", "/v1/responses": "responses", "/v1/chat/completions": "chat",
    "/v1beta/interactions": "interactions",
}  # fmt: skip


@dataclass
class Journey:
    """The record of the conversation.

    wire: dialect and body of each request, in order.
    conversation: the conversation at the end.
    """

    path: Path
    origin: str
    first: str
    last: str
    wire: list[tuple[str, JSONDict]]
    warnings: list[str]
    before_fork: ms.Conversation = field(default_factory=ms.Conversation)
    conversation: ms.Conversation = field(default_factory=ms.Conversation)

    def bodies(self, dialect: str) -> list[JSONDict]:
        return [body for name, body in self.wire if name == dialect]


def journal(simulator: Simulator) -> list[tuple[str, JSONDict]]:
    with urlopen(f"{simulator.origin}/sim/requests") as page:
        entries = json.load(page)
    found: list[tuple[str, JSONDict]] = []
    for entry in entries:
        dialect = DIALECT_OF.get(entry["path"], "gemini")
        body = entry["body"]
        if dialect == "chat" and body["model"].startswith("mistral"):
            dialect = "mistral"
        found.append((dialect, body))
    return found


async def begin(path: Path, origin: str) -> tuple[str, ms.Conversation]:
    """Run the first part: Anthropic with thinking, both tools at once, and a truncated response."""
    with ms.ConversationStore(path) as store:
        async with ms.open_engine(providers=providers(origin)) as engine:
            agent = Agent(engine, store, store.create("weather"))
            await agent.ask(FIRST, "What is it like in Oslo?")
            agent.add(LOST)
        return agent.id, agent.conversation


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journey]:
    """Run the whole conversation once for all tests."""
    path = tmp_path_factory.mktemp("journey") / "conversations.db"
    with open_simulator("text=unicode") as simulator:
        first, before = trio.run(begin, path, simulator.origin)
        program = subprocess.run(
            [sys.executable, agent_module.__file__, str(path), first, simulator.origin], capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip
        assert program.returncode == 0, program.stderr
        last = program.stdout.strip()
        with ms.ConversationStore(path) as store:
            conversation = store.restore(last)
        wire = journal(simulator)
        yield Journey(path, simulator.origin, first, last, wire, program.stderr.splitlines(), before, conversation)


# --- the file and the processes ---


def test_the_conversation_is_restored_as_it_was_saved(journey: Journey) -> None:
    with ms.ConversationStore(journey.path) as store:
        assert store.restore(journey.first) == journey.before_fork
        assert journey.conversation.messages[: len(journey.before_fork)] == journey.before_fork.messages


def test_the_fork_changed_and_the_original_did_not(journey: Journey) -> None:
    rounds = len(ROUTE)
    assert len(journey.before_fork) == 5  # question, calls, results, answer, and the truncated response
    assert len(journey.conversation) == 5 + 4 * rounds
    with ms.ConversationStore(journey.path) as store:
        stored = {conversation.id: conversation for conversation in store.list_conversations()}
    assert (stored[journey.last].parent, stored[journey.last].messages) == (journey.first, 5 + 4 * rounds)
    assert stored[journey.first].messages == 5


def test_every_turn_took_two_requests(journey: Journey) -> None:
    dialects = ["anthropic", "responses", "gemini", "interactions", "chat", "mistral"]
    assert [name for name, _ in journey.wire] == [name for dialect in dialects for name in (dialect, dialect)]


def test_a_clone_is_independent(journey: Journey) -> None:
    clone = journey.conversation.clone()
    for message in clone:
        message.content.clear()
    clone.add(ms.Message.user("elsewhere"))
    with ms.ConversationStore(journey.path) as store:
        assert journey.conversation == store.restore(journey.last)


# --- each dialect's second request: thinking, calls, results ---


def test_anthropic_gets_its_signed_thinking_before_the_calls(journey: Journey) -> None:
    first, second = journey.bodies("anthropic")
    assert [message["role"] for message in first["messages"]] == ["user"]
    _, called, answered = second["messages"]
    kinds = [block["type"] for block in called["content"]]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    thinking = journey.before_fork.messages[1].content[0]
    assert isinstance(thinking, ms.Thinking)
    assert called["content"][0] == {"type": "thinking", "thinking": thinking.text, "signature": thinking.signature}
    ids = [block["id"] for block in called["content"][2:]]
    results = {block["tool_use_id"]: block for block in answered["content"]}
    assert set(results) == set(ids)
    assert [results[id].get("is_error", False) for id in ids] == [False, True]
    assert "the clock has stopped" in results[ids[1]]["content"]


def items_of(body: JSONDict, kind: str) -> list[JSONDict]:
    return [item for item in body["input"] if item["type"] == kind]


def test_responses_gets_only_its_own_reasoning_item(journey: Journey) -> None:
    first, second = journey.bodies("responses")
    assert items_of(first, "reasoning") == []
    (reasoning,) = items_of(second, "reasoning")
    assert reasoning["id"].startswith("rs_")
    assert reasoning["encrypted_content"]
    after = second["input"][second["input"].index(reasoning) + 1 :]
    assert [item["type"] for item in after] == [
        "message", "function_call", "function_call", "function_call_output", "function_call_output",
    ]  # fmt: skip


def parts_of(body: JSONDict, name: str) -> list[JSONDict]:
    return [part for content in body["contents"] for part in content["parts"] if name in part]


def test_gemini_gets_its_signature_and_placeholders_for_others(journey: Journey) -> None:
    first, second = journey.bodies("gemini")
    signatures = [part.get("thoughtSignature") for part in parts_of(first, "functionCall")]
    assert signatures == [SKIP_SIGNATURE, None, SKIP_SIGNATURE, None]
    *earlier, own, beside = parts_of(second, "functionCall")
    assert [part.get("thoughtSignature") for part in earlier] == signatures
    assert own["thoughtSignature"] not in (None, SKIP_SIGNATURE)
    assert own["functionCall"]["id"]
    assert "thoughtSignature" not in beside
    answered = [part["functionResponse"] for part in second["contents"][-1]["parts"]]
    assert {answer["id"] for answer in answered} == {own["functionCall"]["id"], beside["functionCall"]["id"]}
    assert {tuple(answer["response"]) for answer in answered} == {("output",), ("error",)}


def test_interactions_get_their_thought_and_all_other_steps(journey: Journey) -> None:
    first, second = journey.bodies("interactions")
    assert items_of(first, "thought") == []
    (thought,) = items_of(second, "thought")
    assert thought["signature"]
    after = second["input"][second["input"].index(thought) + 1 :]
    assert [step["type"] for step in after] == [
        "model_output", "function_call", "function_call", "function_result", "function_result",
    ]  # fmt: skip
    assert [step.get("is_error", False) for step in after[-2:]] == [False, True]
    assert len(items_of(second, "function_call")) == len(items_of(second, "function_result")) == 8


@pytest.mark.parametrize("dialect", ["chat", "mistral"])
def test_a_chat_server_s_results_follow_their_calls(journey: Journey, dialect: str) -> None:
    for body in journey.bodies(dialect):
        open_calls: list[str] = []
        for message in body["messages"]:
            if message["role"] == "tool":
                open_calls.remove(message["tool_call_id"])
            else:
                assert not open_calls, "a call without its result right after it"
                open_calls = [call["id"] for call in message.get("tool_calls", [])]
        assert not open_calls


def test_ids_are_rewritten_only_for_mistral_and_in_pairs(journey: Journey) -> None:
    called = [call.id for message in journey.conversation for call in message.tool_calls if call.id != "lost_1"]
    chat, mistral = journey.bodies("chat")[1], journey.bodies("mistral")[1]
    chat_ids = [call["id"] for message in chat["messages"] for call in message.get("tool_calls", [])]
    assert chat_ids == called[: len(chat_ids)]
    mistral_ids = [call["id"] for message in mistral["messages"] for call in message.get("tool_calls", [])]
    answered = [message["tool_call_id"] for message in mistral["messages"] if message["role"] == "tool"]
    assert len(mistral_ids) == len(set(mistral_ids)) == len(called)
    assert sorted(answered) == sorted(mistral_ids)
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", id) for id in mistral_ids)


# --- all requests ---


def secrets_of(conversation: ms.Conversation) -> dict[str, list[str]]:
    """Return provider → the signatures and items that only this provider may receive."""
    found: dict[str, list[str]] = {"anthropic": [], "responses": [], "gemini": [], "interactions": []}
    for message in conversation:
        for block in message.content:
            if isinstance(block, ms.Thinking) and block.signature and block.state is None:
                found["anthropic"].append(block.signature)
            state = getattr(block, "state", None)
            if isinstance(state, ms.ProviderState) and state.provider == "openai-responses":
                found["responses"].append(str(state.data.get("encrypted_content")))
            if isinstance(state, ms.ProviderState) and state.provider == "google" and "thoughtSignature" in state.data:
                found["gemini"].append(str(state.data["thoughtSignature"]))
            if isinstance(state, ms.ProviderState) and state.provider == "google-interactions":
                found["interactions"].append(str(getattr(block, "signature", None)))
    return found


def test_signatures_are_sent_only_to_their_own_provider(journey: Journey) -> None:
    secrets = secrets_of(journey.conversation)
    assert all(secrets.values()), secrets
    for dialect, body in journey.wire:
        text = json.dumps(body)
        for owner, tokens in secrets.items():
            if owner != dialect:
                assert not any(token in text for token in tokens), f"{owner}'s state went to {dialect}"


def test_no_provider_receives_another_provider_s_thinking(journey: Journey) -> None:
    for number, message in enumerate(journey.conversation):
        for block in message.content:
            if not isinstance(block, ms.Thinking) or not block.text:
                continue
            readers = [name for name, body in journey.wire if json.dumps(block.text)[1:-1] in json.dumps(body)]
            assert len(set(readers)) <= 1, f"the thinking of message {number} went to {readers}"


def test_an_unpaired_call_is_omitted_with_a_warning(journey: Journey) -> None:
    assert any(call.id == "lost_1" for message in journey.conversation for call in message.tool_calls)
    assert not any("lost_1" in json.dumps(body) for _, body in journey.wire)
    assert all("I try once more." in json.dumps(body) for _, body in journey.wire[2:])
    assert sum("'lost_1' has no result and is not sent" in warning for warning in journey.warnings) == 2 * len(ROUTE)


def test_the_whole_conversation_is_in_the_last_request(journey: Journey) -> None:
    last = json.dumps(journey.wire[-1][1])
    for _, text in ROUTE:
        assert text in last
    assert last.count("the clock has stopped") >= 5
    assert last.count("rain, 7 degrees") >= 5


# --- the providers' own histories ---

CONVERTERS: list[type[HistoryConverter]] = [
    ChatConverter, AnthropicConverter, GeminiConverter, ResponsesConverter, InteractionsConverter,
]  # fmt: skip
each = pytest.mark.parametrize("converter", CONVERTERS, ids=lambda kind: kind.__name__)


def said(conversation: ms.Conversation) -> list[object]:
    """Return the content that every dialect can express: texts, calls and results, in order."""
    items: list[object] = []
    for message in conversation:
        for block in message.content:
            if isinstance(block, ms.Text) and block.text:
                items.append(block.text)
            elif isinstance(block, ms.ToolCall):
                items.append((block.id, block.name, block.arguments if block.id == "lost_1" else block.parsed))
            elif isinstance(block, ms.ToolResult):
                items.append((block.tool_call_id, block.text))
    return items


@each
def test_an_exported_conversation_can_be_imported_again(journey: Journey, converter: type[HistoryConverter]) -> None:
    paired = ms.Conversation(message for message in journey.conversation if message != LOST)
    wire = converter().encode_messages(paired.messages)
    assert json.loads(json.dumps(wire)) == wire
    imported = ms.Conversation(converter().decode_messages(wire))
    assert said(imported) == said(paired)
    assert converter().encode_messages(imported.messages) == wire


@each
def test_the_common_history_survives_each_provider_s_form(journey: Journey, converter: type[HistoryConverter]) -> None:
    paired = [message for message in journey.conversation if message != LOST]
    history = History.from_messages(paired, "Be brief.")
    back = converter().to_history(converter().from_history(history))
    carried = (TextPart, ToolCallPart, ToolResultPart)
    parts = [part for item in back if item.role != "system" for part in item.parts if isinstance(part, carried)]
    expected = [part for item in history.conversation for part in item.parts if isinstance(part, carried)]
    assert parts == [part for part in expected if not isinstance(part, TextPart) or part.text]


async def go_on_with(journey: Journey, converter: type[HistoryConverter], model: str) -> ms.Response:
    paired = [message for message in journey.conversation if message != LOST]
    imported = ms.Conversation(converter().decode_messages(converter().encode_messages(paired)))
    imported.add(ms.Message.user("Thank you."))
    async with ms.open_engine(providers=providers(journey.origin)) as engine:
        return await engine.request(imported.request(model))


@pytest.mark.parametrize(
    ("converter", "model"),
    [
        (AnthropicConverter, FIRST),
        (ResponsesConverter, ROUTE[0][0]),
        (GeminiConverter, ROUTE[1][0]),
        (InteractionsConverter, ROUTE[2][0]),
        (ChatConverter, ROUTE[3][0]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_an_imported_conversation_continues_with_its_provider(
    journey: Journey, converter: type[HistoryConverter], model: str
) -> None:
    """The signatures must be unchanged: the service checks them."""
    response = await go_on_with(journey, converter, model)
    assert response.finish_reason is ms.FinishReason.STOP
    assert response.text
