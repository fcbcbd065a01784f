"""Whom the examples ask: the model that you name, or, where you name none, a simulator that is started here.

Nothing is ever sent to a provider unless you say so with --model, whatever keys are in the environment.
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
    """Who is asked, and for which model. simulated: nobody real; answers are simulated."""

    providers: list[ms.Provider]
    model: str
    simulated: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--model and --base-url."""
    parser.add_argument("--model", help="a real model, such as claude-sonnet-4-5 (default: the simulator)")
    parser.add_argument("--base-url", help="an OpenAI-compatible server that has the model")


@contextmanager
def open_setting(arguments: argparse.Namespace, knobs: str = "") -> Generator[Setting, None, None]:
    """What the command line asks for. `knobs` say what the simulator answers, where it is the one that is asked."""
    if arguments.base_url and not arguments.model:
        raise SystemExit("--base-url needs --model")
    if arguments.base_url:
        yield Setting([ms.OpenAIChat(base_url=arguments.base_url)], arguments.model, simulated=False)
    elif arguments.model:
        # Keys are looked up when a provider is asked, so one without a key does no harm.
        yield Setting([ms.OpenAIChat(), ms.Anthropic(), ms.Gemini()], arguments.model, simulated=False)
    else:
        with open_simulator(knobs) as simulator:
            provider = ms.Anthropic(base_url=simulator.base_urls["anthropic"], api_key="any")
            yield Setting([provider], "claude-sonnet-4-5", simulated=True)
