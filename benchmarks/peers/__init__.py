"""The measured clients, ours included: one small program each, with equal arguments and one JSON line of results.

Each follows the documentation of its library. None is slowed down on purpose.
"""
