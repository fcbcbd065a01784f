"""Google's Interactions API (`POST /v1beta/interactions`): a conversation and an answer are lists of typed steps.

Other packages need only `DIALECT`. Source: the types of google-genai 3.6, and
https://ai.google.dev/gemini-api/docs/interactions, API revision 2026-05-20. Errors, rate limits, schemas and the levels
of thinking are those of `..gemini`: the two APIs have one server.
"""

from __future__ import annotations

from .dialect import DIALECT as DIALECT
