"""Content without an event is kept, streamed and unstreamed, wherever the bytes are cut."""

import pytest

import manystream as ms

from .phenomena import PHENOMENA, Phenomenon, found, streamed, unstreamed

CASES = [pytest.param(row, id=f"{row.dialect}: {row.what}") for row in PHENOMENA]


@pytest.mark.parametrize("row", CASES)
def test_each_part_is_where_the_documentation_says(row: Phenomenon) -> None:
    assert found(row.where, unstreamed(row)) == row.value
    assert found(row.where, streamed(row)) == row.value


@pytest.mark.parametrize("row", CASES)
def test_the_response_is_equal_streamed_and_unstreamed(row: Phenomenon) -> None:
    one, other = unstreamed(row), streamed(row)
    for response in (one, other):
        response.provider_data.pop("object", None)  # Chat has different names for the body and the chunk
    assert one == other


@pytest.mark.parametrize("row", CASES)
def test_each_part_is_kept_wherever_its_stream_is_cut(row: Phenomenon) -> None:
    """Every seventh place, from another one in each row: the rows of a dialect have the same events around a part."""
    whole = streamed(row)
    assert all(streamed(row, cut) == whole for cut in range(1 + PHENOMENA.index(row) % 7, len(row.stream()), 7))


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.dialect) for row in PHENOMENA if row.what in ("server-side tools", "MCP")]
)
def test_a_server_s_own_call_is_never_a_tool_call(row: Phenomenon) -> None:
    assert unstreamed(row).tool_calls == streamed(row).tool_calls == []
    assert unstreamed(row).finish_reason is streamed(row).finish_reason is ms.FinishReason.STOP
