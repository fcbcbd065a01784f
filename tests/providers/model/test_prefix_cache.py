"""Cached wire forms are sent only if they equal what would be written now."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import manystream as ms
from manystream.providers.catalog.dialect import WireRequest
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.model import prefix_cache
from manystream.providers.model.request import prefix_cache_of
from manystream.providers.model.snapshot import MEMBERS

PROVIDERS: dict[str, tuple[ms.Provider, str]] = {
    "anthropic": (ms.Anthropic(), "claude-sonnet-4-5"),
    "gemini": (ms.Gemini(), "gemini-3-pro-preview"),
    "gemini, without signatures": (ms.Gemini(), "gemini-2.5-flash"),
    "interactions": (ms.GeminiInteractions(), "gemini-3.5-flash"),
    "responses": (ms.OpenAIResponses(), "gpt-5.6"),
    "responses, older": (ms.OpenAIResponses(), "gpt-5.1"),
    "chat": (ms.OpenAIChat(), "gpt-4.1"),
    "chat, newer": (ms.OpenAIChat(), "gpt-5.6"),
    "mistral": (ms.OpenAIChat(name="mistral"), "mistral-large"),
    "openrouter": (ms.OpenAIChat(name="openrouter"), "anthropic/claude-sonnet-4.5"),
    "deepseek": (ms.OpenAIChat(name="deepseek"), "deepseek-reasoner"),
}
KEEPS: ms.JSONObject = {"previous_response_id": "resp_1"}
NAMES = sorted({provider.profile.name for provider, _ in PROVIDERS.values()})


@pytest.fixture(autouse=True, scope="module")
def short_conversations_too() -> Iterator[None]:
    """Cache short conversations, too, so that small examples test the cache."""
    before, prefix_cache.MIN_MESSAGES = prefix_cache.MIN_MESSAGES, 2
    yield
    prefix_cache.MIN_MESSAGES = before


def encode(name: str, request: ms.Request) -> WireRequest | tuple[str, str]:
    """Return the wire request, or the error's field and message."""
    provider, model = PROVIDERS[name]
    try:
        return DIALECTS[provider.profile.dialect_name].encode(request, model, provider, stream=True)
    except ms.InvalidRequestError as error:
        return error.field, str(error)


def same_as_fresh(name: str, conversation: ms.Conversation, **options: ms.JSONObject) -> WireRequest | None:
    """Encode with the cache, and compare with an encoding of the same messages without it."""
    model = PROVIDERS[name][1]
    kept = encode(name, conversation.request(model, **options))  # type: ignore[arg-type]
    fresh = encode(name, ms.Request(model, list(conversation.messages), **options))  # type: ignore[arg-type]
    if not isinstance(kept, WireRequest) or not isinstance(fresh, WireRequest):
        assert kept == fresh
        return None
    assert kept.body == fresh.body
    assert sorted(kept.warnings) == sorted(fresh.warnings)
    return kept


# --- strategies: few ids and few words, so that calls and results meet ---

WORDS = st.sampled_from(["", " ", "word", "é\n", "longer text with spaces "])
IDS = st.sampled_from(["a", "b", "call:c", "x" * 70])
MARKS = st.sampled_from([None, None, ms.CacheControl(), ms.CacheControl("1h")])
STATE_DATA = st.sampled_from(
    [
        {},
        {"id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"phase": "final_answer"},
        {"thoughtSignature": "sig"},
        {"reasoning_member": "reasoning_content"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "t"}]},
        {"type": "custom_tool_call", "id": "ctc_1"},
        {"signature": "s", "n": 1},
    ]
)
STATES = st.none() | st.builds(
    lambda name, data: ms.ProviderState(name, copy.deepcopy(data)), st.sampled_from(NAMES), STATE_DATA
)
PROVIDER_DATA = st.sampled_from(
    [{"type": "web_search_call", "id": "ws_1"}, {"type": "computer_call", "call_id": "a", "id": "cu_1"},
    {"type": "computer_call_output", "call_id": "a"}, {"type": "reasoning", "summary": []},
    {"type": "compaction", "content": "c"}, {"executableCode": {"language": "PYTHON", "code": "1"}}]
)  # fmt: skip
CITATIONS = st.sampled_from([[], [], [{"type": "char_location", "start": 1}], [{"type": "other"}]])
texts = st.builds(lambda text, cited, mark, state: ms.Text(text, copy.deepcopy(cited), mark, state),
                  WORDS, CITATIONS, MARKS, STATES)  # fmt: skip
