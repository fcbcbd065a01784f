"""The words of Chat Completions, as the tables of the dialect have them.

They are copied from the types of the official client and from the provider's documentation. A new word needs a line
here.
"""

from __future__ import annotations

import pytest

from tests.support.tables import table

TABLES: dict[str, object] = {
    "answer.CHUNK_MEMBERS": {"choices", "error", "id", "model", "obfuscation", "object", "p", "usage"},
    "answer.CHOICE_MEMBERS": {"delta", "error", "finish_reason", "index", "logprobs", "message", "text", "usage"},
    "answer.TEXT_PARTS": {"output_text", "text"},
    "answer.PADDING": {"index", "name", "role", "thought_signature", "token_id"},
    "answer.MESSAGE_METHODS": {
        "reasoning_content": "ChatAnswer._reasoning_content",
        "reasoning": "ChatAnswer._reasoning_plain",
        "reasoning_text": "ChatAnswer._reasoning_text",
        "reasoning_details": "ChatAnswer._reasoning_details",
        "content": "ChatAnswer._content",
        "refusal": "ChatAnswer._refusal",
        "tool_calls": "ChatAnswer._calls",
        "function_call": "ChatAnswer._legacy_call",
        "audio": "ChatAnswer._audio_delta",
        "images": "ChatAnswer._images",
        "extra_content": "ChatAnswer._extra_content",
    },
    "arguments.MODES": ("auto", "none", "required"),
    "arguments.TOOL_MEMBERS": {"function", "type"},
    "arguments.FUNCTION_MEMBERS": {"description", "name", "parameters", "strict"},
    "block_writer.AUDIO_FORMATS": {
        "audio/wav": "wav",
        "audio/x-wav": "wav",
        "audio/wave": "wav",
        "audio/vnd.wave": "wav",
        "audio/mpeg": "mp3",
        "audio/mp3": "mp3",
        "audio/ogg": "ogg",
        "audio/flac": "flac",
        "audio/x-flac": "flac",
        "audio/aac": "aac",
        "audio/mp4": "m4a",
        "audio/x-m4a": "m4a",
        "audio/webm": "webm",
        "audio/pcm": "pcm16",
    },
    "converter.SYSTEM_ROLES": ("system", "developer"),
    "converter.CHUNK_MEMBERS": {"choices", "usage"},
    "converter.CHOICE_MEMBERS": {"delta", "message"},
    "converter.CALL_MEMBERS": {"custom", "function"},
    "converter.MESSAGE_MEMBERS": {
        "audio",
        "content",
        "function_call",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "refusal",
        "tool_calls",
    },
    "converter.HELPER_EVENTS": r"((logprobs\.)?(content|refusal)|tool_calls\.function\.arguments)\.(delta|done)",
    "message_writer._ACCEPTED": {
        "at_most_40": (".{1,40}", "call_", 24),
        "nine_alphanumerics": ("[a-zA-Z0-9]{9}", "", 9),
    },
    "reasoning.TEXT_MEMBERS": ("reasoning_content", "reasoning", "reasoning_text"),
    "reasoning._PIECES": {"reasoning.text": "text", "reasoning.summary": "summary"},
    "request._THINKING": ("thinking", "model"),
    "request._LIMIT": ("max_output_tokens", "model"),
    "request._LIMITS": ("max_completion_tokens", "max_tokens"),
    "request.SOURCES": {
        "messages": ("messages", "system"),
        "tools": ("tools",),
        "tool_choice": ("tool_choice", "tools"),
        "parallel_tool_calls": ("parallel_tool_calls", "tools"),
        "reasoning_effort": ("thinking", "model"),
        "reasoning": ("thinking", "model"),
        "thinking": ("thinking", "model"),
        "enable_thinking": ("thinking", "model"),
        "thinking_budget": ("thinking", "model"),
        "chat_template_kwargs": ("thinking", "model"),
        "response_format": ("response_schema",),
        "max_tokens": ("max_output_tokens", "model"),
        "max_completion_tokens": ("max_output_tokens", "model"),
        "temperature": ("temperature", "thinking", "model"),
        "top_p": ("top_p", "thinking", "model"),
        "stop": ("stop",),
        "seed": ("seed",),
        "random_seed": ("seed",),
        "metadata": ("metadata",),
    },
    "request.UNASKED": {"logprobs"},
    "stream.PADDING_MEMBERS": ("obfuscation", "p"),
    "stream.QUIET_CHUNK": {
        "choices",
        "created",
        "id",
        "model",
        "obfuscation",
        "object",
        "p",
        "provider",
        "service_tier",
        "system_fingerprint",
        "usage",
    },
    "stream.QUIET_CHOICE": {"delta", "index", "logprobs", "text"},
    "stream.DELTA": ("choices", 0, "delta"),
    "stream.REPEATED": {"content", "reasoning", "reasoning_content", "reasoning_text"},
    "thinking.BUDGETS": {
        "ThinkingLevel.NONE": 0,
        "ThinkingLevel.LOW": 4096,
        "ThinkingLevel.MED": 12288,
        "ThinkingLevel.HIGH": 32768,
    },
    "thinking._LEVELS": ("ThinkingLevel.NONE", "ThinkingLevel.LOW", "ThinkingLevel.MED", "ThinkingLevel.HIGH"),
    "thinking._MEMBERS": {
        "reasoning_effort": "_reasoning_effort",
        "reasoning": "_reasoning",
        "thinking_type": "_thinking_type",
        "thinking_budget": "_thinking_budget",
        "enable_thinking": "_enable_thinking",
        "chat_template_kwargs": "_chat_template",
        "none": "_nothing",
    },
    "usage.ABORTED": {"abort"},
    "usage._CACHED": ("prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens"),
    "usage._CACHE_WRITES": ("cache_creation_input_tokens", "cache_write_tokens"),
}
"""Module and name of a table → its whole content."""


@pytest.mark.parametrize("place", TABLES)
def test_a_table_has_these_words_and_no_others(place: str) -> None:
    assert table(f"providers.openai.chat.{place}") == TABLES[place]
