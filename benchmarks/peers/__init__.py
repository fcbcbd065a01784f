"""The clients that are measured, ours among them: one small program each, with the same arguments and one JSON line
of results. Each is written as its own documentation advises; nothing is tuned against it."""
