"""Other forms of requests: arguments of the official SDKs, and plain dicts.

The dialect has the reader of its own SDK's arguments (`arguments.py` in its folder); here is what these readers share.
"""
