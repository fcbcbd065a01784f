"""Which target of a route a call goes to: scores, breakers, sessions, keys, and when a call is sent twice."""
