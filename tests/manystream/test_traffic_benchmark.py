"""The benchmark of traffic control runs: a few calls of each form, each within its limit."""

import pytest

from benchmarks.traffic import CLIENTS, FORMS, measure


@pytest.mark.parametrize("form", FORMS)
def test_a_few_calls_within_the_limit_are_all_accepted(form: str) -> None:
    outcome = measure(FORMS[form], CLIENTS["manystream"], 5)
    assert (outcome.failed, outcome.refused) == (0, 0.0)
    assert 0 < outcome.used <= 1
