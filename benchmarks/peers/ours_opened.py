"""Open an engine after `import trio`, and print the CPU time in milliseconds, with that of `import manystream`."""

from __future__ import annotations

import time

import trio


async def main() -> None:
    begin = time.process_time()
    import manystream as ms

    async with ms.open_engine([ms.OpenAIChat(api_key="k", base_url="https://127.0.0.1:9/v1")]):
        print((time.process_time() - begin) * 1000)


if __name__ == "__main__":
    trio.run(main)
