"""A server that speaks Chat Completions with habits of its own, added as a row of data."""

import manystream as ms

ZEPHYR = ms.Profile(
    name="zephyr",
    dialect="openai-chat",
    base_url="https://api.zephyr.example/v1",
    key_variables=("ZEPHYR_API_KEY",),
    prefixes=("zephyr-",),  # "zephyr-large" is enough to find it, and so is "zephyr/…" with any model
    quirks=ms.Quirks(
        auth_header="x-api-key",  # the key goes here, bare, instead of `Authorization: Bearer …`
        max_tokens_member="max_tokens",
        thinking="enable_thinking",
        reasoning_return="reasoning_content",  # its reasoning goes back with tool calls under this name
        seed_member="",  # it has no seed: asking for one gives a warning on the response
    ),
)


async def ask(question: str, base_url: str | None = None) -> ms.Response:
    """Ask it. The key comes from ZEPHYR_API_KEY; `base_url` is the row's own unless given."""
    async with ms.open_engine([ms.OpenAIChat(base_url=base_url, profile=ZEPHYR)]) as engine:
        request = ms.Request(
            "zephyr-large",
            [ms.Message.user(question)],
            max_output_tokens=100,
            thinking=ms.ThinkingLevel.HIGH,
            seed=7,
        )
        return await engine.request(request)
