"""The fixtures of aimock behind each route: the questions of the tests, and the correct answers.

aimock cuts deltas by UTF-16 code units. Each emoji of these answers is within one group of six units, so chunks of six
never cut a surrogate pair, and chunks of five do.
"""

from __future__ import annotations

import json
from typing import Any

WHOLE_CHUNK, CUT_CHUNK = 6, 5

SAID = "a👩\u200d🚀bc🎉de日本語klm🤔🤔🤔🧑🏽\u200d." * 2
THOUGHT = "🧠🧠🧠Erst x🤔x🤔y" * 2 + "denken"
ANSWERED = "Regen☔🌧🌧🌧"
LONG = " ".join(f"Satz {number}." for number in range(60))
ARGUMENTS: dict[str, Any] = {"note": "ab", "city": "xyzZürich🏔🏔🏔🌧x🌧yab🌧cd"}
USAGE = {
    "prompt_tokens": 17, "completion_tokens": 29, "total_tokens": 46,
    "input_tokens": 17, "output_tokens": 29,
    "promptTokenCount": 17, "candidatesTokenCount": 29, "totalTokenCount": 46,
}  # fmt: skip
"""The usage under the names of each dialect. aimock uses those of the request's dialect."""

OVERLOADED, TOO_FAST = "Overloaded, try later.", "Too fast."
CALLED = {
    "id": "call_1",
    "name": "get_weather",
    "arguments": json.dumps(ARGUMENTS, ensure_ascii=False, separators=(",", ":")),
}


def fixtures() -> list[object]:
    """Return the fixtures for aimock, which uses the first whose words occur anywhere in the last message."""
    found: list[object] = [{"match": {"hasToolResult": True}, "response": {"content": ANSWERED}}]
    for word, size in (("whole", WHOLE_CHUNK), ("cut", CUT_CHUNK)):
        answers = {
            "text": {"content": SAID, "usage": USAGE},
            "thinking": {"content": SAID, "reasoning": THOUGHT, "reasoningSignature": "c2ln"},
            "tool": {"toolCalls": [CALLED]},
        }
        for question, answer in answers.items():
            found.append({"match": {"userMessage": f"{word} {question}"}, "response": answer, "chunkSize": size})
    found += [
        {"match": {"userMessage": "truncate"}, "response": {"content": LONG}, "latency": 15, "truncateAfterChunks": 9},
        {"match": {"userMessage": "disconnect"}, "response": {"content": LONG}, "latency": 15,
         "disconnectAfterMs": 250},
        {"match": {"userMessage": "slowly"}, "response": {"content": LONG}, "latency": 50},
        {"match": {"userMessage": "overload"},
         "response": {"error": {"message": OVERLOADED, "type": "overloaded_error"}, "status": 529}},
        {"match": {"userMessage": "limit"},
         "response": {"error": {"message": TOO_FAST, "type": "rate_limit_error"}, "status": 429}},
    ]  # fmt: skip
    return found


def pieces(text: str, size: int) -> list[str]:
    """Return the pieces that aimock sends: groups of `size` UTF-16 code units; half pairs as lone surrogates."""
    units = text.encode("utf-16-le")
    return [
        units[start : start + 2 * size].decode("utf-16-le", "surrogatepass") for start in range(0, len(units), 2 * size)
    ]
