"""The size of kept values."""

from __future__ import annotations

from manystream.providers.wire.answer_bytes import kept_bytes


# --- memory ---
class Slots:
    __slots__ = ("a", "provider", "unset")

    def __init__(self) -> None:
        self.a = "abc"
        self.provider = "x" * 1000


def test_the_size_of_kept_values_is_counted() -> None:
    shared = ["ab"]
    assert kept_bytes("abc") == 3
    assert kept_bytes(b"abcd") == 4
    assert [kept_bytes(value) for value in (None, True, 5, 1.5, int)] == [1] * 5
    assert kept_bytes({"ab": ["c", None]}) == 1 + 2 + 1 + 1 + 1
    assert kept_bytes(("a", {"b"})) == 4
    assert kept_bytes([shared, shared]) == 1 + 1 + 2 + 1
    assert kept_bytes(Slots()) == 1 + 3 + 1
