"""The choice of a screen for `manystream top`: with rich, with escape sequences only, or without a terminal."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from .view import NoScreen, Screen, TextScreen


@contextmanager
def open_screen(*, plain: bool) -> Generator[Screen, None, None]:
    """Open a screen until the block is left. Its last view stays visible.

    plain: whether to print each view instead of redrawing it.

    If rich is installed, rich draws the views. Otherwise the screen uses escape sequences only.
    """
    if plain:
        yield NoScreen()
        return
    try:
        from .rich_screen import RichScreen
    except ImportError:
        yield TextScreen()
        return
    screen = RichScreen()
    try:
        yield screen
    finally:
        screen.close()
