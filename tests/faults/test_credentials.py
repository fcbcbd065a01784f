"""The credentials file: the permissions it must have, and that no error shows its content."""

import json
import os
from pathlib import Path

import pytest

import manystream as ms
from manystream.engine.request.credentials import find_key

KEY = "sk-canary-from-a-file"
PROVIDER = ms.Anthropic()
OWN = ms.Profile(name="own", dialect="openai-chat", base_url="https://models.example/v1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "credentials.json"
    path.write_text(json.dumps({"anthropic": KEY}), "utf-8")
    path.chmod(0o600)
    return path


def named(path: Path) -> dict[str, str]:
    return {"MANYSTREAM_CREDENTIALS": str(path)}


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        (ms.Anthropic(), "api_key: 'anthropic' has no key: pass api_key=… or set ANTHROPIC_API_KEY"),
        (ms.Gemini(), "api_key: 'google' has no key: pass api_key=… or set GEMINI_API_KEY or GOOGLE_API_KEY"),
        (ms.Provider(profile=OWN), "api_key: 'own' has no key: pass api_key=…"),
    ],
    ids=["one variable", "two variables", "no variable"],
)
def test_a_missing_key_names_each_variable(provider: ms.Provider, message: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        find_key(provider, {})
    assert str(caught.value) == message


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_file_of_its_owner_alone_is_read(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert find_key(PROVIDER, named(file)) == KEY


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o606, 0o620, 0o602, 0o610, 0o601, 0o644, 0o666, 0o777])
def test_a_file_that_others_can_open_is_refused(file: Path, mode: int) -> None:
    """A file that other users can read or write is not a safe place for a key."""
    file.chmod(mode)
    with pytest.raises(ms.InvalidRequestError, match="can be read by others: run chmod 600 on it") as caught:
        find_key(PROVIDER, named(file))
    assert str(file) in str(caught.value)
    assert KEY not in f"{caught.value} {caught.value!r}"


def test_the_target_of_a_link_is_checked(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(file)
    assert find_key(PROVIDER, named(link)) == KEY
    file.chmod(0o644)
    with pytest.raises(ms.InvalidRequestError, match="can be read by others"):
        find_key(PROVIDER, named(link))


def test_arguments_and_variables_take_precedence_over_the_file(file: Path) -> None:
    file.chmod(0o666)
    assert find_key(ms.Anthropic(api_key="given"), named(file)) == "given"
    assert find_key(PROVIDER, named(file) | {"ANTHROPIC_API_KEY": "variable"}) == "variable"


BAD = {
    "no JSON": (KEY, "is not a JSON object"), "a list": (json.dumps([KEY]), "is not a JSON object"),
    "bytes": ("\udcff\udcfe" + KEY, "is not a JSON object"), "nothing": ("", "is not a JSON object"),
    "a key with a line break": (json.dumps({"anthropic": KEY + "\n"}), "contains a character that is invalid in a key"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_cannot_be_used_is_named_and_not_quoted(name: str, file: Path) -> None:
    content, words = BAD[name]
    file.write_bytes(os.fsencode(content))
    with pytest.raises(ms.InvalidRequestError, match=words) as caught:
        find_key(PROVIDER, named(file))
    assert KEY not in f"{caught.value} {caught.value!r}"
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_file_that_is_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ms.InvalidRequestError, match="does not exist"):
        find_key(PROVIDER, named(tmp_path / "absent.json"))
    with pytest.raises(ms.InvalidRequestError, match="Is a directory"):
        find_key(PROVIDER, named(tmp_path))


def test_a_key_that_is_not_text_is_skipped(file: Path) -> None:
    file.write_text('{"anthropic": 5}', "utf-8")
    with pytest.raises(ms.InvalidRequestError, match="ANTHROPIC_API_KEY"):
        find_key(PROVIDER, named(file))
