"""The table of profiles: one row for every known provider.

A provider without a row uses its dialect's generic row, or a `Profile` that the caller makes.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from urllib.parse import urlsplit

from ..json.json_types import Parsed
from ..wire.quirks import (
    LoadReport,
    Quirks,
    SessionField,
)
from .profile import Profile

_PLAIN, _STRICT = Quirks(), Quirks(strict_end=True)
_CACHE_KEY = SessionField(member="prompt_cache_key")
"""OpenAI (developers.openai.com/api/docs/guides/prompt-caching), Azure's `/openai/v1`
(learn.microsoft.com/azure/foundry/openai/how-to/prompt-caching), Mistral
(docs.mistral.ai/inference/conversations/advanced/prompt-caching), xAI's Responses (see `_XAI_SESSION`).
"""
_XAI_SESSION = SessionField(header="x-grok-conv-id")
"""docs.x.ai/developers/advanced-api-usage/prompt-caching/maximizing-cache-hits: Chat Completions ignores the member."""
_AFFINITY = SessionField(header="x-session-affinity")
"""Fireworks (docs.fireworks.ai/guides/prompt-caching) and Cloudflare
(developers.cloudflare.com/workers-ai/features/prompt-caching).
"""
_OPENROUTER_SESSION = SessionField(member="session_id")
"""openrouter.ai/docs/guides/best-practices/prompt-caching, which has the header `x-session-id` as well."""
_STRICT_OPENAI = Quirks(strict_end=True, tool_name="word_64", session=_CACHE_KEY)
_COPILOT_HEADERS = (("copilot-integration-id", "vscode-chat"), ("editor-version", "vscode/1.100.0"))
_OPENAI_PREFIXES = ("gpt-", "o1", "o3", "o4", "chatgpt-")


_compatible = partial(Quirks, max_tokens_member="max_tokens", reasoning_return="as_received", metadata=False)
"""Makes the quirks that most compatible servers share: the older member for the token limit, and reasoning in a member
of its own, which goes back with tool calls in the member that it came in.
"""


def _chat(name: str, base_url: str, *key_variables: str, **members: Parsed) -> Profile:
    """Return a row for the OpenAI Chat dialect. members: those of `Profile`; `quirks` are `_compatible` by default."""
    members.setdefault("quirks", _compatible())
    return Profile(name=name, dialect="openai-chat", base_url=base_url, key_variables=key_variables, **members)


_AZURE_HOSTS = ("*.openai.azure.com", "*.cognitiveservices.azure.com", "*.services.ai.azure.com")
_AZURE = Quirks(
    auth_header="api-key",
    tool_name="word_64",
    tool_call_id="at_most_40",
    reasoning_refuses_sampling=True,
    cache_mark="prompt_cache_breakpoint",
    session=_CACHE_KEY,
    token_ids="none",
)

OPENAI_ROWS: tuple[Profile, ...] = (
    _chat(
        "openai-chat",
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        url_variables=("OPENAI_BASE_URL",),
        aliases=("openai",),
        prefixes=_OPENAI_PREFIXES,
        addresses=("*.api.openai.com",),
        # OpenAI refuses ids of more than 40 characters, which other providers' histories may hold.
        quirks=replace(
            _STRICT_OPENAI,
            tool_call_id="at_most_40",
            reasoning_refuses_sampling=True,
            cache_mark="prompt_cache_breakpoint",
            token_ids="none",
        ),
    ),
    Profile(
        name="openai-compatible",
        aliases=("openai",),
        dialect="openai-chat",
        base_url="",
        key_variables=("OPENAI_API_KEY",),
        url_variables=("OPENAI_BASE_URL",),
        prefixes=_OPENAI_PREFIXES,
        needs_key=False,
        generic=True,
        quirks=Quirks(
            max_tokens_member="by_model", reasoning_return="as_received", cache_mark="prompt_cache_breakpoint"
        ),
    ),
    # A deployment's own URL needs an API version; the newer `/openai/v1` does not. The narrower address comes first.
    _chat(
        "azure-deployment",
        "",
        "AZURE_OPENAI_API_KEY",
        addresses=tuple(f"{host}/openai/deployments/*" for host in _AZURE_HOSTS),
        token_variables=("AZURE_OPENAI_AD_TOKEN",),
        quirks=replace(_AZURE, query="api-version=2024-10-21", session=None),
    ),
    _chat(
        "azure-models",
        "",
        "AZURE_AI_API_KEY",
        "AZURE_OPENAI_API_KEY",
        addresses=("*.services.ai.azure.com/models*", "*.models.ai.azure.com"),
        quirks=Quirks(auth_header="api-key", query="api-version=2024-05-01-preview", max_tokens_member="by_model"),
    ),
    _chat(
        "azure",
        "",
        "AZURE_OPENAI_API_KEY",
        aliases=("azure-openai",),
        addresses=_AZURE_HOSTS,
        token_variables=("AZURE_OPENAI_AD_TOKEN",),
        url_variables=("AZURE_OPENAI_ENDPOINT/openai/v1",),
        quirks=_AZURE,
    ),
)
"""OpenAI, and clouds that serve its models. `openai-compatible` is for unknown servers."""

_CLAUDE = Quirks(strict_end=True, tool_name="word_128", signed_thinking_only=True)
"""Claude, at Anthropic and on the clouds that serve it."""

_BEDROCK_HOSTS = ("bedrock-mantle.*.api.aws", "bedrock-runtime.*.amazonaws.com")

_GROQ = _compatible(reasoning_return="reasoning")
_MISTRAL = Quirks(
    max_tokens_member="max_tokens",
    # Mistral's reasoning models accept these two words only.
    efforts=("none", "high", "high", "high"),
    tool_call_id="nine_alphanumerics",
    required_tool_choice="any",
    seed_member="random_seed",
    stream_usage=False,
    reasoning_return="thinking_parts",
    session=_CACHE_KEY,
)

HOSTED_ROWS: tuple[Profile, ...] = (
    _chat(
        "deepseek",
        "https://api.deepseek.com/v1",
        "DEEPSEEK_API_KEY",
        prefixes=("deepseek-",),
        quirks=_compatible(thinking="thinking_type", reasoning_return="reasoning_content",
                           reasoning_required=True, seed_member="", structured_output="json_object",
                           parallel_tool_calls=False),
    ),
    _chat("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", url_variables=("GROQ_BASE_URL/openai/v1",),
          quirks=_GROQ),
    _chat(
        "mistral",
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        prefixes=("mistral-", "ministral-", "magistral-", "codestral-", "devstral-", "pixtral-", "voxtral-"),
        addresses=("codestral.mistral.ai",),
        quirks=_MISTRAL,
    ),
    _chat(
        "xai",
        "https://api.x.ai/v1",
        "XAI_API_KEY",
        aliases=("grok",),
        prefixes=("grok-",),
        quirks=_compatible(
            efforts=("low", "low", "high", "high"), reasoning_return="reasoning_content", session=_XAI_SESSION
        ),
    ),
    _chat(
        "openrouter",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        quirks=Quirks(
            max_tokens_member="max_tokens",
            thinking="reasoning",
            reasoning_return="reasoning_details",
            cache_mark="cache_control",
            file_urls=True,
            video_parts=True,
            session=_OPENROUTER_SESSION,
        ),
    ),
    _chat(
        "together",
        "https://api.together.xyz/v1",
        "TOGETHER_API_KEY",
        url_variables=("TOGETHER_BASE_URL/v1",),
        addresses=("api.together.ai",),
        quirks=_compatible(video_parts=True),
    ),
    _chat("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY",
          url_variables=("FIREWORKS_BASE_URL/v1",), quirks=_compatible(session=_AFFINITY)),
    _chat("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY",
          url_variables=("CEREBRAS_BASE_URL/v1",), quirks=_compatible(reasoning_return="reasoning")),
    _chat(
        "perplexity",
        "https://api.perplexity.ai",
        "PERPLEXITY_API_KEY",
        "PPLX_API_KEY",
        prefixes=("sonar",),
        quirks=_compatible(seed_member="", parallel_tool_calls=False, reasoning_return="none"),
    ),
    _chat(
        "moonshot",
        "https://api.moonshot.ai/v1",
        "MOONSHOT_API_KEY",
        aliases=("moonshotai", "kimi"),
        prefixes=("kimi-", "moonshot-"),
        addresses=("api.moonshot.cn",),
        quirks=_compatible(thinking="thinking_type", reasoning_return="reasoning_content",
                           reasoning_required=True, seed_member="",
                           parallel_tool_calls=False, video_parts=True),
    ),
    _chat(
        "zai",
        "https://api.z.ai/api/paas/v4",
        "ZAI_API_KEY",
        "ZHIPUAI_API_KEY",
        aliases=("z.ai", "zhipu"),
        prefixes=("glm-",),
        addresses=("open.bigmodel.cn",),
        quirks=_compatible(thinking="thinking_type", reasoning_return="reasoning_content",
                           seed_member="", structured_output="json_object",
                           parallel_tool_calls=False, video_parts=True),
    ),
    _chat(
        "alibaba",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
        "ALIBABA_API_KEY",
        aliases=("dashscope", "qwen"),
        prefixes=("qwen", "qwq-", "qvq-"),
        addresses=("dashscope*.aliyuncs.com",),
        quirks=_compatible(thinking="enable_thinking", reasoning_return="reasoning_content",
                           cache_mark="cache_control", video_parts=True),
    ),
    _chat("huggingface", "https://router.huggingface.co/v1", "HF_TOKEN", "HUGGINGFACE_API_KEY", aliases=("hf",)),
    _chat("sambanova", "https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY", quirks=_compatible(seed_member="")),
    _chat("nvidia", "https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY",
          quirks=_compatible(thinking="chat_template_kwargs", reasoning_return="reasoning_content")),
    _chat(
        "google-openai",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        url_variables=("GOOGLE_GEMINI_BASE_URL/v1beta/openai",),
        quirks=_compatible(seed_member="", parallel_tool_calls=False, reasoning_return="none"),
    ),
    _chat(
        "anthropic-openai",
        "https://api.anthropic.com/v1",
        "ANTHROPIC_API_KEY",
        url_variables=("ANTHROPIC_BASE_URL/v1",),
        quirks=_compatible(thinking="thinking_budget", reasoning_return="none", seed_member=""),
    ),
    _chat("github-models", "https://models.github.ai/inference", "GITHUB_TOKEN",
          quirks=Quirks(max_tokens_member="by_model"), addresses=("models.inference.ai.azure.com",)),
    _chat(
        "github-copilot",
        "https://api.githubcopilot.com",
        "GITHUB_COPILOT_TOKEN",
        "COPILOT_TOKEN",
        addresses=("api.*.githubcopilot.com",),
        quirks=Quirks(max_tokens_member="by_model", reasoning_return="as_received", metadata=False,
                      headers=_COPILOT_HEADERS),
    ),
    _chat("deepinfra", "https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY", "DEEPINFRA_TOKEN"),
    _chat("nebius", "https://api.tokenfactory.nebius.com/v1", "NEBIUS_API_KEY",
          addresses=("api.studio.nebius.com", "api.studio.nebius.ai")),
    _chat("novita", "https://api.novita.ai/openai/v1", "NOVITA_API_KEY"),
    _chat("hyperbolic", "https://api.hyperbolic.xyz/v1", "HYPERBOLIC_API_KEY"),
    _chat("avian", "https://api.avian.io/v1", "AVIAN_API_KEY"),
    _chat("minimax", "https://api.minimax.io/v1", "MINIMAX_API_KEY", prefixes=("MiniMax-",)),
    _chat("cohere", "https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY", "CO_API_KEY", prefixes=("command-",),
          quirks=_compatible(parallel_tool_calls=False, reasoning_return="none")),
    _chat("siliconflow", "https://api.siliconflow.com/v1", "SILICONFLOW_API_KEY", addresses=("api.siliconflow.cn",),
          quirks=_compatible(thinking="enable_thinking")),
    _chat("volcengine", "https://ark.cn-beijing.volces.com/api/v3", "ARK_API_KEY", aliases=("ark",),
          quirks=_compatible(thinking="thinking_type", reasoning_return="reasoning_content")),
    _chat("baseten", "https://inference.baseten.co/v1", "BASETEN_API_KEY"),
    _chat("scaleway", "https://api.scaleway.ai/v1", "SCW_SECRET_KEY"),
)  # fmt: skip
"""Providers of models, each at its own address."""

GATEWAY_ROWS: tuple[Profile, ...] = (
    _chat("databricks", "", "DATABRICKS_TOKEN",
          quirks=_compatible(thinking="thinking_budget", reasoning_return="none", seed_member=""),
          addresses=("*.cloud.databricks.com", "*.azuredatabricks.net", "*.gcp.databricks.com")),
    _chat("snowflake", "", "SNOWFLAKE_TOKEN", "SNOWFLAKE_PAT", addresses=("*.snowflakecomputing.com",),
          quirks=Quirks(reasoning_return="reasoning_details", thinking="reasoning", seed_member="", metadata=False)),
    _chat("cloudflare", "", "CLOUDFLARE_API_TOKEN", "CLOUDFLARE_API_KEY", aliases=("workers-ai",),
          addresses=("api.cloudflare.com/client/v4/accounts/*", "gateway.ai.cloudflare.com"),
          quirks=_compatible(session=_AFFINITY)),
    _chat("vercel-gateway", "https://ai-gateway.vercel.sh/v1", "AI_GATEWAY_API_KEY", aliases=("vercel",),
          quirks=_compatible(thinking="reasoning", reasoning_return="reasoning_details", cache_mark="cache_control")),
    _chat("heroku", "https://us.inference.heroku.com/v1", "HEROKU_INFERENCE_KEY", "INFERENCE_KEY",
          addresses=("*.inference.heroku.com",),
          quirks=_compatible(thinking="none", reasoning_return="none", seed_member="")),
    _chat("bedrock-mantle", "", "AWS_BEARER_TOKEN_BEDROCK", url_variables=("AWS_BEDROCK_BASE_URL",),
          aliases=("bedrock",), addresses=_BEDROCK_HOSTS),
    Profile(
        name="bedrock-anthropic", aliases=("bedrock",), dialect="anthropic", base_url="",
        key_variables=("AWS_BEARER_TOKEN_BEDROCK",), url_variables=("ANTHROPIC_BEDROCK_MANTLE_BASE_URL",),
        addresses=_BEDROCK_HOSTS, quirks=replace(_CLAUDE, auth_header="authorization"),
    ),
    Profile(
        name="vertex-anthropic", aliases=("vertex",), dialect="anthropic", base_url="", prefixes=("claude-",),
        key_variables=("CLOUDSDK_AUTH_ACCESS_TOKEN",),
        addresses=("*aiplatform.googleapis.com", "aiplatform.*.rep.googleapis.com"),
        quirks=replace(_CLAUDE, auth_header="authorization", raw_predict=True),
    ),
    Profile(
        name="foundry", aliases=("azure",), dialect="anthropic", base_url="", prefixes=("claude-",),
        key_variables=("ANTHROPIC_FOUNDRY_API_KEY",), url_variables=("ANTHROPIC_FOUNDRY_BASE_URL",),
        addresses=("*.services.ai.azure.com",), quirks=_CLAUDE,
    ),
    _chat("portkey", "https://api.portkey.ai/v1", "PORTKEY_API_KEY",
          quirks=Quirks(auth_header="x-portkey-api-key", max_tokens_member="by_model", reasoning_return="as_received")),
)  # fmt: skip
"""Gateways to many providers, and clouds where every customer has an address."""


def _responses(of: str, name: str = "", aliases: tuple[str, ...] = (), quirks: Quirks = _PLAIN) -> Profile:
    """Return the row for the Responses dialect of a provider that has one for Chat Completions, with its name `of`."""
    row = next(row for row in (*OPENAI_ROWS, *HOSTED_ROWS, *GATEWAY_ROWS) if row.name == of)
    aliases = aliases or (of, *row.aliases)
    return replace(row, name=name or f"{of}-responses", dialect="openai-responses", aliases=aliases, quirks=quirks)


RESPONSES_ROWS: tuple[Profile, ...] = (
    _responses("openai-chat", "openai-responses", ("openai",), _STRICT_OPENAI),
    # A row of its own, so that state that OpenAI encrypted is not sent to another server. The end is strict as well:
    # nothing else shows that a Responses stream is complete.
    _responses("openai-compatible", "responses-compatible", ("openai",), _STRICT),
    _responses("azure", aliases=("azure",), quirks=replace(_STRICT_OPENAI, auth_header="api-key")),
)
"""OpenAI's Responses: `responses-compatible` is for unknown servers."""

