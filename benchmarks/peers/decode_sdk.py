"""The official libraries' decoding alone: bytes in memory → their typed events.

    python -m benchmarks.peers.decode_sdk DIALECT EVENTS

A transport of ours answers from memory. The clients are the synchronous ones, which cost less.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import anthropic
import httpx2
import openai
from google import genai
from google.genai import types

from ..wire import MODEL_NAMES, WIRES, chunks_of


class Memory(httpx2.BaseTransport):
    """A transport that answers every request with these chunks, one server-sent event each."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = chunks

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Chunks(self.chunks))


class Chunks(httpx2.SyncByteStream):
    """A response body in memory."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.chunks)


def chat(client: httpx2.Client) -> int:
    library = openai.OpenAI(api_key="key", base_url="http://127.0.0.1/v1", http_client=client)
    stream = library.chat.completions.create(
        model=MODEL_NAMES["chat"], messages=[{"role": "user", "content": "Say hello."}], stream=True
    )
    return sum(bool(chunk.choices and chunk.choices[0].delta.content) for chunk in stream)


def responses(client: httpx2.Client) -> int:
    library = openai.OpenAI(api_key="key", base_url="http://127.0.0.1/v1", http_client=client)
    stream = library.responses.create(model=MODEL_NAMES["responses"], input="Say hello.", stream=True)
    return sum(event.type == "response.output_text.delta" for event in stream)


def claude(client: httpx2.Client) -> int:
    library = anthropic.Anthropic(api_key="key", base_url="http://127.0.0.1", http_client=client)
    stream = library.messages.create(
        model=MODEL_NAMES["anthropic"],
        max_tokens=1024,
        messages=[{"role": "user", "content": "Say hello."}],
        stream=True,
    )
    return sum(event.type == "content_block_delta" for event in stream)


def gemini(client: httpx2.Client) -> int:
    options = types.HttpOptions(base_url="http://127.0.0.1", api_version="v1beta", httpx_client=client)
    library = genai.Client(api_key="key", http_options=options)
    stream = library.models.generate_content_stream(model=MODEL_NAMES["gemini"], contents="Say hello.")
    return sum(bool(chunk.text) for chunk in stream)


def interactions(client: httpx2.Client) -> int:
    options = types.HttpOptions(base_url="http://127.0.0.1", api_version="v1beta", httpx_client=client)
    library = genai.Client(api_key="key", http_options=options)
    stream = library.interactions.create(model=MODEL_NAMES["interactions"], input="Say hello.", stream=True)
    return sum(event.event_type == "step.delta" for event in stream)


DECODERS = {"chat": chat, "responses": responses, "anthropic": claude, "gemini": gemini, "interactions": interactions}


def main() -> None:
    dialect, events = sys.argv[1], int(sys.argv[2])
    client = httpx2.Client(transport=Memory(chunks_of(WIRES[dialect], events)))
    best = float("inf")
    DECODERS[dialect](client)  # the libraries build some types at first use
    for _ in range(3):
        begin = time.process_time()
        deltas = DECODERS[dialect](client)
        best = min(best, time.process_time() - begin)
        assert deltas == events, deltas
    print(events / best)


if __name__ == "__main__":
    main()