media = st.sampled_from([ms.Image(url="https://host/a.png"), ms.File(data=b"%PDF", media_type="application/pdf")])
thoughts = st.builds(ms.Thinking, WORDS, st.sampled_from([None, "sig"]), STATES) | st.builds(ms.RedactedThinking, WORDS)
calls = st.builds(ms.ToolCall, IDS, st.just("tool"), st.sampled_from(["{}", '{"a": 1}', "{"]), st.just(True), STATES)
results = st.builds(
    ms.ToolResult, IDS, WORDS | st.lists(texts | media.map(copy.deepcopy), max_size=2), st.booleans(), MARKS
)
own = st.builds(lambda name, data: ms.ProviderBlock(name, copy.deepcopy(data)), st.sampled_from(NAMES), PROVIDER_DATA)
assistant = st.lists(texts | thoughts | calls | own, min_size=1, max_size=4).map(ms.Message.assistant)
user = st.lists(texts | media.map(copy.deepcopy) | own, min_size=1, max_size=2).map(ms.Message.user)
tool = st.lists(results, min_size=1, max_size=3).map(lambda blocks: ms.Message("tool", blocks))


def answered(message: ms.Message) -> list[ms.Message]:
    """Return a round as agents make it: the model's message, and a result for each of its calls."""
    found: list[ms.Block] = [ms.ToolResult(call.id, "done") for call in message.tool_calls]
    return [message, ms.Message("tool", found)] if found else [message]


rounds = assistant.map(answered) | st.lists(assistant | user | tool, min_size=1, max_size=3)


# --- mutations: each changes something in place ---


def every_block(conversation: ms.Conversation) -> list[ms.Block]:
    blocks: list[ms.Block] = []
    for message in conversation.messages:
        for block in message.content:
            blocks.append(block)
            if isinstance(block, ms.ToolResult) and isinstance(block.content, list):
                blocks += block.content
    return blocks


