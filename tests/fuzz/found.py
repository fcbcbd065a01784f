"""What fuzzing has found, each with the input that showed it and what was wrong: run as tests ever after."""

from __future__ import annotations

FOUND: list[tuple[str, bytes, str]] = []
"""Target, input, what was wrong."""
