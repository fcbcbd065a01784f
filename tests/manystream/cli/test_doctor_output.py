"""What `manystream doctor` prints for given findings, which providers it checks, and its exit status."""

import json
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
import trio.testing

from manystream.cli import doctor, main
from manystream.cli.connectivity import Finding, Verdict
from manystream.cli.doctor import choose_providers, configured_rows
from manystream.cli.output.errors import CommandError
from manystream.providers.catalog.provider import Anthropic, OpenAIChat, Provider
from tests.support.commands import Terminal, remove_keys

HOME = {"HOME": "/nonexistent", "MANYSTREAM_CREDENTIALS": ""}


class Checks:
    """Stands in for the check of a provider. A provider without findings is checked until it is cancelled."""

    def __init__(self) -> None:
        self.findings: dict[str, list[Finding]] = {}
        self.asked: list[tuple[str, str | None, float]] = []
        self.running = 0
        self.interrupt_at = 0

    async def __call__(self, provider: Provider, environment: Mapping[str, str], limit: float) -> list[Finding]:
        assert "PATH" in environment
        self.asked.append((provider.name, provider.base_url, limit))
        self.running += 1
        if self.running == self.interrupt_at:
            await trio.testing.wait_all_tasks_blocked()
            signal.raise_signal(signal.SIGINT)
        if provider.name not in self.findings:
            await trio.sleep_forever()
        return self.findings[provider.name]


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    checks = Checks()
    monkeypatch.setattr(doctor, "check_provider", checks)
    remove_keys(monkeypatch)
    return checks


OK = [Finding(Verdict.OK, "key", "from X"), Finding(Verdict.NOTE, "answer", "HTTP 404")]
BAD = [Finding(Verdict.OK, "key", "from Y"), Finding(Verdict.FAIL, "connect", "refused")]


def test_findings_are_printed_in_order_of_the_providers(checks: Checks, capsys: pytest.CaptureFixture[str]) -> None:
    checks.findings = {"groq": BAD, "anthropic": OK, "mistral": BAD}
    words = ["--provider", "mistral", "--provider", "claude", "--provider", "groq"]
    assert main(["doctor", *words, "--timeout", "0.5"]) == 1
    out, err = capsys.readouterr()
    *lines, last = out.splitlines()
    assert lines == [
        "mistral", "  ok    key       from Y", "  FAIL  connect   refused", "anthropic", "  ok    key       from X",
        "  note  answer    HTTP 404", "groq", "  ok    key       from Y", "  FAIL  connect   refused",
    ]  # fmt: skip
    assert last.startswith("1 of 3 can be used; not: ")
    assert sorted(last.partition(": ")[2].split(", ")) == ["groq", "mistral"]
    assert not err
    assert {(name, limit) for name, _, limit in checks.asked} == {("mistral", 0.5), ("anthropic", 0.5), ("groq", 0.5)}


def test_usable_providers_are_status_0(checks: Checks, capsys: pytest.CaptureFixture[str]) -> None:
    checks.findings = {"anthropic": OK}
    assert main(["doctor", "--provider", "anthropic"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 of 1 can be used"
    assert checks.asked[0][2] == 10.0


def test_the_findings_on_a_terminal_have_colours(checks: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    checks.findings = {"anthropic": [*OK, BAD[1]]}
    assert main(["doctor", "--provider", "anthropic"]) == 1
    assert terminal.getvalue().splitlines()[:4] == [
        "\x1b[1manthropic\x1b[0m", "  \x1b[32mok  \x1b[0m  key       from X",
        "  \x1b[33mnote\x1b[0m  answer    HTTP 404", "  \x1b[31mFAIL\x1b[0m  connect   refused",
    ]  # fmt: skip


def test_ctrl_c_shows_what_was_found(checks: Checks, capsys: pytest.CaptureFixture[str]) -> None:
    checks.findings = {"anthropic": OK}
    checks.interrupt_at = 3
    words = ["--provider", "groq", "--provider", "anthropic", "--provider", "mistral"]
    assert main(["doctor", *words]) == 130
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "groq", "anthropic", "  ok    key       from X", "  note  answer    HTTP 404", "mistral",
        "Interrupted: 2 of 3 checks did not finish.",
    ]  # fmt: skip


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_the_timeout_is_a_number_above_0(checks: Checks, seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--timeout", seconds]) == 2
    assert capsys.readouterr() == ("", "manystream doctor: --timeout must be a number of seconds above 0\n")


# The choice of the providers.


def refused(names: list[str], base_url: str | None, environment: Mapping[str, str] = HOME) -> tuple[str, int]:
    with pytest.raises(CommandError) as caught:
        choose_providers(names, base_url, environment)
    return str(caught.value), caught.value.status


def test_what_cannot_be_checked_is_refused() -> None:
    assert refused([], None) == (
        "no key found: set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or name a server with --provider or"
        " --base-url",
        1,
    )
    assert refused(["a", "b"], "http://h") == ("--base-url allows at most one --provider", 2)
    text, status = refused(["nobody"], None)
    assert text.startswith("unknown provider 'nobody'; the names are ")
    assert {"anthropic", "groq"} <= set(text.partition(" are ")[2].split(", "))
    assert status == 2


def test_a_server_is_compatible_with_its_provider_or_openai() -> None:
    (provider,) = choose_providers([], "http://h/v1", HOME | {"ANTHROPIC_API_KEY": "k"})
    assert (type(provider), provider.base_url, provider.name) == (OpenAIChat, "http://h/v1", "openai-compatible")
    (provider,) = choose_providers(["anthropic"], "http://h", HOME)
    assert (type(provider), provider.base_url) == (Anthropic, "http://h")


def test_without_names_every_provider_with_a_key_is_checked() -> None:
    environment = HOME | {"ANTHROPIC_API_KEY": "k", "GROQ_API_KEY": "k", "OPENAI_API_KEY": "", "GEMINI_API_KEY": "k\n"}
    assert [(provider.name, provider.base_url) for provider in choose_providers([], None, environment)] == [
        (row.name, row.base_url) for row in configured_rows(environment)
    ]
    assert {row.name for row in configured_rows(environment)} == {"anthropic", "google", "groq"}


def test_keys_of_the_credentials_file_count(tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    file.write_text(json.dumps({"anthropic": "k"}), "utf-8")
    file.chmod(0o600)
    assert [row.name for row in configured_rows(HOME | {"MANYSTREAM_CREDENTIALS": str(file)})] == ["anthropic"]


def test_a_credentials_file_that_cannot_be_used_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    file.write_text("{", "utf-8")
    file.chmod(0o600)
    text, status = refused([], None, HOME | {"MANYSTREAM_CREDENTIALS": str(file)})
    assert "credentials file" in text
    assert status == 1
