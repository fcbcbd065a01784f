"""Known equivalents of `providers/openai`: see `row.py`."""

from __future__ import annotations

from tests.mutants.equivalents.row import Equivalent

ROWS: tuple[Equivalent, ...] = (
    *(
        Equivalent(
            f"providers/openai/{dialect}/request.py",
            "NAME",
            f'NAME = "openai-{dialect}"',
            f'"openai-{dialect}"',
            f"'openai-{dialect}x'",
            "the key of given members and of cached prefixes: only compared with itself, and no other dialect has it",
        )
        for dialect in ("chat", "responses")
    ),
    Equivalent(
        "providers/openai/chat/converter.py",
        "ChatConverter._system_messages",
        'return [{"role": role, "content": [parts.part(Text(text), "system") for text in texts]}] if texts else []',
        '"system"',
        "'systemx'",
        "the place is for errors and warnings, and a block of text has none",
    ),
    Equivalent(
        "providers/openai/chat/answer.py",
        "ChatAnswer._message_of",
        "return delta if type(delta) is dict else {}",
        "type(delta) is dict",
        "True",
        "a value of another type is empty here, as others raise before; nothing reads an empty value",
    ),
    *(
        Equivalent(
            "providers/openai/chat/answer.py",
            f"ChatAnswer.{method}",
            text,
            f'"{word}"',
            f"'{word}x'",
            "a key that is only compared with itself: it has to differ from the other member's, or kind's, and does",
            column,
        )
        for method, text, word, column in (
            ("_part", 'self._refuse("content", part.get("refusal"))', "content", 13),
            ("_part", 'self._show("content", [part])', "content", 11),
            ("_calls", 'if not calls or not self._is_source("calls", "tool_calls"):', "tool_calls", 45),
            (
                "_legacy_call",
                'if (name or arguments) and self._is_source("calls", "function_call"):',
                "function_call",
                52,
            ),
            ("_refusal", 'self._refuse("refusal", value)', "refusal", 13),
            ("_refuse", 'if type(value) is str and value and self._is_source("refusal", member):', "refusal", 52),
            ("_images", 'self._show("images", value)', "images", 11),
            ("_show", 'if not self._is_source("images", member):', "images", 23),
        )
    ),
    Equivalent(
        "providers/openai/chat/block_writer.py",
        "BlockWriter._file",
        'kind = (block.media_type or "").partition(";")[0].strip().lower()',
        '""',
        "'x'",
        "only image, audio and video types are distinguished; neither text is one of these",
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
