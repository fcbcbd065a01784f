"""The rules for the fields of a profile, one row per field.

An engine checks the profiles that a program made when it opens. The rows of `profiles` are constants, so a test has
checked them.
"""

from __future__ import annotations

import re
from typing import get_args

from ..model.rules import Checker, Rule, checked, flag, optional, sequence, text, word
from ..wire.quirks import (
    CacheMarkMember,
    LoadReport,
    MaxTokensMember,
    Quirks,
    ReasoningReturn,
    SessionField,
    ThinkingMember,
    TokenIdsForm,
    ToolCallIdForm,
    ToolNameForm,
)
from .dialect import Dialect
from .profile import Profile

TEXT = text()
NAME = text("text that is not empty", empty=False)
WORDS = sequence(TEXT, "a tuple of texts", forms={str: "use ({},)"})
PAIRS = sequence(sequence(text(secret=True), "a pair of texts", count=2), "a tuple of pairs")
EFFORTS = sequence(TEXT, "four texts, one for each thinking level", count=4)

_QUERY = re.compile(r"[!-~]*")


def _is_query(value: str) -> bool:
    return _QUERY.fullmatch(value) is not None and "#" not in value


QUERY = Rule("a percent-encoded query, such as 'a=1&b=2'", (str,), _is_query, secret=True)

SESSION_FIELD = Checker(SessionField, {"header": TEXT, "member": TEXT, "hashed": flag()})
SESSION = checked(SESSION_FIELD, "a SessionField, such as ms.SessionField(header='x-session-id'), or None")
LOAD_REPORT = Checker(LoadReport, {"path": NAME, "running": TEXT, "waiting": TEXT, "slots": TEXT, "header": TEXT})
LOAD = checked(LOAD_REPORT, "a LoadReport, such as ms.LoadReport(path='/metrics', running='num_requests_running')")
QUIRKS = Checker(
    Quirks,
    {
        "strict_end": flag(),
        "auth_header": optional(NAME),
        "query": QUERY,
        "headers": PAIRS,
        "raw_predict": flag(),
        "session": optional(SESSION),
        "load": sequence(LOAD, "a tuple of LoadReport"),
        "max_tokens_member": word(*get_args(MaxTokensMember)),
        "stream_usage": flag(),
        "system_role": word("system", "developer"),
        "thinking": word(*get_args(ThinkingMember)),
        "efforts": EFFORTS,
        "tool_call_id": word(*get_args(ToolCallIdForm)),
        "required_tool_choice": word("required", "any"),
        "named_tool_choice": flag(),
        "reasoning_refuses_sampling": flag(),
        "seed_member": TEXT,
        "parallel_tool_calls": flag(),
        "metadata": flag(),
        "tool_strict": flag(),
        "structured_output": word("json_schema", "json_object"),
        "cache_mark": word(*get_args(CacheMarkMember)),
        "file_parts": flag(),
        "file_urls": flag(),
        "video_parts": flag(),
        "token_ids": word(*get_args(TokenIdsForm)),
        "reasoning_return": word(*get_args(ReasoningReturn)),
        "reasoning_required": flag(),
        "signed_thinking_only": flag(),
        "tool_name": word(*get_args(ToolNameForm)),
    },
)
PROFILE = Checker(
    Profile,
    {
        "name": NAME,
        "dialect": Rule("a dialect's name or a Dialect", (str, Dialect), NAME.fits, free=(Dialect,)),
        "base_url": TEXT,
        "key_variables": WORDS,
        "token_variables": WORDS,
        "url_variables": WORDS,
        "aliases": WORDS,
        "prefixes": WORDS,
        "needs_key": flag(),
        "generic": flag(),
        "addresses": WORDS,
        "quirks": checked(QUIRKS),
    },
)
