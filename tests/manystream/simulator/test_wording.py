"""The words of an answer: every text has a wording, and words that trouble parsers."""

from __future__ import annotations

from manystream.simulator.knobs import TEXTS
from manystream.simulator.wording import WORDINGS, WORDS


def test_every_text_of_the_knob_has_a_wording() -> None:
    assert tuple(WORDINGS) == TEXTS


def test_words_that_trouble_parsers_are_in_this_order() -> None:
    assert " ".join(WORDS[:29]) == (
        "the stream carries many small pieces and each of them arrives in order while others wait a river crosses the"
        " plain under stone bridges where boats move slowly towards"
    )
    assert WORDS[29:] == (
        "Zürich", "naïve", "façade", "Łódź", "Ελλάδα", "москва", "東京", "서울", "🙂", "👩\u200d🚀", "line\u2028break",
        'quote"d', "back\\slash", "tab\tbed", "new\nline",
    )  # fmt: skip
