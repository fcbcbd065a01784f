"""The readable text of HTML pages."""

import pytest

from manystream.providers.wire.error_bodies import (
    page_words,
)
from tests.providers.wire.test_error_bodies import in_stream


def test_only_the_beginning_of_a_long_page_is_searched() -> None:
    page = "<p>" + " " * (64_000 - 8)
    assert in_stream(page + "seen, not seen").message == "seen,"


PAGES = {
    "<html><head><title>502 Bad Gateway</title></head><body>x</body></html>": "502 Bad Gateway",
    '<TITLE lang="en">Not\nfound</TITLE>': "Not found",
    "<html><title> </title><h1>Busy</h1><p>later</p>": "Busy later",
    "<style>p { color: red }</style><p>a</p><script>if (a < b) { c() }</script>b": "a b",
    "<SCRIPT src='x'>hidden</SCRIPT >shown": "shown",
    "<script>never ends": "",
    "a < b": "a < b",
    "<" + "x" * 600 + ">kept": "<" + "x" * 600 + ">kept",
    "": "",
}


@pytest.mark.parametrize("page", PAGES)
def test_the_readable_text_of_a_page(page: str) -> None:
    assert " ".join(page_words(page).split()) == PAGES[page]


@pytest.mark.parametrize("piece", ["<title>", "<title ", "<script>", "</script", "<", "<a>", "<title><", "< "])
def test_a_hostile_page_is_read_in_linear_time(piece: str) -> None:
    """With quadratic time, half of these pages took minutes."""
    page_words(piece * 100_000)
