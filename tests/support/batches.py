"""Helpers of the batch tests: lines, files of lines, ends of calls with their costs, and a batch over a file."""

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import cast

import manystream as ms
from manystream.batch import Batch, Journal, read_lines
from manystream.cost import Cost

USAGE = ms.Usage(10, 20, 5, 4, 3, 35)
COST = Cost("USD", Decimal(1), Decimal(0), Decimal(0), Decimal(2), Decimal(0), Decimal("0.5"), "m", "p")


def model(named: str | None) -> str | None:
    return f"sim/{named or 'sim-text'}"


def line(id: str | int, text: str = "hello", **members: object) -> dict[str, object]:
    return {"id": id, "messages": [{"role": "user", "content": text}], **members}


def write(path: Path, lines: Sequence[object]) -> Path:
    path.write_text("".join(f"{entry if isinstance(entry, str) else json.dumps(entry)}\n" for entry in lines), "utf-8")
    return path


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(text) for text in path.read_bytes().splitlines()]


async def run(
    provider: ms.Provider,
    prompts: Path,
    answers: Path,
    retry: ms.Retry | None = None,
    traffic: ms.Traffic | None = None,
    **options: object,
) -> Batch:
    with Journal(answers) as journal:
        retry = retry or ms.Retry(max_attempts=1)
        async with ms.open_engine([provider], retry=retry, traffic=traffic) as engine:
            batch = Batch(engine, journal, model, source=prompts.name, provider="sim", **options)  # type: ignore[arg-type]
            await batch.run(read_lines(prompts))
    return batch


def unrecorded(answers: Path) -> float | None:
    """Return the US dollars that no record has, as the failures of a batch say; None if they say nothing."""
    failures = answers.with_name(f"{answers.stem}.errors.jsonl")
    found = [record for record in records(failures) if "unrecorded_usd" in record] if failures.exists() else []
    return cast("float", found[-1]["unrecorded_usd"]) if found else None


def completed(response: ms.Response | None = None, **members: object) -> ms.Completion:
    given = response or ms.Response([ms.Text("yes")], ms.FinishReason.STOP, usage=USAGE, model="m-1")
    values: dict[str, object] = {"attempts": 1, "timings": ms.Timings(finished=1.23456), "request_id": "r", **members}
    return ms.Completion(True, 200, given, **values)  # type: ignore[arg-type]


def failed(
    category: ms.ErrorCategory = ms.ErrorCategory.SERVER, message: str = "no", **members: object
) -> ms.Completion:
    spent = members.pop("spent", None)
    error = ms.ProviderError(message, category=category, **members)  # type: ignore[arg-type]
    return ms.Completion(False, 500, None, error, attempts=3, cost=spent)  # type: ignore[arg-type]


def provider() -> ms.Provider:
    return ms.OpenAIChat("k", "http://127.0.0.1:9/v1", name="sim")


def a_cent(provider: ms.Provider, model: str, usage: ms.Usage) -> float | None:
    """A cent for each token, and another unit for each other kind of token."""
    if model == "free":
        raise KeyError(model)
    kinds = (usage.input_tokens, usage.output_tokens, usage.thinking_tokens, usage.cached_tokens)
    return sum((count or 0) * 10**place for place, count in enumerate((*kinds, usage.cache_write_tokens)))
