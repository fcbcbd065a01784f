"""The rules for the fields of requests, one row per field, and the checks of a request that need no dialect.

Every dialect makes the checks once, before it writes a request: each field against its row, then fields that depend on
each other. `Timeouts`, `Retry` and `Provider` check themselves when they are made, so their rows are beside them.
`catalog/profile_rules.py` has the rows for profiles, and the engine those for the values of `transport`.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence

from ..errors import InvalidRequestError
from .given_body import GivenBody
from .message_rules import MAYBE_FLAG, MAYBE_MARK, NAME, TEXT, TEXT_BLOCK, validate_messages
from .messages import Message, Text
from .options import DURABLE_GIVEN, RETRY_GIVEN, TIMEOUTS_GIVEN, Priority
from .request import LEVEL_NAMES, TOOL_CHOICE_MODES, Request, ThinkingConfig, ThinkingLevel, Tool
from .rules import (
    Checker,
    Rule,
    checked,
    described,
    either,
    flag,
    instance,
    members,
    number,
    optional,
    sequence,
    text,
    whole,
    word,
)
from .structured import is_schema
from .tokens import ids_of

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
TOKEN_ID = whole(0, 2**63 - 1, must="ids of tokens: whole numbers from 0 on, of at most 63 bits")
SYSTEM = sequence(checked(TEXT_BLOCK, "a Text block", forms={str: "use Text(…)"}), "a list")


def _are_ids(ids: Sequence[object]) -> bool:
    return ids_of([*ids]) is not None


def _check_ids(ids: Sequence[object], where: str) -> None:
    for place, id in enumerate(ids):
        if not TOKEN_ID.passes(id):
            raise InvalidRequestError(where, f"must be {TOKEN_ID.must}: the one at place {place} is {described(id)}")


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
        "max_output_tokens": optional(whole(0, 2**63 - 1, must="a whole number of at least 0 and at most 63 bits")),
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
        "return_tokens": flag(),
        "logprobs": optional(whole(0)),
        "prompt_token_ids": optional(
            Rule(
                "ids of tokens: a list of whole numbers",
                (list, tuple, array),
                _are_ids,
                inside=_check_ids,
                forms={Iterable: "use list(…)"},
            )
        ),
        "continue_aborted": flag(),
        "cache": optional(word("auto")),
        "keep_received": flag(),
        "_given": optional(instance(GivenBody)),
    },
)


def validate_request(request: Request) -> None:
    """Check everything that all dialects require. Raises `InvalidRequestError` naming the field. Changes nothing."""
    validate_options(request)
    validate_messages(request.messages)


def validate_options(request: Request) -> None:
    """Check all fields except the messages, which each dialect checks when it writes them. Raises
    `InvalidRequestError`.
    """
    if not REQUEST.passes(request):
        instance(Request).check(request, "request")
        REQUEST.check(request)
    if not request.messages and not request.prompt_token_ids:
        name, what = ("messages", "message") if request.prompt_token_ids is None else ("prompt_token_ids", "id")
        raise InvalidRequestError(name, f"must hold at least one {what}")
    if request.tools or request.tool_choice != "auto":
        _validate_tools(request)


def validate_model(model: str) -> None:
    """Check that a model's name is text and not blank. Raises `InvalidRequestError`."""
    if type(model) is not str or not model.strip():
        MODEL.check(model, "model")


def _validate_tools(request: Request) -> None:
    names = {tool.name for tool in request.tools}
    if len(names) < len(request.tools):
        _refuse_repeated(request.tools)
    choice = request.tool_choice
    if choice not in TOOL_CHOICE_MODES and choice not in names:
        raise InvalidRequestError("tool_choice", f"{choice!r} is neither auto, none, required nor a tool's name")
    if choice == "required" and not names:
        raise InvalidRequestError("tool_choice", "is 'required', but the request has no tools")


def _refuse_repeated(tools: Sequence[Tool]) -> None:
    """Raise the error for the first tool with the name of an earlier one."""
    names: set[str] = set()
    for position, tool in enumerate(tools):
        if tool.name in names:
            raise InvalidRequestError(f"tools[{position}].name", f"{tool.name!r} appears twice")
        names.add(tool.name)
