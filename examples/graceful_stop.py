"""Stop without losing answers: at SIGTERM the engine takes no new calls, and running calls may end.

    python examples/graceful_stop.py                         simulated; stops itself after a second
    python examples/graceful_stop.py --model gpt-5-mini      a real model; stop it with `kill PID` or Ctrl-C

Kubernetes, systemd and most deployments send SIGTERM first, and SIGKILL after a grace period. Give `drain` a little
less
than that period.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Sequence

import trio
from setting import add_arguments, open_setting

import manystream as ms
from manystream.engine import EngineClosedError

GRACE_SECONDS = 25.0
"""Below the 30 seconds that Kubernetes waits before it sends SIGKILL."""


async def work(engine: ms.Engine, request: ms.Request, ended: list[ms.Completion]) -> None:
    """Make calls, as a service does, until the engine takes no more."""
    while True:
        try:
            call = engine.start_stream(request)
        except EngineClosedError:
            return
        ended.append(await call.wait())


async def stop_at_signal(engine: ms.Engine) -> None:
    """Drain at the first SIGTERM or SIGINT. Leaving the block cancels calls that take longer."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            print(f"{signal.Signals(number).name}: {sum(engine.statistics().calls.values())} calls may end")
            everything = await engine.drain(GRACE_SECONDS)
            print("all have ended" if everything else "time is up: the rest is cancelled")
            return


async def run(providers: Sequence[ms.Provider], request: ms.Request, *, stop_itself: bool) -> None:
    ended: list[ms.Completion] = []
    async with ms.open_engine(providers) as engine, trio.open_nursery() as nursery:
        nursery.start_soon(stop_at_signal, engine)
        for _ in range(20):
            nursery.start_soon(work, engine, request, ended)
        if stop_itself:
            await trio.sleep(1)
            os.kill(os.getpid(), signal.SIGTERM)
    print(f"{len(ended)} calls, {sum(completion.success for completion in ended)} whole answers")


def main() -> None:
    parser = argparse.ArgumentParser(description="Drain an engine at SIGTERM.")
    add_arguments(parser)
    with open_setting(parser.parse_args(), "events=20,rate=100") as setting:
        request = ms.Request(setting.model, [ms.Message.user("Name a river.")])
        trio.run(lambda: run(setting.providers, request, stop_itself=setting.simulated))


if __name__ == "__main__":
    main()
