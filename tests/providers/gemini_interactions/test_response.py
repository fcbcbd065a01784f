"""Unstreamed answers: equal to streamed ones, and bodies that are no interaction."""

from __future__ import annotations

import json
from typing import Any

import pytest

import manystream as ms
from manystream.providers.wire.answer_limits import AnswerLimits

from .wire import (
    CREATED,
    DIALECT,
    PROVIDER,
    USAGE,
    arguments,
    completed,
    decode,
    interaction,
    run,
    signature,
    step,
    summary,
    text,
)

STEPS: list[dict[str, Any]] = [
    {"type": "thought", "summary": [text("hm, "), text("so")], "signature": "s"},
    {"type": "model_output", "content": [text("a"), text("b")]},
    {"type": "function_call", "id": "c", "name": "f", "arguments": {"a": 1, "b": [None, "ü"]}, "signature": "t"},
    {"type": "url_context_call", "id": "u", "arguments": {"urls": ["x"]}},
]
STREAMED = (
    step(0, "thought", summary("hm, "), summary("so"), signature("s"))
    + step(1, "model_output", text("a"), text("b"))
    + step(
        2,
        "function_call",
        arguments('{"a":1,'),
        arguments('"b":[null,"ü"]}'),
        id="c",
        name="f",
        arguments={},
        signature="t",
    )
    + step(3, "url_context_call", {"type": "url_context_call", "arguments": {"urls": ["x"]}}, id="u", arguments={})
)


@pytest.mark.parametrize("status", ["completed", "requires_action", "incomplete"])
def test_streamed_and_unstreamed_answers_are_equal(status: str) -> None:
    whole = decode(
        interaction(status, steps=STEPS, usage=USAGE, service_tier="standard", created="2026-11-01T10:00:00Z")
    )
    assert run(CREATED + STREAMED + completed(status, created="2026-11-01T10:00:00Z")).response == whole


def test_what_repeats_the_request_is_not_kept() -> None:
    echoed: dict[str, Any] = {"system_instruction": "s", "tools": [], "generation_config": {"seed": 1}, "input": "Hi"}
    response = decode(
        interaction("completed", steps=STEPS, usage=USAGE, service_tier="flex", continuation_token="t", **echoed)
    )
    assert response.provider_data == {"service_tier": "flex", "continuation_token": "t"}


def test_a_stored_interaction_has_its_input_among_the_steps() -> None:
    steps = [{"type": "user_input", "content": [text("Hi")]}, {"type": "model_output", "content": [text("a")]}]
    assert decode(interaction("completed", steps=steps)).content == [ms.Text("a")]


@pytest.mark.parametrize("status", ["in_progress", "queued"])
def test_an_interaction_in_the_background_has_only_its_id(status: str) -> None:
    response = decode(interaction(status))
    assert (response.id, response.content, response.finish_reason) == ("v1_1", [], ms.FinishReason.UNKNOWN)


@pytest.mark.parametrize("member", ["id", "model", "usage", "service_tier", "created", "agent", "steps"])
def test_a_null_member_is_an_absent_one(member: str) -> None:
    body = interaction("completed", steps=STEPS, usage=USAGE, service_tier="standard", created="c", agent="a")
    absent = {name: value for name, value in body.items() if name != member}
    assert decode({**body, member: None}) == decode(absent)


@pytest.mark.parametrize(
    ("body", "category"),
    [
        ({"error": {"code": 500, "message": "Boo.", "status": "INTERNAL"}}, ms.ErrorCategory.SERVER),
        ({"error": {"code": "invalid_request", "message": "Boo."}}, ms.ErrorCategory.INVALID_ARG),
        ([{"error": {"code": 429, "message": "Boo.", "status": "RESOURCE_EXHAUSTED"}}], ms.ErrorCategory.RATE_LIMIT),
        ({"candidates": [{"content": {"parts": [text("a")]}}]}, ms.ErrorCategory.SERVER),
        ({"hello": "world"}, ms.ErrorCategory.SERVER),
        ([1], ms.ErrorCategory.SERVER),
        ("text", ms.ErrorCategory.SERVER),
        (interaction("completed", steps="a"), ms.ErrorCategory.SERVER),
        (interaction("completed", steps=["a"]), ms.ErrorCategory.SERVER),
        (interaction("completed", steps=[{"type": "model_output", "content": [1]}]), ms.ErrorCategory.SERVER),
    ],
)
def test_a_body_that_is_no_interaction_is_an_error(body: Any, category: ms.ErrorCategory) -> None:
    with pytest.raises(ms.ProviderError) as raised:
        decode(body)
    assert raised.value.category is category


@pytest.mark.parametrize("body", [b"", b"{", b"null", b"{}"])
def test_a_body_that_cannot_be_read_is_an_error(body: bytes) -> None:
    with pytest.raises(ms.ProviderError):
        DIALECT.decode(body, PROVIDER, lambda: "id")


@pytest.mark.parametrize("limits", [AnswerLimits(max_blocks=2), AnswerLimits(max_tool_calls=0)])
def test_an_answer_beyond_the_limits_is_an_error(limits: AnswerLimits) -> None:
    with pytest.raises(ms.ProviderError, match="limits"):
        DIALECT.decode(json.dumps(interaction("completed", steps=STEPS)).encode(), PROVIDER, lambda: "id", limits)
