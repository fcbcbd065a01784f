"""What an answer used that is billed beside its tokens: the provider's own tools, by the use, and pictures."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ..json.json_values import JSONObject, integer, items, mapping, objects, string
from ..model.messages import Block, Image, ProviderBlock
from ..model.response import Response
from ..model.tokens import Usage

TOOLS = "server_tools"
"""The member of a usage report that `charged_usage` adds: kind of use → number of uses."""

WEB, FILES, POSTS, CODE = "web_searches", "storage_searches", "social_searches", "code_executions"
PICTURES, SOURCES = "pictures", "sources"
"""Kinds of uses. PICTURES are those of the model itself, whose tokens may be in the report. SOURCES: the answer names
what a search found, and no number of searches."""

BILLED: dict[str, str] = {
    "web_search_call": WEB,
    "file_search_call": FILES,
    "x_search_call": POSTS,
    "code_interpreter_call": CODE,
    "shell_call_output": CODE,  # a shell of the caller's has its output in the next request
    "image_generation_call": "generated pictures",
    "google_search_call": WEB,
    "google_maps_call": "map searches",
    "web_search": WEB,
    "code_execution": CODE,
    "bash_code_execution": CODE,
    "text_editor_code_execution": CODE,
}
"""Type of an item of an answer, or name of a server tool (Anthropic) → kind of use."""

FREE = frozenset(
    {"mcp_call", "mcp_server_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call"}
    | {"tool_search_call", "custom_tool_call", "function_call", "url_context_call", "code_execution_call"}
)
"""Types of calls that the caller runs, or that cost their tokens alone. Any other type of call is a kind of its own."""

FOUND = ("citations", "search_results", "web_search", "executed_tools")
"""Members of a chat answer with what the server's own tools found (Perplexity, GLM, Groq)."""

GROUNDING = {"google_search": WEB, "google_maps": "map searches"}
"""Type of a search in the report of an interaction → kind of use."""

ONE_SEARCH_A_PROMPT = ("gemini-1", "gemini-2")
"""Models with which Google bills one search for an answer, and not each query (Gemini's pricing page)."""


def charged_usage(response: Response) -> Usage:
    """Return the usage of a response. Its report gets what its price depends on and the response has beside it: the
    service tier (OpenAI), and the uses of the provider's tools."""
    usage, tier = response.usage, response.provider_data.get("service_tier")
    report: JSONObject = usage.raw or {}
    added: JSONObject = {}
    if type(tier) is str and "service_tier" not in report:
        added["service_tier"] = tier
    tools = _tools(response, report)
    if tools:
        added[TOOLS] = {**tools}
    return replace(usage, raw={**report, **added}) if added else usage


def _tools(response: Response, report: JSONObject) -> Counter[str]:
    blocks = [block for choice in response.choices for block in choice.content]
    data, found = response.provider_data, Counter[str]()
    if "server_side_tool_usage_details" not in report:  # xAI's own counts
        for kind, count in map(_use, blocks):
            found[kind] += count
    found[PICTURES] = sum(isinstance(block, Image) for block in blocks)
    if "server_tool_use" in report:
        found[WEB] = 0  # the report counts those that are billed
    if any((string(caller, "type") or "").startswith("code_execution") for caller in map(_caller, blocks)):
        found[CODE] = 0  # Anthropic searches by code, which is a part of the search's price
    grounding, counted = mapping(data, "groundingMetadata"), objects(report, "grounding_tool_count")
    found[WEB] += sum(len(items(grounding, name)) for name in ("webSearchQueries", "imageSearchQueries"))
    found["map searches"] += any("maps" in chunk for chunk in objects(grounding, "groundingChunks"))
    for each in counted:
        type_ = string(each, "type") or ""
        kind = GROUNDING.get(type_, type_)
        found[kind] = max(found[kind], integer(each, "count") or 0)
    found[WEB] = max(found[WEB], integer(mapping(mapping(data, "tool_usage"), "web_search"), "num_requests") or 0)
    if (response.model or "").rpartition("/")[2].startswith(ONE_SEARCH_A_PROMPT):
        found[WEB] = min(found[WEB], 1)
    cited = any(string(item, "type") == "url_citation" for item in objects(data, "annotations"))
    found[SOURCES] = int(cited or any(map(data.get, FOUND)))
    return +found


def _use(block: Block) -> tuple[str, int]:
    """Return the kind of use that a block is, and the number of uses."""
    if not isinstance(block, ProviderBlock):
        return "", 0
    data, type_ = block.data, block.kind
    kind = string(data, "name") or "" if type_ == "server_tool_use" else type_
    if string(mapping(data, "action"), "type") not in (None, "", "search"):
        return "", 0  # a search's other actions open a page that was found
    if type_ == "google_search_call":
        return WEB, max(1, len(items(mapping(data, "arguments"), "queries")))
    if kind in BILLED and not (type_ == "file_search_call" and block.provider.startswith("google")):
        return BILLED[kind], 1
    return (kind, 1) if kind.endswith("_call") and kind not in FREE | BILLED.keys() else ("", 0)


def _caller(block: Block) -> JSONObject:
    """Return what called a search or a fetch of Anthropic's; empty for any other block."""
    data: JSONObject = block.data if isinstance(block, ProviderBlock) else {}
    return mapping(data, "caller") if data.get("name") in ("web_search", "web_fetch") else {}
