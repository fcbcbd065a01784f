"""Compare what clients get through the gateway and without it: `python -m tests.conformance.gateway FOLDER`.

Each recorded response is asked for over a plain connection, where status, headers and bytes are compared, and by the
official SDK of its dialect, where all that it returns or raises is compared. Streams are left in the middle, too.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path
from typing import Any

import anthropic
import openai
import trio
from google import genai

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.serve import Gateway
from manystream.transport.sse import SSEParser
from tests.support.peers import open_peer

from .corpus import Case, read_corpus
from .cuts import Cut, cuts_of
from .exchange import PROVIDERS
from .server import Answer, recorded

SEED = 20_261_126
AT_ONCE = 16
CUTS = 2
"""Cuts of each body: the whole one, and one at random places. The engine is tested with more."""

BAD_GATEWAY = 502

WHICH = re.compile(rb"recorded-(\d+)")
"""The name of the model that is asked for has the number of the response."""

OWN = frozenset({"connection", "content-length", "transfer-encoding", "alt-svc", "set-cookie", "keep-alive",
    "strict-transport-security", "proxy-authenticate", "te", "trailer", "upgrade"})  # fmt: skip
"""Headers of one connection or of the provider's host, which the gateway does not forward."""


def request_of(case: Case, model: str) -> tuple[str, dict[str, object]]:
    """Return the path and the body of a request for a response."""
    said = [{"role": "user", "content": "hi"}]
    stream: dict[str, object] = {"stream": True} if case.stream else {}
    match case.dialect:
        case "openai-chat":
            return "/v1/chat/completions", {"model": model, "messages": said, **stream}
        case "openai-responses":
            return "/v1/responses", {"model": model, "input": "hi", **stream}
        case "anthropic":
            return "/v1/messages", {"model": model, "max_tokens": 9, "messages": said, **stream}
        case "gemini-interactions":
            return "/v1beta/interactions", {"model": model, "input": "hi", **stream}
        case _:
            method = "streamGenerateContent?alt=sse" if case.stream else "generateContent"
            return f"/v1beta/models/{model}:{method}", {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}


def fetch(url: str, case: Case, place: int, most: int | None = None) -> tuple[object, ...]:
    """Return status, headers and body as a plain client gets them. most: leave after so many bytes."""
    path, body = request_of(case, f"recorded-{place}")
    with closing(HTTPConnection(url.removeprefix("http://"), timeout=60)) as connection:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        headers = sorted((name.lower(), value) for name, value in response.getheaders() if name.lower() not in OWN)
        try:
            answer = response.read(most)
        except IncompleteRead as cut:  # the gateway shows so that the recording has no end
            answer = cut.partial
        return response.status, headers, answer


def by_sdk(url: str, case: Case, place: int) -> list[object]:
    """Return what the official SDK returns or raises."""
    seen: list[Any] = []
    try:
        for value in _values(url, case, f"recorded-{place}"):
            seen.append(value.model_dump(mode="json", warnings=False) if hasattr(value, "model_dump") else repr(value))
            http = getattr(value, "sdk_http_response", None)  # google-genai shows the headers
            if http is not None:
                kept = {name: text for name, text in (http.headers or {}).items() if name not in OWN}
                seen[-1] = {**seen[-1], "sdk_http_response": kept}
    except Exception as error:
        seen.append((type(error).__name__, str(error)))
    return seen


@lru_cache
def _client(kind: str, url: str) -> Any:
    """Return an official SDK's client, which all threads share."""
    if kind == "gemini":
        return genai.Client(api_key="any", http_options={"base_url": url})
    if kind == "anthropic":
        return anthropic.Anthropic(api_key="any", base_url=url, max_retries=0)
    return openai.OpenAI(api_key="any", base_url=f"{url}/v1", max_retries=0)


def _values(url: str, case: Case, model: str) -> Iterator[Any]:
    stream, said = case.stream, [{"role": "user", "content": "hi"}]
    client = _client(case.dialect.partition("-")[0], url)
    match case.dialect:
        case "openai-chat":
            answer = client.chat.completions.create(model=model, messages=said, stream=stream)
        case "openai-responses":
            answer = client.responses.create(model=model, input="hi", stream=stream)
        case "anthropic":
            answer = client.messages.create(model=model, max_tokens=9, messages=said, stream=stream)
        case "gemini-interactions":
            answer = client.interactions.create(model=model, input="hi", stream=stream)
        case _:
            generate = client.models.generate_content_stream if stream else client.models.generate_content
            answer = generate(model=model, contents="hi")
    yield from answer if stream else [answer]


