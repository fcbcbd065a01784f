"""The simulator's prompt caches: what each server reads and writes, when, and how its usage says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors

from manystream.simulator import CacheCounts, KnobError, Limit, Simulator, open_simulator_thread
from manystream.simulator.json_text import JSONObject
from manystream.simulator.prompt import APIError, Prompt
from manystream.simulator.prompt_caches import SERVERS, CacheModel, CacheUse, PromptCaches, read_caches
from manystream.simulator.scenario import Tokens
from manystream.simulator.service import ServiceSettings

from .in_process import World, head_and_body

RULES = "house rules " * 500
"""About 1,500 tokens."""

NO_TOKENS = Tokens(0, 0, 0, 0)


def marked(text: str, member: str = "cache_control", **more: str) -> JSONObject:
    return {"type": "text", "text": text, member: {"type": "ephemeral", **more}}


def claude(*blocks: JSONObject, question: str = "Hello", **more: Any) -> JSONObject:
    return {"system": [*blocks], "messages": [{"role": "user", "content": question}], **more}


def take(caches: PromptCaches, body: JSONObject, now: float, model: str = "claude-x", account: str = "k") -> CacheUse:
    dialect = "anthropic" if model.startswith("claude") else "gemini" if "gemini" in model else "openai-chat"
    use = caches.look(dialect, account, Prompt(model=model, body=body), now)
    caches.keep(use, now)
    return use


def chat(text: str, question: str, **more: Any) -> JSONObject:
    return {"messages": [{"role": "system", "content": text}, {"role": "user", "content": question}], **more}


def test_a_beginning_can_be_read_after_the_lag() -> None:
    caches = PromptCaches(CacheModel(cold=3, warm=0.5, lag=2))
    body = claude(marked(RULES))
    assert [take(caches, body, now).counts.read > 0 for now in (0, 2.9, 4.9, 5)] == [False, False, False, True]
    assert [take(caches, body, now).delay for now in (6, 6 + 301)] == [0.5, 3]


@pytest.mark.parametrize("lifetime", ["5m", "1h"])
def test_each_read_begins_the_lifetime_again(lifetime: str) -> None:
    seconds = SERVERS["anthropic"].lifetimes[lifetime][0]
    caches, body = PromptCaches(CacheModel()), claude(marked(RULES, ttl=lifetime))
    times = (0, seconds - 1, 2 * seconds - 2, 3 * seconds - 2)
    assert [take(caches, body, now).counts.reads for now in times] == [0, 1, 1, 0]


def test_what_is_written_and_read_has_its_price() -> None:
    caches = PromptCaches(CacheModel())
    body = claude(marked(RULES, ttl="1h"), marked(RULES + "."))
    first, second = take(caches, body, 0).counts, take(caches, body, 1).counts
    own = first.input - first.written
    assert (first.written, second.read, second.written) == (second.read, first.written, 0)
    assert first.cost == 2 * first.written_long + 1.25 * (first.written - first.written_long) + own
    assert second.cost == pytest.approx(0.1 * second.read + own)
    total = caches.counts["claude-x"]
    assert (total.requests, total.reads, total.cost) == (2, 1, pytest.approx(first.cost + second.cost))


def test_accounts_models_and_small_beginnings() -> None:
    caches, body = PromptCaches(CacheModel()), claude(marked(RULES))
    take(caches, body, 0)
    assert take(caches, body, 1, account="other").counts.read == 0
    assert take(caches, body, 1, model="claude-y").counts.read == 0
    assert take(caches, claude(marked("short")), 0).counts.written == 0


def test_only_20_blocks_before_a_mark_are_searched() -> None:
    for blocks, read in ((19, True), (20, False)):
        caches = PromptCaches(CacheModel())
        take(caches, claude(marked(RULES)), 0)
        parts: list[Any] = [{"type": "text", "text": f"result {number}"} for number in range(blocks - 1)]
        body: Any = claude({"type": "text", "text": RULES})
        body["messages"] = [{"role": "user", "content": [*parts, marked("last")]}]
        assert (take(caches, body, 1).counts.read > 0) is read


def test_a_request_has_at_most_four_marks_and_known_lifetimes() -> None:
    for body in (claude(*[marked("x")] * 5), claude(marked("x", ttl="2h"))):
        with pytest.raises(APIError, match=r"maximum of 4 blocks.* Found 5|5m, 1h"):
            take(PromptCaches(CacheModel()), body, 0)


def test_an_entry_belongs_to_the_machine_that_wrote_it() -> None:
    caches, body = PromptCaches(CacheModel(machines=4)), claude(marked(RULES))
    for number in range(200):
        take(caches, body, number)
    assert caches.counts["claude-x"].reads == 196


def test_a_cache_key_takes_15_requests_a_minute() -> None:
    caches = PromptCaches(CacheModel(machines=64))
    body = chat(RULES, "Hello", prompt_cache_key="agents")
    for _ in range(60):
        take(caches, body, 0.5, "gpt-5.6")
    assert caches.counts["gpt-5.6"].reads == 56
    assert take(caches, body, 61, "gpt-5.6").counts.reads == 1


@pytest.mark.parametrize(
    ("options", "read", "written"),
    [({}, True, True), ({"mode": "explicit"}, False, False), ({"mode": "implicit", "ttl": "12h"}, True, True)],
)
def test_gpt_5_6_marks_messages_by_itself(options: dict[str, str], read: bool, written: bool) -> None:
    caches = PromptCaches(CacheModel())
    first = take(caches, chat(RULES, "a", prompt_cache_options={**options}), 0, "gpt-5.6").counts
    second = take(caches, chat(RULES, "b", prompt_cache_options={**options}), 1, "gpt-5.6").counts
    assert (first.written > 0, second.read > 0, first.written_long > 0) == (written, read, "ttl" in options)


@pytest.mark.parametrize(
    ("model", "server", "block"), [("gpt-5-mini", "", 128), ("gemini-2.5-flash", "", 256), ("m", "vllm", 16)]
)
def test_other_servers_cache_whole_blocks(model: str, server: str, block: int) -> None:
    caches = PromptCaches(CacheModel(server=server, least=16))
    use = [take(caches, chat("", RULES + end), now, model) for now, end in enumerate("ab")]
    assert [one.counts.read % block for one in use] == [0, 0]
    assert use[1].counts.read > 1200
    assert use[0].tokens(NO_TOKENS).written is None


def test_a_server_without_caches_reports_zeros() -> None:
    caches, body = PromptCaches(CacheModel(server="none")), claude(marked(RULES))
    use = [take(caches, body, now) for now in (0, 1)][1]
    assert (use.tokens(NO_TOKENS).written, use.counts.read, use.counts.cost) == (0, 0, use.counts.input)


@pytest.mark.parametrize("text", ["server=x", "machines=0", "lag=-1", "cold=inf", "spread=x", "ttl=1"])
def test_wrong_options_are_refused(text: str) -> None:
    with pytest.raises(KnobError, match=r"^caches: "):
        read_caches(text)


def test_a_refused_request_writes_nothing() -> None:
    world = World(ServiceSettings(caches=CacheModel(), limits=(Limit(requests_per_minute=2),)))
    bodies = [{"model": "claude-x", "max_tokens": 5, **claude(marked(RULES + end))} for end in ("", ".", ".")]
    world.ask("/v1/messages", bodies[0], directive="fail=500,times=1")
    assert world.service.caches is not None
    assert not world.service.caches.counts
    for body in bodies:
        world.ask("/v1/messages", body)
    assert world.service.caches.counts["claude-x"].requests == 1
    world.now = 61
    assert json.loads(head_and_body(world.ask("/v1/messages", bodies[1]))[1])["usage"]["cache_read_input_tokens"] == 0


def test_equal_requests_are_answered_anew() -> None:
    world = World(ServiceSettings(caches=CacheModel(cold=3, warm=1)))
    body = {"model": "claude-x", "max_tokens": 5, "stream": True, **claude(marked(RULES))}
    delays: list[float] = []
    for world.now in (0, 3):
        delays.append(world.ask("/v1/messages", body).delay)
    assert delays == [3, 1]


@pytest.fixture(scope="module")
def cached() -> Iterator[Simulator]:
    with open_simulator_thread("events=3", caches="least=256") as simulator:
        yield simulator


def test_anthropics_sdk_reads_what_was_cached(cached: Simulator) -> None:
    with anthropic.Anthropic(api_key="k", base_url=cached.base_urls["anthropic"], max_retries=0) as client:
        messages: Any = client.messages
        more: Any = {"model": "claude-x", **claude(marked(RULES, ttl="1h"), marked(RULES))}
        warmed = messages.create(max_tokens=0, **more)
        with messages.stream(max_tokens=9, **more) as stream:
            read = stream.get_final_message().usage
        with pytest.raises(anthropic.BadRequestError, match="stream: not supported when max_tokens is 0"):
            messages.create(max_tokens=0, stream=True, **more)
    usage, kept = warmed.usage, warmed.usage.cache_creation
    assert (warmed.content, usage.output_tokens, usage.cache_read_input_tokens) == ([], 0, 0)
    assert kept.ephemeral_1h_input_tokens == pytest.approx(1500, abs=30)
    written = kept.ephemeral_1h_input_tokens + kept.ephemeral_5m_input_tokens
    assert usage.cache_creation_input_tokens == read.cache_read_input_tokens == written
    assert (read.cache_creation_input_tokens, read.input_tokens) == (0, usage.input_tokens)


def test_openais_sdk_reads_what_was_cached(cached: Simulator) -> None:
    part = {**marked(RULES, "prompt_cache_breakpoint"), "type": "input_text"}
    options = {"mode": "explicit", "ttl": "12h"}
    talk = [{"role": "system", "content": [part]}, {"role": "user", "content": "Hello"}]
    with openai.OpenAI(api_key="k", base_url=cached.base_urls["openai-chat"], max_retries=0) as client:
        responses: Any = client.responses
        warmed, read = [
            responses.create(model="gpt-5.6", input=talk, prompt_cache_options={**options, "prewarm": prewarm})
            for prewarm in (True, False)
        ]
        chat: Any = client.chat.completions
        question = {"role": "user", "content": RULES}
        chats = [chat.create(model="gpt-5.6", messages=[question]).usage.prompt_tokens_details for _ in "ab"]
    details = warmed.usage.input_tokens_details
    kept = details.cache_write_tokens_details
    assert (warmed.output, warmed.status, warmed.usage.output_tokens) == ([], "completed", 0)
    assert (kept.ttl_12h_tokens, kept.ttl_30m_tokens) == (details.cache_write_tokens, 0)
    assert read.usage.input_tokens_details.cached_tokens == details.cache_write_tokens > 1000
    assert (chats[0].cached_tokens, chats[1].cache_write_tokens) == (0, 0)
    assert chats[0].cache_write_tokens == chats[1].cached_tokens > 1000


def test_googles_sdk_reads_what_was_cached(cached: Simulator) -> None:
    client = genai.Client(api_key="k", http_options={"base_url": cached.base_urls["gemini"]})
    config: Any = {"system_instruction": RULES}
    read = [
        client.models.generate_content(model="gemini-x", contents="Hello", config=config).usage_metadata for _ in "ab"
    ]
    counts = [usage.cached_content_token_count for usage in read if usage]
    steps: Any = [client.interactions.create(model="gemini-y", input="Hello", **config) for _ in "ab"]
    more: Any = {"model": "gemini-z", "config": {**config, "ttl": "300s"}}
    kept = client.caches.create(**more)
    named: Any = {"cached_content": kept.name}
    usage: Any = client.models.generate_content(model="gemini-z", contents="Hello", config=named).usage_metadata
    assert kept.usage_metadata is not None
    assert usage.cached_content_token_count == kept.usage_metadata.total_token_count
    assert usage.prompt_token_count > usage.cached_content_token_count > 1000
    assert kept.name is not None
    assert client.caches.get(name=kept.name) == kept
    client.caches.delete(name=kept.name)
    with pytest.raises(errors.ClientError, match="CachedContent not found"):
        client.models.generate_content(model="gemini-z", contents="Hello", config=named)
    with pytest.raises(errors.ClientError, match="too small"):
        client.caches.create(model="gemini-z", config={"system_instruction": "short"})
    assert (counts[0], [step.usage.total_cached_tokens > 1000 for step in steps]) == (None, [False, True])
    assert counts[1] is not None
    assert counts[1] > 1000


def test_the_account_is_shown_by_model(cached: Simulator) -> None:
    with anthropic.Anthropic(api_key="k", base_url=cached.base_urls["anthropic"], max_retries=0) as client:
        client.messages.create(model="claude-z", max_tokens=1, messages=[{"role": "user", "content": "Hello"}])
    counts = cached.cache_counts()["claude-z"]
    assert counts == CacheCounts(requests=1, input=counts.input, cost=counts.input)
