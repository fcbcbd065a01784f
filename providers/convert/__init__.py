"""Other forms of requests: arguments of the official SDKs, and plain dicts."""
