"""The words and limits of the Messages API, as the tables of the dialect have them.

They are copied from the types of the official client and from the provider's documentation. A new word needs a line
here.
"""

from __future__ import annotations

import pytest

from tests.support.tables import table

TABLES: dict[str, object] = {
    "arguments.TOOL_MEMBERS": {"cache_control", "description", "input_schema", "name", "strict", "type"},
    "arguments.CHOICE_MEMBERS": {"disable_parallel_tool_use", "name", "type"},
    "arguments.OUTPUT_MEMBERS": {"effort", "format"},
    "arguments.CHOICES": {"auto": "auto", "none": "none", "any": "required"},
    "arguments.SUMMARY": {"summarized": True, "omitted": False},
    "block_writer.IMAGE_TYPES": {"image/gif", "image/jpeg", "image/png", "image/webp"},
    "block_writer.IMAGE_SPELLINGS": {"image/jpg": "image/jpeg"},
    "block_writer.TEXT_TYPES": {"application/json", "application/x-yaml", "application/xml", "application/yaml"},
    "block_writer.CITATION_TYPES": {
        "char_location",
        "content_block_location",
        "page_location",
        "search_result_location",
        "web_search_result_location",
    },
    "blocks.TOOL_CALL_MEMBERS": {"id", "input", "name", "type"},
    "blocks.OPENERS": {
        "text": "BlockReader.open_text",
        "thinking": "BlockReader.open_thinking",
        "redacted_thinking": "BlockReader.open_redacted",
        "tool_use": "BlockReader.open_call",
    },
    "converter.MORE_PARTS": {"delta": {"compaction_delta"}, "block": {"mcp_tool_listing"}},
    "converter.USER_KINDS": r"search_result|container_upload|\w+_tool_result",
    "errors.GENERIC_TYPES": {"api_error", "invalid_request_error"},
    "errors.REQUEST_ID_HEADERS": ("request-id", "x-request-id"),
    "message_writer.UNSENT_THINKING": ("thinking", "redacted_thinking"),
    "rate_limits._UNITS": {
        "requests": "Unit.REQUESTS",
        "input-tokens": "Unit.INPUT_TOKENS",
        "output-tokens": "Unit.OUTPUT_TOKENS",
    },
    "rate_limits._TIERS": {"anthropic-ratelimit": "", "anthropic-priority": "priority", "anthropic-fast": "fast"},
    "rate_limits.STATUS_REFUSAL": {
        402: "Refusal.SPENT",
        429: "Refusal.RATE",
        503: "Refusal.OVERLOAD",
        529: "Refusal.OVERLOAD",
    },
    "rate_limits.CODE_REFUSAL": {
        "linked_organization_billing_unavailable": "Refusal.SPENT",
        "enforced_spend_limit_reached": "Refusal.SPENT",
        "contract_spend_limit_reached": "Refusal.SPENT",
        "linked_organization_spend_limit_reached": "Refusal.SPENT",
        "billing_error": "Refusal.SPENT",
        "overloaded_error": "Refusal.OVERLOAD",
        "rate_limit_error": "Refusal.RATE",
    },
    "rate_limits._LIMIT_OF": r"rate limit of ([\d,]+) (requests|(?:input |output )?tokens) per minute",
    "rate_limits._NUMBER_OF": r"number of (requests|(?:input |output |request )?tokens)\b",
    "rate_limits._WORD_UNIT": {
        "requests": "Unit.REQUESTS",
        "input tokens": "Unit.INPUT_TOKENS",
        "request tokens": "Unit.INPUT_TOKENS",
        "output tokens": "Unit.OUTPUT_TOKENS",
        "tokens": "Unit.TOKENS",
    },
    "request._THINKING": ("thinking", "model", "tool_choice"),
    "request.SOURCES": {
        "system": ("system",),
        "messages": ("messages",),
        "max_tokens": ("max_output_tokens", "thinking", "model", "tool_choice"),
        "tools": ("tools",),
        "tool_choice": ("tool_choice", "tools", "parallel_tool_calls"),
        "thinking": ("thinking", "model", "tool_choice"),
        "output_config.effort": ("thinking", "model", "tool_choice"),
        "output_config.format": ("response_schema",),
        "temperature": ("temperature", "thinking", "model", "tool_choice"),
        "top_p": ("top_p", "thinking", "model", "tool_choice"),
        "stop_sequences": ("stop",),
        "metadata": ("metadata",),
    },
    "request.TOOL_CHOICES": {"auto": {"type": "auto"}, "none": {"type": "none"}, "required": {"type": "any"}},
    "response.MESSAGE_MEMBERS": {"content", "id", "model", "role", "stop_reason", "type", "usage"},
    "schema.DEFINITIONS": ("$defs", "definitions"),
    "schema.SILENT": {"$comment", "$id", "$schema"},
    "schema.ANNOTATIONS": {"default", "deprecated", "examples", "readOnly", "writeOnly"},
    "stream.WITH_BLOCKS": {"content_block_start", "message_start"},
    "stream.WITHOUT_NUMBERS": {"redacted_thinking", "text", "thinking"},
    "stream.EVENT_MEMBERS": {"delta", "type", "usage"},
    "stream.DELTA_MEMBERS": {"stop_reason", "type"},
    "stream.EVENTS": {
        "message_start": "MessagesStream.message_start",
        "content_block_start": "MessagesStream.content_block_start",
        "content_block_delta": "MessagesStream.content_block_delta",
        "content_block_stop": "MessagesStream.content_block_stop",
        "message_delta": "MessagesStream.message_delta",
        "message_stop": "MessagesStream.message_stop",
        "ping": "MessagesStream.ping",
    },
    "stream.DELTAS": {
        "text_delta": "MessagesStream.text_delta",
        "citations_delta": "MessagesStream.citations_delta",
        "thinking_delta": "MessagesStream.thinking_delta",
        "signature_delta": "MessagesStream.signature_delta",
        "input_json_delta": "MessagesStream.input_json_delta",
    },
    "stream.REPEATED": {
        "text_delta": ("delta", "text"),
        "thinking_delta": ("delta", "thinking"),
        "input_json_delta": ("delta", "partial_json"),
    },
    "thinking.MODELS": {
        "claude-3": ("budget", 1024, 32000, True, "omit", False, True, True),
        "claude-haiku-4": ("budget", 1024, 32000, True, "omit", False, True, True),
        "claude-sonnet-4": ("budget", 1024, 32000, True, "omit", False, True, True),
        "claude-sonnet-4-5": ("budget", 1024, 64000, True, "omit", False, True, True),
        "claude-sonnet-4-6": ("adaptive", 1024, 32000, True, "omit", False, True, True),
        "claude-opus-4": ("budget", 1024, 32000, True, "omit", False, True, True),
        "claude-opus-4-5": ("budget", 1024, 64000, True, "omit", False, True, True),
        "claude-opus-4-6": ("adaptive", 1024, 32000, True, "omit", False, True, True),
        "claude-opus-4-7": ("adaptive", 1024, 32000, False, "omit", False, False, True),
        "claude-opus-4-8": ("adaptive", 1024, 32000, False, "omit", False, False, True),
        "claude-mythos-preview": ("adaptive", 1024, 32000, True, None, True, True, True),
        "claude-sonnet-5": ("adaptive", 1024, 32000, False, "disabled", True, False, True),
        "claude-sonnet-5-5": ("adaptive", 1024, 32000, False, "between_tools", True, False, True),
        "claude-opus-5": ("adaptive", 1024, 32000, False, "disabled", True, False, True),
        "claude-opus-5-5": ("adaptive", 1024, 32000, False, None, True, False, True),
        "claude-haiku-5": ("adaptive", 1024, 32000, False, "disabled", True, False, True),
        "claude-fable-": ("adaptive", 1024, 32000, False, None, True, False, True),
        "claude-mythos-": ("adaptive", 1024, 32000, False, None, True, False, True),
    },
    "thinking.LEVEL_STEPS": {
        "ThinkingLevel.NONE": 0,
        "ThinkingLevel.LOW": 1,
        "ThinkingLevel.MED": 2,
        "ThinkingLevel.HIGH": 3,
    },
    "thinking.LEVEL_EFFORT": {
        "ThinkingLevel.NONE": "low",
        "ThinkingLevel.LOW": "low",
        "ThinkingLevel.MED": "medium",
        "ThinkingLevel.HIGH": "high",
    },
    "response.FINISH_REASONS": {
        "end_turn": "FinishReason.STOP",
        "stop_sequence": "FinishReason.STOP",
        "max_tokens": "FinishReason.LENGTH",
        "model_context_window_exceeded": "FinishReason.LENGTH",
        "tool_use": "FinishReason.TOOL_USE",
        "refusal": "FinishReason.CONTENT_FILTER",
        "pause_turn": "FinishReason.UNKNOWN",
    },
}
"""Module and name of a table → its whole content."""


@pytest.mark.parametrize("place", TABLES)
def test_a_table_has_these_words_and_no_others(place: str) -> None:
    assert table(f"providers.anthropic.{place}") == TABLES[place]