def change_member(conversation: ms.Conversation, number: int) -> None:
    """Set one attribute of one block to another value of its type."""
    blocks = every_block(conversation)
    block = blocks[number % len(blocks)]
    name = MEMBERS[type(block)][number // 7 % len(MEMBERS[type(block)])]
    value = getattr(block, name)
    if isinstance(value, bool):
        setattr(block, name, not value)
    elif name in ("id", "tool_call_id"):
        setattr(block, name, "b" if value == "a" else "a")
    elif isinstance(value, str):
        setattr(block, name, value + "!")
    elif name == "cache_control":
        setattr(block, name, None if value else ms.CacheControl())
    elif name == "state":
        setattr(block, name, None if value else ms.ProviderState("google", {"thoughtSignature": "new"}))
    elif name == "citations":
        setattr(block, name, [{"type": "char_location", "end": number}])


def change_inside(conversation: ms.Conversation, number: int) -> None:
    """Change the content of an attribute in place, so that the attribute stays the same object."""
    block = every_block(conversation)[number % len(every_block(conversation))]
    if isinstance(block, ms.ProviderBlock):
        block.data["n"] = [1, True, 1.0, "1"][number % 4]
    elif isinstance(block, ms.ToolResult):
        if isinstance(block.content, list):
            block.content.append(ms.Text(f"more {number}"))
    elif block.state is not None:
        block.state.data["phase"] = f"phase {number}"
    elif isinstance(block, ms.Text):
        block.citations.append({"type": "char_location", "start": number})


def change_blocks(conversation: ms.Conversation, number: int) -> None:
    content = conversation.messages[number % len(conversation.messages)].content
    kind = number // 5 % 4
    if kind == 0 and len(content) > 1:
        content.pop(number % len(content))
    elif kind == 1:
        content.append(ms.Text(f"added {number}"))
    elif kind == 2:
        content.reverse()
    else:
        content[number % len(content)] = ms.Text("put in its place")


def change_messages(conversation: ms.Conversation, number: int) -> None:
    messages = conversation.messages
    place, kind = number % len(messages), number // 5 % 5
    if kind == 0 and len(messages) > 1:
        messages.pop(place)
    elif kind == 1:
        messages.insert(place, ms.Message.user(f"put in {number}"))
    elif kind == 2:
        messages[place] = ms.Message.assistant("another")
    elif kind == 3:
        messages.reverse()
    else:
        messages[place].role = ms.Role.ASSISTANT if messages[place].role is not ms.Role.ASSISTANT else ms.Role.USER


MUTATIONS: list[Callable[[ms.Conversation, int], None]] = [
    change_member, change_member, change_inside, change_blocks, change_messages,
]  # fmt: skip
steps = st.lists(
    st.tuples(st.just("add"), rounds) | st.tuples(st.just("mutate"),
    st.tuples(st.sampled_from(MUTATIONS), st.integers(0, 999))) | st.tuples(st.just("fork"), st.none())
    | st.tuples(st.just("switch"), st.sampled_from(sorted(PROVIDERS))), min_size=3, max_size=10,
)  # fmt: skip


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(PROVIDERS)), st.lists(rounds, min_size=1, max_size=4), steps, st.booleans())
def test_any_change_is_sent_as_if_there_were_no_cache(
    name: str, begun: list[list[ms.Message]], steps: list[tuple[str, object]], keeps: bool
) -> None:
    """Appends, changes of every value, forks and changes of provider, in any order."""
    conversation = ms.Conversation([message for messages in begun for message in messages])
    forks: list[ms.Conversation] = []
    options = {"extra_body": KEEPS} if keeps and name.startswith("responses") else {}
    same_as_fresh(name, conversation, **options)
    for what, how in steps:
        if what == "add":
            assert isinstance(how, list)
            conversation.extend(how)
        elif what == "mutate":
            assert isinstance(how, tuple)
            how[0](conversation, how[1])
        elif what == "fork":
            forks.append(conversation)
            conversation = conversation.clone()
        else:
            assert isinstance(how, str)
            name, options = how, {}
        same_as_fresh(name, conversation, **options)
    for fork in forks:
        same_as_fresh(name, fork, **options)


# --- relations that must not cross the cut, one by one ---


def called(call_id: str, *more: ms.Block) -> ms.Message:
    return ms.Message.assistant([*more, ms.ToolCall(call_id, "f", "{}")])


def replied(call_id: str) -> ms.Message:
    return ms.Message.tool_result(call_id, "done")


def own_block(name: str, **data: ms.JSON) -> ms.ProviderBlock:
    return ms.ProviderBlock(name, data)


