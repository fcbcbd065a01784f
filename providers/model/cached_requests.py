"""Requests for a server's prompt cache: with marks where they pay, and one that writes a prompt and gets no answer."""

from __future__ import annotations

import dataclasses

from .messages import CacheControl, File, Image, Message, Text, ToolCall, ToolResult
from .options import Priority
from .prefix_cache import last_round
from .request import Request, prefix_cache_of, with_prefix_cache

MOST_MARKS = 4
"""Anthropic refuses a request with more."""

APART = 15
"""Blocks between two marks of a round with many results. Anthropic looks for a prefix 20 blocks before a mark."""

PREWARMING = frozenset({"anthropic", "openai-chat", "openai-responses"})
"""The dialects that have requests which only write the prompt to the cache, for some of their servers."""

NO_PREWARM = ": its server has no request that writes a prompt to the cache without an answer"

_MARKABLE = (Text, Image, File, ToolCall, ToolResult)


def with_marks(request: Request) -> Request:
    """Return the request with cache marks where they pay, unless it has marks of its own.

    They are behind tools and system prompt, and behind the last message. A last round with many blocks has one more
    each 15 blocks, because the server would not find the mark of the request before.
    """
    blocks = [block for message in request.messages for block in message.content if isinstance(block, _MARKABLE)]
    if any(each.cache_control is not None for each in (*request.tools, *request.system_blocks, *blocks)):
        return request
    system, tools = request.system_blocks, list(request.tools)
    if system:
        system[-1] = dataclasses.replace(system[-1], cache_control=CacheControl())
    elif tools:
        tools[-1] = dataclasses.replace(tools[-1], cache_control=CacheControl())
    left = MOST_MARKS - bool(system or tools)
    messages, first = list(request.messages), last_round(request.messages)
    behind, due = 0, 0  # the number of blocks behind the current one, and the number from which a mark is due
    for position in range(len(messages) - 1, first - 1, -1):
        content = list(messages[position].content)
        for place in range(len(content) - 1, -1, -1):
            block = content[place]
            if left and behind >= due and isinstance(block, _MARKABLE):
                content[place] = dataclasses.replace(block, cache_control=CacheControl())
                left, due = left - 1, behind + APART
            behind += 1
        messages[position] = dataclasses.replace(messages[position], content=content)
    marked = dataclasses.replace(request, system=system or request.system, tools=tools, messages=messages)
    cache = prefix_cache_of(request)
    return marked if cache is None else with_prefix_cache(marked, cache)


def warming(request: Request) -> Request:
    """Return the request that writes another one's prompt to the server's cache, and gets no answer."""
    return dataclasses.replace(
        request, messages=request.messages or [Message.user(".")], max_output_tokens=0, thinking=None, stop=(),
        tool_choice="auto", response_schema=None, durable=False, priority=Priority.INTERACTIVE,
    )  # fmt: skip
