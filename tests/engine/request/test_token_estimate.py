"""The estimates of tokens that no server has counted, with literal numbers."""

from __future__ import annotations

from typing import Any

import pytest

import manystream as ms
from manystream.engine.request.token_estimate import estimate_input_tokens, largest_input_tokens, seen_output_tokens
from manystream.engine.traffic.budgets.budgets import Spent, spent_by
from manystream.providers.limits.input_limits import Media


def request(*blocks: object) -> ms.Request:
    return ms.Request("m", [ms.Message("user", list(blocks))])  # type: ignore[arg-type]


def image(size: int) -> ms.Image:
    return ms.Image(data=b"x" * size, media_type="image/png")


def test_four_bytes_of_a_body_are_a_token() -> None:
    assert estimate_input_tokens(request(ms.Text("hello")), b"x" * 10) == 2.5
    assert estimate_input_tokens(request(ms.Text("hello")), b"") == 0.0


def test_a_small_body_is_not_searched_for_media() -> None:
    asked = request(image(100))
    assert estimate_input_tokens(asked, b"x" * 16_383) == 4095.75
    assert estimate_input_tokens(asked, b"x" * 16_384) == 1500 + (16_384 - 133) / 4


@pytest.mark.parametrize(
    ("size", "tokens"), [(3, 1500.0), (99_999, 1500.0), (100_000, 3000.0), (199_999, 3000.0), (200_000, 4500.0)]
)
def test_each_page_of_a_file_has_its_tokens(size: int, tokens: float) -> None:
    body = b"x" * (4 * size // 3 + 20_000)
    file = ms.File(data=b"x" * size, media_type="application/pdf")
    assert estimate_input_tokens(request(file), body) == tokens + 5000
    assert estimate_input_tokens(request(image(size)), body) == tokens + 5000


def test_media_of_tool_results_count_and_media_elsewhere_do_not() -> None:
    body = b"x" * 40_000
    result = ms.ToolResult("c1", [ms.Text("a"), image(300), image(300)])
    assert estimate_input_tokens(request(result, image(300)), body) == 4500 + (40_000 - 3 * 400) / 4
    assert estimate_input_tokens(request(ms.ToolResult("c1", "text")), body) == 10_000
    linked = ms.Image(url="https://pictures.example/1.png")
    assert estimate_input_tokens(request(linked, ms.File(file_id="f1")), body) == 10_000


def test_media_larger_than_the_body_leave_no_text() -> None:
    assert estimate_input_tokens(request(image(30_000)), b"x" * 20_000) == 1500
    assert largest_input_tokens(b"x" * 20_000, Media(1500, 40_000)) == 1500


def test_the_largest_estimate_counts_other_characters_higher() -> None:
    assert largest_input_tokens(b"x" * 30, Media()) == 10.0
    assert largest_input_tokens(b"\x7f" * 30, Media()) == 10.0
    assert largest_input_tokens(b"\x80" * 30, Media()) == 15.0
    assert largest_input_tokens("ü".encode() * 3 + b"\xff" * 4 + b"x" * 3, Media()) == 6.0
    assert largest_input_tokens(b"x" * 700 + b"\xff" * 10, Media(1500, 400)) == 1500 + 100 + 5


def test_the_seen_part_of_an_answer_has_texts_and_tool_calls() -> None:
    blocks = [
        ms.Text("12345678"), ms.Thinking("1234"), ms.ToolCall("an id that counts nothing", "name", '{"a":1}x'),
        ms.RedactedThinking("counts nothing"),
    ]  # fmt: skip
    assert seen_output_tokens(ms.Response(content=list(blocks))) == (8 + 4 + 4 + 8) / 4
    assert seen_output_tokens(ms.Response(content=[ms.Text("üü")])) == 1.0
    assert seen_output_tokens(ms.Response(content=[ms.Text("\ud800x")])) == 1.0
    assert seen_output_tokens(ms.Response()) == 0.0
    assert seen_output_tokens(None) == 0.0


def failed(status: int = 0) -> ms.ProviderError:
    return ms.ProviderError("no", category=ms.ErrorCategory.SERVER, http_status=status)


def answer(text: str = "", **usage: int) -> ms.Response:
    return ms.Response(content=[ms.Text(text)] if text else [], usage=ms.Usage(**usage))


WHOLE = ms.Usage(input_tokens=3, output_tokens=5)

SPENT = {
    "a reported answer": (answer("hi", input_tokens=3, output_tokens=5), None, Spent(WHOLE)),
    "an unreported answer": (answer("x" * 9), None, Spent(ms.Usage(7, 3, total_tokens=10), estimated=True)),
    "no output reported": (
        answer("x" * 8, input_tokens=4), None, Spent(ms.Usage(4, 2, total_tokens=6), estimated=True)
    ),
    "no input reported": (
        answer("x" * 8, output_tokens=4), None, Spent(ms.Usage(7, 4, total_tokens=11), estimated=True)
    ),
    "input below zero": (
        answer("x" * 8, input_tokens=-5000, output_tokens=7),
        None,
        Spent(ms.Usage(7, 2, total_tokens=9), estimated=True),
    ),
    "thinking below zero": (
        answer("x" * 8, input_tokens=4, output_tokens=7, thinking_tokens=-9),
        None,
        Spent(ms.Usage(7, 2, total_tokens=9), estimated=True),
    ),
    "a broken answer": (
        answer("x" * 40, input_tokens=4, output_tokens=1),
        failed(),
        Spent(ms.Usage(4, 10, total_tokens=14), estimated=True),
    ),
    "a broken answer that reported more than was seen": (
        answer("x" * 4, input_tokens=4, output_tokens=6, thinking_tokens=5, cached_tokens=1, cache_write_tokens=2),
        failed(),
        Spent(ms.Usage(4, 11, cached_tokens=1, cache_write_tokens=2, total_tokens=15), estimated=True),
    ),
    "an error response": (None, failed(500), Spent()),
    "an error inside an answer without content": (
        answer(), failed(200), Spent(ms.Usage(7, 0, total_tokens=7), estimated=True)
    ),
    "an error inside an answer that reported its input": (
        answer(input_tokens=4), failed(200), Spent(ms.Usage(4, 0, total_tokens=4), estimated=True)
    ),
    "an error after content": (answer("x"), failed(200), Spent(ms.Usage(7, 1, total_tokens=8), estimated=True)),
    "no response": (None, failed(), Spent(ms.Usage(7, 0, total_tokens=7), estimated=True)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("data", "raw", "report"),
    [
        ({"service_tier": "priority"}, {"total_tokens": 5}, {"total_tokens": 5, "service_tier": "priority"}),
        ({"service_tier": "priority"}, {"service_tier": "batch"}, {"service_tier": "batch"}),
        ({"service_tier": None}, {"total_tokens": 5}, {"total_tokens": 5}),
        ({}, {"total_tokens": 5}, {"total_tokens": 5}),
        ({"service_tier": "priority"}, None, {"service_tier": "priority"}),
    ],
)
def test_the_service_tier_of_an_answer_is_a_part_of_its_price(data: Any, raw: Any, report: Any) -> None:
    usage = ms.Usage(4, 1, total_tokens=5, raw=raw)
    spent = spent_by(7, ms.Response(usage=usage, provider_data=data), None).usage
    assert spent.raw == report
    assert usage.raw == raw


@pytest.mark.parametrize("name", SPENT)
def test_an_attempt_used_what_was_reported_or_seen(name: str) -> None:
    response, error, expected = SPENT[name]
    assert spent_by(7, response, error) == expected
