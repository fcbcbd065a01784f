"""What holds for every test: how property tests choose their examples."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("manystream", deadline=None)  # a shared machine may stop any example for a second
settings.register_profile("fuzz", parent=settings.get_profile("manystream"), max_examples=20_000)
settings.load_profile("manystream")
