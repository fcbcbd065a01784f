"""A page says what the library does not do only where it is shown here: what exists by now is found."""

from __future__ import annotations

import asyncio
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

import manystream as ms
from manystream.cli.command_line import main
from manystream.ray.divided import divided
from manystream.simulator import open_simulator_thread
from tests.docs.test_lists import PROSE, sources

DENIAL = re.compile(
    r"(?:not|are) supported|not for `--|other dialect raises|one actor only|, are not read|not those for|\| not checked"
)
"""How a page says that something does not exist. Another way of saying it belongs here."""


def batch_refuses(*words: str) -> None:
    assert main(["batch", "prompts.jsonl", "-o", "a.jsonl", "--model", "gpt-5", *words]) == 2


def cache_on_a_cluster() -> None:
    batch_refuses("--cache", ".", "--ray", "local")


def deadlines_on_a_cluster_or_with_a_cache() -> None:
    batch_refuses("--by", "3h", "--ray", "local")
    batch_refuses("--by", "3h", "--cache", ".")


def proxies_of_other_kinds() -> None:
    for proxy in ("socks5://127.0.0.1:1", "https://127.0.0.1:1"):
        with pytest.raises(ms.InvalidRequestError, match="only http:// proxies are"):
            asyncio.run(opened([ms.OpenAIChat("any")], proxy))


async def opened(providers: list[ms.Provider], proxy: str | None = None) -> None:
    async with ms.open_engine(providers, proxy=proxy) as engine:
        for provider in providers:
            with pytest.raises(ms.InvalidRequestError, match=r"^durable"):
                engine.start_request(ms.Request(f"{provider.name}/m", "Hi", durable=True))


def durable_elsewhere() -> None:
    url = "http://127.0.0.1:9"
    classes = (ms.OpenAIChat, ms.Anthropic, ms.Gemini, ms.VLLMGenerate, ms.SGLangGenerate)
    asyncio.run(opened([of("any", url, name=of.__name__.lower()) for of in classes]))


def simulated_completions() -> None:
    with open_simulator_thread() as simulator:
        for path in ("/v1/completions", "/generate", "/inference/v1/generate"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(urllib.request.Request(simulator.origin + path, b"{}"))


def variables_of_sdks() -> None:
    assert not [path for path, text in sources() if "OPENAI_ORG_ID" in text]


def budgets_of_several_actors() -> None:
    with pytest.raises(ms.InvalidRequestError, match="budgets"):
        divided(ms.Traffic(budgets=[ms.Budget(calls=1)]), [], 2)


def keywords_of_schemas() -> None:
    value: ms.JSONObject = {"type": "string", "pattern": "^[0-9]$", "format": "date"}
    schema: ms.JSONObject = {
        "type": "object", "required": ["a"], "properties": {"a": value}, "not": {"required": ["a"]},
        "if": {"required": ["a"]}, "then": False,
    }  # fmt: skip

    async def asked() -> ms.Response:
        with open_simulator_thread() as simulator:
            async with ms.open_engine([ms.Anthropic("any", simulator.origin)]) as engine:
                return await engine.request(ms.Request("claude-sonnet-4-5", "Hi", response_schema=schema))

    assert asyncio.run(asked()).parsed


def invoke_model() -> None:
    assert not [path for path, text in sources() if "/invoke" in text]


LIMITS: dict[tuple[str, str], Callable[[], None]] = {
    ("docs/guide/batch.md", "It is not for `--ray`"): cache_on_a_cluster,
    ("docs/guide/batch-deadlines.md", "are not for `--ray` and `--cache`"): deadlines_on_a_cluster_or_with_a_cache,
    ("docs/guide/durable.md", "Every other dialect raises `InvalidRequestError`"): durable_elsewhere,
    ("docs/guide/environment.md", "such as `OPENAI_ORG_ID`, are not read"): variables_of_sdks,
    ("docs/guide/migrating.md", "(`InvokeModel`) | not supported"): invoke_model,
    ("docs/guide/ray-data.md", "Budgets work with one actor only"): budgets_of_several_actors,
    ("docs/guide/security.md", "Only `http://` proxies are supported"): proxies_of_other_kinds,
    ("docs/guide/simulator.md", "not those for prompts and token ids"): simulated_completions,
    ("docs/guide/structured.md", "| not checked | `format`, `pattern`, `not`, `if` |"): keywords_of_schemas,
    ("docs/guide/troubleshooting.md", "`proxy: … is not supported; only http:// proxies are`"): proxies_of_other_kinds,
}
"""Page and words → what shows that it is so."""


@pytest.mark.parametrize("named", LIMITS, ids=lambda named: named[1])
def test_a_limit_that_a_page_names_is_one(
    named: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prompts.jsonl").write_text('{"id": "1", "prompt": "Hi"}\n', "utf-8")
    assert named[1] in " ".join(PROSE[named[0]].split())
    LIMITS[named]()


def test_every_limit_that_a_page_names_is_shown() -> None:
    unknown: list[str] = []
    for page, text in PROSE.items():
        words = " ".join(text.split())
        for of, limit in LIMITS:
            words = words.replace(limit, "") if of == page else words
        unknown += [f"{page}: …{words[max(0, found.start() - 60) : found.end()]}" for found in DENIAL.finditer(words)]
    assert not unknown


MISSING = {
    "HTTP/2": r'"h2"',
    "HTTP/3": r'"h3"|\bquic\b',
    "realtime interfaces": r"/v1/realtime\b|openai-beta: realtime",
    "compressed answers": r"accept-encoding: gzip",
    "Everything that is not a model call": r"class (?:Embeddings?|FineTuning|Moderation)\b",
    "embeddings": r'/embeddings"',
    "uploads": r"def upload_file\(",
    "file uploads": r"def upload_file\(",
    "fine-tuning": r"/fine_tuning",
    "Guardrails": r"class \w*Guardrail",
    "a cache of answers to similar questions": r"cosine|nearest_answer",
    "Agents": r"class \w*Agent\b",
    "MCP": r"import mcp\b|from mcp\b",
    "evals": r"class \w*Eval\b",
    "prompt templates": r"class \w*PromptTemplate",
    "the endpoints for images and speech": r"/images/generations|/audio/speech",
    "realtime and assistants": r'"/?v?1?/realtime|"/?v?1?/assistants',
    "`InvokeModel` and `Converse` are missing": r"/invoke\b|/converse\b",
    "Long use in production": r"$^",
}
"""What a page calls missing → words that the code would have if it existed."""

FILLERS = {"the library is new", "Use the SDK for these", "Of Bedrock"}


def test_what_a_page_calls_missing_does_not_exist() -> None:
    known = {item.lower(): words for item, words in MISSING.items()}
    for page in ("docs/comparison.md", "docs/guide/migrating.md"):
        section = " ".join(PROSE[page].partition("## What is missing")[2].partition("\n\n")[2].split())
        items = {item.strip() for item in re.split(r"(?:^|\s)- |[,.:;]|, and |\band (?=a cache)", section)} - {
            "",
            *FILLERS,
        }
        for item in items:
            assert item.lower() in known, f"{page}: show that {item!r} does not exist"
            found = [path for path, text in sources() if re.search(known[item.lower()], text)]
            assert not found, (page, item, found)