OTHER_RESPONSES_ROWS: tuple[Profile, ...] = (
    _responses("bedrock-mantle", "bedrock-responses", ("bedrock",), _STRICT),
    _responses("openrouter", quirks=Quirks(session=SessionField(header="x-session-id"))),
    _responses("vercel-gateway", "vercel-responses", ("vercel",)),
    _responses("xai", quirks=Quirks(session=_CACHE_KEY)),
    _responses("groq"),
    _responses("github-copilot", quirks=Quirks(headers=_COPILOT_HEADERS)),
    _responses("huggingface"),
)
"""Providers that speak Responses as well as Chat Completions."""


def _own_router(header: str) -> SessionField:
    """Return the header of a router that users run themselves, which gets the session as it is: its logs are theirs."""
    return SessionField(header=header, hashed=False)


def _metrics(running: str, waiting: str, header: str = "") -> LoadReport:
    """Return two figures of Prometheus' text."""
    return LoadReport(path="/metrics", running=running, waiting=waiting, header=header)


_VLLM_LOAD = (_metrics("vllm:num_requests_running", "vllm:num_requests_waiting", "endpoint-load-metrics"),)
_SGLANG_LOAD = (
    LoadReport(path="/v1/loads?include=core", running="num_running_reqs", waiting="num_waiting_reqs"),
    _metrics("sglang:num_running_reqs", "sglang:num_queue_reqs"),
)
_LLAMA_LOAD = (
    _metrics("llamacpp:requests_processing", "llamacpp:requests_deferred"),
    LoadReport(path="/props", slots="total_slots"),
)
_TGI_LOAD = (_metrics("tgi_batch_current_size", "tgi_queue_size"),)
_LMDEPLOY_LOAD = (_metrics("lmdeploy:num_requests_running", "lmdeploy:num_requests_waiting"),)
_DYNAMO_LOAD = (_metrics("dynamo_frontend_inflight_requests", "dynamo_frontend_router_queue_pending_requests"),)
"""What the servers' metrics are called: vLLM (docs.vllm.ai, production metrics; the header of its unstreamed answers,
if the request asks for it), SGLang (its `v1_loads.py`; the metrics need `--enable-metrics`), llama.cpp (its server's
README; the metrics need `--metrics`, else the number of slots is known), TGI (huggingface.co/docs, metrics), LMDeploy
(its `metrics/loggers.py`; needs `--enable-metrics`), Dynamo (docs.nvidia.com/dynamo, metrics catalog; the queue exists
with `--router-queue-threshold`; its calls without a first token are no queue).
"""

