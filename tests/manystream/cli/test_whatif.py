"""The command `manystream whatif`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manystream.cli import main
from tests.manystream.whatif.day import lines, written

# --- the command ---


def test_the_command_shows_before_and_after(day_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = tmp_path / "fleet.py"
    fleet.write_text(
        "import manystream as ms\n\n\ndef price(provider, model, usage):\n    return usage.output_tokens * 1e-5\n\n\n"
        'TRAFFIC = ms.Traffic(price=price, rates={"openai": ms.RateLimit(requests_per_minute=100)})\nOTHER = 3\n'
    )
    assert main(["whatif", str(day_file), "--as-recorded"]) == 0
    assert capsys.readouterr().out.startswith("VALID\n")
    page = tmp_path / "report.html"
    asked = ["whatif", str(day_file), "--traffic", f"{fleet}:TRAFFIC", "--compare", "--html", str(page)]
    assert main(asked) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("VALID\n")
    assert [line.split()[:2] for line in shown.splitlines() if line.startswith("all ")] == [
        ["all", "calls"], ["all", "before"], ["all", "after"]
    ]  # fmt: skip
    text = page.read_text("utf-8")
    assert text.count("<svg") == 1
    page.unlink()
    assert main(asked) == 0
    assert page.read_text("utf-8") == text
    assert main(asked) == 2  # the page exists
    capsys.readouterr()
    assert main(["whatif", str(day_file), "--traffic", f"{fleet}:TRAFFIC", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["valid"] is True


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        ([], 2, "give --traffic"),
        (["--traffic", "fleet.py"], 2, "write FILE.py:NAME"),
        (["--traffic", "missing.py:T"], 2, "cannot run missing.py"),
        (
            ["--as-recorded", "--server", "openai/* speed=3"],
            2,
            "--server takes PROVIDER/MODEL and NAME=VALUE pairs of requests-per-minute",
        ),
        (["--as-recorded", "--server", "openai/* concurrent=x"], 2, "--server takes"),
        (["--as-recorded", "--keys", "openai"], 2, "--keys takes NAME=VALUE"),
        (["--as-recorded", "--keys", "openai=0"], 2, "a number from 1 to 1000, not 'openai=0'"),
    ],
)
def test_a_wrong_command_line_is_named(
    words: list[str], status: int, why: str, day_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["whatif", str(day_file), *words]) == status
    assert why in capsys.readouterr().err


def test_an_invalid_report_has_its_own_status(
    day_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = lines(day_file)
    for line in changed:
        line["response"]["headers"] = [["x-ratelimit-limit-requests", "20"]]
    path = written(tmp_path / "x.jsonl", changed)
    assert main(["whatif", str(path), "--as-recorded"]) == 3
    assert capsys.readouterr().out.startswith("INVALID: refusals: ")
    assert main(["whatif", str(tmp_path / "none.jsonl"), "--as-recorded"]) == 1
    assert "No such file" in capsys.readouterr().err
