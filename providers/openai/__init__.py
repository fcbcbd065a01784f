"""OpenAI's two wire dialects, Chat Completions and Responses, and what both share: error bodies and effort words."""
