"""A server that speaks Chat Completions with deviations, as a row of data."""

import manystream as ms

ZEPHYR = ms.Profile(
    name="zephyr",
    dialect="openai-chat",
    base_url="https://api.zephyr.example/v1",
    key_variables=("ZEPHYR_API_KEY",),
    prefixes=("zephyr-",),  # the models that this provider serves
    quirks=ms.Quirks(
        auth_header="x-api-key",  # instead of `Authorization: Bearer …`
        max_tokens_member="max_tokens",
        thinking="enable_thinking",
        # The member that returns the reasoning with tool calls.
        reasoning_return="reasoning_content",
        seed_member="",  # the server has no seed: a seed gives a warning
    ),
)


async def ask(question: str, base_url: str | None = None) -> ms.Response:
    """Send a question, with the key in ZEPHYR_API_KEY.

    base_url: replaces the address of the row.
    """
    provider = ms.OpenAIChat(base_url=base_url, profile=ZEPHYR)
    request = ms.Request(
        "zephyr-large",
        [ms.Message.user(question)],
        max_output_tokens=100,
        thinking=ms.ThinkingLevel.HIGH,
        seed=7,
    )
    async with ms.open_engine([provider]) as engine:
        return await engine.request(request)