ASK, NEXT = ms.Message.user("q"), ms.Message.user("next")
REPLY = ms.Message.assistant("said")
RESPONSES = "openai-responses"
STORIES: dict[str, tuple[list[ms.Message], list[ms.Message]]] = {
    "a result comes late": ([ASK, called("a"), NEXT, REPLY, NEXT], [replied("a"), REPLY, NEXT]),
    "a result comes twice": ([ASK, called("a"), replied("a"), REPLY, NEXT], [replied("a"), REPLY, NEXT]),
    "a call never answered is made again": ([ASK, called("a"), NEXT, REPLY, NEXT], [called("a"), replied("a")]),
    "ids count from 0 in every answer": ([ASK, called("a"), replied("a")], [called("a"), replied("a")] * 3),
    "nothing of the last turn is sent": (
        [ASK, ms.Message.assistant(ms.Thinking("t")), ms.Message.user(" "), REPLY, NEXT],
        [ms.Message.assistant(ms.Thinking("t")), NEXT],
    ),
    "the model goes on": ([ASK, REPLY, ms.Message("tool", [ms.ToolResult("lost", "x")]), REPLY], [REPLY, NEXT]),
    "reasoning waits for what it led to": (
        [ASK, ms.Message.assistant(ms.Thinking("", state=ms.ProviderState(RESPONSES, {"encrypted_content": "g"}))),
         ms.Message("tool", [ms.ToolResult("lost", "x")]), REPLY],
        [called("a"), replied("a")],
    ),
    "a provider's own call is answered later": (
        [ASK, ms.Message.assistant(own_block(RESPONSES, type="computer_call", call_id="k")), NEXT, REPLY, NEXT],
        [ms.Message.user(own_block(RESPONSES, type="computer_call_output", call_id="k")), REPLY, NEXT],
    ),
    "a provider's own call was answered before": (
        [ASK, ms.Message.user(own_block(RESPONSES, type="computer_call_output", call_id="k")), REPLY, NEXT],
        [ms.Message.assistant(own_block(RESPONSES, type="computer_call", call_id="k")), NEXT, REPLY, NEXT],
    ),
    "a provider's own call is answered some rounds later": (
        [ASK, ms.Message.assistant(own_block(RESPONSES, type="computer_call", call_id="k")), NEXT, REPLY, NEXT],
        [REPLY, NEXT, REPLY, NEXT, ms.Message.user(own_block(RESPONSES, type="computer_call_output", call_id="k"))],
    ),
    "a provider's own call was answered some rounds before": (
        [ASK, ms.Message.user(own_block(RESPONSES, type="computer_call_output", call_id="k")), REPLY, NEXT],
        [REPLY, NEXT, REPLY, NEXT, ms.Message.assistant(own_block(RESPONSES, type="computer_call", call_id="k")), NEXT],
    ),
    "a provider's own call has the id of an answered one": (
        [ASK, called("k"), replied("k"), REPLY, NEXT],
        [ms.Message.assistant(own_block(RESPONSES, type="computer_call", call_id="k")), NEXT, REPLY, NEXT],
    ),
}  # fmt: skip
"""Case → a conversation, and the messages that are appended one by one."""


@pytest.mark.parametrize("name", sorted(PROVIDERS))
@pytest.mark.parametrize("what", STORIES)
def test_relations_across_the_cut_are_written_as_without_cache(what: str, name: str) -> None:
    begun, added = STORIES[what]
    conversation = ms.Conversation(copy.deepcopy(begun))
    same_as_fresh(name, conversation)
    for message in copy.deepcopy(added):
        conversation.add(message)
        same_as_fresh(name, conversation)


# --- how much is written and kept ---