LOCAL_ROWS: tuple[Profile, ...] = (
    _chat("ollama", "http://localhost:11434/v1", "OLLAMA_API_KEY", needs_key=False, url_variables=("OLLAMA_HOST/v1",),
          addresses=("127.0.0.1:11434", "[[]::1]:11434"),
          quirks=_compatible(parallel_tool_calls=False, reasoning_return="reasoning")),
    _chat("ollama-cloud", "https://ollama.com/v1", "OLLAMA_API_KEY",
          quirks=_compatible(parallel_tool_calls=False, reasoning_return="reasoning")),
    _chat("lmstudio", "http://localhost:1234/v1", "LMSTUDIO_API_KEY", needs_key=False, aliases=("lm-studio",),
          addresses=("127.0.0.1:1234",)),
    _chat("vllm", "http://localhost:8000/v1", "VLLM_API_KEY", needs_key=False,
          quirks=_compatible(thinking="chat_template_kwargs", video_parts=True, load=_VLLM_LOAD,
                              session=_own_router("x-session-id"))),
    _chat("sglang", "http://localhost:30000/v1", "SGLANG_API_KEY", needs_key=False,
          quirks=_compatible(thinking="chat_template_kwargs", session=_own_router("x-smg-routing-key"),
                              token_ids="sglang", load=_SGLANG_LOAD)),
    _chat("dynamo", "http://localhost:8000/v1", "DYNAMO_API_KEY", needs_key=False,
          quirks=_compatible(thinking="chat_template_kwargs", session=_own_router("x-dynamo-session-id"),
                              load=_DYNAMO_LOAD)),
    _chat("llama-cpp", "http://localhost:8080/v1", "LLAMA_API_KEY", needs_key=False, aliases=("llama.cpp",),
          quirks=_compatible(thinking="chat_template_kwargs", reasoning_return="reasoning_content",
                              token_ids="logprobs", load=_LLAMA_LOAD)),
    _chat("tgi", "http://localhost:3000/v1", "TGI_API_KEY", needs_key=False,
          quirks=_compatible(thinking="none", load=_TGI_LOAD, token_ids="none")),
    _chat("lmdeploy", "http://localhost:23333/v1", "LMDEPLOY_API_KEY", needs_key=False,
          quirks=_compatible(thinking="chat_template_kwargs", load=_LMDEPLOY_LOAD, token_ids="none")),
    _chat("litellm", "http://localhost:4000/v1", "LITELLM_API_KEY", needs_key=False,
          quirks=Quirks(max_tokens_member="by_model", reasoning_return="as_received", cache_mark="cache_control",
                        session=_own_router("x-litellm-session-id"))),
)  # fmt: skip
"""Servers that users run themselves. A row is selected by name, or by the port if few other servers use that port.

The headers of sessions: vLLM's router (github.com/vllm-project/router, policy `consistent_hash`), SGLang's gateway
(github.com/smg-project/smg-docs, sticky sessions), NVIDIA Dynamo (docs.nvidia.com/dynamo, maintain session affinity),
LiteLLM (docs.litellm.ai/docs/routing, session affinity).
"""

