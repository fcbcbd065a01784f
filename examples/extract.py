"""Structured extraction over a folder: each text file becomes one JSON line. All files run at the same time.

    python examples/extract.py                                              the invoices beside this file, simulated
    python examples/extract.py --model gpt-5-mini ~/letters > letters.jsonl

`response_schema` gives the schema to the model. The library checks the answer: `response.parsed` fits the schema, or
the
call fails with an error that names the place. Failures go to standard error. The exit status is 1 if there were any.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import trio
from setting import Setting, add_arguments, open_setting

import manystream as ms
from manystream.providers.json.json_values import JSONObject

SCHEMA: JSONObject = {
    "type": "object",
    "properties": {
        "sender": {"type": "string"},
        "date": {"type": "string", "format": "date"},
        "currency": {"type": "string", "enum": ["EUR", "USD", "GBP"]},
        "total": {"type": "number"},
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"what": {"type": "string"}, "amount": {"type": "number"}},
                "required": ["what", "amount"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["sender", "date", "currency", "total", "lines"],
    "additionalProperties": False,
}

SYSTEM = "Extract the invoice. Give amounts as numbers without currency."
AT_ONCE = 100
INVOICES = Path(__file__).parent / "invoices"


class Extraction:
    """One run over a folder."""

    def __init__(self, engine: ms.Engine, model: str) -> None:
        self.engine = engine
        self.model = model
        self.places = trio.CapacityLimiter(AT_ONCE)
        self.failures = 0

    async def extract(self, path: Path) -> None:
        """Extract one file into one line."""
        async with self.places:
            text = await trio.Path(path).read_text("utf-8")
            request = ms.Request(self.model, [ms.Message.user(text)], system=SYSTEM, response_schema=SCHEMA)
            try:
                response = await self.engine.request(request)
            except ms.ProviderError as error:
                self.failures += 1
                print(f"{path.name}: {error.category}: {error.message}", file=sys.stderr)
                return
            print(json.dumps({"file": path.name, "data": response.parsed}, ensure_ascii=False), flush=True)


async def run(setting: Setting, folder: Path) -> int:
    paths = sorted(folder.glob("*.txt"))
    async with ms.open_engine(setting.providers) as engine:
        extraction = Extraction(engine, setting.model)
        async with trio.open_nursery() as nursery:
            for path in paths:
                nursery.start_soon(extraction.extract, path)
    print(f"{len(paths)} files, {extraction.failures} failed", file=sys.stderr)
    return 1 if extraction.failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Extract invoices from text files, as JSON lines.")
    parser.add_argument("folder", nargs="?", type=Path, default=INVOICES, help="a folder with .txt files")
    add_arguments(parser)
    arguments = parser.parse_args()
    with open_setting(arguments) as setting:
        return trio.run(run, setting, arguments.folder)


if __name__ == "__main__":
    sys.exit(main())
