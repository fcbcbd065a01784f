"""Helpers of the batch tests: write lines, write files of lines, and run a batch over a file."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import manystream as ms
from manystream.batch import Batch, Journal, read_lines


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
