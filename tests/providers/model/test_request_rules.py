"""Options of a request that fit each other, and that do not."""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.model.request_rules import validate_options, validate_request
from tests.providers.catalog.test_provider import refused

# --- requests ---
USER = [ms.Message.user("a")]

TOOL = ms.Tool("f")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tools": [TOOL, TOOL]}, "tools[1].name: 'f' appears twice"),
        ({"tool_choice": "g"}, "tool_choice: 'g' is neither auto, none, required nor a tool's name"),
        ({"tools": [TOOL], "tool_choice": "g"}, "tool_choice: 'g' is neither auto, none, required nor a tool's name"),
        ({"tool_choice": "required"}, "tool_choice: is 'required', but the request has no tools"),
        ({"temperature": -0.1}, "temperature: must be a number of at least 0, not -0.1"),
        ({"max_output_tokens": 10**400},
         "max_output_tokens: must be a whole number of at least 0 and at most 63 bits, not a larger int"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_each_other(options: dict[str, object], words: str) -> None:
    request = ms.Request("m", USER, **options)  # type: ignore[arg-type]
    for check in (validate_options, validate_request):
        assert refused(lambda check=check: check(request))[1] == words  # type: ignore[misc]
    assert refused(lambda: validate_request(ms.Request("m", [])))[0] == "messages"


def test_options_that_fit_each_other() -> None:
    for choice in ("auto", "none", "required", "f"):
        validate_request(ms.Request("m", USER, tools=[TOOL, ms.Tool("g")], tool_choice=choice))
    for choice in ("auto", "none"):
        validate_request(ms.Request("m", USER, tool_choice=choice))
