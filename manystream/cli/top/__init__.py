"""`manystream top`: `command` reads snapshots from an engine's monitor, and `view` makes lines and tables of them."""