FIRST_PARTY_ROWS: tuple[Profile, ...] = (
    Profile(
        name="anthropic",
        aliases=("claude",),
        dialect="anthropic",
        base_url="https://api.anthropic.com",
        key_variables=("ANTHROPIC_API_KEY",),
        token_variables=("ANTHROPIC_AUTH_TOKEN",),
        url_variables=("ANTHROPIC_BASE_URL",),
        prefixes=("claude-",),
        quirks=_CLAUDE,
    ),
    Profile(
        # A row of its own, so that thinking is sent back to the server that made it, and not to Anthropic.
        name="anthropic-compatible",
        aliases=("anthropic", "claude"),
        dialect="anthropic",
        base_url="",
        key_variables=("ANTHROPIC_API_KEY",),
        token_variables=("ANTHROPIC_AUTH_TOKEN",),
        url_variables=("ANTHROPIC_BASE_URL",),
        prefixes=("claude-",),
        generic=True,
        quirks=_STRICT,
    ),
    Profile(
        name="google",
        aliases=("gemini",),
        dialect="gemini",
        base_url="https://generativelanguage.googleapis.com",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        url_variables=("GOOGLE_GEMINI_BASE_URL",),
        prefixes=("gemini-",),
        quirks=_STRICT,
    ),
    Profile(
        # A row of its own, because signatures of the one API are not documented to be accepted by the other.
        name="google-interactions",
        aliases=("gemini-interactions", "google", "gemini"),
        dialect="gemini-interactions",
        base_url="https://generativelanguage.googleapis.com",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        url_variables=("GOOGLE_GEMINI_BASE_URL",),
        prefixes=("gemini-",),
        quirks=_STRICT,
    ),
)
"""Anthropic and Google with their own dialects, and servers compatible with Anthropic's."""

