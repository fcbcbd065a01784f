"""Bodies that real programs sent, recorded by others: read as an SDK's arguments and written again, each is the same.

The recordings are no part of the project: `make conformance CORPUS=folder` names their folder, in the variable
`MANYSTREAM_CORPUS`. Without one the test is skipped.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

import manystream as ms
from manystream.providers.anthropic.arguments import ARGUMENTS as ANTHROPIC
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.gemini.json_names import wire_names
from manystream.providers.gemini_interactions.arguments import ARGUMENTS as INTERACTIONS
from manystream.providers.json.json_values import JSONObject, items, loads_object, mapping
from manystream.providers.openai.chat.arguments import ARGUMENTS as CHAT
from manystream.providers.openai.responses.arguments import ARGUMENTS as RESPONSES

CORPUS = Path(os.environ.get("MANYSTREAM_CORPUS") or "no folder")

NOTHING: frozenset[str] = frozenset()
SDKS: dict[str, tuple[Callable[..., ms.Request], frozenset[str], ms.Provider]] = {
    "openai_chat": (ms.Request.from_openai, CHAT, ms.OpenAIChat()),
    "openai_responses": (ms.Request.from_openai_responses, RESPONSES, ms.OpenAIResponses()),
    "anthropic": (ms.Request.from_anthropic, ANTHROPIC, ms.Anthropic()),
    "gemini": (ms.Request.from_gemini, NOTHING, ms.Gemini()),
    "gemini_interactions": (ms.Request.from_gemini_interactions, INTERACTIONS, ms.GeminiInteractions()),
}

DECIDED_BY_THE_CALL = ("stream", "stream_options")

REFUSED = (
    "is not base64 text", "unknown role", "must be an object", "must be a number of at least 0",
    "is not supported: a response in the background", "input: is missing",
)  # fmt: skip
"""What is wrong with some recordings: contents that were cut out, roles without a place here, requests that were
made to fail, responses in the background, and bodies of which a recording keeps only some members."""


def recorded_bodies() -> list[tuple[str, Path, JSONObject]]:
    found: list[tuple[str, Path, JSONObject]] = []
    for folder in SDKS:
        for path in sorted(CORPUS.joinpath(folder).glob("*.json")):
            recording = loads_object(path.read_bytes())
            body = mapping(recording, "request").get("body")
            if type(body) is dict:
                found.append((folder, path, {**body, "model": body.get("model") or recording["model"] or "m"}))
    return found


def arguments_of(folder: str, body: JSONObject) -> dict[str, object]:
    """The arguments by which an SDK sends this body."""
    if folder == "gemini":
        outside = ("model", "contents", "generationConfig")
        config = {name: value for name, value in body.items() if name not in outside}
        config.update(mapping(body, "generationConfig"))
        return {"model": body["model"], "contents": body["contents"], "config": config}
    known = SDKS[folder][1]
    extra = {name: value for name, value in body.items() if name not in known}
    return {**{name: value for name, value in body.items() if name in known}, "extra_body": extra}


def one_spelling(folder: str, body: JSONObject) -> JSONObject:
    """A body with the names on the wire, functions before other tools, and without an empty `generationConfig`, which
    says nothing."""
    if folder != "gemini":
        return {name: value for name, value in body.items() if name not in DECIDED_BY_THE_CALL}
    spelt = cast("JSONObject", wire_names({name: value for name, value in body.items() if name != "model"}, ""))
    if "tools" in spelt:
        spelt["tools"] = sorted(items(spelt, "tools"), key=str)
    return {name: value for name, value in spelt.items() if name != "generationConfig" or value}


@pytest.mark.skipif(not CORPUS.is_dir(), reason="MANYSTREAM_CORPUS names no folder of recordings")
def test_every_recorded_body_is_written_again_as_it_was() -> None:
    bodies = recorded_bodies()
    assert bodies
    different: list[str] = []
    for folder, path, body in bodies:
        read, _, provider = SDKS[folder]
        try:
            request = read(**arguments_of(folder, body))
            wire = DIALECTS[str(provider.profile.dialect)].encode(request, request.model, provider, stream=False)
        except ms.InvalidRequestError as error:
            if not any(refused in str(error) for refused in REFUSED):
                different.append(f"{path.name}: {error}")
            continue
        if one_spelling(folder, json.loads(wire.body)) != one_spelling(folder, body):
            different.append(path.name)
    assert not different
