"""Anthropic's Messages format: requests, answers, streams and errors. `DIALECT` is all that others need of it.

Wire truth: https://platform.claude.com/docs/en/api/messages, in API version 2023-06-01.
"""

from __future__ import annotations

from .dialect import DIALECT as DIALECT
