"""The model and the providers of the examples: a real model that the user names, or a simulator.

The examples send nothing to a provider without --model, even if the environment has keys.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import manystream as ms
from manystream.simulator import open_simulator


@dataclass(frozen=True)
class Setting:
    """The providers and the model of an example.

    simulated: whether the simulator answers.
    """

    providers: list[ms.Provider]
    model: str
    simulated: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --model and --base-url."""
    parser.add_argument("--model", help="a real model, such as claude-sonnet-4-5 (default: the simulator)")
    parser.add_argument("--base-url", help="an OpenAI-compatible server that has the model")


@contextmanager
def open_setting(arguments: argparse.Namespace, knobs: str = "") -> Generator[Setting, None, None]:
    """Open what the command line selects: a server, a real model, or the simulator.

    knobs: the options of the simulator.
    """
    if arguments.base_url and not arguments.model:
        raise SystemExit("--base-url needs --model")
    if arguments.base_url:
        yield Setting([ms.OpenAIChat(base_url=arguments.base_url)], arguments.model, simulated=False)
    elif arguments.model:
        # An engine looks for a key when it uses the provider, so a provider without a key does no harm.
        yield Setting([ms.OpenAIChat(), ms.Anthropic(), ms.Gemini()], arguments.model, simulated=False)
    else:
        with open_simulator(knobs) as simulator:
            provider = ms.Anthropic(base_url=simulator.base_urls["anthropic"], api_key="any")
            yield Setting([provider], "claude-sonnet-4-5", simulated=True)
