"""Random servers in simulated time. They run with the engine's own traffic control."""
