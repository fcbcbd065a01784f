"""Servers drawn at random, in simulated time, driving the engine's own traffic control."""
