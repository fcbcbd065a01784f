"""The comparison itself: the differences that it finds and allows, and that any damage has an outcome."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from . import gateway
from .__main__ import main
from .corpus import Case, read_corpus
from .damage import cut, flipped, places, reordered
from .pairs import compare_pairs
from .phenomena import PHENOMENA
from .robust import damage_one
from .spellings import respelled, spelling_faults
from .tokens import token_faults

Wire = dict[str, Any]

STREAM = (
    'data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}]}\n\n'
    'data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"lo"}}]}\n\n'
    'data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    "data: [DONE]\n\n"
)
HELLO: Wire = {"text": "Hello", "model": "m", "finish_reason": "stop", "usage": None, "error": None}


def keep(
    folder: Path, name: str, body: str | bytes, expected: Wire, *, dialect: str = "openai_chat", **metadata: Any
) -> None:
    """Write the files of one recorded response."""
    stream = metadata.pop("is_stream", True)
    kind = "text/event-stream" if stream else "application/json"
    described: Wire = {
        "http_status": 200, "response_headers": {"content-type": kind, "transfer-encoding": "chunked"},
        "is_stream": stream, "server": "openai", "model": "m", "tags": ["text"], **metadata,
    }  # fmt: skip
    (folder / dialect).mkdir(exist_ok=True)
    (folder / dialect / f"{name}.body").write_bytes(body if isinstance(body, bytes) else body.encode())
    (folder / dialect / f"{name}.json").write_text(json.dumps(described))
    (folder / dialect / f"{name}.expect.json").write_text(json.dumps(expected))


def run(folder: Path) -> int:
    return main([str(folder), "--no-robust"])


def test_without_a_folder_the_run_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nowhere")]) == main([]) == 0
    assert capsys.readouterr().out.count("skipped") == 2


def test_clients_of_the_gateway_get_what_others_get(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path, "hello.s", STREAM, HELLO)
    keep(tmp_path, "broken.s", STREAM[:150], HELLO)
    keep(tmp_path, "refused", '{"error": {"message": "no"}}', HELLO, http_status=429, is_stream=False)
    keep(tmp_path, "one", '{"content": [{"type": "text", "text": "é"}]}', HELLO, dialect="anthropic", is_stream=False)
    assert gateway.main([str(tmp_path)]) == gateway.main([]) == 0
    assert ", 0 differences" in capsys.readouterr().out


def test_a_result_equal_to_the_reference_s_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path, "hello.s", STREAM, HELLO)
    assert run(tmp_path) == 0
    assert "{'identical': 1, 'argued': 0, 'unargued': 0}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "other",
    [
        {"text": "Hello!"},
        {"thinking": "Hm."},
        {"thinking_signatures": ["sig"]},
        {"redacted": ["opaque"]},
        {"tool_calls": [{"id": "a", "name": "look", "arguments": {}}]},
        {"finish_reason": "length"},
        {"usage": {"total_tokens": 1}},
        {"model": "n"},
        {"refusal": "No."},
        {"error": {"type": "APIError", "code": "x", "body": {"message": "y"}}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_difference_without_a_rule_fails(tmp_path: Path, other: Wire, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path, "hello.s", STREAM, {**HELLO, **other})
    assert run(tmp_path) == 1
    assert "UNARGUED openai-chat hello.s" in capsys.readouterr().out


def test_a_difference_with_a_rule_passes_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut_off = STREAM[: STREAM.rindex('data: {"id"')]
    keep(tmp_path, "cut.s", cut_off, {**HELLO, "text": "Hello", "finish_reason": None, "terminal_event_seen": False})
    assert run(tmp_path) == 0
    assert "a truncated response must not count as complete" in capsys.readouterr().out


def test_errors_are_compared_by_category_code_and_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = {"message": "Slow down.", "type": "tokens", "code": "rate_limit_exceeded"}
    body = json.dumps({"error": error})
    expected: Wire = {"error": {"type": "RateLimitError", "code": "rate_limit_exceeded", "body": error}}
    keep(tmp_path, "limited", body, expected, is_stream=False, http_status=429)
    assert run(tmp_path) == 0
    keep(tmp_path, "other", body, {"error": {**expected["error"], "code": "x"}}, is_stream=False, http_status=429)
    assert run(tmp_path) == 1
    assert "error code: ours 'rate_limit_exceeded', reference 'x'" in capsys.readouterr().out


def test_streamed_arguments_of_gemini_are_joined(tmp_path: Path) -> None:
    calls: list[Wire] = [
        {"name": "look", "willContinue": True},
        {"partialArgs": [{"jsonPath": "$.at", "stringValue": "Os", "willContinue": True}], "willContinue": True},
        {"partialArgs": [{"jsonPath": "$.at", "stringValue": "lo"}]},
    ]
    chunks: list[Wire] = [{"candidates": [{"content": {"parts": [{"functionCall": call}]}}]} for call in calls]
    chunks.append({"candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": "STOP"}]})
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    keep(tmp_path, "look.s", body, {"tool_calls": calls, "finish_reason": "STOP"}, dialect="gemini", server="gemini")
    assert run(tmp_path) == 0


def phenomena_as_cases(folder: Path) -> list[Case]:
    for number, row in enumerate(PHENOMENA):
        dialect = row.dialect.replace("-", "_")
        keep(folder, f"{number}.s", row.stream(), {}, dialect=dialect, server=row.dialect.partition("-")[0])
    return read_corpus(folder)


def test_every_phenomenon_is_kept_in_every_spelling(tmp_path: Path) -> None:
    cases = phenomena_as_cases(tmp_path)
    assert [fault for case in cases for fault in spelling_faults(case)] == []
    report = compare_pairs(cases)
    assert report.faults == []
    assert report.restated > len(cases) // 2


def test_a_spelling_with_another_meaning_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path, "hello.s", STREAM, HELLO)
    (case,) = read_corpus(tmp_path)
    assert len(list(respelled(case))) > 10
    monkeypatch.setattr("tests.conformance.spellings.BOM", b"data: {}\ndata: nothing\n\n")
    assert "byte order mark" in spelling_faults(case)[0]


def test_any_damage_gives_a_response_or_an_error(tmp_path: Path) -> None:
    for case in phenomena_as_cases(tmp_path):
        ledger = damage_one(case, 20_000)
        assert ledger.faults == []
        assert ledger.responses + ledger.errors == ledger.variants > 10


def test_the_damage_is_as_named_and_bounded() -> None:
    body = bytes(range(256)) * 8
    assert [variant for _, variant in cut(body, 0)] == [body[:place] for place in range(97, len(body), 97)]
    for name, variant in list(flipped(body, 0, "seed"))[1:]:
        changed = [place for place in range(len(body)) if body[place] != variant[place]]
        assert name == f"byte {changed[0]} flipped"
        assert len(changed) == 1
    events = [("", b"1"), ("", b"2"), ("", b"3")]
    assert dict(reordered(events, 0, "seed"))["events backwards"] == events[::-1]
    assert len(places(1_000_000, 97, 10_000_000)) <= 10


def test_the_whole_run_passes_on_a_valid_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path, "hello.s", STREAM, HELLO)
    assert main([str(tmp_path), "--budget", "2000"]) == 0
    said = capsys.readouterr().out
    assert "0 of neither kind" in said
    assert "1 streams restated unstreamed" in said
    assert re.search(r"1 answers with [1-9]\d* null members added \(0 not readable\)", said)


@pytest.mark.parametrize("logprob", [-0.5, -0.25])
def test_tokens_are_compared_with_the_reference(tmp_path: Path, logprob: float) -> None:
    folder = tmp_path / "tokens"
    folder.mkdir()
    choice = {
        "index": 0, "token_ids": [5], "logprobs": {"content": [{"logprob": -0.5}]}, "finish_reason": "length",
    }  # fmt: skip
    (folder / "a.body").write_text(f"data: {json.dumps({'choices': [choice]})}\n\ndata: [DONE]\n\n")
    (folder / "a.json").write_text(json.dumps({"is_stream": True}))
    expected = {"text": "", "token_ids": [5], "logprobs": [logprob], "finish_reason": "length"}
    reference = {"kind": "vllm_generate", "choices": [expected], "error": None, "complete": True}
    (folder / "a.expect.json").write_text(json.dumps(reference))
    count, faults = token_faults(tmp_path)
    assert (count, len(faults)) == (1, 0 if logprob == -0.5 else 4)
