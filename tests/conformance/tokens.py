"""Recorded answers with tokens (the folder `tokens`): each choice beside the reference, in pieces and whole."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.transport.sse import SSEParser

PROVIDERS: dict[str, ms.Provider] = {
    "vllm_generate": ms.VLLMGenerate(),
    "sglang_generate": ms.SGLangGenerate(),
    "completions": ms.OpenAICompletions(base_url="http://host/v1"),
    "chat": ms.OpenAIChat("key", base_url="http://host/v1", profile="vllm"),
}
"""Kind of a recorded answer → the provider that reads it."""

PIECES = (1, 7, 100, 1 << 30)
"""Sizes of the pieces, in bytes, in which a stream arrives."""


def token_faults(folder: Path) -> tuple[int, list[str]]:
    """Return the number of recorded answers, and what differs from their reference."""
    names = sorted(path.name.removesuffix(".body") for path in (folder / "tokens").glob("*.body"))
    faults: list[str] = []
    for name in names:
        expected, recorded = (
            json.loads((folder / "tokens" / f"{name}{end}").read_text("utf-8")) for end in (".expect.json", ".json")
        )
        body = (folder / "tokens" / f"{name}.body").read_bytes()
        provider = PROVIDERS.get(expected["kind"])
        if provider is None:
            assert expected["error"], f"{name}: {expected['kind']} is no kind of an answer"
            provider = PROVIDERS["chat"]
        for size in PIECES if recorded["is_stream"] else PIECES[-1:]:
            faults += [
                f"tokens {name}, in pieces of {size}: {fault}" for fault in _read(provider, body, size, expected)
            ]
    return len(names), faults


def _read(provider: ms.Provider, body: bytes, size: int, expected: dict[str, Any]) -> Sequence[str]:
    dialect = DIALECTS[provider.profile.dialect_name]
    error: ms.ProviderError | None = None
    response: ms.Response | None = None
    if body.lstrip().startswith(b"data:"):
        machine, parser, events = dialect.machine(provider, lambda: "made"), SSEParser(1 << 20), list[ms.Event]()
        machine.asked = frozenset({"ids", "logprobs"})
        for at in range(0, len(body), size):
            for name, data in parser.feed(body[at : at + size]):
                events.extend(machine.feed(name, data))
        events.extend(machine.end())
        error = events[-1].error if isinstance(events[-1], ms.ErrorEvent) else None
        response = machine.response()
    else:
        try:
            response = dialect.decode(body, provider, lambda: "made")
        except ms.ProviderError as failure:
            error, response = failure, failure.partial
    stopped = any(choice["finish_reason"] == "abort" for choice in expected["choices"][:1])
    if (error is not None) != bool(expected["error"] or stopped or not expected["complete"]):
        return [f"the error is {error}"]
    choices = [] if response is None else response.choices
    ours = [_shown(choice) for choice in choices if choice.tokens or choice.content or choice.raw_finish_reason]
    return [] if ours == (theirs := [*map(_expected, expected["choices"])]) else [f"ours {ours}, reference {theirs}"]


def _shown(choice: ms.Response) -> tuple[object, ...]:
    tokens = choice.tokens or ms.Tokens()
    logprobs = [None if math.isnan(value) else value for value in tokens.logprobs or ()]
    return choice.text, [*(tokens.ids or ())], logprobs, choice.raw_finish_reason


def _expected(choice: dict[str, Any]) -> tuple[object, ...]:
    return (
        choice.get("text") or "",
        choice.get("token_ids") or [],
        choice.get("logprobs") or [],
        choice["finish_reason"],
    )
