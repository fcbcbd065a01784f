"""The choice of a screen for `manystream top`: with rich, with escape sequences only, or without a terminal.

Knows the screens. Must not know what a view holds.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from .top_view import NoScreen, Screen, TextScreen


@contextmanager
def open_screen(*, plain: bool) -> Generator[Screen, None, None]:
    """Open a screen: rich's if rich is installed, or one without a terminal if `plain`. Its last view stays visible."""
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