def long_conversation(rounds: int = 100) -> ms.Conversation:
    messages = [ASK]
    for number in range(rounds):
        messages += [called(f"c{number}", ms.Text("Let me see.")), replied(f"c{number}")]
    return ms.Conversation(copy.deepcopy(messages))


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list with the number of messages that each request checked, which are those that it wrote."""
    counts: list[int] = []
    validate = prefix_cache.validate_messages

    def counting(messages: Sequence[ms.Message], first: int = 0) -> None:
        counts.append(len(messages))
        validate(messages, first)

    monkeypatch.setattr(prefix_cache, "validate_messages", counting)
    return counts


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_an_appended_round_costs_only_that_round(name: str, checked: list[int]) -> None:
    conversation = long_conversation()
    encode(name, conversation.request("m"))
    for number in range(5):
        conversation.extend([called(f"new{number}"), replied(f"new{number}")])
        encode(name, conversation.request("m"))
    # The new round and the one before it, because that one may still be changed.
    assert checked == [201, 4, 4, 4, 4, 4]


def test_a_changed_message_invalidates_the_prefix(checked: list[int]) -> None:
    conversation = long_conversation()
    encode("anthropic", conversation.request("m"))
    conversation.messages[0].content[0] = ms.Text("another question")
    same_as_fresh("anthropic", conversation)
    assert checked[:2] == [201, 201]


def test_a_fork_starts_with_the_originals_cache(checked: list[int]) -> None:
    conversation = long_conversation()
    encode("gemini", conversation.request("m"))
    fork = conversation.clone()
    fork.messages[-1].content[0] = ms.ToolResult("c99", "another result")
    same_as_fresh("gemini", fork)
    same_as_fresh("gemini", conversation)
    assert checked == [201, 2, 201, 2, 201]


def test_the_cache_keeps_the_prefixes_of_two_providers(checked: list[int]) -> None:
    conversation = long_conversation()
    for name in ("anthropic", "chat", "anthropic", "chat", "gemini", "chat", "anthropic"):
        encode(name, conversation.request("m"))
    assert checked == [201, 201, 2, 2, 201, 2, 201]


def test_another_models_rules_are_another_cache_key(checked: list[int]) -> None:
    conversation = long_conversation()
    conversation.messages[0].content[0] = ms.Text("q", cache_control=ms.CacheControl())
    same_as_fresh("responses", conversation)
    same_as_fresh("responses, older", conversation)
    assert checked == [201] * 4


def test_the_cache_is_released_with_its_conversation() -> None:
    conversation = long_conversation()
    request = conversation.request("m")
    encode("anthropic", request)
    assert repr(prefix_cache_of(request)) == "<PrefixCache: 199 messages>"
    assert "PrefixCache" not in repr(request)
    assert {name for name in dir(request) if "cache" in name and not name.startswith("_")} == {"cache"}
    assert request == ms.Request("m", tuple(conversation.messages))
    for copied in (copy.deepcopy(request), pickle.loads(pickle.dumps(request))):
        assert prefix_cache_of(copied) is None
    conversation.clear()
    assert repr(prefix_cache_of(request)) == "<PrefixCache: empty>"


def test_a_short_conversation_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_cache, "MIN_MESSAGES", 16)
    conversation = long_conversation(7)
    request = conversation.request("m")
    encode("chat", request)
    assert repr(prefix_cache_of(request)) == "<PrefixCache: empty>"


def test_a_refused_request_leaves_the_cache_unchanged(checked: list[int]) -> None:
    conversation = long_conversation()
    encode("chat", conversation.request("m"))
    conversation.add(ms.Message.user(ms.File(data=b"f", media_type="video/mp4")))
    assert isinstance(encode("chat", conversation.request("m")), tuple)
    conversation.messages.pop()
    same_as_fresh("chat", conversation)
    assert checked[2] == 2


def test_errors_and_warnings_have_a_messages_position() -> None:
    conversation = long_conversation()
    encode("chat", conversation.request("m"))
    conversation.extend([called("x"), ms.Message.tool_result("x", "failed", is_error=True)])
    sent = same_as_fresh("chat", conversation)
    assert any(warning.startswith("messages[202].content[0].is_error") for warning in sent.warnings)
    conversation.add(ms.Message("tool", [ms.ToolResult("", "x")]))
    assert encode("chat", conversation.request("m")) == encode("chat", ms.Request("m", conversation.messages))
    assert "messages[203].content[0].tool_call_id" in str(encode("chat", conversation.request("m")))


@pytest.mark.parametrize("name", ["anthropic", "gemini", "chat", "mistral"])
def test_a_conversation_without_content_is_refused(name: str) -> None:
    conversation = ms.Conversation()
    conversation.extend([ms.Message.user("") for _ in range(16)])
    failed = encode(name, conversation.request(PROVIDERS[name][1]))
    assert isinstance(failed, tuple)
    assert failed[0] == "messages"
    assert failed[1].startswith("messages: contain nothing that ")


def test_state_that_is_no_json_is_an_error() -> None:
    conversation = long_conversation()
    encode("anthropic", conversation.request("m"))
    own = own_block("anthropic", type="compaction", content=object())  # type: ignore[arg-type]
    conversation.messages[-2].content.insert(0, own)
    failed = encode("anthropic", conversation.request("m"))
    assert isinstance(failed, tuple)
    assert failed[0] == "messages"
