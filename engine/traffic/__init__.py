"""Traffic control: pure state machines that decide when a call is sent, to which target, and within which budget.

The caller passes the time to every method. Nothing here keeps a timer or does I/O.
"""
