"""Deltas that match the template of an earlier one: the events are the same as those of the parser."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import manystream as ms
from manystream.engine.call.fast_path import FastPath
from manystream.providers.catalog.dialect import (
    MAX_SHARED_TEMPLATES,
    DeltaTarget,
    StreamMachine,
    TakeValue,
    ValuesTarget,
)
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.wire import delta_template
from manystream.providers.wire.answer_bytes import kept_bytes
from manystream.providers.wire.delta_template import (
    LARGEST_DELTA,
    DeltaTemplate,
    Match,
    ValuesTemplate,
    VolatileMembers,
    learn,
    shared_bytes,
)

CHAT = (
    b'{"id":"c1","created":1763760000,"model":"m","choices":[{"index":0,"delta":{"content":%b},"logprobs":null,'
    b'"finish_reason":null}],"usage":null}'
)

CHAT_PADDED = CHAT[:-1] + b',"obfuscation":"k3J9qLw0"}'

CHAT_SPACED = b'{"id": "c1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": %b}}]}'

CHAT_THINKING = b'{"id":"c1","choices":[{"index":0,"delta":{"content":"","reasoning_content":%b}}]}'

CHAT_CALL = (
    b'{"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":%b}}]},'
    b'"finish_reason":null}]}'
)

CHAT_CALL_VERBOSE = (  # as vLLM and others send it
    b'{"id":"c1","choices":[{"index":0,"delta":{"role":null,"content":null,"tool_calls":[{"index":1,"id":"t","type":'
    b'"function","function":{"name":null,"arguments":%b}}]},"finish_reason":null}],"usage":{"total_tokens":2}}'
)

CHAT_CALL_START = (
    b'{"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"s","function":{"name":"m"}}]}}]}',
    b'{"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"t","function":{"name":"n"}}]}}]}',
)

MISTRAL = b'{"id":"c1","choices":[{"index":0,"delta":{"content":%b},"finish_reason":null}],"p":"abcdefgh"}'

VLLM = (
    b'{"id":"c1","object":"chat.completion.chunk","created":1763760000,"model":"m","choices":[{"index":0,"delta":'
    b'{"content":%b},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":{"prompt_tokens":12,'
    b'"total_tokens":14,"completion_tokens":2}}'
)

TOKEN = (
    b'{"content":[{"token":" \\"a","logprob":-0.25,"bytes":[32,97],"top_logprobs":[{"token":"\xc3\xa4","logprob":-1e-9,'
    b'"bytes":null}]}],"refusal":null}'
)

CHAT_LOGPROBS = CHAT_PADDED.replace(b'"logprobs":null', b'"logprobs":' + TOKEN)

VLLM_LOGPROBS = VLLM.replace(b'"logprobs":null', b'"logprobs":' + TOKEN)

VALUES_FIRST = b'{"usage": {"total_tokens": 3}, "choices": [{"logprobs": %b, "delta": {"content": %%b}}]}' % TOKEN

GEMINI = (
    b'{"candidates":[{"content":{"parts":[{"text":%b}],"role":"model"},"index":0}],"usageMetadata":{'
    b'"promptTokenCount":5,"promptTokensDetails":[{"modality":"TEXT","tokenCount":5}]},"modelVersion":"m",'
    b'"responseId":"r-1_x"}'
)

RESPONSES = (
    b'{"type":"response.output_text.delta","sequence_number":17,"item_id":"msg_1","output_index":0,"content_index":0,'
    b'"delta":%b,"logprobs":[],"obfuscation":"6T7CxjFn"}'
)

ANTHROPIC = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%b}}'

ANTHROPIC_THINKING = b'{"type":"content_block_delta","index":2,"delta":{"type":"thinking_delta","thinking":%b}}'

ANTHROPIC_CALL = b'{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":%b}}'

ANTHROPIC_START = (
    b'{"type":"message_start","message":{"id":"m","model":"m","content":[]}}',
    b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
    b'{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"n","input":{}}}',
)

ANTHROPIC_THINKING_START = (
    *ANTHROPIC_START,
    b'{"type":"content_block_start","index":2,"content_block":{"type":"thinking","thinking":"","signature":""}}',
)

PROVIDERS: dict[str, ms.Provider] = {
    "openai-chat": ms.OpenAIChat("key", "http://127.0.0.1"),
    "openai-responses": ms.OpenAIResponses("key", "http://127.0.0.1"),
    "anthropic": ms.Anthropic("key", "http://127.0.0.1"),
    "gemini": ms.Gemini("key", "http://127.0.0.1"),
}

CASES = [
    ("openai-chat", "", (), CHAT),
    ("openai-chat", "", (), CHAT_PADDED),
    ("openai-chat", "", (), CHAT_SPACED),
    ("openai-chat", "", (), CHAT_THINKING),
    ("openai-chat", "", CHAT_CALL_START, CHAT_CALL),
    ("openai-chat", "", CHAT_CALL_START, CHAT_CALL_VERBOSE),
    ("openai-chat", "", (), MISTRAL),
    ("openai-chat", "", (), VLLM),
    ("openai-chat", "", (), CHAT_LOGPROBS),
    ("openai-chat", "", (), VLLM_LOGPROBS),
    ("openai-chat", "", (), VALUES_FIRST),
    ("gemini", "", (), GEMINI),
    ("openai-responses", "response.output_text.delta", (), RESPONSES),
    ("anthropic", "content_block_delta", ANTHROPIC_START, ANTHROPIC),
    ("anthropic", "content_block_delta", ANTHROPIC_THINKING_START, ANTHROPIC_THINKING),
    ("anthropic", "content_block_delta", ANTHROPIC_START, ANTHROPIC_CALL),
]

cases = pytest.mark.parametrize(("dialect", "event", "start", "frame"), CASES)

READ = "hello", " w\u00f6rld", "\U0001f642", 'say "hi"', "a\\b", "tab\there\n", "}],", "\u2028", '"},"p":"x'


def machine_of(dialect: str, *, fast: bool = True) -> StreamMachine:
    machine = DIALECTS[dialect].machine(PROVIDERS[dialect], lambda: "id")
    if not fast:
        machine._templates_left = 0  # pyright: ignore[reportPrivateUsage]
    return machine


def long_ways(machine: StreamMachine) -> list[bytes]:
    """Return a list that gets the data of every event that is parsed whole from now on."""
    taken: list[bytes] = []
    take = type(machine).take_event

    class Counted(type(machine)):  # type: ignore[misc]
        __slots__ = ()

        def take_event(self, event: str, data: bytes) -> object:
            taken.append(data)
            return take(self, event, data)

    machine.__class__ = Counted
    return taken


def begin(machine: StreamMachine, event: str, start: tuple[bytes, ...], frame: bytes) -> None:
    for data in start:
        machine.feed("", data)
    for text in ("Once", " upon"):
        machine.feed(event, frame % json.dumps(text).encode())


@cases
def test_repeated_deltas_match_a_template(dialect: str, event: str, start: tuple[bytes, ...], frame: bytes) -> None:
    machine = machine_of(dialect)
    begin(machine, event, start, frame)
    taken = long_ways(machine)
    for text in READ:
        for written in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
            (received,) = machine.feed(event, frame % written.encode())
            assert isinstance(received, ms.TextDelta | ms.ThinkingDelta | ms.ToolCallDelta)
            assert text == (received.arguments if isinstance(received, ms.ToolCallDelta) else received.text)
    assert taken == []


@cases
def test_a_large_delta_is_parsed_whole(dialect: str, event: str, start: tuple[bytes, ...], frame: bytes) -> None:
    machine = machine_of(dialect)
    begin(machine, event, start, frame)
    taken, large = long_ways(machine), "x" * LARGEST_DELTA
    (received,) = machine.feed(event, frame % json.dumps(large).encode())
    assert isinstance(received, ms.TextDelta | ms.ThinkingDelta | ms.ToolCallDelta)
    assert large == (received.arguments if isinstance(received, ms.ToolCallDelta) else received.text)
    assert len(taken) == 1


@pytest.mark.parametrize(
    ("dialect", "event", "frame", "old", "new"),
    [
        ("openai-chat", "", CHAT_PADDED, b"k3J9qLw0", b"Zz"),
        ("openai-chat", "", MISTRAL, b"abcdefgh", b"abc"),
        ("openai-responses", "response.output_text.delta", RESPONSES, b":17,", b":18,"),
        ("openai-responses", "response.output_text.delta", RESPONSES, b":17,", b":12345,"),
        ("openai-responses", "response.output_text.delta", RESPONSES, b"6T7CxjFn", b"6T7CxjFn0123456789"),
    ],
)
def test_a_counter_and_padding_may_differ(dialect: str, event: str, frame: bytes, old: bytes, new: bytes) -> None:
    machine = machine_of(dialect)
    begin(machine, event, (), frame)
    taken = long_ways(machine)
    (received,) = machine.feed(event, frame.replace(old, new) % b'"more"')
    assert isinstance(received, ms.TextDelta)
    assert (received.text, taken) == ("more", [])


@cases
def test_a_delta_that_differs_is_parsed_whole(dialect: str, event: str, start: tuple[bytes, ...], frame: bytes) -> None:
    """For a delta with any byte changed or removed, or any end cut off, template and parser give the same events."""
    whole = frame % b'"some \\"text\\" here"'
    damaged = [whole[:place] for place in range(len(whole))]
    for place in range(len(whole)):
        damaged.extend(whole[:place] + byte + whole[place + 1 :] for byte in (b"", b'"', b"\\", b"7", b"\x01", b"}"))
    for data in dict.fromkeys(damaged):
        assert received(dialect, event, start, frame, data) == received(dialect, event, start, frame, data, fast=False)


def received(
    dialect: str, event: str, start: tuple[bytes, ...], frame: bytes, data: bytes, *, fast: bool = True
) -> tuple[str, str, bool]:
    machine = machine_of(dialect, fast=fast)
    begin(machine, event, start, frame)
    events = machine.feed(event, data)
    return str(list(events)), str(machine.response()), machine.ended


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=8), st.booleans(), st.sampled_from(CASES))
def test_any_texts_give_the_same_events_without_templates(
    texts: list[str], ascii_only: bool, case: tuple[str, str, tuple[bytes, ...], bytes]
) -> None:
    dialect, event, start, frame = case
    results: list[tuple[str, str]] = []
    for fast in (True, False):
        machine = machine_of(dialect, fast=fast)
        begin(machine, event, start, frame)
        events = [
            str(received) for text in texts for received in machine.feed(event,
            frame % json.dumps(text, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"))
        ]  # fmt: skip
        results.append((str(events), str(machine.response())))
    assert results[0] == results[1]


def test_another_event_between_deltas_is_read() -> None:
    machine = machine_of("anthropic")
    begin(machine, "content_block_delta", ANTHROPIC_START, ANTHROPIC)
    machine.feed("content_block_stop", b'{"type":"content_block_stop","index":0}')
    machine.feed(
        "content_block_start", b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}'
    )
    (event,) = machine.feed("content_block_delta", ANTHROPIC % b'"new block"')
    assert isinstance(event, ms.TextDelta)
    assert event.index == 2


def test_an_equal_string_elsewhere_is_not_the_text() -> None:
    """The text is written with escapes, and another member has the same string without escapes."""
    machine = machine_of("openai-chat")
    frame = b'{"id":"c1","provider":"caf\xc3\xa9","choices":[{"index":0,"delta":{"content":%b}}]}'
    for _ in range(3):
        (*_, event) = machine.feed("", frame % b'"caf\\u00e9"')
        assert event == ms.TextDelta(0, "café")
    (event,) = machine.feed("", frame.replace(b"caf\xc3\xa9", b"bar") % b'"caf\\u00e9"')
    assert event == ms.TextDelta(0, "café")


def test_a_stream_without_matches_makes_no_more_templates() -> None:
    machine = machine_of("openai-chat")
    for number in range(100):
        machine.feed("", b'{"id":"%d","choices":[{"index":0,"delta":{"content":"x"}}]}' % number)
    assert machine._templates_left == 0  # pyright: ignore[reportPrivateUsage]
    assert machine.response().text == "x" * 100


VALUES = [
    ("openai-chat", VLLM, b'{"prompt_tokens":12,"total_tokens":14,"completion_tokens":2}'),
    ("openai-chat", CHAT_LOGPROBS, TOKEN),
    ("openai-chat", VLLM_LOGPROBS, TOKEN),
    ("openai-chat", VALUES_FIRST, b'{"total_tokens": 3}'),
    ("gemini", GEMINI, b'{"promptTokenCount":5,"promptTokensDetails":[{"modality":"TEXT","tokenCount":5}]}'),
]

values = pytest.mark.parametrize(("dialect", "frame", "old"), VALUES)

OTHER_VALUES = (
    *(b'{"prompt_tokens":12,"total_tokens":%d,"completion_tokens":1}' % (10**power) for power in (1, 9, 18, 19, 25)),
    b'{"total_tokens": 7, "completion_tokens_details": {"reasoning_tokens": 3}, "cost": {"usd": 0.000125}}',
    b'{"totalTokenCount":9,"thoughtsTokenCount":4}',
    b'{"content":[{"token":"x","logprob":-0.1},{"token":"y","logprob":-9999.0}]}',
    b'{"content":[],"refusal":[{"token":"no","logprob":-0.5}]}',
    b'{"content":[{"token":",\\"finish_reason\\":null","logprob":-0.1}]}',
    b'{"content":[{"token":"x","finish_reason":null}],"finish_reason":null}',
    b'{"content":[{"token":"\\ud83d","logprob":-0.1}]}',
    b'{"content":[{"token":"x","logprob":-Infinity}]}',
    b'{"content":[{"token":"x",\n"logprob":-1}]}',
    b"null", b"{}", b"[]", b"0", b"7", b'"x"', b"[{}]", b"true", b"", b"{", b"}", b'{"a":1}}', b"1,2", b"NaN",
)  # fmt: skip


@values
def test_values_may_differ(dialect: str, frame: bytes, old: bytes) -> None:
    """The last token report counts, and the log probabilities of all chunks are kept, as without templates."""
    numbers = [b'{"prompt_tokens":12,"total_tokens":%d,"content":[{"logprob":-%d.5}]}' % (n, n) for n in range(50)]
    results: list[str] = []
    for fast in (True, False):
        machine = machine_of(dialect, fast=fast)
        begin(machine, "", (), frame)
        taken = long_ways(machine)
        events = [str(list(machine.feed("", frame.replace(old, number) % b'"more"'))) for number in numbers]
        assert len(taken) == (0 if fast else 50)
        results.append(f"{events} {machine.response()}")
    assert results[0] == results[1]
    assert "-49.5" in results[0] or "'total_tokens': 49" in results[0]


@values
@pytest.mark.parametrize("new", OTHER_VALUES)
def test_any_value_is_read_as_by_the_parser(dialect: str, frame: bytes, old: bytes, new: bytes) -> None:
    for after in (old, new, b"null", b'{"total_tokens":99}'):
        results: list[str] = []
        for fast in (True, False):
            machine = machine_of(dialect, fast=fast)
            begin(machine, "", (), frame)
            events = [
                str(list(machine.feed("", frame.replace(old, value) % b'"more"'))) for value in (new, after, after)
            ]
            results.append(f"{events} {machine.response()} {list(machine.end())} {machine.response()}")
        assert results[0] == results[1]


MEMBERS = st.sampled_from(["content", "refusal", "total_tokens", "prompt_tokens", "usage", "logprobs", "token"])

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS | st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(st.tuples(st.text(max_size=8), JSON_VALUES, JSON_VALUES), min_size=1, max_size=8),
    st.booleans(),
    st.booleans(),
)
def test_any_values_give_the_same_answer_without_templates(
    deltas: list[tuple[str, object, object]], ascii_only: bool, in_the_middle: bool
) -> None:
    results: list[str] = []
    for fast in (True, False):
        machine = machine_of("openai-chat", fast=fast)
        begin(machine, "", (), VLLM_LOGPROBS)
        events: list[str] = []
        for text, logprobs, usage in deltas:
            choice = {"index": 0, "delta": {"content": text}, "logprobs": logprobs, "finish_reason": None}
            chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1763760000, "model": "m"}
            chunk |= {"choices": [{**choice, "token_ids": None}], "usage": usage}
            data = json.dumps(chunk, ensure_ascii=ascii_only, separators=(",", ":"))
            events.append(str(list(machine.feed("", data.encode("utf-8", "surrogatepass")))))
            if in_the_middle:
                events.append(str(machine.response()))
        results.append(f"{events} {machine.response()} {list(machine.end())} {machine.response()}")
    assert results[0] == results[1]


def test_an_equal_value_is_not_lost() -> None:
    """Log probabilities that repeat byte for byte are those of another token."""
    machine = machine_of("openai-chat")
    for _ in range(5):
        machine.feed("", CHAT_LOGPROBS % b'"x"')
    kept = machine.response().provider_data["logprobs"]
    assert isinstance(kept, dict)
    assert isinstance(kept["content"], list)
    assert len(kept["content"]) == 5


@pytest.mark.parametrize("fast", [True, False])
def test_what_was_not_asked_for_is_not_kept(fast: bool) -> None:
    machine = machine_of("openai-chat", fast=fast)
    machine.unasked = frozenset({"logprobs"})
    for _ in range(50):
        machine.feed("", VLLM_LOGPROBS % b'"x"')
    assert kept_bytes(machine) < 2000
    response = machine.response()
    assert "logprobs" not in response.provider_data
    assert (response.text, response.usage.total_tokens) == ("x" * 50, 14)


def test_log_probabilities_are_kept_as_text() -> None:
    """Parsed, each token's values would be several hundred bytes in a dozen objects."""
    machine = machine_of("openai-chat")
    for _ in range(500):
        machine.feed("", CHAT_LOGPROBS % b'"x"')
    assert kept_bytes(machine) < 500 * (len(TOKEN) + 20) + 2000


