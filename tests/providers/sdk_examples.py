"""Arguments as the SDKs' documentation has them: each option, each form of content, dicts and the SDKs' objects."""

from __future__ import annotations

import anthropic
import openai
from anthropic.types import TextBlock, ThinkingBlock, ToolUseBlock
from google.genai import types
from openai.types.chat import ChatCompletionMessage
from openai.types.chat.chat_completion_message_tool_call import ChatCompletionMessageToolCall, Function
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

PNG = "iVBORw0KGgo="
PDF = "JVBERi0xLjQK"
SCHEMA: dict[str, object] = {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False,
}  # fmt: skip
USER: dict[str, object] = {"role": "user", "content": "Which river?"}

CHAT_TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "Look.", "parameters": SCHEMA, "strict": True},
}
CHAT_CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"city": "Bonn"}'}}

CHAT: dict[str, dict[str, object]] = {
    "text": {},
    "system": {"messages": [{"role": "system", "content": "Be brief."}, USER]},
    "developer parts": {"messages": [{"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}, USER]},
    "name": {"messages": [{"role": "user", "content": "Hi", "name": "ada"}]},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
    "image": {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "high"}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}]}]},
    "audio and file": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                    {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
                    {"type": "file", "file": {"file_id": "file-1"}},
                ],
            }
        ],
        "modalities": ["text", "audio"],
        "audio": {"voice": "alloy", "format": "wav"},
    },
    "tools": {"tools": [CHAT_TOOL], "parallel_tool_calls": False},
    "tool choice auto": {"tools": [CHAT_TOOL], "tool_choice": "auto"},
    "tool choice required": {"tools": [CHAT_TOOL], "tool_choice": "required"},
    "tool choice named": {"tools": [CHAT_TOOL], "tool_choice": {"type": "function", "function": {"name": "look"}}},
    "allowed tools": {"tools": [CHAT_TOOL], "tool_choice": {"type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "look"}}]}}},
    "custom tool": {"tools": [CHAT_TOOL, {"type": "custom", "custom": {"name": "sql"}}], "tool_choice": "required"},
    "older functions": {"functions": [{"name": "look", "parameters": SCHEMA}], "function_call": {"name": "look"}},
    "tool round": {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "The Rhine."}]},
        {"role": "user", "content": "Thanks."}], "tools": [CHAT_TOOL]},
    "SDK objects": {"messages": [USER, ChatCompletionMessage(role="assistant", content=None,
        tool_calls=[ChatCompletionMessageToolCall(id="call_1", type="function",
        function=Function(name="look", arguments='{"city": "Bonn"}'))]),
        {"role": "tool", "tool_call_id": "call_1", "content": "The Rhine."}]},
    "a picture in a result": {  # DeepSeek, Moonshot and vLLM take one
        "messages": [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]},
            {
                "role": "tool",
                "tool_call_id": "call_1",
                "content": [
                    {"type": "text", "text": "The Rhine."},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                ],
            },
        ],
    },
    "a call without a result": {"messages": [USER, {"role": "assistant", "tool_calls": [CHAT_CALL]}, USER]},
    "json object": {"response_format": {"type": "json_object"}},
    "json schema": {"response_format": {"type": "json_schema",
        "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}},
    "loose json schema": {"response_format": {"type": "json_schema",
        "json_schema": {"name": "any", "schema": {"type": "object", "not": {}}, "strict": False}}},
    "sampling": {"temperature": 0.2, "top_p": 0.9, "stop": "END", "seed": 7, "model": "gpt-4o"},
    "sampling for a model that reasons": {"temperature": 1.0, "top_p": 0.9, "model": "gpt-5"},
    "empty members": {"metadata": {}, "tools": [], "stop": []},
    "null members": {"metadata": None, "stop": None, "seed": None, "max_tokens": None, "max_completion_tokens": None,
        "temperature": None, "top_p": None, "parallel_tool_calls": None, "reasoning_effort": None},
    "sampling of a model that takes none": {"temperature": 0.2, "stop": ["A", "B"]},
    "older limit": {"max_tokens": 9},
    "limit": {"max_completion_tokens": 9, "reasoning_effort": "minimal", "verbosity": "low"},
    "both limits": {"max_completion_tokens": 9, "max_tokens": 8},
    "metadata": {"metadata": {"a": "b"}, "store": True, "user": "ada", "service_tier": "flex"},
    "several answers": {"n": 2, "logprobs": True, "top_logprobs": 3, "logit_bias": {"1": 2}},
    "nulls": {"stop": None, "seed": None, "temperature": None},
    "not given": {"stop": openai.NOT_GIVEN, "seed": openai.omit},
    "extra body": {"extra_body": {"top_k": 4, "temperature": 0.4}, "temperature": 0.1},
    "search": {"web_search_options": {"search_context_size": "low"}},
    "prediction": {"prediction": {"type": "content", "content": "x"}},
}  # fmt: skip

RESPONSES_TOOL = {"type": "function", "name": "look", "description": "Look.", "parameters": SCHEMA, "strict": True}

RESPONSES: dict[str, dict[str, object]] = {
    "text": {},
    "instructions": {"instructions": "Be brief."},
    "messages": {"input": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]},
    "items": {
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What is it?"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "low"},
                    {"type": "input_image", "file_id": "file-1", "detail": "auto"},
                    {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
                    {"type": "input_file", "file_url": "https://example.org/a.pdf"},
                ],
            }
        ]
    },
    "tool round": {"input": [USER, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "The Rhine."}], "tools": [RESPONSES_TOOL],
        "include": ["reasoning.encrypted_content"], "store": False},
    "SDK objects": {"input": [USER, ResponseOutputMessage(id="msg_1", role="assistant", status="completed",
        type="message", content=[ResponseOutputText(type="output_text", text="The Rhine.", annotations=[])]),
        {"role": "user", "content": "Sure?"}]},
    "reasoning": {"reasoning": {"effort": "high", "summary": "detailed"}},
    "reasoning effort": {"reasoning": {"effort": "low"}},
    "format": {"text": {"verbosity": "low", "format": {"type": "json_schema", "name": "place", "schema": SCHEMA,
        "strict": True}}},
    "loose format": {"text": {"format": {"type": "json_schema", "name": "any", "schema": {"type": "object"}}}},
    "json object": {"text": {"format": {"type": "json_object"}}},
    "tools": {"tools": [RESPONSES_TOOL], "tool_choice": {"type": "function", "name": "look"}},
    "built-in tools": {"tools": [{"type": "web_search"}, RESPONSES_TOOL], "tool_choice": "required"},
    "parallel calls": {"tools": [RESPONSES_TOOL], "parallel_tool_calls": False, "tool_choice": "auto"},
    "kept conversation": {"previous_response_id": "resp_1", "store": True},
    "sampling": {"temperature": 0.3, "top_p": 0.5, "max_output_tokens": 5, "model": "gpt-4.1"},
    "sampling for a model that reasons": {"temperature": 1.0, "top_p": 0.9, "model": "gpt-5"},
    "empty members": {"metadata": {}, "tools": [], "instructions": "", "reasoning": {}},
    "null members": {"metadata": None, "instructions": None, "max_output_tokens": None, "temperature": None,
        "top_p": None, "parallel_tool_calls": None, "reasoning": None},
    "others": {"metadata": {"a": "b"}, "truncation": "auto", "service_tier": "flex", "user": "ada",
        "background": False},
}  # fmt: skip

