"""Token-in, token-out: vLLM's and SGLang's own endpoints, and OpenAI's older Completions. The wires of trainers.

A request has a prompt, as ids or as one text, and no conversation; an answer has ids, and text if the server makes it.
`request.py` writes the three requests. `wires.py` turns SGLang's answers, which are cumulative, into choices as the two
others send them, so one reader (`answer.py`) and one stream machine (`stream.py`) read them all, streamed or whole.

Sources: vLLM 0.32 (`/inference/v1/generate`, `/v1/completions`), SGLang 0.5 (`/generate`),
https://platform.openai.com/docs/api-reference/completions.
"""

from __future__ import annotations

from .dialect import DIALECTS as DIALECTS