def test_a_machine_with_values_is_no_reference_cycle() -> None:
    """Counting references frees an ended stream at once."""
    machine = machine_of("openai-chat")
    for _ in range(3):
        machine.feed("", VLLM_LOGPROBS % b'"x"')
    held = weakref.ref(machine.make_id)
    gc.disable()
    try:
        del machine
        assert held() is None
    finally:
        gc.enable()


def test_values_that_always_differ_in_form_make_few_shared_bytes() -> None:
    machine = machine_of("gemini")
    before = delta_template._kept_for_all.cache_info().misses  # pyright: ignore[reportPrivateUsage]
    for number in range(400):
        # Two of each form: the template of the first matches the second.
        machine.feed("", (GEMINI % b'"x"').replace(b'"r-1_x"', b'"r%d"' % (number // 2)))
    misses = delta_template._kept_for_all.cache_info().misses  # pyright: ignore[reportPrivateUsage]
    assert misses - before <= 3 * MAX_SHARED_TEMPLATES
    assert machine.response().text == "x" * 400


@pytest.mark.parametrize("dialect", ["openai-chat", "gemini"])
def test_one_stream_does_not_evict_what_others_share(dialect: str) -> None:
    """One stream adds only a few entries to what is kept for all streams, however often its form changes."""
    machine = machine_of(dialect)
    kept = delta_template._kept_for_all  # pyright: ignore[reportPrivateUsage]
    before = kept.cache_info().misses
    frames = {
        "openai-chat": '{"id":"c","choices":[{"index":0,"delta":{"content":"%s"}}],"model":"%d"}',
        "gemini": '{"candidates":[{"content":{"parts":[{"text":"%s"}]}}],"modelVersion":"m","responseId":"%d"}',
    }

    class Nobody:
        def deliver_matches(self, target: DeltaTarget, matches: Iterable[Match]) -> None:
            pass

    fast_path = FastPath(machine, cast(Any, SimpleNamespace(bytes_left=2**30)))
    for number in range(600):
        data = (frames[dialect] % ("x", number // 2)).encode()
        wire = b"data: %b\n\n" % data
        machine.feed("", data)
        if fast_path.follow([("", data)], wire, Nobody()) is not None:
            fast_path.read(b"0\r\n")
    assert kept.cache_info().misses - before <= 2 * MAX_SHARED_TEMPLATES, "the ends of an event and of a chunk"
    assert machine.response().text == "x" * 600


class Block:
    def __init__(self) -> None:
        self.pieces: list[str] = ["a"]

    def accept(self, delta: object, /) -> ms.Event:
        self.pieces.append(str(delta))
        return ms.TextDelta(0, str(delta))


def test_values_beside_the_text_are_read() -> None:
    seen: list[tuple[str, ms.JSON, bytes]] = []
    block = Block()

    def reader(name: str) -> TakeValue:
        return lambda value, raw: seen.append((name, value, raw))

    target = ValuesTarget(block, [(2, reader("usage")), (0, reader("n"))])
    assert target.accept(("b", [1, "b", {"t": 3}], [b"1", b'"b"', b'{"t": 3}'])) == ms.TextDelta(0, "b")
    assert seen == [("usage", {"t": 3}, b'{"t": 3}'), ("n", 1, b"1")]
    assert target.pieces is block.pieces
    assert target.pieces == ["a", "b"]


# --- templates ---
PATH = ("d", "t")

NONE = VolatileMembers()

SOME = VolatileMembers(counter="n", padding=("p", "q"), values=(("u",), ("l", 0)))


def text_template(start: bytes, to_text: bytes, to_padding: bytes, end: bytes) -> DeltaTemplate:
    return DeltaTemplate("e", True, start, to_text, to_padding, end)


LEARNED: list[tuple[bytes, ms.JSON, VolatileMembers, object]] = [
    (b'{"d":{"t":"x"}}', {"d": {"t": "x"}}, NONE, text_template(b'{"d":{"t":', b"", b"", b"}}")),
    (b'{"n":12,"d":{"t":"x"},"p":"ab9"}', {"n": 12, "d": {"t": "x"}, "p": "ab9"}, SOME,
        text_template(b'{"n":', b'"d":{"t":', b'},"p":"', b'"}')),
    (b'{"n": 0,"d":{"t":"x"},"q": "Z"}', {"n": 0, "d": {"t": "x"}, "q": "Z"}, SOME,
        text_template(b'{"n": 0,"d":{"t":', b"", b'},"q": "', b'"}')),
    (b'{"d":{"t":"\\u00e9"}}', {"d": {"t": "é"}}, NONE, text_template(b'{"d":{"t":', b"", b"", b"}}")),
    (b'{"d":{"t":"x","o":"x"}}', {"d": {"t": "x", "o": "x"}}, NONE, None),
    (b'{"d":{"t":"x"}}', {"d": {"t": "y"}}, NONE, None),
    (b'{"d":{"t":"x"}}', {"d": ["x"]}, NONE, None),
    (b'{"o":"\\"","d":{"t":"x"}}', {"o": '"', "d": {"t": "x"}}, NONE,
        text_template(b'{"o":"\\"","d":{"t":', b"", b"", b"}}")),
    (b'{"d":{"t":"x"},"u":{"a":1},"n":3}', {"d": {"t": "x"}, "u": {"a": 1}, "n": 3}, SOME,
        ValuesTemplate("e", True, b'{"d":{"t":', (b'},"u":', b',"n":'), b"}", 0, ((1, "u"),))),
    (b'{"l":[5],"d" : {"t" : "x"}}', {"l": [5], "d": {"t": "x"}}, SOME, None),
    (b'{"u": true, "d": {"u": "x", "t": "u"}}', {"u": True, "d": {"u": "x", "t": "u"}}, SOME,
        ValuesTemplate("e", True, b'{"u": ', (b', "d": {"u": "x", "t": ',), b"}}", 1, ((0, "u"),))),
]  # fmt: skip


@pytest.mark.parametrize(("data", "value", "volatile", "template"), LEARNED)
def test_the_template_of_a_delta(data: bytes, value: ms.JSON, volatile: VolatileMembers, template: object) -> None:
    text = "é" if b"u00e9" in data else "u" if b'"t": "u"' in data else "x"
    assert learn("e", data, value, PATH, text, volatile) == template


OF_TOKENS: list[tuple[bytes, ms.JSON, tuple[str | int, ...], object]] = [
    (b'{"d":{"t":"x"},"u":[1]}', {"d": {"t": "x"}, "u": [1]}, PATH,
        ValuesTemplate("e", True, b'{"d":', (b',"u":',), b"}", 0, ((1, "u"),), True, "t")),
    (b'{"d":{"t":"x","o":1},"u":[1]}', {"d": {"t": "x", "o": 1}, "u": [1]}, PATH,
        ValuesTemplate("e", True, b'{"d":{"t":', (b',"o":1},"u":',), b"}", 0, ((1, "u"),), True)),
    (b'{"d":{},"u":[1]}', {"d": {}, "u": [1]}, (),
        ValuesTemplate("e", True, b'{"d":{},"u":', (), b"}", -1, ((0, "u"),), True)),
    (b'{"d":{},"u":[]}', {"d": {}, "u": []}, (), None),
]  # fmt: skip


@pytest.mark.parametrize(("data", "value", "path", "template"), OF_TOKENS)
def test_a_template_with_tokens(data: bytes, value: ms.JSON, path: tuple[str | int, ...], template: object) -> None:
    assert learn("e", data, value, path, "x" if path else "", SOME, tokens=True) == template


@pytest.mark.parametrize(("value", "text"), [
    (b'{"t":"y"}', "y"), (b'{"t":""}', ""), (b"{}", ""), (b'{"s":"y"}', None), (b'{"t":"y","s":1}', None),
    (b'{"t":5}', None), (b'"y"', None), (b"null", None), (b"[]", None),
])  # fmt: skip
def test_a_delta_of_tokens_may_have_no_text(value: bytes, text: str | None) -> None:
    template = ValuesTemplate("", True, b'{"d":', (b',"u":',), b"}", 0, ((1, "u"),), True, "t")
    found = template.match(b'{"d":' + value + b',"u":[7]}', template.start, template.end)
    assert (found and found[0]) == text
    without = ValuesTemplate("", True, b'{"u":', (), b"}", -1, ((0, "u"),), True)
    found = without.match(b'{"u":[7]}', without.start, without.end)
    assert (found[0], list(found[1])) == ("", [[7]])


MATCHED: list[tuple[bytes, str | None]] = [
    (b'{"n":7,"d":{"t":"y"},"p":"k0"}', "y"),
    (b'{"n":70,"d":{"t":"\\u00e9\\n"},"p":"k"}', "é\n"),
    (b'{"n":7,"d":{"t":""},"p":"k"}', ""),
    (b'{"n":07,"d":{"t":"y"},"p":"k"}', None),
    (b'{"n":0,"d":{"t":"y"},"p":"k"}', None),
    (b'{"n":-7,"d":{"t":"y"},"p":"k"}', None),
    (b'{"n":,"d":{"t":"y"},"p":"k"}', None),
    (b'{"m":7,"d":{"t":"y"},"p":"k"}', None),
    (b'{"n":7,"d":{"s":"y"},"p":"k"}', None),
    (b'{"n":7,"d":{"t":"y"},"p":"k-"}', None),
    (b'{"n":7,"d":{"t":"y"},"p":""}', None),
    (b'{"n":7,"d":{"t":"y"},"p":"k"]', None),
    (b'{"n":7,"d":{"t":5},"p":"k"}', None),
    (b'{"n":7,"d":{"t":"y","o":1},"p":"k"}', None),
    (b'{"n":7,"d":{"t":"\\ud83d"},"p":"k"}', None),
]


@pytest.mark.parametrize(("data", "text"), MATCHED)
def test_what_matches_a_template(data: bytes, text: str | None) -> None:
    template = text_template(b'{"n":', b'"d":{"t":', b'},"p":"', b'"}')
    assert template.match(data, template.start, template.end) == text
    framed = b"data: " + data + b"\n\n"
    assert template.match(framed, b"data: " + template.start, template.end + b"\n\n") == text


TEXTS_AND_VALUES: list[tuple[bytes, object]] = [
    (b'{"t":"y","u":1}', ("y", ["y", 1], [b'"y"', b"1"])),
    (b'{"t":"y","u":{"a": [1, null]}}', ("y", ["y", {"a": [1, None]}], [b'"y"', b'{"a": [1, null]}'])),
    (b'{"t":"y","u":"x,\\"u\\":1"}', ("y", ["y", 'x,"u":1'], [b'"y"', b'"x,\\"u\\":1"'])),
    (b'{"t":"","u":1}', None),
    (b'{"t":5,"u":1}', None),
    (b'{"t":"y","u":}', None),
    (b'{"t":"y","u":\n1}', None),
    (b'{"t":"y","u":\r1}', None),
    (b'{"t":"y","v":1}', None),
    (b'{"s":"y","u":1}', None),
    (b'{"t":"y","u":1]', None),
]


@pytest.mark.parametrize(("data", "found"), TEXTS_AND_VALUES)
def test_what_matches_a_template_of_values(data: bytes, found: object) -> None:
    template = ValuesTemplate("", True, b'{"t":', (b',"u":',), b"}", 0, ((1, "u"),))
    result = template.match(data, template.start, template.end)
    assert (result if result is None else (result[0], list(result[1]), list(result[2]))) == found
    three = ValuesTemplate("", True, b'{"t":', (b',"u":', b',"w":'), b"}", 0, ((1, "u"), (2, "w")))
    longer = data[:-1] + b',"w":[2]' + data[-1:]
    result = three.match(longer, three.start, three.end)
    if found is None:
        assert result is None
    else:
        assert (result[0], result[1][2], result[2][2]) == ("y", [2], b"[2]")


def test_short_equal_bytes_are_one_object() -> None:
    assert shared_bytes(b"x" * 1024, True) is shared_bytes(bytes([120] * 1024), True)
    long = bytes([120] * 1025)
    assert shared_bytes(long, True) is long
    assert shared_bytes(long[:9], False) is not shared_bytes(long[:9], False)
