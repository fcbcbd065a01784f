"""Chunks that match a template."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from tests.providers.generate.test_answer import ASKED, PROVIDERS

FORMS: dict[str, tuple[str, ms.Provider, bool]] = {
    "generate": ("vllm-generate", PROVIDERS["vllm-generate"], False),
    "generate with texts": ("vllm-generate", PROVIDERS["vllm-generate"], True),
    "completions": ("openai-completions", PROVIDERS["openai-completions"], True),
    "chat": ("openai-chat", ms.OpenAIChat("key", "http://h/v1", profile="vllm"), True),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(12))
def test_chunks_that_match_a_template_are_read_as_others(form: str, seed: int) -> None:
    dialect, provider, texts = FORMS[form]
    chance, chunks = random.Random(seed), list[bytes]()
    for _ in range(30):
        ids = [chance.randrange(9) for _ in range(chance.choice((0, 1, 1, 1, 3)))]
        entries = [{"token": "é", "logprob": chance.choice((-0.5, None, -9999.0)), "bytes": [195, 169]} for _ in ids]
        text = chance.choice(("", "a", "b\n", '"'))
        choice: dict[str, Any] = {"index": 0, "finish_reason": None, "token_ids": ids}
        choice["logprobs"] = chance.choice(({"content": entries}, {"content": entries}, None))
        if dialect == "openai-chat":
            choice["delta"] = chance.choice(({"content": text}, {"content": text}, {}, {"reasoning": text}))
        elif texts:
            choice["text"] = text
        chunks.append(json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode())
    found: list[tuple[list[ms.Event], ms.Response]] = []
    matched = 0
    for with_template in (True, False):
        machine = DIALECTS[dialect].machine(provider, lambda: "made")
        machine.asked, events = ASKED, list[ms.Event]()
        for data in chunks:
            before = machine.template = machine.template if with_template else None
            events.extend(machine.feed("", data))
            matched += before is not None and machine.template is before
        found.append((events, machine.response()))
    assert found[0] == found[1]
    assert matched