def has_no_end(case: Case) -> bool:
    """Return whether a stream ends without its dialect's end, so that the gateway shows an error in its place."""
    if not case.stream or case.status != 200:
        return False
    machine = DIALECTS[case.dialect].machine(PROVIDERS[case.dialect]("key", name=case.dialect), lambda: "id")
    parser = SSEParser()
    events = [event for name, data in parser.feed(case.body) for event in machine.feed(name, data)]
    events += [event for name, data in parser.end() for event in machine.feed_last(name, data)]
    last = [*events, *machine.end()][-1]
    return isinstance(last, ms.ErrorEvent) and last.error.category is ms.ErrorCategory.NETWORK


def _same(expected: tuple[Any, ...], got: tuple[Any, ...], *, no_end: bool) -> bool:
    """Return whether two answers are the same, but for what the gateway adds to one that has no end."""
    if no_end and got[0] == BAD_GATEWAY:
        return True
    return got == expected or (no_end and got[:2] == expected[:2] and got[2].startswith(expected[2]))


async def compare(cases: Sequence[Case], seed: int = SEED) -> list[str]:
    """Return the differences, one line for each."""
    plan: list[tuple[Case, Cut]] = [
        (case, cut) for case in cases for cut in cuts_of(case.name, len(case.body), seed)[:CUTS]
    ]
    script = recorded([Answer(case.status, case.headers, case.body, cut) for case, cut in plan], WHICH)
    different: list[str] = []
    limit = trio.CapacityLimiter(AT_ONCE)
    async with open_peer(script) as peer:
        urls = {name: peer.url if name.startswith("openai") else peer.origin for name in PROVIDERS}
        providers = [kind("key", urls[name], name=name) for name, kind in PROVIDERS.items()]
        async with (
            ms.open_engine(providers, retry=ms.Retry(max_attempts=1), proxy="") as engine,
            ms.open_gateway(engine, keep_alive=math.inf) as gateway,
        ):
            async with trio.open_nursery() as clients:
                for place in range(len(plan)):
                    clients.start_soon(_one, peer.origin, gateway, plan, place, different, limit)
            while any(engine.statistics().calls.values()):
                await trio.sleep(0.01)  # calls of clients that left end at the next iteration
    return different


async def _one(
    direct: str,
    gateway: Gateway,
    plan: Sequence[tuple[Case, Cut]],
    place: int,
    different: list[str],
    limit: trio.CapacityLimiter,
) -> None:
    case, cut = plan[place]
    async with limit:
        where = f"{case.dialect} {case.name}, {cut.name}"
        in_thread = trio.to_thread.run_sync
        expected = await in_thread(fetch, direct, case, place)
        got = await in_thread(fetch, gateway.base_url, case, place)
        no_end = has_no_end(case)
        if not _same(expected, got, no_end=no_end):
            different.append(f"{where}: {str(expected)[:300]} became {str(got)[:300]}")
        if case.stream and case.status == 200:
            half = len(case.body) // 2
            left = await in_thread(fetch, gateway.base_url, case, place, half)
            if left[2] != case.body[:half] and not no_end:
                different.append(f"{where}: the beginning differs")
        if cut.name == "whole":
            heard = await in_thread(by_sdk, direct, case, place)
            forwarded = await in_thread(by_sdk, gateway.base_url, case, place)
            if (heard != forwarded) is not no_end:  # an error is seen in place of the end
                different.append(f"{where}: the SDK saw {str(heard[-1:])[:300]}, and {str(forwarded[-1:])[:300]}")


def main(arguments: Sequence[str]) -> int:
    """Run. Returns the exit status."""
    folder = Path(arguments[0]) if arguments and arguments[0] else None
    if folder is None or not folder.is_dir():
        print("gateway: skipped, there is no folder with recorded answers")
        return 0
    began, cases = time.monotonic(), read_corpus(folder, arguments[1:])
    different = trio.run(compare, cases)
    print("\n".join(different))
    print(f"gateway: {len(cases)} answers in {time.monotonic() - began:.0f} s, {len(different)} differences")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
