"""Batches over the processes and machines of a Ray cluster.

The modules `exchange`, `ledger`, `watch`, `leases` and `amounts` hold the rules and need no Ray: their callers pass the
time and carry the messages. Tests run them with messages that are lost, repeated and late.
"""
