"""Where a key and an address are found, in which order, and which texts cannot be keys."""

import json
from pathlib import Path
from typing import Any

import pytest

import manystream as ms
from manystream.engine.request.credentials import find_key, is_loopback
from manystream.engine.request.fresh_key import FreshKey, KeySource
from manystream.engine.request.redaction import Redaction
from manystream.transport.exchange import WireHead

REMOTE = "https://models.example/v1"


OWN = ms.Profile(
    name="own", dialect="openai-chat", base_url=REMOTE, key_variables=("OWN_KEY", "OTHER_KEY"), aliases=("alias",)
)


def provider(**options: Any) -> ms.Provider:
    return ms.Provider(profile=OWN, **options)


def ask_key(provider: ms.Provider) -> object:
    return KeySource(provider, lambda: 0.0, None).ask()


def stored(path: Path, keys: dict[str, object]) -> dict[str, str]:
    """Write a credentials file, and return the variables that name it."""
    path.write_text(json.dumps(keys), "utf-8")
    path.chmod(0o600)
    return {"MANYSTREAM_CREDENTIALS": str(path)}


def test_a_key_is_taken_from_the_first_place_that_has_one(tmp_path: Path) -> None:
    file = {"mine": "f1", "own": "f2", "alias": "f3", "OWN_KEY": "f4", "OTHER_KEY": "f5"}
    variables = {"OWN_KEY": "v1", "OTHER_KEY": "v2"}
    places = [("given", ""), ("v1", "OWN_KEY"), ("v2", "OTHER_KEY"), *((key, name) for name, key in file.items())]
    for place, (expected, _) in enumerate(places):
        left = {name for _, name in places[place:]}
        environment = stored(tmp_path / "keys.json", {name: key for name, key in file.items() if name in left})
        environment |= {name: variables[name] for _, name in places[max(place, 1) : 3]}
        one = provider(name="mine", api_key="given" if place == 0 else None)
        assert find_key(one, environment) == expected
    with pytest.raises(ms.InvalidRequestError) as raised:
        find_key(provider(name="mine"), stored(tmp_path / "keys.json", {"other": "x"}))
    assert str(raised.value) == "api_key: 'mine' has no key: pass api_key=… or set OWN_KEY or OTHER_KEY"


def test_an_empty_variable_is_none(tmp_path: Path) -> None:
    assert find_key(provider(), {"OWN_KEY": "", "OTHER_KEY": "v2"}) == "v2"
    environment = stored(tmp_path / "keys.json", {"own": "", "alias": "f3"})
    assert find_key(provider(), environment | {"OWN_KEY": ""}) == "f3"


def test_the_default_file_is_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".config" / "manystream"
    with pytest.raises(ms.InvalidRequestError, match="has no key"):
        find_key(provider(), {})
    folder.mkdir(parents=True)
    stored(folder / "credentials.json", {"own": "f1"})
    assert find_key(provider(), {}) == "f1"
    assert find_key(provider(), {"MANYSTREAM_CREDENTIALS": ""}) == "f1"
    assert find_key(provider(), {"MANYSTREAM_CREDENTIALS": "~/.config/manystream/credentials.json"}) == "f1"


def test_the_errors_of_a_named_file_are_whole(tmp_path: Path) -> None:
    def message(path: Path) -> str:
        with pytest.raises(ms.InvalidRequestError) as raised:
            find_key(provider(), {"MANYSTREAM_CREDENTIALS": str(path)})
        assert raised.value.field == "api_key"
        return str(raised.value)

    absent, under, folder = tmp_path / "absent", tmp_path / "list.json" / "x", tmp_path / "folder"
    folder.mkdir()
    stored(tmp_path / "list.json", {})
    (tmp_path / "list.json").write_text("[1]")
    start = "api_key: the credentials file"
    assert message(absent) == f"{start} {absent} does not exist"
    assert message(under) == f"{start} {under} does not exist"
    assert message(folder) == f"{start} {folder}: Is a directory"
    assert message(tmp_path / "list.json") == f"{start} {tmp_path / 'list.json'} is not a JSON object"
    (tmp_path / "list.json").chmod(0o640)
    assert message(tmp_path / "list.json") == (
        f"{start} {tmp_path / 'list.json'} can be read by others: run chmod 600 on it"
    )


CAUSE = "a line break at the end of a key file is a common cause"