PROMPT_ROWS: tuple[Profile, ...] = (
    Profile(name="vllm-generate", dialect="vllm-generate", base_url="http://localhost:8000", aliases=("vllm",),
            key_variables=("VLLM_API_KEY",), needs_key=False, quirks=replace(_STRICT, load=_VLLM_LOAD)),
    Profile(name="sglang-generate", dialect="sglang-generate", base_url="http://localhost:30000", aliases=("sglang",),
            key_variables=("SGLANG_API_KEY",), needs_key=False, quirks=replace(_STRICT, load=_SGLANG_LOAD)),
    Profile(name="openai-completions", dialect="openai-completions", base_url="https://api.openai.com/v1",
            aliases=("openai",), key_variables=("OPENAI_API_KEY",), url_variables=("OPENAI_BASE_URL",),
            addresses=("*.api.openai.com",), quirks=replace(_STRICT, token_ids="none")),
    Profile(name="vllm-completions", dialect="openai-completions", base_url="http://localhost:8000/v1", needs_key=False,
            aliases=("vllm",), key_variables=("VLLM_API_KEY",), quirks=Quirks(load=_VLLM_LOAD)),
    Profile(name="sglang-completions", dialect="openai-completions", base_url="http://localhost:30000/v1",
            aliases=("sglang",), key_variables=("SGLANG_API_KEY",), needs_key=False, quirks=Quirks(load=_SGLANG_LOAD)),
    Profile(name="completions-compatible", dialect="openai-completions", base_url="",
            key_variables=("OPENAI_API_KEY",), url_variables=("OPENAI_BASE_URL",), needs_key=False, generic=True),
)  # fmt: skip

