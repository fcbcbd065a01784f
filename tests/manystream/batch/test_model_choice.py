"""The model of a line."""

from __future__ import annotations

from manystream.batch.model_choice import ModelChoice, OneModel

# --- models and lines ---


def test_the_model_of_a_line() -> None:
    rules = (
        ModelChoice("p"), ModelChoice("p", "all"), ModelChoice("p", default="else"), ModelChoice("p", "all", "else"),
    )  # fmt: skip
    assert [(rule("own"), rule(None)) for rule in rules] == [
        ("p/own", None), ("p/all", "p/all"), ("p/own", "p/else"), ("p/all", "p/all"),
    ]  # fmt: skip
    assert [OneModel("route")(named) for named in ("own", None)] == ["route", "route"]
