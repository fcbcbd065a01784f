"""Other forms of requests and messages: arguments of the official SDKs, plain dicts, and database rows."""