PROFILES: tuple[Profile, ...] = (
    *OPENAI_ROWS, *RESPONSES_ROWS, *FIRST_PARTY_ROWS, *HOSTED_ROWS, *GATEWAY_ROWS, *OTHER_RESPONSES_ROWS, *LOCAL_ROWS,
    *PROMPT_ROWS,
)  # fmt: skip
"""Every known provider. If two rows match a name, an address or a key, the first one is used: that for Chat
Completions, if a provider speaks Responses as well."""

_ONE_OF_SEVERAL = re.compile(r"(.+)[-_][0-9]+")

_DEFAULT_PORT = {"https": ":443", "http": ":80"}

_SHARED_PORTS = frozenset({3000, 8000, 8080, 4000, 30000})
"""Ports of the local machine that many kinds of servers use."""


def profile_by_name(name: str, dialect: str) -> Profile | None:
    """Return the row of a dialect with this name, else the first with this alias, else None.

    A name that is none, and ends in `-` or `_` and digits, is one of several servers: `vllm-0` finds the row `vllm`.
    """
    rows = [row for row in PROFILES if row.dialect_name == dialect]
    row = next((row for row in rows if row.name == name), None) or next(
        (row for row in rows if name in row.aliases), None
    )
    kind = _ONE_OF_SEVERAL.fullmatch(name)
    return row if row is not None or kind is None else profile_by_name(kind[1], dialect)


