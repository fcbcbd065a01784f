"""The clients as rows of data: program, label, and the start of the search for the limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Client:
    """One measured client.

    module: its program, below `benchmarks.peers`.
    label: its name in tables and plots.
    guess: the number of live streams at which the search begins.
    over: the form of it to run; see `Task` in peers/common.py.
    """

    name: str
    module: str
    label: str
    guess: int
    over: str = ""


OURS = Client("manystream", "ours", "manystream", 2000)
FLOOR = Client("floor", "floor", "bare epoll + orjson (floor)", 2500)
CURL = Client("libcurl", "curl_multi", "libcurl multi + orjson", 1600)
AIOHTTP = Client("aiohttp", "aiohttp_by_hand", "aiohttp + orjson by hand", 600)
OPENAI = Client("openai", "openai_sdk", "openai SDK", 50)
ANTHROPIC = Client("anthropic", "anthropic_sdk", "anthropic SDK", 60)
GOOGLE = Client("google", "google_sdk", "google-genai SDK", 40)

SDK_OF = {"chat": OPENAI, "responses": OPENAI, "anthropic": ANTHROPIC, "gemini": GOOGLE, "interactions": GOOGLE}
"""Dialect → the library of its provider."""
