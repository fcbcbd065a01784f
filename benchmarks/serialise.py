"""What does it cost to turn a conversation into a request, and an answer into a response?

In memory, in this process: no socket, no engine. A request of 10 messages and 5 tools, a complex answer, one message
to its rows and back; then conversations of up to 1,000 messages, where the time must grow with the size and no
faster. Every dialect's request holds the whole conversation. Of one that was sent before, only the messages after the
cached prefix are written (`providers/model/prefix_cache.py`): the cache compares the earlier messages with its snapshot
and copies their bytes. The last rows compare that with two others that make the same body: writing it anew, and
orjson's own pass over the finished lists and dictionaries, which any library that writes it anew has to do at least.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace

import orjson

import manystream as ms
from manystream.providers.anthropic.converter import AnthropicConverter
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.json.json_values import JSONObject
from manystream.store import message_from_row, rows_from_message

from .answers import Answer, Series
from .runs import Run

PROVIDERS: dict[str, ms.Provider] = {
    "openai-chat": ms.OpenAIChat(),
    "openai-responses": ms.OpenAIResponses(),
    "anthropic": ms.Anthropic(),
    "gemini": ms.Gemini(),
    "gemini-interactions": ms.GeminiInteractions(),
}
MODELS = {
    "openai-chat": "gpt-4.1",
    "openai-responses": "gpt-5.1",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-3-pro-preview",
    "gemini-interactions": "gemini-3-pro-preview",
}
LONG = (125, 250, 500, 1000)
LIMIT_REQUEST_US = 100.0
LIMIT_ANSWER_US = 100.0
LIMIT_MESSAGE_US = 50.0
LINEAR = 1.3
"""The largest accepted cost of a message in the longest conversation, relative to one in the shortest."""

APPENDED = 0.4
"""The largest accepted cost of an appended turn, relative to encoding the whole conversation. Most of it is comparing.
"""

PARAMETERS: JSONObject = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The file, relative to the project."},
        "pattern": {"type": "string"},
        "limit": {"type": "integer", "minimum": 1},
    },
    "required": ["path"],
    "additionalProperties": False,
}
TOOLS = [ms.Tool(f"tool_{number}", "Does something useful with files.", PARAMETERS) for number in range(5)]
SENTENCE = "The stream carries many small pieces, and each of them arrives in order. "


def turn(number: int) -> list[ms.Message]:
    """Return five messages: a question, two calls with thinking, their results, an answer, a thanks."""
    calls = [ms.ToolCall(f"call_{number}_{n}", "tool_1", '{"path":"src/main.py","limit":10}') for n in range(2)]
    return [
        ms.Message.user(SENTENCE * 2),
        ms.Message.assistant([ms.Thinking(SENTENCE, "sig" * 20), ms.Text(SENTENCE), *calls]),
        ms.Message("tool", [ms.ToolResult(call.id, SENTENCE * 4) for call in calls]),
        ms.Message.assistant(SENTENCE * 3),
        ms.Message.user("Thank you."),
    ]


def conversation(messages: int) -> ms.Conversation:
    return ms.Conversation([message for number in range(messages // 5) for message in turn(number)])


def request_of(dialect: str, messages: ms.Conversation) -> ms.Request:
    return messages.request(MODELS[dialect], system="Be brief.", tools=TOOLS, max_output_tokens=1000)


def encode(dialect: str, request: ms.Request) -> bytes:
    return DIALECTS[dialect].encode(request, request.model, PROVIDERS[dialect], stream=True).body


def answer_body() -> bytes:
    """Return an answer with thinking, text, three calls and a full usage report, in the form of Anthropic."""
    content: list[object] = [{"type": "thinking", "thinking": SENTENCE * 5, "signature": "sig" * 100}]
    content.append({"type": "text", "text": SENTENCE * 10})
    for number in range(3):
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "tool_1", "input": {"path": "a.py", "limit": 5}}
        content.append(call)
    usage = {"input_tokens": 900, "cache_read_input_tokens": 800, "output_tokens": 300, "service_tier": "standard"}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content, "usage": usage}
    return json.dumps({**message, "stop_reason": "tool_use"}).encode()


def microseconds(work: Callable[[], object], *, rounds: int) -> float:
    """Return the CPU microseconds of one call; the quickest of several passes."""
    best = float("inf")
    for _ in range(15):
        begin = time.process_time()
        for _ in range(rounds):
            work()
        best = min(best, time.process_time() - begin)
    return best / rounds * 1e6


def add(result: Answer, what: str, value: float, limit: float) -> None:
    result.add(what, value, "µs", target=f"< {limit:g} µs", met=value < limit)


def answer(run: Run) -> Answer:
    """Answer the question."""
    return measure(quick=run.quick)


def measure(*, quick: bool) -> Answer:
    """Answer the question without a load source, which it does not need."""
    rounds = 50 if quick else 300
    result = Answer("Serialising")
    short = conversation(10)
    for dialect in DIALECTS:
        request = request_of(dialect, short)
        value = microseconds(lambda d=dialect, r=request: encode(d, r), rounds=rounds)  # type: ignore[misc]
        add(result, f"{dialect}: a request of 10 messages and 5 tools", value, LIMIT_REQUEST_US)
    body, provider = answer_body(), PROVIDERS["anthropic"]
    decode = DIALECTS["anthropic"].decode
    value = microseconds(lambda: decode(body, provider, lambda: "id"), rounds=rounds)
    add(result, "a complex answer", value, LIMIT_ANSWER_US)
    _messages(result, rounds)
    _long(result, quick)
    return result


def _messages(result: Answer, rounds: int) -> None:
    message = turn(0)[1]
    rows = rows_from_message(message)
    converter = AnthropicConverter()
    wire = converter.encode_messages([message])
    conversions: dict[str, Callable[[], object]] = {
        "a message of four blocks to rows": lambda: rows_from_message(message),
        "its rows to a message": lambda: [message_from_row(row) for row in rows],
        "the message to Anthropic's own form": lambda: converter.encode_messages([message]),
        "and back": lambda: converter.decode_messages(wire),
    }
    for what, work in conversions.items():
        add(result, what, microseconds(work, rounds=rounds), LIMIT_MESSAGE_US)


def _long(result: Answer, quick: bool) -> None:
    for dialect in DIALECTS:
        requests = {count: request_of(dialect, conversation(count)) for count in LONG}
        spent = dict.fromkeys(LONG, float("inf"))
        for _ in range(3 if quick else 15):
            # In turn, so that other work on the machine affects all of them.
            for count, request in requests.items():
                begin = time.process_time()
                encode(dialect, request)
                spent[count] = min(spent[count], (time.process_time() - begin) * 1e6)
        result.series.append(Series("time to serialise over messages", dialect, list(spent.items())))
        growth = (spent[LONG[-1]] / LONG[-1]) / (spent[LONG[0]] / LONG[0])
        result.add(
            f"{dialect}: a message of {LONG[-1]:,}, beside one of {LONG[0]}",
            growth,
            "times",
            target=f"≤ {LINEAR:g}",
            met=growth <= LINEAR,
        )
        _appended(result, dialect, 5 if quick else 30)


def _appended(result: Answer, dialect: str, rounds: int) -> None:
    """Measure a turn after the longest conversation: with the cached prefix, encoded anew, and orjson alone."""
    long = conversation(LONG[-1])
    encode(dialect, request_of(dialect, long))
    kept = anew = alone = float("inf")
    for number in range(rounds):
        long.extend(turn(LONG[-1] + number))
        request = request_of(dialect, long)
        begin = time.process_time()
        body = encode(dialect, request)
        kept = min(kept, time.process_time() - begin)
        unkept = replace(request)  # a copy shares nothing with the conversation
        begin = time.process_time()
        assert encode(dialect, unkept) == body
        anew = min(anew, time.process_time() - begin)
        built = orjson.loads(body)
        begin = time.process_time()
        orjson.dumps(built)
        alone = min(alone, time.process_time() - begin)
    what = f"{dialect}: a turn appended to {LONG[-1]:,} messages"
    result.add(
        what,
        kept * 1e6,
        "µs",
        ratio=kept / anew,
        against="written anew",
        target=f"≤ {APPENDED:g} × written anew",
        met=kept <= APPENDED * anew,
    )
    result.add(f"{what}, written anew", anew * 1e6, "µs", ratio=anew / alone, against="orjson.dumps alone")
    result.add(f"{what}, orjson.dumps alone", alone * 1e6, "µs")