def profile_by_host(base_url: str, dialect: str) -> Profile | None:
    """Return the row of a dialect that a base URL belongs to, or None.

    A row's address patterns take precedence over the host and port of a row's own URL.
    """
    host, path = _address(base_url)
    if not host:
        return None
    for row in PROFILES:
        if row.dialect_name == dialect and any(_fits(pattern, host, path) for pattern in row.addresses):
            return row
    for row in PROFILES:
        if row.dialect_name == dialect and row.base_url and _address(row.base_url)[0] == host:
            return None if _has_shared_port(row.base_url) else row
    return None


def _fits(pattern: str, host: str, path: str) -> bool:
    """Return whether a pattern matches an address. Host and path are matched separately: a `*` matches in one only."""
    host_pattern, slash, path_pattern = pattern.partition("/")
    return _matches(host, host_pattern) and (not slash or _matches(path, f"/{path_pattern}"))


def _matches(text: str, pattern: str) -> bool:
    """Return whether a text matches a pattern of `fnmatch`.

    The literal ends of the pattern are compared first: to compile a pattern takes 0.1 ms, and few fit.
    """
    start, end = pattern.partition("*")[0].partition("[")[0], pattern.rpartition("*")[2].rpartition("]")[2]
    return text.startswith(start) and text.endswith(end) and fnmatchcase(text, pattern)


def _address(base_url: str) -> tuple[str, str]:
    """Return `host[:port]` in lower case and the path of a URL; empty texts for a text that is no URL."""
    try:
        parts = urlsplit(base_url.strip())
    except ValueError:
        return "", ""
    host = parts.netloc.rpartition("@")[2].lower()
    return host.removesuffix(_DEFAULT_PORT.get(parts.scheme.lower(), "")), parts.path or "/"


def _has_shared_port(base_url: str) -> bool:
    """Return whether the URL's port is one that many kinds of servers use."""
    return urlsplit(base_url).port in _SHARED_PORTS


_BY_NAME = {row.name: row for row in PROFILES}

_DEFAULT_NAMES: dict[str, tuple[str, str]] = {
    "openai-chat": ("openai-chat", "openai-compatible"),
    "openai-responses": ("openai-responses", "responses-compatible"),
    "anthropic": ("anthropic", "anthropic-compatible"),
    # Compatible servers share Google's row, name and key variables. But they do not get each other's signatures.
    "gemini": ("google", ""),
    "gemini-interactions": ("google-interactions", ""),
    "vllm-generate": ("vllm-generate", "vllm-generate"),
    "sglang-generate": ("sglang-generate", "sglang-generate"),
    "openai-completions": ("openai-completions", "completions-compatible"),
}

DEFAULT_PROFILES: dict[str, tuple[Profile, Profile]] = {
    dialect: (_BY_NAME[own], _BY_NAME[other] if other else replace(_BY_NAME[own], generic=True))
    for dialect, (own, other) in _DEFAULT_NAMES.items()
}
"""Dialect → the row for a provider without a base URL, and the row for a base URL that matches no row."""


def is_row(profile: object) -> bool:
    """Return whether a profile is itself one of these rows, which are constants."""
    return any(profile is row for row in chain(PROFILES, *DEFAULT_PROFILES.values()))
