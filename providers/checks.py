"""The checks of a request that need no dialect. Every dialect makes them once, before it writes the request.

Each field is checked against its row in `field_rules`, then fields that depend on each other are compared. Must not
know any wire form.
"""

from __future__ import annotations

from .errors import InvalidRequestError
from .field_rules import MODEL, REQUEST, is_filled
from .message_checks import validate_messages
from .request import TOOL_CHOICE_MODES, Request


def validate_request(request: Request) -> None:
    """Check everything that all dialects require. Raises `InvalidRequestError` naming the field. Changes nothing."""
    validate_options(request)
    validate_messages(request.messages)


def validate_options(request: Request) -> None:
    """Check all fields except the messages, which each dialect checks when it writes them. Raises
    `InvalidRequestError`.
    """
    if not REQUEST.passes(request):
        REQUEST.check(request)
    if request.tools or request.tool_choice != "auto":
        _validate_tools(request)


def validate_model(model: str) -> None:
    """Check that a model's name is text and not blank. Raises `InvalidRequestError`."""
    if type(model) is not str or not is_filled(model):
        MODEL.check(model, "model")


def _validate_tools(request: Request) -> None:
    names: set[str] = set()
    for position, tool in enumerate(request.tools):
        if tool.name in names:
            raise InvalidRequestError(f"tools[{position}].name", f"{tool.name!r} appears twice")
        names.add(tool.name)
    choice = request.tool_choice
    if choice not in TOOL_CHOICE_MODES and choice not in names:
        raise InvalidRequestError("tool_choice", f"{choice!r} is neither auto, none, required nor a tool's name")
    if choice == "required" and not names:
        raise InvalidRequestError("tool_choice", "is 'required', but the request has no tools")
