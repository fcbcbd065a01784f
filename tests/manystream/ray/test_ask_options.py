"""The arguments of `map_batches` without Ray: what is refused on the driver, and where keys may be seen."""

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import manystream as ms
from manystream.ray import Ask, AskError, ask, ask_options, share_rates
from manystream.ray.tables import import_pyarrow

SECRET = "5ecret-5ecret"


PROVIDER = ms.OpenAIChat(SECRET, "http://127.0.0.1:9/v1", name="sim")


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace what needs Ray and pyarrow."""
    monkeypatch.setattr(ask, "compute_strategy", lambda actors, calls: (actors, calls))
    monkeypatch.setattr(ask, "start_journal", lambda path, retry_failed: (path, retry_failed))
    monkeypatch.setattr(ask, "start_rates", lambda limits: ("keeper", limits))
    monkeypatch.setattr(ask, "import_pyarrow", lambda: None)


def options(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"actors": 4, "concurrency": 10, "providers": [PROVIDER], **changes}
    return ask_options(given.pop("model", "sim/m"), **given)


def test_the_arguments_of_map_batches(tmp_path: Any) -> None:
    found = options(journal=tmp_path / "a.jsonl", retry_failed=True, temperature=0.5, system="brief")
    assert found == {
        "fn_constructor_kwargs": {"model": "sim/m", "providers": [PROVIDER], "concurrency": 2, "traffic": None,
        "shared": None, "journal": (str(tmp_path / "a.jsonl"), True),
        "options": {"temperature": 0.5, "system": "brief"}}, "compute": (4, 16), "batch_size": None,
        "batch_format": "pyarrow", "zero_copy_batch": True,
    }  # fmt: skip


def test_keys_are_looked_up_here_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    found = options(model="gpt-5-mini", providers=[ms.OpenAIChat(), ms.Anthropic()])
    openai, anthropic = pickle.loads(pickle.dumps(found))["fn_constructor_kwargs"]["providers"]
    assert (openai.api_key, anthropic.api_key) == (SECRET, None)
    assert SECRET not in repr(found)


def test_a_key_that_is_missing_is_reported_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("MANYSTREAM_CREDENTIALS", "")
    monkeypatch.setenv("HOME", "/nonexistent")
    with pytest.raises(ms.InvalidRequestError, match="api_key: 'openai-chat' has no key"):
        options(model="gpt-5-mini", providers=[ms.OpenAIChat()])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"actors": 0}, "actors: must be"),
        ({"concurrency": 3}, "concurrency: must be at least 1 for each of 4 actors, not 3"),
        ({"concurrency": True}, "concurrency: must be"),
        ({"providers": []}, "model: no provider is known for 'sim/m'; no provider is configured"),
        ({"providers": [PROVIDER, ms.Anthropic("k")], "model": "unknown"}, "model: no provider is known"),
        ({"traffic": {"rates": {}}}, "traffic: must be"),
        ({"temperature": "hot"}, "temperature: must be"),
    ],
)
def test_what_every_actor_would_refuse_is_refused_here(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        options(**changes)
    assert str(caught.value).startswith(reason)
    assert SECRET not in str(caught.value)


def test_an_actor_and_a_call_are_enough(tmp_path: Any) -> None:
    found = options(actors=1, concurrency=1, journal=str(tmp_path / "a.jsonl"))
    assert (found["compute"], found["fn_constructor_kwargs"]["concurrency"]) == ((1, 16), 1)
    assert found["fn_constructor_kwargs"]["journal"] == (str(tmp_path / "a.jsonl"), False)
    assert options(actors=3, concurrency=3)["fn_constructor_kwargs"]["concurrency"] == 1
    for changes, message in (
        ({"actors": 1, "concurrency": 0}, "concurrency: must be a whole number of at least 1, not 0"),
        ({"actors": 0}, "actors: must be a whole number of at least 1, not 0"),
        ({"actors": 4, "concurrency": 3}, "concurrency: must be at least 1 for each of 4 actors, not 3"),
        ({"providers": 5}, "providers: must be a list of providers, not int"),
    ):
        with pytest.raises(ms.InvalidRequestError) as caught:
            options(**changes)
        assert str(caught.value).startswith(message)


def test_a_provider_without_a_key_is_sent_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    local, other = ms.OpenAIChat(None, "http://127.0.0.1:9/v1", name="local"), ms.Anthropic()
    several = ms.OpenAIChat([SECRET, "second"], "http://127.0.0.1:9/v1", name="several")
    found = options(model="local/m", providers=[local, other, several])["fn_constructor_kwargs"]["providers"]
    assert [provider.api_key for provider in found] == [None, SECRET, (SECRET, "second")]
    assert other.api_key is None, "the program's own provider is not changed"
    assert options(model="several/m", providers=[several])["fn_constructor_kwargs"]["providers"] == [several]


def test_a_route_s_model_needs_no_provider_of_its_name() -> None:
    traffic = ms.Traffic(routes=[ms.Route("best", ["sim/m"])])
    assert options(model="best", traffic=traffic)["fn_constructor_kwargs"]["model"] == "best"
    with pytest.raises(ms.InvalidRequestError, match="no provider is known for 'other'"):
        options(model="other", traffic=traffic, providers=[PROVIDER, ms.Anthropic("k")])


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(TypeError, match=r"ask_options\(\) got an unexpected keyword argument 'temprature'"):
        options(temprature=1)


LIMIT = ms.RateLimit(requests_per_minute=100, tokens_per_minute=10_000, concurrent=9)


def test_limits_that_can_be_shared_are_given_to_the_keeper() -> None:
    rates = {"sim": LIMIT, "*": ms.RateLimit(requests_per_second=5), "sim/m": ms.RateLimit(concurrent=8)}
    shared = {"sim": dataclasses.replace(LIMIT, concurrent=2), "*": ms.RateLimit(requests_per_second=5)}
    found = options(traffic=ms.Traffic(rates=rates))["fn_constructor_kwargs"]
    assert (found["shared"], set(found["traffic"].rates)) == (("keeper", shared), {"sim/m"})


@pytest.mark.parametrize("limit", [5, ms.RateLimit(concurrent=3), LIMIT])
def test_limits_that_cannot_be_shared_are_refused(limit: Any) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"rates\['sim'\](.concurrent: cannot be shared|: must be)"):
        share_rates({"sim": limit})


def missing(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let the import of these packages fail."""
    for name in names:
        monkeypatch.setitem(__import__("sys").modules, name, None)


def test_a_missing_package_is_named_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    missing(monkeypatch, "ray", "ray.data", "pyarrow")
    start: list[Callable[[], object]] = [options, import_pyarrow]
    start.append(lambda: Ask(model="sim/m", providers=[PROVIDER], concurrency=1))
    for call in start:
        with pytest.raises(AskError, match=r"is not installed \(.*\): pip install '\.\[ray\]'"):
            call()


ERROR = [name for name in dir(ms.ProviderError) if not name.startswith("_") and not hasattr(Exception, name)]
