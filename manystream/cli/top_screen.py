"""Which screen `manystream top` draws on: with rich where it is installed, as plain text, or none.

Knows the screens. Must not know what a view says.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from .top_view import NoScreen, Screen, TextScreen


@contextmanager
def open_screen(*, plain: bool) -> Generator[Screen, None, None]:
    """The best that this terminal and this installation can show. What was shown last stays when it closes."""
    if plain:
        yield NoScreen()
        return
    try:
        from .top_rich import RichScreen
    except ImportError:
        yield TextScreen()
        return
    screen = RichScreen()
    try:
        yield screen
    finally:
        screen.close()
