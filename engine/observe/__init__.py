"""What an engine shows of itself: the observer, recordings and the figures. They cost nothing while they are off.

An observer's methods are called where a call or a connection begins or ends (`observer.py`). What they raise changes no
call. A recording notes what comes between a connection and an attempt, and writes an exchange when it has ended
(`recording.py`). The figures are values, which the engine makes when the program asks (`statistics.py`).
"""
