"""What holds for every test: how property tests choose their examples, and what Ctrl-C means to a child."""

from __future__ import annotations

import signal

from hypothesis import settings

settings.register_profile("manystream", deadline=None)  # a shared machine may stop any example for a second
settings.register_profile("fuzz", parent=settings.get_profile("manystream"), max_examples=20_000)
settings.load_profile("manystream")

# A shell ignores SIGINT in what it starts in the background, and its children inherit that: without this, commands
# that tests interrupt would go on for ever where the tests themselves were started so.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
