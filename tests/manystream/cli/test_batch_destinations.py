"""Where `manystream batch` sends lines: the providers, models and routes of each combination of options."""

import os
import pickle
from collections.abc import Sequence

import pytest

from manystream.batch.lines import ModelChoice, OneModel
from manystream.cli.batch_targets import Destination, TargetOptions, open_destination, read_target_options
from manystream.cli.command_line import command_parser
from manystream.cli.output.errors import CommandError
from manystream.engine.traffic.routing.options import Route
from manystream.providers.catalog.provider import Anthropic, OpenAIChat
from manystream.providers.errors import InvalidRequestError

URL = "http://127.0.0.1:9/v1"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only OpenAI and Anthropic have a key."""
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "MANYSTREAM_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-canary")


def options(*words: str) -> TargetOptions:
    return read_target_options(command_parser().parse_args(["batch", "p", "-o", "a", *words]))


def destination(*words: str) -> Destination:
    with open_destination(options(*words)) as found:
        return found


def refused(*words: str) -> tuple[str, int]:
    with pytest.raises(CommandError) as caught:
        destination(*words)
    return str(caught.value), caught.value.status


def test_the_simulator_answers_only_when_it_is_asked_for() -> None:
    assert (options().simulated, options().by_lines) == (False, True)
    assert (options("--simulate").simulated, options("--simulate").by_lines) == (True, False)
    for words in (("--model", "m"), ("--route", "a"), ("--provider", "p"), ("--base-url", URL)):
        assert (options(*words).simulated, options(*words).by_lines) == (False, False)
        reason = "--simulate is the built-in simulator: leave out --model, --route, --provider and --base-url"
        assert refused("--simulate", *words) == (reason, 2)


def test_one_model_has_one_provider() -> None:
    found = destination("--model", "claude-opus-4-5")
    (provider,) = found.providers
    assert (type(provider), provider.name, found.name) == (Anthropic, "anthropic", "anthropic")
    assert found.choose_model == ModelChoice("anthropic", "claude-opus-4-5")
    assert found.routes == ()
    assert found.choose_model(None) == "anthropic/claude-opus-4-5"


def test_without_a_model_each_line_names_its_own() -> None:
    found = destination("--base-url", URL)
    (provider,) = found.providers
    assert (type(provider), provider.base_url, provider.api_key) == (OpenAIChat, URL, None)
    assert found.choose_model == ModelChoice("openai-compatible", None)
    assert found.choose_model(None) is None
    assert destination("--provider", "anthropic").choose_model == ModelChoice("anthropic", None)


def test_a_route_tries_its_models_in_order() -> None:
    found = destination("--route", "gpt-5, claude-opus-4-5,gpt-4o")
    assert [(type(provider), provider.name) for provider in found.providers] == [
        (OpenAIChat, "openai-chat"),
        (Anthropic, "anthropic"),
    ]
    assert found.choose_model == OneModel("batch")
    targets = ["openai-chat/gpt-5", "anthropic/claude-opus-4-5", "openai-chat/gpt-4o"]
    assert found.routes == (Route("batch", targets),)


def test_replicas_are_named_by_address_and_the_fastest_is_chosen() -> None:
    urls = [
        "http://user:canary@h:8000/v1", "http://h:8000/v2", "http://h:8000/v3", "https://h/v1", "http://h/v1",
        "http://[::1]:7/v1",
    ]  # fmt: skip
    found = destination("--model", "m", *(word for url in urls for word in ("--base-url", url)))
    names = ["h:8000", "h:8000 (2)", "h:8000 (3)", "h:443", "h:80", "[::1]:7"]
    assert [(provider.name, provider.base_url) for provider in found.providers] == list(zip(names, urls, strict=True))
    assert found.choose_model == OneModel("batch")
    assert found.routes == (Route("batch", [f"{name}/m" for name in names], balance="fastest"),)
    assert found.name == "h:8000"


def test_urls_of_which_no_host_can_be_read_have_names_too() -> None:
    urls = ["http://h:99999/v1", "x:1", "http://[bad"]
    found = destination("--model", "m", *(word for url in urls for word in ("--base-url", url)))
    assert [provider.name for provider in found.providers] == ["server:0", "server:0 (2)", "server:0 (3)"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--model", "a", "--route", "b"),
            "give --model or --route, not both: --route is several models, in the order in which a line tries them"),
        (("--route", "a, "),
            "--route: a name is empty; write models with commas between them, such as gpt-5,claude-sonnet-4-5"),
        (("--route", "a,b,c,b,a"), "--route names 'b' twice"),
        (("--route", "gpt-5,openai-chat/gpt-5"), "--route names 'openai-chat/gpt-5' twice"),
        (("--route", "a", "--base-url", URL, "--base-url", URL + "2"),
            "--route allows at most one --base-url: several are replicas that serve one --model"),
        (("--base-url", URL, "--base-url", URL + "2"),
            "several --base-url need --model: the model that every one of these servers has"),
    ],
)  # fmt: skip
def test_each_wrong_combination_has_its_reason(words: tuple[str, ...], complaint: str) -> None:
    assert refused(*words) == (complaint, 2)


@pytest.mark.parametrize(
    ("urls", "number"),
    [
        (("http://h/v1", "http://h:80/v1"), 2),
        (("https://h/v1", "http://h/v1", "https://H:443/v1/"), 3),
        (("http://h/v1?a=1", "http://u:p@h/v1?a=1"), 2),
        (("http://h:x/v1", "http://h:x/v1"), 2),
        (("http://h/v1", "http://h:81/v1", "http://g/v1", "https://h/v1", "http://h/v2", "http://h/v1?a=1"), None),
    ],
)
def test_a_server_may_be_named_once(urls: Sequence[str], number: int | None) -> None:
    words = ["--model", "m", *(word for url in urls for word in ("--base-url", url))]
    if number is None:
        assert options(*words).base_urls == tuple(urls)
        return
    complaint = f"--base-url number {number} is the same server as an earlier one; give each replica once"
    assert refused(*words) == (complaint, 2)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--route", "gpt-5,nobody"), "--route, 'nobody': unknown model 'nobody': add --provider or --base-url"),
        (("--route", "gpt-5,gemini-2.5-pro"), "--route, 'gemini-2.5-pro': api_key: 'google' has no key"),
        (("--model", "nobody"), "unknown model 'nobody': add --provider or --base-url"),
        (("--provider", "groq", "--route", "a,anthropic/b", "--base-url", "http://h"), "--route, 'a': api_key: 'groq'"),
    ],
)
def test_a_target_that_cannot_be_used_is_status_1(words: tuple[str, ...], complaint: str) -> None:
    text, status = refused(*words)
    assert text.startswith(complaint)
    assert status == 1
    assert "canary" not in text


# Lines that name their models.


def test_the_model_of_a_line_selects_a_provider_with_a_key() -> None:
    found = destination()
    names = {provider.name for provider in found.providers}
    assert {"anthropic", "openai-chat"} <= names
    assert found.choose_model("claude-sonnet-4-5") == "anthropic/claude-sonnet-4-5"
    assert found.choose_model("anthropic/claude-x") == "anthropic/claude-x"
    chosen = found.choose_model("gpt-5-mini")
    assert chosen.partition("/")[0] in names
    assert found.choose_model(None) is None
    for model, reason in (
        ("gemini-2.5-flash", "has no key for 'gemini-2.5-flash': set GEMINI_API_KEY"),
        ("nobody-knows", "unknown model 'nobody-knows'"),
    ):
        with pytest.raises(InvalidRequestError, match=reason):
            found.choose_model(model)
    assert pickle.loads(pickle.dumps(found.choose_model)) == found.choose_model


def test_lines_that_name_models_need_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.endswith(("_API_KEY", "_TOKEN"))]:
        monkeypatch.delenv(name)
    with pytest.raises(CommandError) as caught, open_destination(options(), ["gpt-5", "claude-sonnet-4-5"]):
        pass
    assert str(caught.value) == (
        "model: 'openai-chat' has no key for 'gpt-5': set OPENAI_API_KEY; --base-url names a server, --simulate the"
        " built-in simulator"
    )
    with open_destination(options(), ["gpt-5", "ollama/llama3.2"]) as found:
        assert found.choose_model("ollama/llama3.2") == "ollama/llama3.2"