CLAUDE_TOOL: dict[str, object] = {"name": "look", "description": "Look.", "input_schema": SCHEMA}

CLAUDE: dict[str, dict[str, object]] = {
    "text": {},
    "system": {"system": "Be brief."},
    "cached system": {"system": [{"type": "text", "text": "Be brief.",
        "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
    "no system": {"system": []},
    "blocks": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is it?", "cache_control": {"type": "ephemeral"}},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                    {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
                    {
                        "type": "document",
                        "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
                        "title": "A",
                        "citations": {"enabled": True},
                    },
                ],
            }
        ]
    },
    "tool round": {
        "messages": [
            USER,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "abc"},
                    {"type": "text", "text": "I look. "},
                    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"city": "Bonn"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "The Rhine.", "is_error": False},
                    {"type": "text", "text": "So?"},
                ],
            },
        ],
        "tools": [{**CLAUDE_TOOL, "cache_control": {"type": "ephemeral"}}],
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "max_tokens": 4096,
    },
    "SDK objects": {
        "messages": [
            USER,
            {
                "role": "assistant",
                "content": [
                    ThinkingBlock(type="thinking", thinking="Hm.", signature="abc"),
                    TextBlock(type="text", text="I look.", citations=None),
                    ToolUseBlock(type="tool_use", id="toolu_1", name="look", input={"city": "Bonn"}),
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "The Rhine."}]},
        ]
    },
    "prefill": {"messages": [USER, {"role": "assistant", "content": "The "}]},
    "choice auto": {"tools": [CLAUDE_TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    "choice any": {"tools": [CLAUDE_TOOL], "tool_choice": {"type": "any"}},
    "choice tool": {"tools": [CLAUDE_TOOL], "tool_choice": {"type": "tool", "name": "look"}},
    "choice none": {"tools": [CLAUDE_TOOL], "tool_choice": {"type": "none"}},
    "server tool": {"tools": [{"type": "web_search_20250305", "name": "web_search"}, CLAUDE_TOOL]},
    "adaptive": {"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "max"}},
    "disabled": {"thinking": {"type": "disabled"}},
    "format": {"output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}},
    "other output": {"output_config": {"effort": "low", "task_budget": {"type": "tokens", "total": 9}}},
    "empty members": {"metadata": {}, "tools": [], "stop_sequences": [], "system": ""},
    "stops": {"stop_sequences": ["A"], "metadata": {"user_id": "ada"}, "service_tier": "auto"},
    "null metadata": {"metadata": {"user_id": None}},
    "not given": {"system": anthropic.omit, "stop_sequences": anthropic.NOT_GIVEN},
    "extra body": {"extra_body": {"temperature": 0.5, "top_k": 3}},
}  # fmt: skip

GEMINI_TOOL = {"function_declarations": [{"name": "look", "description": "Look.", "parameters_json_schema": SCHEMA}]}

GEMINI: dict[str, dict[str, object]] = {
    "text": {},
    "texts": {"contents": ["Which", "river?"]},
    "content": {"contents": types.Content(role="user", parts=[types.Part(text="Hi")])},
    "parts": {"contents": [types.Part(text="What is it?"),
        types.Part.from_bytes(data=b"\xff\xfe\xfd", mime_type="image/png"),
        types.Part.from_uri(file_uri="https://example.org/a.pdf", mime_type="application/pdf")]},
    "dicts": {"contents": [{"role": "user", "parts": [{"text": "Hi"},
        {"inline_data": {"mime_type": "image/png", "data": b"\xff\xfe"}}]},
        {"role": "model", "parts": [{"text": "Yes?"}]}, {"role": "user", "parts": [{"text": "Again"}]}]},
    "tool round": {"contents": [{"role": "user", "parts": [{"text": "Which?"}]},
        {"role": "model", "parts": [{"function_call": {"name": "look", "args": {"the_city": "Bonn"}}}]},
        {"role": "user", "parts": [{"function_response": {"name": "look", "response": {"the_river": "Rhine"}}}]}],
        "config": {"tools": [GEMINI_TOOL]}},
    "config object": {"config": types.GenerateContentConfig(system_instruction="Be brief.", temperature=0.1, top_p=0.5,
        top_k=3, max_output_tokens=9, stop_sequences=["A"], seed=3, candidate_count=1,
        thinking_config=types.ThinkingConfig(thinking_budget=256, include_thoughts=True),
        safety_settings=[types.SafetySetting(category="HARM_CATEGORY_HARASSMENT", threshold="BLOCK_NONE")])},
    "config dict": {"config": {"system_instruction": ["Be", "brief."], "presence_penalty": 0.5,
        "response_modalities": ["TEXT"], "automatic_function_calling": {"disable": True}}},
    "system as a part": {"config": {"system_instruction": {"text": "Be brief."}}},
    "system as parts": {"config": {"system_instruction": [types.Part(text="Be"), {"text": "brief."}]}},
    "system as a content": {"config": {"system_instruction": {"parts": [{"text": "Be brief."}]}}},
    "system as an object": {"config": types.GenerateContentConfig(system_instruction=types.Content(role="user",
        parts=[types.Part(text="Be brief.")]))},
    "names on the wire": {"config": {"maxOutputTokens": 9, "systemInstruction": "Be brief."}},
    "json schema": {"config": {"response_mime_type": "application/json", "response_json_schema": SCHEMA}},
    "older schema": {"config": {"response_mime_type": "application/json",
        "response_schema": {"type": "OBJECT", "properties": {"the_city": {"type": "STRING"}}}}},
    "older parameters": {
        "config": types.GenerateContentConfig(
            tools=[
                types.Tool(
                    function_declarations=[
                        types.FunctionDeclaration(
                            name="look",
                            parameters=types.Schema(
                                type=types.Type.OBJECT,
                                properties={"the_city": types.Schema(type=types.Type.STRING, nullable=True)},
                            ),
                        )
                    ]
                )
            ]
        )
    },
    "choice": {"config": {"tools": [GEMINI_TOOL],
        "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["look"]}}}},
    "validated": {"config": {"tools": [GEMINI_TOOL],
        "tool_config": {"function_calling_config": {"mode": "VALIDATED"}}}},
    "search": {"config": {"tools": [{"google_search": {}}]}},
    "functions and search": {"config": {"tools": [GEMINI_TOOL, {"google_search": {}}]}},
    "search and functions": {"config": {"tools": [{"google_search": {}}, GEMINI_TOOL]}},
    "level": {"config": {"thinking_config": {"thinking_level": "LOW"}}, "model": "gemini-3-pro-preview"},
    "cached": {"config": {"cached_content": "cachedContents/a"}},
}  # fmt: skip

FUNCTION: dict[str, object] = {"type": "function", "name": "look", "description": "Look.", "parameters": SCHEMA}
ASKED: dict[str, object] = {"type": "user_input", "content": [{"type": "text", "text": "Which river?"}]}
CALLED: dict[str, object] = {"type": "function_call", "id": "call_1", "name": "look", "arguments": {"city": "Bonn"}}
LOOKED: dict[str, object] = {"type": "function_result", "call_id": "call_1", "name": "look", "result": "The Rhine."}
THOUGHT_STEP: dict[str, object] = {"type": "thought", "signature": "c2ln",
    "summary": [{"type": "text", "text": "Hm."}]}  # fmt: skip
PIXEL: dict[str, object] = {"type": "image", "data": "AQ==", "mime_type": "image/png"}

INTERACTIONS: dict[str, dict[str, object]] = {
    "a text": {},
    "one content": {"input": {"type": "text", "text": "Which river?"}},
    "contents": {"input": [{"type": "text", "text": "What is this?"}, PIXEL,
        {"type": "document", "uri": "https://host/a.pdf", "mime_type": "application/pdf"}]},
    "an image's resolution": {"input": [{**PIXEL, "resolution": "high"}]},
    "steps": {"input": [ASKED, THOUGHT_STEP, CALLED, LOOKED], "tools": [FUNCTION]},
    "a result that is an object": {"input": [ASKED, CALLED, {**LOOKED, "result": {"river": "Rhine"}}]},
    "a result with an image": {"input": [ASKED, CALLED, {**LOOKED, "result": [PIXEL], "is_error": True}]},
    "a result inside the user's input": {"previous_interaction_id": "v1_1",
        "input": [{"type": "user_input", "content": [{"type": "text", "text": "x"}, PIXEL]}, CALLED, LOOKED]},
    "a built-in tool's steps": {"input": [ASKED, {"type": "google_search_call", "id": "s", "arguments":
        {"queries": ["river"]}}, {"type": "google_search_result", "call_id": "s", "result": []},
        {"type": "model_output", "content": [{"type": "text", "text": "The Rhine."}]}, ASKED]},
    "a function": {"tools": [FUNCTION]},
    "functions and others": {"tools": [{"type": "google_search"}, FUNCTION]},
    "a choice": {"tools": [FUNCTION], "generation_config": {"tool_choice": "any"}},
    "a named choice": {"tools": [FUNCTION],
        "generation_config": {"tool_choice": {"allowed_tools": {"mode": "any", "tools": ["look"]}}}},
    "a validated choice": {"tools": [FUNCTION], "generation_config": {"tool_choice": "validated"}},
    "a system prompt": {"system_instruction": "Be brief."},
    "options": {"generation_config": {"temperature": 0.5, "top_p": 0.5, "max_output_tokens": 9, "seed": 3,
        "stop_sequences": ["A"], "thinking_level": "low", "thinking_summaries": "auto"}},
    "no summaries": {"generation_config": {"thinking_summaries": "none", "speech_config": [{"voice": "Kore"}]}},
    "a schema": {"response_format": {"type": "text", "mime_type": "application/json", "schema": SCHEMA}},
    "an image as answer": {"response_format": {"type": "image", "aspect_ratio": "1:1"}},
    "kept": {"store": True, "background": True, "service_tier": "flex", "labels": {"team": "a"}},
    "not kept": {"store": False},
    "continued without an input": {"input": None, "previous_interaction_id": "v1_1", "continuation_token": "t"},
}  # fmt: skip

BASES: dict[str, dict[str, object]] = {
    "openai": {"model": "gpt-5", "messages": [USER]},
    "openai_responses": {"model": "gpt-5", "input": "Which river?"},
    "anthropic": {"model": "claude-opus-4-6", "max_tokens": 100, "messages": [USER]},
    "gemini": {"model": "gemini-2.5-flash", "contents": "Which river?"},
    "interactions": {"model": "gemini-3-flash-preview", "input": "Which river?"},
}