@pytest.mark.parametrize(("character", "code"), [(" ", 32), ("\x7f", 127), ("\n", 10), ("ü", 252)])
def test_a_key_has_visible_characters_only(character: str, code: int, tmp_path: Path) -> None:
    unfit = f"contains a character that is invalid in a key (code {code} at position 3); {CAUSE}"
    wrong = f"abc{character}d"
    with pytest.raises(ms.InvalidRequestError) as raised:
        find_key(provider(), {"OWN_KEY": wrong})
    assert str(raised.value) == f"api_key: OWN_KEY {unfit}"
    with pytest.raises(ms.InvalidRequestError) as raised:
        find_key(provider(name="mine"), stored(tmp_path / "keys.json", {"alias": wrong}))
    assert str(raised.value) == f"api_key: the credentials file's 'alias' {unfit}"
    with pytest.raises(ms.ProviderError) as failed:
        ask_key(provider(api_key=lambda: wrong))
    assert failed.value.message == f"the api_key function of 'own' returned a text that {unfit}"


def test_the_first_and_the_last_visible_character_are_valid() -> None:
    assert find_key(provider(), {"OWN_KEY": "!~"}) == "!~"
    assert ask_key(provider(api_key=lambda: "!~")) == "!~"
    assert find_key(provider(api_key=lambda: "!~"), {"OWN_KEY": "not used"}) == ""


def test_a_variable_that_is_no_text_is_refused() -> None:
    with pytest.raises(ms.InvalidRequestError) as raised:
        find_key(provider(), {"OWN_KEY": 5})  # type: ignore[dict-item]
    assert str(raised.value) == "api_key: OWN_KEY must be text, not int"


ASKED: dict[str, tuple[object, str]] = {
    "nothing": (None, "returned NoneType, not text"),
    "bytes": (b"k", "returned bytes, not text"),
    "empty": ("", "returned an empty text"),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_key_function_that_returns_no_key_is_an_error(name: str) -> None:
    value, words = ASKED[name]
    with pytest.raises(ms.ProviderError) as raised:
        ask_key(provider(api_key=lambda: value))
    error = raised.value
    assert (error.message, error.category, error.retryable) == (
        f"the api_key function of 'own' {words}", ms.ErrorCategory.AUTH, False
    )  # fmt: skip


LOOPBACK = {
    "http://localhost:8000/v1": True, "http://LOCALHOST/v1": True, "http://127.0.0.1/v1": True,
    "http://127.9.9.9:1/v1": True, "http://[::1]:8000/v1": True, "http://128.0.0.1/v1": False,
    "http://localhost.example/v1": False, "http://10.0.0.1/v1": False, "http://[::2]/v1": False, "localhost": False,
    "": False, "http://[": False,
}  # fmt: skip


@pytest.mark.parametrize("url", LOOPBACK)
def test_which_addresses_are_this_machine(url: str) -> None:
    assert is_loopback(url) == LOOPBACK[url]
    if url.startswith("http") and url != "http://[":
        local = provider(base_url=url)
        if LOOPBACK[url]:
            assert find_key(local, {}) == ""
        else:
            with pytest.raises(ms.InvalidRequestError, match="has no key"):
                find_key(local, {})


def test_a_profile_that_needs_no_key_has_none() -> None:
    keyless = ms.Profile(name="keyless", dialect="openai-chat", base_url=REMOTE, needs_key=False)
    assert find_key(ms.Provider(profile=keyless), {}) == ""
    bare = ms.Profile(name="bare", dialect="openai-chat", base_url=REMOTE)
    with pytest.raises(ms.InvalidRequestError) as raised:
        find_key(ms.Provider(profile=bare), {})
    assert str(raised.value) == "api_key: 'bare' has no key: pass api_key=…"


def test_a_head_is_written_once_for_each_key() -> None:
    written: list[str] = []

    def write_head(key: object) -> tuple[WireHead, Redaction]:
        assert isinstance(key, str)
        written.append(key)
        head = WireHead(b"POST", b"/", [(b"x-key", key.encode())])
        return head, Redaction(key, head)

    fresh = FreshKey(KeySource(provider(api_key=lambda: "a"), lambda: 0.0, None), write_head)
    heads = [fresh.head_with(key)[0] for key in ("a", "a", "b", "a")]
    assert written == ["a", "b", "a"]
    assert [heads[1] is heads[0], heads[3] is heads[0]] == [True, False]
    assert [head.headers for head in heads] == [[(b"x-key", key)] for key in (b"a", b"a", b"b", b"a")]


def test_a_key_that_fits_into_no_header_is_the_function_s_fault() -> None:
    def write_head(key: object) -> tuple[WireHead, Redaction]:
        raise ms.InvalidRequestError("api_key", "is too long")

    with pytest.raises(ms.ProviderError) as raised:
        FreshKey(KeySource(provider(api_key=lambda: "a"), lambda: 0.0, None), write_head).head_with("secret-key-1")
    error = raised.value
    assert (error.message, error.category, error.retryable) == (
        "the key that the api_key function of 'own' returned fits into no header", ms.ErrorCategory.AUTH, False
    )  # fmt: skip
    assert error.__suppress_context__
