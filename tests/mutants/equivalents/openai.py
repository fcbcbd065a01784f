"""Known equivalents of `providers/openai`: see `row.py`."""

from __future__ import annotations

from tests.mutants.equivalents.row import Equivalent

ROWS: tuple[Equivalent, ...] = (
    Equivalent(
        "providers/openai/chat/converter.py",
        "ChatConverter._system_messages",
        'return [{"role": role, "content": [parts.part(Text(text), "system") for text in texts]}] if texts else []',
        '"system"',
        "'systemx'",
        "the place is for errors and warnings, and a block of text has none",
    ),
    Equivalent(
        "providers/openai/chat/block_writer.py",
        "BlockWriter._file",
        'kind = (block.media_type or "").partition(";")[0].strip().lower()',
        '""',
        "'x'",
        "only image, audio and video types are told apart; neither text is one of these",
    ),
    Equivalent(
        "providers/openai/rate_limits.py",
        "SERVER_HEADERS",
        'HeaderRow("tokens", Unit.TOKENS, "x-tokenlimit-limit", "x-tokenlimit-remaining", "", SECOND),',
        '""',
        "'x'",
        "Together reports no reset for tokens: no response has a header without a name, and none has a header `x`",
    ),
    *(
        Equivalent(
            "providers/openai/responses/converter.py",
            "ITEM_OF_PART",
            text,
            before,
            after,
            "a view of a chunk shows text, calls and the finish; reasoning is none of these, whatever its item",
        )
        for text, before, after in (
            ('"reasoning_text": ("reasoning", "content"),', '"reasoning"', "'reasoningx'"),
            ('"reasoning_text": ("reasoning", "content"),', '"content"', "'contentx'"),
            ('"summary_text": ("reasoning", "summary"),', '"reasoning"', "'reasoningx'"),
            ('"summary_text": ("reasoning", "summary"),', '"summary"', "'summaryx'"),
        )
    ),
)
