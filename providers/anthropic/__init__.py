"""Anthropic's Messages format: requests, answers, streams and errors. Other packages need only `DIALECT`.

Source: https://platform.claude.com/docs/en/api/messages, API version 2023-06-01.
"""

from __future__ import annotations

from .dialect import DIALECT as DIALECT
