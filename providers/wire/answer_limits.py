"""Limits on the number of choices, content blocks and tool calls in one answer.

A limit on bytes alone does not bound an answer: a server sends three bytes for a block that takes hundreds in memory.
Values and counting only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..model.provider_error import ProviderError, malformed


@dataclass(slots=True, frozen=True, kw_only=True)
class AnswerLimits:
    """The largest numbers of parts that one answer may have.

    max_choices: choices (candidates) of one answer.
    max_blocks: content blocks of one answer, all choices together; also content parts of one event.
    max_tool_calls: tool calls of one answer, all choices together; also pieces of tool calls in one event.
    """

    max_choices: int = 1024
    max_blocks: int = 16_384
    max_tool_calls: int = 4096


ANSWER_LIMITS = AnswerLimits()
"""The default limits, far above what models produce: OpenAI's `n` ends at 128, and answers rarely have 1,000 blocks."""


@dataclass(slots=True, eq=False, repr=False)
class AnswerCount:
    """Counts the parts of one answer. Every method raises `ProviderError` if its limit is exceeded."""

    limits: AnswerLimits
    _blocks: int = field(default=0, init=False)
    _tool_calls: int = field(default=0, init=False)

    def add_block(self) -> None:
        """Count one content block, of any kind. Raises `ProviderError`."""
        self._blocks += 1
        if self._blocks > self.limits.max_blocks:
            raise self._too_many("content blocks", "max_blocks")

    def add_tool_call(self) -> None:
        """Count one tool call, which is also a block. Raises `ProviderError`."""
        self._tool_calls += 1
        if self._tool_calls > self.limits.max_tool_calls:
            raise self._too_many("tool calls", "max_tool_calls")
        self.add_block()

    def check_choices(self, count: int) -> None:
        """Check the number of choices in the answer or in one event. Raises `ProviderError`."""
        if count > self.limits.max_choices:
            raise self._too_many("choices", "max_choices")

    def check_parts(self, count: int) -> None:
        """Check the number of parts in one event, each of which may be a block. Raises `ProviderError`."""
        if count > self.limits.max_blocks:
            raise self._too_many("content parts in one event", "max_blocks")

    def check_items(self, count: int) -> None:
        """Check the number of output items, each of which may contain blocks. Raises `ProviderError`."""
        if count > self.limits.max_blocks:
            raise self._too_many("output items", "max_blocks")

    def check_call_pieces(self, count: int) -> None:
        """Check the number of tool call pieces in one event, each of which may be a call. Raises `ProviderError`."""
        if count > self.limits.max_tool_calls:
            raise self._too_many("pieces of tool calls in one event", "max_tool_calls")

    def _too_many(self, what: str, option: str) -> ProviderError:
        most: int = getattr(self.limits, option)
        return malformed(f"the answer has more than {most} {what} (limits.{option})")
