"""The names that programs are written against. A change here is a change for everybody who embeds the library."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import manystream as ms

from .public_api import SNAPSHOT, describe

EXCEPTIONS_OF_MODULES = {
    "manystream.batch": "BatchError JournalError LineError",
    "manystream.cost": "CostExtraError", "manystream.engine.monitor": "MonitorError",
    "manystream.providers.history": "HistoryError", "manystream.store": "RowError StoreError",
}  # fmt: skip
"""Module → the exceptions it raises."""


def test_every_exception_has_the_one_base() -> None:
    values = [getattr(ms, name) for name in ms.__all__]
    found = [value for value in values if isinstance(value, type) and issubclass(value, BaseException)]
    assert {found_class.__name__ for found_class in found} >= {
        "EngineClosedError", "InvalidRequestError", "ProviderError", "StoreError", "TooManyCallsError",
    }  # fmt: skip
    for module, names in EXCEPTIONS_OF_MODULES.items():
        found += [getattr(importlib.import_module(module), name) for name in names.split()]
    assert [each for each in found if not issubclass(each, ms.ManystreamError)] == []


def test_all_lists_exactly_what_the_package_offers() -> None:
    assert [getattr(ms, name) for name in ms.__all__]
    machinery = {"annotations", "import_module", "TYPE_CHECKING", "HOMES"}
    offered = {name for name, value in vars(ms).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert (offered - machinery) | {"__version__"} == set(ms.__all__)


def test_a_request_takes_its_options_by_name_only() -> None:
    hello = [ms.Message.user("Hello")]
    with pytest.raises(TypeError, match="positional"):
        ms.Request("m", hello, "Answer in one sentence.")  # type: ignore[misc]  # pyright: ignore[reportCallIssue]
    hint = r"^Request\(\) got an unexpected keyword argument 'temprature'; did you mean 'temperature'\?$"
    with pytest.raises(TypeError, match=hint):
        ms.Request("m", hello, temprature=0.5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_the_options_are_the_fields_of_a_request() -> None:
    """The options of functions that pass them on have the types of the fields; `tools` takes more forms."""
    fields = {field.name: field.type for field in dataclasses.fields(ms.Request) if field.kw_only}
    options = {name: annotation.__forward_arg__ for name, annotation in ms.RequestOptions.__annotations__.items()}
    assert {"_given": fields["_given"], **options, "tools": "Sequence[Tool]"} == fields
    assert options["tools"] == "Tools"
    text = inspect.getdoc(ms.Request)  # Python 3.13 removes the indentation from `__doc__`
    assert text is not None
    assert [name for name in options if f"\n{name}: " not in text] == [], "one line each in a hover"


CHAT_PROFILE = ms.Profile(name="chat-server", dialect="openai-chat", base_url="http://127.0.0.1:9/v1")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (ms.Provider, "a plain Provider has no dialect: give it a Profile, or take OpenAIChat"),
        (lambda: ms.Provider(name="groq"), "a plain Provider has no dialect"),
        (lambda: ms.Anthropic(profile=CHAT_PROFILE), "openai-chat"),
        (lambda: ms.OpenAIResponses(profile=CHAT_PROFILE), "openai-chat"),
        (lambda: ms.Gemini(profile="groq"), "no profile 'groq' speaks gemini"),
    ],
)
def test_a_provider_without_a_dialect_of_its_own_is_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=re.escape(words)) as raised:
        make()
    assert raised.value.field == "profile"


def test_an_error_without_a_response_has_these_values() -> None:
    error = ms.ProviderError("busy", category=ms.ErrorCategory.RATE_LIMIT)
    assert (error.http_status, error.retry_after_ms, error.retryable) == (0, -1, True)


@pytest.mark.parametrize("dialect", [ms.OpenAIChat, ms.OpenAIResponses, ms.Anthropic, ms.Gemini])
def test_a_provider_never_shows_its_key(dialect: type[ms.Provider]) -> None:
    provider = dialect(api_key="canary-key", headers={"x-extra": "canary-header"})
    assert "canary" not in repr(provider)
    assert "canary" not in str(provider)


def test_every_public_name_has_one_home_and_comes_from_it() -> None:
    homes = [name for names in ms.HOMES.values() for name in names]
    assert sorted([*homes, "__version__"]) == sorted(ms.__all__)
    for home, names in ms.HOMES.items():
        module = importlib.import_module(home, "manystream")
        assert all(getattr(ms, name) is getattr(module, name) for name in names)
    assert set(ms.__all__) <= set(dir(ms))


def test_type_checkers_see_the_names_that_programs_get() -> None:
    assert ms.__file__ is not None
    source = Path(ms.__file__).read_text()
    pairs = re.findall(r"^    from (\.[\w.]+) import (\w+) as \2$", source, re.MULTILINE)
    assert {name: home for home, name in pairs} == {name: home for home, names in ms.HOMES.items() for name in names}


def test_names_and_signatures_are_those_on_record() -> None:
    on_record, found = SNAPSHOT.read_text("utf-8").splitlines(), describe().splitlines()
    changes = "\n".join(difflib.unified_diff(on_record, found, "on record", "in the code", n=0, lineterm=""))
    assert not changes, (
        f"{changes}\nIf that is meant: `python -m tests.public_api` records it, and CHANGELOG.md names it"
    )
