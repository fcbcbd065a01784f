"""How much one answer may be made of: choices, content blocks, tool calls.

Values and counting only. Must not know any wire format, nor what a block holds. A server needs three bytes for a block
that takes hundreds to keep, so a cap on bytes alone does not bound an answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import ProviderError, malformed


@dataclass(slots=True, frozen=True, kw_only=True)
class AnswerLimits:
    """max_choices: choices (candidates) of one answer.
    max_blocks: content blocks of one answer, all choices together; and content parts of one event.
    max_tool_calls: tool calls of one answer, all choices together; and pieces of tool calls in one event.
    """

    max_choices: int = 1024
    max_blocks: int = 16_384
    max_tool_calls: int = 4096


ANSWER_LIMITS = AnswerLimits()
"""Far above what models answer: OpenAI's `n` ends at 128, and a call's blocks rarely reach a thousand."""


class AnswerCount:
    """Counts what one answer is made of. Every method raises `ProviderError` beyond its limit."""

    __slots__ = ("_blocks", "_limits", "_tool_calls")

    def __init__(self, limits: AnswerLimits) -> None:
        self._limits = limits
        self._blocks = 0
        self._tool_calls = 0

    def add_block(self) -> None:
        """One more content block, of any kind."""
        self._blocks += 1
        if self._blocks > self._limits.max_blocks:
            raise self._too_many("content blocks", "max_blocks")

    def add_tool_call(self) -> None:
        """One more tool call, which is a block, too."""
        self._tool_calls += 1
        if self._tool_calls > self._limits.max_tool_calls:
            raise self._too_many("tool calls", "max_tool_calls")
        self.add_block()

    def check_choices(self, count: int) -> None:
        """So many choices in the answer, or in one event."""
        if count > self._limits.max_choices:
            raise self._too_many("choices", "max_choices")

    def check_parts(self, count: int) -> None:
        """So many parts in one event, each of which may be a block."""
        if count > self._limits.max_blocks:
            raise self._too_many("content parts in one event", "max_blocks")

    def check_items(self, count: int) -> None:
        """So many output items, each of which may hold blocks."""
        if count > self._limits.max_blocks:
            raise self._too_many("output items", "max_blocks")

    def check_call_pieces(self, count: int) -> None:
        """So many pieces of tool calls in one event, each of which may be a call."""
        if count > self._limits.max_tool_calls:
            raise self._too_many("pieces of tool calls in one event", "max_tool_calls")

    def _too_many(self, what: str, option: str) -> ProviderError:
        most: int = getattr(self._limits, option)
        return malformed(f"the answer has more than {most} {what} (limits.{option})")
