"""OpenAI's two wire dialects, Chat Completions and Responses, and what they share: effort words, schemas and limits."""
