"""The rules for the fields of requests, one row per field. `message_rules.py` has the rules for
messages, which are imported without requests.

`checks.py` checks requests against these rules when a call starts. `Timeouts`, `Retry` and `Provider` check themselves
when they are made, so their rows are beside them. `profile_rules.py` has the rows for profiles, and the engine those
for the values of `transport`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ..errors import InvalidRequestError
from ..model.given_body import GivenBody
from ..model.messages import Message, Text
from ..model.options import DURABLE_GIVEN, RETRY_GIVEN, TIMEOUTS_GIVEN, Priority
from ..model.request import LEVEL_NAMES, Request, ThinkingConfig, ThinkingLevel, Tool
from ..model.structured import is_schema
from .message_rules import MAYBE_FLAG, MAYBE_MARK, NAME, TEXT, TEXT_BLOCK
from .rules import (
    Checker,
    Rule,
    checked,
    either,
    instance,
    members,
    number,
    optional,
    sequence,
    text,
    whole,
)

TOOL = Checker(
    Tool,
    {
        "name": NAME,
        "description": TEXT,
        "parameters": instance(dict, must="a JSON Schema (a dict)"),
        "strict": MAYBE_FLAG,
        "cache_control": MAYBE_MARK,
    },
)
LEVEL = Rule(
    f"one of {', '.join(map(repr, LEVEL_NAMES))}",
    (str,),
    LEVEL_NAMES.__contains__,
    free=(ThinkingLevel,),
    forms={str: "use ThinkingConfig(effort={}) for a word of the provider's own"},
)
THINKING = Checker(
    ThinkingConfig,
    {
        "level": optional(LEVEL),
        "budget_tokens": optional(whole(-1)),  # -1: the model decides, for models that can
        "effort": optional(NAME),
        "include_summary": MAYBE_FLAG,
    },
)


def is_filled(name: str) -> bool:
    """Return whether a name contains anything but spaces."""
    return bool(name.strip())


# `str.strip` is true for the same names as `is_filled`, and costs each start a call less.
MODEL = Rule("a model's name, such as 'gpt-5' or 'anthropic/claude-sonnet-4-5'", (str,), str.strip)
SYSTEM = sequence(checked(TEXT_BLOCK, "a Text block", forms={str: "use Text(…)"}), "a list")


def _check_some(messages: Sequence[object], where: str) -> None:
    if not messages:
        raise InvalidRequestError(where, "must hold at least one message")


PRIORITY = Rule(
    f"a Priority, or one of {', '.join(repr(member.value) for member in Priority)}",
    (str, Priority),
    frozenset(Priority).__contains__,
    free=(Priority,),
)


def _is_finite(value: object) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


TAG = Rule("text, a finite number, or True or False", (str, int, float, bool), _is_finite)

REQUEST = Checker(
    Request,
    {
        "model": MODEL,
        "messages": Rule(
            "a list of Message",
            (Sequence,),
            bool,
            inside=_check_some,
            forms={Iterable: "use list(…)"},
            secret=True,
        ),
        "system": Rule(
            "text or a list of Text blocks",
            (str, Sequence, type(None)),
            SYSTEM.fits,
            free=(str,),
            inside=SYSTEM.inside,
            item=SYSTEM.item,
            forms={Text: "use [text]", Message: "use its text"},
        ),
        "tools": sequence(
            checked(TOOL, "a Tool"),
            "a list of Tool",
            forms={Tool: "use [tool]", Mapping: "use [Tool(…)]"},
        ),
        "tool_choice": text(
            "'auto', 'none', 'required' or a tool's name",
            empty=False,
            forms={dict: "use tool_choice='name'", Tool: "use tool_choice=tool.name", bool: "use 'auto' or 'none'"},
        ),
        "thinking": optional(
            either(
                "a level's name, a ThinkingLevel or a ThinkingConfig",
                THINKING,
                texts=LEVEL,
                forms={
                    int: "use ThinkingConfig(budget_tokens={})",
                    bool: "use 'med' or 'none'",
                    dict: "use ThinkingConfig(…)",
                },
            )
        ),
        "max_output_tokens": optional(whole(1)),
        "temperature": optional(number(0, must="a number of at least 0")),
        "top_p": optional(number(0, 1, must="a number from 0 to 1")),
        "stop": sequence(NAME, "a list of texts", forms={str: "use stop=[{}]"}),
        "seed": optional(whole(-(2**63), 2**63 - 1, must="a whole number of 64 bits")),
        "response_schema": Rule(
            "a JSON Schema (a dict) or a type, such as a pydantic model, a dataclass or list[…]",
            (dict, type, type(None), object),  # the forms of types, such as `list[…]`, have no public class
            is_schema,
        ),
        "parallel_tool_calls": MAYBE_FLAG,
        "metadata": optional(members(text(secret=True), "a dict of texts")),
        "timeouts": TIMEOUTS_GIVEN,
        "retry": RETRY_GIVEN,
        "extra_body": optional(instance(Mapping, must="a dict")),
        "extra_headers": optional(members(text(secret=True), "a dict of texts")),
        "priority": PRIORITY,
        "tenant": optional(NAME),
        "session": optional(NAME),
        "tags": optional(members(TAG, "a dict of texts, numbers and flags")),
        "durable": DURABLE_GIVEN,
        "_given": optional(instance(GivenBody)),
    },
)
