"""Quirks."""

from __future__ import annotations

import manystream as ms


def test_quirks_default_to_the_dialects_behaviour() -> None:
    assert ms.Profile(name="x", dialect="openai-chat", base_url="").quirks == ms.Quirks()
