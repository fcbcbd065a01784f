"""The checks of a request that need no dialect. Every dialect makes them once, before it writes the request.

Each field is checked against its row in `field_rules`, then fields that depend on each other are compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvalidRequestError
from ..model.request import TOOL_CHOICE_MODES, Request, Tool
from .field_rules import MODEL, REQUEST
from .message_checks import validate_messages
from .rules import instance


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
