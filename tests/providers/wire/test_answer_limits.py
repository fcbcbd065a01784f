"""Limits on the choices, blocks and tool calls of an answer."""

from collections.abc import Iterable

import pytest

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.wire.answer_limits import ANSWER_LIMITS, AnswerLimits
from tests.support.crowds import CROWDS, Crowd

MOST = 20

LIMITED = [crowd for crowd in CROWDS if crowd.limit]


def outcome(crowd: Crowd, number: int, limits: AnswerLimits) -> str:
    """Return the message of the error that an answer with so many parts ends with, or an empty text."""
    provider = crowd.dialect.provider("http://127.0.0.1")
    dialect = DIALECTS[provider.profile.dialect_name]
    pieces: Iterable[bytes] = crowd.pieces(number)
    if not crowd.stream:
        try:
            dialect.decode(b"".join(pieces), provider, lambda: "id", limits)
        except ms.ProviderError as error:
            return error.message
        return ""
    machine = dialect.machine(provider, lambda: "id", limits)
    events: list[ms.Event] = []
    for piece in pieces:
        events.extend(machine.feed("", piece[6:-2]))
    errors = [event for event in events if isinstance(event, ms.ErrorEvent)]
    assert errors == events[-1:] if errors else True, "an error is the last event"
    machine.response()
    return errors[0].error.message if errors else ""


@pytest.mark.parametrize("crowd", LIMITED, ids=str)
def test_exceeding_a_limit_is_an_error_that_names_it(crowd: Crowd) -> None:
    message = outcome(crowd, 5 * MOST, AnswerLimits(**{crowd.limit: MOST}))
    assert message.startswith(f"the answer has more than {MOST} "), message
    assert message.endswith(f"(limits.{crowd.limit})"), message


@pytest.mark.parametrize("crowd", LIMITED, ids=str)
def test_an_answer_within_the_limit_is_read(crowd: Crowd) -> None:
    # An item with parts counts up to twice towards a limit, and details beside blocks up to forty times.
    small = AnswerLimits(**{crowd.limit: MOST})
    assert "limits." not in outcome(crowd, MOST // 2 if crowd.size < 1000 else 0, small)
    assert "limits." not in outcome(crowd, 5 * MOST if crowd.size < 1000 else 2, ANSWER_LIMITS)


def test_the_allowed_number_of_tool_calls_is_read() -> None:
    calls = next(crowd for crowd in LIMITED if str(crowd) == "anthropic, streamed: calls")
    limits = AnswerLimits(max_tool_calls=MOST)
    assert outcome(calls, MOST, limits) == ""
    assert outcome(calls, MOST + 1, limits) == f"the answer has more than {MOST} tool calls (limits.max_tool_calls)"
