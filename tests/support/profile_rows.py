"""The expected profile of each provider, copied from the providers' documentation and not from the code.

`departs`: the quirks that differ from the dialect's defaults. All other quirks have their defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from manystream.providers.catalog.profile import SessionField

CACHE_KEY = SessionField(member="prompt_cache_key")
AFFINITY = SessionField(header="x-session-affinity")

COMPATIBLE: dict[str, object] = {
    "max_tokens_member": "max_tokens",
    "metadata": False,
    "reasoning_return": "as_received",
}
"""The quirks of most servers that are compatible with OpenAI Chat."""


@dataclass(frozen=True)
class Row:
    """The expected values of one row."""

    dialect: str
    base_url: str
    keys: tuple[str, ...]
    departs: dict[str, object] = field(default_factory=dict[str, object])
    aliases: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    needs_key: bool = True
    generic: bool = False
    tokens: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()


OPENAI_MODELS = ("gpt-", "o1", "o3", "o4", "chatgpt-")

ROWS: dict[str, Row] = {
    "openai-chat": Row(
        "openai-chat",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        {
            "strict_end": True,
            "tool_name": "word_64",
            "tool_call_id": "at_most_40",
            "reasoning_refuses_sampling": True,
            "cache_mark": "prompt_cache_breakpoint",
            "session": CACHE_KEY,
        },
        aliases=("openai",),
        prefixes=OPENAI_MODELS,
        addresses=("*.api.openai.com",),
        urls=("OPENAI_BASE_URL",),
    ),
    "openai-compatible": Row(
        "openai-chat",
        "",
        ("OPENAI_API_KEY",),
        {
            "max_tokens_member": "by_model",
            "reasoning_return": "as_received",
            "cache_mark": "prompt_cache_breakpoint",
        },
        aliases=("openai",),
        prefixes=OPENAI_MODELS,
        needs_key=False,
        generic=True,
        urls=("OPENAI_BASE_URL",),
    ),
    "azure-deployment": Row(
        "openai-chat",
        "",
        ("AZURE_OPENAI_API_KEY",),
        {
            "auth_header": "api-key",
            "query": "api-version=2024-10-21",
            "tool_name": "word_64",
            "tool_call_id": "at_most_40",
            "reasoning_refuses_sampling": True,
            "cache_mark": "prompt_cache_breakpoint",
        },
        addresses=(
            "*.openai.azure.com/openai/deployments/*",
            "*.cognitiveservices.azure.com/openai/deployments/*",
            "*.services.ai.azure.com/openai/deployments/*",
        ),
        tokens=("AZURE_OPENAI_AD_TOKEN",),
    ),
    "azure-models": Row(
        "openai-chat",
        "",
        ("AZURE_AI_API_KEY", "AZURE_OPENAI_API_KEY"),
        {"auth_header": "api-key", "query": "api-version=2024-05-01-preview", "max_tokens_member": "by_model"},
        addresses=("*.services.ai.azure.com/models*", "*.models.ai.azure.com"),
    ),
    "azure": Row(
        "openai-chat",
        "",
        ("AZURE_OPENAI_API_KEY",),
        {
            "auth_header": "api-key",
            "tool_name": "word_64",
            "tool_call_id": "at_most_40",
            "reasoning_refuses_sampling": True,
            "cache_mark": "prompt_cache_breakpoint",
            "session": CACHE_KEY,
        },
        aliases=("azure-openai",),
        addresses=("*.openai.azure.com", "*.cognitiveservices.azure.com", "*.services.ai.azure.com"),
        tokens=("AZURE_OPENAI_AD_TOKEN",),
        urls=("AZURE_OPENAI_ENDPOINT/openai/v1",),
    ),
    "openai-responses": Row(
        "openai-responses",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        {"strict_end": True, "tool_name": "word_64", "session": CACHE_KEY},
        aliases=("openai",),
        prefixes=OPENAI_MODELS,
        addresses=("*.api.openai.com",),
        urls=("OPENAI_BASE_URL",),
    ),
    "responses-compatible": Row(
        "openai-responses",
        "",
        ("OPENAI_API_KEY",),
        {"strict_end": True},
        aliases=("openai",),
        prefixes=OPENAI_MODELS,
        needs_key=False,
        generic=True,
        urls=("OPENAI_BASE_URL",),
    ),
    "azure-responses": Row(
        "openai-responses",
        "",
        ("AZURE_OPENAI_API_KEY",),
        {"strict_end": True, "tool_name": "word_64", "auth_header": "api-key", "session": CACHE_KEY},
        aliases=("azure",),
        addresses=("*.openai.azure.com", "*.cognitiveservices.azure.com", "*.services.ai.azure.com"),
        tokens=("AZURE_OPENAI_AD_TOKEN",),
        urls=("AZURE_OPENAI_ENDPOINT/openai/v1",),
    ),
    "anthropic": Row(
        "anthropic",
        "https://api.anthropic.com",
        ("ANTHROPIC_API_KEY",),
        {"strict_end": True, "tool_name": "word_128", "signed_thinking_only": True},
        aliases=("claude",),
        prefixes=("claude-",),
        tokens=("ANTHROPIC_AUTH_TOKEN",),
        urls=("ANTHROPIC_BASE_URL",),
    ),
    "anthropic-compatible": Row(
        "anthropic",
        "",
        ("ANTHROPIC_API_KEY",),
        {"strict_end": True},
        aliases=("anthropic", "claude"),
        prefixes=("claude-",),
        generic=True,
        tokens=("ANTHROPIC_AUTH_TOKEN",),
        urls=("ANTHROPIC_BASE_URL",),
    ),
    "google": Row(
        "gemini",
        "https://generativelanguage.googleapis.com",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        {"strict_end": True},
        aliases=("gemini",),
        prefixes=("gemini-",),
        urls=("GOOGLE_GEMINI_BASE_URL",),
    ),
    "google-interactions": Row(
        "gemini-interactions",
        "https://generativelanguage.googleapis.com",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        {"strict_end": True},
        aliases=("gemini-interactions", "google", "gemini"),
        prefixes=("gemini-",),
        urls=("GOOGLE_GEMINI_BASE_URL",),
    ),
    "deepseek": Row(
        "openai-chat",
        "https://api.deepseek.com/v1",
        ("DEEPSEEK_API_KEY",),
        {
            **COMPATIBLE,
            "thinking": "thinking_type",
            "seed_member": "",
            "parallel_tool_calls": False,
            "structured_output": "json_object",
            "reasoning_return": "reasoning_content",
            "reasoning_required": True,
        },
        prefixes=("deepseek-",),
    ),
    "groq": Row(
        "openai-chat",
        "https://api.groq.com/openai/v1",
        ("GROQ_API_KEY",),
        {**COMPATIBLE, "reasoning_return": "reasoning"},
        urls=("GROQ_BASE_URL/openai/v1",),
    ),
    "mistral": Row(
        "openai-chat",
        "https://api.mistral.ai/v1",
        ("MISTRAL_API_KEY",),
        {
            "max_tokens_member": "max_tokens",
            "stream_usage": False,
            "efforts": ("none", "high", "high", "high"),
            "tool_call_id": "nine_alphanumerics",
            "required_tool_choice": "any",
            "seed_member": "random_seed",
            "reasoning_return": "thinking_parts",
            "session": CACHE_KEY,
        },
        prefixes=("mistral-", "ministral-", "magistral-", "codestral-", "devstral-", "pixtral-", "voxtral-"),
        addresses=("codestral.mistral.ai",),
    ),
    "xai": Row(
        "openai-chat",
        "https://api.x.ai/v1",
        ("XAI_API_KEY",),
        {
            **COMPATIBLE,
            "efforts": ("low", "low", "high", "high"),
            "reasoning_return": "reasoning_content",
            "session": SessionField(header="x-grok-conv-id"),
        },
        aliases=("grok",),
        prefixes=("grok-",),
    ),
    "openrouter": Row(
        "openai-chat",
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        {
            "max_tokens_member": "max_tokens",
            "thinking": "reasoning",
            "cache_mark": "cache_control",
            "file_urls": True,
            "video_parts": True,
            "reasoning_return": "reasoning_details",
            "session": SessionField(member="session_id"),
        },
    ),
    "together": Row(
        "openai-chat",
        "https://api.together.xyz/v1",
        ("TOGETHER_API_KEY",),
        {**COMPATIBLE, "video_parts": True},
        addresses=("api.together.ai",),
        urls=("TOGETHER_BASE_URL/v1",),
    ),
    "fireworks": Row(
        "openai-chat",
        "https://api.fireworks.ai/inference/v1",
        ("FIREWORKS_API_KEY",),
        {**COMPATIBLE, "session": AFFINITY},
        urls=("FIREWORKS_BASE_URL/v1",),
    ),
    "cerebras": Row(
        "openai-chat",
        "https://api.cerebras.ai/v1",
        ("CEREBRAS_API_KEY",),
        {**COMPATIBLE, "reasoning_return": "reasoning"},
        urls=("CEREBRAS_BASE_URL/v1",),
    ),
    "perplexity": Row(
        "openai-chat",
        "https://api.perplexity.ai",
        ("PERPLEXITY_API_KEY", "PPLX_API_KEY"),
        {"max_tokens_member": "max_tokens", "seed_member": "", "parallel_tool_calls": False, "metadata": False},
        prefixes=("sonar",),
    ),
    "moonshot": Row(
        "openai-chat",
        "https://api.moonshot.ai/v1",
        ("MOONSHOT_API_KEY",),
        {
            **COMPATIBLE,
            "thinking": "thinking_type",
            "seed_member": "",
            "parallel_tool_calls": False,
            "video_parts": True,
            "reasoning_return": "reasoning_content",
            "reasoning_required": True,
        },
        aliases=("moonshotai", "kimi"),
        prefixes=("kimi-", "moonshot-"),
        addresses=("api.moonshot.cn",),
    ),
    "zai": Row(
        "openai-chat",
        "https://api.z.ai/api/paas/v4",
        ("ZAI_API_KEY", "ZHIPUAI_API_KEY"),
        {
            **COMPATIBLE,
            "thinking": "thinking_type",
            "seed_member": "",
            "parallel_tool_calls": False,
            "structured_output": "json_object",
            "video_parts": True,
            "reasoning_return": "reasoning_content",
        },
        aliases=("z.ai", "zhipu"),
        prefixes=("glm-",),
        addresses=("open.bigmodel.cn",),
    ),
    "alibaba": Row(
        "openai-chat",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        ("DASHSCOPE_API_KEY", "ALIBABA_API_KEY"),
        {
            **COMPATIBLE,
            "thinking": "enable_thinking",
            "cache_mark": "cache_control",
            "video_parts": True,
            "reasoning_return": "reasoning_content",
        },
        aliases=("dashscope", "qwen"),
        prefixes=("qwen", "qwq-", "qvq-"),
        addresses=("dashscope*.aliyuncs.com",),
    ),
    "huggingface": Row(
        "openai-chat",
        "https://router.huggingface.co/v1",
        ("HF_TOKEN", "HUGGINGFACE_API_KEY"),
        COMPATIBLE,
        aliases=("hf",),
    ),
    "sambanova": Row(
        "openai-chat", "https://api.sambanova.ai/v1", ("SAMBANOVA_API_KEY",), {**COMPATIBLE, "seed_member": ""}
    ),
    "nvidia": Row(
        "openai-chat",
        "https://integrate.api.nvidia.com/v1",
        ("NVIDIA_API_KEY",),
        {**COMPATIBLE, "thinking": "chat_template_kwargs", "reasoning_return": "reasoning_content"},
    ),
    "google-openai": Row(
        "openai-chat",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        {"max_tokens_member": "max_tokens", "seed_member": "", "parallel_tool_calls": False, "metadata": False},
        urls=("GOOGLE_GEMINI_BASE_URL/v1beta/openai",),
    ),
    "anthropic-openai": Row(
        "openai-chat",
        "https://api.anthropic.com/v1",
        ("ANTHROPIC_API_KEY",),
        {"max_tokens_member": "max_tokens", "thinking": "thinking_budget", "seed_member": "", "metadata": False},
        urls=("ANTHROPIC_BASE_URL/v1",),
    ),
    "github-models": Row(
        "openai-chat",
        "https://models.github.ai/inference",
        ("GITHUB_TOKEN",),
        {"max_tokens_member": "by_model"},
        addresses=("models.inference.ai.azure.com",),
    ),
    "github-copilot": Row(
        "openai-chat",
        "https://api.githubcopilot.com",
        ("GITHUB_COPILOT_TOKEN", "COPILOT_TOKEN"),
        {
            "headers": (("copilot-integration-id", "vscode-chat"), ("editor-version", "vscode/1.100.0")),
            "max_tokens_member": "by_model",
            "metadata": False,
            "reasoning_return": "as_received",
        },
        addresses=("api.*.githubcopilot.com",),
    ),
    "deepinfra": Row(
        "openai-chat", "https://api.deepinfra.com/v1/openai", ("DEEPINFRA_API_KEY", "DEEPINFRA_TOKEN"), COMPATIBLE
    ),
    "nebius": Row(
        "openai-chat",
        "https://api.tokenfactory.nebius.com/v1",
        ("NEBIUS_API_KEY",),
        COMPATIBLE,
        addresses=("api.studio.nebius.com", "api.studio.nebius.ai"),
    ),
    "novita": Row("openai-chat", "https://api.novita.ai/openai/v1", ("NOVITA_API_KEY",), COMPATIBLE),
    "hyperbolic": Row("openai-chat", "https://api.hyperbolic.xyz/v1", ("HYPERBOLIC_API_KEY",), COMPATIBLE),
    "avian": Row("openai-chat", "https://api.avian.io/v1", ("AVIAN_API_KEY",), COMPATIBLE),
    "minimax": Row(
        "openai-chat", "https://api.minimax.io/v1", ("MINIMAX_API_KEY",), COMPATIBLE, prefixes=("MiniMax-",)
    ),
    "cohere": Row(
        "openai-chat",
        "https://api.cohere.ai/compatibility/v1",
        ("COHERE_API_KEY", "CO_API_KEY"),
        {"max_tokens_member": "max_tokens", "parallel_tool_calls": False, "metadata": False},
        prefixes=("command-",),
    ),
    "siliconflow": Row(
        "openai-chat",
        "https://api.siliconflow.com/v1",
        ("SILICONFLOW_API_KEY",),
        {**COMPATIBLE, "thinking": "enable_thinking"},
        addresses=("api.siliconflow.cn",),
    ),
    "volcengine": Row(
        "openai-chat",
        "https://ark.cn-beijing.volces.com/api/v3",
        ("ARK_API_KEY",),
        {**COMPATIBLE, "thinking": "thinking_type", "reasoning_return": "reasoning_content"},
        aliases=("ark",),
    ),
    "baseten": Row("openai-chat", "https://inference.baseten.co/v1", ("BASETEN_API_KEY",), COMPATIBLE),
    "scaleway": Row("openai-chat", "https://api.scaleway.ai/v1", ("SCW_SECRET_KEY",), COMPATIBLE),
    "databricks": Row(
        "openai-chat",
        "",
        ("DATABRICKS_TOKEN",),
        {"max_tokens_member": "max_tokens", "thinking": "thinking_budget", "seed_member": "", "metadata": False},
        addresses=("*.cloud.databricks.com", "*.azuredatabricks.net", "*.gcp.databricks.com"),
    ),
    "snowflake": Row(
        "openai-chat",
        "",
        ("SNOWFLAKE_TOKEN", "SNOWFLAKE_PAT"),
        {"thinking": "reasoning", "seed_member": "", "metadata": False, "reasoning_return": "reasoning_details"},
        addresses=("*.snowflakecomputing.com",),
    ),
    "cloudflare": Row(
        "openai-chat",
        "",
        ("CLOUDFLARE_API_TOKEN", "CLOUDFLARE_API_KEY"),
        {**COMPATIBLE, "session": AFFINITY},
        aliases=("workers-ai",),
        addresses=("api.cloudflare.com/client/v4/accounts/*", "gateway.ai.cloudflare.com"),
    ),
    "vercel-gateway": Row(
        "openai-chat",
        "https://ai-gateway.vercel.sh/v1",
        ("AI_GATEWAY_API_KEY",),
        {**COMPATIBLE, "thinking": "reasoning", "cache_mark": "cache_control", "reasoning_return": "reasoning_details"},
        aliases=("vercel",),
    ),
    "heroku": Row(
        "openai-chat",
        "https://us.inference.heroku.com/v1",
        ("HEROKU_INFERENCE_KEY", "INFERENCE_KEY"),
        {"max_tokens_member": "max_tokens", "thinking": "none", "seed_member": "", "metadata": False},
        addresses=("*.inference.heroku.com",),
    ),
    "bedrock-mantle": Row(
        "openai-chat",
        "",
        ("AWS_BEARER_TOKEN_BEDROCK",),
        COMPATIBLE,
        addresses=("bedrock-mantle.*.api.aws", "bedrock-runtime.*.amazonaws.com"),
        urls=("AWS_BEDROCK_BASE_URL",),
    ),
    "portkey": Row(
        "openai-chat",
        "https://api.portkey.ai/v1",
        ("PORTKEY_API_KEY",),
        {"auth_header": "x-portkey-api-key", "max_tokens_member": "by_model", "reasoning_return": "as_received"},
    ),
    "openrouter-responses": Row(
        "openai-responses",
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        {"session": SessionField(header="x-session-id")},
        aliases=("openrouter",),
    ),
    "xai-responses": Row(
        "openai-responses",
        "https://api.x.ai/v1",
        ("XAI_API_KEY",),
        {"session": CACHE_KEY},
        aliases=("xai", "grok"),
        prefixes=("grok-",),
    ),
    "groq-responses": Row(
        "openai-responses",
        "https://api.groq.com/openai/v1",
        ("GROQ_API_KEY",),
        aliases=("groq",),
        urls=("GROQ_BASE_URL/openai/v1",),
    ),
    "github-copilot-responses": Row(
        "openai-responses",
        "https://api.githubcopilot.com",
        ("GITHUB_COPILOT_TOKEN", "COPILOT_TOKEN"),
        {"headers": (("copilot-integration-id", "vscode-chat"), ("editor-version", "vscode/1.100.0"))},
        aliases=("github-copilot",),
        addresses=("api.*.githubcopilot.com",),
    ),
    "huggingface-responses": Row(
        "openai-responses",
        "https://router.huggingface.co/v1",
        ("HF_TOKEN", "HUGGINGFACE_API_KEY"),
        aliases=("huggingface", "hf"),
    ),
    "ollama": Row(
        "openai-chat",
        "http://localhost:11434/v1",
        ("OLLAMA_API_KEY",),
        {**COMPATIBLE, "parallel_tool_calls": False, "reasoning_return": "reasoning"},
        addresses=("127.0.0.1:11434", "[[]::1]:11434"),
        needs_key=False,
        urls=("OLLAMA_HOST/v1",),
    ),
    "ollama-cloud": Row(
        "openai-chat",
        "https://ollama.com/v1",
        ("OLLAMA_API_KEY",),
        {**COMPATIBLE, "parallel_tool_calls": False, "reasoning_return": "reasoning"},
    ),
    "lmstudio": Row(
        "openai-chat",
        "http://localhost:1234/v1",
        ("LMSTUDIO_API_KEY",),
        COMPATIBLE,
        aliases=("lm-studio",),
        addresses=("127.0.0.1:1234",),
        needs_key=False,
    ),
    "vllm": Row(
        "openai-chat",
        "http://localhost:8000/v1",
        ("VLLM_API_KEY",),
        {
            **COMPATIBLE,
            "thinking": "chat_template_kwargs",
            "video_parts": True,
            "session": SessionField(header="x-session-id", hashed=False),
        },
        needs_key=False,
    ),
    "sglang": Row(
        "openai-chat",
        "http://localhost:30000/v1",
        ("SGLANG_API_KEY",),
        {
            **COMPATIBLE,
            "thinking": "chat_template_kwargs",
            "session": SessionField(header="x-smg-routing-key", hashed=False),
        },
        needs_key=False,
    ),
    "dynamo": Row(
        "openai-chat",
        "http://localhost:8000/v1",
        ("DYNAMO_API_KEY",),
        {
            **COMPATIBLE,
            "thinking": "chat_template_kwargs",
            "session": SessionField(header="x-dynamo-session-id", hashed=False),
        },
        needs_key=False,
    ),
    "llama-cpp": Row(
        "openai-chat",
        "http://localhost:8080/v1",
        ("LLAMA_API_KEY",),
        {**COMPATIBLE, "thinking": "chat_template_kwargs", "reasoning_return": "reasoning_content"},
        aliases=("llama.cpp",),
        needs_key=False,
    ),
    "litellm": Row(
        "openai-chat",
        "http://localhost:4000/v1",
        ("LITELLM_API_KEY",),
        {
            "max_tokens_member": "by_model",
            "cache_mark": "cache_control",
            "reasoning_return": "as_received",
            "session": SessionField(header="x-litellm-session-id", hashed=False),
        },
        needs_key=False,
    ),
}
